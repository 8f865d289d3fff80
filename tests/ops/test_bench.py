"""The bench as a command: what it shows, what it writes, and when it fails."""

from __future__ import annotations

import io
import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest
from msgspec.structs import replace
from rich.console import Console
from typer.testing import CliRunner

from ops import __main__ as command
from ops import bench
from ops.bench import Report, facts, measure, run_bench, show
from ops.bench_figures import Result, Row, figure
from ops.bench_machine import DescriptorsMissing, machine
from ops.bench_scenarios import SCENARIOS, Size
from tests.ops.processes import children_of, has_ended

RESULT: Final = Result(
    name="lockstep",
    did="3 streams",
    aim="at most 4 x",
    rows=(
        Row("direct", (figure("CPU µs/chunk", [None]), figure("time µs/chunk", [7.0]))),
        Row("tidegate", (figure("CPU µs/chunk", [90.0, 123.4, 110.0]), figure("right", [1000]))),
    ),
    seconds=1.5,
    elsewhere=0.25,
)
SMALL: Final = Size(judging_kib=(1, 2), judging_rounds=1)


def report_of(*results: Result) -> Report:
    """A report that nobody measured."""
    return Report(machine=machine(), size=Size(), results=results, seconds=2.0)


def shown(report: Report, columns: int = 100) -> str:
    """What is printed where no terminal is."""
    out = io.StringIO()
    show(report, Console(file=out, width=columns))
    return out.getvalue()


def row_of(printed: str, subject: str) -> list[str]:
    """A row of a table as its cells."""
    line = next(line for line in printed.splitlines() if line.strip().startswith(subject))
    return [cell.strip() for cell in line.split("  ") if cell.strip()]


# --- what is shown -------------------------------------------------------------------------------


def test_a_table_has_the_middle_and_both_ends_of_each_figure() -> None:
    """One sample has no spread; what was not to be had is a dash."""
    printed = shown(report_of(RESULT))
    assert row_of(printed, "direct") == ["direct", "-", "7", "-"]
    assert row_of(printed, "tidegate") == ["tidegate", "110 (90-123)", "-", "1000"]
    assert "lockstep: 3 streams" in printed
    assert "aim: at most 4 x; 1.5 s; meanwhile 0.25 of" in printed
    assert "2 s in all; no stream came wrong." in printed


def test_numbers_have_the_digits_that_mean_something() -> None:
    """Small ones more of them."""
    samples = [0.123, 1.0, 4.567, 45.67, 456.7]
    rows = tuple(Row(f"r{value:g}", (figure("n", [value]),)) for value in samples)
    printed = shown(report_of(replace(RESULT, rows=rows)))
    assert [row_of(printed, row.subject)[1] for row in rows] == ["0.12", "1", "4.57", "45.7", "457"]


def test_a_quiet_machine_is_not_mentioned_nor_is_one_that_tells_nothing() -> None:
    """Nor an aim where there is none."""
    quiet, mute = replace(RESULT, elsewhere=0.1, aim=""), replace(RESULT, elsewhere=None, aim="")
    for result in (quiet, mute):
        printed = shown(report_of(result))
        assert "busy with something else" not in printed
        assert "aim" not in printed


def test_what_came_wrong_is_counted_below_the_tables() -> None:
    """By scenario."""
    printed = shown(report_of(RESULT, replace(RESULT, name="streams", wrong=("a", "b"))))
    assert "streams: 2 came wrong" in printed
    assert "lockstep: 0" not in printed
    assert "2 s in all; streams came wrong." in printed


@pytest.mark.parametrize(("columns", "widest"), [(80, 80), (300, 132)])
def test_no_line_is_wider_than_the_terminal_or_than_is_read(columns: int, widest: int) -> None:
    """The machine and the reading aid fill the lines."""
    lines = [line.rstrip() for line in shown(report_of(RESULT), columns).splitlines()]
    assert widest - 20 < max(map(len, lines)) <= widest


def test_json_has_every_sample_and_how_much_came_wrong() -> None:
    """And what has to be known to compare it."""
    told = json.loads(facts(report_of(RESULT, replace(RESULT, wrong=("a",)))))
    assert told["wrong"] == 1
    assert told["results"][0]["rows"][1]["figures"][0]["samples"] == [90.0, 123.4, 110.0]
    assert told["machine"]["packages"]["trio"]
    assert told["size"]["streams"] == 1000


