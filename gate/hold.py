"""The hold policy of a route: how far one attempt's frames may go, whatever the filters have passed.

    live       no tail
    window     a frame leaves when it is `tail_chars` behind the newest answer character *and* `tail_ms` old
    buffered   nothing leaves before the attempt is complete

Under `live` and `window` nothing leaves before the opening: `opening_chars` of answer content have passed, and `opening_ms` have gone by since the first of them.
Time changes when frames leave, never their bytes. It is passed in; `wake` says when it may matter next, by the same sum that `limit` compares with: another
form of it could round to a moment earlier, and whoever obeys would ask for ever.
"""

from __future__ import annotations

from collections import deque

from gate.config import HoldConfig
from gate.events import Frame, TextDelta
from gate.evidence import EvidenceTail, Opening

__all__ = ["Hold"]


class Hold:
    """One attempt's hold. `streams`: the caller's framing lets frames go before the terminal; `opened`: the stream has begun. Times in seconds, positions of frames."""

    def __init__(
        self, config: HoldConfig, *, streams: bool, released: int, opened: bool = False
    ) -> None:
        windowed = config.mode == "window"
        self._everything = config.mode == "buffered" or not streams
        self._tail_chars = config.tail_chars if windowed else 0
        self._tail_seconds = config.tail_ms / 1000 if windowed else 0.0
        self._opening = Opening(chars=config.opening_chars, reasoning=config.reasoning == "release")
        self._opening_seconds = config.opening_ms / 1000
        self._begun_at: float | None = None  # when the first answer content had passed
        self._open = opened
        self._released = released
        self._first = -1 if opened else released  # where the first answer content stands
        self._counted = released  # the opening has seen the frames before this position
        self._chars = 0  # answer text so far
        self._young: deque[tuple[int, float]] = deque()  # (answer text up to it, arrival) per frame
        self._aged = released  # the frames before this position are far enough behind

    def let_go(self) -> None:
        """A cap was reached: from now on only the filters hold."""
        self._everything, self._open = False, True
        self._aged += len(self._young)
        self._young.clear()
        self._tail_chars, self._tail_seconds = 0, 0.0

    def arrived(self, frames: list[Frame], now: float) -> None:
        """Frames that were added to the tail."""
        if not self._tail_chars and not self._tail_seconds:
            return
        for frame in frames:
            self._chars += sum(
                len(event.text) for event in frame.events if isinstance(event, TextDelta)
            )
            self._young.append((self._chars, now))

    def limit(self, tail: EvidenceTail, passed: int, now: float) -> int:
        """The position up to which frames may go; `passed` is what the filters allow."""
        if self._everything or not self._opens(tail, passed, now):
            return tail.released
        limit = passed
        if self._tail_chars or self._tail_seconds:
            limit = min(passed, self._old_enough(now))
        # A role, or what else stands before the answer, does not commit by itself.
        return limit if limit > self._first else tail.released

    def _old_enough(self, now: float) -> int:
        """The position of the first frame that the tail still holds."""
        young = self._young
        while young and self._far_behind() and now >= young[0][1] + self._tail_seconds:
            young.popleft()
            self._aged += 1
        return self._aged

    def wake(self) -> float | None:
        """When the limit may move by time alone; None: it does not."""
        if self._everything:
            return None
        if not self._open:
            ready = self._begun_at is not None and self._opening.open
            return (self._begun_at or 0.0) + self._opening_seconds if ready else None
        if self._young and self._tail_seconds and self._far_behind():
            return self._young[0][1] + self._tail_seconds
        return None

    def _opens(self, tail: EvidenceTail, passed: int, now: float) -> bool:
        if self._open:
            return True
        if not self._opening.open:
            fresh = tail.between(self._counted, passed)
            self._counted = passed
            self._opening.observe(fresh)
            self._first = self._released + self._opening.before
            if self._begun_at is None and self._opening.begun:
                self._begun_at = now
        if self._opening.open and self._begun_at is not None:
            self._open = now >= self._begun_at + self._opening_seconds
        return self._open

    def _far_behind(self) -> bool:
        return self._chars - self._young[0][0] >= self._tail_chars

    def __repr__(self) -> str:
        state = "everything" if self._everything else "open" if self._open else "closed"
        return f"Hold({state}, {len(self._young)} young frames)"
