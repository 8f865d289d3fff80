"""One run of ring 2: a case played through the whole program in memory, to its end, then one more request on the same gate, and the end of everything.

`play` never raises for what the product does; whatever went wrong is in the `Run`, for `ops.chaos.stack_checks`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from typing import Any, Final

import trio
import trio.testing

from actors.context import Gateway
from gate.observe import Observation, What
from ops.chaos.cases import HALF, PORT, PROVIDER, RESET, STOP, Case, Fault
from ops.chaos.configured import configured
from ops.chaos.hosts import AFTER, FINE_REQUEST, SUBJECT, PlayedService, PlayedTarget, hosts_of
from ops.chaos.inject import Injector, Targets, unstruck
from ops.chaos.pipes import connected
from ops.chaos.ports import Calls
from ops.chaos.reading import CHAT
from ops.chaos.run import warnings_kept, watchdog
from ops.chaos.scenario import Asking, Scenario
from ops.chaos.sched import deterministic
from ops.chaos.stack import (
    PART_STRUCK,
    PIPE_BYTES,
    Client,
    KeptLog,
    Net,
    Server,
    fixed_world,
    silent_log,
)
from ops.chaos.wire import request
from transport.asgi import App
from transport.configfile import Loaded
from transport.containment import LOOK_SECONDS, contained
from transport.provider import HttpProvider
from transport.quick_send import quick_send
from transport.runtime import open_gateway
from transport.serve import drain, server_config

__all__ = ["Run", "play"]

_FINE_ASKING: Final = Asking((FINE_REQUEST,))
_RIVAL_ASKING: Final = Asking((request(),))
WRITE_SECONDS: Final = 60.0
DRAIN_SECONDS: Final = 0.3
HYPERCORN: Final = version("hypercorn")  # once: a look at what is installed takes a millisecond
H11: Final = version("h11")


@dataclass(eq=False)
class Run:
    """What is known of a run when it is over. Times in virtual seconds; `over_at`: the number of the point at which the exchange was over, and everything about it."""

    case: Case
    scenario: Scenario
    loaded: Loaded
    injector: Injector
    calls: Calls
    scope: trio.CancelScope
    targets: list[PlayedTarget]
    services: dict[str, PlayedService]
    net: Net
    clients: list[Client] = field(default_factory=list)
    rivals: list[Client] = field(default_factory=list)
    after: Client | None = None
    stop: trio.Event = field(default_factory=trio.Event)
    observations: list[tuple[float, Observation]] = field(default_factory=list)
    crashes: list[BaseException] = field(default_factory=list)
    over_at: int = 0
    over_seconds: float = 0.0
    calls_over: int = 0
    held: list[str] = field(default_factory=list)
    hung: list[str] = field(default_factory=list)
    escaped: BaseException | None = None
    alive: bool = False
    tasks_left: int = 0
    warned: list[str] = field(default_factory=list)

    @property
    def caller(self) -> Client:
        """The one whose exchange is struck."""
        return self.clients[0]

    @property
    def end(self) -> tuple[float, Observation] | None:
        """When and how the exchange ended; None where it never began."""
        ends = [each for each in self.told if each[1].what is What.EXCHANGE_ENDED]
        return ends[0] if ends else None

    @property
    def told(self) -> list[tuple[float, Observation]]:
        """The observations of the exchange that is struck."""
        return [each for each in self.observations if each[1].exchange == SUBJECT]

    @property
    def struck(self) -> bool:
        """At least one fault has hit something."""
        return bool(self.calls.failed) or any(each.hit for each in self.injector.strikes)

    @property
    def unstruck(self) -> list[Fault]:
        """Faults of the case that never came, or had nothing to hit."""
        return unstruck(self.case.faults, self.injector.strikes, self.calls.count)

    @property
    def missed(self) -> bool:
        """There are such."""
        return bool(self.unstruck)


def play(case: Case, scenario: Scenario, *, record: bool = False) -> Run:
    """Runs the case. `record`: with every point."""
    run = _prepared(case, scenario, record=record)
    with ExitStack() as around:
        around.enter_context(deterministic(case.schedule))
        around.enter_context(warnings_kept(run.warned))
        around.enter_context(contained(run.crashes.append, HYPERCORN))
        around.enter_context(quick_send(HYPERCORN, H11))
        try:
            clock = trio.testing.MockClock(autojump_threshold=0)
            trio.run(_main, run, clock=clock, instruments=[run.injector])
        except BaseException as error:  # noqa: ASYNC103 - whatever it is, it is what the run came to
            if isinstance(error, KeyboardInterrupt):
                raise
            run.escaped = error
    return run


def _prepared(case: Case, scenario: Scenario, *, record: bool) -> Run:
    targets, services = hosts_of(scenario)
    names = [f"p{at}" for at in range(len(targets))]
    urls = [f"http://{name}/v1" for name in names]
    loaded = configured(scenario, urls, {name: f"http://{name}/" for name in services})
    calls = Calls([fault.at for fault in case.faults if fault.who == PORT])
    net = Net({**dict(zip(names, targets, strict=True)), **services}, calls)
    scope = trio.CancelScope()
    targeted = Targets(scope, leave=_nothing, drain=_nothing)
    injector = Injector(case.faults, targeted, record)
    return Run(case, scenario, loaded, injector, calls, scope, targets, dict(services), net)


def _nothing() -> None:
    """Stands for what there is not yet."""


async def _main(run: Run) -> None:
    tasks = trio.lowlevel.current_statistics().tasks_living
    async with trio.open_nursery() as nursery:
        nursery.start_soon(watchdog, run.hung)
        nursery.start_soon(run.net.serve)
        log = silent_log()
        async with open_gateway(
            run.loaded,
            log,
            lambda told: run.observations.append((trio.current_time(), told)),
            connect=run.net.connect,
            world=fixed_world(),
        ) as gateway:
            gateway.crashed = lambda _exchange, error: run.crashes.append(error)
            await _served(run, gateway, nursery)
        await trio.testing.wait_all_tasks_blocked()
        if run.net.far_ends_open:
            run.held.append(f"{run.net.far_ends_open} connections to providers")
        nursery.cancel_scope.cancel()
    run.tasks_left = trio.lowlevel.current_statistics().tasks_living - tasks
    try:
        trio.lowlevel.remove_instrument(run.injector)
        run.alive = True
    except KeyError:
        run.alive = False


async def _served(run: Run, gateway: Gateway, nursery: trio.Nursery) -> None:
    app = App(lambda: run.loaded, owns_listener=True)
    app.begin(run.loaded, gateway)
    config = server_config(run.loaded)
    config.logger_class = KeptLog  # type: ignore[assignment]
    config.include_date_header = False  # it is wall time
    server = Server(app, config, run.calls)
    await _exchange(run, gateway, server, nursery)
    await _once_more(run, server, nursery)
    run.crashes += _log_of(config).errors
    for each in [*run.clients, *run.rivals, *filter(None, [run.after])]:
        each.end.close()
    await trio.sleep(2 * LOOK_SECONDS)  # a connection that is not read is looked at every so often
    await trio.testing.wait_all_tasks_blocked()
    if server.open:
        run.held.append(f"{server.open} connections of callers who have left")
    run.held += left_behind(gateway)


def _log_of(config: Any) -> KeptLog:
    log: KeptLog = config.log
    return log


async def _exchange(run: Run, gateway: Gateway, server: Server, nursery: trio.Nursery) -> None:
    """The exchange that is struck, and those beside it, until no task has anything to do."""
    scenario = run.scenario
    over = [trio.Event(), trio.Event()]
    nursery.start_soon(_rivals, run, server, "rival", scenario.rivals, over[0])
    if scenario.rivals:
        await trio.testing.wait_all_tasks_blocked()
    nursery.start_soon(_rivals, run, server, "follower", scenario.followers, over[1])
    caller = _client(run, server, nursery, scenario.asking, part=PART_STRUCK, scope=run.scope)
    caller.endpoint = scenario.endpoint
    run.clients.append(caller)
    run.injector.targets = Targets(
        run.scope,
        leave=caller.leave,
        drain=gateway.open.shut_down,
        others={
            RESET: caller.reset,
            HALF: caller.half_close,
            PROVIDER: run.net.reset_all,
            STOP: run.stop.set,
        },
    )
    nursery.start_soon(_stops, run.stop, gateway, server)
    _happenings(scenario, gateway, caller, nursery)
    await caller.ask(SUBJECT)
    for each in over:
        await each.wait()
    await gateway.open.wait_empty()
    await trio.testing.wait_all_tasks_blocked()
    run.over_at, run.calls_over = run.injector.count, run.calls.count
    run.injector.disarm()
    run.over_seconds = trio.current_time()
    run.net.over = True
    for host in run.net.hosts.values():
        host.over = True
    run.held += left_behind(gateway)


def _client(
    run: Run,
    server: Server,
    nursery: trio.Nursery,
    asking: Asking,
    *,
    part: str,
    scope: trio.CancelScope | None = None,
) -> Client:
    """A new connection, accepted unless the server has stopped."""
    near, far = connected(PIPE_BYTES)
    if server.closed:
        near.close()
    else:
        nursery.start_soon(server.serve, near, part, scope or trio.CancelScope())
    return Client(asking, WRITE_SECONDS, far)


async def _rivals(run: Run, server: Server, name: str, many: int, over: trio.Event) -> None:
    """Exchanges of other connections that want the same places."""
    async with trio.open_nursery() as nursery:
        for number in range(many):
            client = _client(run, server, nursery, _RIVAL_ASKING, part="rival")
            run.rivals.append(client)
            nursery.start_soon(_ask_and_leave, client, f"{name}-{number}")
    over.set()


async def _ask_and_leave(client: Client, exchange: str) -> None:
    await client.ask(exchange)
    client.end.close()


async def _once_more(run: Run, server: Server, nursery: trio.Nursery) -> None:
    """One more request: on the same connection where it goes on, else on a new one."""
    client = run.caller
    if client.goes_on:
        client = replace(client, asking=_FINE_ASKING, endpoint=CHAT)
    else:
        client = _client(run, server, nursery, _FINE_ASKING, part="after")
    run.after = client
    await client.ask(AFTER)
    await trio.testing.wait_all_tasks_blocked()


def _happenings(
    scenario: Scenario, gateway: Gateway, caller: Client, nursery: trio.Nursery
) -> None:
    """What a scenario lets happen at a time."""
    if scenario.drains_at is not None:
        gateway.dispatch.drain(trio.current_time() + scenario.drains_at)
        nursery.start_soon(_later, scenario.drains_at, gateway.open.shut_down)
    if scenario.asking.leaves_at is not None:
        nursery.start_soon(_later, scenario.asking.leaves_at, caller.leave_unless_over)


async def _stops(told: trio.Event, gateway: Gateway, server: Server) -> None:
    """What a signal sets going."""
    await told.wait()
    await drain(gateway, DRAIN_SECONDS)
    await server.stop()


async def _later(seconds: float, what: Callable[[], None]) -> None:
    await trio.sleep(seconds)
    what()


def left_behind(gateway: Gateway) -> list[str]:
    """What is still held though no exchange is open; empty where all came back."""
    found = []
    if gateway.budget.used or gateway.budget.open_reservations:
        found.append(repr(gateway.budget))
    both = (gateway.dispatch.exchanges, gateway.dispatch.providers)
    found += [repr(each) for each in both if any(each.taken.values()) or each.waiting]
    if len(gateway.open):
        found.append(f"{len(gateway.open)} open exchanges")
    for target in (each for pool in gateway.pools.values() for each in pool.targets):
        assert isinstance(target.provider, HttpProvider)
        transport = target.provider.transport
        in_use = transport.connections_open - transport.connections_idle
        found += [f"{in_use} connections to {target.provider_name} in use"] if in_use else []
    return found
