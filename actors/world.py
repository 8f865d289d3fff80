"""The one injected source of time, ids and random draws."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["World"]


@dataclass(frozen=True, slots=True)
class World:
    """`clock`: monotonic seconds (trio's). `wall`: Unix seconds, for `created`. `new_id`: a fresh stable token. `draw`: in [0, 1)."""

    clock: Callable[[], float]
    wall: Callable[[], int]
    new_id: Callable[[], str]
    draw: Callable[[], float]
