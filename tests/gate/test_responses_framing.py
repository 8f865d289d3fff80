"""Framings of the Responses API: whole responses written down, and what holds for every one: numbers, places, one identity, nothing but what was released."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from gate.endpoints import RESPONSES
from gate.envelope import public_error, refusal
from gate.events import Complete, Facts, FinishFact, Frame
from gate.failure import Failure, FailureKind
from gate.filters.contract import FilterContext
from gate.mending_think import ThinkTags
from gate.responses import ResponsesStreamReader
from gate.responses_framing import ResponsesJson, ResponsesSse, kept_of
from gate.responses_mending import ResponsesMender
from tests.assembly_responses import Answer, read_events, texts_of
from tests.pipeline import run, start
from tests.responding import (
    USAGE,
    added,
    answer,
    arguments,
    call,
    completed,
    created,
    done,
    event,
    message,
    response,
    spoken_call,
    text,
    thought,
)

STOP = Facts((FinishFact(0, "stop"),))
CUT = refusal(502, "stream_cut")


def sse() -> ResponsesSse:
    """The framing of a stream."""
    return ResponsesSse(start(endpoint=RESPONSES))


def frames_of(data: bytes, mender: ResponsesMender | None = None) -> list[Frame]:
    """Mended frames of some events."""
    read = ResponsesStreamReader(event_bytes_max=1 << 20).feed(data).frames
    return (mender or ResponsesMender()).mend(read)


def streamed(data: bytes, facts: Facts = STOP) -> Answer:
    """What a caller makes of a whole answer with these events."""
    framing = sse()
    return read_events(framing.release(frames_of(data)) + framing.success(facts))


def whole(data: bytes, *, body: bool = False, **more: Any) -> dict[str, Any]:
    """The one object that is made of it."""
    passed = run([data], stream=False, endpoint=RESPONSES, body=body, **more)
    assert passed.failure is None
    value: dict[str, Any] = json.loads(passed.body)
    return value


# --- whole responses, byte for byte --------------------------------------------------------------

RESPONSE = '{"id":"chatcmpl-1","object":"response","created_at":7,"status":"%s","model":"alias","output":%s,"usage":%s,' + (
    '"background":false,"completed_at":null,"error":null,"frequency_penalty":0.0,"incomplete_details":null,"instructions":null,"max_output_tokens":null,'
    '"max_tool_calls":null,"metadata":{},"parallel_tool_calls":true,"presence_penalty":0.0,"previous_response_id":null,"prompt_cache_key":null,"reasoning":null,'
    '"safety_identifier":null,"service_tier":"default","store":false,"temperature":1.0,"text":{"format":{"type":"text"}},"tool_choice":"auto","tools":[],'
    '"top_logprobs":0,"top_p":1.0,"truncation":"disabled"}'
)  # fmt: skip
ITEM = '{"id":"msg_1","type":"message","status":"completed","role":"assistant","content":[{"type":"output_text","text":"Hi","annotations":[]}]}'
DETAILS = {
    "input_tokens_details": {"cached_tokens": 0},
    "output_tokens_details": {"reasoning_tokens": 0},
}
TOKENS = '{"input_tokens":3,"output_tokens":4,"total_tokens":7,"input_tokens_details":{"cached_tokens":0},"output_tokens_details":{"reasoning_tokens":0}}'
BEGINNING = [
    '"type":"response.created","sequence_number":0,"response":' + RESPONSE % ("in_progress", "[]", "null"),
    '"type":"response.in_progress","sequence_number":1,"response":' + RESPONSE % ("in_progress", "[]", "null"),
    '"type":"response.output_item.added","sequence_number":2,"output_index":0,"item":{"id":"msg_1","type":"message","status":"in_progress","role":"assistant","content":[]}',
    '"type":"response.content_part.added","sequence_number":3,"item_id":"msg_1","output_index":0,"content_index":0,"part":{"type":"output_text","text":"","annotations":[],"logprobs":[]}',
    '"type":"response.output_text.delta","sequence_number":4,"item_id":"msg_1","output_index":0,"content_index":0,"delta":"Hi","logprobs":[]',
]  # fmt: skip
ENDING = [
    '"type":"response.output_text.done","sequence_number":5,"item_id":"msg_1","output_index":0,"content_index":0,"text":"Hi","logprobs":[]',
    '"type":"response.content_part.done","sequence_number":6,"item_id":"msg_1","output_index":0,"content_index":0,"part":{"type":"output_text","text":"Hi","annotations":[],"logprobs":[]}',
    '"type":"response.output_item.done","sequence_number":7,"output_index":0,"item":' + ITEM,
    '"type":"response.completed","sequence_number":8,"response":' + RESPONSE % ("completed", f"[{ITEM}]", TOKENS),
]  # fmt: skip


def written(lines: Sequence[str]) -> bytes:
    """Events with these members."""
    return b"".join(
        f"event: {json.loads('{' + line + '}')['type']}\ndata: {{{line}}}\n\n".encode()
        for line in lines
    )


def test_a_stream_is_written_down() -> None:
    """The beginning with the first text, the end with the response; no `[DONE]`."""
    assert run([answer("Hi")], endpoint=RESPONSES).body == written(BEGINNING + ENDING)


def test_an_object_is_written_down() -> None:
    """From a stream as from a body; its members as they came, null ones too."""
    expected = RESPONSE % ("completed", f"[{ITEM}]", TOKENS)
    passed = run([answer("Hi")], stream=False, endpoint=RESPONSES)
    assert passed.body.decode() == expected
    body = json.dumps(response("completed", message("Hi"), error=None, x=1.5), indent=1).encode()
    told = whole(body, body=True)
    assert (told["error"], told["x"], told["id"], told["model"]) == (None, 1.5, "chatcmpl-1", "alias")  # fmt: skip
    given = list(json.loads(body))
    assert list(told)[: len(given)] == given


def test_an_error_after_the_beginning_is_written_down() -> None:
    """A response that failed, under the same id and with the next number; what was released is in it."""
    framing = sse()
    body = framing.release(frames_of(created() + added(message()) + text("Hi", logprobs=[])))
    body += framing.error(CUT)
    item = ITEM.replace("completed", "incomplete").replace(
        '"annotations":[]', '"annotations":[],"logprobs":[]'
    )
    told = '"error":{"code":"server_error","message":"The provider\'s answer was cut off."}'
    failed = (RESPONSE % ("failed", f"[{item}]", "null")).replace(',"error":null', "")
    failed = failed.replace('"usage":null', f'"usage":null,{told}')
    last = f'"type":"response.failed","sequence_number":5,"response":{failed}'
    assert body == written([*BEGINNING, last])
    assert read_events(body).response["status"] == "failed"


def test_an_error_after_the_beginning_says_what_of_the_callers_schema_was_not_kept() -> None:
    """Behind the sentence, as in an error's envelope."""
    failure = Failure(FailureKind.TOOL_INVALID, verdict="tool_arguments_schema", reason="/city")
    body = sse().error(public_error(failure, attempts=1))
    assert read_events(body).response["error"]["message"].endswith(" do not fit its parameters. (/city)")  # fmt: skip


