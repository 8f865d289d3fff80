"""Doubles for the ports of `actors.ports`, the bytes they speak, and the factories of a gateway without HTTP.

A provider is a script, a list of answers of which each attempt takes the next; a caller writes down when it got what. Both keep trio's clock, so that under
a mock clock a delay of an hour costs nothing.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from mmap import mmap
from typing import Any, Final

import trio

from actors.context import Door, Exchange, Gateway, OpenExchanges, Pool, Target
from actors.dispatch import Dispatch, Place
from actors.exchange import run_exchange
from actors.ports import AwaitingFilters, BodyPart, Caller, Disconnected, Headers, UpstreamRequest
from actors.world import World
from gate.budget import MemoryBudget
from gate.config import (
    ClocksConfig,
    FilterConfig,
    HoldConfig,
    LimitsConfig,
    PathKind,
    Prefill,
    RecoveryConfig,
    RouteConfig,
    StructuredOutput,
)
from gate.errors import UpstreamFailed, UpstreamFault
from gate.filters.contract import FilterFactory
from gate.health import ProviderHealth
from gate.ingress import IngressSnapshot, read_chat_request
from gate.observe import Observation, Outcome, What
from gate.refs import ExchangeId, Refs
from gate.retry_budget import RetryBudget

ALIAS: Final = "small"
NOON: Final = 1_700_000_000  # the wall time of every test, Unix seconds
SSE: Final = ((b"content-type", b"text/event-stream"),)
JSON: Final = ((b"content-type", b"application/json"),)
DONE: Final = b"data: [DONE]\n\n"
FOREVER: Final = float("inf")

# --- what providers say ----------------------------------------------------------------------------


def event(value: object) -> bytes:
    """One SSE event."""
    return b"data: " + json.dumps(value, separators=(",", ":")).encode() + b"\n\n"


def delta(
    members: object, *, finish: str | None = None, usage: object = None, name: str = "up-1"
) -> bytes:
    """One chat chunk of choice 0."""
    value: dict[str, Any] = {
        "id": name,
        "object": "chat.completion.chunk",
        "created": 7,
        "model": "m",
    }
    value["choices"] = [{"index": 0, "delta": members, "finish_reason": finish}]
    return event(value if usage is None else {**value, "usage": usage})


def text(said: str, *, name: str = "up-1") -> bytes:
    """One chunk of answer text."""
    return delta({"content": said}, name=name)


def thought(said: str) -> bytes:
    """One chunk of reasoning."""
    return delta({"reasoning_content": said})


ROLE: Final = delta({"role": "assistant", "content": ""})
EMPTY: Final = delta({"content": ""})
COMMENT: Final = b": still here\n\n"
STOP: Final = delta({}, finish="stop")
ERROR_EVENT: Final = event({"error": {"code": "server_error", "message": "secret detail"}})


def whole(said: str | None, *, finish: str | None = "stop") -> bytes:
    """A JSON answer."""
    message = {"role": "assistant", "content": said}
    choice = {"index": 0, "message": message, "finish_reason": finish}
    return json.dumps({"id": "up-1", "object": "chat.completion", "created": 7, "model": "m", "choices": [choice]}).encode()  # fmt: skip


# --- the provider ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Read:
    """What one read of the body brings: bytes, or a fault, after so many seconds. The end of the script is the end of the body.

    `meanwhile` is called in the very step in which the read returns.
    """

    data: bytes = b""
    after: float = 0.0
    fault: UpstreamFault | None = None
    meanwhile: Callable[[], None] = lambda: None


@dataclass(frozen=True, slots=True)
class Answer:
    """One attempt's answer. `connect_after` and `head_after` in seconds; `fault` comes in place of the connection or of the head."""

    reads: Sequence[Read] = ()
    status: int = 200
    headers: Headers = SSE
    connect_after: float = 0.0
    head_after: float = 0.0
    fault: UpstreamFault | None = None
    crash: bool = False  # the port breaks its promise and raises what nobody expects


