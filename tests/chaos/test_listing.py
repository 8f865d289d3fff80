"""What there is by name is listed, each name once, with what it is."""

from __future__ import annotations

from ops.chaos import rebuilds
from ops.chaos.faults import CATALOGUE, ELSEWHERE
from ops.chaos.listing import fault_lines, scenario_lines
from ops.chaos.scenarios import SCENARIOS
from ops.chaos.sockets_scenarios import SOCKETED


def test_every_row_of_the_catalogue_is_listed() -> None:
    """A script with its row; what is no script with the commands that show it."""
    lines = list(fault_lines())
    for row in CATALOGUE:
        [line] = [each for each in lines if each.split()[0] == row.name]
        assert line.split()[1] == str(row.number)
        assert line.endswith(row.about)
    for number, place in ELSEWHERE.items():
        assert f"  {number}  {place.about}" in lines
        for case in place.cases:
            assert f"        tidegate chaos {case}" in lines


def test_every_scenario_is_listed_with_its_rings() -> None:
    """Those of sockets alone, and crowds, too."""
    rings = {line.split()[0]: line.split()[1] for line in list(scenario_lines())[1:]}
    assert set(rings) == {*SCENARIOS, *rebuilds.CROWDS, *SOCKETED}
    assert rings["healthy"] == "1,2,3"
    assert rings["stalled"] == "1,2"
    assert rings["threads"] == rings["rebuilds"] == "1"
    assert rings["never-reads"] == "3"
