"""The memory ledger: never over its limit, never below zero, and zero again when every owner has let go."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from gate.budget import MemoryBudget, Reservation
from gate.errors import BudgetExceeded

sizes = st.integers(0, 60)


def test_a_reservation_takes_its_bytes_and_gives_them_back() -> None:
    """The peak remembers."""
    budget = MemoryBudget("process", 100)
    with budget.reserve(70) as held:
        assert (held.size, budget.used, budget.open_reservations) == (70, 70, 1)
    assert (held.size, budget.used, budget.peak, budget.open_reservations) == (0, 0, 70, 0)


def test_an_exchange_draws_on_the_process() -> None:
    """Every byte is in both ledgers, the number of reservations only in its own."""
    process = MemoryBudget("process", 100)
    first, second = MemoryBudget("exchange", 80, process), MemoryBudget("exchange", 80, process)
    one, two = first.reserve(60), second.reserve(40)
    assert (process.used, first.used, second.used) == (100, 60, 40)
    assert (process.open_reservations, first.open_reservations) == (0, 1)
    one.release()
    assert (process.used, process.peak) == (40, 100)
    two.release()
    assert process.used == 0


@pytest.mark.parametrize(
    ("scope", "size", "free", "code"),
    [("exchange", 81, 80, "exchange_budget"), ("process", 61, 60, "process_budget")],
)
def test_a_refusal_says_which_limit_it_was_and_reserves_nothing(
    scope: str, size: int, free: int, code: str
) -> None:
    """Neither in the exchange nor in the process."""
    process = MemoryBudget("process", 100)
    exchange = MemoryBudget("exchange", 80, process)
    other = process.reserve(20 if scope == "exchange" else 40)
    with pytest.raises(BudgetExceeded, match=f"{size} bytes wanted, {free} free") as caught:
        exchange.reserve(size)
    assert (caught.value.scope, caught.value.public_code) == (scope, code)
    assert (exchange.used, exchange.peak, exchange.open_reservations) == (0, 0, 0)
    assert process.used == other.size


def test_the_limit_itself_fits() -> None:
    """The bound is inclusive, and nothing more is free."""
    budget = MemoryBudget("process", 100)
    budget.reserve(100)
    budget.reserve(0)
    with pytest.raises(BudgetExceeded, match="1 bytes wanted, 0 free"):
        budget.reserve(1)


def test_a_reservation_grows_and_shrinks() -> None:
    """One that can't grow stays as it was."""
    process = MemoryBudget("process", 100)
    held = MemoryBudget("exchange", 80, process).reserve(10)
    held.resize(80)
    held.resize(30)
    assert (held.size, process.used, process.peak) == (30, 30, 80)
    with pytest.raises(BudgetExceeded):
        held.resize(81)
    assert (held.size, process.used) == (30, 30)


def test_bytes_change_their_owner_without_being_counted_twice() -> None:
    """Even where the budget has no room left."""
    budget = MemoryBudget("exchange", 100)
    held, wire = budget.reserve(90), budget.reserve(10)
    held.transfer(40, wire)
    assert (held.size, wire.size, budget.used, budget.peak) == (50, 50, 100, 100)
    held.release()
    wire.release()
    assert (budget.used, budget.open_reservations) == (0, 0)


def test_a_bug_with_a_reservation_is_loud() -> None:
    """Each of these would make the ledger lie."""
    budget, other = MemoryBudget("exchange", 100), MemoryBudget("exchange", 100)
    held, foreign = budget.reserve(10), other.reserve(10)
    with pytest.raises(AssertionError):
        budget.reserve(-1)
    with pytest.raises(AssertionError, match="not of one budget"):
        held.transfer(1, foreign)
    with pytest.raises(AssertionError):
        held.transfer(11, budget.reserve(0))
    with pytest.raises(AssertionError):
        held.resize(-1)
    held.release()
    with pytest.raises(AssertionError, match="released twice"):
        held.release()
    with pytest.raises(AssertionError, match="after release"):
        held.resize(5)
    with pytest.raises(AssertionError):
        held.transfer(0, budget.reserve(0))
    assert (budget.used, budget.open_reservations) == (0, 2)


