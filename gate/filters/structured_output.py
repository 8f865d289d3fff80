"""`structured_output`: an answer to a request with a `response_format` is JSON, and fits its schema.

Judged as a whole, at the end, but for a text that can't become JSON any more: while the filter gates, its attempt is condemned at once. (Where the request brings tools it is not: words
may stand before a call, and then there is no text to judge.) Per choice one JSON value, with white space around it at most; an object where `json_object` asks for one. A choice that ended with `length` or
`content_filter` is an answer as it stands, and one with a refusal, audio or a tool call has no text to judge. A schema that can't be judged by (`gate.schema`) is left out: the
text has to be JSON all the same.

While it gates, nothing passes before the end. The texts that it keeps are those of the held evidence itself, by reference, so `held_bytes_max` bounds them; joined they exist for
the time of the judgement only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from gate.config import StructuredOutput
from gate.errors import SchemaUnusable
from gate.events import AudioDelta, Facts, Frame, RefusalDelta, TextDelta, ToolDelta
from gate.failure import Failure, FailureKind
from gate.filters.contract import FilterContext, Passed, Verdict, Violated
from gate.json_answer import AnswerPrefix
from gate.openai import REAL_ENDS
from gate.repair import FORMAT, RepairNote, excerpt_of, reason_of
from gate.schema import SchemaError
from gate.schema_cache import RequestSchemas
from gate.strict_json import NotJson, parse_json

__all__ = [
    "OutputFormat",
    "StructuredOutputFilter",
    "read_format",
    "structured_output",
]

NOTES_MAX: Final = 8  # choices that a violation speaks of
# Of text that comes in large pieces so much is looked at as it comes, at up to 2 us for each character, and so much more for each frame. The first that is more ends it: most of an answer is there, and
# its end not far. What is read together makes no difference, so that it changes no verdict.
EARLY_CHARS_MAX: Final = 8_192
EARLY_CHARS_PER_FRAME: Final = 64
UNUSABLE: Final = "schema_unusable"
NOT_AN_OBJECT: Final = SchemaError("", "type", "the answer has to be one JSON object")
_GATING: Final = frozenset({"repair", "reject"})


class OutputFormat(msgspec.Struct, frozen=True):
    """What a `response_format` asks for. `schema` as the caller gave it; None: it gave none."""

    schema: object = None
    any_object: bool = False

    def __repr__(self) -> str:
        return (
            f"OutputFormat({'object' if self.any_object else 'schema' if self.schema else 'JSON'})"
        )


class StructuredOutputFilter:
    """Judges one attempt whose caller asked for `choices` choices in this format.

    `notice`, known at the end: a stable token that says why the schema was not judged by, or None.
    """

    name = "structured_output"

    def __init__(
        self,
        asked: OutputFormat,
        level: StructuredOutput,
        schemas: RequestSchemas,
        *,
        choices: int,
        may_call: bool = False,
    ) -> None:
        self.gating = level in _GATING
        self._repairs = level == "repair"
        early = self.gating and not may_call
        # What mending takes off at the end is fine until then.
        self._beginnings = [
            AnswerPrefix(wrapped=self._repairs) for _ in range(choices if early else 0)
        ]
        self.notice: str | None = None
        self._asked = asked
        self._texts: list[list[str]] = [[] for _ in range(choices)]
        self._without_text: set[int] = set()
        self._room = EARLY_CHARS_MAX
        self._began: int | None = None
        self._schemas = schemas

    def observe(self, frames: Sequence[Frame], position: int) -> Verdict:
        if self._began is None:
            self._began = position
        for at, frame in enumerate(frames, start=position):
            self._room = min(self._room + EARLY_CHARS_PER_FRAME, EARLY_CHARS_MAX)
            for event in frame.events:
                match event:
                    case TextDelta() if 0 <= event.choice < len(self._texts):
                        self._texts[event.choice].append(event.text)
                        dead = self._is_dead(event)
                        if dead and (found := self._violation({event.choice}, position)):
                            return msgspec.structs.replace(found, seen=at)
                    case RefusalDelta() | AudioDelta():
                        self._without_text.add(event.choice)
                    case ToolDelta() if event.id or event.name or event.arguments:
                        self._without_text.add(event.choice)
                    case _:
                        pass
        return Passed(self._began if self.gating else position + len(frames))

    def finish(self, position: int, facts: Facts) -> Verdict:
        ended = {fact.choice for fact in facts.finishes if fact.reason in REAL_ENDS}
        judged = set(range(len(self._texts))) - ended - self._without_text
        return self._violation(judged, position) or Passed(position)

    def _is_dead(self, event: TextDelta) -> bool:
        """With this text its choice can't become JSON any more. Where there is no room to look, nobody looks at this attempt again."""
        self._room -= len(event.text)
        if self._room < 0:
            self._beginnings.clear()
        if not self._beginnings or event.choice in self._without_text:
            return False
        return not self._beginnings[event.choice].feed(event.text)

    def _violation(self, choices: set[int], position: int) -> Violated | None:
        """What is wrong with the texts of these choices, if anything is; `position` is the newest."""
        codes, notes, reasons = [], [], []
        for choice in sorted(choices):
            text = "".join(self._texts[choice])
            code, errors = self._judged(text)
            if code:
                codes.append(code)
                reasons.append(reason_of(None, errors))
                if self._repairs:
                    notes.append(RepairNote(FORMAT, None, errors, excerpt_of(text)))
        if not codes:
            return None
        began = position if self._began is None else self._began
        kind = FailureKind.OUTPUT_INVALID if self._repairs else FailureKind.OUTPUT_REJECTED
        failure = Failure(kind, verdict=codes[0], reason=reasons[0])
        return Violated(began, codes[0], failure, tuple(notes[:NOTES_MAX]))

    def _judged(self, text: str) -> tuple[str, tuple[SchemaError, ...]]:
        """The code of what is wrong with one choice's text, and where; an empty one: nothing."""
        try:
            value = parse_json(text)
        except NotJson as error:
            return "json_invalid", (SchemaError("", "json", str(error)),)
        if self._asked.any_object and not isinstance(value, dict):
            return "schema_mismatch", (NOT_AN_OBJECT,)
        errors = self._errors(value)
        return "schema_mismatch" if errors else "", errors

    def _errors(self, value: object) -> tuple[SchemaError, ...]:
        if self._asked.schema is None or self.notice is not None:
            return ()
        try:
            # Compiled where it is needed: an attempt that breaks off has no use for it.
            return self._schemas.check_by(self._asked.schema, value)
        except SchemaUnusable:
            self.notice = UNUSABLE
            return ()


def structured_output(context: FilterContext) -> StructuredOutputFilter | None:
    """The filter of this request under its route's level; None where there is nothing to judge."""
    asked = read_format(context.response_format)
    if asked is None or context.structured_output == "off":
        return None
    return StructuredOutputFilter(
        asked,
        context.structured_output,
        context.schemas,
        choices=context.choices,
        may_call=context.may_call,
    )


def read_format(response_format: object) -> OutputFormat | None:
    """What a `response_format` asks for; None: nothing that is judged here."""
    match response_format:
        case {"type": "json_object"}:
            return OutputFormat(any_object=True)
        case {"type": "json_schema", "json_schema": {"schema": schema}}:
            return OutputFormat(schema)
        case {"type": "json_schema"}:
            return OutputFormat()
        case _:
            return None