def test_an_answer_that_goes_on_is_written_down() -> None:
    """Under one id, in one item and one part; every object has the text of both attempts."""
    before = ResponsesMender()
    framing = sse()
    body = framing.release(frames_of(created() + added(message()) + text("One"), before))
    other = answer(" two").replace(b"msg_1", b"msg_x").replace(b"resp_up", b"resp_b")
    body += framing.release(frames_of(other, ResponsesMender(before=before)))
    got = read_events(body + framing.success(STOP))
    assert got.text == "One two"
    assert [item["id"] for item in got.items] == ["msg_1"]
    assert texts_of(got.response) == {"output_text": "One two"}
    assert got.kinds.count("output_text.done") == got.kinds.count("output_item.done") == 1


def test_what_was_said_to_be_over_goes_on_all_the_same() -> None:
    """Its end is only written when something follows it."""
    before = ResponsesMender()
    framing = sse()
    over = answer("One")[: -len(completed(message("One")))]
    body = framing.release(frames_of(over, before))
    body += framing.release(frames_of(answer(" two"), ResponsesMender(before=before)))
    got = read_events(body + framing.success(STOP))
    assert (got.text, texts_of(got.response)) == ("One two", {"output_text": "One two"})


# --- numbers and names ---------------------------------------------------------------------------


def test_items_are_numbered_as_they_are_released() -> None:
    """Whatever their provider's numbers are; an id that another item has is not theirs."""
    data = created() + text("a", index=7) + done(message("a"), 7)
    data += added(call(item="msg_1"), 9) + done(call("{}", item="msg_1"), 9)
    data += text("b", index=3, item="") + completed()
    got = streamed(data)
    assert [item["type"] for item in got.items] == ["message", "function_call", "message"]
    names = [item["id"] for item in got.items]
    assert names[0] == "msg_1"
    assert [name.partition("_")[0] for name in names] == ["msg", "fc", "msg"]
    assert [item["id"] for item in got.response["output"]] == names
    assert [item["id"] for item in streamed(data).items] == names


