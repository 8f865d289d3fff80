"""Legacy completions (`/v1/completions`) read as chat: `choices[].text` is what `choices[].delta.content` is there, and everything else has the same name.

So one reader, one rule of completeness and the same filters hold for both. What is made here is only watched: the caller gets the provider's own bytes.
"""

from __future__ import annotations

import json
from typing import Any, Final

import msgspec

from gate.events import Frame, Mend
from gate.failure import Failure
from gate.loose_json import encoded, items, tolerant_object
from gate.openai import Note, decode_event, frame_of
from gate.sse import SseEvent

__all__ = ["PATH", "as_chunk", "decode_completion"]

PATH: Final = "/v1/completions"
_CHOICE: Final = frozenset({"text", "delta"})


def as_chunk(value: dict[str, Any]) -> dict[str, Any]:
    """A completion, or a piece of one, as the chat chunk that says the same."""
    choices = []
    for number, choice in enumerate(items(value.get("choices"))):
        rest = {name: item for name, item in choice.items() if name not in _CHOICE}
        index = choice.get("index")
        delta = {"content": choice.get("text")}
        choices.append({**rest, "index": number if index is None else index, "delta": delta})
    return {**value, "object": "chat.completion.chunk", "choices": choices}


def decode_completion(event: SseEvent) -> Frame | Failure | Note:
    """One SSE event of a stream of completions, as `gate.openai.decode_event` for one of chat."""
    item = decode_event(event)
    if not isinstance(item, Frame):
        return item
    value = tolerant_object(item.data)
    assert value is not None, "a frame is a JSON object"
    chunk = as_chunk(value)
    frame = frame_of(chunk, encoded(chunk), item.size)
    if not frame.mend & Mend.TEXT:
        return frame
    # Halves of characters are a step's to join, so they have to be there.
    return msgspec.structs.replace(frame, data=json.dumps(chunk).encode())
