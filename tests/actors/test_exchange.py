"""Whole exchanges: admission, a healthy answer, the end of a drain, actors that die, and what is left of it all: nothing."""

from __future__ import annotations

import json
from typing import Any

import pytest
import trio
import trio.testing

from actors.context import Gateway
from actors.dispatch import Dispatch, Place
from actors.exchange import run_exchange
from actors.ports import Disconnected
from gate.config import LimitsConfig
from gate.errors import BudgetExceeded, UpstreamFault
from gate.observe import Outcome, OutcomeKind, What
from tests.doubles import (
    ALIAS,
    DONE,
    ROLE,
    STOP,
    Answer,
    BrokenCaller,
    Read,
    RecordingCaller,
    Records,
    ScriptedProvider,
    body,
    delta,
    door,
    gateway,
    healthy,
    left_behind,
    request,
    says,
    supervise,
    text,
    whole,
)


async def test_a_healthy_stream_reaches_the_caller_as_it_comes(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Token by token, under the caller's own model name."""
    records, caller = Records(), RecordingCaller()
    gate = gateway(ScriptedProvider(healthy("He", "llo", every=1)), records=records)
    outcome = await supervise(gate, caller)
    assert (outcome.kind, outcome.code, outcome.status) == (OutcomeKind.SUCCESS, "", 200)
    assert (outcome.attempts, outcome.framing, outcome.mode) == (1, "chat_sse", "normalized")
    assert outcome.bytes_out == len(caller.received)
    assert [at for at, _ in caller.writes] == [2.0, 3.0, 5.0]
    assert caller.text == "Hello"
    assert {each["model"] for each in caller.chunks()} == {ALIAS}
    assert caller.chunks()[-1]["choices"][0]["finish_reason"] == "stop"
    assert caller.received.endswith(DONE)
    assert left_behind(gate) == []
    assert [each.what for each in records.observations] == [
        What.EXCHANGE_STARTED,
        What.ATTEMPT_STARTED,
        What.ATTEMPT_ADMITTED,
        What.ATTEMPT_ENDED,
        What.EXCHANGE_ENDED,
    ]
    assert records.observations[-1].count == len(caller.received)
    assert records.observations[-1].seconds == 5.0


@pytest.mark.parametrize("answer", [body(whole("Hello")), healthy("He", "llo")])
async def test_a_json_caller_gets_one_object(answer: Answer) -> None:
    """Whether the provider streamed or not."""
    caller = RecordingCaller(request(stream=False))
    gate = gateway(ScriptedProvider(answer))
    outcome = await supervise(gate, caller)
    value = json.loads(caller.received)
    assert (value["object"], value["model"], value["id"]) == ("chat.completion", ALIAS, "up-1")
    assert value["choices"][0]["message"]["content"] == "Hello"
    assert value["choices"][0]["finish_reason"] == "stop"
    assert caller.headers[b"content-type"] == b"application/json"
    assert (outcome.framing, len(caller.writes)) == ("chat_json", 1)
    assert left_behind(gate) == []


async def test_a_provider_that_does_not_stream_serves_a_stream_all_the_same() -> None:
    """Its whole answer is one chunk, and the ending."""
    caller = RecordingCaller()
    await supervise(gateway(ScriptedProvider(body(whole("Hello")))), caller)
    assert caller.text == "Hello"
    assert caller.received.endswith(DONE)


async def test_usage_is_told_where_it_was_asked_for() -> None:
    """Behind the finish, before the end."""
    usage = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
    answer = says(ROLE, text("Hi"), delta({}, finish="stop", usage=usage), DONE)
    asks, other = (
        RecordingCaller(request(stream_options={"include_usage": True})),
        RecordingCaller(),
    )
    await supervise(gateway(ScriptedProvider(answer)), asks)
    await supervise(gateway(ScriptedProvider(answer)), other)
    assert asks.chunks()[-1]["usage"] == usage
    assert b"prompt_tokens" not in other.received


@pytest.mark.parametrize("sizes", [[30_000], [9_000] * 9, [100, 50_000, 100, 30_000, 100]])
async def test_large_answers_come_through_whole(sizes: list[int]) -> None:
    """Frames beyond a piece, and many in one read."""
    words = [chr(97 + number) * size for number, size in enumerate(sizes)]
    for answer in (healthy(*words), says(b"".join([ROLE, *map(text, words), STOP, DONE]))):
        caller = RecordingCaller()
        gate = gateway(ScriptedProvider(answer))
        outcome = await supervise(gate, caller)
        assert outcome.kind is OutcomeKind.SUCCESS
        assert caller.text == "".join(words)
        assert left_behind(gate) == []


@pytest.mark.parametrize(
    ("data", "models", "status", "code"),
    [
        (b"{", None, 400, "invalid_json"),
        (request(model="other"), None, 404, "model_not_found"),
        (request(), frozenset({"large"}), 404, "model_not_found"),
        (request(), frozenset({ALIAS}), 200, ""),
    ],
)
async def test_a_request_is_checked_before_a_provider_is_asked(
    data: bytes, models: frozenset[str] | None, status: int, code: str
) -> None:
    """What it is, whether the model exists, and whether the key may use it."""
    provider, caller = ScriptedProvider(healthy("Hi")), RecordingCaller(data)
    gate = gateway(provider)
    outcome = await run_exchange(door(models=models), caller, gate)
    assert (caller.status, outcome.code) == (status, code)
    assert len(provider.asked) == (status == 200)
    assert left_behind(gate) == []


async def test_a_request_goes_only_to_providers_that_can_serve_it() -> None:
    """With none the caller is told so, without an attempt."""
    provider, caller = ScriptedProvider(), RecordingCaller(request(tools=[{"type": "function"}]))
    await supervise(gateway(provider, capabilities=()), caller)
    assert (caller.status, caller.code) == (503, "no_provider")


async def test_a_process_without_room_takes_no_exchange_at_all() -> None:
    """The door answers; nothing was begun, so nothing is said to have ended."""
    records = Records()
    gate = gateway(
        ScriptedProvider(), limits=LimitsConfig(process_bytes_max=60_000), records=records
    )
    with pytest.raises(BudgetExceeded):
        await run_exchange(door(), RecordingCaller(), gate)
    assert records.observations == []
    assert left_behind(gate) == []


# --- the queue --------------------------------------------------------------------------------------


class Callers:
    """Several exchanges at once, one more each second, named by number."""

    def __init__(self, gate: Gateway, count: int) -> None:
        self.callers = [RecordingCaller() for _ in range(count)]
        self.outcomes: dict[int, Outcome] = {}
        self._gate = gate

    async def run(self) -> None:
        async with trio.open_nursery() as nursery:
            for number in range(len(self.callers)):
                nursery.start_soon(self._one, number)
                await trio.sleep(1)

    async def _one(self, number: int) -> None:
        caller = self.callers[number]
        self.outcomes[number] = await run_exchange(door(f"ex-{number}"), caller, self._gate)


async def test_more_exchanges_than_places_are_served_in_turn(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """First come, first served."""
    provider = ScriptedProvider(*[healthy("Hi", every=2)] * 3)
    gate = gateway(provider, limits=LimitsConfig(exchanges_max=1, queue_seconds_max=60))
    queue = Callers(gate, 3)
    await queue.run()
    assert [caller.text for caller in queue.callers] == ["Hi"] * 3
    assert [asked.headers[b"x-request-id"] for asked in provider.asked] == [b"ex-0", b"ex-1", b"ex-2"]  # fmt: skip
    assert provider.open_max == 1
    assert left_behind(gate) == []


@pytest.mark.parametrize(
    ("limits", "code", "seconds"),
    [
        (LimitsConfig(exchanges_max=1, queue_max=0), "queue_full", 1),
        (LimitsConfig(exchanges_max=1, queue_seconds_max=5), "queue_timeout", 6),
    ],
)
async def test_a_queue_is_bounded_in_length_and_in_time(
    limits: LimitsConfig, code: str, seconds: float, autojump_clock: trio.testing.MockClock
) -> None:
    """Beyond that it is 503, and when to come again."""
    gate = gateway(ScriptedProvider(healthy("Hi", every=20)), limits=limits)
    queue = Callers(gate, 2)
    await queue.run()
    first, second = queue.callers
    assert first.text == "Hi"
    assert (second.status, second.code) == (503, code)
    assert second.headers[b"retry-after"] == b"1"
    assert second.ended_at == pytest.approx(seconds)
    assert left_behind(gate) == []


async def test_a_provider_that_is_full_is_passed_over(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """And with all of them full an exchange waits, and says so in the end."""
    first, second = (
        ScriptedProvider(healthy("a", every=20)),
        ScriptedProvider(healthy("b", every=20)),
    )
    gate = gateway(first, second, concurrency=1)
    queue = Callers(gate, 3)
    await queue.run()
    assert [caller.text for caller in queue.callers[:2]] == ["a", "b"]
    assert (queue.callers[2].status, queue.callers[2].code) == (503, "queue_timeout")
    assert queue.outcomes[2].attempts == 0
    assert queue.callers[2].ended_at == pytest.approx(12)
    assert left_behind(gate) == []


async def test_exchanges_at_the_same_time_have_nothing_in_common(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Each its own words, its own failure, its own end."""
    provider = ScriptedProvider(
        says(ROLE, text("one", name="a"), text("!", name="a"), STOP, DONE, every=3),
        says(text("two", name="b"), every=3, then=[Read(after=1, fault=UpstreamFault.CUT)]),
        healthy("three", every=2),
    )
    gate = gateway(provider)
    queue = Callers(gate, 3)
    await queue.run()
    assert [caller.text for caller in queue.callers] == ["one!", "two", "three"]
    assert [queue.outcomes[number].code for number in range(3)] == ["", "stream_cut", ""]
    assert {each["id"] for each in queue.callers[1].chunks() if "id" in each} == {"b"}
    assert provider.open_max == 3
    assert left_behind(gate) == []


# --- actors that die -----------------------------------------------------------------------------------


async def test_an_actor_that_dies_ends_its_exchange_with_a_status() -> None:
    """Nothing was written yet, so the caller is told; the crash is reported once."""
    records, caller = Records(), RecordingCaller()
    gate = gateway(ScriptedProvider(Answer(crash=True)), records=records)
    outcome = await supervise(gate, caller)
    assert (caller.status, caller.code) == (500, "internal_error")
    assert caller.headers[b"x-should-retry"] == b"false"
    assert (outcome.kind, outcome.code, outcome.attempts) == (
        OutcomeKind.ERROR,
        "internal_error",
        1,
    )
    ((exchange, error),) = records.crashes
    assert exchange == "ex-1"
    assert isinstance(error, ExceptionGroup)
    assert [str(each) for each in error.exceptions] == ["a bug in the port"]
    assert left_behind(gate) == []


class BrokenDispatch(Dispatch):
    """Admits nobody, for a bug of its own."""

    async def admit(self, place: Place) -> str | None:
        raise RuntimeError("a bug in the dispatch")


async def test_an_actor_that_dies_before_any_attempt_says_nothing_about_retries() -> None:
    """Nothing was tried."""
    caller = RecordingCaller()
    gate = gateway(ScriptedProvider())
    gate.dispatch = BrokenDispatch(
        exchanges_max=1, queue_max=1, queue_seconds_max=1, concurrency={"p0": 1}
    )
    await supervise(gate, caller)
    assert (caller.status, caller.code) == (500, "internal_error")
    assert b"x-should-retry" not in caller.headers


def bug() -> None:
    """Raises what nobody expects."""
    raise RuntimeError("a bug in the port")


async def test_an_actor_that_dies_in_an_open_stream_is_said_in_it() -> None:
    """An explicit terminal, whatever happens."""
    records, caller = Records(), RecordingCaller()
    answer = says(ROLE, text("He"), then=[Read(text("llo"), meanwhile=bug)])
    gate = gateway(ScriptedProvider(answer), records=records)
    await supervise(gate, caller)
    assert (caller.status, caller.text, caller.code) == (200, "He", "internal_error")
    assert len(records.crashes) == 1
    assert left_behind(gate) == []


@pytest.mark.parametrize("words", ["Hi", "x" * 90_000])
async def test_a_sink_that_dies_leaves_a_response_unfinished(words: str) -> None:
    """Nobody else writes to the caller; the server drops the connection."""
    records, caller = Records(), BrokenCaller()
    gate = gateway(ScriptedProvider(healthy(words, "more")), records=records)
    outcome = await supervise(gate, caller)
    assert (outcome.kind, outcome.code) == (OutcomeKind.ERROR, "internal_error")
    assert not caller.ended
    assert len(records.crashes) == 1
    assert left_behind(gate) == []


class DeafCaller(RecordingCaller):
    """A caller port whose `receive` is broken."""

    async def receive(self) -> Disconnected:
        raise RuntimeError("a bug in the port")


class Leaking(ScriptedProvider):
    """A port that lets a channel's own error out, against its promise."""

    def attempt(self, *_: object, **__: object) -> Any:
        raise trio.BrokenResourceError


async def test_a_channel_error_that_nobody_explains_is_reported() -> None:
    """Such an error usually means that a neighbour ended first, who says why; here nobody does."""
    records, caller = Records(), RecordingCaller()
    gate = gateway(Leaking(), records=records)
    outcome = await supervise(gate, caller)
    assert (caller.status, caller.code, outcome.code) == (500, "internal_error", "internal_error")
    assert len(records.crashes) == 1
    assert left_behind(gate) == []


async def test_an_ingress_that_dies_ends_in_a_terminal() -> None:
    """Without a watch nobody would notice the caller leaving; but the one that is there is told."""
    records, caller = Records(), DeafCaller()
    gate = gateway(ScriptedProvider(), records=records)
    outcome = await supervise(gate, caller)
    assert (outcome.kind, outcome.code) == (OutcomeKind.ERROR, "internal_error")
    assert (caller.status, caller.code) == (500, "internal_error")
    assert len(records.crashes) == 1
    assert left_behind(gate) == []
