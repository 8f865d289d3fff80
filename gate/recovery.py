"""The recovery decision: (history, positions, limits, time, draw) -> a plan, or giving up. Pure; the coordinator carries it out.

`gate.recovery_table` says which steps are tried after which failure; here each step is looked at: whether it can be taken, at which targets, after how long a wait.

An attempt whose request was ours (a continuation, a repair) and that is refused with a 4xx is a failure of that plan and of nothing else: what came before it decides
again, without that target for such a plan. The first attempt is a decision too: history is empty.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Final

import msgspec

from gate.config import Prefill, RecoveryConfig
from gate.envelope import PublicError, public_error
from gate.events import Resume
from gate.failure import Failure, FailureKind
from gate.health import RETRY_AFTER_PATIENCE_SECONDS
from gate.plan import DirectiveKind
from gate.recovery_table import ANSWER, FALLBACKS, TABLE, Step

__all__ = [
    "NO_PREVIOUS",
    "Attempted",
    "GiveUp",
    "Next",
    "Situation",
    "Why",
    "decide",
    "last_error",
]

BACKOFF_SECONDS_MAX: Final = 8.0  # a caller waits for each of them
NO_PREVIOUS: Final = "previous_response_not_found"


class Why(Enum):
    """Why no further attempt is made; for operators."""

    ANSWER = "answer"
    FINAL = "final"
    RELEASED = "released"
    NO_RESUME = "no_resume_point"
    CEILING = "continuation_ceiling"
    REPAIRS = "schema_repairs"
    MEMORY = "plan_memory"
    ATTEMPTS = "attempts"
    TARGETS = "targets"
    TIME = "time"
    BUDGET = "retry_budget_exhausted"


class Attempted(msgspec.Struct, frozen=True):
    """One attempt of the history. `at`: when it ended, in seconds on the exchange's clock."""

    target: int
    failure: Failure
    at: float
    directive: DirectiveKind = DirectiveKind.EXACT

    @property
    def refused(self) -> bool:
        """The provider refused a request that was not the caller's own."""
        kind = self.failure.kind
        ours = self.directive is not DirectiveKind.EXACT
        return ours and 400 <= self.failure.status < 500 and Step.SAME not in TABLE[kind].unreleased


class Situation(msgspec.Struct, frozen=True):
    """What a decision depends on besides the history.

    `priorities`: one number per target, in the pool's order; `deadline`: no attempt starts after it; `draw`: a random number in
    [0, 1) for the jitter. `waits`: seconds until each target's provider may be asked, where its health says something (none: all may);
    `retries_left`: the alias' retry budget allows another attempt. `dialects`: how each target is told to go on (none: no target can be). `resume`: where it may;
    `ceiling_left`: the caller's ceiling leaves tokens for it. `repairable`: what was wrong with the last answer is known. `barred`: directives that memory was refused for.
    """

    priorities: tuple[int, ...]
    released: bool
    now: float
    deadline: float
    draw: float
    recovery: RecoveryConfig
    waits: tuple[float, ...] = ()
    retries_left: bool = True
    dialects: tuple[Prefill, ...] = ()
    resume: Resume | None = None
    ceiling_left: bool = True
    repairable: bool = False
    barred: frozenset[DirectiveKind] = frozenset()


class Next(msgspec.Struct, frozen=True):
    """Make another attempt, at the first of `targets` that has room, after `wait_seconds`. `last`: none could follow it."""

    targets: tuple[int, ...]
    wait_seconds: float
    last: bool
    directive: DirectiveKind = DirectiveKind.EXACT


class GiveUp(msgspec.Struct, frozen=True):
    """Answer with this error."""

    error: PublicError
    why: Why


def decide(history: Sequence[Attempted], situation: Situation) -> Next | GiveUp:
    """The next attempt, or the error that the exchange ends with."""
    if not history:
        return _first(situation)
    row = TABLE[_reason(history).failure.kind]
    steps = row.released if situation.released else row.unreleased
    chosen: Next | Why | None = _no_attempt(history, steps, situation)
    if chosen is None:
        chosen = _choose(history, steps, situation)
    return (
        chosen if isinstance(chosen, Next) else GiveUp(last_error(history, situation.now), chosen)
    )


