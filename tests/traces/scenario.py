"""What every exchange of the captured-trace suite is made of: its name and recording, its configuration, services and callers that are out of the common."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Final

import trio

from actors.ports import AwaitingFilter, BodyPart, Disconnected
from gate.errors import FilterUnavailable
from gate.failure import Failure, FailureKind
from gate.filters.awaited import Awaited, Question
from gate.filters.contract import Passed, Verdict, Violated
from gate.trace import Trace
from tests.doubles import RecordingCaller, SlowCaller
from tests.tracing import Recording, tables

CLOCKS: Final = {
    "connect_seconds": 1.0,
    "headers_seconds": 2.0,
    "first_content_seconds": 2.0,
    "gap_seconds": 1.5,
    "json_seconds": 3.0,
    "total_seconds": 30.0,
    "last_candidate_factor": 1.0,
}
HOLDS: Final[Mapping[str, Mapping[str, Any]]] = {
    "live": {"mode": "live"},
    "window": {"mode": "window", "tail_chars": 24, "opening_chars": 8},
    "buffered": {"mode": "buffered"},
}
TOOL_RULES: Final[Mapping[str, Mapping[str, Any]]] = {  # of a request, beside its tools
    "call-beside-words": {"tool_choice": "required"},
    "call-missing": {"tool_choice": "required"},
    "call-not-asked": {"tool_choice": "none"},
    "calls-parallel": {"parallel_tool_calls": False},
}
LIMITS: Final = {"event_bytes_max": 8_192}
SCHEMA: Final = {"type": "object", "properties": {"level": {"type": "integer"}}, "required": ["level"]}  # fmt: skip
FILTERS: Final = ["empty", "repetition", "encoding", "refusal", "tool_calls", "structured_output"]
STRUCTURED: Final = frozenset({"not-json", "off-schema", "fenced"})


@dataclasses.dataclass(frozen=True, slots=True)
class Scenario:
    """One exchange with its name, `fault/form/variant`."""

    name: str
    recording: Recording

    async def take(self) -> Trace:
        return await self.recording.take(self.name.replace("/", "."))


def configured(hold: str, *, route: Mapping[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    """Configuration of two providers under this hold."""
    base = {"hold": HOLDS[hold], "clocks": CLOCKS, "filters": FILTERS, **(route or {})}
    return tables(2, route=base, limits=LIMITS, **more)


class Service:
    """A filter that awaits: `seconds` for each question; denies answers that are `denied` frames long or longer; or can't be asked."""

    def __init__(self, seconds: float, *, denied: int = 0, fault: str = "") -> None:
        self._seconds = seconds
        self._denied = denied
        self._fault = fault

    def begin(self, exchange: str, attempt: int, awaited: Awaited) -> AwaitingFilter:
        return self

    async def judge(self, question: Question) -> Verdict:
        await trio.sleep(self._seconds)
        if self._fault:
            raise FilterUnavailable(self._fault)
        if self._denied and question.end >= self._denied:
            failure = Failure(FailureKind.DENIED_NEXT, verdict="denied_by_service")
            return Violated(question.start, "denied_by_service", failure)
        return Passed(question.end)


class WaitingCaller(RecordingCaller):
    """Leaves after so many seconds, whatever it has got; or reads nothing any more from there, which nobody can tell from leaving."""

    def __init__(self, seconds: float, *parts: bytes) -> None:
        super().__init__(*parts)
        self._seconds = seconds

    async def receive(self) -> BodyPart | Disconnected:
        if self.unsent:
            return await super().receive()
        with trio.move_on_after(self._seconds):
            return await super().receive()
        self.leave()
        return await super().receive()


class DeadCaller(RecordingCaller):
    """Takes nothing, until the server cuts its connection: a write can't be cancelled before."""

    async def write(self, data: bytes) -> None:
        await self._stuck(data)

    async def end(self, data: bytes = b"") -> None:
        await self._stuck(data)
        if not self._left.is_set():
            await super().end()

    async def _stuck(self, data: bytes) -> None:
        await super().write(data)
        # Bounded by: the server's own write limit, which this stands for.
        with trio.CancelScope(shield=True):
            await trio.sleep(2.5)
        self.leave()


def callers(asked: bytes) -> Mapping[str, RecordingCaller]:
    """Those that misbehave under any hold; `asked`: what they ask for."""
    return {
        "leaves-waiting": WaitingCaller(0.2, asked),
        "slow": SlowCaller(asked, seconds=0.4),
        "takes-nothing": DeadCaller(asked),
    }


class LeavingCaller(RecordingCaller):
    """Leaves when it has got so many pieces."""

    def __init__(self, pieces: int, *parts: bytes) -> None:
        super().__init__(*parts)
        self._pieces = pieces

    async def write(self, data: bytes) -> None:
        await super().write(data)
        if len(self.writes) == self._pieces:
            self.leave()
