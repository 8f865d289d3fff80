"""Exchanges of the Responses API: held answers are made good, a stream that has begun is one response to its end, and providers are asked as the caller asked."""

from __future__ import annotations

import json
from typing import Any, Literal

import pytest
import trio

from gate.config import ClocksConfig, HoldConfig, LimitsConfig, RecoveryConfig
from gate.endpoints import RESPONSES
from gate.errors import UpstreamFault
from gate.observe import Outcome, What
from tests.assembly_responses import Answer as Seen
from tests.assembly_responses import read_events, texts_of
from tests.doubles import (
    JSON,
    Answer,
    Read,
    RecordingCaller,
    Records,
    ScriptedProvider,
    fails,
    gateway,
    left_behind,
    refuses,
    says,
    supervise,
)
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
)

WORDS = ("The", " quick", " brown", " fox", " jumps", " over", " it.")
ALL = "".join(WORDS)
TOOL = {
    "type": "function",
    "name": "sail",
    "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
}


def request(**members: Any) -> bytes:
    """A request for a stream."""
    return json.dumps({"model": "small", "input": "Hi", "stream": True, **members}).encode()


def lost(*pieces: bytes) -> Answer:
    """An answer that breaks off behind these pieces."""
    return says(created(), *pieces, then=[Read(fault=UpstreamFault.CUT)])


def healthy(*words: str) -> Answer:
    """An answer of one message, event by event."""
    return says(*(piece + b"\n\n" for piece in answer(*words).split(b"\n\n")[:-1]))


class Run:
    """One exchange over providers with these scripts."""

    def __init__(
        self,
        *scripts: list[Answer],
        body: bytes = b"",
        hold: HoldConfig | None = None,
        filters: tuple[str, ...] = ("empty", "tool_calls", "structured_output"),
        limits: LimitsConfig | None = None,
        capabilities: tuple[str, ...] = ("responses", "tools", "json_schema"),
        prefill: Any = "none",
        paths: Any = (),
        tables: Any = None,
        **recovery: Any,
    ) -> None:
        self.records = Records()
        self.providers = [ScriptedProvider(*script) for script in scripts]
        self.body = body or request()
        self.caller = RecordingCaller(self.body)
        self.gate = gateway(
            *self.providers,
            hold=hold,
            clocks=ClocksConfig(gap_seconds=5),
            recovery=RecoveryConfig(**recovery),
            limits=limits,
            capabilities=capabilities,
            prefill=prefill,
            paths=paths,
            filters=filters,
            tables=tables,
            records=self.records,
        )

    async def play(self) -> Outcome:
        """To its end, with everything given back."""
        outcome = await supervise(self.gate, self.caller, endpoint=RESPONSES.path)
        assert left_behind(self.gate) == []
        assert self.records.crashes == []
        return outcome

    async def whole(self, attempts: int = 1) -> Seen:
        """What a caller makes of a success."""
        outcome = await self.play()
        assert (outcome.code, outcome.attempts, outcome.framing) == ("", attempts, "responses_sse")
        seen = read_events(self.caller.received)
        assert seen.response["status"] in {"completed", "incomplete"}
        assert seen.response["model"] == "small"
        return seen

    def asked(self, provider: int = 0, attempt: int = 0) -> Any:
        """A request that a provider got."""
        return json.loads(self.providers[provider].asked[attempt].body)


async def test_an_answer_goes_through(autojump_clock: trio.abc.Clock) -> None:
    """At the provider's own path, with the caller's own bytes but for the model."""
    run = Run([healthy(*WORDS)], body=request(metadata={"a": 1}, store=True))
    seen = await run.whole()
    assert (seen.text, texts_of(seen.response)) == (ALL, {"output_text": ALL})
    asked = run.providers[0].asked[0]
    assert asked.path == "/responses"
    assert asked.body == run.body.replace(b'"small"', b'"model-0"')
    assert seen.response["id"] == "resp_up"
    assert run.caller.headers[b"content-type"].startswith(b"text/event-stream")


