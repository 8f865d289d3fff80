"""What is measured: each scenario as a function of its size and of the ends that it drives."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import partial
from types import MappingProxyType
from typing import Final

from msgspec import Struct

from ops.bench_ends import Ends, StreamLost, Streams
from ops.bench_figures import Figure, Result, Row, Sample, difference, figure, ratio
from ops.bench_judging import judging
from ops.bench_process import ProcessFailed
from ops.bench_requests import Desk
from ops.bench_subjects import (
    ASYNCIO,
    DIRECT,
    GATE,
    PLAIN,
    TAPED,
    TRIO,
    Subject,
    running_subjects,
)

EVERYONE: Final = (DIRECT, ASYNCIO, TRIO, GATE)
PROCESSES: Final = (ASYNCIO, TRIO, GATE)
CPU: Final = "CPU µs/chunk"
TIME: Final = "time µs/chunk"
KIB: Final = 1024

Act = Callable[[Streams], int]


class Size(Struct, frozen=True, kw_only=True):
    """How much is measured. Streams are open at the same time; a round is one turn of every subject."""

    rounds: int = 11
    lockstep_streams: int = 32
    lockstep_steps: int = 30
    single_steps: int = 150
    slow_streams: int = 100
    slow_gap_seconds: float = 0.02
    slow_seconds: float = 1.2
    slow_rounds: int = 4
    burst_streams: int = 8
    burst_chunks: int = 500
    requests: int = 40
    streams: int = 1000
    streams_steps: int = 10
    judging_kib: tuple[int, ...] = (64, 256, 1024)
    judging_rounds: int = 2


QUICK: Final = Size(
    rounds=5,
    lockstep_steps=15,
    single_steps=60,
    slow_seconds=0.6,
    slow_rounds=2,
    burst_chunks=200,
    requests=20,
    streams=200,
    streams_steps=5,
    judging_kib=(64, 256),
)


def _lockstep(size: Size) -> Result:
    """One chunk on each of some streams, the next when all have arrived: nothing can coalesce."""
    count, steps = size.lockstep_streams, size.lockstep_steps
    turns, wrong = _by_turns(EVERYONE, count, size.rounds, _steps_of(steps))
    return Result(
        name="lockstep",
        did=f"{count} streams, one chunk on each at a time; {steps} chunks a stream and round",
        aim="tidegate: at most 4 x the asyncio copier's CPU",
        rows=_rows(turns),
        wrong=wrong,
    )


def _single(size: Size) -> Result:
    """The same on one stream: every chunk finds the loop asleep."""
    steps = size.single_steps
    turns, wrong = _by_turns(EVERYONE, 1, size.rounds, _steps_of(steps))
    return Result(
        name="single",
        did=f"1 stream, one chunk at a time; {steps} chunks a round",
        aim="tidegate: at most 4 x the asyncio copier's CPU",
        rows=_rows(turns),
        wrong=wrong,
    )


def _slow(size: Size) -> Result:
    """Many streams at a model's pace."""
    turns, wrong = _by_turns(PROCESSES, size.slow_streams, size.slow_rounds, _pace_of(size))
    return Result(
        name="slow",
        did=f"{size.slow_streams} streams, a chunk every {size.slow_gap_seconds * 1000:g} ms on each; {size.slow_seconds:g} s a round",
        aim="",
        rows=_rows(turns, timed=False),
        wrong=wrong,
    )


def _steps_of(steps: int) -> Act:
    return lambda each: each.lockstep(steps)


def _pace_of(size: Size) -> Act:
    return lambda each: each.paced(size.slow_seconds, size.slow_gap_seconds)


def _coalesced(size: Size) -> Result:
    """As fast as it goes: many chunks in one read."""
    chunks = size.burst_chunks
    turns, wrong = _by_turns(
        EVERYONE, size.burst_streams, size.rounds, lambda each: each.burst(chunks)
    )
    return Result(
        name="coalesced",
        did=f"{size.burst_streams} streams, chunks as fast as they are taken; {chunks} a stream and round",
        aim="",
        rows=_rows(turns),
        wrong=wrong,
    )


