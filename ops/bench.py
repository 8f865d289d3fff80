"""The bench: bounded load on loopback, and what the gateway costs beside a direct connection and two byte copiers.

Every figure is the median of samples that were taken by turns, with its lowest and highest. Nothing here judges a time: aims are printed beside what was found, and only a stream
that came wrong makes it fail.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ops.bench_figures import Figure, Result
from ops.bench_machine import Elsewhere, Machine, allow_descriptors, cores, machine
from ops.bench_scenarios import QUICK, SCENARIOS, Size, run_scenario

COLUMNS_MAX: Final = 132
WRONG_SHOWN: Final = 8
SPARE_DESCRIPTORS: Final = 128
MANY: Final = frozenset(
    {"streams", "memory"}
)  # scenarios that open as many streams as are asked for
ELSEWHERE_NOTED: Final = 0.2  # CPUs


class Report(Struct, frozen=True, kw_only=True):
    """One run."""

    machine: Machine
    size: Size
    results: tuple[Result, ...]
    seconds: float

    @property
    def wrong(self) -> int:
        """How many streams came wrong, or scenarios broke off."""
        return sum(len(each.wrong) for each in self.results)


def measure(
    names: Sequence[str], size: Size, tell: Callable[[str], object] = lambda _: None
) -> Report:
    """Runs the scenarios of these names, one after the other; `tell` hears which one is next. Raises `DescriptorsMissing` before the first."""
    if not MANY.isdisjoint(names):
        allow_descriptors(2 * size.streams + SPARE_DESCRIPTORS)
    where, began = machine(), time.monotonic()
    results: list[Result] = []
    for name in names:
        tell(name)
        elsewhere, started = Elsewhere(), time.monotonic()
        result = run_scenario(name, size)
        seconds = round(time.monotonic() - started, 1)
        results.append(replace(result, seconds=seconds, elsewhere=elsewhere.cpus()))
    return Report(
        machine=where,
        size=size,
        results=tuple(results),
        seconds=round(time.monotonic() - began, 1),
    )


def run_bench(
    only: Sequence[str] = (), *, quick: bool = False, streams: int | None = None, json: str = ""
) -> int:
    """Measures and shows; the exit code: 1 where a stream came wrong. `json`: a file for the same facts, "-" for stdout instead of the tables."""
    size = QUICK if quick else Size()
    if streams is not None:
        size = replace(size, streams=streams)
    console = Console(stderr=json == "-")
    with console.status("") as status:
        report = measure(
            only or list(SCENARIOS), size, lambda name: status.update(f"Measuring: {name} ...")
        )
    if json == "-":
        print(facts(report).decode())
    else:
        show(report, console)
        if json:
            Path(json).write_bytes(facts(report) + b"\n")
    for result in report.results:
        for line in result.wrong[:WRONG_SHOWN]:
            print(f"{result.name}: {line}", file=sys.stderr)
    return 1 if report.wrong else 0


def facts(report: Report) -> bytes:
    """The report as JSON, with how much came wrong."""
    whole = {**msgspec.to_builtins(report), "wrong": report.wrong}
    return msgspec.json.format(msgspec.json.encode(whole), indent=2)


# --- what is shown -------------------------------------------------------------------------------


def show(report: Report, console: Console) -> None:
    """A table per scenario, and what has to be known to read them."""
    width = min(console.width, COLUMNS_MAX)
    for line in (_where(report.machine), *map(_table, report.results)):
        console.print(line, width=width)
    for result in report.results:
        if result.wrong:
            found = Text(f"{result.name}: {len(result.wrong)} came wrong", style="bold red")
            console.print(found, width=width)
    end = "no stream came wrong" if not report.wrong else "streams came wrong"
    console.print(Text(f"{report.seconds:g} s in all; {end}.", style="bold"), width=width)
    console.print(Text(_READING, style="dim"), width=width)


_READING: Final = (
    "Each figure: median (lowest to highest) of the rounds, in which all take their turns; a ratio is made within each round. CPU is the measured process's own, "
    "user and system. Time has this program's own two ends of every stream in it, and waits for whatever else the machine does: distrust it, and the highest values, "
    "where something else was busy. A dash: there is no such process, or the system doesn't tell (CPU and memory of another process are read on Linux only)."
)


def _where(where: Machine) -> Text:
    packages = ", ".join(f"{name} {version}" for name, version in where.packages.items())
    return Text(
        f"{where.system}; {where.processor}; {where.cores} cores; {where.python}; {packages}; "
        f"load average before: {where.load:g}"
    )


def _table(result: Result) -> Table:
    names = list(dict.fromkeys(each.name for row in result.rows for each in row.figures))
    table = Table(
        title=Text(f"{result.name}: {result.did}", style="bold"),
        caption=Text(_below(result)),
        title_justify="left",
        caption_justify="left",
        box=box.SIMPLE_HEAD,
    )
    table.add_column("")
    for name in names:
        table.add_column(name, justify="right")
    for row in result.rows:
        found = {each.name: each for each in row.figures}
        table.add_row(row.subject, *(_cell(found.get(name)) for name in names))
    return table


def _below(result: Result) -> str:
    said = [f"aim: {result.aim}"] if result.aim else []
    said.append(f"{result.seconds:g} s")
    if result.elsewhere is not None and result.elsewhere >= ELSEWHERE_NOTED:
        said.append(
            f"meanwhile {result.elsewhere:g} of {cores()} CPUs were busy with something else"
        )
    return "; ".join(said)


def _cell(found: Figure | None) -> str:
    if found is None or found.median is None or found.low is None or found.high is None:
        return "-"
    if len(found.samples) == 1:
        return _number(found.median)
    return f"{_number(found.median)} ({_number(found.low)}-{_number(found.high)})"


def _number(value: float) -> str:
    """Three or so digits that mean something."""
    if value == int(value) or abs(value) >= 100:
        return f"{value:.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"
