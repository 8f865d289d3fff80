"""What a Responses attempt says aloud: judged in deltas, and where an object says what no delta did; nothing is judged twice."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gate.events import AudioDelta, Frame, OutputItem, Place
from gate.responses import ResponsesStreamReader
from gate.responses_mending import ResponsesMender
from gate.responses_spoken import SPOKEN, TOLD_BYTES, TOLD_MAX
from tests.responding import added, completed, created, done, event, message, text


def mended(data: bytes, mender: ResponsesMender | None = None) -> list[Frame]:
    """Mended frames of some events."""
    read = ResponsesStreamReader(event_bytes_max=1 << 20).feed(data).frames
    return (mender or ResponsesMender()).mend(read)


def heard(data: bytes, mender: ResponsesMender | None = None) -> list[AudioDelta]:
    """What is judged of audio."""
    frames = mended(data, mender)
    assert all(isinstance(frame.events[0], Place) for frame in frames), "what every framing needs"
    return [each for frame in frames for each in frame.events if isinstance(each, AudioDelta)]


def aloud(said: str) -> bytes:
    """A piece of a transcript."""
    return event("audio.transcript.delta", delta=said)


def part(said: str) -> dict[str, Any]:
    """A part of audio."""
    return {"type": "output_audio", "data": "AA", "transcript": said}


def item(said: str, name: str = "msg_1") -> dict[str, Any]:
    """A message with such a part."""
    return {**message("", name), "content": [part(said)]}


PLACE = {"output_index": 0, "item_id": "msg_1", "content_index": 0}
WHERE = {
    "done": event("audio.transcript.done", transcript="Hi you"),
    "part-begun": event("content_part.added", **PLACE, part=part("Hi you")),
    "part": event("content_part.done", **PLACE, part=part("Hi you")),
    "item": done(item("Hi you")),
    "response": completed(item("Hi you")),
}


def test_deltas_are_judged_and_keep_their_bytes() -> None:
    """The audio itself says nothing."""
    data = event("audio.delta", delta="AAAA") + aloud("Hi") + aloud(" you")
    assert heard(data) == [AudioDelta(0), AudioDelta(0, "Hi"), AudioDelta(0, " you")]
    assert [json.loads(frame.data)["delta"] for frame in mended(data)] == ["AAAA", "Hi", " you"]


@pytest.mark.parametrize("where", list(WHERE))
def test_what_an_object_says_is_judged_by_itself(where: str) -> None:
    """Where no delta said it, once, whatever says it again; and not at all where the deltas did."""
    begun = created() + added(message())
    fresh = AudioDelta(SPOKEN + 1, "Hi you")
    assert heard(begun + WHERE[where]) == [fresh]
    assert heard(begun + text("a") + WHERE[where] + completed(item("Hi you"))) == [fresh]
    said = begun + aloud("Hi") + aloud(" you")
    assert [each.choice for each in heard(said + WHERE[where])] == [0, 0]
    assert heard(begun + aloud("Bye") + WHERE[where])[1:] == [fresh]


def test_each_text_is_judged_by_itself() -> None:
    """And the transcript of a second item begins anew."""
    data = created() + added(message()) + aloud("One") + done(item("One")) + aloud("Two")
    got = heard(data + completed(item("One"), item("Two", "msg_2"), item("Three", "msg_3")))
    assert got == [AudioDelta(0, "One"), AudioDelta(0, "Two"), AudioDelta(SPOKEN + 1, "Three")]


def test_a_character_cut_in_two_is_put_together() -> None:
    """Where its second half comes."""
    frames = mended(aloud("a\ud83d") + aloud("\ude80b") + aloud("c"))
    assert [json.loads(frame.data)["delta"] for frame in frames] == ["a", "\U0001f680b", "c"]
    assert [frame.events[1] for frame in frames] == [AudioDelta(0, "a"), AudioDelta(0, "\U0001f680b"), AudioDelta(0, "c")]  # fmt: skip


def test_what_has_no_words_is_not_heard() -> None:
    """A member of that name that is no text, and an item of another kind with one: it stays what it is."""
    odd = event("content_part.done", **PLACE, part={"type": "output_audio", "transcript": 5})
    assert heard(created() + odd) == []
    spoken = {"type": "speech", "id": "s", "content": [{"transcript": "Hi"}]}
    (frame,) = [each for each in mended(added(spoken) + done(spoken)) if OutputItem(0) in each.events]  # fmt: skip
    assert AudioDelta(SPOKEN + 1, "Hi") not in frame.events, "it was judged where the item began"


def test_what_is_remembered_has_a_bound() -> None:
    """What comes behind it is judged every time; what is let go costs nothing."""
    mender = ResponsesMender()
    begun = mender.ledger_bytes
    data = b"".join(event("audio.transcript.done", transcript=f"{n}") for n in range(TOLD_MAX + 1))
    assert len(heard(data, mender)) == TOLD_MAX + 1
    assert mender.ledger_bytes == begun + TOLD_BYTES * TOLD_MAX
    again = event("audio.transcript.done", transcript=f"{TOLD_MAX}")
    assert len(heard(again + WHERE["done"].replace(b"Hi you", b"0"), mender)) == 1
    mender.drop()
    assert mender.ledger_bytes == begun
