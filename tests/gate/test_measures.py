"""Measures: how long frames stay, when the first of an answer came and left, and what became of the tokens."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gate.events import (
    AudioDelta,
    Event,
    Frame,
    ReasoningDelta,
    RefusalDelta,
    RoleDelta,
    TextDelta,
    ToolDelta,
)
from gate.measures import BATCHES_MAX, Measures, Stay
from gate.observe import Spent, TokenKind

REPORTED, ESTIMATED, WASTED = TokenKind.REPORTED, TokenKind.ESTIMATED, TokenKind.WASTED
ROLE = RoleDelta(0, "assistant")
CALL = ToolDelta(0, 0, "call-1", "look", "{")


def frame(*events: Event) -> Frame:
    """A frame with these events."""
    return Frame(b"{}", events, 10)


def said(text: str = "a") -> Frame:
    """A frame of answer text."""
    return frame(TextDelta(0, text))


def measures(*, streams: bool = True, reasoning: bool = False) -> Measures:
    """Those of an exchange whose request was whole at 100 s, with an attempt begun."""
    made = Measures(100.0, streams=streams, reasoning=reasoning)
    made.begin(0)
    return made


# --- how long frames stay ------------------------------------------------------------------------


def test_nothing_has_stayed_before_the_first_release() -> None:
    """And that is not the same as no time."""
    stay = Stay()
    assert stay.longest is None
    stay.arrive(2, 5.0, waiting=False)
    assert stay.longest is None
    stay.release(2, 5.0)
    assert stay.longest == 0.0


def test_the_oldest_frame_of_each_release_counts() -> None:
    """A release that takes half a batch leaves the other half with its own arrival."""
    stay = Stay()
    stay.arrive(2, 1.0, waiting=False)
    stay.arrive(4, 2.0, waiting=False)
    stay.release(1, 2.5)
    assert stay.longest == 1.5
    stay.release(3, 3.0)
    assert stay.longest == 2.0
    stay.release(4, 9.0)
    assert stay.longest == 7.0
    assert "0 batches" in repr(stay)


@given(
    st.lists(st.tuples(st.integers(1, 3), st.integers(0, 5), st.integers(0, 4)), max_size=60),
)
def test_the_longest_stay_is_that_of_a_single_frame(steps: list[tuple[int, int, int]]) -> None:
    """As if every frame had been watched. Each step: so many frames arrive, so much time goes by, so many may leave."""
    stay, now, longest = Stay(), 0.0, -1.0
    arrivals: list[float] = []
    released = 0
    for frames, pause, leaving in steps:
        arrivals += [now] * frames
        stay.arrive(len(arrivals), now, waiting=False)
        now += pause
        leave = min(leaving, len(arrivals) - released)
        if leave:
            longest = max([longest, *(now - at for at in arrivals[released : released + leave])])
            released += leave
            stay.release(released, now)
    assert stay.longest == (None if longest < 0 else longest)


def test_a_frame_that_mending_holds_counts_from_its_arrival() -> None:
    """It has no position until it comes out, and what comes next is not older for that."""
    stay = Stay()
    stay.arrive(1, 1.0, waiting=True)
    stay.arrive(1, 2.0, waiting=True)
    stay.release(1, 2.0)
    assert stay.longest == 1.0
    stay.arrive(3, 4.0, waiting=True)  # those of 1.0 come out, and others wait
    stay.release(3, 4.0)
    assert stay.longest == 3.0
    stay.arrive(4, 6.5, waiting=False)
    stay.release(4, 6.5)
    assert stay.longest == 3.0
    stay.arrive(5, 7.0, waiting=False)
    stay.release(5, 10.5)
    assert stay.longest == 3.5


def test_what_mending_has_dropped_waits_no_more() -> None:
    """A frame with nothing but facts leaves no position behind."""
    stay = Stay()
    stay.arrive(0, 1.0, waiting=True)
    stay.arrive(0, 2.0, waiting=False)
    stay.arrive(1, 3.0, waiting=False)
    stay.release(1, 3.0)
    assert stay.longest == 0.0


def test_what_is_cut_off_is_not_waited_for() -> None:
    """What is kept keeps its arrival; what comes behind it has its own."""
    stay = Stay()
    stay.arrive(2, 1.0, waiting=False)
    stay.arrive(4, 2.0, waiting=False)
    stay.arrive(6, 3.0, waiting=True)
    stay.truncate(3)
    stay.arrive(5, 10.0, waiting=False)
    stay.release(2, 10.0)
    assert stay.longest == 9.0
    stay.release(3, 14.0)
    assert stay.longest == 12.0
    stay.release(5, 14.0)
    assert stay.longest == 12.0


@pytest.mark.parametrize("kept", [0, 2])
def test_a_cut_between_two_batches_leaves_whole_ones(kept: int) -> None:
    """Or none."""
    stay = Stay()
    stay.arrive(2, 1.0, waiting=False)
    stay.arrive(4, 2.0, waiting=False)
    stay.truncate(kept)
    stay.arrive(kept + 1, 5.0, waiting=False)
    stay.release(kept + 1, 5.0)
    assert stay.longest == (4.0 if kept else 0.0)


def test_many_batches_are_told_apart_less_finely() -> None:
    """What is kept does not grow, and an arrival is never taken for later than it was."""
    stay, many = Stay(), 10 * BATCHES_MAX
    for number in range(many):
        stay.arrive(number + 1, float(number), waiting=False)
    held = int(repr(stay).split()[1])
    assert BATCHES_MAX / 2 <= held <= BATCHES_MAX
    stay.release(many // 2, float(many))
    assert stay.longest == many
    later = Stay()
    for number in range(BATCHES_MAX + 1):
        later.arrive(number + 1, float(number), waiting=False)
    later.release(BATCHES_MAX + 1, 300.0)
    assert later.longest == 300.0


# --- the first token -----------------------------------------------------------------------------


def test_what_the_gate_adds_is_from_the_first_content_to_the_first_release() -> None:
    """Of whichever attempt brought some first; the role before it says nothing."""
    first = measures()
    first.arrive([frame(ROLE)], 101.0, newest=1)
    first.arrive([said(" \n")], 102.0, newest=2)
    first.arrive([said("a")], 103.0, newest=3)
    first.end(0, code="stream_cut", reported=0)
    first.begin(0)
    first.arrive([said("b")], 107.0, newest=1)
    first.release(1, 108.5)
    first.release(2, 109.0)
    told = first.measured("")
    assert (told.ttft_seconds, told.ttft_added_seconds) == (8.5, 5.5)


@pytest.mark.parametrize(
    ("event", "counts"),
    [
        (TextDelta(0, "a"), True),
        (TextDelta(0, " "), False),
        (RefusalDelta(0, "no"), True),
        (AudioDelta(0), True),
        (CALL, True),
        (ReasoningDelta(0, "hm"), False),
        (ROLE, False),
    ],
)
def test_answer_content_is_what_a_caller_would_have_begun_to_see(
    event: Event, *, counts: bool
) -> None:
    """The beginning of a tool call too: that the gate waits for its end is the gate's doing."""
    first = measures()
    first.arrive([frame(event)], 101.0, newest=1)
    first.arrive([said()], 102.0, newest=2)
    first.release(2, 105.0)
    assert first.measured("").ttft_added_seconds == (4.0 if counts else 3.0)


