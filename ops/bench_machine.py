"""Where the bench has run: the machine, the versions, what else it was doing, and how many descriptors a process may have."""

from __future__ import annotations

import os
import platform
import resource
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Final

from msgspec import Struct

PACKAGES: Final = ("tidegate", "trio", "hypercorn", "httpx", "httptools", "msgspec")
_IDLE: Final = frozenset({3, 4})  # of the numbers of a line of /proc/stat: idle, waiting for a disk
_GUEST: Final = 8  # from here on counted twice


class Machine(Struct, frozen=True, kw_only=True):
    """What has to be known to compare one run with another. `load`: the average over the last minute, before the run."""

    system: str
    processor: str
    cores: int
    python: str
    packages: dict[str, str]
    load: float


def machine() -> Machine:
    """This one, now."""
    return Machine(
        system=f"{platform.system()} {platform.release()} {platform.machine()}",
        processor=_processor(Path("/proc/cpuinfo")),
        cores=cores(),
        python=f"{platform.python_implementation()} {platform.python_version()}",
        packages={name: version(name) for name in PACKAGES},
        load=round(os.getloadavg()[0], 2),
    )


def cores() -> int:
    """How many this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _processor(cpuinfo: Path) -> str:
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    return platform.processor() or "unknown"


class DescriptorsMissing(Exception):
    """The system does not let a process have as many descriptors as are needed."""


def allow_descriptors(needed: int) -> None:
    """Raises this process's limit, which those that it starts inherit, as far as it may. Raises `DescriptorsMissing`."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise DescriptorsMissing(
            f"{needed} file descriptors are needed in one process, and the system allows {hard} (ulimit -Hn)"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


class Elsewhere:
    """How many CPUs are busy with what is neither this process nor one that it has started, and waited for, since."""

    def __init__(self, busy_seconds: Callable[[], float | None] | None = None) -> None:
        self._busy = busy_seconds or machine_busy_seconds
        self._began = time.monotonic()
        self._before = self._others()

    def cpus(self) -> float | None:
        """On average, from the beginning to now; None where the system doesn't tell."""
        now, seconds = self._others(), time.monotonic() - self._began
        if now is None or self._before is None or not seconds:
            return None
        return round(max(0.0, (now - self._before) / seconds), 2)

    def _others(self) -> float | None:
        busy = self._busy()
        if busy is None:
            return None
        used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        return busy - sum(each.ru_utime + each.ru_stime for each in used)


def machine_busy_seconds(stat: Path = Path("/proc/stat")) -> float | None:
    """CPU seconds that the whole machine has spent on anything since it started; only Linux tells."""
    if not stat.exists():
        return None
    ticks = [int(each) for each in stat.read_text().splitlines()[0].split()[1:]][:_GUEST]
    busy = sum(each for index, each in enumerate(ticks) if index not in _IDLE)
    return busy / os.sysconf("SC_CLK_TCK")
