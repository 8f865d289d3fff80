"""Tool calls end to end: the caller sees whole, good calls; a bad one leads to another attempt or to an error, and is never seen."""

from __future__ import annotations

import json
from typing import Any

import pytest
import trio

from gate.config import RecoveryConfig
from gate.observe import Outcome
from tests.assembly import Answer as Seen
from tests.assembly import Call, read_object, read_stream
from tests.calling import begin, calling, end, entry, payload
from tests.doubles import (
    Answer,
    RecordingCaller,
    ScriptedProvider,
    gateway,
    left_behind,
    request,
    says,
    supervise,
)

PATH = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
TOOLS = [{"type": "function", "function": {"name": "get_file", "parameters": PATH}}]
GOOD = '{"path":"a"}'
CALL = Call("call_get_file", "get_file", GOOD)
ROLE = payload({"role": "assistant", "content": ""})


def answer(*payloads: bytes, done: bool = True) -> Answer:
    """A provider that says this."""
    events = [b"data: %b\n\n" % each for each in (ROLE, *payloads)]
    return says(*events, *([b"data: [DONE]\n\n"] if done else []))


def calls(name: str = "get_file", arguments: str = GOOD) -> Answer:
    """One that makes this call, argument by argument."""
    pieces = [calling(entry(arguments=each)) for each in arguments]
    return answer(calling(begin(0, name)), *pieces, end())


class Run:
    """One exchange over providers with these scripts."""

    def __init__(self, *scripts: list[Answer], stream: bool = True, **members: Any) -> None:
        self.providers = [ScriptedProvider(*script) for script in scripts]
        self.caller = RecordingCaller(request(stream=stream, tools=TOOLS, **members))
        self.stream = stream

    async def play(self, **recovery: Any) -> Outcome:
        """To its end, with everything given back."""
        filters = ("empty", "tool_calls")
        gate = gateway(*self.providers, filters=filters, recovery=RecoveryConfig(**recovery))
        outcome = await supervise(gate, self.caller)
        assert left_behind(gate) == []
        return outcome

    @property
    def seen(self) -> Seen:
        """What the caller makes of it."""
        streamed = self.caller.headers[b"content-type"].startswith(b"text/event-stream")
        return (read_stream if streamed else read_object)(self.caller.received)


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "json"])
@pytest.mark.parametrize(
    ("bad", "told"),
    [
        (calls("nobody"), "get_file"),
        (calls(arguments='{"path":7}'), "/path"),
        (calls(arguments='{"path":"a"'), "json"),
        (answer(payload({"content": "<tool_call>get_file {}"}), end("stop")), "markup"),
    ],
    ids=["unknown", "schema", "json", "text"],
)
async def test_a_bad_call_is_asked_for_again_with_what_was_wrong(
    bad: Answer, told: str, autojump_clock: trio.testing.MockClock, *, stream: bool
) -> None:
    """At the same provider; the caller sees the second answer alone."""
    run = Run([bad, calls()], [], stream=stream)
    outcome = await run.play()
    assert (outcome.code, outcome.attempts) == ("", 2)
    (choice,) = run.seen.choices.values()
    assert (list(choice.calls.values()), choice.text, choice.finishes) == ([CALL], "", ["tool_calls"])  # fmt: skip
    asked = [json.loads(each.body) for each in run.providers[0].asked]
    assert told in asked[1]["messages"][-1]["content"]
    assert asked[1]["tools"] == asked[0]["tools"]


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "json"])
async def test_where_every_call_is_bad_the_caller_gets_an_error(
    autojump_clock: trio.testing.MockClock, *, stream: bool
) -> None:
    """With its status, and nothing of the calls."""
    run = Run([calls(arguments="{"), calls(arguments="[")], [calls(arguments="{")], stream=stream)
    outcome = await run.play()
    assert (outcome.code, outcome.status, outcome.attempts) == ("tool_arguments_json", 502, 3)
    assert run.seen.error["type"] == "tool_validation_error"
    assert run.seen.choices == {}


async def test_a_bad_call_behind_text_that_was_seen_ends_in_an_error(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Text is not delayed; the call is not shown, and nothing follows it."""
    text = payload({"content": "I look."})
    run = Run([answer(text, calling(begin(0, "nobody", GOOD)), end())], [calls()])
    outcome = await run.play()
    assert (outcome.code, outcome.attempts) == ("tool_unknown", 1)
    assert not run.seen.clean
    (choice,) = run.seen.choices.values()
    assert (choice.text, choice.calls, choice.finishes) == ("I look.", {}, [])


async def test_a_call_that_breaks_off_is_made_by_the_next_provider(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Half of it was held, so nothing was seen."""
    run = Run([answer(calling(begin()), done=False)], [calls()])
    assert (await run.play()).code == ""
    assert list(run.seen.choices[0].calls.values()) == [CALL]


async def test_a_forced_call_that_does_not_come_is_asked_for_again(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """The text in its place waited."""
    text = answer(payload({"content": "I can't."}), end("stop"))
    run = Run([text, calls()], [], tool_choice="required")
    assert (await run.play()).code == ""
    assert (run.seen.choices[0].text, list(run.seen.choices[0].calls.values())) == ("", [CALL])


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "json"])
async def test_a_call_at_the_callers_ceiling_is_left_out(
    autojump_clock: trio.testing.MockClock, *, stream: bool
) -> None:
    """An answer that was cut, whatever the provider says."""
    cut = answer(payload({"content": "I look."}), calling(begin(0, "get_file", '{"pa')), end(usage={"completion_tokens": 5}))  # fmt: skip
    run = Run([cut], [], stream=stream, max_tokens=5)
    assert (await run.play()).code == ""
    (choice,) = run.seen.choices.values()
    assert (choice.text, choice.calls, choice.finishes) == ("I look.", {}, ["length"])
