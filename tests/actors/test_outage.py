"""Outages over many exchanges: breakers and retry budgets keep one provider's trouble from becoming everybody's."""

from __future__ import annotations

import pytest
import trio

from actors.context import Gateway
from gate.config import ClocksConfig, RecoveryConfig
from gate.errors import UpstreamFault
from gate.observe import What
from tests.doubles import (
    Answer,
    Read,
    RecordingCaller,
    Records,
    ScriptedProvider,
    event,
    fails,
    gateway,
    healthy,
    left_behind,
    refuses,
    says,
    supervise,
    text,
)


def always(*script: Answer) -> ScriptedProvider:
    """A provider that goes on as it ends."""
    return ScriptedProvider(*script, for_ever=True)


async def served(gate: Gateway, count: int, *, every: float) -> list[RecordingCaller]:
    """One caller after another, at a steady pace."""
    callers = [RecordingCaller() for _ in range(count)]
    async with trio.open_nursery() as nursery:
        for number, caller in enumerate(callers):
            nursery.start_soon(_serve, gate, caller, number)
            await trio.sleep(every)
    return callers


async def _serve(gate: Gateway, caller: RecordingCaller, number: int) -> None:
    await supervise(gate, caller, exchange=f"ex-{number}")


@pytest.mark.no_cover
@pytest.mark.parametrize(
    "fault", [fails(UpstreamFault.CONNECT), refuses(503)], ids=["refused", "503"]
)
async def test_an_outage_of_one_of_two_providers_costs_little(
    fault: Answer, autojump_clock: trio.testing.MockClock
) -> None:
    """Every caller is served, and in the mean an exchange takes at most 1.2 attempts."""
    down, well = always(fault), always(healthy("Hi"))
    gate = gateway(down, well, breaker_failures=5)
    callers = await served(gate, 200, every=0.1)
    assert {caller.text for caller in callers} == {"Hi"}
    attempts = sum(int(caller.headers[b"x-tidegate-attempts"]) for caller in callers)
    assert attempts / len(callers) <= 1.2
    assert left_behind(gate) == []


@pytest.mark.no_cover
async def test_an_outage_of_both_costs_at_most_the_budget(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Without breakers the retry budget alone bounds what is asked of them: floor, shares and time."""
    first, second = always(refuses(503)), always(refuses(503))
    gate = gateway(first, second)
    seconds = 20.0
    callers = await served(gate, 400, every=seconds / 400)
    assert {caller.status for caller in callers} == {502}
    attempts = len(first.asked) + len(second.asked)
    assert attempts <= 400 + 10 + 0.2 * 400 + seconds + 5
    assert attempts >= 400
    assert left_behind(gate) == []


async def test_with_both_breakers_open_the_caller_is_told_when_to_come_again(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """No attempt is made, and none has to wait for a clock."""
    first, second = (always(fails(UpstreamFault.CONNECT)) for _ in range(2))
    gate = gateway(first, second, breaker_failures=1)
    await supervise(gate, RecordingCaller())
    caller = RecordingCaller()
    outcome = await supervise(gate, caller)
    assert (caller.status, caller.code, outcome.attempts) == (503, "no_provider", 0)
    assert caller.headers[b"retry-after"] == b"30"


async def test_a_provider_that_is_well_again_is_asked_again(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """After the breaker's time one attempt tries it, and then everybody does."""
    first = always(fails(UpstreamFault.CONNECT), healthy("first"))
    gate = gateway(first, always(healthy("second")), breaker_failures=1)
    callers = await served(gate, 5, every=10.0)
    assert [caller.text for caller in callers] == ["second"] * 3 + ["first"] * 2


async def test_a_long_retry_after_keeps_the_whole_pool_away(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """One exchange was told; the next doesn't ask until then."""
    first = always(refuses(429, retry_after="45"), healthy("first"))
    gate = gateway(first, always(healthy("second")))
    callers = await served(gate, 4, every=20.0)
    assert [caller.text for caller in callers] == ["second", "second", "second", "first"]


async def test_a_retry_after_in_milliseconds_is_waited_for(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """The finer of the two fields."""
    answer = Answer([], 429, [(b"retry-after", b"9"), (b"retry-after-ms", b"1500")])
    provider = ScriptedProvider(answer, healthy("Hi"))
    caller = RecordingCaller()
    await supervise(gateway(provider), caller)
    assert caller.text == "Hi"
    assert provider.asked[1].asked_at == pytest.approx(1.5)


async def test_an_exhausted_budget_is_an_observation(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """The caller gets the last error; the operator reads why no other attempt was made."""
    records = Records()
    recovery = RecoveryConfig(retry_budget_share=0.0, retry_budget_floor=0)
    gate = gateway(
        ScriptedProvider(fails(UpstreamFault.RESET)),
        ScriptedProvider(healthy("Hi")),
        recovery=recovery,
        records=records,
    )
    caller = RecordingCaller()
    await supervise(gate, caller)
    assert (caller.status, caller.code) == (502, "provider_reset")
    assert records.codes(What.GIVE_UP) == ["retry_budget_exhausted"]


async def test_a_refusal_whose_body_does_not_come_is_told_by_its_status(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Two seconds are waited for the rest, whatever the clocks allow for an answer."""
    slow = Answer([Read(b"{", after=500.0)], 400)
    caller = RecordingCaller()
    gate = gateway(ScriptedProvider(slow), clocks=ClocksConfig(first_content_seconds=900))
    await supervise(gate, caller)
    assert (caller.status, caller.code) == (400, "request_refused")
    assert trio.current_time() == pytest.approx(2.0)


async def test_an_odd_ending_is_an_observation() -> None:
    """A finish reason nobody knows, and none at all behind a usage report: both are answers."""
    records = Records()
    odd = says(text("Hi"), event({"choices": [{"index": 0, "delta": {}, "finish_reason": "moon"}]}))
    caller = RecordingCaller()
    await supervise(gateway(ScriptedProvider(odd), records=records), caller)
    assert caller.chunks()[-1]["choices"][0]["finish_reason"] == "moon"
    usage = event({"choices": [], "usage": {"total_tokens": 3}})
    none = says(text("Hi"), usage, b"data: [DONE]\n\n")
    caller = RecordingCaller()
    await supervise(gateway(ScriptedProvider(none), records=records), caller)
    assert caller.chunks()[-1]["choices"][0]["finish_reason"] == "stop"
    assert len(records.codes(What.FINISH_UNKNOWN)) == 1
    assert len(records.codes(What.FINISH_MISSING)) == 1
