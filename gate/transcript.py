"""The answer so far, as somebody who goes on with it has to know it: its text, what it has cost, and where it may be taken up again.

A *resume point* lies between the position that has been released and the one that every gating filter has passed: at the last boundary of two frames where the text is at
a clean place. What else the answer holds (reasoning that is not finished, a tool call that has begun) can't be taken up again anywhere, and then there is none.
"""

from __future__ import annotations

import copy
import unicodedata
from collections.abc import Sequence
from typing import Final

from gate.events import (
    AudioDelta,
    Frame,
    Mend,
    OutputItem,
    ReasoningDelta,
    RefusalDelta,
    Resume,
    TextDelta,
    ToolDelta,
)
from gate.plan import Cursor

__all__ = ["Transcript", "is_clean", "text_bytes", "text_of"]

PLACE_BYTES: Final = 8  # in a list
ASCII_OVERHEAD_BYTES: Final = (
    49  # of a string beside its characters, in CPython 3.11; later releases have less
)
OTHER_OVERHEAD_BYTES: Final = 76
OTHER_CHARACTER_BYTES: Final = 4  # at most
LOOSE_MAX: Final = 128  # pieces that are kept one by one
CONTEXT_CHARS: Final = 64  # of the end, that a judgement looks at, beside the longest stop string
_JOINER: Final = "\u200d"
# What belongs to the character before it although Unicode calls it no mark: the joiner and skin tones.
_MODIFIERS: Final = frozenset(_JOINER) | {chr(0x1F3FB + n) for n in range(5)}
_FLAG_LETTERS: Final = range(0x1F1E6, 0x1F200)  # a flag is two of them


class Transcript:
    """The text of choice 0 as far as it was released, kept because somebody may have to go on from it. `stops`: strings that end the answer."""

    def __init__(self, stops: Sequence[str] = ()) -> None:
        self.chars = 0
        self.frames = 0  # that had text
        self._stops = stops
        self._context = max([len(stop) for stop in stops], default=0) + CONTEXT_CHARS
        self._pieces: list[str] = []
        self._bytes = 0
        self._loose = 0  # pieces that are not joined yet
        self._nature = _Nature()
        self._torn = False

    @property
    def ledger_bytes(self) -> int:
        return self._bytes

    @property
    def text(self) -> str:
        """All of it."""
        return "".join(self._pieces)

    def add(self, frames: Sequence[Frame]) -> None:
        """Frames that were released."""
        for frame in frames:
            self._nature.observe(frame)
            text = text_of(frame)
            if text:
                self._keep(text)
                self.chars += len(text)
                self.frames += 1
                self._torn = _torn(frame)

    def _keep(self, text: str) -> None:
        """Words cost more as objects than as text: many small ones become one."""
        self._pieces.append(text)
        self._bytes += _cost(text)
        self._loose += 1
        if self._loose == LOOSE_MAX:
            small = self._pieces[-LOOSE_MAX:]
            self._pieces[-LOOSE_MAX:] = ["".join(small)]
            self._bytes += _cost(self._pieces[-1]) - sum(map(_cost, small))
            self._loose = 0

    def resume(self, held: Sequence[Frame], limit: int, *, released: int) -> Resume | None:
        """The resume point with `held` behind this, of which the first `limit` frames have passed; `released`: the position between the two.

        What it has cost is given in frames of text, for who knows better to correct.
        """
        if not self._nature.resumable_with(held):
            return None
        texts = [text_of(frame) for frame in held]
        text = self.text + "".join(texts[:limit])
        following = next(filter(None, texts[limit:]), "")
        end = len(text)
        for place in range(limit, -1, -1):
            torn = _torn(held[place - 1]) if place else self._torn
            if not torn and is_clean(
                text[max(0, end - self._context) : end], following, self._stops
            ):
                seen = sum(map(bool, texts[:place]))
                cursor = Cursor(released + place, end)
                return Resume(cursor, text[:end], held=bool(seen), produced=self.frames + seen)
            if place and texts[place - 1]:
                following = texts[place - 1]
                end -= len(following)
        return None

    def holds_back(self, held: Sequence[Frame]) -> bool:
        """Whether the last of `held`, all the frames behind this, is kept back because nobody could go on behind it."""
        newest = held[-1]
        if not text_of(newest) or not self._nature.resumable_with(held):
            return False
        text = self._end() + "".join(map(text_of, held))
        return _torn(newest) or not is_clean(text, "", self._stops)

    def _end(self) -> str:
        """As much of the end as a judgement looks at."""
        end = ""
        for piece in reversed(self._pieces):
            if len(end) >= self._context:
                break
            end = piece + end
        return end

    def __repr__(self) -> str:
        return f"Transcript({self.chars} characters in {self.frames} frames)"


class _Nature:
    """What an answer consists of, as far as it matters."""

    def __init__(self) -> None:
        self._only_text = True
        self._thinking = False

    def observe(self, frame: Frame) -> None:
        for event in frame.events:
            match event:
                case TextDelta():
                    self._thinking = False
                case ReasoningDelta():
                    self._thinking = True
                case ToolDelta() | AudioDelta() | RefusalDelta() | OutputItem():
                    self._only_text = False
                case _:
                    pass

    def resumable_with(self, frames: Sequence[Frame]) -> bool:
        """With `frames` behind: text is all that there is to go on with."""
        whole = copy.copy(self)
        for frame in frames:
            whole.observe(frame)
        return whole._only_text and not whole._thinking


def _cost(piece: str) -> int:
    return text_bytes(piece) + PLACE_BYTES


def text_bytes(text: str) -> int:
    """What a string takes in memory, at most. Every release of Python says the same, so that an exchange that is replayed on another one meets its limits where it met them."""
    if text.isascii():
        return ASCII_OVERHEAD_BYTES + len(text)
    return OTHER_OVERHEAD_BYTES + OTHER_CHARACTER_BYTES * len(text)


def text_of(frame: Frame) -> str:
    """The answer text of choice 0 in a frame: the only one that is ever continued."""
    return "".join(
        [event.text for event in frame.events if isinstance(event, TextDelta) and not event.choice]
    )


def _torn(frame: Frame) -> bool:
    """Mending took half a character from its end."""
    return bool(frame.mend & Mend.TEXT)


def is_clean(text: str, following: str, stops: Sequence[str]) -> bool:
    """Whether a tokenizer may be trusted to take `text` up at its end: not in white space, inside one character, or inside what may become a stop string."""
    last = text[-1:]
    if not last or last.isspace() or last == _JOINER or _half_a_flag(text):
        return False
    if following and (
        unicodedata.category(following[0]).startswith("M") or following[0] in _MODIFIERS
    ):
        return False
    return not any(_begins_stop(text, stop) for stop in stops)


def _begins_stop(text: str, stop: str) -> bool:
    end = text[-(len(stop) - 1) :] if len(stop) > 1 else ""
    at = end.find(stop[0])
    while at >= 0:
        if stop.startswith(end[at:]):
            return True
        at = end.find(stop[0], at + 1)
    return False


def _half_a_flag(text: str) -> bool:
    letters = 0
    for character in reversed(text):
        if ord(character) not in _FLAG_LETTERS:
            break
        letters += 1
    return letters % 2 == 1
