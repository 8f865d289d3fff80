"""What a filter's table wants done about its violations, as the failure whose row of the recovery table says so."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from gate.config import FilterAction
from gate.failure import Failure, FailureKind

__all__ = ["failure_for"]

# `schema` asks for a repair, and only a filter that can say what was wrong is configured with it.
_KINDS: Final[Mapping[FilterAction, FailureKind]] = {
    "error": FailureKind.DENIED,
    "exact": FailureKind.DENIED_EXACT,
    "next_provider": FailureKind.DENIED_NEXT,
    "continuation": FailureKind.DENIED_CONTINUE,
}


def failure_for(action: FilterAction | None, *, own: FailureKind, code: str) -> Failure:
    """The failure behind the violation `code`; `own` is the kind's where its table says nothing."""
    return Failure(own if action is None else _KINDS.get(action, own), verdict=code)
