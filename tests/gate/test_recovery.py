"""The recovery decision: each row of the table with its values, and what no history can make it do."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gate.config import RecoveryConfig
from gate.failure import Failure, FailureKind
from gate.plan import DirectiveKind
from gate.recovery import NO_PREVIOUS, Attempted, GiveUp, Next, Situation, Why, decide, last_error

NEVER = float("inf")

# Rows of the table. After these the same target is asked again first ...
SAME_FIRST = (FailureKind.UNAVAILABLE, FailureKind.RATE_LIMITED)
# ... after these the next one ...
NEXT_FIRST = (
    FailureKind.CONNECT,
    FailureKind.RESET,
    FailureKind.UNUSABLE,
    FailureKind.NO_HEADERS,
    FailureKind.NO_PROGRESS,
    FailureKind.STALL,
    FailureKind.JSON_LATE,
    FailureKind.CUT,
    FailureKind.MISSING_TERMINAL,
    FailureKind.MALFORMED,
    FailureKind.OUTPUT_INVALID,
    FailureKind.TOOL_INVALID,
    FailureKind.EMPTY,
    FailureKind.FAILED_FINISH,
    FailureKind.REPETITION,
    FailureKind.RESTARTED,
)
# ... these are answers unless the route falls back on them ...
ANSWERS = {
    FailureKind.AUTH: ("auth", 403, 502, "provider_auth"),
    FailureKind.NOT_FOUND: ("not_found", 404, 404, "not_found"),
    FailureKind.CONTEXT_LENGTH: ("context_length", 400, 400, "context_length"),
    FailureKind.CONTENT_FILTER: ("content_filter", 400, 400, "content_filter"),
}
# ... and these end the exchange.
FINAL = {
    FailureKind.TOTAL: (504, "total_timeout"),
    FailureKind.STREAM_LIMIT: (504, "stream_limit"),
    FailureKind.HELD_LIMIT: (502, "held_limit"),
    FailureKind.FILTER_UNAVAILABLE: (503, "filter_unavailable"),
    FailureKind.QUEUE: (503, "queue_timeout"),
    FailureKind.NO_TARGET: (503, "no_provider"),
    FailureKind.BUDGET: (503, "memory_budget"),
    FailureKind.ABORTED: (502, "aborted"),
    FailureKind.DENIED: (502, "content_denied"),
    FailureKind.OUTPUT_REJECTED: (502, "output_rejected"),
}
ALL_ANSWERS = ("context_length", "content_filter", "auth", "not_found")

# Denied by a filter, whose table says what to do then.
DENIED = [
    FailureKind.DENIED_EXACT,
    FailureKind.DENIED_NEXT,
    FailureKind.DENIED_CONTINUE,
]


def failed(
    target: int,
    kind: FailureKind,
    *,
    at: float = 100.0,
    retry_after: float | None = None,
    status: int = 0,
) -> Attempted:
    """One attempt of the history."""
    return Attempted(target, Failure(kind, status, retry_after=retry_after), at)


def situation(
    *priorities: int,
    released: bool = False,
    now: float = 100.0,
    deadline: float = NEVER,
    draw: float = 0.5,
    waits: tuple[float, ...] = (),
    retries_left: bool = True,
    **recovery: Any,
) -> Situation:
    """A pool with these priorities, at second 100, under a route's defaults but for `recovery`."""
    config = RecoveryConfig(**recovery)
    return Situation(priorities, released, now, deadline, draw, config, waits, retries_left)


def reason_of(decision: Next | GiveUp) -> tuple[Why, int, str]:
    """Why it gave up, with the status and the code."""
    assert isinstance(decision, GiveUp)
    return decision.why, decision.error.status, decision.error.code


def test_every_kind_of_failure_stands_in_one_row() -> None:
    """A new kind has to be thought about here."""
    rows = [*SAME_FIRST, *NEXT_FIRST, *ANSWERS, FailureKind.REFUSED, *DENIED, *FINAL]
    assert sorted(kind.value for kind in rows) == sorted(kind.value for kind in FailureKind)


