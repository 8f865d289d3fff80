"""Recorded traces are scenarios of the explorer: what they become, and what is struck."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from ops.chaos.cases import Case, CaseInvalid
from ops.chaos.command import run_chaos
from ops.chaos.explore import explore, run_case
from ops.chaos.traced import names_in, traced
from ops.trace import read_traces, write_traces
from tests.traces.scenarios import CAPTURED

pytestmark = pytest.mark.no_cover


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A few traces of the captured suite."""
    wanted = {"healthy.live", "cut-early.continued.exact", "healthy.responses-live", "file.relayed.stream", "webhook-slow.live.closed", "caller-leaves-early.live", "no-connection.live", "no-head.json", "caller-no-json.live"}  # fmt: skip
    path = tmp_path_factory.mktemp("traces") / "some.trace"
    found = [each for each in read_traces(CAPTURED) if each.header.trace_id in wanted]
    assert write_traces(path, found) == len(wanted)
    return path


def test_every_exchange_that_can_be_asked_again_is_a_scenario(file: Path) -> None:
    """A body that is no JSON can't be sent for another alias."""
    names, others = names_in(file)
    assert len(names) == 8
    assert [each for each in others if "caller-no-json.live is no request" in each] == others


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
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A case line names the file and the trace, so that it can be typed again."""
    assert run_chaos([f"{file}@healthy.live"], cancel=["req:20"]) == 0
    assert "every invariant holds" in capsys.readouterr().out
    alone = file.with_name("one.trace")
    write_traces(alone, [each for each in read_traces(file) if each.header.trace_id == "no-head.json"])  # fmt: skip
    assert run_chaos([], traces=[alone], jobs=1) == 0
    assert "no-head.json" in capsys.readouterr().out


def test_what_the_explorer_can_not_read_is_passed_over(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A tunnel relays a provider's own words, in which the grammar of answers may be broken without a strike."""
    path = tmp_path / "raw.trace"
    wanted = {"role-again.tunnel.live", "call-with-object.tunnel.live", "cr.tunnel.live"}
    write_traces(path, [each for each in read_traces(CAPTURED) if each.header.trace_id in wanted])
    assert run_chaos([], traces=[path], jobs=1, schedule="fifo") == 0
    told = capsys.readouterr()
    assert told.err.count("can't be judged") == 2
    assert "cr.tunnel.live" in told.out


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
