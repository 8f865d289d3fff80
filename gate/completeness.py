"""When an answer is complete, and how it ended (chat).

Complete: every choice 0..n-1 has a finish reason; or none has, and `[DONE]` came after answer content *and* a usage report came behind the
last content in an event without content. `[DONE]` with content but without either is a missing terminal; without content it is an empty
answer. A finish for one choice may come twice. What comes after completeness can no longer turn success into failure.
"""

from __future__ import annotations

from gate.events import (
    AudioDelta,
    Complete,
    Event,
    Finish,
    HowEnded,
    OutputItem,
    ReasoningDelta,
    RefusalDelta,
    TextDelta,
    ToolDelta,
    UsageReport,
)
from gate.failure import Failure, FailureKind
from gate.openai import REAL_ENDS, says_failure

__all__ = ["Answer"]


class Answer:
    """What one attempt has said so far. `choices`: how many the caller asked for (its `n`); `begun`: the first has content that another attempt brought."""

    def __init__(self, choices: int, *, begun: bool = False) -> None:
        self.choices = choices
        self.finished: dict[int, str] = {}
        self.progressed = False  # any progress at all
        self._content = {0} if begun else set[int]()  # choices with answer content
        self._calling: set[int] = set()  # choices whose newest content is a tool call
        self._usage_behind = False  # a usage report stands behind the last content

    @property
    def complete(self) -> bool:
        """Every choice has its finish reason."""
        return len(self.finished) >= self.choices and all(
            index in self.finished for index in range(self.choices)
        )

    def observe(self, events: tuple[Event, ...]) -> bool:
        """Takes in one frame's events; whether they were progress. Raises nothing; see `failed` for a finish that says failure."""
        progress = usage = False
        for event in events:
            match event:
                case TextDelta():
                    progress = True
                    choice = event.choice
                    fresh = choice not in self._content or choice in self._calling
                    if fresh and not event.text.isspace():
                        self._content.add(choice)
                        self._calling.discard(choice)
                case RefusalDelta() | AudioDelta() | OutputItem():
                    progress = True
                    self._content.add(event.choice)
                case ReasoningDelta():
                    progress = True
                case ToolDelta():
                    if event.id or event.name or event.arguments:
                        progress = True
                        self._content.add(event.choice)
                        self._calling.add(event.choice)
                case Finish():
                    self.finished.setdefault(event.choice, event.said)
                case UsageReport():
                    usage = True
                case _:
                    pass
        self._usage_behind = not progress and (usage or self._usage_behind)
        self.progressed = self.progressed or progress
        return progress

    @property
    def failed(self) -> bool:
        """Whether the finish reason of a choice that was asked for says failure."""
        return any(
            choice < self.choices and says_failure(said) for choice, said in self.finished.items()
        )

    @property
    def empty(self) -> bool:
        """Whether some choice has no answer content, and did not end with `length` or `content_filter`."""
        return any(
            choice not in self._content and self.finished.get(choice) not in REAL_ENDS
            for choice in range(self.choices)
        )

    def done(self) -> HowEnded:
        """How the attempt ended when `[DONE]` came (or a JSON body was whole)."""
        if self.complete:
            return Complete()
        if self.finished:
            return Failure(FailureKind.CUT)
        told = self._content.intersection(range(self.choices))
        if len(told) < self.choices:
            return Failure(FailureKind.CUT if told else FailureKind.EMPTY)
        if not self._usage_behind:
            return Failure(FailureKind.MISSING_TERMINAL)
        return Complete(self.implied())

    def implied(self) -> tuple[Finish, ...]:
        """The finish reasons that a proper end implies for choices that gave none."""
        missing = [choice for choice in range(self.choices) if choice not in self.finished]
        return tuple(Finish(choice, self._implied(choice), "") for choice in missing)

    def closed(self) -> HowEnded:
        """How the attempt ended when the body ended in order, without `[DONE]`."""
        if self.complete:
            return Complete()
        if self.finished:
            return Failure(FailureKind.CUT)
        return Failure(FailureKind.MISSING_TERMINAL if self.progressed else FailureKind.EMPTY)

    def _implied(self, choice: int) -> str:
        return "tool_calls" if choice in self._calling else "stop"

    def __repr__(self) -> str:
        return f"Answer({len(self.finished)}/{self.choices} finished, content in {sorted(self._content)})"