@pytest.mark.parametrize(
    ("kind", "targets"),
    [
        (FailureKind.DENIED_EXACT, (0, 1)),
        (FailureKind.DENIED_NEXT, (1,)),
        (FailureKind.DENIED_CONTINUE, None),
    ],
)
def test_what_a_filter_denies_is_asked_for_again_as_its_table_says(
    kind: FailureKind, targets: tuple[int, ...] | None
) -> None:
    """There is nothing to go on from here; and once something was released nobody is asked."""
    decision = decide([failed(0, kind)], situation(0, 1))
    if targets is None:
        assert reason_of(decision) == (Why.TARGETS, 502, kind.value)
    else:
        assert isinstance(decision, Next)
        assert (decision.targets, decision.directive) == (targets, DirectiveKind.EXACT)
    assert isinstance(decide([failed(0, kind)], situation(0, 1, released=True)), GiveUp)


# --- the first attempt ---------------------------------------------------------------------------


def test_the_first_attempt_goes_to_the_pool_in_order_of_priority() -> None:
    """Equal ones in the pool's order, and at once."""
    assert decide([], situation(1, 0, 1, 0)) == Next((1, 3, 0, 2), 0.0, last=False)


def test_a_route_of_one_attempt_makes_its_first_one_the_last() -> None:
    """The clocks get their extra grace."""
    assert decide([], situation(0, 0, attempts_max=1)) == Next((0, 1), 0.0, last=True)


def test_without_a_target_there_is_no_attempt() -> None:
    """No attempts were made, so an SDK may come again, when it is told."""
    decision = decide([], situation())
    assert reason_of(decision) == (Why.TARGETS, 503, "no_provider")
    assert isinstance(decision, GiveUp)
    assert (decision.error.retry_after, decision.error.retry) == (1.0, None)


# --- nothing released ----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", SAME_FIRST)
def test_a_busy_provider_is_asked_once_more_and_then_the_next(kind: FailureKind) -> None:
    """After a pause of 0.5 x 0.25 s; the next one at once."""
    once = [failed(0, kind)]
    assert decide(once, situation(0, 0, 0)) == Next((0, 1, 2), 0.125, last=False)
    twice = [*once, failed(0, kind)]
    assert decide(twice, situation(0, 0, 0)) == Next((1, 2), 0.0, last=True)


@pytest.mark.parametrize("kind", SAME_FIRST)
def test_where_a_busy_provider_has_no_room_another_is_asked(kind: FailureKind) -> None:
    """One that was not asked yet, else one that failed before."""
    history = [failed(1, FailureKind.CUT), failed(0, kind)]
    assert decide(history, situation(0, 0, 0, attempts_max=9)) == Next((0, 2), 0.25, last=False)
    assert decide(history, situation(0, 0, attempts_max=9)) == Next((0, 1), 0.25, last=False)


@pytest.mark.parametrize("kind", SAME_FIRST)
def test_a_route_may_leave_a_busy_provider_at_once(kind: FailureKind) -> None:
    """`same_target_retries = 0`."""
    decision = decide([failed(0, kind)], situation(0, 0, same_target_retries=0))
    assert decision == Next((1,), 0.0, last=False)


@pytest.mark.parametrize("kind", NEXT_FIRST)
def test_after_any_other_fault_the_next_provider_is_asked_at_once(kind: FailureKind) -> None:
    """The failed one is not an alternative while another is left, not even if that one is full."""
    assert decide([failed(1, kind)], situation(5, 0, 1)) == Next((2, 0), 0.0, last=False)
    both = [failed(1, kind), failed(2, kind)]
    assert decide(both, situation(5, 0, 1)) == Next((0,), 0.0, last=True)


@pytest.mark.parametrize("kind", NEXT_FIRST)
def test_a_lone_provider_is_asked_again_after_the_backoff(kind: FailureKind) -> None:
    """There is no other one, so the round begins anew."""
    assert decide([failed(0, kind)], situation(0)) == Next((0,), 0.125, last=False)


@pytest.mark.parametrize("kind", [*SAME_FIRST, *NEXT_FIRST])
def test_when_all_have_failed_the_round_begins_anew_with_the_first(kind: FailureKind) -> None:
    """The backoff has doubled by then: 0.5 x 0.25 x 2 s."""
    history = [failed(1, kind), failed(0, kind)]
    again = situation(1, 0, attempts_max=5, same_target_retries=0)
    assert decide(history, again) == Next((1, 0), 0.25, last=False)


