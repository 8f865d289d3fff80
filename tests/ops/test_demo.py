"""The demonstration on real sockets: what its client concludes, what the gate makes of it, and how it looks."""

from __future__ import annotations

import io
import json
import sys
from functools import partial
from typing import Final

import pytest
import trio
from msgspec.structs import replace
from rich.console import Console
from typer.testing import CliRunner

from ops import __main__ as command
from ops.demo import CASES, Case, Clocks, Report, Row, conclude, measure, run_demo, show
from ops.demo_client import End, Seen, ask, plain_client
from ops.provider import running_provider
from ops.provider_script import Attempt, Pace, Script, Write

CLOCKS: Final = Clocks(gap_seconds=0.6, patience_seconds=1.5)
QUESTION: Final = Case("any", "healthy", "Is the tide in?")
ANSWER: Final = "You asked: “Is the tide in?”. "  # how every healthy answer to it begins
EMPTY: Final = Case("empty answer", "empty", "Is the tide in?")
REFUSED: Final = Case("bad request", "400", "Is the tide in?")
SEEN: Final = Seen(
    end=End.WHOLE,
    text="All boats are in.",
    words=4,
    status=200,
    finish="stop",
    done=True,
    error=None,
    attempts=None,
    milliseconds=12,
)
ROW: Final = Row(
    fault="cut in mid-answer",
    model="clean-cut:2",
    question="Where are the boats?",
    answer="All boats are in.",
    without_gate=replace(SEEN, end=End.CUT, text="All boats", words=2, finish=None),
    with_gate=replace(SEEN, attempts=2),
)


@pytest.fixture(scope="module")
def report() -> Report:
    """One real run, with clocks shorter still."""
    return trio.run(partial(measure, CLOCKS, io.StringIO()))


def report_of(*rows: Row) -> Report:
    """A report that nobody measured."""
    return Report(rows=rows, clocks=Clocks(), seconds=6.5)


def shown(report: Report, columns: int = 100) -> str:
    """What is printed where no terminal is."""
    out = io.StringIO()
    show(report, Console(file=out, width=columns))
    return out.getvalue()


def cells(printed: str, column: int) -> list[str]:
    """One column of the table as text, row by row, each rejoined from its lines."""
    rows: list[list[str]] = []
    for line in printed.splitlines():
        if line.startswith("├"):
            rows.append([])
        elif line.startswith("│") and rows:
            rows[-1].append(line.split("│")[column + 1].strip())
    return [" ".join(row).strip() for row in rows]


async def asked_of(
    model: str, *, script: Script | None = None, patience: float = CLOCKS.patience_seconds
) -> Seen:
    """What the plain client gets from a provider that plays the model's behaviour, or the script."""
    async with (
        running_provider(script or Script(pace=Pace(chunk_ms=0))) as provider,
        plain_client(patience) as client,
    ):
        return await ask(client, provider.base_url, QUESTION.body(model))


# --- the plain client ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "end", "words"),
    [
        ("healthy", End.WHOLE, 40),
        ("no-done", End.WHOLE, 40),
        ("clean-cut:12", End.CUT, 12),
        ("html-200", End.CUT, 0),
        ("empty", End.EMPTY, 0),
        ("malformed:7", End.MALFORMED, 7),
        ("error-in-200", End.ERROR, 0),
        ("late-error:4", End.ERROR, 4),
        ("cut:5", End.BROKEN, 5),
        ("503", End.REFUSED, 0),
    ],
)
async def test_the_client_believes_what_a_plain_client_believes(
    model: str, end: End, words: int
) -> None:
    """Only what came over the socket decides, and nothing after the first trouble counts."""
    seen = await asked_of(model)
    assert (seen.end, seen.words) == (end, words)


async def test_a_healthy_answer_is_read_to_its_end() -> None:
    """Text, finish and `[DONE]` are all noted; without a gate there are no attempts to tell of."""
    seen = await asked_of("healthy")
    assert seen.text.startswith(ANSWER)
    assert (seen.status, seen.finish, seen.done, seen.error) == (200, "stop", True, None)
    assert seen.attempts is None


async def test_silence_ends_when_the_client_has_no_patience_left() -> None:
    """The wait is the client's own, and is part of the time."""
    seen = await asked_of("stall:3", patience=0.2)
    assert (seen.end, seen.words) == (End.SILENCE, 3)
    assert seen.milliseconds >= 200


async def test_nobody_listening_is_a_broken_connection() -> None:
    """There is not even a status."""
    with trio.socket.socket() as unused:
        await unused.bind(("127.0.0.1", 0))
        host, port = unused.getsockname()
        async with plain_client(CLOCKS.patience_seconds) as client:
            seen = await ask(client, f"http://{host}:{port}/v1", QUESTION.body())
    assert (seen.end, seen.status) == (End.BROKEN, 0)


