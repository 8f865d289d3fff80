"""Dispatch: places for exchanges and for attempts, given in order of arrival.

A place is taken synchronously or waited for in a bounded queue, and is given back by the `with` block that took it. Code between two checkpoints
is atomic under trio, so there is no lock; a waiter that is cancelled just after a place was handed to it hands the place on.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from math import inf
from typing import Final

import trio

__all__ = ["Dispatch", "Place", "Places"]

_EXCHANGE: Final = "exchange"


@dataclass(slots=True, eq=False)
class _Waiter:
    names: Sequence[str]
    granted: str | None = None
    woken: trio.Event = field(default_factory=trio.Event)


class Places:
    """`capacity[name]` places per name; who waits is served first come, first served."""

    def __init__(self, capacity: Mapping[str, int]) -> None:
        self._capacity = dict(capacity)
        self.taken: Counter[str] = Counter()
        self._waiters: deque[_Waiter] = deque()

    @property
    def waiting(self) -> int:
        return len(self._waiters)

    def take_nowait(self, names: Sequence[str]) -> str | None:
        """A place under the first of `names` that has room and that nobody is waiting for already; None if there is none."""
        wanted = {name for waiter in self._waiters for name in waiter.names}
        return self._take([name for name in names if name not in wanted])

    async def take(self, names: Sequence[str]) -> str:
        """Waits for a place under one of `names`."""
        await trio.lowlevel.checkpoint_if_cancelled()
        name = self.take_nowait(names)
        if name is not None:
            return name
        waiter = _Waiter(names)
        self._waiters.append(waiter)
        try:
            await waiter.woken.wait()
        except BaseException:
            # Whatever ends the wait: nobody would take the place, or give it back.
            if waiter.granted is None:
                self._waiters.remove(waiter)
            else:
                self.give(waiter.granted)
            raise
        assert waiter.granted is not None
        return waiter.granted

    def give(self, name: str) -> None:
        """Gives a place back, to whoever has waited longest for it."""
        assert self.taken[name] > 0
        self.taken[name] -= 1
        for waiter in self._waiters:
            waiter.granted = self._take(waiter.names)
            if waiter.granted is not None:
                self._waiters.remove(waiter)
                waiter.woken.set()
                return

    def _take(self, names: Sequence[str]) -> str | None:
        for name in names:
            if self.taken[name] < self._capacity[name]:
                self.taken[name] += 1
                return name
        return None

    def __repr__(self) -> str:
        return f"Places(taken={dict(self.taken)}, waiting={self.waiting})"


class Place:
    """An exchange's place: empty until it is admitted. `waited`: seconds that it has queued, for anything, so far."""

    def __init__(self) -> None:
        self.held = False
        self.waited = 0.0


class Dispatch:
    """Places for exchanges (`exchanges_max`, with a queue of `queue_max`) and, per provider, for attempts."""

    def __init__(
        self,
        *,
        exchanges_max: int,
        queue_max: int,
        queue_seconds_max: float,
        concurrency: Mapping[str, int],
    ) -> None:
        self.exchanges = Places({_EXCHANGE: exchanges_max})
        self.providers = Places(concurrency)
        self.drain_ends = inf  # what would have to wait longer is not begun
        self._draining = False
        self._queued: set[trio.CancelScope] = set()
        self._queue_max = queue_max
        self._queue_seconds_max = queue_seconds_max

    @contextmanager
    def place(self) -> Iterator[Place]:
        """An empty place; what it holds at the end of the block goes back."""
        place = Place()
        try:
            yield place
        finally:
            if place.held:
                self.exchanges.give(_EXCHANGE)

    async def admit(self, place: Place) -> str | None:
        """Fills the place, or says why not: `queue_full`, `queue_timeout`, `draining`."""
        if self.exchanges.take_nowait([_EXCHANGE]) is None:
            if self._draining:
                return "draining"
            if self.exchanges.waiting >= self._queue_max:
                return "queue_full"
            code = await self._queue(place)
            if code is not None:
                return code
        place.held = True
        return None

    async def _queue(self, place: Place) -> str | None:
        """Waits for an exchange's place; why there is none, or None."""
        code: str | None = "draining"
        with trio.CancelScope() as scope:
            self._queued.add(scope)
            try:
                granted = await self._wait(self.exchanges, [_EXCHANGE], place)
                code = "queue_timeout" if granted is None else None
            finally:
                self._queued.discard(scope)
        return code

    def drain(self, until: float) -> None:
        """From now on no exchange waits for its place; those that have theirs go on, and may wait for a provider."""
        self.drain_ends = until
        self._draining = True
        for scope in self._queued:
            scope.cancel()

    @asynccontextmanager
    async def slot(self, names: Sequence[str], place: Place) -> AsyncIterator[str | None]:
        """A place at the first of these providers that has room, waited for if none has; None when the queue's time is over."""
        name = self.providers.take_nowait(names)
        if name is None:
            name = await self._wait(self.providers, names, place)
        try:
            yield name
        finally:
            if name is not None:
                self.providers.give(name)

    async def _wait(self, places: Places, names: Sequence[str], place: Place) -> str | None:
        began = trio.current_time()
        granted: str | None = None
        with trio.move_on_after(max(0.0, self._queue_seconds_max - place.waited)):
            granted = await places.take(names)
        place.waited += trio.current_time() - began
        return granted
