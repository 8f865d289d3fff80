"""One attempt's bytes: which reader they get, where they end, and that nothing behind completeness counts as a failure."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gate.endpoints import CHAT, Expected
from gate.events import (
    Complete,
    Event,
    Finish,
    Frame,
    HowEnded,
    Identity,
    Mend,
    TextDelta,
    ToolDelta,
    UsageReport,
)
from gate.failure import Failure, FailureKind
from gate.reader import AnswerReader, ChatBodyReader, ChatStreamReader, Step

ROLE = b'data: {"id":"c1","created":5,"choices":[{"index":0,"delta":{"role":"assistant"}}]}\n\n'
TEXT = b'data: {"id":"c1","choices":[{"index":0,"delta":{"content":"hi"}}]}\n\n'
STOP = b'data: {"id":"c1","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
USAGE = b'data: {"id":"c1","choices":[],"usage":{"total_tokens":3}}\n\n'
ERROR = b'data: {"error":{"code":500}}\n\n'
DONE = b"data: [DONE]\n\n"
MALFORMED = Failure(FailureKind.MALFORMED)
EMPTY = Failure(FailureKind.EMPTY)
CUT = Failure(FailureKind.CUT)


def streamed(choices: int = 1, limit: int = 1 << 16) -> ChatStreamReader:
    return ChatStreamReader(choices=choices, event_bytes_max=limit)


def end_of(data: bytes, choices: int = 1) -> HowEnded:
    """How a stream of these bytes ends."""
    reader = streamed(choices)
    end = reader.feed(data).end or reader.eof().end
    assert end is not None
    return end


def answered(
    value: dict[str, Any] | bytes, *, choices: int = 1, stream: bool = False
) -> tuple[list[Frame], HowEnded]:
    """A JSON body, in one read."""
    reader = ChatBodyReader(choices=choices, body_bytes_max=1 << 16, stream=stream)
    reader.feed(value if isinstance(value, bytes) else json.dumps(value).encode())
    step = reader.eof()
    assert step.end is not None
    assert reader.complete is isinstance(step.end, Complete)
    return step.frames, step.end


def message(content: object = "hi", finish: object = "stop", **rest: object) -> dict[str, Any]:
    """One `chat.completion` with one choice."""
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": content},
        "finish_reason": finish,
    }
    return {"id": "c1", "created": 5, "model": "m", "choices": [choice], **rest}


# --- which reader --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content_type", "kind"),
    [
        (b"text/event-stream", ChatStreamReader), (b"Text/Event-Stream; charset=utf-8", ChatStreamReader), (b" application/json ", ChatBodyReader),
        (b"application/problem+json;v=1", ChatBodyReader), (b"text/html", type(None)), (b"", type(None)), (b"application/jsonl", type(None)),
    ],
)  # fmt: skip
def test_the_head_decides_and_not_what_was_asked(content_type: bytes, kind: type) -> None:
    """HTML, or no type at all, is no answer."""
    for stream in (True, False):
        reader = CHAT.reader(content_type, Expected(1, stream, 9, 9))  # fmt: skip
        assert type(reader) is kind


# --- streams -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "end", "alone"),
    [
        (ROLE + STOP + DONE, Complete(), Complete()),
        (ROLE + USAGE + DONE, Complete((Finish(0, "stop", ""),)), EMPTY),
        (ROLE + DONE, Failure(FailureKind.MISSING_TERMINAL), EMPTY),
        (ROLE, EMPTY, EMPTY),
    ],
)
def test_a_stream_that_goes_on_may_have_nothing_to_add(
    data: bytes, end: HowEnded, alone: HowEnded
) -> None:
    """Its answer has begun at another attempt; by default it has not."""
    for continues, expected in ((True, end), (False, alone)):
        reader = CHAT.reader(b"text/event-stream", Expected(1, True, 1 << 16, 9, continues))  # fmt: skip
        assert reader is not None
        assert (reader.feed(data).end or reader.eof().end) == expected
    assert end_of(data) == alone


def test_a_stream_gives_frames_progress_and_an_end() -> None:
    """A role is no progress; `[DONE]` ends it at once and nothing behind it is read."""
    reader = streamed()
    assert reader.feed(ROLE) == Step(reader_frames(ROLE), False, None)
    step = reader.feed(TEXT + TEXT[:9])
    assert [frame.data for frame in step.frames] == [TEXT[6:-2]]
    assert (step.progress, reader.pending, reader.complete) == (True, 9, False)
    step = reader.feed(TEXT[9:] + STOP + DONE + ERROR + TEXT)
    assert (len(step.frames), step.progress, step.end) == (2, True, Complete())
    assert reader.complete


def reader_frames(data: bytes) -> list[Frame]:
    """What a fresh reader makes of these bytes."""
    return streamed().feed(data).frames


def test_the_first_frame_with_an_id_names_the_attempt() -> None:
    """Azure's preamble has an empty one, Groq changes it on the way."""
    blank = b'data: {"id":"","created":0,"choices":[]}\n\n'
    other = b'data: {"id":"c2","created":9,"choices":[]}\n\n'
    bare = b'data: {"choices":[]}\n\n'
    frames = reader_frames(blank + bare + ROLE + other)
    found = [event for frame in frames for event in frame.events if isinstance(event, Identity)]
    assert found == [Identity("c1", 5)]
    assert Identity("c1", 5) in frames[2].events


