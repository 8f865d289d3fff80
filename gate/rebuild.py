"""The next request body: its description, its bytes, and the pure steps that make it from the snapshot and a patch.

A body is planned first, reserved second and produced third. Each one is built from the caller's original bytes, never from the attempt before.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from gate.budget import Held, MemoryBudget, Reservation
from gate.errors import (
    EndpointUnsupported,
    LeaseDuplicate,
    LeaseReleased,
    LeaseUnavailable,
    PlanNotReady,
    RefMalformed,
    SnapshotMismatch,
    StoreClosed,
)
from gate.ingress import IngressSnapshot
from gate.patches import Patch
from gate.plan import RecoveryPlan
from gate.refs import PlanId, RequestRef, SnapshotRef, is_stable_token
from gate.splice import Body, Member
from gate.splice_plan import SplicePlan, plan_splice

__all__ = [
    "FAMILY",
    "SLICE_BYTES_MAX",
    "Lease",
    "LeaseStore",
    "RebuiltDraft",
    "check_plan",
    "describe",
    "estimate_prompt_tokens",
    "exact_lease",
    "plan_patched",
    "primary_member",
    "slices",
]

FAMILY: Final = "openai.json"
SLICE_BYTES_MAX: Final = 262_144  # what may be copied in one go: some tens of microseconds
# English prose comes to 4 to 5 bytes a token with today's vocabularies, code and other languages to 2 to 4; JSON's own characters make up for it.
BYTES_PER_TOKEN: Final = 4
_PRIMARY: Final[Mapping[str, str]] = {
    "/v1/chat/completions": "messages",
    "/v1/responses": "input",
}


class RebuiltDraft(msgspec.Struct, frozen=True):
    """What is known of a rebuilt request, safe to log: sizes, ids and names, never a byte of it.

    `retained_bytes`: of the body; `peak_bytes`: the most that the exchange has held; `max_bytes`: its budget; `needs`: capabilities.
    """

    plan_id: PlanId
    idempotency_key: str
    request_ref: RequestRef
    endpoint: str
    retained_bytes: int
    peak_bytes: int
    max_bytes: int
    prompt_tokens: int
    needs: frozenset[str]
    family: str = FAMILY


class Lease(Held):
    """The bytes of one request under their reservation, until `release`. `model_at` and `options_at`: where `model` and `stream_options` stand in them, as in one piece.

    As a context manager it releases at the block's end what was not released before.
    """

    def __init__(
        self,
        segments: Sequence[Body],
        model_at: Member | None,
        reservation: Reservation | None = None,
        *,
        options_at: Member | None = None,
    ) -> None:
        self._segments = segments
        self._reservation = reservation
        self.model_at = model_at
        self.options_at = options_at
        self.size = sum(map(len, segments))
        self.released = False

    @property
    def segments(self) -> Sequence[Body]:
        """The body's parts in their order. Raises `LeaseReleased`."""
        if self.released:
            raise LeaseReleased
        return self._segments

    def release(self) -> None:
        """Lets go of the body, then of its bytes in the ledger. A second release is a bug."""
        assert not self.released, "released twice"
        self.released = True
        self._segments = ()
        if self._reservation is not None:
            self._reservation.release()

    def __exit__(self, *error: object) -> None:
        if not self.released:
            self.release()

    def __repr__(self) -> str:
        return f"Lease({self.size} bytes, {'released' if self.released else 'open'})"


class LeaseStore:
    """Rebuilt requests that wait for their attempt: put once, taken once. No method awaits."""

    def __init__(self) -> None:
        self._leases: dict[RequestRef, Lease] = {}
        self._closed = False

    def __len__(self) -> int:
        return len(self._leases)

    def put(self, ref: RequestRef, lease: Lease) -> None:
        """Keeps the lease; one that can't be kept is released on the spot. Raises `StoreClosed`, `LeaseDuplicate`."""
        if self._closed:
            lease.release()
            raise StoreClosed
        if ref in self._leases:
            lease.release()
            raise LeaseDuplicate
        self._leases[ref] = lease

    def take(self, ref: RequestRef) -> Lease:
        """The lease, which belongs to the caller from now on. Raises `StoreClosed`, `LeaseUnavailable`."""
        if self._closed:
            raise StoreClosed
        lease = self._leases.pop(ref, None)
        if lease is None:
            raise LeaseUnavailable
        return lease

    def close(self) -> None:
        """Releases all that nobody took; nothing is put or taken any more. Closing twice is fine."""
        self._closed = True
        while self._leases:
            self._leases.popitem()[1].release()

    def __repr__(self) -> str:
        return f"LeaseStore({len(self)} leases, {'closed' if self._closed else 'open'})"


def primary_member(endpoint: str) -> str:
    """The member that a patch replaces. Raises `EndpointUnsupported`."""
    if endpoint not in _PRIMARY:
        raise EndpointUnsupported
    return _PRIMARY[endpoint]


def check_plan(snapshot_ref: SnapshotRef, plan: RecoveryPlan, *, current: SnapshotRef) -> None:
    """What can be said before the directive is looked at. Raises `RefMalformed`, `PlanNotReady` or `SnapshotMismatch`, in this order."""
    if not is_stable_token(snapshot_ref):
        raise RefMalformed
    if not plan.ready:
        raise PlanNotReady
    if snapshot_ref != current:
        raise SnapshotMismatch


def exact_lease(snapshot: IngressSnapshot) -> Lease:
    """The caller's own bytes: not copied, and counted by the snapshot alone."""
    request = snapshot.request
    return Lease((snapshot.body,), request.model_at, options_at=request.options_at)


def plan_patched(snapshot: IngressSnapshot, patch: Patch) -> SplicePlan:
    """The caller's bytes with the patch's values in their places."""
    return plan_splice(
        snapshot.body,
        snapshot.request.members,
        patch.values,
        remove=patch.remove,
        appended=patch.appended,
    )


def slices(segment: memoryview | bytes) -> Iterator[memoryview | bytes]:
    """A view cut for copying; bytes are owned already and stay whole."""
    if isinstance(segment, bytes):
        yield segment
        return
    for start in range(0, len(segment), SLICE_BYTES_MAX):
        yield segment[start : start + SLICE_BYTES_MAX]


def estimate_prompt_tokens(size: int) -> int:
    """About how many tokens a body of so many bytes has; a bound for rates and logs, never for a bill. An image in base64 counts far too high."""
    return -(-size // BYTES_PER_TOKEN)


def describe(
    plan: RecoveryPlan,
    ref: RequestRef,
    *,
    endpoint: str,
    size: int,
    needs: frozenset[str],
    budget: MemoryBudget,
) -> RebuiltDraft:
    """The draft of a body of `size` bytes, made for `plan`. `needs`: the request's own."""
    return RebuiltDraft(
        plan_id=plan.plan_id,
        idempotency_key=plan.idempotency_key,
        request_ref=ref,
        endpoint=endpoint,
        retained_bytes=size,
        peak_bytes=max(budget.peak, size),
        max_bytes=budget.bytes_max,
        prompt_tokens=estimate_prompt_tokens(size),
        needs=needs | plan.needs,
    )