def says(*pieces: bytes, every: float = 0.0, then: Iterable[Read] = ()) -> Answer:
    """An event stream, one piece per read."""
    return Answer([*(Read(piece, every) for piece in pieces), *then])


def healthy(*words: str, every: float = 0.0) -> Answer:
    """A stream that says these words and ends as it should."""
    return says(ROLE, *(text(word) for word in words), STOP, DONE, every=every)


def fails(fault: UpstreamFault, *, after: float = 0.0) -> Answer:
    """No connection, or no head."""
    return Answer(fault=fault, connect_after=after)


def cut(*words: str) -> Answer:
    """A stream that is lost after these words."""
    return says(*(text(word) for word in words), then=[Read(fault=UpstreamFault.CUT)])


def stalls(*pieces: bytes) -> Answer:
    """A stream that stays open and silent after these pieces."""
    return says(*pieces, then=[Read(after=FOREVER)])


def refuses(status: int, body: bytes = b"", *, retry_after: str = "", after: float = 0.0) -> Answer:
    """An answer that is no 2xx, its head after so many seconds."""
    headers = [*JSON, *([(b"retry-after", retry_after.encode())] if retry_after else [])]
    return Answer([Read(body)] if body else [], status, headers, head_after=after)


def body(data: bytes, *, headers: Headers = JSON, after: float = 0.0) -> Answer:
    """A whole body in one read."""
    return Answer([Read(data)], headers=headers, head_after=after)


@dataclass(slots=True, eq=False)
class Asked:
    """One attempt as the provider saw it. `closes`: how often its response was left."""

    path: str
    headers: dict[bytes, bytes]
    body: bytes
    asked_at: float
    method: str = "POST"
    reads: int = 0
    closes: int = 0
    closed_at: float = -1.0


class ScriptedResponse:
    """The body of one answer."""

    def __init__(self, answer: Answer, asked: Asked) -> None:
        self.status = answer.status
        self.headers = answer.headers
        self._reads = list(answer.reads)
        self._asked = asked

    async def read(self) -> bytes:
        assert not self._asked.closes, "read after the response was left"
        if not self._reads:
            await trio.lowlevel.checkpoint()
            return b""
        read = self._reads.pop(0)
        await trio.sleep(read.after)
        self._asked.reads += 1
        read.meanwhile()
        if read.fault is not None:
            raise UpstreamFailed(read.fault)
        return read.data


class ScriptedProvider:
    """Gives each attempt the next answer of its script (`for_ever`: the last one again and again). `open_max`: attempts open at once, at most."""

    def __init__(self, *script: Answer, for_ever: bool = False) -> None:
        self.asked: list[Asked] = []
        self.open = 0
        self.open_max = 0
        self._script = list(script)
        self._for_ever = for_ever

    @asynccontextmanager
    async def attempt(
        self, request: UpstreamRequest, *, on_connected: Callable[[], None]
    ) -> AsyncIterator[ScriptedResponse]:
        data = b"".join(bytes(piece) for piece in request.body)
        assert len(data) == request.content_length
        asked = Asked(
            request.path, dict(request.headers), data, trio.current_time(), request.method
        )
        self.asked.append(asked)
        last = self._for_ever and len(self._script) == 1
        answer = self._script[0] if last else self._script.pop(0)
        self.open += 1
        self.open_max = max(self.open_max, self.open)
        try:
            await trio.sleep(answer.connect_after)
            if answer.crash:
                raise RuntimeError("a bug in the port")
            if answer.fault is UpstreamFault.CONNECT:
                raise UpstreamFailed(answer.fault)
            on_connected()
            await trio.sleep(answer.head_after)
            if answer.fault is not None:
                raise UpstreamFailed(answer.fault)
            yield ScriptedResponse(answer, asked)
        finally:
            self.open -= 1
            asked.closes += 1
            asked.closed_at = trio.current_time()


# --- the caller ------------------------------------------------------------------------------------


def request(*, stream: object = True, **members: object) -> bytes:
    """A chat request for `ALIAS`."""
    value = {"model": ALIAS, "messages": [{"role": "user", "content": "Hi"}], "stream": stream}
    return json.dumps({**value, **members}).encode()


