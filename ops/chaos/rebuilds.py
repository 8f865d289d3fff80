"""The rebuilder's close: a crowd of users that rebuild, take and send, and of closers that close in the middle of it, struck at every point.

I3 is looked at when a close returns: no rebuild is inside, and no byte is held but those that were taken before.
"""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import Final

import msgspec
import trio

from actors.probe import acting
from actors.rebuilder import Rebuilder
from gate.budget import MemoryBudget
from gate.errors import RebuilderClosed, RebuildOverflow, StoreClosed
from gate.ingress import IngressSnapshot, read_chat_request
from gate.plan import Directive, Exact, RecoveryPlan, SchemaRepair
from gate.refs import ExchangeId, PlanId, Refs, SnapshotRef
from ops.chaos.cases import CALLER, DRAIN, Case, Fault
from ops.chaos.explore import FAILURES_MAX, Failure, Tally, struck_at
from ops.chaos.inject import PART, Bug, Injector, Targets, unstruck
from ops.chaos.loop import afresh, on_loop
from ops.chaos.run import removed, watchdog
from ops.chaos.sched import deterministic
from ops.chaos.threads import PlayedThreads

__all__ = ["CROWDS", "Crowd", "explore", "run_crowd"]

ENDPOINT: Final = "/v1/chat/completions"
SNAPSHOT: Final = SnapshotRef("ex-1.snapshot")
SMALL: Final = msgspec.json.encode({"model": "small", "messages": ["hi"]})
LARGE: Final = msgspec.json.encode(
    {"model": "small", "messages": ["hi"], "user": "x" * (1_048_576 + 100_000)}
)
REQUESTS: Final = {body: read_chat_request(body, depth_max=64) for body in (SMALL, LARGE)}
COPY_SECONDS: Final = 0.00025  # a copy that has begun ends by itself


@dataclass(frozen=True, slots=True)
class Crowd:
    """`room`: bytes beside the snapshot; `fails_at`: the copy that breaks (0: none); `drafts`: of so many drafts one is taken; `turns`: of the loop that closers take behind their time."""

    about: str
    body: bytes
    users: int
    closers: int
    room: int = 16 * 1_048_576
    fails_at: int = 0
    drafts: int = 2
    turns: int = 0


CROWDS: Final[Mapping[str, Crowd]] = MappingProxyType(
    {
        "rebuilds": Crowd("bodies made at once", SMALL, 3, 3),
        "rebuilds-met": Crowd(
            "a close in the turn in which the last one begins", SMALL, 1, 2, turns=1
        ),
        "rebuilds-sliced": Crowd("bodies copied slice by slice, as in a thread", LARGE, 2, 2),
        "rebuilds-broken": Crowd("a copy fails", LARGE, 2, 1, fails_at=4),
        "rebuilds-tight": Crowd("no room for two bodies", LARGE, 2, 1, room=2 * 1_048_576),
    }
)


@dataclass
class CrowdRun:
    """One run of a crowd."""

    crowd: Crowd
    case: Case
    record: bool
    budget: MemoryBudget = field(init=False)
    rebuilder: Rebuilder = field(init=False)
    threads: PlayedThreads = field(init=False)
    injector: Injector = field(init=False)
    scope: trio.CancelScope = field(init=False)
    inside: int = 0
    taken: int = 0
    copies: int = 0
    finished: int = 0
    found: list[str] = field(default_factory=list)
    hung: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        body = self.crowd.body
        self.budget = MemoryBudget("exchange", len(body) + self.crowd.room)
        snapshot = IngressSnapshot(self.budget)
        snapshot.fill(body, REQUESTS[body])
        refs = Refs(ExchangeId("ex-1"))
        self.rebuilder = Rebuilder(snapshot, self.budget, endpoint=ENDPOINT, refs=refs)
        self.threads = PlayedThreads(COPY_SECONDS, self._fails)
        self.scope = trio.CancelScope()
        targets = Targets(self.scope, leave=lambda: None, drain=lambda: None)
        self.injector = Injector(self.case.faults, targets, self.record)

    @property
    def extra(self) -> int:
        """Bytes beside the snapshot's."""
        return self.budget.used - len(self.crowd.body)

    @property
    def unstruck(self) -> list[Fault]:
        """Faults of the case that never came, or had nothing to hit."""
        return unstruck(self.case.faults, self.injector.strikes, 0)

    async def main(self) -> None:
        """Users, closers, and the block around them that closes last."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(watchdog, self.hung)
            with self.threads.playing(nursery), self.scope:
                token = PART.set("subject")
                try:
                    await self._together()
                except* Bug as group:
                    self._told(group)
                finally:
                    await self.rebuilder.aclose()
                    self._check("the block's close")
                    PART.reset(token)
            nursery.cancel_scope.cancel()

    async def _together(self) -> None:
        crowd = self.crowd
        jobs: dict[str, Callable[[], Awaitable[None]]] = {
            **{f"user-{n}": partial(self._use, n) for n in range(crowd.users)},
            **{f"closer-{n}": partial(self._close, n) for n in range(crowd.closers)},
        }
        async with trio.open_nursery() as nursery:
            for name, job in jobs.items():
                nursery.start_soon(self._within, name, job)

    async def _within(self, name: str, job: Callable[[], Awaitable[None]]) -> None:
        """Each in a scope of its own, so that it can be cancelled alone."""
        with trio.CancelScope(), acting(name):
            await job()

    async def _use(self, number: int) -> None:
        """Rebuild after rebuild, until the rebuilder is closed."""
        await trio.sleep(0.0005 * number)
        try:
            for count in itertools.count():
                await self._rebuild(number, count)
        except (RebuilderClosed, StoreClosed):
            self.finished += 1

    async def _rebuild(self, number: int, count: int) -> None:
        repair = SchemaRepair(f"tool.{number}", "tool_arguments")
        directive: Directive = Exact(SNAPSHOT) if count % 3 == number else repair
        if directive is repair:
            self.rebuilder.patches.put(repair, b'["again"]')
        plan = RecoveryPlan(PlanId(f"ex-1.{100 * number + count}"), directive, (0,))
        self.inside += 1
        try:
            draft = await self.rebuilder.rebuild(SNAPSHOT, plan)
        except RebuildOverflow:
            await trio.sleep(0.001)
            return
        finally:
            self.inside -= 1
        if count % self.crowd.drafts:
            return
        with self.rebuilder.take(draft.request_ref) as lease:
            mine = lease.size if directive is repair else 0
            self.taken += mine
            try:
                await trio.sleep(0.001)
            finally:
                self.taken -= mine

    def _fails(self, _: str) -> bool:
        """One more copy; whether it is the one that breaks."""
        self.copies += 1
        return self.copies == self.crowd.fails_at

    async def _close(self, number: int) -> None:
        await trio.sleep(0.004 + 0.001 * number)
        for _ in range(self.crowd.turns):
            await trio.lowlevel.checkpoint()
        await self.rebuilder.aclose()
        self._check(f"closer {number}")

    def _check(self, who: str) -> None:
        """At the very return of a close."""
        if "in_flight=0" not in repr(self.rebuilder):
            self.found.append(f"I3 {who}: a rebuild is inside")
        if self.extra != self.taken:
            self.found.append(f"I3 {who}: {self.extra} bytes held, {self.taken} taken")
        if len(self.rebuilder.patches):
            self.found.append(f"I3 {who}: a patch is left")

    def _told(self, group: BaseExceptionGroup[Bug]) -> None:
        raised = [each.error for each in self.injector.strikes if each.error is not None]
        known = [*raised, *self.threads.errors]
        self.found += [f"I11 unknown: {each!r}" for each in _flat(group) if each not in known]

    def findings(self) -> list[str]:
        """What this run breaks, once it is over."""
        if self.hung:
            return ["I0 hangs: " + "; ".join(self.hung)]
        found = list(self.found)
        if self.extra or self.budget.open_reservations != 1 or self.inside or self.taken:
            found.append(f"I1 still held: {self.budget!r}")
        if "0 leases" not in repr(self.rebuilder):
            found.append("I1 a body is left")
        if self.injector.spun:
            found.append("I0 spins")
        found += [f"I20 `Cancelled` a second time: {each}" for each in self.injector.twice]
        if not any(each.hit for each in self.injector.strikes) and not self.threads.errors:
            done = self.finished == self.crowd.users
            found += (
                [] if done else [f"I0 {self.finished} of {self.crowd.users} users came to an end"]
            )
        return found


def _flat(group: BaseException) -> list[BaseException]:
    if isinstance(group, BaseExceptionGroup):
        return [leaf for each in group.exceptions for leaf in _flat(each)]
    return [group]


def run_crowd(case: Case, *, record: bool = False) -> tuple[CrowdRun, list[str]]:
    """One run and what it breaks."""
    return on_loop(partial(_run_here, case, record=record))


async def _run_here(case: Case, *, record: bool = False) -> tuple[CrowdRun, list[str]]:
    run = CrowdRun(CROWDS[case.scenario], case, record)
    await afresh()
    with deterministic(case.schedule):
        trio.lowlevel.add_instrument(run.injector)
        try:
            await run.main()
        except (Exception, BaseExceptionGroup) as error:  # noqa: BLE001 - it is what the run came to
            run.found.append(f"I11 unknown: {error!r}")
        if not removed(run.injector):
            run.found.append("I19 the instrument was gone before the end")
    return run, run.findings()


def explore(name: str, schedule: str) -> Tally:
    """All single faults under this schedule: the crowd cancelled, each of it cancelled, each struck by an exception."""
    return on_loop(partial(_explore, Case(name, schedule)))


async def _explore(plain: Case) -> Tally:
    tally = Tally()
    clean = await _add(tally, plain, record=True)
    for point in clean.injector.points:
        for fault in struck_at(point, whole=True):
            if len(tally.failures) < FAILURES_MAX and fault.who not in {CALLER, DRAIN}:
                await _add(tally, plain.with_fault(fault))
    return tally


async def _add(tally: Tally, case: Case, *, record: bool = False) -> CrowdRun:
    run, findings = await _run_here(case, record=record)
    tally.runs += 1
    tally.points += bool(case.faults)
    tally.inert += bool(run.unstruck)
    tally.steps += run.injector.count
    tally.stood.update(site for point in run.injector.points for site in point.sites)
    for strike in run.injector.strikes:
        if strike.hit:
            (tally.raised if strike.error is not None else tally.cancelled).update(strike.sites)
    if findings:
        tally.failures.append(Failure(case, tuple(findings)))
    return run
