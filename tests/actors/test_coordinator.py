"""The coordinator by itself: orders and a terminal out, reports in; the test plays runner and evaluator."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import pytest
import trio
import trio.testing

from actors import coordinator
from actors.attempt import AttemptOrder
from actors.bodies import open_bodies
from actors.context import Exchange
from actors.evaluator import Reports
from gate.config import RecoveryConfig
from gate.events import Complete, Ended, Facts, Success, Terminal, Violation, Wire
from gate.failure import Failure, FailureKind
from gate.observe import What
from gate.recovery import Why
from tests.doubles import Records, ScriptedProvider, exchange_of, gateway

FACTS = Facts()
RESET = Failure(FailureKind.RESET)
BUSY = Failure(FailureKind.UNAVAILABLE, 503)


@dataclass
class Table:
    """The far ends of the coordinator's channels."""

    orders: trio.MemoryReceiveChannel[AttemptOrder]
    reports: trio.MemorySendChannel[Reports]
    wire: trio.MemoryReceiveChannel[Wire]
    sent: list[float]


Play = Callable[[Table], Awaitable[None]]


async def coordinated(exchange: Exchange, play: Play) -> Table:
    """Runs the coordinator beside `play`, to the end of both."""
    send_orders, orders = trio.open_memory_channel[AttemptOrder](1)
    send_reports, reports = trio.open_memory_channel[Reports](2)
    send_wire, wire = trio.open_memory_channel[Wire](1)
    table = Table(orders, send_reports, wire, [])
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_coordinate, send_orders, reports, send_wire, exchange, table.sent)
        await play(table)
    return table


async def asked(table: Table, exchange: Exchange) -> AttemptOrder:
    """The next order, carried out: the runner has found a place for it."""
    order = await table.orders.receive()
    exchange.attempts += 1
    return order


async def _coordinate(
    orders: trio.MemorySendChannel[AttemptOrder],
    reports: trio.MemoryReceiveChannel[Reports],
    wire: trio.MemorySendChannel[Wire],
    exchange: Exchange,
    sent: list[float],
) -> None:
    async with open_bodies(exchange) as bodies:
        await coordinator.run(
            orders,
            reports,
            wire,
            exchange,
            bodies,
            sent=lambda: sent.append(trio.current_time()),
        )


def ended(n: int, how: Complete | Failure, *, target: int = 0, released: int = 0) -> Ended:
    """The evaluator's report on attempt `n`."""
    return Ended(n, how, target, released, FACTS if isinstance(how, Complete) else None)


async def test_a_complete_attempt_is_a_success() -> None:
    """One order for the pool's targets, one terminal, and then nobody is asked any more."""
    exchange = exchange_of(gateway(ScriptedProvider(), ScriptedProvider()))

    async def play(table: Table) -> None:
        order = await asked(table, exchange)
        assert (order.n, tuple(order.targets), order.last) == (1, (0, 1), False)
        await table.reports.send(ended(1, Complete()))
        assert await table.wire.receive() == Success(FACTS, 1)
        with pytest.raises(trio.EndOfChannel):
            await table.orders.receive()

    table = await coordinated(exchange, play)
    assert len(table.sent) == 1


async def test_a_failed_attempt_is_followed_by_another() -> None:
    """On the next target, at once; the ids count up."""
    records = Records()
    exchange = exchange_of(gateway(ScriptedProvider(), ScriptedProvider(), records=records))

    async def play(table: Table) -> None:
        await asked(table, exchange)
        await table.reports.send(ended(1, RESET))
        order = await asked(table, exchange)
        assert (order.n, order.targets[0]) == (2, 1)
        await table.reports.send(ended(2, Complete(), target=1))
        assert await table.wire.receive() == Success(FACTS, 2)

    await coordinated(exchange, play)
    assert records.codes(What.ATTEMPT_ENDED) == ["provider_reset", "complete"]
    assert records.codes(What.PLAN) == ["exact"]
    names = [each.provider for each in records.observations if each.what is What.ATTEMPT_ENDED]
    assert names == ["p0", "p1"]


async def test_the_next_order_waits_for_the_end_of_the_last_attempt() -> None:
    """One attempt is open at a time: a violation calls it off, and its end is still to come."""
    exchange = exchange_of(gateway(ScriptedProvider(), ScriptedProvider()))

    async def play(table: Table) -> None:
        first = await asked(table, exchange)
        await table.reports.send(Violation(1, Failure(FailureKind.EMPTY)))
        await trio.testing.wait_all_tasks_blocked()
        assert first.scope.cancel_called
        assert table.orders.statistics().current_buffer_used == 0
        await table.reports.send(ended(1, Complete()))
        second = await asked(table, exchange)
        assert (second.n, second.targets[0]) == (2, 1)
        assert not second.scope.cancel_called
        await table.reports.send(ended(2, Complete(), target=1))
        assert await table.wire.receive() == Success(FACTS, 2)

    await coordinated(exchange, play)