def test_a_thin_provider_gets_everything_that_a_client_needs() -> None:
    """No numbers, no places, no beginnings and no ends, an empty output."""
    data = b"".join(event("output_text.delta", delta=word) for word in ("Hi", " there"))
    got = streamed(data + event("completed", response={"status": "completed"}))
    assert got.kinds == [
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
    assert texts_of(got.response) == {"output_text": "Hi there"}
    assert got.events[4]["logprobs"] == got.events[6]["logprobs"] == []


def test_null_is_nothing_where_no_client_takes_it() -> None:
    """In an event, a part and an item alike, streamed or not; texts and all else stay."""
    place = {"item_id": "m", "output_index": 0, "content_index": 0}
    part = {"type": "output_text", "text": "Hi", "annotations": None, "logprobs": None}
    item = {"id": "m", "type": "message", "role": "assistant", "status": "completed", "phase": None}
    data = (
        event("output_item.added", output_index=0, item={**item, "content": []})
        + event("content_part.added", **place, part={**part, "text": ""})
        + event("output_text.delta", **place, delta="Hi", logprobs=None)
        + event("output_text.done", **place, text="Hi", logprobs=None)
        + event("content_part.done", **place, part=part)
        + event("output_item.done", output_index=0, item={**item, "content": [part]})
    )
    response = {"status": "completed", "output": [{**item, "content": [part]}]}
    got = streamed(data + event("completed", response=response))
    told: dict[str, Any] = {**part, "annotations": [], "logprobs": []}
    assert [each["logprobs"] for each in got.events if "logprobs" in each] == [[], []]
    assert [each["part"] for each in got.events if "part" in each] == [{**told, "text": ""}, told]
    items = [each["item"] for each in got.events if "item" in each]
    items += [*got.response["output"], *whole(json.dumps(response).encode(), body=True)["output"]]
    assert all("phase" not in each for each in items)
    assert [each["content"] for each in items] == [[], [told], [told], [told]]


def test_events_that_nobody_knows_are_numbered_and_pass() -> None:
    """With the place of their item, where they name it; a queue is told as it stands."""
    searching = event(
        "web_search_call.searching", output_index=4, item_id="ws_up", **{"odd name": 1}
    )
    data = event("queued", response=response("queued")) + created()
    data += added({"type": "web_search_call", "id": "ws_up"}, 4) + searching
    data += done({"type": "web_search_call", "id": "ws_up", "status": "completed"}, 4)
    data += event("new.thing", x=1) + text("Hi", index=5) + completed()
    got = streamed(data)
    assert got.kinds[:4] == ["created", "queued", "in_progress", "output_item.added"]
    assert got.events[1]["response"]["status"] == "queued"
    (told,) = [e for e in got.events if e["type"].endswith("searching")]
    assert (told["output_index"], told["item_id"], told["odd name"]) == (0, "ws_up", 1)
    assert [e["x"] for e in got.events if e["type"] == "response.new.thing"] == [1]
    assert got.response["output"][0] == {"type": "web_search_call", "id": "ws_up", "status": "completed"}  # fmt: skip


def test_annotations_stay_with_their_part() -> None:
    """In the events, and in a part that has to be made anew."""
    note = {"type": "url_citation", "url": "u"}
    noted = event("output_text.annotation.added", output_index=0, content_index=0, annotation_index=0, annotation=note)  # fmt: skip
    got = streamed(created() + text("Hi") + noted + completed())
    assert got.response["output"][0]["content"][0]["annotations"] == [note]
    assert [e["annotation"] for e in got.events if "annotation" in e] == [note]


def test_thoughts_and_refusals_have_their_own_events() -> None:
    """Summaries by `summary_index`, raw thoughts as content; parts in order, each closed before the next."""
    hm = {"item_id": "rs_1", "output_index": 0, "summary_index": 0}
    data = created() + added(thought())
    data += event("reasoning_summary_text.delta", **hm, delta="One.")
    data += event("reasoning_summary_text.delta", **{**hm, "summary_index": 1}, delta="Two.")
    data += event("reasoning_text.delta", output_index=0, content_index=0, delta="Raw.")
    data += done({**thought("One.", "Two."), "encrypted_content": "x"}) + added(message(), 1)
    data += event("refusal.delta", output_index=1, content_index=0, delta="No.") + completed()
    got = streamed(data)
    assert got.said("reasoning_summary_text") == "One.Two."
    assert (got.said("reasoning_text"), got.said("refusal")) == ("Raw.", "No.")
    reasoning, refused = got.response["output"]
    assert [part["text"] for part in reasoning["summary"]] == ["One.", "Two."]
    assert (reasoning["content"][0]["text"], reasoning["encrypted_content"]) == ("Raw.", "x")
    assert refused["content"] == [{"type": "refusal", "refusal": "No."}]
    kinds = [kind for kind in got.kinds if "part" in kind]
    assert kinds.count("reasoning_summary_part.added") == kinds.count("reasoning_summary_part.done") == 2  # fmt: skip


def test_thoughts_without_words_are_items_too() -> None:
    """What is sealed in them has to come back with the next request; one that had raw content begins without."""
    sealed = {
        "id": "rs_1",
        "type": "reasoning",
        "summary": [],
        "content": [],
        "encrypted_content": "x",
    }
    got = streamed(created() + added(sealed) + done(sealed) + text("Hi", index=1) + completed())
    assert got.items[0] == sealed
    assert got.response["output"][0] == sealed


def test_a_part_without_text_is_written_too() -> None:
    """It begins, and ends."""
    place = {"output_index": 0, "content_index": 0}
    part = {"type": "output_text", "text": "", "annotations": []}
    data = created() + added(message()) + event("content_part.added", **place, part=part)
    data += done(message("")) + completed(message(""))
    assert streamed(data).kinds[2:-1] == [
        "output_item.added",
        "content_part.added",
        "output_text.done",
        "content_part.done",
        "output_item.done",
    ]


# --- what objects say ----------------------------------------------------------------------------


def test_an_object_never_says_more_than_was_released() -> None:
    """Where it contradicts the deltas, the deltas are put in; its other members stay."""
    place = {"output_index": 0, "content_index": 0}
    lie = {"type": "output_text", "text": "secret", "annotations": [1], "logprobs": [2], "x": 3}
    item = {**message(), "content": [lie], "status": "completed", "y": 4}
    data = created() + added({**message(), "content": [lie]})
    data += event("content_part.added", **place, part=lie) + text("Hi")
    data += event("output_text.done", **place, text="secret", z=5)
    data += event("content_part.done", **place, part=lie) + done(item) + completed(item)
    got = streamed(data)
    assert "secret" not in json.dumps(got.events)
    (said,) = got.response["output"]
    assert said["content"] == [{**lie, "text": "Hi", "logprobs": []}]
    assert said["y"] == 4
    assert [event["z"] for event in got.events if "z" in event] == [5]


def test_a_text_beside_the_items_says_what_was_released() -> None:
    """Some servers write it; its bytes stay where it says the same, and null stays null."""
    data = created(output_text="") + text("a\u00e9", part=0) + text("b", part=1)
    for said, told in (
        ("secret", '"a\u00e9b"'),
        ("a\u00e9b", '"a\\u00e9b"'),
        (None, "null"),
        (7, "7"),
    ):
        passed = run([data + completed(output_text=said)], endpoint=RESPONSES)
        assert f'"output_text":{told}' in passed.body.decode()
    cut = run([data], endpoint=RESPONSES)
    assert b'"output_text":""' in cut.body


def test_released_items_that_the_response_omits_are_put_in() -> None:
    """In their order; each object is found by its kind, and a call by its id."""
    data = (
        created() + text("Hi") + added(call(), 1) + arguments("{}", index=1) + done(call("{}"), 1)
    )
    first = call("{}", call_id="call_0", item="fc_0")
    data += added({**first, "arguments": ""}, 2) + arguments("{}", index=2) + done(first, 2)
    got = streamed(data + completed({**first, "x": 1}))
    assert [item["type"] for item in got.response["output"]] == ["message", "function_call", "function_call"]  # fmt: skip
    assert [item.get("x") for item in got.response["output"]] == [None, None, 1]
    assert [item["call_id"] for item in got.response["output"][1:]] == ["call_1", "call_0"]


def test_a_call_is_written_with_what_it_said() -> None:
    """Its own events; an end that was not said is made up for."""
    got = streamed(spoken_call('{"a"', ":1}"))
    assert got.kinds[2:] == [
        "output_item.added",
        "function_call_arguments.delta",
        "function_call_arguments.done",
        "output_item.done",
        "completed",
    ]
    assert got.response["output"] == [call('{"a":1}')]
    mended = streamed(created() + added(call()) + arguments("{}") + completed())
    assert mended.said("function_call_arguments") == "{}"
    lie = done(call("{}")) + completed(call('{"b":2}'))
    lying = streamed(created() + added(call()) + arguments("{}") + lie)
    assert lying.response["output"][0]["arguments"] == "{}"


def test_a_part_of_another_type_passes_as_it_is() -> None:
    """With its item, and among the parts that hold text; a text of the object that was not released does not."""
    place = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
    sound = {"type": "output_audio", "data": "AAAA"}
    said = [sound, {"type": "output_text", "text": "Hi", "annotations": []}]
    data = created() + added(message()) + event("content_part.added", **place, part=sound)
    data += event("content_part.done", **place, part=sound) + text("Hi", part=1)
    data += done(message(None, content=said))
    got = streamed(data + completed(message(None, content=[*said, {"type": "output_text", "text": ""}])))  # fmt: skip
    assert [e["part"] for e in got.events if e.get("part", {}).get("type") == "output_audio"] == [sound] * 2  # fmt: skip
    assert got.response["output"][0]["content"] == [*said, {"type": "output_text", "text": ""}]


def test_a_note_on_what_is_no_message_is_only_numbered() -> None:
    """It opens nothing."""
    noted = event("output_text.annotation.added", output_index=0, annotation={})
    got = streamed(created() + noted + completed())
    assert got.kinds == ["created", "in_progress", "output_text.annotation.added", "completed"]


def test_odd_events_do_no_harm() -> None:
    """A part before its item, an end of what never was, half a character in what nobody knows."""
    place = {"output_index": 0, "content_index": 0}
    part = {"type": "output_text", "text": "", "annotations": []}
    data = (
        created() + event("content_part.added", **place, part=part) + added(message(phase="final"))
    )
    data += text("Hi") + event("output_text.done", output_index=4, text="")
    data += event("new.thing", x="\ud83d") + completed()
    got = streamed(data)
    assert got.text == "Hi"
    assert (got.items[0]["id"], got.items[0]["phase"]) == ("msg_1", "final")
    assert [e["x"] for e in got.events if "x" in e] == ["\ufffd"]


def test_a_picture_passes_as_it_is() -> None:
    """Whatever is in it."""
    picture = {
        "id": "ig_1",
        "type": "image_generation_call",
        "status": "completed",
        "result": "AAAA",
    }
    data = created() + added({**picture, "status": "in_progress", "result": None}) + done(picture)
    got = streamed(data + completed(picture))
    assert got.response["output"] == [picture]
    assert got.items[0]["result"] is None
    only = run([completed(picture)], endpoint=RESPONSES)
    assert only.failure is None
    assert read_events(only.body).response["output"] == [picture]


# --- how an answer ends --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reason", "members", "details"),
    [
        ("length", {}, {"reason": "max_output_tokens"}),
        ("content_filter", {}, {"reason": "content_filter"}),
        ("length", {"incomplete_details": {"reason": "steered"}}, {"reason": "steered"}),
    ],
)
def test_an_incomplete_answer_says_so(reason: str, members: Any, details: Any) -> None:
    """Whatever its event was called; an item whose end nobody said is incomplete as well."""
    data = created() + text("Hi") + event("completed", response=response("incomplete", **members))
    got = streamed(data, Facts((FinishFact(0, reason),), b'{"output_tokens":1}'))
    assert got.kinds[-1] == "incomplete"
    assert (got.response["status"], got.response["incomplete_details"]) == ("incomplete", details)
    assert got.response["output"][0]["status"] == "incomplete"
    assert got.response["usage"] == {"output_tokens": 1, **DETAILS}


