"""A whole search: which scenarios under which schedules, over all cores, and what it came to."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing import get_context
from time import monotonic, process_time
from typing import Final

from ops.chaos import faults, rebuilds, rings
from ops.chaos.cases import Case
from ops.chaos.explore import Tally, decisions, explore, shrunk
from ops.chaos.run import play, settled
from ops.chaos.sched import FIFO, schedule_names
from ops.chaos.single import replayed, scenario_of

__all__ = ["LEVELS", "Level", "Result", "Unit", "ring_units", "search", "units_of"]

ROWS: Final = frozenset(row.name for row in faults.CATALOGUE)
UNITS_PER_CHILD: Final = (
    24  # after which a worker process is replaced: memory grows slowly where nothing is collected
)


@dataclass(frozen=True, slots=True)
class Level:
    """How far a search goes. `pairs`: the schedules under which a second fault is tried behind each cancel; `rows`: those under which the fault catalogue is struck (it is always played).

    `every`: of so many faults at points one is tried, in each scenario another one; of those of ports, all. `others`: the same under the schedules behind the first.
    """

    schedules: tuple[str, ...]
    pairs: frozenset[str] = frozenset()
    rows: frozenset[str] = frozenset()
    every: int = 1
    others: int = 1


LEVELS: Final[Mapping[str, Level]] = {
    "quick": Level((FIFO,), every=3),
    "full": Level(tuple(schedule_names(1)), frozenset({FIFO}), frozenset({FIFO}), others=2),
    "deep": Level(
        tuple(schedule_names(30)), frozenset(schedule_names(6)), frozenset(schedule_names(6))
    ),
}


@dataclass(frozen=True, slots=True)
class Unit:
    """One scenario under one schedule. `plain`: nothing strikes; `portion`: in a ring above the first; `row`: of the table, if not the scenario's own."""

    scenario: str
    schedule: str
    pairs: bool
    plain: bool
    first: bool = False
    every: int = 1
    portion: rings.Portion | None = None
    row: str = ""


@dataclass(slots=True)
class Result:
    """Per scenario what was found, and what it took: wall and CPU seconds of all processes."""

    tallies: dict[str, Tally] = field(default_factory=dict)
    seconds: float = 0.0
    cpu_seconds: float = 0.0

    @property
    def total(self) -> Tally:
        """All scenarios together."""
        whole = Tally()
        for each in self.tallies.values():
            whole.add(each)
        return whole


def units_of(level: Level, names: Sequence[str], *, first: bool = False) -> list[Unit]:
    """Simple schedules first. A scenario of the catalogue is struck like any other where it is the only one that is asked for."""
    rows = ROWS if len(names) > 1 else frozenset[str]()
    return [
        Unit(
            name,
            schedule,
            pairs=schedule in level.pairs and name not in rows,
            plain=name in rows and schedule not in level.rows,
            first=first,
            every=level.every if schedule == level.schedules[0] else level.others,
        )
        for schedule in level.schedules
        for name in names
    ]


def ring_units(
    level: str,
    ring: int,
    names: Sequence[str],
    schedule: str | None,
    *,
    first: bool,
    asked: bool,
) -> list[Unit]:
    """The units of ring 2 or 3. Where nobody has asked for it, all of a ring are one row of the table."""
    return [
        Unit(
            each.scenario,
            each.schedule,
            pairs=False,
            plain=False,
            first=first,
            portion=each,
            row="" if asked else f"ring {ring}",
        )
        for each in rings.portions(
            rings.ALONE if asked and level == "quick" else level, ring, names, schedule
        )
    ]


def search(
    units: Sequence[Unit],
    *,
    jobs: int,
    corpus: Sequence[Case] = (),
    stop: bool = False,
    told: Callable[[int, int], None] = lambda _done, _all: None,
) -> Result:
    """Runs the cases of the corpus, then all units. `stop`: at the first failure; `told` hears how many units are done."""
    result, began = Result(), monotonic()
    known = _replayed(corpus)
    if known.runs:
        result.tallies["corpus.txt"] = known
    if not (stop and known.failures):
        for done, (name, tally, seconds) in enumerate(_explored(units, jobs), start=1):
            result.tallies.setdefault(name, Tally()).add(tally)
            result.cpu_seconds += seconds
            told(done, len(units))
            if stop and tally.failures:
                break
    result.seconds = monotonic() - began
    return result


def _replayed(corpus: Iterable[Case]) -> Tally:
    """Cases that have failed once."""
    tally = Tally()
    with settled():
        for case in corpus:
            tally.add(replayed(case))
    return tally


def _explored(units: Sequence[Unit], jobs: int) -> Iterator[tuple[str, Tally, float]]:
    if jobs == 1 or not units:
        yield from map(_unit, units)
        return
    with get_context("spawn").Pool(min(jobs, len(units)), maxtasksperchild=UNITS_PER_CHILD) as pool:
        yield from pool.imap_unordered(_unit, units)


def _unit(unit: Unit) -> tuple[str, Tally, float]:
    """In a worker process: its tally and the CPU seconds that it took."""
    began = process_time()
    with settled():
        if unit.portion is not None:
            tally = rings.explored(unit.portion, first=unit.first)
        elif unit.scenario in rebuilds.CROWDS:
            tally = rebuilds.explore(unit.scenario, unit.schedule)
        else:
            tally = _scenario(unit)
    return unit.row or unit.scenario, tally, process_time() - began


def _scenario(unit: Unit) -> Tally:
    scenario = scenario_of(unit.scenario)
    baseline = None
    if unit.schedule != FIFO:
        plain = play(Case(unit.scenario), scenario)
        baseline = decisions(plain) if plain.outcome is not None else None
    tally = explore(
        unit.scenario,
        scenario,
        unit.schedule,
        pairs=unit.pairs,
        plain=unit.plain,
        baseline=baseline,
        first=unit.first,
        every=unit.every,
    )
    tally.failures = [shrunk(each, scenario) for each in tally.failures[:3]] + tally.failures[3:]
    return tally


def cores() -> int:
    """Processes that may run at once."""
    return len(os.sched_getaffinity(0))
