"""A model name becomes a behaviour, and a behaviour a list of steps."""

from __future__ import annotations

import gzip
import json
import zlib
from itertools import islice
from typing import Any

import pytest

from ops.provider_answers import (
    DELTAS_MAX,
    Behaviour,
    Fault,
    answer_steps,
    behaviour_of,
)
from ops.provider_chat import DONE, Chat
from ops.provider_script import Ending, Head, Pace, Sleep, Step, Write

AT_ONCE = Pace(chunk_ms=0, slow_ms=0)
STREAMED = Chat(model="m", serial=1, prompt="When is high water?", stream=True)
WHOLE = Chat(model="m", serial=1, prompt="When is high water?")


def steps_of(model: str, chat: Chat = STREAMED, pace: Pace = AT_ONCE) -> list[Step]:
    """All steps of the answer that the model name asks for."""
    return list(answer_steps(chat, behaviour_of(model), pace=pace))


def head_of(steps: list[Step]) -> Head:
    """The head of an answer."""
    assert isinstance(steps[0], Head)
    return steps[0]


def bytes_of(steps: list[Step]) -> bytes:
    """What the answer writes."""
    return b"".join(step.data for step in steps if isinstance(step, Write))


def events_of(steps: list[Step]) -> list[Any]:
    """The JSON of the events, without `[DONE]`."""
    blocks = bytes_of(steps).split(b"\n\n")
    return [json.loads(block[6:]) for block in blocks if block not in {b"", DONE.strip()}]


def text_of(events: list[Any], choice: int = 0) -> str:
    """The content of one choice."""
    parts = (each for event in events for each in event["choices"] if each["index"] == choice)
    return "".join(each["delta"].get("content", "") for each in parts)


def finishes_of(events: list[Any]) -> list[str]:
    """The finish reasons, in order."""
    found = (each["finish_reason"] for event in events for each in event["choices"])
    return [each for each in found if each]


@pytest.mark.parametrize(
    ("model", "behaviour"),
    [
        ("cut", Behaviour(Fault.CUT)),
        ("cut:7", Behaviour(Fault.CUT, 7)),
        ("cut@2", Behaviour(Fault.CUT, None, 2)),
        ("cut:0@1", Behaviour(Fault.CUT, 0, 1)),
        ("429:30", Behaviour(Fault.RATE_LIMITED, 30)),
        ("Qwen/Qwen3-8B", Behaviour()),
        ("llama3:8b", Behaviour()),
        ("cut:x", Behaviour()),
        ("", Behaviour()),
    ],
)
def test_a_model_name_asks_for_a_behaviour(model: str, behaviour: Behaviour) -> None:
    """A name that asks for nothing is that of a healthy model."""
    assert behaviour_of(model) == behaviour


def test_a_behaviour_can_last_for_the_first_requests_only() -> None:
    """Afterwards the model is healthy; without a number it never is."""
    cut_twice = behaviour_of("cut:1@2")
    assert [cut_twice.at(earlier).fault for earlier in range(4)] == [
        Fault.CUT,
        Fault.CUT,
        Fault.HEALTHY,
        Fault.HEALTHY,
    ]
    assert behaviour_of("cut").at(1_000).fault is Fault.CUT


