"""The processes under test: how one is started and ended, and what it has used."""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

START_SECONDS: Final = 20.0
END_SECONDS: Final = 8.0  # after SIGTERM; then it is killed
POLL_SECONDS: Final = 0.02
LOG_LINES: Final = 12  # of its output, where one has failed

_LISTENING: Final = re.compile(rb"listening on http://127\.0\.0\.1:(\d+)")
_PARENT_DEATH_SIGNAL: Final = 1  # PR_SET_PDEATHSIG, in <linux/prctl.h>
_CPU_CLOCK_OF_PROCESS: Final = (
    2  # CPUCLOCK_SCHED, in the kernel's encoding of a clock of another process
)


class ProcessFailed(Exception):
    """A process under test did not start, or is gone; the text has the end of what it printed."""


class Process:
    """One process, which listens on `port` of 127.0.0.1."""

    def __init__(self, name: str, popen: subprocess.Popen[bytes], port: int, log: Path) -> None:
        self.name = name
        self.port = port
        self._popen = popen
        self._log = log

    def cpu_seconds(self) -> float | None:
        """User and system time so far, of threads that have ended too; None where the system doesn't tell."""
        self._check()
        return cpu_seconds_of(self._popen.pid)

    def resident_bytes(self) -> int | None:
        """What it has in memory; None where the system doesn't tell."""
        self._check()
        return resident_bytes_of(self._popen.pid)

    def _check(self) -> None:
        if self._popen.poll() is not None:
            raise _failed(self.name, self._log)


def cpu_seconds_of(pid: int) -> float | None:
    """The CPU time of a process, to the nanosecond. Only Linux has a clock for it."""
    if sys.platform != "linux":
        return None
    return time.clock_gettime((~pid << 3) | _CPU_CLOCK_OF_PROCESS)


def resident_bytes_of(pid: int) -> int | None:
    """The resident set of a process. Only Linux has `/proc/PID/statm`."""
    if sys.platform != "linux":
        return None
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


@contextmanager
def running(name: str, arguments: Sequence[str], folder: Path) -> Iterator[Process]:
    """Starts `python ARGUMENTS`, waits until it says where it listens, and ends it when the block is left.

    Raises `ProcessFailed`. It is in a group of its own, so that an interrupt from the terminal reaches us alone, and dies with us where the system can promise that.
    """
    log = folder / f"{name}.log"
    # An interrupt while it is being started would leave it to nobody.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        with log.open("wb") as out:
            popen = subprocess.Popen(  # noqa: S603 - our own modules, by our own interpreter
                [sys.executable, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=partial(_begin, before),  # noqa: PLW1509 - there is one thread
            )
        try:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            yield Process(name, popen, _port_of(name, popen, log), log)
        finally:
            _end(popen)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _begin(signals: Iterable[int]) -> None:
    """In the new process, before its program: its parent's signals, and its parent's death."""
    signal.pthread_sigmask(signal.SIG_SETMASK, signals)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PARENT_DEATH_SIGNAL, signal.SIGKILL)


def _port_of(name: str, popen: subprocess.Popen[bytes], log: Path) -> int:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        found = _LISTENING.search(log.read_bytes())
        if found is not None:
            return int(found[1])
        if popen.poll() is not None:
            break
        time.sleep(POLL_SECONDS)
    raise _failed(name, log)


def _failed(name: str, log: Path) -> ProcessFailed:
    lines = log.read_text(errors="replace").splitlines()[-LOG_LINES:]
    return ProcessFailed("\n".join([f"{name} does not run; the last it said:", *lines]))


def _end(popen: subprocess.Popen[bytes]) -> None:
    try:
        popen.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            popen.wait(END_SECONDS)
    finally:
        popen.kill()
        popen.wait()
