"""Connections to providers: how one is opened, how it ends, and how it is kept while idle.

Rules of this file: closing is synchronous (a cancelled task can't wait for a polite goodbye, and the close is the signal that
makes a provider stop generating); nobody ever waits for a connection (limits belong to admission); nothing runs in the background.
"""

from __future__ import annotations

import collections
import os
import select
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import NamedTuple

import trio

IDLE_MAX = 256  # idle connections of one client; a provider takes far fewer at once
IDLE_SECONDS = 15.0  # below the keep-alive of most servers; a shorter one is seen by `is_stale`


class Origin(NamedTuple):
    """Where a connection leads."""

    host: str
    port: int
    tls: bool


@dataclass(frozen=True, slots=True)
class Wire:
    """An open byte stream, with the three things that a trio stream doesn't offer.

    `receive` gives the bytes of one read, `b""` at the end (trio.BrokenResourceError as a stream's). `close` closes it at once, without waiting. `is_stale` tells of an idle one whether anything has come on it (bytes, EOF or
    an error): nothing may come between two requests, so it can't be used again.
    """

    stream: trio.abc.Stream
    receive: Callable[[int], Awaitable[bytes | bytearray]]
    close: Callable[[], None]
    is_stale: Callable[[], bool]


Connect = Callable[[str, int, bool], Awaitable[Wire]]
"""Opens a wire to (host, port), with TLS or without. Raises OSError, or trio.BrokenResourceError where TLS fails."""


class Connection:
    """One wire to one origin. It has a single owner: the answer that is read from it, or the idle store."""

    __slots__ = ("_on_close", "closed", "origin", "served", "wire")

    def __init__(self, origin: Origin, wire: Wire, *, on_close: Callable[[], None]) -> None:
        self.origin = origin
        self.wire = wire
        self.served = 0
        self.closed = False
        self._on_close = on_close

    def __repr__(self) -> str:
        state = "closed" if self.closed else "open"
        return f"<Connection {self.origin.host}:{self.origin.port} {state}, served {self.served}>"

    def close(self) -> None:
        """Closes the wire at once; twice is fine."""
        if not self.closed:
            self.closed = True
            self.wire.close()
            self._on_close()


class IdleStore:
    """Idle connections, the newest first out; at most `limit`, none older than `seconds`.

    Expired ones are closed when others are put or taken. After `close` every connection that is put is closed.
    """

    def __init__(self, *, limit: int = IDLE_MAX, seconds: float = IDLE_SECONDS) -> None:
        self._limit = limit
        self._seconds = seconds
        self._idle: collections.deque[tuple[float, Connection]] = (
            collections.deque()
        )  # oldest first
        self._closed = False

    def __len__(self) -> int:
        return len(self._idle)

    def put(self, connection: Connection, *, now: float) -> None:
        """Takes the connection over."""
        self._expire(now)
        if self._closed:
            connection.close()
            return
        self._idle.append((now + self._seconds, connection))
        if len(self._idle) > self._limit:
            self._idle.popleft()[1].close()

    def take(self, origin: Origin, *, now: float) -> Connection | None:
        """The newest usable connection to `origin`; the caller owns it from here on."""
        self._expire(now)
        for index in range(len(self._idle) - 1, -1, -1):
            connection = self._idle[index][1]
            if connection.origin != origin:
                continue
            del self._idle[index]
            if not connection.wire.is_stale():
                return connection
            connection.close()
        return None

    def close(self) -> None:
        """Closes every idle connection, now and from now on."""
        self._closed = True
        while self._idle:
            self._idle.pop()[1].close()

    def _expire(self, now: float) -> None:
        while self._idle and self._idle[0][0] <= now:
            self._idle.popleft()[1].close()


def client_tls(*, ca: str = "", client_cert: str = "") -> ssl.SSLContext:
    """TLS for a provider: its certificate is always checked, and HTTP/1.1 is the only protocol offered.

    `ca`: a PEM file that replaces the system's authorities. `client_cert`: a PEM file with our certificate chain and its key.
    Raises OSError (`ssl.SSLError` is one) where a file can't be read or used.
    """
    context = ssl.create_default_context(cafile=ca or None)
    context.set_alpn_protocols(["http/1.1"])
    if client_cert:
        context.load_cert_chain(client_cert)
    return context


def tcp_connector(tls_context: ssl.SSLContext | None) -> Connect:
    """Connects over TCP, by whichever of a host's addresses answers first. Without a context, TLS is refused."""

    async def connect(host: str, port: int, tls: bool) -> Wire:
        if tls and tls_context is None:
            raise ssl.SSLError("no TLS context")
        stream = await trio.open_tcp_stream(host, port)  # sets TCP_NODELAY
        if tls_context is None or not tls:
            return _plain_wire(stream)
        try:
            return await _tls_wire(stream, host, tls_context)
        except BaseException:
            stream.socket.close()
            raise

    return connect


def _plain_wire(stream: trio.SocketStream) -> Wire:
    socket = stream.socket

    async def receive(size: int) -> bytes:
        # Waits first: most reads find nothing there yet, and a checkpoint is owed in any case.
        try:
            while True:
                await trio.lowlevel.wait_readable(socket.fileno())
                try:
                    return os.read(socket.fileno(), size)
                except BlockingIOError:
                    continue  # nothing there after all
        except OSError as error:
            raise trio.BrokenResourceError from error

    return Wire(stream, receive, socket.close, lambda: _is_readable(socket))


async def _tls_wire(stream: trio.SocketStream, host: str, context: ssl.SSLContext) -> Wire:
    # https_compatible: many servers end a connection without close_notify; the framing of HTTP tells an end from a cut.
    secured = trio.SSLStream(stream, context, server_hostname=host, https_compatible=True)
    await secured.do_handshake()

    def is_stale() -> bool:
        return secured.pending() > 0 or _is_readable(stream.socket)

    return Wire(secured, secured.receive_some, stream.socket.close, is_stale)


def _is_readable(sock: trio.socket.SocketType) -> bool:
    """Bytes, an EOF or an error are waiting. (`select` would refuse descriptors from 1024 on.)"""
    poll = select.poll()
    poll.register(sock.fileno(), select.POLLIN)
    return bool(poll.poll(0))
