"""Observations: raw-free records of what was seen or decided, correlated by ids. Stable tokens and numbers only."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import TypeAlias

import msgspec

from gate.budget import MemoryBudget

__all__ = ["Observation", "Outcome", "OutcomeKind", "Probe", "What"]


class What(Enum):
    """What an observation is about."""

    EXCHANGE_STARTED = "exchange_started"
    EXCHANGE_ENDED = "exchange_ended"
    ATTEMPT_STARTED = "attempt_started"
    ATTEMPT_ADMITTED = "attempt_admitted"
    ATTEMPT_ENDED = "attempt_ended"
    VIOLATION = "violation"
    PLAN = "plan"
    SEAM = "seam"
    REMARK = "remark"
    GIVE_UP = "give_up"
    FINISH_UNKNOWN = "finish_unknown"
    FINISH_MISSING = "finish_missing"
    CRASHED = "crashed"


class Observation(msgspec.Struct, frozen=True, omit_defaults=True):
    """One record. `seconds` is a duration, or the moment on the exchange's clock where `what` is a beginning. `filter`: the name of the one that said `code`."""

    what: What
    exchange: str
    attempt: int = 0
    code: str = ""
    provider: str = ""
    framing: str = ""
    status: int = 0
    seconds: float = 0.0
    count: int = 0
    filter: str = ""


Probe: TypeAlias = Callable[[Observation], None]
"""Called synchronously; it may drop, and must neither wait nor raise."""


class OutcomeKind(Enum):
    SUCCESS = "success"
    ERROR = "error"
    ABANDONED = "abandoned"


class Outcome(msgspec.Struct, frozen=True):
    """How an exchange ended. `status` is what the caller got (0: nothing); `ledger` is the exchange's own, for whoever wants to check it."""

    kind: OutcomeKind
    code: str
    status: int
    attempts: int
    bytes_out: int
    framing: str
    mode: str
    ledger: MemoryBudget
