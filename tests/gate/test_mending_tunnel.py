"""The tunnel's step of mending: what leaves are the provider's bytes, and with them the events of what the other steps would have let go."""

from __future__ import annotations

import json
from typing import Any

from gate.events import (
    Complete,
    Event,
    Facts,
    Finish,
    FinishFact,
    Frame,
    RawDelta,
    ReasoningDelta,
    RoleDelta,
    TextDelta,
    ToolDelta,
    ToolEnd,
)
from gate.evidence import FRAME_OVERHEAD_BYTES
from gate.filters.contract import FilterContext
from gate.mending import ChatMender
from gate.mending_format import FormatMender
from gate.mending_think import ThinkTags
from gate.mending_tunnel import Observer, TunnelMender
from gate.openai import frame_of
from gate.unmended import ASIDE, THOUGHTS


def frame(delta: dict[str, Any] | None = None, *, finish: str | None = None, choice: int = 0, usage: object = None) -> Frame:  # fmt: skip
    """One frame; its raw bytes are its payload in upper case, which no step could have made."""
    value = {
        "id": "c",
        "choices": [{"index": choice, "delta": delta or {}, "finish_reason": finish}],
        "usage": usage,
    }
    data = json.dumps(value).encode()
    made = frame_of(value, data, len(data))
    return Frame(made.data, made.events, made.size, made.mend, raw=data.upper())


def said(text: str, choice: int = 0) -> Frame:
    """A frame of text."""
    return frame({"content": text}, choice=choice)


def mender(*, choices: int = 1, tags: bool = False, copy: bool = False) -> TunnelMender:
    """Over the steps of chat."""
    steps = ChatMender(choices=choices, tags=ThinkTags("reasoning") if tags else None)
    return TunnelMender(steps, choices=choices, keeps_copy=copy)


def events(frames: list[Frame]) -> list[tuple[Event, ...]]:
    """Of each frame."""
    return [each.events for each in frames]


def test_a_frame_leaves_with_the_providers_bytes() -> None:
    """One by one, also where mending would have left nothing of it."""
    role, text, spent = frame({"role": "assistant", "content": ""}), said("hi"), frame(usage={"total_tokens": 3})  # fmt: skip
    tunnel = mender()
    left = tunnel.mend([role, text, spent])
    assert [(each.data, each.size) for each in left] == [
        (each.raw, each.size) for each in (role, text, spent)
    ]
    assert events(left) == [(RoleDelta(0, "assistant"),), (TextDelta(0, "hi"),), ()]
    assert (tunnel.held_bytes, tunnel.ledger_bytes, tunnel.holding) == (0, 0, False)
    assert tunnel.usage == b'{"total_tokens": 3}'


def test_what_the_steps_hold_leaves_as_one() -> None:
    """So no byte goes before what it says was judged."""
    frames = [said("a<th"), said("ink"), said("b")]
    tunnel = mender(tags=True)
    assert tunnel.mend(frames[:2]) == []
    assert tunnel.holding
    assert tunnel.held_bytes == frames[0].size + frames[1].size
    assert tunnel.ledger_bytes > tunnel.held_bytes
    (left,) = tunnel.mend(frames[2:])
    assert left.data == b"".join(each.raw for each in frames)
    assert left.size == sum(each.size for each in frames)
    assert left.events == (TextDelta(0, "a<th"), TextDelta(0, "ink"), TextDelta(0, "b"))
    thought = mender(tags=True)
    assert events(thought.mend([said("<think>hm</think>")])) == [(ReasoningDelta(0, "hm"),)]


def test_a_call_is_whole_when_it_leaves() -> None:
    """With the event that says so, in the provider's bytes, ambiguous spelling and all."""
    first = frame({"tool_calls": [{"id": "x", "function": {"name": "f", "arguments": "{"}}]})
    second = frame({"tool_calls": [{"function": {"arguments": "}"}}]})
    stop = frame(finish="tool_calls")
    tunnel = mender()
    assert tunnel.mend([first, second, stop]) == []
    left, facts = tunnel.finish(Complete())
    assert b"".join(each.data for each in left) == first.raw + second.raw + stop.raw
    kinds = [type(event) for each in left for event in each.events]
    assert kinds == [ToolDelta, ToolEnd]
    assert facts.finishes == (FinishFact(0, "tool_calls"),)