def mapped(data: bytes) -> mmap:
    """A body in memory of its own, as ingress collects a large one."""
    body = mmap(-1, len(data))
    body.write(data)
    return body


class RecordingCaller:
    """Sends its body, then waits; writes down what it gets, with the time. `gaps`: seconds before each part of the body.

    Like the server, it says "disconnected" after the end too.
    """

    def __init__(self, *parts: bytes, gap: float = 0.0, endless: bool = False) -> None:
        self.writes: list[tuple[float, bytes]] = []
        self.status = 0
        self.starts = 0
        self.started_at = -1.0
        self.headers: dict[bytes, bytes] = {}
        self.ended = False
        self.ended_at = -1.0
        self.aborted = False
        self._parts = list(parts or [request()])
        self._gap = gap
        self._endless = endless  # the last part is not said to be the last
        self._left = trio.Event()

    @property
    def received(self) -> bytes:
        """Every byte of the response's body."""
        return b"".join(data for _, data in self.writes)

    @property
    def unsent(self) -> int:
        """How many parts of its body nobody has asked for."""
        return len(self._parts)

    @property
    def code(self) -> object:
        """The code of the error response, or of the in-stream error that came last."""
        last = (
            self.received.rstrip().rpartition(b"data: ")[2] if self.status == 200 else self.received
        )
        return json.loads(last)["error"]["code"]

    @property
    def text(self) -> str:
        """The answer text of an event stream."""
        return "".join(
            choice["delta"].get("content") or ""
            for value in self.chunks()
            for choice in value.get("choices", ())
        )

    def chunks(self) -> list[Any]:
        """The JSON payloads of an event stream; every event is whole."""
        assert not self.received or self.received.endswith(b"\n\n")
        return [
            json.loads(line.removeprefix(b"data: "))
            for line in self.received.split(b"\n\n")
            if line.startswith(b"data: {")
        ]

    def leave(self) -> None:
        """The caller closes its connection."""
        self._left.set()

    async def receive(self) -> BodyPart | Disconnected:
        if self._parts and not self._left.is_set():
            with trio.move_on_after(self._gap):
                await self._left.wait()
        if self._parts and not self._left.is_set():
            data = self._parts.pop(0)
            return BodyPart(data, last=not self._parts and not self._endless)
        await self._left.wait()
        return Disconnected()

    async def start(self, status: int, headers: Headers) -> None:
        self.status, self.headers = status, dict(headers)
        self.starts += 1
        self.started_at = trio.current_time()
        await trio.lowlevel.checkpoint()

    async def write(self, data: bytes) -> None:
        self._got(data)
        await trio.lowlevel.checkpoint()

    async def end(self, data: bytes = b"") -> None:
        self._got(data)
        self.ended, self.ended_at = True, trio.current_time()
        self._left.set()
        await trio.lowlevel.checkpoint()

    def abort(self) -> None:
        assert self.starts == 1, "nothing has begun that could be broken off"
        assert not self.ended, "it has ended already"
        self.aborted = True
        self._left.set()

    def _got(self, data: bytes) -> None:
        assert self.starts == 1, "bytes before the start, or after a second one"
        assert not self.ended, "bytes after the end"
        assert not self.aborted, "bytes after a response that was broken off"
        self.writes.append((trio.current_time(), data))


class SlowCaller(RecordingCaller):
    """Takes `seconds` for each write."""

    def __init__(self, *parts: bytes, seconds: float) -> None:
        super().__init__(*parts)
        self._seconds = seconds

    async def write(self, data: bytes) -> None:
        self._got(data)
        await trio.sleep(self._seconds)


class StuckCaller(RecordingCaller):
    """Reads nothing: a write returns when the test says so, or when the connection is gone. Like the server's, it can't be cancelled."""

    def __init__(self, *parts: bytes) -> None:
        super().__init__(*parts)
        self.reads = trio.Event()

    def leave(self) -> None:
        super().leave()
        self.reads.set()

    async def write(self, data: bytes) -> None:
        self._got(data)
        # Bounded by: the test, which sets `reads` or leaves.
        with trio.CancelScope(shield=True):
            await self.reads.wait()


