"""Exchanges that end before their answer does: a caller who leaves or does not read, and the end of a drain, in every phase."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import pytest
import trio
import trio.testing

from actors.context import Gateway
from actors.dispatch import Place
from actors.exchange import run_exchange
from gate.config import ClocksConfig, HoldConfig, LimitsConfig
from gate.errors import UpstreamFault
from gate.observe import Outcome, OutcomeKind
from gate.sse import KEEP_ALIVE
from tests.doubles import (
    DONE,
    FOREVER,
    ROLE,
    STOP,
    Answer,
    Read,
    RecordingCaller,
    Records,
    ScriptedProvider,
    SlowCaller,
    StuckCaller,
    door,
    fails,
    gateway,
    healthy,
    left_behind,
    refuses,
    request,
    says,
    stalls,
    supervise,
    text,
    thought,
)

CLOCKS: Final = ClocksConfig(
    connect_seconds=500, headers_seconds=500, first_content_seconds=500, gap_seconds=500
)
# Where an exchange stands after ten seconds, and the script that holds it there; nothing is written in any of these.
UNSEEN: Final[Mapping[str, list[Answer]]] = {
    "connecting": [fails(UpstreamFault.RESET, after=FOREVER)],
    "waiting for the head": [Answer(head_after=FOREVER)],
    "silence": [stalls()],
    "held": [stalls(ROLE, thought("hm"))],
    "backoff": [refuses(503, retry_after="25")],
    "second attempt": [fails(UpstreamFault.CONNECT), stalls(ROLE)],
}
every_phase = pytest.mark.parametrize("phase", UNSEEN)


class Scene:
    """One exchange, met by something after ten seconds."""

    def __init__(
        self,
        caller: RecordingCaller,
        *script: Answer,
        limits: LimitsConfig | None = None,
        hold: HoldConfig | None = None,
    ) -> None:
        self.caller = caller
        self.records = Records()
        self.provider = ScriptedProvider(*script)
        self.gate: Gateway = gateway(
            self.provider, clocks=CLOCKS, limits=limits, hold=hold, records=self.records
        )
        self.ended_at = -1.0
        self._outcomes: list[Outcome] = []

    async def run(self, strike: Callable[[], None], *, after: float = 10.0) -> Outcome:
        """Until the exchange has ended; nothing is left of it then."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._exchange)
            await trio.sleep(after)
            strike()
        assert left_behind(self.gate) == []
        assert self.records.crashes == []
        return self._outcomes[0]

    async def _exchange(self) -> None:
        self._outcomes.append(await supervise(self.gate, self.caller))
        self.ended_at = trio.current_time()


# --- the caller leaves -----------------------------------------------------------------------------


@every_phase
async def test_a_caller_who_leaves_before_the_first_byte_ends_the_attempt(
    phase: str, autojump_clock: trio.testing.MockClock
) -> None:
    """The provider stops working for nobody, in that very moment, and nothing is written."""
    caller = RecordingCaller()
    scene = Scene(caller, *UNSEEN[phase])
    outcome = await scene.run(caller.leave)
    assert (outcome.kind, outcome.code) == (OutcomeKind.ABANDONED, "caller_gone")
    assert outcome.attempts == len(scene.provider.asked)
    assert (scene.ended_at, caller.starts) == (10.0, 0)
    assert all(asked.closed_at <= 10.0 for asked in scene.provider.asked)


