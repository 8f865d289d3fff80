"""Markup of calls in text: found at the beginning of the text or of a line with a declared tool's name behind it, and nowhere else."""

from __future__ import annotations

import time
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gate.filters.call_markup import MARKUP, WINDOW_CHARS, MarkupWatch

NAMES = ("get_file", "put-file", "ns.tool")


def watched(*pieces: str, over: bool = True, primed: str = "") -> MarkupWatch:
    """A watch that has seen these pieces, one frame each."""
    watch = MarkupWatch(NAMES)
    watch.prime(primed)
    for position, piece in enumerate(pieces):
        watch.feed(piece, position)
    if over:
        watch.finish()
    return watch


@pytest.mark.parametrize(
    ("text", "found"),
    [
        *((f'{markup}{{"name":"get_file"}}', "get_file") for markup in MARKUP),
        ("<|channel|>commentary to=functions.get_file <|message|>{}", "get_file"),
        ("<|tool_call>call:put-file{}", "put-file"),
        ("<\uff5ctool\u2581calls\u2581begin\uff5c>get_file", "get_file"),
        ("<|python_tag|>ns.tool()", "ns.tool"),
        ("I look.\n<tool_call>get_file", "get_file"),
        (" \t<tool_call>get_file", "get_file"),
        ("\n\n  <tool_call>\nget_file\n", "get_file"),
        ("<|a|>\n<tool_call>get_file", "get_file"),
        ("<|a|>" + "x" * 250 + "\n<tool_call>get_file", "get_file"),
        ("<tool_call>" + "x" * (WINDOW_CHARS - 20) + " get_file", None),
        ("<tool_call>get_files", None),
        ("<tool_call>my-get_file", None),
        ("I look <tool_call>get_file", None),
        ("a <tool_call>get_file\n", None),
        ("<tool_calls>get_file", None),
        ("<|>get_file", None),
        ("<| get_file", None),
        ("<|" + "a" * 60 + "|>get_file", None),
        ("<tool", None),
        ("[TOOL_CALLS]", None),
        ("<p>get_file</p>", None),
        ("[1] get_file", None),
        ("get_file", None),
    ],
)
def test_markup_counts_with_a_tools_name_within_the_window(text: str, found: str | None) -> None:
    """As a word of its own."""
    assert watched(text).found == found
    assert watched(*text).found == found


def test_text_is_held_from_a_possible_beginning_on() -> None:
    """Until it is none, or is over."""
    for pieces, held in (
        (["I look.", "\n", " "], None),
        (["I look.\n <"], 0),
        (["I", "\n", "<tool_", "call>", "x"], 2),
        (["\n<", "p>"], None),
        (["<|", "tool"], 0),
        (["<tool_call>", "x" * 100], 0),
        (["<tool_call>", "x" * WINDOW_CHARS], None),
        (["a<tool_call>"], None),
        (["<tool_call>", "x" * WINDOW_CHARS + "\n", "["], 2),
    ):
        assert watched(*pieces, over=False).held == held, pieces
        if held is None or watched(*pieces).found is None:
            assert watched(*pieces).held is None


def test_what_is_found_is_held_and_can_be_quoted() -> None:
    """From its beginning, in the frame where that stands."""
    watch = watched("a", "b\n<tool_", "call>get_file ", "more", over=False)
    assert (watch.found, watch.held) == ("get_file", 1)
    assert watch.text == "<tool_call>get_file "


def test_text_that_goes_on_from_elsewhere_has_no_beginning_of_its_own() -> None:
    """Unless a line begins with it."""
    assert watched("<tool_call>get_file", primed="I look ").found is None
    assert watched("<tool_call>get_file", primed="I look.\n ").found == "get_file"
    assert watched("<tool_call>get_file", primed="").found == "get_file"


def test_the_rest_of_a_line_is_no_beginning() -> None:
    """Even where a piece begins with it; the next line may be one."""
    assert watched("a", "<tool_call>get_file ", "\n").found is None
    assert watched("a", "<tool_call>get_file \n").found is None
    assert watched("a", "<tool_call>get_file \n<tool_call>put-file ").found == "put-file"


@given(
    text=st.lists(
        st.sampled_from(["<tool_call>", "<|", "|>", "a", "\n", " ", "get_file", "[", "x" * 100, "<"]),
        max_size=12,
    ).map("".join),
    cuts=st.lists(st.integers(0, 300)),
)  # fmt: skip
def test_any_cut_of_a_text_is_judged_alike(text: str, cuts: list[int]) -> None:
    """The verdict, and what is held in the end."""
    edges = sorted({0, len(text), *(min(each, len(text)) for each in cuts)})
    pieces = [text[a:b] for a, b in pairwise(edges)]
    assert watched(*pieces).found == watched(*text).found == watched(*filter(None, [text])).found


@pytest.mark.no_cover
@pytest.mark.parametrize("text", ["\n<|a|>", "\n<", "\n", "<tool_call>\n", " "])
def test_a_long_text_costs_time_in_proportion(text: str) -> None:
    """In one piece, and by the character; a second would be a thousand times too long."""
    begun = time.perf_counter()
    assert watched(text * 20_000).found is None
    assert watched(*text * 2_000).found is None
    assert time.perf_counter() - begun < 10
