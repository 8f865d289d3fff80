"""The retry budget of one alias: how many attempts after the first may be made in all, so that an outage does not multiply traffic.

A balance that starts at `floor`; every admitted exchange adds `share` (at most `STORE_MAX` in store), below the floor it also grows by one per second;
every attempt after the first takes one. With less than one there is none.
"""

from __future__ import annotations

from typing import Final

__all__ = ["STORE_MAX", "RetryBudget"]

STORE_MAX: Final = 100.0


class RetryBudget:
    """Times are passed in, in seconds; `share` attempts per exchange, `floor` attempts."""

    def __init__(self, *, share: float, floor: float, now: float) -> None:
        self._share = share
        self._floor = floor
        self._balance = floor
        self._seen = now

    def admit(self, now: float) -> None:
        """An exchange was admitted."""
        self._grow(now)
        self._balance = max(self._balance, min(self._balance + self._share, STORE_MAX))

    def left(self, now: float) -> bool:
        """Whether an attempt after the first may be made."""
        self._grow(now)
        return self._balance >= 1.0

    def take(self, now: float) -> None:
        """An attempt after the first is made."""
        self._grow(now)
        self._balance -= 1.0

    def _grow(self, now: float) -> None:
        if self._balance < self._floor:
            self._balance = min(self._floor, self._balance + now - self._seen)
        self._seen = now

    def __repr__(self) -> str:
        return f"RetryBudget({self._balance:.2f})"
