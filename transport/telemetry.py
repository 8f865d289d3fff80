"""Where observations go: one structured log line for what an operator reads, written by a thread of its own.

The probe is called inside the actors, so it only puts a record into a bounded queue; a full queue drops and counts. Standard error may be a pipe that
nobody reads: that stops the thread, never a stream.
"""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, Final, TextIO

import structlog

from gate.observe import Measured, Observation, Probe, What

__all__ = ["FanOut", "LogSink", "open_log"]

CLOSE_SECONDS: Final = 2.0  # lines that are left at the end have so long to be written
GATHER_SECONDS: Final = 0.05  # how long a line may wait for others
_LEVELS: Final = {
    What.EXCHANGE_ENDED: "info",
    What.ATTEMPT_ENDED: "info",
    What.VIOLATION: "warning",
    What.REMARK: "info",
    What.ORPHANED: "info",
    What.FINISH_UNKNOWN: "info",
    What.FINISH_MISSING: "info",
    What.GIVE_UP: "warning",
    What.CRASHED: "error",
}
_FIELDS: Final = (
    "exchange",
    "attempt",
    "code",
    "provider",
    "directive",
    "reason",
    "route",
    "framing",
    "status",
    "count",
    "filter",
    "idempotency",
)
_TIMES: Final = ("held_seconds", "ttft_seconds", "ttft_added_seconds", "token_seconds")


class FanOut:
    """One probe of several. One that raises is a bug of ours: it has lost that observation, the others get it, and no stream hears of it.

    `crashed` is told of the first such error; the others are only counted.
    """

    def __init__(self, *probes: Probe, crashed: Callable[[str, BaseException], None]) -> None:
        self.dropped = 0
        self._probes = probes
        self._crashed = crashed

    def __call__(self, observation: Observation) -> None:
        for probe in self._probes:
            try:
                probe(observation)
            except Exception as error:  # noqa: BLE001 - a stream does not end because it could not be counted
                self.dropped += 1
                if self.dropped == 1:
                    self._crashed(observation.exchange, error)


class LogSink:
    """A probe (`observe`) and a logger for everything else; both leave lines for a thread to write, and return at once.

    The thread lets some come together: woken for each line, it would cost an exchange more than all that the exchange itself does about its log.
    """

    def __init__(
        self, *, lines_max: int, renderer: structlog.typing.Processor, out: TextIO
    ) -> None:
        self.dropped = 0
        self._lines: deque[tuple[str, str, dict[str, Any]]] = deque()
        self._lines_max = lines_max
        self._some = threading.Event()  # there are lines, or the end
        self._closing = threading.Event()
        self._written = threading.Event()
        processors = [structlog.processors.add_log_level, renderer]
        # Bound once: the lazy logger binds itself anew for every line.
        self._logger = structlog.wrap_logger(
            structlog.PrintLogger(out), processors=processors
        ).bind()

    def observe(self, observation: Observation) -> None:
        """Logs what an operator reads; the rest is for counters and traces."""
        level = _LEVELS.get(observation.what)
        if level is None:
            return
        values = {name: value for name in _FIELDS if (value := getattr(observation, name))}
        values["seconds"] = round(observation.seconds, 6)
        if observation.measured is not None:
            values |= _measured(observation.measured)
        self.say(level, observation.what.value, **values)

    def crashed(self, exchange: str, error: BaseException) -> None:
        """A bug of ours: where it happened, by file and line; never the text of the exception, which may quote a request."""
        self.say("error", What.CRASHED.value, exchange=exchange, errors=list(_places(error)))

    def connection_failed(self, error: BaseException) -> None:
        """A caller's connection ended in an exception of the server's: where, as for a bug of ours."""
        self.say("warning", "connection_failed", errors=list(_places(error)))

    def say(self, level: str, event: str, **values: Any) -> None:
        """One line, or one more that was dropped."""
        if len(self._lines) >= self._lines_max:
            self.dropped += 1
            return
        values["timestamp"] = datetime.now(UTC)
        self._lines.append((level, event, values))
        if not self._some.is_set():
            self._some.set()

    def run(self) -> None:
        """The thread: until `close`."""
        while not self._closing.is_set() or self._lines:
            self._some.wait()
            self._closing.wait(GATHER_SECONDS)
            self._some.clear()  # before the lines are taken: one that comes meanwhile sets it again
            while self._lines:
                self._write(*self._lines.popleft())
        self._written.set()

    def _write(self, level: str, event: str, values: dict[str, Any]) -> None:
        values["timestamp"] = values["timestamp"].isoformat().replace("+00:00", "Z")
        try:
            getattr(self._logger, level)(event, **values)
        except (OSError, ValueError):
            self.dropped += 1  # nobody can be told: the log itself is what failed

    def close(self, *, seconds: float = CLOSE_SECONDS) -> None:
        """No more lines; returns when all are written, or after so long."""
        self._closing.set()
        self._some.set()
        self._written.wait(seconds)


def _measured(measured: Measured) -> dict[str, Any]:
    """Times that there were, and tokens by what became of them."""
    times = {name: getattr(measured, name) for name in _TIMES}
    values: dict[str, Any] = {
        name: round(value, 6) for name, value in times.items() if value is not None
    }
    for spent in measured.spent:
        name = f"tokens_{spent.kind.value}"
        values[name] = values.get(name, 0) + spent.tokens
    return values


def _places(error: BaseException) -> Iterator[str]:
    """Type, file and line of every exception in a group."""
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _places(inner)
        return
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    place = f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}" if trace else "?"
    yield f"{type(error).__name__} at {place}"


@contextmanager
def open_log(form: str, *, lines_max: int, out: TextIO | None = None) -> Iterator[LogSink]:
    """A log with its thread. `form`: `json` or `text`."""
    renderer: structlog.typing.Processor = structlog.processors.JSONRenderer()
    if form == "text":
        renderer = structlog.dev.ConsoleRenderer(colors=False)
    sink = LogSink(lines_max=lines_max, renderer=renderer, out=out or sys.stderr)
    threading.Thread(target=sink.run, name="tidegate-log", daemon=True).start()
    try:
        yield sink
    finally:
        sink.close()
