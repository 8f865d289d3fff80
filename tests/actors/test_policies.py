"""What a route may ask for of its answers, through the whole exchange: the caller sees it mended, or another attempt's."""

from __future__ import annotations

import json
from typing import Any

import pytest
import trio

from gate.config import RecoveryConfig
from gate.observe import Outcome
from tests.doubles import (
    DONE,
    JSON,
    ROLE,
    Answer,
    Read,
    RecordingCaller,
    ScriptedProvider,
    delta,
    gateway,
    healthy,
    left_behind,
    request,
    says,
    supervise,
    text,
    whole,
)


async def played(
    *scripts: list[Answer], body: bytes = b"", attempts_max: int = 3, **policy: Any
) -> tuple[Outcome, RecordingCaller]:
    """One exchange over providers with these scripts, under a route with this policy; everything is given back."""
    recovery = RecoveryConfig(attempts_max=attempts_max)
    caller = RecordingCaller(body or request())
    gate = gateway(*(ScriptedProvider(*script) for script in scripts), recovery=recovery, **policy)
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


# --- answers to a request with a format ------------------------------------------------------------

NAMES = ("empty", "structured_output")
FORMAT = {"type": "json_object"}


@pytest.mark.parametrize("stream", [True, False])
async def test_an_answer_in_a_fence_leaves_without_it(stream: bool) -> None:
    """Without another attempt."""
    body = request(stream=stream, response_format=FORMAT)
    outcome, caller = await played(
        [healthy("``", "`json\n", '{"a": "`', '``"}', "\n```")], body=body, filters=NAMES
    )
    assert outcome.attempts == 1
    received = caller.received.decode()
    said = caller.text if stream else json.loads(received)["choices"][0]["message"]["content"]
    assert said == '{"a": "```"}'


async def test_an_answer_that_can_not_become_json_is_not_waited_for(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Its attempt ends with the word that makes it so."""
    began = trio.current_time()
    prose = healthy("Sure! ", *["Here it is. "] * 20, every=1.0)
    outcome, caller = await played(
        [prose, healthy("{}")], body=request(response_format=FORMAT), filters=NAMES
    )
    assert (outcome.attempts, caller.text) == (2, "{}")
    assert trio.current_time() - began < 5


@pytest.mark.parametrize("answer", [
    says(ROLE, text('{"a'), delta({}, finish="stop", usage={"completion_tokens": 5}), DONE),
    Answer([Read(json.dumps({**json.loads(whole('{"a')), "usage": {"completion_tokens": 5}}).encode())], headers=JSON),
])  # fmt: skip
@pytest.mark.parametrize("stream", [True, False])
async def test_json_that_was_cut_at_the_ceiling_ends_with_length(
    answer: Answer, stream: bool
) -> None:
    """It is the answer, whatever the provider called its end."""
    body = request(stream=stream, response_format=FORMAT, max_tokens=5)
    outcome, caller = await played([answer], body=body, filters=NAMES)
    assert outcome.attempts == 1
    assert '"finish_reason":"length"' in caller.received.decode()
    assert '"stop"' not in caller.received.decode()


# --- strict output ---------------------------------------------------------------------------------


async def test_a_strict_route_wants_nothing_beside_the_answer(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Switched on by its key; the repair says what was wrong, and a chat is free to say anything."""
    body = request(response_format=FORMAT)
    strict: dict[str, Any] = {"structured_output": "check", "output_policy": "strict"}
    scripts = [healthy("``", "`json\n{}\n```"), healthy("{}")]
    outcome, caller = await played(scripts, body=body, **strict)
    assert (outcome.attempts, caller.text) == (2, "{}")
    outcome, caller = await played([healthy("<think>a</think>b")], output_policy="strict")
    assert (outcome.attempts, caller.text) == (1, "<think>a</think>b")
    outcome, _ = await played([healthy("```{}```")], body=body, attempts_max=1, **strict)
    assert (outcome.status, outcome.code) == (502, "output_fenced")


async def test_what_a_route_mends_is_gone_before_it_is_judged() -> None:
    """Tags and a fence, under a strict policy."""
    said = healthy("<think>Hm.</think>\n", "```json\n{}", "\n```")
    outcome, caller = await played(
        [said],
        body=request(response_format=FORMAT),
        filters=NAMES,
        think_tags=True,
        output_policy="strict",
    )
    assert (outcome.attempts, caller.text) == (1, "{}")
