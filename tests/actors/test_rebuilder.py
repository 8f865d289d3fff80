"""The rebuilder: which plans it carries out, and that it closes only after the last rebuild in flight has let go, whoever is cancelled and when.

The explorer cancels the whole of a small crowd (users, closers) at every scheduler step, and one task of it at every step.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import pytest
import trio
import trio.testing

from actors.rebuilder import CopySlice, Rebuilder, copy_in_thread, open_rebuilder
from gate.budget import MemoryBudget
from gate.errors import (
    EndpointUnsupported,
    GateError,
    LeaseReleased,
    LeaseUnavailable,
    PatchUnavailable,
    PlanAlreadyUsed,
    PlanNotReady,
    RebuilderClosed,
    RebuildOverflow,
    RefMalformed,
    RequestMismatch,
    SnapshotClosed,
    SnapshotMismatch,
    StoreClosed,
)
from gate.ingress import IngressSnapshot, read_chat_request
from gate.patches import Patch, Patched, PatchStore
from gate.plan import Continuation, Cursor, Directive, Exact, RecoveryPlan, SchemaRepair
from gate.refs import ExchangeId, PlanId, Refs, SnapshotRef
from tests.stepping import Striker, seed_scheduler

CHAT: Final = "/v1/chat/completions"
SNAPSHOT: Final = SnapshotRef("ex-1.snapshot")
BODY: Final = b'{"model":"small", "messages":["hi"] ,"tools":[{}],"seed":1}'
LARGE: Final = BODY[:-1] + b',"metadata":"' + b"x" * 1_048_576 + b'"}'
READ: Final = {body: read_chat_request(body, depth_max=64) for body in (BODY, LARGE)}
SLICES: Final = 5  # that a large body is copied in
ROOM: Final = 16 * 1_048_576
EXACT: Final = Exact(SNAPSHOT)
GO_ON: Final = Continuation(SNAPSHOT, Cursor(3, 40))
REPAIR: Final = SchemaRepair("tool.0", "tool_arguments")


def plan(directive: Directive = EXACT, number: int = 1) -> RecoveryPlan:
    """The exchange's plan of that number."""
    return RecoveryPlan(PlanId(f"ex-1.{number}"), directive, (0,))


@dataclass
class Desk:
    """One exchange's snapshot and ledger, and a rebuilder of them."""

    body: bytes = BODY
    room: int = ROOM
    copy_slice: CopySlice = copy_in_thread
    budget: MemoryBudget = field(init=False)
    snapshot: IngressSnapshot = field(init=False)
    rebuilder: Rebuilder = field(init=False)

    def __post_init__(self) -> None:
        self.budget = MemoryBudget("exchange", self.room)
        self.snapshot = IngressSnapshot(self.budget)
        self.snapshot.fill(self.body, READ[self.body])
        self.rebuilder = Rebuilder(
            self.snapshot,
            self.budget,
            endpoint=CHAT,
            refs=Refs(ExchangeId("ex-1")),
            copy_slice=self.copy_slice,
        )

    @property
    def extra(self) -> tuple[int, int]:
        """Bytes and reservations beside the snapshot's."""
        return self.budget.used - len(self.body), self.budget.open_reservations - 1


class Gate:
    """A worker whose copies wait, as a thread does: cancelled before it has begun, or not at all. The block's end opens it."""

    def __init__(self) -> None:
        self.opened = trio.Event()
        self.waiting = 0
        self.copied = 0

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        self.opened.set()

    async def copy(self, piece: memoryview) -> bytes:
        await trio.lowlevel.checkpoint_if_cancelled()
        self.waiting += 1
        # Bounded by the block that opens the gate at its end.
        with trio.CancelScope(shield=True):
            await self.opened.wait()
        self.waiting -= 1
        self.copied += 1
        return bytes(piece)


# --- what comes out --------------------------------------------------------------------------------


