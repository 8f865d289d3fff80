"""The recorder: exchanges on tapes, and a thread that turns tapes into traces on disk.

The loop only takes down; hashing of whole bodies, redaction, encoding and writing are the thread's. Whatever finds no room (a tape its memory, a trace its
place in the queue or on the disk) is dropped and counted: a stream is never delayed and never fails for it.
"""

from __future__ import annotations

import errno
import os
import platform
import queue
import random
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from actors.context import Door, Gateway
from actors.exchange import run_exchange
from actors.ports import Caller
from actors.recording import ended, recorded
from actors.tape import Tape
from gate.config import GatewayConfig
from gate.observe import Outcome, OutcomeKind
from gate.trace import VERSION, Header, digest_of
from gate.trace_codec import encode_binary, sealed
from gate.trace_content import config_tables, sealed_content
from transport.segments import Segments

__all__ = ["Counts", "Recorder", "open_recorder"]

TAPES_BYTES_MAX: Final = 67_108_864  # of all tapes that are not on disk yet
QUEUE_MAX: Final = 256  # traces that wait for the thread
CLOSE_SECONDS: Final = 5.0
KEY_BYTES: Final = 32
PAUSE_SECONDS: Final = 0.0001  # in which the loop takes the interpreter back from the thread
Say = Callable[..., None]


@dataclass(slots=True)
class Counts:
    """What became of exchanges: `written`; `passed_over` by sampling; `dropped` for want of room in memory; `failed` at the disk. `size`: bytes of what was written."""

    written: int = 0
    passed_over: int = 0
    dropped: int = 0
    failed: int = 0
    size: int = 0


@dataclass(frozen=True, slots=True)
class _Job:
    tape: Tape
    exchange: str
    wall: int
    salt: bytes


def _build_of() -> dict[str, str]:
    """What recorded: names and versions."""
    names = ("tidegate", "trio", "msgspec")
    return {"python": platform.python_version(), **{name: version(name) for name in names}}


@dataclass(slots=True)
class Recorder:
    """Runs exchanges and keeps their traces. `key`: of the digests where content is not full; `say`: a line of the log."""

    config: GatewayConfig
    key: bytes
    segments: Segments
    say: Say
    counts: Counts = field(default_factory=Counts)
    draw: Callable[[], float] = random.random
    _jobs: queue.Queue[_Job | None] = field(default_factory=lambda: queue.Queue(QUEUE_MAX))
    _taken: int = 0  # bytes on tapes, counted by the loop
    _given: int = 0  # bytes of tapes that are done with, counted by the thread
    failing: bool = False  # the last trace could not be written
    _build: dict[str, str] = field(default_factory=_build_of)

    async def run(self, door: Door, caller: Caller, gateway: Gateway) -> Outcome:
        """`run_exchange`, on a tape."""
        full = self.config.observe.record_content == "full"
        salt = secrets.token_bytes(KEY_BYTES) if full else b""
        tape = Tape(salt or self.key, take=self._take)
        wall = gateway.world.wall()
        taped_caller, taped_gateway = recorded(door, caller, gateway, tape)
        kept = counted = False
        try:
            outcome = await run_exchange(door, taped_caller, taped_gateway)
            ended(outcome, tape)
            kept = self._wanted(outcome) and self._put(_Job(tape, door.exchange, wall, salt))
            counted = True
        finally:
            self.counts.dropped += not counted  # there was no room for the exchange itself
            if not kept:
                self._taken -= tape.taken_bytes
        return outcome

    def work(self) -> None:
        """The thread: until `close`."""
        while (job := self._jobs.get()) is not None:
            try:
                data = self._encoded(job)
                self.segments.write(data)
                self.counts.written += 1
                self.counts.size += len(data)
                self.failing = False
            except OSError as error:
                self._failed(error)
            except Exception as error:  # noqa: BLE001 - a bug here must cost a trace, not all that would follow
                self._failed(error)
            self._given += job.tape.taken_bytes
        self.segments.close()

    def close(self) -> None:
        """No more traces; the thread writes those that wait, as far as it gets in time."""
        try:
            self._jobs.put(None, timeout=CLOSE_SECONDS)
        except queue.Full:
            self.counts.dropped += 1

    def _failed(self, error: Exception) -> None:
        self.counts.failed += 1
        if not self.failing:
            self.failing = True
            reason = error.strerror if isinstance(error, OSError) and error.strerror else type(error).__name__  # fmt: skip
            self.say("warning", "traces are not recorded", reason=reason)

    def _take(self, size: int) -> bool:
        if self._taken - self._given + size > TAPES_BYTES_MAX:
            return False
        self._taken += size
        return True

    def _wanted(self, outcome: Outcome) -> bool:
        """Sampling by outcome: an exchange that needed more than one attempt is no plain success."""
        observe = self.config.observe
        plain = outcome.kind is OutcomeKind.SUCCESS and outcome.attempts <= 1
        wanted = self.draw() < (observe.sample_success if plain else observe.sample_failure)
        self.counts.passed_over += not wanted
        return wanted

    def _put(self, job: _Job) -> bool:
        try:
            self._jobs.put_nowait(job)
        except queue.Full:
            self.counts.dropped += 1
            return False
        return True

    def _encoded(self, job: _Job) -> bytes:
        content = self.config.observe.record_content
        header = Header(
            VERSION,
            job.exchange,
            self._build,
            job.wall,
            content,
            config_tables(self.config, job.tape.alias),
            job.salt,
            "" if job.salt else digest_of([], self.key).hex(),
        )
        pause = partial(time.sleep, PAUSE_SECONDS)
        records = sealed_content(job.tape.records, content, self.key, pause)
        whole = sealed([header, *records], dropped=job.tape.dropped, truncated=job.tape.truncated)
        return b"".join(map(encode_binary, whole))


@contextmanager
def open_recorder(config: GatewayConfig, say: Say) -> Iterator[Recorder | None]:
    """The recorder with its thread; None where nothing is to be recorded. A folder that can't be used is told in the log, and nothing is recorded."""
    observe = config.observe
    if not observe.record_dir:
        yield None
        return
    folder = Path(observe.record_dir)
    try:
        key = _key(folder)
    except OSError as error:
        say("warning", "traces are not recorded", reason=error.strerror or "no key")
        yield None
        return
    recorder = Recorder(config, key, Segments(folder, observe.record_bytes_max), say)
    thread = threading.Thread(target=recorder.work, name="tidegate-recorder", daemon=True)
    thread.start()
    try:
        yield recorder
    finally:
        recorder.close()
        thread.join(CLOSE_SECONDS)
        counts: dict[str, Any] = {name: getattr(recorder.counts, name) for name in Counts.__slots__}
        say("info", "recorded", **counts)


def _key(folder: Path) -> bytes:
    """The deployment's key, made when it is first asked for. Whoever has it can test guesses of a prompt, so nobody else may read it."""
    folder.mkdir(parents=True, exist_ok=True)
    path, own = folder / "key", folder / f".key-{os.getpid()}"
    if not path.exists():
        descriptor = os.open(own, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(secrets.token_bytes(KEY_BYTES))
        with suppress(FileExistsError):  # another worker was as fast, and its key holds
            os.link(own, path)
        own.unlink()
    key = path.read_bytes()
    if len(key) != KEY_BYTES:
        raise OSError(errno.EINVAL, f"{path} is no key")
    return key
