"""The search: every point of a scenario's run under one schedule, and behind a cancel every point of what is left of it.

A point is planned from a recorded run. Two of them between which nothing happens are one: the end of a task's step and the beginning of the next step of the same batch.
"""

from __future__ import annotations

import gc
import hashlib
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from ops.chaos.cases import CALLER, CANCEL, DRAIN, PORT, RAISE, REQUEST, Case, Fault
from ops.chaos.inject import Point
from ops.chaos.invariants import broken
from ops.chaos.loop import on_loop
from ops.chaos.run import Run, play, play_here
from ops.chaos.scenario import Scenario

__all__ = ["Failure", "Tally", "digest", "explore", "run_case", "shrunk"]

COLLECT_EVERY: Final = 500  # runs between two garbage collections
FAILURES_MAX: Final = 20  # of one scenario and schedule; more of them say nothing new


@dataclass(frozen=True, slots=True)
class Failure:
    """A case that breaks invariants."""

    case: Case
    findings: tuple[str, ...]


@dataclass(slots=True)
class Tally:
    """What a search came to. `points`: distinct faults that were tried (a second fault behind a first counts as one more); `inert`: of them, those that hit nothing; `steps`: points passed in all runs.

    `cancelled`, `raised`: await sites of the product that were hit so.
    """

    runs: int = 0
    points: int = 0
    inert: int = 0
    steps: int = 0
    failures: list[Failure] = field(default_factory=list)
    cancelled: set[str] = field(default_factory=set)
    raised: set[str] = field(default_factory=set)
    stood: set[str] = field(default_factory=set)

    def add(self, other: Tally) -> None:
        """Takes the other's into this one."""
        self.runs += other.runs
        self.points += other.points
        self.inert += other.inert
        self.steps += other.steps
        self.failures += other.failures
        self.cancelled |= other.cancelled
        self.raised |= other.raised
        self.stood |= other.stood


def run_case(case: Case, scenario: Scenario) -> tuple[Run, list[str]]:
    """One run and what it breaks."""
    run = play(case, scenario)
    return run, broken(run)


def digest(run: Run) -> str:
    """What the run did, step by step, and what its caller got; the same in every process. The run has to be recorded."""
    seen = hashlib.sha256(repr(run.injector.steps).encode())
    seen.update(bytes(run.stage.caller.received))
    return seen.hexdigest()


def decisions(run: Run) -> tuple[object, ...]:
    """What the caller got but for comments, and what was decided, which no schedule may change."""
    outcome = run.outcome
    assert outcome is not None
    events = bytes(run.stage.caller.received).split(b"\n\n")
    got = b"\n\n".join(each for each in events if not each.startswith(b":"))
    notes = [(each.what, each.code, each.attempt) for each in run.stage.observations if each.exchange == "ex-1"]  # fmt: skip
    return got, outcome.kind, outcome.code, outcome.status, notes


def explore(
    name: str,
    scenario: Scenario,
    schedule: str,
    *,
    pairs: bool = False,
    plain: bool = False,
    baseline: Sequence[object] | None = None,
    first: bool = False,
    every: int = 1,
) -> Tally:
    """All single faults under this schedule, and, with `pairs`, each that is possible behind each cancel; `plain`: nothing strikes.

    `first`: stops at the first failure; `every`: of so many faults at points one is tried.
    """
    search = _Search(name, scenario, schedule, first=first, every=every)
    try:
        on_loop(partial(search.all, pairs=pairs, plain=plain, baseline=baseline))
    except _Enough:
        pass
    except (Exception, BaseExceptionGroup) as error:  # noqa: BLE001 - a run that has broken the loop
        search.tally.failures.append(Failure(search.case, (f"I0 the loop broke: {error!r}",)))
    return search.tally


class _Enough(Exception):
    """There is no use in going on."""


class _Search:
    def __init__(
        self, name: str, scenario: Scenario, schedule: str, *, first: bool, every: int
    ) -> None:
        self.tally = Tally()
        self.case = self._case = Case(name, schedule)  # the one that is played
        self._scenario = scenario
        self._failures_max = 1 if first else FAILURES_MAX
        self._every = every

    async def all(self, *, pairs: bool, plain: bool, baseline: Sequence[object] | None) -> None:
        clean = await self._run(self._case, record=True)
        if clean.outcome is None or clean.struck:
            return
        if baseline is not None and decisions(clean) != baseline:
            self._failed(self._case, ["I16 another schedule, another answer"])
        if plain:
            return
        faults = planned(clean.injector.points, ports=clean.stage.calls.count)
        for fault in sampled(faults, self._case.scenario, self._every):
            case = self._case.with_fault(fault)
            behind = pairs and fault.who in {REQUEST, CALLER}
            run = await self._run(case, record=behind, record_from=fault.at)
            if behind and run.struck:
                await self._pairs(case, run)

    async def _pairs(self, case: Case, run: Run) -> None:
        """One more fault in what is left of the run."""
        for point in run.injector.points:
            for second in struck_at(point, whole=False):
                await self._run(case.with_fault(second))

    async def _run(self, case: Case, *, record: bool = False, record_from: int = 0) -> Run:
        self.case = case
        run = await play_here(case, self._scenario, record=record, record_from=record_from)
        tally = self.tally
        tally.runs += 1
        tally.points += bool(case.faults)
        tally.inert += bool(case.faults) and run.missed
        tally.steps += run.injector.count
        tally.stood.update(site for point in run.injector.points for site in point.sites)
        for strike in run.injector.strikes:
            if strike.hit:
                (tally.raised if strike.error is not None else tally.cancelled).update(strike.sites)
        findings = broken(run)
        if findings:
            self._failed(case, findings)
        if tally.runs % COLLECT_EVERY == 0:
            gc.collect()
        return run

    def _failed(self, case: Case, findings: list[str]) -> None:
        self.tally.failures.append(Failure(case, tuple(findings)))
        if len(self.tally.failures) >= self._failures_max:
            raise _Enough


def planned(points: Sequence[Point], *, ports: int) -> Iterator[Fault]:
    """Every single fault of a run with these points and so many port calls."""
    for point in points:
        yield from struck_at(point, whole=True)
    for at in range(1, ports + 1):
        yield Fault(RAISE, PORT, at)


def sampled(faults: Iterable[Fault], name: str, every: int) -> Iterator[Fault]:
    """One of so many, another one in each scenario, whatever file a recorded one is in; all of those that fail a port's call."""
    shift = zlib.crc32(name.rpartition("@")[2].encode())
    for number, fault in enumerate(faults, start=shift):
        if fault.who == PORT or number % every == 0:
            yield fault


def struck_at(point: Point, *, whole: bool) -> Iterator[Fault]:
    """The faults that make a difference at this point; `whole`: also those that strike the exchange and not a task."""
    if not point.fresh:
        return
    if whole:
        for who in (REQUEST, CALLER, DRAIN) if point.heard else (REQUEST, DRAIN):
            yield Fault(CANCEL, who, point.at)
    if point.subject and point.reachable:
        yield Fault(CANCEL, point.actor, point.at)
        yield Fault(RAISE, point.actor, point.at)


def shrunk(failure: Failure, scenario: Scenario) -> Failure:
    """The simplest case near this one that breaks the same invariants. The points of a simpler case are counted anew, so most of them find nothing."""
    wanted = {each.split()[0] for each in failure.findings}
    for case in failure.case.simpler():
        _, findings = run_case(case, scenario)
        if wanted & {each.split()[0] for each in findings}:
            return shrunk(Failure(case, tuple(findings)), scenario)
    return failure
