"""Filters of other packages: judged by their contract, and contained where they break it."""

from __future__ import annotations

from typing import Any

import pytest

from gate.config import FilterAction, PluginConfig
from gate.events import Facts, Frame, TextDelta
from gate.failure import Failure, FailureKind
from gate.filters.contract import Filter, FilterContext, Passed, Primed, Violated
from gate.filters.plugin import FilterPlugin, plugged_in
from tests.plugins import QUOTE, Fixed, WordPlugin, table

UNAVAILABLE = Failure(FailureKind.FILTER_UNAVAILABLE)


class Reports(list[tuple[str, Exception]]):
    """What was reported."""

    def __call__(self, name: str, error: Exception) -> None:
        self.append((name, error))


def made(
    config: PluginConfig, plugin: type[FilterPlugin] = WordPlugin, reports: Reports | None = None
) -> Filter:
    """The filter of one attempt, under the name that its route gives it."""
    build = plugged_in(plugin, Reports() if reports is None else reports)
    each = build(FilterContext(1, table=config))
    assert each is not None
    each.name = "mine"
    return each


def texts(*said: str) -> list[Frame]:
    """A frame for each piece."""
    return [Frame(b"{}", (TextDelta(0, text),), 2) for text in said]


def test_a_plugin_judges_like_any_filter() -> None:
    """It passes, holds, and has nothing to say at the end."""
    each = made(table())
    assert (each.gating, each.notice) == (True, None)
    assert each.observe(texts("Well", "then"), 0) == Passed(2)
    assert each.observe(texts("so...", "what"), 2) == Passed(2)
    assert each.finish(4, Facts()) == Passed(4)
    assert each.notice is None


@pytest.mark.parametrize(
    ("action", "kind"),
    [
        (None, FailureKind.DENIED),
        ("error", FailureKind.DENIED),
        ("next_provider", FailureKind.DENIED_NEXT),
        ("continuation", FailureKind.DENIED_CONTINUE),
    ],
)
def test_what_is_done_about_its_violation_is_the_table_s(
    action: FilterAction | None, kind: FailureKind
) -> None:
    """An error where that says nothing."""
    verdict = made(table(action=action)).observe(texts("oh", "drat"), 0)
    assert verdict == Violated(1, "word_said", Failure(kind, verdict="word_said"))


def test_it_is_told_of_the_text_before_a_continuation() -> None:
    """And what was released then is not taken back."""
    each = made(table(word="ab"))
    assert isinstance(each, Primed)
    each.prime("a")
    assert each.observe(texts("b"), 7) == Violated(
        7, "word_said", Failure(FailureKind.DENIED, verdict="word_said")
    )


def test_its_notice_is_observed_where_it_is_a_stable_token() -> None:
    """Anything else could quote the answer."""
    each, loose = made(table(notice="near_miss")), made(table(notice=QUOTE))
    for judge in (each, loose):
        assert judge.finish(0, Facts()) == Passed(0)
    assert (each.notice, loose.notice) == ("near_miss", None)


@pytest.mark.parametrize("where", ["init", "prime", "observe", "finish"])
def test_what_it_raises_closes_the_filter(where: str) -> None:
    """It is reported once, under its name, and condemns the attempt once."""
    reports = Reports()
    each = made(table(raises=where), reports=reports)
    assert isinstance(each, Primed)
    if where != "init":
        each.prime("before")
    verdicts = [each.observe(texts("a"), 3), each.observe(texts("b"), 4), each.finish(5, Facts())]
    condemned = [verdict for verdict in verdicts if isinstance(verdict, Violated)]
    assert [(each.code, each.failure) for each in condemned] == [
        ("filter_unavailable", UNAVAILABLE)
    ]
    assert condemned[0].position == (5 if where == "finish" else 3)
    assert isinstance(verdicts[-1], Violated if where == "finish" else Passed)
    assert [(name, str(error)) for name, error in reports] == [("mine", QUOTE)]


@pytest.mark.parametrize("where", ["init", "observe", "finish"])
def test_a_filter_that_fails_open_passes_everything_and_says_so(where: str) -> None:
    """From then on, also what it held."""
    reports = Reports()
    each = made(table(raises=where, failure="open"), reports=reports)
    assert each.observe(texts("wait..."), 0) == Passed(0 if where == "finish" else 1)
    assert each.finish(1, Facts()) == Passed(1)
    assert each.notice == "filter_unavailable"
    assert len(reports) == 1


@pytest.mark.parametrize(
    "verdict",
    [None, "passed", 3, Violated(0, "A sentence.", UNAVAILABLE), Violated(0, "", UNAVAILABLE)],
)
def test_a_verdict_against_the_contract_is_a_failure(verdict: Any) -> None:
    """A code that can't be shown is one, too."""
    plugin = type("Wrong", (Fixed,), {"verdict": verdict})
    reports = Reports()
    each = made(table(), plugin, reports)
    assert each.gating is False
    assert each.observe(texts("a"), 0) == Violated(0, "filter_unavailable", UNAVAILABLE)
    assert [type(error) for _, error in reports] == [TypeError]


@pytest.mark.parametrize(("said", "meant"), [(-9, 4), (4, 4), (5, 5), (99, 6)])
def test_a_position_neither_goes_back_nor_beyond_what_came(said: int, meant: int) -> None:
    """What was released stays so, and nothing passes unseen."""
    denied = Failure(FailureKind.DENIED, verdict="x")
    passes = made(table(), type("Passes", (Fixed,), {"verdict": Passed(said)}))
    assert passes.observe(texts("a", "b"), 4) == Passed(meant)
    objects = made(
        table(), type("Objects", (Fixed,), {"verdict": FilterPlugin.violated(said, "x")})
    )
    assert objects.observe(texts("a", "b"), 4) == Violated(meant, "x", denied)


def test_an_answer_without_frames_is_judged_at_its_end() -> None:
    """There is no position before it."""
    each = made(table(raises="finish"))
    assert each.finish(0, Facts()) == Violated(0, "filter_unavailable", UNAVAILABLE)
