"""The chat decoder: what providers really send, read the same by both of its tiers, and what is no frame told apart."""

from __future__ import annotations

import json

import pytest

from gate.events import (
    AudioDelta,
    Event,
    Finish,
    Frame,
    Mend,
    ReasoningDelta,
    RefusalDelta,
    RoleDelta,
    TextDelta,
    ToolDelta,
    UsageReport,
)
from gate.failure import Failure, FailureKind
from gate.loose_json import DEPTH_MAX, encoded, tolerant_object
from gate.openai import (
    Note,
    decode_event,
    decode_object,
    finish_reason,
    frame_of,
    says_failure,
)
from gate.sse import SseDecoder, SseEvent

Decoded = Frame | Failure | Note


def decode(block: bytes) -> Decoded:
    """One block of an event stream."""
    (event,) = SseDecoder(event_bytes_max=1 << 20).feed(block + b"\n\n")
    return decode_event(event)


def data(payload: bytes) -> Decoded:
    """One `data` line."""
    return decode(b"data: " + payload)


def frame(payload: bytes) -> Frame:
    """A payload that is a frame."""
    decoded = data(payload)
    assert isinstance(decoded, Frame)
    return decoded


def said(delta: bytes, rest: bytes = b"") -> tuple[Event, ...]:
    """The events of one delta of choice 0."""
    return frame(b'{"choices":[{"index":0,"delta":%b%b}]}' % (delta, rest)).events


# --- frames --------------------------------------------------------------------------------------


def test_a_frame_keeps_the_payloads_own_bytes_and_knows_what_it_came_in() -> None:
    """Unknown members, spelling and white space are the provider's; the size is that of the whole block."""
    payload = b'{ "choices":[{"index":0,"delta":{"content":"\\u0041"}}] , "x_y":1.0e0 }'
    assert frame(payload) == Frame(payload, (TextDelta(0, "A"),), len(payload) + 8)


@pytest.mark.parametrize(
    ("delta", "events"),
    [
        (b'{"role":"assistant","content":""}', (RoleDelta(0, "assistant"),)),
        (b'{"content":"hi"}', (TextDelta(0, "hi"),)),
        (b'{"reasoning_content":"hm"}', (ReasoningDelta(0, "hm"),)),
        (b'{"reasoning":"hm"}', (ReasoningDelta(0, "hm"),)),
        (b'{"reasoning_content":"a","reasoning":"a"}', (ReasoningDelta(0, "a"),)),
        (b'{"refusal":"no"}', (RefusalDelta(0, "no"),)),
        (b'{"audio":{"id":"a1"}}', (AudioDelta(0),)),
        (b'{"audio":{"id":"a1","transcript":"hi \\u00e9"}}', (AudioDelta(0, "hi é"),)),
        (b'{"audio":{"data":"AA","transcript":null}}', (AudioDelta(0),)),
        (b'{"audio":{"transcript":5}}', (AudioDelta(0),)),
        (b'{"audio":{"transcript":"a\\ud83d"}}', (AudioDelta(0, "a\ufffd"),)),
        (b'{"audio":["a"]}', (AudioDelta(0),)),
        (b'{"audio":{}}', ()),
        (b'{"function_call":{"name":"f"}}', (ToolDelta(0, -1, None, "f", None),)),
        (b'{"tool_calls":[{"index":1,"custom":{"name":"c","input":"x"}}]}', (ToolDelta(0, 1, None, "c", "x", custom=True),)),
        (b'{"tool_calls":[{"id":"t","function":{"name":"f","arguments":"{}"}}]}', (ToolDelta(0, None, "t", "f", "{}"),)),
        (b'{"tool_calls":[{"index":0}]}', (ToolDelta(0, 0, None, None, None),)),
        (b'{"tool_calls":[{"index":-1}]}', (ToolDelta(0, None, None, None, None),)),
        (b'{"content":null,"tool_calls":null,"role":null}', ()),
        (b"null", ()),
    ],
)  # fmt: skip
def test_each_channel_of_a_delta_is_an_event(delta: bytes, events: tuple[Event, ...]) -> None:
    """Empty and null members say nothing."""
    assert said(delta) == events


def test_both_tiers_read_the_same_events() -> None:
    """A number that is none sends a payload through the tolerant tier; its events are those of the strict one."""
    delta = (
        b'{"role":"assistant","content":"t","reasoning":"r","refusal":"n","audio":{"id":"a","transcript":"s"},"function_call":{"name":"g","arguments":"2"},'
        b'"tool_calls":[{"index":0,"id":"i","function":{"name":"f","arguments":"1"}},{"custom":{"name":"c","input":"3"}},{}]}'
    )
    choices = b'"choices":[{"index":2,"delta":%b,"finish_reason":"stop"}],"usage":{"a":1}}' % delta
    strict, tolerant = frame(b"{" + choices), frame(b'{"p":NaN,' + choices)
    assert strict.events == tolerant.events
    assert len(strict.events) == 11
    flags = Mend.FACTS | Mend.REASONING | Mend.TOOLS | Mend.CALLS
    assert (strict.mend, tolerant.mend) == (flags.value, (flags | Mend.BYTES).value)


