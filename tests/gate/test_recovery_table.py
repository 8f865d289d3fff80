"""The recovery table: every kind of failure has its row, and no row does what must never be done."""

from __future__ import annotations

from typing import Final

import pytest

from gate.failure import FailureKind
from gate.recovery_table import ANSWER, FALLBACKS, TABLE, Row, Step, continues

EXACT: Final = frozenset({Step.SAME, Step.FRESH, Step.NEXT, Step.FALL_BACK})
CONTINUED: Final = frozenset({Step.CONTINUE, Step.CONTINUE_HELD})
# The table in the design, row by row: the same target first, the next one, answers, ends.
BUSY: Final = {FailureKind.UNAVAILABLE, FailureKind.RATE_LIMITED}
FAULTS: Final = {
    FailureKind.CONNECT,
    FailureKind.RESET,
    FailureKind.UNUSABLE,
    FailureKind.NO_HEADERS,
    FailureKind.NO_PROGRESS,
    FailureKind.STALL,
    FailureKind.JSON_LATE,
    FailureKind.CUT,
    FailureKind.MISSING_TERMINAL,
    FailureKind.MALFORMED,
    FailureKind.EMPTY,
    FailureKind.FAILED_FINISH,
    FailureKind.RESTARTED,
}
ANSWERS: Final = {
    FailureKind.AUTH,
    FailureKind.NOT_FOUND,
    FailureKind.CONTEXT_LENGTH,
    FailureKind.CONTENT_FILTER,
    FailureKind.REFUSED,
}
ENDS: Final = {
    FailureKind.DENIED,
    FailureKind.TOTAL,
    FailureKind.STREAM_LIMIT,
    FailureKind.HELD_LIMIT,
    FailureKind.FILTER_UNAVAILABLE,
    FailureKind.QUEUE,
    FailureKind.NO_TARGET,
    FailureKind.BUDGET,
    FailureKind.ABORTED,
}
every_kind = pytest.mark.parametrize("kind", FailureKind)


@every_kind
def test_every_failure_has_a_row(kind: FailureKind) -> None:
    """A new kind has to be thought about."""
    assert isinstance(TABLE[kind], Row)


@every_kind
def test_a_row_says_what_the_design_says(kind: FailureKind) -> None:
    """Loops and violations have rows of their own."""
    if kind in BUSY:
        assert TABLE[kind] == ((Step.SAME, Step.NEXT), (Step.CONTINUE,))
    elif kind in FAULTS:
        assert TABLE[kind] == ((Step.NEXT,), (Step.CONTINUE,))
    elif kind in ANSWERS:
        assert TABLE[kind] is ANSWER
        assert TABLE[kind] == ((Step.FALL_BACK,), ())
    elif kind in ENDS:
        assert TABLE[kind] == ((), ())


def test_after_a_loop_another_provider_comes_first_and_then_a_place_before_it() -> None:
    """Where nobody has seen the seam; the same model may go round in circles again."""
    assert TABLE[FailureKind.REPETITION] == (
        (Step.FRESH, Step.CONTINUE_HELD, Step.NEXT),
        (Step.CONTINUE_HELD,),
    )


@every_kind
def test_after_a_release_the_same_request_is_never_sent_again(kind: FailureKind) -> None:
    """Nor is one that repairs: the caller has seen a part of the answer."""
    assert CONTINUED.issuperset(TABLE[kind].released)


@every_kind
def test_a_row_says_no_step_twice(kind: FailureKind) -> None:
    """And ends with one that needs nothing but a target, if it has any."""
    for steps in TABLE[kind]:
        assert len(set(steps)) == len(steps)
    # But for the one that asks for nothing else.
    if TABLE[kind].unreleased and kind is not FailureKind.DENIED_CONTINUE:
        assert TABLE[kind].unreleased[-1] in EXACT


@every_kind
@pytest.mark.parametrize("released", [False, True])
def test_an_answer_is_kept_only_where_its_row_may_go_on(
    kind: FailureKind, *, released: bool
) -> None:
    """Nobody keeps text for an attempt that can't come: before a release that is a loop alone."""
    goes_on = kind in BUSY | FAULTS if released else False
    assert continues(kind, released=released) is (
        goes_on
        or kind is FailureKind.REPETITION
        or (kind is FailureKind.DENIED_CONTINUE and not released)
    )


def test_a_route_falls_back_by_the_names_of_answers() -> None:
    """A refused request has none: it is refused everywhere."""
    assert {FALLBACKS.get(kind, "") for kind in ANSWERS} == {
        "auth",
        "not_found",
        "context_length",
        "content_filter",
        "",
    }
    assert FALLBACKS.keys() == ANSWERS - {FailureKind.REFUSED}


def test_steps_have_stable_names() -> None:
    """The documents call them so."""
    assert [step.value for step in Step] == [
        "same",
        "fresh",
        "next",
        "fall_back",
        "continue",
        "continue_held",
        "repair",
    ]
