"""The shape of the raw tables: each mistake is named once, at its path."""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gate.config import GatewayConfig
from gate.config_shape import shape_problems

TARGET = {"provider": "local", "model": "m"}
LOCAL = {"name": "local", "base_url": "http://127.0.0.1:8000/v1"}


def said(raw: Mapping[str, object]) -> list[str]:
    return [str(problem) for problem in shape_problems(raw)]


def test_an_empty_file_has_a_good_shape() -> None:
    """Every table has a default."""
    assert said({}) == []


@pytest.mark.parametrize(
    ("raw", "problem"),
    [
        ({"modells": []}, "modells: unknown key (did you mean models?)"),
        ({"server": {"bindd": "x"}}, "server.bindd: unknown key (did you mean bind?)"),
        ({"routes": {"a": {"hold": {"zzz": 1}}}}, "routes.a.hold.zzz: unknown key"),
        (
            {"models": [{"alias": "a", "targets": [{**TARGET, "modle": "x"}]}]},
            "models[0].targets[0].modle: unknown key (did you mean model?)",
        ),
        ({"routes": {"b\nc": {"x": 1}}}, r"routes.'b\nc'.x: unknown key"),
    ],
)
def test_an_unknown_key_is_an_error_and_a_near_one_is_named(
    raw: dict[str, Any], problem: str
) -> None:
    """A setting that nobody reads is worse than none."""
    assert said(raw) == [problem]


@pytest.mark.parametrize(
    ("raw", "problem"),
    [
        ({"providers": [{"name": "local"}]}, "providers[0].base_url: is missing"),
        ({"keys": [{"key_env": "A"}]}, "keys[0].name: is missing"),
        ({"models": [{"alias": "a"}]}, "models[0].targets: is missing"),
        ({"filters": {"f": {}}}, "filters.f.kind: is missing"),
    ],
)
def test_a_key_without_a_default_must_be_there(raw: dict[str, Any], problem: str) -> None:
    """Names, addresses and targets can't be guessed."""
    assert said(raw) == [problem]


@pytest.mark.parametrize(
    ("raw", "problem"),
    [
        ({"server": {"workers": "two"}}, "server.workers: expected int, got str"),
        ({"server": {"workers": 1.5}}, "server.workers: expected int, got float"),
        ({"server": {"workers": True}}, "server.workers: expected int, got bool"),
        ({"server": {"insecure": 1}}, "server.insecure: expected bool, got int"),
        ({"server": []}, "server: expected object, got array"),
        ({"models": {}}, "models: expected array, got object"),
        ({"routes": 1}, "routes: expected object, got int"),
        ({"routes": {"a": "x"}}, "routes.a: expected object, got str"),
        ({"filters": 1}, "filters: expected object, got int"),
        ({"filters": {"f": "x"}}, "filters.f: expected object, got str"),
        (
            {"providers": [{**LOCAL, "headers": {"x-n": 1}}]},
            "providers[0].headers.x-n: expected str, got int",
        ),
        (
            {"keys": [{"name": "a", "key_env": "A", "models": ["small", 7]}]},
            "keys[0].models[1]: expected str, got int",
        ),
    ],
)
def test_a_value_of_another_type_is_an_error(raw: dict[str, Any], problem: str) -> None:
    """Nothing is converted on the quiet but a whole number where a fraction may stand."""
    assert said(raw) == [problem]
    assert said({"server": {"drain_seconds": 5}}) == []


@pytest.mark.parametrize(
    ("raw", "problem"),
    [
        (
            {"routes": {"a": {"hold": {"mode": "bufferd"}}}},
            "routes.a.hold.mode: must be one of live, window, buffered (did you mean buffered?)",
        ),
        (
            {"models": [{"alias": "a", "targets": [{**TARGET, "prefill": 1}]}]},
            "models[0].targets[0].prefill: must be one of none, vllm, prefix, partial, assistant",
        ),
        (
            {"providers": [{**LOCAL, "capabilities": ["tool"]}]},
            "providers[0].capabilities[0]: must be one of tools, json_schema, vision, audio, "
            "responses, reasoning (did you mean tools?)",
        ),
        ({"observe": {"log": ["json"]}}, "observe.log: must be one of json, text"),
    ],
)
def test_a_word_outside_a_closed_set_is_answered_with_the_set(
    raw: dict[str, Any], problem: str
) -> None:
    """The operator need not look it up."""
    assert said(raw) == [problem]


