"""The attempt runner by itself: what it asks, what becomes of the answer, and which of its clocks ends it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress

import pytest
import trio
import trio.testing

from actors import attempt
from actors.attempt import AttemptOrder, Evidence
from actors.context import Exchange, Gateway
from gate.config import ClocksConfig, LimitsConfig
from gate.errors import UpstreamFault
from gate.events import Batch, Complete, End, Head, HowEnded
from gate.failure import FailureKind
from gate.ingress import CHAT_PATH
from gate.observe import What
from gate.rebuild import exact_lease
from gate.refs import RequestRef
from tests.doubles import (
    COMMENT,
    DONE,
    EMPTY,
    JSON,
    ROLE,
    SSE,
    STOP,
    Answer,
    Read,
    Records,
    ScriptedProvider,
    body,
    cut,
    exchange_of,
    fails,
    gateway,
    healthy,
    left_behind,
    refuses,
    request,
    says,
    stalls,
    text,
    thought,
    whole,
)

CLOCKS = ClocksConfig(
    connect_seconds=5,
    headers_seconds=60,
    first_content_seconds=40,
    gap_seconds=30,
    json_seconds=180,
    finish_grace_seconds=2,
    last_candidate_factor=2,
)
JSON_REQUEST = request(stream=False)


async def evidence_of(
    exchange: Exchange,
    *,
    last: bool = False,
    targets: Sequence[int] = (0,),
    pauses: Sequence[float] = (),
    room: int = 8,
    scope: trio.CancelScope | None = None,
) -> list[Evidence]:
    """Everything that one order brings. `pauses`: seconds that the receiver takes before each of its first items."""
    send_orders, orders = trio.open_memory_channel[AttemptOrder](1)
    send, evidence = trio.open_memory_channel[Evidence](room)
    with send_orders:
        scope = scope or trio.CancelScope()
        send_orders.send_nowait(
            AttemptOrder(1, {CHAT_PATH: RequestRef("body")}, targets, scope, last)
        )
    got: list[Evidence] = []
    waits = list(pauses)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(
            attempt.run, orders, send, exchange, lambda _: exact_lease(exchange.snapshot)
        )
        with evidence, suppress(trio.EndOfChannel):
            while True:
                await trio.sleep(waits.pop(0) if waits else 0)
                got.append(await evidence.receive())
    return got


async def end_of(
    answer: Answer, *, clocks: ClocksConfig = CLOCKS, data: bytes | None = None, last: bool = False
) -> HowEnded:
    """How an attempt with this answer ends; it always ends in order, with nothing left."""
    gate = gateway(ScriptedProvider(answer), clocks=clocks)
    exchange = exchange_of(gate, data=data)
    end = (await evidence_of(exchange, last=last))[-1]
    assert isinstance(end, End)
    exchange.snapshot.close()
    exchange.wire.release()
    assert left_behind(gate) == []
    return end.how


async def kind_of(
    answer: Answer, *, clocks: ClocksConfig = CLOCKS, data: bytes | None = None, last: bool = False
) -> FailureKind | None:
    """The kind of failure that it ends in; None: it is complete."""
    how = await end_of(answer, clocks=clocks, data=data, last=last)
    return None if isinstance(how, Complete) else how.kind


async def test_an_attempt_asks_what_the_caller_asked_in_terms_of_the_target() -> None:
    """Only the model's name is another; the head is our own."""
    provider = ScriptedProvider(healthy("Hi"))
    data = b'{"messages":[{"role":"user","content":"model"}], "model" : "small","stream":true}'
    await evidence_of(exchange_of(gateway(provider), data=data))
    (asked,) = provider.asked
    assert asked.path == "/chat/completions"
    assert asked.body == data.replace(b'"small"', b'"model-0"')
    assert asked.headers == {
        b"content-type": b"application/json",
        b"accept": b"text/event-stream",
        b"x-request-id": b"ex-1",
    }


async def test_a_caller_who_wants_json_has_json_asked_for() -> None:
    """The provider decides by the body; the head agrees with it."""
    provider = ScriptedProvider(body(whole("Hi")))
    await evidence_of(exchange_of(gateway(provider), data=JSON_REQUEST))
    assert provider.asked[0].headers[b"accept"] == b"application/json"


