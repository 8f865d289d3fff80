"""Patterns over a text that has not ended: where a match is, and from where on one may still come. Pure; the only module that knows RE2.

RE2 can't be asked what is a match in part. But what a match may begin with is a regular language, too (`gate.regex_syntax`): the longest end of the text that belongs to it
is all that a match can begin in. RE2 finds that by going backwards from the end, only as far as it has to.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from typing import Final

import re2

from gate.regex_syntax import Node, PatternInvalid, beginning, looks_ahead, parse, whole

__all__ = ["PATTERNS_MAX", "PATTERN_CHARS_MAX", "PatternInvalid", "Patterns", "compile_patterns"]

PATTERNS_MAX: Final = 256  # of one filter
PATTERN_CHARS_MAX: Final = 2000  # of one pattern
COMPILED_MAX: Final = 64  # sets that are kept compiled
MEMORY_BYTES: Final = 16 << 20  # of one compiled set


class Patterns:
    """Several patterns as one. Texts are UTF-8; places in them are byte offsets."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        ready = [whole(node) for node in nodes if not looks_ahead(node)]
        waiting = [whole(node) for node in nodes if looks_ahead(node)]
        self._ready = _compiled(_any_of(ready)) if ready else None
        self._waiting = _compiled(_any_of(waiting)) if waiting else None
        opens = filter(None, map(beginning, nodes))
        self._open = _compiled(f"{_any_of(opens)}\\z")

    def match(self, text: bytes, start: int = 0, *, ended: bool) -> int | None:
        """Where the first match in `text` begins, at `start` or behind it. Before the text has `ended`, one that looks ahead is none yet at its very end."""
        found = []
        if self._ready is not None:
            found.append(self._ready.search(text, start))
        if self._waiting is not None:
            end = len(text) if ended else len(text) - 1
            found.append(self._waiting.search(text, start, end))
        return min((each.start() for each in found if each is not None), default=None)

    def open_from(self, text: bytes, start: int = 0) -> int:
        """Where the longest end of `text` begins that a match may begin with, at `start` or behind it; its length: nowhere."""
        found = self._open.search(text, start)
        return len(text) if found is None else int(found.start())


@functools.lru_cache(COMPILED_MAX)  # a pure function; each attempt has a filter of its own
def compile_patterns(patterns: tuple[str, ...]) -> Patterns:
    """Raises `PatternInvalid`, with the number of the pattern that is wrong where it is one alone."""
    if len(patterns) > PATTERNS_MAX:
        raise PatternInvalid(f"more than {PATTERNS_MAX} patterns")
    nodes = []
    for index, pattern in enumerate(patterns):
        try:
            nodes.append(_checked(pattern))
        except PatternInvalid as error:
            raise PatternInvalid(error.reason, index) from None
    return Patterns(nodes)


def _checked(pattern: str) -> Node:
    if len(pattern) > PATTERN_CHARS_MAX:
        raise PatternInvalid(f"is longer than {PATTERN_CHARS_MAX} characters")
    original = _compiled(pattern)
    if original.search(b"") is not None:
        raise PatternInvalid("matches the empty text, so it would match anywhere")
    node = parse(pattern)
    if beginning(node) is None:
        raise PatternInvalid("matches no characters, only places between them")
    Patterns([node])
    return node


def _any_of(patterns: Iterable[str]) -> str:
    return f"(?:{'|'.join(patterns)})"


def _compiled(pattern: str) -> re2._Regexp:
    options = re2.Options()
    options.max_mem = MEMORY_BYTES
    options.log_errors = False
    options.never_capture = True
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        said = error.args[0]
        raise PatternInvalid(said.decode() if isinstance(said, bytes) else str(said)) from None
