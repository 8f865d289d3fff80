"""The schedule of a run: which of the tasks that may run goes first. The one place that touches trio's private names.

trio sorts each batch of tasks by age only under its own flag, and takes the order from a module-level random source. With both replaced, a run is a function of
its case alone: in another process, under another hash seed, and under another version of Python. `SEAMS` is guarded by a test, which fails with a release of trio that renames one.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from typing import Any, Final, NoReturn

import outcome
import trio

__all__ = [
    "FIFO",
    "REVERSE",
    "SEAMS",
    "ScheduleInvalid",
    "all_tasks",
    "cancel",
    "cancelled_by",
    "deterministic",
    "next_error",
    "own_scope",
    "reachable",
    "replace_next",
    "schedule_names",
    "throw",
]

FIFO: Final = "fifo"
REVERSE: Final = "reverse"
SEAMS: Final = {
    "trio._core._run": ("_ALLOW_DETERMINISTIC_SCHEDULING", "_r"),
    "trio._core._run.Task": (
        "_abort_func",
        "_attempt_abort",
        "_cancel_status",
        "_counter",
        "_next_send",
        "_next_send_fn",
    ),
    "trio._core._run.CancelStatus": ("_parent", "_scope", "parent_cancellation_is_visible_to_us"),
}
"""Private names of trio that this module relies on, by where they are found."""

_SEEDED: Final = re.compile(r"s(\d{1,9})")
_RUN: Final[Any] = importlib.import_module("trio._core._run")


class ScheduleInvalid(ValueError):
    """A schedule that is none of `fifo`, `reverse` and `s` with a number."""


class _Order:
    """What trio asks for the order of a batch. The batch comes sorted by age, and trio takes from its end."""

    def __init__(self, arrange: Callable[[list[Any]], None]) -> None:
        self.shuffle = arrange

    def random(self) -> float:
        """Asked for only without the flag."""
        return 0.0


def schedule_names(seeds: int) -> list[str]:
    """Oldest first, newest first, and so many seeded ones."""
    return [FIFO, REVERSE, *(f"s{seed}" for seed in range(seeds))]


def _order(schedule: str) -> _Order:
    if schedule == FIFO:
        return _Order(lambda batch: batch.reverse())
    if schedule == REVERSE:
        return _Order(lambda _: None)
    seeded = _SEEDED.fullmatch(schedule)
    if seeded is None:
        raise ScheduleInvalid(f"{schedule!r} is none of fifo, reverse, s0, s1, ...")
    return _Order(Random(int(seeded[1])).shuffle)  # noqa: S311 - an order of tasks, no secret


@contextmanager
def deterministic(schedule: str) -> Iterator[None]:
    """The order of tasks for `trio.run` inside the block. Raises `ScheduleInvalid`."""
    names = vars(_RUN)
    before = {name: names[name] for name in SEAMS["trio._core._run"]}
    names.update(_ALLOW_DETERMINISTIC_SCHEDULING=True, _r=_order(schedule))
    try:
        yield
    finally:
        names.update(before)


def reachable(task: trio.lowlevel.Task) -> bool:
    """Whether an exception can be delivered where this task waits; asked at the end of its step."""
    return task._abort_func is not None or _passes(task)


def _passes(task: trio.lowlevel.Task) -> bool:
    """It has only given way for a turn, and nothing else is on its way to it."""
    private: Any = task
    return private._next_send_fn is not None and isinstance(private._next_send, outcome.Value)


def throw(task: trio.lowlevel.Task, error: BaseException) -> bool:
    """Raises `error` where the task waits, shielded or not; False where it can't be reached there."""

    def raise_it() -> NoReturn:
        raise error

    if task._abort_func is not None:
        task._attempt_abort(raise_it)
        return True
    if _passes(task):
        replace_next(task, error)
        return True
    return False


def replace_next(task: trio.lowlevel.Task, error: BaseException) -> None:
    """Makes a task that is about to run meet `error` instead of what it waited for."""
    private: Any = task
    private._next_send = outcome.Error(error)


def next_error(task: trio.lowlevel.Task) -> BaseException | None:
    """The exception that a task which is about to run will meet."""
    sent: Any = task._next_send
    return sent.error if isinstance(sent, outcome.Error) else None


def cancel(scope: trio.CancelScope) -> list[trio.lowlevel.Task]:
    """Cancels the scope, and says which tasks have heard of it where they stand and go on waiting: those at the end of a nursery, for its tasks."""
    waiting = [task for task in all_tasks() if task._abort_func is not None]
    scope.cancel()
    return [task for task in waiting if task._abort_func is None and _stands(task)]


def _stands(task: trio.lowlevel.Task) -> bool:
    private: Any = task
    return private._next_send_fn is None


def all_tasks() -> Iterator[trio.lowlevel.Task]:
    """Every task of this run."""
    root = trio.lowlevel.current_root_task()
    waiting = [root] if root is not None else []
    while waiting:
        task = waiting.pop()
        yield task
        for nursery in task.child_nurseries:
            waiting.extend(nursery.child_tasks)


def own_scope(task: trio.lowlevel.Task) -> trio.CancelScope:
    """The innermost cancel scope around what the task does now: one of its own, or that of the nursery that it runs in. One that shields is passed over: nobody else can reach it."""
    status: Any = task._cancel_status
    while status._scope.shield and status._parent is not None:
        status = status._parent
    scope: trio.CancelScope = status._scope
    return scope


def cancelled_by(task: trio.lowlevel.Task, scope: trio.CancelScope) -> bool:
    """Whether a cancel of `scope` reaches the task where it stands: no shield between them, and no scope that was itself cancelled."""
    status: Any = task._cancel_status
    while status is not None:
        if status._scope is scope:
            return bool(scope.cancel_called)
        if status._scope.cancel_called or not status.parent_cancellation_is_visible_to_us:
            return False
        status = status._parent
    return False
