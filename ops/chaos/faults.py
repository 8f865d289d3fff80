"""The catalogue of faults that real providers show, each a script that the loopback provider and the explorer play alike: `tidegate provider --script NAME`, `tidegate chaos NAME`.

After the fault, every further attempt is answered well. Rows that are no provider's doing on one connection name the place where they are looked at instead.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from gate.config import HoldConfig, LimitsConfig
from ops.chaos.scenario import Asking, Scenario, route
from ops.chaos.wire import (
    DONE,
    ROLE,
    STOP,
    USAGE,
    Reply,
    bare_event,
    calls,
    delta,
    error_event,
    finish,
    json_body,
    request,
    spoken,
    stream,
    text,
    thought,
)
from ops.provider_script import Attempt, Ending, Repeat, Script, Write

__all__ = ["CATALOGUE", "ELSEWHERE", "Row", "scenarios", "script_named"]

WORDS: Final = ("One", " two", " three")
SAID: Final = "".join(WORDS)
LONG: Final = "x" * 200_000
ENDLESS_BYTES: Final = 65_536
ARGUMENTS: Final = '{"age": 7}'
TOOL: Final[Mapping[str, Any]] = {
    "type": "function",
    "function": {
        "name": "note",
        "parameters": {
            "type": "object",
            "properties": {"age": {"type": "integer"}},
            "required": ["age"],
            "additionalProperties": False,
        },
    },
}


@dataclass(frozen=True, slots=True)
class Row:
    """`number`: of the catalogue's table. `said`, `code`: what a caller gets in the end, as in a scenario; `called`: the answer is a call of the tool; `well`: how further attempts are answered, where not with the same words."""

    number: int
    name: str
    about: str
    attempt: Attempt
    said: str = SAID
    code: str = ""
    called: bool = False
    well: Attempt | None = None
    limits: LimitsConfig = LimitsConfig()  # noqa: RUF009 - frozen

    @property
    def good(self) -> Reply:
        """How further attempts are answered."""
        if isinstance(self.well, Attempt):
            return _always(self.well)
        return spoken(*WORDS) if self.said == SAID else spoken(self.said)

    def script(self) -> Script:
        """For the loopback provider: the fault, and then a good answer for ever."""
        return Script(attempts=(self.attempt, self.good("")))


def _always(attempt: Attempt) -> Reply:
    return lambda _prefix: attempt


def _joined(*pieces: bytes, cuts: tuple[int, ...] = ()) -> Iterator[bytes]:
    """The pieces as one, cut at these places."""
    whole = b"".join(pieces)
    for start, end in zip((0, *cuts), (*cuts, len(whole)), strict=True):
        yield whole[start:end]


def _call_entry(**members: object) -> bytes:
    return delta({"tool_calls": [members]})


_ALL: Final = (ROLE, *map(text, WORDS), STOP, DONE)
_UTF: Final = text("é€😀")
_SPLIT: Final = len(ROLE) + _UTF.index("€".encode()) + 1
_CRLF: Final = b"".join(_ALL).replace(b"\n", b"\r\n")
_CR: Final = b"".join(_ALL).replace(b"\n", b"\r")
_LINES: Final = "One\u2028two\u0085three\x0cfour"
_RAW_LINES: Final = delta({"content": "@"}).replace(b"@", _LINES.replace("\x0c", "\\f").encode())
_SPOKEN_CALL: Final = stream(ROLE, *calls("note", ARGUMENTS), finish("tool_calls"), DONE)
_FUNCTION: Final = {"name": "note", "arguments": ARGUMENTS}

