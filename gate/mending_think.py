"""Think tags: the step of mending that takes `<think>...</think>` out of answer text, for servers that have no parser for it or let it slip.

    at the beginning of the text           what is between the tags becomes reasoning; the tags go, with the white space around each of them. Another pair may follow
    no closing tag comes                   all of it was reasoning, and the finish stays as it is: with `stop` an answer without content (the filter `empty` says what
                                           becomes of it), with `length` an answer that never got beyond thinking
    `</think>`, and no `<think>` before    the tag goes, and nothing else
    `<think>` behind other text            the answer speaks of the tag: from there on nothing is touched

Rules of this file: characters are never moved to another frame, only taken out or called reasoning, so a frame that has no part in a tag keeps its bytes. A frame whose last
characters may be the beginning of a tag is held, and every later one behind it, of any choice; at the end what is held goes as what it is so far. How the same text was cut
makes no difference. Choices know nothing of one another.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum
from typing import Final, TypeAlias

from gate.events import AudioDelta, Frame, ReasoningDelta, RefusalDelta, TextDelta, ToolDelta
from gate.evidence import FRAME_OVERHEAD_BYTES
from gate.mending_text import text_by_choice, with_words

__all__ = ["Kind", "TagReader", "ThinkTags"]

OPEN: Final = "<think>"
CLOSE: Final = "</think>"
SPACES_MAX: Final = 64  # white space around a tag; more of it is something else
_SPACE: Final = " \t\r\n"
_TAG: Final = re.compile("</?think>")
_OTHERS: Final = (ToolDelta, RefusalDelta, AudioDelta)


class Kind(Enum):
    """What becomes of a character."""

    TEXT = "text"
    REASONING = "reasoning"
    GONE = "gone"


class _Place(Enum):
    """Where in the text of a choice the reader stands."""

    START = "start"  # nothing but white space so far
    THOUGHT = "thought"  # behind an opening tag, nothing but white space since
    THINKING = "thinking"
    BEHIND = "behind"  # behind a closing tag, nothing but white space since
    ANSWER = "answer"
    DONE = "done"  # nothing is looked at any more


_Runs: TypeAlias = Iterator[tuple[Kind, int]]


class TagReader:
    """One choice: its text in, and out, for every character in order, what becomes of it. `begun`: an attempt before this one has said the text `before`."""

    def __init__(self, before: str = "") -> None:
        self._place = _Place.DONE if OPEN in before else _Place.START
        self._begun = bool(before)
        self._rest = ""  # not decided yet
        self._steps: Mapping[_Place, Callable[[], _Runs]] = {
            _Place.START: self._start,
            _Place.THOUGHT: self._thought,
            _Place.THINKING: self._thinking,
            _Place.BEHIND: self._behind,
            _Place.ANSWER: self._answer,
            _Place.DONE: self._done,
        }

    @property
    def undecided(self) -> int:
        """How many characters at the end of what was fed may still be part of a tag."""
        return len(self._rest)

    def plain(self, text: str) -> bool:
        """Whether `text` is answer text and nothing else, at a glance."""
        if self._place is _Place.ANSWER:
            return not self._rest and "<" not in text
        return self._place is _Place.DONE

    def feed(self, text: str) -> _Runs:
        """What is decided with `text` behind the rest."""
        self._rest += text
        moved = True
        while moved and self._rest:
            stood = self._place, len(self._rest)
            yield from self._steps[self._place]()
            moved = stood != (self._place, len(self._rest))

    def finish(self) -> _Runs:
        """No more comes."""
        thinking = self._place in {_Place.THOUGHT, _Place.THINKING}
        yield from self._take(Kind.REASONING if thinking else Kind.TEXT, len(self._rest))

    def _take(self, kind: Kind, count: int) -> _Runs:
        if count:
            self._rest = self._rest[count:]
            yield kind, count

    def _start(self) -> _Runs:
        spaces = _leading(self._rest)
        rest = self._rest[spaces:]
        if spaces > SPACES_MAX:
            self._place = _Place.ANSWER
        elif rest.startswith(OPEN):
            yield from self._take(Kind.GONE, spaces + len(OPEN))
            self._place = _Place.THOUGHT
        elif rest.startswith(CLOSE) and not self._begun:
            yield from self._take(Kind.GONE, spaces + len(CLOSE))
            self._place = _Place.BEHIND
        elif not _may_be_tag(rest):
            self._place = _Place.ANSWER

    def _thought(self) -> _Runs:
        yield from self._take(Kind.GONE, _leading(self._rest))
        if self._rest:
            self._place = _Place.THINKING

    def _thinking(self) -> _Runs:
        end = self._rest.find(CLOSE)
        closed = end >= 0
        if not closed:
            end = len(self._rest) - _half_a_tag(self._rest, CLOSE)
        spaces = min(_trailing(self._rest[:end]), SPACES_MAX)
        yield from self._take(Kind.REASONING, end - spaces)
        if closed:
            yield from self._take(Kind.GONE, spaces + len(CLOSE))
            self._place = _Place.BEHIND

    def _behind(self) -> _Runs:
        yield from self._take(Kind.GONE, _leading(self._rest))
        if self._rest.startswith(OPEN):
            yield from self._take(Kind.GONE, len(OPEN))
            self._place = _Place.THOUGHT
        elif self._rest.startswith(CLOSE):
            yield from self._take(Kind.GONE, len(CLOSE))
        elif not _may_be_tag(self._rest):
            self._place = _Place.ANSWER

    def _answer(self) -> _Runs:
        while (found := _TAG.search(self._rest)) is not None:
            yield from self._take(Kind.TEXT, found.start())
            if found[0] == OPEN:
                self._place = _Place.DONE
                return
            yield from self._take(Kind.GONE, len(CLOSE))
        half = max(_half_a_tag(self._rest, OPEN), _half_a_tag(self._rest, CLOSE))
        yield from self._take(Kind.TEXT, len(self._rest) - half)

    def _done(self) -> _Runs:
        yield from self._take(Kind.TEXT, len(self._rest))


class _Said:
    """One choice's text in one frame, with what has been decided about it."""

    def __init__(self, choice: int, text: str) -> None:
        self.choice = choice
        self.left = len(text)
        self.touched = False
        self._text = text
        self._parts: dict[Kind, list[str]] = {kind: [] for kind in Kind}

    def take(self, kind: Kind, count: int) -> int:
        """The next `count` characters are of this kind; how many of them are not of this frame."""
        at = len(self._text) - self.left
        here = min(count, self.left)
        self._parts[kind].append(self._text[at : at + here])
        self.left -= here
        self.touched |= kind is not Kind.TEXT
        return count - here

    def of(self, kind: Kind) -> str:
        return "".join(self._parts[kind])


