"""The hold policy: what waits for how long, and that time moves frames but never past what has been judged."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gate.config import HoldConfig
from gate.events import Frame, ReasoningDelta, RoleDelta, TextDelta
from gate.evidence import EvidenceTail
from gate.hold import Hold


def said(text: str) -> Frame:
    """A frame of answer text."""
    return Frame(b"{}", (TextDelta(0, text),), 10)


ROLE = Frame(b"{}", (RoleDelta(0, "assistant"),), 10)
THOUGHT = Frame(b"{}", (ReasoningDelta(0, "hm"),), 10)


class Held:
    """A tail under a policy; everything that arrives passes at once unless `passed` says less."""

    def __init__(self, *, streams: bool = True, opened: bool = False, **config: Any) -> None:
        self.tail = EvidenceTail()
        self.hold = Hold(HoldConfig(**config), streams=streams, released=0, opened=opened)
        self.passed: int | None = None

    def take(self, *frames: Frame, now: float = 0.0) -> int:
        """How many frames leave when these arrive."""
        self.tail.extend(frames)
        self.hold.arrived(list(frames), now)
        return self.tick(now)

    def tick(self, now: float) -> int:
        """How many frames leave by now."""
        passed = self.tail.newest if self.passed is None else self.passed
        return len(self.tail.release(self.hold.limit(self.tail, passed, now)))


def test_live_holds_nothing_once_it_is_open() -> None:
    """The role waits for the first answer character, and goes with it."""
    held = Held()
    assert [held.take(ROLE), held.take(said("a")), held.take(said("b"))] == [0, 2, 1]
    assert held.hold.wake() is None


def test_buffered_holds_everything() -> None:
    """And so does any mode for a caller who gets one JSON object."""
    for held in (Held(mode="buffered"), Held(streams=False), Held(mode="window", streams=False)):
        assert [held.take(ROLE), held.take(said("a" * 99), now=99.0)] == [0, 0]
        assert held.hold.wake() is None


def test_a_window_of_characters_keeps_the_newest() -> None:
    """A frame leaves when enough answer text stands behind it; what stands before the first answer content leaves with that."""
    held = Held(mode="window", tail_chars=4)
    assert held.take(ROLE) == 0
    assert held.take(said("ab")) == 0
    assert held.take(said("cd")) == 0
    assert held.take(said("ef")) == 2
    assert held.take(THOUGHT) == 0
    assert held.take(said("ghij")) == 3
    assert held.hold.wake() is None


def test_a_window_of_time_keeps_the_youngest() -> None:
    """A frame leaves when it is old enough, whether anything comes or not."""
    held = Held(mode="window", tail_ms=500)
    assert held.take(ROLE, said("a"), now=1.0) == 0
    assert held.hold.wake() == 1.5
    assert held.take(said("b"), now=1.2) == 0
    assert held.tick(1.4) == 0
    assert held.tick(1.5) == 2
    assert held.hold.wake() == 1.7
    assert held.tick(1.7) == 1
    assert held.hold.wake() is None


def test_both_parts_of_a_window_have_to_be_met() -> None:
    """Old and far behind."""
    held = Held(mode="window", tail_ms=500, tail_chars=2)
    assert held.take(said("ab"), now=0.0) == 0
    assert held.hold.wake() is None
    assert held.tick(9.0) == 0
    assert held.take(said("cd"), now=9.0) == 1
    assert held.take(said("ef"), now=9.1) == 0
    assert held.hold.wake() == 9.5


def test_the_opening_waits_for_characters_and_for_time() -> None:
    """Counted from the first answer character; white space before it is none."""
    held = Held(opening_chars=3, opening_ms=1000)
    assert held.take(ROLE, said("  "), now=0.0) == 0
    assert held.hold.wake() is None
    assert held.take(said("ab"), now=2.0) == 0
    assert held.hold.wake() is None
    assert held.take(said("cd"), now=2.5) == 0
    assert held.hold.wake() == 3.0
    assert held.tick(2.9) == 0
    assert held.tick(3.0) == 4
    assert held.take(said("e"), now=3.1) == 1


def test_reasoning_opens_only_where_the_route_says_so() -> None:
    """By default nothing goes out while the model thinks."""
    assert Held().take(THOUGHT) == 0
    assert Held(reasoning="release").take(THOUGHT) == 1


def test_what_has_not_passed_is_never_let_go() -> None:
    """Neither by age, nor by a cap."""
    held = Held(mode="window", tail_ms=100)
    held.passed = 1
    assert held.take(said("a"), said("b"), now=0.0) == 0
    assert held.tick(9.0) == 1
    assert held.hold.wake() is None
    held.hold.let_go()
    assert held.tick(9.0) == 0
    held.passed = 2
    assert held.tick(9.0) == 1


@pytest.mark.parametrize(
    "config", [{"mode": "buffered"}, {"opening_chars": 99}, {"mode": "window", "tail_ms": 9000}]
)
def test_letting_go_ends_every_hold(config: dict[str, Any]) -> None:
    """What a cap frees goes on live."""
    held = Held(**config)
    assert held.take(ROLE, said("a")) == 0
    held.hold.let_go()
    assert held.tick(0.0) == 2
    assert held.take(said("b")) == 1
    assert held.hold.wake() is None


def test_a_later_attempt_counts_from_what_was_released() -> None:
    """Positions go on over the attempts of an exchange."""
    tail = EvidenceTail()
    tail.extend([ROLE, said("a")])
    tail.release(2)
    hold = Hold(HoldConfig(mode="window", tail_chars=1), streams=True, released=2)
    frames = [said("b"), said("c")]
    tail.extend(frames)
    hold.arrived(frames, 0.0)
    assert hold.limit(tail, 4, 0.0) == 3


def test_what_stands_before_the_answer_does_not_go_without_it() -> None:
    """A role that is old enough by itself waits for the first content that is; over a later attempt's positions too."""
    for released in (0, 2):
        tail = EvidenceTail()
        tail.extend([THOUGHT] * released)
        tail.release(released)
        hold = Hold(HoldConfig(mode="window", tail_ms=500), streams=True, released=released)
        for frame, now in ((ROLE, 0.0), (THOUGHT, 0.0), (said(" "), 0.0), (said("a"), 0.4)):
            tail.extend([frame])
            hold.arrived([frame], now)
        assert hold.limit(tail, tail.newest, 0.6) == released
        assert hold.wake() == 0.9
        assert hold.limit(tail, tail.newest, 0.9) == released + 4


