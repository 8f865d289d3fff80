"""A computing filter that fails does what its table says, and nobody else's work is hurt."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from gate.config import FilterConfig, FilterFailure
from gate.events import Facts, Frame, TextDelta
from gate.failure import Failure, FailureKind
from gate.filters.contract import Passed, Verdict, Violated
from gate.filters.policed import Policed, unavailable

FRAMES = [Frame(b"{}", (TextDelta(0, "ab"),), 2), Frame(b"{}", (TextDelta(0, "cd"),), 2)]
BROKEN = ValueError("a bug")


class Scripted:
    """Gives these verdicts, one after the other; an exception is raised. Each takes `seconds` on its clock."""

    name = "scripted"

    def __init__(self, *script: Verdict | Exception, seconds: float = 0.0) -> None:
        self.gating = True
        self.notice: str | None = None
        self.now = 0.0
        self.primed = ""
        self._script = list(script)
        self._seconds = seconds

    def clock(self) -> float:
        return self.now

    def prime(self, text: str) -> None:
        self.primed = text

    def observe(self, frames: Sequence[Frame], position: int) -> Verdict:
        return self._next()

    def finish(self, position: int, facts: Facts) -> Verdict:
        return self._next()

    def _next(self) -> Verdict:
        self.now += self._seconds
        said = self._script.pop(0)
        if isinstance(said, Exception):
            raise said
        return said


class Plain:
    """Passes everything, and knows nothing of what stands before."""

    name = "plain"
    gating = True
    notice: str | None = None

    def observe(self, frames: Sequence[Frame], position: int) -> Verdict:
        return Passed(position + len(frames))

    def finish(self, position: int, facts: Facts) -> Verdict:
        return Passed(position)


def policed(inner: Scripted, failure: FilterFailure = "closed", horizon_chars: int = 0) -> Policed:
    """Under a table with a deadline of half a second."""
    table = FilterConfig(kind="patterns", failure=failure, horizon_chars=horizon_chars)
    return Policed(inner, table, inner.clock)


def test_a_filter_that_works_is_left_alone() -> None:
    """Its verdicts, its priming, its notice."""
    bad = Violated(1, "bad", Failure(FailureKind.DENIED))
    inner = Scripted(Passed(2), bad, Passed(4))
    outer = policed(inner)
    outer.prime("before")
    assert inner.primed == "before"
    assert outer.observe(FRAMES, 0) == Passed(2)
    assert outer.observe(FRAMES, 2) == bad
    inner.notice = "seen"
    assert outer.finish(4, Facts()) == Passed(4)
    assert (outer.notice, outer.error) == ("seen", None)


def test_a_filter_that_wants_no_priming_gets_none() -> None:
    """Most look at what follows only."""
    outer = Policed(Plain(), FilterConfig(kind="empty"), lambda: 0.0)
    outer.prime("before")
    assert outer.observe(FRAMES, 0) == Passed(2)


def test_its_horizon_is_kept_behind_what_it_passes() -> None:
    """Until the end."""
    outer = policed(Scripted(Passed(2), Passed(2)), horizon_chars=2)
    assert outer.observe(FRAMES, 0) == Passed(1)
    assert outer.finish(2, Facts()) == Passed(2)


@pytest.mark.parametrize(
    ("said", "seconds", "code"),
    [(BROKEN, 0.0, "filter_failed"), (Passed(2), 0.6, "filter_deadline")],
)
def test_one_that_raises_or_takes_too_long_has_failed(
    said: Verdict | Exception, seconds: float, code: str
) -> None:
    """Closed: the exchange can't go on. Open: all passes from then on. Either way why is told, and it is not asked again."""
    closed, opened = Scripted(said, seconds=seconds), Scripted(said, seconds=seconds)
    outer = policed(closed)
    assert outer.observe(FRAMES, 5) == unavailable(5)
    assert outer.finish(7, Facts()) == unavailable(7)
    assert outer.notice == code
    outer = policed(opened, "open", horizon_chars=100)
    assert outer.observe(FRAMES, 5) == Passed(7)
    assert outer.observe(FRAMES, 7) == Passed(9)
    assert outer.finish(9, Facts()) == Passed(9)
    assert outer.notice == code
    assert outer.error is (BROKEN if said is BROKEN else None)


def test_one_that_only_observes_ends_nothing() -> None:
    """Whatever its policy says."""
    inner = Scripted(BROKEN)
    inner.gating = False
    outer = policed(inner)
    assert outer.observe(FRAMES, 0) == Passed(2)
    assert outer.notice == "filter_failed"


def test_a_violation_that_came_late_is_still_one() -> None:
    """It is what was waited for."""
    bad = Violated(1, "bad", Failure(FailureKind.DENIED))
    assert policed(Scripted(bad, seconds=9.0)).observe(FRAMES, 0) == bad
