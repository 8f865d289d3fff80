"""An answer that is to be JSON: what may stand around the value, and whether a beginning can still become one.

Around it: white space, a byte order mark, and one code fence without an info string, or with `json`, that encloses everything else. Nothing else is taken off, and nothing is guessed.
`AnswerPrefix` reads text as it comes, in linear time and with a bounded state; what it gives up, `parse_json` would refuse however the text went on. `ends_early` asks the same of a whole
text, and leaves the work to the library's parser.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Final, NoReturn

from gate.strict_json import DEPTH_MAX, NotJson, parse_json

__all__ = ["AnswerPrefix", "JsonPrefix", "ends_early", "json_span"]

TICKS_MAX: Final = 16  # of a fence
_OUTER: Final = " \t\r\n\ufeff"
_OUTSIDE: Final = re.compile(f"[{_OUTER}]*+")
_TICKS: Final = re.compile("`*+")
_FENCE: Final = re.compile(rf"(`{{3,{TICKS_MAX}}}+)(?:json)?+(?![A-Za-z0-9_`])", re.IGNORECASE)
_WORD: Final = re.compile("[A-Za-z0-9_]")
_INFO: Final = "json"

_SPACES: Final = re.compile(r"[ \t\r\n]*+")
_TEXT: Final = re.compile(r'[^"\\\x00-\x1f]*+')
_HEX: Final = re.compile("[0-9A-Fa-f]{1,4}+")
_DIGITS: Final = re.compile("[0-9]*+")
_WORDS: Final = {word[0]: word[1:] for word in ("true", "false", "null")}
_CLOSER: Final = {"{": "}", "[": "]"}


def json_span(text: str) -> tuple[int, int]:
    """Where the value stands: `text` without what may be around it. Whether it is JSON, nobody has looked."""
    start, end = _trimmed(text, 0, len(text))
    fence = _FENCE.match(text, start, end)
    if fence is None:
        return start, end
    close = end - len(fence[1])
    if close <= fence.end() or text[close:end] != fence[1] or text[close - 1] == "`":
        return start, end
    return _trimmed(text, fence.end(), close)


_CUT_ESCAPE: Final = re.compile("u[0-9A-Fa-f]{0,4}")
_CUT_WORDS: Final = {"-"} | {
    word[:end] for word in ("true", "false", "null") for end in range(1, len(word))
}
_CUT_NUMBER: Final = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]*)?(?:(?<=[0-9])[eE][-+]?)?")


def ends_early(text: str, *, wrapped: bool) -> bool:
    """Whether `text` is the beginning of JSON and no more. `wrapped`: with what may stand before the value, or the beginning of what may stand behind it."""
    if not wrapped:
        return _stops_early(text, "")
    if _is_whole(text):
        return False
    if len(text) <= TICKS_MAX:  # perhaps no more than a piece of a fence
        return AnswerPrefix(wrapped=True).feed(text)
    start, end = _trimmed(text, 0, len(text))
    fence = _FENCE.match(text, start)
    if fence is None:
        return _stops_early(text[start:end], "")
    return _stops_early(text[fence.end() :].lstrip(_OUTER), fence[1])


def _refuse(name: str) -> NoReturn:
    raise ValueError(name)


_decode: Final = json.JSONDecoder(parse_constant=_refuse).decode


def _stops_early(text: str, fence: str) -> bool:
    """`text` behind a fence of these backticks, if there is one; it is not closed."""
    try:
        _decode(text)
    except json.JSONDecodeError as error:
        rest = text[error.pos :]
        if fence and error.msg == "Extra data" and fence.startswith(rest.rstrip(_OUTER)):
            return True
        return _at_the_end(error, rest)
    except (ValueError, RecursionError):
        return False
    return bool(fence)


def _at_the_end(error: json.JSONDecodeError, rest: str) -> bool:
    """Whether the parser stopped for nothing but the end: `rest` is what it has not read."""
    match error.msg:
        case _ if error.msg.startswith("Unterminated"):
            return True
        case _ if not rest.strip():
            return not error.msg.startswith("Invalid")
        case "Expecting value":
            return rest in _CUT_WORDS
        case "Invalid \\uXXXX escape":
            return _CUT_ESCAPE.fullmatch(rest) is not None
        case "Extra data" | "Expecting ',' delimiter":
            head = error.doc[: error.pos]
            number = head[len(head.rstrip("-+.0123456789eE")) :]
            return bool(number) and _CUT_NUMBER.fullmatch(number + rest) is not None
        case _:
            return False


def _trimmed(text: str, start: int, end: int) -> tuple[int, int]:
    start = min(_end(_OUTSIDE, text, start), end)
    return start, start + len(text[start:end].rstrip(_OUTER))


def _is_whole(text: str) -> bool:
    start, end = json_span(text)
    try:
        parse_json(text[start:end])
    except NotJson:
        return False
    return True


class _Expects(Enum):
    """What comes next, between two tokens."""

    VALUE = "value"
    ITEM = "item"  # or the end of the array
    KEY = "key"
    NAME = "name"  # or the end of the object
    COLON = "colon"
    NEXT = "next"  # a comma, or the end of the container
    END = "end"  # the value is whole


# state of a number -> by the next character, its next state; a digit is "9", or "0" where that is told apart.
_NUMBER: Final[Mapping[str, Mapping[str, str]]] = {
    "minus": {"0": "zero", "9": "whole"},
    "zero": {".": "point", "e": "power"},
    "whole": {".": "point", "e": "power"},
    "point": {"0": "part", "9": "part"},
    "part": {"e": "power"},
    "power": {"0": "raised", "9": "raised", "+": "sign", "-": "sign"},
    "sign": {"0": "raised", "9": "raised"},
    "raised": {},
}
_RUNS: Final = frozenset({"whole", "part", "raised"})  # in which more digits may follow
_ENDS: Final = frozenset({"zero", "whole", "part", "raised"})


class JsonPrefix:
    """The beginning of one JSON value. `alive`: it may still become one."""

    def __init__(self) -> None:
        self.alive = True
        self._expects = _Expects.VALUE
        self._stack: list[str] = []
        self._within: Callable[[str, int], int] | None = None  # a token that has begun
        self._is_key = False
        self._left = 0  # hexadecimal digits of an escape
        self._word = ""
        self._number = ""

    def feed(self, text: str, at: int) -> int:
        """Reads on in `text` from `at`; where it stopped: at the end, or behind a value that is whole, at what is not white space."""
        while at < len(text) and self.alive:
            if self._within is not None:
                at = self._within(text, at)
                continue
            at = _end(_SPACES, text, at)
            if at == len(text) or self._expects is _Expects.END:
                break
            self._token(text[at])
            at += 1
        return at

    def _token(self, first: str) -> None:
        """The character that a token begins with."""
        match self._expects:
            case _Expects.COLON:
                self._expects = _Expects.VALUE
                self.alive = first == ":"
            case _Expects.NEXT if first == ",":
                inside = self._stack[-1] == "{"
                self._expects = _Expects.KEY if inside else _Expects.VALUE
            case _Expects.NEXT | _Expects.NAME | _Expects.ITEM if first in "]}":
                self.alive = first == _CLOSER[self._stack.pop()]
                self._ended()
            case _Expects.KEY | _Expects.NAME:
                self._is_key = True
                self._within = self._string
                self.alive = first == '"'
            case _Expects.VALUE | _Expects.ITEM:
                self._value(first)
            case _:
                self.alive = False

    def _value(self, first: str) -> None:
        if first in _CLOSER:
            self._stack.append(first)
            self._expects = _Expects.NAME if first == "{" else _Expects.ITEM
            self.alive = len(self._stack) <= DEPTH_MAX
        elif first == '"':
            self._is_key = False
            self._within = self._string
        elif first in _WORDS:
            self._word, self._within = _WORDS[first], self._of_word
        elif first == "-" or _is_digit(first):
            self._number = {"-": "minus", "0": "zero"}.get(first, "whole")
            self._within = self._of_number
        else:
            self.alive = False

    def _ended(self) -> None:
        self._expects = _Expects.NEXT if self._stack else _Expects.END

    def _string(self, text: str, at: int) -> int:
        at = _end(_TEXT, text, at)
        if at == len(text):
            return at
        if text[at] == "\\":
            self._within = self._escape
        elif text[at] == '"':
            self._within = None
            if self._is_key:
                self._expects = _Expects.COLON
            else:
                self._ended()
        else:
            self.alive = False
        return at + 1

    def _escape(self, text: str, at: int) -> int:
        if text[at] == "u":
            self._left, self._within = 4, self._of_escape
        else:
            self._within = self._string
            self.alive = text[at] in '"\\/bfnrt'
        return at + 1

    def _of_escape(self, text: str, at: int) -> int:
        found = _HEX.match(text, at, at + self._left)
        if found is None:
            self.alive = False
            return at
        self._left -= found.end() - at
        if not self._left:
            self._within = self._string
        return found.end()

    def _of_word(self, text: str, at: int) -> int:
        piece = text[at : at + len(self._word)]
        self.alive = self._word.startswith(piece)
        self._word = self._word[len(piece) :]
        if not self._word:
            self._within = None
            self._ended()
        return at + len(piece)

    def _of_number(self, text: str, at: int) -> int:
        if self._number in _RUNS:
            at = _end(_DIGITS, text, at)
            if at == len(text):
                return at
        following = text[at]
        kind = "9" if following in "123456789" else "e" if following == "E" else following
        state = _NUMBER[self._number].get(kind)
        if state is not None:
            self._number = state
            return at + 1
        self.alive = self._number in _ENDS
        self._within = None
        self._ended()
        return at

    def __repr__(self) -> str:
        return f"JsonPrefix({self._expects.value}, {len(self._stack)} deep)"


class AnswerPrefix:
    """The beginning of an answer that is to be JSON. `wrapped`: what may stand around the value is fine."""

    def __init__(self, *, wrapped: bool) -> None:
        self._json = JsonPrefix()
        self._alive = True
        self._ticks = 0  # of the fence before it
        self._closed = 0  # of the one behind it
        self._info = 0  # letters of the info string
        self._step = self._lead if wrapped else self._value

    @property
    def alive(self) -> bool:
        """It may still become JSON."""
        return self._alive and self._json.alive

    def feed(self, text: str) -> bool:
        """Whether it is alive with `text` behind it."""
        at = 0
        while at < len(text) and self.alive:
            at = self._step(text, at)
        return self.alive

    def _lead(self, text: str, at: int) -> int:
        at = _end(_OUTSIDE, text, at)
        if at < len(text):
            self._step = self._fence if text[at] == "`" else self._value
        return at

    def _fence(self, text: str, at: int) -> int:
        end = _end(_TICKS, text, at)
        self._ticks += end - at
        if end < len(text):
            self._alive = 3 <= self._ticks <= TICKS_MAX
            self._step = self._words
        return end

    def _words(self, text: str, at: int) -> int:
        """The info string."""
        if _INFO[self._info : self._info + 1] == text[at].lower():
            self._info += 1
            return at + 1
        self._alive = self._info in {0, len(_INFO)} and not _WORD.match(text, at)
        self._step = self._inside
        return at

    def _inside(self, text: str, at: int) -> int:
        at = _end(_OUTSIDE, text, at)
        if at < len(text):
            self._step = self._value
        return at

    def _value(self, text: str, at: int) -> int:
        at = self._json.feed(text, at)
        if at < len(text):
            self._step = self._behind
        return at

    def _behind(self, text: str, at: int) -> int:
        if self._closed in {0, self._ticks}:
            at = _end(_OUTSIDE, text, at)
            if at == len(text):
                return at
        self._alive = text[at] == "`" and self._closed < self._ticks
        self._closed += 1
        return at + 1

    def __repr__(self) -> str:
        return f"AnswerPrefix({self._json!r}, {'alive' if self.alive else 'dead'})"


def _is_digit(character: str) -> bool:
    return "0" <= character <= "9"


def _end(pattern: re.Pattern[str], text: str, at: int) -> int:
    """Where a match that may be empty ends."""
    found = pattern.match(text, at)
    assert found is not None, "an empty match is one"
    return found.end()