@pytest.mark.parametrize(
    ("delta", "events", "mend"),
    [
        (b'{"content":[{"type":"text","text":"a"},{"type":"text","text":"b"},7]}', (TextDelta(0, "ab"),), Mend.FIELDS),
        (b'{"content":[{"type":"thinking","thinking":[{"type":"text","text":"t"}]}]}', (ReasoningDelta(0, "t"),), Mend.FIELDS | Mend.REASONING_CONTENT),
        (b'{"content":[{"type":"thinking","thinking":"t"}]}', (ReasoningDelta(0, "t"),), Mend.FIELDS | Mend.REASONING_CONTENT),
        (b'{"content":"\\ud83d"}', (TextDelta(0, "\ud83d"),), Mend.TEXT),
        (b'{"reasoning":"\\ude80"}', (ReasoningDelta(0, "\ude80"),), Mend.TEXT | Mend.REASONING),
        (b'{"content":7,"role":["x"]}', (), Mend.NOTHING),
        (b'{"tool_calls":[{"index":"0","function":{"name":"f","arguments":{"a":1}}}]}', (ToolDelta(0, 0, None, "f", '{"a":1}'),), Mend.TOOLS | Mend.CALLS),
        (b'{"tool_calls":[7,{"index":true,"function":7}],"function_call":7}', (ToolDelta(0, None, None, None, None),), Mend.TOOLS | Mend.CALLS),
        (b'{"function_call":{"name":"f","arguments":[1]}}', (ToolDelta(0, -1, None, "f", "[1]"),), Mend.TOOLS | Mend.CALLS),
        (b'{"tool_calls":[{"index":0,"function":{"arguments":"\\ud83d"}}]}', (ToolDelta(0, 0, None, None, "\ud83d"),), Mend.TOOLS | Mend.CALLS),
        (b'{"tool_calls":[{"index":"1234567890","function":{"arguments":"a"}}],"audio":NaN}', (ToolDelta(0, None, None, None, "a"),), Mend.TOOLS | Mend.CALLS | Mend.BYTES),
        (b'{"tool_calls":[{"index":0,"type":"function","function":{"name":"f","arguments":"a"}}],"audio":NaN}', (ToolDelta(0, 0, None, "f", "a"),), Mend.TOOLS | Mend.BYTES),
    ],
)  # fmt: skip
def test_what_the_strict_tier_refuses_is_read_all_the_same(
    delta: bytes, events: tuple[Event, ...], mend: Mend
) -> None:
    """Content as parts, half a surrogate pair, arguments as an object, members of a wrong type."""
    decoded = frame(b'{"choices":[{"index":0,"delta":%b}]}' % delta)
    assert (decoded.events, decoded.mend) == (events, mend.value)


def test_choices_may_be_null_missing_empty_or_without_a_delta() -> None:
    """Azure's filter results, usage chunks, and chunks of members that we don't know are frames without events."""
    for payload in (b'{"choices":null}', b"{}", b'{"choices":[]}', b'{"choices":[{"index":0,"content_filter_results":{}}]}', b'{"choices":7}'):  # fmt: skip
        assert (frame(payload).events, frame(payload).mend) == ((), 0)


def test_llama_cpp_says_its_choices_first() -> None:
    """The order of members means nothing."""
    payload = b'{"choices":[{"finish_reason":null,"index":0,"delta":{"content":"a"}}],"created":1,"id":"c","model":"m","object":"chat.completion.chunk"}'
    assert frame(payload).events == (TextDelta(0, "a"),)


def test_several_choices_of_one_chunk_keep_their_indexes() -> None:
    """A choice without an index is number 0."""
    payload = b'{"choices":[{"index":1,"delta":{"content":"b"}},{"delta":{"content":"a"}}]}'
    assert frame(payload).events == (TextDelta(1, "b"), TextDelta(0, "a"))


def test_a_finish_may_stand_on_a_content_chunk_beside_what_the_provider_adds() -> None:
    """vLLM: the last text, the finish and `stop_reason` in one choice."""
    events = said(b'{"content":"."}', b',"finish_reason":"stop","stop_reason":128009')
    assert events == (TextDelta(0, "."), Finish(0, "stop", "stop"))


def test_an_empty_finish_reason_is_none() -> None:
    """As null."""
    assert said(b"{}", b',"finish_reason":""') == ()


