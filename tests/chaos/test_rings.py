"""How much of rings 2 and 3 a search takes, and one case of them."""

from __future__ import annotations

import pytest

from ops.chaos.cases import CaseInvalid, parse_case
from ops.chaos.rings import (
    ALONE,
    CORE,
    Portion,
    checked,
    explored,
    names_of,
    portions,
)
from ops.chaos.run import settled
from ops.chaos.single import play_once


def test_a_quick_search_looks_into_memory_only() -> None:
    """And a whole one at more points of the core, at some of the rest, and onto sockets; a deep one at all."""
    quick = portions("quick", 2, [], None)
    assert {each.scenario for each in quick} == set(CORE)
    assert portions("quick", 3, [], None) == []
    full = portions("full", 2, [], None)
    assert {each.scenario for each in full} == set(names_of(2))
    assert {each.every for each in full if each.scenario in CORE} == {8}
    sockets = portions("full", 3, [], None)
    assert {each.scenario for each in sockets} == set(names_of(3))
    assert len(names_of(3)) // 5 < sum(each.seed % 2 for each in sockets) < len(names_of(3))
    assert all(each.pairs for each in full if each.scenario in CORE)
    deep = portions("deep", 2, [], None)
    assert len(deep) == 4 * len(names_of(2))
    assert {each.every for each in deep} == {1}


def test_what_is_named_is_struck_at_every_point() -> None:
    """Under the schedule that is named too."""
    assert portions("quick", 2, ["healthy"], "s1") == [Portion(2, "healthy", "s1", 1)]
    assert portions(ALONE, 3, ["healthy"], None) == [
        Portion(3, "healthy", seed=at) for at in (0, 1)
    ]
    assert len(portions(ALONE, 2, [], None)) == len(names_of(2))


@pytest.mark.slow
def test_a_portion_is_a_tally() -> None:
    """Of either ring."""
    with settled():
        assert explored(Portion(2, "at-once", every=80), first=True).failures == []
    assert explored(Portion(3, "json"), first=False).failures == []


def test_a_failure_of_a_scenario_that_is_changed_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a failing case, in its simplest form."""
    monkeypatch.setattr("ops.chaos.stack_checks.FINE", "something else")
    case = parse_case("at-once --ring 2 --schedule s1 --cancel req:9000")
    assert "I1" in {each.split()[0] for each in play_once(case).findings}
    found = explored(Portion(2, "at-once", "s1", every=300), first=True).failures
    assert str(found[0].case) == "at-once --ring 2"


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("nothing --ring 2", "no scenario 'nothing' in ring 2"),
        ("judged --ring 3", "no scenario 'judged' in ring 3"),
        ("healthy --ring 3 --cancel sink:3", "ring 3 strikes caller, reset, half, provider, stop"),
        ("healthy --ring 3 --cancel stop:300001", "ring 3 strikes within 30 s"),
    ],
)
def test_what_a_ring_does_not_have_is_refused(line: str, reason: str) -> None:
    """With what it has."""
    with pytest.raises(CaseInvalid, match=reason):
        checked(parse_case(line))
