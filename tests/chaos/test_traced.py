"""Recorded traces are scenarios of the explorer: what they become, and what is struck."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
import trio

from gate.trace import Read, Request, Trace
from ops.chaos.cases import CANCEL, Case, CaseInvalid, Fault
from ops.chaos.command import run_chaos
from ops.chaos.explore import explore, run_case
from ops.chaos.ports import PlayedCaller
from ops.chaos.reading import read_stream
from ops.chaos.traced import names_in, traced
from ops.trace import read_traces, write_traces
from tests.traces.scenarios import CAPTURED, MODEL_SERVER

COMMON: Final = frozenset({"healthy.live", "cut-early.continued.exact", "healthy.responses-live", "file.relayed.stream", "webhook-slow.live.closed", "caller-leaves-early.live", "no-connection.live", "no-head.json", "calls-merged.window"})  # fmt: skip
ODD: Final = {
    "no-space.tunnel.live": "events without a blank behind the colon",
    "json-for-a-stream.tunnel.live": "a body without a length where a stream was asked for",
    "json-error-for-a-stream.tunnel.live": "an answer behind one that does not end in a blank line",
    "filter-results-first.tunnel.live": "an event with an empty model",
    "ping-events.tunnel.live": "events without data",
    "ping-events.responses-tunnel.live": "the same, and events that are not numbered",
    "call-without-index.responses-tunnel.live": "a call without its place",
    "malformed-event.responses-tunnel.live": "events that can be read up to one that can't",
    "call-with-object.tunnel.live": "arguments that are no text",
    "role-again.tunnel.live": "the role twice",
    "no-finish.tunnel.json": "no finish reason",
    "call-beside-words.responses-live": "a call that is not the first item",
    "llamacpp.chat-raw": "a model behind the choices",
    "llamacpp.responses-raw": "events without a number",
    "caller-no-json.live": "a body that can't be read",
    "caller-no-model.live": "one that asks for no model",
    "llamacpp.other-model": "one that asks for a model that there is not",
    "caller-never-whole.live": "one whose end never comes",
}


@pytest.fixture(scope="module")
def recorded() -> dict[str, Trace]:
    """Both suites, by id."""
    return {
        each.header.trace_id: each
        for file in (CAPTURED, MODEL_SERVER)
        for each in read_traces(file)
    }


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory, recorded: dict[str, Trace]) -> Path:
    """A few traces of the suites."""
    path = tmp_path_factory.mktemp("traces") / "some.trace"
    assert write_traces(path, [recorded[each] for each in sorted(COMMON | set(ODD))]) == len(COMMON) + len(ODD)  # fmt: skip
    return path


def test_every_exchange_that_can_be_asked_again_is_a_scenario(file: Path) -> None:
    """Whatever its caller asked for, and however its providers speak."""
    names, others = names_in(file)
    assert {each.rpartition("@")[2] for each in names} == COMMON | set(ODD)
    assert others == []


@pytest.mark.parametrize("name", ODD)
def test_what_a_provider_says_in_its_own_way_is_struck_like_anything_else(
    file: Path, name: str
) -> None:
    """Here at some of its steps; what holds is that nothing is added to it."""
    tally = explore(f"{file}@{name}", traced(f"{file}@{name}"), "fifo", every=60)
    assert [(str(each.case), each.findings) for each in tally.failures] == []
    assert tally.points


def test_a_call_that_is_cut_off_in_the_middle_of_a_write_is_no_finding(file: Path) -> None:
    """The exchange is cancelled while its caller takes the frames of a call."""
    name = f"{file}@calls-merged.window"
    run, findings = run_case(Case(name).with_fault(Fault(CANCEL, "req", 92)), traced(name))
    assert findings == []
    assert list(read_stream(bytes(run.stage.caller.received)).calls.values()) == [("gauge", "")]


def test_a_scenario_says_what_its_caller_got(file: Path) -> None:
    """The text of the recorded answer, at the endpoint that was asked."""
    chat = traced(f"{file}@healthy.live")
    assert chat.said.startswith("The keeper opens the")
    assert (chat.code, chat.varies) == ("", False)
    other = traced(f"{file}@healthy.responses-live")
    assert (other.said, other.endpoint) == (chat.said, "/v1/responses")
    assert traced(f"{file}@cut-early.continued.exact").varies
    left = traced(f"{file}@caller-leaves-early.live")
    assert (left.code, left.varies) == ("caller_gone", True)


def test_a_connection_that_was_refused_is_refused_again(file: Path) -> None:
    """The recorded attempt at the first provider, and the answer of the second."""
    run, findings = run_case(Case(f"{file}@no-connection.live"), traced(f"{file}@no-connection.live"))  # fmt: skip
    assert findings == []
    assert run.outcome is not None
    assert (run.outcome.code, run.outcome.attempts) == ("", 2)


def test_every_step_of_a_recorded_exchange_is_struck(file: Path) -> None:
    """All invariants hold, as they do for a script."""
    name = f"{file}@file.relayed.stream"
    tally = explore(name, traced(name), "fifo")
    assert tally.failures == []
    assert tally.points > 50


def test_the_command_takes_a_file_and_one_exchange_of_it(
    file: Path, recorded: dict[str, Trace], capsys: pytest.CaptureFixture[str]
) -> None:
    """A case line names the file and the trace, so that it can be typed again."""
    assert run_chaos([f"{file}@healthy.live"], cancel=["req:20"]) == 0
    assert "every invariant holds" in capsys.readouterr().out
    alone = file.with_name("one.trace")
    write_traces(alone, [recorded["no-head.json"]])
    assert run_chaos([], traces=[alone], jobs=1) == 0
    assert "no-head.json" in capsys.readouterr().out


def test_what_can_not_be_asked_again_is_passed_over(
    tmp_path: Path, recorded: dict[str, Trace], capsys: pytest.CaptureFixture[str]
) -> None:
    """A request without a body, for a list or a page."""
    path = tmp_path / "other.trace"
    trace = recorded["healthy.live"]
    records = [
        msgspec.structs.replace(each, method="GET") if isinstance(each, Request) else each
        for each in trace.records
    ]
    write_traces(path, [trace, msgspec.structs.replace(trace, header=msgspec.structs.replace(trace.header, trace_id="a-list"), records=tuple(records))])  # fmt: skip
    assert run_chaos([], traces=[path], cancel=["req:20"]) == 0
    told = capsys.readouterr()
    assert told.err == "tidegate: passed over: a-list is no request that can be played\n"
    assert "every invariant holds" in told.out


def test_what_holds_no_content_is_passed_over_too(
    tmp_path: Path, recorded: dict[str, Trace], capsys: pytest.CaptureFixture[str]
) -> None:
    """It is told, as is one whose request is missing; where there is nothing else, that is why."""
    trace = recorded["healthy.live"]
    hashed = renamed(trace, "hashed", content="hash")
    headless = msgspec.structs.replace(renamed(trace, "headless"), records=tuple(each for each in trace.records if not isinstance(each, Request)))  # fmt: skip
    path = tmp_path / "other.trace"
    write_traces(path, [trace, hashed, headless])
    names, others = names_in(path)
    assert names == [f"{path}@healthy.live"]
    assert others == ["hashed can't be played: it takes full content", "headless is no request that can be played"]  # fmt: skip
    write_traces(path, [hashed])
    assert run_chaos([], traces=[path]) == 2
    assert "no trace that can be played: hashed can't be played" in capsys.readouterr().err


def renamed(trace: Trace, name: str, **values: Any) -> Trace:
    header = msgspec.structs.replace(trace.header, trace_id=name, **values)
    return msgspec.structs.replace(trace, header=header)


# --- what breaks where nothing strikes -------------------------------------------------------------


BROKEN: Final[Mapping[str, tuple[str, Callable[[bytes], bytes]]]] = {
    "a word that is no JSON": ("healthy.live", lambda data: data.replace(b'"choices"', b'"choices')),
    "a choice that is none": ("healthy.live", lambda data: data.replace(b'"choices":[', b'"choices":[[],')),
    "the role twice": ("healthy.live", lambda data: data + data if b'"role"' in data else data),
    "half an event": ("healthy.live", lambda data: data[:-1] if b"[DONE]" in data else data),
    "another answer than the provider's": ("healthy.tunnel.live", lambda data: data.replace(b"keeper", b"kelper")),
    "a word of ours in a tunnel": ("healthy.tunnel.live", lambda data: data.replace(b'"delta"', b'"other"')),
    "the role twice in a tunnel": ("healthy.tunnel.live", lambda data: data + data if b'"role"' in data else data),
    "a body that is none": ("healthy.json", lambda data: data[1:] if data else data),
}  # fmt: skip


@pytest.mark.parametrize("form", BROKEN)
def test_what_the_gate_breaks_by_itself_is_a_failure_and_passed_over_by_nobody(
    form: str,
    tmp_path: Path,
    recorded: dict[str, Trace],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A fault is put between the gate and its caller; nothing else strikes."""
    identity, spoil = BROKEN[form]
    path = tmp_path / "one.trace"
    write_traces(path, [recorded[identity]])
    write, end = PlayedCaller.write, PlayedCaller.end

    async def spoiled_write(caller: PlayedCaller, data: bytes) -> None:
        await write(caller, spoil(data))

    async def spoiled_end(caller: PlayedCaller, data: bytes = b"") -> None:
        await end(caller, spoil(data))

    monkeypatch.setattr(PlayedCaller, "write", spoiled_write)
    monkeypatch.setattr(PlayedCaller, "end", spoiled_end)
    names, others = names_in(path)
    assert (names, others) == ([f"{path}@{identity}"], [])
    _, findings = run_case(Case(names[0]), traced(names[0]))
    assert [each for each in findings if each.startswith(("I7", "I8"))], findings
    assert run_chaos([f"{path}@{identity}"], cancel=["req:100000"]) == 1
    assert "passed over" not in capsys.readouterr().err


