"""What one caller's connection can do to the others: nothing.

Two gaps of Hypercorn's trio worker are closed here, for as long as the block is entered. An exception in the handling of one connection (a path that is not
ASCII under HTTP/2, a bad `HTTP2-Settings`, a web socket that speaks too early) would leave its task and end the whole server; it ends that
connection, and is reported. And while bytes of a next request wait behind the one being served, the worker does not read, so that a caller
who leaves would not be missed before the next write; its socket is looked at meanwhile. (One who has sent more than the socket buffers
hold is missed only where it resets: its end is queued behind bytes that nobody takes.)
"""

from __future__ import annotations

import select
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from typing import Any, Final

import trio
from hypercorn.events import Closed
from hypercorn.protocol.h11 import H11Protocol
from hypercorn.trio.tcp_server import TCPServer
from hypercorn.trio.worker_context import EventWrapper

from transport.quick_send import KNOWN_RELEASES

__all__ = ["contained"]

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
    server: Any = TCPServer
    run, read_data = server.run, server._read_data

    async def run_alone(self: TCPServer) -> None:
        try:
            await run(self)
        except* Exception as group:  # noqa: BLE001 - whatever it is, the other connections have no part in it
            failed(group)

    async def read_watched(self: TCPServer) -> None:
        protocol = self.protocol.protocol
        if isinstance(protocol, H11Protocol):
            protocol.can_read = _Watched(_socket(self))
        try:
            await read_data(self)
        except _HungUp:
            await self.protocol.handle(Closed())

    server.run, server._read_data = run_alone, read_watched
    try:
        yield True
    finally:
        server.run, server._read_data = run, read_data


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
