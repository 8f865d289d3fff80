"""The sink: the only writer to the caller. It drives the commit boundary and the framing, and says how the response ended.

It outlives the other actors, so that one that dies still ends in an explicit terminal; only the caller's leaving cancels it. It holds nothing but
the pieces it writes, because a write to a caller that does not read can't be cancelled under this server.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import trio

from actors.context import Ending
from actors.evaluator import PIECE_BYTES_MAX
from actors.ports import Caller, Headers
from actors.probe import acting
from actors.world import Moment, World
from gate.commit import Act, Commit, CommitBoundary, Effect
from gate.endpoints import framing_for
from gate.envelope import PublicError, envelope, error_headers, refusal
from gate.events import Ping, Release, Start, Success, Terminal, Wire
from gate.framing import SSE_HEADERS, Framing, sse_error
from gate.model_echo import BYTE_ORDER_MARK
from gate.sse import KEEP_ALIVE

__all__ = ["Written", "run", "watch"]

_CLOSE: Final = (b"connection", b"close")

_Rare = Start | Ping | Success | Terminal  # what is no release


@dataclass(frozen=True, slots=True)
class Written:
    """What the caller got: its status, the error's code (empty: success), attempts at the terminal, bytes of body, the framing (empty: an error response)."""

    framing: str
    status: int
    code: str
    attempts: int
    bytes_out: int


async def run(
    wire: trio.MemoryReceiveChannel[Wire],
    written: trio.MemorySendChannel[Written],
    caller: Caller,
    *,
    request_id: bytes,
    ending: Ending,
) -> None:
    """Until a terminal is written. A `wire` that closes without one ends in `internal_error`."""
    with wire, written, acting("sink"):
        sink = _Sink(caller, request_id, ending)
        await sink.drain(wire)
        await written.send(sink.written())


async def watch(
    wire: trio.MemorySendChannel[Wire],
    ending: Ending,
    *,
    ping_seconds: float,
    caller_write_seconds: float,
    leave: Callable[[], None],
    world: World,
    ping: Callable[[], Ping] = Ping,
) -> None:
    """Until it is cancelled, or the sink has ended: asks for a comment whenever nothing was written for `ping_seconds`, and calls `leave` when
    one write has been under way for `caller_write_seconds`.

    A task of its own, so that a stream that flows pays nothing for it. The write limit is the kernel's on HTTP/1.1 (`transport.serve`); under HTTP/2 a caller may take
    nothing for ever without leaving a byte unacknowledged, and only this tells.
    """
    with wire, acting("watch"):
        ending.written_at = asked_at = trio.current_time()
        while True:
            began, now = ending.write_began, trio.current_time()
            if began is not None and now >= began + caller_write_seconds:
                ending.because("caller_too_slow")
                leave()
                return
            ping_at = world.wake(Moment.PING, max(asked_at, ending.written_at) + ping_seconds)
            if began is None and now >= ping_at:
                asked_at = world.look(Moment.PING, 0.0)
                try:
                    # Asked for only where it can go: it takes along what the caller is to be told.
                    if not wire.statistics().current_buffer_used:
                        wire.send_nowait(ping())
                except trio.BrokenResourceError:
                    return
                ping_at = world.wake(Moment.PING, asked_at + ping_seconds)
            if began is None:
                await trio.sleep_until(min(ping_at, now + caller_write_seconds))
            else:
                await trio.sleep_until(began + caller_write_seconds)


