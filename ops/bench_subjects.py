"""Who is measured: nothing at all in between, two byte copiers, and the gateway with its usual filters, with none, and with a recorder."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from msgspec import Struct

from ops.bench_process import Process, running

DIRECT: Final = "direct"
ASYNCIO: Final = "asyncio copier"
TRIO: Final = "trio copier"
GATE: Final = "tidegate"
PLAIN: Final = "tidegate, filters = []"
TAPED: Final = "tidegate, recording"

_COPIERS: Final = {ASYNCIO: "ops.bench_asyncio", TRIO: "ops.bench_trio"}
_MODELS: Final = {GATE: "bench", PLAIN: "bench-plain", TAPED: "bench"}
_SHARED: Final = {PLAIN: GATE}  # whose process is another's

CONFIG: Final = """\
[server]
bind = "127.0.0.1:0"
drain_seconds = 1.0

[limits]
exchanges_max = {most}

[[providers]]
name = "bench"
base_url = "http://127.0.0.1:{port}/v1"
concurrency_max = {most}

[[models]]
alias = "bench"
targets = [{{ provider = "bench", model = "bench" }}]

[[models]]
alias = "bench-plain"
route = "plain"
targets = [{{ provider = "bench", model = "bench" }}]

[routes.plain]
filters = []

[routes.default.clocks]
gap_seconds = 300.0

[routes.plain.clocks]
gap_seconds = 300.0
"""
"""As people run it, but for room, and for patience: on a slow machine a turn of all the others may last longer than the usual gap."""
RECORDING: Final = """\

[observe]
record_dir = "{folder}"
record_content = "full"
sample_success = 1.0
"""
SPARE: Final = 64  # exchanges beyond the streams of a scenario


class Subject(Struct, frozen=True):
    """One of them: where it listens, what it is asked for, and its process (None: there is none)."""

    name: str
    port: int
    model: str
    process: Process | None

    @property
    def verbatim(self) -> bool:
        """Whether every byte of the provider's has to come as it is."""
        return self.name not in _MODELS

    def cpu_seconds(self) -> float | None:
        """Of its process so far."""
        return None if self.process is None else self.process.cpu_seconds()

    def names(self, count: int) -> list[str]:
        """Names for so many streams through it."""
        return [f"stream {number} of {self.name}" for number in range(count)]


@contextmanager
def running_subjects(
    provider: int, names: Sequence[str], *, streams_max: int
) -> Iterator[list[Subject]]:
    """Starts what these names need, before the provider at this port, for so many streams at once through each. Raises `ProcessFailed`."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="tidegate-bench-")))
        processes: dict[str, Process] = {}
        for name in names:
            kind = _SHARED.get(name, name)
            if kind != DIRECT and kind not in processes:
                arguments = _arguments(kind, provider, folder, len(names) * streams_max)
                processes[kind] = stack.enter_context(running(kind, arguments, folder))
        yield [_subject(name, provider, processes) for name in names]


def _subject(name: str, provider: int, processes: dict[str, Process]) -> Subject:
    process = processes.get(_SHARED.get(name, name))
    port = provider if process is None else process.port
    return Subject(name, port, _MODELS.get(name, "bench"), process)


def _arguments(kind: str, port: int, folder: Path, streams: int) -> list[str]:
    if kind in _COPIERS:
        return ["-m", _COPIERS[kind], str(port)]
    config = folder / f"{kind}.toml"
    more = RECORDING.format(folder=folder / "traces") if kind == TAPED else ""
    config.write_text(CONFIG.format(port=port, most=streams + SPARE) + more)
    return ["-m", "ops", "serve", "--config", str(config)]
