"""An attempt's clocks, moment by moment: which deadline is armed, and what running out of it means."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gate.clocks import AttemptClocks
from gate.config import ClocksConfig
from gate.events import Complete, HowEnded
from gate.failure import Failure, FailureKind

NEVER = float("inf")
CONFIG = ClocksConfig(
    connect_seconds=5.0,
    headers_seconds=60.0,
    first_content_seconds=50.0,
    gap_seconds=30.0,
    json_seconds=180.0,
    finish_grace_seconds=2.0,
    last_candidate_factor=2.0,
)


def clocks(
    *,
    stream: bool = True,
    last: bool = False,
    total: float = NEVER,
    stream_seconds_max: float = 0.0,
) -> AttemptClocks:
    """The clocks of an attempt under `CONFIG`."""
    config = msgspec.structs.replace(CONFIG, stream_seconds_max=stream_seconds_max)
    return AttemptClocks(config, stream=stream, last=last, total=total)


def ended(kind: FailureKind) -> HowEnded:
    """A clock of this kind ran out."""
    return Failure(kind)


def test_a_streamed_attempt_passes_from_clock_to_clock() -> None:
    """Each begins where the former one was met."""
    watch = clocks()
    assert (watch.connect(100.0), watch.ran_out()) == (105.0, ended(FailureKind.CONNECT))
    assert (watch.connected(101.0), watch.ran_out()) == (161.0, ended(FailureKind.NO_HEADERS))
    assert (watch.head(110.0), watch.ran_out()) == (160.0, ended(FailureKind.NO_PROGRESS))
    assert (watch.progress(120.0, complete=False), watch.ran_out()) == (
        150.0,
        ended(FailureKind.STALL),
    )
    assert watch.progress(149.0, complete=False) == 179.0


def test_a_whole_answer_is_under_connect_and_json_alone() -> None:
    """Its head comes when it is finished, and its bytes are no progress that counts."""
    watch = clocks(stream=False)
    assert watch.connect(100.0) == 105.0
    assert watch.connected(101.0) == 281.0
    assert watch.head(110.0) == 281.0
    assert watch.progress(120.0, complete=False) == 281.0
    assert watch.ran_out() == ended(FailureKind.JSON_LATE)


def test_the_last_candidate_gets_more_patience_but_not_to_connect() -> None:
    """Twice the time for headers, first content, gap and a whole answer."""
    watch = clocks(last=True)
    assert watch.connect(100.0) == 105.0
    assert watch.connected(100.0) == 220.0
    assert watch.head(100.0) == 200.0
    assert watch.progress(100.0, complete=False) == 160.0
    assert watch.progress(100.0, complete=True) == 102.0
    assert clocks(last=True, stream=False).connected(100.0) == 460.0


def test_the_total_deadline_ends_what_has_made_no_progress() -> None:
    """Whichever clock comes first names the failure."""
    watch = clocks(total=130.0)
    assert (watch.connect(100.0), watch.ran_out()) == (105.0, ended(FailureKind.CONNECT))
    assert (watch.connected(101.0), watch.ran_out()) == (130.0, ended(FailureKind.TOTAL))
    assert (watch.head(102.0), watch.ran_out()) == (130.0, ended(FailureKind.TOTAL))


@pytest.mark.parametrize("stream", [True, False])
def test_the_total_deadline_lets_go_of_what_makes_progress(stream: bool) -> None:
    """Of an event stream for a caller who wants one object, too."""
    watch = clocks(stream=stream, total=130.0)
    watch.connect(100.0)
    watch.connected(101.0)
    assert watch.head(102.0) == 130.0
    assert watch.progress(110.0, complete=False) == (140.0 if stream else 281.0)
    kind = FailureKind.STALL if stream else FailureKind.JSON_LATE
    assert watch.ran_out() == ended(kind)


@pytest.mark.parametrize("stream", [True, False])
def test_a_route_may_bound_even_a_stream_that_makes_progress(stream: bool) -> None:
    """From the attempt's beginning; what is no stream has the JSON clock alone."""
    watch = clocks(stream=stream, stream_seconds_max=45.0)
    assert watch.connect(100.0) == 105.0
    watch.connected(101.0)
    watch.head(102.0)
    deadlines = [watch.progress(now, complete=False) for now in (110.0, 125.0, 144.0)]
    assert deadlines == ([140.0, 145.0, 145.0] if stream else [281.0] * 3)
    late = FailureKind.STREAM_LIMIT if stream else FailureKind.JSON_LATE
    assert watch.ran_out() == ended(late)


