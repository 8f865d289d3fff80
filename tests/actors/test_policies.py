"""What a route may ask for of its answers, through the whole exchange: the caller sees it mended, or another attempt's."""

from __future__ import annotations

import json
from typing import Any

import trio

from gate.observe import Outcome
from tests.doubles import (
    Answer,
    RecordingCaller,
    ScriptedProvider,
    gateway,
    healthy,
    left_behind,
    request,
    supervise,
)


async def played(
    *scripts: list[Answer], body: bytes = b"", **policy: Any
) -> tuple[Outcome, RecordingCaller]:
    """One exchange over providers with these scripts, under a route with this policy; everything is given back."""
    caller = RecordingCaller(body or request())
    gate = gateway(*(ScriptedProvider(*script) for script in scripts), **policy)
    outcome = await supervise(gate, caller)
    assert left_behind(gate) == []
    return outcome, caller


# --- think tags ----------------------------------------------------------------------------------


async def test_think_tags_become_reasoning_where_the_route_says_so() -> None:
    """And stay where it does not."""
    said = healthy("<th", "ink>\nHm.\n</", "think>\n\n", "Yes.")
    _, caller = await played([said], think_tags=True)
    assert caller.text == "Yes."
    assert '"reasoning_content":"Hm."' in caller.received.decode()
    _, caller = await played([said])
    assert caller.text == "<think>\nHm.\n</think>\n\nYes."


async def test_a_caller_that_does_not_stream_gets_its_reasoning_apart() -> None:
    """In one message."""
    said = healthy("<think>Hm.", "</think>Yes.")
    _, caller = await played([said], body=request(stream=False), think_tags=True)
    message = json.loads(caller.received)["choices"][0]["message"]
    assert (message["reasoning_content"], message["content"]) == ("Hm.", "Yes.")


async def test_an_answer_that_never_got_beyond_thinking_is_none(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """The next provider is asked, and nothing of the first is seen."""
    outcome, caller = await played([healthy("<think>Hm.")], [healthy("Yes.")], think_tags=True)
    assert (outcome.attempts, caller.text) == (2, "Yes.")
    assert "Hm." not in caller.received.decode()
