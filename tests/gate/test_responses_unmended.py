"""What the objects of a Responses stream say other than its deltas is judged in a tunnel, each text once."""

from __future__ import annotations

from typing import Any

import pytest

from gate.events import (
    Event,
    Frame,
    ReasoningDelta,
    RefusalDelta,
    Slot,
    TextDelta,
    ToolDelta,
    ToolEnd,
)
from gate.responses import decode_event
from gate.responses_mending import ResponsesMender
from gate.responses_unmended import ResponsesUnmended
from gate.sse import SseDecoder
from gate.unmended import ASIDE
from tests.responding import (
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

BEGUN = created() + added(message()) + text("hello")
AT = {"item_id": "msg_1", "output_index": 0, "content_index": 0}


def frames(data: bytes) -> list[Frame]:
    """The frames of a stream."""
    found = [decode_event(each) for each in SseDecoder(event_bytes_max=1 << 20).feed(data)]
    return [each for each in found if isinstance(each, Frame)]


def beside(data: bytes) -> list[Event]:
    """What is judged beside the mended events, a frame at a time, as far as no call holds them."""
    unmended, steps = ResponsesUnmended(), ResponsesMender()
    ready: list[Frame] = []
    found: list[Event] = []
    for each in frames(data):
        unmended.saw(each)
        ready += steps.mend([each])
        if not steps.held_bytes:
            events, second = unmended.judged(ready)
            assert list(events) == [event for frame in ready for event in frame.events]
            found += second
            ready = []
    return found


@pytest.mark.parametrize(
    "data",
    [
        answer("He", "llo"),
        spoken_call('{"a"', ":1}"),
        spoken_call('{"\\u0061"', ":1}"),
        BEGUN + done(message("hello, you")) + completed(message("hello, you")),
        created() + completed(message("hello"), output_text="hello"),
        created() + done(thought("hm", "ha")) + completed(thought("hm", "ha"), message("yes")),
        created() + done(call('{"a":1}')) + completed(call('{"a":1}')),
        created() + event("custom.thing", text="x", item={"type": "other", "content": "x"}),
    ],
)
def test_what_was_judged_is_not_judged_again(data: bytes) -> None:
    """Deltas and the objects that say them, objects that say more, and what nobody knows."""
    assert beside(data) == []


NEXT = ASIDE + 1
PART = {"type": "output_text", "text": "other"}


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (event("output_text.done", **AT, text="other"), TextDelta(NEXT, "other")),
        (event("refusal.done", **AT, refusal="other"), None),
        (event("content_part.done", **AT, part=PART), TextDelta(NEXT, "other")),
        (event("content_part.added", **AT | {"content_index": 1}, part=PART), TextDelta(NEXT, "other")),
        (done(message("other")), TextDelta(NEXT, "other")),
        (done({"content": [PART]}), TextDelta(NEXT, "other")),
        (done(message("hello")) + done(message("other")), TextDelta(NEXT, "other")),
        (done(message("hello")) + completed(message("other")), TextDelta(NEXT, "other")),
        (completed(message("hello"), output_text="other"), TextDelta(NEXT, "other")),
        (event("in_progress", response=response("in_progress", message("other"))), TextDelta(NEXT, "other")),
        (added(message("other", "msg_2"), 1), TextDelta(NEXT, "other")),
        (added({**thought("other"), "id": "rs_9"}, 1), ReasoningDelta(NEXT, "other")),
        (done(message("hello")) + done({**message(), "content": [{"type": "refusal", "refusal": "other"}]}), RefusalDelta(NEXT, "other")),
        (added(call("other"), 1) + done(call("{}"), 1), TextDelta(NEXT, "other")),
        (event("output_text.done", **AT, text="\ud800x"), TextDelta(NEXT, "\ufffdx")),
    ],
)  # fmt: skip
def test_an_object_that_says_something_else_is_judged(data: bytes, said: Event | None) -> None:
    """Wherever it stands, once, however often it is said; what mending makes a delta of is judged there."""
    assert beside(BEGUN + data + data) == ([] if said is None else [said])


