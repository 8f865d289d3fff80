"""From raw tables to a configuration, or to every problem with its path."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import pytest

from gate.config import HoldConfig, RouteConfig
from gate.config_check import decode_config
from gate.config_rules import ConfigInvalid

FULL: Mapping[str, Any] = {
    "server": {"bind": "127.0.0.1:9000", "drain_seconds": 5},
    "keys": [{"name": "team-a", "key_env": "TEAM_A_KEY", "models": ["small"]}],
    "providers": [
        {
            "name": "local",
            "base_url": "http://127.0.0.1:8000/v1",
            "headers": {"x-team": "a"},
            "breaker": {"failures": 2},
        }
    ],
    "models": [
        {
            "alias": "small",
            "route": "fast",
            "targets": [{"provider": "local", "model": "Qwen/Qwen3-8B", "prefill": "vllm"}],
        }
    ],
    "routes": {"fast": {"filters": ["empty", "no-secrets"], "hold": {"mode": "buffered"}}},
    "filters": {"no-secrets": {"kind": "patterns", "patterns": ["AKIA[0-9A-Z]{16}"]}},
    "admin": {"bind": "0.0.0.0:9090", "key_env": "ADMIN_KEY"},
    "store": {"url": "valkey://127.0.0.1:6379/0"},
    "observe": {"otlp_endpoint": "http://127.0.0.1:4318"},
}


def put(raw: Any, path: str, value: object) -> None:
    """Set what stands at a path of names and list places; the place behind the last appends."""
    *way, last = path.split("/")
    for part in way:
        raw = raw[int(part)] if isinstance(raw, list) else raw.setdefault(part, {})
    if isinstance(raw, list):
        raw[int(last) :] = [value]
    else:
        raw[last] = value


def problems(changes: Mapping[str, object]) -> list[str]:
    """What is said about the full configuration after the changes; empty: it is valid."""
    raw = copy.deepcopy(dict(FULL))
    for path, value in changes.items():
        put(raw, path, value)
    return said_of(raw)


def said_of(raw: Mapping[str, object]) -> list[str]:
    try:
        decode_config(raw)
    except ConfigInvalid as error:
        return [str(problem) for problem in error.problems]
    return []


def test_a_full_file_decodes_to_what_it_says() -> None:
    """Nested tables keep the defaults of the keys they leave out."""
    config = decode_config(FULL)
    assert config.server.bind == "127.0.0.1:9000"
    assert config.server.drain_seconds == 5.0
    assert config.providers[0].breaker.failures == 2
    assert config.providers[0].breaker.open_seconds == 30.0
    assert config.models[0].targets[0].prefill == "vllm"
    assert config.routes["fast"].hold == HoldConfig(mode="buffered")
    assert config.filters["no-secrets"].patterns == ("AKIA[0-9A-Z]{16}",)


def test_the_default_route_exists_without_being_written() -> None:
    """A model that names no route has one."""
    assert decode_config({}).routes == {"default": RouteConfig()}
    assert set(decode_config(FULL).routes) == {"fast", "default"}


def test_a_written_default_route_is_kept() -> None:
    """Only what is missing is added."""
    config = decode_config({"routes": {"default": {"think_tags": True}}})
    assert config.routes["default"].think_tags


@pytest.mark.parametrize(
    ("limits", "problem"),
    [
        (
            {"event_bytes_max": 101, "held_bytes_max": 100},
            "limits.event_bytes_max: must be at most limits.held_bytes_max (100)",
        ),
        (
            {"held_bytes_max": 150_994_945},
            "limits.held_bytes_max: must be at most limits.exchange_bytes_max (150994944)",
        ),
        (
            {"body_bytes_max": 150_994_945},
            "limits.body_bytes_max: must be at most limits.exchange_bytes_max (150994944)",
        ),
        (
            {"process_bytes_max": 150_994_943},
            "limits.exchange_bytes_max: must be at most limits.process_bytes_max (150994943)",
        ),
    ],
)
def test_a_part_may_not_be_larger_than_the_whole(limits: dict[str, int], problem: str) -> None:
    """A configuration that can't be kept is refused, not each request."""
    assert problems({"limits": limits}) == [problem]


def test_all_memory_limits_may_be_equal() -> None:
    """A part as large as the whole is allowed."""
    names = ("event", "held", "body", "exchange", "process")
    assert problems({"limits": {f"{n}_bytes_max": 4096 for n in names}}) == []


OPEN = "server.bind: a bind that is not loopback needs [[keys]] or server.insecure = true"


