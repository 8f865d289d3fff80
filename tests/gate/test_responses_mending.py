"""Mending of Responses events: each finds its item and part, objects complete what deltas brought and are never added to it, calls leave whole."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from gate.events import (
    Complete,
    Facts,
    Frame,
    Identity,
    OutputItem,
    Place,
    ReasoningDelta,
    TextDelta,
    ToolDelta,
    ToolEnd,
)
from gate.mending_think import ThinkTags
from gate.responses import ResponsesStreamReader
from gate.responses_mending import ResponsesMender
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
    spoken_call,
    text,
    thought,
)


def read(data: bytes) -> list[Frame]:
    """The frames of some events, as the reader gives them."""
    return ResponsesStreamReader(event_bytes_max=1 << 20).feed(data).frames


def mend(data: bytes, mender: ResponsesMender | None = None) -> list[Frame]:
    """What is left of them, all in one batch."""
    return (mender or ResponsesMender()).mend(read(data))


def facts_of(data: bytes, **more: Any) -> Facts:
    """How an answer closed."""
    mender = ResponsesMender(**more)
    mender.mend(read(data))
    frames, facts = mender.finish(Complete())
    assert frames == []
    return facts


def texts(frames: Sequence[Frame], kind: type[TextDelta | ReasoningDelta] = TextDelta) -> str:
    """The text of a kind in them, all of it."""
    said = [event for frame in frames for event in frame.events if isinstance(event, kind)]
    return "".join(each.text for each in said)


def places(frames: Sequence[Frame]) -> list[tuple[str, int, int]]:
    """Where each stands: its type's end, its item and its part."""
    found = [next(e for e in frame.events if isinstance(e, Place)) for frame in frames]
    return [(place.kind.removeprefix("response."), place.item, place.part) for place in found]


def items_at(frames: Sequence[Frame]) -> list[int]:
    """The item of each frame with a text."""
    return [
        place.item
        for frame in frames
        for place in frame.events[:1]
        if isinstance(place, Place) and len(frame.events) > 1
    ]


# --- places --------------------------------------------------------------------------------------


def test_a_healthy_stream_passes_with_its_places() -> None:
    """Every frame keeps its bytes; the last one is the terminal event."""
    data = answer("Hi", " there")
    frames = mend(data)
    assert [frame.data for frame in frames] == [frame.data for frame in read(data)]
    assert places(frames) == [
        ("created", -1, -1),
        ("in_progress", -1, -1),
        ("output_item.added", 0, -1),
        ("content_part.added", 0, 0),
        ("output_text.delta", 0, 0),
        ("output_text.delta", 0, 0),
        ("output_text.done", 0, 0),
        ("content_part.done", 0, 0),
        ("output_item.done", 0, -1),
        ("completed", -1, -1),
    ]
    assert texts(frames) == "Hi there"


def bare(kind: str, **members: Any) -> bytes:
    """An event that says nothing of where it belongs."""
    return event(kind, **members)


@pytest.mark.parametrize(
    "data",
    [
        # no index and no id at all
        bare("output_item.added", item=message()) + bare("content_part.added", part={"type": "output_text"})
        + bare("output_text.delta", delta="a") + bare("output_text.delta", delta="b"),
        # an id that changes with every event, beside an index
        b"".join(text(said, item=f"tmp_{said}") for said in "ab"),
        # the same without an index
        b"".join(bare("output_text.delta", delta=said, item_id=f"tmp_{said}") for said in "ab"),
        # an item that nobody began, and that is begun late
        text("a") + added(message()) + text("b"),
        # by its id alone
        bare("output_item.added", item=message()) + bare("output_text.delta", item_id="msg_1", delta="ab"),
        # said twice
        added(message()) + added(message()) + text("ab"),
    ],
)  # fmt: skip
def test_an_event_finds_its_item_whatever_is_left_out(data: bytes) -> None:
    """By its index, else by its id, else by order."""
    frames = mend(created() + data)
    assert texts(frames) == "ab"
    assert set(items_at(frames)) == {0}


def test_another_item_at_the_same_index_is_another() -> None:
    """Also where the first one is not said to be over; and one of another kind; and one behind the end of the first."""
    second = added(message(name="msg_2")) + text("b", item="msg_2")
    assert items_at(mend(added(message()) + text("a") + second)) == [0, 1]
    assert items_at(mend(text("a") + event("refusal.delta", output_index=0, delta="no"))) == [0, 0]
    mixed = event("reasoning_text.delta", output_index=0, delta="hm") + text("b")
    assert items_at(mend(mixed)) == [0, 1]
    late = done(message("a")) + text("b")
    assert texts(mend(text("a") + late)) == "ab"
    assert items_at(mend(added(message()) + text("a") + late)) == [0, 1]


