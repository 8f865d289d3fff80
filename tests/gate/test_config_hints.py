"""What a valid configuration can hardly mean."""

from __future__ import annotations

from typing import Any

import pytest

from gate.config_check import decode_config
from gate.config_hints import hints

CHAT = ["tools"]


def tables(*, provider: Any = None, target: Any = None, on: bool = True) -> dict[str, Any]:
    """A file with one route in use, whose switch is `on`, and one that nobody uses."""
    local = {"name": "local", "base_url": "http://127.0.0.1:8000/v1"}
    local |= {} if provider is None else {"capabilities": provider}
    first = {"provider": "local", "model": "a"}
    second = {**first, **({} if target is None else {"capabilities": target})}
    route = {"responses_over_chat": on}
    return {
        "providers": [local],
        "models": [{"alias": "small", "route": "over", "targets": [first, second]}],
        "routes": {"over": route, "idle": {"responses_over_chat": True}},
    }


@pytest.mark.parametrize(
    ("file", "told"),
    [
        (tables(), ["routes.over.responses_over_chat"]),
        (tables(on=False), []),
        (tables(provider=CHAT), []),
        (tables(target=CHAT), []),
        (tables(provider=CHAT, target=["responses"]), []),
    ],
)
def test_a_switch_that_no_target_needs_is_told(file: dict[str, Any], told: list[str]) -> None:
    """By its path; nothing is said of a route without targets."""
    found = hints(decode_config(file))
    assert [each.split(":")[0] for each in found] == told