async def test_a_healthy_stream_is_a_head_batches_and_an_end() -> None:
    """One batch per read, and a read that brought no frame is none."""
    records = Records()
    gate = gateway(ScriptedProvider(says(ROLE, COMMENT, text("Hi") + STOP, DONE)), records=records)
    head, first, second, end = await evidence_of(exchange_of(gate))
    assert head == Head(1, 0, 200)
    assert isinstance(first, Batch)
    assert isinstance(second, Batch)
    assert [len(first.frames), len(second.frames)] == [1, 2]
    assert end == End(1, Complete(), 0)
    assert [each.what for each in records.observations] == [
        What.ATTEMPT_STARTED,
        What.ATTEMPT_ADMITTED,
    ]


async def test_a_json_answer_is_one_frame() -> None:
    """It ends with its body."""
    exchange = exchange_of(gateway(ScriptedProvider(body(whole("Hi")))), data=JSON_REQUEST)
    _, batch, end = await evidence_of(exchange)
    assert isinstance(batch, Batch)
    assert json.loads(batch.frames[0].data)["choices"][0]["message"]["content"] == "Hi"
    assert end == End(1, Complete(), 0)


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (fails(UpstreamFault.CONNECT), FailureKind.CONNECT),
        (fails(UpstreamFault.RESET), FailureKind.RESET),
        (fails(UpstreamFault.PROTOCOL), FailureKind.MALFORMED),
        (says(then=[Read(fault=UpstreamFault.ENCODING)]), FailureKind.UNUSABLE),
        (cut("He"), FailureKind.CUT),
        (says(text("He")), FailureKind.MISSING_TERMINAL),
        (says(text("He"), b"data: {broken\n\n"), FailureKind.MALFORMED),
        (says(ROLE, DONE), FailureKind.EMPTY),
        (refuses(500), FailureKind.UNAVAILABLE),
        (refuses(429), FailureKind.RATE_LIMITED),
        (refuses(401), FailureKind.AUTH),
        (refuses(400), FailureKind.REFUSED),
        (refuses(404), FailureKind.NOT_FOUND),
        (refuses(302), FailureKind.UNUSABLE),
        (Answer(status=204), FailureKind.UNUSABLE),
        (Answer(headers=()), FailureKind.UNUSABLE),
        (body(b"<html>", headers=[(b"content-type", b"text/html")]), FailureKind.UNUSABLE),
        (body(b'{"error":{"code":"rate_limit"}}'), FailureKind.RATE_LIMITED),
        (body(b""), FailureKind.EMPTY),
    ],
)
async def test_every_fault_has_its_kind(answer: Answer, kind: FailureKind) -> None:
    """A row of the recovery table each."""
    assert await kind_of(answer) is kind


@pytest.mark.parametrize(
    ("data", "kind"),
    [(whole("Hi"), None), (whole("Hi")[:-1], FailureKind.MALFORMED), (b"", FailureKind.EMPTY)],
)
async def test_a_body_that_only_a_close_ends_is_whole_where_it_parses(
    data: bytes, kind: FailureKind | None
) -> None:
    """As one from an HTTP/1.0 server is, which says no length."""
    reads = [Read(data)] if data else []
    answer = Answer([*reads, Read(fault=UpstreamFault.CLOSED)], headers=JSON)
    assert await kind_of(answer, data=JSON_REQUEST) is kind


async def test_a_refusal_says_its_code_and_when_to_come_again() -> None:
    """As far as its body says one."""
    answer = refuses(429, b'{"error":{"code":"Slow_Down"}}', retry_after="7")
    how = await end_of(answer)
    assert not isinstance(how, Complete)
    assert (how.status, how.provider_code, how.retry_after) == (429, "slow_down", 7.0)


async def test_a_refusal_whose_body_is_lost_is_one_all_the_same() -> None:
    """The status says enough."""
    answer = Answer([Read(fault=UpstreamFault.CUT)], 503)
    assert await kind_of(answer) is FailureKind.UNAVAILABLE


async def test_of_a_refusal_only_so_much_is_read() -> None:
    """A body without end is no reason to wait, or to keep it."""
    endless = Answer([Read(b" " * 30_000) for _ in range(100)], 503)
    provider = ScriptedProvider(endless)
    await evidence_of(exchange_of(gateway(provider)))
    assert provider.asked[0].reads == 3


