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

from ops.chaos import rebuilds
from ops.chaos.cases import Case, CaseInvalid, parse_fault, parse_ring, proven
from ops.chaos.explore import Failure
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
    search,
    units_of,
)
from ops.chaos.single import checked, play_once, read_corpus, scenario_of
from ops.chaos.sites import report_sites
from ops.chaos.sockets_scenarios import SOCKETED
from ops.chaos.traced import MARK, is_traced, names_in

__all__ = ["run_chaos"]

OK: Final = 0
BROKEN: Final = 1
USAGE: Final = 2
COLUMNS_MAX: Final = 116
JOBS_MAX: Final = 256
HOLDS: Final = "every invariant holds"
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
    """Prints to stdout; the exit code: 0 all invariants hold, 1 one is broken, a case strikes nothing, or `sites` are too few, 2 bad usage.

    `ring`: None, all of them, or the first where scenarios are named. `traces`: files whose exchanges are scenarios, too.
    """
    try:
        _usage(ring, jobs, sites=sites)
        if cancel or raised:
            _alone(searched=sites or stop or corpus is not None)
        scenarios = [*scenarios, *_traced(traces)]
        for name in scenarios:
            checked(Case(name, ring=ring or 1))
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
    enough = not sites or report_sites(result.total, judged=not scenarios) or bool(scenarios)
    return OK if enough and not result.total.failures else BROKEN


def _traced(files: Sequence[Path]) -> Iterator[str]:
    """The exchanges of these files; those that are passed over are told."""
    for file in files:
        names, others = names_in(file)
        for each in others:
            print(f"tidegate: passed over: {each}", file=sys.stderr)
        yield from names


def _usage(ring: int | None, jobs: int, *, sites: bool) -> None:
    if ring is not None:
        parse_ring(str(ring))
    if not 0 <= jobs <= JOBS_MAX:
        raise CaseInvalid(f"--jobs {jobs}: from 1 to {JOBS_MAX} processes, or 0 for one per core")
    if sites and ring not in {None, 1}:
        raise CaseInvalid("--sites: await sites are looked at in ring 1")


def _alone(*, searched: bool) -> None:
    if searched:
        raise CaseInvalid("--corpus, --first and --sites are of a search, not of one case")


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
    return checked(proven(Case(scenarios[0], schedule, struck, ring)))


# --- one case --------------------------------------------------------------------------------------


def _one(case: Case) -> int:
    """Plays it and says what happened. A fault that struck nothing is no success: there was nothing to look at."""
    with settled():
        played = play_once(case)
    for line in [*played.lines, *played.lost()]:
        print(line)
    holds = "no invariant is broken, but that says little" if played.unstruck else HOLDS
    print("\n".join(played.findings) or holds)
    return BROKEN if played.findings or played.unstruck else OK


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