async def test_a_violation_counts_and_not_the_end_that_it_caused() -> None:
    """The attempt was called off; that is not what the caller is told."""
    exchange = exchange_of(gateway(ScriptedProvider()))

    async def play(table: Table) -> None:
        await asked(table, exchange)
        await table.reports.send(Violation(1, Failure(FailureKind.HELD_LIMIT)))
        await table.reports.send(ended(1, Failure(FailureKind.ABORTED)))
        terminal = await table.wire.receive()
        assert isinstance(terminal, Terminal)
        assert (terminal.error.status, terminal.error.code) == (502, "held_limit")

    await coordinated(exchange, play)


async def test_nothing_is_tried_again_once_something_was_released() -> None:
    """Half an answer and then another whole one would be two."""
    records = Records()
    exchange = exchange_of(gateway(ScriptedProvider(), ScriptedProvider(), records=records))

    async def play(table: Table) -> None:
        await asked(table, exchange)
        await table.reports.send(ended(1, Failure(FailureKind.CUT), released=3))
        terminal = await table.wire.receive()
        assert isinstance(terminal, Terminal)
        assert (terminal.error.code, terminal.attempts) == ("stream_cut", 1)

    await coordinated(exchange, play)
    assert records.codes(What.GIVE_UP) == [Why.RELEASED.value]


async def test_the_same_target_is_asked_again_after_its_pause(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """What it asked for, to the second."""
    exchange = exchange_of(gateway(ScriptedProvider(), ScriptedProvider()))

    async def play(table: Table) -> None:
        await asked(table, exchange)
        failure = Failure(FailureKind.RATE_LIMITED, 429, retry_after=7.0)
        await table.reports.send(ended(1, failure))
        second = await asked(table, exchange)
        assert trio.current_time() == pytest.approx(7)
        assert second.targets[0] == 0
        await table.reports.send(ended(2, Complete()))
        assert await table.wire.receive() == Success(FACTS, 2)

    await coordinated(exchange, play)


@pytest.mark.parametrize(("drains", "asks"), [(7.5, True), (6.5, False)])
async def test_in_a_drain_only_a_pause_that_fits_is_waited_for(
    drains: float, asks: bool, autojump_clock: trio.testing.MockClock
) -> None:
    """Of 7 s; a caller whose answer can't come any more is told at once, with what is left of the provider's own pause."""
    exchange = exchange_of(gateway(ScriptedProvider()))
    exchange.dispatch.drain(drains)

    async def play(table: Table) -> None:
        await asked(table, exchange)
        failure = Failure(FailureKind.RATE_LIMITED, 429, retry_after=7.0)
        await table.reports.send(ended(1, failure))
        if asks:
            await asked(table, exchange)
            assert trio.current_time() == pytest.approx(7)
            await table.reports.send(ended(2, Complete()))
            assert await table.wire.receive() == Success(FACTS, 2)
            return
        terminal = await table.wire.receive()
        assert isinstance(terminal, Terminal)
        assert (terminal.error.status, terminal.error.retry_after) == (429, 7.0)
        assert trio.current_time() == 0

    await coordinated(exchange, play)


async def test_the_last_attempt_is_told_so(autojump_clock: trio.testing.MockClock) -> None:
    """It may take longer; and when it fails too, that is the end."""
    records = Records()
    exchange = exchange_of(
        gateway(
            ScriptedProvider(),
            ScriptedProvider(),
            recovery=RecoveryConfig(attempts_max=3),
            records=records,
        )
    )

    async def play(table: Table) -> None:
        for n in (1, 2, 3):
            order = await asked(table, exchange)
            assert order.last is (n == 3)
            await table.reports.send(ended(n, BUSY, target=order.targets[0]))
        terminal = await table.wire.receive()
        assert isinstance(terminal, Terminal)
        assert (terminal.error.code, terminal.attempts) == ("provider_error", 3)

    await coordinated(exchange, play)
    assert records.codes(What.GIVE_UP) == [Why.ATTEMPTS.value]


async def test_without_a_target_there_is_no_attempt() -> None:
    """Nobody in the pool can do what the request needs."""
    exchange = exchange_of(gateway(ScriptedProvider()))
    exchange.targets = []

    async def play(table: Table) -> None:
        terminal = await table.wire.receive()
        assert isinstance(terminal, Terminal)
        assert (terminal.error.status, terminal.error.code) == (503, "no_provider")
        assert terminal.attempts == 0

    await coordinated(exchange, play)


async def test_an_attempt_that_found_no_place_was_none() -> None:
    """The caller is told how many attempts were made."""
    records = Records()

    async def play(table: Table) -> None:
        await table.orders.receive()
        await table.reports.send(ended(1, Failure(FailureKind.QUEUE), target=-1))
        terminal = await table.wire.receive()
        assert isinstance(terminal, Terminal)
        assert (terminal.error.status, terminal.error.code) == (503, "queue_timeout")
        assert terminal.attempts == 0

    await coordinated(exchange_of(gateway(ScriptedProvider(), records=records)), play)
    ends = [each for each in records.observations if each.what is What.ATTEMPT_ENDED]
    assert [(each.code, each.provider) for each in ends] == [("queue_timeout", "")]