class BrokenCaller(RecordingCaller):
    """A caller port with a bug: its first write raises."""

    async def write(self, data: bytes) -> None:
        raise RuntimeError("a bug in the port")


# --- the gateway -----------------------------------------------------------------------------------


@dataclass(slots=True)
class Records:
    """What a gateway said about its exchanges: observations, and crashes by exchange."""

    observations: list[Observation] = field(default_factory=list)
    crashes: list[tuple[str, BaseException]] = field(default_factory=list)

    def crashed(self, exchange: str, error: BaseException) -> None:
        self.crashes.append((exchange, error))

    def codes(self, what: What) -> list[str]:
        """The codes of all observations of one kind, in order."""
        return [each.code for each in self.observations if each.what is what]


def world(*, draw: float = 0.5) -> World:
    """Everything fixed. With a draw of 0.5 a backoff is half of its longest."""
    return World(wall=lambda: NOON, new_id=lambda: "tg-fixed", draw=lambda: draw)


def target(
    number: int,
    provider: ScriptedProvider,
    *,
    able: Iterable[str],
    failures: int,
    prefill: Prefill,
    paths: Sequence[PathKind],
    asks: bool,
    keyed: bool,
) -> Target:
    """One target, `p<number>`, on the path of its number, if one is given; its provider is left alone after so many failures."""
    path: PathKind = paths[number] if number < len(paths) else "normalized"
    health = ProviderHealth(failures=failures, open_seconds=30.0)
    name, model = f"p{number}", f"model-{number}"
    return Target(name, provider, model, 0, frozenset(able), health, prefill, path, asks, keyed)


def gateway(
    *providers: ScriptedProvider,
    hold: HoldConfig | None = None,
    clocks: ClocksConfig | None = None,
    recovery: RecoveryConfig | None = None,
    limits: LimitsConfig | None = None,
    concurrency: int = 64,
    capabilities: Iterable[str] = ("tools", "json_schema", "responses"),
    prefill: Prefill = "none",
    filters: tuple[str, ...] = ("empty",),
    tables: Mapping[str, FilterConfig] | None = None,
    awaiting: Mapping[str, AwaitingFilters] | None = None,
    plugins: Mapping[str, FilterFactory] | None = None,
    structured_output: StructuredOutput = "repair",
    breaker_failures: int = 1000,
    paths: Sequence[PathKind] = (),
    asks: bool = False,
    keyed: bool = False,
    tunnel_marks: bool = True,
    streams_errors: bool = False,
    caller_write_seconds: float = 60.0,
    records: Records | None = None,
    **policy: Any,
) -> Gateway:
    """A gateway with one pool, `ALIAS`, of one target per provider; the targets are named `p0`, `p1`, ... and asked in that order; `paths`: of the first of them; `asks` and `keyed`: all of them are asked for usage, and get a plan's key. `policy`: more keys of its route."""
    limits = limits or LimitsConfig()
    records = records or Records()
    ways: dict[str, Any] = {"failures": breaker_failures, "prefill": prefill, "paths": paths, "asks": asks, "keyed": keyed}  # fmt: skip
    targets = tuple(
        target(number, provider, able=capabilities, **ways)
        for number, provider in enumerate(providers)
    )
    route = RouteConfig(
        hold=hold or HoldConfig(),
        clocks=clocks or ClocksConfig(),
        recovery=recovery or RecoveryConfig(),
        structured_output=structured_output,
        **policy,
    )
    share, floor = route.recovery.retry_budget_share, route.recovery.retry_budget_floor
    budget = RetryBudget(share=share, floor=floor, now=0.0)
    return Gateway(
        pools={
            ALIAS: Pool(
                ALIAS,
                route,
                filters,
                targets,
                budget,
                tables or {},
                awaiting or {},
                plugins=plugins or {},
            )
        },
        limits=limits,
        caller_write_seconds=caller_write_seconds,
        dispatch=Dispatch(
            exchanges_max=limits.exchanges_max,
            queue_max=limits.queue_max,
            queue_seconds_max=limits.queue_seconds_max,
            concurrency={target.provider_name: concurrency for target in targets},
        ),
        budget=MemoryBudget("process", limits.process_bytes_max),
        world=world(),
        probe=records.observations.append,
        crashed=records.crashed,
        open=OpenExchanges(),
        tunnel_marks=tunnel_marks,
        streams_errors=streams_errors,
    )