@pytest.mark.parametrize(
    "broken",
    [
        lost(),
        lost(added(message())),
        says(created(), event("failed", response=response("failed"))),
        says(created(), event("error", code="server_error", message="m")),
        says(created(), text("a "), then=[Read(fault=UpstreamFault.CUT)]),
        says(created(), completed()),
        fails(UpstreamFault.RESET),
        refuses(503),
    ],
)
async def test_what_fails_before_anything_was_seen_is_made_good(
    broken: Answer, autojump_clock: trio.abc.Clock
) -> None:
    """By the next provider, from the caller's own bytes; one beginning, one id."""
    hold = HoldConfig(opening_chars=3)
    run = Run([broken, broken], [healthy(*WORDS)], hold=hold, backoff_seconds=0)
    outcome = await run.play()
    seen = read_events(run.caller.received)
    assert (outcome.code, seen.text, seen.response["status"]) == ("", ALL, "completed")
    assert run.providers[1].asked[0].body == run.body.replace(b'"small"', b'"model-1"')


async def test_without_another_attempt_an_error_has_its_own_status(
    autojump_clock: trio.abc.Clock,
) -> None:
    """In OpenAI's envelope."""
    run = Run([lost(added(message()))], attempts_max=1)
    outcome = await run.play()
    assert (outcome.status, outcome.code) == (502, "stream_cut")
    assert json.loads(run.caller.received)["error"]["code"] == "stream_cut"


async def test_a_stream_that_breaks_says_that_it_failed(autojump_clock: trio.abc.Clock) -> None:
    """Under the same id, with the next number, and with what was seen."""
    run = Run([lost(added(message()), *map(text, WORDS[:3]))])
    outcome = await run.play()
    assert (outcome.status, outcome.code) == (200, "stream_cut")
    seen = read_events(run.caller.received)
    assert (seen.response["status"], seen.response["id"]) == ("failed", "resp_up")
    assert seen.response["error"]["code"] == "server_error"
    assert texts_of(seen.response) == {"output_text": "The quick brown"}


async def test_an_answer_goes_on_at_another_attempt(autojump_clock: trio.abc.Clock) -> None:
    """The provider is told with one item more that it has begun; the caller sees one message, and the usage of both."""
    broken = lost(added(message()), *map(text, WORDS[:5]))
    rest = healthy(" over", " it.")
    window = HoldConfig(mode="window", tail_chars=8)
    body = request(max_output_tokens=100, tools=[TOOL])
    run = Run([broken], [rest], body=body, hold=window, prefill="vllm")
    seen = await run.whole(2)
    assert (seen.text, texts_of(seen.response)) == (ALL, {"output_text": ALL})
    assert len(seen.items) == 1
    asked = run.asked(1)
    assert asked["input"][0] == {"type": "message", "role": "user", "content": "Hi"}
    kept = asked["input"][1]
    assert (kept["role"], kept["status"]) == ("assistant", "incomplete")
    assert ALL.startswith(kept["content"][0]["text"])
    assert asked["max_output_tokens"] < 100
    assert seen.response["usage"]["output_tokens"] > 4
    counts = {name for name, value in seen.response["usage"].items() if isinstance(value, int)}
    assert counts == {"input_tokens", "output_tokens", "total_tokens"}


@pytest.mark.parametrize("members", [{"store": True}, {"previous_response_id": "resp_0"}])
@pytest.mark.parametrize("mode", ["buffered", "live"])
async def test_an_answer_that_a_provider_keeps_is_asked_for_again_as_it_was(
    mode: Literal["buffered", "live"], members: dict[str, Any], autojump_clock: trio.abc.Clock
) -> None:
    """The next one would be asked from an id under which half of it is kept; what has been seen of it breaks off in an error."""
    broken, body = lost(added(message()), *map(text, WORDS[:5])), request(**members)
    run = Run([broken], [healthy(*WORDS)], body=body, hold=HoldConfig(mode=mode), prefill="vllm")
    if mode == "live":
        await run.play()
        assert read_events(run.caller.received).response["status"] == "failed"
        assert run.providers[1].asked == []
    else:
        assert (await run.whole(2)).text == ALL
        assert run.providers[1].asked[0].body == run.body.replace(b'"small"', b'"model-1"')


async def test_what_is_said_twice_is_seen_once(autojump_clock: trio.abc.Clock) -> None:
    """A server that begins with the end of what it was given."""
    broken = lost(added(message()), *map(text, WORDS[:5]))
    window = HoldConfig(mode="window", tail_chars=8)
    rest = healthy("brown fox ju", "mps over", " it.")
    run = Run([broken], [rest], hold=window, prefill="vllm")
    seen = await run.whole(2)
    assert (seen.text, texts_of(seen.response)) == (ALL, {"output_text": ALL})
    assert run.records.codes(What.SEAM) == ["seam_overlap"]


