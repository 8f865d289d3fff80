"""A trace as a script: what each attempt, the caller, the filters and the process are to say, and when.

Times become seconds on a virtual clock that starts at 0. Two records of the same microsecond are a nanosecond apart, in the order in which they were taken
down, so that no schedule of the replay can turn them round.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict, deque
from dataclasses import dataclass, field
from math import inf
from typing import Final

from actors.ports import Headers
from gate.trace import (
    Answered,
    Attempt,
    CallerEvent,
    Fact,
    Fields,
    Part,
    Read,
    Record,
    Trace,
    Upstream,
)

__all__ = ["SLACK_SECONDS", "AttemptScript", "Blocked", "Script", "Step", "due", "plain"]

SLACK_SECONDS: Final = 0.25
"""A replay that is this much ahead of the recording still keeps to its hours; one further ahead keeps to how long each thing took."""

EXACT_SECONDS: Final = 2e-6  # recorded times are rounded


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that an attempt's provider did: `connected`, `head`, `read`, `eof`, `fault`, or that it was `left`. `at` and `took` in seconds."""

    event: str
    at: float
    took: float = 0.0
    data: bytes = b""
    status: int = 0
    headers: Fields = ()
    fault: str = ""


@dataclass(slots=True)
class AttemptScript:
    """Attempt `n` of the recording, asked for with a body of this digest; empty: with any."""

    n: int
    at: float
    provider: str
    digest: bytes
    steps: list[Step] = field(default_factory=list)
    closing: float = 0.0  # seconds that it took to let its connection go
    used: bool = False


@dataclass(frozen=True, slots=True)
class Blocked:
    """The write that ended at byte `offset` of the response's body returned at `at`, after `took` seconds; or was cancelled then."""

    offset: int
    at: float
    took: float
    returned: bool = True


class Script:
    """What the records say, sorted by who is to say it."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.attempts: list[AttemptScript] = []
        self.asked = 0  # attempts that the replay has made
        self.parts: list[tuple[float, Part]] = []
        self.gone_at: float | None = None
        self.shutdown_at: float | None = None
        self.blocked: deque[Blocked] = deque()
        self._looks: list[float] = []
        self._answers: dict[tuple[int, str], list[tuple[float, Answered]]] = defaultdict(list)
        self._facts: dict[tuple[str, str], deque[tuple[float, Fact]]] = defaultdict(deque)
        for index, record in enumerate(trace.records):
            self._sort(index, record)

    def _sort(self, index: int, record: Record) -> None:
        match record:
            case Part():
                self.parts.append((_seconds(record.t, index), record))
            case CallerEvent():
                self._caller(_seconds(record.t, index), record)
            case Attempt():
                at = _seconds(record.t, index)
                self.attempts.append(AttemptScript(record.n, at, record.provider, record.sha))
            case Upstream(ev="closed"):
                attempt = self.attempts[record.n - 1]
                last = attempt.steps[-1].at if attempt.steps else 0.0
                attempt.closing = max(0.0, round(_seconds(record.t, index) - last, 6))
            case Upstream() | Read():
                self.attempts[record.n - 1].steps.append(_step(_seconds(record.t, index), record))
            case Answered():
                kept = self._answers[record.n, record.name]
                kept.append((_seconds(record.t, index), record))
            case Fact() if record.what == "look":
                self._looks.append(_seconds(record.t, index))
            case Fact():
                kept_facts = self._facts[record.what, record.name]
                kept_facts.append((_seconds(record.t, index), record))
            case _:
                pass

    def _caller(self, at: float, record: CallerEvent) -> None:
        if record.ev in {"blocked", "stuck"}:
            returned = record.ev == "blocked"
            self.blocked.append(Blocked(record.off, at, record.us / 1e6, returned))
        elif record.ev == "shutdown":
            self.shutdown_at = at
        elif record.ev == "gone" and self.gone_at is None:
            self.gone_at = at

    def attempt(self, digest: bytes) -> AttemptScript | None:
        """The next recorded attempt that was made with this very body; None where there is none, and nobody can tell what would have come."""
        self.asked += 1
        for attempt in self.attempts:
            if attempt.digest in {digest, b""} and not attempt.used:
                attempt.used = True
                return attempt
        return None

    def answers(self, n: int, name: str) -> deque[tuple[float, Answered]]:
        """What filter `name` said in attempt `n`, and when."""
        return deque(self._answers[n, name])

    def fact(self, what: str, name: str = "") -> tuple[float, Fact] | None:
        """What the process says next to this question, and when."""
        waiting = self._facts[what, name]
        return waiting.popleft() if waiting else None

    def look_after(self, due: float) -> float:
        """When the recording looked at a hold that was due then; never, where something else came first."""
        index = bisect_left(self._looks, due - EXACT_SECONDS)
        return max(due, self._looks[index]) if index < len(self._looks) else inf

    def standing(self, what: str, now: float) -> Fact | None:
        """The last that the process had said to this question by `now`."""
        said = [fact for at, fact in self._facts[what, ""] if at <= now]
        return said[-1] if said else None


def due(at: float, took: float, now: float) -> float:
    """When something returns that is asked for at `now`, and in the recording returned at `at` after `took` seconds."""
    return at if now + SLACK_SECONDS >= at - took else now + took


def _seconds(t: int, index: int) -> float:
    return t / 1e6 + index / 1e9


def _step(at: float, record: Upstream | Read) -> Step:
    if isinstance(record, Read):
        return Step("read", at, record.w / 1e6, record.b)
    return Step(record.ev, at, status=record.status, headers=record.headers, fault=record.fault)


def plain(fields: Fields) -> Headers:
    """Kept header fields as the ports speak of them."""
    return [(name.encode("latin-1"), value.encode("latin-1")) for name, value in fields]
