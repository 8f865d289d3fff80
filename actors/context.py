"""What the actors of one exchange share: constants of the exchange, and the few facts that more than one of them needs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import trio

from actors.dispatch import Dispatch, Place
from actors.ports import AwaitingFilters, Headers, Provider
from actors.world import World
from gate.budget import MemoryBudget, Reservation
from gate.config import FilterConfig, LimitsConfig, PathKind, Prefill, RouteConfig
from gate.continuable import Continuable
from gate.endpoints import ENDPOINTS
from gate.events import Start
from gate.explain import Explanation
from gate.failure import FailureKind
from gate.filters.contract import FilterFactory
from gate.health import ProviderHealth
from gate.ingress import CHAT_PATH, CallerRequest, IngressSnapshot
from gate.measures import Measures
from gate.observe import Observation, Probe, Told, What
from gate.refs import Refs
from gate.retry_budget import RetryBudget
from gate.schema_cache import SchemaCache

__all__ = ["Door", "Ending", "Exchange", "Gateway", "OpenExchanges", "Ordered", "Pool", "Target"]


@dataclass(frozen=True, slots=True)
class Target:
    """A provider with a model name. `capabilities`: what it can do; lower `priority` is asked first; `health` is the provider's; `prefill`: how it is told to go on; `path`: how its bytes leave.

    `ask_usage`: it is asked for usage that the caller did not ask for; `idempotency_header`: it gets the key of each plan.
    """

    provider_name: str
    provider: Provider
    model: str
    priority: int
    capabilities: frozenset[str]
    health: ProviderHealth
    prefill: Prefill = "none"
    path: PathKind = "normalized"
    ask_usage: bool = False
    idempotency_header: bool = False


@dataclass(frozen=True, slots=True)
class Pool:
    """The targets that serve one alias, under one route, and its retry budget.

    `route_name`: what the configuration calls that route; `filters`: the names in its list; `tables`: the options of those that have some.
    `awaiting`: by name, where those come from that await; `plugins`: by kind, what makes those that other packages have brought.
    """

    alias: str
    route: RouteConfig
    filters: tuple[str, ...]
    targets: tuple[Target, ...]
    retries: RetryBudget
    tables: Mapping[str, FilterConfig] = field(default_factory=dict)
    awaiting: Mapping[str, AwaitingFilters] = field(default_factory=dict)
    route_name: str = "default"
    plugins: Mapping[str, FilterFactory] = field(default_factory=dict)


class OpenExchanges:
    """The exchanges in flight; the drain waits for them, and then ends them through their `Ending`."""

    def __init__(self) -> None:
        self._endings: set[Ending] = set()
        self._empty = trio.Event()

    def __len__(self) -> int:
        return len(self._endings)

    @property
    def held_bytes(self) -> int:
        """Evidence of all of them."""
        return sum(each.exchange.held_bytes for each in self._endings if each.exchange is not None)

    @property
    def leases(self) -> int:
        """Bodies that were made for an attempt, or are the caller's own, and have not been let go."""
        return sum(each.exchange.leases() for each in self._endings if each.exchange is not None)

    def add(self, ending: Ending) -> None:
        self._endings.add(ending)

    def discard(self, ending: Ending) -> None:
        self._endings.discard(ending)
        if not self._endings:
            self._empty.set()

    async def wait_empty(self) -> None:
        """Until no exchange is open."""
        while self._endings:
            if self._empty.is_set():
                self._empty = trio.Event()
            await self._empty.wait()

    def shut_down(self) -> None:
        """The drain's end: every exchange sends its terminal now."""
        for ending in list(self._endings):
            ending.shut_down()


@dataclass(slots=True)
class Gateway:
    """What outlives an exchange: one per process."""

    pools: Mapping[str, Pool]
    limits: LimitsConfig
    caller_write_seconds: float
    dispatch: Dispatch
    budget: MemoryBudget
    world: World
    probe: Probe
    crashed: Callable[[str, BaseException], None]
    open: OpenExchanges
    draining: bool = False
    config_generation: int = 1  # counts the configurations that were in force
    schemas: SchemaCache = field(default_factory=SchemaCache)
    tunnel_marks: bool = True  # `compat.tunnel_cut`
    streams_errors: bool = False  # `compat.buffered_error`
    explains: bool = True  # `observe.explain`


@dataclass(frozen=True, slots=True)
class Door:
    """What the door let in: ids and the few header values that go on. `models`: aliases that the key may use, None for all.

    `endpoint`: the path below the root, `query` what stands behind its question mark. `model`: the alias that a header names, for a request whose body names none.
    `explain`: the caller wants to be told what is decided; `idempotency`: the digest of its own idempotency key, which goes no further.
    """

    exchange: str
    models: frozenset[str] | None
    content_type: bytes
    content_length: int | None
    forwarded: Headers = ()
    endpoint: str = CHAT_PATH
    method: str = "POST"
    query: str = ""
    model: str = ""
    explain: bool = False
    idempotency: str = ""

    @property
    def relayed(self) -> bool:
        """Whether nothing but a tunnel serves this endpoint, whatever the provider's path is."""
        return self.endpoint not in ENDPOINTS or self.method != "POST"


