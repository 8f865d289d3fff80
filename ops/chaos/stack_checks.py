"""What holds after every run of ring 2: the invariants of `ops.chaos.invariants` as far as they show on connections, and those that only a connection has.

Beside the numbers: whatever happened, one more request on the same gate is answered well, on the same connection where that goes on; every connection that the gate opened is closed once, or was idle and
clean; and none of a caller who has left is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import trio

from gate.observe import OutcomeKind, What
from ops.chaos.cases import CALLER, DRAIN, HALF, PROVIDER, REQUEST, RESET, STOP
from ops.chaos.hosts import FINE
from ops.chaos.inject import Abandoned, Bug
from ops.chaos.stack import CONNECT_SECONDS, SERVER
from ops.chaos.stack_run import Run
from ops.chaos.wired import answer_findings, leaves, said
from transport.asgi import Unfinished

__all__ = ["broken"]

CLOSE_SECONDS: Final = 0.0  # of virtual time, between the caller's leaving and the provider's close
OUTER: Final = frozenset({"sink", "ingress", "watch", "exchange", SERVER, ""})
"""Whose death takes the sink along."""
OUTSIDE: Final = frozenset({REQUEST, CALLER, RESET, HALF, PROVIDER, STOP, DRAIN})
READS_MAX: Final = 20  # of a slow caller, before what is under way has gone out

Check = Callable[[Run], Iterator[str]]


def broken(run: Run) -> list[str]:
    """Every invariant that this run breaks, with what was seen."""
    if run.injector.spun:
        return [f"I0 spins: more than {run.injector.count // 2} steps"]
    if run.hung:
        return ["I0 hangs: " + "; ".join(run.hung)]
    if not run.clients or run.after is None:
        return [f"I11 the run ended early: {said(run.escaped)}"]
    return [finding for check in _CHECKS for finding in check(run)]


def _hits(run: Run) -> frozenset[str]:
    """Who was struck, by name and as actors."""
    strikes = [each for each in run.injector.strikes if each.hit]
    actors = {each.actor for each in strikes if each.fault.who not in OUTSIDE}
    return frozenset({each.fault.who for each in strikes} & OUTSIDE | actors)


def _cut_off(run: Run) -> bool:
    """The response may stop anywhere: the caller has left, its connection has failed, or one was struck that holds the sink."""
    if run.caller.left_at is not None or any(c.startswith("caller.") for c in run.calls.failed):
        return True
    return bool(_hits(run) & (OUTER | {REQUEST}))


# --- nothing is held, nothing is left -------------------------------------------------------------


def _nothing_held(run: Run) -> Iterator[str]:
    yield from (f"I1 still held: {each}" for each in run.held)
    if run.tasks_left:
        yield f"I15 {run.tasks_left} tasks are left"
    yield from (f"I15 {each}" for each in run.warned)
    if not run.alive and run.escaped is None:
        yield "I19 the instrument was gone before the end"


def _closed_once(run: Run) -> Iterator[str]:
    for each in run.net.opened:
        if each.closes != 1:
            yield f"I2 a connection to {each.host} was closed {each.closes} times"
    left = run.caller.left_at
    if left is None or run.scenario.asking.stuck:
        return
    for each in run.net.opened:
        if each.struck and left + CLOSE_SECONDS < each.closed_at <= run.over_seconds:
            yield f"I2 {each.host} was let go {each.closed_at - left:g} s after the caller had left"


def _once_more(run: Run) -> Iterator[str]:
    """The gate is none the worse for it."""
    assert run.after is not None
    response = run.after.response
    if STOP in _hits(run):
        if response.status not in {0, 503}:
            yield f"I1 status {response.status} from a service that has stopped"
        return
    if not response.whole or response.status != 200:
        yield f"I1 one more request: status {response.status}, {'whole' if response.whole else 'not whole'}"
    elif response.read().text != FINE or response.rest:
        yield f"I1 one more request got {bytes(response.body[:200])!r}"


def _rivals(run: Run) -> Iterator[str]:
    whole = [each for each in run.rivals if each.response.whole and each.response.status == 200]
    wanted = run.scenario.rivals + run.scenario.followers
    if len(whole) != wanted and not _hits(run) & {DRAIN, STOP, PROVIDER}:
        yield f"I1 {len(whole)} of {wanted} other exchanges got their answer"


# --- exceptions and cancels ------------------------------------------------------------------------


def _nothing_lost(run: Run) -> Iterator[str]:
    """Each exception that was raised is told of, and nothing else is."""
    raised = [each.error for each in run.injector.strikes if each.hit and each.error is not None]
    told = [leaf for error in run.crashes for leaf in leaves(error)]
    told += leaves(run.escaped) if run.escaped is not None else []
    lost = [error for error in raised if error not in told]
    if not _hits(run) & {SERVER}:
        yield from (f"I11 lost: {error}" for error in lost)
    for leaf in told:
        if isinstance(leaf, Bug) and leaf in raised:
            continue
        if isinstance(leaf, Unfinished) and _cut_off(run):
            continue
        if run.struck and isinstance(
            leaf, trio.BrokenResourceError | trio.EndOfChannel | Abandoned
        ):
            continue
        number = "I5" if isinstance(leaf, AssertionError) else "I11"
        yield f"{number} unknown: {said(leaf)}"


def _cancelled_once(run: Run) -> Iterator[str]:
    """Of our own actors: Hypercorn awaits in its cleanup, which is its affair."""
    for each in run.injector.twice:
        if not each.startswith(f"{SERVER} "):
            yield f"I20 `Cancelled` a second time: {each}"


# --- the end ---------------------------------------------------------------------------------------


def _ended_in_time(run: Run) -> Iterator[str]:
    ends = [each.time for each in run.injector.strikes if each.hit and each.fault.who == REQUEST]
    left = run.caller.left_at
    since = min([*ends, *([left] if left is not None else [])], default=None)
    if since is None or run.end is None:
        return
    # A write that has begun can't be cancelled: it goes on for as long as its caller takes to read it. And one who leaves may
    # have been written all of it.
    scenario = run.scenario
    lingers = scenario.lingers + CONNECT_SECONDS if scenario.lingers else 0.0
    patience = scenario.wait + lingers + scenario.asking.seconds * READS_MAX
    if run.end[0] - since > patience:
        yield f"I12 ended {run.end[0] - since:g} s after it was cancelled, or its caller had left"


def _told_once(run: Run) -> Iterator[str]:
    told = [each.what for _, each in run.told]
    if told.count(What.EXCHANGE_STARTED) != told.count(What.EXCHANGE_ENDED):
        yield "I11 a beginning without an end, or the other way round"
    # Only those that had a provider: one that was ordered and not begun is said to have ended as well.
    asked = [each.what for _, each in run.told if each.provider]
    attempts, over = asked.count(What.ATTEMPT_STARTED), asked.count(What.ATTEMPT_ENDED)
    if attempts > run.scenario.route.recovery.attempts_max:
        yield f"I17 {attempts} attempts, {run.scenario.route.recovery.attempts_max} at most"
    if attempts != over and "coordinator" not in _hits(run):
        yield f"I17 {attempts} attempts begun, {over} ended"


def _wire(run: Run) -> Iterator[str]:
    passed = [list(each.passed.values()) for each in run.services.values() if each.decides]
    cut_off = _cut_off(run) or _unserved(run)
    yield from answer_findings(run.scenario, run.caller.response, cut_off=cut_off, passed=passed)


def _unserved(run: Run) -> bool:
    """A service that stops may close its doors on a request that it has not begun."""
    return STOP in _hits(run) and not run.told and not run.caller.response.status


def _outcome(run: Run) -> Iterator[str]:
    """It says what was written; and a scenario that nothing struck ends as it is meant to."""
    response = run.caller.response
    if run.end is None:
        if not run.struck:
            yield "I13 no exchange, and nothing struck"
        return
    end = run.end[1]
    if end.outcome != OutcomeKind.ABANDONED.value and not _cut_off(run):
        if end.count != len(response.body):
            yield f"I18 {end.count} bytes told, {len(response.body)} read"
        if end.status != response.status:
            yield f"I18 status {end.status} told, {response.status} read"
    code = "" if end.outcome == OutcomeKind.SUCCESS.value else end.code
    if not run.struck and code != run.scenario.code:
        yield f"I8 ended with {code!r} where nothing struck, not with {run.scenario.code!r}"
    if not run.struck and not code and not response.whole:
        yield "I8 a success that the caller did not get"


_CHECKS: Final[tuple[Check, ...]] = (
    _nothing_held,
    _closed_once,
    _once_more,
    _rivals,
    _nothing_lost,
    _cancelled_once,
    _ended_in_time,
    _told_once,
    _wire,
    _outcome,
)
