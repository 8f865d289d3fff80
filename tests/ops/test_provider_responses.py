"""The loopback provider's Responses API: what is said there is what chat says, event by event as OpenAI writes them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ops.provider_answers import answer_steps, behaviour_of
from ops.provider_chat import Chat, InvalidChat
from ops.provider_responses import Response, read_responses
from ops.provider_script import Ending, Head, Pace, Write

AT_ONCE = Pace(chunk_ms=0, slow_ms=0)
TOOL = {
    "type": "function",
    "name": "sail",
    "parameters": {"type": "object", "properties": {"to": {"type": "string"}}, "required": ["to"]},
}


def asked(**more: object) -> Response:
    """A request that asks when high water is."""
    body = {"model": "m", "input": "When is high water?", "stream": True, **more}
    return read_responses(json.dumps(body).encode(), serial=3)


def events(request: Response, model: str = "healthy") -> list[dict[str, Any]]:
    """The events of a streamed answer; each names its type before its data."""
    steps = answer_steps(request, behaviour_of(model), pace=AT_ONCE)
    blocks = b"".join(step.data for step in steps if isinstance(step, Write)).split(b"\n\n")
    found = []
    for block in filter(None, blocks):
        name, data = block.split(b"\n")
        value = json.loads(data.removeprefix(b"data: "))
        assert name == b"event: " + value["type"].encode()
        found.append(value)
    return found


def whole(request: Response, model: str = "healthy") -> dict[str, Any]:
    """The body of an answer in one piece."""
    steps = answer_steps(request, behaviour_of(model), pace=AT_ONCE)
    body: dict[str, Any] = json.loads(b"".join(s.data for s in steps if isinstance(s, Write)))
    return body


def kinds(found: list[dict[str, Any]]) -> list[str]:
    """The types of events, each run of equal ones once."""
    types = [each["type"].removeprefix("response.") for each in found]
    return [kind for n, kind in enumerate(types) if not n or types[n - 1] != kind]


@pytest.mark.parametrize("model", ["healthy", "reasoning", "refusal", "tool-call", "length:4"])
def test_a_stream_says_what_the_whole_answer_says(model: str) -> None:
    """Numbered without a gap; deltas add up to what is said at their end, and to the response's items."""
    found = events(asked(tools=[TOOL]), model)
    assert [each["sequence_number"] for each in found] == list(range(len(found)))
    assert found[-1]["response"] == whole(asked(tools=[TOOL], stream=False), model)
    texts: dict[tuple[int, str], str] = {}
    for each in found:
        kind = each["type"]
        if kind.endswith(".delta"):
            key = each["output_index"], kind.removesuffix(".delta")
            texts[key] = texts.get(key, "") + each["delta"]
    for index, item in enumerate(found[-1]["response"]["output"]):
        said = item.get("arguments") or "".join(
            part.get("text") or part.get("refusal") for part in item["content"]
        )
        assert [text for (at, _), text in texts.items() if at == index] == [said]
    done = [each["item"] for each in found if each["type"] == "response.output_item.done"]
    assert done == found[-1]["response"]["output"]


def test_the_events_come_in_openais_order() -> None:
    """A part begins before its text and ends behind it, within its item."""
    assert kinds(events(asked())) == [
        "created",
        "in_progress",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "completed",
    ]
    assert kinds(events(asked(), "tool-call"))[2:-1] == [
        "output_item.added",
        "function_call_arguments.delta",
        "function_call_arguments.done",
        "output_item.done",
    ]


def test_a_ceiling_and_a_filter_leave_the_answer_incomplete() -> None:
    """By the status of the response, and with the reason."""
    cut = events(asked(max_output_tokens=5))[-1]
    assert (cut["type"], cut["response"]["status"]) == ("response.incomplete", "incomplete")
    assert cut["response"]["incomplete_details"] == {"reason": "max_output_tokens"}
    assert cut["response"]["usage"]["output_tokens"] == 5
    filtered = whole(asked(stream=False), "content-filter")
    assert filtered["incomplete_details"] == {"reason": "content_filter"}


def test_the_faults_of_chat_break_it_too() -> None:
    """A late error is a response that failed; a stream without its end says no response."""
    assert events(asked(), "late-error")[-1]["response"]["status"] == "failed"
    assert events(asked(), "error-in-200")[0]["type"] == "response.failed"
    assert events(asked(), "no-done")[-1]["type"] == "response.output_item.done"
    steps = list(answer_steps(asked(), behaviour_of("cut:2"), pace=AT_ONCE))
    assert steps[-1] is Ending.CUT
    assert kinds(events(asked(), "cut:2"))[-1] == "output_text.delta"
    refused = next(answer_steps(asked(), behaviour_of("429:2"), pace=AT_ONCE))
    assert isinstance(refused, Head)
    assert refused.status == 429
    assert events(asked(), "empty")[-1]["response"]["output"][0]["content"] == []


def test_items_are_read_like_messages() -> None:
    """The last that a user said is quoted; what a tool gave back counts like any other words."""
    items = [
        {
            "role": "user",
            "content": [{"type": "input_text", "text": "High"}, {"type": "input_image"}],
        },
        {"type": "function_call", "call_id": "c", "name": "sail", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "two words"},
        {"type": "function_call_output", "call_id": "d", "output": [{"text": "three"}]},
    ]
    request = asked(input=items, instructions="Be brief.", previous_response_id="resp_1")
    assert (request.prompt, request.prompt_tokens) == ("High ", 4)
    body = events(request)[-1]["response"]
    assert (body["instructions"], body["previous_response_id"]) == ("Be brief.", "resp_1")
    assert asked(input=[]).prompt == ""


def test_an_unfinished_message_is_gone_on_with() -> None:
    """As vLLM does it: the last item says that it is not complete."""
    text = asked().text()
    prefix = text[:30]
    part = {"type": "output_text", "text": prefix}
    item = {"type": "message", "role": "assistant", "status": "incomplete", "content": [part]}
    going_on = asked(input=[{"role": "user", "content": "When is high water?"}, item])
    assert isinstance(going_on, Chat)
    assert going_on.prefix == prefix
    deltas = [each["delta"] for each in events(going_on) if each["type"].endswith(".delta")]
    assert prefix + "".join(deltas) == text


def test_the_first_named_tool_is_called() -> None:
    """A provider's own tool has no name; without any the default is called."""
    hosted = {"type": "web_search"}
    assert events(asked(tools=[hosted, TOOL]), "tool-call")[-1]["response"]["output"][0]["name"] == "sail"  # fmt: skip
    assert asked(tools=[hosted]).tool.name == "note_tide"


@pytest.mark.parametrize("body", [b"{", b"{}", b'{"model":"m","input":5}', b"\xff"])
def test_what_is_no_request_is_refused(body: bytes) -> None:
    """With a text that names the place."""
    with pytest.raises(InvalidChat):
        read_responses(body, serial=1)
