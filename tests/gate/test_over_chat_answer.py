"""A chat answer as a Responses answer: what a strict client makes of the events, and of the object."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gate.config import HoldConfig
from gate.endpoints import OVER_CHAT, RESPONSES
from gate.events import Complete, Frame, Identity, Mend, Place, TextDelta
from gate.failure import FailureKind
from gate.mending import ChatMender
from gate.openai import decode_object
from gate.over_chat_answer import OverChatMender
from gate.responses_mending import ResponsesMender
from tests.assembly_responses import Answer, read_events, texts_of
from tests.pipeline import run

USAGE = {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}
DETAILS: dict[str, Any] = {
    "input_tokens_details": {"cached_tokens": 0},
    "output_tokens_details": {"reasoning_tokens": 0},
}
DONE = b"data: [DONE]\n\n"


def chunk(delta: Any = None, finish: str | None = None, **members: Any) -> bytes:
    """One event of a provider's."""
    beside = {name: members.pop(name) for name in ("logprobs", "index") if name in members}
    choices: Any = [{"index": 0, "delta": delta or {}, "finish_reason": finish, **beside}]
    value: dict[str, Any] = {
        "id": "chatcmpl-up",
        "object": "chat.completion.chunk",
        "created": 5,
        "model": "big",
    }
    return f"data: {json.dumps({**value, 'choices': choices, **members})}\n\n".encode()


def text(said: str, **members: Any) -> bytes:
    return chunk({"content": said}, **members)


def call(index: int, arguments: str = "", **members: Any) -> bytes:
    """A piece of a call."""
    function = {"arguments": arguments, **({"name": "sail"} if members else {})}
    return chunk({"tool_calls": [{"index": index, "function": function, **members}]})


def ended(reason: str = "stop", usage: Any = USAGE) -> bytes:
    """The end of a stream."""
    told = [chunk({}, reason)]
    if usage is not None:
        told.append(chunk(choices=[], usage=usage))
    return b"".join([*told, DONE])


def streamed(*pieces: bytes, **more: Any) -> Answer:
    """What a caller makes of it."""
    passed = run(pieces, endpoint=OVER_CHAT, **more)
    assert passed.failure is None, passed.failure
    seen = read_events(passed.body)
    assert seen.response["model"] == "alias"
    return seen


def whole(data: bytes | Any, *, body: bool = False) -> dict[str, Any]:
    """The one object."""
    raw = data if isinstance(data, bytes) else json.dumps(data).encode()
    passed = run([raw], stream=False, body=body, endpoint=OVER_CHAT)
    assert passed.failure is None, passed.failure
    value: dict[str, Any] = json.loads(passed.body)
    return value