@pytest.mark.parametrize(
    ("attempts", "draw", "wait"),
    [(1, 0.0, 0.0), (1, 0.5, 0.5), (2, 0.5, 1.0), (3, 0.5, 2.0), (4, 0.5, 4.0), (9, 0.75, 6.0)],
)
def test_the_backoff_doubles_up_to_eight_seconds_under_full_jitter(
    attempts: int, draw: float, wait: float
) -> None:
    """`backoff_seconds = 1`; a draw of 0 is no wait at all."""
    history = [failed(0, FailureKind.STALL)] * attempts
    decision = decide(history, situation(0, draw=draw, attempts_max=100, backoff_seconds=1.0))
    assert decision == Next((0,), wait, last=False)


@pytest.mark.parametrize(
    ("retry_after", "now", "wait"),
    [(4.0, 100.0, 4.0), (4.0, 101.5, 2.5), (4.0, 110.0, 0.125), (0.0, 100.0, 0.125)],
)
def test_a_retry_after_counts_from_its_arrival_and_the_backoff_is_the_least(
    retry_after: float, now: float, wait: float
) -> None:
    """Time that went by, in the queue perhaps, counts."""
    history = [failed(0, FailureKind.RATE_LIMITED, retry_after=retry_after)]
    assert decide(history, situation(0, now=now)) == Next((0,), wait, last=False)


def test_thirty_seconds_are_waited_for_and_no_longer() -> None:
    """Beyond that the provider is out, for the rest of the exchange."""
    waited = [failed(0, FailureKind.RATE_LIMITED, retry_after=30.0)]
    assert decide(waited, situation(0, 0)) == Next((0, 1), 30.0, last=False)
    out = [failed(0, FailureKind.RATE_LIMITED, retry_after=30.5)]
    assert decide(out, situation(0, 0)) == Next((1,), 0.0, last=False)
    lost = [*out, failed(1, FailureKind.CUT)]
    assert decide(lost, situation(0, 0)) == Next((1,), 0.25, last=True)


def test_a_provider_that_is_out_leaves_none_to_ask() -> None:
    """The caller is told how long it has still to go."""
    history = [failed(0, FailureKind.RATE_LIMITED, retry_after=45.0)]
    decision = decide(history, situation(0, now=100.5))
    assert reason_of(decision) == (Why.TARGETS, 429, "rate_limited")
    assert isinstance(decision, GiveUp)
    assert decision.error.retry_after == 44.5


def test_a_retry_after_beyond_the_deadline_is_not_waited_for() -> None:
    """Another provider is asked instead, if there is one."""
    history = [failed(0, FailureKind.UNAVAILABLE, status=503, retry_after=20.0)]
    assert decide(history, situation(0, 0, deadline=119.0)) == Next((1,), 0.0, last=False)
    alone = decide(history, situation(0, deadline=119.0))
    assert reason_of(alone) == (Why.TARGETS, 502, "provider_error")


def test_a_new_round_passes_over_whoever_asked_to_be_left_alone() -> None:
    """The one that is ready first comes first, and one that is not is no alternative."""
    history = [
        failed(0, FailureKind.RATE_LIMITED, retry_after=20.0),
        failed(1, FailureKind.CUT),
        failed(2, FailureKind.CUT),
    ]
    rules = situation(0, 0, 0, attempts_max=9, same_target_retries=0, draw=0.0)
    assert decide(history, rules) == Next((1, 2), 0.0, last=False)


def test_a_wait_that_does_not_fit_gives_way_to_a_provider_that_needs_none() -> None:
    """0.5 s are left, and the backoff would take 4."""
    history = [failed(0, FailureKind.UNAVAILABLE)]
    near = situation(0, 0, deadline=100.5, backoff_seconds=8.0)
    assert decide(history, near) == Next((1,), 0.0, last=False)
    alone = situation(0, deadline=100.5, backoff_seconds=8.0)
    assert reason_of(decide(history, alone)) == (Why.TIME, 502, "provider_error")


@pytest.mark.parametrize("now", [110.0, 111.0])
def test_no_attempt_starts_at_or_after_the_deadline(now: float) -> None:
    """Not even at a provider that was never asked."""
    decision = decide([failed(0, FailureKind.CUT)], situation(0, 0, now=now, deadline=110.0))
    assert reason_of(decision) == (Why.TIME, 502, "stream_cut")


def test_the_attempts_of_a_route_are_counted_with_the_first() -> None:
    """Three by default."""
    history = [failed(0, FailureKind.CUT), failed(1, FailureKind.STALL)]
    assert decide(history, situation(0, 0, 0)) == Next((2,), 0.0, last=True)
    history.append(failed(2, FailureKind.EMPTY))
    assert reason_of(decide(history, situation(0, 0, 0, 0))) == (Why.ATTEMPTS, 502, "empty_answer")


