"""Ring 2: the whole program in memory is played alike every time, struck everywhere, and what a connection alone can show is seen."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace

import pytest
import trio

from ops.chaos.cases import CANCEL, PORT, RAISE, Case, Fault, parse_case
from ops.chaos.rings import names_of
from ops.chaos.run import settled
from ops.chaos.scenarios import SCENARIOS
from ops.chaos.stack_checks import broken
from ops.chaos.stack_run import Run, play
from ops.chaos.stack_search import digest, explore, planned, run_case, told
from ops.chaos.wire import json_body
from transport.caller import AsgiCaller

LINES = (
    "judged --ring 2 --schedule s3 --cancel req:120",
    "crowded --ring 2 --schedule reverse --cancel reset:90",
)
PROGRAM = """
from ops.chaos.cases import parse_case
from ops.chaos.rings import names_of
from ops.chaos.run import settled
from ops.chaos.scenarios import SCENARIOS
from ops.chaos.stack_run import play
from ops.chaos.stack_search import digest
with settled():
    for line in {lines!r}:
        case = parse_case(line)
        print(digest(play(case, SCENARIOS[case.scenario], record=True)))
"""


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """No garbage collection inside a run."""
    with settled():
        yield


def played(line: str) -> Run:
    """The case of a line."""
    case = parse_case(line)
    return play(case, SCENARIOS[case.scenario], record=True)


@pytest.mark.slow
def test_the_same_case_is_the_same_run_in_another_process() -> None:
    """Under other hash seeds, server, application and client included."""
    done = [
        subprocess.run(  # noqa: S603 - our own program
            [sys.executable, "-c", PROGRAM.format(lines=LINES)],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": "."},
            check=True,
            capture_output=True,
            text=True,
        ).stdout.split()
        for seed in ("1", "2")
    ]
    assert done[0] == done[1] == [digest(played(line)) for line in LINES]


@pytest.mark.slow
@pytest.mark.parametrize("name", names_of(2))
def test_a_scenario_that_nothing_strikes_breaks_nothing(name: str) -> None:
    """Under either plain schedule."""
    for schedule in ("fifo", "reverse"):
        run, findings = run_case(Case(name, schedule, ring=2), SCENARIOS[name])
        assert findings == []
        assert not run.struck


def test_one_more_request_goes_over_the_same_connection() -> None:
    """Where it goes on; and over a new one where its caller has left."""
    stays, leaves = played("healthy --ring 2"), played("left --ring 2")
    assert stays.after is not None
    assert leaves.after is not None
    assert stays.after.end is stays.caller.end
    assert leaves.after.end is not leaves.caller.end
    assert broken(stays) == broken(leaves) == []


@pytest.mark.slow
def test_a_sink_may_be_cancelled_at_any_of_its_points() -> None:
    """Also within the server's writes: what was begun is written whole, or the connection is closed, and an answer that was not begun is an error of ours."""
    clean = played("healthy --ring 2")
    points = [each for each in planned(clean) if each.kind == CANCEL and each.who == "sink"]
    assert len(points) > 15
    for fault in points:
        run, findings = run_case(Case("healthy", ring=2).with_fault(fault), SCENARIOS["healthy"])
        assert findings == [], run.case


@pytest.mark.slow
def test_a_caller_may_go_in_each_way_at_any_point() -> None:
    """And a call of either connection may fail."""
    clean = played("json --ring 2")
    chosen = [each for each in planned(clean) if each.who in {"reset", "half", "caller", PORT}]
    for fault in chosen[::3]:
        run, findings = run_case(Case("json", ring=2).with_fault(fault), SCENARIOS["json"])
        assert findings == [], run.case


def test_a_search_counts_what_it_has_struck() -> None:
    """Here every fortieth fault of a scenario."""
    tally = explore("at-once", SCENARIOS["at-once"], "fifo", every=40)
    assert tally.failures == []
    assert tally.points == tally.runs - 1 > 10
    assert tally.inert == 0


def test_a_run_tells_what_was_hit() -> None:
    """And what the caller got of it."""
    lines = " ".join(told(played("healthy --ring 2 --cancel reset:60")))
    assert "--cancel reset:60: t=" in lines
    assert "ended: t=" in lines
    lines = " ".join(told(played("refused --ring 2 --raise port:2")))
    assert "calls that failed: " in lines


def test_a_fault_that_never_comes_is_said_to_be_missed() -> None:
    """A point behind the end, a call that nobody makes."""
    for fault in (Fault(CANCEL, "req", 9_000), Fault(RAISE, PORT, 900)):
        run, findings = run_case(Case("json", ring=2).with_fault(fault), SCENARIOS["json"])
        assert findings == []
        assert (run.missed, run.struck) == (True, False)


def test_pairs_of_faults_are_struck_too() -> None:
    """A few of them; one that the other makes miss its exchange strikes nothing else."""
    tally = explore("json", SCENARIOS["json"], "fifo", every=10**6, pairs=300)
    assert (tally.failures, tally.points) == ([], tally.runs - 1)
    assert tally.points > 2
    run = played("continued --ring 2 --cancel req:183 --raise port:6")
    assert (broken(run), run.missed, run.calls.failed) == ([], True, ["provider.receive"])


def test_a_service_that_is_told_to_stop_ends_what_it_has_begun() -> None:
    """And takes nothing else."""
    run = played("healthy --ring 2 --cancel stop:100")
    assert broken(run) == []
    assert run.caller.response.whole
    assert run.after is not None
    assert run.after.response.status == 0
    late = played("left-early --ring 2 --cancel stop:2")
    assert broken(late) == []


# --- what the checks see --------------------------------------------------------------------------


def test_a_clean_end_of_a_broken_answer_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted fault: the rest of an answer is thrown away, and its connection ended as if it were whole."""

    async def end(self: AsgiCaller, data: bytes = b"") -> None:
        await self._send({"type": "http.response.body", "body": b"", "more_body": False})
        self.ended = True

    monkeypatch.setattr(AsgiCaller, "end", end)
    findings = broken(played("healthy --ring 2"))
    assert "I10 a clean end with 0 terminals" in findings


def test_a_write_that_never_ends_is_a_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    """The watchdog ends the run, and says where it stood."""

    async def end(self: AsgiCaller, data: bytes = b"") -> None:
        # Bounded by nothing: the fault.
        with trio.CancelScope(shield=True):
            await trio.sleep_forever()

    monkeypatch.setattr(AsgiCaller, "end", end)
    [finding] = broken(played("json --ring 2"))
    assert finding.startswith("I0 hangs: ")


def test_a_wrong_answer_is_seen() -> None:
    """Another text than the scenario says, and another end."""
    scenario = replace(SCENARIOS["healthy"], targets=[[json_body("Bye")]])
    findings = broken(play(Case("healthy", ring=2), scenario))
    assert any(each.startswith("I8 ") for each in findings)
    scenario = replace(SCENARIOS["healthy"], code="stream_cut")
    assert any("where nothing struck" in each for each in broken(play(Case("x", ring=2), scenario)))


def test_what_is_held_and_what_is_lost_is_seen() -> None:
    """By its number, from the state that a run is left in."""
    run = played("healthy --ring 2")
    run.held.append("a place")
    run.tasks_left = 1
    run.alive = False
    run.net.opened[0].closes = 2
    run.injector.twice.append("sink at actors/sink.py:1")
    run.crashes.append(ValueError("unknown"))
    numbers = {each.split()[0] for each in broken(run)}
    assert {"I1", "I2", "I11", "I15", "I19", "I20"} <= numbers
