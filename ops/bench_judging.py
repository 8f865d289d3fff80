"""What judging costs by itself, without sockets or tasks: answers of three sizes through the judge, in this process."""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from gate.config import FilterConfig, HoldConfig, RouteConfig
from gate.events import Complete, Frame
from gate.failure import Failure
from gate.filters.builtin import make_filters
from gate.filters.contract import FilterContext
from gate.judging import Judge
from gate.reader import ChatStreamReader
from ops.bench_answer import event_of, words
from ops.bench_figures import MICRO, Figure, Result, Row, figure, ratio

READ_BYTES: Final = 65_536  # what one read of a socket brings, as a rule
KIB: Final = 1024
REPEATS_MAX: Final = 2  # of one size in a round

DEFAULT: Final = RouteConfig().filters
SECRETS: Final = FilterConfig(kind="patterns", pattern_set="secrets")
TABLES: Final[Mapping[str, FilterConfig]] = {"no-secrets": SECRETS}
LISTS: Final[Mapping[str, tuple[str, ...]]] = {
    "filters = []": (),
    "default filters": DEFAULT,
    "default and patterns": (*DEFAULT, "no-secrets"),
}


class Judging:
    """One answer under one list of filters, given read by read: the CPU time of it so far, and what came of it."""

    def __init__(self, filters: Sequence[str]) -> None:
        self.seconds = 0.0
        self._given = self._released = 0
        self._condemned = ""
        self._judge = Judge(
            HoldConfig(),
            streams=True,
            held_bytes_max=READ_BYTES * 4,
            make_filters=lambda: make_filters(filters, FilterContext(1), TABLES),
        )
        self._judge.begin()

    def take(self, frames: list[Frame]) -> None:
        """What one read has brought."""
        self._given += len(frames)
        before = time.process_time()
        released, failure = self._judge.take(frames, 0.0)
        self._count(before, released, failure)

    def finish(self) -> None:
        """There is no more."""
        before = time.process_time()
        released, failure = self._judge.finish(Complete())
        self._count(before, released, failure)

    def _count(self, before: float, released: list[Frame], failure: Failure | None) -> None:
        self.seconds += time.process_time() - before
        self._released += len(released)
        self._condemned = self._condemned or (failure.code if failure is not None else "")

    @property
    def wrong(self) -> str:
        """Why this was no measurement of a good answer; "" if it was."""
        if self._condemned:
            return f"condemned: {self._condemned}"
        if self._released != self._given:
            return f"{self._released} of {self._given} frames were released"
        return ""


def answer_of(kib: int) -> tuple[list[bytes], int]:
    """An answer with so much text, as a socket would bring it, and how many events it has."""
    text = words(random.Random(kib))  # noqa: S311 - the same text in every run
    said: list[str] = []
    size = 0
    while size < kib * KIB:
        said.append(next(text))
        size += len(said[-1])
    data = b"".join(event_of(b'{"content":"%b"}' % word.encode()) for word in said)
    return [data[at : at + READ_BYTES] for at in range(0, len(data), READ_BYTES)], len(said)


def judge_once(
    answer: Iterable[bytes], lists: Mapping[str, Sequence[str]] = LISTS
) -> dict[str, Judging]:
    """One answer under every list, by turns at every read. Reading it is in nobody's time."""
    judgings = {label: Judging(filters) for label, filters in lists.items()}
    reader = ChatStreamReader(choices=1, event_bytes_max=READ_BYTES)
    for data in answer:
        frames = reader.feed(data).frames
        for each in judgings.values():
            each.take(frames)
    for each in judgings.values():
        each.finish()
    return judgings


def judging(sizes_kib: Sequence[int], rounds: int) -> Result:
    """Answers of every size under every list of filters, by turns; the first size is what the others are compared with."""
    answers = {kib: answer_of(kib) for kib in sizes_kib}
    spent: dict[tuple[str, int], list[float]] = {}
    wrong: list[str] = []
    for _ in range(rounds):
        for kib, (answer, _) in answers.items():
            for label, (seconds, found) in _judge_some(answer, sizes_kib[-1] // kib).items():
                spent.setdefault((label, kib), []).append(seconds)
                if found:
                    wrong.append(f"{kib} KiB, {label}: {found}")
    first = sizes_kib[0]
    rows: list[Row] = []
    for label in LISTS:
        smallest = [each / first for each in spent[label, first]]
        for kib in sizes_kib:
            seconds_of = spent[label, kib]
            figures = _figures(seconds_of, kib, answers[kib][1])
            linear = ratio(f"x {first} KiB", [each / kib for each in seconds_of], smallest)
            rows.append(Row(f"{kib} KiB, {label}", (*figures, linear)))
    return Result(
        name="judging",
        did="answers of a word per event through the judge, in this process; reading them is not counted",
        aim="the same time per KiB whatever the size",
        rows=tuple(rows),
        wrong=tuple(wrong),
    )


def _judge_some(answer: Sequence[bytes], times: int) -> dict[str, tuple[float, str]]:
    """The same answer several times where it is small, so that every size has something to measure: mean seconds, and what came wrong."""
    times = max(1, min(times, REPEATS_MAX))
    done = [judge_once(answer) for _ in range(times)]
    return {
        label: (
            sum(each[label].seconds for each in done) / times,
            next((each[label].wrong for each in done if each[label].wrong), ""),
        )
        for label in LISTS
    }


def _figures(seconds: Sequence[float], kib: int, events: int) -> tuple[Figure, ...]:
    return (
        figure("CPU ms", [each * 1000 for each in seconds]),
        figure("µs/KiB", [each / kib * MICRO for each in seconds]),
        figure("µs/event", [each / events * MICRO for each in seconds]),
    )
