"""Patterns over texts that have not ended: nothing that a match may begin with is missed."""

from __future__ import annotations

import re
from typing import Final

import pytest
import re2
from hypothesis import example, given
from hypothesis import strategies as st

from gate import regex_syntax
from gate.regex import PATTERN_CHARS_MAX, PATTERNS_MAX, PatternInvalid, compile_patterns
from gate.regex_syntax import beginning, looks_ahead, parse, whole

PIECES: Final = ("a", "b", "ab", ".", "[ab]", "[^a]", r"\b", r"\B", "^", "$", r"\x61", "é", " ")


def patterns() -> st.SearchStrategy[str]:
    """Small patterns that RE2 and Python understand alike."""
    piece = st.sampled_from(PIECES)
    return st.recursive(
        piece,
        lambda inner: st.one_of(
            st.lists(inner, min_size=1, max_size=4).map("".join),
            st.lists(inner, min_size=1, max_size=3).map(lambda some: f"(?:{'|'.join(some)})"),
            inner.map(lambda one: f"({one})"),
            inner.map(lambda one: f"(?i:{one})"),
            st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "{1,}", "{0,2}", "+?"])).map(
                lambda both: f"(?:{both[0]}){both[1]}"
            ),
        ),
        max_leaves=8,
    )


texts = st.text(alphabet="abAé \n", max_size=12)


def first_match(pattern: str, text: str) -> int | None:
    """Where RE2 finds the pattern itself in the whole text, in bytes."""
    found = re2.search(pattern, text.encode())
    return None if found is None else int(found.start())


@given(pattern=patterns(), text=texts)
@example(pattern="a$|ab", text="aba")
@example(pattern=r"\bab\b", text="ab ab")
@example(pattern="(?:a|b$)+^", text="aab")
def test_no_match_is_missed_whatever_has_come_so_far(pattern: str, text: str) -> None:
    """At each moment the match that comes begins within what is said to be open, and at the end it is found where RE2 finds it."""
    try:
        judge = compile_patterns((pattern,))
    except PatternInvalid:
        return
    data = text.encode()
    start = first_match(pattern, text)
    assert judge.match(data, ended=True) == start
    for chars in range(len(text) + 1):
        so_far = text[:chars].encode()
        found = judge.match(so_far, ended=False)
        if found is not None:
            assert found == start or start is not None
            return
        if start is not None:
            assert judge.open_from(so_far) <= max(start, 0) or len(so_far) <= start


@given(pattern=patterns(), text=texts, cut=st.integers(0, 12))
def test_what_stands_before_is_looked_back_at(pattern: str, text: str, cut: int) -> None:
    """A search from a place on finds what one of the whole text does that may not begin before."""
    try:
        judge = compile_patterns((pattern,))
    except PatternInvalid:
        return
    data, start = text.encode(), len(text[:cut].encode())
    found = re2.compile(pattern).search(data, start)
    assert judge.match(data, start, ended=True) == (None if found is None else found.start())


@pytest.mark.parametrize(
    ("pattern", "matches"),
    [
        ("AKIA[0-9A-Z]{16}", ["AKIAABCDEFGHIJKLMNOP"]),
        (r"(?i)secret-\d+|key", ["SECRET-1", "sEcReT-42", "KEY"]),
        (r"(?P<year>\d{4})-(?:0[1-9]|1[0-2])", ["2026-12"]),
        (r"(?i)a(?-i:b)c|(?s:x.y)", ["AbC", "x\ny"]),
        (r"[]a-c\]]+[^]x]", ["]a]b!", "cé"]),
        (r"[[:alpha:]]\p{Greek}\pN\.", ["xω1."]),
        (r"(?:ab{0}c*){2,3}\x{1F600}", ["accac\U0001f600"]),
        (r"a{1|b{,2}|c\{", ["a{1", "b{,2}", "c{"]),
        (r"(|x)y{2,}?", ["yy", "xyyy"]),
        ("é+ü", ["ééü"]),
    ],
)
def test_every_beginning_of_a_match_is_one(pattern: str, matches: list[str]) -> None:
    """And the pattern that is written from the tree is the one that was read."""
    node = parse(pattern)
    begins = beginning(node)
    assert begins is not None
    for match in matches:
        assert re2.fullmatch(pattern, match)
        assert re2.fullmatch(whole(node), match)
        for chars in range(1, len(match) + 1):
            assert re2.fullmatch(begins, match[:chars]), match[:chars]
        assert not re2.fullmatch(begins, f"#{match}")


