"""What the actors share: early ends, the exchanges that are open, the deadline, notes."""

from __future__ import annotations

import trio
import trio.testing

from actors.context import Ending, OpenExchanges
from gate.config import ClocksConfig
from gate.observe import Observation, What
from tests.doubles import Records, ScriptedProvider, exchange_of, gateway


class Stopped(Ending):
    """An exchange's end that counts how often it was stopped."""

    def __init__(self) -> None:
        super().__init__(stop=self._stop)
        self.stops = 0

    def _stop(self) -> None:
        self.stops += 1


def test_the_first_reason_for_an_end_stays() -> None:
    """A caller who leaves while the drain ends was told `shutdown`."""
    ending = Ending()
    ending.because("caller_gone")
    ending.shut_down()
    assert ending.reason == "caller_gone"


def test_the_end_of_the_drain_stops_every_open_exchange() -> None:
    """And none that has ended already."""
    exchanges, here, gone = OpenExchanges(), Stopped(), Stopped()
    exchanges.add(here)
    exchanges.add(gone)
    exchanges.discard(gone)
    assert len(exchanges) == 1
    exchanges.shut_down()
    assert (here.stops, here.reason) == (1, "shutdown")
    assert (gone.stops, gone.reason) == (0, "")


async def test_the_drain_waits_for_the_last_exchange(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """One that comes while it waits is waited for too, and several may wait."""
    exchanges, first, second = OpenExchanges(), Ending(), Ending()
    woken: list[float] = []

    async def wait() -> None:
        with trio.fail_after(10):
            await exchanges.wait_empty()
        woken.append(trio.current_time())

    exchanges.add(first)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        nursery.start_soon(wait)
        await trio.sleep(1)
        exchanges.discard(first)
        exchanges.add(second)
        await trio.sleep(1)
        assert woken == []
        exchanges.discard(second)
    assert woken == [2.0, 2.0]


async def test_nobody_waits_where_no_exchange_is_open() -> None:
    """A drain of an idle service is over at once."""
    with trio.fail_after(0):
        await OpenExchanges().wait_empty()


async def test_an_exchange_has_so_long_as_its_route_says(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """From the moment that its request was whole; 0 is no limit."""
    await trio.sleep(5)
    limited = exchange_of(gateway(ScriptedProvider(), clocks=ClocksConfig(total_seconds=60)))
    endless = exchange_of(gateway(ScriptedProvider(), clocks=ClocksConfig(total_seconds=0)))
    assert limited.deadline == 65.0
    assert endless.deadline == float("inf")


async def test_a_note_carries_the_exchange_and_its_time(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """So that a log line can be read by itself."""
    records = Records()
    exchange = exchange_of(gateway(ScriptedProvider(), records=records))
    await trio.sleep(3)
    exchange.note(What.PLAN, attempt=1, code="exact", count=1)
    assert records.observations == [
        Observation(What.PLAN, "ex-1", attempt=1, code="exact", seconds=3.0, count=1)
    ]
