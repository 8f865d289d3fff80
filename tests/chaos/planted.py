"""Supervisors with a fault in them, for the explorer to find: each runs the real exchange, and then or meanwhile does something that it may not."""

from __future__ import annotations

import trio

from actors.context import Door, Gateway
from actors.exchange import run_exchange
from actors.ports import Caller
from gate.observe import Outcome


async def leaks(door: Door, caller: Caller, gateway: Gateway) -> Outcome:
    """A reservation that is released only where nobody cancels."""
    held = gateway.budget.reserve(10)
    outcome = await run_exchange(door, caller, gateway)
    held.release()
    return outcome


async def ends_twice(door: Door, caller: Caller, gateway: Gateway) -> Outcome:
    """A second terminal."""
    outcome = await run_exchange(door, caller, gateway)
    await caller.end(b"data: [DONE]\n\n")
    return outcome


async def swallows(door: Door, caller: Caller, gateway: Gateway) -> Outcome:
    """An exchange that is cancelled is tried once more."""
    try:
        return await run_exchange(door, caller, gateway)
    except BaseException:
        await trio.sleep(1)  # noqa: ASYNC102 - the fault
        raise


async def hides(door: Door, caller: Caller, gateway: Gateway) -> Outcome:
    """Crashes are told to nobody."""
    gateway.crashed = lambda _exchange, _error: None
    return await run_exchange(door, caller, gateway)


async def hangs(door: Door, caller: Caller, gateway: Gateway) -> Outcome:
    """Waits for ever, and lets nobody end that."""
    await run_exchange(door, caller, gateway)
    # Bounded by nothing: the fault.
    with trio.CancelScope(shield=True):
        await trio.sleep_forever()
    raise AssertionError


async def spins(door: Door, caller: Caller, gateway: Gateway) -> Outcome:
    """Never lets time go by."""
    while True:  # noqa: ASYNC110 - the fault
        await trio.lowlevel.checkpoint()


async def lingers(door: Door, caller: Caller, gateway: Gateway) -> Outcome:
    """Takes its time over a cleanup, shielded."""
    try:
        return await run_exchange(door, caller, gateway)
    finally:
        # Bounded by the sleep.
        with trio.CancelScope(shield=True):
            await trio.sleep(5)


async def forgets(door: Door, caller: Caller, gateway: Gateway) -> Outcome:
    """Makes a coroutine and does not await it."""
    trio.sleep(1)  # type: ignore[unused-coroutine]  # noqa: ASYNC105 - the fault
    return await run_exchange(door, caller, gateway)
