r"""RE2's syntax as a tree, and from it the pattern of everything that a match may begin with.

Only the structure is understood: what stands for one character (a letter, an escape, a class) is kept as it was written, with the flags that hold for it. Both patterns that are
used (`whole` and `beginning`) are written from the same tree, so that they can't disagree about what a match is. RE2 itself says first whether a pattern is one.

    beginning(ab)      beginning(a) | a beginning(b)        split in halves, so that the nesting stays low
    beginning(a|b)     beginning(a) | beginning(b)
    beginning(a{m,n})  a{0,n-1} beginning(a)

A beginning has at least one character, and ends with one: so each `^`, `\b` or `$` in it stands before a character that is there, and holds or does not.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias, assert_never

__all__ = ["Node", "PatternInvalid", "beginning", "looks_ahead", "parse", "whole"]

NODES_MAX: Final = 4000  # of one pattern
DEPTH_MAX: Final = 50  # of its groups


class PatternInvalid(Exception):
    """A pattern that can't be used; `reason` is for the operator who wrote it. `index`: which of several it is, None where it is not one alone."""

    def __init__(self, reason: str, index: int | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.index = index


@dataclass(frozen=True, slots=True)
class Char:
    """One character, as it was written."""

    text: str


@dataclass(frozen=True, slots=True)
class Place:
    """A condition on a place between two characters. `ahead`: it depends on what follows."""

    text: str
    ahead: bool


@dataclass(frozen=True, slots=True)
class Row:
    """One part after another."""

    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Either:
    """One of its parts."""

    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Again:
    """A part, `least` to `most` times (None: without end)."""

    part: Node
    least: int
    most: int | None


Node: TypeAlias = Char | Place | Row | Either | Again

_QUANTIFIER: Final = re.compile(r"(?:\*|\+|\?|\{(\d+)(,?)(\d*)\})\??")
_GROUP: Final = re.compile(r"\(\?(?:P?<\w+>|([a-zA-Z]*(?:-[a-zA-Z]*)?)([:)]))")
_ESCAPE: Final = re.compile(r"\\(?:[pP](?:\{[^}]*\}|.)|x(?:\{[^}]*\}|..)|[0-7]{1,3}|.)", re.DOTALL)
_CLASS: Final = re.compile(r"\[\^?\]?(?:\[:\^?\w+:\]|\\(?:[pPx]\{[^}]*\}|.)|[^\]\\])*\]", re.DOTALL)
_PLACES: Final = {"\\A": False, "\\z": True, "\\b": True, "\\B": True}


def parse(pattern: str) -> Node:
    """The tree of a pattern that RE2 accepts. Raises `PatternInvalid` for the little of its syntax that is not known here."""
    reader = _Reader(pattern)
    node = reader.either(0)
    if reader.at < len(pattern):
        raise PatternInvalid("unexpected )")
    return node


def whole(node: Node) -> str:
    """The pattern itself, without groups that capture."""
    match node:
        case Char(text) | Place(text):
            return text
        case Row(parts):
            return "".join(map(whole, parts))
        case Either(parts):
            return f"(?:{'|'.join(map(whole, parts))})"
        case Again(part, least, most):
            return _again(whole(part), least, most)
        case _:
            assert_never(node)


def beginning(node: Node) -> str | None:
    """A pattern of everything but nothing that a match may begin with, up to all of it; None: matches have no characters."""
    match node:
        case Char(text):
            return text
        case Place():
            return None
        case Row(parts):
            return _beginning_of(parts)
        case Either(parts):
            return _either(map(beginning, parts))
        case Again(part, _, most):
            last = None if most == 0 else beginning(part)
            if last is None:
                return None
            return _again(whole(part), 0, None if most is None else most - 1) + last
        case _:
            assert_never(node)


def looks_ahead(node: Node) -> bool:
    """Whether a match depends on what comes behind it."""
    match node:
        case Char():
            return False
        case Place(ahead=ahead):
            return ahead
        case Row(parts) | Either(parts):
            return any(map(looks_ahead, parts))
        case Again(part):
            return looks_ahead(part)
        case _:
            assert_never(node)


def _beginning_of(parts: Sequence[Node]) -> str | None:
    if len(parts) < 2:
        return beginning(parts[0]) if parts else None
    half = len(parts) // 2
    second = _beginning_of(parts[half:])
    if second is not None:
        second = "".join(map(whole, parts[:half])) + second
    return _either([_beginning_of(parts[:half]), second])


def _either(patterns: Iterable[str | None]) -> str | None:
    some = [each for each in patterns if each is not None]
    return f"(?:{'|'.join(some)})" if some else None


def _again(part: str, least: int, most: int | None) -> str:
    ends = {(0, None): "*", (1, None): "+", (0, 1): "?"}
    count = ends.get((least, most), f"{{{least},{'' if most is None else most}}}")
    return f"(?:{part}){count}"


class _Reader:
    """Goes through one pattern. Flags hold from where they stand to the end of their group."""

    def __init__(self, pattern: str) -> None:
        self.at = 0
        self._pattern = pattern
        self._flags = ""
        self._nodes = 0

    def either(self, depth: int) -> Node:
        """Up to the end of the group, or of the pattern."""
        if depth > DEPTH_MAX:
            raise PatternInvalid("groups are nested too deeply")
        flags = self._flags
        rows: list[list[Node]] = [[]]
        while self.at < len(self._pattern) and self._pattern[self.at] != ")":
            if self._pattern[self.at] == "|":
                self.at += 1
                rows.append([])
            else:
                rows[-1] += self._repeated(depth)
        self._flags = flags
        if len(rows) == 1:
            return Row(tuple(rows[0]))
        return Either(tuple(Row(tuple(row)) for row in rows))

    def _repeated(self, depth: int) -> list[Node]:
        """One part with what is said of its number; nothing where only flags are set."""
        node = self._part(depth)
        self._nodes += 1
        if self._nodes > NODES_MAX:
            raise PatternInvalid("the pattern is too long")
        if node is None:
            return []
        found = _QUANTIFIER.match(self._pattern, self.at)
        if found is not None:
            self.at = found.end()
            node = Again(node, *_numbers(found))
        return [node]

    def _part(self, depth: int) -> Node | None:
        pattern, at = self._pattern, self.at
        match pattern[at]:
            case "(":
                return self._group(depth)
            case "\\":
                return self._escape()
            case "[":
                return self._char(_matched(_CLASS, pattern, at))
            case "^":
                self.at += 1
                return Place("\\A", ahead=False)
            case "$":
                self.at += 1
                return Place("\\z", ahead=True)
            case char:
                return self._char(char)

    def _group(self, depth: int) -> Node | None:
        if not self._pattern.startswith("(?", self.at):
            self.at += 1
            return self._inside(depth, self._flags)
        found = _GROUP.match(self._pattern, self.at)
        if found is None:
            raise PatternInvalid("a group of an unknown form")
        self.at = found.end()
        flags = self._flags if found[1] is None else _with_flags(self._flags, found[1])
        if found[2] == ")":
            self._flags = flags
            return None
        return self._inside(depth, flags)

    def _inside(self, depth: int, flags: str) -> Node:
        outside, self._flags = self._flags, flags
        node = self.either(depth + 1)
        self._flags = outside
        if self.at >= len(self._pattern):
            raise PatternInvalid("missing )")
        self.at += 1
        return node

    def _escape(self) -> Node:
        if self._pattern.startswith("\\Q", self.at):
            raise PatternInvalid("\\Q is not known here: escape each character by itself")
        text = _matched(_ESCAPE, self._pattern, self.at)
        if text == "\\C":
            raise PatternInvalid("\\C is not known here: text is not cut inside of characters")
        if text in _PLACES:
            self.at += len(text)
            return Place(text, _PLACES[text])
        return self._char(text)

    def _char(self, text: str) -> Char:
        self.at += len(text)
        return self._flagged(text)

    def _flagged(self, text: str) -> Char:
        return Char(f"(?{self._flags}:{text})" if self._flags else text)


def _matched(syntax: re.Pattern[str], pattern: str, at: int) -> str:
    found = syntax.match(pattern, at)
    if found is None:
        raise PatternInvalid("an escape or a class of an unknown form")
    return found[0]


def _numbers(found: re.Match[str]) -> tuple[int, int | None]:
    if found[1] is None:
        return {"*": (0, None), "+": (1, None), "?": (0, 1)}[found[0][0]]
    least = int(found[1])
    if not found[2]:
        return least, least
    return least, int(found[3]) if found[3] else None


def _with_flags(flags: str, change: str) -> str:
    """`i` and `s` matter; `U` says which of several matches is preferred, and there is no difference here."""
    on, _, off = change.partition("-")
    if "m" in change:
        raise PatternInvalid("the flag m is not known here: ^ and $ are the ends of the text")
    return "".join(sorted({*flags, *on} - set(off) - {"U"}))
