"""Connections in memory that behave like TCP where it matters: bounded, half-closable, reset by either side, and in pieces.

An `End` is to the server, the client and the loopback provider what `trio.SocketStream` is, with the same points at which a task gives way; the loopback of the kernel is left out, and so no run depends on it.
"""

from __future__ import annotations

import functools
import os
import socket
from collections.abc import Callable
from typing import Final

import trio

__all__ = ["READ_BYTES", "End", "connected"]

READ_BYTES: Final = 65_536
ADDRESS: Final = ("192.0.2.1", 1024)  # documentation addresses, RFC 5737


@functools.cache
def _silent() -> int:
    """A descriptor on which nothing ever happens."""
    return os.open(os.devnull, os.O_RDONLY)


def _never(_call: str) -> bool:
    return False


class _Way:
    """One direction: bytes under way, at most `capacity`; then perhaps an end, or a reset."""

    __slots__ = ("capacity", "changed", "data", "over", "reset")

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.data = bytearray()
        self.over = False
        self.reset = False
        self.changed = trio.lowlevel.ParkingLot()

    def put(self, data: memoryview) -> int:
        """Takes what there is room for; how much."""
        taken = data[: max(0, self.capacity - len(self.data))]
        self.data += taken
        if taken:
            self.changed.unpark_all()
        return len(taken)

    def take(self, size: int) -> bytes:
        taken = bytes(self.data[:size])
        del self.data[:size]
        self.changed.unpark_all()
        return taken

    def finish(self) -> None:
        self.over = True
        self.changed.unpark_all()

    def cut(self) -> None:
        self.reset = True
        self.changed.unpark_all()


class Socket:
    """What is asked of a stream's socket: names, a descriptor, and the close that does not wait."""

    family: Final = socket.AF_INET

    def __init__(self, end: End) -> None:
        self._end = end

    def getpeername(self) -> tuple[str, int]:
        """Where everybody lives."""
        return ADDRESS

    getsockname = getpeername

    def fileno(self) -> int:
        """One that a poll finds quiet, or -1: closed, or the peer has hung up."""
        return -1 if self._end.closed or self._end.hung_up else _silent()

    def close(self) -> None:
        """At once."""
        self._end.close()


class End(trio.abc.HalfCloseableStream):
    """One end of a connection. `fails` is asked before each call (`send`, `receive`); where it says so, the connection breaks there."""

    def __init__(self, out: _Way, into: _Way) -> None:
        self.peer: End
        self.socket = Socket(self)
        self.closed = False
        self.fails: Callable[[str], bool] = _never
        self.full = trio.Event()  # a write has had to wait; or none will any more
        self._out = out
        self._in = into
        self._sending = False
        self._linger = True

    @property
    def hung_up(self) -> bool:
        """The peer has closed, half-closed or reset."""
        return self._in.over or self._in.reset

    @property
    def readable(self) -> bool:
        """A read would not wait."""
        return bool(self._in.data) or self.hung_up or self.closed

    # ---- what a task waits in ----------------------------------------------------------------------

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """As `trio.SocketStream.send_all`."""
        if self._sending:
            raise trio.BusyResourceError("another task is writing")
        self._sending = True
        try:
            await self._send(memoryview(data))
        finally:
            self._sending = False

    async def _send(self, data: memoryview) -> None:
        await trio.lowlevel.checkpoint_if_cancelled()
        self._ask("send")
        rest = self._written(data)
        if not rest:
            await trio.lowlevel.cancel_shielded_checkpoint()
        while rest:
            self.full.set()
            await self._out.changed.park()
            rest = self._written(rest)

    def _written(self, data: memoryview) -> memoryview:
        """What is left of it."""
        if self.closed:
            raise trio.ClosedResourceError
        if self._out.reset or self._out.over:
            raise trio.BrokenResourceError("nobody reads any more")
        if self.peer.closed:
            self._out.cut()  # this much is taken, and answered by a reset
            return memoryview(b"")
        return data[self._out.put(data) :]

    async def wait_send_all_might_not_block(self) -> None:
        """Until there is room."""
        await trio.lowlevel.checkpoint()
        while len(self._out.data) >= self._out.capacity and not self._out.reset:
            await self._out.changed.park()

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """As `trio.SocketStream.receive_some`."""
        await trio.lowlevel.checkpoint_if_cancelled()
        self._ask("receive")
        if self.readable:
            data = self._read(max_bytes or READ_BYTES)
            await trio.lowlevel.cancel_shielded_checkpoint()
            return data
        return await self._next(max_bytes or READ_BYTES)

    async def receive_next(self, size: int) -> bytes:
        """The same for a reader that waits first, as `transport.pool` does."""
        await trio.lowlevel.checkpoint()
        self._ask("receive")
        return await self._next(size)

    async def _next(self, size: int) -> bytes:
        while not self.readable:
            await self._in.changed.park()
        return self._read(size)

    def _read(self, size: int) -> bytes:
        if self.closed:
            raise trio.ClosedResourceError
        if self._in.data:
            return self._in.take(size)
        if self._in.over:
            return b""
        raise trio.BrokenResourceError("the connection was reset")

    def _ask(self, call: str) -> None:
        if self.fails(call):
            self.break_off()
            raise trio.BrokenResourceError("the connection was reset")

    async def send_eof(self) -> None:
        """As `trio.SocketStream.send_eof`."""
        if self._sending:
            raise trio.BusyResourceError("another task is writing")
        self._sending = True
        try:
            await trio.lowlevel.checkpoint()
        finally:
            self._sending = False
        if self.closed:
            raise trio.ClosedResourceError
        self.finish()

    async def aclose(self) -> None:
        """Closes at once, and gives way."""
        self.close()
        await trio.lowlevel.checkpoint()

    # ---- what no task waits in ---------------------------------------------------------------------

    def setsockopt(self, _level: int, option: int, _value: bytes | int) -> None:
        """A linger time of zero: the close will be a reset."""
        if option == socket.SO_LINGER:
            self._linger = False

    def finish(self) -> None:
        """Nothing more will be sent."""
        self._out.finish()

    def close(self) -> None:
        """As the kernel does it: a reset where bytes are left unread, else an end; whoever waits here is told."""
        if self.closed:
            return
        self.closed = True
        if self._in.data or not self._linger:
            self._reset_peer()
        else:
            self._out.finish()
        self._in.changed.unpark_all()
        self._out.changed.unpark_all()
        self.full.set()
        self.peer.full.set()

    def reset(self) -> None:
        """Closes with a reset."""
        self._linger = False
        self.close()

    def break_off(self) -> None:
        """The connection is lost, for both sides: a reset from between, or the kernel's limit for a write that nobody reads."""
        self._reset_peer()
        self._in.cut()

    def _reset_peer(self) -> None:
        self._out.cut()  # the peer reads what came before it
        self.peer._out.cut()


def connected(capacity: int) -> tuple[End, End]:
    """Two ends of a new connection, with so many bytes at most under way in each direction."""
    there, back = _Way(capacity), _Way(capacity)
    ends = End(there, back), End(back, there)
    ends[0].peer, ends[1].peer = ends[1], ends[0]
    return ends
