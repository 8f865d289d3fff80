"""The instrument of a run: counts its points, strikes at the one that a fault names, and watches what no outcome shows.

An exception in an instrument is logged by trio and takes the instrument away without a word; whoever installs this one looks at the end whether it is still there.
"""

from __future__ import annotations

import itertools
import linecache
import os
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import trio

from actors.probe import ACTOR
from ops.chaos.cases import ANYONE, CALLER, DRAIN, PORT, REQUEST, Fault
from ops.chaos.sched import (
    all_tasks,
    cancel,
    cancelled_by,
    next_error,
    own_scope,
    reachable,
    throw,
)

__all__ = [
    "PART",
    "STEPS_MAX",
    "Abandoned",
    "Bug",
    "Injector",
    "Point",
    "Strike",
    "Targets",
    "abandon",
    "line_of",
    "site_of",
    "sites_of",
    "unstruck",
]

STEPS_MAX: Final = 20_000  # of one run; a whole exchange takes some hundred
SUBJECT: Final = "subject"
PART: Final[ContextVar[str]] = ContextVar("PART", default="")
"""Which exchange of the run a task belongs to: the one that is struck, or a rival. Empty: a task of the explorer."""

_ROOT: Final = str(Path(__file__).resolve().parent.parent.parent) + os.sep
_OURS: Final = tuple(_ROOT + package + os.sep for package in ("actors", "gate"))


class Bug(Exception):
    """What an actor meets that nobody expects."""


class Abandoned(BaseException):
    """Ends the tasks of a run that does not end by itself. Not an `Exception`, so that no boundary takes it for a bug of the product."""


def abandon(*, but: trio.lowlevel.Task | None = None) -> None:
    """Ends the tasks of a run where they wait, shields included. One at the end of a nursery is told, and waits for its tasks."""
    for task in list(all_tasks()):
        if task is not but and PART in task.context:
            throw(task, Abandoned())


@dataclass(frozen=True, slots=True)
class Point:
    """One place where a fault may strike. `fresh`: since the point before it something has happened; `reachable`: an exception can be raised there; `sites`: where the task waits, outermost first.

    `heard`: since the point before it a batch of tasks has begun, or the caller's side was used: a caller that leaves here does something else than one that left there.
    """

    at: int
    actor: str
    subject: bool
    fresh: bool
    reachable: bool
    sites: tuple[str, ...]
    heard: bool = True


@dataclass(slots=True)
class Targets:
    """What a fault may hit beside a task: the exchange's scope, what its caller and a drain do, and `others`: what else there is in a ring, by who does it. `turns`: how often the caller's side was used so far."""

    scope: trio.CancelScope
    leave: Callable[[], None]
    drain: Callable[[], None]
    turns: Callable[[], int] = itertools.count().__next__
    others: Mapping[str, Callable[[], None]] = field(default_factory=dict)


def site_of(task: trio.lowlevel.Task) -> str:
    """`actors/sink.py:123`: the innermost line of the product at which the task waits; empty where there is none."""
    sites = sites_of(task)
    return sites[-1] if sites else ""


def sites_of(task: trio.lowlevel.Task) -> tuple[str, ...]:
    """The same for every line of the product that waits for the one below it, outermost first."""
    return tuple(
        f"{frame.f_code.co_filename.removeprefix(_ROOT)}:{line}"
        for frame, line in task.iter_await_frames()
        if frame.f_code.co_filename.startswith(_OURS)
    )


def line_of(sites: Sequence[str]) -> str:
    """The text of the line at which such a task waits; empty where it waits in no line of the product."""
    file, _, number = sites[-1].rpartition(":") if sites else ("", "", "0")
    return linecache.getline(_ROOT + file, int(number))


@dataclass(slots=True)
class Strike:
    """A fault that was due: when, at whom, and whether there was anything to hit."""

    fault: Fault
    time: float
    actor: str
    sites: tuple[str, ...]
    hit: bool
    error: Bug | None = None


def unstruck(faults: Sequence[Fault], strikes: Sequence[Strike], calls: int) -> list[Fault]:
    """Those of the faults that never came, or had nothing to hit. `calls`: of ports, that were made."""
    hit = [each.fault for each in strikes if each.hit]
    return [each for each in faults if (each.at > calls if each.who == PORT else each not in hit)]


