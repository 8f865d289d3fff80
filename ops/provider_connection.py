"""One connection of the loopback provider: HTTP/1.1 requests in, played steps out.

Rules of this file: one task per connection, and while an answer is played one more that watches
for the peer. A peer that closes its sending side counts as gone. Heads, bodies, idle time and
what is recorded are bounded by the constants below.
"""

from __future__ import annotations

import socket
import struct
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, assert_never

import h11
import trio

from ops.provider_answers import error_steps
from ops.provider_script import Ending, Framer, Head, Repeat, Sleep, Step, Write

HEAD_BYTES_MAX: Final = 65_536
BODY_BYTES_MAX: Final = 67_108_864
PIPELINED_BYTES_MAX: Final = 1_048_576  # of the next request, read while an answer is played
READ_BYTES: Final = 65_536
REQUEST_SECONDS_MAX: Final = 75.0  # idle time and the reading of a request, together
LINGER_SECONDS_MAX: Final = 1.0  # for a peer to read why it was refused
REQUESTS_KEPT_MAX: Final = 10_000
BODY_BYTES_KEPT_MAX: Final = 268_435_456


@dataclass(frozen=True, slots=True)
class RecordedRequest:
    """A request as it arrived; header names are in lower case."""

    method: str
    target: str
    headers: tuple[tuple[str, str], ...]
    body: bytes
    connection: int  # counted from 1

    def header(self, name: str) -> str | None:
        """The first value of the header called `name` (lower case), if there is one."""
        return next((value for key, value in self.headers if key == name), None)


@dataclass(frozen=True, slots=True)
class ClosedEarly:
    """The peer left before the end of its answer."""

    connection: int
    time: float  # on trio's clock


class Stats:
    """What a provider has seen so far. The oldest requests go when the bounds are reached."""

    def __init__(self, *, requests_kept_max: int = REQUESTS_KEPT_MAX) -> None:
        self.requests: deque[RecordedRequest] = deque()
        self.closed_early: deque[ClosedEarly] = deque(maxlen=REQUESTS_KEPT_MAX)
        self.connections = 0
        self.open_connections = 0
        self._requests_kept_max = requests_kept_max
        self._body_bytes_kept = 0
        self._changed = trio.lowlevel.ParkingLot()

    def __repr__(self) -> str:
        return (
            f"<Stats connections={self.connections} open={self.open_connections}"
            f" requests={len(self.requests)} closed_early={len(self.closed_early)}>"
        )

    async def wait_until(self, holds: Callable[[], bool]) -> None:
        """Return when `holds()` is true; it is asked again after each change."""
        await trio.lowlevel.checkpoint()
        while not holds():
            await self._changed.park()

    def opened(self) -> int:
        """Count a connection and give it its number."""
        self.connections += 1
        self.open_connections += 1
        self._changed.unpark_all()
        return self.connections

    def closed(self) -> None:
        """Count the end of a connection."""
        self.open_connections -= 1
        self._changed.unpark_all()

    def left(self, connection: int) -> None:
        """Record that the peer left before the end of its answer."""
        self.closed_early.append(ClosedEarly(connection, trio.current_time()))
        self._changed.unpark_all()

    def received(self, request: RecordedRequest) -> None:
        """Record a request."""
        self.requests.append(request)
        self._body_bytes_kept += len(request.body)
        while (
            len(self.requests) > self._requests_kept_max
            or self._body_bytes_kept > BODY_BYTES_KEPT_MAX
        ):
            self._body_bytes_kept -= len(self.requests.popleft().body)
        self._changed.unpark_all()


@dataclass(frozen=True, slots=True)
class Played:
    """How an answer ended, and whether the connection can carry another one."""

    ending: Ending
    reusable: bool = False


async def play(
    steps: Iterable[Step], send: Callable[[bytes], Awaitable[None]], framer: Framer
) -> Played:
    """Carry out the steps; each piece of an answer is one call of `send`.

    What `send` raises passes through. The ending is carried out by the caller, who owns the
    transport; after ``stall`` this waits until it is cancelled.
    """
    for step in steps:
        match step:
            case Head():
                await send(framer.head(step))
            case Write(data):
                await send(framer.body(data))
            case Sleep(ms):
                await trio.sleep(ms / 1000)
            case Repeat(data, times, every_ms):
                for _ in range(times):
                    await trio.sleep(every_ms / 1000)
                    await send(framer.body(data))
            case Ending.STALL:
                await trio.sleep_forever()
            case Ending.CUT | Ending.RESET:
                return Played(step)
            case Ending.CLOSE:
                break
            case _:
                assert_never(step)
    await send(framer.end())
    return Played(Ending.CLOSE, framer.reusable)