@pytest.mark.parametrize(
    ("members", "identity"),
    [
        (b'"id":"c","created":null', [Identity("c", 0)]), (b'"id":"c","created":"noon"', [Identity("c", 0)]), (b'"id":"c","created":1.5', [Identity("c", 0)]),
        (b'"id":null,"created":5', []), (b'"id":7,"created":5', []), (b'"id":"\\ud83d"', []),
    ],
)  # fmt: skip
def test_an_odd_identity_does_no_harm(members: bytes, identity: list[Identity]) -> None:
    """An id without a time is one; an id that is no text is none."""
    (frame,) = reader_frames(b'data: {%b,"choices":[]}\n\n' % members)
    assert [event for event in frame.events if isinstance(event, Identity)] == identity


@pytest.mark.parametrize(
    ("data", "end"),
    [
        (TEXT + STOP, Complete()),
        (TEXT + STOP + b"data: done\n\n", Complete()),
        (TEXT + STOP + b"data: [DONE]", Complete()),
        (TEXT + STOP[:-2], Complete()),
        (TEXT + DONE, Failure(FailureKind.MISSING_TERMINAL)),
        (TEXT + b"data: DONE\n\n", Failure(FailureKind.MISSING_TERMINAL)),
        (TEXT + USAGE + DONE, Complete((Finish(0, "stop", ""),))),
        (TEXT + USAGE, Failure(FailureKind.MISSING_TERMINAL)),
        (TEXT + b"data: DONE\n\n" + STOP, Complete()),
        (TEXT, Failure(FailureKind.MISSING_TERMINAL)),
        (TEXT + STOP[:30], MALFORMED),
        (DONE, EMPTY),
        (b"", EMPTY),
        (b": ping\n\ndata: ping\n\n", EMPTY),
        (TEXT + b"data: <html>\n\n" + STOP, MALFORMED),
        (TEXT + ERROR + STOP + DONE, Failure(FailureKind.UNAVAILABLE, 500)),
        (TEXT + b"event: error\ndata: {}\n\n", Failure(FailureKind.UNAVAILABLE, 502)),
    ],
)
def test_a_stream_ends_as_its_events_say(data: bytes, end: HowEnded) -> None:
    """A cut is never a clean end, whatever relays append to it."""
    assert end_of(data) == end


@pytest.mark.parametrize("late", [ERROR, b"data: <html>\n\n", b"data: {", TEXT, b": x\n\n", b"data:" + b"x" * 70_000])  # fmt: skip
def test_nothing_behind_completeness_is_a_failure(late: bytes) -> None:
    """Errors, garbage, half an event, an endless line."""
    assert end_of(TEXT + STOP + late) == Complete()


def test_usage_behind_the_finish_is_still_taken() -> None:
    """Also behind what broke in that time."""
    step = streamed().feed(TEXT + STOP + ERROR + USAGE + DONE)
    assert UsageReport(b'{"total_tokens":3}') in step.frames[-1].events


def test_a_finish_that_says_failure_ends_the_attempt() -> None:
    """Without a look at what follows; its own frame is the last one."""
    failed = STOP.replace(b"stop", b"error")
    step = streamed().feed(TEXT + failed + STOP + DONE)
    assert (len(step.frames), step.end) == (2, Failure(FailureKind.FAILED_FINISH))


