"""The built-in kinds that are there today: kind -> filter for one attempt, or None where the request gives it nothing to judge."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from gate.filters.contract import Filter, FilterContext
from gate.filters.empty import EmptyFilter
from gate.filters.structured_output import structured_output

__all__ = ["BUILT", "make_filters"]

BUILT: Final[Mapping[str, Callable[[FilterContext], Filter | None]]] = {
    "empty": lambda context: EmptyFilter(context.choices),
    "structured_output": structured_output,
}


def make_filters(names: Sequence[str], context: FilterContext) -> list[Filter]:
    """Fresh filters for one attempt, for those names of a route's list whose kind is built."""
    made = [BUILT[name](context) for name in names if name in BUILT]
    return [each for each in made if each is not None]
