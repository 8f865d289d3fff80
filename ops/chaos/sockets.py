"""Ring 3: the gate as it is really served, on loopback sockets, between callers and providers that do what only a kernel can show.

    Caller ─socket─ serve_until(App) ─socket─ provider_connection.Connection, or a handler of its own

Real time and a real kernel, so no run repeats another step for step; what has to hold of it does not depend on the step.
"""

from __future__ import annotations

import io
import os
import socket
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Final

import trio
import trio.testing

from actors.context import Gateway
from gate.observe import Observation, What
from ops.chaos.configured import configured
from ops.chaos.hosts import PlayedTarget
from ops.chaos.responses import Response, request_bytes
from ops.chaos.scenario import Scenario
from ops.provider_connection import Connection, RecordedRequest, Stats, reset
from ops.provider_script import Step
from transport.asgi import App
from transport.serve import open_listener, serve_until

__all__ = [
    "Caller",
    "Handler",
    "Provider",
    "Served",
    "Socketed",
    "descriptors",
    "served",
]

Handler = Callable[[trio.SocketStream], Awaitable[None]]
"""A provider that is no script: one connection."""
READ_BYTES: Final = 65_536
START_SECONDS: Final = 10.0
RETRIES_MIN: Final = 10_000  # a batch fails together, which no provider's retries should pay for
STARE_SECONDS: Final = 20.0  # longer than a caller may take nothing, does one that never reads stay
LOOK_SECONDS: Final = 0.02
NARROW_BYTES: Final = 4_096  # what a narrow caller's kernel keeps of what it does not read
SEGMENT_BYTES: Final = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Socketed:
    """A scenario on sockets. `handlers`: by the target's number, those that are no script. `pipelined`: requests that the caller sends at once; `narrow`: the kernel keeps little of what it does not read.

    `write_seconds`: for which a caller may take nothing. `moments`: seconds in which a fault may strike. `many`: callers at once.
    """

    scenario: Scenario
    handlers: Mapping[int, Handler] = field(default_factory=dict)
    pipelined: int = 1
    narrow: bool = False
    write_seconds: float = 60.0
    moments: float = 0.3
    many: int = 24


def descriptors() -> int:
    """How many this process has open."""
    return len(os.listdir("/proc/self/fd"))


def threads() -> int:
    """Our own: trio keeps its idle workers for a while."""
    return sum(not each.name.startswith("Trio ") for each in threading.enumerate())


# --- providers -------------------------------------------------------------------------------------


class Provider:
    """A target on a port of its own."""

    def __init__(self, target: PlayedTarget, handler: Handler | None) -> None:
        self.url = ""
        self.stats = Stats(requests_kept_max=0)
        self._target = target
        self._handler = handler
        self._streams: dict[int, trio.SocketStream] = {}
        self._users: dict[int, str] = {}

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[None]:
        """Until the end of the block; one that refuses has a port at which nobody listens."""
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        self.url = f"http://127.0.0.1:{listeners[0].socket.getsockname()[1]}/v1"
        async with trio.open_nursery() as nursery:
            if self._handler is None and self._target.refuses():
                for each in listeners:
                    each.socket.close()
            else:
                await nursery.start(trio.serve_listeners, self._serve, listeners)
            yield
            nursery.cancel_scope.cancel()

    async def _serve(self, stream: trio.SocketStream) -> None:
        try:
            await self._conversation(stream)
        except* (trio.ClosedResourceError, trio.BrokenResourceError):
            pass  # we have reset it, or the gate has
        finally:
            stream.socket.close()

    async def _conversation(self, stream: trio.SocketStream) -> None:
        if self._handler is not None:
            number = self.stats.opened()
            try:
                await self._handler(stream)
            finally:
                self.stats.closed()
            return
        number = self.stats.connections + 1
        self._streams[number] = stream
        try:
            await Connection(stream, self._steps_for, self.stats).serve()
        finally:
            del self._streams[number]

    def _steps_for(self, asked: RecordedRequest) -> Iterator[Step]:
        self._users[asked.connection] = asked.header("x-request-id") or ""
        return self._target.steps_for(asked)

    def over(self) -> None:
        """Whoever asks from here on is answered well and at once."""
        self._target.over = True

    def reset(self, exchange: str) -> None:
        """Resets the connections on which this exchange was asked last."""
        for number, stream in list(self._streams.items()):
            if self._users.get(number) == exchange:
                reset(stream)


# --- the gate --------------------------------------------------------------------------------------


@dataclass(eq=False)
class Served:
    """A gate that answers. `told`: observations with their times; `crashes`: bugs of ours."""

    port: int
    app: App
    gateway: Gateway
    providers: list[Provider]
    told: list[tuple[float, Observation]]
    crashes: list[BaseException]
    log: io.StringIO
    tasks: int = 0

    def end_of(self, exchange: str) -> tuple[float, Observation] | None:
        """When and how it ended."""
        ends = (each for each in self.told if each[1].what is What.EXCHANGE_ENDED)
        return next((each for each in ends if each[1].exchange == exchange), None)

    def left_behind(self) -> list[str]:
        """What is held; nothing, where no exchange is open and no caller connected."""
        gate, found = self.gateway, []
        if gate.budget.used or gate.budget.open_reservations:
            found.append(repr(gate.budget))
        both = (gate.dispatch.exchanges, gate.dispatch.providers)
        found += [repr(each) for each in both if any(each.taken.values()) or each.waiting]
        if len(gate.open):
            found.append(f"{len(gate.open)} open exchanges")
        connections = sum(each.stats.open_connections for each in self.providers)
        tasks = trio.lowlevel.current_statistics().tasks_living - connections - self.tasks
        if tasks:
            found.append(f"{tasks} tasks beside those of {connections} idle connections")
        return found


