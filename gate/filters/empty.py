"""`empty`: a complete answer without answer content is no answer.

Answer content is text from its first character that is not white space, a refusal, audio, or a complete tool call. An answer that ended with
`length` or `content_filter` is one all the same. The filter holds nothing by itself: until there is content the opening does.
"""

from __future__ import annotations

from collections.abc import Sequence

from gate.completeness import Answer
from gate.events import Facts, Frame, TextDelta
from gate.failure import Failure, FailureKind
from gate.filters.contract import Passed, Verdict, Violated

__all__ = ["EmptyFilter"]


class EmptyFilter:
    """Judges one attempt whose caller asked for `choices` choices."""

    name = "empty"
    gating = True
    notice: str | None = None

    def __init__(self, choices: int) -> None:
        self._answer = Answer(choices)

    def prime(self, text: str) -> None:
        if text:
            self._answer.observe((TextDelta(0, text),))

    def observe(self, frames: Sequence[Frame], position: int) -> Verdict:
        for frame in frames:
            self._answer.observe(frame.events)
        return Passed(position + len(frames))

    def finish(self, position: int, facts: Facts) -> Verdict:
        for fact in facts.finishes:
            self._answer.finished[fact.choice] = fact.reason
        if self._answer.empty:
            return Violated(0, "empty_answer", Failure(FailureKind.EMPTY))
        return Passed(position)