def reset(stream: trio.SocketStream) -> None:
    """Close with a reset; nothing happens to a stream that is closed already.

    A linger time of zero makes the kernel send RST instead of FIN.
    """
    with suppress(OSError):
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    stream.socket.close()


class _Refused(Exception):
    """A request that HTTP or our bounds do not allow."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Connection:
    """One connection: request, answer, and again while both sides keep it open."""

    def __init__(
        self,
        stream: trio.SocketStream,
        steps_for: Callable[[RecordedRequest], Iterator[Step]],
        stats: Stats,
    ) -> None:
        self._stream = stream
        self._steps_for = steps_for
        self._stats = stats
        self._number = stats.opened()
        self._pending = b""  # bytes of the next request that came during an answer

    async def serve(self) -> None:
        """Converse until one side ends it; closes the socket."""
        try:
            while await self._exchange():
                pass
        except _Refused as refusal:
            await self._refuse(refusal)
        except trio.BrokenResourceError:
            pass  # the peer reset the connection between two answers
        finally:
            self._stream.socket.close()
            self._stats.closed()

    async def _exchange(self) -> bool:
        """Read one request and answer it; true if another one can follow."""
        parser = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_BYTES_MAX)
        request = None
        with trio.move_on_after(REQUEST_SECONDS_MAX):
            request = await self._read(parser)
        if request is None:
            return False
        self._stats.received(request)
        framer = Framer(
            may_chunk=parser.their_http_version != b"1.0",
            last=parser.their_state is h11.MUST_CLOSE or request.method == "HEAD",
        )
        return await self._answer(self._steps_for(request), framer)

    async def _read(self, parser: h11.Connection) -> RecordedRequest | None:
        """One whole request, or None if the peer leaves before it begins. Raises _Refused."""
        head: h11.Request | None = None
        body = bytearray()
        if self._pending:
            parser.receive_data(self._pending)
            self._pending = b""
        while True:
            event = await self._next_event(parser)
            match event:
                case h11.Request():
                    head = event
                case h11.Data():
                    body += event.data
                    if len(body) > BODY_BYTES_MAX:
                        raise _Refused(413, "The body is too large.")
                case h11.EndOfMessage():
                    assert head is not None
                    self._pending = parser.trailing_data[0]
                    return self._recorded(head, bytes(body))
                case _:
                    return None

    async def _next_event(
        self, parser: h11.Connection
    ) -> h11.Event | type[h11.NEED_DATA | h11.PAUSED]:
        """The next event that is complete, reading as much as it takes."""
        while True:
            try:
                event = parser.next_event()
            except h11.RemoteProtocolError as error:
                raise _Refused(error.error_status_hint, "The request is not valid HTTP.") from error
            if event is not h11.NEED_DATA:
                return event
            if parser.they_are_waiting_for_100_continue:
                go_on = h11.InformationalResponse(status_code=100, headers=[])
                await self._stream.send_all(parser.send(go_on) or b"")
            parser.receive_data(await self._stream.receive_some(READ_BYTES))

    def _recorded(self, head: h11.Request, body: bytes) -> RecordedRequest:
        headers = tuple((name.decode(), value.decode("latin-1")) for name, value in head.headers)
        method, target = head.method.decode(), head.target.decode()
        return RecordedRequest(method, target, headers, body, self._number)

    async def _answer(self, steps: Iterable[Step], framer: Framer) -> bool:
        """Play an answer while watching for the peer; true if another one can follow."""
        played: Played | None = None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._watch, nursery.cancel_scope)
            # A peer that is found gone while writing is recorded below, like one the watch saw.
            with suppress(trio.BrokenResourceError):
                played = await play(steps, self._stream.send_all, framer)
            nursery.cancel_scope.cancel()
        if played is None:
            self._stats.left(self._number)
            return False
        if played.ending is Ending.RESET:
            reset(self._stream)
        return played.reusable

    async def _watch(self, answer: trio.CancelScope) -> None:
        """Cancel the answer when the peer leaves; keep what it sends of its next request."""
        while len(self._pending) <= PIPELINED_BYTES_MAX:
            try:
                data = await self._stream.receive_some(READ_BYTES)
            except trio.BrokenResourceError:
                data = b""
            if not data:
                break
            self._pending += data
        answer.cancel()

    async def _refuse(self, refusal: _Refused) -> None:
        """Say why, and wait a little: closing with unread bytes would reset the connection."""
        steps = error_steps(refusal.status, "invalid_http", str(refusal))
        with trio.move_on_after(LINGER_SECONDS_MAX):
            with suppress(trio.BrokenResourceError):  # the peer does not want to know
                await play(steps, self._stream.send_all, Framer(last=True))
                await self._stream.send_eof()
                while await self._stream.receive_some(READ_BYTES):
                    pass
