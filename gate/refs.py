"""Stable tokens and the ids of one exchange.

A *stable token* is `[a-z0-9._:-]`, 1 to 128 characters: safe to log, to use as a label and to return to a caller. Ids are
made by `Refs` from an injected prefix and a counter, so that a replay makes the same ids again.
"""

from __future__ import annotations

import hashlib
import itertools
import re
from typing import Final, NewType

__all__ = [
    "MODEL_CHARS_MAX",
    "AttemptId",
    "ExchangeId",
    "PlanId",
    "Refs",
    "RequestRef",
    "SnapshotRef",
    "digest_of_key",
    "is_stable_token",
]

ExchangeId = NewType("ExchangeId", str)
AttemptId = NewType("AttemptId", str)
PlanId = NewType("PlanId", str)
SnapshotRef = NewType("SnapshotRef", str)
RequestRef = NewType("RequestRef", str)

MODEL_CHARS_MAX: Final = 256  # of a model alias
KEY_DIGEST_BYTES: Final = 16
_REF_CHARS_OF_EXCHANGE: Final = 100  # so that a ref with a suffix is a stable token still
_STABLE: Final = re.compile(r"[a-z0-9._:-]{1,128}")


def is_stable_token(text: object) -> bool:
    """Whether `text` may appear in logs, labels and answers as it is."""
    return isinstance(text, str) and _STABLE.fullmatch(text) is not None


def digest_of_key(key: bytes) -> str:
    """What is recorded of a caller's idempotency key, by which two requests with the same one can be found; empty for none."""
    return hashlib.blake2b(key, digest_size=KEY_DIGEST_BYTES).hexdigest() if key else ""


class Refs:
    """The ids of one exchange: attempts and plans are numbered from 1 in the order in which they are asked for."""

    def __init__(self, exchange: ExchangeId) -> None:
        self.exchange = exchange
        self._attempts = itertools.count(1)
        self._plans = itertools.count(1)
        self._rebuilt = itertools.count(1)

    def attempt(self) -> int:
        """The number of the next attempt."""
        return next(self._attempts)

    def plan(self) -> PlanId:
        """`<exchange>.<k>`; also the idempotency key of that plan."""
        return PlanId(f"{self.exchange}.{next(self._plans)}")

    @property
    def snapshot(self) -> SnapshotRef:
        """Names the request as the caller sent it."""
        return SnapshotRef(f"{self.exchange[:_REF_CHARS_OF_EXCHANGE]}.snapshot")

    def rebuilt(self) -> RequestRef:
        """Names the next rebuilt request."""
        return RequestRef(f"openai.rebuilt.{next(self._rebuilt)}")

    def __repr__(self) -> str:
        return f"Refs({self.exchange!r})"