@pytest.mark.parametrize(
    ("answer", "kind", "seconds"),
    [
        (fails(UpstreamFault.RESET, after=float("inf")), FailureKind.CONNECT, 5),
        (Answer(connect_after=4, head_after=float("inf")), FailureKind.NO_HEADERS, 4 + 60),
        (stalls(), FailureKind.NO_PROGRESS, 40),
        (stalls(ROLE, EMPTY, COMMENT), FailureKind.NO_PROGRESS, 40),
        (says(*[COMMENT] * 9, every=10), FailureKind.NO_PROGRESS, 40),
        (stalls(text("He")), FailureKind.STALL, 30),
        (stalls(thought("hm")), FailureKind.STALL, 30),
        (says(text("He"), text("llo"), *[EMPTY] * 9, every=10), FailureKind.STALL, 20 + 30),
    ],
)
async def test_a_silent_provider_runs_into_its_clock(
    answer: Answer, kind: FailureKind, seconds: float, autojump_clock: trio.testing.MockClock
) -> None:
    """Connection, head, first progress, then the gap between progress; comments and empty deltas are none."""
    assert await kind_of(answer) is kind
    assert trio.current_time() == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("answer", "seconds"),
    [
        (fails(UpstreamFault.RESET, after=float("inf")), 5),
        (Answer(head_after=float("inf")), 120),
        (stalls(), 80),
        (stalls(text("He")), 60),
    ],
)
async def test_patience_grows_where_no_other_attempt_could_follow(
    answer: Answer, seconds: float, autojump_clock: trio.testing.MockClock
) -> None:
    """Twice as long for everything but the connection."""
    assert await kind_of(answer, last=True) is not None
    assert trio.current_time() == pytest.approx(seconds)


async def test_a_json_answer_has_one_clock(autojump_clock: trio.testing.MockClock) -> None:
    """Its head comes when it is finished, so that head and first progress say nothing."""
    assert await kind_of(body(whole("Hi"), after=179), data=JSON_REQUEST) is None
    assert await kind_of(body(whole("Hi"), after=181), data=JSON_REQUEST) is FailureKind.JSON_LATE
    assert trio.current_time() == pytest.approx(179 + 180)