@asynccontextmanager
async def served(case: Socketed) -> AsyncIterator[Served]:
    """The service of a scenario on a free port, with its providers; gone when left."""
    scenario = case.scenario
    log, told, crashes = io.StringIO(), list[tuple[float, Observation]](), list[BaseException]()
    stop = trio.Event()
    targets = [PlayedTarget(script) for script in scenario.targets]
    providers = [Provider(each, case.handlers.get(at)) for at, each in enumerate(targets)]
    async with AsyncExitStack() as opened:
        for each in providers:
            await opened.enter_async_context(each.listening())
        loaded = configured(
            scenario,
            [each.url for each in providers],
            {},
            caller_write_seconds=case.write_seconds,
            retries_min=RETRIES_MIN,
        )
        app = App(lambda: loaded, owns_listener=True, log_out=log)
        listener = open_listener(loaded.config.server)
        port = listener.getsockname()[1]
        nursery = await opened.enter_async_context(trio.open_nursery())
        nursery.start_soon(serve_until, stop, app, loaded, listener)
        gateway = await _ready(app)
        _listened_to(gateway, told, crashes)
        gate = Served(port, app, gateway, providers, told, crashes, log)
        await trio.testing.wait_all_tasks_blocked(0.01)
        gate.tasks = trio.lowlevel.current_statistics().tasks_living
        yield gate
        stop.set()


async def _ready(app: App) -> Gateway:
    with trio.fail_after(START_SECONDS):
        while app.gateway is None or app.log is None:  # noqa: ASYNC110 - nothing tells
            await trio.sleep(0.005)
    return app.gateway


def _listened_to(
    gateway: Gateway, told: list[tuple[float, Observation]], crashes: list[BaseException]
) -> None:
    """Beside who listens already."""
    probe, crashed = gateway.probe, gateway.crashed

    def both(observation: Observation) -> None:
        told.append((trio.current_time(), observation))
        probe(observation)

    def crash(exchange: str, error: BaseException) -> None:
        crashes.append(error)
        crashed(exchange, error)

    gateway.probe, gateway.crashed = both, crash


def _never() -> bool:
    return False


# --- callers ---------------------------------------------------------------------------------------


@dataclass(eq=False)
class Caller:
    """One caller on a connection of its own. `over`: whether its exchange is, for one that does not read. Times on trio's clock."""

    case: Socketed
    exchange: str
    over: Callable[[], bool] = _never
    responses: list[Response] = field(default_factory=list)
    left_at: float | None = None
    began_at: float = 0.0
    stream: trio.SocketStream | None = None

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

    async def ask(self, port: int, *, leave: Callable[[Caller], None] | None, after: float) -> None:
        """Asks, and takes what comes; `leave` is done to it so many seconds after it has begun."""
        stream = self._stream()
        with stream.socket:
            await stream.socket.connect(("127.0.0.1", port))
            self.stream, self.began_at = stream, trio.current_time()
            async with trio.open_nursery() as nursery:
                if leave is not None:
                    nursery.start_soon(self._struck, leave, after)
                with suppress(trio.ClosedResourceError, trio.BrokenResourceError):
                    await self._write(stream)
                with suppress(trio.ClosedResourceError):
                    await self._read(stream)
                nursery.cancel_scope.cancel()

    def _stream(self) -> trio.SocketStream:
        plain = socket.socket()
        if self.case.narrow:
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, NARROW_BYTES)
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, SEGMENT_BYTES)
        return trio.SocketStream(trio.socket.from_stdlib_socket(plain))

    async def _struck(self, leave: Callable[[Caller], None], after: float) -> None:
        await trio.sleep(after)
        leave(self)

    def leaves(self) -> None:
        """From here on nobody owes it anything."""
        if self.left_at is None and not self.done:
            self.left_at = trio.current_time()

    @property
    def done(self) -> bool:
        """It has all its answers."""
        whole = [each for each in self.responses if each.whole]
        return len(whole) == self.case.pipelined

    async def _write(self, stream: trio.SocketStream) -> None:
        parts = self.case.scenario.asking.parts
        for number in range(self.case.pipelined):
            name = self.exchange if not number else f"{self.exchange}-{number}"
            path = self.case.scenario.endpoint
            head = request_bytes(sum(map(len, parts)), f"x-request-id: {name}", path=path)
            await stream.send_all(head + parts[0])
            for part in parts[1:]:
                await trio.sleep(self.case.scenario.asking.gap)
                await stream.send_all(part)

    async def _read(self, stream: trio.SocketStream) -> None:
        asking, rest = self.case.scenario.asking, b""
        for _ in range(self.case.pipelined):
            response = Response()
            self.responses.append(response)
            if rest:
                response.feed(rest)
            while not response.over:
                response.feed(await self._next(stream))
                await trio.sleep(asking.seconds)
            rest, response.rest = response.rest, b""
            if not response.whole:
                return
        self.responses[-1].rest = rest

    async def _next(self, stream: trio.SocketStream) -> bytes:
        if self.case.scenario.asking.stuck:
            await self._stare(stream)
        try:
            return bytes(await stream.receive_some(READ_BYTES))
        except trio.BrokenResourceError:
            return b""

    async def _stare(self, stream: trio.SocketStream) -> None:
        """Reads nothing until the gate lets it go, or for far longer than a caller may."""
        with trio.move_on_after(self.case.write_seconds + STARE_SECONDS):
            while self.left_at is None and not self.over():  # noqa: ASYNC110 - a caller that takes nothing is told nothing
                await trio.sleep(LOOK_SECONDS)
        self.leaves()
        stream.socket.close()