@pytest.mark.parametrize(
    ("status", "body", "error"),
    [
        (400, b'{"error": {"message": "Too long.", "code": "context_length"}}', "context_length"),
        (503, b'{"error": {"message": "Loading.", "code": 503}}', "503"),
        (500, b'{"error": {"message": "Broken."}}', "Broken."),
        (404, b'{"detail": "Not Found"}', None),
        (502, b"<html>Bad gateway</html>", None),
    ],
)
async def test_a_refusal_gives_its_reason_if_it_has_one(
    status: int, body: bytes, error: str | None
) -> None:
    """The code, else the message, of an envelope; anything else is no reason."""
    script = Script(attempts=(Attempt(status=status, steps=(Write(body),)),))
    seen = await asked_of("any", script=script)
    assert (seen.end, seen.status, seen.error) == (End.REFUSED, status, error)


async def test_what_follows_done_is_not_read() -> None:
    """The client has closed the book by then."""
    late = b'data: {"choices": [{"delta": {"content": "late"}}]}\n\n'
    said = b'data: {"choices": [{"delta": {"content": "in time"}, "finish_reason": "stop"}]}\n\n'
    script = Script(attempts=(Attempt(steps=(Write(said + b"data: [DONE]\n\n" + late),)),))
    seen = await asked_of("any", script=script)
    assert (seen.end, seen.text) == (End.WHOLE, "in time")


# --- the run -------------------------------------------------------------------------------------


@pytest.mark.slow
def test_each_fault_reaches_the_caller_who_has_no_gate(report: Report) -> None:
    """Five faults, five ways to go wrong."""
    assert {row.fault: (row.without_gate.end, row.without_gate.words) for row in report.rows} == {
        "cut in mid-answer": (End.CUT, 12),
        "stall": (End.SILENCE, 18),
        "error inside a 200": (End.ERROR, 0),
        "empty answer": (End.EMPTY, 0),
        "malformed event": (End.MALFORMED, 15),
    }


@pytest.mark.slow
def test_through_the_gate_the_same_requests_are_answered_whole(report: Report) -> None:
    """Each text is what a healthy provider says to that question, and took more than one attempt."""
    assert [case.question in row.answer for case, row in zip(CASES, report.rows, strict=True)] == (
        [True] * 5
    )
    assert [row.with_gate.text for row in report.rows] == [row.answer for row in report.rows]
    assert [row.with_gate.end for row in report.rows] == [End.WHOLE] * 5
    assert all((row.with_gate.attempts or 0) >= 2 for row in report.rows)
    assert report.whole == 5


@pytest.mark.slow
def test_the_stall_costs_the_gateway_its_gap_and_the_plain_client_its_patience(
    report: Report,
) -> None:
    """Time is measured, not told."""
    stall = next(row for row in report.rows if row.fault == "stall")
    assert stall.with_gate.milliseconds >= CLOCKS.gap_seconds * 1000
    assert stall.without_gate.milliseconds >= CLOCKS.patience_seconds * 1000
    assert report.seconds * 1000 >= sum(
        row.with_gate.milliseconds + row.without_gate.milliseconds for row in report.rows
    )


async def test_an_answer_that_the_gate_can_not_mend_fails_the_demo(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The caller's own fault is not recovered; the gateway's log says what happened, on stderr."""
    assert await run_demo(as_json=False, cases=[REFUSED]) == 1
    out, err = capsys.readouterr()
    assert "0 of 1 with it" in out
    assert "status 400: invalid_value" in cells(out, 2)[0]
    assert "exchange_ended" in err


async def test_success_says_nothing_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    """A pipe gets the table alone: no log, no control sequence."""
    assert await run_demo(as_json=False, cases=[EMPTY]) == 0
    out, err = capsys.readouterr()
    assert "1 of 1 with it" in out
    assert "\x1b" not in out
    assert err == ""


async def test_json_holds_the_same_facts(capsys: pytest.CaptureFixture[str]) -> None:
    """For those who check rather than look."""
    assert await run_demo(as_json=True, cases=[EMPTY]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["whole"] == 1
    assert facts["clocks"] == {"gap_seconds": 1.0, "patience_seconds": 4.0}
    (row,) = facts["rows"]
    assert (row["fault"], row["model"], row["whole"]) == ("empty answer", "empty", True)
    assert (row["without_gate"]["end"], row["without_gate"]["finish"]) == ("empty", "stop")
    assert (row["with_gate"]["end"], row["with_gate"]["attempts"]) == ("whole", 2)
    assert row["with_gate"]["text"] == row["answer"]


async def test_a_terminal_without_unicode_gets_a_table_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Signs that it lacks become question marks, lines become dashes."""
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="ascii"))
    assert await run_demo(as_json=False, cases=[EMPTY]) == 0
    sys.stdout.flush()
    printed = raw.getvalue().decode("ascii")
    assert "You asked: ?Is the tide" in printed
    assert "+----" in printed