def test_parts_are_found_like_items() -> None:
    """By their index, else the newest; a part that begins without one is the next."""
    begun = {"output_index": 0, "part": {"type": "output_text", "text": ""}}
    nth = event("output_text.delta", output_index=0, delta="x")
    data = added(message()) + event("content_part.added", **begun) + nth
    data += event("content_part.added", **begun) + nth + text("y", part=0)
    assert [part for kind, _, part in places(mend(data)) if kind.endswith("delta")] == [0, 1, 0]
    summed = event("reasoning_summary_part.added", output_index=1, summary_index=2, part={})
    said = event("reasoning_summary_text.delta", output_index=1, delta="hm")
    assert [place[2] for place in places(mend(summed + said))] == [2, 2]


def test_what_nobody_knows_passes() -> None:
    """With the item that it names, if that is there."""
    call_events = event("web_search_call.searching", output_index=0, item_id="ws_1")
    data = added({"type": "web_search_call", "id": "ws_1"}) + call_events
    noted = event("output_text.annotation.added", output_index=1, content_index=0, annotation={})
    frames = mend(data + text("a", index=1) + noted + event("new.thing", x=1))
    assert places(frames) == [
        ("output_item.added", 0, -1),
        ("web_search_call.searching", 0, -1),
        ("output_text.delta", 1, 0),
        ("output_text.annotation.added", 1, 0),
        ("new.thing", 1, -1),
    ]
    assert places(mend(event("new.thing", x=1))) == [("new.thing", -1, -1)]


# --- texts ---------------------------------------------------------------------------------------


def ends(said: str) -> dict[str, bytes]:
    """Every event that says all of a text."""
    place = {"output_index": 0, "content_index": 0}
    return {
        "text": event("output_text.done", **place, text=said),
        "part": event("content_part.done", **place, part={"type": "output_text", "text": said}),
        "item": done(message(said)),
        "response": completed(message(said)),
    }


@pytest.mark.parametrize("where", ["text", "part", "item", "response"])
@pytest.mark.parametrize(
    ("deltas", "said", "whole"),
    [
        ("", "Hello", "Hello"),
        ("Hell", "Hello", "Hello"),
        ("Hello", "Hello", "Hello"),
        ("Hello", "Hell", "Hello"),
        ("Hello", "Help me", "Hello"),
        ("Hello", "", "Hello"),
        ("é\U0001f680", "é\U0001f680!", "é\U0001f680!"),
    ],
)
def test_what_an_end_says_completes_the_deltas(
    where: str, deltas: str, said: str, whole: str
) -> None:
    """It is never added to them, and does not stand against them; said again, it says nothing new."""
    begun = created() + added(message()) + (text(deltas) if deltas else b"")
    frames = mend(begun + ends(said)[where])
    assert texts(frames) == whole
    assert texts(mend(begun + b"".join(ends(said).values()))) == whole


def test_a_refusal_and_thoughts_are_completed_alike() -> None:
    """From their own events, from their item, from the response."""
    refused = event("refusal.done", output_index=0, content_index=0, refusal="No.")
    assert [e for frame in mend(refused) for e in frame.events][1].text == "No."  # type: ignore[union-attr]
    part = {"type": "refusal", "refusal": "No."}
    assert "No." in str(mend(completed(message(None, content=[part])))[1:])
    summary = event("reasoning_summary_text.done", output_index=0, summary_index=0, text="Hm.")
    assert texts(mend(summary), ReasoningDelta) == "Hm."
    summary_part = event("reasoning_summary_part.done", output_index=0, summary_index=0, part={"type": "summary_text", "text": "Hm."})  # fmt: skip
    assert texts(mend(summary_part), ReasoningDelta) == "Hm."
    assert texts(mend(done(thought("One.", "Two."))), ReasoningDelta) == "One.Two."
    raw = {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "Raw."}, {"type": "x"}]}  # fmt: skip
    assert texts(mend(completed(raw)), ReasoningDelta) == "Raw."
    assert texts(mend(text("") + text("Hi"))) == "Hi"
    odd = event("content_part.done", output_index=0, part=None) + event("output_text.done", text=5)
    assert texts(mend(odd)) == ""