def test_an_open_stream_waits_for_no_opening() -> None:
    """It has begun at another attempt: neither characters nor time are counted again, and what has no text may go first."""
    assert Held(opened=True, opening_chars=99, opening_ms=99).take(said("a")) == 1
    assert Held(opened=True).take(THOUGHT) == 1
    assert Held(opened=True, mode="buffered").take(said("a")) == 0
    held = Held(opened=True, mode="window", tail_ms=500)
    assert held.take(ROLE, now=1.0) == 0
    assert held.hold.wake() == 1.5
    assert held.take(said("a"), now=1.2) == 0
    assert held.tick(1.5) == 1
    assert held.tick(1.7) == 1


def test_an_open_stream_keeps_its_window() -> None:
    """Of characters, counted anew."""
    held = Held(opened=True, mode="window", tail_chars=4)
    assert [held.take(said("ab")), held.take(said("cd")), held.take(said("ef"))] == [0, 0, 1]


def test_its_repr_tells_the_state() -> None:
    """For whoever looks at it at night."""
    held = Held(mode="window", tail_chars=9)
    assert repr(held.hold) == "Hold(closed, 0 young frames)"
    held.take(said("a"))
    assert repr(held.hold) == "Hold(open, 1 young frames)"
    assert repr(Held(mode="buffered").hold) == "Hold(everything, 0 young frames)"


configs = st.fixed_dictionaries(
    {
        "mode": st.sampled_from(["live", "window", "buffered"]),
        "opening_chars": st.integers(1, 4),
        "opening_ms": st.integers(0, 3000),
        "tail_chars": st.integers(0, 5),
        "tail_ms": st.integers(0, 3000),
    }
)
arrivals = st.lists(
    st.tuples(st.sampled_from([ROLE, THOUGHT, said("a"), said(" "), said("bcd")]), st.floats(0, 2)),
    max_size=20,
)


@example({"mode": "live", "opening_chars": 1, "opening_ms": 2200}, [(said("a"), 0.1), (ROLE, 0.3)])
@example({"mode": "window", "tail_chars": 0, "tail_ms": 2200}, [(said("a"), 0.1), (ROLE, 0.3)])
@given(configs, arrivals)
def test_a_wake_is_in_the_future_and_every_frame_leaves_in_the_end(
    config: dict[str, Any], frames: list[tuple[Frame, float]]
) -> None:
    """Asked at the time it named, the policy makes progress: an evaluator that obeys it never spins."""
    held, now = Held(**config), 0.0
    for frame, pause in frames:
        now += pause
        held.take(frame, now=now)
        wake = held.hold.wake()
        assert wake is None or wake > now
    for _ in range(len(frames) + 2):
        wake = held.hold.wake()
        if wake is None:
            break
        assert wake > now
        now = wake
        held.tick(now)
    assert held.hold.wake() is None
