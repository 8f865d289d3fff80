"""The last step of mending, for an answer that was asked for as JSON and is held whole: what stands around the value goes, and an end that was a cut is called one.

    level `repair`               white space, a byte order mark and one enclosing code fence are taken off (`gate.json_answer`), where what is left is JSON
                                 no text, and JSON in the reasoning: that was the answer (servers whose reasoning parser takes it for a thought)
    levels `repair`, `reject`    the text is the beginning of JSON, and the completion tokens that were reported have reached the caller's ceiling: the finish is `length`

It stands at the end of an attempt, since nothing of such an answer is released before, and only its end shows whether a fence encloses it all. The judge runs it over the frames that
it holds, and where it changed one judges them anew, with fresh filters: they see what the caller gets.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import msgspec

from gate.events import (
    AudioDelta,
    Facts,
    FinishFact,
    Frame,
    ReasoningDelta,
    RefusalDelta,
    TextDelta,
    ToolDelta,
)
from gate.filters.contract import FilterContext
from gate.filters.structured_output import read_format
from gate.json_answer import ends_early, json_span
from gate.mending_text import text_by_choice, with_words
from gate.openai import REAL_ENDS
from gate.strict_json import NotJson, parse_json
from gate.usage import completion_tokens

__all__ = ["FormatMender", "Settled", "format_mender"]

_LEVELS: Final = frozenset({"repair", "reject"})


class Settled(NamedTuple):
    """What has become of a whole answer. `changed`: a frame was; `remarks`: stable tokens that say what was done."""

    frames: list[Frame]
    facts: Facts
    changed: bool = False
    remarks: tuple[str, ...] = ()


class FormatMender:
    """The step, for all attempts of one exchange; it keeps nothing between them."""

    def __init__(self, context: FilterContext, reasoning_field: str) -> None:
        self._choices = context.choices
        self._repairs = context.structured_output == "repair"
        self._ceiling = context.ceiling
        self._reasoning_field = reasoning_field

    def settle(self, frames: list[Frame], facts: Facts) -> Settled:
        """All frames of a complete attempt, and how it closed -> the same, mended."""
        settled = Settled(frames, facts)
        others = set(_without_text(frames))
        for fact in facts.finishes:
            if fact.choice < self._choices and fact.choice not in others:
                settled = self._settle(settled, fact)
        return settled

    def _settle(self, so_far: Settled, fact: FinishFact) -> Settled:
        if fact.reason in REAL_ENDS:
            return so_far
        text = _joined(so_far.frames, fact.choice, TextDelta)
        if self._repairs:
            kept = json_span(text)
            # What needs no mending is parsed once, by the filter.
            if kept != (0, len(text)) and _is_json(text[slice(*kept)]):
                return self._cut(so_far, fact.choice, TextDelta, kept, "format_unwrapped")
            if not text.strip():
                thought = _joined(so_far.frames, fact.choice, ReasoningDelta)
                kept = json_span(thought)
                if _is_container(thought[slice(*kept)]):
                    return self._cut(so_far, fact.choice, ReasoningDelta, kept, "format_promoted")
        if self._at_ceiling(so_far.facts) and ends_early(text, wrapped=self._repairs):
            return _called_length(so_far, fact)
        return so_far

    def _at_ceiling(self, facts: Facts) -> bool:
        """The report is of all choices together: each is at its ceiling only where all are."""
        spent = completion_tokens(facts.usage)
        return 0 < self._ceiling * self._choices <= spent

    def _cut(
        self,
        so_far: Settled,
        choice: int,
        source: type[TextDelta | ReasoningDelta],
        kept: tuple[int, int],
        remark: str,
    ) -> Settled:
        """With the text of one choice what stands in `kept` of its text, or of its reasoning."""
        frames: list[Frame] = []
        start, end = kept
        for frame in so_far.frames:
            piece = text_by_choice(frame, source).get(choice, "")
            text = piece[max(start, 0) : max(end, 0)]
            start, end = start - len(piece), end - len(piece)
            thought = ""
            if source is TextDelta:
                thought = text_by_choice(frame, ReasoningDelta).get(choice, "")
                same = text == piece
            else:
                same = not piece and choice not in text_by_choice(frame)
            words = {choice: (thought, text)}
            mended = frame if same else with_words(frame, words, self._reasoning_field)
            frames += [mended] if mended is not None else []
        return Settled(frames, so_far.facts, True, (*so_far.remarks, remark))


def format_mender(
    filters: Sequence[str], context: FilterContext, reasoning_field: str
) -> FormatMender | None:
    """The step of this request, whose route has these filters; None where nothing holds its answer to a format."""
    held = "structured_output" in filters and context.structured_output in _LEVELS
    if not held or read_format(context.response_format) is None:
        return None
    return FormatMender(context, reasoning_field)


def _without_text(frames: Sequence[Frame]) -> Iterator[int]:
    """The choices whose answer is not text, or not only."""
    for frame in frames:
        for event in frame.events:
            match event:
                case RefusalDelta() | AudioDelta():
                    yield event.choice
                case ToolDelta() if event.id or event.name or event.arguments:
                    yield event.choice
                case _:
                    pass


def _joined(frames: Sequence[Frame], choice: int, kind: type[TextDelta | ReasoningDelta]) -> str:
    return "".join(
        event.text
        for frame in frames
        for event in frame.events
        if isinstance(event, kind) and event.choice == choice
    )


def _is_json(text: str) -> bool:
    try:
        parse_json(text)
    except NotJson:
        return False
    return True


def _is_container(text: str) -> bool:
    """A thought may be a number or a quoted word by chance; nobody thinks in objects."""
    return text.startswith(("{", "[")) and _is_json(text)


def _called_length(so_far: Settled, fact: FinishFact) -> Settled:
    finishes = tuple(
        msgspec.structs.replace(each, reason="length") if each is fact else each
        for each in so_far.facts.finishes
    )
    facts = msgspec.structs.replace(so_far.facts, finishes=finishes)
    return Settled(so_far.frames, facts, so_far.changed, (*so_far.remarks, "finish_length"))
