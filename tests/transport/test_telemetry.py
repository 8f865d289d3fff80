"""`transport.telemetry`: lines for an operator, which never hold up a stream."""

from __future__ import annotations

import io
import json
import threading
import time
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import structlog

from gate.observe import Measured, Observation, Spent, TokenKind, What
from transport.telemetry import FanOut, LogSink, open_log

ENDED = Observation(
    What.EXCHANGE_ENDED,
    "ex-1",
    attempt=2,
    code="success",
    framing="chat_sse",
    status=200,
    seconds=1.23456789,
    count=512,
)


def lines(out: io.StringIO) -> list[dict[str, Any]]:
    """The lines of a JSON log."""
    return [json.loads(line) for line in out.getvalue().splitlines()]


def sink(out: io.StringIO, *, lines_max: int = 10) -> LogSink:
    """A log whose thread is the test's to run."""
    renderer = structlog.processors.JSONRenderer()
    return LogSink(lines_max=lines_max, renderer=renderer, out=out)


class Refusing(io.StringIO):
    """A log that nobody reads any more, for the first `times` lines."""

    def __init__(self, times: int) -> None:
        super().__init__()
        self._times = times

    def write(self, text: str) -> int:
        if self._times:
            self._times -= 1
            raise BrokenPipeError
        return super().write(text)


class Stuck(io.StringIO):
    """A log whose reader has stopped reading."""

    def __init__(self) -> None:
        super().__init__()
        self.reached, self.go_on = threading.Event(), threading.Event()

    def write(self, text: str) -> int:
        self.reached.set()
        self.go_on.wait(10)
        return super().write(text)


def no_crash(exchange: str, error: BaseException) -> None:
    """For a test in which nothing crashes."""
    raise AssertionError(exchange) from error


def fail(error: Exception) -> None:
    """Raises it."""
    raise error


def caught(error: Exception) -> Exception:
    """The error with the traceback of a real failure."""
    with suppress(type(error)):
        fail(error)
    return error


def test_an_exchange_ends_with_one_line_of_facts() -> None:
    """What is not known is not in it."""
    out = io.StringIO()
    with open_log("json", lines_max=10, out=out) as log:
        log.observe(ENDED)
        log.observe(Observation(What.VIOLATION, "ex-1", code="empty_answer"))
    first, second = lines(out)
    assert first.pop("timestamp").endswith("Z")
    assert first == {
        "event": "exchange_ended",
        "level": "info",
        "exchange": "ex-1",
        "attempt": 2,
        "code": "success",
        "framing": "chat_sse",
        "status": 200,
        "count": 512,
        "seconds": 1.234568,
    }
    assert second["level"] == "warning"
    assert second.keys() == {"event", "level", "timestamp", "exchange", "code", "seconds"}


def test_the_line_of_an_exchange_says_what_was_measured() -> None:
    """Times that there were, and tokens by what became of them; an attempt's says why it was made."""
    out = io.StringIO()
    spent = (
        Spent(TokenKind.WASTED, 2, "stream_cut"),
        Spent(TokenKind.WASTED, 3, "gap_timeout"),
        Spent(TokenKind.REPORTED, 9),
    )
    with open_log("json", lines_max=10, out=out) as log:
        log.observe(
            Observation(
                What.ATTEMPT_ENDED,
                "ex-1",
                attempt=2,
                code="complete",
                provider="local",
                directive="exact",
                reason="stream_cut",
            )
        )
        measured = Measured(2.0, 0.12345678, 0.0, spent=spent)
        log.observe(Observation(What.EXCHANGE_ENDED, "ex-1", route="default", measured=measured))
    attempt, exchange = lines(out)
    assert (attempt["directive"], attempt["reason"]) == ("exact", "stream_cut")
    assert exchange["route"] == "default"
    assert exchange["held_seconds"] == 2.0
    assert exchange["ttft_seconds"] == 0.123457
    assert exchange["ttft_added_seconds"] == 0.0
    assert "token_seconds" not in exchange
    assert (exchange["tokens_wasted"], exchange["tokens_reported"]) == (5, 9)
    assert "tokens_estimated" not in exchange


def test_a_log_for_people_is_text() -> None:
    """With the same words, and no colours for a file to keep."""
    out = io.StringIO()
    with open_log("text", lines_max=10, out=out) as log:
        log.observe(ENDED)
    assert "exchange_ended" in out.getvalue()
    assert "code=success" in out.getvalue()
    assert "\x1b" not in out.getvalue()


def test_what_no_operator_reads_is_no_line() -> None:
    """Beginnings and admissions are for counters and traces."""
    out = io.StringIO()
    with open_log("json", lines_max=10, out=out) as log:
        for what in (What.EXCHANGE_STARTED, What.ATTEMPT_STARTED, What.ATTEMPT_ADMITTED, What.PLAN):
            log.observe(Observation(what, "ex-1"))
        log.observe(ENDED)
    assert [line["event"] for line in lines(out)] == ["exchange_ended"]


