"""Tool calls that stand in an answer's text because the server did not see them: known markup at the beginning of the text or of a line.

From a possible beginning on, at most 256 characters are looked at; a declared tool's name in them, as a word of its own, makes it a call. The result is a function of the text
alone, however it is cut: a word counts once something follows it, or the text is over.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Collection
from typing import Final

__all__ = ["MARKUP", "WINDOW_CHARS", "MarkupWatch"]

WINDOW_CHARS: Final = 256
OTHERS_MAX: Final = 256  # names that are more than one word, each looked for by itself
MARKUP: Final = ("<tool_call>", "<function=", "[TOOL_CALLS]")
"""What a call begins with in the text of known models; beside tokens like `<|channel|>` (DeepSeek writes their bars wide)."""
_TOKEN: Final = re.compile(r"<[|\uff5c][^|\uff5c<>\n]{1,48}[|\uff5c>]")
_TOKEN_BEGUN: Final = re.compile(r"<(?:[|\uff5c][^|\uff5c<>\n]{0,48})?")
_PLACE: Final = re.compile(r"(?:\A|(?<=\n))[ \t]*+([<\[])")
_WORD: Final = re.compile(r"[\w-]+")


class MarkupWatch:
    """Watches the text of one choice for calls of the tools in `names`. `found`: the name of the tool that is called."""

    def __init__(self, names: Collection[str]) -> None:
        self.found: str | None = None
        self._words = frozenset(name for name in names if _WORD.fullmatch(name))
        self._others = [name for name in names if name not in self._words][:OTHERS_MAX]
        self._fresh = True  # the text before what is kept ended a line, blanks behind it apart
        self._text = ""  # from a possible beginning on
        self._places: deque[tuple[int, int]] = deque()  # (position, characters) of what is kept

    @property
    def held(self) -> int | None:
        """The position of the first frame whose text waits; None: none does."""
        return self._places[0][0] if self._places else None

    @property
    def text(self) -> str:
        """What waits, as far as it is looked at."""
        return self._text[:WINDOW_CHARS]

    def feed(self, text: str, position: int) -> None:
        """Takes in a piece of text, from the frame at `position`."""
        ordinary = not self._text and not self._fresh and "\n" not in text
        if ordinary or self.found is not None:
            return
        self._text += text
        self._places.append((position, len(text)))
        self._look(over=False)

    def finish(self) -> None:
        """No more text comes."""
        self._look(over=True)

    def prime(self, text: str) -> None:
        """Text that has been judged before stands in front."""
        if text:
            self._fresh = not text[text.rfind("\n") + 1 :].strip(" \t")

    def _look(self, *, over: bool) -> None:
        """Goes on to the first possible beginning that is not settled."""
        text, at = self._text, 0
        while self.found is None:
            place = self._next(at)
            if place is None:
                at = len(text)
                break
            window = text[place : place + WINDOW_CHARS]
            begun = _begun(window)
            short = place + WINDOW_CHARS > len(text)
            if begun:
                self.found = self._called(window, over=over and short)
            if self.found is not None or (begun is not False and short and not over):
                at = place
                break
            at = place + 1
        self._settle(at)

    def _next(self, at: int) -> int | None:
        """Where a call may begin in what is kept, from `at` on."""
        found = _PLACE.search(self._text, at)
        if found is not None and not found.start() and not self._fresh:
            found = _PLACE.search(self._text, found.end())
        return None if found is None else found.start(1)

    def _called(self, window: str, *, over: bool) -> str | None:
        """The declared tool that is named; a word at the end of the window counts where the text is `over`."""
        for word in _WORD.finditer(window):
            if word[0] in self._words and (word.end() < len(window) or over):
                return word[0]
        return next((name for name in self._others if name in window), None)

    def _settle(self, chars: int) -> None:
        """The first `chars` characters are nothing."""
        gone = self._text[:chars]
        line = gone[gone.rfind("\n") + 1 :]
        self._fresh = not line.strip(" \t") and (self._fresh or "\n" in gone)
        self._text = self._text[chars:]
        while chars:
            position, count = self._places.popleft()
            if count > chars:
                self._places.appendleft((position, count - chars))
            chars -= min(count, chars)


def _begun(text: str) -> bool | None:
    """Whether text begins with the markup of a call; None: it may become that."""
    if text.startswith(MARKUP) or _TOKEN.match(text):
        return True
    if _TOKEN_BEGUN.fullmatch(text) or any(markup.startswith(text) for markup in MARKUP):
        return None
    return False