def test_reasoning_counts_where_the_route_releases_it() -> None:
    """There it is what the caller sees first."""
    first = measures(reasoning=True)
    first.arrive([frame(ReasoningDelta(0, "hm"))], 101.0, newest=1)
    first.release(1, 101.5)
    assert first.measured("").ttft_added_seconds == 0.5


def test_what_a_cap_let_go_without_an_answer_says_nothing_of_what_was_added() -> None:
    """The content that comes later is not what was waited for."""
    first = measures()
    first.arrive([frame(ROLE)], 101.0, newest=1)
    first.release(1, 102.0)
    told = first.measured("")
    assert (told.ttft_seconds, told.ttft_added_seconds) == (2.0, None)
    first.arrive([said()], 103.0, newest=2)
    assert first.measured("").ttft_added_seconds == 0.0


def test_a_caller_of_one_object_has_no_first_token() -> None:
    """It waits for the last one; what was held is told all the same."""
    whole = measures(streams=False)
    whole.arrive([said(), said()], 101.0, newest=2)
    whole.release(2, 104.0)
    told = whole.measured("")
    assert (told.held_seconds, told.ttft_seconds, told.ttft_added_seconds, told.token_seconds) == (
        3.0,
        None,
        None,
        None,
    )


def test_without_a_release_there_is_nothing_but_what_it_cost() -> None:
    """Nobody has waited for a first token that never came."""
    lost = measures()
    lost.arrive([said()], 101.0, newest=1)
    lost.end(0, code="stream_cut", reported=0)
    told = lost.measured("stream_cut")
    assert (told.held_seconds, told.ttft_seconds, told.token_seconds) == (None, None, None)
    assert told.spent == (Spent(WASTED, 1, "stream_cut"),)


# --- time per token ------------------------------------------------------------------------------


def streamed(tokens: int, *, reported: int = 0) -> Measures:
    """A stream of one word a second, released as it comes."""
    made = measures()
    for number in range(1, tokens + 1):
        made.arrive([said()], 100.0 + number, newest=number)
        made.release(number, 100.0 + number)
    made.end(tokens, code="", reported=reported)
    return made


def test_the_time_of_a_token_is_between_the_first_and_the_last_release() -> None:
    """By the tokens that were reported, else by those that were counted."""
    assert streamed(5).measured("").token_seconds == 1.0
    assert streamed(5, reported=9).measured("").token_seconds == 0.5


