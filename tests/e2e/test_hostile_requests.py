"""Requests and answers that are made to be slow: no single step of an exchange keeps the loop from others for long.

Measured in processor time of the longest step, which a busy machine does not stretch by much; the bound is several times what the slowest case takes.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any, Final

import pytest
import trio

from gate.config import FilterConfig, RecoveryConfig
from tests.doubles import (
    DONE,
    Answer,
    Read,
    RecordingCaller,
    ScriptedProvider,
    delta,
    gateway,
    left_behind,
    request,
    supervise,
)
from tests.doubles import body as json_answer

STEP_SECONDS_MAX: Final = 0.75
READ_BYTES: Final = 65_536
TABLES: Final = {
    "keys": FilterConfig(kind="patterns", pattern_set="secrets"),
    "hard": FilterConfig(
        kind="patterns",
        patterns=("(?:a|a)*b{9}$", "(?:[a-z]+)*[0-9]{50}q", "(?:x{1,30}){1,30}y", "(?i)(?:é|e)+!"),
    ),
}
FILTERS: Final = (
    "empty",
    "repetition",
    "encoding",
    "tool_calls",
    "structured_output",
    *TABLES,
)
Members = Mapping[str, Any]


class Steps(trio.abc.Instrument):
    """The processor time of the longest step of any task, in seconds."""

    def __init__(self) -> None:
        self.longest = 0.0
        self._began = time.thread_time()

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self._began = time.thread_time()

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        self.longest = max(self.longest, time.thread_time() - self._began)


def in_format(schema: object) -> Members:
    """A request for JSON that fits this."""
    return {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}}  # fmt: skip


def with_tools(*schemas: object) -> Members:
    """A request with the tools `f0`, `f1`, ..."""
    return {"tools": [{"type": "function", "function": {"name": f"f{n}", "parameters": schema}} for n, schema in enumerate(schemas)]}  # fmt: skip


def said(text: str, size: int) -> bytes:
    """An event stream of this text, so many characters an event."""
    events = [delta({"content": text[at : at + size]}) for at in range(0, len(text), size)]
    return b"".join((*events, delta({}, finish="stop"), DONE))


def called(arguments: str, size: int) -> bytes:
    """The same of a call's arguments."""
    first: Any = {"index": 0, "id": "c0", "type": "function", "function": {"name": "f0", "arguments": ""}}  # fmt: skip
    deltas = [{"tool_calls": [first]}]
    for at in range(0, len(arguments), size):
        deltas.append({"tool_calls": [{"index": 0, "function": {"arguments": arguments[at : at + size]}}]})  # fmt: skip # noqa: PERF401
    return b"".join((*map(delta, deltas), delta({}, finish="tool_calls"), DONE))


def all_called(count: int, arguments: str) -> bytes:
    """One body that calls so many tools."""
    calls = [{"id": f"c{n}", "type": "function", "function": {"name": f"f{n}", "arguments": arguments}} for n in range(count)]  # fmt: skip
    message = {"role": "assistant", "content": None, "tool_calls": calls}
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls"}
    return json.dumps({"id": "up-1", "object": "chat.completion", "created": 7, "model": "m", "choices": [choice]}).encode()  # fmt: skip


def ladder(levels: int, name: str = "") -> dict[str, Any]:
    """Definitions of two references each to the next: the ways through them double with every level."""
    steps: dict[str, Any] = {
        f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(levels)
    }
    return {"title": name, "$defs": {**steps, f"d{levels}": {}}, "$ref": "#/$defs/d0"}


def wide_pattern(number: int) -> dict[str, Any]:
    """A pattern of few characters and many states."""
    return {"pattern": f"(?:(?:a|b{number}){{9}}){{9}}"}


UNION: Final = {"anyOf": [{"type": "null"}, *[{"type": "array", "items": {"$ref": "#"}}] * 2]}
NUMBERS: Final = json.dumps([dict.fromkeys("abcdefgh", n) for n in range(4_000)])
OBJECTS: Final = {"items": {"properties": {c: {"type": "integer"} for c in "abcdefgh"}}}
PROSE: Final = "".join(f"a word and another one, number {n}. " for n in range(9_000))

CASES: Final[Mapping[str, tuple[Members, bytes]]] = {
    "patterns": (in_format({"anyOf": [wide_pattern(n) for n in range(60)]}), said('"x"', 4)),
    "properties": (in_format({"properties": {f"p{n}": {"type": "string"} for n in range(6_000)}}), said('{"p1":"x"}', 4)),
    "enum": (in_format({"items": {"enum": [f"v{n}" for n in range(20_000)]}}), said('["q","r"]', 4)),
    "references": (in_format(ladder(18)), said("1", 4)),
    "union": (in_format(UNION), said("[" * 60 + "]" * 60, 4)),
    "pattern": (in_format({"pattern": "^(?:(?:a|b|ab)+)+c$"}), said(json.dumps("".join(f"ab{'a' * (n % 7)}" for n in range(6_000))), 400)),
    "digits": (in_format({"items": {"multipleOf": 3}}), said(f"[{'98765432101234567' * 9_000}]", 4_000)),
    "bound": (in_format({"maximum": 10**4_000}), said("1", 4)),
    "values": (in_format(OBJECTS), said(NUMBERS, 4_000)),
    "values-called": (with_tools({"properties": {"x": OBJECTS}}), called(f'{{"x":{NUMBERS}}}', 40)),
    "tools-patterns": (with_tools(*map(wide_pattern, range(300))), all_called(300, "{}")),
    "tools-references": (with_tools(*(ladder(17, f"{n}") for n in range(300))), all_called(300, "{}")),
    "open-match": ({}, said("eyJ" + "".join(f"{n:x}" for n in range(60_000)), 400)),
    "markup": (with_tools({}), said("".join(f"\n<tool_call {n}" for n in range(15_000)), 40)),
    "brackets": (in_format({}), said("[" * 300_000, 4_000)),
    "prose": ({}, said(PROSE, 1 << 22)),
}  # fmt: skip


def in_reads(data: bytes) -> Answer:
    """As a socket brings it."""
    if data.startswith(b"{"):
        return json_answer(data)
    return Answer([Read(data[at : at + READ_BYTES]) for at in range(0, len(data), READ_BYTES)])


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
async def test_no_step_is_long(case: str, autojump_clock: trio.abc.Clock) -> None:
    """The first time, and again where schemas are kept; the verdict is the same."""
    members, data = CASES[case]
    gate = gateway(
        ScriptedProvider(in_reads(data), for_ever=True),
        filters=FILTERS,
        tables=TABLES,
        structured_output="reject",
        recovery=RecoveryConfig(attempts_max=1),
    )
    steps = Steps()
    trio.lowlevel.add_instrument(steps)
    first = await supervise(gate, RecordingCaller(request(**members)))
    again = await supervise(gate, RecordingCaller(request(**members)))
    trio.lowlevel.remove_instrument(steps)
    assert first.code == again.code
    assert steps.longest < STEP_SECONDS_MAX
    assert left_behind(gate) == []
