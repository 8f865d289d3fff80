"""A large JSON body, checked and scanned in one pass of bounded steps, so that whoever drives it can let others run in between.

A step is one `yield`, and no call within it looks at more than a window of the body. What comes out is what a check over the whole and
`scan_members` would say, refusals included.

The rule of this file: the members of the root are passed one by one; what nests inside of them is passed in fragments. A fragment ends behind a
comma, a colon or a bracket, so that a few bytes before and behind it make it one JSON value, which msgspec checks; here only a token is passed
that does not end within a window. No byte is looked at more than a fixed number of times, however the body is made.
"""

from __future__ import annotations

import codecs
import re
from enum import Enum
from typing import Final

import msgspec

from gate.splice import (
    ELEMENTS_MAX,
    MEMBERS_MAX,
    Body,
    JsonMalformed,
    JsonRefused,
    JsonTooDeep,
    JsonTooMany,
    Member,
    unescape,
)
from gate.steps import WINDOW, Steps, word_in

__all__ = ["DEEPEST", "NAME_BYTES_MAX", "JsonNotObject", "LargeScan", "is_json", "scan_large"]

NAME_BYTES_MAX: Final = 4_096  # of a longer one only the beginning is kept: nobody looks for it
_FIRST_WINDOW: Final = 2_048  # of a container, which is small as a rule
_WINDOW_GROWTH: Final = 4
# A body that nests deeper is not looked at to its end: more than any limit allows, and less than msgspec's stack bears.
DEEPEST: Final = 640

_COMMA: Final = ord(",")
_COLON: Final = ord(":")
_QUOTE: Final = ord('"')
_OPEN_OBJECT: Final = ord("{")
_CLOSE_OBJECT: Final = ord("}")
_OPENERS: Final = b"[{"
_CLOSER_OF: Final = bytes.maketrans(b"[{", b"]}")
_NO_BRACKETS: Final = bytes(sorted(set(range(256)) - set(b"[]{}")))
_END: Final = -1  # stands for a byte where there is none

# A short string; or one by runs of anything but quotes, which are found fast: a quote behind one backslash is passed, one behind none or two of
# them ends the string; or, where there are more, any string.
_STRING: Final = (
    rb'"(?:[^"\\]{0,24}+"'
    rb'|[^"]*+(?:(?<=[^\\]\\)"[^"]*+)*+(?:(?<!\\)|(?<=[^\\]\\\\))"'
    rb'|[^"\\]*+(?:\\.[^"\\]*+)*+")'
)
_INERT: Final = rb'[^"\[\]{}]'
_FRAGMENT: Final = re.compile(
    rb"(?:%b*+(?:%b[ \t\n\r]*+[,:\]}]|[\[\]{}]))*+" % (_INERT, _STRING), re.DOTALL
)
_STRINGS: Final = re.compile(rb"%b(?:%b*+%b)*+" % (_STRING, _INERT, _STRING), re.DOTALL)
_TO_BRACKET: Final = rb"(?:%b++|%b)*+[\[\]{}]" % (_INERT, _STRING)
_BRACKET: Final = re.compile(_TO_BRACKET, re.DOTALL)
_MANY: Final = 64
_MANY_BRACKETS: Final = re.compile(rb"(?:%b){%d}" % (_TO_BRACKET, _MANY), re.DOTALL)
_TEXT: Final = re.compile(
    rb'[^"\\\x00-\x1f]*+(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})[^"\\\x00-\x1f]*+)*+'
)
_SCALAR: Final = re.compile(
    rb"-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?+(?:[eE][-+]?[0-9]++)?+|true|false|null"
)
_HALF_ESCAPE: Final = re.compile(rb"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")


class JsonNotObject(JsonRefused):
    """The body is JSON, but no object."""

    def __init__(self) -> None:
        super().__init__("the JSON value is no object")


class _Place(Enum):
    """Where in its container a fragment begins; the value: what has to stand before it, in an array and in an object."""

    FIRST = (b"[", b"{")
    NEXT = (b"[0,", b'{"":0,')
    COLON = (b"", b'{""')  # a name is there
    WORTH = (b"", b'{"":')  # a name and its colon are there
    COMMA = (
        b"[[]",
        b'{"":[]',
    )  # a value is there, and none that could be gone on with, as a number could


# By the last byte of a fragment: where the next one begins, and what has to stand behind this one, in an array and in an object.
_BEHIND: Final = {
    ord("["): (_Place.FIRST, (b"", b"")),
    ord("{"): (_Place.FIRST, (b"", b"")),
    ord("]"): (_Place.COMMA, (b"", b"")),
    ord("}"): (_Place.COMMA, (b"", b"")),
    ord(","): (_Place.NEXT, (b"0", b'"":0')),
    ord(":"): (_Place.WORTH, (b"0", b"0")),
}
_BEFORE_INNER: Final = {ord("["): b"[", ord("{"): b'{"":'}


