"""What is tried after which failure, in order, as long as nothing was released and after something was. Data; `gate.recovery` decides by it.

    same           the same target again, after its pause and so often in a row as the route says
    fresh          a target that this exchange has not asked yet
    next           the next target; once all have failed the round begins anew, after a pause
    fall_back      another target, where the route falls back on this answer
    continue       the answer goes on behind the resume point, at a target that can be told to
    continue_held  the same, only where the seam lies in text that nobody has seen
    repair         the same target is told what was wrong, in another request

Without a step the exchange ends with the failure's own error.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final, NamedTuple

from gate.failure import FailureKind

__all__ = ["ANSWER", "FALLBACKS", "TABLE", "Row", "Step", "continues"]


class Step(Enum):
    """One thing that may be tried; the value is what the table in the documents calls it."""

    SAME = "same"
    FRESH = "fresh"
    NEXT = "next"
    FALL_BACK = "fall_back"
    CONTINUE = "continue"
    CONTINUE_HELD = "continue_held"
    REPAIR = "repair"


class Row(NamedTuple):
    """What is tried after one kind of failure, in order."""

    unreleased: tuple[Step, ...] = ()
    released: tuple[Step, ...] = ()


_FAULT: Final = Row((Step.NEXT,), (Step.CONTINUE,))
_BUSY: Final = Row((Step.SAME, Step.NEXT), (Step.CONTINUE,))
ANSWER: Final = Row((Step.FALL_BACK,))
_INVALID: Final = Row((Step.REPAIR, Step.NEXT))
_FINAL: Final = Row()

TABLE: Final[Mapping[FailureKind, Row]] = {
    FailureKind.CONNECT: _FAULT,
    FailureKind.RESET: _FAULT,
    FailureKind.UNAVAILABLE: _BUSY,
    FailureKind.RATE_LIMITED: _BUSY,
    FailureKind.AUTH: ANSWER,
    FailureKind.NOT_FOUND: ANSWER,
    FailureKind.CONTEXT_LENGTH: ANSWER,
    FailureKind.CONTENT_FILTER: ANSWER,
    FailureKind.REFUSED: ANSWER,
    FailureKind.UNUSABLE: _FAULT,
    FailureKind.NO_HEADERS: _FAULT,
    FailureKind.NO_PROGRESS: _FAULT,
    FailureKind.STALL: _FAULT,
    FailureKind.JSON_LATE: _FAULT,
    FailureKind.CUT: _FAULT,
    FailureKind.MISSING_TERMINAL: _FAULT,
    FailureKind.MALFORMED: _FAULT,
    FailureKind.EMPTY: _FAULT,
    FailureKind.FAILED_FINISH: _FAULT,
    # A model that goes round in circles may do so again: another one first, then from before the loop.
    FailureKind.REPETITION: Row((Step.FRESH, Step.CONTINUE_HELD, Step.NEXT), (Step.CONTINUE_HELD,)),
    FailureKind.RESTARTED: _FAULT,
    FailureKind.OUTPUT_INVALID: _INVALID,
    FailureKind.OUTPUT_REJECTED: _FINAL,
    FailureKind.TOOL_INVALID: _INVALID,
    # What a filter denies is never shown; once something of the answer was, it ends there.
    FailureKind.DENIED_EXACT: Row((Step.SAME, Step.NEXT)),
    FailureKind.DENIED_NEXT: Row((Step.FRESH,)),
    FailureKind.DENIED_CONTINUE: Row((Step.CONTINUE_HELD,)),
    FailureKind.DENIED: _FINAL,
    FailureKind.TOTAL: _FINAL,
    FailureKind.STREAM_LIMIT: _FINAL,
    FailureKind.HELD_LIMIT: _FINAL,
    FailureKind.FILTER_UNAVAILABLE: _FINAL,
    FailureKind.QUEUE: _FINAL,
    FailureKind.NO_TARGET: _FINAL,
    FailureKind.BUDGET: _FINAL,
    FailureKind.ABORTED: _FINAL,
}

# What `fallback_on` calls an answer; one without a name here is never asked for elsewhere.
FALLBACKS: Final = {
    FailureKind.AUTH: "auth",
    FailureKind.NOT_FOUND: "not_found",
    FailureKind.CONTEXT_LENGTH: "context_length",
    FailureKind.CONTENT_FILTER: "content_filter",
}


def continues(kind: FailureKind, *, released: bool) -> bool:
    """Whether a continuation is among the steps after this failure."""
    steps = TABLE[kind].released if released else TABLE[kind].unreleased
    return Step.CONTINUE in steps or Step.CONTINUE_HELD in steps
