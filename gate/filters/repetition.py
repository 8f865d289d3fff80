"""`repetition`: a loop in one choice's text, reasoning, audio transcript or tool arguments.

A loop is the end of a channel that is one unit of 1 to `UNIT_CHARS_MAX` characters, again and again, or nothing but white space. From how much on it is one was measured, on
87 MB of source code and documents and on the recorded streams:

    words           `chars_min` characters and `repeats_min` units       longest without a loop: 200 characters in 10 units (a table in code)
    lines, digits   half as many characters again                        271 (the rule of a wide table), 246 (a row of zeros)
    white space     `chars_min` characters, a line end counts for five   229 (a padded cell)
    a long unit     `ENOUGH_CHARS` in `ENOUGH_REPEATS` units, unless the table says how many units

A loop comes token by token: one that is spread over fewer than `EVENTS_MIN` events is none, and in a JSON body one character alone is none, however often it comes.

After every `STEP_CHARS` characters the end is looked at: where its last characters stood before, nearest first, may be a period. So the work is linear in the text, and what is
kept of a channel is its last `WINDOW_CHARS` characters with their places. From two whole units on, and `SUSPECT_CHARS`, it may be a loop: then nothing passes from the first
repeat on, as far as it has not passed already, until it is one, or breaks. Text without such an end is never held.
"""

from __future__ import annotations

import itertools
import re
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Hashable, Sequence
from typing import Final

from gate.config import FilterConfig
from gate.events import (
    AudioDelta,
    Event,
    Facts,
    Frame,
    ReasoningDelta,
    TextDelta,
    ToolDelta,
)
from gate.failure import FailureKind
from gate.filters.action import failure_for
from gate.filters.contract import FilterContext, Passed, Verdict, Violated

__all__ = ["RepetitionFilter"]

CODE: Final = "repetition_loop"
CHARS_MIN: Final = 256
REPEATS_MIN: Final = 20
ENOUGH_CHARS: Final = 4096
ENOUGH_REPEATS: Final = 4
LINE_END_CHARS: Final = 5
SUSPECT_CHARS: Final = 32
STEP_CHARS: Final = 32
WINDOW_CHARS: Final = 4096
UNIT_CHARS_MAX: Final = WINDOW_CHARS // 2
NEAR_CHARS: Final = 512  # are searched every time, all of the window after every `FAR_STEP_CHARS`
FAR_STEP_CHARS: Final = 256
MARKS_MAX: Final = 2 * WINDOW_CHARS  # of places; an event without characters has one, too
EVENTS_MIN: Final = 8
CHANNELS_MAX: Final = 512  # that are watched at once; the oldest goes
# How much of the end has to stand before: a little finds a short unit early, more is not misled by what repeats inside a long one.
_ENDS: Final = (16, 128)
_PLACES_MAX: Final = 6  # that are looked at, for each of them
_BLANK: Final = -1  # in place of a period
_DRAWN: Final = re.compile(r"[-=_*#.~+|/\\\d, :;\s\u2010-\u2015\u2500-\u259f]+")