async def test_an_exact_plan_gives_the_callers_own_body() -> None:
    """Not copied, and not counted again."""
    desk = Desk()
    draft = await desk.rebuilder.rebuild(SNAPSHOT, plan())
    assert (draft.plan_id, draft.request_ref, draft.endpoint) == (
        "ex-1.1",
        "openai.rebuilt.1",
        CHAT,
    )
    assert (draft.retained_bytes, draft.max_bytes) == (len(BODY), ROOM)
    assert (draft.prompt_tokens, draft.needs) == (15, frozenset({"tools"}))
    lease = desk.rebuilder.take(draft.request_ref)
    assert lease.segments[0] is BODY
    assert desk.extra == (0, 0)


@pytest.mark.real_time
@pytest.mark.parametrize("directive", [GO_ON, REPAIR])
@pytest.mark.parametrize("body", [BODY, LARGE])
async def test_a_patched_body_differs_in_the_patch_alone(body: bytes, directive: Directive) -> None:
    """Small ones are made at once, large ones slice by slice; the model is found in either."""
    desk = Desk(body)
    assert not isinstance(directive, Exact)
    desk.rebuilder.patches.put(directive, b'[1, "two"]', siblings={"seed": 2}, remove=["tools"])
    draft = await desk.rebuilder.rebuild(SNAPSHOT, plan(directive))
    lease = desk.rebuilder.take(draft.request_ref)
    made = b"".join(lease.segments)
    expected = body.replace(b'["hi"]', b'[1, "two"]').replace(b' ,"tools":[{}]', b"")
    assert made == expected.replace(b'"seed":1', b'"seed":2')
    assert lease.model_at is not None
    assert made[lease.model_at.value_start : lease.model_at.value_end] == b'"small"'
    assert draft.retained_bytes == lease.size == len(made)
    assert draft.peak_bytes == desk.budget.peak == len(body) + len(made) + len(b'[1, "two"]2')
    assert desk.extra == (len(made), 1)
    lease.release()
    assert desk.extra == (0, 0)


async def test_a_large_body_is_copied_in_slices() -> None:
    """None of them larger than a quarter of a mebibyte."""
    sizes: list[int] = []

    async def copy(piece: memoryview) -> bytes:
        await trio.lowlevel.checkpoint()
        sizes.append(len(piece))
        return bytes(piece)

    desk = Desk(LARGE, copy_slice=copy)
    desk.rebuilder.patches.put(REPAIR, b"[]")
    await desk.rebuilder.rebuild(SNAPSHOT, plan(REPAIR))
    assert max(sizes) == 262_144
    assert (len(sizes), sum(sizes)) == (SLICES + 1, len(LARGE) - len(b'["hi"]'))


@pytest.mark.real_time
async def test_other_tasks_run_while_a_large_body_is_copied() -> None:
    """At least once for each slice."""
    desk = Desk(LARGE)
    desk.rebuilder.patches.put(REPAIR, b"[]")
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(others)
        await trio.lowlevel.checkpoint()
        await desk.rebuilder.rebuild(SNAPSHOT, plan(REPAIR))
        nursery.cancel_scope.cancel()
    assert turns >= SLICES


async def test_each_rebuild_starts_from_the_callers_bytes() -> None:
    """Never from the one before."""
    desk = Desk()
    for number, value in enumerate((b"[1]", b"[2]"), start=1):
        desk.rebuilder.patches.put(REPAIR, value, siblings={f"x{number}": 1})
        draft = await desk.rebuilder.rebuild(SNAPSHOT, plan(REPAIR, number))
        assert draft.request_ref == f"openai.rebuilt.{number}"
        with desk.rebuilder.take(draft.request_ref) as lease:
            made = json.loads(b"".join(lease.segments))
        assert made == {**json.loads(BODY), "messages": [number], f"x{number}": 1}


# --- what is refused -------------------------------------------------------------------------------


def test_only_chat_and_responses_are_rebuilt() -> None:
    """Said at the beginning, not at the first failure."""
    desk = Desk()
    refs = Refs(ExchangeId("ex-1"))
    Rebuilder(desk.snapshot, desk.budget, endpoint="/v1/responses", refs=refs)
    with pytest.raises(EndpointUnsupported):
        Rebuilder(desk.snapshot, desk.budget, endpoint="/v1/completions", refs=refs)