def _filters(size: Size) -> Result:
    """What the default filters add, by turns with the same gateway's route that has none."""
    pair, chunks = (PLAIN, GATE), size.burst_chunks
    fast, wrong = _by_turns(
        pair, size.burst_streams, size.rounds * 2, lambda each: each.burst(chunks)
    )
    slow, wrong_slow = _by_turns(pair, size.slow_streams, size.slow_rounds, _pace_of(size))
    rows: list[Row] = []
    for label, turns in (("coalesced", fast), ("slow", slow)):
        without, usual = ([each.cpu_us for each in turns[name]] for name in pair)
        share = ratio("x filters = []", usual, without)
        added = difference("added µs/chunk", usual, without)
        rows += [
            Row(f"{label}, filters = []", (figure(CPU, without),)),
            Row(f"{label}, default filters", (figure(CPU, usual), added, share)),
        ]
    return Result(
        name="filters",
        did="one gateway, a route without filters and one with the default ones, as in coalesced and slow",
        aim="coalesced: at most 3 µs/chunk added; slow: at most 1.10 x",
        rows=tuple(rows),
        wrong=(*wrong, *wrong_slow),
    )


def _recording(size: Size) -> Result:
    """What a recorder adds that keeps every exchange, by turns with a gateway that has none."""
    pair, many = (GATE, TAPED), size.lockstep_streams
    rows: list[Row] = []
    wrong: list[str] = []
    with (
        closing(Ends()) as ends,
        running_subjects(ends.port, pair, streams_max=many) as subjects,
    ):
        found = {
            "lockstep": _turns_of(
                ends, subjects, many, size.rounds, _steps_of(size.lockstep_steps)
            ),
            "single": _turns_of(ends, subjects, 1, size.rounds, _steps_of(size.single_steps)),
        }
    for label, (turns, broken) in found.items():
        wrong += broken
        cpu = [[each.cpu_us for each in turns[name]] for name in pair]
        took: list[list[float | None]] = [[each.wall_us for each in turns[name]] for name in pair]
        without = (figure(CPU, cpu[0]), figure(TIME, took[0]))
        added = difference("added µs/chunk", cpu[1], cpu[0])
        share, delay = ratio("x CPU", cpu[1], cpu[0]), ratio("x time", took[1], took[0])
        rows += [
            Row(f"{label}, not recording", without),
            Row(f"{label}, recording", (figure(CPU, cpu[1]), figure(TIME, took[1]), added, share, delay)),
        ]  # fmt: skip
    return Result(
        name="recording",
        did="two gateways, of which one records every exchange, as in lockstep and single",
        aim="no delay that can be told from none",
        rows=tuple(rows),
        wrong=tuple(wrong),
    )


def _requests(size: Size) -> Result:
    """Short answers without a stream: what an exchange costs by itself."""
    turns: dict[str, list[Sample]] = {name: [] for name in EVERYONE}
    wrong: list[str] = []
    with (
        closing(Desk()) as desk,
        running_subjects(desk.port, EVERYONE, streams_max=1) as subjects,
    ):
        callers = [(each, desk.caller(each.port, each.model, each.name)) for each in subjects]
        for turn in range(size.rounds + 1):
            for subject, caller in callers:
                sample = _turn(subject, partial(caller.ask, size.requests))
                if turn:
                    turns[subject.name].append(sample)
        for _, caller in callers:
            wrong += caller.problems
    return Result(
        name="requests",
        did=f"short answers without a stream, one after the other on one connection; {size.requests} a round",
        aim="",
        rows=_rows(turns, of="request"),
        wrong=tuple(wrong),
    )


def _streams(size: Size) -> Result:
    """So many streams open at the same time, each looked at from its first byte to its last."""
    rows: list[Row] = []
    wrong: list[str] = []
    for name in PROCESSES:
        with _alone(name, size.streams) as (ends, subject):
            began = time.monotonic()
            streams = _opened(ends, subject, size.streams)
            opened = time.monotonic() - began
            sample = _turn(subject, partial(streams.lockstep, size.streams_steps))
            found = _finished(streams, subject)
            whole = size.streams - len(found)
            figures = (
                figure("right", [whole]),
                figure("opened in s", [opened]),
                figure(CPU, [sample.cpu_us]),
                figure("all in s", [time.monotonic() - began]),
            )
            rows.append(Row(name, figures))
            wrong += found
    return Result(
        name="streams",
        did=f"{size.streams} streams open at once, {size.streams_steps} chunks on each in lock-step, then all ended; right: every byte, or the text and one proper end",
        aim=f"tidegate: {size.streams} right",
        rows=tuple(rows),
        wrong=tuple(wrong),
    )


