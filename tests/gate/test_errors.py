"""Expected errors: each says whose fault it is, what a caller is told, and whether trying again may help."""

from __future__ import annotations

import pytest

from gate.errors import (
    BudgetExceeded,
    CallerGone,
    EndpointUnsupported,
    GateError,
    LeaseDuplicate,
    LeaseReleased,
    LeaseUnavailable,
    PatchDuplicate,
    PatchInvalid,
    PatchUnavailable,
    PlanAlreadyUsed,
    PlanNotReady,
    RebuilderClosed,
    RebuildOverflow,
    RebuildRefused,
    RefMalformed,
    RequestMismatch,
    RequestRefused,
    SchemaUnusable,
    SnapshotClosed,
    SnapshotMismatch,
    Source,
    StoreClosed,
    UpstreamFailed,
    UpstreamFault,
)
from gate.refs import is_stable_token


@pytest.mark.parametrize(
    ("error", "code", "status", "retryable", "source"),
    [
        (GateError(), "gate_error", 500, False, Source.GATE),
        (RequestRefused(400, "invalid_json"), "invalid_json", 400, False, Source.CALLER),
        (RequestRefused(413, "body_too_large"), "body_too_large", 413, False, Source.CALLER),
        (RequestRefused(429, "rate_limited"), "rate_limited", 429, True, Source.CALLER),
        (RequestRefused(503, "queue_full"), "queue_full", 503, True, Source.CALLER),
        (BudgetExceeded("exchange", wanted=9, free=1), "exchange_budget", 503, True, Source.GATE),
        (BudgetExceeded("process", wanted=9, free=1), "process_budget", 503, True, Source.GATE),
        (RebuildOverflow("exchange", wanted=9, free=1), "rebuild_overflow", 503, True, Source.GATE),
        (SchemaUnusable(), "schema_unusable", 400, False, Source.CALLER),
        (SnapshotClosed(), "snapshot_closed", 500, False, Source.GATE),
        (UpstreamFailed(UpstreamFault.CONNECT), "provider_connect", 502, True, Source.PROVIDER),
        (UpstreamFailed(UpstreamFault.RESET), "provider_reset", 502, True, Source.PROVIDER),
        (UpstreamFailed(UpstreamFault.CUT), "provider_cut", 502, True, Source.PROVIDER),
        (UpstreamFailed(UpstreamFault.PROTOCOL), "provider_protocol", 502, True, Source.PROVIDER),
        (UpstreamFailed(UpstreamFault.ENCODING), "provider_encoding", 502, True, Source.PROVIDER),
        (CallerGone(), "caller_gone", 500, False, Source.CALLER),
    ],
)
def test_an_error_says_all_that_its_handler_asks(
    error: GateError, code: str, status: int, retryable: bool, source: Source
) -> None:
    """One handler serves the whole hierarchy."""
    assert is_stable_token(error.public_code)
    said = (error.public_code, error.http_status, error.retryable, error.source)
    assert said == (code, status, retryable, source)


def test_a_refusal_names_the_member_and_the_wait() -> None:
    """The text of the exception is its code alone."""
    error = RequestRefused(429, "rate_limited", param="model", retry_after=3.5)
    assert (str(error), error.param, error.retry_after) == ("rate_limited", "model", 3.5)


def test_a_budget_error_has_sizes_for_the_log() -> None:
    """And no bytes."""
    error = BudgetExceeded("process", wanted=9, free=1)
    assert (str(error), error.scope) == ("process budget: 9 bytes wanted, 1 free", "process")


def test_a_failed_connection_says_whether_it_was_an_old_one() -> None:
    """A stale one is tried again for free."""
    assert not UpstreamFailed(UpstreamFault.RESET).reused
    error = UpstreamFailed(UpstreamFault.RESET, reused=True)
    assert (error.reused, error.fault) == (True, UpstreamFault.RESET)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (RebuildRefused(), "rebuild_refused"),
        (EndpointUnsupported(), "endpoint_unsupported"),
        (RebuilderClosed(), "rebuilder_closed"),
        (StoreClosed(), "store_closed"),
        (RefMalformed(), "ref_malformed"),
        (SnapshotMismatch(), "snapshot_mismatch"),
        (RequestMismatch(), "request_mismatch"),
        (PlanNotReady(), "plan_not_ready"),
        (PlanAlreadyUsed(), "plan_already_used"),
        (PatchInvalid("key"), "patch_key_invalid"),
        (PatchInvalid("cursor"), "patch_cursor_invalid"),
        (PatchInvalid("value"), "patch_value_invalid"),
        (PatchDuplicate(), "patch_duplicate"),
        (PatchUnavailable(), "patch_unavailable"),
        (LeaseDuplicate(), "lease_duplicate"),
        (LeaseUnavailable(), "lease_unavailable"),
        (LeaseReleased(), "lease_released"),
    ],
)
def test_a_refused_rebuild_is_told_by_its_code_alone(error: RebuildRefused, code: str) -> None:
    """Each has its own; none is the caller's fault, and asking again changes nothing."""
    assert (str(error), error.public_code) == (code, code)
    assert is_stable_token(code)
    assert (error.http_status, error.retryable, error.source) == (500, False, Source.GATE)


def test_a_rebuild_without_room_says_how_much_it_wanted() -> None:
    """It is a budget error like any other."""
    error = RebuildOverflow("process", wanted=9, free=1)
    assert isinstance(error, BudgetExceeded)
    assert (error.scope, error.wanted, error.free) == ("process", 9, 1)