# --- the run -------------------------------------------------------------------------------------


def test_what_was_asked_for_is_run_in_its_order() -> None:
    """Each is told of before it begins, and its time is taken."""
    told: list[str] = []
    report = measure(["judging"], SMALL, told.append)
    assert told == [each.name for each in report.results] == ["judging"]
    assert report.seconds >= report.results[0].seconds >= 0


def test_descriptors_are_asked_for_where_many_streams_will_be_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Before anything is started."""
    asked: list[int] = []
    monkeypatch.setattr(bench, "allow_descriptors", asked.append)
    monkeypatch.setattr(bench, "run_scenario", lambda _name, _size: RESULT)
    measure(["lockstep"], Size(streams=300))
    assert asked == []
    measure(["memory"], Size(streams=300))
    assert asked == [728]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sizes that take no time."""
    monkeypatch.setattr(bench, "QUICK", SMALL)


@pytest.mark.usefixtures("small")
def test_a_file_gets_the_facts_beside_the_tables(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Stdout has the tables, or the facts alone."""
    assert run_bench(["judging"], quick=True, json=str(tmp_path / "facts.json")) == 0
    assert "1 KiB, default filters" in capsys.readouterr().out
    assert json.loads((tmp_path / "facts.json").read_text())["wrong"] == 0
    assert run_bench(["judging"], quick=True, json="-", streams=3) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["size"]["streams"] == 3
    assert "Traceback" not in err


def test_only_a_stream_that_came_wrong_fails_the_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first ones are named on stderr; everything is run when nothing is named."""
    run: list[str] = []

    def wrong(name: str, _: Size) -> Result:
        run.append(name)
        return replace(RESULT, name=name, wrong=tuple(f"stream {n}" for n in range(9)))

    monkeypatch.setattr(bench, "run_scenario", wrong)
    assert run_bench() == 1
    assert run == list(SCENARIOS)
    err = capsys.readouterr().err
    assert "streams: stream 7\n" in err
    assert "stream 8" not in err


# --- the command ---------------------------------------------------------------------------------


def test_the_command_s_exit_code_is_the_run_s(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its options go on."""
    given: list[object] = []

    def run(only: list[str], **options: object) -> int:
        given.append((only, options))
        return 1

    monkeypatch.setattr(command, "run_bench", run)
    arguments = ["bench", "--only", "slow", "--only", "memory", "--quick", "--streams", "9", "--json", "-"]  # fmt: skip
    assert CliRunner().invoke(command.cli, arguments).exit_code == 1
    assert given == [(["slow", "memory"], {"quick": True, "streams": 9, "json": "-"})]
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (KeyboardInterrupt(), 130, ""),
        (DescriptorsMissing("9 are needed"), 2, "9 are needed; --streams N asks for fewer"),
    ],
)
def test_what_ends_the_run_has_an_exit_code(
    error: BaseException, code: int, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No traceback."""

    def ends(*_: object, **__: object) -> int:
        raise error

    monkeypatch.setattr(command, "run_bench", ends)
    result = CliRunner().invoke(command.cli, ["bench"])
    assert result.exit_code == code
    assert said in result.stderr
    assert "Traceback" not in result.output


def test_a_scenario_that_there_is_not_is_bad_usage() -> None:
    """Those that there are are named."""
    result = CliRunner().invoke(command.cli, ["bench", "--only", "speed"])
    assert result.exit_code == 2
    assert "no such scenario: speed (there are lockstep, " in result.stderr


@pytest.mark.e2e
@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="finds the processes in /proc")
@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_leaves_no_process_behind(ending: signal.Signals) -> None:
    """At whatever moment: here while the first process is started, or a little later."""
    started = subprocess.Popen(
        [sys.executable, "-m", "ops", "bench", "--only", "slow"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    try:
        children = children_of(started.pid)
        started.send_signal(ending)
        _, err = started.communicate(timeout=30)
    finally:
        started.kill()
        started.wait()
    assert children
    assert started.returncode == 130
    assert b"Traceback" not in err
    assert all(has_ended(pid) for pid in children)
