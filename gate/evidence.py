"""Evidence: the frames that arrived and are not released yet, with their positions, and the opening of a stream.

    released <= passed <= newest                      (positions; every one is a boundary between two frames)

`EvidenceTail` does the arithmetic of one exchange; what an attempt loses is dropped whole, and positions go back to what was released.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from gate.events import (
    AudioDelta,
    Frame,
    OutputItem,
    RawDelta,
    ReasoningDelta,
    RefusalDelta,
    TextDelta,
    ToolEnd,
)

__all__ = ["FRAME_OVERHEAD_BYTES", "EvidenceTail", "Opening"]

FRAME_OVERHEAD_BYTES: Final = (
    384  # measured: a frame of one text delta beside its payload, in CPython 3.11
)


class EvidenceTail:
    """The unreleased frames of an exchange. `held_bytes` are raw bytes; `ledger_bytes` add what keeping a frame costs, and `kept_bytes`.

    `keeps`: what the caller's framing keeps of frames that it gets, but for one that `relays` them; `kept_bytes` is all of that.
    """

    def __init__(self, keeps: Callable[[Sequence[Frame]], int] | None = None) -> None:
        self.kept_bytes = 0
        self.relays = False
        self._keeps = keeps
        self.released = 0
        self.held_bytes = 0
        self._frames: deque[Frame] = deque()

    @property
    def newest(self) -> int:
        """The position behind the newest frame."""
        return self.released + len(self._frames)

    @property
    def ledger_bytes(self) -> int:
        return self.held_bytes + self.kept_bytes + FRAME_OVERHEAD_BYTES * len(self._frames)

    def extend(self, frames: Iterable[Frame]) -> None:
        """Adds frames that arrived, in order."""
        for frame in frames:
            self._frames.append(frame)
            self.held_bytes += frame.size

    def release(self, position: int) -> list[Frame]:
        """Takes out every frame before `position`."""
        assert self.released <= position <= self.newest
        frames = [self._frames.popleft() for _ in range(position - self.released)]
        self.released = position
        self.held_bytes -= sum(frame.size for frame in frames)
        if self._keeps is not None and not self.relays:
            self.kept_bytes += self._keeps(frames)
        return frames

    def between(self, start: int, end: int) -> list[Frame]:
        """The held frames from position `start` up to `end`; what that costs counts from the nearer end."""
        assert self.released <= start <= end <= self.newest
        before, behind = start - self.released, self.newest - end
        if before <= behind:
            return list(itertools.islice(self._frames, before, end - self.released))
        found = list(itertools.islice(reversed(self._frames), behind, self.newest - start))
        found.reverse()
        return found

    def truncate(self, position: int) -> None:
        """Forgets every frame from `position` on."""
        assert self.released <= position <= self.newest
        while self.newest > position:
            self.held_bytes -= self._frames.pop().size

    def drop(self) -> None:
        """Forgets every frame: the attempt they belong to failed or was condemned."""
        self._frames.clear()
        self.held_bytes = self.kept_bytes = 0

    def __len__(self) -> int:
        return len(self._frames)

    def __repr__(self) -> str:
        return f"EvidenceTail(released={self.released}, newest={self.newest}, held_bytes={self.held_bytes})"


class Opening:
    """When a live stream may open: after `chars` code points of answer content have passed.

    Counts from the first character of a choice that is not white space. Audio, what nothing can read, and a complete tool call open at once. `reasoning` counts like answer content where the route releases it. `before`: frames before the first that counts.
    """

    def __init__(self, *, chars: int, reasoning: bool) -> None:
        self.open = False
        self.before = 0
        self._chars = self._chars_left = max(chars, 1)
        self._reasoning = reasoning
        self._begun: set[int] = set()

    @property
    def begun(self) -> bool:
        """Some answer content has passed."""
        return self._chars_left < self._chars

    def observe(self, frames: Iterable[Frame]) -> bool:
        """Takes in frames that have passed; whether the stream may open now."""
        for frame in frames:
            if self.open:
                break
            for event in frame.events:
                self._chars_left -= self._weight(event)
            self.before += not self.begun
            self.open = self._chars_left <= 0
        return self.open

    def _weight(self, event: object) -> int:
        match event:
            case TextDelta():
                text = event.text
                if event.choice not in self._begun:
                    text = text.lstrip()
                    if text:
                        self._begun.add(event.choice)
                return len(text)
            case ReasoningDelta():
                return len(event.text) if self._reasoning else 0
            case RefusalDelta():
                return len(event.text)
            case AudioDelta() | OutputItem() | RawDelta() | ToolEnd():
                return self._chars_left
            case _:
                return 0
