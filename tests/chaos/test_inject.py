"""The instrument strikes where it is told to, once, and says where that was."""

from __future__ import annotations

from ops.chaos.cases import parse_case
from ops.chaos.run import Run, play
from ops.chaos.scenarios import SCENARIOS


def played(line: str, *, record: bool = False) -> Run:
    """One run."""
    case = parse_case(line)
    return play(case, SCENARIOS[case.scenario], record=record)


def test_a_strike_says_where_its_task_stood() -> None:
    """The whole chain of lines that wait for each other, outermost first."""
    run = played("healthy --raise '*:41'")
    (strike,) = run.injector.strikes
    assert strike.hit
    assert strike.actor == "runner"
    assert len(strike.sites) > 3
    assert all(site.startswith("actors/attempt.py:") for site in strike.sites)


def test_a_fault_of_another_actor_hits_nothing() -> None:
    """The point is there, and somebody else stands at it."""
    (strike,) = played("healthy --raise sink:41").injector.strikes
    assert not strike.hit


def test_nothing_is_raised_in_a_task_that_is_being_woken() -> None:
    """It may stand at the end of a nursery, which would not survive that."""
    points = played("cut", record=True).injector.points
    woken = next(each for each in points if each.fresh and not each.reachable and each.at > 60)
    run = played(f"cut --raise '*:{woken.at}'")
    (strike,) = run.injector.strikes
    assert (strike.hit, strike.error, run.missed) == (False, None, True)
    assert run.escaped is None


def test_points_of_rivals_count_and_their_tasks_are_left_alone() -> None:
    """The exchange that is struck is one of them."""
    points = played("queued", record=True).injector.points
    assert {point.subject for point in points} == {True, False}
    other = next(point for point in points if not point.subject and point.reachable)
    (strike,) = played(f"queued --raise '*:{other.at}'").injector.strikes
    assert not strike.hit


def test_a_second_fault_strikes_in_the_run_of_the_first() -> None:
    """Both are noted, in order."""
    run = played("slow-caller --cancel drain:60 --raise '*:62'")
    assert [strike.fault.at for strike in run.injector.strikes] == [60, 62]
