"""In-memory ports: providers that play scripts, callers that read as they are told, filters that take their time; and one counter of all calls, so that any of them can fail."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import trio

from actors.ports import (
    AwaitingFilter,
    BodyPart,
    Disconnected,
    Headers,
    UpstreamRequest,
    UpstreamResponse,
)
from gate.errors import FilterUnavailable, UpstreamFailed, UpstreamFault
from gate.events import Frame, TextDelta
from gate.failure import Failure, FailureKind
from gate.filters.awaited import Awaited, Question
from gate.filters.contract import Passed, Verdict, Violated
from ops.chaos.inject import Bug
from ops.chaos.wire import Answer
from ops.provider_script import Attempt, Ending, Head, Repeat, Sleep, Write
from transport.decoding import DecodedResponse, coding_of, decoder_for

__all__ = ["Asked", "Calls", "PlayedCaller", "PlayedFilters", "PlayedProvider", "prefix_of"]

FOREVER: Final = float("inf")
TOO_SLOW: Final = (
    1.0  # seconds behind the write limit at which the kernel ends a write nobody reads
)


class Calls:
    """Counts the calls of all ports of the exchange that is struck; the one numbered `failing` fails."""

    def __init__(self, failing: Sequence[int] = ()) -> None:
        self.count = 0
        self.failed: list[str] = []
        self.errors: list[Bug] = []
        self._failing = failing

    def due(self, name: str) -> bool:
        """One more call; whether it is to fail."""
        self.count += 1
        if self.count not in self._failing:
            return False
        self.failed.append(name)
        return True

    def bug(self, name: str) -> None:
        """A call of a port that promises not to fail."""
        if self.due(name):
            self.errors.append(Bug(f"{name} failed"))
            raise self.errors[-1]


# --- providers -----------------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class Asked:
    """One attempt as its provider saw it. Times on trio's clock."""

    exchange: str
    prefix: str
    asked_at: float
    request: UpstreamRequest
    closes: int = 0
    closed_at: float = -1.0


class PlayedProvider:
    """Gives each attempt the next answer of its script; the last one again and again."""

    def __init__(self, script: Sequence[Answer], calls: Calls, subject: str) -> None:
        self.asked: list[Asked] = []
        self._script = script
        self._calls = calls
        self._subject = subject

    @asynccontextmanager
    async def attempt(
        self, request: UpstreamRequest, *, on_connected: Callable[[], None]
    ) -> AsyncIterator[UpstreamResponse]:
        body = b"".join(bytes(piece) for piece in request.body)
        assert len(body) == request.content_length, "a body of another length than was said"
        exchange = dict(request.headers)[b"x-request-id"].decode()
        asked = Asked(exchange, prefix_of(body), trio.current_time(), request)
        mine = [each for each in self.asked if each.exchange == exchange]
        answer = self._script[min(len(mine), len(self._script) - 1)]
        self.asked.append(asked)
        calls = self._calls if exchange == self._subject else Calls()
        try:
            await trio.lowlevel.checkpoint()
            if calls.due("provider.connect") or answer is None:
                raise UpstreamFailed(UpstreamFault.CONNECT)
            on_connected()
            script = answer if isinstance(answer, Attempt) else answer(asked.prefix)
            response = _Response(script, asked, calls)
            await response.open()
            coding = coding_of(response.headers)
            yield DecodedResponse(response, decoder_for(coding)) if coding else response
        finally:
            asked.closes += 1
            asked.closed_at = trio.current_time()


def prefix_of(body: bytes) -> str:
    """The answer text that the request asks to go on with."""
    asked: dict[str, Any] = json.loads(body)
    if "messages" in asked:
        last = asked["messages"][-1]
        return str(last["content"]) if last["role"] == "assistant" else ""
    given = asked.get("input")
    if isinstance(given, list) and given[-1].get("status") == "incomplete":
        return "".join(part["text"] for part in given[-1]["content"])
    return ""