def test_only_the_end_came() -> None:
    """Its items begin, say their text and end, in order; the response begins with what it ends with, less its end."""
    whole = completed(thought("Hm."), message("Hi"), error=None, completed_at=9)
    frames = mend(whole)
    assert places(frames) == [
        ("created", -1, -1),
        ("output_item.added", 0, -1),
        ("reasoning_summary_text.delta", 0, 0),
        ("output_item.done", 0, -1),
        ("output_item.added", 1, -1),
        ("output_text.delta", 1, 0),
        ("output_item.done", 1, -1),
        ("completed", -1, -1),
    ]
    began = json.loads(frames[0].data)["response"]
    assert (began["status"], began["output"], began["usage"]) == ("in_progress", [], None)
    assert (began["completed_at"], began["error"]) == (None, None)


def test_an_item_that_was_not_said_to_end_ends_with_the_response() -> None:
    """As the response says it, or, where it leaves it out, not at all; a second end is none."""
    data = created() + added(message()) + text("Hi")
    assert places(mend(data + completed(message("Hi", name="other"))))[-2:] == [
        ("output_item.done", 0, -1),
        ("completed", -1, -1),
    ]
    assert places(mend(data + completed()))[-2:] == [
        ("output_text.delta", 0, 0),
        ("completed", -1, -1),
    ]
    twice = data + done(message("Hi")) * 2 + completed(message("Hi"))
    assert [kind for kind, _, _ in places(mend(twice))].count("output_item.done") == 1


@pytest.mark.parametrize("low", ["\ud83d", ""])
def test_halves_of_a_character_are_joined_in_their_part(low: str) -> None:
    """One that stays alone is U+FFFD; before whatever ends its item."""
    halves = text("a\ud83d") + text("\ude80b" if low else "b")
    frames = mend(created() + halves + done(message("?")) + completed())
    assert texts(frames) == ("a\U0001f680b" if low else "a\ufffdb")
    lone = text("\ud83d", index=1) + event("reasoning_text.delta", output_index=2, delta="\ud83d")
    lone += event("reasoning_summary_text.delta", output_index=3, summary_index=0, delta="x\ud83d")
    ended = mend(created() + lone + completed())
    assert (texts(ended), texts(ended, ReasoningDelta)) == ("\ufffd", "x\ufffd\ufffd")


def test_a_torn_frame_says_so_until_the_other_half_has_come() -> None:
    """Nobody may go on behind it."""
    mender = ResponsesMender()
    (torn,) = mend(text("a\ud83d"), mender)
    (whole,) = mend(text("\ude80"), mender)
    assert (torn.mend, whole.mend) == (2, 0)
    assert json.loads(torn.data)["delta"] == "a"


# --- calls ---------------------------------------------------------------------------------------


def calls(frames: Sequence[Frame]) -> list[tuple[str, str, str]]:
    """The calls in some frames: id, name, arguments; each has ended."""
    found: dict[int, list[str]] = {}
    ended = set()
    for frame in frames:
        for each in frame.events:
            if isinstance(each, ToolDelta):
                assert each.index is not None
                known = found.setdefault(each.index, ["", "", ""])
                for at, piece in enumerate((each.id, each.name, each.arguments)):
                    known[at] += piece or ""
            elif isinstance(each, ToolEnd):
                ended.add(each.index)
    assert ended == set(found)
    return [(each[0], each[1], each[2]) for each in found.values()]


def test_a_call_leaves_whole_in_its_own_events() -> None:
    """And holds what comes behind its beginning."""
    data = spoken_call('{"a"', ":1}")
    mender = ResponsesMender()
    frames: list[Frame] = []
    for frame in read(data):
        frames += mender.mend([frame])
        held = [kind for kind, _, _ in places(frames)]
        assert ("output_item.done" in held) is ("output_item.added" in held)
        assert mender.holding is (bool(mender.held_bytes) or len(frames) > 2)
    assert [frame.data for frame in frames] == [frame.data for frame in read(data)]
    assert calls(frames) == [("call_1", "sail", '{"a":1}')]
    assert mender.finish(Complete())[1].finishes[0].reason == "tool_calls"


