"""Rings 2 and 3 of a search: which of their scenarios are struck how often, and one case of them.

Ring 1 strikes an exchange over played ports; ring 2 (`ops.chaos.stack`) the whole program in memory; ring 3 (`ops.chaos.sockets`) the service on sockets. A run of ring 2 takes four times as long, and one of
ring 3 is of real time: a search takes a share of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from ops.chaos import sockets_search, stack_search
from ops.chaos.cases import Case, CaseInvalid
from ops.chaos.explore import Failure, Tally
from ops.chaos.scenarios import SCENARIOS
from ops.chaos.sched import FIFO, schedule_names
from ops.chaos.sockets_scenarios import SOCKETED

__all__ = [
    "ALONE",
    "MEMORY",
    "SHARES",
    "SOCKETS",
    "Portion",
    "Share",
    "checked",
    "explored",
    "names_of",
    "portions",
]

MEMORY: Final = 2
SOCKETS: Final = 3
ALONE: Final = "alone"  # the quick search of a ring that is asked for by its number
CORE: Final = (
    "healthy",
    "json",
    "exact",
    "continued",
    "judged",
    "slow-caller",
    "left",
    "queued",
    "responses",
    "tunnel",
    "relayed",
)
"""Struck at more points than the others: each framing's, each directive's and each way in which a caller makes the program wait."""


@dataclass(frozen=True, slots=True)
class Share:
    """How much of ring 2 and ring 3 a search takes. `core`, `every`: each so-manieth fault of the scenarios in `CORE`, and of the others (0: none); `core_pairs`, `pairs`: the same of second faults; `batches`: of callers, for each scenario on sockets; with an odd seed the service is told to stop. `stopped`: beside them each so-manieth scenario has one of those (0: none)."""

    core: int
    every: int
    batches: int
    stopped: int = 0
    core_pairs: int = 0
    pairs: int = 0
    schedules: tuple[str, ...] = (FIFO,)


SHARES: Final[Mapping[str, Share]] = MappingProxyType(
    {
        "quick": Share(core=60, every=0, batches=0),
        ALONE: Share(core=6, every=60, batches=2),
        "full": Share(core=8, every=32, batches=1, stopped=4, core_pairs=320),
        "deep": Share(
            core=1, every=1, batches=20, core_pairs=20, pairs=60, schedules=tuple(schedule_names(2))
        ),
    }
)


@dataclass(frozen=True, slots=True)
class Portion:
    """One scenario of a ring under one schedule, or with one seed. `every`: each so-manieth fault; `pairs`: of second faults."""

    ring: int
    scenario: str
    schedule: str = FIFO
    every: int = 1
    seed: int = 0
    pairs: int = 0


def names_of(ring: int) -> Sequence[str]:
    """The scenarios that there are in a ring above the first: in memory those of ring 1, but for threads, plug-ins and recordings."""
    if ring == SOCKETS:
        return [*SOCKETED]
    return [
        name
        for name, each in SCENARIOS.items()
        if not (each.plugins or each.recorded or each.thread_seconds)
    ]


def portions(level: str, ring: int, names: Sequence[str], schedule: str | None) -> list[Portion]:
    """What a search of this level does in this ring; scenarios that are named are struck at every point."""
    share = SHARES[level]
    if ring == SOCKETS:
        every = [*(names or SOCKETED)]
        batches = [Portion(ring, each, seed=at) for at in range(share.batches) for each in every]
        stopped = every[:: share.stopped] if share.stopped else []
        return batches + [Portion(ring, each, seed=1) for each in stopped]
    schedules = share.schedules if schedule is None else (schedule,)
    return list(_in_memory(share, schedules, names))


def _in_memory(share: Share, schedules: Sequence[str], names: Sequence[str]) -> Iterator[Portion]:
    for schedule in schedules:
        for name in names or names_of(MEMORY):
            core = name in CORE
            every = 1 if names else share.core if core else share.every
            if every:
                pairs = share.core_pairs if core else share.pairs
                yield Portion(MEMORY, name, schedule, every, pairs=pairs)


def explored(portion: Portion, *, first: bool) -> Tally:
    """What a portion came to."""
    if portion.ring == SOCKETS:
        return sockets_search.explore(portion.scenario, portion.seed)
    scenario = SCENARIOS[portion.scenario]
    tally = stack_search.explore(
        portion.scenario,
        scenario,
        portion.schedule,
        every=portion.every,
        pairs=portion.pairs,
        first=first,
    )
    tally.failures = [_shrunk(each) for each in tally.failures[:3]] + tally.failures[3:]
    return tally


def _shrunk(failure: Failure) -> Failure:
    """The simplest case near this one that breaks the same invariants."""
    wanted = {each.split()[0] for each in failure.findings}
    for case in failure.case.simpler():
        _, findings = stack_search.run_case(case, SCENARIOS[case.scenario])
        if wanted & {each.split()[0] for each in findings}:
            return _shrunk(Failure(case, tuple(findings)))
    return failure


def checked(case: Case) -> Case:
    """The case, where its ring knows what it asks for. Raises `CaseInvalid`."""
    if case.scenario not in names_of(case.ring):
        raise CaseInvalid(
            f"no scenario {case.scenario!r} in ring {case.ring}; there are {', '.join(names_of(case.ring))}"
        )
    if case.ring == SOCKETS:
        for fault in case.faults:
            if fault.who not in sockets_search.WHO:
                raise CaseInvalid(
                    f"ring 3 strikes {', '.join(sockets_search.WHO)}, not {fault.who!r}"
                )
            if fault.at > sockets_search.MOMENT_MAX:
                raise CaseInvalid(
                    f"ring 3 strikes within {sockets_search.MOMENT_MAX * sockets_search.TICK:g} s, K in tenths of a millisecond"
                )
    return case
