"""What is planned, what is found, and how small it gets."""

from __future__ import annotations

import pytest

from ops.chaos.cases import Case, parse_case
from ops.chaos.explore import Failure, Tally, decisions, explore, planned, run_case, sampled, shrunk
from ops.chaos.run import play, settled
from ops.chaos.scenario import Scenario
from ops.chaos.scenarios import SCENARIOS
from ops.chaos.wire import DONE, ROLE, STOP, stream, text

LIAR = Scenario(
    about="expects another text than its provider says",
    targets=[[stream(ROLE, text("Hello"), STOP, DONE)]],
    said="Hullo",
)


def test_points_between_which_nothing_happens_are_planned_once() -> None:
    """The end of a step and the beginning of the next one of the same batch."""
    run = play(Case("healthy"), SCENARIOS["healthy"], record=True)
    points = run.injector.points
    fresh = [point for point in points if point.fresh]
    assert len(points) / 2 < len(fresh) < len(points)
    faults = list(planned(points, ports=3))
    assert len(faults) == len(set(faults))
    assert {fault.who for fault in faults} >= {
        "req",
        "caller",
        "drain",
        "port",
        "runner",
        "evaluator",
        "coordinator",
        "sink",
        "ingress",
        "exchange",
        "watch",
    }


def test_a_sample_leaves_out_no_port_and_shares_the_points_out() -> None:
    """Both halves together are everything; another scenario has the other half."""
    run = play(Case("healthy"), SCENARIOS["healthy"], record=True)
    faults = list(planned(run.injector.points, ports=3))
    half = list(sampled(faults, "healthy", 2))
    ports = [fault for fault in faults if fault.who == "port"]
    assert len(half) == (len(faults) - 3) // 2 + 3
    assert half[-3:] == ports
    halves = {tuple(sampled(faults, name, 2)) for name in SCENARIOS}
    assert [set(faults) == set().union(*halves), len(halves)] == [True, 2]
    assert list(sampled(faults, "healthy", 1)) == faults


def test_a_search_stops_at_its_first_failure_if_it_is_asked_to() -> None:
    """A mutant needs no more to be known."""
    assert len(explore("liar", LIAR, "fifo", first=True).failures) == 1
    many = explore("liar", LIAR, "fifo")
    assert len(many.failures) == 20


@pytest.mark.slow
def test_behind_a_cancel_every_point_of_what_is_left_is_struck() -> None:
    """In that run, not in the clean one."""
    single = explore("left-early", SCENARIOS["left-early"], "fifo")
    pairs = explore("left-early", SCENARIOS["left-early"], "fifo", pairs=True)
    assert pairs.runs > single.runs
    assert pairs.failures == []


def test_another_answer_under_another_schedule_is_a_failure() -> None:
    """The baseline is what the plain schedule came to."""
    plain = decisions(play(Case("healthy"), SCENARIOS["healthy"]))
    assert explore("healthy", SCENARIOS["healthy"], "s1", plain=True, baseline=plain).failures == []
    other = explore("healthy", SCENARIOS["healthy"], "s1", plain=True, baseline=("other",))
    assert [each.findings for each in other.failures] == [("I16 another schedule, another answer",)]


def test_a_failure_shrinks_to_what_it_needs() -> None:
    """The second fault and the schedule have nothing to do with it."""
    case = parse_case("liar --schedule s3 --cancel drain:9000 --raise sink:9001")
    with settled():
        _, findings = run_case(case, LIAR)
        small = shrunk(Failure(case, tuple(findings)), LIAR)
    assert str(small.case).startswith("liar --")
    assert len(small.case.faults) == 1
    assert "--schedule" not in str(small.case)


def test_tallies_add_up() -> None:
    """Over processes."""
    whole = Tally(runs=1, points=1, raised={"a"})
    whole.add(Tally(runs=2, points=3, inert=1, steps=5, raised={"b"}, cancelled={"c"}))
    assert (whole.runs, whole.points, whole.inert, whole.steps) == (3, 4, 1, 5)
    assert (whole.raised, whole.cancelled) == ({"a", "b"}, {"c"})
