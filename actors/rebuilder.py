"""The rebuilder of one exchange: carries out plans, one body each, and closes only after the last one in flight has let go.

    open -> rebuilds in flight -> closed

A rebuild holds a patch while it looks once whether it was cancelled, and a reservation too while it copies a large body slice by slice; that is all it awaits.
`aclose` therefore waits, shielded, and what it waits for is bounded. Nothing here sees a header of the caller or a credential of a provider.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from typing import Final

import trio

from gate.budget import MemoryBudget
from gate.errors import PlanAlreadyUsed, RebuilderClosed, RequestMismatch
from gate.ingress import IngressSnapshot
from gate.patches import Patched, PatchStore, reserve_rebuild
from gate.plan import Exact, RecoveryPlan
from gate.rebuild import (
    Lease,
    LeaseStore,
    RebuiltDraft,
    check_plan,
    describe,
    exact_lease,
    plan_patched,
    primary_member,
    slices,
)
from gate.refs import PlanId, Refs, RequestRef, SnapshotRef
from gate.splice_plan import SplicePlan

__all__ = ["INLINE_BYTES_MAX", "CopySlice", "Rebuilder", "copy_in_thread", "open_rebuilder"]

INLINE_BYTES_MAX: Final = 1_048_576  # copied in 0.1 ms, which is less than a worker thread costs

CopySlice = Callable[[memoryview], Awaitable[bytes]]


async def copy_in_thread(piece: memoryview) -> bytes:
    """A copy of one slice, made beside the loop. Once begun it is not abandoned: the thread holds the bytes.

    A limiter of its own: behind name lookups, which share the default one, a close could wait for long.
    """
    return await trio.to_thread.run_sync(bytes, piece, limiter=trio.CapacityLimiter(1))


class Rebuilder:
    """Makes the bodies of one exchange's further attempts. `patches`: where whoever decides on a plan puts what it changes.

    `relayed`: the request of an endpoint that has no patches, which is only ever sent again as it is.
    """

    def __init__(
        self,
        snapshot: IngressSnapshot,
        budget: MemoryBudget,
        *,
        endpoint: str,
        refs: Refs,
        relayed: bool = False,
        copy_slice: CopySlice = copy_in_thread,
    ) -> None:
        self.patches = PatchStore(budget, "" if relayed else primary_member(endpoint))
        self._leases = LeaseStore()
        self._taken: list[Lease] = []  # those that may not have been let go
        self._needs = snapshot.request.needs  # a closed snapshot is refused here
        self._snapshot = snapshot
        self._budget = budget
        self._endpoint = endpoint
        self._refs = refs
        self._copy_slice = copy_slice
        self._used: set[PlanId] = set()
        self._in_flight = 0
        self._let_go = trio.Event()
        self._closed = False

    async def rebuild(self, snapshot_ref: SnapshotRef, plan: RecoveryPlan) -> RebuiltDraft:
        """Carries out `plan`, once; the body waits under the draft's ref.

        Raises, in this order: `RebuilderClosed`, `SnapshotClosed`, `RefMalformed`, `PlanNotReady`, `SnapshotMismatch`, `PlanAlreadyUsed`; then
        `RequestMismatch`, or `PatchUnavailable` and `RebuildOverflow`. A patch that was taken is spent whatever happens then.
        """
        await trio.lowlevel.checkpoint()
        with self._flight():
            body = self._snapshot.body
            check_plan(snapshot_ref, plan, current=self._refs.snapshot)
            if plan.plan_id in self._used:
                raise PlanAlreadyUsed
            if isinstance(plan.directive, Exact):
                if plan.directive.request_ref != snapshot_ref:
                    raise RequestMismatch
                self._used.add(plan.plan_id)
                draft = self._describe(plan, len(body))
                self._leases.put(draft.request_ref, exact_lease(self._snapshot))
                return draft
            return await self._patched(plan, plan.directive)

    def take(self, request_ref: RequestRef) -> Lease:
        """The body of a draft, which belongs to the caller from now on. Raises `StoreClosed`, `LeaseUnavailable`."""
        lease = self._leases.take(request_ref)
        self._taken = [each for each in (*self._taken, lease) if not each.released]
        return lease

    @property
    def leases_open(self) -> int:
        """Bodies that wait for their attempt, and those that were taken and not let go."""
        return len(self._leases) + sum(not each.released for each in self._taken)

    async def aclose(self) -> None:
        """Refuses new rebuilds at once, waits for those in flight, and then gives back every body and patch that nobody took."""
        self._closed = True
        # Shielded: a rebuild in flight still holds its patch and its reservation, and would use the stores after their close.
        # Bounded by: exchange_bytes_max, because a rebuild in flight awaits one turn of the loop and the copies of its slices.
        with trio.CancelScope(shield=True):
            while self._in_flight:
                if self._let_go.is_set():
                    self._let_go = trio.Event()
                await self._let_go.wait()
        self._leases.close()
        self.patches.close()

    @contextmanager
    def _flight(self) -> Iterator[None]:
        if self._closed:
            raise RebuilderClosed
        self._in_flight += 1
        try:
            yield
        finally:
            self._in_flight -= 1
            if not self._in_flight:
                self._let_go.set()

    async def _patched(self, plan: RecoveryPlan, directive: Patched) -> RebuiltDraft:
        """The patch goes back at this block's end, and the output's reservation too unless a lease has it."""
        with self.patches.take(directive) as patch, ExitStack() as held:
            self._used.add(plan.plan_id)
            await trio.lowlevel.checkpoint()
            splice = plan_patched(self._snapshot, patch)
            reservation = held.enter_context(reserve_rebuild(self._budget, splice.output_bytes))
            segments = await self._made(splice)
            request = self._snapshot.request
            assert request.model_at is not None, "a body that is patched names its model"
            options_at = request.options_at and splice.moved(request.options_at)
            lease = Lease(
                segments, splice.moved(request.model_at), reservation, options_at=options_at
            )
            draft = self._describe(plan, lease.size)
            held.pop_all()
            self._leases.put(draft.request_ref, lease)
        return draft

    async def _made(self, splice: SplicePlan) -> tuple[bytes, ...]:
        """The output's own bytes; a large body slice by slice, with the loop free in between."""
        pieces = [piece for segment in splice.segments() for piece in slices(segment)]
        if splice.output_bytes <= INLINE_BYTES_MAX:
            return tuple(map(bytes, pieces))
        return tuple(
            [
                piece if isinstance(piece, bytes) else await self._copy_slice(piece)
                for piece in pieces
            ]
        )

    def _describe(self, plan: RecoveryPlan, size: int) -> RebuiltDraft:
        return describe(
            plan,
            self._refs.rebuilt(),
            endpoint=self._endpoint,
            size=size,
            needs=self._needs,
            budget=self._budget,
        )

    def __repr__(self) -> str:
        state = "closed" if self._closed else "open"
        return f"Rebuilder({state}, in_flight={self._in_flight}, {self.patches}, {self._leases})"


@asynccontextmanager
async def open_rebuilder(
    snapshot: IngressSnapshot,
    budget: MemoryBudget,
    *,
    endpoint: str,
    refs: Refs,
    relayed: bool = False,
    copy_slice: CopySlice = copy_in_thread,
) -> AsyncIterator[Rebuilder]:
    """A rebuilder for the block. Raises `EndpointUnsupported`, `SnapshotClosed`."""
    rebuilder = Rebuilder(
        snapshot, budget, endpoint=endpoint, refs=refs, relayed=relayed, copy_slice=copy_slice
    )
    try:
        yield rebuilder
    finally:
        await rebuilder.aclose()