@pytest.mark.parametrize("usage", [b"null", b"{}", b"[]", b'""', b"0", b"false"])
def test_a_usage_that_says_nothing_is_no_report(usage: bytes) -> None:
    """Else it would stand for the usage report of a proper end."""
    assert frame(b'{"choices":[],"usage":%b}' % usage).events == ()
    assert frame(b'{"n":NaN,"choices":[],"usage":%b}' % usage).events == ()


def test_a_usage_report_keeps_its_bytes() -> None:
    """0.00007159 must not become 7.159e-05."""
    assert frame(b'{"choices":[],"usage":{"cost": 0.00007159}}').events == (UsageReport(b'{"cost": 0.00007159}'),)  # fmt: skip


# --- finish reasons ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        ("stop", "stop"), ("length", "length"), ("tool_calls", "tool_calls"), ("content_filter", "content_filter"),
        ("function_call", "function_call"), ("STOP", "stop"), ("eos", "stop"), ("end_turn", "stop"), ("stop_sequence", "stop"),
        ("max_tokens", "length"), ("MAX_TOKENS", "length"), ("tool_use", "tool_calls"), ("pause_turn", "pause_turn"), ("Odd", "Odd"),
    ],
)  # fmt: skip
def test_well_known_finish_reasons_are_spelled_like_openais(word: str, reason: str) -> None:
    """Any other word passes as it came."""
    assert finish_reason(word) == reason
    assert said(b"{}", b',"finish_reason":"%b"' % word.encode()) == (Finish(0, reason, word),)


@pytest.mark.parametrize(
    ("word", "failed"),
    [("error", True), ("Engine_Error", True), ("abort", True), ("cancelled", True), ("stop", False), ("length", False)],
)  # fmt: skip
def test_a_finish_reason_can_say_failure(word: str, *, failed: bool) -> None:
    """Any word that contains `error`, and those for an abort."""
    assert says_failure(word) is failed


# --- what is no frame ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "block",
    [b": comment", b"event: ping", b"data:", b"data: ", b"data: : keepalive", b"data: ping", b"data: keep-alive", b"data: null", b"id: 7"],
)  # fmt: skip
def test_a_comment_in_any_form_is_a_note(block: bytes) -> None:
    """An empty payload, one that begins with a colon, a bare word, no payload at all."""
    assert decode(block) is Note.COMMENT


@pytest.mark.parametrize("payload", [b"DONE", b"[done]", b"done", b"[ DONE ]", b"Done"])
def test_done_in_another_form_is_told_apart(payload: bytes) -> None:
    """It ends only where a finish came, which the reader knows."""
    assert data(payload) is Note.BARE_DONE


def test_done_is_the_end() -> None:
    """With or without a blank around it."""
    assert data(b"[DONE]") is Note.DONE
    assert decode(b"data:[DONE] ") is Note.DONE


@pytest.mark.parametrize("payload", [b"[]", b'"text"', b"7", b"{", b'{"a":}', b"<html>", b"two words", b"[DONE] [DONE]", b'{"a":1} {"b":2}'])  # fmt: skip
def test_any_other_payload_that_is_no_object_is_malformed(payload: bytes) -> None:
    """It condemns the attempt, if that is not complete yet."""
    assert data(payload) == Failure(FailureKind.MALFORMED)


def test_white_space_around_an_object_does_not_matter() -> None:
    """A leading blank more than the one that the format allows."""
    assert frame(b'  {"choices":[]}').data == b'{"choices":[]}'


def test_an_object_nested_too_deep_is_malformed_and_no_crash() -> None:
    """In either tier; one level less is a frame, and can be encoded anew."""
    for opening, closing in ((b"[", b"]"), (b'{"a":', b"}")):
        deep = DEPTH_MAX - 1
        for text, mend in ((b'"t"', Mend.NOTHING), (b'"\\ud83d"', Mend.TEXT)):
            choices = b'"choices":[{"index":0,"delta":{"content":%b}}]' % text
            good = b'{"x":%b1%b,%b}' % (opening * deep, closing * deep, choices)
            assert frame(good).mend == mend.value
            parsed = tolerant_object(good)
            assert parsed is not None
            assert json.loads(encoded(parsed))["choices"]
            bad = b'{"x":%b1%b,%b}' % (opening * (deep + 1), closing * (deep + 1), choices)
            assert data(bad) == Failure(FailureKind.MALFORMED)
            assert tolerant_object(bad) is None


def test_a_large_or_bracketed_payload_is_not_a_deep_one() -> None:
    """A long text; logprobs of a long answer in one chunk."""
    assert said(b'{"content":"%b"}' % (b"a" * 9_999)) == (TextDelta(0, "a" * 9_999),)
    assert frame(b'{"x":[%b0]}' % (b"[1]," * 2 * DEPTH_MAX)).events == ()