@pytest.mark.parametrize(
    "data",
    [
        # the arguments only at the end of the item, of the arguments, or of the response
        added(call()) + done(call('{"a":1}')),
        added(call()) + event("function_call_arguments.done", output_index=0, arguments='{"a":1}') + done(call()),
        completed(call('{"a":1}')),
        # an end that says more than the deltas, or something else
        added(call()) + arguments('{"a"') + done(call('{"a":1}')),
        added(call()) + arguments('{"a":1}') + done(call('{"b":2}')),
        # an end that says no arguments, or an object
        added(call()) + arguments('{"a":1}') + done(call(None)),  # type: ignore[arg-type]
        added(call()) + event("function_call_arguments.done", output_index=0, arguments=5) + done(call({"a": 1})),  # type: ignore[arg-type]
        # nobody began it, or said its name there
        arguments('{"a":1}') + done(call('{"a":1}')),
        added(call(name="")) + arguments('{"a":1}') + done(call('{"a":1}')),
        # nobody said its end
        added(call()) + arguments('{"a":1}') + completed(),
    ],
)  # fmt: skip
def test_a_call_that_came_otherwise_leaves_in_three_events(data: bytes) -> None:
    """Its beginning, all of its arguments, its end."""
    frames = [f for f in mend(data) if "created" not in f.data.decode()]
    assert calls(frames) == [("call_1", "sail", '{"a":1}')]
    assert [kind for kind, _, _ in places(frames)][:3] == [
        "output_item.added",
        "function_call_arguments.delta",
        "output_item.done",
    ]
    begun, piece, over = (json.loads(frame.data) for frame in frames[:3])
    assert (begun["item"]["arguments"], begun["item"]["status"]) == ("", "in_progress")
    assert piece["delta"] == over["item"]["arguments"] == '{"a":1}'


def test_a_call_without_an_id_gets_one_of_its_own() -> None:
    """The same each time; unknown members stay."""
    data = created() + added(call(call_id="", x=1)) + done(call("{}", call_id="", x=1))
    data += added(call(call_id="", item="fc_2"), 1) + done(call("{}", call_id="", item="fc_2"), 1)
    frames = mend(data)
    (first, *_), (second, *_) = calls(frames)
    assert first != second
    assert first.startswith("call_")
    assert calls(mend(data)) == calls(frames)
    assert json.loads(frames[2].data)["item"]["x"] == 1


def test_half_a_character_in_arguments_is_mended() -> None:
    """The two halves come together in the one delta."""
    halves = arguments('{"a":"\ud83d') + arguments('\ude80"}')
    frames = mend(added(call()) + halves + done(call('{"a":"\U0001f680"}')))
    assert calls(frames) == [("call_1", "sail", '{"a":"\U0001f680"}')]


def test_a_custom_call_is_free_text() -> None:
    """Under its own names; an empty piece is none."""
    item = {"id": "ct_1", "type": "custom_tool_call", "call_id": "c", "name": "patch", "input": ""}
    pieces = event("custom_tool_call_input.delta", output_index=0, delta="*** ")
    empty = event("custom_tool_call_input.delta", output_index=0, delta="")
    over = {**item, "input": "*** ", "status": "completed"}
    frames = mend(added(item) + empty + pieces + done(over) + completed(over))
    assert calls(frames) == [("c", "patch", "*** ")]
    assert all(e.custom for f in frames for e in f.events if isinstance(e, ToolDelta))
    said = event("custom_tool_call_input.done", output_index=0, input="*** ")
    assert calls(mend(added(item) + said + done(over)))[0][2] == "*** "


@pytest.mark.parametrize(
    ("data", "left"),
    [
        (added(call()) + arguments('{"a":'), []),
        (added(call()) + arguments('{"a":1}'), ["call_1"]),
        (added(call()) + arguments('{"a":') + done(call('{"a":')), ["call_1"]),
    ],
)
def test_a_call_that_a_ceiling_cut_is_left_out(data: bytes, left: list[str]) -> None:
    """What leads to it stays; one that is whole leaves; one that its provider calls over is for a filter to judge."""
    frames = mend(created() + text("I will.", index=5) + data + completed(status="incomplete"))
    assert texts(frames) == "I will."
    assert [name for name, _, _ in calls(frames)] == left
    item = {"id": "ct", "type": "custom_tool_call", "call_id": "c", "name": "p", "input": "x"}
    open_call = added(item) + completed({**item, "status": "incomplete"}, status="incomplete")
    assert calls(mend(created() + open_call)) == []
    closed = added(item) + completed({**item, "status": "completed"}, status="incomplete")
    assert calls(mend(created() + closed)) == [("c", "p", "x")]


