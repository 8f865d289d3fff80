"""A horizon in characters: what a filter still needs behind the newest frame before a frame may go."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from gate.events import Frame, TextDelta

__all__ = ["Horizon"]


class Horizon:
    """Keeps `chars` code points of answer text back, over all choices, rounded to whole frames; with 0 nothing."""

    def __init__(self, chars: int) -> None:
        self.chars = chars
        self._total = 0
        self._ends: deque[tuple[int, int]] = deque()  # (position, text before it) per frame
        self._behind = -1  # the position that is far enough behind

    def add(self, frames: Sequence[Frame], position: int) -> None:
        """Frames that follow; `position` is that of the first."""
        if not self.chars:
            return
        if self._behind < 0:
            self._behind = position
        for at, frame in enumerate(frames, position + 1):
            for event in frame.events:
                if isinstance(event, TextDelta):
                    self._total += len(event.text)
            self._ends.append((at, self._total))
        while self._ends and self._total - self._ends[0][1] >= self.chars:
            self._behind = self._ends.popleft()[0]

    def limit(self, position: int) -> int:
        """How far of what has passed up to `position` may go."""
        return min(position, self._behind) if self.chars else position

    def __repr__(self) -> str:
        return f"Horizon({self.chars} characters)"
