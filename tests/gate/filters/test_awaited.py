"""The judge's side of a filter that awaits: what it is asked, in order and bounded, and what its answers allow."""

from __future__ import annotations

from typing import Any

import pytest

from gate.config import FilterConfig
from gate.events import Facts, Frame, TextDelta
from gate.failure import Failure, FailureKind
from gate.filters import awaited as module
from gate.filters.awaited import QUESTION_BYTES_MAX, Awaited, Question
from gate.filters.contract import Passed, Violated
from gate.filters.empty import EmptyFilter
from gate.filters.policed import unavailable

BAD = Violated(0, "bad", Failure(FailureKind.DENIED))


def frames(*texts: str) -> list[Frame]:
    """A frame of each."""
    return [Frame(b"{}", (TextDelta(0, text),), len(text)) for text in texts]


def awaited(*, gating: bool = True, wants_end: bool = False, **options: Any) -> Awaited:
    """One under a table with these options; one that computes wants to know of the end."""
    heavy = (lambda: EmptyFilter(1)) if wants_end else None
    made = Awaited(FilterConfig(kind="webhook", **options), heavy=heavy)
    made.gating = gating
    return made


def test_nothing_passes_before_it_has_answered() -> None:
    """What comes meanwhile is the next question, together."""
    filter_ = awaited()
    assert not filter_.asks
    assert filter_.observe(frames("a", "b"), 3) == Passed(3)
    first = filter_.take()
    assert (first.start, first.end, first.size, first.facts) == (3, 5, 2, None)
    assert filter_.observe(frames("c"), 5) == Passed(3)
    assert filter_.observe(frames("d"), 6) == Passed(3)
    assert not filter_.asks  # one question at a time
    filter_.answer(first, Passed(5))
    assert filter_.verdict() == Passed(5)
    assert filter_.asks
    second = filter_.take()
    assert (second.start, second.end) == (5, 7)
    filter_.answer(second, Passed(6))  # it holds one frame itself
    assert filter_.verdict() == Passed(6)
    assert repr(second) == "Question(5..7)"
    assert repr(filter_) == "Awaited(webhook, 0 frames wait)"


def test_its_horizon_is_kept_until_the_end() -> None:
    """The last question says that it is the last."""
    filter_ = awaited(horizon_chars=2)
    filter_.observe(frames("ab", "cd", "e"), 0)
    filter_.answer(filter_.take(), Passed(3))
    assert filter_.verdict() == Passed(1)
    filter_.observe(frames("f"), 3)
    filter_.finish(4, Facts())
    assert not filter_.settled
    last = filter_.take()
    assert (last.start, last.end, last.facts) == (3, 4, Facts())
    assert repr(last) == "Question(3..4, last)"
    filter_.answer(last, Passed(4))
    assert filter_.settled
    assert filter_.verdict() == Passed(4)
    assert not filter_.asks


def test_an_end_that_brings_nothing_new_is_not_asked_about() -> None:
    """But where the filter wants to know of it; nor is one whose last frames are being judged."""
    plain, wants = awaited(), awaited(wants_end=True)
    for each in (plain, wants):
        each.observe(frames("a"), 0)
        each.answer(each.take(), Passed(1))
        each.finish(1, Facts())
    assert plain.settled
    assert not wants.settled
    last = wants.take()
    assert (last.frames, last.facts) == ((), Facts())
    wants.answer(last, Passed(1))
    assert wants.settled
    busy = awaited()
    busy.observe(frames("a"), 0)
    asked = busy.take()
    busy.finish(1, Facts())
    assert not busy.settled
    busy.answer(asked, Passed(1))
    assert busy.settled


def test_an_answer_without_a_frame_ends_at_once() -> None:
    """Nothing was to be judged."""
    filter_ = awaited()
    assert filter_.finish(7, Facts()) == Passed(7)
    assert filter_.settled


def test_a_violation_is_the_verdict_from_then_on() -> None:
    """What was to be asked is forgotten."""
    filter_ = awaited()
    filter_.observe(frames("a"), 0)
    asked = filter_.take()
    filter_.observe(frames("b"), 1)
    filter_.answer(asked, BAD)
    assert filter_.verdict() == BAD
    assert filter_.observe(frames("c"), 2) == BAD
    assert not filter_.asks


def test_one_that_only_observes_says_it_once() -> None:
    """Nothing waits for it."""
    filter_ = awaited(gating=False)
    filter_.observe(frames("a"), 0)
    assert filter_.ledger_bytes > 1
    asked = filter_.take()
    filter_.observe(frames("b"), 1)
    filter_.answer(asked, BAD)
    assert filter_.ledger_bytes == 0
    assert filter_.verdict() == BAD
    assert filter_.verdict() == Passed(2)
    assert filter_.observe(frames("c"), 2) == Passed(3)


def test_a_question_has_a_bound() -> None:
    """A larger frame goes by itself; the last question is the one with the last frame."""
    filter_ = awaited()
    half = "x" * (QUESTION_BYTES_MAX // 2)
    filter_.observe(frames(half, half, "y", half * 3, "z"), 0)
    filter_.finish(5, Facts())
    questions: list[Question] = []
    while filter_.asks:
        questions.append(filter_.take())
        filter_.answer(questions[-1], Passed(questions[-1].end))
    assert [(each.start, each.end) for each in questions] == [(0, 2), (2, 3), (3, 4), (4, 5)]
    assert [each.facts is not None for each in questions] == [False, False, False, True]
    assert filter_.settled


@pytest.mark.parametrize("failure", ["open", "closed"])
def test_one_that_can_not_be_asked_has_a_policy(failure: str) -> None:
    """The reason is told once, and late answers are nobody's."""
    filter_ = awaited(failure=failure)
    filter_.observe(frames("a"), 0)
    asked = filter_.take()
    filter_.observe(frames("b"), 1)
    filter_.fail("filter_deadline")
    filter_.fail("filter_failed")
    filter_.answer(asked, BAD)
    expected = unavailable(0) if failure == "closed" else Passed(2)
    assert filter_.verdict() == expected
    assert (filter_.notice, filter_.asks) == ("filter_deadline", False)
    assert filter_.observe(frames("c"), 2) == (expected if failure == "closed" else Passed(3))
    assert filter_.settled


def test_one_that_has_not_decided_at_the_end_has_failed() -> None:
    """There is nothing more to wait for."""
    filter_ = awaited(wants_end=True)
    filter_.observe(frames("a", "b"), 0)
    filter_.finish(2, Facts())
    filter_.answer(filter_.take(), Passed(1))
    assert filter_.verdict() == unavailable(0)
    assert filter_.notice == "filter_undecided"


def test_an_observer_that_falls_behind_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it has not seen does not pile up."""
    monkeypatch.setattr(module, "OBSERVED_BYTES_MAX", 3)
    filter_ = awaited(gating=False)
    assert filter_.observe(frames("abc"), 0) == Passed(0)
    assert filter_.observe(frames("d"), 1) == Passed(2)
    assert (filter_.notice, filter_.ledger_bytes, filter_.asks) == ("filter_behind", 0, False)


def test_a_continued_attempt_knows_what_stands_before() -> None:
    """For whoever is asked."""
    filter_ = awaited()
    filter_.prime("so far")
    assert filter_.before == "so far"
