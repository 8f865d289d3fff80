"""What a filter's table says becomes a row of the recovery table."""

from __future__ import annotations

from typing import get_args

import pytest

from gate.config import FilterAction
from gate.failure import Failure, FailureKind
from gate.filters.action import failure_for
from gate.recovery_table import TABLE, Step


@pytest.mark.parametrize(
    ("action", "steps"),
    [
        ("error", ()),
        ("exact", (Step.SAME, Step.NEXT)),
        ("next_provider", (Step.FRESH,)),
        ("continuation", (Step.CONTINUE_HELD,)),
    ],
)
def test_an_action_is_a_row_of_the_recovery_table(
    action: FilterAction, steps: tuple[Step, ...]
) -> None:
    """As long as nothing was released; after that what was denied ends the answer."""
    failure = failure_for(action, own=FailureKind.REPETITION, code="some_code")
    assert TABLE[failure.kind] == (steps, ())
    assert failure.code == "some_code"


def test_without_an_action_a_kind_fails_in_its_own_way() -> None:
    """And so it does where it can't do what is asked: `schema` is for who knows what was wrong."""
    own = Failure(FailureKind.MALFORMED, verdict="some_code")
    assert failure_for(None, own=FailureKind.MALFORMED, code="some_code") == own
    assert failure_for("schema", own=FailureKind.MALFORMED, code="some_code") == own
    assert "schema" in get_args(FilterAction)
