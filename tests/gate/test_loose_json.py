"""Loose JSON: what providers write is read, and what is written is JSON in UTF-8."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gate.loose_json import (
    DEPTH_MAX,
    encoded,
    integer,
    is_plain,
    is_utf8,
    is_whole,
    items,
    paired,
    string,
    tolerant_object,
    too_deep,
)


def test_numbers_that_json_does_not_know_become_null() -> None:
    """Python servers write NaN and Infinity; whoever reads on needs JSON. A number too large for a float would be written as one of them."""
    value = tolerant_object(b'{"a":NaN,"b":-Infinity,"c":1e999,"d":-1e999,"e":1.5,"f":1e-999}')
    assert value == {"a": None, "b": None, "c": None, "d": None, "e": 1.5, "f": 0.0}
    assert encoded(value) == b'{"a":null,"b":null,"c":null,"d":null,"e":1.5,"f":0.0}'
    assert not is_plain(b'{"a":NaN}')
    assert not is_plain(b'{"a":-Infinity}')
    assert not is_plain(b"\xff")
    assert is_plain(b"\xc3\xa9")


@pytest.mark.parametrize("value", [b"", b"[1]", b"{", b"nonsense", b'"x"'])
def test_only_an_object_is_an_object(value: bytes) -> None:
    """Everything else is None."""
    assert tolerant_object(value) is None


def test_halves_side_by_side_are_one_character() -> None:
    """And a half that stays alone is U+FFFD, since UTF-8 has no form for it."""
    assert paired("a\ud83d\ude80b") == "a\U0001f680b"
    assert paired("\ude80\ud83d") == "��"
    assert encoded({"t": "\ud83d", "\ud83d": ["\ud83d\ude80"]}) == '{"t":"�","�":["\U0001f680"]}'.encode()  # fmt: skip


@given(st.text(st.characters(exclude_categories=())))
def test_paired_text_can_always_be_encoded(text: str) -> None:
    """Whatever half pairs a provider strews in; whole text is not touched."""
    assert paired(paired(text)) == paired(text)
    assert paired(text).encode().decode() == paired(text)


def test_values_of_a_wrong_type_count_as_nothing() -> None:
    """A bool is no number, and a dictionary no list."""
    assert [integer(value) for value in (3, -1, True, "3", 2.0, None)] == [3, -1, 0, 0, 0, 0]
    assert items([{"a": 1}, 7, None]) == [{"a": 1}]
    assert items({"a": 1}) == []
    assert [string(value) for value in ("x", 7, None)] == ["x", None, None]


def test_bytes_are_utf8_or_they_are_not() -> None:
    """A Latin-1 letter is not."""
    assert is_utf8("é".encode())
    assert not is_utf8(b"\xe9")


def test_what_is_nested_too_deep_is_not_read() -> None:
    """At the bound it is, one deeper it is not, and brackets side by side are not deep."""
    assert not too_deep(b'{"a":' * (DEPTH_MAX - 1) + b"1" + b"}" * (DEPTH_MAX - 1))
    deep = b'{"a":' * (DEPTH_MAX + 1) + b"1" + b"}" * (DEPTH_MAX + 1)
    assert too_deep(deep)
    assert tolerant_object(deep) is None
    assert not too_deep(b'{"a":[' + b"[]," * 2 * DEPTH_MAX + b"1]}")


@pytest.mark.parametrize(
    ("data", "whole"),
    [
        (b' {"a":[1]} \n', True), (b"[]", True), (b'"a"', True), (b'{"a":NaN}', True), (b'["\\ud83d"]', True), (b'"\xff"', True),
        (b"", False), (b"12", False), (b"null", False), (b'{"a":1', False), (b'{"a":1}x', False), (b"[" * 5000, False), (b'{"a":"\\ud83d"', False), (b'"a","b":1', False), (b'{"a":NaN' + b"[" * 5000, False),
    ],
)  # fmt: skip
def test_a_value_that_is_whole_shows_its_end(data: bytes, whole: bool) -> None:
    """A number that is cut is one, too."""
    assert is_whole(data) is whole
