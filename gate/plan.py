"""Recovery plans: what to do next after a failure. Directives are a closed union; one that changes the request names the patch that it needs."""

from __future__ import annotations

from enum import Enum
from typing import assert_never

import msgspec

from gate.refs import PlanId, SnapshotRef, is_stable_token

__all__ = [
    "Continuation",
    "Cursor",
    "Directive",
    "DirectiveKind",
    "Exact",
    "RecoveryPlan",
    "SchemaRepair",
]


class DirectiveKind(Enum):
    """What a directive asks for; the value is a stable token."""

    EXACT = "exact"
    CONTINUATION = "continuation"
    SCHEMA = "schema"


class Cursor(msgspec.Struct, frozen=True):
    """A resume point: a position, and the code points of answer text before it. Two are equal where both are."""

    position: int
    chars: int

    @property
    def valid(self) -> bool:
        """Whether it can lie in an answer."""
        return self.position >= 0 and self.chars >= 0


class Exact(msgspec.Struct, frozen=True, tag="exact"):
    """The same request again, from the caller's original bytes. One that names no request is not ready for a rebuild."""

    request_ref: SnapshotRef = SnapshotRef("")


class Continuation(msgspec.Struct, frozen=True, tag="continuation"):
    """The answer goes on behind `cursor`, from the patch that is stored for it under the snapshot's ref."""

    snapshot_ref: SnapshotRef
    cursor: Cursor


class SchemaRepair(msgspec.Struct, frozen=True, tag="schema"):
    """The request is asked again with a repair message, from the patch that is stored under both names."""

    schema_ref: str
    patch_code: str


Directive = Exact | Continuation | SchemaRepair


class RecoveryPlan(msgspec.Struct, frozen=True):
    """One further attempt. `targets`: indexes into the pool, in order of preference; `wait_seconds` before it is made.

    `needs`: capabilities that a target must have for it, beside those that the request needs.
    """

    plan_id: PlanId
    directive: Directive
    targets: tuple[int, ...]
    wait_seconds: float = 0.0
    needs: frozenset[str] = frozenset()

    @property
    def idempotency_key(self) -> str:
        """`<exchange>.<plan>`, which a plan's id is already."""
        return self.plan_id

    @property
    def ready(self) -> bool:
        """Whether it has all that a rebuild needs: an id, a target, and a directive whose refs and cursor can exist."""
        return bool(self.plan_id) and bool(self.targets) and _is_whole(self.directive)


def _is_whole(directive: Directive) -> bool:
    match directive:
        case Exact(request_ref):
            return is_stable_token(request_ref)
        case Continuation(snapshot_ref, cursor):
            return is_stable_token(snapshot_ref) and cursor.valid
        case SchemaRepair(schema_ref, patch_code):
            return is_stable_token(schema_ref) and is_stable_token(patch_code)
        case _:
            assert_never(directive)
