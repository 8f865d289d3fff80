"""Verdicts combine to the same result in whatever order the filters answer."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gate.failure import Failure, FailureKind
from gate.filters.contract import Passed, Verdict, Violated, combine


def violated(position: int, kind: FailureKind, code: str = "code") -> Violated:
    """An objection to the frame at `position`."""
    return Violated(position, code, Failure(kind))


def test_the_release_waits_for_the_slowest_filter() -> None:
    """The minimum of what has passed."""
    assert combine([Passed(5), Passed(3), Passed(9)], newest=9) == Passed(3)


def test_without_a_filter_everything_that_came_has_passed() -> None:
    """Nobody objects."""
    assert combine([], newest=7) == Passed(7)


def test_no_filter_passes_what_has_not_come() -> None:
    """The newest frame is the bound."""
    assert combine([Passed(12)], newest=7) == Passed(7)


@pytest.mark.parametrize(
    ("verdicts", "worst"),
    [
        ([Passed(1), violated(8, FailureKind.EMPTY)], violated(8, FailureKind.EMPTY)),
        (
            [violated(2, FailureKind.EMPTY), violated(8, FailureKind.FILTER_UNAVAILABLE)],
            violated(8, FailureKind.FILTER_UNAVAILABLE),
        ),
        (
            [violated(8, FailureKind.EMPTY), violated(2, FailureKind.EMPTY)],
            violated(2, FailureKind.EMPTY),
        ),
        (
            [violated(2, FailureKind.EMPTY, "b"), violated(2, FailureKind.EMPTY, "a")],
            violated(2, FailureKind.EMPTY, "a"),
        ),
    ],
)
def test_the_worst_violation_decides(verdicts: list[Verdict], worst: Violated) -> None:
    """By what it means for the exchange, then by the first bad frame, then by name."""
    assert combine(verdicts, newest=9) == worst
    assert combine(reversed(verdicts), newest=9) == worst


positions = st.integers(0, 5)
verdicts_ = st.builds(Passed, positions) | st.builds(
    violated, positions, st.sampled_from(FailureKind), st.sampled_from(["a", "b", "c"])
)


@given(data=st.data(), verdicts=st.lists(verdicts_, max_size=6), newest=positions)
def test_any_order_of_answers_gives_the_same_verdict(
    data: st.DataObject, verdicts: list[Verdict], newest: int
) -> None:
    """And a violation is never outvoted."""
    verdict = combine(verdicts, newest=newest)
    assert combine(data.draw(st.permutations(verdicts)), newest=newest) == verdict
    assert isinstance(verdict, Violated) == any(isinstance(each, Violated) for each in verdicts)