@pytest.mark.parametrize(
    ("table", "key", "good", "bad", "reason"),
    [
        ("hold", "opening_chars", 1, 0, "must be at least 1"),
        ("hold", "ping_seconds", 0.5, 0, "must be more than 0"),
        ("hold", "tail_ms", 0, -1, "must be at least 0"),
        ("hold", "tail_ms", 86_400_000, 86_400_001, "must be at most 86400000"),
        ("clocks", "gap_seconds", 0.001, 0.0, "must be more than 0"),
        ("clocks", "gap_seconds", 30, float("nan"), "must be a finite number"),
        ("clocks", "gap_seconds", 86_400, float("inf"), "must be a finite number"),
        ("clocks", "gap_seconds", 1, 10**400, "number out of range"),
        ("clocks", "total_seconds", 0, -0.5, "must be at least 0"),
        ("clocks", "total_seconds", 600.0, 600_000.0, "must be at most 86400"),
        ("clocks", "last_candidate_factor", 1, 0.5, "must be at least 1"),
        ("recovery", "retry_budget_share", 1, 1.01, "must be at most 1"),
        ("recovery", "retry_budget_share", 0, -0.01, "must be at least 0"),
        ("recovery", "attempts_max", 1, 0, "must be at least 1"),
        ("recovery", "attempts_max", 100, 10**400, "must be at most 100"),
    ],
)
def test_a_number_is_taken_at_its_bound_and_refused_behind_it(
    table: str, key: str, good: float, bad: float, reason: str
) -> None:
    """Both sides of each edge, a millisecond value for seconds among them."""
    assert said({"routes": {"default": {table: {key: good}}}}) == []
    problem = f"routes.default.{table}.{key}: {reason}"
    assert said({"routes": {"default": {table: {key: bad}}}}) == [problem]


@pytest.mark.parametrize(
    ("table", "problems"),
    [
        ({"kind": "patterns", "pattern_set": "secrets", "horizon_chars": 64}, []),
        ({"kind": "repetition", "chars_min": 200, "repeats_min": 8}, []),
        ({"kind": "webhook", "url": "http://a", "api_key_env": "HOOK", "batch_ms": 50}, []),
        ({"kind": "empty", "action": "next_provider", "gating": False, "deadline_ms": 1}, []),
        (
            {"kind": "repetition", "url": "http://a", "patterns": ["a"]},
            [
                "filters.f.patterns: unknown key for the kind repetition",
                "filters.f.url: unknown key for the kind repetition",
            ],
        ),
        (
            {"kind": "empty", "chars_min": 1},
            ["filters.f.chars_min: unknown key for the kind empty"],
        ),
    ],
)
def test_a_filter_table_has_the_keys_of_its_kind(
    table: dict[str, Any], problems: list[str]
) -> None:
    """A key of another kind would be without effect, and nobody would notice."""
    assert said({"filters": {"f": table}}) == problems


def test_every_mistake_is_told_not_only_the_first() -> None:
    """In the order of the file."""
    raw = {"server": {"workers": "two"}, "observe": {"lgo": "text"}, "limits": {"queue_max": -1}}
    assert said(raw) == [
        "server.workers: expected int, got str",
        "observe.lgo: unknown key (did you mean log?)",
        "limits.queue_max: must be at least 0",
    ]


FULL: dict[str, Any] = {
    "server": {"bind": "127.0.0.1:9000", "drain_seconds": 5},
    "keys": [{"name": "a", "key_env": "A", "models": ["small"]}],
    "providers": [{**LOCAL, "headers": {"x-team": "a"}, "breaker": {"failures": 2}}],
    "models": [{"alias": "small", "targets": [{**TARGET, "prefill": "vllm"}]}],
    "routes": {"default": {"filters": ["empty"], "hold": {"mode": "buffered"}}},
    "filters": {"f": {"kind": "patterns", "patterns": ["a"]}},
}
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner, max_size=2)
    ),
    max_leaves=4,
)


def every_place(value: Any) -> list[tuple[Any, Any]]:
    """Container and key of every value in the tables."""
    pairs = list(value.items() if isinstance(value, dict) else enumerate(value))
    inner = [item for _, item in pairs if isinstance(item, dict | list)]
    return [(value, key) for key, _ in pairs] + [
        place for item in inner for place in every_place(item)
    ]


@settings(max_examples=200)
@given(data=st.data(), value=VALUES)
def test_any_value_anywhere_decodes_or_is_explained(data: st.DataObject, value: object) -> None:
    """No value gets past the walk that the decoder then refuses, and none is said without a path."""
    raw = copy.deepcopy(FULL)
    container, key = data.draw(st.sampled_from(every_place(raw)))
    container[key] = value
    problems = said(raw)
    assert all(re.fullmatch(r"\S.*: \S.*", problem) for problem in problems)
    if not problems:
        assert isinstance(msgspec.convert(raw, GatewayConfig), GatewayConfig)