async def test_the_total_ends_an_attempt_without_progress(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """And leaves one alone that makes progress."""
    clocks = ClocksConfig(total_seconds=20, first_content_seconds=40, gap_seconds=30)
    assert await kind_of(stalls(ROLE), clocks=clocks) is FailureKind.TOTAL
    assert trio.current_time() == pytest.approx(20)
    flows = says(*map(text, "abcdef"), STOP, DONE, every=15)
    assert await kind_of(flows, clocks=clocks) is None


async def test_an_endless_stream_may_be_bounded(autojump_clock: trio.testing.MockClock) -> None:
    """Where the route says so."""
    clocks = ClocksConfig(stream_seconds_max=50)
    assert await kind_of(healthy(*"abcdefgh", every=9), clocks=clocks) is FailureKind.STREAM_LIMIT
    assert trio.current_time() == pytest.approx(50)


@pytest.mark.parametrize(
    "after",
    [
        Read(after=float("inf")),
        Read(fault=UpstreamFault.CUT),
        Read(b"data: {broken\n\n"),
        Read(text("more") + DONE, after=1.9),
    ],
)
async def test_what_breaks_after_the_finish_is_no_failure(
    after: Read, autojump_clock: trio.testing.MockClock
) -> None:
    """The answer was complete; usage and [DONE] are waited for, for two seconds."""
    assert await kind_of(says(text("Hi"), STOP, then=[after])) is None
    assert trio.current_time() <= 2


async def test_the_clocks_stand_still_while_the_caller_is_slow(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """A stop of an hour on our side is no fault of the provider's, and nothing is read meanwhile."""
    provider = ScriptedProvider(healthy(*"abc", every=15))
    exchange = exchange_of(gateway(provider, clocks=CLOCKS))
    pauses = [0, 0, 3600, 3600]
    got = await evidence_of(exchange, room=0, pauses=pauses)
    assert got[-1] == End(1, Complete(), 0)
    assert len([each for each in got if isinstance(each, Batch)]) == 5
    # Five reads of 15 seconds, of which each pause covers one, and the grace for what may follow the finish.
    assert trio.current_time() == pytest.approx(2 * 3600 + (5 - 2) * 15 + 2)


async def test_a_stall_after_a_slow_caller_is_one_still(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """The clock goes on where it stood."""
    silent = [Read(after=float("inf"))]
    provider = ScriptedProvider(says(text("He"), text("llo"), every=10, then=silent))
    exchange = exchange_of(gateway(provider, clocks=CLOCKS))
    got = await evidence_of(exchange, room=0, pauses=[0, 0, 100])
    end = got[-1]
    assert isinstance(end, End)
    assert not isinstance(end.how, Complete)
    assert end.how.kind is FailureKind.STALL
    # The second read came at 20; its batch was taken at 110, with all of the gap's 30 seconds still to go.
    assert trio.current_time() == pytest.approx(110 + 30)


async def test_bytes_that_come_with_the_end_of_their_clock_are_late(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """A finish that is not passed on must not count as one: the attempt failed, and nothing of it is missing in a success."""
    late = Read(text("llo") + STOP, meanwhile=lambda: autojump_clock.jump(31))
    provider = ScriptedProvider(says(text("He"), then=[late]))
    got = await evidence_of(exchange_of(gateway(provider, clocks=CLOCKS)), room=0)
    end = got[-1]
    assert isinstance(end, End)
    assert not isinstance(end.how, Complete)
    assert end.how.kind is FailureKind.STALL
    assert len([each for each in got if isinstance(each, Batch)]) == 1


async def test_an_attempt_takes_the_first_target_that_has_room(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """A provider that is full is passed over, and the place goes back with the connection."""
    full, free = ScriptedProvider(), ScriptedProvider(healthy("Hi"))
    gate = gateway(full, free, concurrency=1)
    async with gate.dispatch.slot(["p0"], exchange_of(gate).place):
        got = await evidence_of(exchange_of(gate), targets=(0, 1))
    assert got[-1] == End(1, Complete(), 1)
    assert gate.dispatch.providers.taken == {"p0": 0, "p1": 0}


async def test_two_targets_of_one_provider_are_one_place(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """The first of them is asked."""
    provider = ScriptedProvider(healthy("Hi"))
    exchange = exchange_of(gateway(provider))
    exchange.targets = [exchange.targets[0], exchange.targets[0]]
    got = await evidence_of(exchange, targets=(1, 0))
    assert got[-1] == End(1, Complete(), 1)


async def test_an_attempt_without_a_place_ends_without_a_target(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """After the queue's time."""
    gate = gateway(ScriptedProvider(), concurrency=1, limits=LimitsConfig(queue_seconds_max=10))
    async with gate.dispatch.slot(["p0"], exchange_of(gate).place):
        (end,) = await evidence_of(exchange_of(gate))
    assert isinstance(end, End)
    assert not isinstance(end.how, Complete)
    assert (end.how.kind, end.target) == (FailureKind.QUEUE, -1)
    assert trio.current_time() == pytest.approx(10)


@pytest.mark.parametrize("answer", [stalls(text("He")), Answer(head_after=float("inf"))])
async def test_an_order_that_is_called_off_still_has_its_end(
    answer: Answer, autojump_clock: trio.testing.MockClock
) -> None:
    """The connection closes at once, and whoever waits for the end gets it."""
    provider = ScriptedProvider(answer)
    scope = trio.CancelScope(deadline=trio.current_time() + 3)
    got = await evidence_of(exchange_of(gateway(provider)), scope=scope)
    end = got[-1]
    assert isinstance(end, End)
    assert not isinstance(end.how, Complete)
    assert end.how.kind is FailureKind.ABORTED
    assert provider.asked[0].closed_at == 3.0


def small_gateway(answer: Answer) -> Gateway:
    """One whose exchanges have room for little more than their request."""
    limits = LimitsConfig(exchange_bytes_max=66_000, held_bytes_max=60_000, event_bytes_max=60_000)
    return gateway(ScriptedProvider(answer), limits=limits)


async def test_a_piece_of_an_event_is_reserved_until_the_rest_has_come() -> None:
    """Bytes that are in no frame yet are in the ledger."""
    seen: list[int] = []
    piece = text("x" * 30_000)
    gate = gateway(
        ScriptedProvider(
            Answer(
                [
                    Read(piece[:20_000]),
                    Read(piece[20_000:], meanwhile=lambda: seen.append(gate.budget.used)),
                    Read(STOP + DONE, meanwhile=lambda: seen.append(gate.budget.used)),
                ],
                headers=SSE,
            )
        )
    )
    exchange = exchange_of(gate)
    base = gate.budget.used
    await evidence_of(exchange)
    assert seen == [base + 20_000, base]


async def test_an_event_without_room_ends_the_attempt() -> None:
    """And leaves nothing reserved."""
    answer = says(b"data: " + b"x" * 40_000, b"x" * 19_000)
    gate = small_gateway(answer)
    exchange = exchange_of(gate)
    filler = exchange.budget.reserve(10_000)
    before = gate.budget.used
    end = (await evidence_of(exchange))[-1]
    assert isinstance(end, End)
    assert not isinstance(end.how, Complete)
    assert end.how.kind is FailureKind.BUDGET
    assert gate.budget.used == before
    filler.release()
