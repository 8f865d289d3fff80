"""Ring 3: the gate as it is really served, on loopback sockets, between callers and providers that do what only a kernel can show.

    Caller ─socket─ serve_app(App) ─socket─ provider_connection.Connection, or a handler of its own

Real time and a real kernel, so no run repeats another step for step; what has to hold of it does not depend on the step.
"""

from __future__ import annotations

import io
import logging
import os
import signal
import socket
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Final

import trio
import trio.testing

from actors.context import Gateway
from gate.observe import Observation, What
from ops.chaos.certificates import certificate_files
from ops.chaos.configured import configured
from ops.chaos.hosts import PlayedTarget
from ops.chaos.scenario import Asking, Scenario
from ops.provider_connection import Connection, RecordedRequest, Stats, reset
from ops.provider_script import Step
from transport.asgi import App, Unfinished
from transport.caller import LINGER_SECONDS
from transport.configfile import Loaded
from transport.serve import open_listener, serve_app

__all__ = [
    "Handler",
    "Provider",
    "Served",
    "Socketed",
    "descriptors",
    "served",
    "threads",
]

Handler = Callable[[trio.SocketStream], Awaitable[None]]
"""A provider that is no script: one connection."""
START_SECONDS: Final = 10.0
RETRIES_MIN: Final = 10_000  # a batch fails together, which no provider's retries should pay for
LATER: Final = Asking(
    gap=LINGER_SECONDS + 0.5
)  # its body comes when a refused one is no longer waited for
DRAIN_SECONDS: Final = 0.15  # some scenarios are over by then, and some are not


@dataclass(frozen=True, slots=True, kw_only=True)
class Socketed:
    """A scenario on sockets. `handlers`: by the target's number, those that are no script. `pipelined`: requests that the caller sends at once; `narrow`: the kernel keeps little of what it does not read. `http2`, `tls`: how it speaks; by prior knowledge where it is not TLS that says so.

    `write_seconds`: for which a caller may take nothing. `moments`: seconds in which a fault may strike. `many`: callers at once. `refused`: the code that the first request is refused with by its head, while its body (as the scenario asks) still comes; the others ask when that body has been coming for a while.
    """

    scenario: Scenario
    handlers: Mapping[int, Handler] = field(default_factory=dict)
    pipelined: int = 1
    http2: bool = False
    tls: bool = False
    narrow: bool = False
    write_seconds: float = 60.0
    moments: float = 0.3
    many: int = 24
    refused: str = ""

    def asking(self, number: int) -> Asking:
        """How this request of a caller is made."""
        return LATER if self.refused and number else self.scenario.asking

    def refuses(self, number: int) -> bool:
        """It never becomes an exchange."""
        return bool(self.refused) and not number


def descriptors() -> int:
    """How many this process has open."""
    return len(os.listdir("/proc/self/fd"))


def threads() -> int:
    """Our own: trio keeps its idle workers for a while."""
    return sum(not each.name.startswith("Trio ") for each in threading.enumerate())


# --- providers -------------------------------------------------------------------------------------


def _url(port: int) -> str:
    return f"http://127.0.0.1:{port}/v1"


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
        """Until the end of the block; one that refuses has a port at which nobody listens, nor anybody else may."""
        if self._handler is None and self._target.refuses():
            with socket.socket() as bound:
                bound.bind(("127.0.0.1", 0))
                self.url = _url(bound.getsockname()[1])
                yield
            return
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        self.url = _url(listeners[0].socket.getsockname()[1])
        async with trio.open_nursery() as nursery:
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
            self.stats.opened()
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

    def reset(self, exchange: str) -> bool:
        """Resets the connections on which this exchange was asked last; whether there were any."""
        own = [
            each for number, each in self._streams.items() if self._users.get(number) == exchange
        ]
        for stream in own:
            reset(stream)
        return bool(own)


# --- the gate --------------------------------------------------------------------------------------


@dataclass(eq=False)
class Life:
    """Of a service. `stopped_at`: when it was told to stop; `over`, `over_at`: it has come to its end; `hung`: not by itself. Times on trio's clock."""

    over: trio.Event = field(default_factory=trio.Event)
    stopped_at: float | None = None
    over_at: float | None = None
    hung: bool = False

    def stop(self) -> None:
        """As whoever runs it does: with SIGTERM, once."""
        if self.stopped_at is None:
            self.stopped_at = trio.current_time()
            signal.raise_signal(signal.SIGTERM)


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
    life: Life
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
        if tasks > 0 or (tasks and not self.life.over.is_set()):
            found.append(f"{tasks} tasks beside those of {connections} idle connections")
        return found


@asynccontextmanager
async def served(case: Socketed) -> AsyncIterator[Served]:
    """The service of a scenario on a free port, with its providers; gone when left."""
    scenario = case.scenario
    log, told, crashes = io.StringIO(), list[tuple[float, Observation]](), list[BaseException]()
    targets = [PlayedTarget(script) for script in scenario.targets]
    providers = [Provider(each, case.handlers.get(at)) for at, each in enumerate(targets)]
    async with AsyncExitStack() as opened:
        opened.enter_context(_signals_survived())
        for each in providers:
            await opened.enter_async_context(each.listening())
        loaded = configured(
            scenario,
            [each.url for each in providers],
            {},
            caller_write_seconds=case.write_seconds,
            drain_seconds=DRAIN_SECONDS,
            retries_min=RETRIES_MIN,
            tls=opened.enter_context(certificate_files()) if case.tls else ("", ""),
        )
        app = App(lambda: loaded, owns_listener=True, log_out=log)
        listener = open_listener(loaded.config.server)
        port = listener.getsockname()[1]
        nursery = await opened.enter_async_context(trio.open_nursery())
        life = Life()
        nursery.start_soon(_service, app, loaded, listener, life)
        gateway = await _ready(app)
        _listened_to(gateway, told, crashes)
        gate = Served(port, app, gateway, providers, told, crashes, log, life)
        await trio.testing.wait_all_tasks_blocked(0.01)
        logging.getLogger("hypercorn.error").handlers = [_Died(crashes)]  # it has made its own now
        gate.tasks = trio.lowlevel.current_statistics().tasks_living
        yield gate
        life.stop()
        await life.over.wait()


async def _service(app: App, loaded: Loaded, listener: socket.socket, life: Life) -> None:
    """Until it has ended."""
    with trio.CancelScope() as scope:

        def hangs(_app: App) -> None:
            life.hung = True
            scope.cancel()

        await serve_app(app, loaded, listener, hangs=hangs)
    life.over_at = trio.current_time()
    life.over.set()


@contextmanager
def _signals_survived() -> Iterator[None]:
    """One that comes when nobody listens for it any more ends the service, and not the search."""
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


async def _ready(app: App) -> Gateway:
    with trio.fail_after(START_SECONDS):
        while app.gateway is None or app.log is None:  # noqa: ASYNC110 - nothing tells
            await trio.sleep(0.005)
    return app.gateway


class _Died(logging.Handler):
    """What the server says that an application has died of. An answer that is given up is no such thing."""

    def __init__(self, crashes: list[BaseException]) -> None:
        super().__init__(logging.ERROR)
        self._crashes = crashes

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if not isinstance(error, Unfinished):
            self._crashes.append(error or RuntimeError(record.getMessage()))


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