class _Response:
    """One answer, read after read; each sleep is a silence before the next read."""

    def __init__(self, script: Attempt, asked: Asked, calls: Calls) -> None:
        self.status = 0
        self.headers: Headers = ()
        self._steps = script.play_list()
        self._asked = asked
        self._calls = calls
        self._over = False
        self._repeat: Iterator[bytes] = iter(())
        self._every = 0.0

    async def open(self) -> None:
        """Until the head has come."""
        for step in self._steps:
            match step:
                case Head(status, headers):
                    self.status = status
                    self.headers = [(name.encode(), value.encode()) for name, value in headers]
                    break
                case Sleep(ms):
                    await trio.sleep(ms / 1000)
                case Ending.STALL:
                    await trio.sleep(FOREVER)
                case Ending():
                    raise UpstreamFailed(UpstreamFault.RESET)
                case _:
                    raise UpstreamFailed(UpstreamFault.PROTOCOL)
        await trio.lowlevel.checkpoint()
        if self._calls.due("provider.head") or not self.status:
            raise UpstreamFailed(UpstreamFault.RESET)

    async def read(self) -> bytes:
        assert not self._asked.closes, "read after the response was left"
        await trio.lowlevel.checkpoint()
        if self._calls.due("provider.read"):
            raise UpstreamFailed(UpstreamFault.CUT)
        for piece in self._repeat:
            await trio.sleep(self._every)
            return piece
        for step in self._steps if not self._over else ():
            match step:
                case Write(data) if data:
                    return data
                case Sleep(ms):
                    await trio.sleep(ms / 1000)
                case Repeat(data, times, every_ms):
                    self._repeat, self._every = iter([data] * (times - 1)), every_ms / 1000
                    await trio.sleep(self._every)
                    return data
                case Ending.STALL:
                    await trio.sleep(FOREVER)
                case Ending.CUT | Ending.RESET:
                    raise UpstreamFailed(UpstreamFault.CUT)
                case _:
                    pass
        self._over = True
        return b""


# --- the caller ----------------------------------------------------------------------------------


