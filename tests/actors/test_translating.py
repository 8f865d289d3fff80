"""Responses over providers that only have chat completions: what they are asked, what the caller sees, and what is made good, in pools of one kind and of both."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
import trio

from actors.translating import INLINE_BYTES_MAX
from gate.config import ClocksConfig, HoldConfig, LimitsConfig, RecoveryConfig
from gate.endpoints import RESPONSES
from gate.errors import UpstreamFault
from gate.observe import Outcome, What
from tests.assembly_responses import Answer as Seen
from tests.assembly_responses import read_events, texts_of
from tests.doubles import (
    ALIAS,
    DONE,
    ROLE,
    STOP,
    Answer,
    Read,
    RecordingCaller,
    Records,
    ScriptedProvider,
    cut,
    fails,
    gateway,
    healthy,
    left_behind,
    refuses,
    says,
    stalls,
    supervise,
)
from tests.doubles import body as json_answer
from tests.responding import added, created, message
from tests.responding import answer as responded
from tests.responding import text as responses_text

WORDS = ("The", " quick", " brown", " fox", " jumps", " over", " it.")
ALL = "".join(WORDS)
CHAT = ("tools", "json_schema")
BOTH = ("tools", "json_schema", "responses")
TOOL = {
    "type": "function",
    "name": "sail",
    "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
}


def request(**members: Any) -> bytes:
    """A request for a stream."""
    return json.dumps({"model": "small", "input": "Hi", "stream": True, **members}).encode()


def native(*words: str) -> Answer:
    """A provider that has responses says these."""
    return says(*(piece + b"\n\n" for piece in responded(*words).split(b"\n\n")[:-1]))


def lost(*words: str) -> Answer:
    """One of those that is lost behind these."""
    pieces = [created(), added(message()), *map(responses_text, words)]
    return says(*pieces, then=[Read(fault=UpstreamFault.CUT)])


def calls(*pieces: str) -> Answer:
    """A chat provider calls the tool."""
    told = []
    for number, piece in enumerate(pieces):
        head = {} if number else {"id": "c1", "type": "function"}
        function = {"arguments": piece} if number else {"name": "sail", "arguments": piece}
        choice = {"index": 0, "delta": {"tool_calls": [{"index": 0, **head, "function": function}]}}
        told.append(b"data: %b\n\n" % json.dumps({"choices": [choice]}).encode())
    return says(ROLE, *told, STOP, DONE)


class Run:
    """One exchange; `able`: what each provider can do, else chat alone."""

    def __init__(
        self,
        *scripts: list[Answer],
        able: tuple[tuple[str, ...], ...] = (),
        body: bytes = b"",
        over_chat: bool = True,
        hold: HoldConfig | None = None,
        limits: LimitsConfig | None = None,
        filters: tuple[str, ...] = ("empty", "tool_calls", "structured_output"),
        prefill: Any = "none",
        concurrency: int = 64,
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
            capabilities=CHAT,
            prefill=prefill,
            filters=filters,
            records=self.records,
            responses_over_chat=over_chat,
            concurrency=concurrency,
        )
        pool = self.gate.pools[ALIAS]
        targets = tuple(
            replace(each, capabilities=frozenset(able[number] if able else CHAT))
            for number, each in enumerate(pool.targets)
        )
        self.gate.pools = {ALIAS: replace(pool, targets=targets)}

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
        assert seen.response["model"] == "small"
        return seen

    async def refused(self) -> tuple[int, Any]:
        """The status and the error of one that is answered without an attempt."""
        outcome = await self.play()
        assert not any(provider.asked for provider in self.providers)
        return outcome.status, json.loads(self.caller.received)["error"]

    def asked(self, provider: int = 0, attempt: int = 0) -> Any:
        """A request that a provider got."""
        return json.loads(self.providers[provider].asked[attempt].body)


async def test_a_request_is_asked_as_chat(autojump_clock: trio.abc.Clock) -> None:
    """At the path of chat, with the target's model; the caller sees a response."""
    run = Run([healthy(*WORDS)], body=request(instructions="Be brief.", max_output_tokens=99))
    seen = await run.whole()
    assert (seen.text, texts_of(seen.response)) == (ALL, {"output_text": ALL})
    asked = run.providers[0].asked[0]
    assert (asked.path, asked.headers[b"accept"]) == ("/chat/completions", b"text/event-stream")
    assert json.loads(asked.body) == {
        "model": "model-0",
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Hi"},
        ],
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_tokens": 99,
    }
    assert seen.response["instructions"] == "Be brief."
    assert seen.response["id"].startswith("resp_")


