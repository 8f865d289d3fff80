"""`encoding`: text that was damaged on its way: replacement characters or control characters close together, in one choice's text, reasoning, audio transcript or tool arguments.

One or two are a character that a tokenizer cut, or text about such characters. `MARKS_MIN` of them within `SPAN_CHARS` are damage: in the recorded streams, and in 116 MB of source
code and documents, that comes nowhere. Tab, line feed and carriage return are no marks, and neither is the escape character: terminal colours are text that somebody asked for.

A mark is held until enough characters stand behind it. Text without marks is never held.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Hashable, Sequence
from typing import Final

from gate.events import AudioDelta, Facts, Frame, ReasoningDelta, TextDelta, ToolDelta
from gate.failure import FailureKind
from gate.filters.action import failure_for
from gate.filters.contract import FilterContext, Passed, Verdict, Violated

__all__ = ["EncodingFilter"]

CODE: Final = "text_damaged"
MARKS_MIN: Final = 8
SPAN_CHARS: Final = 64
_MARK: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f-\x84\x86-\x9f\ufffd]")


class EncodingFilter:
    """Judges one attempt. The failure is that of a malformed event: another provider may send the text whole, and what came before the damage can be gone on from."""

    name = "encoding"
    gating = True
    notice: str | None = None

    def __init__(self, context: FilterContext) -> None:
        self._failure = failure_for(context.table.action, own=FailureKind.MALFORMED, code=CODE)
        self._near: dict[Hashable, _Marks] = {}  # channels with marks near their end
        self._passed = -1
        self._over = False

    def prime(self, text: str) -> None:
        self._read((TextDelta, 0), text[-SPAN_CHARS:], 0)

    def observe(self, frames: Sequence[Frame], position: int) -> Verdict:
        if self._passed < 0:
            self._passed = position
        for at, frame in enumerate(frames, position):
            for event in frame.events:
                if type(event) is TextDelta or type(event) is ReasoningDelta:
                    text = event.text
                    # The ordinary case; U+FFFD counts as printable, a line end does not.
                    if not self._near and text.isprintable() and "\ufffd" not in text:
                        continue
                    place = self._read((type(event), event.choice), text, at)
                elif type(event) is ToolDelta and event.arguments:
                    place = self._read((event.choice, event.index), event.arguments, at)
                elif type(event) is AudioDelta:
                    place = self._read((AudioDelta, event.choice), event.transcript, at)
                else:
                    continue
                if place is not None and not self._over:
                    self._over = True
                    return Violated(place, CODE, self._failure, seen=at)
        newest = position + len(frames)
        if self._near and not self._over:
            newest = max(self._passed, min(marks.first for marks in self._near.values()))
        self._passed = newest
        return Passed(newest)

    def finish(self, position: int, facts: Facts) -> Verdict:
        return Passed(position)

    def _read(self, key: Hashable, text: str, place: int) -> int | None:
        """Where damage begins, if this makes it damage."""
        marks = self._near.get(key)
        if marks is None:
            if _MARK.search(text) is None:
                return None
            marks = self._near[key] = _Marks()
        begin = marks.read(text, place)
        if not marks:
            del self._near[key]
        return begin


class _Marks:
    """The marks within the last `SPAN_CHARS` characters of one channel, oldest first."""

    def __init__(self) -> None:
        self._end = 0
        self._marks: deque[tuple[int, int]] = deque()  # (characters before it, frame)

    def __len__(self) -> int:
        return len(self._marks)

    @property
    def first(self) -> int:
        """The frame of the oldest."""
        return self._marks[0][1]

    def read(self, text: str, place: int) -> int | None:
        """Takes in what follows; the frame in which damage begins, if that is some."""
        for found in _MARK.finditer(text):
            self._marks.append((self._end + found.start(), place))
            self._forget(self._end + found.start())
            if len(self._marks) >= MARKS_MIN:
                return self.first
        self._end += len(text)
        self._forget(self._end)
        return None

    def _forget(self, end: int) -> None:
        while self._marks and end - self._marks[0][0] >= SPAN_CHARS:
            self._marks.popleft()
