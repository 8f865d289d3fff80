"""Recovery plans as values."""

from __future__ import annotations

from typing import Final

import pytest

from gate.plan import Continuation, Cursor, Directive, Exact, RecoveryPlan, SchemaRepair
from gate.refs import PlanId, SnapshotRef

SNAPSHOT: Final = SnapshotRef("ex.snapshot")


def test_a_plan_waits_only_where_it_says_so() -> None:
    """Another provider is asked at once."""
    plan = RecoveryPlan(PlanId("ex.1"), Exact(), (1, 0))
    assert (plan.targets, plan.wait_seconds) == ((1, 0), 0.0)


def test_a_plan_never_changes() -> None:
    """It is carried out as it was decided."""
    plan = RecoveryPlan(PlanId("ex.1"), Exact(), (1, 0))
    with pytest.raises(AttributeError):
        plan.wait_seconds = 5.0  # type: ignore[misc]


def test_the_idempotency_key_names_exchange_and_plan() -> None:
    """A plan's id is made of both."""
    assert RecoveryPlan(PlanId("ex.1"), Exact(), (0,)).idempotency_key == "ex.1"


def test_cursors_are_equal_where_position_and_characters_are() -> None:
    """A resume point at the same frame with another text before it is another."""
    assert Cursor(3, 40) == Cursor(3, 40)
    assert Cursor(3, 40) != Cursor(3, 41)
    assert Cursor(3, 40) != Cursor(4, 40)


@pytest.mark.parametrize(
    "directive",
    [
        Exact(SNAPSHOT),
        Continuation(SNAPSHOT, Cursor(0, 0)),
        SchemaRepair("tool.0", "tool_arguments"),
    ],
)
def test_a_whole_plan_is_ready(directive: Directive) -> None:
    """It has an id, a target and all its refs."""
    assert RecoveryPlan(PlanId("ex.1"), directive, (0,)).ready


@pytest.mark.parametrize(
    "directive",
    [
        Exact(),
        Exact(SnapshotRef("No Token")),
        Continuation(SnapshotRef(""), Cursor(0, 0)),
        Continuation(SNAPSHOT, Cursor(-1, 0)),
        Continuation(SNAPSHOT, Cursor(0, -1)),
        SchemaRepair("", "code"),
        SchemaRepair("format", "Not a code"),
    ],
)
def test_a_plan_with_a_gap_is_not_ready(directive: Directive) -> None:
    """A ref that can't exist, or a cursor before the beginning."""
    assert not RecoveryPlan(PlanId("ex.1"), directive, (0,)).ready


def test_a_plan_without_an_id_or_a_target_is_not_ready() -> None:
    """Nobody could carry it out, or tell that it was."""
    assert not RecoveryPlan(PlanId(""), Exact(SNAPSHOT), (0,)).ready
    assert not RecoveryPlan(PlanId("ex.1"), Exact(SNAPSHOT), ()).ready
