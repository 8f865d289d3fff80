"""What one caller's connection can do to the others: nothing.

Gaps of Hypercorn's trio worker are closed here, for as long as the block is entered. An exception in the handling of one connection (a path that is not
ASCII under HTTP/2, a bad `HTTP2-Settings`, a web socket that speaks too early) would leave its task and end the whole server; it ends that
connection, and is reported. And while bytes of a next request wait behind the one being served, the worker does not read, so that a caller
who leaves would not be missed before the next write; its socket is looked at meanwhile. (One who has sent more than the socket buffers
hold is missed only where it resets: its end is queued behind bytes that nobody takes.) And an answer under HTTP/2 that is given up in the middle
would leave its stream open without a word, and what was written but not sent in memory for as long as the connection lives; the stream is reset. Nor does a window that is closed hold a writer
back there: the buffer would grow without end, and no write would ever be found to be stuck; the writer waits for the buffer to fall. And the idle clock would run on
for a caller who has left, and hold its connection, task and descriptor until it strikes; it is stopped where the reading ends. And a writer that is cancelled between two of the steps in which an answer is ended would leave the connection neither closed nor ready for
a next request, or even in use again with the last bytes never written; what h11 has counted as sent is written, and where that fails the connection is closed. A write that meets the close of its own connection ends
as any write to a caller who has left, and not in an exception of the application. And under HTTP/2, where many callers may share one connection, a body that still comes for a request which is answered already (refused by its
head, or because the service stops) would end the connection with all its answers; it is counted and thrown away. What comes when the service stops is refused as not begun, so that a client may send it again. And an answer
whose connection has ended would wait for ever for its last bytes to be taken. And a connection whose last request was reset by its caller would never be idle again: neither the idle clock nor the end of the service would close it, and it
would remember the request for as long as it lives. And an idle connection that is closed when the service stops, in the moment in which a request comes, would close between the head of its refusal and the rest.
"""

from __future__ import annotations

import select
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.metadata import version
from typing import Any, Final

import trio
from h2.errors import ErrorCodes
from h2.events import DataReceived, RequestReceived, StreamReset
from h2.events import Event as FrameEvent
from h2.exceptions import ProtocolError
from hypercorn.events import Closed, Event, Updated
from hypercorn.protocol.events import Event as StreamEvent
from hypercorn.protocol.events import StreamClosed
from hypercorn.protocol.h2 import BUFFER_LOW_WATER, H2Protocol, StreamBuffer
from hypercorn.protocol.h11 import H11Protocol
from hypercorn.trio.tcp_server import TCPServer
from hypercorn.trio.worker_context import EventWrapper, TrioSingleTask
from hypercorn.typing import TaskGroup
from priority.priority import MissingStreamError

from transport.quick_send import KNOWN_RELEASES

__all__ = ["LOOK_SECONDS", "contained"]

Method = Callable[..., Awaitable[None]]
LOOK_SECONDS: Final = 0.05  # between two looks at a connection that is not read


@contextmanager
def contained(
    failed: Callable[[BaseException], None], release: str | None = None
) -> Iterator[bool]:
    """Within the block no connection ends another; `failed` is told of each that ended in an exception.

    Whether it is so: a release of Hypercorn (`release`: as installed) that this was not written for is left as it is.
    """
    if (release or version("hypercorn")) not in KNOWN_RELEASES:
        yield False
        return
    replaced = _replacements(failed)
    before = {(home, name): getattr(home, name) for home, name in replaced}
    for (home, name), new in replaced.items():
        setattr(home, name, new)
    try:
        yield True
    finally:
        for (home, name), old in before.items():
            setattr(home, name, old)


def _replacements(failed: Callable[[BaseException], None]) -> dict[tuple[Any, str], Any]:
    """By class and name, the methods that are put in the place of Hypercorn's."""
    server: Any = TCPServer
    http1: Any = H11Protocol
    http2: Any = H2Protocol
    return {
        (server, "run"): _run_alone(server.run, failed),
        (server, "_read_data"): _read_watched(server._read_data),
        (server, "_idle_timeout"): _idle_timeout,
        (server, "protocol_send"): _send_unless_closing(server.protocol_send),
        (http1, "stream_send"): _send_whole(http1.stream_send),
        (http2, "stream_send"): _send_or_reset(http2.stream_send),
        (http2, "handle"): _handle_to_the_end(http2.handle),
        (http2, "_handle_events"): _handle_each(http2._handle_events),
        (StreamBuffer, "pop"): _pop,
    }


def _run_alone(original: Method, failed: Callable[[BaseException], None]) -> Method:
    async def run(self: TCPServer) -> None:
        try:
            await original(self)
        except* Exception as group:  # noqa: BLE001 - whatever it is, the other connections have no part in it
            failed(group)

    return run


def _read_watched(original: Method) -> Method:
    async def read_data(self: TCPServer) -> None:
        protocol = self.protocol.protocol
        if isinstance(protocol, H11Protocol):
            protocol.can_read = _Watched(_socket(self))
        try:
            await original(self)
        except _HungUp:
            await self.protocol.handle(Closed())
        # First: a restart may wait for its lock.
        idle, self.idle_task = self.idle_task, _NeverIdle()
        await idle.stop()

    return read_data


