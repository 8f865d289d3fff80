"""A computing filter under the policies of its table: its horizon, its deadline, and what follows where it fails.

Its work is bounded by itself; the deadline is looked at after each batch, because nothing can stop a function. One that raises, or takes longer than it may, has failed:
`closed` ends the exchange, `open` lets everything pass from then on. One that only observes never ends anything.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gate.config import FilterConfig
from gate.events import Facts, Frame
from gate.failure import Failure, FailureKind
from gate.filters.contract import Filter, Passed, Primed, Verdict, Violated
from gate.filters.horizon import Horizon

__all__ = ["DEADLINE", "FAILED", "UNAVAILABLE", "Policed", "unavailable"]

UNAVAILABLE = "filter_unavailable"
# Why a filter failed; told beside the violation, or instead of it.
FAILED = "filter_failed"
DEADLINE = "filter_deadline"


def unavailable(position: int) -> Violated:
    """The violation that a gating filter's failure is under `closed`; the next answer could not be judged either."""
    return Violated(position, UNAVAILABLE, Failure(FailureKind.FILTER_UNAVAILABLE))


class Policed:
    """`inner` under `table`. `clock`: monotonic seconds."""

    def __init__(self, inner: Filter, table: FilterConfig, clock: Callable[[], float]) -> None:
        self.name = inner.name
        self.gating = inner.gating
        self.notice: str | None = None
        self.error: Exception | None = None
        """What it raised: a bug, of which whoever runs this wants to know the place."""
        self._inner = inner
        self._closed = table.failure == "closed"
        self._seconds = table.deadline_ms / 1000
        self._clock = clock
        self._horizon = Horizon(table.horizon_chars)
        self._failed = False

    def prime(self, text: str) -> None:
        """As the filter inside, where it wants it."""
        if isinstance(self._inner, Primed):
            prime = self._inner.prime
            self._judged(0, 0, lambda: (prime(text), Passed(0))[1])

    def observe(self, frames: Sequence[Frame], position: int) -> Verdict:
        newest = position + len(frames)
        self._horizon.add(frames, position)
        verdict = self._judged(position, newest, lambda: self._inner.observe(frames, position))
        if isinstance(verdict, Passed) and not self._failed:
            return Passed(self._horizon.limit(verdict.position))
        return verdict

    def finish(self, position: int, facts: Facts) -> Verdict:
        verdict = self._judged(position, position, lambda: self._inner.finish(position, facts))
        self.notice = self.notice or self._inner.notice
        return verdict

    def _judged(self, position: int, newest: int, judge: Callable[[], Verdict]) -> Verdict:
        if self._failed:
            return self._after(position, newest)
        began = self._clock()
        try:
            verdict = judge()
        except Exception as error:  # noqa: BLE001 - whatever a filter raises is its failure, and has a policy
            self.error = error
            return self._fail(FAILED, position, newest)
        if isinstance(verdict, Passed) and self._clock() - began > self._seconds:
            return self._fail(DEADLINE, position, newest)
        return verdict

    def _fail(self, code: str, position: int, newest: int) -> Verdict:
        self._failed = True
        self.notice = code
        return self._after(position, newest)

    def _after(self, position: int, newest: int) -> Verdict:
        return unavailable(position) if self._closed and self.gating else Passed(newest)
