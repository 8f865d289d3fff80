"""Responses payloads become frames; what fails in band is a failure, and only a response's status says how it ended."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gate.events import (
    AudioDelta,
    Complete,
    Finish,
    Frame,
    Identity,
    ReasoningDelta,
    RefusalDelta,
    Slot,
    TextDelta,
    ToolDelta,
    UsageReport,
)
from gate.failure import Failure, FailureKind
from gate.openai import Note
from gate.reader import Step
from gate.responses import ResponsesBodyReader, ResponsesStreamReader, decode_event, finish_of
from gate.sse import SseDecoder
from tests.responding import added, answer, completed, created, event, message, response, text

EMPTY = Failure(FailureKind.EMPTY)
NO_END = Failure(FailureKind.MISSING_TERMINAL)


def decoded(data: bytes) -> Frame | Failure | Note:
    """What one event is."""
    decoder = SseDecoder(event_bytes_max=1 << 20)
    (found,) = decoder.feed(data)
    return decode_event(found)


def events_of(data: bytes) -> tuple[Any, ...]:
    """The events of one payload that is a frame."""
    frame = decoded(data)
    assert isinstance(frame, Frame)
    return frame.events


def streamed(continues: bool = False) -> ResponsesStreamReader:
    """A reader of a stream."""
    return ResponsesStreamReader(event_bytes_max=1 << 16, continues=continues)


def body_of(value: object) -> Step:
    """What a JSON body comes to."""
    reader = ResponsesBodyReader(body_bytes_max=1 << 16)
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    assert reader.feed(data) == Step([], False, None)
    assert reader.pending == len(data)
    step = reader.eof()
    assert reader.complete is isinstance(step.end, Complete)
    return step


# --- one event -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "made"),
    [
        ("output_text.delta", TextDelta(0, "hi")),
        ("refusal.delta", RefusalDelta(0, "hi")),
        ("reasoning_text.delta", ReasoningDelta(0, "hi")),
        ("reasoning_summary_text.delta", ReasoningDelta(0, "hi")),
        ("function_call_arguments.delta", ToolDelta(0, None, None, None, "hi")),
        ("custom_tool_call_input.delta", ToolDelta(0, None, None, None, "hi", custom=True)),
        ("audio.delta", AudioDelta(0)),
        ("audio.transcript.delta", AudioDelta(0, "hi")),
        ("output_audio_transcript.delta", AudioDelta(0, "hi")),
    ],
)
def test_a_delta_says_what_it_brings_and_where_it_belongs(kind: str, made: object) -> None:
    """Whatever of its place its provider leaves out; the payload keeps its bytes."""
    slot, said = events_of(event(kind, item_id="i", output_index=2, content_index=1, delta="hi"))
    assert (slot.kind, slot.index, slot.item, slot.part) == (f"response.{kind}", 2, "i", 1)
    assert said == made
    assert events_of(event(kind, delta="hi", summary_index=3))[0].part == 3
    bare = events_of(event(kind, delta="hi"))[0]
    assert (bare.index, bare.item, bare.part) == (None, None, None)
    assert events_of(event(kind, delta=""))[1:] == ()


def test_the_payload_stays_as_it_came() -> None:
    """But for what can't be written as one line of UTF-8."""
    spaced = b'data: { "type" : "response.output_text.delta", "delta": "\\u00e9", "x": 1.0e0 }\n\n'
    frame = decoded(spaced)
    assert isinstance(frame, Frame)
    assert (frame.data, frame.size, frame.mend) == (spaced[6:-2], len(spaced), 0)
    lines = decoded(b'data: {"type":"response.output_text.delta",\ndata: "delta":"a"}\n\n')
    assert isinstance(lines, Frame)
    assert lines.data == b'{"type":"response.output_text.delta", "delta":"a"}'
    broken = decoded(b'data: {"type":"response.output_text.delta","delta":"a\xff"}\n\n')
    assert isinstance(broken, Frame)
    assert broken.events[1] == TextDelta(0, "a\ufffd")
    assert json.loads(broken.data)["delta"] == "a\ufffd"


def test_half_a_character_is_noted() -> None:
    """Another step joins it with the other half."""
    frame = decoded(b'data: {"type":"response.output_text.delta","delta":"\\ud83d"}\n\n')
    assert isinstance(frame, Frame)
    assert (frame.mend, frame.events[1]) == (2, TextDelta(0, "\ud83d"))


