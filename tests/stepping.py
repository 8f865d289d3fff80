"""One schedule, and striking at one step of it: what the cancellation explorers share."""

from __future__ import annotations

import importlib
from collections.abc import Callable

import trio


def seed_scheduler(seed: int) -> None:
    """Makes the order of tasks that may run a function of `seed`. The only use of trio's private names: its own tests do the same."""
    names = vars(importlib.import_module("trio._core._run"))
    assert {"_ALLOW_DETERMINISTIC_SCHEDULING", "_r"} <= names.keys(), "trio has renamed its seams"
    names["_ALLOW_DETERMINISTIC_SCHEDULING"] = True
    names["_r"].seed(seed)


class Striker(trio.abc.Instrument):
    """Calls `strike` at the k-th beginning or end of a task's step."""

    def __init__(self, strike: Callable[[], None], step: int) -> None:
        self._strike = strike
        self._left = step

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self._count()

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        self._count()

    def _count(self) -> None:
        self._left -= 1
        if self._left == 0:
            self._strike()
