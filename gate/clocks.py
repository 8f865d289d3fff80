"""An attempt's clocks as one deadline: which one is armed, until when, and what it means that it ran out. Pure: times are passed in.

A streamed attempt is under `connect`, then `headers`, then `first content` until its first progress, then `gap` between progress; a non-streamed
one under `connect` and `json` alone. The total deadline ends an attempt that has made no progress. When the answer is complete, the grace
for usage and `[DONE]` runs, and running out is no failure any more.
"""

from __future__ import annotations

from gate.config import ClocksConfig
from gate.events import Complete, HowEnded
from gate.failure import Failure, FailureKind

__all__ = ["AttemptClocks"]

_NEVER = float("inf")


class AttemptClocks:
    """Each method takes the time (seconds) and returns the new deadline. `last`: no other attempt could follow, so patience grows."""

    def __init__(self, config: ClocksConfig, *, stream: bool, last: bool, total: float) -> None:
        self._config = config
        self._stream = stream
        self._factor = config.last_candidate_factor if last else 1.0
        self._total = total
        self._kind = FailureKind.CONNECT
        self._own = _NEVER  # the deadline of the clock that runs, whatever bounds it
        self._began = 0.0
        self._paused_at = 0.0
        self._progressed = False
        self._complete = False

    def connect(self, now: float) -> float:
        """The attempt begins."""
        self._began = now
        return self._set(FailureKind.CONNECT, now + self._config.connect_seconds)

    def connected(self, now: float) -> float:
        """A connection is there; the request is about to be written."""
        if self._stream:
            return self._set(
                FailureKind.NO_HEADERS, now + self._config.headers_seconds * self._factor
            )
        return self._set(FailureKind.JSON_LATE, now + self._config.json_seconds * self._factor)

    def head(self, now: float) -> float:
        """The response head has come."""
        if not self._stream:
            return self._deadline()
        return self._set(
            FailureKind.NO_PROGRESS, now + self._config.first_content_seconds * self._factor
        )

    def progress(self, now: float, *, complete: bool) -> float:
        """Progress was made; `complete`: the answer is whole, and only its grace is left."""
        if complete:
            if not self._complete:
                self._complete = True
                self._own = now + self._config.finish_grace_seconds
            return self._deadline()
        self._progressed = True
        if not self._stream:
            return self._deadline()
        return self._set(FailureKind.STALL, now + self._config.gap_seconds * self._factor)

    def pause(self, now: float) -> None:
        """The runner waits for its channel, not for the provider."""
        self._paused_at = now

    def resume(self, now: float) -> float:
        """The deadline moves by the time that the pause took; a total deadline does not."""
        self._own += now - self._paused_at
        return self._deadline()

    def ran_out(self) -> HowEnded:
        """What it means that the deadline passed."""
        return Complete() if self._complete else Failure(self._earliest()[1])

    def fault(self, failure: Failure) -> HowEnded:
        """What a connection's failure means: nothing, once the answer was complete."""
        return Complete() if self._complete else failure

    def _set(self, kind: FailureKind, deadline: float) -> float:
        self._kind, self._own = kind, deadline
        return self._deadline()

    def _deadline(self) -> float:
        return self._own if self._complete else self._earliest()[0]

    def _earliest(self) -> tuple[float, FailureKind]:
        """The clock that runs out first; the total counts only until there is progress."""
        deadline, kind = self._own, self._kind
        if not self._progressed and self._total < deadline:
            deadline, kind = self._total, FailureKind.TOTAL
        longest = self._config.stream_seconds_max
        if longest and self._stream and self._began + longest < deadline:
            deadline, kind = self._began + longest, FailureKind.STREAM_LIMIT
        return deadline, kind
