"""A frame with other words: what a mending step that changes text does to a frame, bytes and events alike.

Only the text of the choices that are named changes, and the reasoning beside it; the frame is encoded anew, unknown members included. A frame that has nothing left
goes; a JSON body never does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any, Final, TypeAlias

import msgspec

from gate.events import Event, Frame, ReasoningDelta, TextDelta
from gate.loose_json import encoded, integer, items, tolerant_object

__all__ = ["Words", "text_by_choice", "with_words"]

Words: TypeAlias = Mapping[int, tuple[str, str]]
"""By choice: its reasoning and its text in one frame, all there is of either."""

_NAMES: Final = ("reasoning_content", "reasoning")


def text_by_choice(
    frame: Frame, kind: type[TextDelta | ReasoningDelta] = TextDelta
) -> dict[int, str]:
    """The answer text in a frame (or, `kind`, the reasoning), choice by choice in the order of their first piece."""
    texts: dict[int, str] = {}
    for event in frame.events:
        if isinstance(event, kind):
            texts[event.choice] = texts.get(event.choice, "") + event.text
    return texts


def with_words(frame: Frame, words: Words, reasoning_field: str) -> Frame | None:
    """The frame with these words instead of its own; None where nothing is left of it."""
    value = tolerant_object(frame.data)
    assert value is not None, "a frame is a JSON object"
    if "choices" not in value:
        return _with_delta(frame, value, words)
    told: set[int] = set()
    for choice, message in _messages(value, whole=frame.whole):
        if choice in words:
            # A choice may stand there twice: then the first place says it all.
            reasoning, text = ("", "") if choice in told else words[choice]
            told.add(choice)
            _put(message, text, reasoning, reasoning_field)
    events = tuple(_events(frame, words))
    if not frame.whole and _bare(value):
        return None
    return msgspec.structs.replace(frame, data=encoded(value), events=events)


def _with_delta(frame: Frame, value: MutableMapping[str, Any], words: Words) -> Frame | None:
    """The same for a Responses event, whose one delta is of one kind; words of the other kind are in the events alone, and the framing gives them an item of their own."""
    reasoning, text = words[0]
    if not reasoning and not text:
        return None
    thought = str(value.get("type")).startswith("response.reasoning")
    value["delta"] = reasoning if thought else text
    events = tuple(_events(frame, words))
    return msgspec.structs.replace(frame, data=encoded(value), events=events)


def _messages(
    value: Mapping[str, Any], *, whole: bool
) -> Iterator[tuple[int, MutableMapping[str, Any]]]:
    """The delta, or message, of each choice, numbered as its events are."""
    for number, choice in enumerate(items(value.get("choices"))):
        message = choice.get("message" if whole else "delta")
        if isinstance(message, dict):
            index = choice.get("index")
            yield integer(number if whole and index is None else index), message


def _put(message: MutableMapping[str, Any], text: str, reasoning: str, field: str) -> None:
    if isinstance(message.get("content"), str) or text:
        message["content"] = text
    for name in _NAMES:
        if isinstance(message.get(name), str):
            message[name] = ""
    if reasoning:
        message[field] = reasoning


def _events(frame: Frame, words: Words) -> Iterator[Event]:
    """The frame's events with the words in the place of the first of them; reasoning comes before text, as it was thought."""
    told: set[int] = set()
    for event in frame.events:
        if not isinstance(event, TextDelta | ReasoningDelta) or event.choice not in words:
            yield event
        elif event.choice not in told:
            told.add(event.choice)
            reasoning, text = words[event.choice]
            if reasoning:
                yield ReasoningDelta(event.choice, reasoning)
            if text:
                yield TextDelta(event.choice, text)


def _bare(value: Mapping[str, Any]) -> bool:
    """Every delta is empty, and no choice has log probabilities."""
    choices = items(value.get("choices"))
    deltas = [message for _, message in _messages(value, whole=False)]
    return not any(any(delta.values()) for delta in deltas) and not any(
        choice.get("logprobs") for choice in choices
    )
