"""The one injected source of wall time, ids and random draws, and of the moments that decide something. All other monotonic time is trio's own: under a test or a replay its clock is a virtual one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

import trio

__all__ = ["Moment", "World"]


class Moment(Enum):
    """What happens because of the time that it is; the value is what traces call it."""

    READY = "ready"  # the request is whole: the total clock begins
    DECIDE = "decide"  # what comes next is decided
    FAILED = "failed"  # an attempt has failed: a wait that its provider asks for begins
    HOLD = "hold"  # a hold is looked at, for what time or a filter's answer has let go
    CLOCK = "clock"  # a clock of an attempt has run out
    PING = "ping"  # the response has been silent for so long that a comment is due
    BODY = "body"  # the caller's body has taken too long
    FILTER = "filter"  # a filter that awaits has taken too long


def _now(what: Moment, after: float) -> float:
    return trio.current_time()


def _in_time(what: Moment, due: float) -> float:
    return due


@dataclass(frozen=True, slots=True)
class World:
    """`wall`: Unix seconds, for `created`. `new_id`: a fresh stable token. `draw`: in [0, 1).

    A loop that is busy comes late to what is due, and what it finds then depends on how late. So each such moment is an input, which a recording keeps: `look` gives it and says that it has come
    (with what was last seen before it, where that matters), `wake` says when one that is due has to be waited for, and `came` is when the newest word of a provider came.
    """

    wall: Callable[[], int]
    new_id: Callable[[], str]
    draw: Callable[[], float]
    look: Callable[[Moment, float], float] = _now
    wake: Callable[[Moment, float], float] = _in_time
    came: Callable[[], float] = trio.current_time