@pytest.mark.parametrize(
    "members",
    [
        {"text": {"format": {"type": "json_object"}}},
        {"tool_choice": "required", "tools": [TOOL]},
        {"include": ["message.output_text.logprobs"]},
        {"top_logprobs": 2},
        {"input": [{"role": "assistant", "content": "Half"}]},
    ],
)
async def test_what_can_not_go_on_ends(
    members: dict[str, Any], autojump_clock: trio.abc.Clock
) -> None:
    """A grammar, a forced call, log probabilities, a request that ends in an answer itself."""
    broken = lost(added(message()), text('{"a": 1'), *map(text, WORDS))
    window = HoldConfig(mode="window", tail_chars=8)
    run = Run([broken], body=request(**members), hold=window, prefill="vllm", filters=())
    outcome = await run.play()
    assert outcome.code == "stream_cut"
    assert len(run.providers[0].asked) == 1


async def test_a_tool_result_may_be_what_is_answered(autojump_clock: trio.abc.Clock) -> None:
    """The last item has no role."""
    given = [{"type": "function_call_output", "call_id": "c", "output": "7"}]
    broken = lost(added(message()), *map(text, WORDS[:5]))
    window = HoldConfig(mode="window", tail_chars=8)
    run = Run(
        [broken], [healthy(*WORDS[5:])], body=request(input=given), hold=window, prefill="vllm"
    )
    seen = await run.whole(2)
    assert seen.text == ALL
    assert run.asked(1)["input"][:1] == given


@pytest.mark.parametrize(
    "given", ["Hi", [{"role": "user", "content": "Hi"}], None], ids=["text", "items", "nothing"]
)
async def test_a_bad_call_is_asked_for_again(given: object, autojump_clock: trio.abc.Clock) -> None:
    """With what was wrong as one more item behind the caller's input; the caller never sees the bad one."""
    bad, good = spoken_call('{"a":', '"x"}'), spoken_call('{"a":', "7}")
    body = request(input=given, tools=[TOOL], previous_response_id="resp_0")
    run = Run([says(bad), says(good)], body=body)
    seen = await run.whole(2)
    assert seen.said("function_call_arguments") == '{"a":7}'
    assert b"x" not in json.dumps(seen.response["output"]).encode()
    *before, told = run.asked(0, 1)["input"]
    assert told["role"] == "user"
    assert "/a" in told["content"][0]["text"]
    items = [{"type": "message", "role": "user", "content": "Hi"}] if given == "Hi" else given or []
    assert before == items


@pytest.mark.parametrize(
    ("members", "good"),
    [
        ({"tool_choice": {"type": "function", "name": "row"}}, False),
        ({"tool_choice": {"type": "function", "name": "sail"}}, True),
        ({"tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "row"}]}}, False),
        ({"tool_choice": {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "sail"}]}}, True),
        ({"tool_choice": "none"}, False),
        ({"tool_choice": {"type": "web_search"}}, True),
        ({"tools": [{**TOOL, "name": "row"}]}, False),
        ({"tools": [{**TOOL, "name": "row"}, {"type": "web_search"}]}, True),
        ({"tools": [{"type": "custom", "name": "sail"}]}, True),
    ],
)  # fmt: skip
async def test_calls_are_judged_by_the_request(
    members: dict[str, Any], autojump_clock: trio.abc.Clock, *, good: bool
) -> None:
    """Its tools are flat, and so is its choice."""
    body = request(**{"tools": [TOOL, {**TOOL, "name": "row"}], **members})
    run = Run([says(spoken_call('{"a":1}'))], body=body, attempts_max=1)
    outcome = await run.play()
    assert (outcome.code == "") is good
    if not good:
        assert outcome.status == 502


async def test_an_answer_that_has_to_be_json_is_asked_for_again(
    autojump_clock: trio.abc.Clock,
) -> None:
    """With the format that stands in `text`; the notes go under `input`."""
    schema = {"type": "object", "required": ["a"]}
    form = {"type": "json_schema", "name": "x", "schema": schema, "strict": True}
    body = request(text={"format": form})
    run = Run([healthy('{"b":', "1}"), healthy("```json\n", '{"a":1}', "\n```")], body=body)
    seen = await run.whole(2)
    assert (seen.text, texts_of(seen.response)) == ('{"a":1}', {"output_text": '{"a":1}'})
    assert "required" in run.asked(0, 1)["input"][1]["content"][0]["text"]