class _Sink:
    """One response."""

    def __init__(self, caller: Caller, request_id: bytes, ending: Ending) -> None:
        self._caller = caller
        self._request_id = request_id
        self._ending = ending
        self._boundary = CommitBoundary()
        self._staged: Start | None = None
        self._chosen: Framing | None = None
        self._code = ""
        self._attempts = 0
        self._comments = b""  # that wait for a place between two frames
        self._told_headers: Headers = ()

    def written(self) -> Written:
        name = self._chosen.name if self._chosen else ""
        ending = self._ending
        return Written(name, ending.status, self._code, self._attempts, ending.bytes_out)

    async def drain(self, wire: trio.MemoryReceiveChannel[Wire]) -> None:
        """Takes what comes and writes it."""
        following: Wire | None = None
        while self._boundary.state is not Commit.TERMINAL:
            item, following = following, None
            if item is None:
                try:
                    item = await wire.receive()
                except trio.EndOfChannel:
                    item = Terminal(refusal(500, "internal_error"), 0)
            if item.told is not None:
                self._comments += item.told.comments
                self._told_headers = item.told.headers or self._told_headers
            if isinstance(item, Release):
                following = await self._release(wire, item)
            else:
                await self._other(item)

    async def _release(self, wire: trio.MemoryReceiveChannel[Wire], item: Release) -> Wire | None:
        """Joins what is there already, up to a piece, and writes once; what was there behind that."""
        data = self._framing.release(item.frames)
        following: Wire | None = None
        while len(data) < PIECE_BYTES_MAX and following is None:
            try:
                after = wire.receive_nowait()
            except (trio.WouldBlock, trio.EndOfChannel):
                break
            if isinstance(after, Release) and after.told is None:
                data += self._framing.release(after.frames)
            else:
                following = after
        if data:
            await self._open_and_write(data)
        return following

    async def _open_and_write(self, data: bytes) -> None:
        effect = self._boundary.apply(Act.RELEASE)
        assert effect is not None, "a release after the terminal"
        if effect is Effect.START_AND_FRAMES:
            await self._start()
        if not data.startswith(BYTE_ORDER_MARK):  # which is one at the very beginning only
            await self._explain()
        await self._write(data)

    async def _explain(self) -> None:
        """Writes what is to be told, by itself; between two frames, and where the response has begun with a framing that leaves room for it."""
        if self._comments and (self._chosen is None or self._chosen.explains):
            comments, self._comments = self._comments, b""
            await self._write(comments)

    async def _other(self, item: _Rare) -> None:
        match item:
            case Start():
                if self._boundary.apply(Act.STAGE) is Effect.STAGE:
                    self._staged = item
            case Ping():
                await self._ping(item)
            case Success():
                await self._success(item)
            case _:
                await self._error(item)

    async def _ping(self, item: Ping) -> None:
        effect = self._boundary.apply(Act.EARLY_PING if item.commits else Act.PING)
        if effect is Effect.START_AND_PING:
            await self._head(200, SSE_HEADERS, attempts=item.attempts)
        if effect is None:
            return
        if self._chosen is None or self._chosen.comments:
            await self._write(KEEP_ALIVE)
        await self._explain()

    async def _success(self, item: Success) -> None:
        effect = self._boundary.apply(Act.SUCCESS)
        assert effect is not None, "a second terminal"
        self._attempts = item.attempts
        body = self._framing.success(item.facts)
        if effect is Effect.WHOLE:
            await self._start(self._framing.length(body))
        await self._explain()
        await self._end(body)

    async def _error(self, item: Terminal) -> None:
        effect = self._boundary.apply(Act.ERROR)
        assert effect is not None, "a second terminal"
        self._attempts, self._code = item.attempts, item.error.code
        if effect is Effect.ERROR_RESPONSE and item.streamed:
            closing = (_CLOSE,) if item.close else ()
            await self._head(200, (*SSE_HEADERS, *closing), attempts=item.attempts)
            await self._explain()
            await self._end(sse_error(item.error))
        elif effect is Effect.ERROR_RESPONSE:
            await self._error_response(item.error, close=item.close)
        else:
            await self._error_in_stream(item)

    async def _error_in_stream(self, item: Terminal) -> None:
        """A stream has begun; one that no answer has begun is in the framing of its endpoint all the same."""
        self._staged = self._staged or item.start
        body = sse_error(item.error) if self._staged is None else self._framing.error(item.error)
        await self._explain()
        await (self._break_off() if body is None else self._end(body))

    async def _error_response(self, error: PublicError, *, close: bool) -> None:
        body = envelope(error)
        headers = [*error_headers(error), (b"content-length", str(len(body)).encode())]
        if close:
            headers.append(_CLOSE)
        await self._head(error.status, headers, attempts=self._attempts)
        await self._end(body)

    @property
    def _framing(self) -> Framing:
        """Chosen from the start that is staged when it is first asked for, and kept."""
        if self._chosen is None:
            assert self._staged is not None, "a start is staged before anything is released"
            self._chosen = framing_for(self._staged)
        return self._chosen

    async def _start(self, length: Headers = ()) -> None:
        assert self._staged is not None
        framing = self._framing
        await self._head(framing.status, [*framing.headers, *length], attempts=self._staged.n)

    async def _head(self, status: int, headers: Headers, *, attempts: int) -> None:
        self._ending.status = status
        own = [(b"x-request-id", self._request_id), (b"x-tidegate-attempts", b"%d" % attempts)]
        await self._caller.start(status, [*headers, *own, *self._told_headers])

    async def _write(self, data: bytes) -> None:
        self._ending.bytes_out += len(data)
        began = self._ending.write_began = trio.current_time()
        await self._caller.write(data)
        self._ending.write_began = None
        ended = self._ending.written_at = trio.current_time()
        if ended - began >= self._ending.slowest_seconds:
            self._ending.slowest_seconds, self._ending.slowest_at = ended - began, ended

    async def _break_off(self) -> None:
        """The response has begun, and nothing that it may hold could say that it failed."""
        await trio.lowlevel.checkpoint_if_cancelled()
        self._ending.over = True
        self._caller.abort()

    async def _end(self, data: bytes) -> None:
        # Where the caller was seen to leave in this very step nothing terminal is written.
        await trio.lowlevel.checkpoint_if_cancelled()
        if len(data) > PIECE_BYTES_MAX:
            # It may take long: whether the caller reads it is not settled yet.
            await self._write(data)
            data = b""
        self._ending.bytes_out += len(data)
        self._ending.over = True  # from here on a disconnect may be the server's word for the end
        self._ending.write_began = trio.current_time()
        await self._caller.end(data)
        self._ending.write_began = None