@dataclass(eq=False)
class PlayedCaller:
    """Sends its body in parts, `gap` seconds before each, then reads; writes down what it got and what was done to it that may not be.

    `whole`: its body comes to an end. `seconds`: that it takes for each write; `stuck`: it takes nothing, and as under the server that can't be cancelled: such a write
    returns when the caller leaves, or when the kernel gives up, a second after `write_seconds`.
    `turns`: how often anything of it was used, or went on; between two turns nobody sees whether it has left.
    """

    parts: Sequence[bytes]
    calls: Calls
    gap: float = 0.0
    seconds: float = 0.0
    stuck: bool = False
    whole: bool = True
    write_seconds: float = 60.0
    on_write: Callable[[bytes], None] = lambda _: None
    misuse: list[str] = field(default_factory=list)
    received: bytearray = field(default_factory=bytearray)
    status: int = 0
    starts: int = 0
    headers: dict[bytes, bytes] = field(default_factory=dict)
    first_write_at: float = FOREVER
    last_write_at: float = -1.0
    ended: bool = False
    ended_at: float | None = None
    torn: bool = False
    left_at: float | None = None
    told: bool = False
    aborted: bool = False
    turns: int = 0

    def __post_init__(self) -> None:
        self._unsent = list(self.parts)
        self._gone = trio.Event()

    def leave(self) -> None:
        """Closes its connection."""
        if self.left_at is None and not self.ended:
            self.left_at = trio.current_time()
        self._gone.set()

    async def receive(self) -> BodyPart | Disconnected:
        self.turns += 1
        await trio.lowlevel.checkpoint()
        self.turns += 1
        self.calls.bug("caller.receive")
        if self._unsent and not self._gone.is_set():
            with trio.move_on_after(self.gap):
                await self._gone.wait()
        self.turns += 1
        if self._unsent and not self._gone.is_set():
            data = self._unsent.pop(0)
            return BodyPart(data, last=self.whole and not self._unsent)
        await self._gone.wait()
        self.turns += 1
        self.told = True
        return Disconnected()

    async def start(self, status: int, headers: Headers) -> None:
        self.starts, self.turns = self.starts + 1, self.turns + 1
        if self.starts > 1:
            self.misuse.append("a second start")
        self.calls.bug("caller.start")
        self.status, self.headers = status, dict(headers)
        await trio.lowlevel.checkpoint()

    async def write(self, data: bytes) -> None:
        self.calls.bug("caller.write")
        await self._take(data)

    async def end(self, data: bytes = b"") -> None:
        self.turns += 1
        if self.told and self.left_at is not None:
            self.misuse.append("a farewell to a caller that is known to be gone")
        self.calls.bug("caller.end")
        await self._take(data)
        self.ended, self.ended_at = True, trio.current_time()
        self._gone.set()

    def abort(self) -> None:
        """The body is cut off."""
        self.turns += 1
        self.aborted, self.ended_at = True, trio.current_time()
        self._gone.set()

    async def _take(self, data: bytes) -> None:
        """Half of it, then the rest: a write that is cancelled in between leaves a torn frame."""
        self.turns += 1
        if self.starts != 1:
            self.misuse.append("bytes before the start")
        if self.torn:
            self.misuse.append("bytes behind a torn write")
        half = len(data) // 2
        self._got(data[:half])
        self.torn = bool(data)
        if self.stuck:
            # Bounded by: the caller's leaving, and by what stands for the kernel's limit.
            with trio.move_on_after(self.write_seconds + TOO_SLOW, shield=True):
                await self._gone.wait()
            self.turns += 1
            if not self._gone.is_set():
                self.leave()
        await trio.sleep(self.seconds)
        self.turns += 1
        self._got(data[half:])
        self.torn = False

    def _got(self, data: bytes) -> None:
        if not data:
            return
        now = trio.current_time()
        self.first_write_at = min(self.first_write_at, now)
        self.last_write_at = now
        self.received += data
        self.on_write(data)


# --- filters that await --------------------------------------------------------------------------


class PlayedFilters:
    """A service that takes `seconds` for each question and denies text with `denied` in it. `passed`: per attempt, the text that it let through; `decides`: nothing else is released."""

    def __init__(
        self,
        name: str,
        calls: Calls,
        subject: str,
        *,
        seconds: float,
        denied: str = "",
        decides: bool = True,
    ) -> None:
        self.name = name
        self.decides = decides
        self.seconds = seconds
        self.denied = denied
        self.passed: dict[int, str] = {}
        self.open = 0
        self._calls = calls
        self._subject = subject

    def begin(self, exchange: str, attempt: int, awaited: Awaited) -> AwaitingFilter:
        mine = exchange == self._subject
        calls, number = (self._calls, attempt) if mine else (Calls(), -1)
        return _PlayedFilter(self, calls, number, awaited.before)


class _PlayedFilter:
    """For one attempt."""

    def __init__(self, home: PlayedFilters, calls: Calls, attempt: int, before: str) -> None:
        self._home = home
        self._calls = calls
        self._attempt = attempt
        self._home.passed.setdefault(attempt, "")
        self._home.passed[attempt] = before

    async def judge(self, question: Question) -> Verdict:
        home = self._home
        home.open += 1
        try:
            await trio.sleep(home.seconds)
        finally:
            home.open -= 1
        if self._calls.due("filter.judge"):
            raise FilterUnavailable("filter_failed")
        words = _words(question.frames)
        if home.denied and home.denied in words:
            failure = Failure(FailureKind.DENIED_NEXT, verdict="denied")
            return Violated(question.start, "denied", failure)
        home.passed[self._attempt] += words
        return Passed(question.end)


def _words(frames: Sequence[Frame]) -> str:
    events = [event for frame in frames for event in frame.events]
    return "".join(event.text for event in events if isinstance(event, TextDelta))