def test_a_closed_snapshot_gets_no_rebuilder() -> None:
    """There is nothing to build from."""
    desk = Desk()
    desk.snapshot.close()
    with pytest.raises(SnapshotClosed):
        Rebuilder(desk.snapshot, desk.budget, endpoint=CHAT, refs=Refs(ExchangeId("ex-1")))


async def test_the_first_thing_that_is_wrong_is_what_is_said() -> None:
    """Cancelled, closed, snapshot, ref, readiness, snapshot's ref, used, directive: mended one by one, in this order."""
    closed, without, desk = Desk(), Desk(), Desk()
    await closed.rebuilder.aclose()
    closed.snapshot.close()
    without.snapshot.close()
    await desk.rebuilder.rebuild(SNAPSHOT, plan())
    other, bad = SnapshotRef("ex-2.snapshot"), SnapshotRef("No Token")
    unready = plan(Exact())
    steps: list[tuple[Desk, SnapshotRef, RecoveryPlan, type[GateError]]] = [
        (closed, bad, unready, RebuilderClosed),
        (without, bad, unready, SnapshotClosed),
        (desk, bad, unready, RefMalformed),
        (desk, other, unready, PlanNotReady),
        (desk, other, plan(Exact(other)), SnapshotMismatch),
        (desk, SNAPSHOT, plan(Exact(other)), PlanAlreadyUsed),
        (desk, SNAPSHOT, plan(Exact(other), 2), RequestMismatch),
        (desk, SNAPSHOT, plan(GO_ON, 2), PatchUnavailable),
    ]
    for at, ref, asked, kind in steps:
        with pytest.raises(GateError) as caught:
            await at.rebuilder.rebuild(ref, asked)
        assert type(caught.value) is kind
    with trio.CancelScope() as scope:
        scope.cancel()
        await closed.rebuilder.rebuild(bad, unready)
    assert scope.cancelled_caught


async def test_a_plan_is_carried_out_once() -> None:
    """The second time changes nothing: the patch of another plan stays, and so does the first body."""
    desk = Desk()
    draft = await desk.rebuilder.rebuild(SNAPSHOT, plan(EXACT, 1))
    desk.rebuilder.patches.put(REPAIR, b"[]")
    with pytest.raises(PlanAlreadyUsed):
        await desk.rebuilder.rebuild(SNAPSHOT, plan(REPAIR, 1))
    assert len(desk.rebuilder.patches) == 1
    desk.rebuilder.take(draft.request_ref)
    with pytest.raises(LeaseUnavailable):
        desk.rebuilder.take(draft.request_ref)


async def test_a_refused_plan_was_not_carried_out() -> None:
    """Its patch may come later."""
    desk = Desk()
    with pytest.raises(PatchUnavailable):
        await desk.rebuilder.rebuild(SNAPSHOT, plan(REPAIR))
    desk.rebuilder.patches.put(REPAIR, b"[]")
    assert (await desk.rebuilder.rebuild(SNAPSHOT, plan(REPAIR))).plan_id == "ex-1.1"


async def test_a_plan_that_is_under_way_is_not_begun_again() -> None:
    """The second patch stays."""
    gate = Gate()
    desk = Desk(LARGE, copy_slice=gate.copy)
    desk.rebuilder.patches.put(REPAIR, b"[]")
    async with trio.open_nursery() as nursery:
        with gate:
            nursery.start_soon(desk.rebuilder.rebuild, SNAPSHOT, plan(REPAIR))
            await trio.testing.wait_all_tasks_blocked()
        desk.rebuilder.patches.put(REPAIR, b"[2]")
        with pytest.raises(PlanAlreadyUsed):
            await desk.rebuilder.rebuild(SNAPSHOT, plan(REPAIR))
        assert len(desk.rebuilder.patches) == 1
        assert "in_flight=1" in repr(desk.rebuilder)


