"""The demonstration: five requests, each sent twice, and what a caller gets without the gate and with it.

Everything runs in this process on loopback ports that the system chooses: a provider that breaks as each request's model name says, a healthy
one, and the gateway before both. Nothing of what is shown is written down here: it follows from what a plain client has seen.
"""

from __future__ import annotations

import io
import json
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from types import MappingProxyType
from typing import Final

import msgspec
import trio
from msgspec import Struct
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from gate.config import ClocksConfig, RecoveryConfig
from gate.config_check import decode_config
from ops.demo_client import End, Seen, ask, plain_client
from ops.provider import running_provider
from ops.provider_script import Pace, Script
from transport.asgi import App
from transport.configfile import Loaded, Secrets
from transport.serve import open_listener, serve_until

QUICK: Final = Script(pace=Pace(chunk_ms=5))  # the demo is about faults
COLUMNS_MAX: Final = 116  # wider lines are hard to read
FAULT_COLUMNS: Final = 12


class Case(Struct, frozen=True):
    """A fault in plain words, the model name that asks the provider for it, and what the caller asks."""

    fault: str
    model: str
    question: str

    def body(self, model: str | None = None) -> bytes:
        """The request; to another model only where the healthy answer is wanted for comparison."""
        messages = [{"role": "user", "content": self.question}]
        asked = {"model": model or self.model, "stream": True, "messages": messages}
        return msgspec.json.encode(asked)


CASES: Final = (
    Case("cut in mid-answer", "clean-cut:12", "When does the gate open?"),
    Case("stall", "stall:18", "Who rings the bell?"),
    Case("error inside a 200", "error-in-200", "May I pass tonight?"),
    Case("empty answer", "empty", "What goes into the book?"),
    Case("malformed event", "malformed:15", "How deep is the channel?"),
)


class Clocks(Struct, frozen=True, kw_only=True):
    """How long the gateway waits for a provider's next piece, and the plain client for anything at all."""

    gap_seconds: float = 1.0
    patience_seconds: float = 4.0


class Row(Struct, frozen=True, kw_only=True):
    """One request without and with the gate. `answer`: what the healthy provider says to it."""

    fault: str
    model: str
    question: str
    answer: str
    without_gate: Seen
    with_gate: Seen

    @property
    def whole(self) -> bool:
        """Whether the caller of the gateway got what a healthy provider says, to its end."""
        return self.with_gate.end is End.WHOLE and self.with_gate.text == self.answer


class Report(Struct, frozen=True, kw_only=True):
    """All that was measured."""

    rows: tuple[Row, ...]
    clocks: Clocks
    seconds: float

    @property
    def whole(self) -> int:
        """How many answers came whole through the gate."""
        return sum(row.whole for row in self.rows)


# --- the run -------------------------------------------------------------------------------------


def _config(faulty: str, healthy: str, cases: Sequence[Case], clocks: Clocks) -> Loaded:
    """Each case's model name is an alias too, so that both callers send the same bytes."""
    patient = {"failures": 1 + len(cases) * RecoveryConfig().attempts_max}
    raw: dict[str, object] = {
        "server": {"bind": "127.0.0.1:0"},
        "providers": [
            # An open breaker would spare the later requests the faulty provider.
            {"name": "faulty", "base_url": faulty, "breaker": patient},
            {"name": "healthy", "base_url": healthy},
        ],
        "models": [
            {
                "alias": case.model,
                "targets": [
                    {"provider": "faulty", "model": case.model, "priority": 0},
                    {"provider": "healthy", "model": "healthy", "priority": 1},
                ],
            }
            for case in cases
        ],
        "routes": {
            "default": {
                "filters": ["empty"],
                "hold": {"mode": "buffered"},
                "clocks": {
                    "headers_seconds": clocks.gap_seconds,
                    "first_content_seconds": clocks.gap_seconds,
                    "gap_seconds": clocks.gap_seconds,
                },
            }
        },
    }
    secrets = Secrets(keys={}, providers={}, filters={}, admin="")
    return Loaded(decode_config(raw), raw, secrets, source="the demo")


@asynccontextmanager
async def _running_gateway(loaded: Loaded, log: io.StringIO) -> AsyncIterator[str]:
    """The gateway on a free loopback port; its base URL."""
    listener = open_listener(loaded.config.server)
    host, port = listener.getsockname()
    application = App(lambda: loaded, owns_listener=True, log_out=log)
    stop = trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve_until, stop, application, loaded, listener)
        yield f"http://{host}:{port}/v1"
        stop.set()


async def measure(clocks: Clocks, log: io.StringIO, *, cases: Sequence[Case] = CASES) -> Report:
    """Asks everything, one request after the other. The gateway's own log goes to `log`."""
    began = trio.current_time()
    async with running_provider(QUICK) as faulty, running_provider(QUICK) as healthy:
        loaded = _config(faulty.base_url, healthy.base_url, cases, clocks)
        async with (
            _running_gateway(loaded, log) as gateway,
            plain_client(clocks.patience_seconds) as client,
        ):
            rows = [
                Row(
                    fault=case.fault,
                    model=case.model,
                    question=case.question,
                    answer=(await ask(client, healthy.base_url, case.body("healthy"))).text,
                    without_gate=await ask(client, faulty.base_url, case.body()),
                    with_gate=await ask(client, gateway, case.body()),
                )
                for case in cases
            ]
    seconds = round(trio.current_time() - began, 2)
    return Report(rows=tuple(rows), clocks=clocks, seconds=seconds)