async def test_an_object_is_made_of_a_body(autojump_clock: trio.abc.Clock) -> None:
    """And of a stream, where the provider answers with one all the same."""
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": ALL},
        "finish_reason": "stop",
    }
    value = {"id": "chatcmpl-up", "object": "chat.completion", "created": 5, "choices": [choice]}
    for answer in (json_answer(json.dumps(value).encode()), healthy(*WORDS)):
        run = Run([answer], body=request(stream=False))
        outcome = await run.play()
        assert (outcome.code, outcome.framing) == ("", "responses_json")
        told = json.loads(run.caller.received)
        assert (told["object"], told["status"]) == ("response", "completed")
        assert texts_of(told) == {"output_text": ALL}
        assert "stream_options" not in run.asked()


@pytest.mark.parametrize(
    "broken",
    [
        cut(),
        cut("The"),
        says(ROLE, DONE),
        says(b'data: {"error": {"message": "m", "code": 503}}\n\n'),
        stalls(ROLE),
        fails(UpstreamFault.RESET),
        refuses(503),
    ],
)
async def test_what_fails_before_anything_was_seen_is_made_good(
    broken: Answer, autojump_clock: trio.abc.Clock
) -> None:
    """By the next provider; one beginning, one id."""
    hold = HoldConfig(opening_chars=4)
    run = Run([broken], [healthy(*WORDS)], hold=hold, same_target_retries=0)
    seen = await run.whole(2)
    assert seen.text == ALL
    assert run.asked(1)["messages"] == run.asked(0)["messages"]


async def test_an_answer_that_breaks_off_says_so(autojump_clock: trio.abc.Clock) -> None:
    """As a response that failed."""
    run = Run([cut(*WORDS[:3])])
    outcome = await run.play()
    assert (outcome.status, outcome.code) == (200, "stream_cut")
    seen = read_events(run.caller.received)
    assert (seen.response["status"], texts_of(seen.response)) == ("failed", {"output_text": "The quick brown"})  # fmt: skip


async def test_a_refusal_names_the_callers_own_member(autojump_clock: trio.abc.Clock) -> None:
    """What the provider blames stands in a body that the caller has not seen; what only the gate has put there is nobody's."""
    for blamed, named in (("max_tokens", "max_output_tokens"), ("stream_options", None)):
        error = {"error": {"message": "m", "code": "too_large", "param": blamed}}
        run = Run([refuses(400, json.dumps(error).encode())], body=request(max_output_tokens=9))
        outcome = await run.play()
        told = json.loads(run.caller.received)["error"]
        assert (outcome.status, told["param"]) == (400, named)


async def test_what_has_no_place_in_chat_is_refused(autojump_clock: trio.abc.Clock) -> None:
    """Before anybody is asked."""
    run = Run([healthy(*WORDS)], body=request(previous_response_id="resp_1"))
    status, error = await run.refused()
    assert (status, error["code"], error["param"]) == (400, "unsupported_over_chat", "previous_response_id")  # fmt: skip
    assert error["type"] == "invalid_request_error"


async def test_without_the_switch_nothing_is_translated(autojump_clock: trio.abc.Clock) -> None:
    """No target has what the request needs."""
    status, error = await Run([healthy(*WORDS)], over_chat=False).refused()
    assert (status, error["code"]) == (503, "no_provider")


async def test_providers_that_have_responses_are_asked_for_them(
    autojump_clock: trio.abc.Clock,
) -> None:
    """The switch makes no difference to them."""
    run = Run([native(*WORDS)], able=(BOTH,), body=request(previous_response_id="resp_1"))
    assert (await run.whole()).text == ALL
    assert run.asked()["previous_response_id"] == "resp_1"


async def test_a_bad_call_is_asked_for_again(autojump_clock: trio.abc.Clock) -> None:
    """With what was wrong as one message more."""
    run = Run([calls('{"a":', '"x"}'), calls('{"a":', "7}")], body=request(tools=[TOOL]))
    seen = await run.whole(2)
    assert seen.said("function_call_arguments") == '{"a":7}'
    *before, told = run.asked(0, 1)["messages"]
    assert before == run.asked()["messages"]
    assert told["role"] == "user"
    assert "/a" in told["content"]
    assert run.asked()["tools"][0]["function"]["name"] == "sail"