@pytest.mark.parametrize("tokens", [0, 1])
def test_one_token_takes_no_time(tokens: int) -> None:
    """There is nothing between the first and the last."""
    assert streamed(tokens).measured("").token_seconds is None


def test_a_stream_that_did_not_end_well_has_no_pace() -> None:
    """What it stood still is in it."""
    assert streamed(5).measured("gap_timeout").token_seconds is None


# --- what it cost --------------------------------------------------------------------------------


def spent_by(made: Measures, code: str = "") -> list[tuple[TokenKind, int, str]]:
    """By what became of the tokens."""
    return [(each.kind, each.tokens, each.reason) for each in made.measured(code).spent]


def test_a_complete_attempt_is_in_the_answer_whole() -> None:
    """As reported, else one for each frame with tokens, also where mending made one frame of several."""
    assert spent_by(streamed(5, reported=7)) == [(REPORTED, 7, "")]
    assert spent_by(streamed(5)) == [(ESTIMATED, 5, "")]
    called = measures()
    called.arrive([frame(ROLE, CALL), frame(CALL, CALL), frame(CALL), frame(ROLE)], 101.0, newest=1)
    called.release(1, 101.0)
    called.end(1, code="", reported=0)
    assert spent_by(called) == [(ESTIMATED, 3, "")]


def test_an_attempt_that_nobody_saw_is_wasted() -> None:
    """For the reason that it failed for; one without any token costs nothing that could be counted."""
    made = measures()
    made.arrive([said(), said()], 101.0, newest=2)
    made.end(0, code="stream_cut", reported=5)
    made.begin(0)
    made.end(0, code="empty_answer", reported=0)
    made.begin(0)
    made.arrive([said()], 102.0, newest=1)
    made.release(1, 102.0)
    made.end(1, code="", reported=0)
    assert spent_by(made) == [(WASTED, 5, "stream_cut"), (ESTIMATED, 1, "")]


def test_of_a_stream_that_broke_what_was_seen_is_part_of_the_answer() -> None:
    """The rest, which was held and dropped, is wasted; a report can't be divided."""
    for reported, spent in ((0, [(ESTIMATED, 3, ""), (WASTED, 2, "stream_cut")]), (8, [(REPORTED, 8, "")])):  # fmt: skip
        made = measures()
        made.arrive([frame(ROLE), *[said() for _ in range(5)]], 101.0, newest=6)
        made.release(4, 101.0)
        made.end(4, code="stream_cut", reported=reported)
        assert spent_by(made, "stream_cut") == spent


def test_attempts_that_go_on_with_each_other_have_each_their_part() -> None:
    """Also where one that went on gave up some of what the one before it had left."""
    made = measures()
    made.arrive([said() for _ in range(6)], 101.0, newest=6)
    made.release(2, 101.0)
    made.end(5, code="stream_cut", reported=0)
    made.begin(5)
    made.arrive([said() for _ in range(3)], 102.0, newest=5, waiting=True)
    made.end(4, code="gap_timeout", reported=0)
    made.begin(4)
    made.arrive([said() for _ in range(2)], 103.0, newest=6)
    made.release(6, 103.0)
    made.end(6, code="", reported=2)
    assert spent_by(made) == [
        (ESTIMATED, 4, ""),
        (WASTED, 2, "stream_cut"),
        (WASTED, 3, "gap_timeout"),
        (REPORTED, 2, ""),
    ]


def test_an_attempt_with_nothing_to_add_but_its_end_is_part_of_the_answer() -> None:
    """The answer was cut behind its last word, and this one has said so."""
    made = measures()
    made.arrive([said()], 101.0, newest=1)
    made.release(1, 101.0)
    made.end(1, code="stream_cut", reported=0)
    made.begin(1)
    made.end(1, code="", reported=1)
    assert spent_by(made) == [(ESTIMATED, 1, ""), (REPORTED, 1, "")]


def test_what_was_open_at_the_end_is_wasted_for_that_reason() -> None:
    """Less what had gone out by then."""
    made = measures()
    made.arrive([said() for _ in range(4)], 101.0, newest=4)
    made.release(1, 101.0)
    assert spent_by(made, "caller_gone") == [(ESTIMATED, 1, ""), (WASTED, 3, "caller_gone")]
    unseen = measures()
    unseen.arrive([said()], 101.0, newest=1)
    assert spent_by(unseen, "shutdown") == [(WASTED, 1, "shutdown")]


def test_an_attempt_that_never_began_to_answer_has_cost_nothing() -> None:
    """And takes nothing from the one before it."""
    none = Measures(100.0, streams=True, reasoning=False)
    none.end(0, code="provider_connect", reported=0)
    assert spent_by(none, "provider_connect") == []
    made = streamed(3)
    made.end(0, code="provider_connect", reported=9)
    assert spent_by(made) == [(ESTIMATED, 3, "")]


def test_it_shows_numbers_only() -> None:
    """In a log by way of its `repr`."""
    assert repr(streamed(2)) == "Measures(1 attempts, Stay(longest=0.0, 0 batches held))"