def _memory(size: Size) -> Result:
    """What a stream that is open and waits keeps in memory."""
    rows: list[Row] = []
    wrong: list[str] = []
    for name in PROCESSES:
        with _alone(name, size.streams) as (ends, subject):
            wrong += _finished(ends.open(subject.port, subject.model, ["the first"]), subject)
            before = _resident(subject)
            streams = _opened(ends, subject, size.streams)
            after = _resident(subject)
            each = None
            if before is not None and after is not None:
                each = (after - before) / KIB / size.streams
            figures = (
                figure("KiB/stream", [each]),
                figure("MiB before", [None if before is None else before / KIB**2]),
                figure("MiB with all", [None if after is None else after / KIB**2]),
            )
            rows.append(Row(name, figures))
            wrong += _finished(streams, subject)
    return Result(
        name="memory",
        did=f"resident memory of a new process with {size.streams} streams that have had their first chunk and wait, less that before, by stream",
        aim="tidegate: at most 120 KiB/stream",
        rows=tuple(rows),
        wrong=tuple(wrong),
    )


def _judging(size: Size) -> Result:
    return judging(size.judging_kib, size.judging_rounds)


SCENARIOS: Final[Mapping[str, Callable[[Size], Result]]] = MappingProxyType(
    {
        "lockstep": _lockstep,
        "single": _single,
        "slow": _slow,
        "coalesced": _coalesced,
        "filters": _filters,
        "recording": _recording,
        "requests": _requests,
        "streams": _streams,
        "memory": _memory,
        "judging": _judging,
    }
)


# --- how -----------------------------------------------------------------------------------------

Turns = Mapping[str, list[Sample]]


def _by_turns(
    names: Sequence[str], count: int, rounds: int, act: Act
) -> tuple[Turns, tuple[str, ...]]:
    """Lets every subject act on its own `count` streams in every round, after one that isn't counted; samples by subject, and what came wrong."""
    with (
        closing(Ends()) as ends,
        running_subjects(ends.port, names, streams_max=count) as subjects,
    ):
        return _turns_of(ends, subjects, count, rounds, act)


def _turns_of(
    ends: Ends, subjects: Sequence[Subject], count: int, rounds: int, act: Act
) -> tuple[Turns, tuple[str, ...]]:
    """The same with subjects that run already."""
    turns: dict[str, list[Sample]] = {each.name: [] for each in subjects}
    wrong: list[str] = []
    opened = [(each, _opened(ends, each, count)) for each in subjects]
    for turn in range(rounds + 1):
        for subject, streams in opened:
            sample = _turn(subject, partial(act, streams))
            if turn:
                turns[subject.name].append(sample)
    for subject, streams in opened:
        wrong += _finished(streams, subject)
    return turns, tuple(wrong)


@contextmanager
def _alone(name: str, streams: int) -> Iterator[tuple[Ends, Subject]]:
    with (
        closing(Ends()) as ends,
        running_subjects(ends.port, [name], streams_max=streams) as (subject,),
    ):
        yield ends, subject


def _opened(ends: Ends, subject: Subject, count: int) -> Streams:
    return ends.open(subject.port, subject.model, subject.names(count))


def _turn(subject: Subject, act: Callable[[], int]) -> Sample:
    began, before = time.perf_counter(), subject.cpu_seconds()
    events = act()
    after, wall = subject.cpu_seconds(), time.perf_counter() - began
    used = after - before if after is not None and before is not None else None
    return Sample(events, wall, used)


def _finished(streams: Streams, subject: Subject) -> list[str]:
    """Ends the streams; what came wrong."""
    streams.finish()
    found = streams.problems(verbatim=subject.verbatim)
    streams.close()
    return found


def _resident(subject: Subject) -> int | None:
    return None if subject.process is None else subject.process.resident_bytes()


def _rows(turns: Turns, *, timed: bool = True, of: str = "chunk") -> tuple[Row, ...]:
    """A row per subject: CPU beside the asyncio copier's, time beside the direct connection's."""
    yardstick = [each.cpu_us for each in turns[ASYNCIO]]
    rows: list[Row] = []
    for name, samples in turns.items():
        cpu = [each.cpu_us for each in samples]
        figures: list[Figure] = [figure(f"CPU µs/{of}", cpu), ratio("x asyncio", cpu, yardstick)]
        if timed:
            took: list[float | None] = [each.wall_us for each in samples]
            direct = [each.wall_us for each in turns[DIRECT]]
            figures += [figure(f"time µs/{of}", took), ratio("x direct", took, direct)]
        rows.append(Row(name, tuple(figures)))
    return tuple(rows)


def run_scenario(name: str, size: Size) -> Result:
    """Runs one. A stream that is lost, or a process that fails, is what came wrong; what was measured until then is not told."""
    try:
        return SCENARIOS[name](size)
    except (StreamLost, ProcessFailed) as error:
        return Result(
            name=name, did="broken off: nothing is measured", aim="", rows=(), wrong=(str(error),)
        )
