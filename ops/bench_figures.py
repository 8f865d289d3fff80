"""What the bench has found, as values: samples, their middle and their spread, row by row."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from msgspec import Struct

MICRO = 1e6


class Figure(Struct, frozen=True, kw_only=True):
    """One quantity of one row: the median, the lowest and the highest of its samples; no samples: it could not be read."""

    name: str  # with its unit
    median: float | None
    low: float | None
    high: float | None
    samples: tuple[float, ...]


class Row(Struct, frozen=True):
    """Who was measured, and what of it."""

    subject: str
    figures: tuple[Figure, ...]


class Result(Struct, frozen=True, kw_only=True):
    """One scenario: what was done, what came of it, and each stream that came wrong."""

    name: str
    did: str
    aim: str
    rows: tuple[Row, ...]
    wrong: tuple[str, ...] = ()
    seconds: float = 0.0
    elsewhere: float | None = None  # CPUs that were busy with something else meanwhile


class Sample(Struct, frozen=True):
    """One turn of one subject: so many events, in so much time and CPU time of its process (seconds; None: not known, or no process)."""

    events: int
    wall: float
    cpu: float | None

    @property
    def wall_us(self) -> float:
        """Microseconds per event."""
        return self.wall / self.events * MICRO

    @property
    def cpu_us(self) -> float | None:
        """Microseconds of CPU time per event."""
        return None if self.cpu is None else self.cpu / self.events * MICRO


def figure(name: str, samples: Sequence[float | None]) -> Figure:
    """The figure of these samples; those that are None were not to be had."""
    known = tuple(round(each, 4) for each in samples if each is not None)
    if not known:
        return Figure(name=name, median=None, low=None, high=None, samples=())
    return Figure(
        name=name, median=round(median(known), 4), low=min(known), high=max(known), samples=known
    )


def ratio(name: str, ours: Sequence[float | None], theirs: Sequence[float | None]) -> Figure:
    """How many times theirs ours is, turn by turn: what slows a whole turn down does not count."""
    pairs = zip(ours, theirs, strict=True)
    return figure(name, [a / b if a is not None and b else None for a, b in pairs])


def difference(name: str, ours: Sequence[float | None], theirs: Sequence[float | None]) -> Figure:
    """By how much ours is more than theirs, turn by turn."""
    pairs = zip(ours, theirs, strict=True)
    return figure(name, [a - b if a is not None and b is not None else None for a, b in pairs])