def test_a_choice_that_is_missing_at_the_end_is_a_cut() -> None:
    """With `[DONE]` or without, one of two finished."""
    assert end_of(TEXT + STOP + DONE, choices=2) == CUT
    assert end_of(TEXT + STOP + b"data: DONE\n\n", choices=2) == CUT
    assert end_of(TEXT + STOP, choices=2) == CUT


def test_an_event_larger_than_the_limit_is_malformed() -> None:
    """What was whole before it is delivered, and an end that it held stands."""
    reader = streamed(limit=200)
    step = reader.feed(TEXT + b"data: " + b"x" * 300)
    assert (len(step.frames), step.progress, step.end) == (1, True, MALFORMED)
    assert streamed(limit=200).feed(TEXT + STOP + DONE + b"x" * 300).end == Complete()
    assert streamed(limit=200).feed(TEXT + ERROR + b"x" * 300).end == Failure(FailureKind.UNAVAILABLE, 500)  # fmt: skip


@given(
    st.lists(st.sampled_from([ROLE, TEXT, STOP, USAGE, ERROR, DONE, b": c\r\n\r\n", b"data: ping\n\n"]), max_size=9),
    st.lists(st.integers(0, 600), max_size=6),
)  # fmt: skip
def test_a_stream_reads_the_same_wherever_it_is_cut(events: list[bytes], cuts: list[int]) -> None:
    """Payloads, events, progress and end; a frame's size may differ by a line feed between two blocks."""
    data = b"".join(events)
    marks = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    pieces = [data[a:b] for a, b in itertools.pairwise(marks)]
    assert outcome(streamed(), pieces) == outcome(streamed(), [data])


Seen = tuple[list[tuple[bytes, tuple[Event, ...], int]], bool, HowEnded | None]


def outcome(reader: AnswerReader, pieces: list[bytes]) -> Seen:
    """Everything that a reader said."""
    frames: list[tuple[bytes, tuple[Event, ...], int]] = []
    progress = False
    for piece in [*pieces, b""]:
        step = reader.feed(piece) if piece else reader.eof()
        frames += [(frame.data, frame.events, frame.mend) for frame in step.frames]
        progress = progress or step.progress
        if step.end is not None:
            return frames, progress, step.end
    return frames, progress, None


# --- bodies --------------------------------------------------------------------------------------


def test_a_body_is_one_frame_as_it_came_for_a_caller_that_wants_json() -> None:
    """Nothing comes before it is whole; then it is complete."""
    body = json.dumps(message(), indent=1).encode()
    reader = ChatBodyReader(choices=1, body_bytes_max=1 << 10, stream=False)
    assert reader.feed(body[:20]) == Step([], False, None)
    assert reader.feed(body[20:]) == Step([], False, None)
    assert (reader.pending, reader.complete) == (len(body), False)
    (frame,) = reader.eof().frames
    assert (frame.data, frame.whole, frame.size) == (body, True, len(body))
    assert (reader.pending, reader.complete) == (0, True)
    assert frame.events[1:] == (TextDelta(0, "hi"), Finish(0, "stop", "stop"), Identity("c1", 5))


def test_a_body_is_one_chunk_for_a_caller_that_wants_a_stream() -> None:
    """Message becomes delta, calls get their numbers, everything else stays."""
    value = message(usage={"total_tokens": 3}, x=1)
    value["choices"][0] |= {"logprobs": None, "y": 2}
    value["choices"][0]["message"]["tool_calls"] = [{"id": "t", "type": "function", "function": {"name": "f", "arguments": "{}"}}, 7]  # fmt: skip
    (frame,), end = answered(value, stream=True)
    assert end == Complete()
    assert not frame.whole
    assert json.loads(frame.data) == {
        "id": "c1", "created": 5, "model": "m", "object": "chat.completion.chunk", "usage": {"total_tokens": 3}, "x": 1,
        "choices": [{
            "index": 0, "logprobs": None, "y": 2, "finish_reason": "stop",
            "delta": {"role": "assistant", "content": "hi", "tool_calls": [{"index": 0, "id": "t", "type": "function", "function": {"name": "f", "arguments": "{}"}}]},
        }],
    }  # fmt: skip
    assert ToolDelta(0, 0, "t", "f", "{}") in frame.events