def test_odd_members_say_nothing() -> None:
    """Indexes that are no numbers, a delta that is an object, a type only before the data."""
    slot, *rest = events_of(event("output_text.delta", output_index="1", content_index=-1, item_id=5, delta=None))  # fmt: skip
    assert slot == Slot("response.output_text.delta", progress=True)
    assert rest == []
    piece = events_of(event("function_call_arguments.delta", delta={"a": 1}))[1]
    assert piece == ToolDelta(0, None, None, None, '{"a":1}')
    named = events_of(b'event: response.output_text.delta\ndata: {"delta":"a"}\n\n')
    assert named[1] == TextDelta(0, "a")
    assert events_of(b"data: {}\n\n") == (Slot(""),)


@pytest.mark.parametrize(
    ("data", "kind", "status"),
    [
        (event("error", code="rate_limit_exceeded", message="m", param=None), FailureKind.RATE_LIMITED, 429),
        (event("error", error={"type": "insufficient_quota", "code": "insufficient_quota"}), FailureKind.RATE_LIMITED, 429),
        (b'data: {"error":{"code":"server_error"}}\n\n', FailureKind.UNAVAILABLE, 503),
        (b'event: error\ndata: {"message":"flat"}\n\n', FailureKind.UNAVAILABLE, 502),
        (b'data: {"detail":"gone"}\n\n', FailureKind.UNAVAILABLE, 502),
        (completed(status="failed", error={"code": "server_error"}), FailureKind.UNAVAILABLE, 503),
        (completed(status="failed", error={"code": "invalid_prompt"}), FailureKind.REFUSED, 400),
        (event("completed", response=response("failed")), FailureKind.UNAVAILABLE, 502),
        (event("created", response=response("failed")), FailureKind.UNAVAILABLE, 502),
        (event("cancelled", response={}), FailureKind.UNAVAILABLE, 502),
        (event("failed"), FailureKind.UNAVAILABLE, 502),
        (b"data: {\n\n", FailureKind.MALFORMED, 0),
        (b"data: [1]\n\n", FailureKind.MALFORMED, 0),
        (b'data: {"x":%b}\n\n' % (b"[" * 300 + b"1" + b"]" * 300), FailureKind.MALFORMED, 0),
    ],
)  # fmt: skip
def test_what_fails_in_band_is_a_failure(data: bytes, kind: FailureKind, status: int) -> None:
    """Whatever the event is called: the status of its response decides."""
    failure = decoded(data)
    assert isinstance(failure, Failure)
    assert (failure.kind, failure.status) == (kind, status)


@pytest.mark.parametrize("data", [b": x\n\n", b"data: ping\n\n", b"data:\n\n"])
def test_a_comment_is_one(data: bytes) -> None:
    """Under any spelling."""
    assert decoded(data) is Note.COMMENT


def test_a_response_object_gives_identity_usage_and_an_end() -> None:
    """Usage and end only where the event ends the stream."""
    assert events_of(created().partition(b"\n\n")[0] + b"\n\n")[1:] == (Identity("resp_up", 5),)
    slot, *facts = events_of(completed())
    assert slot.kind == "response.completed"
    assert facts[:2] == [Identity("resp_up", 5), Finish(0, "stop", "completed")]
    assert isinstance(facts[2], UsageReport)
    bare = events_of(event("completed", response={"id": "", "usage": {}}))
    assert bare[1:] == (Finish(0, "stop", "completed"),)


@pytest.mark.parametrize(
    ("kind", "members", "reason"),
    [
        ("response.completed", {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}, "length"),
        ("response.incomplete", {"status": "completed"}, "stop"),
        ("response.incomplete", {"incomplete_details": {"reason": "content_filter"}}, "content_filter"),
        ("response.incomplete", {"incomplete_details": None}, "length"),
        ("response.completed", {}, "stop"),
    ],
)  # fmt: skip
def test_the_status_says_how_an_answer_ended(
    kind: str, members: dict[str, Any], reason: str
) -> None:
    """Not the event's name, unless that is all there is."""
    assert finish_of(members, kind).reason == reason


# --- streams -------------------------------------------------------------------------------------


def test_a_stream_ends_with_its_terminal_event() -> None:
    """At once; what comes behind it is not read."""
    reader = streamed()
    step = reader.feed(answer("Hi", "!") + text("more"))
    assert (step.progress, step.end, reader.complete) == (True, Complete(), True)
    assert b"completed" in step.frames[-1].data
    assert reader.pending == 0


