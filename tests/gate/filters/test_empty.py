"""`empty`: what counts as an answer at the end of a complete attempt."""

from __future__ import annotations

import pytest

from gate.events import (
    AudioDelta,
    Event,
    Facts,
    FinishFact,
    Frame,
    ReasoningDelta,
    RefusalDelta,
    RoleDelta,
    TextDelta,
    ToolDelta,
)
from gate.failure import Failure, FailureKind
from gate.filters.contract import Passed, Primed, Verdict, Violated
from gate.filters.empty import EmptyFilter

EMPTY = Violated(0, "empty_answer", Failure(FailureKind.EMPTY))
CALL = ToolDelta(0, 0, "call-1", "f", "{}")


def judged(*events: Event, reason: str = "stop", choices: int = 1) -> Verdict:
    """The verdict on an answer of one frame per event, all of its choices finished by `reason`."""
    judge = EmptyFilter(choices)
    for position, event in enumerate(events):
        judge.observe([Frame(b"{}", (event,), 2)], position)
    finishes = tuple(FinishFact(choice, reason) for choice in range(choices))
    return judge.finish(len(events), Facts(finishes))


@pytest.mark.parametrize(
    "events",
    [
        (),
        (RoleDelta(0, "assistant"),),
        (TextDelta(0, " \n"), TextDelta(0, "\t")),
        (ReasoningDelta(0, "I think"),),
        (ReasoningDelta(0, "I think"), TextDelta(0, "\n\n")),
    ],
)
def test_an_answer_without_content_is_none(events: tuple[Event, ...]) -> None:
    """Reasoning or not; another provider may have one."""
    assert judged(*events) == EMPTY


@pytest.mark.parametrize(
    "events",
    [
        (TextDelta(0, " "), TextDelta(0, "a")),
        (RefusalDelta(0, "I can't help with that."),),
        (AudioDelta(0),),
        (CALL,),
        (TextDelta(0, "\n"), CALL),
        (CALL, TextDelta(0, "\n")),
    ],
)
def test_text_a_refusal_audio_and_a_tool_call_are_answers(events: tuple[Event, ...]) -> None:
    """White space around a call takes nothing from it."""
    assert judged(*events) == Passed(len(events))


@pytest.mark.parametrize("reason", ["length", "content_filter"])
def test_some_ends_are_answers_without_any_content(reason: str) -> None:
    """The ceiling was used up by reasoning, or the provider's filter struck: asking again would not help."""
    assert judged(ReasoningDelta(0, "hm"), reason=reason) == Passed(1)
    assert judged(reason=reason) == Passed(0)


@pytest.mark.parametrize("reason", ["stop", "tool_calls", "novel"])
def test_no_other_end_makes_an_answer_of_nothing(reason: str) -> None:
    """Least of all one that promises tool calls."""
    assert judged(reason=reason) == EMPTY


def test_every_choice_has_to_say_something() -> None:
    """The caller asked for two answers."""
    assert judged(TextDelta(0, "a"), choices=2) == EMPTY
    assert judged(TextDelta(0, "a"), TextDelta(1, "b"), choices=2) == Passed(2)


@pytest.mark.parametrize(("text", "empty"), [("so far", False), (" \n", True), ("", True)])
def test_what_was_released_before_is_a_part_of_the_answer(text: str, *, empty: bool) -> None:
    """An attempt that goes on with it may have nothing to add."""
    judge = EmptyFilter(1)
    judge.prime(text)
    judge.observe([Frame(b"{}", (RoleDelta(0, "assistant"),), 2)], 3)
    assert judge.finish(4, Facts((FinishFact(0, "stop"),))) == (EMPTY if empty else Passed(4))


def test_the_filter_holds_nothing_while_the_answer_comes() -> None:
    """What has no content is held by the opening."""
    judge = EmptyFilter(1)
    frames = [Frame(b"{}", (TextDelta(0, text),), 2) for text in (" ", "\n")]
    assert judge.observe(frames, 3) == Passed(5)


def test_the_filter_gates_under_its_name() -> None:
    """A release waits for it."""
    assert (EmptyFilter.name, EmptyFilter.gating) == ("empty", True)


@pytest.mark.parametrize(("before", "verdict"), [("", EMPTY), (" \n", EMPTY), ("Once", Passed(0))])
def test_the_text_before_a_continuation_is_part_of_the_answer(
    before: str, verdict: Verdict
) -> None:
    """One that adds nothing to it has ended where the former attempt broke off."""
    judge = EmptyFilter(1)
    assert isinstance(judge, Primed)
    judge.prime(before)
    assert judge.finish(0, Facts((FinishFact(0, "stop"),))) == verdict
