"""The processes that are measured: started, read, and never left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ops.bench_process import ProcessFailed, cpu_seconds_of, resident_bytes_of, running
from tests.ops.processes import alive, has_ended

LISTENS = "print('listening on http://127.0.0.1:4711', flush=True)\n"
WAITS = "import time\ntime.sleep(60)\n"
LINUX = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells")


@LINUX
@pytest.mark.e2e
def test_a_process_listens_is_read_and_ends_with_its_block(tmp_path: Path) -> None:
    """CPU time grows by what it does; memory is a process's."""
    work = "sum(range(3_000_000))\n"
    with running("worker", ["-c", work + LISTENS + WAITS], tmp_path) as process:
        assert process.port == 4711
        used, resident = process.cpu_seconds(), process.resident_bytes()
        pid = process._popen.pid
        assert alive(pid)
    assert used is not None
    assert used > 0.01
    assert resident is not None
    assert resident > 1 << 20
    assert not alive(pid)


@pytest.mark.e2e
def test_one_that_does_not_start_says_what_it_printed(tmp_path: Path) -> None:
    """Not only that it failed."""
    with (
        pytest.raises(ProcessFailed, match=r"(?s)bad does not run.*no such port"),
        running("bad", ["-c", "raise SystemExit('no such port')"], tmp_path),
    ):
        pass


@pytest.mark.e2e
def test_one_that_never_listens_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Longer than it may take to start."""
    monkeypatch.setattr("ops.bench_process.START_SECONDS", 0.3)
    with pytest.raises(ProcessFailed), running("mute", ["-c", WAITS], tmp_path):
        pass


@pytest.mark.e2e
def test_one_that_is_gone_is_no_figure(tmp_path: Path) -> None:
    """Zero more CPU time would look good."""
    with running("short", ["-c", LISTENS], tmp_path) as process:
        process._popen.wait()
        with pytest.raises(ProcessFailed):
            process.cpu_seconds()
        with pytest.raises(ProcessFailed):
            process.resident_bytes()


@pytest.mark.e2e
def test_one_that_ignores_the_signal_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a while."""
    monkeypatch.setattr("ops.bench_process.END_SECONDS", 0.2)
    deaf = "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    with running("deaf", ["-c", deaf + LISTENS + WAITS], tmp_path) as process:
        pass
    assert process._popen.returncode == -signal.SIGKILL


@LINUX
@pytest.mark.e2e
def test_nobody_outlives_a_bench_that_was_killed(tmp_path: Path) -> None:
    """Not even where it had no moment left to end what it had started."""
    program = (
        "import sys, time\n"
        "from pathlib import Path\n"
        "from ops.bench_process import running\n"
        f"with running('child', ['-c', {LISTENS + WAITS!r}], Path({str(tmp_path)!r})) as child:\n"
        "    print(child._popen.pid, flush=True)\n"
        "    time.sleep(60)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)  # noqa: S603 - the lines above
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    assert alive(child)
    parent.kill()
    parent.wait()
    parent.stdout.close()
    assert has_ended(child)


def test_another_system_tells_nothing_and_that_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tables show a dash."""
    monkeypatch.setattr(sys, "platform", "plan9")
    assert cpu_seconds_of(os.getpid()) is None
    assert resident_bytes_of(os.getpid()) is None
