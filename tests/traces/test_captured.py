"""Recordings that were made once replay as they were: every byte and every decision, over any schedule."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Sequence

import msgspec
import pytest

from gate.trace import Decision, Read, Term, Trace
from ops.replay import differences, replay
from ops.trace import read_traces
from tests.stepping import seed_scheduler
from tests.traces.scenario import HOLDS
from tests.traces.scenarios import CAPTURED, MODEL_SERVER, decided_anew, scenarios, take

SOME = 17  # one of so many
TRACES_MIN = 200
DISTINCT_MIN = 120
MODEL_SERVER_MIN = 30
DIRECTIVES = {"exact", "schema", "continuation"}
VERDICTS = {  # of every built-in filter that condemns
    "empty_answer",
    "repetition_loop",
    "text_damaged",
    "pattern_match",
    "tool_arguments_schema",
    "tool_unknown",
    "tool_arguments_json",
    "json_invalid",
    "schema_mismatch",
    "output_fenced",
    "output_think_tags",
    "output_beside_call",
    "filter_unavailable",
    "denied_by_service",
}


@functools.cache
def captured() -> Sequence[Trace]:
    return tuple(read_traces(CAPTURED))


def combination(trace: Trace) -> tuple[str, str, tuple[str, ...], tuple[str, ...]]:
    """Fault, framing, directives and verdicts of one recording."""
    decisions = [each for each in trace.records if isinstance(each, Decision)]
    (term,) = (each for each in trace.records if isinstance(each, Term))
    fault = trace.header.trace_id.split(".")[0]
    plans = tuple(each.code for each in decisions if each.what == "plan")
    verdicts = tuple(each.code for each in decisions if each.what in {"violation", "give_up"})
    return fault, term.framing, plans, verdicts


@pytest.mark.parametrize("seed", [1, 2])
def test_every_recording_replays_to_the_same_bytes_and_decisions(seed: int) -> None:
    """Half of them under either schedule: each sees one of the two. The test below has some of them under others."""
    seed_scheduler(seed)
    wrong = {}
    for trace in captured()[seed - 1 :: 2]:
        found = differences(trace, replay(trace))
        if found:
            wrong[trace.header.trace_id] = found[:3]
    assert wrong == {}


@pytest.mark.parametrize("seed", [3, 4, 5])
def test_no_schedule_makes_a_difference(seed: int) -> None:
    """Some of them, all over the suite, under three more: what is recorded follows from the inputs."""
    seed_scheduler(seed)
    some = captured()[::SOME]
    wrong = {trace.header.trace_id: differences(trace, replay(trace))[:3] for trace in some}
    assert not any(wrong.values()), wrong
    forms = {trace.header.trace_id.split(".")[1] for trace in some}
    assert forms >= {*HOLDS, "tunnel", *(f"responses-{hold}" for hold in HOLDS), "responses-tunnel"}


def test_the_suite_is_as_wide_as_it_says() -> None:
    """Copies of one case would make it long, not wide."""
    assert len(captured()) >= TRACES_MIN
    assert len({combination(each) for each in captured()}) >= DISTINCT_MIN
    verdicts = {each for trace in captured() for each in combination(trace)[3]}
    assert verdicts >= VERDICTS, VERDICTS - verdicts
    plans = {plan for each in captured() for plan in combination(each)[2]}
    assert plans >= DIRECTIVES
    forms = Counter(each.header.trace_id.split(".")[1] for each in captured())
    assert min(forms[hold] for hold in HOLDS) >= 70
    assert min(forms[f"responses-{hold}"] for hold in HOLDS) >= 60
    framings = {combination(each)[1] for each in captured()}
    assert framings >= {"chat_sse", "chat_json", "responses_sse", "responses_json", "tunnel_sse", "tunnel_body"}  # fmt: skip


def test_the_suite_is_recorded_from_these_scenarios() -> None:
    """A scenario that nobody has recorded guards nothing."""
    names = [each.name.replace("/", ".") for each in scenarios()]
    assert names == [each.header.trace_id for each in captured()]


def test_a_recording_that_is_made_now_says_the_same() -> None:
    """Inputs are those of the script, and times those of the virtual clock: a few of them, all over the suite."""
    for scenario, before in list(zip(scenarios(), captured(), strict=True))[::37]:
        now = take(scenario)
        terms = [[each for each in trace.records if isinstance(each, Term)] for trace in (before, now)]  # fmt: skip
        assert terms[0] == terms[1], scenario.name


def test_recordings_of_a_model_server_replay_as_they_were() -> None:
    """Real answers at both endpoints: their times, their boundaries, their servers that died."""
    found = list(read_traces(MODEL_SERVER))
    assert len(found) >= MODEL_SERVER_MIN
    assert {combination(each)[1] for each in found} >= {"chat_sse", "chat_json", "responses_sse", "responses_json", "tunnel_sse"}  # fmt: skip
    wrong = {each.header.trace_id: differences(each, replay(each))[:3] for each in found}
    assert not any(wrong.values()), wrong


def test_what_is_decided_otherwise_now_is_taken_down_anew() -> None:
    """With the inputs as they were; else a change that is meant would need the model server again."""
    trace = next(each for each in captured() if each.header.trace_id == "cut-late.live")
    assert decided_anew(trace) is trace
    terms = [each for each in trace.records if isinstance(each, Term)]
    other = msgspec.structs.replace(trace, records=tuple(each for each in trace.records if each not in terms))  # fmt: skip
    assert [each for each in decided_anew(other).records if isinstance(each, Term)] == terms


def test_another_output_is_found() -> None:
    """A byte that a provider says otherwise changes the answer, and the verdict is told with the place."""
    trace = next(each for each in captured() if each.header.trace_id == "healthy.live")
    changed = tuple(
        msgspec.structs.replace(each, b=each.b.replace(b"keeper", b"kelper"))
        if isinstance(each, Read)
        else each
        for each in trace.records
    )
    other = msgspec.structs.replace(trace, records=changed)
    found = differences(other, replay(other))
    assert [line.split(":")[0] for line in found] == ["output", "terminal"]
    assert "kelper" in found[0]
