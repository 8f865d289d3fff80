"""Filters of other packages: judged by their contract, and failures where they break it."""

from __future__ import annotations

from typing import Any

import pytest

from gate.config import FilterAction, PathKind, PluginConfig
from gate.events import Facts, Frame, TextDelta
from gate.failure import Failure, FailureKind
from gate.filters.awaited import Awaited
from gate.filters.builtin import make_filters
from gate.filters.contract import Filter, FilterContext, Passed, Primed, Violated
from gate.filters.plugin import FilterPlugin, plugged_in
from gate.filters.policed import Policed, unavailable
from tests.plugins import QUOTE, Fixed, HeavyPlugin, WordPlugin, table

DENIED = Failure(FailureKind.DENIED, verdict="word_said")


def made(config: PluginConfig, plugin: type[FilterPlugin] = WordPlugin) -> Filter:
    """The filter of one attempt, as a plug-in makes it."""
    each = plugged_in(plugin)(FilterContext(1, table=config))
    assert each is not None
    return each


def policed(config: PluginConfig) -> Policed:
    """The same as a route's list makes it."""
    plugins = {"word": plugged_in(WordPlugin)}
    [each] = make_filters(["mine"], FilterContext(1), {"mine": config}, plugins=plugins)
    assert isinstance(each, Policed)
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


def test_the_frame_that_showed_a_violation_is_kept() -> None:
    """So that what is read together is judged as if it came one by one."""
    fixed = type("Said", (Fixed,), {"verdict": Violated(0, "bad", DENIED, seen=1)})
    said = made(table(), fixed).observe(texts("a", "b"), 0)
    assert isinstance(said, Violated)
    assert (said.position, said.seen) == (0, 1)


class Scoped(WordPlugin):
    """Judges Responses in the provider's own bytes, and nothing else."""

    endpoints = frozenset({"/v1/responses"})
    paths = ("tunnel",)


@pytest.mark.parametrize(
    ("endpoint", "path", "there"),
    [
        ("/v1/responses", "tunnel", True),
        ("/v1/responses", "normalized", False),
        ("/v1/chat/completions", "tunnel", False),
    ],
)
def test_outside_of_its_scope_there_is_none(endpoint: str, path: PathKind, *, there: bool) -> None:
    """By the endpoint that was asked at, and the path of the attempt."""
    context = FilterContext(1, table=table(), endpoint=endpoint, path=path)
    assert (plugged_in(Scoped)(context) is not None) is there


def test_a_heavy_one_is_waited_for() -> None:
    """It is made in the thread that it judges in, and never before."""
    each = plugged_in(HeavyPlugin)(FilterContext(1, table=table(raises="init")))
    assert isinstance(each, Awaited)
    assert each.gating
    assert each.heavy is not None
    made_in_thread = each.heavy()
    with pytest.raises(ValueError, match=QUOTE):
        made_in_thread.observe(texts("a"), 0)


def test_a_route_s_list_makes_it_under_its_name_and_policies() -> None:
    """Each attempt has one of its own."""
    each = policed(table())
    assert (each.name, each.gating) == ("mine", True)
    assert each.observe(texts("wait..."), 0) == Passed(0)
    assert policed(table()).observe(texts("now"), 0) == Passed(1)


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
    assert each.observe(texts("b"), 7) == Violated(7, "word_said", DENIED)


def test_its_notice_is_observed_where_it_is_a_stable_token() -> None:
    """Anything else could quote the answer."""
    each, loose = made(table(notice="near_miss")), made(table(notice=QUOTE))
    for judge in (each, loose):
        assert judge.finish(0, Facts()) == Passed(0)
    assert (each.notice, loose.notice) == ("near_miss", None)


@pytest.mark.parametrize("where", ["init", "prime", "observe", "finish"])
def test_what_it_raises_is_its_failure(where: str) -> None:
    """Also where it can't be made at all: the other filters of the attempt are."""
    each = policed(table(raises=where))
    if where != "init":
        each.prime("before")
    verdicts = [each.observe(texts("a"), 3), each.finish(4, Facts())]
    assert verdicts[-1] == unavailable(4)
    assert verdicts[0] == (Passed(4) if where == "finish" else unavailable(3))
    assert str(each.error) == QUOTE


@pytest.mark.parametrize("where", ["init", "observe", "finish"])
def test_one_that_fails_open_passes_everything_from_then_on(where: str) -> None:
    """What it held, too."""
    each = policed(table(raises=where, failure="open"))
    assert each.observe(texts("wait..."), 0) == Passed(0 if where == "finish" else 1)
    assert each.finish(1, Facts()) == Passed(1)
    assert each.notice == "filter_failed"


@pytest.mark.parametrize(
    "verdict",
    [None, "passed", 3, Violated(0, "A sentence.", DENIED), Violated(0, "", DENIED)],
)
def test_a_verdict_against_the_contract_is_a_failure(verdict: Any) -> None:
    """A code that can't be shown is one, too."""
    each = made(table(), type("Wrong", (Fixed,), {"verdict": verdict}))
    assert each.gating is False
    with pytest.raises(TypeError, match="a verdict is"):
        each.observe(texts("a"), 0)


@pytest.mark.parametrize(("said", "meant"), [(-9, 4), (4, 4), (5, 5), (99, 6)])
def test_a_position_neither_goes_back_nor_beyond_what_came(said: int, meant: int) -> None:
    """What was released stays so, and nothing passes unseen."""
    passes = made(table(), type("Passes", (Fixed,), {"verdict": Passed(said)}))
    assert passes.observe(texts("a", "b"), 4) == Passed(meant)
    objection = FilterPlugin.violated(said, "word_said")
    objects = made(table(), type("Objects", (Fixed,), {"verdict": objection}))
    assert objects.observe(texts("a", "b"), 4) == Violated(meant, "word_said", DENIED)
