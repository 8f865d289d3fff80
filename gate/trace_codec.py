"""Traces as bytes. Two encodings of the same records, each lossless: msgpack behind a length of four bytes, and JSON lines for people.

In JSON `k` is the kind of record, `b` bytes as text, `x` bytes that are no UTF-8, in base64; digests are hexadecimal.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from gate.trace import (
    VERSION,
    Answered,
    Attempt,
    CallerEvent,
    Decision,
    End,
    Fact,
    Header,
    Part,
    Ping,
    Read,
    Record,
    Release,
    Request,
    ResponseHead,
    Term,
    Trace,
    Upstream,
)

__all__ = ["TraceInvalid", "count", "decode", "encode_binary", "encode_json", "sealed", "traces"]

RECORD_BYTES_MAX: Final = 4_194_304  # one frame; far above what a record of ours may hold
PIECE_BYTES_MAX: Final = 65_536  # of content in one record; more is split
_LENGTH_BYTES: Final = 4

_KINDS: Final[Mapping[str, type[Any]]] = {
    "hdr": Header,
    "req": Request,
    "part": Part,
    "cli": CallerEvent,
    "att": Attempt,
    "up": Upstream,
    "rx": Read,
    "flt": Answered,
    "fact": Fact,
    "dec": Decision,
    "head": ResponseHead,
    "rel": Release,
    "ping": Ping,
    "term": Term,
    "end": End,
}
_NAMES: Final = {kind: name for name, kind in _KINDS.items()}
_DIGESTS: Final = frozenset({"sha", "salt"})
_JSON_END: Final = b'{"k":"end"'
_BINARY_END: Final = bytes([14])  # the tag of `End`
_BINARY: Final = msgspec.msgpack.Encoder()
_RECORD: Final[msgspec.msgpack.Decoder[Record]] = msgspec.msgpack.Decoder(Record)


class TraceInvalid(Exception):
    """A file is no trace of this format, or a damaged one; the message says where."""


# ---- writing ------------------------------------------------------------------------------------


def sealed(records: Iterable[Record], *, dropped: int = 0, truncated: bool = False) -> list[Record]:
    """These records with long content split, and the end behind them."""
    out = [piece for record in records for piece in _split(record)]
    hashed = hashlib.sha256()
    for record in out:
        hashed.update(encode_binary(record))
    return [*out, End(len(out), dropped, truncated, hashed.digest())]


def encode_binary(record: Record) -> bytes:
    """One record as a frame."""
    data = _BINARY.encode(record)
    return len(data).to_bytes(_LENGTH_BYTES, "big") + data


def encode_json(record: Record) -> bytes:
    """One record as a line."""
    out: dict[str, Any] = {"k": _NAMES[type(record)]}
    for name in record.__struct_fields__:
        value = getattr(record, name)
        if name == "b":
            out.update(_shown(value))
        elif name in _DIGESTS:
            out[name] = value.hex()
        else:
            out[name] = value
    return msgspec.json.encode(out) + b"\n"


def _shown(data: bytes) -> dict[str, str]:
    try:
        return {"b": data.decode()}
    except UnicodeDecodeError:
        return {"x": base64.b64encode(data).decode()}


def _split(record: Record) -> Iterator[Record]:
    if not isinstance(record, Read | Part) or len(record.b) <= PIECE_BYTES_MAX:
        yield record
        return
    starts = range(0, len(record.b), PIECE_BYTES_MAX)
    for start in starts:
        piece = record.b[start : start + PIECE_BYTES_MAX]
        more = start != starts[-1]
        yield msgspec.structs.replace(record, b=piece, size=len(piece), more=more)


# ---- reading ------------------------------------------------------------------------------------


def decode(data: bytes) -> Iterator[Record]:
    """The records of a file, in either encoding. Raises `TraceInvalid`."""
    return _lines(data) if data[:1] == b"{" else _frames(data)


def traces(records: Iterable[Record]) -> Iterator[Trace]:
    """The traces that these records are, with split content joined. Raises `TraceInvalid`, behind all that are whole."""
    kept: list[Record] = []
    for record in records:
        if isinstance(record, Header) == bool(kept):
            raise TraceInvalid("a trace begins within another, or without its header")
        kept.append(record)
        if isinstance(record, End):
            yield _checked(kept, record)
            kept = []
    if kept:
        raise TraceInvalid("the last trace has no end")


def count(data: bytes) -> int:
    """How many traces end in a file, without decoding it; what is no trace counts for nothing."""
    if data[:1] == b"{":
        return data.count(_JSON_END)
    found, at = 0, 0
    while at < len(data):
        start = at + _LENGTH_BYTES
        at = start + int.from_bytes(data[at:start], "big")
        found += data[start + 1 : start + 2] == _BINARY_END  # behind the byte of the array
    return found


def _checked(records: Sequence[Record], end: End) -> Trace:
    header, *rest = records[:-1]
    assert isinstance(header, Header), "the first record was looked at"
    if header.version[0] != VERSION[0]:
        raise TraceInvalid(f"trace format {header.version[0]} is not known")
    hashed = hashlib.sha256()
    for record in records[:-1]:
        hashed.update(encode_binary(record))
    if end.records != len(records) - 1 or end.sha != hashed.digest():
        raise TraceInvalid(f"trace {header.trace_id} was changed after it was recorded")
    return Trace(header, tuple(_joined(rest)), end)


def _joined(records: Iterable[Record]) -> Iterator[Record]:
    before: Read | Part | None = None
    for record in records:
        whole = record
        if before is not None:
            if type(record) is not type(before):
                raise TraceInvalid("split content does not go on")
            assert isinstance(record, Read | Part)
            data = before.b + record.b
            whole = msgspec.structs.replace(record, b=data, size=len(data))
        before = whole if isinstance(whole, Read | Part) and whole.more else None
        if before is None:
            yield whole


def _frames(data: bytes) -> Iterator[Record]:
    at = 0
    while at < len(data):
        start = at + _LENGTH_BYTES
        size = int.from_bytes(data[at:start], "big")
        at = start + size
        if size > RECORD_BYTES_MAX or at > len(data):
            raise TraceInvalid(f"byte {start}: no whole record")
        try:
            yield _RECORD.decode(data[start:at])
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise TraceInvalid(f"byte {start}: {error}") from None


def _lines(data: bytes) -> Iterator[Record]:
    for number, line in enumerate(data.split(b"\n"), start=1):
        if line:
            try:
                yield _from_json(line)
            except (msgspec.MsgspecError, LookupError, TypeError, ValueError) as error:
                raise TraceInvalid(f"line {number}: {error}") from None


def _from_json(line: bytes) -> Record:
    found = msgspec.json.decode(line, type=dict[str, Any])
    kind = _KINDS[found["k"]]
    values: list[Any] = [kind.__struct_config__.tag]
    for field in msgspec.structs.fields(kind):
        if field.name == "b":
            values.append(_hidden(found))
        elif field.name in _DIGESTS:
            values.append(bytes.fromhex(found[field.name]))
        else:
            values.append(found[field.name])
    record: Record = msgspec.convert(values, Record)
    return record


def _hidden(found: Mapping[str, Any]) -> bytes:
    if "b" in found:
        text: str = found["b"]
        return text.encode()
    try:
        return base64.b64decode(found["x"], validate=True)
    except binascii.Error as error:
        raise ValueError(str(error)) from None
