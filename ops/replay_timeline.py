"""What happened when, in one exchange, as data for a drawing: attempts as lanes, what was held, what went out, verdicts and plans."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from gate.trace import (
    Attempt,
    CallerEvent,
    Decision,
    Ping,
    Read,
    Record,
    Release,
    Term,
    Upstream,
)

__all__ = ["Lane", "Mark", "Timeline", "timeline"]

POINTS_MAX: Final = 400  # of one line; more is thinned out, and nobody could see it
_MARKED: Final = frozenset({"violation", "plan", "give_up", "seam", "remark"})


class Mark(msgspec.Struct, frozen=True):
    """Something at a moment, in seconds. `kind` chooses the colour."""

    at: float
    kind: str
    text: str


class Lane(msgspec.Struct, frozen=True):
    """An attempt: from its request to its end, how it ended, and its reads as (seconds, bytes)."""

    n: int
    provider: str
    began: float
    ended: float
    code: str
    status: int
    reads: tuple[tuple[float, int], ...]


class Timeline(msgspec.Struct, frozen=True):
    """One exchange. `released` is a sum over time, (seconds, bytes); `arrived` what was read of the attempt that is open, on top of what had been released before it: what is between them is held.

    Where an attempt fails, what was held of it is thrown away, and `arrived` falls.
    """

    seconds: float
    lanes: tuple[Lane, ...]
    arrived: tuple[tuple[float, int], ...]
    released: tuple[tuple[float, int], ...]
    marks: tuple[Mark, ...]
    terminal: str


def timeline(records: Sequence[Record]) -> Timeline:
    """The drawing of these records."""
    seconds = max((getattr(each, "t", 0) for each in records), default=0) / 1e6
    return Timeline(
        seconds=seconds,
        lanes=tuple(_lane(each, records, seconds) for each in records if isinstance(each, Attempt)),
        arrived=_arrived(records),
        released=_sums([(each.t, each.size) for each in records if isinstance(each, Release)]),
        marks=tuple(mark for each in records for mark in _marks(each)),
        terminal=next((_terminal(each) for each in records if isinstance(each, Term)), "none"),
    )


def _lane(attempt: Attempt, records: Sequence[Record], seconds: float) -> Lane:
    own: list[Any] = [
        each for each in records if isinstance(each, Read | Upstream) and each.n == attempt.n
    ]
    ends = [each for each in records if _ends(each, attempt.n)]
    closed = [each.t for each in own if isinstance(each, Upstream) and each.ev in {"left", "fault"}]
    reads = [(each.t, each.size) for each in own if isinstance(each, Read)]
    return Lane(
        n=attempt.n,
        provider=attempt.provider,
        began=attempt.t / 1e6,
        ended=(closed[-1] / 1e6 if closed else own[-1].t / 1e6) if own else seconds,
        code=str(getattr(ends[0], "code", "")) if ends else "",
        status=max((each.status for each in own if isinstance(each, Upstream)), default=0),
        reads=tuple((t / 1e6, size) for t, size in _thin(reads)),
    )


def _ends(record: Record, n: int) -> bool:
    return isinstance(record, Decision) and record.what == "attempt_ended" and record.attempt == n


def _marks(record: Record) -> list[Mark]:
    match record:
        case Decision() if record.what in _MARKED:
            said = " ".join(filter(None, (record.filter, record.code)))
            name = record.what.replace("_", " ")
            return [Mark(record.t / 1e6, record.what, f"{name}: {said}")]
        case CallerEvent():
            return [Mark(record.t / 1e6, "caller", f"caller: {record.ev}")]
        case Ping():
            return [Mark(record.t / 1e6, "ping", "ping")]
        case _:
            return []


def _terminal(term: Term) -> str:
    return f"{term.kind} {term.code}".strip() + f" ({term.status})"


def _arrived(records: Sequence[Record]) -> tuple[tuple[float, int], ...]:
    released = level = 0
    out: list[tuple[int, int]] = []
    for each in records:
        match each:
            case Release():
                released += each.size
                continue
            case Read():
                level += each.size
            case Decision(what="attempt_ended") if each.code != "complete":
                level = released
            case Attempt():
                level = max(level, released)
            case _:
                continue
        out.append((each.t, level))
    return tuple((t / 1e6, size) for t, size in _thin(out))


def _sums(steps: Sequence[tuple[int, int]]) -> tuple[tuple[float, int], ...]:
    total, out = 0, []
    for t, size in steps:
        total += size
        out.append((t, total))
    return tuple((t / 1e6, size) for t, size in _thin(out))


def _thin(points: Sequence[tuple[int, int]]) -> Sequence[tuple[int, int]]:
    step = -(-len(points) // POINTS_MAX)
    return points if step <= 1 else [*points[:-1:step], points[-1]]