@dataclass(slots=True, eq=False)
class Ending:
    """Why and when an exchange ends early. The first reason stays."""

    reason: str = ""
    over: bool = (
        False  # the sink has begun to write the last bytes: a disconnect is no news any more
    )
    write_began: float | None = None  # when the write that is under way began
    written_at: float = 0.0  # when the last one ended
    slowest_seconds: float = 0.0  # how long the longest of them took
    slowest_at: float = 0.0  # when that one ended
    status: int = 0  # that the caller has got; 0: none yet
    bytes_out: int = 0  # of body
    stop: Callable[[], None] = lambda: None  # cancels the work, not the sink
    exchange: Exchange | None = None  # once it was admitted

    def because(self, reason: str) -> None:
        self.reason = self.reason or reason

    def shut_down(self) -> None:
        """The drain's end has come."""
        self.because("shutdown")
        self.stop()


@dataclass(frozen=True, slots=True)
class Ordered:
    """What is told of an attempt with its end: its number, the directive that it carries out, and the code of the failure before it."""

    attempt: int = 0
    directive: str = ""
    reason: str = ""


@dataclass(slots=True)
class Exchange:
    """The constants of one exchange, once its request was read."""

    refs: Refs
    pool: Pool
    targets: Sequence[Target]
    snapshot: IngressSnapshot
    door: Door
    limits: LimitsConfig
    dispatch: Dispatch
    place: Place
    budget: MemoryBudget
    wire: Reservation
    world: World
    probe: Probe
    ready_at: float
    endpoint: str
    crashed: Callable[[BaseException], None]  # tells of a bug that the exchange survives
    chat: IngressSnapshot | None = None  # the request as a chat request, where targets want that
    continuable: Continuable | None = None  # None: no attempt can go on with another's answer
    chat_continuable: Continuable | None = None  # the same for those that are asked for chat
    tunnel_marks: bool = True  # a tunnel that fails after its first byte says so
    streams_errors: bool = False  # a held answer's error goes into a stream of status 200
    explanation: Explanation | None = None  # None: the caller did not ask for one
    bare: Start | None = None  # of a response that comes to nothing but an error
    attempts: int = 0  # made so far; one that found no place at a provider was none
    path: PathKind = "normalized"  # of the attempt that was admitted last
    asked: str = ""  # the provider of the attempt that is open
    order: Ordered = Ordered()  # the attempt that was ordered last
    evidence: Reservation | None = None  # what the evaluator holds
    leases: Callable[[], int] = lambda: 0
    measures: Measures = field(init=False)

    def __post_init__(self) -> None:
        self.measures = Measures(
            self.ready_at,
            streams=self.snapshot.request.stream,
            reasoning=self.pool.route.hold.reasoning == "release",
        )

    def asked_at(self, target: Target) -> str:
        """The endpoint that this target is asked at: the caller's own, or chat completions in its place."""
        return CHAT_PATH if self.over_chat(target) else self.endpoint

    def over_chat(self, target: Target) -> bool:
        """Whether this target only has chat completions where the caller wants a response."""
        return self.chat is not None and "responses" not in target.capabilities

    def sent_to(self, target: Target) -> CallerRequest:
        """The request in the form in which this target gets it."""
        chat = self.chat if self.over_chat(target) else None
        return (chat or self.snapshot).request

    @property
    def held_bytes(self) -> int:
        """Bytes of the ledger that are evidence."""
        return self.evidence.size if self.evidence is not None else 0

    @property
    def elapsed(self) -> float:
        """Seconds since its request was whole."""
        return trio.current_time() - self.ready_at

    @property
    def deadline(self) -> float:
        """After it no attempt starts, and one without progress is ended."""
        seconds = self.pool.route.clocks.total_seconds
        return self.ready_at + seconds if seconds else float("inf")

    def ended(self, code: str, provider: str) -> None:
        """Tells that the attempt that was ordered last is over; one that found no place had no provider."""
        order, self.asked = self.order, ""
        self.note(
            What.ATTEMPT_ENDED,
            attempt=order.attempt,
            code=code,
            provider=provider,
            directive=order.directive,
            reason=order.reason,
        )

    def cut_off(self) -> None:
        """The actors have ended, and whoever was told that an attempt began is told that it is over.

        Only now: a runner that has its place takes one more step though the exchange was cancelled, and in that it begins.
        """
        if self.asked:
            self.ended(FailureKind.ABORTED.value, self.asked)

    def note(
        self,
        what: What,
        *,
        attempt: int = 0,
        code: str = "",
        provider: str = "",
        status: int = 0,
        count: int = 0,
        filter: str = "",  # noqa: A002 - the name that the record has
        directive: str = "",
        reason: str = "",
    ) -> None:
        """One observation, with the exchange's id and the time since its request was whole."""
        seen = Observation(
            what,
            self.refs.exchange,
            attempt=attempt,
            code=code,
            provider=provider,
            status=status,
            seconds=self.elapsed,
            count=count,
            filter=filter,
            directive=directive,
            reason=reason,
        )
        self.probe(seen)
        if self.explanation is not None:
            self.explanation.observe(seen)

    def told(self, *, head: bool = False, waiting: bool = False) -> Told | None:
        """What the caller is to be told with the next that goes to the sink; None where it is nothing. `head`: header fields, too; `waiting`: also what is held just now."""
        if self.explanation is None:
            return None
        return self.explanation.told(self.elapsed, head=head, waiting=waiting)
