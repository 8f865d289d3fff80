"""Events of a Responses answer: whatever its provider names, they are of this response, and what one says of a text all say. Whole answers are in `test_responses_framing`."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from gate.endpoints import RESPONSES
from gate.events import Facts, FinishFact
from gate.responses import ResponsesStreamReader
from gate.responses_framing import ResponsesSse
from gate.responses_mending import ResponsesMender
from tests.pipeline import start
from tests.responding import completed, created, event, response, text

STOP = Facts((FinishFact(0, "stop"),))


def written(data: bytes) -> bytes:
    """What is written of a whole answer with these events, as `resp_1`."""
    read = ResponsesStreamReader(event_bytes_max=1 << 20).feed(data).frames
    framing = ResponsesSse(msgspec.structs.replace(start(endpoint=RESPONSES), id="resp_1"))
    return framing.release(ResponsesMender().mend(read)) + framing.success(STOP)


def events_of(data: bytes) -> list[dict[str, Any]]:
    """The events of it."""
    lines = written(data).splitlines()
    return [json.loads(line.removeprefix(b"data: ")) for line in lines if line[:1] == b"d"]


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ({"id": "resp_9", "model": "real", "z": 1}, {"id": "resp_1", "model": "alias", "z": 1}),
        ({"created_at": 9, "status": "queued"}, {"created_at": 7, "status": "queued"}),
        ({"z": {"id": "resp_9", "model": "real"}}, {"z": {"id": "resp_9", "model": "real"}}),
        ("resp_9", "resp_9"),
        (None, None),
    ],
)
def test_an_event_that_nobody_knows_names_no_other_response(said: object, told: object) -> None:
    """Nor does one that is known: another attempt's id, or its provider's model, is nowhere in the answer."""
    named = event("new.thing", response_id="resp_9", model="real", response=said, x=1)
    delta = event("output_text.delta", delta="Hi", response_id="resp_9", response=said)
    data = created() + named + delta
    data += event("completed", response=response(), response_id="resp_9")
    events = events_of(data)
    (known,) = [each for each in events if "x" in each]
    assert (known["response_id"], known["model"], known["response"]) == ("resp_1", "alias", told)
    assert {each["response_id"] for each in events if "response_id" in each} == {"resp_1"}
    assert [each["response"] for each in events if each["type"].endswith("text.delta")] == [told]  # fmt: skip


def test_a_mentioned_response_of_this_identity_keeps_its_bytes() -> None:
    said = b'{"id" : "resp_1", "model":"\\u0061lias","n":1.0}'
    named = b'data: {"type":"response.new.thing","response":%b}\n\n' % said
    assert b'"response":%b}' % said in written(created() + text("Hi") + named + completed())


@pytest.mark.parametrize(
    ("said", "told"),
    [("Hi", [{"token": "Hi"}]), ("Ho", []), (None, [])],
)
def test_the_end_of_a_text_has_the_log_probabilities_of_its_part(
    said: str | None, told: list[object]
) -> None:
    """Where its provider says them there alone, and of this text."""
    place = {"output_index": 0, "item_id": "msg_1", "content_index": 0}
    part = {"type": "output_text", "text": said, "logprobs": [{"token": "Hi"}] if said else None}
    data = created() + text("Hi") + event("content_part.done", **place, part=part)
    (end,) = [each for each in events_of(data + completed()) if each["type"].endswith("text.done")]
    assert end["logprobs"] == told
