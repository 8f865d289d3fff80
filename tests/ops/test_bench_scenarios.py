"""The scenarios, each with next to nothing to measure: that they run, that they show what they should, and that harm is seen."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from ops import bench_scenarios
from ops.bench_ends import StreamLost, Streams
from ops.bench_figures import Result
from ops.bench_process import ProcessFailed
from ops.bench_scenarios import QUICK, SCENARIOS, Size, run_scenario
from ops.bench_subjects import ASYNCIO, DIRECT, GATE, TRIO

TINY = Size(
    rounds=2,
    lockstep_streams=3,
    lockstep_steps=2,
    single_steps=3,
    slow_streams=4,
    slow_gap_seconds=0.005,
    slow_seconds=0.02,
    slow_rounds=1,
    burst_streams=2,
    burst_chunks=30,
    requests=3,
    streams=70,
    streams_steps=2,
    judging_kib=(1, 2),
    judging_rounds=1,
)


def samples_of(result: Result) -> dict[str, dict[str, int]]:
    """How many samples each figure of each row has."""
    return {
        row.subject: {each.name: len(each.samples) for each in row.figures} for row in result.rows
    }


@pytest.fixture
def copiers_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the gateway, which takes the longest to start."""
    monkeypatch.setattr(bench_scenarios, "EVERYONE", (DIRECT, ASYNCIO, TRIO))
    monkeypatch.setattr(bench_scenarios, "PROCESSES", (ASYNCIO, TRIO))


def assert_everyone_took_turns(result: Result, of: str, processes: Sequence[str]) -> None:
    """Every round gave each a sample; CPU is compared with the asyncio copier's, time with the direct connection's."""
    assert result.wrong == ()
    each = {f"CPU µs/{of}": 2, "x asyncio": 2, f"time µs/{of}": 2, "x direct": 2}
    assert samples_of(result) == {
        DIRECT: {**each, f"CPU µs/{of}": 0, "x asyncio": 0},
        **dict.fromkeys(processes, each),
    }
    figures = {row.subject: {each.name: each for each in row.figures} for row in result.rows}
    assert figures[ASYNCIO]["x asyncio"].median == 1
    assert figures[DIRECT]["x direct"].median == 1
    cpu = figures[processes[-1]][f"CPU µs/{of}"].median
    assert cpu is not None


@pytest.mark.e2e
@pytest.mark.slow
@pytest.mark.parametrize(("name", "of"), [("lockstep", "chunk"), ("requests", "request")])
def test_everyone_takes_turns(name: str, of: str) -> None:
    """With a stream and without."""
    assert_everyone_took_turns(run_scenario(name, TINY), of, (ASYNCIO, TRIO, GATE))


@pytest.mark.e2e
@pytest.mark.slow
@pytest.mark.usefixtures("copiers_only")
@pytest.mark.parametrize("name", ["single", "coalesced"])
def test_everyone_takes_turns_on_one_stream_and_as_fast_as_it_goes(name: str) -> None:
    """As in lock-step."""
    assert_everyone_took_turns(run_scenario(name, TINY), "chunk", (ASYNCIO, TRIO))


@pytest.mark.e2e
@pytest.mark.slow
@pytest.mark.usefixtures("copiers_only")
def test_slow_has_only_processes_and_no_time() -> None:
    """Its time is the pace."""
    result = run_scenario("slow", TINY)
    assert result.wrong == ()
    both = {"CPU µs/chunk": 1, "x asyncio": 1}
    assert samples_of(result) == {ASYNCIO: both, TRIO: both}


@pytest.mark.e2e
@pytest.mark.slow
def test_filters_are_compared_on_one_gateway() -> None:
    """Coalesced with twice the rounds, since what is looked for is small."""
    result = run_scenario("filters", TINY)
    assert result.wrong == ()
    assert samples_of(result) == {
        "coalesced, filters = []": {"CPU µs/chunk": 4},
        "coalesced, default filters": {
            "CPU µs/chunk": 4,
            "added µs/chunk": 4,
            "x filters = []": 4,
        },
        "slow, filters = []": {"CPU µs/chunk": 1},
        "slow, default filters": {"CPU µs/chunk": 1, "added µs/chunk": 1, "x filters = []": 1},
    }


