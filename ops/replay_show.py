"""What many replays came to: the table for a terminal, and the same facts as JSON."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec
from rich import box
from rich.columns import Columns
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from ops.replay_result import Class, Figures, Result

__all__ = ["ROWS", "Totals", "as_json", "failed", "table", "totals", "unreadable"]

LINES_MAX: Final = 6  # of one trace
ROWS_MAX: Final = 12  # of a table of codes
TRACES_MAX: Final = 20  # that are told of one by one
ROWS: Final = (
    ("answers in full", "successes", "d"),
    ("of them recovered", "recovered", "d"),
    ("attempts", "attempts", "d"),
    ("first byte, median (s)", "first_byte_median", ".3f"),
    ("first byte, 95 % (s)", "first_byte_p95", ".3f"),
    ("mean time of a byte (s)", "mean_byte", ".3f"),
    ("longest held, mean (s)", "held_mean", ".3f"),
    ("wasted tokens", "wasted_tokens", "d"),
)
_UNREPLAYED: Final = frozenset({Class.COUNTED, Class.UNREADABLE, Class.UNSERVED})
_BAD: Final = frozenset({Class.DIFFERENT.value, Class.STOPPED.value, Class.UNREADABLE.value})
_QUIET: Final = frozenset({Class.SAME, Class.COUNTED, Class.TIMING, Class.EARLIER, Class.LATER})


class Side(msgspec.Struct, frozen=True):
    """Sums over the traces of one side. Times in seconds; `first_byte` are medians and 95th percentiles of those that have one."""

    successes: int
    recovered: int
    attempts: int
    first_byte_median: float
    first_byte_p95: float
    mean_byte: float
    held_mean: float
    wasted_tokens: int


class Totals(msgspec.Struct, frozen=True):
    """All traces. `after`: over the same traces, where they could be replayed to their end.

    `ends`: recorded terminals, with their codes; `verdicts`: traces in which there was one. `stopped_successes`: answers that were given in full and would not be now: each is a false positive, or a fault that nobody had seen.
    """

    traces: int
    classes: dict[str, int]
    before: Side
    after: Side | None
    stopped_successes: int
    diverged_share: float
    ends: dict[str, int] = {}
    verdicts: dict[str, int] = {}


def failed(results: Sequence[Result]) -> bool:
    """Whether an output or a decision differs that should be the same."""
    return any(each.kind is Class.DIFFERENT for each in results)


def unreadable(results: Sequence[Result]) -> bool:
    """Whether there is a trace that could not be replayed at all."""
    return any(each.kind is Class.UNREADABLE for each in results)


def totals(results: Sequence[Result]) -> Totals:
    """The sums."""
    classes = Counter(each.kind.value for each in results)
    compared = [
        each for each in results if each.after is not None and each.kind is not Class.DIVERGED
    ]
    whole = [each for each in results if each.kind not in _UNREPLAYED]
    diverged = classes[Class.DIVERGED.value]
    return Totals(
        traces=len(results),
        classes=dict(classes.most_common()),
        before=_side([each.before for each in (compared or results)]),
        after=_side([each.after for each in compared if each.after is not None]) if compared else None,
        stopped_successes=sum(each.kind is Class.STOPPED for each in results),
        diverged_share=diverged / len(whole) if whole else 0.0,
        ends=_counted(f"{each.before.kind} {each.before.code}".strip() for each in results if each.kind is not Class.UNREADABLE),
        verdicts=_counted(code for each in results for code in set(each.before.verdicts)),
    )  # fmt: skip


def _counted(found: Iterable[str]) -> dict[str, int]:
    """How many there are of each, the most frequent first, then by name."""
    counts = Counter(found)
    return {name: counts[name] for name in sorted(counts, key=lambda name: (-counts[name], name))}


def _side(found: Sequence[Figures]) -> Side:
    first = sorted(each.first_byte for each in found if each.first_byte >= 0)
    good = [each for each in found if each.kind == "success"]
    sizes = sum(each.size for each in found)
    return Side(
        successes=len(good),
        recovered=sum(each.attempts > 1 for each in good),
        attempts=sum(each.attempts for each in found),
        first_byte_median=statistics.median(first) if first else 0.0,
        first_byte_p95=first[min(len(first) - 1, int(len(first) * 0.95))] if first else 0.0,
        mean_byte=sum(each.mean_byte * each.size for each in found) / sizes if sizes else 0.0,
        held_mean=statistics.fmean(each.held for each in found) if found else 0.0,
        wasted_tokens=sum(each.wasted_tokens for each in found),
    )


def as_json(results: Sequence[Result], *, mode: str, seconds: float) -> bytes:
    """One JSON object: totals, and every trace without its drawing."""
    plain: list[Any] = [msgspec.structs.replace(each, timelines=()) for each in results]
    value = {"mode": mode, "seconds": round(seconds, 3), "totals": totals(results), "traces": plain}
    return msgspec.json.format(msgspec.json.encode(value), indent=1)


def table(results: Sequence[Result], *, mode: str, seconds: float) -> RenderableType:
    """Classes, totals of both sides, and the traces that somebody has to look at."""
    sums = totals(results)
    title = Text(f"{mode}: {sums.traces} traces in {seconds:.1f} s", style="bold")
    tables = [_counts("class", sums.classes), _counts("ended with", sums.ends)]
    tables += [_counts("verdict", sums.verdicts)] if sums.verdicts else []
    parts: list[RenderableType] = [title, Columns(tables), _sides(sums, mode)]
    loud = [each for each in results if each.kind not in _QUIET]
    parts += [_told(each) for each in loud[:TRACES_MAX]]
    if len(loud) > TRACES_MAX:
        parts.append(Text(f"... and {len(loud) - TRACES_MAX} more; --json has all of them"))
    return Group(*parts)


def _counts(what: str, counts: Mapping[str, int]) -> Table:
    shown = Table(box=box.SIMPLE)
    shown.add_column(what)
    shown.add_column("traces", justify="right")
    for name, count in [*counts.items()][:ROWS_MAX]:
        style = "red" if name in _BAD else ""
        shown.add_row(Text(name, style=style), str(count))
    if len(counts) > ROWS_MAX:
        shown.add_row("others", str(sum([*counts.values()][ROWS_MAX:])))
    return shown


def _sides(sums: Totals, mode: str) -> Table:
    after = sums.after if mode != "verify" else None
    shown = Table(box=box.SIMPLE)
    shown.add_column("")
    shown.add_column("recorded" if after is None else "before", justify="right")
    if after is not None:
        shown.add_column("after", justify="right")
    for label, name, form in ROWS:
        cells = [format(getattr(sums.before, name), form)]
        if after is not None:
            cells.append(format(getattr(after, name), form))
        shown.add_row(label, *cells)
    return shown


def _told(result: Result) -> Text:
    said = Text(f"{result.source} {result.trace_id}: ", style="bold")
    said.append(result.kind.value, style="red" if result.kind.value in _BAD else "yellow")
    for line in result.lines[:LINES_MAX]:
        said.append(f"\n  {line}", style="not bold")
    if len(result.lines) > LINES_MAX:
        said.append(f"\n  ... and {len(result.lines) - LINES_MAX} more", style="not bold")
    return said


def show(results: Sequence[Result], *, mode: str, seconds: float, console: Console) -> None:
    """Prints the table."""
    console.print(table(results, mode=mode, seconds=seconds))
