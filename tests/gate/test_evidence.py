"""Evidence: positions and bytes always add up, and a live stream opens with the first answer content and not before."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from gate.events import (
    AudioDelta,
    Event,
    Finish,
    Frame,
    ReasoningDelta,
    RefusalDelta,
    RoleDelta,
    TextDelta,
    ToolDelta,
    ToolEnd,
    UsageReport,
)
from gate.evidence import FRAME_OVERHEAD_BYTES, EvidenceTail, Opening


def frame(*events: Event, size: int = 10) -> Frame:
    """A frame that came in `size` raw bytes."""
    return Frame(b"{}", events, size)


def numbered(count: int, *, start: int = 0) -> list[Frame]:
    """Frames that can be told apart, the n-th of n + 1 bytes."""
    return [
        frame(TextDelta(0, str(start + number)), size=start + number + 1) for number in range(count)
    ]


def test_frames_leave_in_the_order_they_came() -> None:
    """Each once, and the positions go on where they were."""
    tail, frames = EvidenceTail(), numbered(5)
    tail.extend(frames[:3])
    assert (tail.released, tail.newest, len(tail)) == (0, 3, 3)
    assert tail.release(2) == frames[:2]
    tail.extend(frames[3:])
    assert (tail.released, tail.newest, len(tail)) == (2, 5, 3)
    assert tail.release(2) == []
    assert tail.release(5) == frames[2:]
    assert (tail.released, tail.newest, tail.held_bytes) == (5, 5, 0)


def test_what_a_framing_keeps_is_counted_but_for_one_that_relays() -> None:
    """Of what is released, until the attempt is forgotten."""
    tail = EvidenceTail(lambda frames: 100 * len(frames))
    tail.extend(numbered(4))
    tail.release(1)
    assert (tail.kept_bytes, tail.ledger_bytes) == (100, 100 + 9 + 3 * FRAME_OVERHEAD_BYTES)
    tail.relays = True
    tail.release(3)
    assert tail.kept_bytes == 100
    tail.drop()
    assert tail.ledger_bytes == 0


def test_what_is_held_is_counted_with_what_keeping_it_costs() -> None:
    """Raw bytes for the limit of the route, the overhead of each frame for the ledger."""
    tail = EvidenceTail()
    tail.extend(numbered(3))
    assert (tail.held_bytes, tail.ledger_bytes) == (6, 6 + 3 * FRAME_OVERHEAD_BYTES)
    tail.release(1)
    assert (tail.held_bytes, tail.ledger_bytes) == (5, 5 + 2 * FRAME_OVERHEAD_BYTES)


def test_a_part_of_the_tail_can_be_looked_at() -> None:
    """By positions of the exchange, not of the tail."""
    tail, frames = EvidenceTail(), numbered(5)
    tail.extend(frames)
    tail.release(2)
    for start, end in itertools.combinations_with_replacement(range(2, 6), 2):
        assert tail.between(start, end) == frames[start:end]
    assert len(tail) == 3


def test_a_lost_attempt_takes_its_frames_with_it() -> None:
    """Positions go back to what was released."""
    tail = EvidenceTail()
    tail.extend(numbered(4))
    tail.release(1)
    tail.drop()
    assert (tail.released, tail.newest, tail.held_bytes, tail.ledger_bytes) == (1, 1, 0, 0)
    tail.extend(numbered(1))
    assert tail.newest == 2


def test_the_end_of_the_tail_can_be_forgotten() -> None:
    """What stands before stays, with its bytes; what comes then has the positions that were given up."""
    tail, frames = EvidenceTail(), numbered(5)
    tail.extend(frames)
    tail.release(1)
    tail.truncate(5)
    assert (tail.newest, tail.held_bytes) == (5, 14)
    tail.truncate(3)
    assert (tail.released, tail.newest, tail.held_bytes) == (1, 3, 5)
    assert tail.between(1, 3) == frames[1:3]
    tail.extend(frames[4:])
    assert tail.release(4) == [*frames[1:3], frames[4]]
    tail.truncate(4)
    assert (tail.released, tail.newest, tail.held_bytes) == (4, 4, 0)


def test_a_position_that_is_not_held_is_a_bug() -> None:
    """Released frames are gone, and others have not come."""
    tail = EvidenceTail()
    tail.extend(numbered(3))
    tail.release(1)
    for position in (0, 4):
        with pytest.raises(AssertionError):
            tail.release(position)
        with pytest.raises(AssertionError):
            tail.truncate(position)
    for start, end in ((0, 2), (2, 4), (3, 2)):
        with pytest.raises(AssertionError):
            tail.between(start, end)
    assert (tail.released, tail.newest) == (1, 3)


def test_a_tail_shows_numbers_only() -> None:
    """An answer never gets into a log by way of a `repr`."""
    tail = EvidenceTail()
    tail.extend(numbered(3))
    tail.release(1)
    assert repr(tail) == "EvidenceTail(released=1, newest=3, held_bytes=5)"


class Tails(RuleBasedStateMachine):
    """A tail beside two plain lists: what was released, and what is held."""

    def __init__(self) -> None:
        super().__init__()
        self.tail = EvidenceTail()
        self.released: list[Frame] = []
        self.held: list[Frame] = []
        self.count = 0

    @rule(count=st.integers(0, 4))
    def extend(self, count: int) -> None:
        """Frames arrive."""
        frames = numbered(count, start=self.count)
        self.count += count
        self.tail.extend(frames)
        self.held += frames

    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        """Some of them go."""
        count = data.draw(st.integers(0, len(self.held)))
        frames = self.tail.release(len(self.released) + count)
        assert frames == self.held[:count]
        self.released += frames
        del self.held[:count]

    @rule(data=st.data())
    def look(self, data: st.DataObject) -> None:
        """Some are looked at."""
        start = data.draw(st.integers(0, len(self.held)))
        end = data.draw(st.integers(start, len(self.held)))
        base = len(self.released)
        assert self.tail.between(base + start, base + end) == self.held[start:end]

    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        """The newest are given up."""
        count = data.draw(st.integers(0, len(self.held)))
        self.tail.truncate(len(self.released) + count)
        del self.held[count:]

    @rule()
    def drop(self) -> None:
        """The attempt fails."""
        self.tail.drop()
        self.held.clear()

    @invariant()
    def the_numbers_add_up(self) -> None:
        """Positions and bytes."""
        size = sum(each.size for each in self.held)
        assert self.tail.released == len(self.released)
        assert self.tail.newest == len(self.released) + len(self.held)
        assert len(self.tail) == len(self.held)
        assert self.tail.held_bytes == size
        assert self.tail.ledger_bytes == size + FRAME_OVERHEAD_BYTES * len(self.held)


TestTails = Tails.TestCase
TestTails.settings = settings(max_examples=30, stateful_step_count=20)


# --- the opening ---------------------------------------------------------------------------------


def opens_at(*events: Event, chars: int = 1, reasoning: bool = False) -> int | None:
    """The number of the event, each in a frame of its own, with which the stream opens."""
    opening = Opening(chars=chars, reasoning=reasoning)
    for number, event in enumerate(events):
        if opening.observe([frame(event)]):
            return number
    return None


def test_a_stream_opens_with_the_first_character_that_is_not_white_space() -> None:
    """White space before it is held, and leaves with it."""
    assert opens_at(TextDelta(0, " \n"), TextDelta(0, "\t"), TextDelta(0, " a")) == 2
    assert opens_at(TextDelta(0, " \n"), TextDelta(0, "\u00a0\u3000")) is None


def test_an_opening_counts_characters_from_the_first_that_says_something() -> None:
    """Code points, white space inside included, before it not."""
    texts = (TextDelta(0, "  ab"), TextDelta(0, "  "), TextDelta(0, "\U0001f6a2"))
    assert opens_at(*texts, chars=4) == 1
    assert opens_at(*texts, chars=5) == 2
    assert opens_at(*texts, chars=6) is None


def test_each_choice_has_its_own_beginning() -> None:
    """And all count together."""
    texts = (TextDelta(0, "a"), TextDelta(1, " \n "), TextDelta(1, " b"), TextDelta(0, " "))
    assert opens_at(*texts, chars=3) == 3
    assert opens_at(*texts, chars=2) == 2


def test_an_opening_of_no_characters_waits_for_content_all_the_same() -> None:
    """An empty answer must not commit."""
    assert opens_at(RoleDelta(0, "assistant"), TextDelta(0, " "), TextDelta(0, "a"), chars=0) == 2


def test_what_is_no_content_never_opens_a_stream() -> None:
    """A preamble is no proof of life."""
    preamble = (RoleDelta(0, "assistant"), UsageReport(b"{}"), Finish(0, "stop", "stop"))
    assert opens_at(*preamble) is None
    assert Opening(chars=1, reasoning=False).observe([frame()]) is False
    assert Opening(chars=1, reasoning=False).observe([]) is False


def test_reasoning_opens_a_stream_only_where_the_route_releases_it() -> None:
    """Nobody can resume inside of it."""
    thought = ReasoningDelta(0, "hmm")
    assert opens_at(thought, TextDelta(0, "a")) == 1
    assert opens_at(thought, TextDelta(0, "a"), reasoning=True) == 0
    assert opens_at(thought, TextDelta(0, "a"), chars=4, reasoning=True) == 1


def test_a_refusal_is_content() -> None:
    """Counted like text."""
    assert opens_at(RefusalDelta(0, "I "), RefusalDelta(0, "can't"), chars=3) == 1


def test_audio_opens_at_once() -> None:
    """However many characters the route asks for."""
    assert opens_at(AudioDelta(0), chars=1000) == 0


def test_a_tool_call_opens_when_it_is_whole() -> None:
    """Until then it is none, however many pieces come."""
    calls = (ToolDelta(0, 0, "a", "f", "{"), ToolDelta(0, 0, None, None, "}"), ToolEnd(0, 0))
    assert opens_at(*calls, chars=1000) == 2
    assert opens_at(*calls[:2]) is None


def test_an_open_stream_stays_open() -> None:
    """And the rest of a batch is not looked at."""
    opening = Opening(chars=1, reasoning=False)
    assert not opening.observe([frame(TextDelta(0, " "))])
    assert opening.observe([frame(TextDelta(0, "a")), frame(TextDelta(0, "b"))])
    assert opening.observe([frame(RoleDelta(0, "assistant"))])
    assert opening.open


@pytest.mark.parametrize(
    ("events", "before"),
    [
        ((TextDelta(0, "a"),), 0),
        ((RoleDelta(0, "assistant"), ReasoningDelta(0, "hm"), TextDelta(0, " "), TextDelta(0, "a")), 3),
        ((RoleDelta(0, "assistant"), AudioDelta(0)), 1),
        ((ToolDelta(0, 0, "t", "f", "{}"), ToolEnd(0, 0)), 1),
        ((RoleDelta(0, "assistant"), TextDelta(0, " ")), 2),
        ((), 0),
    ],
)  # fmt: skip
def test_what_stands_before_the_first_content_is_counted(
    events: tuple[Event, ...], before: int
) -> None:
    """In frames, however they come, and no further when it has begun."""
    for chars in (1, 99):
        one, all_at_once = Opening(chars=chars, reasoning=False), Opening(chars=chars, reasoning=False)  # fmt: skip
        for each in events:
            one.observe([frame(each)])
        all_at_once.observe([frame(each) for each in events])
        assert (one.before, all_at_once.before) == (before, before)
        for opening in (one, all_at_once):
            opening.observe([frame(TextDelta(0, "b")), frame(RoleDelta(0, "assistant"))])
            assert (opening.before, opening.begun) == (before, True)


@given(
    texts=st.lists(st.text(" \nab", max_size=3), max_size=8),
    chars=st.integers(0, 12),
    cuts=st.lists(st.integers(0, 8)),
)
def test_the_opening_depends_on_the_text_and_not_on_its_batches(
    texts: list[str], chars: int, cuts: list[int]
) -> None:
    """It opens exactly where so much of the stripped text is there."""
    frames = [frame(TextDelta(0, text)) for text in texts]
    opening = Opening(chars=chars, reasoning=False)
    start = 0
    for cut in [*sorted(cut for cut in cuts if cut < len(frames)), len(frames)]:
        opening.observe(frames[start:cut])
        start = cut
    assert opening.open == (len("".join(texts).lstrip()) >= max(1, chars))