@pytest.mark.parametrize("prefill", ["vllm", "assistant", "prefix"])
async def test_an_answer_goes_on(prefill: str, autojump_clock: trio.abc.Clock) -> None:
    """At another attempt, in whatever way chat servers are told to; the caller sees one message."""
    run = Run(
        [cut(*WORDS[:5])],
        [healthy(" over", " it.")],
        body=request(max_output_tokens=100),
        hold=HoldConfig(mode="window", tail_chars=8),
        prefill=prefill,
    )
    seen = await run.whole(2)
    assert (seen.text, texts_of(seen.response)) == (ALL, {"output_text": ALL})
    assert len(seen.items) == 1
    asked = run.asked(1)
    kept = asked["messages"][-1]
    assert kept["role"] == "assistant"
    assert ALL.startswith(kept["content"])
    assert asked["max_tokens"] < 100
    assert asked.get("continue_final_message", False) is (prefill == "vllm")


# --- pools of both kinds -------------------------------------------------------------------------


@pytest.mark.parametrize("first", [BOTH, CHAT])
async def test_an_attempt_of_one_kind_follows_one_of_the_other(
    first: tuple[str, ...], autojump_clock: trio.abc.Clock
) -> None:
    """Each provider is asked at what it has."""
    scripts = [[lost("The")], [healthy(*WORDS)]] if first == BOTH else [[cut("The")], [native(*WORDS)]]  # fmt: skip
    able = (first, CHAT if first == BOTH else BOTH)
    run = Run(*scripts, able=able, hold=HoldConfig(opening_chars=4))
    seen = await run.whole(2)
    assert seen.text == ALL
    paths = [provider.asked[0].path for provider in run.providers]
    assert paths == (["/responses", "/chat/completions"] if first == BOTH else ["/chat/completions", "/responses"])  # fmt: skip
    assert run.asked(0 if first == BOTH else 1)["input"] == "Hi"


@pytest.mark.parametrize("first", [BOTH, CHAT])
async def test_an_answer_goes_on_at_the_other_kind(
    first: tuple[str, ...], autojump_clock: trio.abc.Clock
) -> None:
    """In the same message, with what each kind is told."""
    scripts = [[lost(*WORDS[:5])], [healthy(*WORDS[5:])]] if first == BOTH else [[cut(*WORDS[:5])], [native(*WORDS[5:])]]  # fmt: skip
    able = (first, CHAT if first == BOTH else BOTH)
    window = HoldConfig(mode="window", tail_chars=8)
    body = request(max_output_tokens=100)
    run = Run(*scripts, able=able, hold=window, prefill="vllm", body=body)
    seen = await run.whole(2)
    assert (seen.text, texts_of(seen.response)) == (ALL, {"output_text": ALL})
    assert len(seen.items) == 1
    asked = run.asked(1)
    if first == BOTH:
        assert asked["messages"][-1]["role"] == "assistant"
        assert asked["max_tokens"] < 100
    else:
        assert asked["input"][-1]["status"] == "incomplete"
        assert asked["max_output_tokens"] < 100


async def test_a_continuation_is_for_one_kind(autojump_clock: trio.abc.Clock) -> None:
    """The next of that kind is asked, since the body is made for it; the other one is not."""
    run = Run(
        [cut(*WORDS[:5])],
        [healthy(*WORDS[5:])],
        [native(*WORDS[5:])],
        able=(CHAT, CHAT, BOTH),
        hold=HoldConfig(mode="window", tail_chars=8),
        prefill="vllm",
    )
    seen = await run.whole(2)
    assert seen.text == ALL
    assert [len(each.asked) for each in run.providers] == [1, 1, 0]


async def test_what_has_no_place_in_chat_goes_to_those_that_have_responses(
    autojump_clock: trio.abc.Clock,
) -> None:
    """To no other, whatever happens there."""
    body = request(previous_response_id="resp_1")
    run = Run([healthy(*WORDS)], [native(*WORDS)], able=(CHAT, BOTH), body=body)
    seen = await run.whole()
    assert seen.text == ALL
    assert [len(each.asked) for each in run.providers] == [0, 1]
    run = Run([healthy(*WORDS)], [fails(UpstreamFault.RESET)] * 3, able=(CHAT, BOTH), body=body)
    outcome = await run.play()
    assert outcome.code == "provider_reset"
    assert not run.providers[0].asked


