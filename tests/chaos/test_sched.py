"""The order of tasks, and the private names of trio that it needs."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from functools import partial

import pytest
import trio
import trio.testing

from ops.chaos.sched import (
    SEAMS,
    ScheduleInvalid,
    cancelled_by,
    deterministic,
    next_error,
    own_scope,
    reachable,
    replace_next,
    schedule_names,
    throw,
)


def home_of(path: str) -> object:
    """The module, or the class in it."""
    module, _, name = path.rpartition(".")
    if name[0].isupper():
        return getattr(importlib.import_module(module), name)
    return importlib.import_module(path)


@pytest.mark.parametrize("path", SEAMS)
def test_trio_still_has_its_private_names(path: str) -> None:
    """A release that renames one makes the explorer wrong without a word: this is where it is said."""
    home = home_of(path)
    names = {*dir(home), *getattr(home, "__attrs_attrs__", ()), *getattr(home, "__slots__", ())}
    said = {getattr(name, "name", name) for name in names}
    assert set(SEAMS[path]) <= said, "trio has renamed what the explorer relies on"


def order(schedule: str) -> Sequence[int]:
    """In which order five tasks run that may all run at once."""
    ran: list[int] = []

    async def task(number: int) -> None:
        await trio.lowlevel.checkpoint()
        ran.append(number)

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            for number in range(5):
                nursery.start_soon(task, number)

    with deterministic(schedule):
        trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
    return ran


def test_a_schedule_decides_the_order() -> None:
    """Oldest first, newest first, or a shuffle that is always the same."""
    assert order("fifo") == [0, 1, 2, 3, 4]
    assert order("reverse") == [4, 3, 2, 1, 0]
    assert order("s7") == order("s7")
    assert len({tuple(order(name)) for name in schedule_names(6)}) > 4


def test_trio_is_itself_again_after_the_block() -> None:
    """Also where an exception ends it."""
    module = vars(importlib.import_module("trio._core._run"))
    before = {name: module[name] for name in SEAMS["trio._core._run"]}

    def fails() -> None:
        with deterministic("s1"):
            assert module["_r"] is not before["_r"]
            raise KeyError

    with pytest.raises(KeyError):
        fails()
    assert {name: module[name] for name in before} == before


@pytest.mark.parametrize("name", ["", "lifo", "s", "sx", "s1234567890"])
def test_a_schedule_that_nobody_knows_is_refused(name: str) -> None:
    """Before anything runs."""
    with pytest.raises(ScheduleInvalid), deterministic(name):
        pass


async def test_an_exception_reaches_a_task_behind_a_shield() -> None:
    """And one that only gives way for a turn; a task that has been woken is out of reach."""
    met: list[BaseException] = []
    tasks: list[trio.lowlevel.Task] = []

    async def waits(*, shield: bool) -> None:
        tasks.append(trio.lowlevel.current_task())
        # Bounded by the exception that the test throws.
        with trio.CancelScope(shield=shield):
            try:
                await trio.sleep_forever()
            except KeyError as error:
                met.append(error)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(waits, shield=True))  # Bounded by what the test throws.
        await trio.testing.wait_all_tasks_blocked()
        assert reachable(tasks[0])
        assert throw(tasks[0], KeyError("a"))
        assert isinstance(next_error(tasks[0]), KeyError)
        assert not throw(tasks[0], KeyError("b"))
        replace_next(tasks[0], KeyError("c"))
    assert [str(error) for error in met] == ["'c'"]


async def test_a_cancel_is_traced_to_its_scope() -> None:  # noqa: ASYNC124 - a task to look at
    """Not through a shield, and not past a scope that was cancelled itself; a shield is nobody's to cancel."""
    seen: list[bool] = []
    task = trio.lowlevel.current_task()
    with trio.CancelScope() as outer:  # noqa: ASYNC100 - where it stands is all that is asked
        outer.cancel()
        seen.append(cancelled_by(task, outer))
        # Bounded by: nothing is awaited in it.
        with trio.CancelScope(shield=True):  # noqa: ASYNC100
            seen.append(cancelled_by(task, outer))
            assert own_scope(task) is outer
        with trio.CancelScope() as inner:  # noqa: ASYNC100
            seen.append(cancelled_by(task, outer))
            inner.cancel()
            seen.append(cancelled_by(task, outer))
            assert own_scope(task) is inner
    seen.append(cancelled_by(task, outer))
    assert seen == [True, False, True, False, False]
