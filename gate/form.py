"""The fields of a multipart form (RFC 7578) that the gate reads, found in its bytes without looking into files.

Every delimiter has to stand as RFC 2046 writes it, and a part's head has to be one that every parser reads alike: what another parser might take for a field, or for its end, is refused. So
no provider sees another model than the gate did.

The body is searched in windows, so that a large file holds nobody up.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final

import msgspec

from gate.errors import RequestRefused
from gate.splice import Body
from gate.steps import Steps

__all__ = ["Field", "boundary_of", "scan_form"]

WINDOW_BYTES: Final = 262_144  # searched for one needle in some tens of microseconds
PARTS_MAX: Final = 1_024
HEAD_BYTES_MAX: Final = 8_192  # of one part
FIELD_BYTES_MAX: Final = 65_536  # of a field that is read
_BOUNDARY: Final = re.compile(
    rb"""multipart/form-data\s*;(?:[^"]*;)?\s*boundary=(?:"([^"\\]{1,70})"|([^\s";,]{1,70}))\s*(?:;[^"]*)?""",
    re.IGNORECASE,
)
_HEAD_LINE: Final = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([^\x00-\x08\x0a-\x1f\x7f]*)")
_DISPOSITION: Final = re.compile(
    rb"""form-data((?:\s*;\s*[!#$&'*+.^_`|~0-9A-Za-z-]+=(?:"[^"\\]*+(?:\\.[^"\\]*+)*+"|[^\s";]+))*)\s*""",
    re.IGNORECASE,
)
_PARAMETER: Final = re.compile(
    rb""";\s*([!#$&'*+.^_`|~0-9A-Za-z-]+)=(?:"([^"\\]*+(?:\\.[^"\\]*+)*+)"|([^\s";]+))"""
)


class Field(msgspec.Struct, frozen=True):
    """A field that was looked for: its text, and where its bytes stand in the body."""

    name: str
    text: str
    start: int
    end: int


def boundary_of(content_type: bytes) -> bytes | None:
    """The boundary of a multipart form; None where the type is another, or has none that is sure."""
    found = _BOUNDARY.fullmatch(content_type.strip())
    if found is None or content_type.lower().count(b"boundary=") != 1:
        return None
    return found[1] or found[2]


def scan_form(body: Body, boundary: bytes, wanted: Collection[str]) -> Steps[list[Field]]:
    """The wanted fields of the form that `body` is, each of them once at most. Raises `RequestRefused` (400)."""
    delimiter = b"--" + boundary
    fields: list[Field] = []
    at = yield from _find(body, delimiter, 0)
    if at != 0:
        raise _malformed()
    for _ in range(PARTS_MAX):
        at += len(delimiter)
        mark = bytes(body[at : at + 2])
        if mark == b"--":
            if bytes(body[at + 2 : at + 5]) not in {b"", b"\r\n"}:
                raise _malformed()
            return fields
        if mark != b"\r\n":
            raise _malformed()
        start = at + 2
        at = yield from _find(body, delimiter, start)
        if at < 0 or bytes(body[at - 2 : at]) != b"\r\n":
            raise _malformed()
        field = _field(body, start, at - 2, wanted)
        if field is None:
            continue
        if any(each.name == field.name for each in fields):
            raise RequestRefused(400, "duplicate_key", param=field.name)
        fields.append(field)
    raise _malformed()


def _malformed() -> RequestRefused:
    return RequestRefused(400, "invalid_form")


def _find(body: Body, needle: bytes, start: int) -> Steps[int]:
    """The first offset of `needle` from `start` on, -1 if there is none."""
    for begin in range(start, len(body), WINDOW_BYTES):
        found = body.find(needle, begin, min(begin + WINDOW_BYTES + len(needle) - 1, len(body)))
        if found >= 0:
            return found
        yield
    return -1


def _field(body: Body, start: int, end: int, wanted: Collection[str]) -> Field | None:
    """The part between `start` and `end`, if it is a wanted field."""
    head_end = body.find(b"\r\n\r\n", start, min(start + HEAD_BYTES_MAX, end))
    if head_end < 0:
        raise _malformed()
    name, plain = _name(bytes(body[start:head_end]))
    if name not in wanted:
        return None
    first = head_end + 4
    if not plain or end - first > FIELD_BYTES_MAX:
        raise RequestRefused(400, "invalid_value", param=name)
    try:
        text = bytes(body[first:end]).decode()
    except UnicodeDecodeError as error:
        raise RequestRefused(400, "invalid_value", param=name) from error
    return Field(name, text, first, end)


def _name(head: bytes) -> tuple[str, bool]:
    """A part's name, and whether it is plain text rather than a file or an encoded one."""
    name: str | None = None
    plain = True
    for line in head.split(b"\r\n"):
        found = _HEAD_LINE.fullmatch(line)
        if found is None:
            raise _malformed()
        field = found[1].lower()
        if field == b"content-disposition":
            if name is not None:
                raise _malformed()
            name, is_file = _disposition(found[2].strip())
            plain = plain and not is_file
        elif field == b"content-transfer-encoding":
            plain = plain and found[2].strip().lower() in {b"7bit", b"8bit", b"binary"}
    if name is None:
        raise _malformed()
    return name, plain


def _disposition(value: bytes) -> tuple[str, bool]:
    """The name in a `Content-Disposition`, and whether it is a file's."""
    found = _DISPOSITION.fullmatch(value)
    if found is None:
        raise _malformed()
    names: list[bytes] = []
    is_file = False
    for parameter in _PARAMETER.finditer(found[1]):
        key = parameter[1].lower()
        if key == b"name*":
            raise _malformed()  # RFC 7578, 4.2 has no use for it, and not every parser knows it
        if key == b"name":
            names.append(parameter[2] if parameter[2] is not None else parameter[3])
        is_file |= key in {b"filename", b"filename*"}
    if len(names) != 1 or b"\\" in names[0] or b"%" in names[0]:
        raise _malformed()
    return names[0].decode("utf-8", "replace"), is_file
