"""A provider's health as its own attempts show it: a passive breaker with a half-open probe, and the back-off that it asked for itself.

Closed, it is asked. After `failures` failed attempts in a row it is open for `open_seconds`; then one attempt is let through, and its end closes the breaker or opens it again.
A `Retry-After` longer than anybody waits for takes the provider out until then.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from gate.events import Complete, HowEnded
from gate.failure import FailureKind

__all__ = ["RETRY_AFTER_PATIENCE_SECONDS", "ProviderHealth"]

RETRY_AFTER_PATIENCE_SECONDS: Final = 30.0

# Ends that say nothing against the provider: it answered, or the attempt ended for a reason of ours.
_NOT_ITS_FAULT: Final = frozenset(
    {
        FailureKind.NOT_FOUND,
        FailureKind.CONTEXT_LENGTH,
        FailureKind.CONTENT_FILTER,
        FailureKind.REFUSED,
        FailureKind.RATE_LIMITED,
        FailureKind.OUTPUT_INVALID,
        FailureKind.OUTPUT_REJECTED,
        FailureKind.REPETITION,
        FailureKind.RESTARTED,
        FailureKind.DENIED_EXACT,
        FailureKind.DENIED_NEXT,
        FailureKind.DENIED_CONTINUE,
        FailureKind.DENIED,
        FailureKind.TOOL_INVALID,
        FailureKind.HELD_LIMIT,
        FailureKind.FILTER_UNAVAILABLE,
        FailureKind.BUDGET,
    }
)
_NO_WORD: Final = frozenset({FailureKind.ABORTED, FailureKind.TOTAL, FailureKind.STREAM_LIMIT})


class ProviderHealth:
    """Times are passed in, in seconds."""

    def __init__(self, *, failures: int, open_seconds: float) -> None:
        self._failures_max = failures
        self._open_seconds = open_seconds
        self._failures = 0
        self._open_until = 0.0  # 0: closed
        self._opened_at = 0.0
        self._backed_off_until = 0.0
        self._probing = False

    def wait_seconds(self, now: float) -> float:
        """Seconds until the provider may be asked; 0: now."""
        wait = max(self._open_until, self._backed_off_until) - now
        if wait <= 0 and self._open_until and self._probing:
            return self._open_seconds
        return max(0.0, wait)

    @contextmanager
    def probing(self, now: float) -> Iterator[None]:
        """Around an attempt that was decided on at `now`: half open, this one is the probe, and until it is over nobody else may ask."""
        mine = bool(self._open_until) and now >= self._open_until and not self._probing
        self._probing = self._probing or mine
        try:
            yield
        finally:
            if mine:
                self._probing = False

    def end(self, how: HowEnded, now: float, *, began: float) -> None:
        """An attempt has ended. One that began before the breaker opened closes nothing: it says how the provider was."""
        if isinstance(how, Complete) or how.kind in _NOT_ITS_FAULT:
            if began >= self._opened_at:
                self._failures, self._open_until, self._opened_at = 0, 0.0, 0.0
        elif how.kind not in _NO_WORD:
            self._failures += 1
            if self._open_until or self._failures >= self._failures_max:
                self._opened_at, self._open_until = now, now + self._open_seconds
        wait = None if isinstance(how, Complete) else how.retry_after
        if wait is not None and wait > RETRY_AFTER_PATIENCE_SECONDS:
            self._backed_off_until = max(self._backed_off_until, now + wait)

    def __repr__(self) -> str:
        state = "open" if self._open_until else "closed"
        return f"ProviderHealth({state}, failures={self._failures})"
