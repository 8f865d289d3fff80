"""Looking at processes from outside, as Linux shows them."""

from __future__ import annotations

import time
from pathlib import Path

PROC = Path("/proc")


def alive(pid: int) -> bool:
    """Whether there is such a process, and no zombie."""
    return _stat(pid)[:1] not in ([], ["Z"])


def has_ended(pid: int, seconds: float = 10.0) -> bool:
    """Whether it has by then."""
    deadline = time.monotonic() + seconds
    while alive(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not alive(pid)


def children_of(pid: int, seconds: float = 30.0) -> list[int]:
    """Those that it has started in sessions of their own, as soon as there is one; none by then: none.

    A library that looks for another one while it is imported starts a process too, for a moment.
    """
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        numbers = [int(each.name) for each in PROC.iterdir() if each.name.isdigit()]
        found = [each for each in numbers if _stat(each)[1:4:2] == [str(pid), str(each)]]
        if found:
            return found
    return []


def _stat(pid: int) -> list[str]:
    """State, parent, group, session and so on; nothing where there is no such process."""
    try:
        return (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []
