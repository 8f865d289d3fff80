"""The built-in kinds that are there today: kind -> filter for one attempt."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from gate.filters.contract import Filter
from gate.filters.empty import EmptyFilter

__all__ = ["BUILT", "make_filters"]

BUILT: Final[Mapping[str, Callable[[int], Filter]]] = {"empty": EmptyFilter}


def make_filters(names: Sequence[str], *, choices: int) -> list[Filter]:
    """Fresh filters for one attempt, for those names of a route's list whose kind is built."""
    return [BUILT[name](choices) for name in names if name in BUILT]
