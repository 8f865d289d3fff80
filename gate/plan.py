"""Recovery plans: what to do next after a failure. This is the closed set of directives; one that needs a rebuild is a type of its own."""

from __future__ import annotations

import msgspec

from gate.refs import PlanId

__all__ = ["Exact", "RecoveryPlan"]


class Exact(msgspec.Struct, frozen=True, tag="exact"):
    """The same request again, from the caller's original bytes."""


class RecoveryPlan(msgspec.Struct, frozen=True):
    """One further attempt. `targets`: indexes into the pool, in order of preference; `wait_seconds` before it is made."""

    plan_id: PlanId
    directive: Exact
    targets: tuple[int, ...]
    wait_seconds: float = 0.0