def test_a_complete_answer_has_its_grace_once() -> None:
    """Whatever runs out or breaks by then is no failure any more, and what still comes moves nothing."""
    watch = clocks(total=119.0, stream_seconds_max=20.0)
    watch.connect(100.0)
    watch.connected(101.0)
    assert watch.progress(119.5, complete=True) == 121.5
    assert watch.progress(121.0, complete=True) == 121.5
    assert watch.ran_out() == Complete()
    assert watch.fault(Failure(FailureKind.CUT)) == Complete()


def test_a_fault_before_completeness_stays_one() -> None:
    """The connection's failure is the attempt's."""
    watch = clocks()
    watch.connect(100.0)
    assert watch.fault(Failure(FailureKind.RESET)) == Failure(FailureKind.RESET)


def test_the_clocks_stand_still_while_the_runner_waits_for_its_channel() -> None:
    """Seven seconds of a slow caller are given back, in the grace as well."""
    watch = clocks()
    watch.connect(100.0)
    assert watch.progress(110.0, complete=False) == 140.0
    watch.pause(112.0)
    assert watch.resume(119.0) == 147.0
    watch.pause(120.0)
    assert watch.resume(121.0) == 148.0
    assert watch.progress(122.0, complete=True) == 124.0
    watch.pause(122.0)
    assert watch.resume(142.0) == 144.0


def test_a_pause_does_not_move_the_total_deadline() -> None:
    """Neither where it is armed, nor where a clock that stood still moves beyond it."""
    watch = clocks(total=130.0)
    watch.connect(100.0)
    watch.connected(101.0)
    watch.pause(102.0)
    assert (watch.resume(110.0), watch.ran_out()) == (130.0, ended(FailureKind.TOTAL))
    watch = clocks(total=155.0)
    watch.connect(100.0)
    assert watch.head(102.0) == 152.0
    watch.pause(102.0)
    assert (watch.resume(110.0), watch.ran_out()) == (155.0, ended(FailureKind.TOTAL))


def test_a_pause_does_not_move_the_bound_of_a_stream() -> None:
    """A caller who reads slowly does not make it longer."""
    watch = clocks(stream_seconds_max=45.0)
    watch.connect(100.0)
    watch.progress(110.0, complete=False)
    watch.pause(112.0)
    assert (watch.resume(120.0), watch.ran_out()) == (145.0, ended(FailureKind.STREAM_LIMIT))


@given(
    moments=st.lists(st.floats(0, 40), min_size=1, max_size=8),
    total=st.floats(100, 400) | st.just(NEVER),
    limit=st.just(0.0) | st.floats(1, 400),
    last=st.booleans(),
)
def test_no_deadline_is_later_than_the_clocks_allow(
    moments: list[float], total: float, limit: float, last: bool
) -> None:
    """Progress after progress: the gap from the last one, under the bound of the stream, and the total never."""
    watch = clocks(last=last, total=total, stream_seconds_max=limit)
    now = 100.0
    assert watch.connect(now) <= min(105.0, total)
    gap = 60.0 if last else 30.0
    for moment in moments:
        now += moment
        bound = 100.0 + limit if limit else NEVER
        assert watch.progress(now, complete=False) == min(now + gap, bound)