class RepetitionFilter:
    """Judges one attempt. The table may say `chars_min`, `repeats_min` and the action."""

    name = "repetition"
    gating = True
    notice: str | None = None

    def __init__(self, context: FilterContext) -> None:
        self._limits = _Limits(context.table)
        self._failure = failure_for(context.table.action, own=FailureKind.REPETITION, code=CODE)
        self._texts: dict[int, _Channel] = {}  # of the answer, by choice
        self._others: dict[Hashable, _Channel] = {}
        self._suspects: set[_Channel] = set()
        self._passed = -1
        self._over = False  # a loop was found; nothing more is said of this attempt

    def prime(self, text: str) -> None:
        channel = self._texts[0] = _Channel(self._limits, whole=False)
        channel.add(text[-WINDOW_CHARS:], 0)
        self._look(channel)

    def observe(self, frames: Sequence[Frame], position: int) -> Verdict:
        if self._over:
            return Passed(position + len(frames))
        if self._passed < 0:
            self._passed = position
        texts = self._texts
        for at, frame in enumerate(frames, position):
            for event in frame.events:
                if type(event) is TextDelta:
                    text, channel = event.text, texts.get(event.choice)
                    if channel is None:
                        channel = _Channel(self._limits, whole=frame.whole)
                        texts[event.choice] = channel
                else:
                    key, text = _beside(event)
                    if not text:
                        continue
                    channel = self._other(key, frame)
                if channel.add(text, at) and self._look(channel):
                    self._over = True
                    return Violated(channel.held, CODE, self._failure, seen=at)
        return Passed(self._allowed(position + len(frames)))

    def finish(self, position: int, facts: Facts) -> Verdict:
        for channel in () if self._over else (*self._texts.values(), *self._others.values()):
            if self._look(channel):
                self._over = True
                return Violated(channel.held, CODE, self._failure)
        return Passed(position)

    def _other(self, key: Hashable, frame: Frame) -> _Channel:
        channel = self._others.get(key)
        if channel is None:
            if len(self._others) >= CHANNELS_MAX:
                self._suspects.discard(self._others.pop(next(iter(self._others))))
            channel = self._others[key] = _Channel(self._limits, whole=frame.whole)
        return channel

    def _look(self, channel: _Channel) -> bool:
        looped = channel.look()
        if channel.period:
            self._suspects.add(channel)
        elif self._suspects:
            self._suspects.discard(channel)
        return looped

    def _allowed(self, newest: int) -> int:
        """What passes: everything, but for what may be a loop and has not passed before."""
        if self._suspects:
            newest = max(self._passed, min(channel.held for channel in self._suspects))
        self._passed = newest
        return newest


def _beside(event: Event) -> tuple[Hashable, str]:
    """What an event says beside the answer's text, and in which channel."""
    match event:
        case ReasoningDelta():
            return event.choice, event.text
        case ToolDelta():
            return (event.choice, event.index), event.arguments or ""
        case AudioDelta():
            return (AudioDelta, event.choice), event.transcript
        case _:
            return None, ""


class _Limits:
    """From how many characters on the end of a channel is a loop."""

    def __init__(self, table: FilterConfig) -> None:
        self.chars_min = table.chars_min or CHARS_MIN
        self._repeats_min = table.repeats_min

    def of(self, unit: str) -> int:
        chars = self.chars_min * 3 // 2 if _DRAWN.fullmatch(unit) else self.chars_min
        if self._repeats_min:
            return max(chars, self._repeats_min * len(unit))
        return max(
            chars, min(REPEATS_MIN * len(unit), max(ENOUGH_CHARS, ENOUGH_REPEATS * len(unit)))
        )


