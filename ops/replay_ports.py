"""The ports of a replay: provider, caller, filters that await and the process, all of them speaking from one script.

Where the run asks for what the recording can't tell (an attempt with another body, more of an answer than was read), it has reached its horizon: what would have come is not known,
and nothing is made up. `Horizon` says where, and the run is cancelled there.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from math import inf
from typing import Final, NoReturn

import msgspec
import trio

from actors.dispatch import Dispatch, Place
from actors.ports import (
    AwaitingFilter,
    BodyPart,
    Disconnected,
    FilterUnavailable,
    Headers,
    UpstreamFailed,
    UpstreamRequest,
)
from actors.world import Moment, World
from gate.errors import UpstreamFault
from gate.explain import is_comment
from gate.filters.awaited import Awaited, Question
from gate.filters.contract import Passed, Verdict, Violated
from gate.filters.policed import DEADLINE
from gate.health import ProviderHealth
from gate.retry_budget import RetryBudget
from gate.trace import Answered, Fact, digest_of
from ops.replay_script import SLACK_SECONDS, AttemptScript, Script, Step, plain

__all__ = [
    "Horizon",
    "ReplayCaller",
    "ReplayDispatch",
    "ReplayFilters",
    "ReplayHealth",
    "ReplayProvider",
    "ReplayRetries",
    "replay_world",
]

LEFT_SECONDS: Final = 1.0  # the replay's own clocks may run out so much later than the recording's
CLOSE_SECONDS: Final = 60.0


class Horizon:
    """How far the recording tells. `reached`: where the run went beyond it, in words; empty: it did not."""

    def __init__(self, script: Script) -> None:
        self.reached = ""
        self.scope = trio.CancelScope()
        self._ahead = inf if script.keeps else SLACK_SECONDS
        self._ends = [at for at in (script.gone_at, script.shutdown_at) if at is not None]

    async def reach(self, where: str) -> NoReturn:
        """Ends the run.

        A replay is ahead of the recording by the time that computing took. Where the exchange was ended from outside just then, it had not come so far.
        """
        now = trio.current_time()
        for at in self._ends:
            if now < at < now + self._ahead:
                await trio.sleep_until(at + LEFT_SECONDS)
        self.reached = self.reached or where
        self.scope.cancel()
        await trio.sleep_forever()
        raise AssertionError("the run was cancelled")


class ReplayProvider:
    """One provider. An attempt is answered as the recorded one was that had the same body, as long after its beginning as then."""

    def __init__(self, script: Script, horizon: Horizon) -> None:
        self._script = script
        self._horizon = horizon

    @asynccontextmanager
    async def attempt(
        self, request: UpstreamRequest, *, on_connected: Callable[[], None]
    ) -> AsyncIterator[_Response]:
        digest = digest_of(request.body, self._script.trace.header.salt)
        found = self._script.attempt(digest)
        if found is None:
            await self._horizon.reach(
                f"at attempt {self._script.asked}, whose request was not made in the recording"
            )
        response = _Response(found, self._script, self._horizon)
        try:
            await response.begin()
            while not response.begun:
                if (await response.step()).event == "connected":
                    on_connected()
            yield response
        finally:
            await response.close()  # noqa: ASYNC102 - shielded in there, and bounded


class _Response:
    """One recorded attempt, step by step."""

    def __init__(self, attempt: AttemptScript, script: Script, horizon: Horizon) -> None:
        self.status = 0
        self.headers: Headers = ()
        self.begun = False  # its head has come
        self._script = script
        self._horizon = horizon
        self._attempt = attempt
        self._steps = list(reversed(attempt.steps))
        self._shift = 0.0

    async def begin(self) -> None:
        """The attempt's hour."""
        ahead = trio.current_time() - self._attempt.at
        if not self._script.keeps:
            self._shift = ahead if abs(ahead) > SLACK_SECONDS else 0.0
        elif ahead < 0:
            await trio.sleep_until(self._attempt.at)

    async def read(self) -> bytes:
        return (await self.step()).data

    async def close(self) -> None:
        """Takes as long as it did, or until its end had been judged. What does not wait has no checkpoint."""
        now = trio.current_time()
        until = now + self._attempt.closing
        if self._script.keeps:
            until = max(until, self._attempt.over)
        if until > now:
            # Shielded, as a connection is closed whatever happens.
            # Bounded by: CLOSE_SECONDS, of virtual time.
            with trio.CancelScope(shield=True):
                await trio.sleep(min(until - now, CLOSE_SECONDS))

    async def step(self) -> Step:
        """The next thing that happened, when it is due. Raises `UpstreamFailed`."""
        if not self._steps and not self.begun:
            await self._horizon.reach(
                f"at attempt {self._attempt.n} of the recording, whose head is not in it"
            )
        if not self._steps:
            # After the end of the body every read says so again.
            await trio.lowlevel.checkpoint()
            return Step("eof", 0.0)
        step = self._steps.pop()
        at = step.at + self._shift
        if step.event == "left":
            await trio.sleep_until(at + LEFT_SECONDS)
            await self._horizon.reach(
                f"at attempt {self._attempt.n} of the recording, which was left before its end"
            )
        if step.event == "read":
            at = self._script.due(at, step.took, trio.current_time())
            if self._script.keeps:
                at = step.handed
        if self._script.keeps:
            self._script.came = step.at
        await trio.sleep_until(at)
        if step.event == "fault":
            raise UpstreamFailed(UpstreamFault[step.fault])
        if step.event == "head":
            self.begun, self.status = True, step.status
            self.headers = plain(step.headers)
        return step


