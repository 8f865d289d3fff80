"""`tool_calls`: a call leaves once it is whole and can be carried out as it is; calls that stand in the text are found.

Mending puts calls together and says when one is whole (`gate.mending_tools`); from its first piece to there nothing passes. Judged in this order: its name, that the arguments are one
JSON object and fit the tool's schema, what the caller's `tool_choice` and `parallel_tool_calls` allow, its id. Where the request declares no tools (a stored prompt may), or some that
have no name here, names are not judged. A schema that can't be judged by is left out.

Text before a call is not delayed, but for three things that only the end can tell: where a call has to come, nothing passes before it does; where only one may come, it waits for
the end; and text that may be the markup of a call waits until that is known (`gate.filters.call_markup`).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final

import msgspec

from gate.errors import SchemaUnusable
from gate.events import Facts, Frame, RefusalDelta, TextDelta, ToolDelta, ToolEnd
from gate.failure import Failure, FailureKind
from gate.filters.call_markup import MarkupWatch
from gate.filters.contract import FilterContext, Passed, Verdict, Violated
from gate.openai import REAL_ENDS
from gate.openai_tools import LEGACY
from gate.repair import RepairNote, excerpt_of, reason_of
from gate.schema import SchemaError
from gate.schema_cache import RequestSchemas
from gate.strict_json import NotJson, parse_json
from gate.tool_rules import DeclaredTool, ToolRules

__all__ = ["ToolCallsFilter", "tool_calls"]

UNUSABLE: Final = "schema_unusable"
NAMES_MAX: Final = 32  # of the declared tools that a repair message lists

UNKNOWN: Final = "tool_unknown"
NOT_JSON: Final = "tool_arguments_json"
NO_OBJECT: Final = "tool_arguments_object"
MISFIT: Final = "tool_arguments_schema"
NOT_ASKED: Final = "tool_choice_none"
NOT_THERE: Final = "tool_choice_required"
ANOTHER: Final = "tool_choice_other"
TOO_MANY: Final = "tool_calls_parallel"
AMBIGUOUS: Final = "tool_ambiguous"
IN_TEXT: Final = "tool_call_in_text"

Finding = tuple[str, tuple[SchemaError, ...]]
"""A violation's code, and what a repair has to say about it."""


class _Call:
    """One call, as it comes; `began`: where its first piece stands."""

    def __init__(self, event: ToolDelta, began: int) -> None:
        self.choice = event.choice
        self.legacy = event.index == LEGACY
        self.custom = event.custom
        self.began = began
        self.id = ""
        self.name = ""
        self.pieces: list[str] = []

    def add(self, event: ToolDelta) -> None:
        self.id = self.id or event.id or ""
        self.custom |= event.custom
        self.name = self.name or event.name or ""
        if event.arguments:
            self.pieces.append(event.arguments)


