"""The machine: what is said of it, what else it does, and how many descriptors it gives."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest

from ops.bench_machine import (
    DescriptorsMissing,
    Elsewhere,
    allow_descriptors,
    cores,
    machine,
    machine_busy_seconds,
)


def test_what_a_reader_needs_to_compare_is_there() -> None:
    """Versions of what is measured, and how busy it was."""
    here = machine()
    assert here.python.startswith("CPython 3.")
    assert here.cores == cores() >= 1
    assert {"tidegate", "trio", "hypercorn", "httpx"} <= here.packages.keys()
    assert here.system
    assert here.processor
    assert here.load >= 0


def test_descriptors_are_raised_as_far_as_the_system_allows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And never lowered."""
    limits = [(1024, 4096)]
    monkeypatch.setattr(resource, "getrlimit", lambda _: limits[-1])
    monkeypatch.setattr(resource, "setrlimit", lambda _, pair: limits.append(pair))
    allow_descriptors(1000)
    assert limits == [(1024, 4096)]
    allow_descriptors(3000)
    assert limits[-1] == (3000, 4096)
    with pytest.raises(DescriptorsMissing, match=r"5000 file descriptors .* allows 4096"):
        allow_descriptors(5000)
    limits.append((1024, resource.RLIM_INFINITY))
    allow_descriptors(5000)
    assert limits[-1] == (5000, resource.RLIM_INFINITY)
    limits.append((resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    allow_descriptors(6000)
    assert limits[-1][0] == resource.RLIM_INFINITY


def test_what_others_do_is_what_is_busy_less_our_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """In CPUs, over the time that has passed; never less than none."""
    now = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    busy = [50.0]
    elsewhere = Elsewhere(lambda: busy[0])
    now[0], busy[0] = 110.0, 65.0
    own = 0.5  # this test takes far less CPU time
    cpus = elsewhere.cpus()
    assert cpus is not None
    assert 1.5 - own <= cpus <= 1.5
    busy[0] = 0.0
    assert elsewhere.cpus() == 0.0


def test_a_system_that_tells_nothing_is_not_taken_for_quiet(tmp_path: Path) -> None:
    """There is no figure then."""
    assert machine_busy_seconds(tmp_path / "none") is None
    assert Elsewhere(lambda: None).cpus() is None


def test_busy_is_everything_but_idle_and_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guests are counted as user time already."""
    stat = tmp_path / "stat"
    stat.write_text("cpu  100 20 30 4000 500 6 7 8 90 9\ncpu0 1 2 3 4 5 6 7 8 9 9\n")
    monkeypatch.setattr("os.sysconf", lambda _: 100)
    assert machine_busy_seconds(stat) == 1.71
