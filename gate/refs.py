"""Stable tokens and the ids of one exchange.

A *stable token* is `[a-z0-9._:-]`, 1 to 128 characters: safe to log, to use as a label and to return to a caller. Ids are
made by `Refs` from an injected prefix and a counter, so that a replay makes the same ids again.
"""

from __future__ import annotations

import itertools
import re
from typing import Final, NewType

__all__ = ["AttemptId", "ExchangeId", "PlanId", "Refs", "is_stable_token"]

ExchangeId = NewType("ExchangeId", str)
AttemptId = NewType("AttemptId", str)
PlanId = NewType("PlanId", str)

_STABLE: Final = re.compile(r"[a-z0-9._:-]{1,128}")


def is_stable_token(text: object) -> bool:
    """Whether `text` may appear in logs, labels and answers as it is."""
    return isinstance(text, str) and _STABLE.fullmatch(text) is not None


class Refs:
    """The ids of one exchange: attempts and plans are numbered from 1 in the order in which they are asked for."""

    def __init__(self, exchange: ExchangeId) -> None:
        self.exchange = exchange
        self._attempts = itertools.count(1)
        self._plans = itertools.count(1)

    def attempt(self) -> int:
        """The number of the next attempt."""
        return next(self._attempts)

    def plan(self) -> PlanId:
        """`<exchange>.<k>`; also the idempotency key of that plan."""
        return PlanId(f"{self.exchange}.{next(self._plans)}")

    def __repr__(self) -> str:
        return f"Refs({self.exchange!r})"
