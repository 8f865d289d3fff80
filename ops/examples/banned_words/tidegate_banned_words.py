"""A filter for Tidegate: words that may not stand in an answer, whatever their case and however a provider cuts them.

[filters.manners]
kind = "banned-words"
words = ["blast", "drat"]
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from gate.config import Table
from gate.events import Facts, Frame, TextDelta
from gate.filters.contract import FilterContext, Passed, Verdict
from gate.filters.plugin import FilterPlugin

_GAP: Final = re.compile(r"\W+")


class Options(Table, frozen=True, kw_only=True):
    """What a table of this kind may hold."""

    words: tuple[str, ...]

    def __post_init__(self) -> None:
        if not self.words or not all(re.fullmatch(r"\w+", word) for word in self.words):
            raise ValueError("words: at least one, and each a single word")


class BannedWords(FilterPlugin):
    """Judges the text of every choice. A word is held from its first letter on, as long as it may still become a banned one."""

    options_type = Options

    def __init__(self, context: FilterContext, options: Options) -> None:
        self._banned = frozenset(word.casefold() for word in options.words)
        self._longest = max(map(len, self._banned))
        self._open: dict[int, tuple[str, int]] = {}  # choice: its last word so far, and its frame

    def prime(self, text: str) -> None:
        self._read(0, text, 0)

    def observe(self, frames: Sequence[Frame], position: int) -> Verdict:
        for at, frame in enumerate(frames, position):
            for event in frame.events:
                if isinstance(event, TextDelta):
                    found = self._read(event.choice, event.text, at)
                    if found is not None:
                        return self.violated(found, "banned_word")
        held = [first for word, first in self._open.values() if self._may_become(word)]
        return Passed(min([position + len(frames), *held]))

    def finish(self, position: int, facts: Facts) -> Verdict:
        for word, first in self._open.values():
            if word in self._banned:
                return self.violated(first, "banned_word")
        return Passed(position)

    def _read(self, choice: int, text: str, at: int) -> int | None:
        """The frame in which a banned word begins, if this ends one."""
        begun, first = self._open.pop(choice, ("", at))
        *whole, last = _GAP.split(begun + text.casefold())
        # One letter more than the longest is enough to know that it is none of them.
        self._open[choice] = last[: self._longest + 1], at if whole or not begun else first
        found = next((index for index, word in enumerate(whole) if word in self._banned), None)
        if found is None:
            return None
        return first if begun and found == 0 else at

    def _may_become(self, word: str) -> bool:
        return bool(word) and any(banned.startswith(word) for banned in self._banned)
