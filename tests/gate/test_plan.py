"""Recovery plans as values."""

from __future__ import annotations

import pytest

from gate.plan import Exact, RecoveryPlan
from gate.refs import PlanId


def test_a_plan_waits_only_where_it_says_so() -> None:
    """Another provider is asked at once."""
    plan = RecoveryPlan(PlanId("ex.1"), Exact(), (1, 0))
    assert (plan.targets, plan.wait_seconds) == ((1, 0), 0.0)


def test_a_plan_never_changes() -> None:
    """It is carried out as it was decided."""
    plan = RecoveryPlan(PlanId("ex.1"), Exact(), (1, 0))
    with pytest.raises(AttributeError):
        plan.wait_seconds = 5.0  # type: ignore[misc]