async def test_a_provider_that_is_full_is_passed_over_for_one_of_the_other_kind(
    autojump_clock: trio.abc.Clock,
) -> None:
    """The body is there in both forms."""
    slow = says(created(), added(message()), responses_text("a"), every=1.0)
    run = Run([slow, native("b")], [healthy("c")], able=(BOTH, CHAT), concurrency=1)
    second = RecordingCaller(run.body)
    async with trio.open_nursery() as nursery:

        async def play(caller: RecordingCaller) -> None:
            await supervise(run.gate, caller, endpoint=RESPONSES.path)

        nursery.start_soon(play, run.caller)
        await trio.sleep(0.5)
        nursery.start_soon(play, second)
        await trio.sleep(0.1)
        assert [len(each.asked) for each in run.providers] == [1, 1]
        await trio.sleep(0.1)
        assert read_events(second.received).text == "c"
        nursery.cancel_scope.cancel()
    assert left_behind(run.gate) == []


async def test_each_kind_has_the_other_capabilities_that_a_request_needs(
    autojump_clock: trio.abc.Clock,
) -> None:
    """A provider that has neither responses nor tools gets no request with tools."""
    run = Run([healthy(*WORDS)], [healthy(*WORDS)], able=((), CHAT), body=request(tools=[TOOL]))
    await run.whole()
    assert [len(each.asked) for each in run.providers] == [0, 1]


# --- large requests ------------------------------------------------------------------------------

PICTURE = "data:image/png;base64," + "A" * (2 * INLINE_BYTES_MAX)


def with_picture() -> bytes:
    """A request with a picture of some megabytes, and many short messages around it."""
    parts = [{"type": "input_text", "text": "What is it?"}, {"type": "input_image", "image_url": PICTURE}]  # fmt: skip
    turns = [{"role": "user", "content": f"{n}"} for n in range(3_000)]
    return request(input=[*turns, {"role": "user", "content": parts}])


async def test_a_large_request_is_translated(autojump_clock: trio.abc.Clock) -> None:
    """In turns with everybody else, and sent as it should be."""
    scripts = [[cut("The")], [healthy(*WORDS)]]
    run = Run(*scripts, body=with_picture(), hold=HoldConfig(opening_chars=4))
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(count)
        seen = await run.whole(2)
        nursery.cancel_scope.cancel()
    assert seen.text == ALL
    assert turns > 100
    for number in (0, 1):
        messages = run.asked(number)["messages"]
        assert len(messages) == 3_001
        assert messages[-1]["content"][1]["image_url"]["url"] == PICTURE


@pytest.mark.parametrize("native_too", [False, True])
async def test_without_room_for_it_nothing_is_translated(
    native_too: bool, autojump_clock: trio.abc.Clock
) -> None:
    """It is refused as too large; or goes to whoever has responses."""
    body = with_picture()
    limits = LimitsConfig(exchange_bytes_max=len(body) + 500_000)
    if native_too:
        run = Run([healthy(*WORDS)], [native(*WORDS)], able=(CHAT, BOTH), body=body, limits=limits)
        assert (await run.whole()).text == ALL
        return
    status, error = await Run([healthy(*WORDS)], body=body, limits=limits).refused()
    assert (status, error["code"]) == (413, "exchange_budget")


async def test_a_caller_that_leaves_meanwhile_is_let_go(autojump_clock: trio.abc.Clock) -> None:
    """With everything that was made for it."""
    run = Run([healthy(*WORDS)], body=with_picture())
    with trio.CancelScope() as scope:

        async def strike() -> None:
            for _ in range(150):
                await trio.lowlevel.checkpoint()
            scope.cancel()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(strike)
            await supervise(run.gate, run.caller, endpoint=RESPONSES.path)
    assert scope.cancelled_caught
    assert left_behind(run.gate) == []
    assert not run.providers[0].asked


async def test_the_log_says_what_it_always_says(autojump_clock: trio.abc.Clock) -> None:
    """One attempt, one exchange, and the framing of a response."""
    run = Run([healthy(*WORDS)])
    await run.whole()
    kinds = [each.what for each in run.records.observations]
    assert kinds.count(What.ATTEMPT_STARTED) == kinds.count(What.EXCHANGE_ENDED) == 1