@dataclass(eq=False)
class Injector(trio.abc.Instrument):
    """Strikes each fault once. `record`: also notes every point, and what the run did, step by step."""

    faults: Sequence[Fault]
    targets: Targets
    record: bool = False
    record_from: int = 0
    count: int = 0
    strikes: list[Strike] = field(default_factory=list)
    points: list[Point] = field(default_factory=list)
    steps: list[tuple[float, str, str]] = field(default_factory=list)
    spun: bool = False
    twice: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        waiting = [fault for fault in self.faults if fault.who != PORT]
        self._waiting = sorted(waiting, key=lambda fault: fault.at)
        self._next = self._waiting[0].at if self._waiting else 0
        self._fresh = self._heard = True
        self._turns = -1
        self._before = False
        self._struck = False
        self._told: dict[trio.lowlevel.Task, int] = {}

    def disarm(self) -> None:
        """What has not struck by now does not: whatever it was meant for is over."""
        self._waiting.clear()
        self._next = 0

    def after_io_wait(self, timeout: float) -> None:
        """Time may have passed: the next point is one of its own."""
        self._fresh = self._heard = True

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        """A point, before what the task waited for reaches it."""
        if self.spun or not task.context.get(PART):
            return
        if self._struck:
            self._watch(task)
        self._before = True
        self._point(task, fresh=self._fresh)
        self._fresh = self._before = False

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        """A point, where the task waits again or has ended."""
        if not task.context.get(PART):
            return
        if not self.spun:
            self._point(task, fresh=True)
        if self.spun:
            abandon()

    def _point(self, task: trio.lowlevel.Task, *, fresh: bool) -> None:
        self.count += 1
        if self.count > 2 * STEPS_MAX:
            self.spun = True
            return
        if self.record and self.count > self.record_from:
            self._note(task, fresh=fresh)
        if self.count == self._next:
            fault = self._waiting.pop(0)
            self._next = self._waiting[0].at if self._waiting else 0
            self._strike(fault, task)

    def _note(self, task: trio.lowlevel.Task, *, fresh: bool) -> None:
        actor, subject = task.context.get(ACTOR, ""), task.context[PART] == SUBJECT
        sites, after = sites_of(task), not self._before
        turns = self.targets.turns()
        heard, self._heard = self._heard or turns != self._turns, False
        self._turns = turns
        hit = after and reachable(task)
        self.points.append(Point(self.count, actor, subject, fresh, hit, sites, heard))
        self.steps.append((round(trio.current_time(), 6), actor, sites[-1] if sites else ""))

    def _strike(self, fault: Fault, task: trio.lowlevel.Task) -> None:
        actor = task.context.get(ACTOR, "")
        strike = Strike(fault, trio.current_time(), actor, sites_of(task), hit=True)
        self.strikes.append(strike)
        self._struck = True
        match fault.who:
            case who if who == REQUEST:
                self._told.update(dict.fromkeys(cancel(self.targets.scope), 1))
            case who if who == CALLER:
                self.targets.leave()
            case who if who == DRAIN:
                self.targets.drain()
            case who if who in self.targets.others:
                self.targets.others[who]()
            case _:
                self._strike_task(fault, strike, task)

    def _strike_task(self, fault: Fault, strike: Strike, task: trio.lowlevel.Task) -> None:
        if fault.who not in {ANYONE, strike.actor} or task.context[PART] != SUBJECT:
            strike.hit = False
        elif fault.kind == "raise":
            # What a task is about to be woken with can't be an exception instead: it may stand inside of trio itself.
            error = Bug(str(fault))
            strike.hit = not self._before and throw(task, error)
            strike.error = error if strike.hit else None
        elif task.parent_nursery is None:
            strike.hit = False  # it has ended
        else:
            own_scope(task).cancel()

    def _watch(self, task: trio.lowlevel.Task) -> None:
        """A task that meets the exchange's `Cancelled` a second time has swallowed it, or awaits in its cleanup."""
        if not isinstance(next_error(task), trio.Cancelled):
            return
        if cancelled_by(task, self.targets.scope):
            told = self._told[task] = self._told.get(task, 0) + 1
            if told > 1:
                self.twice.append(f"{task.context.get(ACTOR, '')} at {site_of(task)}")