class ThinkTags:
    """The step, for one attempt. `reasoning_field`: the name that reasoning is written under; `before`: text of choice 0 that this attempt goes on from."""

    def __init__(self, reasoning_field: str, *, before: str = "") -> None:
        self.held_bytes = 0
        self._reasoning_field = reasoning_field
        self._readers = {0: TagReader(before)}
        self._held: deque[tuple[Frame, Sequence[_Said]]] = deque()
        self._open: dict[int, deque[_Said]] = {}  # by choice: what is not wholly decided

    @property
    def ledger_bytes(self) -> int:
        """What is held costs so much."""
        return self.held_bytes + FRAME_OVERHEAD_BYTES * len(self._held)

    def feed(self, frames: Sequence[Frame]) -> list[Frame]:
        """Frames as the other steps left them; those that are decided."""
        decided: list[Frame] = []
        for frame in frames:
            if not self._held and self._plain(frame):
                decided.append(frame)
            else:
                self._hold(frame)
                decided += self._let_go()
        return decided

    def finish(self) -> list[Frame]:
        """No more comes: what is held."""
        for choice, reader in self._readers.items():
            self._decide(choice, reader.finish())
        return list(self._let_go())

    def _plain(self, frame: Frame) -> bool:
        for event in frame.events:
            if isinstance(event, TextDelta):
                reader = self._readers.get(event.choice)
                if reader is None or not reader.plain(event.text):
                    return False
        return True

    def _hold(self, frame: Frame) -> None:
        texts = text_by_choice(frame)
        said = {choice: _Said(choice, text) for choice, text in texts.items()}
        self._held.append((frame, list(said.values())))
        self.held_bytes += frame.size
        for choice, text in texts.items():
            self._open.setdefault(choice, deque()).append(said[choice])
            reader = self._readers.setdefault(choice, TagReader())
            self._decide(choice, reader.feed(text))
        for event in frame.events:
            if isinstance(event, _OTHERS) and event.choice in self._readers:
                # No tag goes on behind something else.
                self._decide(event.choice, self._readers[event.choice].finish())

    def _decide(self, choice: int, runs: _Runs) -> None:
        for kind, count in runs:
            left = count
            while left:
                said = self._open[choice][0]
                left = said.take(kind, left)
                if not said.left:
                    self._open[choice].popleft()

    def _let_go(self) -> Iterator[Frame]:
        while self._held and not any(said.left for said in self._held[0][1]):
            frame, said = self._held.popleft()
            self.held_bytes -= frame.size
            touched = [each for each in said if each.touched]
            mended = self._mended(frame, touched) if touched else frame
            if mended is not None:
                yield mended

    def _mended(self, frame: Frame, touched: Sequence[_Said]) -> Frame | None:
        thought = text_by_choice(frame, ReasoningDelta)
        words = {
            each.choice: (
                thought.get(each.choice, "") + each.of(Kind.REASONING),
                each.of(Kind.TEXT),
            )
            for each in touched
        }
        return with_words(frame, words, self._reasoning_field)

    def __repr__(self) -> str:
        return f"ThinkTags({len(self._held)} frames held)"


def _leading(text: str) -> int:
    return len(text) - len(text.lstrip(_SPACE))


def _trailing(text: str) -> int:
    return len(text) - len(text.rstrip(_SPACE))


def _may_be_tag(text: str) -> bool:
    return OPEN.startswith(text) or CLOSE.startswith(text)


def _half_a_tag(text: str, tag: str) -> int:
    """How many characters at the end may be the beginning of `tag`."""
    lengths = range(min(len(tag) - 1, len(text)), 0, -1)
    return next((length for length in lengths if text.endswith(tag[:length])), 0)
