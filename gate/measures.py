"""What an exchange made its caller wait for, and what its attempts have cost. Pure; the evaluator says what happened, and when.

Nothing is kept per frame: a batch is one entry until it is released, and costs the same whatever is held. Times are passed in, in seconds on the exchange's clock; positions
are those of `gate.evidence`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Final

from gate.events import AudioDelta, Frame, ReasoningDelta, RefusalDelta, TextDelta, ToolDelta
from gate.observe import Measured, Spent, TokenKind

__all__ = ["BATCHES_MAX", "Measures", "Stay"]

BATCHES_MAX: Final = (
    256  # that are told apart while they are held, an even number; of more, the older ones in pairs
)
_TOKENS: Final = frozenset({TextDelta, ReasoningDelta, RefusalDelta, ToolDelta, AudioDelta})


class Stay:
    """How long frames stay between their arrival and their release: `longest`, None before the first release."""

    def __init__(self) -> None:
        self.longest: float | None = None
        self.released = 0  # the position before which everything is gone
        self._newest = 0
        self._batches: deque[tuple[int, float]] = deque()  # (position behind it, arrival)
        self._waits_since: float | None = None  # of frames that have no position yet

    def arrive(self, newest: int, at: float, *, waiting: bool) -> None:
        """A batch has arrived, and the evidence ends at `newest` now. `waiting`: some frames have no position yet, because mending or a seam holds them.

        Such frames count from the arrival of the first of them, those behind it from the batch that brought the first one out.
        """
        if newest > self._newest:
            since = self._waits_since
            self._batches.append((newest, at if since is None else since))
            self._newest = newest
            self._waits_since = None
            if len(self._batches) > BATCHES_MAX:
                self._pair()
        if not waiting:
            self._waits_since = None
        elif self._waits_since is None:
            self._waits_since = at

    def release(self, position: int, now: float) -> None:
        """Everything before `position` goes, and that is more than went before."""
        batches = self._batches
        if batches:
            self.longest = max(self.longest or 0.0, now - batches[0][1])
        while batches and batches[0][0] <= position:
            batches.popleft()
        self.released = position

    def truncate(self, newest: int) -> None:
        """What stood behind `newest`, or had no position yet, is gone unseen."""
        cut: tuple[int, float] | None = None
        while self._batches and self._batches[-1][0] > newest:
            cut = self._batches.pop()
        begins = self._batches[-1][0] if self._batches else self.released
        if cut is not None and newest > begins:
            self._batches.append((newest, cut[1]))
        self._newest = newest
        self._waits_since = None

    def _pair(self) -> None:
        """Two batches become one that came with the first of them; the newest stays by itself."""
        batches = list(self._batches)
        pairs = zip(batches[:-1:2], batches[1:-1:2], strict=True)
        self._batches = deque((later[0], earlier[1]) for earlier, later in pairs)
        self._batches.append(batches[-1])

    def __repr__(self) -> str:
        return f"Stay(longest={self.longest}, {len(self._batches)} batches held)"


class _Cost:
    """What one attempt has produced: frames with tokens, and between which positions its frames are kept."""

    def __init__(self, start: int) -> None:
        self.start = start
        self.newest = start
        self.kept = start
        self.frames = 0
        self.reported = 0
        self.code = ""  # why it failed
        self.over = False

    def spent(self, released: int, code: str) -> Iterator[Spent]:
        """By what became of them; `code`: why the attempt is not over, if it isn't."""
        complete = self.over and not self.code
        seen = (min(self.kept, released) if self.over else released) - self.start
        if self.reported and (complete or seen > 0):
            yield Spent(TokenKind.REPORTED, self.reported)
            return
        counted = self.reported or self.frames
        # A complete attempt is in the answer whole, even if mending made fewer frames of it.
        shown = counted if complete else min(counted, max(seen - self._others, 0))
        if shown:
            yield Spent(TokenKind.ESTIMATED, shown)
        if counted > shown:
            yield Spent(TokenKind.WASTED, counted - shown, self.code or code)

    @property
    def _others(self) -> int:
        """Frames without tokens: a role, as a rule, and so at the beginning."""
        return max(self.newest - self.start - self.frames, 0)


class Measures:
    """One exchange. `ready_at`: when its request was whole; `streams`: the caller sees releases as they come; `reasoning`: it sees reasoning before the answer."""

    def __init__(self, ready_at: float, *, streams: bool, reasoning: bool) -> None:
        self.stay = Stay()
        self._ready_at = ready_at
        self._streams = streams
        self._content = _content_types(reasoning=reasoning)
        self._content_at: float | None = None
        self._first_release: float | None = None
        self._last_release = 0.0
        self._costs: list[_Cost] = []

    def begin(self, newest: int) -> None:
        """An attempt has begun to answer; its frames come behind `newest`."""
        self.stay.truncate(newest)
        self._costs.append(_Cost(newest))

    def arrive(
        self, frames: Sequence[Frame], at: float, *, newest: int, waiting: bool = False
    ) -> None:
        """A batch of the attempt has arrived and has been judged; see `Stay.arrive`."""
        self.stay.arrive(newest, at, waiting=waiting)
        cost = self._costs[-1]
        cost.newest = newest
        cost.frames += _with_tokens(frames)
        if self._content_at is None and any(map(self._begins, frames)):
            self._content_at = at

    def release(self, position: int, now: float) -> None:
        """Everything before `position` goes to the caller, and that is more than went before."""
        self.stay.release(position, now)
        if self._first_release is None:
            self._first_release = now
        self._last_release = now

    def end(self, newest: int, *, code: str, reported: int) -> None:
        """The attempt is over: what is kept of it ends at `newest`. `code`: why it failed, empty if it is complete; `reported`: its completion tokens, 0 where nothing says so.

        One that never began to answer has nothing to tell.
        """
        if not self._costs or self._costs[-1].over:
            return
        self.stay.truncate(newest)
        cost = self._costs[-1]
        cost.kept, cost.code, cost.reported, cost.over = newest, code, reported, True
        for each in self._costs:  # what earlier ones left may have been given up since
            each.kept = min(each.kept, newest)

    def measured(self, code: str) -> Measured:
        """All of it, at the exchange's end. `code`: why that came, empty if all is well."""
        spent = tuple(part for each in self._costs for part in each.spent(self.stay.released, code))
        tokens = sum(each.tokens for each in spent if each.kind is not TokenKind.WASTED)
        first, content = self._first_release, self._content_at
        if first is None or not self._streams:
            return Measured(self.stay.longest, spent=spent)
        lasted = self._last_release - first
        return Measured(
            self.stay.longest,
            ttft_seconds=first - self._ready_at,
            # What a cap let go may have had no answer in it.
            ttft_added_seconds=None if content is None else max(first - content, 0.0),
            token_seconds=lasted / (tokens - 1) if tokens > 1 and not code else None,
            spent=spent,
        )

    def _begins(self, frame: Frame) -> bool:
        """A frame with answer content, or with the beginning of a tool call."""
        return any(
            type(event) in self._content
            and not (isinstance(event, TextDelta) and event.text.isspace())
            for event in frame.events
        )

    def __repr__(self) -> str:
        return f"Measures({len(self._costs)} attempts, {self.stay})"


def _content_types(*, reasoning: bool) -> frozenset[type]:
    return frozenset(_TOKENS if reasoning else _TOKENS - {ReasoningDelta})


def _with_tokens(frames: Sequence[Frame]) -> int:
    """How many of the frames carry tokens, as far as anybody can tell without a tokenizer."""
    count = 0
    for frame in frames:
        for event in frame.events:
            if type(event) in _TOKENS:
                count += 1
                break
    return count
