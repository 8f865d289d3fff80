"""The model's name in what a provider sends, replaced by the alias that the caller asked for. No other byte changes.

What is replaced is the value of the top-level `model` of a JSON object, every time it stands there, if it is a string or null; in an event of the Responses API also that of
`response.model`. A name inside of text, or deeper down, stays. JSON that can't be read stays as it is.

Frames of one stream nearly always begin with the same bytes, so a remembered beginning makes most of them one comparison and one join.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from gate.splice import JsonRefused, Member, apply_edits, members_of
from gate.sse import SseEvent

__all__ = ["ModelEcho", "echo_for"]

Edit = tuple[int, int, bytes]

BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
_NAME: Final = b'"model"'
_NAMED: Final = re.compile(rb'"model"(?=[ \t\n\r]*+:)')
_SCALAR: Final = re.compile(
    rb'"model"[ \t\n\r]*+:[ \t\n\r]*+("[^"\\]*+(?:\\.[^"\\]*+)*+"|null)', re.DOTALL
)
LARGE_BYTES: Final = 65_536  # a body that is scanned from the name's side
NAMES_MAX: Final = 8  # in such a body; each is looked at by itself
_SCALARS: Final = (b'"', b"n")  # a string, or null
# A line `data`, and what stands behind its colon and one blank.
_DATA_LINE: Final = re.compile(rb"(?:\A|(?<=[\r\n]))data(?:: ?+([^\r\n]*+))?+(?=[\r\n]|\Z)")


class ModelEcho:
    """The rewriting for one attempt. `alias`: what stands there afterwards; `nested`: `response.model` too."""

    def __init__(self, alias: str, *, nested: bool = False) -> None:
        self._value = msgspec.json.encode(alias)
        self._nested = nested
        self._head, self._head_now = b"", b""

    def body(self, data: bytes) -> bytes:
        """A whole JSON body with the alias in it."""
        mark = BYTE_ORDER_MARK if data.startswith(BYTE_ORDER_MARK) else b""
        inner = data.removeprefix(mark)
        edits = None if self._nested or len(inner) <= LARGE_BYTES else self._near_an_end(inner)
        if edits is None:
            edits = self._edits(inner)
        return mark + apply_edits(inner, edits) if edits else data

    def _near_an_end(self, data: bytes) -> Sequence[Edit] | None:
        """The edits of a large body, whose bulk (vectors, pictures) stands before or behind the names: for each only the shorter side is scanned. None where they are too many for that."""
        edits: list[Edit] = []
        places = [found.start() for found in itertools.islice(_NAMED.finditer(data), NAMES_MAX + 1)]
        if len(places) > NAMES_MAX:
            return None
        for at in places:
            if data[at - 1 : at] == b"\\":
                continue  # the end of another name
            behind = len(data) - at
            member = _begins(data, at) if behind <= at else _ends(data, at)
            if member is not None and data[member[0] : member[0] + 1] in _SCALARS:
                edits.append((*member, self._value))
        return edits

    def event(self, event: SseEvent) -> bytes:
        """The raw bytes of an event with the alias in its payload; comments, line ends and other fields stay."""
        raw, data = event.raw, event.data
        if data is None or _NAME not in data:
            return raw
        if raw.startswith(b"data:") and raw.find(b"\n", 0, len(raw) - 2) < 0 and b"\r" not in raw:
            return self._one_line(raw, data)
        edits = self._edits(data)
        return apply_edits(raw, list(_moved(edits, raw))) if edits else raw

    def _one_line(self, raw: bytes, data: bytes) -> bytes:
        """The usual event: `data:`, a payload and its line ends."""
        at = raw.index(data, len(b"data:"))
        head = self._head
        if head and data.startswith(head) and data.find(_NAME, len(head)) < 0:
            return raw[:at] + self._head_now + raw[at + len(head) :]
        edits = self._edits(data)
        if not edits:
            return raw
        if len(edits) == 1:
            start, end, value = edits[0]
            self._head, self._head_now = data[:end], data[:start] + value
        return raw[:at] + apply_edits(data, edits) + raw[at + len(data) :]

    def _edits(self, data: bytes) -> Sequence[Edit]:
        if _NAME not in data:
            return ()
        try:
            return list(self._found(data, members_of(data)))
        except JsonRefused:
            return ()

    def _found(self, data: bytes, members: Sequence[Member]) -> Iterator[Edit]:
        for member in members:
            first = data[member.value_start : member.value_start + 1]
            if member.key == "model" and first in _SCALARS:
                yield member.value_start, member.value_end, self._value
            elif self._nested and member.key == "response" and first == b"{":
                for inner in members_of(data, member.value_start):
                    if inner.key == "model" and data[inner.value_start : inner.value_start + 1] in _SCALARS:  # fmt: skip
                        yield inner.value_start, inner.value_end, self._value


def echo_for(alias: str, model: str, *, nested: bool = False) -> ModelEcho | None:
    """The rewriting for an attempt at `model`; None where it is what the caller asked for."""
    return None if alias == model else ModelEcho(alias, nested=nested)


def _begins(data: bytes, at: int) -> tuple[int, int] | None:
    """Where the value of the name at `at` stands, if it is one of the root's: what follows is the rest of one object, to its end."""
    try:
        first, *_ = members_of(b"{" + data[at:])
    except JsonRefused:
        return None
    return first.value_start + at - 1, first.value_end + at - 1


def _ends(data: bytes, at: int) -> tuple[int, int] | None:
    """The same by what comes before: it is the beginning of one object, up to a name. A value that is no scalar is none that is replaced, and is not looked for."""
    found = _SCALAR.match(data, at)
    if found is None:
        return None
    try:
        members_of(data[: found.end()] + b"}")
    except JsonRefused:
        return None
    return found.span(1)


def _moved(edits: Sequence[Edit], raw: bytes) -> Iterator[Edit]:
    """Edits of a payload as edits of the block that it came in. A value that is replaced lies in one line, since JSON's own scalars hold no line end."""
    lines: list[tuple[int, int, int]] = []
    offset = 0
    for found in _DATA_LINE.finditer(raw):
        start, end = found.span(1) if found[1] is not None else (found.end(), found.end())
        lines.append((offset, offset + end - start, start))
        offset += end - start + 1
    for start, end, value in edits:
        first, _, at = next(line for line in lines if line[0] <= start <= end <= line[1])
        yield at + start - first, at + end - first, value