# --- answers -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ANSWERS)
def test_an_answer_is_given_at_once_unless_the_route_falls_back_on_it(kind: FailureKind) -> None:
    """Then the next provider is asked, and this one not again."""
    name, said, status, code = ANSWERS[kind]
    history = [failed(0, kind, status=said)]
    other = tuple(each for each in ALL_ANSWERS if each != name)
    assert reason_of(decide(history, situation(0, 0, fallback_on=other))) == (
        Why.ANSWER,
        status,
        code,
    )
    falls_back = situation(0, 0, fallback_on=(name,), attempts_max=9)
    assert decide(history, falls_back) == Next((1,), 0.0, last=False)
    history.append(failed(1, FailureKind.CUT))
    assert decide(history, falls_back) == Next((1,), 0.25, last=False)
    history.append(failed(1, kind, status=said))
    assert reason_of(decide(history, falls_back)) == (Why.TARGETS, status, code)


def test_by_default_only_refused_credentials_lead_to_another_provider() -> None:
    """They are the operator's, not the caller's."""
    kinds = [*ANSWERS, FailureKind.REFUSED]
    asked = [kind for kind in kinds if isinstance(decide([failed(0, kind)], situation(0, 0)), Next)]
    assert asked == [FailureKind.AUTH]


@pytest.mark.parametrize("status", [400, 413, 422])
def test_a_refused_request_is_never_sent_again(status: int) -> None:
    """Whatever the route falls back on."""
    history = [failed(0, FailureKind.REFUSED, status=status)]
    decision = decide(history, situation(0, 0, fallback_on=ALL_ANSWERS))
    assert reason_of(decision) == (Why.ANSWER, status, "request_refused")


# --- ends ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", FINAL)
@pytest.mark.parametrize("released", [False, True])
def test_a_limit_or_a_deadline_ends_the_exchange(kind: FailureKind, released: bool) -> None:
    """Another attempt would meet it again."""
    status, code = FINAL[kind]
    decision = decide([failed(0, kind)], situation(0, 0, released=released))
    assert reason_of(decision) == (Why.FINAL, status, code)


@pytest.mark.parametrize("kind", [*SAME_FIRST, *NEXT_FIRST, *ANSWERS, FailureKind.REFUSED])
def test_after_a_release_the_same_request_is_never_sent_again(kind: FailureKind) -> None:
    """The caller has seen a part of the answer; the stream ends with an error in it."""
    decision = decide([failed(0, kind)], situation(0, 0, released=True, fallback_on=ALL_ANSWERS))
    assert isinstance(decision, GiveUp)
    assert decision.why is Why.RELEASED


# --- the error that is left ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("waits", "now", "left"),
    [
        ((None, None), 100.0, 1.0),
        ((9.0, None), 102.0, 7.0),
        ((9.0, 5.5), 102.0, 3.5),
        ((5.5, 9.0), 102.0, 3.5),
        ((1.0, 40.0), 102.0, -1.0),
    ],
)
def test_when_all_attempts_were_limited_the_caller_is_told_the_smallest_wait(
    waits: tuple[float | None, ...], now: float, left: float
) -> None:
    """Counted from now; one second where nobody said."""
    history = [
        failed(target, FailureKind.RATE_LIMITED, status=429, retry_after=wait)
        for target, wait in enumerate(waits)
    ]
    error = last_error(history, now)
    assert (error.status, error.code, error.retry_after) == (429, "rate_limited", left)
    assert error.retry is None


def test_a_wait_that_is_over_is_not_told_again() -> None:
    """A provider that was limited twice has its newest word; another one's still counts."""
    early, late = (Failure(FailureKind.RATE_LIMITED, 429, retry_after=each) for each in (4.0, 5.0))
    twice = [Attempted(0, early, 100.0), Attempted(0, late, 104.0)]
    assert last_error(twice, 104.0).retry_after == 5.0
    other = Attempted(1, Failure(FailureKind.RATE_LIMITED, 429, retry_after=3.0), 104.0)
    assert last_error([*twice, other], 104.0).retry_after == 3.0


def test_a_provider_that_does_not_know_the_response_before_says_nothing_of_another_one() -> None:
    """The first one may have it, and its fault is what happened; asked alone, the answer is the caller's."""
    unknown = Attempted(1, Failure(FailureKind.REFUSED, 400, NO_PREVIOUS), 100.0)
    assert last_error([failed(0, FailureKind.CUT), unknown], 100.0).code == "stream_cut"
    alone = last_error([unknown], 100.0)
    assert (alone.status, alone.code) == (400, NO_PREVIOUS)


