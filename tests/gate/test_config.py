"""The schema: the defaults that operators rely on, and a reason for each limit."""

from __future__ import annotations

import msgspec
import pytest

from gate.config import (
    FILTER_KEYS,
    LIMIT_REASONS,
    TABLE_KINDS,
    BreakerConfig,
    FilterConfig,
    GatewayConfig,
    KeyConfig,
    LimitsConfig,
    ModelConfig,
    ProviderConfig,
    RouteConfig,
    TargetConfig,
)

SHOWN = {
    "server": {
        "bind": "127.0.0.1:8080",
        "workers": 1,
        "drain_seconds": 30.0,
        "caller_write_seconds": 60.0,
        "insecure": False,
        "tls_cert": "",
        "tls_key": "",
    },
    "limits": {
        "body_bytes_max": 33_554_432,
        "body_seconds_max": 60.0,
        "header_bytes_max": 65_536,
        "json_depth_max": 64,
        "exchange_bytes_max": 150_994_944,
        "process_bytes_max": 1_073_741_824,
        "held_bytes_max": 33_554_432,
        "event_bytes_max": 8_388_608,
        "exchanges_max": 1024,
        "queue_max": 256,
        "queue_seconds_max": 10.0,
        "observations_max": 10_000,
    },
    "keys": [],
    "providers": [],
    "models": [],
    "routes": {},
    "filters": {},
    "compat": {"buffered_error": "status", "tunnel_cut": "mark"},
    "admin": {"key_env": "", "bind": ""},
    "store": {"url": ""},
    "observe": {
        "log": "json",
        "record_dir": "",
        "record_content": "hash",
        "record_bytes_max": 1_073_741_824,
        "sample_success": 0.01,
        "sample_failure": 1.0,
        "explain": True,
        "otlp_endpoint": "",
    },
}
ROUTE = {
    "filters": ["empty", "repetition", "encoding", "tool_calls", "structured_output"],
    "structured_output": "repair",
    "output_policy": "off",
    "think_tags": False,
    "reasoning_field": "reasoning_content",
    "responses_over_chat": False,
    "hold": {
        "mode": "live",
        "opening_chars": 1,
        "opening_ms": 0,
        "tail_chars": 0,
        "tail_ms": 0,
        "reasoning": "hold",
        "over_cap": "fail",
        "pings_commit": False,
        "ping_seconds": 15.0,
    },
    "clocks": {
        "connect_seconds": 5.0,
        "headers_seconds": 60.0,
        "first_content_seconds": 60.0,
        "gap_seconds": 30.0,
        "json_seconds": 180.0,
        "total_seconds": 600.0,
        "stream_seconds_max": 0.0,
        "finish_grace_seconds": 2.0,
        "chars_per_second_min": 0.0,
        "last_candidate_factor": 2.0,
    },
    "recovery": {
        "attempts_max": 3,
        "same_target_retries": 1,
        "continuation": "held",
        "schema_repairs_max": 1,
        "backoff_seconds": 0.25,
        "retry_budget_share": 0.2,
        "retry_budget_floor": 10,
        "seam_chars": 64,
        "fallback_on": ["auth"],
        "loop_temperature_add": 0.0,
    },
}


def as_json(table: msgspec.Struct) -> object:
    return msgspec.json.decode(msgspec.json.encode(table))


def test_an_empty_configuration_has_the_documented_defaults() -> None:
    """What the reference shows is what holds when nothing is written."""
    assert as_json(GatewayConfig()) == SHOWN


def test_a_route_has_the_documented_defaults() -> None:
    """The same for the policy of a route, down to its clocks."""
    assert as_json(RouteConfig()) == ROUTE


def test_a_provider_needs_only_a_name_and_an_address() -> None:
    """Everything else has a default, the breaker included."""
    provider = ProviderConfig(name="local", base_url="http://127.0.0.1:8000/v1")
    assert provider.capabilities == ("tools", "json_schema", "vision", "responses")
    assert (provider.path, provider.prefill, provider.concurrency_max) == ("normalized", "none", 64)
    assert (provider.api_key_env, provider.ca, provider.client_cert) == ("", "", "")
    assert (provider.ask_usage, provider.idempotency_header) == (False, False)
    assert provider.headers == {}
    assert provider.breaker == BreakerConfig(failures=5, open_seconds=30.0)


def test_a_model_uses_the_default_route_and_its_target_follows_the_provider() -> None:
    """``None`` in a target means: as the provider says."""
    model = ModelConfig(alias="small", targets=(TargetConfig(provider="local", model="m"),))
    target = model.targets[0]
    assert model.route == "default"
    assert (target.priority, target.weight, target.context_tokens) == (0, 1, 0)
    assert (target.prefill, target.capabilities) == (None, None)


def test_a_key_may_use_all_models_unless_it_says_otherwise() -> None:
    """An empty list is "all", not "none"."""
    key = KeyConfig(name="team-a", key_env="TEAM_A_KEY")
    assert key.models == ()
    assert (key.requests_per_minute, key.tokens_per_minute, key.exchanges_max) == (600, 0, 50)


def test_a_filter_gates_fails_closed_and_acts_as_its_kind_does_by_default() -> None:
    """The careful choice is the one that nobody has to write; a loop with a table recovers like one without."""
    table = FilterConfig(kind="patterns")
    assert (table.action, table.gating, table.failure) == (None, True, "closed")
    assert (table.deadline_ms, table.horizon_chars) == (500, 0)


def test_a_struct_can_not_be_changed_after_it_was_built() -> None:
    """An exchange keeps the configuration it started with."""
    with pytest.raises(AttributeError):
        GatewayConfig().server.bind = "0.0.0.0:80"  # type: ignore[misc]


def test_every_limit_has_its_reason() -> None:
    """The table in the documentation is made from these: none may be missing, none left over."""
    fields = [f"limits.{field.name}" for field in msgspec.structs.fields(LimitsConfig)]
    assert list(LIMIT_REASONS) == fields
    assert all(LIMIT_REASONS.values())


def test_the_keys_of_single_filter_kinds_are_fields_of_the_table() -> None:
    """A key that no struct has could never be written."""
    fields = {field.name for field in msgspec.structs.fields(FilterConfig)}
    owned = frozenset().union(*FILTER_KEYS.values())
    common = {"kind", "action", "gating", "failure", "deadline_ms", "horizon_chars"}
    assert fields == owned | common
    assert set(FILTER_KEYS) >= TABLE_KINDS
