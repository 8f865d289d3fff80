"""Judging one exchange's evidence: mend, let every filter judge, and say which frames may go. Pure; the evaluator carries it out.

What is released has passed every gating filter and the route's hold policy (`gate.hold`). A condemned attempt is dead: what still comes of it is dropped. Times are
passed in.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from gate.config import HoldConfig
from gate.events import Complete, Facts, Frame, Identity
from gate.evidence import EvidenceTail
from gate.failure import Failure, FailureKind
from gate.filters.contract import Filter, Passed, Verdict, combine
from gate.hold import Hold
from gate.mending import ChatMender

__all__ = ["Judge", "Judged"]


Judged: TypeAlias = tuple[list[Frame], Failure | None]


class Judge:
    """The judgement over all attempts of one exchange, one attempt at a time.

    `streams`: whether the caller's framing lets frames go before the terminal; `choices`: how many it asked for. `make_filters` gives fresh filters for an attempt.
    """

    def __init__(
        self,
        hold: HoldConfig,
        *,
        streams: bool,
        held_bytes_max: int,
        choices: int = 1,
        reasoning_field: str = "reasoning_content",
        make_filters: Callable[[], Sequence[Filter]],
    ) -> None:
        self.tail = EvidenceTail()
        self.facts: Facts | None = None
        self._hold = hold
        self._streams = streams
        self._let_go = False  # the cap was reached under over_cap = "release"
        self._held_bytes_max = held_bytes_max
        self._choices = choices
        self._reasoning_field = reasoning_field
        self._make_filters = make_filters
        self._begin()

    @property
    def identity(self) -> Identity | None:
        """The provider's id for the attempt, as far as it is known."""
        return self._mender.identity

    def _begin(self) -> None:
        self._mender = ChatMender(choices=self._choices, reasoning_field=self._reasoning_field)
        self._filters = self._make_filters()
        self._passed = self.tail.released
        self._policy = Hold(self._hold, streams=self._streams, released=self.tail.released)
        if self._let_go:
            self._policy.let_go()

    def begin(self) -> None:
        """A new attempt: what is left of the former one is forgotten."""
        self.drop()
        self._begin()

    def drop(self) -> None:
        """The attempt failed or was condemned."""
        self.tail.drop()
        self.facts = None

    def take(self, frames: list[Frame], now: float) -> Judged:
        """Frames that arrived -> the frames to release now, and the failure that condemns the attempt after that, if one does."""
        mended = self._mender.mend(frames)
        if not mended:
            return [], None
        position = self.tail.newest
        self.tail.extend(mended)
        verdicts = [(each, each.observe(mended, position)) for each in self._filters]
        failure = self._judged(verdicts)
        if failure is not None:
            return [], failure
        self._policy.arrived(mended, now)
        released = self.tick(now)
        if self.tail.held_bytes <= self._held_bytes_max:
            return released, None
        if self._hold.over_cap == "release" and self._streams:
            self._let_go = True
            self._policy.let_go()
            released += self.tick(now)
        over = self.tail.held_bytes > self._held_bytes_max
        return released, Failure(FailureKind.HELD_LIMIT) if over else None

    def tick(self, now: float) -> list[Frame]:
        """The frames to release by now, by what has been judged."""
        return self.tail.release(self._policy.limit(self.tail, self._passed, now))

    def wake(self) -> float | None:
        """When `tick` may release something although nothing arrived; None: never."""
        return self._policy.wake() if len(self.tail) else None

    def finish(self, end: Complete) -> Judged:
        """The attempt is complete -> everything that is held, or nothing and the failure that its whole shows."""
        frames, self.facts = self._mender.finish(end)
        position = self.tail.newest
        self.tail.extend(frames)
        facts = self.facts
        verdicts = [(each, each.observe(frames, position)) for each in self._filters if frames]
        verdicts += [(each, each.finish(self.tail.newest, facts)) for each in self._filters]
        failure = self._judged(verdicts)
        if failure is not None:
            return [], failure
        return self.tail.release(self.tail.newest), None

    def _judged(self, verdicts: Sequence[tuple[Filter, Verdict]]) -> Failure | None:
        """What the gating filters say together; one that only observes holds and condemns nothing."""
        gating = [verdict for each, verdict in verdicts if each.gating]
        verdict = combine(gating, newest=self.tail.newest)
        if isinstance(verdict, Passed):
            self._passed = verdict.position
            return None
        return verdict.failure
