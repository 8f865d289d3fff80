"""A provider's health: the breaker, its probe, and the provider's own wish to be left alone."""

from __future__ import annotations

import pytest

from gate.events import Complete
from gate.failure import Failure, FailureKind
from gate.health import ProviderHealth

DOWN = Failure(FailureKind.CONNECT)


def _failing(times: int) -> ProviderHealth:
    health = ProviderHealth(failures=3, open_seconds=30.0)
    for _ in range(times):
        health.end(DOWN, 10.0, began=5.0)
    return health


def test_a_few_failures_close_nothing() -> None:
    """Two of three."""
    assert _failing(2).wait_seconds(10.0) == 0.0


def test_enough_failures_in_a_row_open_the_breaker() -> None:
    """For as long as the configuration says."""
    health = _failing(3)
    assert health.wait_seconds(10.0) == 30.0
    assert health.wait_seconds(39.0) == 1.0
    assert health.wait_seconds(40.0) == 0.0


def test_a_success_in_between_starts_the_count_anew() -> None:
    """In a row means in a row."""
    health = _failing(2)
    health.end(Complete(), 10.0, began=10.0)
    health.end(DOWN, 10.0, began=10.0)
    health.end(DOWN, 10.0, began=10.0)
    assert health.wait_seconds(10.0) == 0.0


def test_one_probe_goes_through_and_closes_the_breaker() -> None:
    """While it runs nobody else is let through; its success lets everybody."""
    health = _failing(3)
    with health.probing(40.0):
        assert health.wait_seconds(40.0) > 0
        with health.probing(40.0):  # decided on in the same moment, before anybody could know
            pass
        assert health.wait_seconds(40.0) > 0
        health.end(Complete(), 41.0, began=40.0)
    assert health.wait_seconds(41.0) == 0.0


def test_a_failed_probe_opens_the_breaker_again() -> None:
    """At its first failure."""
    health = _failing(3)
    with health.probing(40.0):
        health.end(DOWN, 42.0, began=40.0)
    assert health.wait_seconds(42.0) == 30.0


def test_a_probe_that_says_nothing_lets_the_next_one_through() -> None:
    """The caller left: that is no word about the provider."""
    health = _failing(3)
    with health.probing(40.0):
        health.end(Failure(FailureKind.ABORTED), 41.0, began=40.0)
    assert health.wait_seconds(41.0) == 0.0
    with health.probing(41.0):
        assert health.wait_seconds(41.0) > 0


def test_an_attempt_from_before_the_outage_closes_nothing() -> None:
    """A long stream that goes on to its end says how the provider was."""
    health = _failing(3)
    health.end(Complete(), 20.0, began=1.0)
    assert health.wait_seconds(20.0) == 20.0


def test_a_healthy_provider_has_no_probes() -> None:
    """Any number may ask at once."""
    health = ProviderHealth(failures=3, open_seconds=30.0)
    with health.probing(1.0), health.probing(1.0):
        assert health.wait_seconds(1.0) == 0.0


@pytest.mark.parametrize(
    "kind",
    [
        FailureKind.REFUSED,
        FailureKind.CONTENT_FILTER,
        FailureKind.CONTEXT_LENGTH,
        FailureKind.NOT_FOUND,
        FailureKind.RATE_LIMITED,
        FailureKind.OUTPUT_INVALID,
        FailureKind.TOOL_INVALID,
        FailureKind.HELD_LIMIT,
        FailureKind.BUDGET,
        FailureKind.ABORTED,
        FailureKind.TOTAL,
    ],
)
def test_what_is_not_its_fault_opens_nothing(kind: FailureKind) -> None:
    """An answer, a limit, a deadline of the caller's."""
    health = ProviderHealth(failures=1, open_seconds=30.0)
    health.end(Failure(kind), 0.0, began=0.0)
    assert health.wait_seconds(0.0) == 0.0


@pytest.mark.parametrize(
    "kind",
    [
        FailureKind.CONNECT,
        FailureKind.RESET,
        FailureKind.UNAVAILABLE,
        FailureKind.AUTH,
        FailureKind.NO_HEADERS,
        FailureKind.NO_PROGRESS,
        FailureKind.STALL,
        FailureKind.CUT,
        FailureKind.MALFORMED,
        FailureKind.EMPTY,
        FailureKind.MISSING_TERMINAL,
        FailureKind.UNUSABLE,
        FailureKind.JSON_LATE,
    ],
)
def test_what_is_its_fault_counts(kind: FailureKind) -> None:
    """A provider's refusal of our credentials too: every request would end so."""
    health = ProviderHealth(failures=1, open_seconds=30.0)
    health.end(Failure(kind), 0.0, began=0.0)
    assert health.wait_seconds(0.0) == 30.0


def test_a_long_retry_after_takes_the_provider_out_until_then() -> None:
    """A short one concerns only the exchange that got it."""
    health = ProviderHealth(failures=5, open_seconds=30.0)
    health.end(Failure(FailureKind.RATE_LIMITED, 429, retry_after=20.0), 0.0, began=0.0)
    assert health.wait_seconds(0.0) == 0.0
    health.end(Failure(FailureKind.RATE_LIMITED, 429, retry_after=90.0), 5.0, began=5.0)
    assert health.wait_seconds(5.0) == 90.0
    health.end(Failure(FailureKind.RATE_LIMITED, 429, retry_after=60.0), 6.0, began=6.0)
    assert health.wait_seconds(6.0) == 89.0
    assert health.wait_seconds(95.0) == 0.0


def test_its_repr_tells_the_state() -> None:
    """For whoever looks at it at night."""
    assert repr(_failing(3)) == "ProviderHealth(open, failures=3)"
    assert repr(_failing(1)) == "ProviderHealth(closed, failures=1)"