@pytest.mark.parametrize(
    ("server", "keys", "said"),
    [
        ({"bind": "0.0.0.0:80"}, False, [OPEN]),
        ({"bind": "[::]:80"}, False, [OPEN]),
        ({"bind": "0.0.0.0:80", "insecure": True}, False, []),
        ({"bind": "0.0.0.0:80"}, True, []),
        ({"bind": "[::1]:80"}, False, []),
        (
            {"bind": "nowhere"},
            False,
            ["server.bind: must be host:port or [v6]:port, with a port up to 65535"],
        ),
    ],
)
def test_an_open_door_to_the_network_must_be_asked_for(
    server: dict[str, object], said: list[str], *, keys: bool
) -> None:
    """Without keys everybody who reaches the port may spend the operator's money."""
    raw = {"server": server} | ({"keys": [{"name": "a", "key_env": "A"}]} if keys else {})
    assert said_of(raw) == said


def test_a_certificate_and_its_key_go_together() -> None:
    """Half of TLS is none."""
    assert problems({"server/tls_cert": "c.pem", "server/tls_key": "k.pem"}) == []
    assert problems({"server/tls_cert": "c.pem"}) == [
        "server.tls_key: is missing: tls_cert and tls_key go together"
    ]
    assert problems({"server/tls_key": "k.pem"}) == [
        "server.tls_cert: is missing: tls_cert and tls_key go together"
    ]


LABEL = "must be 1 to 128 characters of a-z 0-9 . _ : -"
MODEL = "must be 1 to 256 printable characters without white space"
VARIABLE = "must be the name of an environment variable"
SERVER = "must be an absolute URL with http or https and a host"


@pytest.mark.parametrize(
    ("path", "value", "place", "reason"),
    [
        ("keys/0/key_env", "", "keys[0].key_env", "must not be empty"),
        ("keys/0/key_env", "sk-1", "keys[0].key_env", VARIABLE),
        ("keys/0/name", "Team A", "keys[0].name", LABEL),
        (
            "keys/0/models",
            ["small", "smal"],
            "keys[0].models[1]",
            "unknown alias 'smal' (did you mean small?)",
        ),
        ("providers/0/base_url", "127.0.0.1:8000", "providers[0].base_url", SERVER),
        ("providers/0/api_key_env", "a key", "providers[0].api_key_env", VARIABLE),
        (
            "providers/0/headers/Authorization",
            "x",
            "providers[0].headers.Authorization",
            "is written by the gateway itself",
        ),
        ("models/0/targets", [], "models[0].targets", "must not be empty"),
        ("models/0/route", "fats", "models[0].route", "unknown route 'fats' (did you mean fast?)"),
        (
            "models/0/targets/0/provider",
            "locla",
            "models[0].targets[0].provider",
            "unknown provider 'locla' (did you mean local?)",
        ),
        ("models/0/targets/0/model", "", "models[0].targets[0].model", MODEL),
        (
            "models/1",
            {"alias": "a b", "targets": [{"provider": "local", "model": "m"}]},
            "models[1].alias",
            MODEL,
        ),
        ("routes/{} x", {}, "routes.'{} x'", LABEL),
        (
            "routes/fast/filters",
            ["repetitoin"],
            "routes.fast.filters[0]",
            "unknown filter 'repetitoin' (did you mean repetition?)",
        ),
        (
            "routes/fast/filters",
            ["webhook"],
            "routes.fast.filters[0]",
            "unknown filter 'webhook'",
        ),
        (
            "routes/fast/filters",
            ["empty", "refusal", "empty"],
            "routes.fast.filters[2]",
            "stands already at routes.fast.filters[0]",
        ),
        (
            "admin/bind",
            "9090",
            "admin.bind",
            "must be host:port or [v6]:port, with a host name or an address",
        ),
        ("admin/key_env", "not a name", "admin.key_env", VARIABLE),
        (
            "store/url",
            "http://127.0.0.1",
            "store.url",
            "must be an absolute URL with valkey or redis and a host",
        ),
        ("observe/otlp_endpoint", "collector", "observe.otlp_endpoint", SERVER),
    ],
)
def test_what_does_not_fit_together_is_named_with_its_path(
    path: str, value: object, place: str, reason: str
) -> None:
    """References lead somewhere, addresses are addresses, names are tokens."""
    assert problems({path: value}) == [f"{place}: {reason}"]


