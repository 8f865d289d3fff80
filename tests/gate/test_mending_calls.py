"""What calls cost: a bounded amount for each piece, however they are cut, mixed and numbered."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Sequence

import pytest

from gate.events import Complete, Frame, ToolDelta
from gate.mending import ChatMender
from gate.mending_calls import NAME_CHARS_MAX
from tests.calling import begin, calling, end, entry, frames_of


def mended_calls(*payloads: bytes) -> list[tuple[str, int]]:
    """Name and index of each call that comes out."""
    mender = ChatMender()
    frames = [*mender.mend(frames_of(*payloads)), *mender.finish(Complete())[0]]
    return [(event.name or "", event.index or 0) for frame in frames for event in frame.events if isinstance(event, ToolDelta)]  # fmt: skip


def work(frames: Sequence[Frame]) -> int:
    """How many calls of functions it takes to mend these: the same on every machine, and however busy that is."""
    mender = ChatMender(ceiling=8)
    events: Counter[str] = Counter()
    before = sys.getprofile()
    sys.setprofile(lambda frame, event, arg: events.update([event]))
    try:
        for frame in frames:
            mender.mend([frame])
        mender.finish(Complete())
    finally:
        sys.setprofile(before)
    return events["call"] + events["c_call"]


def bytes_one_by_one(count: int) -> list[bytes]:
    """A call that needs nothing."""
    return [calling(begin()), *[calling(entry(arguments="a"))] * count]


def odd_bytes(count: int) -> list[bytes]:
    """A call that is mended."""
    return [calling(begin()), *[calling(entry(0, id="x", arguments="a"))] * count]


def calls_at_one_index(count: int) -> list[bytes]:
    """Each of them whole."""
    return [calling(begin(0, "f", "{}", id=str(n))) for n in range(count)]


def open_calls(count: int) -> list[bytes]:
    """None of them whole before the last piece, all of which come in one delta."""
    pieces = [begin(n, "f", "{", type=None) for n in range(count)]
    return [*map(calling, pieces), calling(*[entry(n, arguments="}") for n in range(count)])]


def calls_in_one_delta(count: int) -> list[bytes]:
    """Each piece that follows in its own."""
    pieces = [begin(n, "f", "{", type=None) for n in range(count)]
    return [calling(*pieces), *[calling(entry(n, arguments="}")) for n in range(count)]]


def names(count: int) -> list[bytes]:
    """A name that does not end."""
    return [calling(begin()), *[calling(entry(name="ab"))] * count]


def finishes(count: int) -> list[bytes]:
    """Many ends of one long call."""
    return [calling(begin(0, "f", '{"a' * 400)), *[end()] * count]


def begins(count: int) -> list[bytes]:
    """A call that goes on between others that begin."""
    return [each for n in range(count) for each in (calling(begin(n, "f", "{")), calling(entry(0, arguments="a")))]  # fmt: skip


@pytest.mark.slow
@pytest.mark.no_cover
@pytest.mark.parametrize("answer", [bytes_one_by_one, odd_bytes, calls_at_one_index, open_calls, calls_in_one_delta, names, finishes, begins])  # fmt: skip
def test_any_number_of_pieces_costs_work_in_proportion(
    answer: Callable[[int], list[bytes]],
) -> None:
    """Eight times the pieces, about eight times the work."""
    few, many = frames_of(*answer(100)), frames_of(*answer(800))
    assert work(many) < 10 * work(few)


def test_a_name_does_not_grow_without_end() -> None:
    """No tool has one like it."""
    call, _ = mended_calls(calling(begin(0, "f", "{}")), *[calling(entry(name="ab" * 500))] * 9)[0]
    assert NAME_CHARS_MAX <= len(call) < NAME_CHARS_MAX + 1_000


@pytest.mark.no_cover
def test_ten_thousand_calls_come_out() -> None:
    """Each with its own index."""
    calls = mended_calls(*[calling(begin(0, "f", "{}", id=str(n))) for n in range(10_000)])
    assert [index for _, index in calls] == list(range(10_000))
