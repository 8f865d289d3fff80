"""Traces: what is written comes back as it was, in either encoding; what was damaged is refused."""

from __future__ import annotations

import types
from collections.abc import Mapping
from typing import Any, Final, Union, get_args, get_origin

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gate.trace import VERSION, End, Header, Part, Read, Record, Trace, digest_of, keyed
from gate.trace_codec import (
    PIECE_BYTES_MAX,
    TraceInvalid,
    count,
    decode,
    encode_binary,
    encode_json,
    sealed,
    traces,
)

HEADER: Final = Header(VERSION, "ex-1", {"python": "3.11"}, 7, "full", {"routes": {}}, b"salt")

# --- any record ----------------------------------------------------------------------------------

_JSON: Final = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)  # fmt: skip
_PLAIN: Final[dict[Any, st.SearchStrategy[Any]]] = {
    bool: st.booleans(),
    int: st.integers(-(2**62), 2**62),
    float: st.floats(allow_nan=False, allow_infinity=False),
    str: st.text(max_size=12),
    bytes: st.binary(max_size=24),
    type(None): st.none(),
    Any: _JSON,
}


def values(kind: Any) -> st.SearchStrategy[Any]:
    """Values of a field's type."""
    origin, arguments = get_origin(kind), get_args(kind)
    if not arguments:
        return _PLAIN[kind]
    if origin in {Union, types.UnionType}:
        return st.one_of(*map(values, arguments))
    if origin is tuple and arguments[-1] is Ellipsis:
        return st.lists(values(arguments[0]), max_size=3).map(tuple)
    if origin is tuple:
        return st.tuples(*map(values, arguments))
    if origin is Mapping:
        return st.dictionaries(st.text(max_size=6), values(arguments[1]), max_size=3)
    return st.sampled_from(arguments)  # a literal


def records_of(kind: type[Any]) -> st.SearchStrategy[Any]:
    """Records of one kind."""
    fields = {field.name: values(field.type) for field in msgspec.structs.fields(kind)}
    return st.builds(kind, **fields)


RECORDS: Final = st.one_of(*(records_of(kind) for kind in get_args(Record)))


@given(st.lists(RECORDS, max_size=8))
def test_records_come_back_from_either_encoding(records: list[Record]) -> None:
    """Bytes that are no text, floats, empty fields: nothing is lost, and nothing becomes something else."""
    assert list(decode(b"".join(map(encode_binary, records)))) == records
    assert list(decode(b"".join(map(encode_json, records)))) == records


@given(RECORDS)
def test_a_line_for_people_is_one_line_of_json(record: Record) -> None:
    """Whatever the content, a tool that reads lines can read it."""
    line = encode_json(record)
    assert line.count(b"\n") == 1
    assert isinstance(msgspec.json.decode(line)["k"], str)


def test_bytes_that_are_no_text_are_shown_in_base64() -> None:
    """And come back; an empty line between two records is nothing."""
    records = [Read(1, 5, 5, 3, b"\xff\x00a"), Read(1, 6, 1, 2, b"ab")]
    lines = [encode_json(each) for each in records]
    assert b'"x":"/wBh"' in lines[0]
    assert list(decode(b"\n".join(lines))) == records
    assert list(decode(b"".join(map(encode_binary, records)))) == records


# --- whole traces --------------------------------------------------------------------------------


def trace_of(*records: Record) -> bytes:
    """A binary trace."""
    return b"".join(map(encode_binary, sealed([HEADER, *records])))


def read(data: bytes) -> list[Trace]:
    return list(traces(decode(data)))


def test_long_content_is_split_and_joined_again() -> None:
    """A read of three records' worth; the one after it stays by itself."""
    long = bytes(range(256)) * 640
    records = sealed([HEADER, Part(0, 4, True, b"body"), Read(1, 5, 5, len(long), long), Read(1, 6, 1, 2, b"ab")])  # fmt: skip
    assert [len(each.b) for each in records if isinstance(each, Read)] == [PIECE_BYTES_MAX, PIECE_BYTES_MAX, 32_768, 2]  # fmt: skip
    (trace,) = traces(records)
    assert trace.records == (
        Part(0, 4, True, b"body"),
        Read(1, 5, 5, len(long), long),
        Read(1, 6, 1, 2, b"ab"),
    )


