"""The one injected source of wall time, ids and random draws. Monotonic time is trio's own: under a test or a replay its clock is a virtual one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import trio

__all__ = ["World"]


def _in_time(due: float) -> float:
    return due


@dataclass(frozen=True, slots=True)
class World:
    """`wall`: Unix seconds, for `created`. `new_id`: a fresh stable token. `draw`: in [0, 1).

    `look`: the moment at which a hold is looked at because time has passed. A loop that is busy comes late for that, and what an attempt has released when it fails depends on it: so
    it is an input, which a recording keeps, and `wake` says for when a moment that is due has to be waited for.
    """

    wall: Callable[[], int]
    new_id: Callable[[], str]
    draw: Callable[[], float]
    look: Callable[[], float] = trio.current_time
    wake: Callable[[float], float] = _in_time
