"""A trace as a script: what each attempt, the caller, the filters and the process are to say, and when.

Times become seconds on a virtual clock that starts at 0. Two records of the same microsecond are 10 ps apart, in the order in which they were taken
down, so that no schedule of the replay can turn them round.

A replay computes in no time, and so would be ahead of its recording, more so where the loop was busy. One that verifies keeps to the recording's hours instead: an attempt begins and ends when it did, what
was read arrives no sooner than the judge got to it, and a timer runs out where it ran out, or not at all.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict, deque
from dataclasses import dataclass, field, replace
from math import inf
from typing import Final

from actors.ports import Headers
from actors.world import Moment
from gate.trace import (
    Answered,
    Attempt,
    CallerEvent,
    Decision,
    End,
    Fact,
    Fields,
    Header,
    Part,
    Read,
    Record,
    Trace,
    Upstream,
)

__all__ = ["SLACK_SECONDS", "Answer", "AttemptScript", "Blocked", "Script", "Step", "plain"]

SLACK_SECONDS: Final = 0.25
"""A replay that is this much ahead of the recording still keeps to its hours; one further ahead keeps to how long each thing took."""

EXACT_SECONDS: Final = 2e-6  # recorded times are rounded
TICK_SECONDS: Final = 5e-12  # less than there is between two records

_MOMENTS: Final = frozenset(each.value for each in Moment)
_TOLD: Final = frozenset(
    {Moment.READY, Moment.DECIDE, Moment.FAILED}
)  # by the recording, and not by the clock


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
    handed: float = 0.0


@dataclass(slots=True)
class AttemptScript:
    """Attempt `n` of the recording, asked for with a body of this digest; empty: with any. `over`: when its end had been judged; `expires`: when one of its clocks ran out; `late`: too late for its last read to count."""

    n: int
    at: float
    provider: str
    digest: bytes
    steps: list[Step] = field(default_factory=list)
    closing: float = 0.0  # seconds that it took to let its connection go
    over: float = 0.0
    failed: bool = False
    expires: float = inf
    late: bool = False
    used: bool = False


@dataclass(frozen=True, slots=True)
class Blocked:
    """The write that ended at byte `offset` of the response's body returned at `at`, after `took` seconds; or was cancelled then."""

    offset: int
    at: float
    took: float
    returned: bool = True


@dataclass(frozen=True, slots=True)
class Answer:
    """What a filter that awaits said, and when it was seen; `late`: its time was over."""

    at: float
    said: Answered
    late: bool = False