# --- errors --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("payload", "kind", "status"),
    [
        (b'{"error":{"code":429}}', FailureKind.RATE_LIMITED, 429),
        (b'{"error":"boom"}', FailureKind.UNAVAILABLE, 502),
        (b'{"code":"rate_limit_exceeded","error":"boom"}', FailureKind.RATE_LIMITED, 429),
        (b'{"error":500}', FailureKind.UNAVAILABLE, 502),
        (b'{"error":true}', FailureKind.UNAVAILABLE, 502),
        (b'{"errors":["x"]}', FailureKind.UNAVAILABLE, 502),
        (b'{"error_code":7,"error":{"code":"429"}}', FailureKind.RATE_LIMITED, 429),
        (b'{"object":"error","code":400}', FailureKind.REFUSED, 400),
        (b'{"type":"error","code":503}', FailureKind.UNAVAILABLE, 503),
        (b'{"detail":"no"}', FailureKind.UNAVAILABLE, 502),
        (b'{"detail":[{"loc":[]}]}', FailureKind.REFUSED, 422),
        (b'{"error":{"code":400},"choices":[{"index":0,"delta":{"content":"x"},"finish_reason":"stop"}]}', FailureKind.REFUSED, 400),
    ],
)  # fmt: skip
def test_an_error_beats_every_other_member_of_its_event(
    payload: bytes, kind: FailureKind, status: int
) -> None:
    """Whatever form it has, it is the failure that its status stands for."""
    failure = data(payload)
    assert isinstance(failure, Failure)
    assert (failure.kind, failure.status) == (kind, status)


@pytest.mark.parametrize(
    "payload",
    [
        b'{"error":null,"choices":[]}', b'{"error":"","choices":[]}', b'{"error":0}', b'{"error":false}', b'{"error":{}}',
        b'{"object":"chat.completion.chunk","choices":[]}', b'{"detail":"low","choices":[{"index":0}]}', b'{"detail":null}', b'{"detail":""}',
        b'{"choices":[{"index":0,"delta":{"content":"\\"error\\": {}"}}]}',
    ],
)  # fmt: skip
def test_an_error_that_says_nothing_is_none(payload: bytes) -> None:
    """Null, empty, 0 or false; a detail beside choices; a text that talks of errors."""
    assert isinstance(data(payload), Frame)


@pytest.mark.parametrize(
    ("block", "status"),
    [
        (b'event: error\ndata: {"code":429}', 429),
        (b'event: error\ndata: {"error":{"code":429}}', 429),
        (b"event: error\ndata: it broke", 502),
        (b"event: error", 502),
        (b'error: {"code":429}', 429),
        (b"error: overloaded", 502),
    ],
)
def test_an_event_that_is_called_error_is_one(block: bytes, status: int) -> None:
    """By its name, or by a field named `error`, whatever its payload."""
    failure = decode(block)
    assert isinstance(failure, Failure)
    assert failure.status == status


# --- bytes ---------------------------------------------------------------------------------------


def test_bytes_that_are_not_utf8_are_noted_wherever_they_stand() -> None:
    """In a text, where the strict tier refuses them, and in a member that it skips."""
    text = frame(b'{"choices":[{"index":0,"delta":{"content":"a\xff"}}]}')
    assert (text.events, text.mend) == ((TextDelta(0, "a�"),), Mend.BYTES.value)
    assert frame(b'{"x":"\xff","choices":[]}').mend == Mend.BYTES.value
    assert frame(b'{"x":"\xc3\xa9","choices":[]}').mend == 0


@pytest.mark.parametrize("said", [b"", b'"index":null,', b'"index":"0",', b'"index":0.0,'])
def test_a_choice_without_a_number_is_noted_and_is_the_first(said: bytes) -> None:
    """In either tier."""
    read = frame(b'{"choices":[{%b"delta":{"content":"a"}}]}' % said)
    assert (read.events, read.mend) == ((TextDelta(0, "a"),), Mend.INDEX.value)


def test_a_payload_of_several_lines_is_noted_in_either_tier() -> None:
    """It can't leave as it is: the caller's event has one line."""
    for opening in (b"{", b'{"x":NaN,'):
        decoded = decode(b'data: %b\ndata: "choices":[]}' % opening)
        assert isinstance(decoded, Frame)
        assert decoded.mend == Mend.BYTES.value


def test_a_frame_of_a_parsed_chunk_has_the_same_events() -> None:
    """The bytes stay those that are given."""
    made = frame_of({"choices": [{"index": 1, "delta": {"content": "x"}}]}, b"{}", 9)
    assert made == Frame(b"{}", (TextDelta(1, "x"),), 9)
    assert decode_object({"choices": [{"finish_reason": "st\ud83d"}]})[0] == [Finish(0, "st�", "st�")]  # fmt: skip


def test_an_event_without_data_lines_has_no_payload() -> None:
    """An `id` line alone."""
    assert decode_event(SseEvent(b"id: 1\n\n", None, b"", error=False)) is Note.COMMENT