class ToolCallsFilter:
    """Judges one attempt whose caller asked for `choices` choices under these rules; `schemas` are shared with the other attempts."""

    name = "tool_calls"
    gating = True

    def __init__(self, rules: ToolRules, schemas: RequestSchemas, *, choices: int) -> None:
        self.notice: str | None = None
        self._rules = rules
        self._schemas = schemas
        self._choices = choices
        self._open: dict[tuple[int, int], _Call] = {}
        self._over: set[tuple[int, int]] = set()
        self._ids: dict[int, set[str]] = {}  # of the good calls of each choice
        self._made: dict[int, int] = {}  # how many they are
        self._refused: set[int] = set()
        self._texts: dict[int, MarkupWatch] = {}
        self._watches = bool(rules.tools)
        self._first: int | None = None  # where the attempt began
        self._first_call: int | None = None
        self._primed = ""

    def prime(self, text: str) -> None:
        self._primed = text

    def observe(self, frames: Sequence[Frame], position: int) -> Verdict:
        if self._first is None:
            self._first = position
        for at, frame in enumerate(frames, start=position):
            for event in frame.events:
                violation = None
                match event:
                    case TextDelta():
                        violation = self._text(event, at) if self._watches else None
                    case ToolDelta():
                        violation = self._piece(event, at)
                    case ToolEnd():
                        violation = self._ended((event.choice, event.index))
                    case RefusalDelta():
                        self._refused.add(event.choice)
                    case _:
                        pass
                if violation is not None:
                    return msgspec.structs.replace(violation, seen=at)
        return Passed(self._limit(self._first, position + len(frames)))

    def finish(self, position: int, facts: Facts) -> Verdict:
        for key in list(self._open):
            violation = self._ended(key)
            if violation is not None:
                return violation
        for watch in self._texts.values():
            watch.finish()
            if watch.found is not None:
                return self._called_in_text(watch)
        first = position if self._first is None else self._first
        fine = {fact.choice for fact in facts.finishes if fact.reason in REAL_ENDS}
        fine |= self._refused | self._made.keys()
        if self._rules.required and not fine.issuperset(range(self._choices)):
            told = "a call is asked for, and the answer has none"
            return self._violated(first, NOT_THERE, None, (SchemaError("", "tool_choice", told),))
        return Passed(position)

    def _limit(self, first: int, newest: int) -> int:
        """The position up to which nothing is in doubt."""
        rules, limit = self._rules, newest
        if rules.required and len(self._made) < self._choices:
            return first
        for call in self._open.values():
            limit = call.began
            break  # the first one began first
        for watch in self._texts.values():
            if watch.held is not None:
                limit = min(limit, watch.held)
        if not rules.parallel and self._first_call is not None:
            limit = min(limit, self._first_call)
        return limit

    def _text(self, event: TextDelta, at: int) -> Violated | None:
        watch = self._texts.get(event.choice)
        if watch is None:
            watch = self._texts[event.choice] = MarkupWatch(self._rules.tools)
            watch.prime(self._primed)
        watch.feed(event.text, at)
        return None if watch.found is None else self._called_in_text(watch)

    def _called_in_text(self, watch: MarkupWatch) -> Violated:
        tool = self._rules.tools[watch.found or ""]
        told = SchemaError("", "markup", "the call stands in the text, and is no tool call there")
        position = watch.held
        assert position is not None, "what was found is held"
        return self._violated(position, IN_TEXT, tool, (told,), watch.text)

    def _piece(self, event: ToolDelta, at: int) -> Violated | None:
        if self._first_call is None:
            self._first_call = at
        key = None if event.index is None else (event.choice, event.index)
        if key is None or key in self._over:
            told = SchemaError("", "index", "a piece of a call comes when the call is over")
            return self._violated(at, AMBIGUOUS, None, (told,), event.arguments or "")
        call = self._open.get(key)
        if call is None:
            call = self._open[key] = _Call(event, at)
        call.add(event)
        return None

    def _ended(self, key: tuple[int, int]) -> Violated | None:
        call = self._open.pop(key, None)
        if call is None:
            return None
        self._over.add(key)
        arguments = "".join(call.pieces)
        tool = self._rules.tools.get(call.name)
        code, errors = (
            self._name(call, tool) or self._arguments(call, tool, arguments) or self._place(call)
        )
        if not code:
            return None
        quoted = arguments if tool is not None else f"{call.name}({arguments})"
        return self._violated(call.began, code, tool, errors, quoted)

    def _name(self, call: _Call, tool: DeclaredTool | None) -> Finding | None:
        if not call.name:
            return AMBIGUOUS, (SchemaError("", "name", "the call has no name"),)
        if tool is None and self._rules.closed:
            names = ", ".join(list(self._rules.tools)[:NAMES_MAX])
            return UNKNOWN, (SchemaError("", "name", f"there is no such tool; there are: {names}"),)
        return None

    def _arguments(self, call: _Call, tool: DeclaredTool | None, text: str) -> Finding | None:
        if call.custom or (tool is not None and tool.custom):
            return None
        if not text.strip():
            # What clients make of it.
            errors = self._errors(tool, {})
            return (NOT_JSON, errors) if errors else None
        try:
            value = parse_json(text)
        except NotJson as error:
            return (AMBIGUOUS if _several(error) else NOT_JSON), (SchemaError("", "json", str(error)),)  # fmt: skip
        if not isinstance(value, dict):
            return NO_OBJECT, (SchemaError("", "type", "the arguments have to be one JSON object"),)
        errors = self._errors(tool, value)
        return (MISFIT, errors) if errors else None

    def _errors(self, tool: DeclaredTool | None, value: object) -> tuple[SchemaError, ...]:
        if tool is None or not tool.schema:
            return ()
        try:
            return self._schemas.check(tool.schema, value)
        except SchemaUnusable:
            self.notice = UNUSABLE
            return ()

    def _place(self, call: _Call) -> Finding:
        """What is wrong with a call beside itself; a good one is counted. An empty code: nothing."""
        rules = self._rules
        if rules.forbidden:
            return NOT_ASKED, (SchemaError("", "tool_choice", "no call is asked for"),)
        if rules.allowed is not None and call.name not in rules.allowed:
            return ANOTHER, (SchemaError("", "tool_choice", "another tool is to be called"),)
        made = self._made.get(call.choice, 0)
        if made and not rules.parallel:
            told = "only one call is asked for at a time"
            return TOO_MANY, (SchemaError("", "parallel_tool_calls", told),)
        ids = self._ids.setdefault(call.choice, set())
        if not call.legacy and (not call.id or call.id in ids):
            return AMBIGUOUS, (SchemaError("", "id", "each call has to have an id of its own"),)
        ids.add(call.id)
        self._made[call.choice] = made + 1
        return "", ()

    def _violated(
        self,
        position: int,
        code: str,
        tool: DeclaredTool | None,
        errors: tuple[SchemaError, ...],
        text: str = "",
    ) -> Violated:
        ref = "tool.unknown" if tool is None else f"tool.{tool.place}"
        note = RepairNote(ref, None if tool is None else tool.name, errors, excerpt_of(text))
        reason = reason_of(note.tool, errors)
        failure = Failure(FailureKind.TOOL_INVALID, verdict=code, reason=reason)
        return Violated(position, code, failure, (note,))


def _several(error: NotJson) -> bool:
    """Whether the text is one object behind another: two calls that nobody can take apart for sure."""
    cause = error.__cause__
    if not isinstance(cause, json.JSONDecodeError) or cause.msg != "Extra data":
        return False
    return cause.doc[cause.pos] == "{"


def tool_calls(context: FilterContext) -> ToolCallsFilter:
    """The filter of this request; one that says nothing of tools may get calls all the same."""
    rules = context.tools or ToolRules()
    return ToolCallsFilter(rules, context.schemas, choices=context.choices)
