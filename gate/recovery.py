"""The recovery decision: (history, positions, limits, time, draw) -> a plan, or giving up. Pure; the coordinator carries it out.

    failure                                             nothing released              something released
    408/409/429/5xx, or an in-band error like it        exact: same target, then next in-stream error
    connect, reset, timeouts, stall, cut, malformed,    exact: next target            in-stream error
      missing terminal, empty, unusable answer
    the provider's 401/403, 404, context length,        next target where the route   -
      content filter                                      falls back on it, else answer
    other 4xx                                           answer                        -
    a limit of ours, deadline, drain                    error                         in-stream error

The first attempt is a decision too: history is empty.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import Enum
from typing import Final

import msgspec

from gate.config import RecoveryConfig
from gate.envelope import PublicError, public_error
from gate.failure import Failure, FailureKind
from gate.health import RETRY_AFTER_PATIENCE_SECONDS

__all__ = ["Attempted", "GiveUp", "Next", "Situation", "Why", "decide", "last_error"]

BACKOFF_SECONDS_MAX: Final = 8.0  # a caller waits for each of them

# Failures after which the same target may be asked again, once it has had its pause.
_SAME_FIRST: Final = frozenset({FailureKind.UNAVAILABLE, FailureKind.RATE_LIMITED})
# Answers: another target is asked only where the route falls back on them.
_ANSWERS: Final = {
    FailureKind.AUTH: "auth",
    FailureKind.NOT_FOUND: "not_found",
    FailureKind.CONTEXT_LENGTH: "context_length",
    FailureKind.CONTENT_FILTER: "content_filter",
    FailureKind.REFUSED: "",
}
# Reasons that no further attempt can mend.
_FINAL: Final = frozenset(
    {
        FailureKind.TOTAL,
        FailureKind.STREAM_LIMIT,
        FailureKind.HELD_LIMIT,
        FailureKind.FILTER_UNAVAILABLE,
        FailureKind.QUEUE,
        FailureKind.NO_TARGET,
        FailureKind.BUDGET,
        FailureKind.ABORTED,
    }
)


class Why(Enum):
    """Why no further attempt is made; for operators."""

    ANSWER = "answer"
    FINAL = "final"
    RELEASED = "released"
    ATTEMPTS = "attempts"
    TARGETS = "targets"
    TIME = "time"
    BUDGET = "retry_budget_exhausted"


class Attempted(msgspec.Struct, frozen=True):
    """One attempt of the history. `at`: when it ended, in seconds on the exchange's clock."""

    target: int
    failure: Failure
    at: float


class Situation(msgspec.Struct, frozen=True):
    """What a decision depends on besides the history.

    `priorities`: one number per target, in the pool's order; `deadline`: no attempt starts after it; `draw`: a random number in
    [0, 1) for the jitter. `waits`: seconds until each target's provider may be asked, where its health says something (none: all may);
    `retries_left`: the alias' retry budget allows another attempt.
    """

    priorities: tuple[int, ...]
    released: bool
    now: float
    deadline: float
    draw: float
    recovery: RecoveryConfig
    waits: tuple[float, ...] = ()
    retries_left: bool = True


class Next(msgspec.Struct, frozen=True):
    """Make another attempt, at the first of `targets` that has room, after `wait_seconds`. `last`: none could follow it."""

    targets: tuple[int, ...]
    wait_seconds: float
    last: bool


class GiveUp(msgspec.Struct, frozen=True):
    """Answer with this error."""

    error: PublicError
    why: Why


def decide(history: Sequence[Attempted], situation: Situation) -> Next | GiveUp:
    """The next attempt, or the error that the exchange ends with."""
    if not history:
        return _first(situation)
    reason = _no_attempt(history, situation)
    if reason is None:
        chosen = _choose(history, situation)
        if isinstance(chosen, Next):
            return chosen
        reason = chosen
    return GiveUp(last_error(history, situation.now), reason)


def last_error(history: Sequence[Attempted], now: float) -> PublicError:
    """The error of the last failure that says something about the provider or the request; a 429 where every attempt was one."""
    telling = [item for item in history if item.failure.kind is not FailureKind.BUDGET] or list(
        history
    )
    limited = [item for item in history if item.failure.kind is FailureKind.RATE_LIMITED]
    if len(limited) == len(telling):
        waits = [
            item.at + item.failure.retry_after - now
            for item in limited
            if item.failure.retry_after is not None
        ]
        return public_error(
            limited[-1].failure, attempts=len(history), retry_after=min(waits, default=None)
        )
    last = telling[-1].failure
    if last.kind is FailureKind.RATE_LIMITED:
        last = Failure(FailureKind.UNAVAILABLE, last.status)
    return public_error(last, attempts=len(history))


