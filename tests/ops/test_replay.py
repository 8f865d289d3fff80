"""Replay: the same bytes and decisions again, or what another policy would have done, as far as the recording tells."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio
import trio.testing

from actors import recording
from actors.context import Gateway
from actors.exchange import run_exchange
from actors.tape import Tape
from gate.config_check import decode_config
from gate.trace import (
    Answered,
    Attempt,
    CallerEvent,
    Decision,
    Fact,
    Read,
    ResponseHead,
    Term,
    Trace,
    Upstream,
)
from gate.trace_codec import sealed, traces
from ops.replay_command import run_replay
from ops.replay_html import TIMELINES_MAX, page
from ops.replay_many import ONE_PROCESS_MAX, results_of
from ops.replay_result import Class, Result, figures, verify, what_if
from ops.replay_script import SLACK_SECONDS, Script
from ops.replay_show import as_json, failed, totals
from ops.replay_timeline import POINTS_MAX, timeline
from ops.trace import write_traces
from tests.doubles import (
    DONE,
    ROLE,
    STOP,
    Answer,
    RecordingCaller,
    ScriptedProvider,
    SlowCaller,
    cut,
    door,
    healthy,
    refuses,
    says,
    stalls,
    text,
)
from tests.traces.scenario import Service
from tests.tracing import SALT, Recording, gateway_of, tables, take, trace_of

LIVE: dict[str, Any] = {}
BUFFERED = {"hold": {"mode": "buffered"}}
HOOK = {"hook": {"kind": "webhook", "url": "http://127.0.0.1:9/"}}


def recorded(*scripts: Sequence[Answer], caller: RecordingCaller | None = None, services: Any = None, **raw: Any) -> Trace:  # fmt: skip
    providers = [ScriptedProvider(*script) for script in scripts]
    return take(Recording(tables(len(scripts), **raw), providers, caller or RecordingCaller(), services))  # fmt: skip


def changed(trace: Trace, kind: type[Any], index: int = 0, /, **values: Any) -> Trace:
    """The trace with one record of this kind said otherwise."""
    places = [place for place, each in enumerate(trace.records) if isinstance(each, kind)]
    records = list(trace.records)
    records[places[index]] = msgspec.structs.replace(records[places[index]], **values)
    return msgspec.structs.replace(trace, records=tuple(records))


def without(trace: Trace, kind: type[Any]) -> Trace:
    kept = tuple(each for each in trace.records if not isinstance(each, kind))
    return msgspec.structs.replace(trace, records=kept)


def asked(trace: Trace, **raw: Any) -> Result:
    """What another configuration comes to."""
    count = len(trace.header.config["providers"])
    return what_if("a.trace", trace, decode_config(tables(count, **raw)), show=True)


WORDS = ("The keeper", " opens the", " lower gate", " at first light.")
PLAIN = recorded([healthy(*WORDS, every=0.2)])
RETRIED = recorded([cut(*WORDS[:2])], [healthy(*WORDS, every=0.2)], route=BUFFERED)


# --- verify --------------------------------------------------------------------------------------


def test_what_was_recorded_happens_again() -> None:
    """Down to the figures."""
    for trace in (PLAIN, RETRIED):
        result = verify("a.trace", trace, show=True)
        assert (result.kind, result.lines, result.after) == (Class.SAME, (), result.before)
        assert result.timelines[0] == result.timelines[1]


def disturbed(
    script: Sequence[Answer],
    disturb: Callable[[Gateway], Awaitable[None]],
    *,
    caller: RecordingCaller | None = None,
) -> Trace:
    """A recording of an exchange beside which something happens to its process."""
    providers = [ScriptedProvider(*script, for_ever=True) for _ in range(2)]

    async def run() -> Trace:
        gate = gateway_of(decode_config(tables(2)), providers)
        tape = Tape(SALT)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(disturb, gate)
            wrapped = recording.recorded(door(), caller or RecordingCaller(), gate, tape)
            recording.ended(await run_exchange(door(), *wrapped), tape)
        return trace_of(tape, tables(2))

    return trio.run(run, clock=trio.testing.MockClock(autojump_threshold=0))


def test_an_exchange_that_waited_for_its_place_waits_again() -> None:
    """What others did is in the facts: here they left the second provider after seven seconds."""

    async def leave(gate: Gateway) -> None:
        gate.dispatch.providers.taken.update({"p0": 64, "p1": 64})
        await trio.sleep(7)
        gate.dispatch.providers.give("p1")

    trace = disturbed([healthy("one")], leave)
    slots = [each for each in trace.records if isinstance(each, Fact) and each.what == "slot"]
    assert [(each.value, each.us) for each in slots] == [("p1", 7_000_000)]
    assert verify("", trace).kind is Class.SAME


def test_an_exchange_that_got_no_place_gets_none_again() -> None:
    """Neither for itself nor at a provider."""

    async def full(gate: Gateway) -> None:
        gate.dispatch.providers.taken.update({"p0": 64, "p1": 64})
        await trio.lowlevel.checkpoint()

    async def closed(gate: Gateway) -> None:
        gate.dispatch.exchanges.taken["exchange"] = gate.limits.exchanges_max
        gate.dispatch.drain(99.0)
        await trio.lowlevel.checkpoint()

    for disturb, code in ((full, "queue_timeout"), (closed, "draining")):
        trace = disturbed([healthy("one")], disturb)
        result = verify("", trace)
        assert (result.kind, result.before.code) == (Class.SAME, code), result.lines


def test_an_exchange_that_ended_while_it_waited_ends_there_again() -> None:
    """Its caller left; where it stays, nobody knows whether there would have been a place."""
    leaving = RecordingCaller()

    async def leave(gate: Gateway) -> None:
        gate.dispatch.providers.taken.update({"p0": 64, "p1": 64})
        await trio.sleep(2)
        leaving.leave()

    trace = disturbed([healthy("one")], leave, caller=leaving)
    assert verify("", trace).kind is Class.SAME
    patient = without(trace, CallerEvent)
    assert "waits for a place longer" in verify("", patient).lines[0]


def test_a_hold_is_looked_at_when_it_was() -> None:
    """A loop that was busy came late; what if asks a loop that is not."""
    route = {"hold": {"mode": "window", "tail_ms": 100}}
    trace = recorded([healthy(*WORDS, every=0.2)], route=route)
    looks = [each for each in trace.records if isinstance(each, Fact) and each.what == "hold"]
    late = [
        msgspec.structs.replace(each, t=each.t + 50_000) if each in looks else each
        for each in trace.records
    ]
    slow = verify("", msgspec.structs.replace(trace, records=tuple(late)))
    assert slow.kind is Class.SAME
    assert slow.after is not None
    assert slow.after.first_byte == pytest.approx(slow.before.first_byte + 0.05)
    assert asked(trace, route=route).kind is Class.SAME


def test_a_drain_ends_the_exchange_where_it_ended_it() -> None:
    """Its end is an input, and so is when it will be."""

    async def drain(gate: Gateway) -> None:
        gate.dispatch.drain(5.0)
        await trio.sleep(5)
        gate.open.shut_down()

    for script in ([stalls(ROLE, text("Hi"))], [refuses(429, retry_after="7")]):
        trace = disturbed(script, drain)
        result = verify("", trace)
        assert result.kind is Class.SAME, result.lines


def test_an_answer_without_a_date_gets_the_recorded_one() -> None:
    """By the wall of that day."""
    bare = [each.replace(b'"created":7', b'"created":0') for each in (text("Hi"), STOP)]
    trace = recorded([says(*bare, DONE)])
    assert any(each.what == "wall" for each in trace.records if isinstance(each, Fact))
    assert verify("", trace).kind is Class.SAME
    undated = tuple(each for each in trace.records if getattr(each, "what", "") != "wall")
    assert verify("", msgspec.structs.replace(trace, records=undated)).kind is Class.SAME


def test_a_bug_that_the_replay_meets_is_told() -> None:
    """Here the recording names a fault that there is none of."""
    cut_off = recorded([cut("a")], route={"recovery": {"attempts_max": 1}})
    odd = changed(cut_off, Upstream, -2, fault="NONE")
    assert "the replay crashed: ExceptionGroup" in verify("", odd).lines


CHANGED: list[tuple[Trace, str]] = [
    (changed(PLAIN, Read, 1, b=text("Another")), "output: bytes 0.."),
    (changed(PLAIN, Term, code="x"), "terminal: code was 'x', is ''"),
    (without(PLAIN, Term), "terminal: recorded None"),
    (changed(PLAIN, Decision, code="x"), "decision only in the recording: what=attempt_started attempt=1 code=x"),
    (changed(RETRIED, Attempt, 1, provider="p9"), "attempt 2: recorded"),
    (changed(RETRIED, Attempt, 1, sha=b"?"), "it went its own way at attempt 2, whose request was not made"),
]  # fmt: skip


@pytest.mark.parametrize(("trace", "said"), CHANGED)
def test_a_difference_is_told_with_its_place(trace: Trace, said: str) -> None:
    """The first output that differs, a decision, an attempt, the terminal."""
    result = verify("a.trace", trace)
    assert result.kind is Class.DIFFERENT
    assert any(line.startswith(said) for line in result.lines), result.lines


def test_a_decision_of_the_replay_alone_is_told_too() -> None:
    """Here the recording has lost one, and a head."""
    assert verify("", without(PLAIN, Decision)).lines[0].startswith("decision only in the replay")
    assert verify("", without(PLAIN, ResponseHead)).lines == ("heads: recorded 0, replayed 1",)


def test_a_trace_with_less_than_its_content_is_only_counted() -> None:
    """Under verify and under what if."""
    header = msgspec.structs.replace(PLAIN.header, content="hash")
    trace = msgspec.structs.replace(PLAIN, header=header)
    assert verify("", trace).kind is Class.COUNTED
    assert asked(trace).kind is Class.COUNTED


# --- when things happen --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("now", "returns"), [(0.9, 1.0), (1.0 - SLACK_SECONDS, 1.0), (0.1, 0.4), (2.0, 1.0)]
)
def test_a_replay_that_is_far_ahead_keeps_to_how_long_things_took(now: float, returns: float) -> None:  # fmt: skip
    """A read that had begun at 0.7 and taken 0.3 seconds; one that is asked for late returns at once."""
    assert Script(PLAIN).due(1.0, 0.3, now) == pytest.approx(returns)
    assert Script(PLAIN, keeps=True).due(1.0, 0.3, now) == pytest.approx(1.0)


def test_a_caller_that_was_slow_is_as_slow_again() -> None:
    """Else the provider's clocks would run where they had stood still."""
    slow = recorded(
        [healthy(*WORDS * 5)],
        caller=SlowCaller(seconds=4.0),
        route={"clocks": {"gap_seconds": 1.0}, "hold": {"ping_seconds": 60.0}},
    )
    blocked = [each for each in slow.records if isinstance(each, CallerEvent)]
    assert {each.us for each in blocked} == {4_000_000}
    assert verify("", slow).kind is Class.SAME
    free = verify("", without(slow, CallerEvent))
    assert free.after is not None
    assert free.after.mean_byte < free.before.mean_byte