class ReplayCaller:
    """The caller: its body comes, and it leaves, when it did; a write takes as long as the recorded one of those bytes."""

    def __init__(self, script: Script) -> None:
        self.body = bytearray()
        self._script = script
        self._parts = list(reversed(script.parts))
        self._gone_at = script.gone_at
        self._blocked = script.blocked
        self._ended = trio.Event()

    async def receive(self) -> BodyPart | Disconnected:
        if self._parts:
            at, part = self._parts.pop()
            await trio.sleep_until(at)
            return BodyPart(part.b, part.last)
        with trio.CancelScope(deadline=float("inf") if self._gone_at is None else self._gone_at):
            await self._ended.wait()
        return Disconnected()

    async def start(self, status: int, headers: Headers) -> None:
        await trio.lowlevel.checkpoint()

    async def write(self, data: bytes) -> None:
        await self._take(b"" if is_comment(data) else data)

    async def end(self, data: bytes = b"") -> None:
        await self._take(data)
        self._ended.set()

    def abort(self) -> None:
        self._ended.set()

    async def _take(self, data: bytes) -> None:
        self.body += data
        await trio.lowlevel.checkpoint()
        while self._blocked and self._blocked[0].offset <= len(self.body):
            blocked = self._blocked.popleft()
            until = self._script.due(blocked.at, blocked.took, trio.current_time())
            # Shielded: the server's write can't be cancelled either; one that was cancelled was another port's.
            # Bounded by: the recording, in which the write did return.
            with trio.CancelScope(shield=blocked.returned):
                await trio.sleep_until(until if blocked.returned else until + LEFT_SECONDS)


class ReplayFilters:
    """A filter that awaits: what it said is an input, so it says it again, and of the same frames only."""

    def __init__(self, name: str, script: Script, horizon: Horizon) -> None:
        self._name = name
        self._script = script
        self._horizon = horizon

    def begin(self, exchange: str, attempt: int, awaited: Awaited) -> AwaitingFilter:
        return _ReplayFilter(self._name, attempt, self._script, self._horizon)


class _ReplayFilter:
    """One attempt's. How frames fall into questions depends on the moment, so an answer is good for every question whose frames it has seen."""

    def __init__(self, name: str, attempt: int, script: Script, horizon: Horizon) -> None:
        self._name = name
        self._script = script
        self._attempt = attempt
        self._said = script.answers(attempt, name)
        self._horizon = horizon

    async def judge(self, question: Question) -> Verdict:
        began = trio.current_time()
        while self._said and not _settles(self._said[0].said, question, final=len(self._said) == 1):
            self._said.popleft()
        if not self._said:
            if self._script.keeps:
                # There the attempt was over before this was asked.
                await trio.sleep_until(self._script.ends + LEFT_SECONDS)
            await self._horizon.reach(
                f"at attempt {self._attempt}, of which {self._name} was not asked this"
            )
        answer = self._said[0].said
        until = self._script.due(self._said[0].at, answer.us / 1e6, began)
        if answer.fault is None and answer.passed is None and answer.violated is None:
            if self._script.keeps and self._said[0].late:
                await trio.sleep_until(until)
                raise FilterUnavailable(DEADLINE)
            await trio.sleep_until(until + LEFT_SECONDS)
            await self._horizon.reach(
                f"at attempt {self._attempt}, where {self._name} is waited for longer"
            )
        await trio.sleep_until(until)
        if answer.fault is not None:
            raise FilterUnavailable(answer.fault)
        if answer.violated is not None:
            return msgspec.convert(answer.violated, Violated)
        assert answer.passed is not None, "an answer says something"
        return Passed(min(answer.passed, question.end))


