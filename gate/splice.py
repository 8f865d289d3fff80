"""Find the members of a JSON object in its bytes, and replace some without touching the others.

Source: RFC 8259 for the grammar. This is not JSON Patch (RFC 6902): only one level of one object
or array is looked at, and every byte outside an edit stays as it was, white space, escapes, number
spelling and duplicate names included.

The rule of this file: structure is checked, content is not. A caller has validated the body before;
here strings and nested values are skipped, by regular expressions whose repetitions are possessive,
so that nothing is ever tried twice and an unbalanced body is refused in linear time.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from mmap import mmap
from typing import Final

import msgspec

# A request has about thirty members and some hundred messages. One found costs up to a hundred times
# the bytes it has at least, so their number is bounded apart from the size of the body.
MEMBERS_MAX: Final = 4_096
ELEMENTS_MAX: Final = 65_536

Body = bytes | mmap
"""A request body. A large one is memory of its own, which could be filled without moving it; nobody changes it once it is whole."""

_COMMA: Final = ord(",")
_QUOTE: Final = ord('"')
_OPENERS: Final = b"[{"
_CLOSER_OF: Final = bytes.maketrans(b"[{", b"]}")

_BLANK: Final = rb"[ \t\n\r]*+"
_TEXT: Final = rb'[^"\\]*+(?:\\.[^"\\]*+)*+'
_NUMBER: Final = rb"-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?+(?:[eE][-+]?[0-9]++)?+"
_SCALAR: Final = rb'"%b"|%b|true|false|null' % (_TEXT, _NUMBER)

# How many levels of containers one match of _SHALLOW may pass. Each level doubles the pattern; what
# lies deeper is counted bracket by bracket, and no byte is looked at more than _LEVELS + 2 times.
_LEVELS: Final = 6


def _content(levels: int) -> bytes:
    """A pattern for anything within a container that nests at most `levels` containers."""
    inert = rb'[^"\[\]{}]*+'
    parts = [rb'"%b"' % _TEXT]
    if levels:
        inner = _content(levels - 1)
        parts += [rb"\[%b\]" % inner, rb"\{%b\}" % inner]
    return rb"%b(?:(?:%b)%b)*+" % (inert, b"|".join(parts), inert)


def _pattern(*parts: bytes) -> re.Pattern[bytes]:
    """Parts with white space allowed between them; a dot stands for any byte."""
    return re.compile(_BLANK.join((b"", *parts)), re.DOTALL)


_WORD: Final = re.compile(rb"[^ \t\n\r]")
_OBJECT: Final = _pattern(rb"\{", rb"(\})?+")
_ARRAY: Final = _pattern(rb"\[", rb"(\])?+")
# Each stops behind the comma or bracket that follows a scalar, or before the bracket that opens a
# container.
_MEMBER: Final = _pattern(
    rb'"(%b)"' % _TEXT,
    rb":",
    rb"(?:(?=[\[{])|(%b)%b[,}])" % (_SCALAR, _BLANK),
)
_ELEMENT: Final = _pattern(rb"(?:(?=[\[{])|(%b)%b[,\]])" % (_SCALAR, _BLANK))
_MEMBER_END: Final = _pattern(rb"[,}]")
_ELEMENT_END: Final = _pattern(rb"[,\]]")
# To the next bracket: over all shallow containers on the way, or over none.
_SHALLOW: Final = re.compile(_content(_LEVELS) + rb"[\[\]{}]", re.DOTALL)
_FLAT: Final = re.compile(_content(0) + rb"[\[\]{}]", re.DOTALL)


class JsonRefused(ValueError):
    """The bytes cannot be scanned. Says nothing of their content."""


class JsonMalformed(JsonRefused):
    """The structure breaks at or after `offset`."""

    def __init__(self, offset: int) -> None:
        super().__init__(f"malformed JSON at or after byte {offset}")
        self.offset = offset


class JsonTooDeep(JsonRefused):
    """More than `depth_max` containers are nested, the scanned one counted as the first."""

    def __init__(self, depth_max: int) -> None:
        super().__init__(f"JSON is nested deeper than {depth_max} levels")
        self.depth_max = depth_max


class JsonTooMany(JsonRefused):
    """The scanned container has more than `count_max` members or elements."""

    def __init__(self, count_max: int) -> None:
        super().__init__(f"a JSON container has more than {count_max} entries")
        self.count_max = count_max


class Member(msgspec.Struct, frozen=True, gc=False):
    """One member of an object. Offsets count from the begin of the body that was scanned.

    `key` is decoded; `key_start` is the offset of its opening quote. The value, without the white
    space around it, is `body[value_start:value_end]`.
    """

    key: str
    key_start: int
    value_start: int
    value_end: int


def scan_members(
    body: Body, *, depth_max: int, start: int = 0, members_max: int = MEMBERS_MAX
) -> tuple[Member, ...]:
    """The members, in order and with duplicates, of the object at `start` or after white space there.

    If `start` is 0 the object is the whole body and only white space may follow it. Names that are
    not UTF-8 are decoded with replacement characters; a lone surrogate escape stays one.

    Raises JsonMalformed, JsonTooDeep or JsonTooMany; takes time linear in the bytes looked at.
    """
    position, more = _open(body, start, _OBJECT, depth_max)
    members: list[Member] = []
    while more:
        found = _MEMBER.match(body, position)
        if found is None:
            raise JsonMalformed(position)
        if len(members) == members_max:
            raise JsonTooMany(members_max)
        value_start, value_end = found.span(2)
        position = found.end()
        if value_end < 0:
            value_start = position
            value_end = _pass_container(body, position, depth_max)
            position = _pass_end(body, value_end, _MEMBER_END)
        name_start = found.start(1)
        name = found[1].decode("utf-8", "replace")
        if "\\" in name:
            name = unescape(name, name_start)
        members.append(Member(name, name_start - 1, value_start, value_end))
        more = body[position - 1] == _COMMA
    if not start and (word := _WORD.search(body, position)):
        raise JsonMalformed(word.start())
    return tuple(members)


def scan_elements(
    body: Body, *, start: int, depth_max: int, elements_max: int = ELEMENTS_MAX
) -> tuple[tuple[int, int], ...]:
    """The (start, end) offsets of each element of the array at `start` or after white space there.

    `depth_max` counts from this array, which is the first level. What follows it is not looked at.

    Raises JsonMalformed, JsonTooDeep or JsonTooMany; takes time linear in the bytes looked at.
    """
    position, more = _open(body, start, _ARRAY, depth_max)
    spans: list[tuple[int, int]] = []
    while more:
        found = _ELEMENT.match(body, position)
        if found is None:
            raise JsonMalformed(position)
        if len(spans) == elements_max:
            raise JsonTooMany(elements_max)
        value_start, value_end = found.span(1)
        position = found.end()
        if value_end < 0:
            value_start = position
            value_end = _pass_container(body, position, depth_max)
            position = _pass_end(body, value_end, _ELEMENT_END)
        spans.append((value_start, value_end))
        more = body[position - 1] == _COMMA
    return tuple(spans)


def members_of(data: bytes, start: int = 0) -> tuple[Member, ...]:
    """Members of an object in JSON that has been decoded before: it is well-formed, and its own size bounds the rest."""
    return scan_members(data, depth_max=len(data) + 1, start=start, members_max=len(data) + 1)


def elements_of(data: bytes, start: int) -> tuple[tuple[int, int], ...]:
    """Elements of an array in JSON that has been decoded before."""
    return scan_elements(data, depth_max=len(data) + 1, start=start, elements_max=len(data) + 1)


def apply_edits(body: bytes, edits: Sequence[tuple[int, int, bytes]]) -> bytes:
    """`body` with each (start, end, replacement) done.

    Offsets are of `body`; the edits come in order and do not overlap. An empty span inserts.
    """
    view = memoryview(body)
    slices: list[memoryview | bytes] = []
    position = 0
    for start, end, replacement in edits:
        assert position <= start <= end <= len(body)
        slices += (view[position:start], replacement)
        position = end
    slices.append(view[position:])
    return b"".join(slices)


def joined_members(data: bytes, members: Sequence[Member], but: frozenset[str]) -> bytes:
    """The members of an object, less those named, as `,"k":v,"k":v`."""
    return b"".join(
        b"," + data[member.key_start : member.value_end]
        for member in members
        if member.key not in but
    )


def first_word(body: Body, position: int) -> int:
    """The first byte from `position` on that is no white space; something closes what is looked through."""
    found = _WORD.search(body, position)
    assert found is not None, "a bracket closes it"
    return found.start()


def integer_of(data: bytes, member: Member | None) -> int:
    """A small index; 0 where there is none."""
    if member is None:
        return 0
    raw = data[member.value_start : member.value_end]
    return int(raw) if raw.isdigit() else 0


def remove_member_span(members: Sequence[Member], index: int, body: bytes) -> tuple[int, int]:
    """The span of `body` to delete so that the object stays valid without member `index`.

    `members` are all those of the object, as scanned from `body`. The comma before the member goes
    with it, or the one after it if it is the first. The spans of the first member and of the second
    may overlap: to remove both, scan again in between.
    """
    member = members[index]
    assert body[member.key_start] == _QUOTE
    if index:
        return members[index - 1].value_end, member.value_end
    if len(members) > 1:
        return member.key_start, members[1].key_start
    return member.key_start, member.value_end


def _open(body: Body, start: int, pattern: re.Pattern[bytes], depth_max: int) -> tuple[int, bool]:
    """Where the content of a container begins, and whether it has any. Behind it if it has none."""
    opened = pattern.match(body, start)
    if opened is None:
        raise JsonMalformed(start)
    if depth_max < 1:
        raise JsonTooDeep(depth_max)
    return opened.end(), opened[1] is None


def _pass_container(body: Body, start: int, depth_max: int) -> int:
    """The offset behind the container that opens at `start`, a value of the scanned one."""
    closers = bytearray()
    position = start
    while True:
        bracket = body[position]
        if bracket in _OPENERS:
            # The scanned container is one level itself.
            if len(closers) + 1 >= depth_max:
                raise JsonTooDeep(depth_max)
            closers.append(_CLOSER_OF[bracket])
        elif bracket != closers.pop():
            raise JsonMalformed(position)
        if not closers:
            return position + 1
        step = _SHALLOW if len(closers) + 1 + _LEVELS <= depth_max else _FLAT
        found = step.match(body, position + 1)
        if found is None:
            raise JsonMalformed(position)
        position = found.end() - 1


def _pass_end(body: Body, value_end: int, end_pattern: re.Pattern[bytes]) -> int:
    """The offset behind the comma or closing bracket that follows a value."""
    end = end_pattern.match(body, value_end)
    if end is None:
        raise JsonMalformed(value_end)
    return end.end()


def unescape(name: str, offset: int) -> str:
    """The name that stands at `offset` between quotes, its escapes resolved."""
    try:
        decoded = json.loads(f'"{name}"', strict=False)
    except ValueError as error:
        raise JsonMalformed(offset) from error
    assert isinstance(decoded, str)
    return decoded