async def test_a_body_that_does_not_fit_is_not_made() -> None:
    """The patch is spent all the same, and its bytes have gone back."""
    desk = Desk(room=2 * len(BODY))
    desk.rebuilder.patches.put(REPAIR, b'["hi"]')
    with pytest.raises(RebuildOverflow) as caught:
        await desk.rebuilder.rebuild(SNAPSHOT, plan(REPAIR))
    assert (caught.value.wanted, caught.value.free) == (len(BODY), len(BODY) - len(b'["hi"]'))
    assert (desk.extra, len(desk.rebuilder.patches)) == ((0, 0), 0)
    with pytest.raises(PlanAlreadyUsed):
        await desk.rebuilder.rebuild(SNAPSHOT, plan(REPAIR))


async def test_a_rebuild_cancelled_as_soon_as_it_took_its_patch_makes_nothing() -> None:
    """The patch is spent, and no room was asked for."""

    class Struck(PatchStore):
        def take(self, directive: Patched) -> Patch:
            scope.cancel()
            return super().take(directive)

    desk = Desk()
    desk.rebuilder.patches = Struck(desk.budget, "messages")
    desk.rebuilder.patches.put(REPAIR, b"[]")
    with trio.CancelScope() as scope:
        await desk.rebuilder.rebuild(SNAPSHOT, plan(REPAIR))
    assert scope.cancelled_caught
    assert len(desk.rebuilder.patches) == 0
    assert (desk.extra, desk.budget.peak) == ((0, 0), len(BODY) + 2)


async def test_a_rebuild_cancelled_among_its_slices_gives_all_back() -> None:
    """It stops before the next one; the patch is spent."""
    gate = Gate()
    desk = Desk(LARGE, copy_slice=gate.copy)
    desk.rebuilder.patches.put(REPAIR, b"[]")
    async with trio.open_nursery() as nursery:
        with gate:
            nursery.start_soon(desk.rebuilder.rebuild, SNAPSHOT, plan(REPAIR))
            await trio.testing.wait_all_tasks_blocked()
            assert desk.extra == (len(LARGE) - len(b'["hi"]') + 4, 2)
            nursery.cancel_scope.cancel()
    assert (desk.extra, len(desk.rebuilder.patches)) == ((0, 0), 0)
    assert gate.copied == 1


@pytest.mark.real_time
async def test_a_copy_in_a_thread_is_not_begun_by_a_cancelled_task() -> None:
    """One that has begun ends."""
    assert await copy_in_thread(memoryview(b"abc")) == b"abc"
    with trio.CancelScope() as scope:
        scope.cancel()
        await copy_in_thread(memoryview(b"abc"))
    assert scope.cancelled_caught


# --- the close -------------------------------------------------------------------------------------


async def test_a_close_waits_for_the_rebuild_in_flight_and_refuses_the_next() -> None:
    """Several closers return together, after it; the body that nobody took is gone then."""
    gate = Gate()
    desk = Desk(LARGE, copy_slice=gate.copy)
    desk.rebuilder.patches.put(REPAIR, b"[]")
    desk.rebuilder.patches.put(GO_ON, b"[]")
    closed: list[tuple[int, int]] = []

    async def close() -> None:
        await desk.rebuilder.aclose()
        closed.append(desk.extra)

    async with trio.open_nursery() as nursery:
        with gate:
            nursery.start_soon(desk.rebuilder.rebuild, SNAPSHOT, plan(REPAIR))
            await trio.testing.wait_all_tasks_blocked()
            nursery.start_soon(close)
            nursery.start_soon(close)
            await trio.testing.wait_all_tasks_blocked()
            assert (gate.waiting, closed) == (1, [])
            with pytest.raises(RebuilderClosed):
                await desk.rebuilder.rebuild(SNAPSHOT, plan(EXACT, 2))
            assert len(desk.rebuilder.patches) == 1
    assert closed == [(0, 0), (0, 0)]
    await desk.rebuilder.aclose()
    with pytest.raises(StoreClosed):
        desk.rebuilder.patches.put(REPAIR, b"[]")