def test_a_call_that_an_end_says_otherwise_has_to_be_one() -> None:
    """By its arguments, or by its name; in pieces of its own."""
    started = created() + added({**call(), "arguments": ""}) + arguments('{"a":1}')
    for said in (call('{"b":2}'), call('{"a":1}', name="row")):
        found = beside(started + done(said) + completed(said))
        piece = ToolDelta(NEXT, 0, "call_1", said["name"], said["arguments"])
        assert found == [piece, ToolEnd(NEXT, 0)]
    custom = {**call(), "type": "custom_tool_call", "input": "x"}
    began = created() + added({**custom, "input": ""}) + event("custom_tool_call_input.delta", item_id="fc_1", output_index=0, delta="y")  # fmt: skip
    assert beside(began + done(custom))[0] == ToolDelta(NEXT, 0, "call_1", "sail", "x", True)
    odd = {**call(), "arguments": {"b": 2}}
    assert beside(started + done(odd))[0] == ToolDelta(NEXT, 0, "call_1", "sail", '{"b":2}')


def test_a_call_that_was_cut_is_text() -> None:
    """It is left out elsewhere, so it need not be one that can be carried out."""
    started = created() + added({**call(), "arguments": ""}) + arguments('{"a')
    piece = TextDelta(NEXT, '{"a')
    assert beside(started + completed(call('{"a'), status="incomplete")) == [piece]
    other = beside(started + completed(call('{"b'), status="incomplete"))
    assert other == [piece, TextDelta(NEXT + 1, '{"b')]
    said = event("function_call_arguments.done", item_id="fc_1", output_index=0, arguments='{"b')
    cut = {**call('{"c'), "status": "incomplete"}
    found = beside(started + said + done(cut))
    assert [each.text for each in found if isinstance(each, TextDelta)] == ['{"b', '{"c']


def test_arguments_are_judged_as_they_read_too() -> None:
    """With their escapes resolved, where they are no call that a filter reads."""
    item = added(call('{"\\u0061":1}'), 1) + done(call("{}"), 1)
    assert beside(BEGUN + item) == [
        TextDelta(NEXT, '{"\\u0061":1}'),
        TextDelta(NEXT + 1, '{"a":1}'),
    ]
    other = call('{"\\u0061":1}', name="row")
    found = beside(created() + spoken_call("{}").replace(b"sail", b"row") + done(other))
    assert [type(each) for each in found] == [ToolDelta, ToolEnd]


def test_pieces_of_two_calls_are_told_apart() -> None:
    """By their index, else by their item."""
    two = created() + arguments("a", index=0) + arguments("b", index=1) + arguments("c", index=0)
    found = beside(two + completed(status="incomplete"))
    assert found == [TextDelta(NEXT, "ac"), TextDelta(NEXT + 1, "b")]


def test_odd_objects_say_nothing() -> None:
    """Of other types, or empty."""
    odd: list[Any] = [None, 7, {}, {"type": "message", "content": 7}, {"type": "function_call"}]
    for item in odd:
        assert beside(BEGUN + added(item, 3) + done(item, 3)) == []
    assert beside(BEGUN + event("completed", response=7)) == []
    assert beside(BEGUN + event("output_text.done", **AT, text=7)) == []


def test_what_is_remembered_is_in_the_ledger() -> None:
    """A digest for each part, and for each text that was judged."""
    unmended, steps = ResponsesUnmended(), ResponsesMender()
    assert unmended.ledger_bytes == 0
    sizes = []
    for each in frames(answer("a", "b")):
        unmended.saw(each)
        unmended.judged(steps.mend([each]))
        sizes.append(unmended.ledger_bytes)
    assert sizes == sorted(sizes)
    assert 0 < sizes[-1] < 4_000


def test_a_frame_without_a_place_is_no_part() -> None:
    """What a step makes of half a character at the end, and a frame that says nothing."""
    unmended = ResponsesUnmended()
    unmended.saw(Frame(b"{}", (), 2))
    whole = Frame(b"{}", (TextDelta(0, "x"),), 2)
    unmended.saw(Frame(b'{"text":"x"}', (Slot("response.output_text.done"),), 2))
    events, found = unmended.judged([whole, Frame(b"{}", (ToolDelta(0, None, None, None, "y"),), 2)])  # fmt: skip
    assert (len(events), found) == (2, [])