@pytest.mark.parametrize(
    ("table", "other", "leaf"),
    [
        ("keys", {"key_env": "B"}, "name"),
        ("keys", {"name": "b"}, "key_env"),
        ("providers", {}, "name"),
        ("models", {}, "alias"),
    ],
)
def test_a_name_stands_once(table: str, other: dict[str, object], leaf: str) -> None:
    """A second table under the same name would be a guess which of them is meant."""
    second = {**FULL[table][0], **other}
    said = [f"{table}[1].{leaf}: stands already at {table}[0].{leaf}"]
    assert problems({f"{table}/1": second}) == said


@pytest.mark.parametrize(
    ("name", "table", "said"),
    [
        ("f", {"kind": "patterns", "pattern_set": "secrets", "horizon_chars": 64}, []),
        ("f", {"kind": "repetition", "chars_min": 200, "repeats_min": 8}, []),
        ("repetition", {"kind": "repetition", "repeats_min": 8}, []),
        (
            "f",
            {"kind": "webhook", "url": "http://a/judge", "api_key_env": "HOOK", "batch_ms": 50},
            [],
        ),
        ("f", {"kind": "empty", "action": "next_provider", "gating": False}, []),
        ("f", {"kind": "patterns"}, ["filters.f.patterns: needs either patterns or pattern_set"]),
        (
            "f",
            {"kind": "patterns", "patterns": ["a"], "pattern_set": "secrets"},
            ["filters.f.patterns: needs either patterns or pattern_set"],
        ),
        (
            "f",
            {"kind": "patterns", "patterns": ["a", ""]},
            ["filters.f.patterns[1]: matches the empty text, so it would match anywhere"],
        ),
        (
            "f",
            {"kind": "patterns", "pattern_set": "secret"},
            [
                "filters.f.pattern_set: unknown pattern set 'secret' (did you mean secrets?)",
            ],
        ),
        (
            "f",
            {"kind": "patterns", "patterns": ["AKIA[0-9A-Z]{16}", "[a"]},
            ["filters.f.patterns[1]: missing ]: [a"],
        ),
        (
            "f",
            {"kind": "patterns", "patterns": ["(?m)^a"]},
            [
                "filters.f.patterns[0]: the flag m is not known here: ^ and $ are the ends of the text",
            ],
        ),
        (
            "f",
            {"kind": "patterns", "patterns": ["a"] * 257},
            ["filters.f.patterns: more than 256 patterns"],
        ),
        (
            "f",
            {"kind": "repetition", "action": "schema"},
            ["filters.f.action: repetition can't say what a repair would have to mend"],
        ),
        (
            "f",
            {"kind": "webhook"},
            ["filters.f.url: must be a URL of 1 to 2048 printable ASCII characters"],
        ),
        (
            "f",
            {"kind": "webhook", "url": "http://a", "api_key_env": "-"},
            [f"filters.f.api_key_env: {VARIABLE}"],
        ),
        (
            "f",
            {"kind": "repetition", "url": "http://a", "patterns": ["a"]},
            [
                "filters.f.patterns: unknown key for the kind repetition",
                "filters.f.url: unknown key for the kind repetition",
            ],
        ),
        (
            "f",
            {"kind": "empty", "chars_min": 1},
            ["filters.f.chars_min: unknown key for the kind empty"],
        ),
        (
            "empty",
            {"kind": "refusal"},
            ["filters.empty: is the name of a built-in kind, and the table is of another"],
        ),
        (
            "F",
            {"kind": "refusal"},
            [f"filters.F: {LABEL}"],
        ),
    ],
)
def test_a_filter_table_has_the_keys_of_its_kind(
    name: str, table: dict[str, object], said: list[str]
) -> None:
    """A key of another kind would be without effect, and nobody would notice."""
    assert problems({f"filters/{name}": table}) == said


def test_all_problems_are_told_at_once() -> None:
    """Ranges and references in one run: the shape decodes, so both passes speak."""

    changes = {
        "server/workers": 0,
        "models/0/route": "none",
        "routes/fast/clocks/gap_seconds": 0,
    }
    assert problems(changes) == [
        "server.workers: must be at least 1",
        "routes.fast.clocks.gap_seconds: must be more than 0",
        "models[0].route: unknown route 'none'",
    ]


def test_every_wrong_type_is_told_not_only_the_first() -> None:
    """References are not looked at then: what they lead to may be what is broken."""

    changes = {"server/workers": "two", "observe/lgo": "text", "models/0/route": "none"}
    assert problems(changes) == [
        "server.workers: expected int, got str",
        "observe.lgo: unknown key (did you mean log?)",
    ]
