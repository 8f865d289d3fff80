"""The tape of one exchange: records in memory, bounded, taken down synchronously by whoever sees them.

It never waits and never raises for want of room: content that finds none is kept as its length and digest, records beyond the limit are counted.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

import trio

from gate.observe import Measured
from gate.trace import Part, Ping, Read, Record, Release, Term, digest_of, keyed

__all__ = ["RECORD_BYTES", "TRACE_BYTES_MAX", "TRACE_RECORDS_MAX", "Tape"]

TRACE_BYTES_MAX: Final = 1_048_576  # of content in one trace
TRACE_RECORDS_MAX: Final = 20_000
RECORD_BYTES: Final = 192  # of one beside its content; measured in CPython 3.11: 80 to 180, and 280 for what a filter has answered
JUST_SECONDS: Final = 1e-9  # far more than a sum of times is rounded by


class Tape:
    """`key`: of the digests; `take`: whether there is room, over all tapes, for so many bytes more, content and records alike. `began`: on trio's clock, in seconds. `alias`: of the pool that was asked for; empty while there is none."""

    def __init__(
        self,
        key: bytes,
        *,
        bytes_max: int = TRACE_BYTES_MAX,
        records_max: int = TRACE_RECORDS_MAX,
        take: Callable[[int], bool] = lambda size: True,
    ) -> None:
        self.key = key
        self._clock = (
            trio.lowlevel.current_clock().current_time
        )  # asked for twice or more per chunk
        self.began = self._clock()
        self.records: list[Record] = []
        self.alias = ""
        self.taken_bytes = 0  # what `take` has given
        self.dropped = 0
        self.truncated = False
        self.attempts = 0
        self.measured: Measured | None = None
        self.written = 0  # bytes of the response's body
        self.came = 0  # when the newest word of a provider came
        self._content = 0
        self._bytes_max = bytes_max
        self._records_max = records_max
        self._take = take
        self._output = keyed(key)

    def now(self) -> int:
        """Microseconds since the exchange began."""
        return int((self._clock() - self.began + JUST_SECONDS) * 1e6)  # as `at`: it is not negative

    def at(self, seconds: float) -> int:
        """A moment on trio's clock, as microseconds since the exchange began."""
        return math.floor((seconds - self.began + JUST_SECONDS) * 1e6)

    def moment(self, t: int) -> float:
        """The other way round."""
        return self.began + t / 1e6

    def looked(self, seconds: float) -> tuple[int, float]:
        """A moment that decides something: as it is taken down, and as it is used, which is behind the microsecond that it lies in. So whatever was due by `seconds` is due, here and in a replay."""
        t = self.at(seconds)
        return t, self.moment(t + 1) + JUST_SECONDS

    def add(self, record: Record) -> None:
        """Takes a record down, or counts it."""
        if len(self.records) < self._records_max and self._take(RECORD_BYTES):
            self.taken_bytes += RECORD_BYTES
        elif not isinstance(record, Term):
            self.dropped += 1
            self.truncated = True
            return
        self.records.append(record)

    def part(self, t: int, data: bytes, *, last: bool) -> None:
        """A part of the caller's body."""
        if self._keeps(len(data)):
            self.add(Part(t, len(data), last, data))
        else:
            self.add(Part(t, len(data), last, sha=digest_of([data], self.key)))

    def read(self, n: int, t: int, waited: int, data: bytes) -> None:
        """What a read of attempt `n` returned."""
        size = len(data)
        if self._keeps(size):
            self.add(Read(n, t, waited, size, data))
        else:
            self.add(Read(n, t, waited, size, sha=digest_of([data], self.key)))

    def body_digest(self, pieces: list[bytes | memoryview], size: int) -> bytes:
        """The digest of an attempt's body; empty for one that is too large to look at on the loop."""
        if size > self._bytes_max:
            self.truncated = True
            return b""
        return digest_of(pieces, self.key)

    def wrote(self, t: int, data: bytes) -> None:
        """Bytes of the response's body were handed over."""
        if data:
            self._output.update(data)
            self.written += len(data)
            self.add(Release(t, self.written, len(data), self._output.digest()))

    def pinged(self, t: int) -> None:
        """A comment of ours was handed over."""
        self.add(Ping(t))

    def output_digest(self) -> bytes:
        """Of all that was written."""
        return self._output.digest()

    def _keeps(self, size: int) -> bool:
        if self._content + size > self._bytes_max or not self._take(size):
            self.truncated = True
            return False
        self._content += size
        self.taken_bytes += size
        return True

    def __repr__(self) -> str:
        return f"Tape({len(self.records)} records, {self._content} bytes)"