# --- what if -------------------------------------------------------------------------------------


def test_the_same_policy_would_have_done_the_same() -> None:
    """Whatever is written differently in the file."""
    assert asked(PLAIN, route={"clocks": {"gap_seconds": 77}}).kind is Class.SAME


def test_holding_back_longer_or_less_is_a_matter_of_time() -> None:
    """The same bytes, later; and the other way round."""
    later = asked(PLAIN, route=BUFFERED)
    assert later.kind is Class.LATER
    assert later.after is not None
    assert later.after.first_byte > later.before.first_byte
    held = recorded([healthy(*WORDS, every=0.2)], route=BUFFERED)
    assert asked(held).kind is Class.EARLIER


def test_what_would_be_stopped_is_told_with_its_reason() -> None:
    """A filter that the recording did not have."""
    words = {"words": {"kind": "patterns", "patterns": ["lower"], "action": "error"}}
    stopped = asked(PLAIN, route={"filters": ["words"]}, filters=words)
    assert stopped.kind is Class.STOPPED
    assert "verdicts: none -> pattern_match" in stopped.lines
    at_once = says(b"".join(read.data for read in healthy(*WORDS).reads))
    denied = recorded([at_once], route={"filters": ["words"]}, filters=words)
    assert asked(denied).kind is Class.PASSED