async def test_a_cancelled_closer_still_waits() -> None:
    """Its cancellation comes after the close."""
    gate = Gate()
    desk = Desk(LARGE, copy_slice=gate.copy)
    await desk.rebuilder.rebuild(SNAPSHOT, plan(EXACT, 1))
    desk.rebuilder.patches.put(REPAIR, b"[]")
    closed = []

    async def close() -> None:
        with trio.CancelScope() as scope:
            scope.cancel()
            await desk.rebuilder.aclose()
            closed.append(desk.extra)

    async with trio.open_nursery() as nursery:
        with gate:
            nursery.start_soon(desk.rebuilder.rebuild, SNAPSHOT, plan(REPAIR, 2))
            await trio.testing.wait_all_tasks_blocked()
            nursery.start_soon(close)
            await trio.testing.wait_all_tasks_blocked()
            assert closed == []
    assert closed == [(0, 0)]


async def test_what_was_taken_before_the_close_belongs_to_its_taker() -> None:
    """What was not is gone."""
    desk = Desk()
    drafts = []
    for number in (1, 2):
        desk.rebuilder.patches.put(REPAIR, b"[]")
        drafts.append(await desk.rebuilder.rebuild(SNAPSHOT, plan(REPAIR, number)))
    lease = desk.rebuilder.take(drafts[0].request_ref)
    await desk.rebuilder.aclose()
    assert desk.extra == (lease.size, 1)
    assert b"".join(lease.segments) == BODY.replace(b'["hi"]', b"[]")
    with pytest.raises(StoreClosed):
        desk.rebuilder.take(drafts[1].request_ref)
    lease.release()
    assert desk.extra == (0, 0)
    with pytest.raises(LeaseReleased):
        _ = lease.segments


async def test_the_block_closes_its_rebuilder() -> None:
    """Also where it is cancelled."""
    desk = Desk()
    with trio.CancelScope() as scope:
        async with open_rebuilder(
            desk.snapshot, desk.budget, endpoint=CHAT, refs=Refs(ExchangeId("ex-1"))
        ) as rebuilder:
            rebuilder.patches.put(REPAIR, b"[]")
            scope.cancel()
            await trio.lowlevel.checkpoint()
    assert scope.cancelled_caught
    assert desk.extra == (0, 0)
    with pytest.raises(RebuilderClosed):
        await rebuilder.rebuild(SNAPSHOT, plan())
    assert repr(rebuilder) == (
        "Rebuilder(closed, in_flight=0, PatchStore(0 patches, closed), LeaseStore(0 leases, closed))"
    )


async def test_what_is_logged_of_a_rebuilder_shows_its_state() -> None:
    """And no byte."""
    desk = Desk()
    await desk.rebuilder.rebuild(SNAPSHOT, plan())
    assert repr(desk.rebuilder) == (
        "Rebuilder(open, in_flight=0, PatchStore(0 patches, open), LeaseStore(1 leases, open))"
    )


# --- the explorer ----------------------------------------------------------------------------------

USERS: Final = 3
CLOSERS: Final = 3
SEEDS: Final = (0, 1)


async def slow_copy(piece: memoryview) -> bytes:
    """As a thread would: not begun by a cancelled task, and then not ended by it."""
    await trio.lowlevel.checkpoint_if_cancelled()
    # Bounded by the virtual clock.
    with trio.CancelScope(shield=True):
        await trio.sleep(0.001)
    return bytes(piece)


