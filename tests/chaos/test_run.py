"""A run is a function of its case, and ends whatever the product does."""

from __future__ import annotations

import gc
import subprocess
import sys

import pytest
import trio

from ops.chaos.cases import parse_case
from ops.chaos.explore import digest
from ops.chaos.invariants import broken
from ops.chaos.run import play, settled
from ops.chaos.scenarios import SCENARIOS
from tests.chaos import planted

LINES = (
    "judged --schedule s3 --cancel req:120",
    "crowded --schedule reverse --cancel caller:90",
    "responses-continued --schedule s1 --raise port:6",
    "tunnel-denied --schedule s2 --cancel drain:70",
    "threads --schedule s4 --cancel filter:60",
    "recorded-judged --schedule s5 --raise sink:80",
)
PROCESSES = 5
PROGRAM = """
from ops.chaos.cases import parse_case
from ops.chaos.explore import digest
from ops.chaos.run import play, settled
from ops.chaos.scenarios import SCENARIOS
with settled():
    for line in {lines!r}:
        case = parse_case(line)
        print(digest(play(case, SCENARIOS[case.scenario], record=True)))
"""


@pytest.mark.slow
@pytest.mark.no_cover
def test_the_same_case_is_the_same_run_in_another_process() -> None:
    """In each under another hash seed, which changes the order of sets; and in this one."""
    processes = [
        subprocess.Popen(  # noqa: S603 - our own program
            [sys.executable, "-c", PROGRAM.format(lines=LINES)],
            env={"PYTHONHASHSEED": "random", "PYTHONPATH": "."},
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(PROCESSES)
    ]
    said = [process.communicate()[0].split() for process in processes]
    with settled():
        here = [
            digest(play(case, SCENARIOS[case.scenario], record=True))
            for case in map(parse_case, LINES)
        ]
    assert said == [here] * PROCESSES
    assert len(set(here)) == len(LINES)


def test_another_schedule_is_another_run_with_the_same_answer() -> None:
    """Only the order changes."""
    runs = [
        play(parse_case(f"exact --schedule {name}"), SCENARIOS["exact"], record=True)
        for name in ("fifo", "reverse", "s1")
    ]
    assert len({digest(run) for run in runs}) > 1
    assert len({bytes(run.stage.caller.received) for run in runs}) == 1


def test_a_run_that_hangs_says_where() -> None:
    """The watchdog's hour is one jump of the clock, and shields don't hold it up."""
    run = play(parse_case("healthy"), SCENARIOS["healthy"], supervise=planted.hangs)
    assert run.hung
    assert run.tasks_left == 0


def test_a_fault_that_never_comes_is_said_to_be_missed() -> None:
    """A point behind the end, a task that is not there, a port call that nobody makes."""
    for line in (
        "healthy --cancel req:90000",
        "healthy --raise sink:1",
        "healthy --raise port:900",
    ):
        run = play(parse_case(line), SCENARIOS["healthy"])
        assert (run.missed, run.struck) == (True, False)
        assert broken(run) == []


def test_the_collector_does_not_run_inside_a_run() -> None:
    """And does again afterwards."""
    with settled():
        assert not gc.isenabled()
    assert gc.isenabled()


def test_each_task_is_given_back() -> None:
    """Those of rivals too."""
    run = play(parse_case("queued"), SCENARIOS["queued"])
    assert (run.tasks_left, len(run.rivals)) == (0, 2)
    with pytest.raises(RuntimeError):
        trio.lowlevel.current_task()
