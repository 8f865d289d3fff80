"""The whole program in memory: Hypercorn's connection, our application, and the HTTP client that asks providers, with not one socket between them.

    Client ─End─ TCPServer ─ App ─ run_exchange ─ HttpProvider ─End─ provider_connection.Connection

What a run starts is here; `ops.chaos.stack_run` plays a case on it. The caller, the providers and the kernel between are the explorer's own: only the tasks of connections that were accepted have points.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, cast

import structlog
import trio
from hypercorn.app_wrappers import ASGIWrapper
from hypercorn.config import Config
from hypercorn.trio.tcp_server import TCPServer
from hypercorn.trio.worker_context import WorkerContext
from hypercorn.typing import ASGIFramework, ConnectionState

from actors.probe import acting
from actors.world import World
from ops.chaos.hosts import Host
from ops.chaos.inject import PART
from ops.chaos.pipes import End, connected
from ops.chaos.ports import Calls
from ops.chaos.reading import CHAT
from ops.chaos.responses import Response, request_bytes
from ops.chaos.scenario import Asking
from ops.provider_connection import Connection, Stats
from transport.asgi import App
from transport.pool import Wire
from transport.serve import GRACEFUL_SECONDS
from transport.telemetry import LogSink

__all__ = [
    "CONNECT_SECONDS",
    "PART_STRUCK",
    "SERVER",
    "Client",
    "Net",
    "Opened",
    "Server",
    "fixed_world",
    "silent_log",
]

PART_STRUCK: Final = "subject"
SERVER: Final = (
    "server"  # who acts where none of our actors does: Hypercorn's tasks, and our application's
)
PIPE_BYTES: Final = 8_192  # under way on a connection: less than the largest scenario writes
CONNECT_SECONDS: Final = 0.01
NOON: Final = 1_700_000_000  # Unix seconds
READ_BYTES: Final = 4_096  # of a slow caller
STARE_SECONDS: Final = 300.0  # for a caller that never reads, where nothing is ever left unread


def fixed_world() -> World:
    """The same ids, wall time and draws in every run."""
    return World(wall=lambda: NOON, new_id=lambda: "tg-fixed", draw=lambda: 0.5)


def silent_log() -> LogSink:
    """One that nobody writes out."""
    return LogSink(lines_max=1000, renderer=structlog.processors.JSONRenderer(), out=io.StringIO())


# --- the gate's own connections -------------------------------------------------------------------


@dataclass(eq=False, slots=True)
class Opened:
    """A connection that the gate has opened. `struck`: for the exchange that is struck, while it went on. Times on trio's clock."""

    host: str
    struck: bool
    far: End
    closes: int = 0
    closed_at: float = -1.0


class Net:
    """Leads each connection of the gate to the host that its name says."""

    def __init__(self, hosts: Mapping[str, Host], calls: Calls) -> None:
        self.opened: list[Opened] = []
        self.over = False
        self.hosts = hosts
        self._calls = calls
        self._stats = Stats(requests_kept_max=0)
        self._arrived, self._arrivals = trio.open_memory_channel[tuple[Host, End]](64)

    async def connect(self, host: str, port: int, tls: bool) -> Wire:
        """As `transport.pool.Connect`."""
        struck = PART.get() == PART_STRUCK and not self.over
        await trio.sleep(CONNECT_SECONDS)
        served = self.hosts[host]
        if (struck and self._calls.due("provider.connect")) or served.refuses():
            raise ConnectionRefusedError
        near, far = connected(PIPE_BYTES)
        if struck:
            near.fails = lambda call: self._calls.due(f"provider.{call}")
        opened = Opened(host, struck, far)
        self.opened.append(opened)
        self._arrived.send_nowait((served, far))

        def close() -> None:
            opened.closes += 1
            opened.closed_at = trio.current_time()
            near.close()

        return Wire(near, near.receive_next, close, lambda: near.readable)

    async def serve(self) -> None:
        """The far ends; until it is cancelled."""
        async with trio.open_nursery() as nursery:
            async for host, far in self._arrivals:
                stream = cast(trio.SocketStream, far)
                nursery.start_soon(Connection(stream, host.steps_for, self._stats).serve)

    def reset_all(self) -> None:
        """Every provider resets what is open."""
        for each in self.opened:
            each.far.break_off()

    @property
    def far_ends_open(self) -> int:
        """Connections that a provider still has."""
        return self._stats.open_connections