def is_json(data: bytes) -> bool:
    """Whether `data` is one JSON value, half surrogates allowed; UTF-8 is not looked at. RecursionError where it nests too deep to say."""
    if _parses(data):
        return True
    # The same grammar with the escape of every half made another of its length: malformed only if that is.
    whole = _HALF_ESCAPE.sub(rb"\\ufffd", data)
    return whole != data and _parses(whole)


def _parses(data: bytes) -> bool:
    try:
        msgspec.json.decode(data, type=msgspec.Raw)
    except msgspec.MsgspecError:
        return False
    return True


def scan_large(
    body: Body, *, depth_max: int, members_max: int = MEMBERS_MAX, window: int = WINDOW
) -> Steps[tuple[Member, ...]]:
    """The members of the object that `body` is, as `scan_members` would give them. `window`: bytes, a few tens at least.

    Raises JsonMalformed for what is not JSON in UTF-8, or has a number that is longer than a window; else JsonNotObject; else JsonTooDeep or
    JsonTooMany, whichever comes first. JsonTooDeep comes at once where it nests absurdly deep.
    """
    assert depth_max <= DEEPEST
    scan = LargeScan(body, depth_max, members_max, window)
    members = yield from scan.root()
    yield from _check_utf8(body, window)
    if members is None:
        raise JsonNotObject
    if scan.refused is not None:
        raise scan.refused
    return tuple(members)


