"""A scenario becomes a configuration that the product itself would accept."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gate.config_check import decode_config
from ops.chaos.configured import configured
from ops.chaos.scenarios import SCENARIOS


def written(value: Any) -> Any:
    """As an operator would write it: without what is the default anyway."""
    if isinstance(value, msgspec.Struct):
        fields = msgspec.structs.fields(value)
        kept = {each.name: getattr(value, each.name) for each in fields}
        defaults = {each.name: each.default for each in fields}
        return {name: written(each) for name, each in kept.items() if each != defaults[name]}
    if isinstance(value, tuple):
        return [written(each) for each in value]
    return (
        {name: written(each) for name, each in value.items()} if isinstance(value, dict) else value
    )


@pytest.mark.parametrize("name", ["healthy", "judged", "denied", "queued", "continued"])
def test_what_a_scenario_asks_for_is_a_valid_configuration(name: str) -> None:
    """Written out and read as a file would be, it is the same."""
    scenario = SCENARIOS[name]
    urls = [f"http://p{at}/v1" for at in range(len(scenario.targets))]
    loaded = configured(scenario, urls, {each: f"http://{each}/" for each in scenario.services})
    read = decode_config(written(loaded.config))
    assert read.models == loaded.config.models
    assert read.limits == scenario.limits
    assert read.routes["struck"].filters == (*scenario.filters, *scenario.services)


def test_a_service_that_denies_sends_the_request_elsewhere() -> None:
    """And the retries of a crowd may be unlimited."""
    scenario = SCENARIOS["judged"]
    urls = {name: f"http://{name}/" for name in scenario.services}
    config = configured(scenario, ["http://a/v1", "http://b/v1"], urls, retries_min=77).config
    assert config.filters["hook"].action == "next_provider"
    assert config.filters["watch"].action is None
    assert config.routes["struck"].recovery.retry_budget_floor == 77