async def run_demo(as_json: bool, *, cases: Sequence[Case] = CASES) -> int:
    """Measures and shows; the exit code."""
    log, clocks = io.StringIO(), Clocks()
    if as_json:
        report = await measure(clocks, log, cases=cases)
        print(json.dumps(_facts(report), indent=2))
        return conclude(report, log.getvalue())
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # not every terminal's encoding has all signs
    console = Console()
    with console.status("Asking everything twice; some seconds of it are silence ..."):
        report = await measure(clocks, log, cases=cases)
    show(report, console)
    return conclude(report, log.getvalue())


def conclude(report: Report, log: str) -> int:
    """The exit code: 0 where every answer came whole through the gate, else 1, with the gateway's log on stderr."""
    if report.whole == len(report.rows):
        return 0
    print(log, end="", file=sys.stderr)
    return 1


def _facts(report: Report) -> object:
    """The report, with each row's verdict beside its facts."""
    rows = [{**msgspec.to_builtins(row), "whole": row.whole} for row in report.rows]
    return {**msgspec.to_builtins(report), "rows": rows, "whole": report.whole}


# --- what is shown -------------------------------------------------------------------------------


def show(report: Report, console: Console) -> None:
    """The table, and what has to be known to read it."""
    width = min(console.width, COLUMNS_MAX)
    table = Table(width=width, show_lines=True, box=box.ROUNDED, border_style="dim")
    table.add_column("fault", width=FAULT_COLUMNS, style="bold")
    table.add_column("without the gate", ratio=1)
    table.add_column("with the gate", ratio=1)
    for row in report.rows:
        table.add_row(row.fault, _without(row, report.clocks), _with(row, report.clocks))
    asked = len(report.rows)
    before = sum(row.without_gate.end is End.WHOLE for row in report.rows)
    colour = "green" if report.whole == asked else "red"
    lines = (
        Text(f"{asked} requests, each sent twice: to a provider that breaks, and to the gateway."),
        table,
        Text(f"Whole answers: {before} of {asked} without the gate, ")
        .append(f"{report.whole} of {asked} with it", style=f"bold {colour}")
        .append(f". {report.seconds:.1f} s in all."),
        Text(_reading_aid(report.clocks), style="dim"),
    )
    for line in lines:
        console.print(line, width=width)


def _reading_aid(clocks: Clocks) -> str:
    usual = ClocksConfig()
    return (
        f"The clocks are short here: the gateway waits {clocks.gap_seconds:g} s for a provider's next piece "
        f"(by default {usual.gap_seconds:g} s), and the plain client gives up after {clocks.patience_seconds:g} s of silence "
        '(many wait for minutes). The route holds each answer until it is complete (hold.mode = "buffered"); '
        "a failed attempt is made again, on the same provider or on a healthy one."
    )


def _without(row: Row, clocks: Clocks) -> Text:
    seen = row.without_gate
    style = "green" if seen.end is End.WHOLE else "red"
    return _said(seen.text).append(f"\n-> {_how(seen, clocks)}", style=style)


def _with(row: Row, clocks: Clocks) -> Text:
    """What the caller would have missed stands out."""
    seen, kept = row.with_gate, len(row.without_gate.text)
    said = _said(seen.text)
    if row.whole:
        said.stylize("green", start=kept)
    how = "whole" if row.whole else _how(seen, clocks)
    if seen.end is End.WHOLE and not row.whole:
        how = "ended well, but not the healthy provider's text"
    if seen.attempts is not None:
        how += f"; {_count(seen.attempts, 'attempt')}"
    style = "bold green" if row.whole else "bold red"
    return said.append(f"\n-> {how}; {seen.milliseconds} ms", style=style)


def _said(text: str) -> Text:
    return Text(text) if text else Text("(nothing)", style="dim")


_ENDINGS: Final[Mapping[End, str]] = MappingProxyType(
    {
        End.WHOLE: "whole",
        End.CUT: "cut after {words}; looks complete to most clients",
        End.EMPTY: "finished without a word; looks like a success",
        End.SILENCE: "silence after {words}; gave up {patience:g} s later",
        End.ERROR: "status {status}, then an error event: {error}",
        End.MALFORMED: "malformed event after {words}; the client's parser stops there",
        End.BROKEN: "connection broken after {words}",
        End.REFUSED: "status {status}: {error}",
    }
)


def _how(seen: Seen, clocks: Clocks) -> str:
    """How it ended, in words."""
    return _ENDINGS[seen.end].format(
        words=_count(seen.words, "word"),
        patience=clocks.patience_seconds,
        status=seen.status,
        error=seen.error or "no reason given",
    )


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