def test_ordinary_text_leaves_nothing_open() -> None:
    """A word that only ends as a pattern begins is none of its matches."""
    judge = compile_patterns((r"\bsk-[a-z]{4}", "A.*Z$"))
    text = "The desk- and the task"
    assert judge.open_from(text.encode()) == len(text)
    assert judge.open_from(b"the sk") == 4
    assert judge.open_from(b"the A and") == 4


def test_what_looks_ahead_is_decided_by_what_follows() -> None:
    """`$` at the end alone, a word's end with the next character."""
    ends, word = compile_patterns(("ab$",)), compile_patterns((r"ab\b",))
    assert (ends.match(b"ab", ended=False), word.match(b"ab", ended=False)) == (None, None)
    assert (ends.match(b"ab.", ended=False), word.match(b"ab.", ended=False)) == (None, 0)
    assert (ends.match(b"ab", ended=True), word.match(b"ab", ended=True)) == (0, 0)
    assert ends.open_from(b"ab") == 0
    assert ends.open_from(b"ab.") == 3
    assert [looks_ahead(parse(each)) for each in ("ab", "a^b", "(ab$)?", "a|b{2}$")] == [False, False, True, True]  # fmt: skip


def test_several_patterns_are_one() -> None:
    """The first match of any of them, whether it looks ahead or not."""
    judge = compile_patterns(("b", "a$", "c"))
    assert judge.match(b"xxa", ended=True) == 2
    assert judge.match(b"xb.a", ended=True) == 1
    assert judge.match(b"a.xb", ended=True) == 3
    assert judge.match(b"xx", ended=True) is None


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("[a", "missing ]"),
        ("a)", "unexpected )"),
        ("(a", "missing )"),
        ("(?=a)", "invalid perl operator"),
        (r"\1", "invalid escape"),
        ("a{2000}", "invalid repetition size"),
        ("(?m)^a", "the flag m"),
        (r"\Qa\E", r"\Q is not known"),
        (r"a\C", r"\C is not known"),
        ("a*", "matches the empty text"),
        ("^", "matches the empty text"),
        (r"\b", "no characters"),
        ("a" * (PATTERN_CHARS_MAX + 1), "is longer than"),
        ("(" * 60 + "a" + ")" * 60, "nested too deeply"),
        ("((a{100}){100}){100}", "invalid repetition size"),
    ],
)
def test_a_pattern_that_can_not_be_used_says_why(pattern: str, reason: str) -> None:
    """In words for whoever wrote it, with its number."""
    with pytest.raises(PatternInvalid, match=re.escape(reason)) as caught:
        compile_patterns(("good", pattern))
    assert caught.value.index == 1


def test_what_re2_would_accept_and_is_not_known_here_is_said_by_the_reader() -> None:
    """RE2 is asked first, so these are only met by who asks the reader itself."""
    for pattern in ("a)", "(a", "(?=a)", "[a", "\\"):
        with pytest.raises(PatternInvalid):
            parse(pattern)


def test_patterns_have_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their number, and the parts of one."""
    with pytest.raises(PatternInvalid, match="more than 256 patterns"):
        compile_patterns(tuple(f"a{n}" for n in range(PATTERNS_MAX + 1)))
    monkeypatch.setattr(regex_syntax, "NODES_MAX", 3)
    with pytest.raises(PatternInvalid, match="too long"):
        parse("abcd")
