"""Many runs on one loop are what each of them is by itself."""

from __future__ import annotations

import pytest
import trio

from ops.chaos.cases import parse_case
from ops.chaos.explore import digest, planned
from ops.chaos.loop import VirtualClock, afresh, at_rest, on_loop
from ops.chaos.run import play, play_here, settled
from ops.chaos.scenarios import SCENARIOS

LINES = (
    "queued --schedule s2 --cancel req:60",
    "judged --schedule s2 --raise filter:100",
    "healthy --schedule s2 --raise port:7",
    "queued --schedule s2 --cancel req:60",
)


def test_a_run_behind_others_is_the_run_that_it_is_alone() -> None:
    """Step by step, whatever was played before it on the same loop."""

    async def together() -> list[str]:
        found = []
        for line in LINES:
            case = parse_case(line)
            run = await play_here(case, SCENARIOS[case.scenario], record=True)
            found.append(digest(run))
        return found

    with settled():
        alone = [
            digest(play(case, SCENARIOS[case.scenario], record=True))
            for case in map(parse_case, LINES)
        ]
        assert on_loop(together) == alone
    assert len(set(alone)) == 3


def test_the_clock_leaps_only_where_nobody_can_run() -> None:
    """And to the very deadline."""

    async def job() -> list[float]:
        seen = []
        await trio.lowlevel.checkpoint()
        seen.append(trio.current_time())
        await trio.sleep(0.1)
        await trio.sleep_until(3600.5)
        seen.append(trio.current_time())
        await afresh()
        seen.append(trio.current_time())
        return seen

    assert on_loop(job) == [0.0, 3600.5, 0.0]


def test_at_rest_nobody_can_run_and_no_time_has_gone_by() -> None:
    """A sleeper still sleeps."""

    async def job() -> tuple[list[str], float]:
        seen: list[str] = []

        async def other() -> None:
            for _ in range(20):
                await trio.lowlevel.checkpoint()
            seen.append("ready")
            await trio.sleep(1)
            seen.append("late")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(other)
            await at_rest()
            early, now = [*seen], trio.current_time()
        return early, now

    assert on_loop(job) == (["ready"], 0.0)


def test_a_run_asks_for_the_virtual_clock() -> None:
    """On any other its hour of watchdog would be an hour."""
    with pytest.raises(AssertionError, match="virtual clock"):
        trio.run(afresh)
    assert VirtualClock().current_time() == 0


def test_a_caller_that_leaves_is_planned_where_it_matters() -> None:
    """Between two places at which nothing of it is used, its leaving is the same run: nothing is lost by striking one of them."""
    name = "healthy"

    def runs(points: list[int]) -> set[str]:
        cases = [parse_case(f"{name} --cancel caller:{at}") for at in points]
        return {digest(play(case, SCENARIOS[name], record=True)) for case in cases}

    points = play(parse_case(name), SCENARIOS[name], record=True).injector.points
    everywhere = [point.at for point in points if point.fresh]
    chosen = [fault.at for fault in planned(points, ports=0) if fault.who == "caller"]
    assert len(chosen) < len(everywhere) * 0.6
    with settled():
        assert runs(chosen) == runs(everywhere)
