"""Strict JSON: what a client's own parser takes, and a reason for everything else that quotes nothing."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gate.strict_json import DEPTH_MAX, TEXT_CHARS_MAX, NotJson, parse_json

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)  # fmt: skip


@given(value=values, ascii_only=st.booleans(), indent=st.sampled_from([None, 2]))
def test_what_the_standard_library_writes_is_read_back(
    value: object, ascii_only: bool, indent: int | None
) -> None:
    """With white space around it, as models put it."""
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent)
    assert parse_json(f"\n{text}\t ") == value


@given(text=st.text('[]{}":,\\u1d8-.e tn'))
def test_what_is_read_is_what_the_standard_library_reads(text: str) -> None:
    """And nothing that it refuses, but for numbers that are none and halves that can't be written."""
    try:
        value = parse_json(text)
    except NotJson:
        return
    assert json.dumps(value) == json.dumps(json.loads(text))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a":1,"a":2}', {"a": 2}),
        ('"\\ud83d\\ude00"', "😀"),
        ('["\\ud83d","a\\udc00",{"\\ud800":1}]', ["\ufffd", "a\ufffd", {"\ufffd": 1}]),
        ('"\\\\ud800"', "\\ud800"),
        ('"\ud800"', "\ufffd"),
        ("18446744073709551616", 1 << 64),
    ],
)
def test_json_is_json_however_odd(text: str, value: object) -> None:
    """A member that comes twice, a half surrogate, a large whole number."""
    assert parse_json(text) == value


@pytest.mark.parametrize(
    "text",
    [
        "",
        " \n",
        "secret",
        "{secret: 1}",
        '{"secret": 1',
        '{"secret": 1} secret',
        '```json\n{"secret": 1}\n```',
        "NaN",
        "[-Infinity]",
        "[1e999]",
        '["\\ud800", NaN]',
        '["\\ud800", 1e999]',
        "9" * 5000,
        "\u00a0{}",
        "\ufeff{}",
        "[1,]",
        "01",
        '"a\nb"',
    ],
)
def test_anything_else_is_refused_without_being_quoted(text: str) -> None:
    """The reason goes into a repair message beside a bounded excerpt."""
    with pytest.raises(NotJson) as caught:
        parse_json(text)
    assert "secret" not in str(caught.value)
    assert 0 < len(str(caught.value)) < 200


@pytest.mark.parametrize("opened", ["[", '{"a":', '[{"a":'])
def test_depth_has_a_bound_and_costs_no_stack(opened: str) -> None:
    """Far beyond it, where a recursive parser gives up by itself, too."""
    closed = "".join("]" if each == "[" else "}" for each in opened[::-1] if each in "[{")
    levels = opened.count("[") + opened.count("{")
    for depth, good in ((DEPTH_MAX // levels, True), (DEPTH_MAX // levels + 1, False), (50_000, False)):  # fmt: skip
        text = opened * depth + "1" + closed * depth
        if good:
            assert parse_json(text)
        else:
            with pytest.raises(NotJson, match="deeply"):
                parse_json(text)


def test_width_is_no_depth() -> None:
    """Many brackets side by side."""
    assert len(parse_json("[" + "[1],{}," * 500 + "[]]")) == 1001


def test_a_text_longer_than_any_answer_is_not_parsed() -> None:
    """One step of the loop has a bound."""
    assert parse_json("1" + " " * (TEXT_CHARS_MAX - 1)) == 1
    with pytest.raises(NotJson, match="too long"):
        parse_json("1" + " " * TEXT_CHARS_MAX)