def test_other_bytes_are_not_the_same_answer() -> None:
    """An error of another code, for one."""
    failed_ = recorded([refuses(503)], route={"recovery": {"attempts_max": 1}})
    fewer = asked(failed_, route={"recovery": {"attempts_max": 1}, "filters": []})
    assert fewer.kind is Class.SAME
    thinking = recorded([healthy("<think>", "so", "</think>", "Yes.")])
    assert asked(thinking, route={"think_tags": True}).kind is Class.BYTES


def test_a_caller_that_left_would_have_left_then_all_the_same() -> None:
    """More or less of the answer had reached it."""

    class Leaves(RecordingCaller):
        async def write(self, data: bytes) -> None:
            await super().write(data)
            if len(self.writes) == 2:
                self.leave()

    left = recorded([healthy(*WORDS, every=0.2)], caller=Leaves())
    assert verify("", left).kind is Class.SAME
    assert asked(left, route=BUFFERED).kind is Class.LATER
    assert asked(left).kind is Class.SAME


def test_a_recording_tells_nothing_beyond_its_horizon() -> None:
    """An attempt that was not made; an answer that was left before its end; frames that a filter was not asked about."""
    assert asked(PLAIN, route={"filters": ["w"]}, filters={"w": {"kind": "patterns", "patterns": ["lower"], "action": "exact"}, }).kind is not Class.SAME  # fmt: skip
    stalled = recorded([stalls(ROLE, text("Hi"))], [healthy(*WORDS)], route={**BUFFERED, "clocks": {"gap_seconds": 1.0}})  # fmt: skip
    patient = asked(stalled, route={**BUFFERED, "clocks": {"gap_seconds": 20.0}})
    assert (patient.kind, patient.lines) == (
        Class.DIVERGED,
        ("diverged at attempt 1 of the recording, which was left before its end",),
    )
    hooked = asked(PLAIN, route={"filters": ["hook"]}, filters=HOOK)
    assert hooked.lines == ("diverged at attempt 1, of which hook was not asked this",)