def door(exchange: str = "ex-1", **changes: Any) -> Door:
    """What the door lets in."""
    values = {"models": None, "content_type": b"application/json", "content_length": None}
    return Door(exchange=exchange, **{**values, **changes})


def exchange_of(gate: Gateway, *, data: bytes | None = None) -> Exchange:
    """The constants of an exchange that has been admitted, for an actor that is tested by itself."""
    pool = gate.pools[ALIAS]
    budget = MemoryBudget("exchange", gate.limits.exchange_bytes_max, gate.budget)
    snapshot = IngressSnapshot(budget)
    data = data or request()
    snapshot.fill(data, read_chat_request(data, depth_max=64))
    return Exchange(
        refs=Refs(ExchangeId("ex-1")),
        pool=pool,
        targets=pool.targets,
        snapshot=snapshot,
        door=door(),
        limits=gate.limits,
        dispatch=gate.dispatch,
        place=Place(),
        budget=budget,
        wire=budget.reserve(0),
        world=gate.world,
        probe=gate.probe,
        ready_at=trio.current_time(),
        endpoint="/v1/chat/completions",
        crashed=lambda error: gate.crashed("ex-1", error),
    )


def left_behind(gate: Gateway) -> list[str]:
    """What a gateway still holds though no exchange is open: bytes, places, connections. Empty where all came back, each once."""
    found = []
    if gate.budget.used or gate.budget.open_reservations:
        found.append(repr(gate.budget))
    for places in (gate.dispatch.exchanges, gate.dispatch.providers):
        found += [repr(places)] if any(places.taken.values()) or places.waiting else []
    if len(gate.open):
        found.append(f"{len(gate.open)} open exchanges")
    for target in gate.pools[ALIAS].targets:
        assert isinstance(target.provider, ScriptedProvider)
        found += [
            f"{target.provider_name}: {asked!r}"
            for asked in target.provider.asked
            if asked.closes != 1
        ]
    return found


def untold(records: Records) -> list[str]:
    """What the observations do not say though they should: an end for each attempt that was begun and for each exchange, with times that can be."""
    found = []
    attempts = {
        what: [(each.exchange, each.attempt, each.provider) for each in records.observations if each.what is what and each.provider]
        for what in (What.ATTEMPT_STARTED, What.ATTEMPT_ENDED)
    }  # fmt: skip
    if sorted(attempts[What.ATTEMPT_STARTED]) != sorted(attempts[What.ATTEMPT_ENDED]):
        found.append(f"attempts: {attempts}")
    if len(records.codes(What.EXCHANGE_STARTED)) != len(records.codes(What.EXCHANGE_ENDED)):
        found.append("an exchange without an end")
    for measured in filter(None, [each.measured for each in records.observations]):
        times = (measured.held_seconds, measured.ttft_seconds, measured.ttft_added_seconds)
        costs = [spent.tokens for spent in measured.spent]
        if min([0.0, *filter(None, times)]) < 0 or min(costs, default=1) < 1:
            found.append(f"{measured}")
        if (measured.ttft_added_seconds or 0.0) > (measured.ttft_seconds or 0.0):
            found.append(f"more was added than it took: {measured}")
    return found


async def supervise(
    gate: Gateway, caller: Caller, *, exchange: str = "ex-1", **changes: Any
) -> Outcome:
    """One exchange from its beginning to its end, after which nothing of it is left in its ledger. `changes`: of what the door lets in."""
    outcome = await run_exchange(door(exchange, **changes), caller, gate)
    assert (outcome.ledger.used, outcome.ledger.open_reservations) == (0, 0)
    return outcome
