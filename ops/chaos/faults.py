"""The catalogue of faults that real providers show, each a script that the loopback provider and the explorer play alike: `tidegate provider --script NAME`, `tidegate chaos NAME`.

After the fault, every further attempt is answered well. Rows that are no provider's doing name the scenarios that show them instead.
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

__all__ = ["CATALOGUE", "ELSEWHERE", "Place", "Row", "scenarios", "script_named"]

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
    """`number`: of the catalogue's table. `said`, `code`: what a caller gets in the end, as in a scenario; `called`: the answer is a call of the tool; `well`: how further attempts are answered, where not with the same words.

    `reused`: it strikes a connection that an answer has come on before: the provider gives a good one first, and in the explorer another exchange is over before, on the only target.
    """

    number: int
    name: str
    about: str
    attempt: Attempt
    said: str = SAID
    code: str = ""
    called: bool = False
    well: Attempt | None = None
    limits: LimitsConfig = LimitsConfig()  # noqa: RUF009 - frozen
    reused: bool = False

    @property
    def good(self) -> Reply:
        """How further attempts are answered."""
        if isinstance(self.well, Attempt):
            return _always(self.well)
        return spoken(*WORDS) if self.said == SAID else spoken(self.said)

    def script(self) -> Script:
        """For the loopback provider: the fault, and then a good answer for ever."""
        well = self.good("")
        return Script(attempts=(*([well] if self.reused else []), self.attempt, well))


@dataclass(frozen=True, slots=True)
class Place:
    """Where a row is looked at that is no provider's script. `cases`: arguments of `tidegate chaos`; `tests`: files, or one test of a file."""

    about: str
    cases: tuple[str, ...]
    tests: tuple[str, ...] = ()


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

_SETTINGS: Final = bytes.fromhex("000000 04 00 00000000")  # an empty frame of that type
_GOAWAY: Final = _SETTINGS + bytes.fromhex("000008 07 00 00000000 00000000 00000000")

CATALOGUE: Final = (
    Row(1, "cut-chunked", "the connection dies in the chunked body", stream(ROLE, text("One"), text(" two"), Ending.CUT)),
    Row(1, "reset-chunked", "the connection is reset in the chunked body", stream(ROLE, text("One"), text(" two"), Ending.RESET)),
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
    Row(26, "goaway", "HTTP/2 frames, a GOAWAY among them, to a request of HTTP/1.1, the only one that providers are asked in", Attempt((Write(_GOAWAY), Ending.CUT), status=0)),
    Row(27, "reuse-race", "a connection that was kept is closed under the next request, before a byte of its answer", Attempt((Ending.CUT,), status=0), well=json_body(SAID), reused=True, limits=LimitsConfig(exchanges_max=1)),
    Row(32, "drip", "a byte at a time", stream(ROLE, *(each for byte in _ALL[1][:24] for each in (1_000, bytes((byte,)))), _ALL[1][24:], *_ALL[2:])),
)  # fmt: skip

ELSEWHERE: Final[Mapping[int, Place]] = MappingProxyType(
    {
        28: Place(
            "a place of the pool that is lost on a cancel: actors/dispatch.py gives places out, transport/pool.py has no queue",
            ("crowded", "queued --cancel req:40", "crowded --ring 2"),
            ("tests/actors/test_dispatch.py",),
        ),
        29: Place(
            "a caller's leaving that does not stop the provider: its connection is closed in that moment",
            ("left", "healthy --cancel caller:60", "left --ring 2", "healthy --ring 3"),
            ("tests/transport/test_edges_caller.py",),
        ),
        30: Place(
            "a half-close by the caller, which counts as leaving",
            ("healthy --ring 2 --cancel half:100",),
            ("tests/transport/test_edges_caller.py::test_a_half_close_counts_as_leaving",),
        ),
        31: Place(
            "a caller that reads slowly, or never",
            ("slow-caller", "stuck-caller", "slow-reader --ring 3", "never-reads --ring 3"),
        ),
    }
)
"""Rows that are not one provider's script: what the caller or the process does."""


def script_named(name: str) -> Script | None:
    """The script of the row of that name, if there is one."""
    return next((row.script() for row in CATALOGUE if row.name == name), None)


def scenarios() -> dict[str, Scenario]:
    """Each row as a scenario: the first target shows the fault, a second one, if there is one, is well."""
    return {row.name: _scenario(row) for row in CATALOGUE}


def _scenario(row: Row) -> Scenario:
    return Scenario(
        about=row.about,
        targets=[[row.attempt, row.good], *([] if row.reused else [[row.good]])],
        said=row.said,
        code=row.code,
        calls=(("note", ARGUMENTS),) if row.called else (),
        asking=Asking((request(tools=[TOOL]),)) if row.called else Asking(),
        filters=("empty", "tool_calls") if row.called else ("empty",),
        rows=(row.number,),
        limits=row.limits,
        rivals=int(row.reused),
        route=route(hold=HoldConfig(mode="window", tail_chars=5)),
        prefill="vllm",
    )
