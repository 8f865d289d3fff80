"""Frames that are encoded anew: a character that is cut over two pieces of a transcript stands whole where its second half comes. Texts and their names are tested with the other steps, in `test_mending`."""

from __future__ import annotations

import json
from typing import Any

from gate.events import AudioDelta, Complete, Event, Finish, Frame
from gate.mending import ChatMender
from gate.openai import decode_event
from gate.sse import SseDecoder


def frames_of(*deltas: dict[str, Any]) -> list[Frame]:
    """What is read of these deltas."""
    chunks = [{"choices": [{"index": 0, "delta": delta}]} for delta in deltas]
    data = b"".join(b"data: %b\n\n" % json.dumps(chunk).encode() for chunk in chunks)
    read = [decode_event(each) for each in SseDecoder(event_bytes_max=1 << 20).feed(data)]
    return [each for each in read if isinstance(each, Frame)]


def said(frames: list[Frame]) -> tuple[list[Any], list[Event]]:
    """The transcripts in the frames' bytes, and the events."""
    deltas = [json.loads(frame.data)["choices"][0]["delta"] for frame in frames]
    told = [delta.get("audio", {}).get("transcript") for delta in deltas]
    return told, [event for frame in frames for event in frame.events]


def aloud(text: str, **members: Any) -> dict[str, Any]:
    """A delta of audio."""
    return {"role": "assistant", "audio": {**members, "transcript": text}}


def test_a_character_cut_in_a_transcript_is_put_together() -> None:
    """Other members stay; what stands between waits for nothing."""
    frames = frames_of(aloud("a\ud83d", id="x"), {"audio": {"data": "AA"}}, aloud("\ude80b"))
    told, events = said(ChatMender().mend(frames))
    assert told == ["a", None, "\U0001f680b"]
    heard = [event for event in events if isinstance(event, AudioDelta)]
    assert heard == [AudioDelta(0, "a"), AudioDelta(0), AudioDelta(0, "\U0001f680b")]
    assert json.loads(frames[0].data)["choices"][0]["delta"]["audio"]["id"] == "x"


def test_a_half_that_stays_alone_is_a_replacement_character() -> None:
    """Where something else follows, and at the very end."""
    mender = ChatMender()
    told, _ = said(mender.mend(frames_of(aloud("a\ud83d"), aloud("b\ud83d"))))
    assert told == ["a", "\ufffdb"]
    rest, _ = mender.finish(Complete((Finish(0, "stop", "stop"),)))
    assert said(rest) == (["\ufffd"], [AudioDelta(0, "\ufffd")])


def test_audio_without_a_cut_keeps_its_bytes() -> None:
    """Every one of them, behind the first role."""
    frames = frames_of(aloud("One.", id="x"), {"audio": {"transcript": " Two.", "expires_at": 5}})
    assert [frame.data for frame in ChatMender().mend(frames)] == [frame.data for frame in frames]
