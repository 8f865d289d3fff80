"""What holds after every run, whatever struck: each finding begins with the number of the invariant that is broken.

I0 the run ends. I1 nothing is held. I2 each attempt is closed once, one at a time, at once. I3 (rebuilder) and I16 (same bytes under every schedule) are looked at by `ops.chaos.rebuilds` and
`ops.chaos.explore`. I4 no byte before the first release or terminal. I5 nothing is closed twice. I6 nothing behind the terminal. I7 the wire's grammar. I8 the text is a beginning of the answer, and all of it
at a clean end. I9 nothing that a filter has not passed. I10 one terminal, while the caller is there. I11 no exception is lost, none is unknown. I12 a cancelled exchange ends. I13 its scope
caught the cancel. I14 no farewell to one who left. I15 no task, coroutine or resource is left. I17 attempts within the budget, as told. I18 one framing. I19 the instrument was there to the end. I20 no task meets the
exchange's `Cancelled` twice.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Final

import trio

from actors.attempt import AGAIN
from gate.observe import OutcomeKind, What
from ops.chaos.cases import CALLER, DRAIN, REQUEST
from ops.chaos.inject import Abandoned, Bug
from ops.chaos.invariants_wire import outcome_told, wire
from ops.chaos.run import Run
from ops.chaos.wired import leaves

__all__ = ["broken"]

CLOSE_SECONDS: Final = 0.0  # of virtual time, between the caller's leaving and the provider's close

Check = Callable[[Run], Iterator[str]]


def broken(run: Run) -> list[str]:
    """Every invariant that this run breaks, with what was seen."""
    if run.hung or run.injector.spun:
        return list(_ends(run))
    found: list[str] = []
    for check in _CHECKS:
        try:
            found += check(run)
        except (LookupError, TypeError, ValueError) as error:
            found.append(f"I7 its caller can't be read: {error!r}")
    return found


# --- the run ---------------------------------------------------------------------------------------


def _ends(run: Run) -> Iterator[str]:
    if run.injector.spun:
        yield f"I0 spins: more than {run.injector.count // 2} steps"
    elif run.hung:
        yield "I0 hangs: " + "; ".join(run.hung)


def _nothing_held(run: Run) -> Iterator[str]:
    yield from (f"I1 still held: {each}" for each in run.stage.left_behind())
    outcome = run.outcome
    if outcome is not None and (outcome.ledger.used or outcome.ledger.open_reservations):
        yield f"I1 the exchange's ledger: {outcome.ledger!r}"


def _attempts_closed(run: Run) -> Iterator[str]:
    asked = run.stage.asked
    yield from (
        f"I2 an attempt was closed {each.closes} times" for each in asked if each.closes != 1
    )
    for first, second in pairwise(sorted(asked, key=lambda each: each.asked_at)):
        if first.closed_at > second.asked_at:
            yield "I2 two attempts at once"
    left = run.stage.caller.left_at
    if left is not None and not run.stage.caller.ended and not run.scenario.asking.stuck:
        for each in asked:
            if each.closed_at > left + CLOSE_SECONDS:
                yield f"I2 the provider was let go {each.closed_at - left:g} s after the caller had left"


def _nothing_left(run: Run) -> Iterator[str]:
    if run.tasks_left:
        yield f"I15 {run.tasks_left} tasks are left"
    yield from (f"I15 {each}" for each in run.warned)
    if not run.alive and run.escaped is None:
        yield "I19 the instrument was gone before the end"


def _cancelled_once(run: Run) -> Iterator[str]:
    yield from (f"I20 `Cancelled` a second time: {each}" for each in run.injector.twice)


# --- exceptions ------------------------------------------------------------------------------------


def _nothing_lost(run: Run) -> Iterator[str]:
    """Each fault that was raised is told of, and nothing else is."""
    strikes = [each for each in run.injector.strikes if each.hit]
    raised = [each.error for each in strikes if each.error is not None]
    raised += [*run.stage.calls.errors, *run.stage.threads.errors]
    told = [leaf for _, error in run.stage.crashes for leaf in leaves(error)]
    told += leaves(run.escaped) if run.escaped is not None else []
    for error in raised:
        if error not in told:
            yield f"I11 lost: {error}"
    for leaf in told:
        if isinstance(leaf, Bug) and leaf in raised:
            continue
        if _follows(leaf, run):
            continue
        number = "I5" if isinstance(leaf, AssertionError) else "I11"
        yield f"{number} unknown: {''.join(traceback.format_exception_only(leaf)).strip()}{_place(leaf)}"


def _follows(leaf: BaseException, run: Run) -> bool:
    """An end of a channel whose other end was closed by whoever was struck: its neighbours are told in the same breath."""
    struck = run.stage.calls.failed or any(
        each.hit and each.fault.who not in {REQUEST, CALLER, DRAIN} for each in run.injector.strikes
    )
    return isinstance(leaf, trio.BrokenResourceError | trio.EndOfChannel | Abandoned) and bool(
        struck
    )


def _place(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    return f" ({frames[-1].filename.rsplit('/', 2)[-1]}:{frames[-1].lineno})" if frames else ""


# --- the end ---------------------------------------------------------------------------------------


def _ended_in_time(run: Run) -> Iterator[str]:
    """Counted from the first fault that ends an exchange at once."""
    ends = [each for each in run.injector.strikes if each.hit and each.fault.who == REQUEST]
    if not ends or run.ended_at is None:
        return
    took = run.ended_at - ends[0].time
    if took > run.scenario.wait:
        yield f"I12 ended {took:g} s after it was cancelled"
    first = min(run.injector.strikes, key=lambda each: each.fault.at)
    if first is ends[0] and run.outcome is None and not run.scope.cancelled_caught:
        yield "I13 the cancel was not caught by its scope"


def _over_in_time(run: Run) -> Iterator[str]:
    """Nothing goes on behind the last byte; and where nothing strikes, no wait is longer than the scenario's own."""
    ended, lasts = run.stage.caller.ended_at, run.scenario.lasts
    if run.ended_at is None:
        return
    if ended is not None and run.ended_at > ended + run.scenario.lingers:
        yield f"I12 ended {run.ended_at - ended:g} s after its last byte"
    if lasts is not None and not run.struck and run.ended_at > lasts:
        yield f"I12 took {run.ended_at:g} s where {lasts:g} are enough"