def test_a_block_that_raises_gives_its_bytes_back() -> None:
    """The error goes on."""
    budget = MemoryBudget("exchange", 100)
    with pytest.raises(ValueError, match="inside"), budget.reserve(10):
        raise ValueError("inside")
    assert budget.used == 0


def test_the_ledger_can_be_read_in_a_log() -> None:
    """Sizes, and no bytes."""
    budget = MemoryBudget("exchange", 100)
    held = budget.reserve(10)
    assert repr(budget) == "MemoryBudget(exchange, used=10, peak=10, max=100, open=1)"
    assert repr(held) == "Reservation(10, open)"
    held.release()
    assert repr(held) == "Reservation(0, released)"


@given(st.lists(sizes, max_size=12))
def test_the_peak_is_the_most_that_was_ever_held(growth: list[int]) -> None:
    """Also after everything has gone back."""
    budget = MemoryBudget("process", 1000)
    reservations = [budget.reserve(size) for size in growth]
    for each in reservations:
        each.release()
    assert (budget.used, budget.peak) == (0, sum(growth))


class Ledgers(RuleBasedStateMachine):
    """Two exchanges of one process do what they like, against a list of what each owner should hold."""

    def __init__(self) -> None:
        super().__init__()
        self.process = MemoryBudget("process", 100)
        self.exchanges = [MemoryBudget("exchange", 70, self.process) for _ in range(2)]
        self.held: list[tuple[int, Reservation, int]] = []
        self.peak = 0

    def total(self, number: int | None = None) -> int:
        """What the model holds, in one exchange or in all."""
        return sum(size for owner, _, size in self.held if number in {owner, None})

    def room(self, number: int) -> int:
        """What is free for one exchange."""
        return min(70 - self.total(number), 100 - self.total())

    @rule(number=st.integers(0, 1), size=sizes)
    def reserve(self, number: int, size: int) -> None:
        """Granted exactly where there is room in both ledgers."""
        if size <= self.room(number):
            self.held.append((number, self.exchanges[number].reserve(size), size))
        else:
            with pytest.raises(BudgetExceeded):
                self.exchanges[number].reserve(size)

    @precondition(lambda self: self.held)
    @rule(data=st.data(), size=sizes)
    def resize(self, data: st.DataObject, size: int) -> None:
        """Likewise, for the difference."""
        index = data.draw(st.integers(0, len(self.held) - 1))
        number, reservation, before = self.held[index]
        if size - before <= self.room(number):
            reservation.resize(size)
            self.held[index] = (number, reservation, size)
        else:
            with pytest.raises(BudgetExceeded):
                reservation.resize(size)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def transfer(self, data: st.DataObject) -> None:
        """Within one exchange; nothing is reserved for it."""
        index = data.draw(st.integers(0, len(self.held) - 1))
        number, giver, before = self.held[index]
        taker = next(i for i, each in enumerate(self.held) if each[0] == number)
        if taker == index:
            return
        size = data.draw(st.integers(0, before))
        giver.transfer(size, self.held[taker][1])
        self.held[index] = (number, giver, before - size)
        self.held[taker] = (number, self.held[taker][1], self.held[taker][2] + size)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        """In any order."""
        index = data.draw(st.integers(0, len(self.held) - 1))
        self.held.pop(index)[1].release()

    @invariant()
    def the_ledger_agrees_with_the_owners(self) -> None:
        """Sizes, sums, limits, and the peak."""
        self.peak = max(self.peak, self.total())
        for _, reservation, size in self.held:
            assert reservation.size == size
        for number, exchange in enumerate(self.exchanges):
            assert exchange.used == self.total(number)
            assert exchange.open_reservations == sum(each[0] == number for each in self.held)
        assert 0 <= self.process.used == self.total() <= 100
        assert self.process.peak == self.peak

    def teardown(self) -> None:
        """Everybody lets go."""
        for _, reservation, _ in self.held:
            reservation.release()
        assert [each.used for each in (self.process, *self.exchanges)] == [0, 0, 0]


TestLedgers = Ledgers.TestCase
TestLedgers.settings = settings(max_examples=40, stateful_step_count=25)