def test_an_answer_of_a_filter_is_waited_for_as_long_as_it_was() -> None:
    """And what was given up then can't be known."""
    slow = recorded(
        [healthy(*WORDS)],
        services={"hook": Service(9.0)},
        route={"filters": ["hook"]},
        filters={"hook": {**HOOK["hook"], "failure": "open"}},
    )
    assert verify("", slow).kind is Class.SAME
    patient = {"hook": {**HOOK["hook"], "failure": "open", "deadline_ms": 60_000}}
    assert asked(slow, route={"filters": ["hook"]}, filters=patient).lines == (
        "diverged at attempt 1, where hook is waited for longer",
    )
    assert next(each for each in slow.records if isinstance(each, Answered)).fault is None


# --- many of them, and what is shown ---------------------------------------------------------------


def results() -> list[Result]:
    broken = changed(PLAIN, Term, code="x")
    found = [PLAIN, RETRIED, broken]
    return list(results_of([("<a>.trace", each) for each in found], show=True, cores=1))


def test_many_traces_are_replayed_in_processes_in_their_order() -> None:
    """As with one process, the results are the same."""
    jobs = [
        (f"{number}", PLAIN if number % 2 else RETRIED) for number in range(ONE_PROCESS_MAX + 3)
    ]
    apart = list(results_of(jobs, cores=2))
    assert apart == list(results_of(jobs, cores=1))
    assert [each.source for each in apart] == [name for name, _ in jobs]


def test_a_configuration_of_another_version_is_a_difference() -> None:
    """It is told, and the others go on."""
    header = msgspec.structs.replace(PLAIN.header, config={"gone": 1})
    old = msgspec.structs.replace(PLAIN, header=header)
    first, second = results_of([("", old), ("", PLAIN)])
    assert (first.kind, second.kind) == (Class.DIFFERENT, Class.SAME)
    assert "none of this version" in first.lines[0]


def test_totals_are_over_all_traces() -> None:
    """Attempts, recoveries, times, and what was read in vain."""
    sums = totals(results())
    assert sums.classes == {"same": 2, "different": 1}
    assert (sums.before.attempts, sums.before.recovered, sums.before.successes) == (4, 1, 3)
    assert sums.before.first_byte_median == 0.4
    assert failed(results())
    empty = totals([])
    assert (empty.traces, empty.diverged_share, empty.after) == (0, 0.0, None)


def test_json_has_the_facts_of_the_table() -> None:
    """Every trace, without its drawing."""
    value = json.loads(as_json(results(), mode="verify", seconds=1.0))
    assert value["totals"]["classes"] == {"same": 2, "different": 1}
    assert [each["kind"] for each in value["traces"]] == ["same", "same", "different"]
    assert all(each["timelines"] == [] for each in value["traces"])


def test_the_report_stands_alone_and_shows_what_differs_first() -> None:
    """No script, nothing loaded, and what a trace says is escaped."""
    text_ = page(results(), mode="verify", seconds=1.0)
    assert text_.index("different</span>") < text_.index("same</span>")
    assert "&lt;a&gt;.trace" in text_
    assert "<a>" not in text_
    for word in ("<script", "http://", "https://", "src=", "url("):
        assert word not in text_
    assert text_.count("<svg") == 4
    many = page(results() * 100, mode="what if", seconds=1.0)
    assert f"{300 - TIMELINES_MAX} more traces are not drawn" in many