def test_a_healthy_stream_has_every_part_in_order() -> None:
    """Role, words, finish, `[DONE]`, all under one identity; no usage that nobody asked for."""
    steps = steps_of("healthy")
    events = events_of(steps)
    assert events[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert text_of(events) == STREAMED.text()
    assert events[-1]["choices"] == [{"index": 0, "delta": {}, "finish_reason": "stop"}]
    assert bytes_of(steps).endswith(DONE)
    identities = {(each["id"], each["created"], each["model"]) for each in events}
    assert len(identities) == 1
    assert not any("usage" in each for each in events)


def test_usage_comes_after_the_last_finish() -> None:
    """Its chunk has no choices, and counts words."""
    chat = Chat(model="m", serial=1, prompt_tokens=4, stream=True, include_usage=True)
    last = events_of(steps_of("healthy", chat))[-1]
    words = len(chat.answer(0).words)
    assert last["choices"] == []
    assert last["usage"] == {
        "prompt_tokens": 4,
        "completion_tokens": words,
        "total_tokens": 4 + words,
    }


def test_choices_are_interleaved_and_finish_each() -> None:
    """Each choice says something of its own, of its own length."""
    chat = Chat(model="m", serial=1, stream=True, n=3)
    events = events_of(steps_of("healthy", chat))
    assert [text_of(events, choice) for choice in range(3)] == [
        chat.text(each) for each in range(3)
    ]
    assert len({chat.text(choice) for choice in range(3)}) == 3
    assert [each["choices"][0]["index"] for each in events[:6]] == [0, 1, 2, 0, 1, 2]
    assert finishes_of(events) == ["stop"] * 3


@pytest.mark.parametrize(
    ("model", "ending"),
    [
        ("stall:2", Ending.STALL),
        ("cut:2", Ending.CUT),
        ("reset:2", Ending.RESET),
        ("clean-cut:2", Ending.CLOSE),
    ],
)
def test_a_break_comes_after_so_many_words(model: str, ending: Ending) -> None:
    """Nothing is written after it."""
    steps = steps_of(model)
    assert steps[-1] is ending
    assert text_of(events_of(steps)) == "You asked:"


def test_a_break_comes_even_if_the_answer_is_shorter() -> None:
    """A cut after more words than there are still hides the finish."""
    steps = steps_of("cut:9999")
    assert steps[-1] is Ending.CUT
    assert text_of(events_of(steps)) == STREAMED.text()
    assert finishes_of(events_of(steps)) == []


def test_silence_after_the_role() -> None:
    """The role is no content."""
    steps = steps_of("role-then-silence")
    assert (len(events_of(steps)), steps[-1]) == (1, Ending.STALL)


@pytest.mark.parametrize("model", ["malformed:2", "malformed:9999"])
def test_one_event_is_malformed(model: str) -> None:
    """The others, the finish and `[DONE]` are as they should be."""
    blocks = bytes_of(steps_of(model)).split(b"\n\n")
    broken = [block for block in blocks if block.startswith(b"data: {") and block[-1:] != b"}"]
    assert len(broken) == 1
    assert blocks[-2] == b"data: [DONE]"


@pytest.mark.parametrize(("model", "before"), [("error-in-200", 0), ("late-error:2", 3)])
def test_an_error_can_come_in_the_stream(model: str, before: int) -> None:
    """It has the envelope, and `[DONE]` follows, as with vLLM."""
    steps = steps_of(model)
    events = events_of(steps)
    assert len(events) == before + 1
    assert events[-1]["error"]["code"] == "engine_failed"
    assert bytes_of(steps).endswith(DONE)


@pytest.mark.parametrize(
    ("model", "status", "code"),
    [
        ("400", 400, "invalid_value"),
        ("401", 401, "invalid_api_key"),
        ("404", 404, "model_not_found"),
        ("429", 429, "rate_limit_exceeded"),
        ("500", 500, "engine_failed"),
        ("503", 503, "overloaded"),
        ("context-length", 400, "context_length_exceeded"),
    ],
)
def test_an_error_before_the_stream_has_a_status(model: str, status: int, code: str) -> None:
    """Streamed or not, the answer is the same JSON envelope."""
    steps = steps_of(model)
    assert steps == steps_of(model, WHOLE)
    assert head_of(steps).status == status
    assert json.loads(bytes_of(steps))["error"]["code"] == code


def test_only_a_rate_limit_says_when_to_come_back() -> None:
    """The number of the model name is that of the seconds."""
    assert head_of(steps_of("429")).value("retry-after") == "1"
    assert head_of(steps_of("429:7")).value("retry-after") == "7"
    assert head_of(steps_of("503:7")).value("retry-after") is None


@pytest.mark.parametrize(
    ("model", "status", "kind", "start"),
    [
        ("html-200", 200, "text/html; charset=utf-8", b"<!doctype html>"),
        ("json-error-200", 200, "application/json", b'{"error":'),
        ("zero-byte", 200, "text/event-stream", b""),
        ("redirect", 307, None, b""),
    ],
)
def test_some_answers_are_no_answers(
    model: str, status: int, kind: str | None, start: bytes
) -> None:
    """A success or a redirect, with a body that is not the one asked for."""
    steps = steps_of(model)
    head = head_of(steps)
    assert (head.status, head.value("content-type")) == (status, kind)
    assert bytes_of(steps).startswith(start)
    assert bool(bytes_of(steps)) == bool(start)


def test_no_answer_has_no_head() -> None:
    """The connection is accepted, and that is all."""
    assert steps_of("no-answer") == [Ending.STALL]


@pytest.mark.parametrize(
    ("model", "key", "text", "finish"),
    [
        ("empty", "content", "", "stop"),
        ("length:2", "content", "You asked:", "length"),
        ("content-filter:2", "content", "You asked:", "content_filter"),
        ("refusal", "refusal", "I will not answer that.", "stop"),
        ("reasoning", "content", STREAMED.text(), "stop"),
    ],
)
def test_what_is_said_is_the_same_streamed_or_not(
    model: str, key: str, text: str, finish: str
) -> None:
    """Faults of the content do not depend on the form of the answer."""
    events = events_of(steps_of(model))
    deltas = [each["delta"] for event in events for each in event["choices"]]
    assert "".join(delta.get(key) or "" for delta in deltas) == text
    assert finishes_of(events) == [finish]
    choice = json.loads(bytes_of(steps_of(model, WHOLE)))["choices"][0]
    assert (choice["message"][key], choice["finish_reason"]) == (text, finish)


def test_reasoning_comes_before_the_answer() -> None:
    """Under the name that most providers use."""
    first = events_of(steps_of("reasoning"))[1]["choices"][0]["delta"]
    assert first == {"reasoning_content": "First"}


def test_a_tool_is_called() -> None:
    """The finish says so."""
    events = events_of(steps_of("tool-call"))
    assert events[1]["choices"][0]["delta"]["tool_calls"][0]["function"]["name"] == "note_tide"
    assert finishes_of(events) == ["tool_calls"]


def test_a_loop_is_bounded() -> None:
    """By its number, and over all choices by DELTAS_MAX."""
    assert text_of(events_of(steps_of("loop:22"))).split().count("gate") == 2
    many = Chat(model="m", serial=1, stream=True, n=100)
    written = sum(isinstance(step, Write) for step in steps_of("loop:99999", many))
    assert written == DELTAS_MAX + 100 + 100 + 1


def test_the_last_done_can_be_missing() -> None:
    """The finish is there all the same."""
    steps = steps_of("no-done")
    assert DONE not in bytes_of(steps)
    assert finishes_of(events_of(steps)) == ["stop"]


@pytest.mark.parametrize(
    ("model", "silences"),
    [("healthy", [5, 5, 5]), ("slow", [90, 90, 90]), ("slow-first", [90, 5, 5])],
)
def test_the_pace_is_set_by_the_script(model: str, silences: list[int]) -> None:
    """A silence stands before each delta."""
    steps = islice(
        answer_steps(STREAMED, behaviour_of(model), pace=Pace(chunk_ms=5, slow_ms=90)), 8
    )
    assert [step.ms for step in steps if isinstance(step, Sleep)] == silences


def test_the_pace_has_a_default() -> None:
    """Without one, words come as from a real model."""
    steps = islice(answer_steps(STREAMED, Behaviour()), 3)
    assert list(steps)[-1] == Sleep(Pace().chunk_ms)


def test_a_slow_body_is_late_as_a_whole() -> None:
    """There is no first word to wait for."""
    steps = steps_of("slow", WHOLE, Pace(slow_ms=90))
    assert steps[0] == Sleep(90)
    assert steps[1:] == steps_of("healthy", WHOLE)


@pytest.mark.parametrize("chat", [STREAMED, WHOLE], ids=["stream", "body"])
def test_gzip_inflates_to_the_healthy_answer(chat: Chat) -> None:
    """The length of the plain body is not promised."""
    steps = steps_of("gzip", chat)
    assert gzip.decompress(bytes_of(steps)) == bytes_of(steps_of("healthy", chat))
    assert head_of(steps).value("content-encoding") == "gzip"
    assert head_of(steps).value("content-length") is None


def test_each_piece_of_a_compressed_stream_can_be_read_at_once() -> None:
    """A client need not wait for the end to see the first word."""
    inflate = zlib.decompressobj(wbits=31)
    steps = steps_of("gzip", pace=Pace(chunk_ms=1))
    assert Sleep(1) in steps
    pieces = [step.data for step in steps if isinstance(step, Write)]
    assert inflate.decompress(pieces[0]).endswith(b"\n\n")


def test_drip_writes_single_bytes() -> None:
    """They add up to the healthy answer; a pause stands before each if the script says so."""
    steps = steps_of("drip")
    assert {len(step.data) for step in steps if isinstance(step, Write)} == {1}
    assert bytes_of(steps) == bytes_of(steps_of("healthy"))
    slow = steps_of("drip", pace=Pace(chunk_ms=0, drip_ms=3))
    assert slow[1] == Sleep(3)
    assert sum(isinstance(step, Sleep) for step in slow) == len(bytes_of(steps))


@pytest.mark.parametrize("model", ["stall", "cut", "reset", "clean-cut", "malformed"])
def test_a_broken_body_is_half_a_body(model: str) -> None:
    """What breaks a stream breaks JSON in the middle."""
    whole = bytes_of(steps_of("healthy", WHOLE))
    steps = steps_of(model, WHOLE)
    assert bytes_of(steps) == whole[: len(whole) // 2]
    promised = {"clean-cut": None, "malformed": str(len(whole) // 2)}.get(model, str(len(whole)))
    assert head_of(steps).value("content-length") == promised


@pytest.mark.parametrize("model", ["error-in-200", "late-error", "json-error-200"])
def test_an_error_in_a_stream_is_an_error_object_without_one(model: str) -> None:
    """The status stays 200."""
    steps = steps_of(model, WHOLE)
    assert head_of(steps).status == 200
    assert json.loads(bytes_of(steps))["error"]["type"] == "server_error"


def test_a_body_without_bytes_is_json_by_its_type() -> None:
    """A client can only tell by reading."""
    steps = steps_of("zero-byte", WHOLE)
    assert (head_of(steps).value("content-type"), len(steps)) == ("application/json", 1)
