"""Recording: every port of one exchange, wrapped so that what passes is taken down on a tape. The actors know nothing of it.

Rules of this file: a wrapper awaits nothing but what it wraps, so recording adds no checkpoint; it changes no value and swallows no exception. Where nothing is
recorded nothing is wrapped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from types import TracebackType
from typing import Final

from actors.context import Door, Gateway, Pool, Target
from actors.ports import (
    BodyPart,
    Caller,
    Disconnected,
    Headers,
    Provider,
    UpstreamFailed,
    UpstreamRequest,
    UpstreamResponse,
)
from actors.recording_filters import RecordedFilters
from actors.recording_process import (
    RecordedDispatch,
    RecordedHealth,
    RecordedOpen,
    RecordedRetries,
)
from actors.tape import Tape
from actors.world import Moment, World
from gate.explain import EXPLAINED_HEADERS, is_comment
from gate.framing_tunnel import relayed_headers
from gate.observe import Measured, Observation, Outcome, Probe, TokenKind, What
from gate.sse import KEEP_ALIVE
from gate.trace import (
    Attempt,
    CallerEvent,
    Decision,
    Fact,
    Fields,
    Request,
    ResponseHead,
    Term,
    Upstream,
)

__all__ = ["BLOCKED_US", "ended", "recorded"]

BLOCKED_US: Final = 1_000  # a write that takes longer has waited for its caller
# Of a provider's answer, besides what a tunnel relays: what the actors read, and what names it. Nothing else is kept, so no cookie and no key ever is.
KEPT_HEADERS: Final = frozenset({b"retry-after-ms", b"x-request-id"})


def recorded(door: Door, caller: Caller, gateway: Gateway, tape: Tape) -> tuple[Caller, Gateway]:
    """Caller and gateway for this one exchange; what passes them goes on `tape`, first of all what the door let in."""
    models = None if door.models is None else tuple(sorted(door.models))
    content_type = door.content_type.decode("latin-1")
    forwarded = _fields(door.forwarded)
    tape.add(
        Request(
            0,
            content_type,
            door.content_length,
            models,
            forwarded,
            door.endpoint,
            door.method,
            door.query,
            door.model,
        )
    )
    return _Caller(caller, tape), replace(
        gateway,
        pools=_Pools(gateway.pools, tape, gateway.world.came),
        dispatch=RecordedDispatch(gateway.dispatch, tape),
        world=_world(gateway.world, tape),
        probe=_probe(gateway.probe, tape),
        open=RecordedOpen(gateway.open, tape),
    )


def ended(outcome: Outcome, tape: Tape) -> None:
    """The terminal."""
    measured = tape.measured or Measured()
    held = measured.held_seconds
    tape.add(
        Term(
            tape.now(),
            outcome.kind.value,
            outcome.code,
            outcome.status,
            outcome.attempts,
            outcome.framing,
            tape.written,
            tape.output_digest(),
            outcome.ledger.peak,
            outcome.ledger.used,
            -1 if held is None else round(held * 1e6),
            sum(each.tokens for each in measured.spent if each.kind is TokenKind.WASTED),
        )
    )


def _fields(headers: Headers) -> Fields:
    return tuple((name.decode("latin-1"), value.decode("latin-1")) for name, value in headers)


def _probe(probe: Probe, tape: Tape) -> Probe:
    def observe(seen: Observation) -> None:
        probe(seen)
        if seen.what is What.EXCHANGE_ENDED:
            tape.measured = seen.measured
        elif seen.what is not What.EXCHANGE_STARTED:
            tape.add(
                Decision(
                    tape.now(),
                    seen.what.value,
                    seen.attempt,
                    seen.code,
                    seen.provider,
                    seen.filter,
                    seen.status,
                    seen.count,
                )
            )

    return observe


def _world(world: World, tape: Tape) -> World:
    def wall() -> int:
        value = world.wall()
        tape.add(Fact(tape.now(), "wall", value))
        return value

    def draw() -> float:
        value = world.draw()
        tape.add(Fact(tape.now(), "draw", value))
        return value

    def look(what: Moment, after: float) -> float:
        t, moment = tape.looked(world.look(what, after))
        tape.add(Fact(t, what.value, tape.at(after) if after else None))
        return moment

    return replace(world, wall=wall, draw=draw, look=look, came=lambda: tape.moment(tape.came))


class _Pools(Mapping[str, Pool]):
    """The pools; the one that is asked for is wrapped then."""

    def __init__(self, pools: Mapping[str, Pool], tape: Tape, came: Callable[[], float]) -> None:
        self._pools = pools
        self._tape = tape
        self._came = came

    def __getitem__(self, alias: str) -> Pool:
        pool, tape = self._pools[alias], self._tape
        tape.alias = alias
        return replace(
            pool,
            targets=tuple(_target(each, tape, self._came) for each in pool.targets),
            retries=RecordedRetries(pool.retries, tape),
            awaiting={
                name: RecordedFilters(name, each, tape) for name, each in pool.awaiting.items()
            },
        )

    def __iter__(self) -> Iterator[str]:
        return iter(self._pools)

    def __len__(self) -> int:
        return len(self._pools)


def _target(target: Target, tape: Tape, came: Callable[[], float]) -> Target:
    name = target.provider_name
    return replace(
        target,
        provider=_Provider(name, target.provider, tape, came),
        health=RecordedHealth(name, target.health, tape),
    )


# ---- the caller ---------------------------------------------------------------------------------


class _Caller:
    def __init__(self, inner: Caller, tape: Tape) -> None:
        self._inner = inner
        self._tape = tape
        self._over = False

    async def receive(self) -> BodyPart | Disconnected:
        got = await self._inner.receive()
        tape = self._tape
        if isinstance(got, BodyPart):
            tape.part(tape.now(), got.data, last=got.last)
        elif not self._over:
            tape.add(CallerEvent(tape.now(), "gone", tape.written))
        return got

    async def start(self, status: int, headers: Headers) -> None:
        own = [each for each in headers if each[0] not in EXPLAINED_HEADERS]
        self._tape.add(ResponseHead(self._tape.now(), status, _fields(own)))
        await self._inner.start(status, headers)

    async def write(self, data: bytes) -> None:
        tape = self._tape
        began = tape.now()
        # What explains decisions tells times, which a replay need not meet; like every comment it is no part of the answer.
        if data == KEEP_ALIVE:
            tape.pinged(began)
        elif not is_comment(data):
            tape.wrote(began, data)
        try:
            await self._inner.write(data)
        except BaseException:
            self._written("stuck", began)
            raise
        now = tape.now()  # not by a call: this is done per chunk
        if now - began >= BLOCKED_US:
            tape.add(CallerEvent(now, "blocked", tape.written, now - began))

    async def end(self, data: bytes = b"") -> None:
        tape = self._tape
        began = tape.now()
        self._over = True  # a disconnect may now be the server's word for the end
        tape.wrote(began, data)
        try:
            await self._inner.end(data)
        except BaseException:
            self._written("stuck", began)
            raise
        self._written("blocked", began)

    def abort(self) -> None:
        self._over = True
        self._tape.add(CallerEvent(self._tape.now(), "aborted", self._tape.written))
        self._inner.abort()

    def _written(self, event: str, began: int) -> None:
        """After a write that began then: one that has waited for its caller is an input. A call, since this is done per chunk, and a context manager costs more than the record."""
        tape = self._tape
        now = tape.now()
        if event == "stuck" or now - began >= BLOCKED_US:
            tape.add(CallerEvent(now, event, tape.written, now - began))


# ---- providers ----------------------------------------------------------------------------------


class _Provider:
    def __init__(self, name: str, inner: Provider, tape: Tape, came: Callable[[], float]) -> None:
        self._name = name
        self._inner = inner
        self._tape = tape
        self._came = came

    def attempt(
        self, request: UpstreamRequest, *, on_connected: Callable[[], None]
    ) -> AbstractAsyncContextManager[UpstreamResponse]:
        return _Attempt(self._name, self._inner, request, on_connected, self._tape, came=self._came)


class _Attempt(AbstractAsyncContextManager[UpstreamResponse]):
    """One attempt, from its request to the close of its connection; it is its own response."""

    def __init__(
        self,
        name: str,
        inner: Provider,
        request: UpstreamRequest,
        on_connected: Callable[[], None],
        tape: Tape,
        *,
        came: Callable[[], float],
    ) -> None:
        self._tape = tape
        self._came = came
        tape.attempts += 1
        self._n = tape.attempts
        self._over = False
        self._on_connected = on_connected
        size = request.content_length
        digest = tape.body_digest(list(request.body), size)
        tape.add(Attempt(self._n, tape.now(), name, size, digest))
        self._opening = inner.attempt(request, on_connected=self._connected)

    async def __aenter__(self) -> UpstreamResponse:
        try:
            self._response = await self._opening.__aenter__()
        except UpstreamFailed as error:
            self._tell("fault", fault=error.fault.name)
            raise
        except BaseException:
            self._tell("left")
            raise
        response = self._response
        kept = [*relayed_headers(response.headers)]
        kept += [(name, value) for name, value in response.headers if name in KEPT_HEADERS]
        self._tell("head", status=response.status, headers=_fields(kept))
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        if not self._over:
            self._tell("left")
        try:
            return await self._opening.__aexit__(kind, error, trace)  # noqa: ASYNC102 - what it wraps decides that
        finally:
            self._tell("closed")

    @property
    def status(self) -> int:
        return self._response.status

    @property
    def headers(self) -> Headers:
        return self._response.headers

    async def read(self) -> bytes:
        tape = self._tape
        began = tape.now()
        try:
            data = await self._response.read()
        except UpstreamFailed as error:
            self._over = True
            self._tell("fault", fault=error.fault.name)
            raise
        now = tape.came = tape.at(self._came())
        if data:
            tape.read(self._n, now, now - began, data)
        elif not self._over:
            self._over = True
            self._tell("eof")
        return data

    def _connected(self) -> None:
        self._tell("connected")
        self._on_connected()

    def _tell(self, event: str, *, status: int = 0, headers: Fields = (), fault: str = "") -> None:
        now = self._tape.came = self._tape.now()
        self._tape.add(Upstream(self._n, now, event, status, headers, fault))
