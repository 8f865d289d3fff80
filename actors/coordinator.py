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
                ended = await _attempt(orders, reports, exchange, decision, len(history))
            if isinstance(ended.how, Complete):
                assert ended.facts is not None, "a complete attempt has facts"
                await wire.send(Success(ended.facts, exchange.attempts))
                break
            released = ended.released
            history.append(Attempted(ended.target, ended.how, trio.current_time()))
        sent()


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


async def _attempt(
    orders: trio.MemorySendChannel[AttemptOrder],
    reports: trio.MemoryReceiveChannel[Reports],
    exchange: Exchange,
    decision: Next,
    before: int,
) -> Ended:
    """Carries out one decision; how the attempt ended, a violation before its own end."""
    plan = RecoveryPlan(exchange.refs.plan(), Exact(), decision.targets, decision.wait_seconds)
    if before:
        exchange.pool.retries.take(trio.current_time())
        exchange.note(What.PLAN, attempt=before, code="exact", count=before)
        await trio.sleep(plan.wait_seconds)
    n = exchange.refs.attempt()
    scope = trio.CancelScope()
    await orders.send(AttemptOrder(n, plan.targets, scope, decision.last))
    violation: Failure | None = None
    while True:
        report = await reports.receive()
        if isinstance(report, Violation):
            violation = report.failure
            scope.cancel()
            continue
        how = violation or report.how
        code = how.code if isinstance(how, Failure) else "complete"
        name = exchange.targets[report.target].provider_name if report.target >= 0 else ""
        exchange.note(What.ATTEMPT_ENDED, attempt=n, code=code, provider=name)
        return Ended(n, how, report.target, report.released, report.facts)
