"""One run: a case played through the real actors, on a virtual clock, to its end and to the end of everything it started.

`play` never raises for what the product does; whatever went wrong is in the `Run`, for `ops.chaos.invariants`.
"""

from __future__ import annotations

import gc
import sys
import warnings
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import trio

from actors.context import Door, Gateway
from actors.exchange import run_exchange
from actors.ports import Caller
from actors.probe import acting
from actors.recording import ended, recorded
from actors.tape import Tape
from gate.observe import Outcome
from ops.chaos.cases import PORT, Case, Fault
from ops.chaos.inject import PART, Injector, Targets, abandon, site_of, unstruck
from ops.chaos.loop import afresh, at_rest, on_loop
from ops.chaos.scenario import Scenario
from ops.chaos.sched import all_tasks, deterministic
from ops.chaos.world import Stage, door, rival_caller, staged

__all__ = ["Run", "play", "play_here", "removed", "settled", "warnings_kept", "watchdog"]

HANG_SECONDS: Final = 3600.0  # of virtual time: no clock of a scenario is longer
HEAD_START_SECONDS: Final = (
    0.001  # in which a rival gets as far as it gets without waiting for time
)
TAPE_KEY: Final = b"chaos"
ABANDON_ROUNDS: Final = 100  # that the tasks of a run which hangs are given to unwind


Supervise = Callable[[Door, Caller, Gateway], Awaitable[Outcome]]
"""What is struck: `actors.exchange.run_exchange`, or, where the explorer itself is tested, something with a fault in it."""


@dataclass
class Run:
    """What is known of a run when it is over. Times in virtual seconds."""

    case: Case
    scenario: Scenario
    stage: Stage
    injector: Injector
    scope: trio.CancelScope
    supervise: Supervise = run_exchange
    outcome: Outcome | None = None
    rivals: list[Outcome] = field(default_factory=list)
    ended_at: float | None = None
    hung: list[str] = field(default_factory=list)
    escaped: BaseException | None = None
    alive: bool = False
    tasks_left: int = 0
    warned: list[str] = field(default_factory=list)
    tape: Tape | None = None

    @property
    def struck(self) -> bool:
        """At least one fault has hit something."""
        return bool(self.stage.calls.failed) or any(each.hit for each in self.injector.strikes)

    @property
    def unstruck(self) -> list[Fault]:
        """Faults of the case that never came, or had nothing to hit."""
        return unstruck(self.case.faults, self.injector.strikes, self.stage.calls.count)

    @property
    def missed(self) -> bool:
        """There are such."""
        return bool(self.unstruck)

    def hit_of(self, who: str) -> bool:
        """Whether a fault struck this one."""
        return any(
            each.hit and who in {each.fault.who, each.actor} for each in self.injector.strikes
        )


def play(
    case: Case,
    scenario: Scenario,
    *,
    record: bool = False,
    record_from: int = 0,
    supervise: Supervise = run_exchange,
) -> Run:
    """Runs the case, on a loop of its own. `record`: with every point behind `record_from`."""
    return on_loop(
        partial(
            play_here, case, scenario, record=record, record_from=record_from, supervise=supervise
        )
    )


async def play_here(
    case: Case,
    scenario: Scenario,
    *,
    record: bool = False,
    record_from: int = 0,
    supervise: Supervise = run_exchange,
) -> Run:
    """The same on the loop that there is, which `ops.chaos.loop` has begun."""
    run = _prepared(case, scenario, record=record, record_from=record_from)
    run.supervise = supervise
    await afresh()
    with deterministic(case.schedule), warnings_kept(run.warned):
        tasks = trio.lowlevel.current_statistics().tasks_living
        trio.lowlevel.add_instrument(run.injector)
        try:
            await _main(run)
        except BaseException as error:  # noqa: ASYNC103 - whatever it is, it is what the run came to
            if _interrupted(error):
                raise
            run.escaped = error
        finally:
            run.alive = removed(run.injector)
        run.tasks_left = trio.lowlevel.current_statistics().tasks_living - tasks
    return run


def _interrupted(error: BaseException) -> bool:
    """Whether somebody wants all of it to end."""
    if isinstance(error, BaseExceptionGroup):
        return any(map(_interrupted, error.exceptions))
    return isinstance(error, KeyboardInterrupt)


def removed(injector: Injector) -> bool:
    """Takes the instrument away; False where it was gone before."""
    try:
        trio.lowlevel.remove_instrument(injector)
    except KeyError:
        return False
    return True