def _first(situation: Situation) -> Next | GiveUp:
    targets = _by_priority(situation, _unwell(situation))
    if not targets:
        soonest = min(situation.waits, default=None)
        failure = Failure(FailureKind.NO_TARGET)
        return GiveUp(public_error(failure, attempts=0, retry_after=soonest), Why.TARGETS)
    return Next(targets, 0.0, situation.recovery.attempts_max == 1)


def _no_attempt(history: Sequence[Attempted], situation: Situation) -> Why | None:
    kind = history[-1].failure.kind
    if kind in _FINAL:
        return Why.FINAL
    if situation.released:
        return Why.RELEASED
    if kind in _ANSWERS and _ANSWERS[kind] not in situation.recovery.fallback_on:
        return Why.ANSWER
    if len(history) >= situation.recovery.attempts_max:
        return Why.ATTEMPTS
    return None if situation.retries_left else Why.BUDGET


def _choose(history: Sequence[Attempted], situation: Situation) -> Next | Why:
    targets = _usable(history, situation)
    if not targets:
        return Why.TARGETS
    for wait, wanted in _wishes(targets, history, situation):
        if situation.now + wait < situation.deadline:
            last = len(history) + 1 >= situation.recovery.attempts_max
            ready = [
                target for target in wanted if _asked_for(target, history, situation.now) <= wait
            ]
            return Next(tuple(ready), wait, last)
    return Why.TIME


def _wishes(
    targets: Sequence[int], history: Sequence[Attempted], situation: Situation
) -> Iterator[tuple[float, Sequence[int]]]:
    """(seconds to wait, targets) in order of preference."""
    last = history[-1].target
    fresh = [target for target in targets if all(item.target != target for item in history)]
    if last in targets and _may_repeat(history, situation):
        others = fresh or [target for target in targets if target != last]
        yield _pause(last, history, situation), [last, *others]
    if fresh:
        yield 0.0, fresh
    else:
        # Every target has failed: the round begins anew, with the one that is ready first.
        again = sorted(targets, key=lambda target: _asked_for(target, history, situation.now))
        yield _pause(again[0], history, situation), again


def _usable(history: Sequence[Attempted], situation: Situation) -> tuple[int, ...]:
    """Targets that may be asked (again): those not tried yet in order of priority, then those whose failure is oldest."""
    out = frozenset(item.target for item in history if _rules_out(item, situation.deadline))
    out |= _unwell(situation)
    failed_at = {item.target: number for number, item in enumerate(history)}
    candidates = _by_priority(situation, out)
    return tuple(sorted(candidates, key=lambda target: failed_at.get(target, -1)))


def _unwell(situation: Situation) -> frozenset[int]:
    """Targets whose provider is not to be asked now."""
    return frozenset(target for target, wait in enumerate(situation.waits) if wait > 0)


def _rules_out(item: Attempted, deadline: float) -> bool:
    """Whether a failure takes its target out of this exchange: an answer, or a Retry-After that nobody waits for."""
    wait = item.failure.retry_after
    impatient = wait is not None and wait > min(RETRY_AFTER_PATIENCE_SECONDS, deadline - item.at)
    return impatient or item.failure.kind in _ANSWERS


def _may_repeat(history: Sequence[Attempted], situation: Situation) -> bool:
    """Whether the same target is asked before the next one: so often in a row as the route says, and only where a pause may help."""
    if history[-1].failure.kind not in _SAME_FIRST:
        return False
    target = history[-1].target
    run = 0
    for item in reversed(history):
        if item.target != target:
            break
        run += 1
    return run <= situation.recovery.same_target_retries


def _pause(target: int, history: Sequence[Attempted], situation: Situation) -> float:
    """Seconds until `target` is asked again: its Retry-After, or a backoff with full jitter where that is longer."""
    backoff = situation.recovery.backoff_seconds * 2.0 ** (len(history) - 1)
    jitter = situation.draw * min(BACKOFF_SECONDS_MAX, backoff)
    return max(jitter, _asked_for(target, history, situation.now))


def _asked_for(target: int, history: Sequence[Attempted], now: float) -> float:
    """Seconds that the target's newest Retry-After has still to go."""
    for item in reversed(history):
        if item.target == target:
            return max(0.0, item.at + (item.failure.retry_after or 0.0) - now)
    return 0.0


def _by_priority(situation: Situation, ruled_out: frozenset[int]) -> tuple[int, ...]:
    targets = [target for target in range(len(situation.priorities)) if target not in ruled_out]
    return tuple(sorted(targets, key=lambda target: situation.priorities[target]))