def test_an_answer_with_nothing_released_has_a_beginning_and_an_end() -> None:
    """As an answer that ended with `length` may have."""
    assert streamed(b"").kinds == ["created", "in_progress", "completed"]
    framing = sse()
    late = framing.success(Facts())
    assert read_events(late).response["status"] == "completed"


def test_usage_keeps_its_bytes_where_it_says_the_same() -> None:
    """Else it is what the whole answer has cost."""
    data = answer("Hi").replace(b'"input_tokens":3', b'"input_tokens": 3')
    body = run([data], endpoint=RESPONSES).body
    assert b'"usage":{"input_tokens": 3,' in body
    assert streamed(data, Facts(STOP.finishes, b'{"x":1}')).response["usage"] == {"x": 1, **DETAILS}
    assert streamed(data).response["usage"] == {**USAGE, **DETAILS}


def test_a_rate_limit_is_called_one() -> None:
    """The code is one of those that clients know."""
    framing = sse()
    framing.release(frames_of(created() + text("Hi")))
    said = read_events(sse().error(refusal(429, "rate_limited"))).response["error"]
    assert said["code"] == "rate_limit_exceeded"
    assert framing.name == "responses_sse"
    assert framing.length(b"x") == ()


def test_an_object_has_a_length_and_no_error_of_its_own() -> None:
    """An error before its end is a response with its own status."""
    framing = ResponsesJson(start(stream=False, endpoint=RESPONSES))
    assert framing.release(frames_of(answer("Hi"))) == b""
    assert framing.length(b"12345") == ((b"content-length", b"5"),)
    with pytest.raises(AssertionError):
        framing.error(CUT)


