"""What mending takes out is judged in a tunnel, as the texts of choices that nobody asked for."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gate.events import Event, Frame, ReasoningDelta, TextDelta, ToolDelta
from gate.mending import ChatMender
from gate.openai import frame_of
from gate.unmended import ASIDE, ASIDES_MAX, THOUGHTS, Unmended


def frame(*deltas: dict[str, Any], name: str = "delta") -> Frame:
    """One frame with a delta for each choice."""
    choices = [{"index": choice, name: delta} for choice, delta in enumerate(deltas)]
    data = json.dumps({"choices": choices}).encode()
    known = {"choices": [{"index": n, "delta": delta} for n, delta in enumerate(deltas)]}
    made = frame_of(known, data, 9)
    return Frame(data, made.events, 9, made.mend)


def beside(*frames: Frame, leaves: int = 0) -> list[Event]:
    """What is judged beside the first `leaves` frames when they leave together."""
    unmended = Unmended()
    for each in frames:
        unmended.saw(each)
    events, found = unmended.judged(frames[:leaves])
    assert list(events) == [event for each in frames[:leaves] for event in each.events]
    assert unmended.judged([]) == ((), [])
    assert unmended.ledger_bytes == 0
    return found


def call(arguments: str, index: int | None = 0, **members: Any) -> dict[str, Any]:
    """A piece of a call."""
    return {"tool_calls": [{"index": index, "function": {"arguments": arguments}, **members}]}


def test_a_call_that_is_left_out_is_a_text() -> None:
    """Its pieces joined, each call by itself; one that leaves is judged as what it is."""
    pieces = [frame(call("a")), frame(call("b", 1)), frame(call("c")), frame(call("", 2))]
    assert beside(*pieces) == [TextDelta(ASIDE + 1, "ac"), TextDelta(ASIDE + 2, "b")]
    assert beside(pieces[0], pieces[2], leaves=2) == []
    assert beside(frame(call("\ud83d"))) == [TextDelta(ASIDE + 1, "\ufffd")]


def test_arguments_are_judged_as_they_read_too() -> None:
    """With their escapes resolved."""
    found = beside(frame(call('{"a":"\\u0')), frame(call("061")))
    assert found == [TextDelta(ASIDE + 1, '{"a":"\\u0061'), TextDelta(ASIDE + 2, '{"a":"a')]


def test_there_is_a_bound_to_texts_by_themselves() -> None:
    """What more comes is judged together."""
    unmended = Unmended()
    choices = set()
    for _ in range(ASIDES_MAX + 2):
        unmended.saw(frame(call("x")))
        ((text,),) = unmended.judged([])[1:]
        assert isinstance(text, TextDelta)
        choices.add(text.choice)
    assert choices == {ASIDE + n for n in range(1, ASIDES_MAX + 1)}


def mended(*frames: Frame) -> list[list[Event]]:
    """What is judged of each frame behind chat's own steps, roles aside."""
    unmended, steps = Unmended(), ChatMender()
    told = []
    for each in frames:
        unmended.saw(each)
        own, second = unmended.judged(steps.mend([each]))
        told.append([*own, *second])
    return told


FIRST, SECOND = {"reasoning": "a"}, {"reasoning_content": "b"}


@pytest.mark.parametrize("name", ["delta", "message"])
def test_a_second_thought_is_judged_beside_the_first(name: str) -> None:
    """Each name in a channel of its own, from its first piece on, whatever mending makes of the two."""
    both = FIRST | SECOND
    own, other = ReasoningDelta(0, "a"), ReasoningDelta(THOUGHTS, "b")
    assert mended(frame(FIRST), frame(SECOND), frame(both)) == [[own], [other], [own, other]]
    swapped, second = ReasoningDelta(0, "b"), ReasoningDelta(THOUGHTS, "a")
    assert mended(frame(both, name=name), frame(FIRST))[0] == [swapped, second]
    assert mended(frame(SECOND), frame(FIRST)) == [[swapped], [second]]
    same = {"reasoning": "a", "reasoning_content": "a"}
    assert mended(frame(same)) == [[own, ReasoningDelta(THOUGHTS, "a")]]
    assert mended(frame(FIRST), frame(FIRST)) == [[own], [own]]
    two = mended(frame(FIRST, SECOND), frame(FIRST))
    assert two == [[ReasoningDelta(1, "b"), second], [second]]


def test_half_a_character_of_a_second_thought_waits_for_the_other() -> None:
    """A text of halves has none of them."""
    deltas = [FIRST | SECOND, {"reasoning": "a\ud83d", "reasoning_content": "c"}, {"reasoning": "\ude00b"}]  # fmt: skip
    told = [event for events in mended(*map(frame, deltas)) for event in events]
    said = [event.text for event in told if isinstance(event, ReasoningDelta) and event.choice]
    assert said == ["a", "a", "\U0001f600b"]


def test_a_thought_beside_thinking_parts_is_judged() -> None:
    """Mending reads the parts, and drops what stands beside them."""
    parts = [{"type": "thinking", "thinking": [{"type": "text", "text": "a"}]}]
    own = ReasoningDelta(0, "a")
    for members in (FIRST, SECOND, FIRST | SECOND):
        (told,) = mended(frame({"content": parts, **members}))
        beside = [ReasoningDelta(THOUGHTS, text) for text in members.values() if text != "a"]
        assert told == [own, *beside]
    assert mended(frame({"content": [{"type": "text", "text": "x"}], **SECOND})) == [[TextDelta(0, "x"), ReasoningDelta(0, "b")]]  # fmt: skip


def test_choices_that_say_nothing_of_it_are_passed_over() -> None:
    """Others, and what is no object."""
    made = frame(FIRST | SECOND, {"content": "x"})
    odd = Frame(b'{"choices":[{"index":0,"delta":7},{"index":1}]}', made.events, 9, made.mend)
    unmended = Unmended()
    unmended.saw(odd)
    assert unmended.judged([]) == ((), [])
    unmended.saw(made)
    assert unmended.judged([])[1] == [ReasoningDelta(THOUGHTS, "a")]


def test_a_piece_of_nothing_is_nothing() -> None:
    """Names and ids are judged where the call is."""
    named = frame({"tool_calls": [{"index": 0, "id": "c", "function": {"name": "f"}}]})
    assert isinstance(named.events[0], ToolDelta)
    assert beside(named) == []