@pytest.mark.parametrize(
    ("kinds", "status", "code"),
    [
        ((FailureKind.RATE_LIMITED, FailureKind.CUT), 502, "stream_cut"),
        ((FailureKind.CUT, FailureKind.RATE_LIMITED), 502, "provider_error"),
        ((FailureKind.CUT, FailureKind.NO_PROGRESS), 504, "first_content_timeout"),
        ((FailureKind.NO_PROGRESS, FailureKind.CUT), 502, "stream_cut"),
        ((FailureKind.NO_PROGRESS, FailureKind.BUDGET), 504, "first_content_timeout"),
        ((FailureKind.CUT, FailureKind.BUDGET, FailureKind.BUDGET), 502, "stream_cut"),
        ((FailureKind.BUDGET, FailureKind.BUDGET), 503, "memory_budget"),
        ((FailureKind.RATE_LIMITED, FailureKind.QUEUE), 503, "queue_timeout"),
        ((FailureKind.RATE_LIMITED, FailureKind.BUDGET), 429, "rate_limited"),
        ((FailureKind.RATE_LIMITED, FailureKind.TOTAL), 504, "total_timeout"),
        ((FailureKind.UNAVAILABLE, FailureKind.AUTH), 502, "provider_auth"),
        ((FailureKind.AUTH, FailureKind.UNAVAILABLE), 502, "provider_error"),
    ],
)
def test_of_several_failures_the_last_that_says_something_decides(
    kinds: tuple[FailureKind, ...], status: int, code: str
) -> None:
    """A budget of ours says nothing about the provider, and one 429 among others is no 429."""
    error = last_error([failed(0, kind) for kind in kinds], 100.0)
    assert (error.status, error.code) == (status, code)


def test_an_answer_after_a_fault_is_still_the_callers() -> None:
    """With the status and the code that the provider gave."""
    refused = Attempted(0, Failure(FailureKind.REFUSED, 422, "invalid_tool", "tools"), 100.0)
    error = last_error([failed(0, FailureKind.CUT), refused], 100.0)
    assert (error.status, error.code, error.param) == (422, "invalid_tool", "tools")


# --- what no history can make it do --------------------------------------------------------------

recoveries = st.builds(
    RecoveryConfig,
    attempts_max=st.integers(1, 8),
    same_target_retries=st.integers(0, 3),
    backoff_seconds=st.floats(0, 20),
    fallback_on=st.lists(st.sampled_from(ALL_ANSWERS), unique=True).map(tuple),
)
waits = st.none() | st.floats(0, 40)
ends = st.tuples(st.sampled_from(FailureKind), waits)
retried = st.tuples(st.sampled_from([*SAME_FIRST, *NEXT_FIRST]), waits)


@given(
    priorities=st.lists(st.integers(0, 2), max_size=4).map(tuple),
    recovery=recoveries,
    deadline=st.just(NEVER) | st.floats(0, 120),
    data=st.data(),
)
def test_an_exchange_ends_within_its_attempts_and_its_time(
    priorities: tuple[int, ...], recovery: RecoveryConfig, deadline: float, data: st.DataObject
) -> None:
    """Played out to its end: no wait passes the deadline or 30 s, no target that is out is asked, none is asked too early."""
    history: list[Attempted] = []
    ruled_out: set[int] = set()
    ready_at: dict[int, float] = {}
    now = 0.0
    while True:
        draw = data.draw(st.floats(0, 1, exclude_max=True))
        decision = decide(history, Situation(priorities, False, now, deadline, draw, recovery))
        if isinstance(decision, GiveUp):
            break
        assert len(history) < recovery.attempts_max
        assert decision.last == (len(history) + 1 == recovery.attempts_max)
        assert 0.0 <= decision.wait_seconds <= 30.0
        assert not history or now + decision.wait_seconds < deadline
        assert len(set(decision.targets)) == len(decision.targets) > 0
        assert ruled_out.isdisjoint(decision.targets)
        now += decision.wait_seconds
        for target in decision.targets:
            assert ready_at.get(target, 0.0) <= now + 1e-9
        target = data.draw(st.sampled_from(decision.targets))
        kind, wait = data.draw(retried | ends)
        now += data.draw(st.floats(0, 10))
        history.append(failed(target, kind, at=now, retry_after=wait))
        ready_at[target] = now + (wait or 0.0)
        if kind in ANSWERS or (wait is not None and wait > 30.0):
            ruled_out.add(target)
    assert len(history) <= recovery.attempts_max
    assert decision.error.status in {400, 404, 429, 502, 503, 504}
    assert (decision.error.retry is False) == (
        bool(history) and decision.error.status in {502, 504}
    )


