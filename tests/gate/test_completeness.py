"""When an answer is complete: never by a good guess, and nothing that comes behind can undo it."""

from __future__ import annotations

import itertools

import pytest

from gate.completeness import Answer
from gate.events import (
    AudioDelta,
    Complete,
    Event,
    Finish,
    HowEnded,
    Identity,
    ReasoningDelta,
    RefusalDelta,
    RoleDelta,
    TextDelta,
    ToolDelta,
    UsageReport,
)
from gate.failure import Failure, FailureKind

ROLE = RoleDelta(0, "assistant")
TEXT = TextDelta(0, "a")
BLANK = TextDelta(0, " \n")
THOUGHT = ReasoningDelta(0, "hm")
CALL = ToolDelta(0, 0, "t", "f", "{}")
USAGE = UsageReport(b'{"total_tokens":1}')
STOP = Finish(0, "stop", "stop")
CUT = Failure(FailureKind.CUT)
EMPTY = Failure(FailureKind.EMPTY)
MISSING = Failure(FailureKind.MISSING_TERMINAL)


def after(*frames: tuple[Event, ...], choices: int = 1) -> Answer:
    """An answer that said these frames."""
    answer = Answer(choices)
    for events in frames:
        answer.observe(events)
    return answer


def implied(reason: str, *choices: int) -> Complete:
    """A proper end without finish reasons."""
    return Complete(tuple(Finish(choice, reason, "") for choice in choices))


@pytest.mark.parametrize(
    ("events", "progress"),
    [
        ((TEXT,), True), ((BLANK,), True), ((THOUGHT,), True), ((RefusalDelta(0, "no"),), True), ((AudioDelta(0),), True), ((CALL,), True),
        ((ToolDelta(0, 0, None, None, "{"),), True), ((ToolDelta(0, 0, None, "", ""),), False), ((ROLE,), False), ((STOP,), False), ((USAGE,), False),
        ((Identity("c", 0),), False), ((), False), ((ROLE, TEXT), True),
    ],
)  # fmt: skip
def test_progress_is_content_reasoning_or_bytes_of_a_call(
    events: tuple[Event, ...], *, progress: bool
) -> None:
    """Roles, usage, finishes and empty pieces of a call are none."""
    answer = Answer(1)
    assert answer.observe(events) is progress
    assert answer.progressed is progress


def test_an_answer_is_complete_when_every_choice_that_was_asked_for_has_finished() -> None:
    """Not one less; a choice more does not count for one that is missing."""
    answer = after((TEXT,), (STOP,), (Finish(2, "stop", "stop"),), choices=2)
    assert not answer.complete
    assert answer.done() == answer.closed() == CUT
    answer.observe((Finish(1, "length", "length"),))
    assert answer.complete
    assert answer.done() == answer.closed() == Complete()


def test_the_first_finish_of_a_choice_stays() -> None:
    """OpenRouter says it again with the usage; a failure that is said then comes too late."""
    answer = after((TEXT, STOP), (Finish(0, "length", "length"),), (Finish(0, "error", "error"),))
    assert answer.finished == {0: "stop"}
    assert not answer.failed


def test_a_finish_that_says_failure_fails_the_answer() -> None:
    """Of a choice that was asked for; of another it is no concern of the caller's."""
    assert after((TEXT, Finish(0, "error", "error"))).failed
    assert not after((TEXT, STOP), (Finish(1, "abort", "abort"),)).failed


# --- without any finish reason -------------------------------------------------------------------


def test_done_after_content_and_a_usage_report_behind_it_is_a_proper_end() -> None:
    """Snowflake ends like that; the choice then ended with `stop`."""
    assert after((ROLE,), (TEXT,), (USAGE,)).done() == implied("stop", 0)
    assert after((TEXT,), (USAGE,), (ROLE,)).done() == implied("stop", 0)


def test_a_usage_report_in_a_frame_with_content_or_before_some_proves_nothing() -> None:
    """Running totals stand on every chunk of a stream that may be cut anywhere."""
    assert after((TEXT, USAGE)).done() == MISSING
    assert after((USAGE,), (TEXT,)).done() == MISSING
    assert after((TEXT,), (USAGE,), (CALL,)).done() == MISSING


def test_content_without_usage_and_finish_is_a_missing_terminal() -> None:
    """Many relays append `[DONE]` to a broken stream."""
    assert after((TEXT,)).done() == MISSING
    assert after((TEXT,), (USAGE,)).closed() == MISSING