def test_a_body_becomes_events_for_a_caller_that_streams() -> None:
    """The proper sequence; the response at its end is the body's own."""
    body = response("completed", thought("Hm."), message("Hi"), call("{}"))
    passed = run([json.dumps(body).encode()], endpoint=RESPONSES, body=True)
    got = read_events(passed.body)
    assert (got.text, got.said("reasoning_summary_text")) == ("Hi", "Hm.")
    assert got.response["output"] == body["output"]
    assert got.kinds[:2] == ["created", "in_progress"]


def test_a_late_beginning_says_nothing() -> None:
    """Another attempt's, or one that comes twice."""
    data = created() + created(x=1) + text("Hi") + created(x=2) + completed()
    got = streamed(data)
    assert got.kinds.count("created") == 1
    assert not any("x" in each["response"] for each in got.events if "response" in each)


# --- text that mending calls something else ------------------------------------------------------


def test_a_thought_in_tags_is_an_item_before_its_message() -> None:
    """Made by us, and over when the message begins."""
    data = answer("<think>Hm.", " So.</think>", "Yes")
    passed = run([data], endpoint=RESPONSES, think_tags=True)
    got = read_events(passed.body)
    assert (got.text, got.said("reasoning_text")) == ("Yes", "Hm. So.")
    assert [item["type"] for item in got.items] == ["reasoning", "message"]
    assert texts_of(got.response) == {"reasoning_text": "Hm. So.", "output_text": "Yes"}
    assert whole(data, think_tags=True) == got.response