@pytest.mark.e2e
@pytest.mark.slow
def test_a_recorder_is_compared_with_none() -> None:
    """Two processes of the gateway, by turns; the first of them keeps nothing."""
    result = run_scenario("recording", TINY)
    assert result.wrong == ()
    without = {"CPU µs/chunk": 2, "time µs/chunk": 2}
    more = without | {"added µs/chunk": 2, "x CPU": 2, "x time": 2}
    assert samples_of(result) == {
        f"{label}, {what}": figures
        for label in ("lockstep", "single")
        for what, figures in (("not recording", without), ("recording", more))
    }


@pytest.mark.e2e
@pytest.mark.slow
def test_many_streams_are_open_at_once_and_each_is_right() -> None:
    """More than are opened in one go."""
    result = run_scenario("streams", TINY)
    assert result.wrong == ()
    assert [row.subject for row in result.rows] == [ASYNCIO, TRIO, GATE]
    assert [row.figures[0].median for row in result.rows] == [70, 70, 70]


@pytest.mark.e2e
@pytest.mark.slow
def test_memory_is_what_open_streams_add() -> None:
    """More with them than without, in a process of the gateway's at least."""
    result = run_scenario("memory", TINY)
    assert result.wrong == ()
    found = {each.name: each.median for each in result.rows[-1].figures}
    before, after, each = found["MiB before"], found["MiB with all"], found["KiB/stream"]
    assert before is not None
    assert after is not None
    assert each is not None
    assert after > before > 1
    assert each == pytest.approx((after - before) * 1024 / 70, abs=0.01)


def test_judging_needs_no_process() -> None:
    """The sizes are the run's."""
    result = run_scenario("judging", TINY)
    assert result.wrong == ()
    assert len(result.rows) == 6


@pytest.mark.e2e
@pytest.mark.slow
@pytest.mark.usefixtures("copiers_only")
def test_a_stream_that_came_wrong_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """It counts where many are checked."""

    def one_is_wrong(self: Streams, *, verbatim: bool) -> list[str]:
        assert verbatim
        return [f"{self._streams[0].name}: not the provider's bytes"]

    monkeypatch.setattr(Streams, "problems", one_is_wrong)
    result = run_scenario("streams", TINY)
    assert result.wrong == tuple(
        f"stream 0 of {name}: not the provider's bytes" for name in (ASYNCIO, TRIO)
    )
    assert [row.figures[0].median for row in result.rows] == [69, 69]


@pytest.mark.parametrize("error", [StreamLost("nothing has come"), ProcessFailed("it is gone")])
def test_what_breaks_off_is_wrong_and_has_no_figures(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half a scenario's figures would be taken for all of it."""

    def breaks(_: Size) -> Result:
        raise error

    monkeypatch.setattr(bench_scenarios, "SCENARIOS", {"lockstep": breaks})
    result = run_scenario("lockstep", TINY)
    assert (result.rows, result.wrong) == ((), (str(error),))


def test_a_quick_run_is_smaller_in_everything() -> None:
    """And leaves no scenario out."""

    def extent(size: Size) -> Sequence[float]:
        return (
            size.rounds * size.lockstep_steps,
            size.rounds * size.single_steps,
            size.slow_rounds * size.slow_seconds,
            size.rounds * size.burst_chunks,
            size.requests,
            size.streams,
            sum(size.judging_kib) * size.judging_rounds,
        )

    assert all(quick < whole for quick, whole in zip(extent(QUICK), extent(Size()), strict=True))
    assert set(SCENARIOS) == {
        "lockstep", "single", "slow", "coalesced", "filters", "recording", "requests", "streams", "memory", "judging"
    }  # fmt: skip
