"""The example of a plug-in: words are found however they are cut, and no other text waits for it."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gate.config import PluginConfig
from gate.events import Event, Facts, Frame, ReasoningDelta, TextDelta
from gate.filters.contract import Filter, FilterContext, Passed, Primed, Verdict, Violated
from gate.filters.plugin import plugged_in
from ops.examples.banned_words.tidegate_banned_words import BannedWords, Options


def made(*words: str) -> Filter:
    """One attempt's, as the gate makes it."""
    table = PluginConfig(kind="banned-words", options=Options(words=words or ("drat", "blast")))
    each = plugged_in(BannedWords)(FilterContext(2, table=table))
    assert each is not None
    return each


def frame(event: Event) -> Frame:
    """A frame of one event."""
    return Frame(b"{}", (event,), 2)


def judged(*texts: str) -> tuple[Verdict, list[Verdict]]:
    """The last verdict on choice 0's text in these pieces, and those on the pieces."""
    each, verdicts = made(), []
    for at, text in enumerate(texts):
        verdicts.append(each.observe([frame(TextDelta(0, text))], at))
        if isinstance(verdicts[-1], Violated):
            return verdicts[-1], verdicts
    return each.finish(len(texts), Facts()), verdicts


@pytest.mark.parametrize(
    ("texts", "position"),
    [
        (("oh drat!",), 0),
        (("oh ", "DR", "AT", "!"), 1),
        (("oh", " dr", "at"), 1),
        (("a drat", "ed drat", " "), 1),
        (("drat",), 0),
        (("b", "lást ", "blast, "), 2),
    ],
)
def test_a_banned_word_is_found_where_it_begins(texts: tuple[str, ...], position: int) -> None:
    """In any case, cut or not, at the end as well."""
    verdict, _ = judged(*texts)
    assert isinstance(verdict, Violated)
    assert (verdict.position, verdict.code) == (position, "banned_word")


@pytest.mark.parametrize(
    "text", ["hydrated blasting", "dra t", "", "bla-st", "x" * 999, "blas" * 99]
)
def test_what_is_none_passes(text: str) -> None:
    """A part of another word, or one that is cut by something else."""
    for size in (1, 3, 1000):
        pieces = [text[at : at + size] for at in range(0, len(text), size)]
        verdict, _ = judged(*pieces)
        assert verdict == Passed(len(pieces))


def test_only_what_may_still_become_one_is_held() -> None:
    """Word by word, choice by choice; reasoning is not looked at."""
    _, verdicts = judged("oh d", "r", "ink bl", "oom ", "b")
    assert verdicts == [Passed(0), Passed(0), Passed(2), Passed(4), Passed(4)]
    each = made()
    assert each.observe([frame(TextDelta(0, "bla")), frame(TextDelta(1, "x"))], 0) == Passed(0)
    assert each.observe([frame(TextDelta(1, " d")), frame(TextDelta(0, "zing"))], 2) == Passed(2)
    assert each.observe([frame(ReasoningDelta(0, "drat "))], 4) == Passed(2)


def test_a_word_that_began_before_a_continuation_is_one() -> None:
    """Half of it was seen already."""
    each = made()
    assert isinstance(each, Primed)
    each.prime("oh, dr")
    verdict = each.observe([frame(TextDelta(0, "at."))], 7)
    assert isinstance(verdict, Violated)
    assert verdict.position == 7


@given(st.lists(st.text("dratbls .", max_size=6), max_size=12))
def test_cuts_make_no_difference(texts: list[str]) -> None:
    """To what is found, and nothing of a word that is found had passed."""
    verdict, verdicts = judged(*texts)
    whole, _ = judged("".join(texts))
    assert isinstance(verdict, Violated) == isinstance(whole, Violated)
    if isinstance(verdict, Violated):
        passed = [each.position for each in verdicts if isinstance(each, Passed)]
        assert all(position <= verdict.position for position in passed)


@pytest.mark.parametrize("words", [[], ["two words"], [""], ["a", "b-c"]])
def test_words_that_could_never_be_found_are_refused(words: list[str]) -> None:
    """When the configuration is read."""
    with pytest.raises(msgspec.ValidationError, match="at least one"):
        msgspec.convert({"words": words}, Options)