def test_a_text_is_a_message() -> None:
    """With one item, one part, a delta for each of the provider's, and usage by the names of Responses."""
    role = chunk({"role": "assistant", "content": ""})
    seen = streamed(role, text("Hi"), text(" there"), ended())
    assert seen.kinds == [
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
    assert (seen.text, texts_of(seen.response)) == ("Hi there", {"output_text": "Hi there"})
    assert sum(each["type"] == "response.output_text.delta" for each in seen.events) == 2
    assert seen.response["usage"] == {"input_tokens": 3, "output_tokens": 4, "total_tokens": 7, **DETAILS}  # fmt: skip
    [item] = seen.response["output"]
    assert (item["type"], item["role"], item["status"]) == ("message", "assistant", "completed")
    assert item["content"][0]["annotations"] == []


def test_the_service_tier_is_what_the_provider_says() -> None:
    """In the first object and in the last; where it comes late, in the last alone, and where nobody says it the default stands."""
    tier = {"service_tier": "flex"}
    seen = streamed(text("Hi", **tier), text(" there", **tier), ended())
    told = [each["response"]["service_tier"] for each in seen.events if "response" in each]
    assert told == ["flex", "flex", "flex"]
    assert seen.kinds[:3] == ["created", "in_progress", "output_item.added"]
    late = streamed(text("Hi", service_tier=None), text(" there", **tier), ended())
    told = [each["response"]["service_tier"] for each in late.events if "response" in each]
    assert (told, late.text) == (["default", "default", "flex"], "Hi there")
    assert streamed(text("Hi"), ended()).response["service_tier"] == "default"
    message = {"role": "assistant", "content": "Hi"}
    choices = [{"index": 0, "message": message, "finish_reason": "stop"}]
    assert whole({"id": "c", "choices": choices, **tier}, body=True)["service_tier"] == "flex"


def test_log_probabilities_stand_in_every_object_that_has_the_text() -> None:
    """At the end of the text too."""
    told = [{"token": "Hi", "logprob": -0.5}]
    seen = streamed(text("Hi", logprobs={"content": told}), ended())
    (done,) = [each for each in seen.events if each["type"] == "response.output_text.done"]
    assert done["logprobs"] == told
    (part,) = [each["part"] for each in seen.events if each["type"] == "response.content_part.done"]
    assert part["logprobs"] == told


def test_what_has_no_event_is_left_out() -> None:
    """Audio, pictures and sources beside the text; an answer of nothing else is none."""
    sound = {"id": "a", "data": "AA", "transcript": "Hi"}
    delta = {"content": "Hi", "audio": sound, "images": [1]}
    seen = streamed(chunk(delta, citations=["u"]), ended())
    assert texts_of(seen.response) == {"output_text": "Hi"}
    alone = run([chunk({"audio": sound}), ended()], endpoint=OVER_CHAT)
    assert alone.failure is not None
    assert alone.failure.kind is FailureKind.EMPTY


def test_details_of_usage_are_kept() -> None:
    """What is missing or odd is nothing; a total that nobody says is the sum."""
    told = {
        "prompt_tokens": 3,
        "completion_tokens": 4,
        "prompt_tokens_details": {"cached_tokens": 2},
        "completion_tokens_details": {"reasoning_tokens": 1},
    }
    usage = streamed(text("Hi"), ended(usage=told)).response["usage"]
    assert usage["total_tokens"] == 7
    assert usage["input_tokens_details"] == {"cached_tokens": 2}
    assert usage["output_tokens_details"] == {"reasoning_tokens": 1}
    odd = {**USAGE, "prompt_tokens": -1, "completion_tokens_details": None}
    assert streamed(text("Hi"), ended(usage=odd)).response["usage"]["input_tokens"] == 0
    assert streamed(text("Hi"), ended(usage=None)).response["usage"] is None


def test_thoughts_come_first() -> None:
    """In an item of their own, also where a body says both at once."""
    seen = streamed(chunk({"reasoning_content": "Hm"}), chunk({"reasoning": "m."}), text("Hi"), ended())  # fmt: skip
    assert [item["type"] for item in seen.response["output"]] == ["reasoning", "message"]
    assert (seen.said("reasoning_text"), seen.text) == ("Hmm.", "Hi")
    message = {"role": "assistant", "content": "Hi", "reasoning_content": "Hm."}
    body = {"id": "chatcmpl-up", "created": 5, "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}  # fmt: skip
    told = whole(body, body=True)
    assert [item["type"] for item in told["output"]] == ["reasoning", "message"]
    assert told["output"][0]["content"] == [{"type": "reasoning_text", "text": "Hm."}]
    assert (told["object"], told["status"], told["created_at"]) == ("response", "completed", 7)


def test_each_change_begins_an_item() -> None:
    """What was open before it ends."""
    thought = {"reasoning_content": "Hm."}
    seen = streamed(text("a"), chunk(thought), text("b"), chunk({"refusal": "No."}), ended())
    assert [item["type"] for item in seen.response["output"]] == ["message", "reasoning", "message"]
    parts = seen.response["output"][2]["content"]
    assert [part["type"] for part in parts] == ["output_text", "refusal"]
    assert texts_of(seen.response) == {"output_text": "ab", "reasoning_text": "Hm.", "refusal": "No."}  # fmt: skip


def test_think_tags_are_taken_as_in_chat() -> None:
    """The route's switch is the same."""
    seen = streamed(text("<think>Hm.</think>Hi"), ended(), think_tags=True)
    assert texts_of(seen.response) == {"reasoning_text": "Hm.", "output_text": "Hi"}


def test_calls_are_items() -> None:
    """Each when it is whole, its pieces as they came."""
    seen = streamed(
        text("I will."),
        call(0, id="c1", type="function"),
        call(0, '{"a"'),
        call(1, '{"b":2}', id="c2", type="function"),
        call(0, ":1}"),
        ended("tool_calls"),
    )
    first, second = seen.response["output"][1:]
    assert (first["call_id"], first["name"], first["arguments"]) == ("c1", "sail", '{"a":1}')
    assert (second["call_id"], second["arguments"]) == ("c2", '{"b":2}')
    assert first["status"] == second["status"] == "completed"
    deltas = [each["delta"] for each in seen.events if each["type"] == "response.function_call_arguments.delta"]  # fmt: skip
    assert sorted(deltas) == sorted(['{"a"', ":1}", '{"b":2}'])
    assert seen.response["status"] == "completed"


def test_odd_calls_are_mended_as_in_chat() -> None:
    """No index, no id, arguments as an object, and a legacy call."""
    seen = streamed(
        chunk({"tool_calls": [{"function": {"name": "sail", "arguments": {"a": 1}}}]}),
        ended("stop"),
    )
    [item] = seen.response["output"]
    assert (item["name"], json.loads(item["arguments"])) == ("sail", {"a": 1})
    assert item["call_id"]
    legacy = {"function_call": {"name": "sail", "arguments": "{}"}}
    [item] = streamed(chunk(legacy), ended("function_call")).response["output"]
    assert (item["name"], item["arguments"], bool(item["call_id"])) == ("sail", "{}", True)


def test_a_custom_call_has_an_input() -> None:
    """Which is text."""
    entry = {"index": 0, "id": "c1", "type": "custom", "custom": {"name": "run", "input": "ls"}}
    seen = streamed(chunk({"tool_calls": [entry]}), ended("tool_calls"))
    [item] = seen.response["output"]
    assert (item["type"], item["name"], item["input"]) == ("custom_tool_call", "run", "ls")


def test_a_call_that_was_cut_is_left_out() -> None:
    """At the end of the tokens; what came before it stays."""
    seen = streamed(text("Hi"), call(0, '{"a"', id="c1", type="function"), ended("length"))
    assert [item["type"] for item in seen.response["output"]] == ["message"]
    assert seen.response["status"] == "incomplete"
    whole_one = call(1, "{}", id="c2", type="function")
    seen = streamed(call(0, '{"a"', id="c1", type="function"), whole_one, ended("length"))
    assert [item["call_id"] for item in seen.response["output"]] == ["c2"]


@pytest.mark.parametrize(
    ("reason", "status", "why"),
    [
        ("stop", "completed", None),
        ("eos", "completed", None),
        ("length", "incomplete", "max_output_tokens"),
        ("content_filter", "incomplete", "content_filter"),
        ("odd_word", "completed", None),
    ],
)
def test_a_finish_is_a_status(reason: str, status: str, why: str | None) -> None:
    """The last item's is the same."""
    seen = streamed(text("Hi"), ended(reason))
    assert (seen.response["status"], seen.kinds[-1]) == (status, status)
    assert seen.response["incomplete_details"] == (None if why is None else {"reason": why})
    assert seen.response["output"][0]["status"] == status


def test_an_answer_of_nothing_may_be_incomplete() -> None:
    """Its tokens went on what nobody sees."""
    seen = streamed(ended("length"))
    assert (seen.response["status"], seen.response["output"]) == ("incomplete", [])


LOGPROB = {"token": "Hi", "logprob": -0.5, "bytes": [72, 105], "top_logprobs": []}


@pytest.mark.parametrize("reason", ["stop", "length"])
def test_log_probabilities_are_with_their_text(reason: str) -> None:
    """In the delta, and in every object that holds the text."""
    logprobs = {"content": [LOGPROB], "refusal": None}
    pieces = [
        text("Hi", logprobs=logprobs),
        text("!", logprobs=None),
        chunk({"annotations": []}),
        text("Hi", logprobs=logprobs),
        ended(reason),
    ]
    seen = streamed(*pieces)
    deltas = [each["logprobs"] for each in seen.events if each["type"].endswith("text.delta")]
    assert deltas == [[LOGPROB], [], [LOGPROB]]
    [item] = seen.response["output"]
    assert item["content"][0]["logprobs"] == [LOGPROB, LOGPROB]
    assert item["status"] == ("completed" if reason == "stop" else "incomplete")
    [part] = [each["part"] for each in seen.events if each["type"] == "response.content_part.done"]
    assert part["logprobs"] == [LOGPROB, LOGPROB]
    told = whole(b"".join(pieces))["output"][0]["content"][0]
    assert (told["text"], told["logprobs"]) == ("Hi!Hi", [LOGPROB, LOGPROB])


def test_annotations_are_events() -> None:
    """Without the member that chat wraps them in."""
    inner = {"url": "http://a", "title": "A", "start_index": 0, "end_index": 2}
    flat = {"type": "file_citation", "file_id": "f", "index": 1}
    wrapped = {"type": "url_citation", "url_citation": inner}
    seen = streamed(text("Hi"), chunk({"content": "!", "annotations": [wrapped, flat]}), ended())
    told = [{"type": "url_citation", **inner}, flat]
    assert [each["annotation"] for each in seen.events if "annotation" in each] == told
    assert [each["annotation_index"] for each in seen.events if "annotation" in each] == [0, 1]
    assert seen.response["output"][0]["content"][0]["annotations"] == told
    odd = chunk({"content": "!", "annotations": [{"type": 5}]}, logprobs={"content": [LOGPROB]})
    part = streamed(odd, ended()).response["output"][0]["content"][0]
    assert (part["annotations"], part["logprobs"]) == ([{"type": 5}], [LOGPROB])


def test_a_choice_that_nobody_asked_for_is_not_seen() -> None:
    """Nor what has no place in a response."""
    other = chunk({"content": "x"}, index=1)
    audio = chunk({"audio": {"data": "AA"}})
    assert streamed(other, audio, text("Hi"), ended()).text == "Hi"


def test_half_a_character_waits_for_the_other() -> None:
    """One that stays alone is told as such."""
    pieces = [chunk({"content": "x"}).replace(b'"x"', b'"a\\ud83d"'), chunk({"content": "x"}).replace(b'"x"', b'"\\ude00b"')]  # fmt: skip
    assert streamed(*pieces, ended()).text == "a\U0001f600b"
    assert streamed(pieces[0], ended()).text == "a\ufffd"


def test_the_name_of_a_response_is_made_of_its_provider() -> None:
    """And is known before its first release."""
    made = mender()
    assert made.identity is None
    made.mend([frame("Hi", Identity("chatcmpl-7", 9))])
    assert made.identity == Identity("resp_7", 9)


def mender(before: OverChatMender | None = None) -> OverChatMender:
    """One attempt's."""
    made = OVER_CHAT.mender(1, "reasoning_content", None, tags=None, before=before)
    assert isinstance(made, OverChatMender)
    return made


def frame(said: str, *events: Any, mend: int = 0) -> Frame:
    """A frame of a provider's."""
    value = {"choices": [{"index": 0, "delta": {"content": said}, "finish_reason": None}]}
    known, flags = decode_object(value)
    return Frame(json.dumps(value).encode(), (*known, *events), 9, flags | mend)


def test_what_is_held_is_told() -> None:
    """By both of its parts; what was dropped is not held any more."""
    made = mender()
    entry = {"index": 0, "id": "c", "type": "function", "function": {"name": "f", "arguments": "{"}}
    value = {"choices": [{"index": 0, "delta": {"tool_calls": [entry]}}]}
    events, flags = decode_object(value)
    assert made.mend([Frame(json.dumps(value).encode(), tuple(events), 90, flags)]) == []
    assert made.holding
    assert (made.held_bytes, made.ledger_bytes > 90) == (90, True)
    made.drop()
    assert (made.held_bytes, made.ledger_bytes) == (0, 0)


def test_log_probabilities_are_in_the_ledger() -> None:
    """They wait for the objects at the end."""
    made = mender()
    value = {"choices": [{"index": 0, "delta": {"content": "Hi"}, "logprobs": {"content": [LOGPROB]}}]}  # fmt: skip
    events, flags = decode_object(value)
    before = made.ledger_bytes
    made.mend([Frame(json.dumps(value).encode(), tuple(events), 9, flags)])
    assert made.ledger_bytes - before > 1_000


def test_usage_is_known_before_the_end() -> None:
    """By the provider's names; then by those of Responses."""
    made = mender()
    value = {"choices": [], "usage": USAGE}
    events, flags = decode_object(value)
    made.mend([frame("Hi"), Frame(json.dumps(value).encode(), tuple(events), 9, flags)])
    assert json.loads(made.usage) == USAGE
    frames, facts = made.finish(Complete())
    assert json.loads(facts.usage)["output_tokens"] == 4
    assert json.loads(made.usage)["output_tokens"] == 4
    assert frames[-1].events == (Place("response.completed"),)


def test_a_frame_that_lacks_half_a_character_says_so() -> None:
    """Nobody may go on behind it."""
    made = mender()
    [first] = made.mend([frame("a\ud83d")])
    assert first.mend == Mend.TEXT.value
    assert isinstance(first.events[1], TextDelta)
    assert first.events[1].text == "a"


def test_an_attempt_goes_on_in_the_message_of_another() -> None:
    """Whichever kind of provider had it."""
    first = mender()
    [begun] = first.mend([frame("Hi")])
    for second in (mender(first).responses, mender_of_responses(first)):
        assert second.going_on().text_at == first.responses.going_on().text_at
    [went_on] = mender(first).mend([frame(" there")])
    assert went_on.events[0] == begun.events[0]


def mender_of_responses(before: OverChatMender) -> ResponsesMender:
    """That of an attempt at a provider that has responses."""
    made = RESPONSES.mender(1, "reasoning", None, tags=None, before=before)
    assert isinstance(made, ResponsesMender)
    return made


def test_holds_are_those_of_every_answer() -> None:
    """What is held until the end is the same in the end."""
    pieces = [chunk({"reasoning_content": "Hm."}), text("Hi"), ended()]
    for mode in ("live", "window", "buffered"):
        seen = streamed(*pieces, hold=HoldConfig(mode=mode, tail_chars=5 * (mode == "window")))
        assert texts_of(seen.response) == {"reasoning_text": "Hm.", "output_text": "Hi"}


def test_a_chat_mender_is_what_it_is_made_of() -> None:
    """Without a role of ours, which nobody would see."""
    made = OverChatMender(ChatMender(roles=frozenset({0})), ResponsesMender())
    [only] = made.mend([frame("Hi")])
    assert only.data == b'{"type":"response.output_text.delta","delta":"Hi"}'