# --- callers' connections --------------------------------------------------------------------------


class KeptLog:
    """Hypercorn's own log: what it says an application has died of."""

    def __init__(self, _config: Config) -> None:
        self.errors: list[BaseException] = []

    async def exception(self, _message: str, *_args: Any, **_more: Any) -> None:
        error = sys.exc_info()[1]
        assert error is not None
        self.errors.append(error)

    async def access(self, *_args: Any) -> None:
        """Nobody asked for one."""


class Server:
    """Takes callers' connections as the listener does."""

    def __init__(self, app: App, config: Config, calls: Calls) -> None:
        self.open = 0
        self.closed = False  # to new connections
        self._scopes: set[trio.CancelScope] = set()
        self._app = ASGIWrapper(cast(ASGIFramework, app))
        self._config = config
        self._context = WorkerContext(None)
        self._calls = calls

    async def stop(self) -> None:
        """As Hypercorn does it: idle connections close at once, and the others have some time."""
        self.closed = True
        await self._context.terminated.set()
        await trio.sleep(GRACEFUL_SECONDS)
        for each in self._scopes:
            each.cancel()

    async def serve(self, end: End, part: str, scope: trio.CancelScope) -> None:
        """One connection, to its end. `scope`: what a server that stops would cancel."""
        PART.set(part)
        self._scopes.add(scope)
        if part == PART_STRUCK:
            end.fails = lambda call: self._calls.due(f"caller.{call}")
        self.open += 1
        try:
            with scope, acting(SERVER):
                state = ConnectionState({})
                stream = cast(Any, end)
                await TCPServer(self._app, self._config, self._context, state, stream).run()
        finally:
            self.open -= 1
            self._scopes.remove(scope)
            await trio.aclose_forcefully(end)


@dataclass(eq=False)
class Client:
    """A caller on one connection, which may carry more requests than one. Times on trio's clock."""

    asking: Asking
    write_seconds: float
    end: End
    endpoint: str = CHAT
    response: Response = field(default_factory=Response)
    left_at: float | None = None
    over_at: float | None = None
    asked: int = 0

    def leave(self) -> None:
        """Closes the connection."""
        self._leaves()
        self.end.close()

    def leave_unless_over(self) -> None:
        """The same, for one who still waits for its answer."""
        if self.over_at is None:
            self.leave()

    def reset(self) -> None:
        """The same as leaving, with a reset."""
        self._leaves()
        self.end.reset()

    def half_close(self) -> None:
        """Closes its sending side, and reads on."""
        self._leaves()
        self.end.finish()

    def _leaves(self) -> None:
        if self.left_at is None and self.over_at is None:
            self.left_at = trio.current_time()

    @property
    def goes_on(self) -> bool:
        """The connection can carry another request: not behind one that is not whole itself."""
        fine = self.response.whole and not self.response.rest and not self.response.closes
        fine = fine and self.asking.whole
        return fine and not self.end.closed and not self.end.hung_up

    async def ask(self, exchange: str) -> None:
        """One request, and all that comes of its answer."""
        self.response = Response()
        self.asked += 1
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            await self._write(exchange)
        with suppress(trio.ClosedResourceError):
            await (self._stare() if self.asking.stuck else self._read())
        if self.response.whole and self.left_at is None:
            self.over_at = trio.current_time()

    async def _write(self, exchange: str) -> None:
        parts = self.asking.parts
        name = f"x-request-id: {exchange}"
        length = sum(map(len, parts)) + (not self.asking.whole)
        await self.end.send_all(request_bytes(length, name, path=self.endpoint))
        for part in parts:
            await trio.sleep(self.asking.gap)
            await self.end.send_all(part)

    async def _read(self) -> None:
        size = READ_BYTES if self.asking.seconds else None
        while not self.response.over:
            try:
                data = await self.end.receive_some(size)
            except trio.BrokenResourceError:
                data = b""
            self.response.feed(data)
            await trio.sleep(self.asking.seconds)

    async def _stare(self) -> None:
        """Never reads: in the end the kernel takes the connection away."""
        with trio.move_on_after(STARE_SECONDS):
            await self.end.peer.full.wait()
        await trio.sleep(self.write_seconds + 1)
        self._leaves()
        self.end.break_off()
