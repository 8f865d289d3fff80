"""The recovery coordinator: asks for attempts until one is complete or none is left, and sends the terminal.

It decides nothing itself: `gate.recovery` says what comes next, from the history and the moment. One attempt is open at a time; the next order goes
out only after the end of the last one was reported.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec
import trio

from actors.attempt import AttemptOrder
from actors.bodies import Bodies
from actors.context import Exchange, Ordered
from actors.endpoint import terminal_of
from actors.evaluator import Reports
from actors.probe import acting
from actors.world import Moment
from gate.config import Prefill
from gate.dialects import can_continue, continuation_item, flags, lowered
from gate.errors import RebuildOverflow
from gate.events import Complete, Ended, Resume, Success, Violation, Wire
from gate.failure import Failure
from gate.framing_tunnel import tunnelled
from gate.ingress import CHAT_PATH
from gate.observe import What
from gate.patches import Appended
from gate.plan import Continuation, Directive, DirectiveKind, Exact, RecoveryPlan
from gate.recovery import Attempted, GiveUp, Next, Situation, decide
from gate.repair import RepairNote, repair_item, repair_key

__all__ = ["run"]


async def run(
    orders: trio.MemorySendChannel[AttemptOrder],
    reports: trio.MemoryReceiveChannel[Reports],
    wire: trio.MemorySendChannel[Wire],
    exchange: Exchange,
    bodies: Bodies,
    *,
    sent: Callable[[], None],
) -> None:
    """Ends when the terminal was sent; `sent` is called, synchronously, when it has been."""
    with orders, reports, wire, acting("coordinator"):
        recovery = _Recovery(exchange, bodies)
        while True:
            decision = recovery.decide()
            if isinstance(decision, GiveUp):
                exchange.note(
                    What.GIVE_UP,
                    code=decision.why.value,
                    status=decision.error.status,
                    count=len(recovery.history),
                )
                tunnel = exchange.path == "tunnel"
                error = tunnelled(decision.error) if tunnel else decision.error
                await wire.send(terminal_of(exchange, error))
                break
            health = exchange.targets[decision.targets[0]].health
            with health.probing(trio.current_time()):
                order = await recovery.order(decision)
                if order is None:
                    continue
                await orders.send(order)
                ended, notes = await _end_of(order, reports)
                recovery.tell(ended)
            if isinstance(ended.how, Complete):
                assert ended.facts is not None, "a complete attempt has facts"
                told = exchange.told(head=True)
                await wire.send(Success(ended.facts, exchange.attempts, told))
                break
            recovery.failed(decision, ended, ended.how, notes)
        sent()
        await bodies.aclose()


class _Recovery:
    """The attempt history of one exchange, and what the next decision depends on."""

    def __init__(self, exchange: Exchange, bodies: Bodies) -> None:
        self.history: list[Attempted] = []
        self._exchange = exchange
        self._bodies = bodies
        self._paid = 0  # further attempts that the retry budget was charged for
        self._released = False
        self._resume: Resume | None = None
        self._notes: Sequence[RepairNote] = ()
        self._barred: set[DirectiveKind] = set()
        self._continuables = {exchange.endpoint: exchange.continuable}
        if exchange.chat is not None:
            self._continuables[CHAT_PATH] = exchange.chat_continuable
        self._dialects = tuple(
            target.prefill if can_continue(target.prefill, exchange.asked_at(target)) else "none"
            for target in exchange.targets
        )

    def decide(self) -> Next | GiveUp:
        """What comes next, as things stand now."""
        exchange, now = self._exchange, self._exchange.world.look(Moment.DECIDE, 0.0)
        situation = Situation(
            priorities=tuple(target.priority for target in exchange.targets),
            released=self._released,
            now=now,
            deadline=min(exchange.deadline, exchange.dispatch.drain_ends),
            draw=exchange.world.draw(),
            recovery=exchange.pool.route.recovery,
            waits=tuple(target.health.wait_seconds(now) for target in exchange.targets),
            retries_left=exchange.pool.retries.left(now),
            dialects=self._dialects,
            resume=self._resume,
            ceiling_left=None not in map(self._ceilings, self._continuables),
            repairable=bool(self._notes),
            barred=frozenset(self._barred),
        )
        return decide(self.history, situation)

    def tell(self, ended: Ended) -> None:
        """The attempt that was ordered last is over."""
        exchange, how = self._exchange, ended.how
        code = how.code if isinstance(how, Failure) else "complete"
        exchange.ended(
            code, exchange.targets[ended.target].provider_name if ended.target >= 0 else ""
        )

    def failed(
        self, decision: Next, ended: Ended, failure: Failure, notes: Sequence[RepairNote]
    ) -> None:
        """An attempt of this decision has ended so; `notes` say what was wrong with its answer."""
        self._notes = notes
        self._released = bool(ended.released)
        self._resume = ended.resume
        at = self._exchange.world.look(Moment.FAILED, 0.0)
        self.history.append(Attempted(ended.target, failure, at, decision.directive))

    async def order(self, decision: Next) -> AttemptOrder | None:
        """A decision as the order to carry it out, with the body that the attempt is to send; after the pause that it asks for.

        None where memory has no room for the body: then there is no such plan in this exchange.
        """
        exchange, refs, before = self._exchange, self._exchange.refs, len(self.history)
        try:
            asked = [exchange.asked_at(exchange.targets[each]) for each in decision.targets]
            directive = self._directive(decision, asked[0])
            # What changes the request was made for one form of it.
            forms = set(asked) if isinstance(directive, Exact) else {asked[0]}
            targets = tuple(
                each for each, at in zip(decision.targets, asked, strict=True) if at in forms
            )
            plan = RecoveryPlan(refs.plan(), directive, targets, decision.wait_seconds)
            if before > self._paid:
                self._paid = before
                exchange.pool.retries.take(trio.current_time())
            if before:
                exchange.note(
                    What.PLAN,
                    attempt=before,
                    code=decision.directive.value,
                    count=before,
                    reason=self.history[-1].failure.code,
                )
                await trio.sleep(plan.wait_seconds)
            bodies = await self._bodies.rebuild(refs.snapshot, plan, sorted(forms))
        except RebuildOverflow as error:
            exchange.note(What.PLAN, attempt=before, code=error.public_code, count=before)
            self._barred.add(decision.directive)
            return None
        continues = decision.directive is DirectiveKind.CONTINUATION
        n, scope = refs.attempt(), trio.CancelScope()
        why = self.history[-1].failure.code if self.history else ""
        exchange.order = Ordered(n, decision.directive.value, why)
        return AttemptOrder(
            n, bodies, targets, scope, decision.last, continues, plan.idempotency_key
        )

    def _directive(self, decision: Next, endpoint: str) -> Directive:
        """The directive, with its patch, for a body of this endpoint, in the rebuilder's store where it needs one. Raises `RebuildOverflow`."""
        if decision.directive is DirectiveKind.CONTINUATION:
            return self._continuation(self._dialects[decision.targets[0]], endpoint)
        if decision.directive is DirectiveKind.SCHEMA:
            return self._repair(endpoint)
        return Exact(self._exchange.refs.snapshot)

    def _continuation(self, dialect: Prefill, endpoint: str) -> Directive:
        resume, ceilings = self._resume, self._ceilings(endpoint)
        assert resume is not None, "a continuation has a resume point"
        assert ceilings is not None, "and tokens left"
        directive = Continuation(self._exchange.refs.snapshot, resume.cursor)
        item = continuation_item(dialect, endpoint, resume.text)
        siblings = {**flags(dialect, endpoint), **ceilings}
        self._bodies.patches(endpoint).put(directive, Appended(item), siblings=siblings)
        return directive

    def _repair(self, endpoint: str) -> Directive:
        directive = repair_key(self._notes, self.history[-1].failure.code)
        item = repair_item(self._notes, endpoint=endpoint)
        self._bodies.patches(endpoint).put(directive, Appended(item))
        return directive

    def _ceilings(self, endpoint: str) -> Mapping[str, bytes] | None:
        """The caller's ceilings, as a body of this endpoint says them, less what has been produced; None where nothing is left."""
        continuable, resume = self._continuables[endpoint], self._resume
        if continuable is None or resume is None:
            return {}
        return lowered(continuable.ceilings, resume.produced)


async def _end_of(
    order: AttemptOrder, reports: trio.MemoryReceiveChannel[Reports]
) -> tuple[Ended, Sequence[RepairNote]]:
    """How the attempt ended, and what was wrong with its answer; a violation counts before its own end."""
    violation: Failure | None = None
    notes: Sequence[RepairNote] = ()
    while True:
        report = await reports.receive()
        if isinstance(report, Violation):
            violation, notes = report.failure, report.notes
            order.scope.cancel()
            continue
        return msgspec.structs.replace(report, how=violation or report.how), notes
