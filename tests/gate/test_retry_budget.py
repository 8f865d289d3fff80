"""The retry budget: an outage costs what was saved up, and no more."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gate.retry_budget import STORE_MAX, RetryBudget


def test_it_starts_at_its_floor() -> None:
    """Three retries are there from the start, a fourth is not."""
    budget = RetryBudget(share=0.2, floor=3, now=0.0)
    for _ in range(3):
        assert budget.left(0.0)
        budget.take(0.0)
    assert not budget.left(0.0)


def test_every_exchange_adds_its_share() -> None:
    """Five exchanges pay for one retry."""
    budget = RetryBudget(share=0.25, floor=0, now=0.0)
    for _ in range(3):
        budget.admit(0.0)
    assert not budget.left(0.0)
    budget.admit(0.0)
    assert budget.left(0.0)


def test_below_its_floor_it_grows_with_time() -> None:
    """One a second, up to the floor and not beyond."""
    budget = RetryBudget(share=0.0, floor=2, now=0.0)
    budget.take(0.0)
    budget.take(0.0)
    assert not budget.left(0.5)
    assert budget.left(1.0)
    budget.take(1.0)
    budget.take(1000.0)
    budget.take(1000.0)
    assert not budget.left(1000.0)


def test_the_store_is_bounded() -> None:
    """A quiet day doesn't pay for a storm."""
    budget = RetryBudget(share=1.0, floor=0, now=0.0)
    for _ in range(500):
        budget.admit(0.0)
    taken = 0
    while budget.left(0.0):
        budget.take(0.0)
        taken += 1
    assert taken == STORE_MAX


def test_a_floor_above_the_store_is_kept() -> None:
    """Admitting never takes anything away."""
    budget = RetryBudget(share=0.5, floor=300, now=0.0)
    budget.admit(0.0)
    taken = 0
    while budget.left(0.0):
        budget.take(0.0)
        taken += 1
    assert taken == 300


def test_its_repr_tells_the_balance() -> None:
    """For whoever looks at it at night."""
    assert repr(RetryBudget(share=0.2, floor=3, now=0.0)) == "RetryBudget(3.00)"


@given(st.lists(st.tuples(st.booleans(), st.floats(0, 5)), max_size=60))
def test_retries_never_exceed_what_was_granted(steps: list[tuple[bool, float]]) -> None:
    """Floor, shares and time are all that it can ever give."""
    now, taken, admitted = 0.0, 0, 0
    budget = RetryBudget(share=0.2, floor=2, now=now)
    for admit, pause in steps:
        now += pause
        if admit:
            budget.admit(now)
            admitted += 1
        elif budget.left(now):
            budget.take(now)
            taken += 1
    assert taken <= 2 + 0.2 * admitted + now + 1e-6