# --- the verdict ---------------------------------------------------------------------------------


def test_a_whole_answer_with_another_text_does_not_count(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A proper end is not enough: the words must be the healthy provider's."""
    other = replace(ROW, with_gate=replace(SEEN, text="All boats.", words=2, attempts=1))
    found = report_of(ROW, other)
    assert found.whole == 1
    assert conclude(found, "a line of the log\n") == 1
    assert capsys.readouterr().err == "a line of the log\n"
    assert "not the healthy provider's text; 1 attempt; 12 ms" in cells(shown(found), 2)[1]


def test_every_answer_whole_is_a_success(capsys: pytest.CaptureFixture[str]) -> None:
    """The log stays where it is."""
    assert conclude(report_of(ROW), "a line of the log\n") == 0
    assert capsys.readouterr().err == ""


# --- how it looks --------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(("columns", "widest"), [(80, 80), (100, 100), (300, 116)])
def test_the_table_fills_the_terminal_and_no_more(
    report: Report, columns: int, widest: int
) -> None:
    """80 columns are enough; more than 116 would be hard to read."""
    printed = shown(report, columns)
    assert max(len(line) for line in printed.splitlines()) == widest
    assert cells(printed, 0) == [case.fault for case in CASES]


def test_the_two_callers_stand_side_by_side() -> None:
    """Text first, then how it ended; the gate's side with attempts and time."""
    printed = shown(report_of(ROW))
    assert cells(printed, 1) == ["All boats -> cut after 2 words; looks complete to most clients"]
    assert cells(printed, 2) == ["All boats are in. -> whole; 2 attempts; 12 ms"]


def test_a_gateway_that_did_not_answer_has_no_attempts_to_tell() -> None:
    """Nothing is made up where its header is missing."""
    gone = replace(SEEN, end=End.BROKEN, text="", words=0, status=0)
    printed = shown(report_of(replace(ROW, with_gate=gone)))
    assert cells(printed, 2) == ["(nothing) -> connection broken after 0 words; 12 ms"]


def test_the_clocks_are_named_below_the_table() -> None:
    """Nobody should take the demo's haste for the product's."""
    words = " ".join(shown(report_of(ROW)).split())
    assert "the gateway waits 1 s for a provider's next piece (by default 30 s)" in words
    assert "the plain client gives up after 4 s of silence" in words


def test_every_ending_has_words_of_its_own() -> None:
    """On both sides of the table; a refusal without a reason says so."""
    rows = [
        replace(ROW, without_gate=replace(SEEN, end=end, text="", words=0), answer="")
        for end in End
    ]
    said = cells(shown(report_of(*rows)), 1)
    assert len(set(said)) == len(End)
    assert "(nothing) -> status 200: no reason given" in said


def test_colour_marks_what_the_caller_would_have_missed() -> None:
    """On a terminal the text behind the cut is green, and the cut is red."""
    out = io.StringIO()
    show(report_of(ROW), Console(file=out, width=100, force_terminal=True, color_system="standard"))
    assert "All boats\x1b[32m are in.\x1b[0m" in out.getvalue()
    assert "\x1b[31m-> cut after 2 words" in out.getvalue()


# --- the command ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("options", "as_json"), [([], False), (["--json"], True)])
def test_the_command_ends_with_the_demos_exit_code(
    monkeypatch: pytest.MonkeyPatch, options: list[str], as_json: bool
) -> None:
    """And hands its option on."""
    given: list[bool] = []

    async def demo(wanted: bool) -> int:
        await trio.lowlevel.checkpoint()
        given.append(wanted)
        return 1

    monkeypatch.setattr(command, "run_demo", demo)
    assert CliRunner().invoke(command.cli, ["demo", *options]).exit_code == 1
    assert given == [as_json]


def test_an_interrupted_demo_shows_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends as shells expect of a program that was interrupted, from whatever depth."""

    async def demo(_: bool) -> int:
        async with trio.open_nursery():
            raise KeyboardInterrupt

    monkeypatch.setattr(command, "run_demo", demo)
    result = CliRunner().invoke(command.cli, ["demo"])
    assert (result.exit_code, result.output) == (130, "")
