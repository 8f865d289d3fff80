"""Worker threads as they are played keep the rules of trio's own."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

import pytest
import trio

from ops.chaos.inject import Bug
from ops.chaos.loop import on_loop
from ops.chaos.threads import PlayedThreads

Job = Callable[[PlayedThreads], Awaitable[None]]


def played(job: Job, *, fails: bool = False) -> None:
    """A block in which threads take two seconds."""

    async def run() -> None:
        threads = PlayedThreads(2.0, lambda _: fails)
        real = trio.to_thread.run_sync
        async with trio.open_nursery() as home:
            with threads.playing(home):
                await job(threads)
                await threads.done()
        assert threads.running == 0
        assert trio.to_thread.run_sync is real

    on_loop(run)


def test_a_thread_takes_its_time_and_returns_what_it_made() -> None:
    """On the virtual clock."""

    async def job(threads: PlayedThreads) -> None:
        assert await trio.to_thread.run_sync(pow, 2, 3) == 8
        assert trio.current_time() == 2
        with pytest.raises(ValueError, match="invalid literal"):
            await trio.to_thread.run_sync(int, "x")

    played(job)


def test_one_that_fails_does_so_at_its_end() -> None:
    """And the fault is known as one that was meant."""

    async def job(threads: PlayedThreads) -> None:
        with pytest.raises(Bug):
            await trio.to_thread.run_sync(int, "1")
        assert len(threads.errors) == 1

    played(job, fails=True)


def test_a_cancel_waits_for_a_thread_that_has_begun() -> None:
    """And none is begun behind one."""

    async def job(threads: PlayedThreads) -> None:
        done: list[int] = []
        with trio.move_on_after(1):
            await trio.to_thread.run_sync(done.append, 1)
            await trio.to_thread.run_sync(done.append, 2)
        assert (done, trio.current_time()) == ([1], 2)

    played(job)


def test_one_that_is_abandoned_goes_on_and_keeps_its_place() -> None:
    """The next waits for it."""

    async def job(threads: PlayedThreads) -> None:
        done: list[int] = []
        one = trio.CapacityLimiter(1)
        run = partial(trio.to_thread.run_sync, abandon_on_cancel=True, limiter=one)
        with trio.move_on_after(0.5):
            await run(done.append, 1)
        assert (done, trio.current_time(), one.borrowed_tokens) == ([], 0.5, 1)
        await run(done.append, 2)
        assert (done, trio.current_time(), one.borrowed_tokens) == ([1, 2], 4.0, 0)
        with trio.move_on_after(0.5):
            await run(done.append, 3)

    played(job)
