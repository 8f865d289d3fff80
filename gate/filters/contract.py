"""The filter contract and the order-independent combination of verdicts.

A filter judges evidence and never changes it. Its verdict is either the position before which it has no objection ("hold" is one that did not
move) or a violation. State belongs to one attempt; time comes with the batch. Positions count frames of the exchange's logical response.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, Protocol, TypeAlias, runtime_checkable

import msgspec

from gate.config import FilterConfig, OutputPolicy, PathKind, StructuredOutput
from gate.events import Facts, Frame
from gate.failure import Failure, FailureKind
from gate.repair import RepairNote
from gate.schema_cache import RequestSchemas
from gate.tool_rules import ToolRules

__all__ = [
    "Filter",
    "FilterContext",
    "FilterFactory",
    "Passed",
    "Primed",
    "Verdict",
    "Violated",
    "combine",
]


class FilterContext(msgspec.Struct, frozen=True):
    """What a filter of one exchange knows of its request and route. `response_format`, `tool_choice`: the member's parsed value, None where there is none.

    `may_call`: the request brings tools; `ceiling`: the tokens that it allows for each choice, 0 where it does not say; `tools`: what it says of tools, None where it says
    nothing; `schemas`: compiles and checks, within what one request may cost; `table`: the filter's own options; `endpoint` and `path`: where the
    request was asked at, and how the bytes of this attempt leave.
    """

    choices: int
    response_format: object = None
    structured_output: StructuredOutput = "off"
    output_policy: OutputPolicy = "off"
    may_call: bool = False
    tool_choice: object = None
    ceiling: int = 0
    tools: ToolRules | None = None
    schemas: RequestSchemas = msgspec.field(default_factory=RequestSchemas)
    table: FilterConfig = FilterConfig(kind="empty")
    endpoint: str = "/v1/chat/completions"
    path: PathKind = "normalized"

    def __repr__(self) -> str:
        return f"FilterContext({self.choices} choices, {self.structured_output})"


class Passed(msgspec.Struct, frozen=True):
    """No objection before `position`."""

    position: int


class Violated(msgspec.Struct, frozen=True):
    """The frame at `position` (or, at the end, the answer as a whole) is not to be released; `failure` says which row of the recovery table holds.

    `notes` say what a repair asks for; they quote the answer. `seen`: the position of the frame that showed it, however many were judged together; -1 where it is none by itself, as at
    the end.
    """

    position: int
    code: str
    failure: Failure
    notes: tuple[RepairNote, ...] = ()
    seen: int = -1


Verdict: TypeAlias = Passed | Violated


class Filter(Protocol):
    """A filter that computes, for one attempt. `name` is a stable token, that of its table where it has one; `gating`: whether a release waits for it.

    `notice`: what it has to say beside its verdict, a stable token, known at the end.
    """

    name: str
    gating: bool
    notice: str | None

    def observe(self, frames: Sequence[Frame], position: int) -> Verdict:
        """Judges the next frames; `position` is that of the first of them."""

    def finish(self, position: int, facts: Facts) -> Verdict:
        """Judges the answer as a whole, at the end of a complete attempt; `position` is the one behind its last frame, `facts` how it closed."""


FilterFactory: TypeAlias = Callable[[FilterContext], Filter | None]
"""What makes a kind's filter for one attempt; None where the request gives it nothing to judge."""


@runtime_checkable
class Primed(Protocol):
    """A filter that has to know the answer text that stands before an attempt which continues another."""

    def prime(self, text: str) -> None:
        """Called once, before the first `observe`, with the text of choice 0; only one choice is ever continued."""


# The violation that is seen first decides the recovery, for behind it nothing would have been judged had the frames come one by one; of several with the same frame it is the worst. That order is
# fixed, so that the order in which filters answer does not matter.
_SEVERITY: Final = {kind: rank for rank, kind in enumerate(FailureKind)}


def combine(verdicts: Iterable[Verdict], *, newest: int) -> Verdict:
    """The minimum over passed positions, or the violation that was seen first, the worst of those. Without verdicts everything up to `newest` has passed."""
    passed = newest
    worst: Violated | None = None
    for verdict in verdicts:
        if isinstance(verdict, Passed):
            passed = min(passed, verdict.position)
        elif worst is None or _rank(verdict) < _rank(worst):
            worst = verdict
    return worst or Passed(passed)


def _rank(violation: Violated) -> tuple[int, int, int, str]:
    severity = _SEVERITY[violation.failure.kind]
    return violation.seen, -severity, violation.position, violation.code
