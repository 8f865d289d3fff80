"""The rebuilders of one exchange: one for the caller's own request, and one for the chat request that stands for it at targets which only have chat completions.

An exact plan is carried out in each form that its targets want; one that changes the request in the form of the target that it was made for.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import AsyncExitStack, asynccontextmanager

from actors.context import Exchange
from actors.rebuilder import Rebuilder, open_rebuilder
from gate.ingress import CHAT_PATH
from gate.patches import PatchStore
from gate.plan import RecoveryPlan
from gate.rebuild import Lease
from gate.refs import RequestRef, SnapshotRef

__all__ = ["Bodies", "open_bodies"]


class Bodies:
    """The rebuilders by endpoint. Refs are counted over all of them."""

    def __init__(self, rebuilders: Mapping[str, Rebuilder]) -> None:
        self._rebuilders = rebuilders
        self._made: dict[RequestRef, Rebuilder] = {}

    def patches(self, endpoint: str) -> PatchStore:
        """Where whoever decides on a plan puts what it changes in this form of the request."""
        return self._rebuilders[endpoint].patches

    async def rebuild(
        self, snapshot_ref: SnapshotRef, plan: RecoveryPlan, endpoints: Collection[str]
    ) -> Mapping[str, RequestRef]:
        """Carries out `plan` in these forms; where their bodies wait, by endpoint. Raises what `Rebuilder.rebuild` does."""
        refs: dict[str, RequestRef] = {}
        for endpoint in endpoints:
            rebuilder = self._rebuilders[endpoint]
            ref = (await rebuilder.rebuild(snapshot_ref, plan)).request_ref
            self._made[ref], refs[endpoint] = rebuilder, ref
        return refs

    def take(self, ref: RequestRef) -> Lease:
        """The body under this ref, which belongs to the caller from now on. Raises `StoreClosed`, `LeaseUnavailable`."""
        return self._made.pop(ref).take(ref)

    @property
    def leases_open(self) -> int:
        """Bodies that wait for their attempt, and those that were taken and not let go."""
        return sum(each.leases_open for each in self._rebuilders.values())

    async def aclose(self) -> None:
        """Closes them all; each waits for its rebuilds in flight."""
        for each in self._rebuilders.values():
            await each.aclose()

    def __repr__(self) -> str:
        return f"Bodies({dict(self._rebuilders)})"


@asynccontextmanager
async def open_bodies(exchange: Exchange) -> AsyncIterator[Bodies]:
    """The rebuilders of an exchange for the block."""
    forms = {exchange.endpoint: exchange.snapshot}
    if exchange.chat is not None:
        forms[CHAT_PATH] = exchange.chat
    async with AsyncExitStack() as stack:
        rebuilders = {
            endpoint: await stack.enter_async_context(
                open_rebuilder(
                    snapshot,
                    exchange.budget,
                    endpoint=endpoint,
                    refs=exchange.refs,
                    relayed=exchange.door.relayed,
                )
            )
            for endpoint, snapshot in forms.items()
        }
        yield Bodies(rebuilders)