def _prepared(case: Case, scenario: Scenario, *, record: bool, record_from: int) -> Run:
    stage = staged(scenario, tuple(fault.at for fault in case.faults if fault.who == PORT))
    scope = trio.CancelScope()
    gate = stage.gate
    targets = Targets(scope, stage.caller.leave, gate.open.shut_down, lambda: stage.caller.turns)
    injector = Injector(case.faults, targets, record, record_from)
    return Run(case, scenario, stage, injector, scope)


async def _main(run: Run) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(watchdog, run.hung)
        with run.stage.threads.playing(nursery):
            await _exchanges(run, nursery)
            await run.stage.threads.done()
        nursery.cancel_scope.cancel()


async def _exchanges(run: Run, nursery: trio.Nursery) -> None:
    """The one that is struck, those beside it, and what happens meanwhile."""
    _happenings(run, nursery)
    others = [trio.Event(), trio.Event()]
    nursery.start_soon(_rivals, run, "rival", run.scenario.rivals, others[0])
    if run.scenario.rivals:
        await at_rest()
    nursery.start_soon(_rivals, run, "follower", run.scenario.followers, others[1])
    with run.scope:
        token = PART.set("subject")
        try:
            with acting("exchange"):
                run.outcome = await _supervised(run)
        finally:
            PART.reset(token)
            run.ended_at = trio.current_time()
    for each in others:
        await each.wait()


async def _supervised(run: Run) -> Outcome:
    """As the door does it: on a tape, where the scenario has one."""
    stage, scenario = run.stage, run.scenario
    at = door(endpoint=scenario.endpoint, explain=scenario.explained)
    if not run.scenario.recorded:
        return await run.supervise(at, stage.caller, stage.gate)
    tape = run.tape = Tape(TAPE_KEY)
    outcome = await run.supervise(at, *recorded(at, stage.caller, stage.gate, tape))
    ended(outcome, tape)
    return outcome


async def _rivals(run: Run, name: str, many: int, over: trio.Event) -> None:
    """Exchanges that want the same places."""
    async with trio.open_nursery() as nursery:
        for number in range(many):
            nursery.start_soon(_rival, run, f"{name}-{number}")
    over.set()


async def _rival(run: Run, name: str) -> None:
    PART.set("rival")
    run.rivals.append(await run_exchange(door(name), rival_caller(), run.stage.gate))


def _happenings(run: Run, nursery: trio.Nursery) -> None:
    """What a scenario lets happen at a time."""
    scenario, stage = run.scenario, run.stage
    if scenario.drains_at is not None:
        nursery.start_soon(_drain, run, scenario.drains_at)
    if scenario.asking.leaves_at is not None:
        nursery.start_soon(_later, scenario.asking.leaves_at, stage.caller.leave)


async def _later(seconds: float, what: Callable[[], None]) -> None:
    await trio.sleep(seconds)
    what()


async def _drain(run: Run, seconds: float) -> None:
    """A drain that begins at once and ends after so many seconds."""
    run.stage.gate.dispatch.drain(trio.current_time() + seconds)
    await trio.sleep(seconds)
    run.stage.gate.open.shut_down()


async def watchdog(hung: list[str]) -> None:
    """Ends a run that does not end by itself, shields included, and says in `hung` where everybody stood."""
    await trio.sleep(HANG_SECONDS)
    own = trio.lowlevel.current_task()
    tasks = [task for task in all_tasks() if task is not own and PART in task.context]
    hung += [f"{task.name} at {site_of(task)}" for task in tasks]
    for _ in range(ABANDON_ROUNDS):
        abandon(but=own)
        await trio.lowlevel.cancel_shielded_checkpoint()


@contextmanager
def warnings_kept(kept: list[str]) -> Iterator[None]:
    """Un-awaited coroutines and resources that were not closed are said as warnings, or to a hook."""
    show, hook = warnings.showwarning, sys.unraisablehook
    warnings.showwarning = lambda message, *_, **__: kept.append(str(message))
    sys.unraisablehook = lambda said: kept.append(repr(said.exc_value))
    try:
        yield
    finally:
        warnings.showwarning, sys.unraisablehook = show, hook


@contextmanager
def settled() -> Iterator[None]:
    """No garbage collection at a random step inside a run, and every warning, however often it was said."""
    gc.disable()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            yield
    finally:
        gc.enable()
