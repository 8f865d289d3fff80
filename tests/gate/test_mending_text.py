"""A frame with other words: only they change, in bytes and events, and what has nothing left goes."""

from __future__ import annotations

import json
from typing import Any

from gate.events import Frame, Identity, Place, ReasoningDelta, RefusalDelta, TextDelta
from gate.mending_text import text_by_choice, with_words
from gate.openai import decode_object


def frame_of(*choices: dict[str, Any], whole: bool = False) -> Frame:
    """One frame of these choices."""
    value = {"id": "c1", "x": [1.50], "choices": list(choices)}
    said = [{**each, "delta": each["message"]} for each in choices] if whole else list(choices)
    events, _ = decode_object({"choices": said})
    return Frame(json.dumps(value).encode(), (*events, Identity("c1", 0)), 9, whole=whole)


def changed(frame: Frame, words: dict[int, tuple[str, str]]) -> tuple[list[Any], tuple[Any, ...]]:
    """The choices and the events of the frame with these words."""
    made = with_words(frame, words, "reasoning_content")
    assert made is not None
    assert (made.size, made.mend, made.whole) == (frame.size, frame.mend, frame.whole)
    value = json.loads(made.data)
    assert (value["id"], value["x"]) == ("c1", [1.5])
    return value["choices"], made.events


def test_words_change_and_everything_else_stays() -> None:
    """Other members, other choices, a choice without a delta."""
    frame = frame_of(
        {"index": 1, "delta": {"content": "a", "refusal": "no", "y": 1}, "logprobs": None},
        {"index": 0, "delta": {"content": "b"}},
        {"index": 2},
    )
    choices, events = changed(frame, {1: ("t", "u")})
    assert choices == [
        {"index": 1, "delta": {"content": "u", "refusal": "no", "y": 1, "reasoning_content": "t"}, "logprobs": None},
        {"index": 0, "delta": {"content": "b"}},
        {"index": 2},
    ]  # fmt: skip
    assert events == (
        ReasoningDelta(1, "t"),
        TextDelta(1, "u"),
        RefusalDelta(1, "no"),
        TextDelta(0, "b"),
        Identity("c1", 0),
    )


def test_reasoning_may_become_text() -> None:
    """Where there was none; and the other way round, under one name."""
    frame = frame_of({"index": 0, "delta": {"content": None, "reasoning": "a"}})
    choices, events = changed(frame, {0: ("", "a")})
    assert choices[0]["delta"] == {"content": "a", "reasoning": ""}
    assert events == (TextDelta(0, "a"), Identity("c1", 0))
    choices, events = changed(frame, {0: ("b", "")})
    assert choices[0]["delta"] == {"content": None, "reasoning": "", "reasoning_content": "b"}
    assert events == (ReasoningDelta(0, "b"), Identity("c1", 0))


def test_a_frame_with_nothing_left_goes() -> None:
    """Unless it is a body, or has something else to say."""
    frame = frame_of({"index": 0, "delta": {"content": "a"}})
    assert with_words(frame, {0: ("", "")}, "reasoning") is None
    other = frame_of({"index": 0, "delta": {"content": "a"}}, {"index": 1, "delta": {"content": "b"}})  # fmt: skip
    assert changed(other, {0: ("", "")})[1] == (TextDelta(1, "b"), Identity("c1", 0))
    likely = frame_of({"index": 0, "delta": {"content": "a"}, "logprobs": {"content": [1]}})
    assert changed(likely, {0: ("", "")})[1] == (Identity("c1", 0),)
    body = frame_of({"index": 0, "message": {"content": "a"}}, whole=True)
    assert changed(body, {0: ("", "")})[0] == [{"index": 0, "message": {"content": ""}}]


def test_the_choices_of_a_body_are_numbered_by_their_place() -> None:
    """Where they have no number."""
    body = frame_of({"message": {"content": "a"}}, {"message": {"content": "b"}}, whole=True)
    choices, _ = changed(body, {1: ("", "c")})
    assert [each["message"]["content"] for each in choices] == ["a", "c"]


def test_text_is_read_choice_by_choice() -> None:
    """Pieces of one choice are one."""
    frame = frame_of(
        {"index": 1, "delta": {"content": "a", "reasoning": "z"}},
        {"index": 0, "delta": {"content": "b"}},
        {"index": 1, "delta": {"content": "c"}},
    )
    assert text_by_choice(frame) == {1: "ac", 0: "b"}
    assert text_by_choice(frame, ReasoningDelta) == {1: "z"}


def test_a_responses_event_has_one_delta() -> None:
    """Its own words are in it, those of the other kind only among its events; without any it goes."""
    for kind, own, other in (
        ("response.output_text.delta", TextDelta, ReasoningDelta),
        ("response.reasoning_text.delta", ReasoningDelta, TextDelta),
    ):
        place = Place(kind, 0, 0)
        data = json.dumps({"type": kind, "delta": "ab", "x": 1}).encode()
        frame = Frame(data, (place, own(0, "ab")), 9)
        made = with_words(frame, {0: ("t", "u")}, "reasoning_content")
        assert made is not None
        value = json.loads(made.data)
        assert value == {"type": kind, "delta": "u" if own is TextDelta else "t", "x": 1}
        assert made.events == (place, ReasoningDelta(0, "t"), TextDelta(0, "u"))
        moved = with_words(
            frame, {0: ("", "u") if own is ReasoningDelta else ("t", "")}, "reasoning"
        )
        assert moved is not None
        assert json.loads(moved.data)["delta"] == ""
        assert isinstance(moved.events[1], other)
        assert with_words(frame, {0: ("", "")}, "reasoning_content") is None
