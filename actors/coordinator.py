"""The recovery coordinator: asks for attempts until one is complete or none is left, and sends the terminal.

It decides nothing itself: `gate.recovery` says what comes next, from the history and the moment. One attempt is open at a time; the next order goes
out only after the end of the last one was reported.
"""

from __future__ import annotations

from collections.abc import Callable

import trio

from actors.attempt import AttemptOrder
from actors.context import Exchange
from actors.evaluator import Reports
from actors.probe import acting
from actors.rebuilder import Rebuilder
from gate.events import Complete, Ended, Success, Terminal, Violation, Wire
from gate.failure import Failure
from gate.observe import What
from gate.plan import Exact, RecoveryPlan
from gate.recovery import Attempted, GiveUp, Next, Situation, decide

__all__ = ["run"]


async def run(
    orders: trio.MemorySendChannel[AttemptOrder],
    reports: trio.MemoryReceiveChannel[Reports],
    wire: trio.MemorySendChannel[Wire],
    exchange: Exchange,
    rebuilder: Rebuilder,
    *,
    sent: Callable[[], None],
) -> None:
    """Ends when the terminal was sent; `sent` is called, synchronously, when it has been."""
    with orders, reports, wire, acting("coordinator"):
        history: list[Attempted] = []
        released = 0
        while True:
            decision = decide(history, _situation(exchange, released=bool(released)))
            if isinstance(decision, GiveUp):
                exchange.note(
                    What.GIVE_UP,
                    code=decision.why.value,
                    status=decision.error.status,
                    count=len(history),
                )
                await wire.send(Terminal(decision.error, exchange.attempts))
                break
            health = exchange.targets[decision.targets[0]].health
            with health.probing(trio.current_time()):
                order = await _order(rebuilder, exchange, decision, len(history))
                await orders.send(order)
                ended = await _end_of(order, reports, exchange)
            if isinstance(ended.how, Complete):
                assert ended.facts is not None, "a complete attempt has facts"
                await wire.send(Success(ended.facts, exchange.attempts))
                break
            released = ended.released
            history.append(Attempted(ended.target, ended.how, trio.current_time()))
        sent()
        await rebuilder.aclose()


def _situation(exchange: Exchange, *, released: bool) -> Situation:
    now = trio.current_time()
    return Situation(
        priorities=tuple(target.priority for target in exchange.targets),
        released=released,
        now=now,
        deadline=min(exchange.deadline, exchange.dispatch.drain_ends),
        draw=exchange.world.draw(),
        recovery=exchange.pool.route.recovery,
        waits=tuple(target.health.wait_seconds(now) for target in exchange.targets),
        retries_left=exchange.pool.retries.left(now),
    )


async def _order(
    rebuilder: Rebuilder, exchange: Exchange, decision: Next, before: int
) -> AttemptOrder:
    """A decision as the order to carry it out, with the body that the attempt is to send; after the pause that it asks for."""
    refs = exchange.refs
    plan = RecoveryPlan(refs.plan(), Exact(refs.snapshot), decision.targets, decision.wait_seconds)
    if before:
        exchange.pool.retries.take(trio.current_time())
        exchange.note(What.PLAN, attempt=before, code="exact", count=before)
        await trio.sleep(plan.wait_seconds)
    draft = await rebuilder.rebuild(refs.snapshot, plan)
    return AttemptOrder(
        refs.attempt(), draft.request_ref, plan.targets, trio.CancelScope(), decision.last
    )


async def _end_of(
    order: AttemptOrder, reports: trio.MemoryReceiveChannel[Reports], exchange: Exchange
) -> Ended:
    """How the attempt ended; a violation counts before its own end."""
    n, violation = order.n, None
    while True:
        report = await reports.receive()
        if isinstance(report, Violation):
            violation = report.failure
            order.scope.cancel()
            continue
        how = violation or report.how
        code = how.code if isinstance(how, Failure) else "complete"
        name = exchange.targets[report.target].provider_name if report.target >= 0 else ""
        exchange.note(What.ATTEMPT_ENDED, attempt=n, code=code, provider=name)
        return Ended(n, how, report.target, report.released, report.facts)