def _settles(answer: Answered, question: Question, *, final: bool) -> bool:
    """Whether it says something about all of these frames, or that there is no more to say. Where nothing was asked at the end, nothing had been new."""
    if answer.passed is None:
        return True
    return answer.end >= question.end and (answer.last or final or question.facts is None)


# ---- the process --------------------------------------------------------------------------------


def replay_world(script: Script) -> World:
    """Wall time and draws as they were told; an id is never asked for, because the door gave it. A replay that keeps to the recording's hours has its moments from there, too."""
    header = script.trace.header

    def wall() -> int:
        told = script.fact("wall")
        return int(told[1].value or 0) if told else header.wall

    def draw() -> float:
        told = script.fact("draw")
        return float(told[1].value or 0.0) if told else 0.5

    world = World(wall=wall, new_id=lambda: header.trace_id, draw=draw)
    if not script.keeps:
        return world

    def look(what: Moment, after: float) -> float:
        return script.look(what, trio.current_time())

    def came() -> float:
        return trio.current_time() if script.came is None else script.came

    return replace(world, look=look, wake=script.wake, came=came)


class ReplayHealth(ProviderHealth):
    """A provider's health as the exchange was told of it; what other exchanges did to it is in there. Beyond the recording it is well."""

    def __init__(self, name: str, script: Script) -> None:
        super().__init__(failures=1_000_000, open_seconds=1.0)
        self._name = name
        self._script = script

    def wait_seconds(self, now: float) -> float:
        told = self._script.fact("wait", self._name)
        return float(told[1].value or 0.0) if told else 0.0


class ReplayRetries(RetryBudget):
    """The retry budget as the exchange was told of it; beyond the recording there is some."""

    def __init__(self, script: Script) -> None:
        super().__init__(share=1.0, floor=100.0, now=0.0)
        self._script = script

    def left(self, now: float) -> bool:
        told = self._script.fact("retries")
        return bool(told[1].value) if told else True


class ReplayDispatch(Dispatch):
    """Places as the exchange got them, after the waits that it had; beyond the recording there is room."""

    def __init__(self, script: Script, names: Iterable[str], horizon: Horizon) -> None:
        super().__init__(
            exchanges_max=1,
            queue_max=0,
            queue_seconds_max=0.0,
            concurrency=dict.fromkeys(names, 1),
        )
        self._script = script
        self._horizon = horizon

    @property
    def drain_ends(self) -> float:
        told = self._script.drain_ends
        return float("inf") if told is None else float(told.value or 0.0) / 1e6

    @drain_ends.setter
    def drain_ends(self, value: float) -> None:
        """The recording says when; nobody else does."""

    async def admit(self, place: Place) -> str | None:
        told = self._script.fact("admit")
        if told is not None:
            await self._waited(*told)
            if told[1].value is not None:
                return str(told[1].value)
        return await super().admit(place)

    @asynccontextmanager
    async def slot(self, names: Sequence[str], place: Place) -> AsyncIterator[str | None]:
        told = self._script.fact("slot")
        if told is None and self._script.keeps:
            await self._horizon.reach("where it gets a place that it had not got")
        if told is not None:
            await self._waited(*told)
            if told[1].value is None:
                yield None
                return
            names = [str(told[1].value)] if told[1].value in names else names
        async with super().slot(names, place) as name:
            self._script.place()
            yield name

    async def _waited(self, at: float, fact: Fact) -> None:
        """Waits as the recording did; what need not wait has no checkpoint."""
        now = trio.current_time()
        until = self._script.due(at, fact.us / 1e6, now)
        if fact.value is False:
            await trio.sleep_until(until + LEFT_SECONDS)
            await self._horizon.reach("where it waits for a place longer than was waited")
        if until > now and (fact.us or self._script.keeps):
            await trio.sleep_until(until)