def test_the_last_finish_and_what_follows_wait_for_the_end() -> None:
    """Not the first of two; and what is held is counted twice, with its copy."""
    frames = [said("a"), frame(finish="stop", choice=1), said("b"), frame({"content": "c"}, finish="stop"), frame(usage={"total_tokens": 3})]  # fmt: skip
    tunnel = mender(choices=2)
    assert [each.data for each in tunnel.mend(frames)] == [each.raw for each in frames[:3]]
    size = frames[3].size + frames[4].size
    assert (tunnel.held_bytes, tunnel.ledger_bytes) == (size, 2 * size + 2 * FRAME_OVERHEAD_BYTES)
    left, facts = tunnel.finish(Complete())
    assert [each.data for each in left] == [each.raw for each in frames[3:]]
    assert events(left) == [(TextDelta(0, "c"),), ()]
    assert facts.usage == b'{"total_tokens": 3}'
    assert (tunnel.held_bytes, tunnel.ledger_bytes) == (0, 0)


def test_a_call_that_is_left_out_is_judged_as_a_text() -> None:
    """Its bytes leave with the rest, since the answer ended before it was whole."""
    first = frame(
        {"tool_calls": [{"index": 0, "id": "x", "function": {"name": "f", "arguments": "{"}}]}
    )
    second, stop = frame({"tool_calls": [{"index": 0, "function": {"arguments": "secret"}}]}), frame(finish="length")  # fmt: skip
    tunnel = mender()
    assert tunnel.mend([first, second, stop]) == []
    left, facts = tunnel.finish(Complete())
    assert b"".join(each.data for each in left) == first.raw + second.raw + stop.raw
    assert [event for each in left for event in each.events] == [TextDelta(ASIDE + 1, "{secret")]
    assert facts.finishes == (FinishFact(0, "length"),)


def test_half_a_character_at_the_end_is_judged_without_bytes_of_its_own() -> None:
    """The provider's went with its frame."""
    half = frame_of({"choices": [{"delta": {"content": "\ud83d"}}]}, b'{"choices":[{"delta":{"content":"\\ud83d"}}]}', 40)  # fmt: skip
    tunnel = mender()
    (left,) = tunnel.mend([Frame(half.data, half.events, half.size, half.mend, raw=b"raw")])
    assert left.data == b"raw"
    (rest,), _ = tunnel.finish(Complete((Finish(0, "stop", ""),)))
    assert (rest.data, rest.events) == (b"", (TextDelta(0, "\ufffd"),))


def test_what_is_dropped_is_gone() -> None:
    """Held frames, their copies, and what the steps hold."""
    for copy in (True, False):
        tunnel = mender(tags=True, copy=copy)
        tunnel.mend([said("a"), said("<"), frame(finish="stop")])
        tunnel.drop()
        assert (tunnel.held_bytes, tunnel.ledger_bytes, tunnel.holding) == (0, 0, False)
        assert repr(tunnel) == "TunnelMender(0 bytes held)"


def settled(*frames: Frame) -> tuple[bool, list[Frame]]:
    """What the last step makes of an answer that was to be JSON."""
    tunnel = mender(copy=True)
    left = tunnel.mend([*frames, frame(finish="stop")])
    assert tunnel.ledger_bytes > 0
    rest, facts = tunnel.finish(Complete())
    context = FilterContext(1, {"type": "json_object"}, "repair")
    result = tunnel.settle(FormatMender(context, "reasoning"), [*left, *rest], facts)
    return result.changed, result.frames


def test_the_last_step_runs_over_the_copy() -> None:
    """Where it changed something, all frames become one: the filters see the mended text, the caller the provider's bytes."""
    good, fenced = [said('{"a"'), said(":1}")], [said("```json\n"), said('{"a":1}'), said("\n```")]
    changed, frames = settled(*good)
    assert (changed, len(frames)) == (False, 3)
    changed, (whole,) = settled(*fenced)
    assert changed
    assert whole.data == b"".join(each.raw for each in (*fenced, frame(finish="stop")))
    assert whole.events == (TextDelta(0, '{"a":1}'),)
    beside = [frame({"reasoning": "a", "reasoning_content": "b"}), *fenced]
    _, (whole,) = settled(*beside)
    assert ReasoningDelta(THOUGHTS, "a") in whole.events


def test_nothing_is_done_to_what_nobody_reads() -> None:
    """Every frame leaves as it comes; there is no last finish to wait for."""
    tunnel = TunnelMender(Observer(), choices=0)
    piece = Frame(b"{}", (RawDelta(),), 3, raw=b"raw")
    (left,) = tunnel.mend([piece])
    assert (left.data, left.events) == (b"raw", (RawDelta(),))
    assert (tunnel.identity, tunnel.usage, tunnel.holding) == (None, b"", False)
    tunnel.drop()
    assert tunnel.finish(Complete()) == ([], Facts())
