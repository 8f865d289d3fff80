"""A horizon keeps whole frames back, by the answer text behind them."""

from __future__ import annotations

import pytest

from gate.events import Event, Frame, ReasoningDelta, TextDelta
from gate.filters.horizon import Horizon


def frame(*events: Event) -> Frame:
    """One frame of these events."""
    return Frame(b"{}", events, 2)


WORDS = [frame(TextDelta(0, word)) for word in ("ab", "cd", "", "efg")]


@pytest.mark.parametrize(
    ("chars", "limit"), [(0, 4), (1, 3), (3, 3), (4, 1), (5, 1), (6, 0), (7, 0), (100, 0)]
)
def test_a_frame_may_go_when_enough_text_stands_behind_it(chars: int, limit: int) -> None:
    """Rounded to whole frames, in one batch or in many; text that brings nothing stays with what it follows."""
    at_once, one_by_one = Horizon(chars), Horizon(chars)
    at_once.add(WORDS, 0)
    for position, each in enumerate(WORDS):
        one_by_one.add([each], position)
    assert at_once.limit(4) == one_by_one.limit(4)
    assert at_once.limit(4) == limit
    assert at_once.limit(1) == min(1, limit)


def test_positions_go_on_where_an_attempt_goes_on() -> None:
    """Nothing of it has gone yet."""
    horizon = Horizon(3)
    horizon.add([frame(TextDelta(0, "ab"))], 17)
    assert horizon.limit(18) == 17


def test_only_answer_text_counts() -> None:
    """Of any choice; code points, not bytes."""
    horizon = Horizon(2)
    horizon.add([frame(TextDelta(0, "a")), frame(ReasoningDelta(0, "long thought"))], 0)
    assert horizon.limit(2) == 0
    horizon.add([frame(TextDelta(1, "é🙂"))], 2)
    assert horizon.limit(3) == 2
    assert repr(horizon) == "Horizon(2 characters)"