def test_done_without_content_is_an_empty_answer() -> None:
    """Reasoning, white space, a role or an empty piece of a call are no content."""
    for events in ((), (ROLE,), (THOUGHT,), (BLANK,), (ToolDelta(0, 0, None, None, None),)):
        assert after(events, (USAGE,)).done() == EMPTY


def test_the_end_of_the_body_without_progress_is_an_empty_answer() -> None:
    """With some it is a cut that looks like an end."""
    assert after((ROLE,)).closed() == EMPTY
    assert after((THOUGHT,)).closed() == MISSING


@pytest.mark.parametrize(
    ("frames", "reason"),
    [
        ([(CALL,)], "tool_calls"),
        ([(TEXT,), (CALL,)], "tool_calls"),
        ([(CALL,), (BLANK,)], "tool_calls"),
        ([(CALL,), (TEXT,)], "stop"),
        ([(TEXT,), (CALL,), (TEXT,)], "stop"),
        ([(RefusalDelta(0, "no"),)], "stop"),
    ],
)
def test_the_implied_finish_follows_from_the_newest_content(
    frames: list[tuple[Event, ...]], reason: str
) -> None:
    """White space behind a call is no content."""
    assert after(*frames, (USAGE,)).done() == implied(reason, 0)


def test_every_choice_gets_its_own_implied_finish() -> None:
    """One ended with a call, the other with text."""
    answer = after((ToolDelta(1, 0, "t", "f", "{}"), TEXT), (USAGE,), choices=2)
    assert answer.done() == Complete((Finish(0, "stop", ""), Finish(1, "tool_calls", "")))


# --- empty ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("events", "empty"),
    [
        ((TEXT, STOP), False), ((CALL, STOP), False), ((CALL, BLANK, STOP), False), ((RefusalDelta(0, "no"), STOP), False),
        ((AudioDelta(0), STOP), False), ((Finish(0, "length", "length"),), False), ((Finish(0, "content_filter", "content_filter"),), False),
        ((STOP,), True), ((BLANK, STOP), True), ((THOUGHT, STOP), True), ((ToolDelta(0, 0, "", "", ""), STOP), True),
    ],
)  # fmt: skip
def test_an_answer_without_content_is_empty_unless_its_end_says_why(
    events: tuple[Event, ...], *, empty: bool
) -> None:
    """`length` and `content_filter` are answers."""
    assert after(events).empty is empty


def test_one_choice_without_content_makes_the_answer_empty() -> None:
    """The caller asked for two."""
    assert after((TEXT, STOP), (Finish(1, "stop", "stop"),), choices=2).empty


def test_the_order_of_choices_does_not_matter() -> None:
    """Interleaved as a server likes."""
    pieces: list[tuple[Event, ...]] = [(TEXT,), (TextDelta(1, "b"),), (TextDelta(2, "c"),)]
    ends: list[tuple[Event, ...]] = [(Finish(each, "stop", "stop"),) for each in range(3)]
    results: list[HowEnded] = [
        after(*order, *closing, choices=3).done()
        for order in itertools.permutations(pieces)
        for closing in itertools.permutations(ends)
    ]
    assert results == [Complete()] * 36


def test_an_answer_that_has_begun_elsewhere_may_have_nothing_to_add() -> None:
    """Its content is there; it still has to end, as any other has."""
    ends: list[tuple[tuple[Event, ...], HowEnded]] = [
        ((STOP,), Complete()),
        ((ROLE, USAGE), Complete((Finish(0, "stop", ""),))),
        ((ROLE,), MISSING),
        ((BLANK,), MISSING),
        ((USAGE, TEXT), MISSING),
    ]
    for events, end in ends:
        answer = Answer(1, begun=True)
        for event in events:
            answer.observe((event,))
        assert not answer.empty
        assert answer.done() == end
    assert not Answer(1, begun=True).progressed
    assert Answer(1).empty


def test_only_the_first_choice_has_begun_elsewhere() -> None:
    """Another one has nothing yet."""
    answer = Answer(2, begun=True)
    assert answer.empty
    assert answer.done() == CUT
    answer.observe((TextDelta(1, "b"),))
    assert not answer.empty


def test_its_repr_tells_how_far_it_is() -> None:
    """Numbers only."""
    assert repr(after((TEXT, STOP), choices=2)) == "Answer(1/2 finished, content in [0])"
