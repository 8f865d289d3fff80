"""Worker threads, played: what is computed beside the loop takes its time on the virtual clock.

A real thread would race that clock, which leaps as soon as no task can run. This one keeps trio's rules: it is not begun for a task that is cancelled; it can't be cancelled; one that
may be abandoned goes on for nobody, and keeps its place until it is done.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import Context
from typing import Any, Final

import trio

from ops.chaos.inject import Bug

__all__ = ["PlayedThreads"]

PLACES: Final = 40  # where the caller of a thread brings no limiter, as trio has it


class PlayedThreads:
    """`seconds`: that each thread takes. `due`: asked at each; whether it is to fail. `running`: threads that have begun and are not done."""

    def __init__(self, seconds: float, due: Callable[[str], bool]) -> None:
        self.running = 0
        self.errors: list[Bug] = []
        self._seconds = seconds
        self._due = due
        self._home: trio.Nursery | None = None
        self._over = trio.Event()

    @contextmanager
    def playing(self, home: trio.Nursery) -> Iterator[None]:
        """In the block, `trio.to_thread.run_sync` is this. `home` outlives whoever abandons a thread."""
        real, self._home = trio.to_thread.run_sync, home
        trio.to_thread.run_sync = self.run_sync  # type: ignore[assignment]
        try:
            yield
        finally:
            trio.to_thread.run_sync = real

    async def done(self) -> None:
        """Until none is left that somebody has abandoned."""
        if self.running:
            self._over = trio.Event()
            await self._over.wait()

    async def run_sync(
        self,
        sync_fn: Callable[..., Any],
        *args: Any,
        abandon_on_cancel: bool = False,
        limiter: trio.CapacityLimiter | None = None,
    ) -> Any:
        """What trio's does, with its arguments as far as the product uses them."""
        await trio.lowlevel.checkpoint_if_cancelled()
        thread, places = object(), limiter or trio.CapacityLimiter(PLACES)
        await places.acquire_on_behalf_of(thread)
        self.running += 1
        ends = trio.current_time() + self._seconds

        def finished() -> None:
            self.running -= 1
            places.release_on_behalf_of(thread)
            if not self.running:
                self._over.set()

        def computed() -> Any:
            finished()
            if self._due("thread"):
                self.errors.append(Bug("a thread failed"))
                raise self.errors[-1]
            return sync_fn(*args)

        async def alone() -> None:
            await trio.sleep_until(ends)
            sync_fn(*args)
            finished()

        # Bounded by: the sleep.
        with trio.CancelScope(shield=not abandon_on_cancel):
            try:
                await trio.sleep_until(ends)
            except BaseException:
                assert self._home is not None, "threads are played in a run"
                # In a context of its own: it is no task of the exchange.
                Context().run(self._home.start_soon, alone)
                raise
        return computed()
