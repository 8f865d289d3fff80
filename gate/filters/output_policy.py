"""`output_policy`: under `strict`, an answer for a program is nothing but what was asked for (requests with a format for JSON, or with tools).

    output_think_tags    think tags in the text, as the step of mending understands them: a pair at the beginning, or a closing one that closes nothing
    output_fenced        JSON was asked for, and the text begins with a code fence
    output_beside_call   a call was forced by `tool_choice`, and words stand beside it; where it was not forced, words before a call are fine

The filter judges and changes nothing: what the route mends (`think_tags`, a fence under level `repair`) is gone before it is judged. It holds what may be part of a tag and what may begin
a fence, and all of it where only the end decides: a fence that is mended there, a forced call. What is found at the end is nothing to a choice that ended with `length` or
`content_filter`: that is as it is. A route switches the filter on by its key, whatever its list of filters says.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from gate.events import Event, Facts, Frame, TextDelta, ToolDelta
from gate.failure import Failure, FailureKind
from gate.filters.contract import FilterContext, Passed, Verdict, Violated
from gate.filters.structured_output import read_format
from gate.mending_think import Kind, TagReader
from gate.openai import REAL_ENDS
from gate.repair import FORMAT, RepairNote, excerpt_of
from gate.schema import SchemaError

__all__ = ["OutputPolicyFilter", "only_calls", "output_policy"]

EXCERPT_CHARS: Final = 4_096  # of a text are kept for a repair to quote
NOTES_MAX: Final = 8  # choices that a violation speaks of
TAGS: Final = "output_think_tags"
FENCED: Final = "output_fenced"
BESIDE: Final = "output_beside_call"
_SAID: Final = {TAGS: "it has think tags in its text", FENCED: "it stands in a code fence"}
_FENCE: Final = "```"
_OUTER: Final = " \t\r\n\ufeff"


class _Choice:
    """What one choice has said so far. `tag_at`, `fence_at`: the position of the first frame that may be part of one."""

    def __init__(self) -> None:
        self.code = ""  # what is wrong with it
        self.tags = TagReader()
        self.tag_at: int | None = None
        self.fence_at: int | None = None
        self.called = False
        self.text = ""  # its beginning, from the first character that is not white space

    @property
    def worded(self) -> bool:
        return bool(self.text)

    @property
    def fenced(self) -> bool:
        return self.text.startswith(_FENCE)

    def read(self, text: str, position: int) -> None:
        """More text, in the frame at `position`."""
        if any(kind is not Kind.TEXT for kind, _ in self.tags.feed(text)):
            self.code = self.code or TAGS
        undecided = self.tags.undecided
        if not undecided:
            self.tag_at = None
        elif self.tag_at is None or undecided <= len(text):
            self.tag_at = position
        if len(self.text) < EXCERPT_CHARS:
            self.text = (self.text + text).lstrip(_OUTER)[:EXCERPT_CHARS]
            if not self.text.startswith(_FENCE[: len(self.text)]):
                self.fence_at = None
            elif self.text and self.fence_at is None and not self.called:
                self.fence_at = position

    def call(self) -> None:
        """A call: no tag goes on behind it, and what stands before it is no answer."""
        for _ in self.tags.finish():
            pass
        self.called = True
        self.tag_at = self.fence_at = None


class OutputPolicyFilter:
    """Judges one attempt. `json`: JSON was asked for; `mends`: a fence goes at the end; `may_call`: words may stand before a call; `forced`: a call has to come."""

    name = "output_policy"
    gating = True
    notice: str | None = None

    def __init__(
        self, choices: int, *, json: bool, mends: bool, may_call: bool, forced: bool
    ) -> None:
        self._choices = [_Choice() for _ in range(choices)]
        self._json = json
        self._fences_at_once = json and not mends and not may_call
        self._forced = forced
        self._to_end = forced or (json and mends)
        self._began: int | None = None

    def prime(self, text: str) -> None:
        """The answer has begun, and was judged so far."""
        self._choices[0].tags = TagReader(text)

    def observe(self, frames: Sequence[Frame], position: int) -> Verdict:
        if self._began is None:
            self._began = position
        for at, frame in enumerate(frames, start=position):
            wrong = False
            for event in frame.events:
                wrong |= self._read(event, at)
            if wrong:
                bad = [choice for choice in self._choices if choice.code]
                found = self._violated(bad, self._began)
                return msgspec.structs.replace(found, seen=at)
        return Passed(self._limit(self._began, position + len(frames)))

    def finish(self, position: int, facts: Facts) -> Verdict:
        ended = {fact.choice for fact in facts.finishes if fact.reason in REAL_ENDS}
        bad = []
        for number, choice in enumerate(self._choices):
            if self._json and choice.fenced and not choice.called and number not in ended:
                choice.code = FENCED
                bad.append(choice)
        began = position if self._began is None else self._began
        return self._violated(bad, began) if bad else Passed(position)

    def _read(self, event: Event, position: int) -> bool:
        """Whether the event shows that something is wrong."""
        if not isinstance(event, TextDelta | ToolDelta) or not 0 <= event.choice < len(
            self._choices
        ):
            return False
        choice = self._choices[event.choice]
        if isinstance(event, TextDelta):
            choice.read(event.text, position)
            if self._fences_at_once and choice.fenced:
                choice.code = choice.code or FENCED
        elif event.id or event.name or event.arguments:
            choice.call()
        if self._forced and choice.called and choice.worded:
            choice.code = choice.code or BESIDE
        return bool(choice.code)

    def _limit(self, began: int, newest: int) -> int:
        """The position before which everything is decided."""
        if self._to_end:
            return began
        held = [choice.tag_at for choice in self._choices]
        if self._json:
            held += [choice.fence_at for choice in self._choices]
        return min([newest, *(at for at in held if at is not None)])

    def _violated(self, bad: Sequence[_Choice], began: int) -> Violated:
        code = bad[0].code
        notes = [
            RepairNote(FORMAT, None, (SchemaError("", "output", _SAID[each.code]),), excerpt_of(each.text))
            for each in bad[:NOTES_MAX]
            if self._json and each.code in _SAID
        ]  # fmt: skip
        failure = Failure(FailureKind.OUTPUT_INVALID, verdict=code)
        return Violated(began, code, failure, tuple(notes))

    def __repr__(self) -> str:
        return f"OutputPolicyFilter({len(self._choices)} choices)"


def output_policy(context: FilterContext) -> OutputPolicyFilter | None:
    """The filter of this request under its route's policy; None where it has nothing to judge."""
    json = read_format(context.response_format) is not None
    if context.output_policy != "strict" or not (json or context.may_call):
        return None
    return OutputPolicyFilter(
        context.choices,
        json=json,
        mends=context.structured_output == "repair",
        may_call=context.may_call,
        forced=context.may_call and _forces(context.tool_choice),
    )


def only_calls(context: FilterContext) -> bool:
    """Whether the filter holds an answer to its end because nothing but calls may be in it."""
    strict = context.output_policy == "strict" and context.may_call
    return strict and _forces(context.tool_choice)


def _forces(tool_choice: object) -> bool:
    """Whether a `tool_choice` demands a call."""
    match tool_choice:
        case "required" | {"type": "function" | "custom"}:
            return True
        case {"type": "allowed_tools", "allowed_tools": {"mode": "required"}}:
            return True
        case _:
            return False