async def test_a_caller_who_leaves_an_open_stream_ends_it(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """No terminal for one who is not there."""
    caller = RecordingCaller()
    scene = Scene(caller, healthy(*"abcdefghijklmnopqrstuvwxyz", every=1))
    outcome = await scene.run(caller.leave, after=10.5)
    assert (outcome.kind, outcome.code) == (OutcomeKind.ABANDONED, "caller_gone")
    assert caller.text == "abcdefghi"
    assert not caller.ended
    assert scene.provider.asked[0].closed_at == 10.5


async def test_a_caller_who_leaves_in_the_middle_of_its_body_is_forgotten(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """There is nothing to answer."""
    caller = RecordingCaller(b'{"mod', b"never sent", gap=8)
    scene = Scene(caller)
    outcome = await scene.run(caller.leave)
    assert (outcome.kind, outcome.code) == (OutcomeKind.ABANDONED, "caller_gone")
    assert outcome.framing == ""
    assert (scene.ended_at, caller.starts) == (10.0, 0)


async def test_a_caller_who_leaves_the_queue_makes_room_in_it(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Whoever stood behind moves up."""
    caller, limits = RecordingCaller(), LimitsConfig(exchanges_max=1, queue_seconds_max=100)
    scene = Scene(caller, healthy("Hi"), limits=limits)
    behind = RecordingCaller()
    with scene.gate.dispatch.place() as place:
        await scene.gate.dispatch.admit(place)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(run_exchange, door(), caller, scene.gate)
            await trio.sleep(1)
            nursery.start_soon(run_exchange, door(), behind, scene.gate)
            await trio.sleep(1)
            caller.leave()
            await trio.sleep(1)
            assert scene.gate.dispatch.exchanges.waiting == 1
            scene.gate.dispatch.exchanges.give("exchange")
            place.held = False
    assert (caller.starts, behind.text) == (0, "Hi")
    assert left_behind(scene.gate) == []


async def test_a_caller_who_leaves_the_queue_for_a_provider_gives_nothing_up(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """It held no place there yet."""
    caller = RecordingCaller()
    gate = gateway(ScriptedProvider(), concurrency=1)
    async with gate.dispatch.slot(["p0"], Place()):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(run_exchange, door(), caller, gate)
            await trio.sleep(5)
            assert gate.dispatch.providers.waiting == 1
            caller.leave()
        assert trio.current_time() == 5.0
    assert left_behind(gate) == []


# --- the caller does not read -----------------------------------------------------------------------


async def test_a_slow_caller_slows_the_provider_down(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Reads stop when a few batches are on their way: what is kept is bounded, and the provider is not blamed for the silence."""
    words = [chr(97 + number % 26) * 2_000 for number in range(200)]
    caller = SlowCaller(seconds=50)
    scene = Scene(caller, healthy(*words))
    reads: list[int] = []
    outcome = await scene.run(lambda: reads.append(scene.provider.asked[0].reads))
    assert reads[0] < 20
    assert outcome.kind is OutcomeKind.SUCCESS
    assert caller.text == "".join(words)
    assert outcome.ledger.peak < 150_000


async def test_a_caller_who_stops_reading_holds_nothing_but_its_place(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """The drain ends its work; the write that is stuck can't be ended from here."""
    caller = StuckCaller()
    scene = Scene(caller, stalls(ROLE, text("He")))
    held: list[tuple[int, int]] = []

    async def look_later() -> None:
        await trio.sleep(20)
        gate = scene.gate
        held.append((gate.dispatch.providers.taken["p0"], gate.budget.used))
        assert gate.dispatch.exchanges.taken["exchange"] == 1
        assert scene.provider.asked[0].closed_at == 10.0
        caller.reads.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(look_later)
        outcome = await scene.run(scene.gate.open.shut_down)
    assert held == [(0, 65_536)]
    assert (outcome.kind, outcome.code) == (OutcomeKind.ERROR, "shutdown")
    assert caller.code == "shutdown"


@pytest.mark.parametrize(("seconds", "code"), [(50, "caller_gone"), (58, "caller_too_slow")])
async def test_a_caller_who_does_not_read_is_told_from_one_who_leaves(
    seconds: float, code: str, autojump_clock: trio.testing.MockClock
) -> None:
    """By how long the write had been stuck when the connection went."""
    caller = StuckCaller()
    scene = Scene(caller, says(ROLE, text("He"), then=[Read(after=FOREVER)]))
    outcome = await scene.run(caller.leave, after=seconds)
    assert (outcome.kind, outcome.code) == (OutcomeKind.ABANDONED, code)
    assert not caller.ended


# --- silence ------------------------------------------------------------------------------------------


async def test_an_open_stream_that_falls_silent_gets_comments(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Proxies on the way cut silent connections; before the first byte there are none, whatever the silence."""
    answer = says(ROLE, text("He"), text("llo"), STOP, DONE, every=40)
    caller = RecordingCaller()
    scene = Scene(caller, answer, hold=HoldConfig(ping_seconds=15))
    await scene.run(lambda: None)
    assert [at for at, data in caller.writes if data == KEEP_ALIVE] == [95, 110, 135, 150]
    assert caller.started_at == 80
    assert caller.text == "Hello"


async def test_a_json_caller_gets_none(autojump_clock: trio.testing.MockClock) -> None:
    """A comment is no JSON."""
    caller = RecordingCaller(request(stream=False))
    scene = Scene(caller, healthy("He", "llo", every=40), hold=HoldConfig(ping_seconds=15))
    await scene.run(lambda: None)
    assert len(caller.writes) == 1


async def test_comments_may_commit_before_the_answer_where_the_route_says_so(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """The status is out, and an attempt that fails is still made good: the answer begins with the one that is whole."""
    lost = says(ROLE, thought("hm"), every=40, then=[Read(fault=UpstreamFault.CUT)])
    caller = RecordingCaller()
    hold = HoldConfig(ping_seconds=15, pings_commit=True)
    scene = Scene(caller, lost, healthy("He", "llo"), hold=hold)
    await scene.run(lambda: None)
    assert (caller.starts, caller.started_at, caller.status) == (1, 15, 200)
    assert caller.headers[b"content-type"].startswith(b"text/event-stream")
    assert caller.headers[b"x-tidegate-attempts"] == b"1"
    assert [at for at, data in caller.writes if data == KEEP_ALIVE] == [15, 30, 45, 60, 75]
    assert caller.text == "Hello"
    assert caller.received.endswith(DONE)


async def test_an_error_behind_a_comment_is_told_in_the_stream(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """There is no status left to give, and no answer has begun."""
    caller = RecordingCaller()
    hold = HoldConfig(ping_seconds=15, pings_commit=True)
    scene = Scene(caller, refuses(400, after=20), hold=hold)
    await scene.run(lambda: None)
    assert (caller.status, caller.code) == (200, "request_refused")
    assert DONE not in caller.received


async def test_a_json_caller_gets_no_comment_that_commits(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """It gets its status with its answer, whatever the route says."""
    caller = RecordingCaller(request(stream=False))
    hold = HoldConfig(ping_seconds=15, pings_commit=True)
    scene = Scene(caller, healthy("He", "llo", every=40), hold=hold)
    await scene.run(lambda: None)
    assert len(caller.writes) == 1


# --- the end of the drain -----------------------------------------------------------------------------


@every_phase
async def test_the_end_of_the_drain_is_told_with_a_status_of_its_own(
    phase: str, autojump_clock: trio.testing.MockClock
) -> None:
    """Where nothing was written; how many attempts were made is said as well."""
    caller = RecordingCaller()
    scene = Scene(caller, *UNSEEN[phase])
    outcome = await scene.run(scene.gate.open.shut_down)
    assert (caller.status, caller.code) == (503, "shutdown")
    assert caller.headers[b"connection"] == b"close"
    assert caller.headers[b"retry-after"] == b"1"
    assert caller.headers[b"x-tidegate-attempts"] == b"%d" % len(scene.provider.asked)
    assert (outcome.kind, outcome.code) == (OutcomeKind.ERROR, "shutdown")
    assert scene.ended_at == 10.0


async def test_the_end_of_the_drain_is_said_in_an_open_stream(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Half an answer does not end as if it were whole."""
    caller = RecordingCaller()
    scene = Scene(caller, stalls(ROLE, text("He")))
    await scene.run(scene.gate.open.shut_down)
    assert (caller.status, caller.text, caller.code) == (200, "He", "shutdown")
    assert DONE not in caller.received
    assert scene.provider.asked[0].closed_at == 10.0


async def test_the_end_of_the_drain_does_not_wait_for_a_body(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """It may never come."""
    caller = RecordingCaller(b'{"mod', b'el":', gap=6)
    scene = Scene(caller)
    await scene.run(scene.gate.open.shut_down)
    assert (caller.status, caller.code, scene.ended_at) == (503, "shutdown", 10.0)


async def test_the_end_of_the_drain_empties_the_queue(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Whoever waits is told to come again."""
    caller, limits = RecordingCaller(), LimitsConfig(exchanges_max=1, queue_seconds_max=100)
    gate = gateway(ScriptedProvider(), limits=limits)
    with gate.dispatch.place() as place:
        await gate.dispatch.admit(place)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(run_exchange, door(), caller, gate)
            await trio.sleep(10)
            gate.open.shut_down()
    assert (caller.status, caller.code, caller.ended_at) == (503, "shutdown", 10.0)
    assert left_behind(gate) == []


async def test_an_exchange_that_has_ended_is_not_ended_again(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Its answer is out."""
    caller = RecordingCaller()
    scene = Scene(caller, healthy("Hi"))
    outcome = await scene.run(scene.gate.open.shut_down)
    assert outcome.kind is OutcomeKind.SUCCESS
    assert caller.received.endswith(DONE)
