"""The one injected source of wall time, ids and random draws. Monotonic time is trio's own: under a test or a replay its clock is a virtual one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["World"]


@dataclass(frozen=True, slots=True)
class World:
    """`wall`: Unix seconds, for `created`. `new_id`: a fresh stable token. `draw`: in [0, 1)."""

    wall: Callable[[], int]
    new_id: Callable[[], str]
    draw: Callable[[], float]