def test_a_bug_is_logged_by_its_places() -> None:
    """Every exception of a group; never its text, which may quote a request."""

    out = io.StringIO()
    inner = ExceptionGroup("secret", [caught(KeyError("secret")), ValueError("secret")])
    with open_log("json", lines_max=10, out=out) as log:
        log.crashed("ex-1", ExceptionGroup("secret", [inner, caught(OSError("secret"))]))
    [line] = lines(out)
    assert (line["event"], line["level"], line["exchange"]) == ("crashed", "error", "ex-1")
    kinds, places = zip(*(each.split(" at ") for each in line["errors"]), strict=True)
    assert kinds == ("KeyError", "ValueError", "OSError")
    assert "test_telemetry.py:" in places[0]
    assert places[1] == "?"
    assert "secret" not in out.getvalue()


def test_a_connection_that_failed_is_logged_by_its_places() -> None:
    """A warning: the server's doing, or its caller's; the text may quote what the caller sent."""
    out = io.StringIO()
    with open_log("json", lines_max=10, out=out) as log:
        log.connection_failed(ExceptionGroup("secret", [caught(ValueError("secret"))]))
    [line] = lines(out)
    assert (line["event"], line["level"]) == ("connection_failed", "warning")
    [place] = line["errors"]
    assert place.startswith("ValueError at ")
    assert "secret" not in out.getvalue()


def test_lines_beyond_the_queue_are_dropped_and_counted() -> None:
    """Nobody waits for the log."""
    out = io.StringIO()
    log = sink(out, lines_max=2)
    for number in range(5):
        log.say("info", "line", number=number)
    assert log.dropped == 3
    thread = threading.Thread(target=log.run)
    thread.start()
    log.close()
    thread.join()
    assert [line["number"] for line in lines(out)] == [0, 1]


def test_a_broken_log_stops_neither_the_thread_nor_the_gate() -> None:
    """The lines are counted, and the log goes on when it can be written again."""
    out = Refusing(2)
    with open_log("json", lines_max=10, out=out) as log:
        for number in range(3):
            log.say("info", "line", number=number)
    assert log.dropped == 2
    assert [line["number"] for line in lines(out)] == [2]


def test_lines_are_written_while_the_log_is_open_each_with_its_own_time() -> None:
    """Those that come close together are written together, and say when each was said."""
    out = Stuck()
    with open_log("json", lines_max=10, out=out) as log:
        before = datetime.now(UTC)
        log.say("info", "first")
        assert out.reached.wait(5)
        log.say("info", "while the first is written")
        after = datetime.now(UTC)
        out.go_on.set()
    said = [datetime.fromisoformat(line["timestamp"]) for line in lines(out)]
    assert len(said) == 2
    assert before <= said[0] <= said[1] <= after


def test_every_line_is_out_when_the_log_closes() -> None:
    """However many there still were."""
    out = io.StringIO()
    with open_log("json", lines_max=5000, out=out) as log:
        for number in range(5000):
            log.say("info", "line", number=number)
    assert len(lines(out)) == 5000


def test_a_log_that_is_stuck_holds_up_no_shutdown() -> None:
    """With as many lines before it as there may be, too: the wait has an end."""
    out = Stuck()
    log = sink(out, lines_max=1)
    thread = threading.Thread(target=log.run, daemon=True)
    thread.start()
    log.say("info", "line")
    assert out.reached.wait(5)
    log.say("info", "line")
    log.say("info", "one too many")
    began = time.monotonic()
    log.close(seconds=0.1)
    assert time.monotonic() - began < 5
    assert log.dropped == 1
    out.go_on.set()
    log.close(seconds=5)
    thread.join(5)
    assert not thread.is_alive()


# --- several probes ------------------------------------------------------------------------------


def test_every_probe_gets_every_observation() -> None:
    """In the order in which they are told."""
    first: list[Observation] = []
    second: list[Observation] = []
    probe = FanOut(first.append, second.append, crashed=no_crash)
    probe(ENDED)
    assert (first, second, probe.dropped) == ([ENDED], [ENDED], 0)


def test_a_probe_that_raises_hurts_nobody() -> None:
    """The others get what it has lost; every loss is counted, and the first is told, by its exchange."""
    told: list[tuple[str, BaseException]] = []
    seen: list[Observation] = []

    def broken(_: Observation) -> None:
        raise KeyError("a bug")

    def crashed(exchange: str, error: BaseException) -> None:
        told.append((exchange, error))

    probe = FanOut(broken, seen.append, crashed=crashed)
    for _ in range(3):
        probe(ENDED)
    assert (len(seen), probe.dropped) == (3, 3)
    [(exchange, error)] = told
    assert exchange == "ex-1"
    assert isinstance(error, KeyError)