class Script:
    """What the records say, sorted by who is to say it. `keeps`: the replay keeps to the recording's hours."""

    def __init__(self, trace: Trace, *, keeps: bool = False) -> None:
        self.trace = trace
        self.keeps = keeps
        self.attempts: list[AttemptScript] = []
        self.asked = 0  # attempts that the replay has made
        self.parts: list[tuple[float, Part]] = []
        self.gone_at: float | None = None
        self.shutdown_at: float | None = None
        self.blocked: deque[Blocked] = deque()
        self.ends = max((_seconds(each.t, 0) for each in trace.records if not isinstance(each, Header | End)), default=0.0)  # fmt: skip
        self.came: float | None = None  # when the newest word of a provider had come
        self._moments: dict[str, list[float]] = defaultdict(list)
        self._holds: list[tuple[float, float]] = []  # (when it was looked at, the newest batch)
        self._drains: dict[int, Fact] = {}  # by the number of the decision
        self._decided = 0
        self._condemned = False
        self._current: AttemptScript | None = None
        self._answers: dict[tuple[int, str], list[Answer]] = defaultdict(list)
        self._newest: list[Answer] = []
        self._facts: dict[tuple[str, str], deque[tuple[float, Fact]]] = defaultdict(deque)
        for index, record in enumerate(trace.records):
            self._sort(index, record)
        self._hand_over()

    def _sort(self, index: int, record: Record) -> None:
        at = _seconds(record.t, index) if not isinstance(record, Header | End) else 0.0
        match record:
            case Part():
                self.parts.append((at, record))
            case CallerEvent():
                self._caller(at, record)
            case Attempt():
                self.attempts.append(AttemptScript(record.n, at, record.provider, record.sha))
                self._condemned = False
            case Upstream() | Read():
                self._provider(at, record)
            case Answered():
                self._newest = self._answers[record.n, record.name]
                self._newest.append(Answer(at, record))
            case Fact():
                self._fact(at, record)
            case Decision(what="attempt_ended") if self.attempts and not self.attempts[-1].over:
                self.attempts[-1].over = at
                self.attempts[-1].failed = record.code != "complete" and not self._condemned
            case Decision(what="violation"):
                self._condemned = True
            case _:
                pass

    def _provider(self, at: float, record: Upstream | Read) -> None:
        attempt = self.attempts[record.n - 1]
        if isinstance(record, Upstream) and record.ev == "closed":
            last = attempt.steps[-1].at if attempt.steps else 0.0
            attempt.closing = max(0.0, round(at - last, 6))
        else:
            attempt.steps.append(_step(at, record))

    def _fact(self, at: float, record: Fact) -> None:
        if record.what in _MOMENTS:
            self._moment(at, record)
        elif record.what == "drain_ends":
            self._drains[len(self._moments[Moment.DECIDE.value])] = record
        else:
            self._facts[record.what, record.name].append((at, record))

    def _caller(self, at: float, record: CallerEvent) -> None:
        if record.ev in {"blocked", "stuck"}:
            returned = record.ev == "blocked"
            self.blocked.append(Blocked(record.off, at, record.us / 1e6, returned))
        elif record.ev == "shutdown":
            self.shutdown_at = at
        elif record.ev == "gone" and self.gone_at is None:
            self.gone_at = at

    def _moment(self, at: float, record: Fact) -> None:
        self._moments[record.what].append(at)
        if record.what == Moment.HOLD.value:
            self._holds.append((at, float(record.value or 0.0) / 1e6))
        elif record.what == Moment.FILTER.value and self._newest:
            self._newest[-1] = replace(self._newest[-1], late=True)
        elif record.what == Moment.CLOCK.value and self.attempts:
            attempt = self.attempts[-1]
            attempt.expires = attempt.steps[-1].at if attempt.steps else at
            attempt.late = bool(attempt.steps) and attempt.steps[-1].event == "read"

    def _hand_over(self) -> None:
        """Says of each read when the judge had got to it: not before it looked at a hold, knowing only of what had come earlier."""
        seen = [newest for _, newest in self._holds]
        for attempt in self.attempts:
            last = 0.0
            for index, step in enumerate(attempt.steps):
                if step.event == "read":
                    known = bisect_left(seen, step.at - EXACT_SECONDS)
                    looked = self._holds[known - 1][0] if known else 0.0
                    last = max(step.at, looked, last) + TICK_SECONDS
                    attempt.steps[index] = replace(step, handed=last)
            # A clock ran out before its last read could be handed on, or behind it.
            behind = -TICK_SECONDS / 2 if attempt.late else TICK_SECONDS / 2
            attempt.expires = max(attempt.expires, last + behind)
        for answers in self._answers.values() if self.keeps else ():
            answers[:] = [replace(each, at=self._seen(each)) for each in answers]

    def _seen(self, answer: Answer) -> float:
        """When the judge saw an answer: when it looked at its hold next; where it did not, at once, or never, since the attempt had failed by itself."""
        index = bisect_left(self._holds, (answer.at, 0.0))
        looked = self._holds[index][0] if index < len(self._holds) else inf
        attempt = max((each for each in self.attempts if each.at <= answer.at), key=lambda each: each.n)  # fmt: skip
        if looked < attempt.over:
            return looked - TICK_SECONDS
        return max(answer.at, attempt.over + TICK_SECONDS) if attempt.failed else answer.at

    def place(self) -> None:
        """An attempt has got its place, and is the next to be asked for."""
        self._current = self.attempts[self.asked] if self.asked < len(self.attempts) else None

    def attempt(self, digest: bytes) -> AttemptScript | None:
        """The next recorded attempt that was made with this very body; None where there is none, and nobody can tell what would have come."""
        self.asked += 1
        for attempt in self.attempts:
            if attempt.digest in {digest, b""} and not attempt.used:
                attempt.used = True
                return attempt
        return None

    def answers(self, n: int, name: str) -> deque[Answer]:
        """What filter `name` said in attempt `n`."""
        return deque(self._answers[n, name])

    def fact(self, what: str, name: str = "") -> tuple[float, Fact] | None:
        """What the process says next to this question, and when."""
        waiting = self._facts[what, name]
        return waiting.popleft() if waiting else None

    def wake(self, what: Moment, due: float) -> float:
        """When the recording came to what was due then; never, where it did not."""
        if what is Moment.CLOCK:
            return self._current.expires if self._current is not None and due < inf else due
        if what is Moment.FILTER:
            return inf  # the one who is asked says that it came too late
        moments = self._moments[what.value]
        index = bisect_left(moments, due - EXACT_SECONDS)
        return max(due, moments[index]) if index < len(moments) else inf

    def look(self, what: Moment, now: float) -> float:
        """The moment that it is for this purpose."""
        if what is Moment.DECIDE:
            self._decided += 1
        moments, told = self._moments[what.value], what in _TOLD
        index = 0 if told else bisect_right(moments, now) - 1
        if not 0 <= index < len(moments) or (not told and now - moments[index] > EXACT_SECONDS):
            return now
        exact = round(moments[index], 6)
        if told:
            del moments[0]
        return exact

    @property
    def drain_ends(self) -> Fact | None:
        """What the process said about the drain when this was decided."""
        return self._drains.get(self._decided)

    def due(self, at: float, took: float, now: float) -> float:
        """When something returns that is asked for at `now`, and in the recording returned at `at` after `took` seconds."""
        return at if self.keeps or now + SLACK_SECONDS >= at - took else now + took


def _seconds(t: int, index: int) -> float:
    return t / 1e6 + index / 1e11


def _step(at: float, record: Upstream | Read) -> Step:
    if isinstance(record, Read):
        return Step("read", at, record.w / 1e6, record.b)
    return Step(record.ev, at, status=record.status, headers=record.headers, fault=record.fault)


def plain(fields: Fields) -> Headers:
    """Kept header fields as the ports speak of them."""
    return [(name.encode("latin-1"), value.encode("latin-1")) for name, value in fields]
