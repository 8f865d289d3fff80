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

DEFAULT: Final = RouteConfig().filters
SECRETS: Final = FilterConfig(kind="patterns", pattern_set="secrets")
TABLES: Final[Mapping[str, FilterConfig]] = {"no-secrets": SECRETS}
LISTS: Final[Mapping[str, tuple[str, ...]]] = {
    "filters = []": (),
    "default filters": DEFAULT,
    "default and a patterns filter": (*DEFAULT, "no-secrets"),
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
    """Answers of every size under every list of filters; the first size is what the others are compared with."""
    spent: dict[tuple[str, int], list[float]] = {}
    events: dict[int, int] = {}
    wrong: list[str] = []
    for kib in sizes_kib:
        answer, events[kib] = answer_of(kib)
        for _ in range(rounds):
            for label, done in judge_once(answer).items():
                spent.setdefault((label, kib), []).append(done.seconds)
                if done.wrong:
                    wrong.append(f"{kib} KiB, {label}: {done.wrong}")
    first = sizes_kib[0]
    rows: list[Row] = []
    for (label, kib), seconds in sorted(
        spent.items(), key=lambda each: list(LISTS).index(each[0][0])
    ):
        figures = _figures(seconds, kib, events[kib])
        smallest = [each / first for each in spent[label, first]]
        linear = ratio(f"x {first} KiB, per KiB", [each / kib for each in seconds], smallest)
        rows.append(Row(f"{kib} KiB, {label}", (*figures, linear)))
    return Result(
        name="judging",
        did="answers of a word per event through the judge, in this process; reading them is not counted",
        aim="the same time per KiB whatever the size",
        rows=tuple(rows),
        wrong=tuple(wrong),
    )


def _figures(seconds: Sequence[float], kib: int, events: int) -> tuple[Figure, ...]:
    return (
        figure("CPU ms", [each * 1000 for each in seconds]),
        figure("CPU µs/KiB", [each / kib * MICRO for each in seconds]),
        figure("CPU µs/event", [each / events * MICRO for each in seconds]),
    )
