"""Many traces: replayed in as many processes as there are cores, a bounded number of them in flight."""

from __future__ import annotations

import functools
import multiprocessing
import os
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ProcessPoolExecutor
from typing import Any, Final

from gate.config_check import decode_config
from gate.config_plugins import Plugins
from gate.config_rules import ConfigInvalid
from gate.trace import Trace
from gate.trace_codec import TraceInvalid
from ops.plugins import load_plugins
from ops.replay_result import Class, Result, figures, verify, what_if

__all__ = ["results_of"]

ONE_PROCESS_MAX: Final = 32  # for so few traces processes cost more than they save
IN_FLIGHT_PER_CORE: Final = 8

_Job = tuple[str, Trace]


def results_of(
    found: Iterable[_Job],
    *,
    tables: Mapping[str, Any] | None = None,
    show: bool = False,
    cores: int | None = None,
) -> Iterator[Result]:
    """The result of each (source, trace), in their order. `tables`: the configuration that is asked about; None: verify."""
    cores = cores or len(os.sched_getaffinity(0))
    run = functools.partial(_result, tables=tables, show=show)
    first, rest = _first(found, ONE_PROCESS_MAX)
    if cores == 1 or rest is None:
        for each in first if rest is None else _chain(first, rest):
            yield run(each)
        return
    # No fork: a child would inherit the locks of threads that it does not have.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(cores, mp_context=context) as pool:
        waiting: deque[Future[Result]] = deque()
        for each in _chain(first, rest):
            waiting.append(pool.submit(run, each))
            if len(waiting) >= cores * IN_FLIGHT_PER_CORE:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def _first(found: Iterable[_Job], count: int) -> tuple[list[_Job], Iterator[_Job] | None]:
    """Up to `count` of them, and the rest where there are more."""
    iterator = iter(found)
    first: list[_Job] = []
    for each in iterator:
        first.append(each)
        if len(first) > count:
            return first, iterator
    return first, None


def _chain(first: Iterable[_Job], rest: Iterable[_Job]) -> Iterator[_Job]:
    yield from first
    yield from rest


def _result(job: _Job, *, tables: Mapping[str, Any] | None, show: bool) -> Result:
    source, trace = job
    try:
        plugins = _plugins()
        if tables is None:
            return verify(source, trace, show=show, plugins=plugins)
        config = decode_config(tables, plugins=plugins)
        return what_if(source, trace, config, show=show, plugins=plugins)
    except ConfigInvalid as error:
        # Its own: the one that is asked about was checked before.
        line = f"the recorded configuration is none of this version: {error.problems[0]}"
        before = figures(trace.records)
        return Result(source, trace.header.trace_id, Class.DIFFERENT, before, lines=(line,))
    except TraceInvalid as error:
        return _unreadable(job, f"it can't be replayed: {error}")
    except Exception as error:  # noqa: BLE001 - records that contradict each other can fail anywhere, and the others go on
        return _unreadable(job, f"it can't be replayed: {error!r}")


def _unreadable(job: _Job, line: str) -> Result:
    source, trace = job
    return Result(source, trace.header.trace_id, Class.UNREADABLE, figures(()), lines=(line,))


@functools.cache
def _plugins() -> Plugins:
    """Those that are installed; each process loads them once."""
    return load_plugins()
