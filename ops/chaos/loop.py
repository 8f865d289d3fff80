"""One event loop for many runs, on a virtual clock. Starting trio's loop costs as much as a tenth of a run and more, so a search starts it once.

No run can tell: each begins at time zero, with nothing of another one alive and nobody else about to run, whatever was played before it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from math import inf
from typing import Final, TypeVar

import trio
import trio.testing

__all__ = ["VirtualClock", "afresh", "at_rest", "on_loop"]

SETTLES: Final = 3  # turns of the loop that what a run has left to trio itself is given

T = TypeVar("T")


class VirtualClock(trio.abc.Clock):
    """Stands still while anybody can run, and then leaps to the next deadline. Where there is none, the loop waits in real time: a run has a watchdog."""

    def __init__(self) -> None:
        self.now = 0.0
        self.stands = False

    def start_clock(self) -> None:
        """It goes by itself."""

    def current_time(self) -> float:
        """In virtual seconds."""
        return self.now

    def deadline_to_sleep_time(self, deadline: float) -> float:
        """Asked where nobody can run: the next thing that happens is this deadline."""
        if self.stands or deadline == inf:
            return inf
        self.now = max(self.now, deadline)
        return 0.0


def on_loop(job: Callable[[], Awaitable[T]]) -> T:
    """What `job` returns, run on an event loop of its own with a virtual clock; called from outside of any loop."""
    return trio.run(job, clock=VirtualClock())


def _clock() -> VirtualClock:
    clock = trio.lowlevel.current_clock()
    assert isinstance(clock, VirtualClock), "a run needs the virtual clock"
    return clock


async def at_rest() -> None:
    """Until every other task waits, with no time going by."""
    clock = _clock()
    clock.stands = True
    await trio.testing.wait_all_tasks_blocked()
    clock.stands = False


async def afresh() -> None:
    """Time zero, with nobody about to run but the task that asks. No task of another run may be alive."""
    clock = _clock()
    for _ in range(SETTLES):
        await trio.lowlevel.cancel_shielded_checkpoint()
    clock.now = 0.0
    await trio.lowlevel.cancel_shielded_checkpoint()