@pytest.mark.parametrize(
    ("pieces", "ceiling", "reason"),
    [
        ('{"a":', 4, "length"),
        ('{"a":', 5, "tool_calls"),
        ('{"a":', None, "tool_calls"),
        ('{"a":1}', 4, "tool_calls"),
    ],
)
def test_a_ceiling_that_was_reached_is_the_end(
    pieces: str, ceiling: int | None, reason: str
) -> None:
    """Whatever the provider calls it, where the last call's arguments end early."""
    data = created() + added(call()) + arguments(pieces)
    for end in (completed(), completed(call(pieces))):
        assert facts_of(data + end, ceiling=ceiling).finishes[0].reason == reason
    words = created() + text("a") + completed()
    assert facts_of(words, ceiling=4).finishes[0].reason == "stop"


# --- facts, and what another attempt needs -------------------------------------------------------


def test_the_end_becomes_facts() -> None:
    """Usage as it was reported, and one identity."""
    mender = ResponsesMender()
    mend(answer("Hi"), mender)
    facts = mender.finish(Complete())[1]
    assert (facts.finishes[0].reason, json.loads(facts.usage)["output_tokens"]) == ("stop", 4)
    assert mender.identity == Identity("resp_up", 5)
    cut = facts_of(created() + text("a") + completed(status="incomplete"))
    assert cut.finishes[0].reason == "length"


@pytest.mark.parametrize(
    ("kind", "content"),
    [
        ("image_generation_call", True),
        ("computer_call", True),
        ("web_search_call", False),
        ("mcp_list_tools", False),
        ("shell_call_output", False),
    ],
)
def test_a_whole_item_of_another_kind_may_be_the_answer(kind: str, *, content: bool) -> None:
    """A picture, or a call that the caller carries out; not what a provider does on its way."""
    item = {"type": kind, "id": "x"}
    frames = mend(added(item) + done(item))
    assert (OutputItem(0) in frames[-1].events) is content


def test_an_answer_goes_on_in_its_message() -> None:
    """The new attempt's first message is the one that stands open, and its part goes on; items behind it are new."""
    before = ResponsesMender()
    mend(created() + added(thought(), 0) + done(thought("Hm."), 0) + text("One", index=1), before)
    assert not before.holding
    after = ResponsesMender(before=before)
    frames = mend(created() + added(message(name="other")) + text(" two", item="other"), after)
    assert places(frames)[2:] == [("output_item.added", 1, -1), ("output_text.delta", 1, 0)]
    more = mend(added(message(name="third"), 1) + text("x", index=1, item="third"), after)
    assert [place[1] for place in places(more)] == [2, 2]
    assert places(mend(completed(), ResponsesMender(before=before))) == [("completed", -1, -1)]


@pytest.mark.parametrize(
    "data",
    [
        text("a") + done(message("a")) + text("b", index=1, item="msg_2"),
        added({"type": "web_search_call", "id": "w"}) + text("a", index=1),
        added(call()),
        text("a") + added(call(), 1) + done(call("{}"), 1),
    ],
)
def test_an_answer_with_anything_else_can_not_be_taken_up(data: bytes) -> None:
    """A second message, a tool of the provider's, a call."""
    mender = ResponsesMender()
    mend(created() + data, mender)
    assert mender.holding


def test_think_tags_are_taken_out() -> None:
    """The thought is called one; what is held for a tag is in the ledger, and goes at the end."""
    mender = ResponsesMender(tags=ThinkTags("reasoning_content"))
    frames = mend(created() + text("<think>Hm.</think>Yes") + text("<"), mender)
    assert (texts(frames), texts(frames, ReasoningDelta)) == ("Yes", "Hm.")
    assert mender.held_bytes > 0
    assert mender.ledger_bytes > mender.held_bytes
    mend(completed(), mender)
    last, _ = mender.finish(Complete())
    assert texts(last) == "<"
    assert places(last)[-1][0] == "completed"


def test_what_is_dropped_is_in_no_ledger() -> None:
    """Nor ever released."""
    mender = ResponsesMender()
    mend(created() + added(call()) + arguments("{"), mender)
    assert mender.ledger_bytes > mender.held_bytes > 0
    mender.drop()
    assert (mender.held_bytes, mender.ledger_bytes) == (0, 0)
    assert mend(done(call("{}"))) != []