CATALOGUE: Final = (
    Row(1, "cut-chunked", "the connection dies in the chunked body", stream(ROLE, text("One"), text(" two"), Ending.CUT)),
    Row(1, "reset-chunked", "it is reset there", stream(ROLE, text("One"), text(" two"), Ending.RESET)),
    Row(2, "utf8-split", "a character is cut over two reads", stream(*_joined(ROLE, _UTF, STOP, DONE, cuts=(_SPLIT,))), said="é€😀"),
    Row(3, "crlf", "lines end with CRLF, and one is cut between them", stream(*_joined(_CRLF, cuts=(_CRLF.index(b"\r\n") + 1,)))),
    Row(3, "cr", "lines end with CR", stream(_CR)),
    Row(4, "line-separators", "U+2028, U+0085 and a form feed inside JSON", stream(ROLE, _RAW_LINES, STOP, DONE), said=_LINES),
    Row(5, "no-space", "`data:` without a space", stream(b"".join(_ALL).replace(b"data: ", b"data:"))),
    Row(6, "comments", "comments between events", stream(*(piece + b": OPENROUTER PROCESSING\n\n" for piece in _ALL))),
    Row(7, "ping-events", "events with no data", stream(ROLE, b"event: ping\n\n\n\n", text(SAID), b"data:\n\n", STOP, DONE)),
    Row(8, "kept-alive-stall", "comments hide a stall", Attempt((Write(ROLE), Write(text("One")), Write(text(" two")), Repeat(b": alive\n\n", 20, 10_000), Ending.STALL))),
    Row(9, "stall", "silence for ever", stream(ROLE, text("One"), text(" two"), Ending.STALL)),
    Row(10, "lingering", "the body stays open behind `[DONE]`", stream(*_ALL, Ending.STALL)),
    Row(11, "behind-done", "more comes behind `[DONE]`", stream(*_ALL, text(" four"), DONE)),
    Row(12, "error-first", "an error is the first event of a 200", stream(error_event(), DONE)),
    Row(12, "error-late", "an error in the middle of a 200", stream(ROLE, text("One"), text(" two"), error_event(), DONE)),
    Row(13, "event-error", "`event: error` with its message at top level", stream(ROLE, b"event: error\n" + bare_event({"message": "engine failed", "code": 500}))),
    Row(14, "json-for-stream", "a JSON body where a stream was asked for", json_body(SAID)),
    Row(15, "clean-eof", "the body ends well, the answer does not", stream(ROLE, text("One"), text(" two"), Ending.CLOSE)),
    Row(16, "done-without-finish", "`[DONE]`, usage, and no finish reason", stream(ROLE, *map(text, WORDS), USAGE, DONE)),
    Row(17, "empty-choices", "chunks without choices first and last", stream(bare_event({"id": "a", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [], "prompt_filter_results": []}), *_ALL[:-1], USAGE, DONE)),
    Row(18, "call-without-index", "a tool call without its index", stream(ROLE, _call_entry(id="call_1", type="function", function=_FUNCTION), finish("tool_calls"), DONE), said="", called=True, well=_SPOKEN_CALL),
    Row(19, "call-without-id", "a tool call without an id", stream(ROLE, _call_entry(index=0, type="function", function=_FUNCTION), finish("tool_calls"), DONE), said="", called=True, well=_SPOKEN_CALL),
    Row(20, "call-repeated", "the whole arguments come twice", stream(ROLE, *calls("note", ARGUMENTS + ARGUMENTS), finish("tool_calls"), DONE), said="", called=True, well=_SPOKEN_CALL),
    Row(21, "role-repeated", "every chunk says the role", stream(*(delta({"role": "assistant", "content": word}) for word in WORDS), STOP, DONE)),
    Row(22, "reasoning-names", "reasoning under either name, content null", stream(ROLE, thought("hm"), delta({"reasoning": "hm", "content": None}), *_ALL[1:])),
    Row(23, "long-line", "one line of 200 kB", stream(ROLE, text(LONG), STOP, DONE), said=LONG),
    Row(24, "endless-line", "an event that never ends", Attempt((Write(ROLE), Write(b"data: "), Repeat(b"x" * 16_384, 64))), limits=LimitsConfig(event_bytes_max=ENDLESS_BYTES)),
    Row(25, "gzip", "compressed, whatever was asked for", stream(*_joined(gzip.compress(b"".join(_ALL), mtime=0), cuts=(40,)), headers=[("content-type", "text/event-stream"), ("content-encoding", "gzip")])),
    Row(32, "drip", "a byte at a time", stream(ROLE, *(each for byte in _ALL[1][:24] for each in (1_000, bytes((byte,)))), _ALL[1][24:], *_ALL[2:])),
)  # fmt: skip

ELSEWHERE: Final[Mapping[int, str]] = MappingProxyType(
    {
        26: "no HTTP/2 is spoken to providers: transport/http1.py offers none",
        27: "tests/transport/test_pool.py: a reused connection that fails before the first byte is tried again, once",
        28: "transport/pool.py does not queue; places are given out in actors/dispatch.py, which every scenario with rivals strikes",
        29: "every scenario: the caller leaves at each point, and the provider is let go in that moment (I2)",
        30: "tests/transport/test_edges_caller.py: a half-close counts as leaving",
        31: "the scenarios slow-caller and stuck-caller",
    }
)
"""Rows that are not one provider's script, and where they are looked at."""


def script_named(name: str) -> Script | None:
    """The script of the row of that name, if there is one."""
    return next((row.script() for row in CATALOGUE if row.name == name), None)


def scenarios() -> dict[str, Scenario]:
    """Each row as a scenario: the first target shows the fault, a second one is well."""
    return {row.name: _scenario(row) for row in CATALOGUE}


def _scenario(row: Row) -> Scenario:
    return Scenario(
        about=row.about,
        targets=[[row.attempt, row.good], [row.good]],
        said=row.said,
        code=row.code,
        calls=(("note", ARGUMENTS),) if row.called else (),
        asking=Asking((request(tools=[TOOL]),)) if row.called else Asking(),
        filters=("empty", "tool_calls") if row.called else ("empty",),
        rows=(row.number,),
        limits=row.limits,
        route=route(hold=HoldConfig(mode="window", tail_chars=5)),
        prefill="vllm",
    )
