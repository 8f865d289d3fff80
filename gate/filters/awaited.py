"""The judge's side of a filter that awaits: what it is to be asked next, and what its answers allow.

A task of the evaluator takes the questions, one at a time, and brings the answers; what arrives meanwhile waits for the next question. Nothing here waits. For the judge
this is a filter like any other, whose verdict may change between two batches: `verdict` is the one that holds now.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from gate.config import FilterConfig
from gate.events import Facts, Frame
from gate.evidence import FRAME_OVERHEAD_BYTES
from gate.filters.contract import Filter, Passed, Verdict, Violated
from gate.filters.horizon import Horizon
from gate.filters.policed import unavailable

__all__ = ["BEHIND", "QUESTION_BYTES_MAX", "UNDECIDED", "Awaited", "Question"]

QUESTION_BYTES_MAX: Final = 262_144
"""Raw bytes of the frames in one question, but for a frame that is larger by itself."""
OBSERVED_BYTES_MAX: Final = 1_048_576  # of frames that wait for a filter which holds nothing
UNDECIDED: Final = "filter_undecided"  # it still held something when asked for the last time
BEHIND: Final = "filter_behind"  # it only observes, and what it was to see came faster


class Question(msgspec.Struct, frozen=True):
    """Frames to judge: those of the positions from `start` on. `facts`: with the last question of a complete attempt, how it closed."""

    start: int
    frames: tuple[Frame, ...]
    facts: Facts | None = None

    @property
    def end(self) -> int:
        """The position behind the last frame."""
        return self.start + len(self.frames)

    @property
    def size(self) -> int:
        """Raw bytes."""
        return sum(frame.size for frame in self.frames)

    def __repr__(self) -> str:
        return f"Question({self.start}..{self.end}{', last' if self.facts is not None else ''})"


class Awaited:
    """One awaiting filter, for one attempt. Durations in seconds.

    `before`: the answer text that stands before a continued attempt. `heavy`: what makes the filter that judges in a thread, where that is what is waited for; it is asked at the
    end of a complete attempt even where nothing is new.
    """

    notice: str | None = None

    def __init__(self, table: FilterConfig, *, heavy: Callable[[], Filter] | None = None) -> None:
        self.name: str = table.kind
        self.gating = True
        self.before = ""
        self.heavy = heavy
        self.closing = False
        self.deadline_seconds = table.deadline_ms / 1000
        self.gather_seconds = table.batch_ms / 1000
        self._closed = table.failure == "closed"
        self._wants_end = heavy is not None
        self._horizon = Horizon(table.horizon_chars)
        self._facts: Facts | None = None
        self._start = 0  # the position of the first frame that it was not asked about
        self._frames: list[Frame] = []
        self._size = 0
        self._asked: Question | None = None
        self._answered = -1  # the position before which it has no objection
        self._violated: Violated | None = None
        self._over = False  # it says no more

    # ---- the judge's side

    def prime(self, text: str) -> None:
        self.before = text

    def observe(self, frames: Sequence[Frame], position: int) -> Verdict:
        if self._over:
            self._start = position + len(frames)
            return self.verdict()
        if self._answered < 0:
            self._answered = self._start = position
        self._horizon.add(frames, position)
        self._frames += frames
        self._size += sum([frame.size for frame in frames])
        if not self.gating and self._size > OBSERVED_BYTES_MAX:
            self.fail(BEHIND)
        return self.verdict()

    def finish(self, position: int, facts: Facts) -> Verdict:
        self.closing, self._facts = True, facts
        if self._answered < 0:
            self._answered = self._start = position
        if not self._frames and self._asked is None and not self._wants_end:
            self._over = True
        return self.verdict()

    def verdict(self) -> Verdict:
        """The verdict by all answers so far. A violation that holds nothing back is said once."""
        if self._violated is not None:
            said = self._violated
            if not self.gating:
                self._violated = None
            return said
        newest = self._start + len(self._frames)
        return Passed(newest if self._over else self._horizon.limit(self._answered))

    @property
    def settled(self) -> bool:
        """It has said all that it will say of a complete attempt."""
        return self._over

    @property
    def ledger_bytes(self) -> int:
        """What waits here and nowhere else: the frames that a gating filter waits with are held as evidence."""
        return 0 if self.gating else self._size + FRAME_OVERHEAD_BYTES * len(self._frames)

    # ---- the side of whoever asks

    @property
    def asks(self) -> bool:
        """There is something to ask, and nothing is being asked."""
        more = bool(self._frames) or (self.closing and not self._over)
        return more and self._asked is None and not self._over

    def take(self) -> Question:
        """The next question. It has to be answered, or the filter to fail, before the next one."""
        count, size = 0, 0
        for frame in self._frames:
            if count and size + frame.size > QUESTION_BYTES_MAX:
                break
            count, size = count + 1, size + frame.size
        last = self.closing and count == len(self._frames)
        frames = tuple(self._frames[:count])
        self._asked = question = Question(self._start, frames, self._facts if last else None)
        del self._frames[:count]
        self._start, self._size = question.end, self._size - size
        return question

    def answer(self, question: Question, verdict: Verdict) -> None:
        """What it says of `question`."""
        self._asked = None
        last = question.facts is not None
        if self._over:
            return
        if isinstance(verdict, Violated):
            self._violated = verdict
            self._end()
        elif last and verdict.position < question.end:
            self.fail(UNDECIDED)
        else:
            self._answered = max(self._answered, min(verdict.position, question.end))
            # What came before the end was known has been asked about: nothing is new.
            self._over = last or (self.closing and not self._frames and not self._wants_end)

    def fail(self, code: str) -> None:
        """It can't be asked any more, for the reason `code`: its failure policy holds from here on."""
        if self._over:
            return
        self.notice = code
        self._asked = None
        if self._closed and self.gating:
            self._violated = unavailable(max(self._answered, 0))
        self._end()

    def _end(self) -> None:
        """It says no more, and what waits for it does not."""
        self._over = True
        self._start += len(self._frames)
        self._frames.clear()
        self._size = 0

    def __repr__(self) -> str:
        return f"Awaited({self.name}, {len(self._frames)} frames wait)"
