"""A trace as a script: the hours of a recording, which a replay that verifies keeps to."""

from __future__ import annotations

from collections.abc import Sequence

from actors.world import Moment
from gate.trace import Attempt, Decision, Fact, Header, Read, Record, Request, Trace, Upstream
from gate.trace_codec import sealed, traces
from ops.replay_script import Script


def script(*records: Record) -> Script:
    """Of a trace with these records."""
    header = Header((1, 0), "ex-1", {}, 0, "full", {}, b"salt")
    whole: Sequence[Record] = sealed([header, Request(0, "", None), *records])
    trace: Trace = next(traces(whole))
    return Script(trace, keeps=True)


def read(t: int) -> Read:
    """One read of the only attempt."""
    return Read(1, t, 0, 1, b"x")


BEGUN = (Fact(100, "slot", "p0"), Attempt(1, 100, "p0", 1, b""), Upstream(1, 200, "head", 200))


def test_a_read_is_handed_on_when_the_judge_had_got_to_it() -> None:
    """A hold that was looked at later, knowing only of what had come before, was looked at first."""
    found = script(*BEGUN, read(300), read(400), Fact(900, "hold", 300), read(1_000))
    first, second, third = (each for each in found.attempts[0].steps if each.event == "read")
    assert first.handed < 350e-6
    assert 900e-6 < second.handed < 901e-6
    assert 1_000e-6 <= third.handed < 1_001e-6


def test_a_clock_runs_out_where_it_ran_out_or_not_at_all() -> None:
    """Whatever the replay's own clocks say."""
    found = script(*BEGUN, read(300), Upstream(1, 800, "left"), Fact(850, "clock", None))
    found.place()
    assert 800e-6 <= found.wake(Moment.CLOCK, 500e-6) < 801e-6
    patient = script(*BEGUN, read(300))
    patient.place()
    assert patient.wake(Moment.CLOCK, 500e-6) == float("inf")


def test_a_read_that_came_too_late_is_not_handed_on() -> None:
    """The clock had run out, and the read was thrown away."""
    found = script(*BEGUN, read(300), read(800), Fact(801, "clock", None), Upstream(1, 802, "left"))
    found.place()
    last = found.attempts[0].steps[-2]
    assert found.attempts[0].steps[1].handed < found.wake(Moment.CLOCK, 1.0) < last.handed


def test_an_attempt_is_over_when_its_end_had_been_judged() -> None:
    """And not when its connection was closed."""
    ended = Decision(700, "attempt_ended", attempt=1, code="stream_cut")
    found = script(*BEGUN, Upstream(1, 500, "fault", fault="CUT"), Upstream(1, 501, "closed"), ended)  # fmt: skip
    assert 700e-6 <= found.attempts[0].over < 701e-6


def test_moments_that_decided_are_told_and_timers_come_when_they_came() -> None:
    """The first as they were written, the others where the recording has one."""
    found = script(Fact(100, "ready", None), Fact(400, "ping", None), Fact(600, "decide", None))
    assert found.look(Moment.READY, 5.0) == 100e-6
    assert found.look(Moment.READY, 5.0) == 5.0
    assert 400e-6 <= found.wake(Moment.PING, 350e-6) < 401e-6
    assert found.wake(Moment.PING, 450e-6) == float("inf")
    assert found.look(Moment.DECIDE, 0.0) == 600e-6


def test_the_drains_end_is_what_was_said_at_each_decision() -> None:
    """A decision before the drain began knew of none."""
    found = script(Fact(100, "decide", None), Fact(500, "decide", None), Fact(501, "drain_ends", 9_000))  # fmt: skip
    found.look(Moment.DECIDE, 0.0)
    assert found.drain_ends is None
    found.look(Moment.DECIDE, 0.0)
    told = found.drain_ends
    assert told is not None
    assert told.value == 9_000
