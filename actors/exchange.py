"""One exchange, from its first byte to its terminal: every channel, both nurseries, and the order of close.

    place                            given back last, so that callers who do not read still count
      wire reservation               what may be out of the evaluator's hands
        outer nursery                ingress, sink
          snapshot                   the only owner of its reservation
            rebuilder                waits for rebuilds in flight when it is left
              inner nursery          attempt runner, evaluator, recovery coordinator

Leaving the inner nursery closes the attempt's connection, then the rebuilder closes, then the snapshot's bytes go back: all while the sink may still be writing, or stuck. The
terminal is sent here if the coordinator did not: at the drain's end, or when an actor died.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Final

import trio

from actors import attempt, coordinator, evaluator, ingress, sink
from actors.attempt import AttemptOrder, Evidence
from actors.bodies import Bodies, open_bodies
from actors.context import Door, Ending, Exchange, Gateway, Pool
from actors.dispatch import Place
from actors.endpoint import (
    bare_start,
    explanation_of,
    find_continuations,
    framing_name,
    judge_of,
    mode_of,
    pings_commit,
    terminal_of,
)
from actors.evaluator import WIRE_BYTES, Reports
from actors.ports import Caller
from actors.sink import Written
from actors.translating import targets_for
from actors.world import Moment
from gate.budget import MemoryBudget, Reservation
from gate.envelope import refusal
from gate.errors import BudgetExceeded, RequestRefused
from gate.events import Intake, Ping, Refused, Terminal, Wire
from gate.ingress import CallerRequest, IngressSnapshot
from gate.observe import Measured, Observation, Outcome, OutcomeKind, What
from gate.refs import ExchangeId, Refs
from gate.relay import is_resource
from gate.schema_cache import SchemaCache

__all__ = ["run_exchange"]

EVIDENCE_BATCHES_MAX: Final = 2
Task = Callable[[], Awaitable[None]]
Leave = Callable[[], None]
REPORTS_MAX: Final = 2  # a violation and the end that follows it


async def run_exchange(door: Door, caller: Caller, gateway: Gateway) -> Outcome:
    """Supervises one exchange and says how it ended. Raises `BudgetExceeded` where the process has no room for it at all.

    No exception of an actor leaves here: one that dies ends the exchange with `internal_error`, or, where even that can't be written, with an
    outcome of that code and a response that was not finished.
    """
    budget = MemoryBudget("exchange", gateway.limits.exchange_bytes_max, gateway.budget)
    ending = Ending()
    supervisor = _Supervisor(door, caller, gateway, budget, ending)
    began = trio.current_time()
    with gateway.dispatch.place() as place, budget.reserve(WIRE_BYTES) as wire:
        gateway.probe(Observation(What.EXCHANGE_STARTED, door.exchange))
        gateway.open.add(ending)
        try:
            await supervisor.run(place, wire)
        except* Exception as group:  # noqa: BLE001 - the boundary where our own bugs become an outcome
            supervisor.crashed(group)
            ending.because("internal_error")
        finally:
            gateway.open.discard(ending)
            supervisor.tell(trio.current_time() - began)
    return supervisor.outcome()


@contextmanager
def _open_snapshot(budget: MemoryBudget) -> Iterator[IngressSnapshot]:
    snapshot = IngressSnapshot(budget)
    try:
        yield snapshot
    finally:
        snapshot.close()


class _Supervisor:
    """The life of one exchange, and what is known of it at the end."""

    def __init__(
        self, door: Door, caller: Caller, gateway: Gateway, budget: MemoryBudget, ending: Ending
    ) -> None:
        self._door = door
        self._caller = caller
        self._gateway = gateway
        self._budget = budget
        self._ending = ending
        self._written: Written | None = None
        self._request: CallerRequest | None = None
        self._pool: Pool | None = None
        self._admitted_as: Exchange | None = None
        self._terminal_sent = False
        self._silent: BaseException | None = None  # an end that says nothing by itself ...
        self._explained = False  # ... and need not, where a bug was told

    async def run(self, place: Place, wire: Reservation) -> None:
        """The nesting of the module's docstring: every task of the exchange is started here."""
        releases, wire_end = trio.open_memory_channel[Wire](1)
        results, written = trio.open_memory_channel[Written](1)
        work = trio.CancelScope()
        self._ending.stop = work.cancel
        async with trio.open_nursery() as outer:
            leave = outer.cancel_scope.cancel
            with releases, written:
                outer.start_soon(self._sink(wire_end, results))
                terminal: Terminal | None = None
                with work, _open_snapshot(self._budget) as snapshot, _open_snapshot(self._budget) as chat:  # fmt: skip
                    send_intake, intake = trio.open_memory_channel[Intake](1)
                    # Ingress knows that the snapshot may be closed before it ends.
                    reading = self._ingress(send_intake, snapshot, leave)
                    outer.start_soon(self._guarded, reading)
                    try:
                        admitted = await self._admitted(intake, snapshot, chat, place, wire)
                        if isinstance(admitted, Terminal):
                            terminal = admitted
                        else:
                            watching = self._watch(releases.clone(), admitted, leave)
                            outer.start_soon(self._guarded, watching)
                            async with open_bodies(admitted) as bodies:
                                admitted.leases = lambda: bodies.leases_open
                                actors = _inner_actors(
                                    admitted,
                                    bodies,
                                    releases,
                                    self._sent,
                                    schemas=self._gateway.schemas,
                                )
                                try:
                                    async with trio.open_nursery() as inner:
                                        for actor in actors:
                                            inner.start_soon(actor)
                                finally:
                                    admitted.cut_off()
                    except* (trio.BrokenResourceError, trio.EndOfChannel) as group:
                        # Whoever was at the other end ended a step earlier, and says why; or nobody does.
                        self._silent = group
                    except* Exception as group:  # noqa: BLE001 - an actor died: the exchange still ends in an explicit terminal
                        self.crashed(group)
                if not self._terminal_sent:
                    # The sink may have had one from an actor that died before it could say so.
                    with suppress(trio.BrokenResourceError):
                        await releases.send(terminal or self._early_end())
                self._written = await written.receive()
            outer.cancel_scope.cancel()

    async def _guarded(self, task: Task) -> None:
        """One that runs beside the sink and dies ends the work, and not the sink: that still has the terminal to write."""
        try:
            await task()
        except Exception as error:  # noqa: BLE001 - a bug of ours, as above
            self.crashed(error)
            self._ending.stop()

    async def _admitted(
        self,
        intake: trio.MemoryReceiveChannel[Intake],
        snapshot: IngressSnapshot,
        chat: IngressSnapshot,
        place: Place,
        wire: Reservation,
    ) -> Exchange | Terminal:
        """Waits for the request and for a place; the exchange, or the refusal that it ends with."""
        with intake:
            message = await intake.receive()
        if isinstance(message, Refused):
            return Terminal(message.error, 0, close=message.close)
        request = self._request = snapshot.request
        ready_at = self._gateway.world.look(Moment.READY, 0.0)
        pool = self._pool_for(request)
        if isinstance(pool, Terminal):
            return pool
        self._pool = pool
        try:
            targets = await targets_for(self._door, pool, snapshot, chat)
        except (RequestRefused, BudgetExceeded) as error:
            return Terminal(ingress.refused(error).error, 0)
        code = await self._gateway.dispatch.admit(place)
        if code is not None:
            return Terminal(refusal(503, code), 0, close=code == "draining")
        gateway = self._gateway
        pool.retries.admit(ready_at)
        exchange = self._admitted_as = Exchange(
            refs=Refs(ExchangeId(self._door.exchange)),
            pool=pool,
            targets=targets,
            snapshot=snapshot,
            door=self._door,
            limits=gateway.limits,
            dispatch=gateway.dispatch,
            place=place,
            budget=self._budget,
            wire=wire,
            world=gateway.world,
            probe=gateway.probe,
            ready_at=ready_at,
            endpoint=self._door.endpoint,
            crashed=partial(gateway.crashed, self._door.exchange),
            chat=chat if chat.filled else None,
            tunnel_marks=gateway.tunnel_marks,
            streams_errors=gateway.streams_errors,
            explanation=explanation_of(self._door, request, pool) if gateway.explains else None,
        )
        find_continuations(exchange)
        exchange.bare = bare_start(exchange)
        self._ending.exchange = exchange
        return exchange

    def _pool_for(self, request: CallerRequest) -> Pool | Terminal:
        """The targets that serve the request. One whose body names no model says which in a header, unless its key may use one only."""
        pools, allowed = self._gateway.pools, self._door.models
        alias = request.model or self._door.model
        if not alias:
            known = [name for name in pools if allowed is None or name in allowed]
            if len(known) != 1 and not is_resource(self._door.endpoint):
                return Terminal(refusal(404, "not_found"), 0)
            if len(known) != 1:
                return Terminal(refusal(400, "model_required", param="model"), 0)
            alias = known[0]
        pool = pools.get(alias)
        if pool is None or (allowed is not None and alias not in allowed):
            return Terminal(refusal(404, "model_not_found", param="model"), 0)
        return pool

    def _sink(
        self, wire: trio.MemoryReceiveChannel[Wire], results: trio.MemorySendChannel[Written]
    ) -> Task:
        request_id = self._door.exchange.encode()
        return partial(
            sink.run, wire, results, self._caller, request_id=request_id, ending=self._ending
        )

    def _ingress(
        self, intake: trio.MemorySendChannel[Intake], snapshot: IngressSnapshot, leave: Leave
    ) -> Task:
        return partial(
            ingress.run,
            intake,
            self._caller,
            snapshot,
            self._door,
            self._gateway.limits,
            world=self._gateway.world,
            ending=self._ending,
            caller_write_seconds=self._gateway.caller_write_seconds,
            leave=leave,
        )

    def _watch(self, wire: trio.MemorySendChannel[Wire], exchange: Exchange, leave: Leave) -> Task:
        hold, commits = exchange.pool.route.hold, pings_commit(exchange)
        return partial(
            sink.watch,
            wire,
            self._ending,
            ping_seconds=hold.ping_seconds,
            ping=lambda: Ping(
                commits, exchange.attempts, exchange.told(head=commits, waiting=True)
            ),
            world=exchange.world,
            caller_write_seconds=self._gateway.caller_write_seconds,
            leave=leave,
        )

    def _sent(self) -> None:
        self._terminal_sent = True

    def _early_end(self) -> Terminal:
        """The terminal of an exchange whose coordinator sent none: the drain's end, or an actor that died."""
        shutdown = self._ending.reason == "shutdown"
        retry = False if self._attempts else None
        error = (
            refusal(503, "shutdown") if shutdown else refusal(500, "internal_error", retry=retry)
        )
        if self._admitted_as is None:
            return Terminal(error, 0, close=shutdown)
        return terminal_of(self._admitted_as, error, close=shutdown)

    @property
    def _attempts(self) -> int:
        return self._admitted_as.attempts if self._admitted_as else 0

    def crashed(self, error: BaseException) -> None:
        """A bug of ours, which explains whatever ends with it."""
        self._explained = True
        self._gateway.crashed(self._door.exchange, error)

    def tell(self, seconds: float) -> None:
        """The observation of the end; also where the exchange is cancelled from outside."""
        outcome = self.outcome()
        silent = None if self._explained else self._silent
        if silent is not None and outcome.code == "internal_error":
            self.crashed(silent)
        self._gateway.probe(
            Observation(
                What.EXCHANGE_ENDED,
                self._door.exchange,
                attempt=outcome.attempts,
                code=outcome.code or outcome.kind.value,
                framing=outcome.framing,
                status=outcome.status,
                seconds=seconds,
                count=outcome.bytes_out,
                route=self._pool.route_name if self._pool is not None else "",
                mode=outcome.mode,
                outcome=outcome.kind.value,
                measured=self._measured(outcome),
                idempotency=self._door.idempotency,
            )
        )

    def _measured(self, outcome: Outcome) -> Measured | None:
        """What the attempts took and cost; None where the exchange was not admitted."""
        if self._admitted_as is None:
            return None
        why = "" if outcome.kind is OutcomeKind.SUCCESS else outcome.code or outcome.kind.value
        return self._admitted_as.measures.measured(why)

    def outcome(self) -> Outcome:
        """How the exchange ended: as the sink wrote it, else abandoned, else a bug of ours."""
        written, request = self._written, self._request
        framing = written.framing if written else ""
        mode = mode_of(framing, self._admitted_as)
        if not framing and request is not None:
            framing = framing_name(request, self._admitted_as)
        if written is None:
            reason = self._ending.reason
            kind = OutcomeKind.ERROR if reason == "internal_error" else OutcomeKind.ABANDONED
            status, sent = self._ending.status, self._ending.bytes_out
            return Outcome(kind, reason, status, self._attempts, sent, framing, mode, self._budget)
        kind = OutcomeKind.ERROR if written.code else OutcomeKind.SUCCESS
        return Outcome(
            kind,
            written.code,
            written.status,
            written.attempts,
            written.bytes_out,
            framing,
            mode,
            self._budget,
        )


def _inner_actors(
    exchange: Exchange,
    bodies: Bodies,
    releases: trio.MemorySendChannel[Wire],
    sent: Callable[[], None],
    *,
    schemas: SchemaCache,
) -> list[Task]:
    """The three actors of the inner nursery, each with its own ends of the channels between them."""
    send_orders, orders = trio.open_memory_channel[AttemptOrder](1)
    send_evidence, evidence = trio.open_memory_channel[Evidence](EVIDENCE_BATCHES_MAX)
    send_reports, reports = trio.open_memory_channel[Reports](REPORTS_MAX)
    judge = judge_of(exchange, schemas)
    return [
        partial(attempt.run, orders, send_evidence, exchange, bodies.take),
        partial(evaluator.run, evidence, releases.clone(), send_reports, exchange, judge),
        partial(
            coordinator.run,
            send_orders,
            reports,
            releases.clone(),
            exchange,
            bodies,
            sent=sent,
        ),
    ]
