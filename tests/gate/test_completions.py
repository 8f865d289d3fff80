"""Legacy completions, read as chat."""

from __future__ import annotations

import json

from gate.completions import as_chunk, decode_completion
from gate.events import Finish, Frame, Mend, TextDelta, UsageReport
from gate.failure import Failure, FailureKind
from gate.openai import Note
from gate.sse import SseEvent


def decoded(value: object) -> Frame | Failure | Note:
    """One event."""
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    return decode_completion(SseEvent(b"data: " + data + b"\n\n", data, b"", False))


def test_text_finish_and_usage_are_those_of_chat() -> None:
    """By choice; the frame's size is the event's own."""
    value = {"choices": [{"text": "a", "index": 1, "finish_reason": None}, {"text": "", "index": 0, "finish_reason": "eos"}], "usage": {"total_tokens": 3}}  # fmt: skip
    frame = decoded(value)
    assert isinstance(frame, Frame)
    assert frame.events == (TextDelta(1, "a"), Finish(0, "stop", "eos"), UsageReport(b'{"total_tokens":3}'))  # fmt: skip
    assert frame.size == len(json.dumps(value)) + 8
    assert json.loads(frame.data)["choices"][0]["delta"] == {"content": "a"}


def test_half_a_character_is_marked() -> None:
    """So that the next one brings the rest."""
    frame = decoded(b'{"choices":[{"text":"\\ud83d"}]}')
    assert isinstance(frame, Frame)
    assert frame.mend & Mend.TEXT
    assert json.loads(frame.data)["choices"][0]["delta"] == {"content": "\ud83d"}


def test_what_is_no_chunk_is_told_as_in_chat() -> None:
    """Errors, ends, comments, nonsense."""
    assert decoded({"error": {"code": 500}}) == Failure(FailureKind.UNAVAILABLE, 500)
    assert decoded(b"[DONE]") is Note.DONE
    assert decoded(b"ping") is Note.COMMENT
    assert decoded(b"<html>") == Failure(FailureKind.MALFORMED)


def test_a_choice_without_a_number_has_its_place() -> None:
    """Other members stay beside it; what is no choice is left out."""
    value = {"choices": [{"text": "a", "logprobs": 1}, 7, {"text": None}], "id": "c"}
    chunk = as_chunk(value)
    assert chunk["id"] == "c"
    assert chunk["choices"] == [
        {"logprobs": 1, "index": 0, "delta": {"content": "a"}},
        {"index": 1, "delta": {"content": None}},
    ]
