"""The command `tidegate replay`: reads traces, replays them, and tells what came of it."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.progress import track

from gate.trace import Trace
from gate.trace_codec import TraceInvalid
from ops.replay_html import page
from ops.replay_many import results_of
from ops.replay_result import Result
from ops.replay_show import as_json, failed, show, unreadable
from ops.trace import count_traces, files_of, read_traces, write_traces

__all__ = ["run_replay"]

USAGE: Final = 2


def run_replay(
    paths: Sequence[Path],
    *,
    tables: Mapping[str, Any] | None = None,
    as_text: bool = True,
    report: Path | None = None,
    save: Path | None = None,
) -> int:
    """Replays all traces of these files and prints the result; the exit code. `tables`: the other configuration; `report`: where the HTML goes; `save`: where the traces do."""
    began = time.monotonic()
    broken: list[str] = []
    files = files_of(paths)
    if save is not None:
        written = write_traces(save, (trace for _, trace in _traces(files, broken)))
        print(f"tidegate: {written} traces written to {save}", file=sys.stderr)
        files = [save]
    console = Console(stderr=True)
    mode = "verify" if tables is None else "what if"
    results: list[Result] = list(
        track(
            results_of(_traces(files, broken), tables=tables, show=report is not None),
            total=sum(map(count_traces, files)),
            description=mode,
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
    )
    seconds = time.monotonic() - began
    if report is not None:
        report.write_text(page(results, mode=mode, seconds=seconds))
    if as_text:
        show(results, mode=mode, seconds=seconds, console=Console())
    else:
        sys.stdout.write(as_json(results, mode=mode, seconds=seconds).decode() + "\n")
    for line in broken:
        print(f"tidegate: {line}", file=sys.stderr)
    if not results and not broken:
        print(f"tidegate: there is no trace in {', '.join(map(str, paths))}", file=sys.stderr)
    if broken or not results or unreadable(results):
        return USAGE
    return 1 if failed(results) else 0


def _traces(files: Sequence[Path], broken: list[str]) -> Iterator[tuple[str, Trace]]:
    """(file, trace) of all that can be read; what can't is told in `broken`."""
    for path in files:
        try:
            for trace in read_traces(path):
                yield path.name, trace
        except (TraceInvalid, OSError) as error:
            broken.append(f"{path}: {error}")
