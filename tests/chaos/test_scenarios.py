"""Each scenario, and each row of the fault catalogue, comes to its end when nothing strikes; a few are struck everywhere here, all of them by `make chaos`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

import pytest

from gate.config import PluginConfig, Table
from gate.events import Frame
from gate.filters.contract import Verdict
from ops.chaos.cases import Case
from ops.chaos.explore import explore, planned, run_case
from ops.chaos.reading import CHAT, RESPONSES
from ops.chaos.run import play, settled
from ops.chaos.scenarios import SCENARIOS
from ops.chaos.scenarios_filters import Banned


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_scenario_comes_to_its_own_end(name: str) -> None:
    """Under any schedule the same one."""
    with settled():
        for schedule in ("fifo", "reverse", "s1"):
            run, findings = run_case(Case(name, schedule), SCENARIOS[name])
            assert findings == []
            assert run.outcome is not None
            assert run.outcome.code == SCENARIOS[name].code


@pytest.mark.parametrize("name", ["recorded", "recorded-judged"])
def test_a_recording_adds_no_step(name: str) -> None:
    """The same points, in the same order, at the same times: no checkpoint is added."""
    scenario = SCENARIOS[name]
    runs = [
        play(Case(name), each, record=True)
        for each in (scenario, replace(scenario, recorded=False))
    ]
    times = [[(at, actor) for at, actor, _ in run.injector.steps] for run in runs]
    assert times[0] == times[1]
    assert runs[0].tape is not None
    assert runs[0].tape.written == len(runs[0].stage.caller.received)


def test_scenarios_of_each_kind_are_there() -> None:
    """Both endpoints, every path, what awaits, what is plugged in, threads, a tape."""
    every = SCENARIOS.values()
    assert {each.endpoint for each in every} >= {CHAT, RESPONSES}
    assert {each.paths for each in every} >= {
        ("tunnel",),
        ("tunnel", "normalized"),
        ("normalized", "tunnel"),
    }
    assert any(each.relays for each in every)
    assert any(each.services for each in every)
    assert any(each.plugins for each in every)
    assert any(each.thread_seconds for each in every)
    assert any(each.recorded for each in every)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["healthy", "responses-json", "tunnel-cut", "relayed"])
def test_a_scenario_that_is_struck_anywhere_keeps_what_it_promises(name: str) -> None:
    """Every single fault under the plain schedule."""
    with settled():
        tally = explore(name, SCENARIOS[name], "fifo")
    assert [(str(each.case), each.findings) for each in tally.failures] == []
    assert tally.points > 200
    assert tally.inert == 0


class Broken(Banned):
    """Has a bug, of which the test knows."""

    raised: ClassVar[list[Exception]] = []

    def observe(self, frames: Sequence[Frame], position: int) -> Verdict:
        self.raised.append(ValueError("a bug of the plug-in"))
        raise self.raised[-1]


@pytest.mark.slow
def test_a_filters_bug_is_told_wherever_its_exchange_ends() -> None:
    """Struck at every point: once it was raised, somebody hears of it."""
    options = PluginConfig(kind="broken", options=Table(), gating=False)
    scenario = replace(
        SCENARIOS["at-once"],
        filters=("empty", "broken"),
        plugins={"broken": Broken},
        tables={"broken": options},
    )
    with settled():
        plain = Case("broken")
        run = play(plain, scenario, record=True)
        for fault in planned(run.injector.points, ports=run.stage.calls.count):
            Broken.raised.clear()
            run = play(plain.with_fault(fault), scenario)
            told = [error for _, error in run.stage.crashes]
            assert [each for each in Broken.raised if each not in told] == [], fault