def test_a_drawing_knows_what_came_when() -> None:
    """Two attempts as lanes, the plan between them, all of the bytes."""
    drawn = timeline(RETRIED.records)
    assert [(lane.provider, lane.code) for lane in drawn.lanes] == [("p0", "stream_cut"), ("p1", "complete")]  # fmt: skip
    assert [mark.kind for mark in drawn.marks] == ["plan"]
    assert drawn.released[-1][1] == figures(RETRIED.records).size
    assert drawn.terminal == "success (200)"
    reads = [Read(1, at, 1, 1, b"x") for at in range(POINTS_MAX * 3)]
    thin = timeline(reads)
    assert len(thin.arrived) <= POINTS_MAX + 1
    assert thin.arrived[-1] == ((POINTS_MAX * 3 - 1) / 1e6, POINTS_MAX * 3)
    assert timeline([]).terminal == "none"


def test_a_drawing_shows_what_was_thrown_away_with_its_attempt() -> None:
    """What had been read and held of an attempt that failed is gone; the next one begins at what was released."""
    trace = recorded([cut("one", "two"), healthy("three")], route={"hold": {"mode": "buffered"}})
    levels = [size for _, size in timeline(trace.records).arrived]
    failed = levels.index(0, 1)
    assert max(levels[:failed]) > 0
    assert levels[failed:] == sorted(levels[failed:])
    assert levels[-1] > 0


def test_the_report_says_of_each_trace_how_it_went() -> None:
    """So that a long list can be read without opening anything; recoveries and verdicts come before plain answers."""
    text_ = page([verify("a", PLAIN), verify("b", RETRIED, show=True)], mode="verify", seconds=1.0)
    assert "success (200) \u00b7 2 attempts \u00b7" in text_
    assert text_.index("2 attempts \u00b7") < text_.index("1 attempt \u00b7")
    assert "<tr><td>success</td>" in text_


def test_figures_of_nothing_are_zeroes() -> None:
    """A caller that left before anything happened."""
    assert (figures([]).first_byte, figures([]).kind) == (-1.0, "")


# --- the command ---------------------------------------------------------------------------------


def saved(folder: Path, *found: Trace, name: str = "a.trace") -> Path:
    path = folder / name
    whole: list[Trace] = []
    for each in found:
        whole += traces(sealed([each.header, *each.records]))
    write_traces(path, whole)
    return path


def test_the_command_says_by_its_code_whether_anything_differs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """0: the same; 1: not; 2: there is something that is no trace."""
    good = saved(tmp_path, PLAIN, RETRIED)
    assert run_replay([good]) == 0
    assert "verify: 2 traces" in capsys.readouterr().out
    bad = saved(tmp_path, changed(PLAIN, Term, code="x"), name="b.trace")
    report = tmp_path / "out.html"
    assert run_replay([bad], report=report) == 1
    assert "terminal: code was 'x', is ''" in capsys.readouterr().out
    assert report.read_text().startswith("<!doctype html>")
    (tmp_path / "c.trace").write_bytes(b"\xff\xff")
    assert run_replay([good, tmp_path / "c.trace", tmp_path / "none.trace"]) == 2
    said = capsys.readouterr()
    assert "no whole record" in said.err
    assert "none.trace" in said.err
    assert run_replay([tmp_path / "none.trace"]) == 2


def test_the_command_answers_what_if_in_json_and_writes_what_it_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Another encoding for people."""
    good = saved(tmp_path, PLAIN)
    lines = tmp_path / "a.jsonl"
    assert run_replay([good], tables=tables(1, route=BUFFERED), as_text=False, save=lines) == 0
    value = json.loads(capsys.readouterr().out)
    assert value["totals"]["classes"] == {"same bytes, later": 1}
    assert lines.read_bytes().startswith(b'{"k":"hdr"')
    assert run_replay([lines]) == 0


def test_a_long_list_of_differences_is_cut_short(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:  # fmt: skip
    """The terminal is for the first ones; JSON has all."""
    broken = without(changed(PLAIN, Term, code="x", kind="error", status=7, attempts=9), Decision)
    assert run_replay([saved(tmp_path, *[broken] * 22)]) == 1
    said = capsys.readouterr().out
    assert "... and 2 more; --json has all of them" in said
    assert "... and 1 more\n" in said