def test_json_among_the_thoughts_becomes_the_message() -> None:
    """And an empty message beside it goes; a fence around an answer does, too."""
    asked = FilterContext(1, {"type": "json_object"}, "repair")
    raw = {
        "type": "reasoning",
        "id": "rs_1",
        "content": [{"type": "reasoning_text", "text": '{"a":1}'}],
    }
    data = created() + completed(raw, message(""))
    got = read_events(run([data], endpoint=RESPONSES, context=asked).body)
    assert got.text == '{"a":1}'
    assert [item["type"] for item in got.items if item["type"] == "message"] == ["message"]
    assert texts_of(got.response) == {"output_text": '{"a":1}'}
    fenced = answer("```json\n", '{"a":1}', "\n```")
    unwrapped = read_events(run([fenced], endpoint=RESPONSES, context=asked).body)
    assert (unwrapped.text, texts_of(unwrapped.response)) == ('{"a":1}', {"output_text": '{"a":1}'})


def test_tags_in_an_answer_that_goes_on_are_left_alone() -> None:
    """The step knows the text that stands before."""
    before = ResponsesMender()
    framing = sse()
    body = framing.release(frames_of(created() + text("See <think>"), before))
    tags = ThinkTags("reasoning_content", before="See <think>")
    after = ResponsesMender(before=before, tags=tags)
    body += framing.release(frames_of(created() + text("</think> here") + completed(), after))
    body += framing.release(after.finish(Complete())[0])
    got = read_events(body + framing.success(STOP))
    assert got.text == "See <think></think> here"


# --- what it keeps -------------------------------------------------------------------------------


def test_what_a_stream_keeps_is_known() -> None:
    """Its text, and what was said at its ends."""
    delta, over = frames_of(text("Hello")), frames_of(done(message("Hello")))
    assert [kept_of(frame) for frame in delta] == [20]
    assert kept_of(over[-1]) == len(over[-1].data)
    assert RESPONSES.kept_bytes(delta + over) == sum(map(kept_of, delta + over))
