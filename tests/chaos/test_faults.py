"""Every row of the fault catalogue is a script, or says which cases show it, and these do."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gate.observe import What
from ops.chaos.cases import Case, parse_case
from ops.chaos.faults import CATALOGUE, ELSEWHERE, scenarios, script_named
from ops.chaos.rings import SOCKETS
from ops.chaos.run import settled
from ops.chaos.scenarios import SCENARIOS
from ops.chaos.single import checked, play_once
from ops.chaos.stack_checks import broken
from ops.chaos.stack_run import Run, play
from ops.provider_script import Ending

ROWS = 32
ROOT = Path(__file__).resolve().parent.parent.parent
LINES = [line for place in ELSEWHERE.values() for line in place.cases]
TESTS = [test for place in ELSEWHERE.values() for test in place.tests]


def test_no_row_is_forgotten_or_named_twice() -> None:
    """Scripts and places together are the whole table."""
    scripted = {row.number for row in CATALOGUE}
    assert scripted | set(ELSEWHERE) == set(range(1, ROWS + 1))
    assert not scripted & set(ELSEWHERE)
    assert len({row.name for row in CATALOGUE}) == len(CATALOGUE) == len(scenarios())
    assert all(place.cases for place in ELSEWHERE.values())


@pytest.mark.parametrize("line", LINES)
def test_a_case_that_shows_a_row_is_there_and_strikes(line: str) -> None:
    """In the ring that it names; on sockets it is only looked up, since that takes seconds."""
    case = checked(parse_case(line))
    if case.ring < SOCKETS:
        with settled():
            played = play_once(case)
        assert (played.findings, played.unstruck) == ([], [])


@pytest.mark.parametrize("test", TESTS)
def test_a_test_that_shows_a_row_is_there(test: str) -> None:
    """By its file, and by its name where it has one."""
    file, _, name = test.partition("::")
    assert re.search(rf"def {name or 'test_'}", (ROOT / file).read_text())


def test_the_provider_plays_a_row_by_its_name() -> None:
    """The fault first, and then an answer that is well."""
    script = script_named("stall")
    assert script is not None
    fault, well = script.attempts
    assert fault != well
    assert script_named("no-such-fault") is None


def test_a_fault_of_a_kept_connection_comes_behind_an_answer() -> None:
    """There has to be one that was kept."""
    script = script_named("reuse-race")
    assert script is not None
    first, fault, well = script.attempts
    assert first == well
    assert (fault.status, fault.steps) == (0, (Ending.CUT,))


def _attempts(run: Run) -> list[str]:
    """The ends of those that the struck exchange made."""
    return [each.code for _, each in run.told if each.what is What.ATTEMPT_ENDED]


def test_a_kept_connection_that_is_closed_costs_no_attempt() -> None:
    """The exchange asks on the connection that another one has left, and is answered on a fresh one."""
    run = play(Case("reuse-race", ring=2), SCENARIOS["reuse-race"])
    assert broken(run) == []
    assert _attempts(run) == ["complete"]
    assert run.targets[0].asked == ["rival-0", "rival-0", "ex-1", "ex-1", "after"]
    assert len(run.net.opened) == 3


def test_frames_of_http2_are_no_answer() -> None:
    """That attempt has failed, and another one is made."""
    run = play(Case("goaway", ring=2), SCENARIOS["goaway"])
    assert broken(run) == []
    assert _attempts(run) == ["malformed_event", "complete"]
