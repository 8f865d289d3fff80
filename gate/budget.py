"""The memory ledger: budgets and the reservations drawn from them.

Rules of this file: reserving is synchronous and happens before the bytes are kept; a refusal (`BudgetExceeded`) leaves nothing reserved;
a reservation is released exactly once, by its one owner. An exchange's budget draws on the process's: every byte is in both.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self

from gate.errors import BudgetExceeded

__all__ = ["Held", "MemoryBudget", "Reservation"]


class MemoryBudget:
    """At most `bytes_max` bytes at once. `parent`, if given, is charged for the same bytes."""

    def __init__(self, scope: str, bytes_max: int, parent: MemoryBudget | None = None) -> None:
        self.scope = scope
        self.bytes_max = bytes_max
        self.used = 0
        self.peak = 0
        self.open_reservations = 0
        self._parent = parent

    def reserve(self, size: int) -> Reservation:
        """A reservation of `size` bytes, to be released by the caller. Raises `BudgetExceeded`."""
        self._take(size)
        self.open_reservations += 1
        return Reservation(self, size)

    def _take(self, size: int) -> None:
        assert size >= 0
        if self.used + size > self.bytes_max:
            raise BudgetExceeded(self.scope, wanted=size, free=self.bytes_max - self.used)
        if self._parent is not None:
            self._parent._take(size)
        self.used += size
        self.peak = max(self.peak, self.used)

    def _give(self, size: int) -> None:
        assert 0 <= size <= self.used
        self.used -= size
        if self._parent is not None:
            self._parent._give(size)

    def __repr__(self) -> str:
        return f"MemoryBudget({self.scope}, used={self.used}, peak={self.peak}, max={self.bytes_max}, open={self.open_reservations})"


class Held(ABC):
    """What belongs to one owner until `release`; as a context manager it releases at the block's end."""

    @abstractmethod
    def release(self) -> None:
        """Lets go, once."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()


class Reservation(Held):
    """Bytes of a budget."""

    def __init__(self, budget: MemoryBudget, size: int) -> None:
        self._budget: MemoryBudget | None = budget
        self.size = size

    def resize(self, size: int) -> None:
        """Now `size` bytes. Raises `BudgetExceeded` and stays as it was."""
        assert self._budget is not None, "resized after release"
        if size > self.size:
            self._budget._take(size - self.size)
        else:
            self._budget._give(self.size - size)
        self.size = size

    def transfer(self, size: int, to: Reservation) -> None:
        """Hands `size` bytes over to another reservation of the same budget; never fails."""
        assert self._budget is not None
        assert self._budget is to._budget, "not of one budget"
        assert 0 <= size <= self.size
        self.size -= size
        to.size += size

    def release(self) -> None:
        """Gives the bytes back. A second release is a bug."""
        budget, self._budget = self._budget, None
        assert budget is not None, "released twice"
        budget._give(self.size)
        budget.open_reservations -= 1
        self.size = 0

    def __repr__(self) -> str:
        return f"Reservation({self.size}, {'open' if self._budget else 'released'})"