@given(
    kinds=st.lists(st.sampled_from(FailureKind), min_size=1, max_size=6),
    draw=st.floats(0, 1, exclude_max=True),
)
def test_after_a_release_no_history_leads_to_another_attempt(
    kinds: list[FailureKind], draw: float
) -> None:
    """Whatever failed before, at however many providers."""
    history = [failed(number % 2, kind) for number, kind in enumerate(kinds)]
    rules = situation(0, 0, 0, released=True, draw=draw, attempts_max=9, fallback_on=ALL_ANSWERS)
    assert isinstance(decide(history, rules), GiveUp)


def test_a_provider_that_is_out_is_not_asked_first() -> None:
    """Its breaker is open: the next target by priority is."""
    decision = decide([], situation(0, 1, waits=(12.0, 0.0)))
    assert isinstance(decision, Next)
    assert decision.targets == (1,)


def test_a_provider_that_is_out_is_not_asked_again() -> None:
    """Neither the one that just failed, nor another that is out by then."""
    failed = [Attempted(0, Failure(FailureKind.UNAVAILABLE, 503), 0.0)]
    decision = decide(failed, situation(0, 1, waits=(12.0, 0.0)))
    assert isinstance(decision, Next)
    assert decision.targets == (1,)
    gone = decide(failed, situation(0, 1, waits=(12.0, 12.0)))
    assert isinstance(gone, GiveUp)
    assert gone.why is Why.TARGETS
    assert gone.error.status == 502


def test_with_every_provider_out_the_caller_is_told_when_to_come_back() -> None:
    """503, and the shortest of the waits."""
    decision = decide([], situation(0, 1, waits=(12.0, 7.5)))
    assert isinstance(decision, GiveUp)
    assert (decision.error.status, decision.error.code) == (503, "no_provider")
    assert decision.error.retry_after == 7.5


def test_an_exhausted_retry_budget_ends_the_exchange_with_its_last_error() -> None:
    """An outage does not multiply traffic."""
    failed = [Attempted(0, Failure(FailureKind.CUT), 0.0)]
    decision = decide(failed, situation(0, 1, retries_left=False))
    assert isinstance(decision, GiveUp)
    assert decision.why is Why.BUDGET
    assert decision.error.code == "stream_cut"
    assert isinstance(decide([], situation(0, 1, retries_left=False)), Next)


# --- repairs -------------------------------------------------------------------------------------


def repairs(**more: Any) -> Next | GiveUp:
    """What follows an answer of the first of two targets that does not fit, with what was wrong known."""
    known = {"repairable": True, **more}
    now = msgspec.structs.replace(situation(0, 0, schema_repairs_max=2), **known)
    return decide([failed(0, FailureKind.OUTPUT_INVALID)], now)


def test_the_same_target_is_told_what_was_wrong() -> None:
    """At once; only where something is known of it, and its provider may be asked."""
    assert repairs() == Next((0,), 0.0, last=False, directive=DirectiveKind.SCHEMA)
    assert repairs(repairable=False) == Next((1,), 0.0, last=False)
    assert repairs(waits=(9.0, 0.0)) == Next((1,), 0.0, last=False)


def test_repairs_are_made_so_often_as_the_route_says() -> None:
    """Each counts, whatever became of it; one that was refused is the last."""
    now = msgspec.structs.replace(
        situation(0, 0, schema_repairs_max=2, attempts_max=9), repairable=True
    )
    first = failed(0, FailureKind.OUTPUT_INVALID)
    again = msgspec.structs.replace(first, directive=DirectiveKind.SCHEMA)
    refused = Attempted(0, Failure(FailureKind.REFUSED, 400), 100.0, DirectiveKind.SCHEMA)
    assert decide([first, again], now) == Next(
        (0,), 0.0, last=False, directive=DirectiveKind.SCHEMA
    )
    assert decide([first, again, again], now) == Next((1,), 0.0, last=False)
    assert decide([first, refused], now) == Next((1,), 0.0, last=False)