class _Channel:
    """The end of one channel; `whole`: of a JSON body. `period`: of what may be a loop there, 0 where nothing is; `held`: then the frame where its first repeat begins."""

    def __init__(self, limits: _Limits, *, whole: bool) -> None:
        self.period = 0
        self.held = 0
        self._limits = limits
        self._whole = whole
        self._events = 0  # that the run is spread over
        self._loop_chars = 0  # from so many on it is one
        self._run = 0  # characters so far
        self._tail = ""
        self._seen = 0  # characters that were looked at, the tail's end
        self._end = 0  # characters so far
        self._due = STEP_CHARS
        self._far_due = FAR_STEP_CHARS
        self._fresh: list[str] = []
        # Per event: the characters up to its end, and its frame.
        self._ends, self._places = array("q"), array("q")

    def add(self, text: str, place: int) -> bool:
        """Takes in what follows; whether it is time to look."""
        end = self._end + len(text)
        self._end = end
        self._fresh.append(text)
        self._ends.append(end)
        self._places.append(place)
        return end >= self._due

    def look(self) -> bool:
        """Whether the end is a loop."""
        text = "".join(self._fresh)
        self._events += len(self._fresh)
        self._fresh.clear()
        if self.period or len(text) > 2 * STEP_CHARS:
            steps = range(0, len(text), STEP_CHARS)
            looped = any(self._step(text[at : at + STEP_CHARS]) for at in steps)
        else:
            looped = self._take(text)
        # What may be a loop is looked at with every event, so that nothing waits for longer than it has to.
        self._due = self._seen + (1 if self.period else STEP_CHARS)
        if len(self._ends) > MARKS_MAX:
            old = bisect_left(self._ends, self._seen - WINDOW_CHARS)
            del self._ends[:old], self._places[:old]
        return looped

    def _step(self, piece: str) -> bool:
        if self.period:
            more = self._continued(piece)
            self._run += self._weight(piece[:more])
            if self._loops:
                return True
            if more < len(piece):
                self.period = 0
        return self._take(piece)

    def _take(self, piece: str) -> bool:
        self._seen += len(piece)
        tail = self._tail = (self._tail + piece)[-WINDOW_CHARS:]
        if self.period or len(tail) < SUSPECT_CHARS:
            return False
        if self._seen >= self._far_due:
            self._far_due = self._seen + FAR_STEP_CHARS
        elif tail.rfind(tail[-_ENDS[0] :], -NEAR_CHARS, -1) < 0 and not tail[-_ENDS[0] :].isspace():
            return False  # the ordinary case
        self._suspect()
        return self.period != 0 and self._loops

    @property
    def _loops(self) -> bool:
        """Whether the run is long enough. One event may be padded with what it likes; a JSON body is one whatever it holds."""
        if self._run < self._loop_chars:
            return False
        if self._whole:
            return self.period != 1
        return self._events >= EVENTS_MIN

    def _continued(self, piece: str) -> int:
        """How many characters of `piece` go on with the run."""
        if self.period == _BLANK:
            return len(piece) - len(piece.lstrip())
        unit = self._tail[-self.period :]
        expected = (unit * (len(piece) // len(unit) + 1))[: len(piece)]
        if piece == expected:
            return len(piece)
        same = itertools.takewhile(
            lambda pair: pair[0] == pair[1], zip(piece, expected, strict=True)
        )
        return sum(1 for _ in same)

    def _weight(self, run: str) -> int:
        if self.period != _BLANK:
            return len(run)
        return len(run) + (LINE_END_CHARS - 1) * run.count("\n")

    def _suspect(self) -> None:
        """Looks for the beginning of a loop at the end."""
        tail = self._tail
        if tail[-SUSPECT_CHARS:].isspace():
            self._begin(_BLANK, len(tail) - len(tail.rstrip()), self._limits.chars_min)
            return
        for size in _ENDS:
            last, at = tail[-size:], len(tail) - size
            for _ in range(_PLACES_MAX):
                at = tail.rfind(last, 0, at + size - 1)
                period = len(tail) - size - at
                chars = max(2 * period, SUSPECT_CHARS)
                if at < 0 or chars > len(tail):
                    break
                if self._repeats(period, chars):
                    # The run may begin earlier: the longest end with this period.
                    more = range(chars, len(tail) + 1)
                    run = (
                        chars
                        - 1
                        + bisect_left(more, True, key=lambda n: not self._repeats(period, n))
                    )
                    self._begin(period, run, self._limits.of(tail[-period:]))
                    return

    def _repeats(self, period: int, chars: int) -> bool:
        """Whether the last `chars` characters have this period."""
        tail, start = self._tail, len(self._tail) - chars
        return tail[start : len(tail) - period] == tail[start + period :]

    def _begin(self, period: int, run: int, loop_chars: int) -> None:
        self.period, self._loop_chars = period, loop_chars
        self._run = self._weight(self._tail[len(self._tail) - run :])
        self._events = len(self._ends) - bisect_right(self._ends, self._seen - run)
        self.held = self._places[self._event_of(self._seen - run + max(period, 1))]

    def _event_of(self, repeat: int) -> int:
        """The event in which the repeat begins at this character; one that ends with only a little of it stays with what was said before."""
        at = bisect_right(self._ends, repeat)
        begin = self._ends[at - 1] if at else 0
        little = 2 * (self._ends[at] - repeat) < self._ends[at] - begin
        alike = self._ends[at] - repeat < abs(self.period)
        return at + 1 if little and alike and at + 1 < len(self._ends) else at
