"""Observations: raw-free records of what was seen or decided, correlated by ids. Stable tokens and numbers only."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import TypeAlias

import msgspec

from gate.budget import MemoryBudget

__all__ = [
    "Measured",
    "Observation",
    "Outcome",
    "OutcomeKind",
    "Probe",
    "Spent",
    "TokenKind",
    "Told",
    "What",
]


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
    ORPHANED = "orphaned"
    CRASHED = "crashed"


class TokenKind(Enum):
    """What became of completion tokens."""

    REPORTED = "reported"  # part of the answer, as their provider counted them
    ESTIMATED = "estimated"  # part of the answer, one for each event that carried some
    WASTED = "wasted"  # nobody has seen them


class Spent(msgspec.Struct, frozen=True, omit_defaults=True):
    """Completion tokens of one attempt. `reason`: why they were wasted."""

    kind: TokenKind
    tokens: int
    reason: str = ""


class Measured(msgspec.Struct, frozen=True, omit_defaults=True):
    """Times of a whole exchange in seconds, None where there was nothing to measure, and what its attempts have cost.

    `held_seconds`: the longest that a released frame has stayed. `ttft_seconds`: from the request to the first release of a stream; `ttft_added_seconds`: the part of it since the
    first answer content arrived, from whichever attempt. `token_seconds`: per output token of a stream that ended well.
    """

    held_seconds: float | None = None
    ttft_seconds: float | None = None
    ttft_added_seconds: float | None = None
    token_seconds: float | None = None
    spent: tuple[Spent, ...] = ()


class Observation(msgspec.Struct, frozen=True, omit_defaults=True):
    """One record. `seconds` is a duration, or the moment on the exchange's clock where `what` is a beginning. `filter`: the name of the one that said `code`.

    Of an attempt: the `directive` it followed, and the `reason`, how the one before it ended (empty: it was the first). Of an exchange's end: its `route` by name, the response's
    `mode`, the `outcome`, what was `measured` if it got as far as to attempts, and the digest of the caller's `idempotency` key.
    """

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
    directive: str = ""
    reason: str = ""
    route: str = ""
    mode: str = ""
    outcome: str = ""
    measured: Measured | None = None
    idempotency: str = ""


class Told(msgspec.Struct, frozen=True):
    """What a caller that asked for it is told of decisions: whole comments of an event stream, and header fields for a response that has not begun. None of it is part of the answer."""

    comments: bytes = b""
    headers: tuple[tuple[bytes, bytes], ...] = ()


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