def test_several_traces_stand_in_one_file() -> None:
    """One after another; they are counted without being decoded."""
    data = trace_of() + trace_of(Part(0, 1, True, b"x"))
    assert [len(each.records) for each in read(data)] == [0, 1]
    lines = b"".join(encode_json(each) for each in decode(data))
    assert (count(data), count(lines), count(b"")) == (2, 2, 0)


def test_what_is_missing_or_not_full_can_not_be_replayed() -> None:
    """Content that was hashed, or that found no room."""
    (whole,) = read(trace_of())
    assert whole.replayable
    (cut,) = traces(sealed([HEADER], truncated=True, dropped=3))
    assert (cut.replayable, cut.end.dropped) == (False, 3)
    hashed = msgspec.structs.replace(HEADER, content="hash")
    (counted,) = traces(sealed([hashed]))
    assert not counted.replayable


def _without_end(data: bytes) -> bytes:
    *records, _ = decode(data)
    return b"".join(map(encode_binary, records))


def _more(data: bytes) -> bytes:
    """A split read whose other half is something else."""
    half = Read(1, 1, 1, 1, b"x", more=True)
    return b"".join(map(encode_binary, sealed([HEADER, half, Part(1, 0, True)])))


DAMAGED: Final = [
    (lambda data: data[:-1], "no whole record"),
    (lambda data: data[:2], "no whole record"),
    (lambda data: b"\xff" * 9, "no whole record"),
    (lambda data: (3).to_bytes(4, "big") + b"abc", "byte 4"),
    (_without_end, "no end"),
    (lambda data: encode_binary(Part(0, 0, True)) + data, "without its header"),
    (lambda data: _without_end(data) + data, "within another"),
    (lambda data: data.replace(b"body", b"BODY"), "was changed"),
    (_more, "does not go on"),
    (lambda data: b'{"k":"rx"}', "line 1"),
    (lambda data: b'{"k":"nothing"}', "line 1"),
    (lambda data: b'{"k":"part","t":0,"size":1,"last":true,"x":"***","sha":"","more":false}', "line 1"),
    (lambda data: b'{"k":"part","t":0,"size":1,"last":true,"b":"","sha":"zz","more":false}', "line 1"),
    (lambda data: b"{", "line 1"),
]  # fmt: skip


@pytest.mark.parametrize(("damage", "said"), DAMAGED)
def test_a_damaged_file_is_refused_with_the_place(damage: Any, said: str) -> None:
    """Never taken for another trace."""
    with pytest.raises(TraceInvalid, match=said):
        read(damage(trace_of(Part(0, 4, True, b"body"))))


def test_another_format_is_refused() -> None:
    """The first number of the version says what a reader has to know."""
    later = msgspec.structs.replace(HEADER, version=(2, 0))
    with pytest.raises(TraceInvalid, match="format 2"):
        list(traces(sealed([later])))


def test_a_digest_depends_on_its_key_and_not_on_the_pieces() -> None:
    """A guess of a prompt can't be tested without the key."""
    assert digest_of([b"ab", memoryview(b"c")], b"k") == digest_of([b"abc"], b"k")
    assert digest_of([b"abc"], b"k") != digest_of([b"abc"], b"l")
    assert keyed(b"k").digest() == digest_of([], b"k")


def test_the_end_counts_the_records_before_it() -> None:
    """A record that was cut out is missed."""
    *records, end = sealed([HEADER, Part(0, 0, True)])
    assert isinstance(end, End)
    assert end.records == 2
    with pytest.raises(TraceInvalid, match="was changed"):
        list(traces([records[0], end]))