def last_error(history: Sequence[Attempted], now: float) -> PublicError:
    """The error of the last failure that says something about the provider or the request; a 429 where every attempt was one.

    That a provider does not know the response before says nothing where another one, which failed, was asked first: it may well be that one's.
    """
    told = [item for item in history if not item.refused]
    telling = [item for item in told if item.failure.kind is not FailureKind.BUDGET] or told
    telling = [item for item in telling if item.failure.provider_code != NO_PREVIOUS] or telling
    limited = [item for item in telling if item.failure.kind is FailureKind.RATE_LIMITED]
    if len(limited) == len(telling):
        newest = {item.target: item for item in limited}  # what it said before has been waited for
        waits = [
            item.at + item.failure.retry_after - now
            for item in newest.values()
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


def _reason(history: Sequence[Attempted]) -> Attempted:
    """The failure that something has to be done about: the last that was not a plan's own."""
    return next(item for item in reversed(history) if not item.refused)


def _no_attempt(
    history: Sequence[Attempted], steps: Sequence[Step], situation: Situation
) -> Why | None:
    """Why no attempt is made, whatever target there may be."""
    kind = _reason(history).failure.kind
    if not steps:
        return Why.RELEASED if TABLE[kind].unreleased else Why.FINAL
    if Step.FALL_BACK in steps and FALLBACKS.get(kind, "") not in situation.recovery.fallback_on:
        return Why.ANSWER
    if len(history) >= situation.recovery.attempts_max:
        return Why.ATTEMPTS
    return None if situation.retries_left else Why.BUDGET


def _choose(
    history: Sequence[Attempted], steps: Sequence[Step], situation: Situation
) -> Next | Why:
    """The first step that can be taken in time."""
    why = Why.TARGETS
    for step in steps:
        directive, wishes = _STEPS[step]
        if directive in situation.barred:
            why = Why.MEMORY
            continue
        offered = wishes(history, situation)
        if isinstance(offered, Why):
            why = offered
            continue
        for wait, wanted in offered:
            if situation.now + wait < situation.deadline:
                return Next(
                    tuple(
                        each for each in wanted if _asked_for(each, history, situation.now) <= wait
                    ),
                    wait,
                    len(history) + 1 >= situation.recovery.attempts_max,
                    directive,
                )
            why = Why.TIME
    return why


# ---- the steps: (seconds to wait, targets) in order of preference, or why there are none -----------

Wishes = Sequence[tuple[float, Sequence[int]]]


def _same(history: Sequence[Attempted], situation: Situation) -> Wishes | Why:
    targets, last = _usable(history, situation), history[-1].target
    if last not in targets or not _may_repeat(history, situation):
        return Why.TARGETS
    others = _untried(targets, history) or [target for target in targets if target != last]
    return [(_pause(last, history, situation), [last, *others])]


def _fresh(history: Sequence[Attempted], situation: Situation) -> Wishes | Why:
    fresh = _untried(_usable(history, situation), history)
    return [(0.0, fresh)] if fresh else Why.TARGETS


def _next(history: Sequence[Attempted], situation: Situation) -> Wishes | Why:
    return _round(_usable(history, situation), history, situation)


def _continue(history: Sequence[Attempted], situation: Situation) -> Wishes | Why:
    resume, mode = situation.resume, situation.recovery.continuation
    if mode == "off" or not any(dialect != "none" for dialect in situation.dialects):
        return Why.RELEASED if situation.released else Why.TARGETS
    if resume is None or not (resume.held or mode == "committed"):
        return Why.NO_RESUME
    if not situation.ceiling_left:
        return Why.CEILING
    unable = {item.target for item in history if _cannot_continue(item)}
    able = [
        target
        for target in _usable(history, situation)
        if situation.dialects[target] != "none" and target not in unable
    ]
    wishes = _round(able, history, situation)
    if isinstance(wishes, Why):
        return wishes
    # One body, one dialect: that of the target which is asked first.
    return [
        (
            wait,
            [each for each in wanted if situation.dialects[each] == situation.dialects[wanted[0]]],
        )
        for wait, wanted in wishes
    ]


def _continue_held(history: Sequence[Attempted], situation: Situation) -> Wishes | Why:
    if situation.resume is not None and not situation.resume.held:
        return Why.NO_RESUME
    return _continue(history, situation)


def _repair(history: Sequence[Attempted], situation: Situation) -> Wishes | Why:
    made = [item for item in history if item.directive is DirectiveKind.SCHEMA]
    if not situation.repairable or len(made) >= situation.recovery.schema_repairs_max:
        return Why.REPAIRS
    target = _reason(history).target
    if target not in _usable(history, situation) or any(item.refused for item in made):
        return Why.TARGETS
    return [(_asked_for(target, history, situation.now), [target])]


_Wishing = Callable[[Sequence[Attempted], Situation], Wishes | Why]
_STEPS: Final[Mapping[Step, tuple[DirectiveKind, _Wishing]]] = {
    Step.SAME: (DirectiveKind.EXACT, _same),
    Step.FRESH: (DirectiveKind.EXACT, _fresh),
    Step.NEXT: (DirectiveKind.EXACT, _next),
    Step.FALL_BACK: (DirectiveKind.EXACT, _next),
    Step.CONTINUE: (DirectiveKind.CONTINUATION, _continue),
    Step.CONTINUE_HELD: (DirectiveKind.CONTINUATION, _continue_held),
    Step.REPAIR: (DirectiveKind.SCHEMA, _repair),
}


def _cannot_continue(item: Attempted) -> bool:
    """This attempt has shown that its target can't be told to go on."""
    tried = item.directive is DirectiveKind.CONTINUATION
    return tried and (item.refused or item.failure.kind is FailureKind.RESTARTED)


def _round(
    targets: Sequence[int], history: Sequence[Attempted], situation: Situation
) -> Wishes | Why:
    """Those not asked yet, at once; where all have failed the round begins anew, with the one that is ready first."""
    if not targets:
        return Why.TARGETS
    fresh = _untried(targets, history)
    if fresh:
        return [(0.0, fresh)]
    again = sorted(targets, key=lambda target: _asked_for(target, history, situation.now))
    return [(_pause(again[0], history, situation), again)]


def _untried(targets: Sequence[int], history: Sequence[Attempted]) -> list[int]:
    return [target for target in targets if all(item.target != target for item in history)]


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
    return impatient or (not item.refused and TABLE[item.failure.kind] is ANSWER)


def _may_repeat(history: Sequence[Attempted], situation: Situation) -> bool:
    """Whether the same target is asked before the next one: so often in a row as the route says."""
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