@pytest.mark.parametrize(
    "content", [[{"type": "text", "text": "hi"}], "\ud83d"], ids=["parts", "half a pair"]
)
def test_a_body_that_must_be_mended_is_a_chunk_for_every_caller(content: object) -> None:
    """Content as parts, half a character."""
    (frame,), _ = answered(message(content))
    assert not frame.whole
    assert frame.mend & (Mend.FIELDS | Mend.TEXT)
    assert "delta" in json.loads(frame.data)["choices"][0]


def test_a_body_that_is_not_utf8_or_not_json_to_the_letter_becomes_both() -> None:
    """U+FFFD for the bytes, null for the number."""
    body = json.dumps(message("hi!", x=float("nan"))).encode().replace(b"hi!", b"hi\xff")
    (frame,), _ = answered(body)
    assert not frame.whole
    value = json.loads(frame.data)
    assert (value["choices"][0]["delta"]["content"], value["x"]) == ("hi�", None)


@pytest.mark.parametrize(
    ("value", "end"),
    [
        (message(), Complete()),
        (message(finish=None), Complete((Finish(0, "stop", ""),))),
        (message(finish=""), Complete((Finish(0, "stop", ""),))),
        (message("", None), EMPTY),
        (message("  ", None), EMPTY),
        (message(finish="error"), Failure(FailureKind.FAILED_FINISH)),
        ({"choices": []}, EMPTY),
        ({"choices": None}, EMPTY),
        ({"choices": 7}, EMPTY),
        ({"choices": [7, {"index": 0, "message": None}]}, EMPTY),
        ({"choices": [{"index": 0, "message": None, "finish_reason": "stop"}]}, EMPTY),
        ({"choices": [{"index": 0, "finish_reason": "length"}]}, EMPTY),
        (
            {"choices": [{"index": 0, "message": [], "finish_reason": "error"}]},
            Failure(FailureKind.FAILED_FINISH),
        ),
        ({}, EMPTY),
        ({"error": {"code": 429}}, Failure(FailureKind.RATE_LIMITED, 429)),
        ({"detail": "no"}, Failure(FailureKind.UNAVAILABLE, 502)),
        (b"", EMPTY),
        (b" \r\n", EMPTY),
        (b"<html>", MALFORMED),
        (b'{"choices"', MALFORMED),
        (b"[]", MALFORMED),
        (b"\xef\xbb\xbf" + json.dumps(message()).encode(), Complete()),
    ],
)
def test_a_body_ends_as_it_says(value: dict[str, Any] | bytes, end: HowEnded) -> None:
    """One that parses whole and has content is complete with a null finish reason; an empty one is empty."""
    assert answered(value)[1] == end
    assert answered(value, stream=True)[1] == end


def test_a_body_that_lacks_a_choice_is_a_cut() -> None:
    """Where the others have finished."""
    assert answered(message(), choices=2)[1] == CUT


def test_choices_of_a_body_are_numbered_where_they_say_no_index() -> None:
    """In order."""
    value = message()
    second = {"index": None, "message": {"content": "b"}, "finish_reason": "stop"}
    third = {"message": {"content": "c"}, "finish_reason": "stop"}
    value["choices"] += [second, third]
    (frame,), end = answered(value, choices=3)
    assert end == Complete()
    texts = [event for event in frame.events if isinstance(event, TextDelta)]
    assert texts == [TextDelta(0, "hi"), TextDelta(1, "b"), TextDelta(2, "c")]


def test_an_implied_finish_of_a_body_is_among_its_events() -> None:
    """So that whoever reads the frame sees the end too."""
    (frame,), _ = answered(message(finish=None))
    assert Finish(0, "stop", "") in frame.events


@pytest.mark.parametrize(
    ("change", "identity"),
    [({"id": ""}, ()), ({"id": None}, ()), ({"created": "noon"}, (Identity("c1", 0),)), ({"id": "a\ud83d"}, (Identity("a�", 5),))],
)  # fmt: skip
def test_a_bodys_odd_identity_does_no_harm(
    change: dict[str, Any], identity: tuple[Event, ...]
) -> None:
    """As in a stream."""
    (frame,), _ = answered(message() | change)
    assert tuple(event for event in frame.events if isinstance(event, Identity)) == identity


def test_a_body_over_its_limit_is_let_go() -> None:
    """In the read that crosses it."""
    reader = ChatBodyReader(choices=1, body_bytes_max=10, stream=False)
    assert reader.feed(b"0123456789").end is None
    assert reader.feed(b"x") == Step([], False, Failure(FailureKind.HELD_LIMIT))
