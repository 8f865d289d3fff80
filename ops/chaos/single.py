"""One case, played once, in whichever ring it is: what `tidegate chaos SCENARIO --cancel WHO:K` shows, and what a line of the corpus comes to.

A case is a point of a run by its number, and numbers move when the program takes another step: so a fault that strikes nothing is told.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ops.chaos import rebuilds, rings, sockets_search, stack_search
from ops.chaos.cases import CALLER, DRAIN, PORT, Case, CaseInvalid, Fault, parse_case
from ops.chaos.explore import Failure, Tally, run_case
from ops.chaos.inject import Strike
from ops.chaos.run import Run
from ops.chaos.scenario import Scenario
from ops.chaos.scenarios import SCENARIOS
from ops.chaos.sched import ScheduleInvalid, deterministic
from ops.chaos.traced import is_traced, traced

__all__ = ["Played", "checked", "play_once", "read_corpus", "replayed", "scenario_of"]

SHOWN_BYTES: Final = 2_000  # of what the caller got


@dataclass(frozen=True, slots=True)
class Played:
    """What came of a case. `lines`: what happened, for a person to read; `unstruck`: its faults that hit nothing; `room`: in words, where one could have; `steps`: points that were passed, in ring 3 none are counted."""

    lines: Sequence[str]
    findings: Sequence[str]
    unstruck: Sequence[Fault]
    room: str
    steps: int = 0

    def lost(self) -> Iterator[str]:
        """A line for each fault that hit nothing."""
        for fault in self.unstruck:
            yield f"{fault} struck nothing: {self.room}"


def scenario_of(name: str) -> Scenario:
    """Raises `KeyError`; `CaseInvalid` for a trace that can't be played."""
    return traced(name) if is_traced(name) else SCENARIOS[name]


def checked(case: Case) -> Case:
    """The case, where its ring has what it asks for. Raises `CaseInvalid`, `ScheduleInvalid`."""
    with deterministic(case.schedule):
        pass
    if case.ring > 1:
        return rings.checked(case)
    name = case.scenario
    if is_traced(name):
        scenario_of(name)
    elif name in rebuilds.CROWDS:
        for fault in case.faults:
            if fault.who in {CALLER, DRAIN, PORT}:
                raise CaseInvalid(f"{name} has no caller, no drain and no ports")
    elif name not in SCENARIOS:
        known = ", ".join([*SCENARIOS, *rebuilds.CROWDS])
        raise CaseInvalid(f"no scenario {name!r}; there are {known}")
    return case


def read_corpus(file: Path) -> list[Case]:
    """Case lines; empty ones and remarks are passed over. Raises `CaseInvalid`, with the line's number, and `OSError`."""
    cases = []
    try:
        lines = file.read_text().splitlines()
    except UnicodeDecodeError as error:
        raise CaseInvalid(f"{file}: {error}") from None
    for number, line in enumerate(map(str.strip, lines), start=1):
        if not line or line.startswith("#"):
            continue
        try:
            cases.append(checked(parse_case(line)))
        except (CaseInvalid, ScheduleInvalid) as error:
            raise CaseInvalid(f"{file}, line {number}: {error}") from None
    return cases


def play_once(case: Case) -> Played:
    """The case has to be a checked one."""
    if case.ring == rings.SOCKETS:
        seen, findings = sockets_search.run_case(case)
        lines = [line for _, caller in seen.callers for line in caller.told()]
        unstruck = [each for each in case.faults if each not in seen.struck]
        return Played(lines, findings, unstruck, "its exchange was over by then")
    if case.ring == rings.MEMORY:
        stack, findings = stack_search.run_case(case, SCENARIOS[case.scenario])
        room = _room(stack.injector.count, stack.calls.count)
        lines = list(stack_search.told(stack))
        return Played(lines, findings, stack.unstruck, room, stack.injector.count)
    if case.scenario in rebuilds.CROWDS:
        crowd, findings = rebuilds.run_crowd(case)
        count, lines = crowd.injector.count, list(_strikes(crowd.injector.strikes))
        return Played(lines, findings, crowd.unstruck, f"its run has {count:,} points", count)
    run, findings = run_case(case, scenario_of(case.scenario))
    room = _room(run.injector.count, run.stage.calls.count)
    return Played(list(_told(run)), findings, run.unstruck, room, run.injector.count)


def replayed(case: Case) -> Tally:
    """A line of the corpus. One that strikes nothing any more is a failure: it looks at nothing, and the fault that it stands for could come back unseen. Not in ring 3, where moments are of real time."""
    played = play_once(case)
    inert = bool(played.unstruck)
    tally = Tally(runs=1, points=1, inert=inert, steps=played.steps)
    findings = [*played.findings]
    if case.ring != rings.SOCKETS:
        findings += [f"inert {line}; aim it at that place again" for line in played.lost()]
    tally.failures += [Failure(case, tuple(findings))] if findings else []
    return tally


def _room(points: int, calls: int) -> str:
    return f"its run has {points:,} points and {calls:,} calls of ports"


def _told(run: Run) -> Iterator[str]:
    caller = run.stage.caller
    yield from _strikes(run.injector.strikes)
    yield f"ports that failed: {', '.join(run.stage.calls.failed) or 'none'}"
    yield f"outcome: {run.outcome}"
    yield f"the caller: status {caller.status}, ended {caller.ended}, got"
    yield bytes(caller.received[-SHOWN_BYTES:]).decode(errors="replace")


def _strikes(strikes: Sequence[Strike]) -> Iterator[str]:
    for each in strikes:
        where = f"{each.actor or 'nobody'} at {each.sites[-1] if each.sites else 'no await'}"
        hit = "" if each.hit else ": there was nothing to hit"
        yield f"{each.fault}: t={each.time:g} s, {where}{hit}"
