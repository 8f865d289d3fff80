"""What the schema accepts and nothing acts on yet: pinned, so that it only shrinks on purpose."""

from __future__ import annotations

from typing import Any

import pytest

from gate.config_active import ALREADY_SO, NOT_ACTIVE, inactive
from gate.config_check import decode_config

TARGET = {"provider": "local", "model": "m"}
LOCAL = {"name": "local", "base_url": "http://127.0.0.1:8000/v1"}


def tables(**more: Any) -> dict[str, Any]:
    """A file with one provider and one model on a route of built filters, and ``more``."""
    model = {"alias": "small", "targets": [TARGET]}
    routes = {"default": {"filters": ["empty"]}}
    return {"providers": [LOCAL], "models": [model], "routes": routes} | more


def test_the_list_of_what_is_not_active_is_this_one() -> None:
    """Whoever builds a part takes its line out, here and there."""
    assert NOT_ACTIVE == (
        "server.workers",
        "keys[].requests_per_minute",
        "keys[].tokens_per_minute",
        "keys[].exchanges_max",
        "models[].targets[].weight",
        "models[].targets[].context_tokens",
        "routes.*.clocks.chars_per_second_min",
        "routes.*.recovery.loop_temperature_add",
        "admin.key_env",
        "admin.bind",
        "store.url",
        "observe.otlp_endpoint",
    )
    assert set(NOT_ACTIVE) >= set(ALREADY_SO)


SET: list[tuple[str, dict[str, Any], str]] = [
    ("server.workers", {"server": {"workers": 2}}, "server.workers"),
    *(
        (f"keys[].{key}", {"keys": [{"name": "a", "key_env": "A", key: 7}]}, f"keys[0].{key}")
        for key in ("requests_per_minute", "tokens_per_minute", "exchanges_max")
    ),
    *(
        (
            f"models[].targets[].{key}",
            {"models": [{"alias": "small", "targets": [TARGET, {**TARGET, key: value}]}]},
            f"models[0].targets[1].{key}",
        )
        for key, value in {"weight": 2, "context_tokens": 8192}.items()
    ),
    *(
        (
            f"routes.*.{part}.{key}",
            {"routes": {"default": {"filters": []}, "a": {part: {key: value}}}},
            f"routes.a.{part}.{key}",
        )
        for part, key, value in (
            ("clocks", "chars_per_second_min", 1.0),
            ("recovery", "loop_temperature_add", 0.2),
        )
    ),
    *(
        (f"{table}.{key}", {table: {key: value}}, f"{table}.{key}")
        for table, key, value in (
            ("admin", "key_env", "ADMIN"),
            ("admin", "bind", "127.0.0.1:9090"),
            ("store", "url", "valkey://a:6379/0"),
            ("observe", "otlp_endpoint", "http://127.0.0.1:4318"),
        )
    ),
]


@pytest.mark.parametrize(("pattern", "more", "path"), SET, ids=[row[0] for row in SET])
def test_a_key_without_effect_is_named_where_it_is_set(
    pattern: str, more: dict[str, Any], path: str
) -> None:
    """With the place of the entry, not only of the table."""
    raw = tables(**more)
    decode_config(raw)
    assert pattern in NOT_ACTIVE
    assert path in inactive(raw)


def test_every_line_of_the_list_is_reached() -> None:
    """A path that nothing can set would be a slip of the list."""
    assert {row[0] for row in SET} == set(NOT_ACTIVE)


def test_a_file_of_built_parts_is_told_nothing() -> None:
    """Everything that works today, away from its default."""
    raw = tables(
        server={"bind": "[::1]:9000", "drain_seconds": 1.0, "caller_write_seconds": 5.0},
        limits={"exchanges_max": 7},
        keys=[{"name": "a", "key_env": "A", "models": ["small"]}],
        routes={
            "default": {
                "filters": ["empty", "structured_output"],
                "structured_output": "check",
                "reasoning_field": "reasoning",
                "hold": {
                    "mode": "buffered",
                    "opening_chars": 9,
                    "reasoning": "release",
                    "pings_commit": True,
                },
                "clocks": {"gap_seconds": 1.0},
                "recovery": {
                    "attempts_max": 2,
                    "fallback_on": [],
                    "continuation": "committed",
                    "seam_chars": 32,
                    "schema_repairs_max": 2,
                },
            }
        },
        providers=[{**LOCAL, "prefill": "assistant"}],
        models=[{"alias": "small", "targets": [{**TARGET, "prefill": "vllm"}]}],
        observe={"log": "text"},
    )
    decode_config(raw)
    assert inactive(raw) == ()


def test_a_default_that_is_written_out_is_no_wish() -> None:
    """A copied reference file sets nothing off by itself; a whole number equals its fraction."""
    raw = tables(
        server={"workers": 1, "tls_cert": ""},
        providers=[{**LOCAL, "path": "normalized", "breaker": {"failures": 5, "open_seconds": 30}}],
    )
    assert inactive(raw) == ()


def test_a_value_that_asks_for_what_is_there_is_no_wish_either() -> None:
    """To switch off what is not built changes nothing."""
    route: dict[str, Any] = {"filters": []}
    keys = [{"name": "a", "key_env": "A", "requests_per_minute": 0, "exchanges_max": 0}]
    assert inactive(tables(routes={"default": route}, keys=keys)) == ()
