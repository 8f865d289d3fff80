"""What there is by name, for a person to read: the scenarios that `tidegate chaos` plays, and the faults that `tidegate provider` plays too."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ops.chaos import rebuilds, rings
from ops.chaos.faults import CATALOGUE, ELSEWHERE
from ops.chaos.scenarios import SCENARIOS
from ops.chaos.sockets_scenarios import SOCKETED

__all__ = ["fault_lines", "scenario_lines"]

INDENT: Final = "  "


def fault_lines() -> Iterator[str]:
    """Name, row of the catalogue and what it does; then the rows that are no provider's doing."""
    wide = max(len(row.name) for row in CATALOGUE)
    yield "Faults of a provider (tidegate provider --script NAME, tidegate chaos NAME), with their rows in the catalogue:"
    for row in CATALOGUE:
        yield f"{INDENT}{row.name:<{wide}}  {row.number:>2}  {row.about}"
    yield "Rows that are not one provider's doing, and what shows them:"
    for number, place in ELSEWHERE.items():
        yield f"{INDENT}{number:>2}  {place.about}"
        for line in place.cases:
            yield f"{INDENT * 4}tidegate chaos {line}"
        for test in place.tests:
            yield f"{INDENT * 4}{test}"
    yield "Without a script the model's name says how the provider behaves; GET /v1/models lists those names."


def scenario_lines() -> Iterator[str]:
    """Name, rings and what it is."""
    above = {number: set(rings.names_of(number)) for number in (rings.MEMORY, rings.SOCKETS)}
    about = {name: each.about for name, each in SCENARIOS.items()}
    about |= {name: each.about for name, each in rebuilds.CROWDS.items()}
    first = set(about)
    about |= {name: each.scenario.about for name, each in SOCKETED.items() if name not in about}
    wide = max(map(len, about))
    yield "Scenarios, with the rings that they are played in:"
    for name, what in about.items():
        played = ["1"] if name in first else []
        played += [str(number) for number, names in above.items() if name in names]
        yield f"{INDENT}{name:<{wide}}  {','.join(played):<5}  {what}"