@dataclass
class Crowd:
    """Users that rebuild, take and send; closers that close at their own time; each in a scope of its own."""

    desk: Desk = field(default_factory=lambda: Desk(LARGE, copy_slice=slow_copy))
    scopes: dict[str, trio.CancelScope] = field(default_factory=dict)
    rebuilding: int = 0
    taken: int = 0
    finished: int = 0
    struck: bool = False
    found: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        names = [f"user {n}" for n in range(USERS)] + [f"closer {n}" for n in range(CLOSERS)]
        self.scopes = {name: trio.CancelScope() for name in ("all", *names)}

    async def main(self) -> None:
        tasks = trio.lowlevel.current_statistics().tasks_living
        async with trio.open_nursery() as nursery:
            with self.scopes["all"]:
                await self._together()
        nursery.cancel_scope.cancel()
        if trio.lowlevel.current_statistics().tasks_living != tasks:
            self.found.append("a task was left")

    async def _together(self) -> None:
        jobs: dict[str, Callable[[], Awaitable[None]]] = {
            **{f"user {n}": partial(self._use, n) for n in range(USERS)},
            **{f"closer {n}": partial(self._close, n) for n in range(CLOSERS)},
        }

        async def within(name: str) -> None:
            with self.scopes[name]:
                await jobs[name]()

        try:
            async with trio.open_nursery() as nursery:
                for name in jobs:
                    nursery.start_soon(within, name)
        finally:
            await self.desk.rebuilder.aclose()
            self._check("the block's close")

    async def _use(self, number: int) -> None:
        """Rebuild after rebuild, of every kind, until the rebuilder is closed."""
        rebuilder = self.desk.rebuilder
        await trio.sleep(0.0005 * number)
        try:
            for count in itertools.count():
                name = f"tool.{number}"
                directive: Directive = SchemaRepair(name, "tool_arguments")
                if count % 3 == number:
                    directive = EXACT
                else:
                    rebuilder.patches.put(SchemaRepair(name, "tool_arguments"), b'["again"]')
                asked = plan(directive, 100 * number + count)
                self.rebuilding += 1
                try:
                    draft = await rebuilder.rebuild(SNAPSHOT, asked)
                finally:
                    self.rebuilding -= 1
                if count % 2:
                    continue  # a draft that nobody takes
                with rebuilder.take(draft.request_ref) as lease:
                    self.taken += lease.size if directive is not EXACT else 0
                    try:
                        await trio.sleep(0.001)
                    finally:
                        self.taken -= lease.size if directive is not EXACT else 0
        except (RebuilderClosed, StoreClosed):
            self.finished += 1

    async def _close(self, number: int) -> None:
        await trio.sleep(0.01 + 0.001 * number)
        await self.desk.rebuilder.aclose()
        self._check(f"closer {number}")

    def strike(self, name: str) -> None:
        """Cancels one of the scopes."""
        self.struck = True
        self.scopes[name].cancel()

    def _check(self, who: str) -> None:
        """At the very return of a close: nothing in flight, and no byte but those that were taken before."""
        if "in_flight=0" not in repr(self.desk.rebuilder):
            self.found.append(f"{who}: a rebuild is in flight")
        if self.desk.extra[0] != self.taken:
            self.found.append(f"{who}: {self.desk.extra} beside {self.taken} taken")
        if len(self.desk.rebuilder.patches):
            self.found.append(f"{who}: a patch is left")


def explore(name: str, seed: int) -> Iterator[Crowd]:
    """One run for each step at which the scope of that name may be cancelled."""
    for step in itertools.count(1):
        crowd = Crowd()
        seed_scheduler(seed)
        trio.run(
            crowd.main,
            clock=trio.testing.MockClock(autojump_threshold=0),
            instruments=[Striker(partial(crowd.strike, name), step)],
        )
        if not crowd.struck:
            assert step > 50, "it has hardly begun"
            assert crowd.finished == USERS
            return
        yield crowd


@pytest.mark.slow
@pytest.mark.no_cover
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", ["all", "user 0", "closer 0", "closer 1"])
def test_a_crowd_cancelled_at_any_step_leaves_nothing_behind(name: str, seed: int) -> None:
    """Closed, nothing in flight, nothing reserved, no body: at each closer's return, and at the end."""
    for step, crowd in enumerate(explore(name, seed), start=1):
        assert crowd.found == [], step
        assert (crowd.desk.extra, crowd.rebuilding, crowd.taken) == ((0, 0), 0, 0), step
        assert "Rebuilder(closed, in_flight=0" in repr(crowd.desk.rebuilder), step
        assert "0 leases" in repr(crowd.desk.rebuilder), step
