r"""`patterns`: nothing that matches a pattern passes, not one byte of it, in one choice's text, reasoning, refusal, audio transcript or tool arguments.

Of each channel the longest end is kept that a match may begin with, and held: as a rule nothing. A match in it and in what follows is the violation; a pattern that looks ahead
(`$`, `\b`) is decided by what follows, at the latest at the end of the answer. `^` is the beginning of a channel, also where another attempt went on with it.

Tool arguments are judged as they are written, in JSON, and as they read with their escapes resolved.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Hashable, Sequence
from typing import Final, NamedTuple

import msgspec

from gate.events import (
    AudioDelta,
    Event,
    Facts,
    Frame,
    ReasoningDelta,
    RefusalDelta,
    TextDelta,
    ToolDelta,
)
from gate.failure import FailureKind
from gate.filters.action import failure_for
from gate.filters.contract import FilterContext, Passed, Verdict, Violated
from gate.filters.pattern_sets import PATTERN_SETS
from gate.json_escapes import Escapes
from gate.regex import Patterns, compile_patterns

__all__ = ["PatternsFilter"]

CODE: Final = "pattern_match"
CHANNELS_MAX: Final = 512  # beyond it those go in which no match may have begun
OBSERVED_BYTES_MAX: Final = (
    65_536  # an observer holds nothing, so nothing else bounds what it keeps
)
# While more than so much is open it is looked at only when it has grown by a share, so that the work stays linear.
OFTEN_BYTES_MAX: Final = 4096
GROWTH_SHARE: Final = 8
NEVER: Final = 1 << 62  # bytes

_Key = tuple[Hashable, ...]  # of a channel: what it is, its choice, and so on


class PatternsFilter:
    """Judges one attempt by the patterns of its table."""

    name = "patterns"
    gating = True
    notice: str | None = None

    def __init__(self, context: FilterContext) -> None:
        table = context.table
        self._patterns = compile_patterns(table.patterns or PATTERN_SETS[table.pattern_set])
        self._failure = failure_for(table.action, own=FailureKind.DENIED, code=CODE)
        self._channels: dict[_Key, _Channel] = {}
        self._channels_max = CHANNELS_MAX
        self._passed = -1
        self._over = False

    def prime(self, text: str) -> None:
        channel = self._channel((TextDelta, 0))
        channel.add(text, 0)
        channel.look(self._patterns, ended=False)

    def observe(self, frames: Sequence[Frame], position: int) -> Verdict:
        if self._over:
            return Passed(position + len(frames))
        if self._passed < 0:
            self._passed = position
        touched: dict[_Channel, None] = {}
        found: list[_Found] = []
        for at, frame in enumerate(frames, position):
            for event in frame.events:
                key, text = _read(event)
                if text:
                    for channel in self._channels_of(key, text):
                        touched[channel] = None
                        channel.add(text, at)
                        if channel.long:
                            found += self._look(channel)
        for channel in touched:
            found += self._look(channel)
        if found:
            first = min(found)
            return msgspec.structs.replace(self._violated(first.place), seen=first.seen)
        held = [channel.held for channel in self._channels.values() if channel.open]
        self._passed = max(self._passed, min(held, default=position + len(frames)))
        return Passed(self._passed)

    def finish(self, position: int, facts: Facts) -> Verdict:
        for channel in () if self._over else self._channels.values():
            found = channel.look(self._patterns, ended=True)
            if found is not None:
                return self._violated(found.place)
        return Passed(position)

    def _look(self, channel: _Channel) -> Sequence[_Found]:
        """The match in a channel, if it is time to look and there is one."""
        if not channel.due:
            return ()
        found = channel.look(self._patterns, ended=False)
        if not self.gating:
            channel.forget(OBSERVED_BYTES_MAX)
        return () if found is None else (found,)

    def _violated(self, place: int) -> Violated:
        self._over = True
        return Violated(place, CODE, self._failure)

    def _channels_of(self, key: _Key, text: str) -> Sequence[_Channel]:
        """The channel of a text; of tool arguments the unescaped one too, from the first escape on."""
        channel = self._channel(key)
        if key[0] is not ToolDelta:
            return (channel,)
        unescaped = self._channels.get((Escapes, *key))
        if unescaped is None:
            if "\\" not in text:
                return (channel,)
            unescaped = self._channels[Escapes, *key] = _Unescaped(channel)
        return (channel, unescaped)

    def _channel(self, key: _Key) -> _Channel:
        channel = self._channels.get(key)
        if channel is None:
            if len(self._channels) >= self._channels_max:
                self._channels = {key: each for key, each in self._channels.items() if each.open}
                self._channels_max = max(CHANNELS_MAX, 2 * len(self._channels))
            channel = self._channels[key] = _Channel()
        return channel


class _Found(NamedTuple):
    """A match: the frame that makes it one, and the frame where it begins."""

    seen: int
    place: int


class _Channel:
    """The end of one channel that a match may begin with, behind the last character that can't.

    What it comes to is a function of the channel's events, however many of them are looked at together: a short end depends on the text alone, and a long one is looked at behind
    certain events.
    """

    def __init__(self) -> None:
        self._text = b""
        self._before = 0  # bytes of `_text` that no match begins in: they are looked back at
        self._fresh: list[bytes] = []
        self._size = 0  # bytes of both
        self._due_at = 0
        self._seldom = False  # what is kept is long
        # Per event: the bytes up to its end, its frame, and the frame in which what it says begins.
        self._ends, self._places, self._begins = array("q"), array("q"), array("q")

    @property
    def open(self) -> bool:
        """Something is kept that is held."""
        return self._size > self._before

    @property
    def held(self) -> int:
        """The frame where that begins."""
        return self._begins[bisect_right(self._ends, self._before)]

    @property
    def due(self) -> bool:
        return self._size >= self._due_at

    @property
    def long(self) -> bool:
        """So much may be kept that it is looked at seldom."""
        return self._size - self._before > OFTEN_BYTES_MAX

    def add(self, text: str, place: int) -> None:
        """What an event of the frame at `place` says."""
        self._append(text, place, place)

    def _append(self, text: str, place: int, begins: int) -> None:
        data = text.encode()
        self._size += len(data)
        self._fresh.append(data)
        self._ends.append(self._size)
        self._places.append(place)
        self._begins.append(begins)

    def look(self, patterns: Patterns, *, ended: bool) -> _Found | None:
        """The match, or None; then what can't be one is forgotten."""
        fresh = len(self._fresh)
        text = self._text = self._text + b"".join(self._fresh)
        self._fresh.clear()
        start = patterns.match(text, self._before, ended=ended)
        if start is not None:
            self._due_at = NEVER
            single = ended or self._seldom
            return self._found(start) if single else self._first(patterns, text, fresh)
        self._keep_from(patterns.open_from(text, self._before))
        kept = self._size - self._before
        self._seldom = kept > OFTEN_BYTES_MAX
        self._due_at = self._size + (kept // GROWTH_SHARE if self._seldom else 1)
        return None

    def _found(self, start: int, event: int = -1) -> _Found:
        return _Found(self._places[event], self._begins[bisect_right(self._ends, start)])

    def _first(self, patterns: Patterns, text: bytes, fresh: int) -> _Found:
        """The match that is one first, of those in the last `fresh` events."""
        events = range(len(self._ends) - fresh, len(self._ends))

        def match(event: int) -> int | None:
            return patterns.match(text[: self._ends[event]], self._before, ended=False)

        event = events[bisect_left(events, True, key=lambda each: match(each) is not None)]
        start = match(event)
        assert start is not None, "the last of them makes one"
        return self._found(start, event)

    def forget(self, bytes_max: int) -> None:
        """Keeps no more than so much."""
        if self._size > bytes_max:
            self._keep_from(self._size - bytes_max)

    def _keep_from(self, start: int) -> None:
        """Nothing begins before `start` any more; one character before it stays, to be looked back at."""
        cut = start
        while cut > 0:
            cut -= 1
            if self._text[cut] & 0xC0 != 0x80:  # the first byte of a character
                break
        self._text = self._text[cut:]
        self._size -= cut
        self._before = start - cut
        gone = bisect_right(self._ends, cut)
        self._places, self._begins = self._places[gone:], self._begins[gone:]
        self._ends = array("q", [end - cut for end in self._ends[gone:]])


class _Unescaped(_Channel):
    """A channel of JSON as it reads with its escapes resolved; it begins with what `written` has kept."""

    def __init__(self, written: _Channel) -> None:
        super().__init__()
        self._text, self._before, self._size = written._text, written._before, written._size
        self._fresh = written._fresh[:]
        self._due_at, self._seldom = written._due_at, written._seldom
        self._ends, self._places = written._ends[:], written._places[:]
        self._begins = written._begins[:]
        self._escapes = Escapes()
        self._since = 0  # the frame in which the escape has begun that isn't whole

    @property
    def open(self) -> bool:
        return super().open or bool(self._escapes.begun)

    @property
    def held(self) -> int:
        return super().held if super().open else self._since

    def add(self, text: str, place: int) -> None:
        begins = self._since if self._escapes.begun else place
        said = self._escapes.resolve(text)
        self._since = place if len(self._escapes.begun) <= len(text) else begins
        if said:
            self._append(said, place, begins)


def _read(event: Event) -> tuple[_Key, str]:
    """The channel of an event, and what it adds there."""
    match event:
        case TextDelta() | ReasoningDelta() | RefusalDelta():
            return (type(event), event.choice), event.text
        case ToolDelta():
            return (ToolDelta, event.choice, event.index), event.arguments or ""
        case AudioDelta():
            return (AudioDelta, event.choice), event.transcript
        case _:
            return (), ""
