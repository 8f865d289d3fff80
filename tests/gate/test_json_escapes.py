"""Escapes are resolved as a JSON parser resolves them, however the text is cut."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gate.json_escapes import Escapes

# Longest is half a pair, followed by the beginning of the other half.
BEGUN_MAX = 11


def resolved(text: str, *cuts: int) -> str:
    """All of it, cut at these places, as far as it is known."""
    escapes = Escapes()
    ends = [0, *sorted(cuts), len(text)]
    return "".join(escapes.resolve(text[start:end]) for start, end in pairwise(ends))


@given(st.text(), st.booleans(), st.lists(st.integers(0, 40), max_size=6))
def test_what_a_parser_reads_is_what_is_told(text: str, ascii_only: bool, cuts: list[int]) -> None:
    written = json.dumps(text, ensure_ascii=ascii_only)[1:-1]
    assert resolved(written, *(min(cut, len(written)) for cut in cuts)) == text


@given(st.text(alphabet='\\u0d8cDE"n', max_size=24), st.lists(st.integers(0, 24), max_size=6))
def test_no_cut_changes_what_is_said(written: str, cuts: list[int]) -> None:
    """Whatever is written; what waits at the end is short."""
    escapes = Escapes()
    whole = escapes.resolve(written)
    assert resolved(written, *(min(cut, len(written)) for cut in cuts)) == whole
    assert len(escapes.begun) <= BEGUN_MAX
    later = escapes.resolve(".")
    assert not escapes.begun
    assert (whole + later).encode().endswith(b".")


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("", ""),
        ("plain", "plain"),
        (r"\"\\\/\b\f\n\r\t", '"\\/\b\f\n\r\t'),
        (r"\u0073ecret", "secret"),
        (r"\\u0073", r"\u0073"),
        (r"\ud83d\ude00", "\U0001f600"),
        (r"\uD83D\uDE00!", "\U0001f600!"),
        (r"\ud83d.", "\ufffd."),
        (r"\ude00", "\ufffd"),
        (r"\ud83dA\u0041", "\ufffdAA"),
        (r"\ud83d\u0041", "\ufffdA"),
        (r"\uzz", r"\uzz"),
        (r"\x", "x"),
    ],
)
def test_each_escape_has_its_character(written: str, said: str) -> None:
    assert resolved(written) == said


@pytest.mark.parametrize("begun", ["\\", "\\u", "\\u00a", "\\ud83d", "\\ud83d\\", "\\ud83d\\ude0"])
def test_an_escape_that_has_begun_is_waited_for(begun: str) -> None:
    escapes = Escapes()
    assert (escapes.resolve(f"a{begun}"), escapes.begun) == ("a", begun)
