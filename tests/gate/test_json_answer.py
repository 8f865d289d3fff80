"""What may stand around JSON, and whether a beginning can still become some: nothing that the parser takes is given up, however it is cut."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gate.json_answer import TICKS_MAX, AnswerPrefix, JsonPrefix, ends_early, json_span
from gate.strict_json import DEPTH_MAX, NotJson, parse_json


def lives(text: str, *, wrapped: bool = False) -> bool:
    """Whether `text` may become JSON: whole, and character by character."""
    whole = AnswerPrefix(wrapped=wrapped).feed(text)
    pieces = AnswerPrefix(wrapped=wrapped)
    for character in text:
        pieces.feed(character)
    assert pieces.alive == whole
    return whole


def dies_at(text: str, *, wrapped: bool = False) -> int:
    """How many characters are taken before it is given up."""
    prefix = AnswerPrefix(wrapped=wrapped)
    return next(at for at, character in enumerate(text) if not prefix.feed(character))


VALUES = [
    "{}",
    "[]",
    '{"a": [1, -0, 2.50, 1e5, 1E+05, 0.1e-3, -7, 12], "b\\u00e9\\"": {"c": null}, "": "x"}',
    " \t\r\n[true, false, null , [[ ], {}]] \n",
    '"a\\\\\\/\\b\\f\\n\\r\\t\\ud83d \ud83d \u2028 \x7f"',
    "0",
    "-12.5",
    "[" * DEPTH_MAX + "]" * DEPTH_MAX,
]


@pytest.mark.parametrize("text", VALUES)
def test_every_beginning_of_json_may_become_json(text: str) -> None:
    """All of it too, with white space behind it."""
    parse_json(text)
    assert all(lives(text[:end]) for end in range(len(text) + 1))


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("Sure! {}", 0),
        ("{} x", 3),
        ("{}{", 2),
        ("{,", 1),
        ('{"a",', 4),
        ('{"a":1,}', 7),
        ('{"a":1]', 6),
        ("{a", 1),
        ("{]", 1),
        ("[}", 1),
        ("[,", 1),
        ("[1 2", 3),
        ("[1}", 2),
        ('{"a" 1', 5),
        ('{"a"::', 5),
        ("]", 0),
        ("}", 0),
        (":", 0),
        ("trux", 3),
        ("[nulL", 4),
        ("NaN", 0),
        ("Infinity", 0),
        ("-I", 1),
        ("01", 1),
        ("1.e", 2),
        ("1.5.", 3),
        ("1e5e", 3),
        ("1e+x", 3),
        ("1ex", 2),
        ("+1", 0),
        (".5", 0),
        ("--", 1),
        ("[\u0661", 1),
        ("'a'", 0),
        ('"\n', 1),
        ('"\\x', 2),
        ('"\\u12g', 5),
        ('{"a\t', 3),
        ("[" * (DEPTH_MAX + 1), DEPTH_MAX),
        ("\ufeff{", 0),
        ("```json\n{", 0),
        ("{}```", 2),
        ("// a\n{}", 0),
    ],
)
def test_what_can_not_become_json_is_given_up_at_once(text: str, at: int) -> None:
    """At the character that makes it so."""
    assert dies_at(text) == at
    assert not lives(text)


WRAPPED = [
    "```\n{}\n```",
    "```json\n{}\n```",
    "```JSON\r\n{}\r\n```\r\n",
    "\ufeff \n```json {} ```\n\ufeff",
    "```{}```",
    '````json\n{"a": "```\\n```"}\n````',
    "\ufeff{}\n\ufeff",
    "  {}",
]


@pytest.mark.parametrize("text", WRAPPED)
def test_what_stands_around_it_is_taken_off(text: str) -> None:
    """And no beginning of that is given up."""
    start, end = json_span(text)
    parse_json(text[start:end])
    assert all(lives(text[:size], wrapped=True) for size in range(len(text) + 1))
    assert not lives(text + "x", wrapped=True)


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("`{}`", 1),
        ("``{}``", 2),
        ("```js\n{}\n```", 5),
        ("```jsonc\n{}\n```", 7),
        ("```json5\n{}\n```", 7),
        ("```python\n{}\n```", 3),
        ("```1\n```", 3),
        ("```json\n{}\n``` `", 15),
        ("```json\n{}\n````", 14),
        ("```json\n{}\n`` `", 13),
        ("```json\n{}\n\n Bye", 13),
        ("Here:\n```json\n{}\n```", 0),
        ("```json\n{}\n```\nBye", 15),
        ("`" * (TICKS_MAX + 1) + "{}" + "`" * (TICKS_MAX + 1), TICKS_MAX + 1),
        ("~~~\n{}\n~~~", 0),
    ],
)
def test_what_is_no_such_fence_is_given_up(text: str, at: int) -> None:
    """And stays where it is."""
    assert dies_at(text, wrapped=True) == at
    start, end = json_span(text)
    with pytest.raises(NotJson):
        parse_json(text[start:end])


@pytest.mark.parametrize("text", ["```", "```json", "``````", "`", "```json\n", "```json\n{}\n````", "", " \ufeff"])  # fmt: skip
def test_half_a_fence_is_none(text: str) -> None:
    """Only outer white space goes."""
    start, end = json_span(text)
    assert text[start:end] == text.strip(" \ufeff").rstrip("\n")


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=8,
)
fences = st.sampled_from(["", "```", "```json", "````JSON"])
blanks = st.text(" \n\r\t\ufeff", max_size=3)


@given(value=values, fence=fences, around=st.tuples(blanks, blanks, blanks, blanks), plain=st.booleans(), indent=st.sampled_from([None, 1]))  # fmt: skip
def test_whatever_json_is_wrapped_so_is_found(
    value: object, fence: str, around: tuple[str, ...], plain: bool, indent: int | None
) -> None:
    """And none of its beginnings is given up."""
    inner = json.dumps(value, ensure_ascii=plain, indent=indent)
    lead, before, behind, tail = around
    close = fence.rstrip("jsonJSON")
    before = (before or "\n") if fence else before
    text = f"{lead}{fence}{before}{inner}{behind}{close}{tail}"
    start, end = json_span(text)
    assert text[start:end] == inner
    prefix = AnswerPrefix(wrapped=True)
    assert all(prefix.feed(character) for character in text)


tokens = st.sampled_from([*'{}[]":,\\u0019-.eE+ \n`xtruefalsn', '"a"', "true", "1.5", '{"a":', "```json\n"])  # fmt: skip


@given(st.lists(tokens, max_size=12).map("".join), st.booleans())
def test_what_is_given_up_is_never_json(text: str, wrapped: bool) -> None:
    """However it goes on; and what the parser takes is never given up."""
    alive = lives(text, wrapped=wrapped)
    start, end = json_span(text) if wrapped else (0, len(text))
    try:
        parse_json(text[start:end])
    except NotJson:
        pass
    else:
        assert alive
    if not alive:
        for more in ("", "}", "]", '"', '"}', "0", "\n```", "true"):
            start, end = json_span(text + more) if wrapped else (0, len(text + more))
            with pytest.raises(NotJson):
                parse_json((text + more)[start:end])


def is_json(text: str, *, wrapped: bool) -> bool:
    """Whether it is whole."""
    start, end = json_span(text) if wrapped else (0, len(text))
    try:
        parse_json(text[start:end])
    except NotJson:
        return False
    return True


@pytest.mark.parametrize("text", [*VALUES, "[1.5e+05,-1]", '["\\ud83d\\ude00"]', "-1.5"])
def test_every_beginning_of_json_ends_early(text: str) -> None:
    """Unless it is JSON itself."""
    for end in range(len(text)):
        assert ends_early(text[:end], wrapped=False) != is_json(text[:end], wrapped=False)
        assert ends_early("\ufeff```json\n" + text[:end], wrapped=True)


@pytest.mark.parametrize(
    "text",
    ["Sure", "{} x", "[1 2", "[1 2.", "[1.5.", "[01", '["a"e', "[truee", "1,", "[NaN", "[-I", '{"a" 1', '{"a":1,b', '"\\x', '"\\u12g', '"\n', "[" * 100_000, "[" + "1" * 5_000, "[nulL", '{"a', "```js", "{}"],
)  # fmt: skip
def test_nothing_else_does(text: str) -> None:
    """Nor what is whole, or too deep for anybody, or a number that nobody can hold."""
    assert ends_early(text, wrapped=False) == (text == '{"a')
    long = text + "x," * 10
    assert ends_early(long, wrapped=True) == (text == '{"a')


def test_a_fence_that_is_cut_ends_early_too() -> None:
    """Before the value, or behind it."""
    for text in (
        "",
        "``",
        "```",
        "```js",
        "```json\n",
        "```json\n{}\n``",
        "```json\n[1, 2, 3, 4, 5]\n``",
    ):
        assert ends_early(text, wrapped=True) == lives(text, wrapped=True)
    assert not ends_early("```{}```", wrapped=True)
    assert not ends_early("```[1, 2, 3, 4, 5, 6]```", wrapped=True)
    assert not ends_early("[1, 2, 3, 4, 5, 6]`", wrapped=True)
    assert not ends_early("```[1, 2, 3, 4, 5, 6]````", wrapped=True)
    assert not ends_early("Here: ```json\n{", wrapped=True)


@given(st.lists(tokens, max_size=12).map("".join), st.booleans())
def test_what_ends_early_is_alive_and_not_whole(text: str, wrapped: bool) -> None:
    """Asked either way."""
    assert ends_early(text, wrapped=wrapped) <= lives(text, wrapped=wrapped)
    if ends_early(text, wrapped=wrapped):
        assert not is_json(text, wrapped=wrapped)
    elif not wrapped:
        assert not lives(text) or is_json(text, wrapped=False)


def test_it_shows_no_content() -> None:
    """By itself."""
    prefix = AnswerPrefix(wrapped=False)
    prefix.feed('{"secret": [')
    assert repr(prefix) == "AnswerPrefix(JsonPrefix(item, 2 deep), alive)"
    prefix.feed("x")
    assert repr(prefix).endswith("dead)")
    assert JsonPrefix().feed("1", 0) == 1
