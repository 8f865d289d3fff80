"""Traces on disk: segments that are written one after another, of which the oldest go when all together are too large.

Called by one thread. A write that fails leaves the segment as it was before it, as far as the disk allows, and the next one begins a new segment.
"""

from __future__ import annotations

import datetime
import errno
import os
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Final

__all__ = ["SUFFIX", "Segments"]

SUFFIX: Final = ".trace"
PREFIX: Final = "tidegate-"  # what has another name is somebody's own
SEGMENT_BYTES_MAX: Final = 67_108_864
SEGMENTS_MIN: Final = 8  # a directory that is full loses an eighth at a time, not all of it


class Segments:
    """At most `bytes_max` bytes of segments in `folder`, which other processes may write to as well."""

    def __init__(self, folder: Path, bytes_max: int) -> None:
        self._folder = folder
        self._bytes_max = bytes_max
        self._segment_max = max(1, min(SEGMENT_BYTES_MAX, bytes_max // SEGMENTS_MIN))
        self._file: BinaryIO | None = None
        self._written = 0
        self._number = 0

    def write(self, data: bytes) -> None:
        """Appends one trace. Raises `OSError` where it can't be kept."""
        if len(data) > self._bytes_max:
            raise OSError("a trace is larger than all segments may be")
        if self._file is not None and self._written + len(data) > self._segment_max:
            self.close()
        if self._file is None:
            self._open(len(data))
        assert self._file is not None, "opened just now"
        try:
            _write_whole(self._file, data)
        except OSError:
            self._give_up(self._file)
            raise
        self._written += len(data)

    def close(self) -> None:
        """Ends the segment; the next write begins another."""
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def _open(self, coming: int) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        self._make_room(coming)
        descriptor = self._fresh()
        self._file = os.fdopen(descriptor, "wb", buffering=0)
        self._written = 0

    def _fresh(self) -> int:
        """A new file whose name nobody has, in order of time."""
        began = datetime.datetime.now(datetime.UTC).strftime("%Y%m%dT%H%M%S")
        while True:
            self._number += 1
            name = f"{PREFIX}{began}-{os.getpid()}-{self._number:06d}{SUFFIX}"
            # A process of the same number in the same second had the name before.
            with suppress(FileExistsError):
                return os.open(self._folder / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)

    def _make_room(self, coming: int) -> None:
        """Deletes the oldest segments until a whole new one has room."""
        wanted = max(coming, self._segment_max)
        sizes: dict[Path, int] = {}
        for path in sorted(self._folder.glob(f"{PREFIX}*{SUFFIX}")):
            with suppress(FileNotFoundError):  # another process was as fast
                sizes[path] = path.stat().st_size
        total = sum(sizes.values())
        for path, size in sizes.items():
            if total + wanted <= self._bytes_max:
                break
            path.unlink(missing_ok=True)
            total -= size

    def _give_up(self, file: BinaryIO) -> None:
        with suppress(OSError):
            os.ftruncate(file.fileno(), self._written)
        with suppress(OSError):
            self.close()


def _write_whole(file: BinaryIO, data: bytes) -> None:
    """A disk that has become full takes what it still has room for, and says so by a number only. Raises `OSError`."""
    if file.write(data) != len(data):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
