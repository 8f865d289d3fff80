"""Many traces at once: one that can't be replayed, or asks for what the other configuration does not have, is told, and the others go on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio
import trio.testing

from gate.config_check import decode_config
from gate.trace import Attempt, Part, Read, Request, Trace, Upstream
from gate.trace_codec import sealed, traces
from ops.replay_command import run_replay
from ops.replay_html import page
from ops.replay_many import ONE_PROCESS_MAX, results_of
from ops.replay_result import Class, Result, what_if
from ops.replay_show import totals
from ops.trace import write_traces
from tests.doubles import RecordingCaller, ScriptedProvider, healthy, refuses, request
from tests.tracing import Recording, tables, take

PLAIN = take(Recording(tables(1), [ScriptedProvider(healthy("The keeper", " opens."))]))


def named(name: str) -> Trace:
    recording = Recording(tables(1), [ScriptedProvider(healthy("The keeper", " opens."))])
    return trio.run(recording.take, name, clock=trio.testing.MockClock(autojump_threshold=0))


def without(trace: Trace, kind: type[Any]) -> Trace:
    """What a file holds whose record of this kind was lost; sealed, so that its end counts right."""
    kept = [each for each in trace.records if not isinstance(each, kind)]
    return next(traces(sealed([trace.header, *kept])))


def renamed(alias: str) -> dict[str, Any]:
    """The same gateway with another name for its model."""
    raw = tables(1)
    raw["models"][0]["alias"] = alias
    return raw


def shown(mode: str, results: list[Result]) -> str:
    return page(results, mode=mode, seconds=1.0)


# --- one that is none ------------------------------------------------------------------------------


def test_a_trace_without_its_request_ends_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is named with what it lacks, the others are replayed, and the code says that something could not be read."""
    path = tmp_path / "a.trace"
    write_traces(path, [named("first"), without(named("headless"), Request), named("last")])
    report = tmp_path / "a.html"
    for configuration in (None, tables(1)):
        assert run_replay([path], tables=configuration, as_text=False, report=report) == 2
        value = json.loads(capsys.readouterr().out)
        assert value["totals"]["classes"] == {"same": 2, "unreadable": 1}
        assert [(each["trace_id"], each["kind"]) for each in value["traces"]] == [("first", "same"), ("headless", "unreadable"), ("last", "same")]  # fmt: skip
        assert value["totals"]["ends"] == {"success": 2}
        assert "there is no record of its request" in report.read_text()
    assert run_replay([path]) == 2
    told = capsys.readouterr()
    assert "headless: unreadable" in told.out
    assert "there is no record of its request" in told.out


def test_records_that_contradict_each_other_are_one_bad_trace() -> None:
    """Whatever the replay stumbles over: here a configuration that is no table, and a time that is no number of the clock's."""
    broken = msgspec.structs.replace(PLAIN.header, config={"models": 7})
    late = tuple(
        msgspec.structs.replace(each, t=10**400) if isinstance(each, Part) else each
        for each in PLAIN.records
    )
    jobs = [
        ("", msgspec.structs.replace(PLAIN, header=broken)),
        ("", msgspec.structs.replace(PLAIN, records=late)),
        ("", PLAIN),
    ]
    config, time, good = results_of(jobs)
    assert config.kind is Class.DIFFERENT  # what an older version called a configuration
    assert time.kind is Class.UNREADABLE
    assert "OverflowError" in time.lines[0]
    assert good.kind is Class.SAME


@pytest.mark.parametrize("kind", [Part, Attempt, Upstream, Read])
def test_any_record_may_be_missing(kind: type[Any]) -> None:
    """There is a result for it, and for the one behind it."""
    first, second = results_of([("", without(PLAIN, kind)), ("", PLAIN)])
    assert first.kind in {Class.DIFFERENT, Class.UNREADABLE}
    assert second.kind is Class.SAME


def test_a_replay_that_waits_for_ever_comes_to_an_end() -> None:
    """Its clock is virtual, and nothing else would move it: the caller's body is not in the recording."""
    (found,) = results_of([("", without(PLAIN, Part))])
    assert found.kind is Class.UNREADABLE
    assert "waits for something that is not among its records" in found.lines[0]


def test_a_bad_trace_ends_no_other_process() -> None:
    """The result comes from where it was replayed, in its place."""
    bad = without(PLAIN, Request)
    jobs = [(f"{number}", bad if number == 3 else PLAIN) for number in range(ONE_PROCESS_MAX + 3)]
    found = list(results_of(jobs, cores=2))
    assert [each.source for each in found if each.kind is Class.UNREADABLE] == ["3"]
    assert [each.source for each in found] == [name for name, _ in jobs]


def test_a_folder_with_nothing_in_it_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A table of nothing alone would not say why."""
    assert run_replay([tmp_path]) == 2
    assert f"there is no trace in {tmp_path}" in capsys.readouterr().err


# --- a model that is not there ---------------------------------------------------------------------


def test_a_configuration_without_the_model_is_told_and_counts_for_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An answer would else seem to be stopped by the policy, where the file is merely another's."""
    path = tmp_path / "a.trace"
    write_traces(path, [PLAIN])
    report = tmp_path / "a.html"
    assert run_replay([path], tables=renamed("other"), as_text=False, report=report) == 0
    value = json.loads(capsys.readouterr().out)
    assert value["totals"]["classes"] == {"model not served": 1}
    assert (value["totals"]["stopped_successes"], value["totals"]["after"]) == (0, None)
    said = "the configuration has no model 'large'; it has 'other'".replace(
        "large", PLAIN.header.config["models"][0]["alias"]
    )
    assert value["traces"][0]["lines"] == [said]
    assert "model not served" in report.read_text()
    assert run_replay([path], tables=renamed("other")) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "model not served" in told
    assert said in told


def test_a_long_list_of_models_is_cut_short() -> None:
    """And an empty one is said to be empty."""
    raw = renamed("m0")
    raw["models"] = [{**raw["models"][0], "alias": f"m{number}"} for number in range(12)]
    many = what_if("", PLAIN, decode_config(raw))
    assert many.lines[0].endswith("'m6', 'm7', ...")
    none = what_if("", PLAIN, decode_config({}))
    assert none.lines[0].endswith("it has none")


def test_a_model_that_was_not_there_before_either_is_no_news() -> None:
    """And one that a provider does not know was asked of it."""
    unknown = take(Recording(tables(1), [ScriptedProvider(healthy("x"))], RecordingCaller(request(model="gone"))))  # fmt: skip
    assert what_if("", unknown, decode_config(renamed("other"))).kind is Class.SAME
    refused = take(Recording(tables(1), [ScriptedProvider(refuses(404, b'{"error":{"code":"model_not_found"}}'))]))  # fmt: skip
    assert what_if("", refused, decode_config(tables(1))).kind is Class.SAME
    assert what_if("", refused, decode_config(renamed("other"))).kind is Class.UNSERVED


def test_the_sums_are_of_what_could_be_compared() -> None:
    """What is not served takes part in neither side."""
    both = [what_if("", PLAIN, decode_config(renamed("other")), show=True), what_if("", PLAIN, decode_config(tables(1)), show=True)]  # fmt: skip
    sums = totals(both)
    assert sums.after is not None
    assert (sums.traces, sums.before.successes, sums.after.successes) == (2, 1, 1)
    assert sums.diverged_share == 0.0
    text = shown("what if", both)
    assert text.index("model not served</span>") < text.index("same</span>")
    assert text.count("<svg") == 2