def test_an_exchange_that_does_not_end_is_a_failure(
    tmp_path: Path, recorded: dict[str, Trace], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And no reason to pass it over."""
    path = tmp_path / "one.trace"
    write_traces(path, [recorded["healthy.live"]])

    async def stuck(caller: PlayedCaller, data: bytes = b"") -> None:
        # Bounded by: the explorer's watchdog.
        with trio.CancelScope(shield=True):
            await trio.sleep_forever()

    monkeypatch.setattr(PlayedCaller, "end", stuck)
    names, others = names_in(path)
    assert others == []
    _, findings = run_case(Case(names[0]), traced(names[0]))
    assert [each[:2] for each in findings] == ["I0"]


def test_a_tunnel_whose_provider_speaks_another_language_can_not_be_judged(
    tmp_path: Path, recorded: dict[str, Trace]
) -> None:
    """Text in parts reaches the caller as it is, and no reader of chunks makes anything of it. The same words on the other path come to something that can be read."""
    path = tmp_path / "two.trace"
    odd = b'"content":[{"type":"text","text":"at"}]'
    spoken = []
    for identity in ("healthy.tunnel.live", "healthy.live"):
        trace = recorded[identity]
        records = tuple(
            msgspec.structs.replace(each, b=each.b.replace(b'"content":" at first"', odd))
            if isinstance(each, Read)
            else each
            for each in trace.records
        )
        assert records != trace.records
        spoken.append(msgspec.structs.replace(trace, records=records))
    write_traces(path, spoken)
    names, others = names_in(path)
    assert [each.rpartition("@")[2] for each in names] == ["healthy.live"]
    assert "can't be judged: nobody can read its provider's own words" in others[0]
    assert run_case(Case(names[0]), traced(names[0]))[1] == []


@pytest.mark.parametrize("content", [b"", b"\0\0\0\1", gzip.compress(b"", mtime=0)])
def test_a_file_without_traces_is_bad_usage(
    tmp_path: Path, content: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    """And so is a trace that is not there."""
    path = tmp_path / "none.trace"
    path.write_bytes(content)
    assert run_chaos([], traces=[path]) == 2
    assert "none.trace" in capsys.readouterr().err
    with pytest.raises(CaseInvalid):
        traced(f"{path}@ex-1")