def test_a_stream_that_is_relayed_ends_with_its_bytes() -> None:
    """At `[DONE]`, or when it closes; what comes behind the last event is none of the answer's, and counted."""
    reader = ResponsesStreamReader(event_bytes_max=1 << 16, lingers=True)
    step = reader.feed(answer("Hi"))
    assert (step.end, reader.complete, reader.ignored) == (None, True, 0)
    failed = event("failed", response=response("failed"))
    step = reader.feed(text("more") + b": comment\n\n" + failed + completed() + b"data: <x>\n\n")
    assert (step, reader.ignored) == (Step([], False, None), 4)
    assert reader.feed(b"data: [DONE]\n\n" + text("more")) == Step([], False, Complete())
    reader = ResponsesStreamReader(event_bytes_max=1 << 16, lingers=True)
    assert reader.feed(completed()).end is None
    assert reader.eof() == Step([], False, Complete())
    reader = ResponsesStreamReader(event_bytes_max=1 << 16, lingers=True)
    assert reader.feed(text("a")).end is None
    assert reader.eof().end == NO_END


@pytest.mark.parametrize(
    ("data", "continues", "end"),
    [
        (b"", False, EMPTY),
        (created(), False, EMPTY),
        (created(), True, NO_END),
        (created() + added(message()), False, NO_END),
        (created() + text("a"), False, NO_END),
        (created() + text("a") + b"data: [DONE]\n\n", False, NO_END),
        (created() + text("a") + b"data: DONE\n\n", False, NO_END),
        (created() + event("failed", response=response("failed")), False, Failure(FailureKind.UNAVAILABLE, 502)),
    ],
)  # fmt: skip
def test_without_a_terminal_event_an_answer_is_none(
    data: bytes, continues: bool, end: Failure
) -> None:
    """However its connection closed."""
    reader = streamed(continues)
    step = reader.feed(data)
    assert (step.end or reader.eof().end) == end
    assert not reader.complete


def test_an_event_that_is_too_large_is_malformed() -> None:
    """Unless the answer is complete before it."""
    reader = ResponsesStreamReader(event_bytes_max=2_048)
    assert reader.feed(created() + b"data: " + b"x" * 3_000).end == Failure(FailureKind.MALFORMED)
    reader = ResponsesStreamReader(event_bytes_max=2_048)
    assert reader.feed(completed() + b"data: " + b"x" * 3_000).end == Complete()


def test_progress_is_text_and_work_each_once() -> None:
    """A server that says the same again and again may be dead."""
    reader = streamed()
    assert not reader.feed(created()).progress
    assert not reader.feed(event("queued", response=response("queued"))).progress
    assert reader.feed(added(message())).progress
    assert not reader.feed(added(message())).progress
    assert reader.feed(text("a")).progress
    assert reader.feed(text("a")).progress
    assert not reader.feed(text("")).progress
    searching = event("web_search_call.searching", output_index=1, item_id="ws_1")
    assert [reader.feed(searching).progress for _ in range(2)] == [True, False]
    code = event("code_interpreter_call_code.delta", output_index=1, delta="x")
    assert [reader.feed(code).progress for _ in range(2)] == [True, True]
    many = [reader.feed(event("x.in_progress", output_index=n)).progress for n in range(1_100)]
    assert not many[-1]


# --- bodies --------------------------------------------------------------------------------------


def test_a_body_is_read_as_the_event_that_ends_its_stream() -> None:
    """One frame, with the object as it came."""
    whole = response("completed", message("Hi"), x=1.5)
    step = body_of(json.dumps(whole, indent=1).encode())
    (frame,) = step.frames
    assert (step.progress, step.end) == (True, Complete())
    assert json.loads(frame.data) == {"type": "response.completed", "response": whole}
    assert b'"x": 1.5' in frame.data
    cut = body_of(response("incomplete", message("H")))
    assert Finish(0, "length", "") in cut.frames[0].events
    bare = body_of({"id": "r", "output": []})
    assert Finish(0, "stop", "completed") in bare.frames[0].events


@pytest.mark.parametrize(
    ("value", "end"),
    [
        (b"", EMPTY),
        (b" \n", EMPTY),
        (b"{", Failure(FailureKind.MALFORMED)),
        (b"[]", Failure(FailureKind.MALFORMED)),
        ({"error": {"code": "rate_limit_exceeded"}}, Failure(FailureKind.RATE_LIMITED, 429, "rate_limit_exceeded")),
        (response("failed", error={"code": "server_error"}), Failure(FailureKind.UNAVAILABLE, 503, "server_error")),
        (response("failed", error=None), Failure(FailureKind.UNAVAILABLE, 502)),
        (response("queued", error=None), NO_END),
        ({"x": 1}, NO_END),
    ],
)  # fmt: skip
def test_a_body_that_is_no_answer_is_a_failure(value: object, end: Failure) -> None:
    """A response that is not over yet included."""
    assert body_of(value).end == end


def test_a_body_has_a_bound() -> None:
    """Like any held evidence."""
    reader = ResponsesBodyReader(body_bytes_max=4)
    assert reader.feed(b"12345").end == Failure(FailureKind.HELD_LIMIT)