def _check_utf8(body: Body, window: int) -> Steps[None]:
    """For a body that is JSON otherwise, and so does not end within a character."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    start = 0
    try:
        for start in range(0, len(body), window):
            decoder.decode(body[start : start + window])
            yield
    except UnicodeDecodeError as error:
        raise JsonMalformed(start) from error


class LargeScan:
    """The pass over one body, or over a part of it from `at` on. `refused`: why the body is refused although it is JSON."""

    def __init__(
        self, body: Body, depth_max: int, members_max: int, window: int, *, at: int = 0
    ) -> None:
        self.refused: JsonRefused | None = None
        self._body = body
        self._size = len(body)
        self._depth_max = depth_max
        self._members_max = members_max
        self._window = window
        self._at = at

    def root(self) -> Steps[list[Member] | None]:
        """The whole of the body, which is one value: its members if it is an object."""
        members = None
        byte = yield from self._next()
        if byte == _OPEN_OBJECT:
            self._note_depth(1)
            self._at += 1
            members = yield from self.members()
        else:
            yield from self._value(byte, outer=0)
        if (yield from self._next()) != _END:
            raise JsonMalformed(self._at)
        return members

    def elements(self) -> Steps[tuple[tuple[int, int], ...]]:
        """An array from behind its opening bracket to behind its closing one; it is well-formed."""
        spans: list[tuple[int, int]] = []
        while True:
            byte = yield from self._next()
            if byte in b"],":
                self._at += 1
                if byte != _COMMA:
                    return tuple(spans)
                continue
            if len(spans) == ELEMENTS_MAX:
                raise JsonTooMany(ELEMENTS_MAX)
            start = self._at
            yield from self._value(byte, outer=1)
            spans.append((start, self._at))
            if len(spans) % _MANY == 0:
                yield

    def members(self) -> Steps[list[Member]]:
        """An object from behind its opening bracket to behind its closing one."""
        members: list[Member] = []
        byte = yield from self._next()
        if byte == _CLOSE_OBJECT:
            self._at += 1
            return members
        while True:
            if len(members) == self._members_max:
                self.refused = self.refused or JsonTooMany(self._members_max)
                yield from self._container(b"{", _Place.NEXT, outer=0)
                return members
            members.append((yield from self._member(byte)))
            byte = yield from self._next()
            self._at += 1
            if byte == _CLOSE_OBJECT:
                return members
            if byte != _COMMA:
                raise JsonMalformed(self._at - 1)
            yield
            byte = yield from self._next()

    def _member(self, byte: int) -> Steps[Member]:
        """A member of the root, from `byte`, which should open its name, to the end of its value."""
        if byte != _QUOTE:
            raise JsonMalformed(self._at)
        key_start = self._at
        yield from self._string()
        name = self._name(key_start + 1, self._at - 1)
        if (yield from self._next()) != _COLON:
            raise JsonMalformed(self._at)
        self._at += 1
        byte = yield from self._next()
        value_start = self._at
        yield from self._value(byte, outer=1)
        return Member(name, key_start, value_start, self._at)

    def _name(self, start: int, end: int) -> str:
        name = self._body[start : min(end, start + NAME_BYTES_MAX)].decode("utf-8", "replace")
        cut = end - start > NAME_BYTES_MAX  # perhaps within an escape
        return unescape(name, start) if "\\" in name and not cut else name

    def _value(self, byte: int, *, outer: int) -> Steps[None]:
        """A value of the container that is the `outer`-th, from its first `byte` on."""
        if byte == _QUOTE:
            yield from self._string()
        elif byte != _END and byte in _OPENERS:
            self._note_depth(outer + 1)
            self._at += 1
            yield from self._container(bytes((byte,)), _Place.FIRST, outer=outer)
        else:
            self._scalar()

    def _next(self) -> Steps[int]:
        """Passes white space; the byte behind it, which is not passed, or `_END`."""
        self._at = yield from word_in(self._body, self._at, self._size, window=self._window)
        return self._body[self._at] if self._at < self._size else _END

    def _string(self) -> Steps[None]:
        """Passes a string, from its opening quote on."""
        body, start = self._body, self._at + 1
        while True:
            stop = min(start + self._window, self._size)
            quote = body.find(b'"', start, stop)
            end = stop if quote < 0 else quote
            if body.find(b"\\", start, end) >= 0:
                found = _TEXT.match(body, start, stop)
                assert found is not None  # it may be empty
                end = found.end()
            elif not _parses(b'"%b"' % body[start:end]):
                raise JsonMalformed(start)
            if end < self._size and body[end] == _QUOTE:
                self._at = end + 1
                return
            if end == start:
                raise JsonMalformed(end)
            start = end
            yield

    def _scalar(self) -> None:
        """Passes a number, true, false or null. What is left of one that the window cuts is malformed behind it."""
        found = _SCALAR.match(self._body, self._at, self._at + self._window)
        if found is None:
            raise JsonMalformed(self._at)
        self._at = found.end()

    def _container(self, opened: bytes, place: _Place, *, outer: int) -> Steps[None]:
        """Passes a container inside of `outer` others, from a `place` behind its opening bracket on."""
        stack = bytearray(opened)
        size = min(_FIRST_WINDOW, self._window)
        while stack:
            window = self._body[self._at : self._at + size]
            fragment = window[: _fragment_end(window)]
            if fragment:
                place = self._fragment(fragment, stack, place, outer)
            else:
                place = yield from self._token(stack[-1], place)
            size = min(size * _WINDOW_GROWTH, self._window)
            yield

    def _fragment(self, fragment: bytes, stack: bytearray, place: _Place, outer: int) -> _Place:
        """Passes a fragment, or the part of it that closes the container; the place behind it."""
        before = b"".join([_BEFORE_INNER[each] for each in stack[:-1]])
        before += place.value[stack[-1] == _OPEN_OBJECT]
        brackets = self._follow(fragment, stack, outer)
        after = b""
        if not stack:
            fragment = fragment[: _behind_bracket(fragment, brackets)]
        behind, fillers = _BEHIND[fragment[-1]]
        if stack:
            after = fillers[stack[-1] == _OPEN_OBJECT] + bytes(stack[::-1].translate(_CLOSER_OF))
        if not is_json(b"%b%b%b" % (before, fragment, after)):
            raise JsonMalformed(self._at)
        self._at += len(fragment)
        return behind

    def _follow(self, fragment: bytes, stack: bytearray, outer: int) -> int:
        """Brings `stack` to where the fragment ends or the container is closed, after so many brackets. Whether they match is not looked at."""
        brackets, deepest = 0, len(stack)
        if b"\\" in fragment:
            bare = _STRINGS.sub(b"", fragment)
        else:
            bare = b"".join(fragment.split(b'"')[::2])
        for bracket in bare.translate(None, _NO_BRACKETS):
            brackets += 1
            if bracket in _OPENERS:
                stack.append(bracket)
                if len(stack) > deepest:
                    deepest = len(stack)
                    self._note_depth(outer + deepest)
            else:
                stack.pop()
                if not stack:
                    break
        return brackets

    def _token(self, opener: int, place: _Place) -> Steps[_Place]:
        """Passes white space, or a string or a scalar with nothing but white space in the rest of its window; the place behind it."""
        start = self._at
        byte = yield from self._next()
        if self._at > start:
            return place
        if byte == _QUOTE:
            yield from self._string()
        else:
            self._scalar()
        if place is _Place.WORTH:
            return _Place.COMMA
        is_name = opener == _OPEN_OBJECT
        if place not in {_Place.FIRST, _Place.NEXT} or (is_name and byte != _QUOTE):
            raise JsonMalformed(start)
        return _Place.COLON if is_name else _Place.COMMA

    def _note_depth(self, depth: int) -> None:
        if depth > DEEPEST:
            raise JsonTooDeep(self._depth_max)
        if depth > self._depth_max:
            self.refused = self.refused or JsonTooDeep(self._depth_max)


def _fragment_end(window: bytes) -> int:
    """Behind a late comma, colon or bracket that is in no string; 0 where there is none at all."""
    comma = window.rfind(b",") + 1
    if comma and window.find(b"\\", 0, comma) < 0 and not window.count(b'"', 0, comma) % 2:
        return comma
    found = _FRAGMENT.match(window)
    assert found is not None  # it may be empty
    # What follows is free of brackets, as far as the next string.
    end = found.end()
    quote = window.find(b'"', end)
    stop = len(window) if quote < 0 else quote
    return max(end, window.rfind(b",", end, stop) + 1)


def _behind_bracket(fragment: bytes, count: int) -> int:
    """The offset behind the `count`-th bracket that is in no string."""
    end = 0
    for pattern, times in ((_MANY_BRACKETS, count // _MANY), (_BRACKET, count % _MANY)):
        for _ in range(times):
            found = pattern.match(fragment, end)
            assert found is not None
            end = found.end()
    return end
