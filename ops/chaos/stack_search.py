"""The search of ring 2: every point of a scenario's run, struck by what can happen to a connection and to each task of it; and some that are struck twice.

A point is planned from a recorded run, as in ring 1; only points of the exchange itself count, not those of the request that comes after it. There are too many pairs of faults for all of them: a search takes each so-manieth fault, and
behind it each so-manieth of what is left.
"""

from __future__ import annotations

import gc
import hashlib
from collections.abc import Iterator, Sequence
from typing import Final

from ops.chaos.cases import (
    CALLER,
    CANCEL,
    DRAIN,
    HALF,
    PORT,
    PROVIDER,
    RAISE,
    REQUEST,
    RESET,
    STOP,
    Case,
    Fault,
)
from ops.chaos.explore import COLLECT_EVERY, FAILURES_MAX, Failure, Tally
from ops.chaos.inject import Point
from ops.chaos.scenario import Scenario
from ops.chaos.stack import SERVER
from ops.chaos.stack_checks import broken
from ops.chaos.stack_run import Run, play

__all__ = ["RING", "digest", "explore", "planned", "run_case", "told"]

RING: Final = 2
WHOLE: Final = (REQUEST, CALLER, RESET, HALF, PROVIDER, STOP, DRAIN)


def run_case(case: Case, scenario: Scenario) -> tuple[Run, list[str]]:
    """One run and what it breaks."""
    run = play(case, scenario)
    return run, broken(run)


def digest(run: Run) -> str:
    """What the run did, step by step, and what its caller got; the same in every process. The run has to be recorded."""
    seen = hashlib.sha256(repr(run.injector.steps).encode())
    seen.update(bytes(run.caller.response.body))
    return seen.hexdigest()


def told(run: Run) -> Iterator[str]:
    """What happened, for a person to read."""
    for each in run.injector.strikes:
        hit = "" if each.hit else ": there was nothing to hit"
        where = each.sites[-1] if each.sites else "no await of ours"
        yield f"{each.fault}: t={each.time:g} s, {each.actor or 'nobody'} at {where}{hit}"
    yield f"calls that failed: {', '.join(run.calls.failed) or 'none'}"
    if run.end is not None:
        yield f"ended: t={run.end[0]:g} s, {run.end[1].outcome} {run.end[1].code}"
    yield from run.caller.response.told()


def planned(run: Run) -> Iterator[Fault]:
    """Every single fault of a run that was recorded."""
    for point in run.injector.points:
        if point.at <= run.over_at and point.fresh:
            yield from _struck_at(point)
    for at in range(1, run.calls_over + 1):
        yield Fault(RAISE, PORT, at)


def _struck_at(point: Point) -> Iterator[Fault]:
    for who in WHOLE:
        yield Fault(CANCEL, who, point.at)
    if point.subject and point.reachable and point.actor:
        if point.actor != SERVER:  # Hypercorn cancels no task of its own but as a whole connection
            yield Fault(CANCEL, point.actor, point.at)
        yield Fault(RAISE, point.actor, point.at)


def explore(
    name: str,
    scenario: Scenario,
    schedule: str,
    *,
    plain: bool = False,
    every: int = 1,
    pairs: int = 0,
    first: bool = False,
) -> Tally:
    """All single faults under this schedule; `plain`: nothing strikes; `every`: only each so-manieth fault; `pairs`: each so-manieth of those, and of what may strike behind it, too (0: none). `first`: stops at the first failure."""
    tally = Tally()
    case = Case(name, schedule, ring=RING)
    clean = play(case, scenario, record=True)
    _count(tally, clean)
    faults = [] if plain or tally.failures else list(planned(clean))
    for struck in _cases(case, scenario, faults, every, pairs):
        _count(tally, play(struck, scenario))
        if len(tally.failures) >= (1 if first else FAILURES_MAX):
            break
    return tally


def _cases(
    case: Case, scenario: Scenario, faults: Sequence[Fault], every: int, pairs: int
) -> Iterator[Case]:
    """Single faults, then pairs. The points behind a first fault are those of the run that it makes."""
    for fault in faults[::every]:
        yield case.with_fault(fault)
    for number, fault in enumerate(faults[::pairs] if pairs else ()):
        if fault.who == PORT:
            continue  # the number of a call says nothing about points
        struck = case.with_fault(fault)
        run = play(struck, scenario, record=True)
        behind = [each for each in planned(run) if each.who == PORT or each.at > fault.at]
        yield from (struck.with_fault(each) for each in behind[number % pairs :: pairs])


def _count(tally: Tally, run: Run) -> None:
    tally.runs += 1
    tally.points += bool(run.case.faults)
    tally.inert += bool(run.case.faults) and run.missed
    tally.steps += run.injector.count
    findings = broken(run)
    if findings:
        tally.failures.append(Failure(run.case, tuple(findings)))
    if tally.runs % COLLECT_EVERY == 0:
        gc.collect()
