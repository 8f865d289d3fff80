"""`tidegate chaos`: a search or one case, a table of what it came to, and for each failure the line that repeats it."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Final

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ops.chaos import rebuilds, rings
from ops.chaos.cases import Case, CaseInvalid, parse_case, parse_fault, parse_ring, proven
from ops.chaos.explore import Failure, run_case
from ops.chaos.inject import Injector
from ops.chaos.run import settled
from ops.chaos.scenarios import SCENARIOS
from ops.chaos.sched import FIFO, ScheduleInvalid, deterministic
from ops.chaos.search import (
    LEVELS,
    Level,
    Result,
    Unit,
    cores,
    ring_units,
    scenario_of,
    search,
    units_of,
)
from ops.chaos.sites import report_sites
from ops.chaos.sockets_scenarios import SOCKETED
from ops.chaos.traced import MARK, is_traced, names_in

__all__ = ["read_corpus", "run_chaos"]

OK: Final = 0
BROKEN: Final = 1
USAGE: Final = 2
COLUMNS_MAX: Final = 116
SHOWN_MAX: Final = 10  # failures; the rest is counted
RINGS: Final = {
    "ring 2": "the whole program in memory: server, application, HTTP client",
    "ring 3": "the service on sockets",
}


def run_chaos(
    scenarios: Sequence[str],
    *,
    schedule: str | None = None,
    cancel: Sequence[str] = (),
    raised: Sequence[str] = (),
    level: str = "quick",
    jobs: int = 0,
    corpus: Path | None = None,
    stop: bool = False,
    sites: bool = False,
    ring: int | None = None,
    traces: Sequence[Path] = (),
) -> int:
    """Prints to stdout; the exit code: 0 all invariants hold, 1 one is broken, 2 bad usage.

    `ring`: None, all of them, or the first where scenarios are named. `traces`: files whose exchanges are scenarios, too.
    """
    try:
        scenarios = [*scenarios, *_traced(traces)]
        parse_ring(str(ring or 1))
        _known(scenarios, ring or 1)
        if schedule is not None:
            with deterministic(schedule):
                pass
        if cancel or raised:
            return _one(_case(scenarios, schedule or FIFO, cancel, raised, ring or 1))
        cases = read_corpus(corpus) if corpus is not None else []
        chosen = _level(level, schedule)
    except (CaseInvalid, ScheduleInvalid, OSError) as error:
        print(f"tidegate: {error}", file=sys.stderr)
        return USAGE
    units: list[Unit] = []
    if ring in {None, 1}:
        names = list(scenarios) or [*SCENARIOS, *rebuilds.CROWDS]
        units += units_of(chosen, names, first=stop)
    for above in (2, 3):
        if ring == above or (ring is None and not scenarios):
            units += ring_units(level, above, scenarios, schedule, first=stop, asked=ring == above)
    result = search(units, jobs=jobs or cores(), corpus=cases, stop=stop)
    _show(result)
    if sites:
        report_sites(result.total)
    return BROKEN if result.total.failures else OK


def read_corpus(file: Path) -> list[Case]:
    """Case lines; empty ones and remarks are passed over. Raises `CaseInvalid`, `OSError`."""
    lines = [line.strip() for line in file.read_text().splitlines()]
    cases = [parse_case(line) for line in lines if line and not line.startswith("#")]
    for case in cases:
        _known([case.scenario], case.ring)
    return cases


def _traced(files: Sequence[Path]) -> Iterator[str]:
    """The exchanges of these files; those that are passed over are told."""
    for file in files:
        names, others = names_in(file)
        for each in others:
            print(f"tidegate: passed over: {each}", file=sys.stderr)
        yield from names


def _known(names: Sequence[str], ring: int) -> None:
    for name in names:
        if ring > 1:
            rings.checked(Case(name, ring=ring))
            continue
        if is_traced(name):
            scenario_of(name)
        elif name not in SCENARIOS and name not in rebuilds.CROWDS:
            known = ", ".join([*SCENARIOS, *rebuilds.CROWDS])
            raise CaseInvalid(f"no scenario {name!r}; there are {known}")


def _level(name: str, schedule: str | None) -> Level:
    if name not in LEVELS:
        raise CaseInvalid(f"no search {name!r}; there are {', '.join(LEVELS)}")
    level = LEVELS[name]
    if schedule is None:
        return level
    return Level((schedule,), frozenset({schedule} if level.pairs else ()))


def _case(
    scenarios: Sequence[str],
    schedule: str,
    cancel: Sequence[str],
    raised: Sequence[str],
    ring: int,
) -> Case:
    if len(scenarios) != 1:
        raise CaseInvalid("a fault needs one scenario")
    faults = [parse_fault("cancel", each) for each in cancel]
    faults += [parse_fault("raise", each) for each in raised]
    struck = tuple(sorted(faults, key=lambda fault: fault.at))
    return proven(Case(scenarios[0], schedule, struck, ring))


# --- one case --------------------------------------------------------------------------------------


def _one(case: Case) -> int:
    """Plays it and says what happened."""
    with settled():
        if case.ring > 1:
            lines, findings = rings.told(rings.checked(case))
            print("\n".join(lines))
        elif case.scenario in rebuilds.CROWDS:
            crowd, findings = rebuilds.run_crowd(case)
            _strikes(crowd.injector)
        else:
            run, findings = run_case(case, scenario_of(case.scenario))
            _strikes(run.injector)
            print(f"ports that failed: {', '.join(run.stage.calls.failed) or 'none'}")
            print(f"outcome: {run.outcome}")
            print(
                f"the caller: status {run.stage.caller.status}, ended {run.stage.caller.ended}, got"
            )
            print(bytes(run.stage.caller.received[-2_000:]).decode(errors="replace"))
    print("\n".join(findings) or "every invariant holds")
    return BROKEN if findings else OK


def _strikes(injector: Injector) -> None:
    for each in injector.strikes:
        where = f"{each.actor or 'nobody'} at {each.sites[-1] if each.sites else 'no await'}"
        hit = "" if each.hit else ": there was nothing to hit"
        print(f"{each.fault}: t={each.time:g} s, {where}{hit}")


# --- a search --------------------------------------------------------------------------------------


def _show(result: Result) -> None:
    console = Console(width=min(COLUMNS_MAX, Console().width))
    console.print(_table(result))
    total, cpu = result.total, result.cpu_seconds or result.seconds
    print(
        f"{total.points:,} points ({total.inert:,} of them hit nothing), {total.runs:,} runs, {len(total.failures)} failures; "
        f"{result.seconds:.1f} s, {cpu:.1f} CPU s: {total.runs / cpu:,.0f} runs and {total.steps / cpu:,.0f} schedule points per CPU second"
    )
    for failure in total.failures[:SHOWN_MAX]:
        _show_failure(failure)
    hidden = len(total.failures) - SHOWN_MAX
    if hidden > 0:
        print(f"... and {hidden} more")


def _table(result: Result) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("scenario")
    for name in ("points", "runs", "failures"):
        table.add_column(name, justify="right")
    table.add_column("what", style="dim")
    for name, tally in result.tallies.items():
        failures = Text(str(len(tally.failures)), style="bold red" if tally.failures else "")
        table.add_row(
            name.rpartition(MARK)[2], f"{tally.points:,}", f"{tally.runs:,}", failures, _about(name)
        )
    return table


def _about(name: str) -> str:
    if name in RINGS:
        return RINGS[name]
    if name in rebuilds.CROWDS:
        return rebuilds.CROWDS[name].about
    if is_traced(name):
        return scenario_of(name).about
    if name in SOCKETED:
        return SOCKETED[name].scenario.about
    return SCENARIOS[name].about if name in SCENARIOS else "cases that have failed once"


def _show_failure(failure: Failure) -> None:
    print(
        f"\ntidegate chaos {failure.case}   # trio {version('trio')}, tidegate {version('tidegate')}"
    )
    for finding in failure.findings:
        print(f"    {finding}")