async def _idle_timeout(self: TCPServer) -> None:
    """Closes a connection that has been idle for too long, or when the service stops; but not under a request that has come in that moment, whose answer it would cut."""
    inner: Any = self
    with trio.move_on_after(self.config.keep_alive_timeout):
        await self.context.terminated.wait()
    await trio.lowlevel.checkpoint_if_cancelled()
    # Bounded by: closing a socket.
    with trio.CancelScope(shield=True):
        await inner._initiate_server_close()


def _send_unless_closing(original: Method) -> Method:
    async def protocol_send(self: TCPServer, event: Event) -> None:
        try:
            await original(self, event)
        except trio.BusyResourceError:  # the other task is the one that closes
            await self.protocol.handle(Closed())

    return protocol_send


def _send_whole(original: Method) -> Method:
    async def stream_send(self: H11Protocol, event: StreamEvent) -> None:
        await trio.lowlevel.checkpoint_if_cancelled()  # nothing has begun yet
        try:
            # Bounded by: the write to the caller, which the server shields as well.
            with trio.CancelScope(shield=True):
                await original(self, event)
        except BaseException:
            sending: Any = self.send
            _socket(sending.__self__).close()
            raise

    return stream_send


def _send_or_reset(original: Method) -> Method:
    async def stream_send(self: H2Protocol, event: StreamEvent) -> None:
        if isinstance(event, StreamClosed):
            await _reset_unless_whole(self, event.stream_id)
        await original(self, event)

    return stream_send


def _handle_to_the_end(original: Method) -> Method:
    async def handle(self: H2Protocol, event: Event) -> None:
        await original(self, event)
        if isinstance(event, Closed):
            for buffer in list(self.stream_buffers.values()):
                await buffer.close()  # nobody takes from it any more

    return handle


def _handle_each(original: Method) -> Method:
    async def handle_events(self: H2Protocol, events: Sequence[FrameEvent]) -> None:
        for event in events:
            if isinstance(event, DataReceived) and event.stream_id not in self.streams:
                size, stream = event.flow_controlled_length or 0, event.stream_id or 0
                self.connection.acknowledge_received_data(size, stream)
            elif isinstance(event, RequestReceived) and self.context.terminated.is_set():
                self.connection.reset_stream(event.stream_id or 0, ErrorCodes.REFUSED_STREAM)
            elif isinstance(event, StreamReset):
                buffer = self.stream_buffers.get(event.stream_id or 0)
                if buffer is not None:
                    await buffer.close()  # the sending task forgets what is whole
                await original(self, [event])
                if self.idle:
                    await self.send(Updated(idle=True))
            else:
                await original(self, [event])
        await self._flush()

    return handle_events


async def _pop(self: StreamBuffer, max_length: int) -> bytes:
    """The next bytes that may be sent, which may be none. The writer goes on when little is left, not when little was taken."""
    inner: Any = self
    taken = bytes(self.buffer[:max_length])
    del self.buffer[:max_length]
    if len(self.buffer) < BUFFER_LOW_WATER:
        await inner._paused.set()
    if not self.buffer:
        await inner._is_empty.set()
    return taken


async def _reset_unless_whole(protocol: H2Protocol, stream_id: int) -> None:
    """The application is done with a stream: one whose end it has not written is reset (RFC 9113 §5.4.2), and its buffer let go."""
    buffer: Any = protocol.stream_buffers.get(stream_id)
    if buffer is None or buffer._complete:
        return
    with suppress(ProtocolError):  # the caller may have reset it, or closed the connection
        protocol.connection.reset_stream(stream_id, error_code=ErrorCodes.INTERNAL_ERROR)
    await buffer.close()
    with suppress(MissingStreamError):
        protocol.priority.unblock(stream_id)  # so that the sending task forgets it
    await protocol.has_data.set()
    await protocol._flush()


class _NeverIdle(TrioSingleTask):
    """The idle clock of a connection that nobody reads any more: there is no next request to wait for."""

    async def restart(self, task_group: TaskGroup, action: Callable[..., Awaitable[None]]) -> None:
        await trio.lowlevel.checkpoint()


class _HungUp(Exception):
    """The caller left while nothing was read from it."""


class _Watched(EventWrapper):
    """The event that says that a next request may be read: whoever waits for it hears of a caller that leaves."""

    def __init__(self, socket: trio.socket.SocketType) -> None:
        super().__init__()
        self._socket = socket

    async def wait(self) -> None:
        while not self.is_set():
            with trio.move_on_after(LOOK_SECONDS):
                await super().wait()
                return
            if _has_hung_up(self._socket.fileno()):
                raise _HungUp


def _has_hung_up(descriptor: int) -> bool:
    """The caller has closed, or half-closed; or we have."""
    if descriptor < 0:
        return True
    poll = select.poll()
    poll.register(descriptor, select.POLLRDHUP)
    return bool(poll.poll(0))


def _socket(server: TCPServer) -> trio.socket.SocketType:
    stream: trio.SocketStream | trio.SSLStream[trio.SocketStream] = server.stream
    plain = stream.transport_stream if isinstance(stream, trio.SSLStream) else stream
    return plain.socket
