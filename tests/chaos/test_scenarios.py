"""Each scenario, and each row of the fault catalogue, comes to its end when nothing strikes; a few are struck everywhere here, all of them by `make chaos-quick`."""

from __future__ import annotations

from pathlib import Path

import pytest

from ops.chaos.cases import Case
from ops.chaos.command import read_corpus
from ops.chaos.explore import explore, run_case
from ops.chaos.run import settled
from ops.chaos.scenarios import SCENARIOS

CORPUS = Path(__file__).parent / "corpus.txt"


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_scenario_comes_to_its_own_end(name: str) -> None:
    """Under any schedule the same one."""
    with settled():
        for schedule in ("fifo", "reverse", "s1"):
            run, findings = run_case(Case(name, schedule), SCENARIOS[name])
            assert findings == []
            assert run.outcome is not None
            assert run.outcome.code == SCENARIOS[name].code


@pytest.mark.parametrize("case", read_corpus(CORPUS), ids=str)
def test_what_was_found_once_is_not_found_again(case: Case) -> None:
    """The corpus is run first, for ever."""
    _, findings = run_case(case, SCENARIOS[case.scenario])
    assert findings == []


@pytest.mark.slow
@pytest.mark.parametrize("name", ["healthy", "json", "drained", "left", "exhausted"])
def test_a_scenario_that_is_struck_anywhere_keeps_what_it_promises(name: str) -> None:
    """Every single fault under the plain schedule."""
    with settled():
        tally = explore(name, SCENARIOS[name], "fifo")
    assert [(str(each.case), each.findings) for each in tally.failures] == []
    assert tally.points > 200
    assert tally.inert == 0