def _left_in_time(run: Run) -> Iterator[str]:
    left = run.stage.caller.left_at
    if left is None or run.ended_at is None or run.stage.caller.ended:
        return
    if run.ended_at - left > run.scenario.wait:
        yield f"I12 ended {run.ended_at - left:g} s after the caller had left"


def _told_once(run: Run) -> Iterator[str]:
    """The observations of the beginning and the end, and attempts as they were made."""
    ends = run.stage.codes(What.EXCHANGE_ENDED)
    if len(ends) != len(run.stage.codes(What.EXCHANGE_STARTED)):
        yield "I11 a beginning without an end, or the other way round"
    begun, over = _told_of(run, What.ATTEMPT_STARTED), _told_of(run, What.ATTEMPT_ENDED)
    if begun != over:
        yield f"I17 attempts begun {begun}, ended {over}"
    for measured in filter(None, [each.measured for each in run.stage.observations]):
        times = (measured.held_seconds, measured.ttft_seconds, measured.ttft_added_seconds)
        if (
            min([0.0, *filter(None, times)]) < 0
            or min((s.tokens for s in measured.spent), default=1) < 1
        ):
            yield f"I17 no possible measure: {measured}"
    if run.outcome is None:
        return
    attempts = len(run.stage.asked)
    if run.outcome.attempts not in {attempts, _counted(run)}:
        yield f"I17 {run.outcome.attempts} attempts told, {attempts} made"
    most = max(1 + run.scenario.ask_usage, run.scenario.route.recovery.attempts_max)
    if attempts > most:
        yield f"I17 {attempts} attempts, {run.scenario.route.recovery.attempts_max} at most"


def _dead_ends(run: Run) -> Iterator[str]:
    """One that reads or watches the caller and dies ends the exchange there and then: nobody would notice that caller's leaving."""
    ended, outcome = run.stage.caller.ended_at, run.outcome
    for each in run.injector.strikes:
        alone = each.error is not None and each.actor in {"ingress", "watch"}
        if alone and outcome is not None and not outcome.code and (ended or 0.0) > each.time:
            yield f"I10 a success, {(ended or 0.0) - each.time:g} s after {each.actor} had died"


def _keys(run: Run) -> Iterator[str]:
    """An idempotency key is its plan's: it names the exchange, and goes out once. A provider that honours it would answer a second one with the first one's answer."""
    sent = [
        (each.exchange, value.decode())
        for provider in run.stage.providers
        for each in provider.asked
        for name, value in each.request.headers
        if name == b"idempotency-key"
    ]
    attempts = sum(len(provider.asked) for provider in run.stage.providers)
    if len(sent) != attempts:
        yield f"I17 {len(sent)} keys for {attempts} attempts"
    for exchange, key in sent:
        # Asked once more in another form, which has a key of its own.
        plans = {each.rpartition(".")[0] for each in (key, key.removesuffix(AGAIN))}
        if exchange not in plans:
            yield f"I17 the key {key} in the exchange {exchange}"
    keys = [key for _, key in sent]
    yield from (f"I17 the key {key} went out twice" for key in set(keys) if keys.count(key) > 1)


def _told_of(run: Run, what: What) -> list[tuple[str, int, str]]:
    return sorted(
        (each.exchange, each.attempt, each.provider)
        for each in run.stage.observations
        if each.what is what and each.provider
    )


def _counted(run: Run) -> int:
    return len(run.stage.codes(What.ATTEMPT_STARTED))


# --- beside it --------------------------------------------------------------------------------------


def _taped(run: Run) -> Iterator[str]:
    """What was taken down is what happened; a recording is no reason for anything."""
    tape = run.tape
    if tape is None:
        return
    if tape.truncated or tape.dropped:
        yield f"I11 not all was taken down: {tape!r}"
    if tape.attempts != len(run.stage.asked):
        yield f"I17 {tape.attempts} attempts on the tape, {len(run.stage.asked)} made"


def _rivals(run: Run) -> Iterator[str]:
    wanted = run.scenario.rivals + run.scenario.followers
    whole = [each for each in run.rivals if each.kind is OutcomeKind.SUCCESS]
    drained = any(each.fault.who == DRAIN for each in run.injector.strikes)
    if len(run.rivals) != wanted or (len(whole) != wanted and not drained):
        yield f"I1 {len(whole)} of {wanted} other exchanges got their answer"


_CHECKS: Final[tuple[Check, ...]] = (
    _nothing_held,
    _attempts_closed,
    _nothing_lost,
    _nothing_left,
    _cancelled_once,
    _ended_in_time,
    _over_in_time,
    _left_in_time,
    _told_once,
    _dead_ends,
    _keys,
    wire,
    outcome_told,
    _taped,
    _rivals,
)