@pytest.mark.parametrize("members", [{"store": True}, {"previous_response_id": "r"}, {}])
async def test_an_answer_that_a_provider_may_keep_is_noted(
    members: dict[str, Any], autojump_clock: trio.abc.Clock
) -> None:
    """The next attempt asks as the caller asked: what failed is nobody's parent."""
    broken = lost(added(message()))
    run = Run([broken], [healthy(*WORDS)], body=request(**members))
    await run.whole(2)
    noted = [each.attempt for each in run.records.observations if each.what is What.ORPHANED]
    assert noted == ([1] if members else [])
    assert run.providers[1].asked[0].body == run.body.replace(b'"small"', b'"model-1"')


async def test_what_never_began_leaves_nothing_behind(autojump_clock: trio.abc.Clock) -> None:
    """An attempt without a response is no orphan."""
    run = Run([refuses(503), healthy(*WORDS)], body=request(store=True))
    await run.whole(2)
    assert run.records.codes(What.ORPHANED) == []


async def test_one_object_for_a_caller_that_wants_no_stream(autojump_clock: trio.abc.Clock) -> None:
    """From a stream, and from a body; and a body for one that wants a stream."""
    whole = json.dumps(response("completed", message(ALL), error=None)).encode()
    for script in (healthy(*WORDS), Answer([Read(whole)], headers=JSON)):
        run = Run([script], body=request(stream=False))
        outcome = await run.play()
        assert (outcome.code, outcome.framing) == ("", "responses_json")
        got = json.loads(run.caller.received)
        assert (texts_of(got), got["model"], got["id"]) == (
            {"output_text": ALL},
            "small",
            "resp_up",
        )
    seen = await Run([Answer([Read(whole)], headers=JSON)]).whole()
    assert seen.text == ALL


async def test_a_target_has_to_know_the_endpoint(autojump_clock: trio.abc.Clock) -> None:
    """One that does not say so is not asked."""
    run = Run([healthy(*WORDS)], capabilities=("tools",))
    outcome = await run.play()
    assert (outcome.status, outcome.code) == (503, "no_provider")
    assert run.providers[0].asked == []


@pytest.mark.parametrize(
    ("members", "code", "param"),
    [
        ({"background": True}, "unsupported_parameter", "background"),
        ({"input": None}, "missing_required_parameter", "input"),
        ({"input": []}, "invalid_value", "input"),
    ],
)
async def test_a_request_that_can_not_be_served_is_refused(
    members: dict[str, Any], code: str, param: str, autojump_clock: trio.abc.Clock
) -> None:
    """Before any provider is asked."""
    run = Run([], body=request(**members))
    outcome = await run.play()
    assert (outcome.status, outcome.code) == (400, code)
    assert json.loads(run.caller.received)["error"]["param"] == param


async def test_what_the_stream_keeps_of_its_text_is_in_the_ledger(
    autojump_clock: trio.abc.Clock,
) -> None:
    """Where there is no room for it, the answer ends with an error that says so."""
    words = ["word " * 400] * 40
    small = LimitsConfig(exchange_bytes_max=150_000)
    run = Run([says(created(), added(message()), *map(text, words), completed())], limits=small)
    outcome = await run.play()
    assert outcome.code == "memory_budget"
    assert read_events(run.caller.received).response["status"] == "failed"
    enough = LimitsConfig(exchange_bytes_max=1_000_000)
    run = Run([says(created(), added(message()), *map(text, words), completed())], limits=enough)
    seen = await run.whole()
    assert seen.text == "".join(words)


async def test_a_call_waits_until_it_is_whole(autojump_clock: trio.abc.Clock) -> None:
    """Text before it does not."""
    pieces = [
        created(), text("I will."), added(call(), 1), arguments('{"a"', index=1), arguments(":1}", index=1),
        done(call('{"a":1}'), 1), completed(message("I will."), call('{"a":1}')),
    ]  # fmt: skip
    run = Run([says(*pieces, every=1.0)], body=request(tools=[TOOL]))
    seen = await run.whole()
    assert [item["type"] for item in seen.items] == ["message", "function_call"]
    times = {at: data for at, data in run.caller.writes if b"function_call" in data}
    assert min(times) == 6.0
    assert min(at for at, data in run.caller.writes if b"I will." in data) == 2.0
