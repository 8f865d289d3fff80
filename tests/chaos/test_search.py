"""Which units a level has, and that processes come to the same as one."""

from __future__ import annotations

import pytest

from ops.chaos.cases import parse_case
from ops.chaos.search import LEVELS, cores, search, units_of


def test_simple_schedules_come_first_and_the_catalogue_is_only_played() -> None:
    """Unless it is what was asked for."""
    units = units_of(LEVELS["full"], ["healthy", "stall"])
    assert [unit.schedule for unit in units[:2]] == ["fifo", "fifo"]
    assert [(unit.pairs, unit.plain) for unit in units[:2]] == [(True, False), (False, False)]
    assert units[-1].plain
    quick = units_of(LEVELS["quick"], ["healthy", "stall"])
    assert [unit.plain for unit in quick] == [False, True]
    assert not units_of(LEVELS["quick"], ["stall"])[0].plain
    assert [units_of(LEVELS[name], ["healthy"])[0].every for name in LEVELS] == [3, 1, 1]
    under = {unit.schedule: unit.every for unit in units_of(LEVELS["full"], ["healthy"])}
    assert under == {"fifo": 1, "reverse": 2, "s0": 2}


@pytest.mark.slow
def test_two_processes_find_what_one_finds() -> None:
    """And hear of the cases that run first."""
    units = units_of(LEVELS["quick"], ["left-early", "stall", "rebuilds-broken"])
    heard: list[tuple[int, int]] = []
    alone = search(units, jobs=1, corpus=[parse_case("left-early --cancel req:3")])
    both = search(units, jobs=2, told=lambda done, of: heard.append((done, of)))
    for name in ("left-early", "stall", "rebuilds-broken"):
        assert alone.tallies[name].points == both.tallies[name].points
    assert alone.tallies["corpus.txt"].runs == 1
    assert alone.total.failures == both.total.failures == []
    assert heard == [(1, 3), (2, 3), (3, 3)]
    assert cores() >= 1
