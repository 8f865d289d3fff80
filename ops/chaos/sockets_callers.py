"""The callers of ring 3: over HTTP/1.1 or HTTP/2, with TLS or without, that read as they are told and may be struck while they do.

Under HTTP/2 all requests of a caller are under way at once, each on a stream of its own; `reset` is there a reset of the first stream, and the others go on.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import h2.events
import trio
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.exceptions import ProtocolError

from ops.chaos.certificates import HOST, caller_context
from ops.chaos.responses import Response, request_bytes
from ops.chaos.sockets import Socketed
from ops.provider_connection import reset

__all__ = ["Caller"]

READ_BYTES: Final = 65_536
STARE_SECONDS: Final = 20.0  # longer than a caller may take nothing, does one that never reads stay
LOOK_SECONDS: Final = 0.02
NARROW_BYTES: Final = 4_096  # what a narrow caller's kernel keeps of what it does not read
SEGMENT_BYTES: Final = 1_000

Link = trio.SocketStream | trio.SSLStream[trio.SocketStream]


def _never() -> bool:
    return False


@dataclass(eq=False)
class Caller:
    """One caller on a connection of its own. `over`: whether its exchange is, for one that does not read; `refused`: nobody listened; `goes_on`: what it left is its first answer, and not the connection. Times on trio's clock."""

    case: Socketed
    exchange: str
    over: Callable[[], bool] = _never
    responses: list[Response] = field(default_factory=list)
    left_at: float | None = None
    began_at: float = 0.0
    stream: trio.SocketStream | None = None
    refused: bool = False
    goes_on: bool = False
    resets_stream: Callable[[], None] | None = None

    @property
    def response(self) -> Response:
        """Of its first request."""
        return self.responses[0] if self.responses else Response()

    def told(self) -> Iterator[str]:
        """For a person to read."""
        if self.left_at is not None:
            yield f"left {self.left_at - self.began_at:.4f} s after it had begun"
        for each in self.responses:
            yield from each.told()

    def cut_off(self, number: int) -> bool:
        """Whether it owes nobody the reading of this answer."""
        return self.left_at is not None and not (self.goes_on and number)

    async def ask(
        self, port: int, strikes: Sequence[tuple[float, Callable[[Caller], None]]] = ()
    ) -> None:
        """Asks, and takes what comes; each strike is done to it so many seconds after it has begun."""
        stream = self._stream()
        with stream.socket:
            try:
                await stream.socket.connect(("127.0.0.1", port))
            except OSError:
                self.refused = True
                return
            self.stream, self.began_at = stream, trio.current_time()
            async with trio.open_nursery() as nursery:
                for after, strike in strikes:
                    nursery.start_soon(self._struck, after, strike)
                await self._speak(self._secured(stream))
                nursery.cancel_scope.cancel()

    def _stream(self) -> trio.SocketStream:
        plain = socket.socket()
        if self.case.narrow:
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, NARROW_BYTES)
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, SEGMENT_BYTES)
        return trio.SocketStream(trio.socket.from_stdlib_socket(plain))

    def _secured(self, stream: trio.SocketStream) -> Link:
        if not self.case.tls:
            return stream
        context = caller_context("h2" if self.case.http2 else "http/1.1")
        return trio.SSLStream(stream, context, server_hostname=HOST, https_compatible=True)

    async def _speak(self, link: Link) -> None:
        if self.case.http2:
            try:
                await self._speak_http2(link)
            except* (trio.ClosedResourceError, trio.BrokenResourceError, ProtocolError):
                pass  # its answers are as far as they came
            return
        with suppress(trio.ClosedResourceError, trio.BrokenResourceError):
            await self._write(link)
        with suppress(trio.ClosedResourceError):
            await self._read(link)

    # --- being struck -----------------------------------------------------------------------------

    async def _struck(self, after: float, strike: Callable[[Caller], None]) -> None:
        await trio.sleep(after)
        strike(self)

    def leaves(self) -> None:
        """From here on nobody owes it anything."""
        if self.left_at is None and not self.done:
            self.left_at = trio.current_time()

    def reset(self) -> bool:
        """Resets its connection, or its first stream; False where there is no such stream any more."""
        assert self.stream is not None
        if self.response.over and self.case.http2:
            return False
        self.leaves()
        if self.resets_stream is not None:
            self.goes_on = self.left_at is not None
            self.resets_stream()
        else:
            reset(self.stream)
        return True

    @property
    def done(self) -> bool:
        """It has all its answers."""
        whole = [each for each in self.responses if each.whole]
        return len(whole) == self.case.pipelined

    def name(self, number: int) -> str:
        """Of the exchange of one of its requests."""
        return self.exchange if not number else f"{self.exchange}-{number}"

    # --- HTTP/1.1 ---------------------------------------------------------------------------------

    async def _write(self, link: Link) -> None:
        for number in range(self.case.pipelined):
            asking, path = self.case.asking(number), self.case.scenario.endpoint
            length = sum(map(len, asking.parts)) + (not asking.whole)
            head = request_bytes(length, f"x-request-id: {self.name(number)}", path=path)
            await link.send_all(head + asking.parts[0])
            for part in asking.parts[1:]:
                await trio.sleep(asking.gap)
                await link.send_all(part)

    async def _read(self, link: Link) -> None:
        asking, rest = self.case.scenario.asking, b""
        for _ in range(self.case.pipelined):
            response = Response()
            self.responses.append(response)
            if rest:
                response.feed(rest)
            while not response.over:
                response.feed(await self._next(link))
                await trio.sleep(asking.seconds)
            rest, response.rest = response.rest, b""
            if not response.whole:
                return
        self.responses[-1].rest = rest

    async def _next(self, link: Link) -> bytes:
        if self.case.scenario.asking.stuck and not self.case.http2:
            await self._stare()
        try:
            return bytes(await link.receive_some(READ_BYTES))
        except trio.BrokenResourceError:
            return b""

    async def _stare(self) -> None:
        """Reads nothing until the gate lets it go, or for far longer than a caller may."""
        assert self.stream is not None
        with trio.move_on_after(self.case.write_seconds + STARE_SECONDS):
            while self.left_at is None and not self.over():  # noqa: ASYNC110 - a caller that takes nothing is told nothing
                await trio.sleep(LOOK_SECONDS)
        self.leaves()
        self.stream.socket.close()

    # --- HTTP/2 -----------------------------------------------------------------------------------

    async def _speak_http2(self, link: Link) -> None:
        """All requests at once, and what comes of them, until the last answer is over or the connection is."""
        connection = H2Connection(H2Configuration(header_encoding="utf-8"))
        connection.initiate_connection()
        asked = [self._head_http2(connection, at) for at in range(self.case.pipelined)]
        by_stream = dict(zip(asked, self.responses, strict=True))
        was_reset, flush = trio.Event(), _Flush(connection, link)
        self.resets_stream = partial(self._reset_first, connection, asked[0], was_reset)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(flush.when, was_reset)
            await flush.now()
            for number, stream in enumerate(asked):
                nursery.start_soon(self._body_http2, connection, flush, number, stream)
            while not all(each.over for each in self.responses):
                data = await self._next(link)
                if not data:
                    break
                for event in connection.receive_data(data):
                    self._take(connection, event, by_stream)
                await flush.now()
                await trio.sleep(self.case.scenario.asking.seconds)
            nursery.cancel_scope.cancel()

    def _head_http2(self, connection: H2Connection, number: int) -> int:
        """The number of its stream."""
        length = sum(map(len, self.case.asking(number).parts))
        stream = connection.get_next_available_stream_id()
        fields = {":method": "POST", ":path": self.case.scenario.endpoint, ":authority": HOST}
        fields |= {":scheme": "https" if self.case.tls else "http"}
        fields |= {"content-length": str(length), "x-request-id": self.name(number)}
        connection.send_headers(stream, list(fields.items()))
        self.responses.append(Response())
        return stream

    async def _body_http2(
        self, connection: H2Connection, flush: _Flush, number: int, stream: int
    ) -> None:
        """Part by part, as the window opens; to its end, also behind an answer (RFC 9113, 8.1), unless the stream is reset."""
        asking = self.case.asking(number)
        with suppress(trio.ClosedResourceError, trio.BrokenResourceError, ProtocolError):
            for part in asking.parts:
                await trio.sleep(asking.gap)
                rest = memoryview(part)
                while rest:
                    window = connection.local_flow_control_window(stream)
                    size = min(window, connection.max_outbound_frame_size)
                    connection.send_data(stream, bytes(rest[:size]))
                    rest = rest[size:]
                    await flush.now()
                    await trio.sleep(0 if size else LOOK_SECONDS)
            connection.end_stream(stream)
            await flush.now()

    def _reset_first(self, connection: H2Connection, stream: int, was_reset: trio.Event) -> None:
        with suppress(ProtocolError):  # it has ended meanwhile
            connection.reset_stream(stream, ErrorCodes.CANCEL)
        self.responses[0].over = True
        was_reset.set()

    def _take(
        self, connection: H2Connection, event: h2.events.Event, by_stream: dict[int, Response]
    ) -> None:
        """What an event says of one of the answers. A caller that takes nothing is one that never opens the window again."""
        response = by_stream.get(getattr(event, "stream_id", None) or 0)
        if response is None:
            return
        match event:
            case h2.events.ResponseReceived():
                fields = {str(name): str(value) for name, value in event.headers or ()}
                response.status = int(fields.pop(":status"))
                response.headers = fields
            case h2.events.DataReceived():
                response.body += event.data or b""
                if not self.case.scenario.asking.stuck:
                    size, stream = event.flow_controlled_length or 0, event.stream_id or 0
                    connection.acknowledge_received_data(size, stream)
            case h2.events.StreamEnded():
                response.whole = response.over = True
            case h2.events.StreamReset():
                response.over = True
            case _:
                pass


class _Flush:
    """Sends what is due, one piece behind the other."""

    def __init__(self, connection: H2Connection, link: Link) -> None:
        self._connection = connection
        self._link = link
        self._lock = trio.Lock()

    async def now(self) -> None:
        async with self._lock:
            data = self._connection.data_to_send()
            if data:
                await self._link.send_all(data)

    async def when(self, due: trio.Event) -> None:
        """Once."""
        await due.wait()
        with suppress(trio.ClosedResourceError, trio.BrokenResourceError):
            await self.now()
