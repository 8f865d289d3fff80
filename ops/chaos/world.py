"""The gateway of one run: the real one, over in-memory ports, with fixed ids, wall time and draws."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from actors.awaiting import Threaded
from actors.context import Door, Gateway, OpenExchanges, Pool, Target
from actors.dispatch import Dispatch
from actors.ports import AwaitingFilters
from actors.world import World
from gate.budget import MemoryBudget
from gate.filters.plugin import plugged_in
from gate.health import ProviderHealth
from gate.ingress import CHAT_PATH
from gate.observe import Observation, What
from gate.retry_budget import RetryBudget
from ops.chaos.ports import Asked, Calls, PlayedCaller, PlayedFilters, PlayedProvider
from ops.chaos.scenario import Scenario
from ops.chaos.threads import PlayedThreads
from ops.chaos.wire import ALIAS, request

__all__ = ["SUBJECT", "Stage", "door", "staged"]

SUBJECT: Final = "ex-1"
NOON: Final = 1_700_000_000  # Unix seconds
WRITE_SECONDS: Final = 60.0
CHAT_ALONE: Final = frozenset({"tools", "json_schema"})
ALL: Final = CHAT_ALONE | {"responses"}


@dataclass
class Stage:
    """One run's gateway and everything around it."""

    scenario: Scenario
    calls: Calls
    gate: Gateway
    caller: PlayedCaller
    providers: list[PlayedProvider]
    services: dict[str, PlayedFilters]
    threads: PlayedThreads
    observations: list[Observation] = field(default_factory=list)
    crashes: list[tuple[str, BaseException]] = field(default_factory=list)

    @property
    def asked(self) -> list[Asked]:
        """Attempts of the exchange that is struck."""
        return [a for each in self.providers for a in each.asked if a.exchange == SUBJECT]

    def codes(self, what: What) -> list[str]:
        """The codes of the exchange's observations of one kind, in order."""
        own = (each for each in self.observations if each.exchange == SUBJECT)
        return [each.code for each in own if each.what is what]

    def left_behind(self) -> list[str]:
        """What is still held though no exchange is open; empty where all came back, each once."""
        gate, found = self.gate, []
        if gate.budget.used or gate.budget.open_reservations:
            found.append(repr(gate.budget))
        both = (gate.dispatch.exchanges, gate.dispatch.providers)
        found += [repr(each) for each in both if any(each.taken.values()) or each.waiting]
        if len(gate.open):
            found.append(f"{len(gate.open)} open exchanges")
        found += [f"{each.name}: {each.open} open" for each in self.services.values() if each.open]
        found += [f"{self.threads.running} threads"] if self.threads.running else []
        return found


def staged(scenario: Scenario, failing: tuple[int, ...] = ()) -> Stage:
    """A fresh world for one run; the port calls numbered `failing` fail."""
    calls = Calls(failing)
    providers = [PlayedProvider(script, calls, SUBJECT) for script in scenario.targets]
    services = {
        name: PlayedFilters(
            name,
            calls,
            SUBJECT,
            seconds=each.seconds,
            denied=each.denied,
            decides=each.table.gating and each.table.failure == "closed",
        )
        for name, each in scenario.services.items()
    }
    observations: list[Observation] = []
    crashes: list[tuple[str, BaseException]] = []
    gate = _gateway(scenario, providers, services, observations, crashes)
    asking = scenario.asking
    caller = PlayedCaller(
        asking.parts,
        calls,
        gap=asking.gap,
        seconds=asking.seconds,
        stuck=asking.stuck,
        whole=asking.whole,
        write_seconds=WRITE_SECONDS,
    )
    threads = PlayedThreads(scenario.thread_seconds, calls.due)
    return Stage(scenario, calls, gate, caller, providers, services, threads, observations, crashes)


def rival_caller() -> PlayedCaller:
    """A caller of another exchange, who reads what comes."""
    return PlayedCaller((request(),), Calls())


def door(exchange: str = SUBJECT, endpoint: str = CHAT_PATH, *, explain: bool = False) -> Door:
    """What the door let in."""
    return Door(exchange, None, b"application/json", None, endpoint=endpoint, explain=explain)


def _gateway(
    scenario: Scenario,
    providers: list[PlayedProvider],
    services: dict[str, PlayedFilters],
    observations: list[Observation],
    crashes: list[tuple[str, BaseException]],
) -> Gateway:
    limits, route = scenario.limits, scenario.route
    targets = tuple(
        Target(
            f"p{at}",
            provider,
            f"model-{at}",
            at,
            CHAT_ALONE if at in scenario.chat_only else ALL,
            ProviderHealth(failures=1000, open_seconds=30.0),
            scenario.prefill,
            scenario.paths[at] if scenario.paths else "normalized",
            ask_usage=scenario.ask_usage,
            idempotency_header=True,
        )
        for at, provider in enumerate(providers)
    )
    recovery = route.recovery
    retries = RetryBudget(
        share=recovery.retry_budget_share, floor=recovery.retry_budget_floor, now=0.0
    )
    tables = {**scenario.tables, **{name: each.table for name, each in scenario.services.items()}}
    names = (*scenario.filters, *services)
    plugins, heavy = scenario.plugins, Threaded()
    awaiting: dict[str, AwaitingFilters] = {
        name: heavy
        for name, table in tables.items()
        if table.kind in plugins and plugins[table.kind].heavy
    }
    pool = Pool(
        ALIAS,
        route,
        names,
        targets,
        retries,
        tables,
        {**awaiting, **services},
        plugins={kind: plugged_in(plugin) for kind, plugin in plugins.items()},
    )
    return Gateway(
        pools={ALIAS: pool},
        limits=limits,
        caller_write_seconds=WRITE_SECONDS,
        dispatch=Dispatch(
            exchanges_max=limits.exchanges_max,
            queue_max=limits.queue_max,
            queue_seconds_max=limits.queue_seconds_max,
            concurrency={target.provider_name: scenario.concurrency for target in targets},
        ),
        budget=MemoryBudget("process", limits.process_bytes_max),
        world=World(wall=lambda: NOON, new_id=lambda: "tg-fixed", draw=lambda: 0.5),
        probe=observations.append,
        crashed=lambda exchange, error: crashes.append((exchange, error)),
        open=OpenExchanges(),
    )
