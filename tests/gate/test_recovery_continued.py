"""The recovery decision where an answer may go on: under which rule, at whose place, and what a refused plan means."""

from __future__ import annotations

from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gate.config import Prefill, RecoveryConfig
from gate.events import Resume
from gate.failure import Failure, FailureKind
from gate.plan import Cursor, DirectiveKind
from gate.recovery import Attempted, GiveUp, Next, Situation, Why, decide, last_error
from gate.recovery_table import TABLE, Step

NEVER: Final = float("inf")
EXACT: Final = DirectiveKind.EXACT
CONTINUATION: Final = DirectiveKind.CONTINUATION
HELD: Final = Resume(Cursor(5, 20), "text", held=True, produced=4)
SEEN: Final = Resume(Cursor(5, 20), "text", held=False, produced=4)

CONTINUED: Final = [kind for kind in FailureKind if Step.CONTINUE in TABLE[kind].released]
"""After these an answer goes on wherever the route lets it."""


def failed(
    target: int,
    kind: FailureKind = FailureKind.CUT,
    *,
    plan: DirectiveKind = EXACT,
    status: int = 0,
    at: float = 100.0,
    retry_after: float | None = None,
) -> Attempted:
    """One attempt of the history."""
    return Attempted(target, Failure(kind, status, retry_after=retry_after), at, plan)


def situation(
    *dialects: Prefill,
    released: bool = True,
    resume: Resume | None = HELD,
    mode: str = "held",
    deadline: float = NEVER,
    draw: float = 0.5,
    waits: tuple[float, ...] = (),
    recovery: dict[str, Any] | None = None,
    **more: Any,
) -> Situation:
    """A pool of targets that are told to go on in these dialects, at second 100; a part of the answer is released."""
    config = RecoveryConfig(**{"continuation": mode, "attempts_max": 9, **(recovery or {})})
    return Situation(
        tuple(0 for _ in dialects),
        released,
        100.0,
        deadline,
        draw,
        config,
        waits,
        dialects=dialects,
        resume=resume,
        **more,
    )


def goes_on(*targets: int, wait: float = 0.0, last: bool = False) -> Next:
    """The plan to go on at the first of these."""
    return Next(targets, wait, last, CONTINUATION)


def why(decision: Next | GiveUp) -> Why:
    """Why it gave up."""
    assert isinstance(decision, GiveUp)
    return decision.why


# --- under which rule ----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", CONTINUED)
def test_after_a_release_an_answer_goes_on_at_the_next_target(kind: FailureKind) -> None:
    """Whatever broke it, but for an answer and for the end."""
    assert decide([failed(0, kind)], situation("vllm", "vllm", "vllm")) == goes_on(1, 2)


@pytest.mark.parametrize(
    ("mode", "resume", "reason"),
    [
        ("off", HELD, Why.RELEASED),
        ("off", None, Why.RELEASED),
        ("held", HELD, None),
        ("held", SEEN, Why.NO_RESUME),
        ("held", None, Why.NO_RESUME),
        ("committed", HELD, None),
        ("committed", SEEN, None),
        ("committed", None, Why.NO_RESUME),
    ],
)
def test_the_route_says_whether_the_caller_may_have_seen_the_seam(
    mode: str, resume: Resume | None, reason: Why | None
) -> None:
    """`held`: never; `committed`: it may; `off`: nobody goes on."""
    decision = decide([failed(0)], situation("vllm", "vllm", mode=mode, resume=resume))
    if reason is None:
        assert decision == goes_on(1)
    else:
        assert why(decision) is reason


def test_without_a_dialect_nobody_can_be_told() -> None:
    """It is as if the route had said so."""
    assert why(decide([failed(0)], situation("none", "none"))) is Why.RELEASED
    bare = Situation((0, 0), True, 100.0, NEVER, 0.5, RecoveryConfig(), resume=HELD)
    assert why(decide([failed(0)], bare)) is Why.RELEASED


def test_a_ceiling_that_is_used_up_leaves_nothing_to_go_on_with() -> None:
    """Whoever is left."""
    decision = decide([failed(0)], situation("vllm", "vllm", ceiling_left=False))
    assert why(decision) is Why.CEILING


def test_a_plan_that_memory_was_refused_for_is_not_made_again() -> None:
    """In this exchange."""
    barred = frozenset({CONTINUATION})
    assert why(decide([failed(0)], situation("vllm", "vllm", barred=barred))) is Why.MEMORY
    other = frozenset({DirectiveKind.SCHEMA, EXACT})
    assert decide([failed(0)], situation("vllm", "vllm", barred=other)) == goes_on(1)


def test_attempts_and_the_retry_budget_count_continuations_too() -> None:
    """The last one is known as such."""
    rules = situation("vllm", "vllm", "vllm", recovery={"attempts_max": 3})
    history = [failed(0)]
    assert decide(history, rules) == goes_on(1, 2)
    history.append(failed(1, plan=CONTINUATION))
    assert decide(history, rules) == goes_on(2, last=True)
    history.append(failed(2, plan=CONTINUATION))
    assert why(decide(history, rules)) is Why.ATTEMPTS
    assert why(decide(history[:1], situation("vllm", "vllm", retries_left=False))) is Why.BUDGET


# --- at whose place ------------------------------------------------------------------------------


def test_only_targets_with_a_dialect_are_asked_to_go_on() -> None:
    """The next one that has one, by priority."""
    assert decide([failed(0)], situation("vllm", "none", "vllm")) == goes_on(2)
    assert decide([failed(1)], situation("none", "none", "vllm", "vllm")) == goes_on(2, 3)


def test_one_plan_has_one_dialect() -> None:
    """That of the target that is asked first: a body is made for it."""
    assert decide([failed(0)], situation("vllm", "prefix", "vllm", "prefix")) == goes_on(1, 3)
    assert decide([failed(0)], situation("vllm", "none", "vllm", "prefix")) == goes_on(2)
    both = [failed(0), failed(1, plan=CONTINUATION)]
    assert decide(both, situation("vllm", "prefix")) == goes_on(0, wait=0.25)


def test_the_failed_target_is_asked_last_and_after_its_pause() -> None:
    """Where no other one is left: 0.5 x 0.25 s, or what it asked for."""
    assert decide([failed(0)], situation("vllm")) == goes_on(0, wait=0.125)
    assert decide([failed(0)], situation("vllm", "none")) == goes_on(0, wait=0.125)
    asked = [failed(0, FailureKind.RATE_LIMITED, retry_after=7.0)]
    assert decide(asked, situation("vllm", "none")) == goes_on(0, wait=7.0)
    round_over = [failed(1), failed(0, plan=CONTINUATION)]
    assert decide(round_over, situation("vllm", "vllm")) == goes_on(1, 0, wait=0.25)


def test_who_is_out_is_not_asked_to_go_on() -> None:
    """Its breaker is open, or its wait is too long for anybody."""
    assert decide([failed(0)], situation("vllm", "vllm", "vllm", waits=(0, 9.0, 0))) == goes_on(2)
    assert why(decide([failed(0)], situation("vllm", waits=(9.0,)))) is Why.TARGETS
    asked = [failed(0, FailureKind.RATE_LIMITED, retry_after=31.0)]
    assert why(decide(asked, situation("vllm"))) is Why.TARGETS


@pytest.mark.parametrize(("deadline", "fits"), [(100.125, False), (100.126, True)])
def test_a_wait_that_does_not_fit_before_the_deadline_is_not_begun(
    deadline: float, *, fits: bool
) -> None:
    """The pause counts; without one there is only the deadline itself."""
    decision = decide([failed(0)], situation("vllm", deadline=deadline))
    assert decision == goes_on(0, wait=0.125) if fits else why(decision) is Why.TIME
    assert decide([failed(0)], situation("vllm", "vllm", deadline=deadline)) == goes_on(1)
    assert why(decide([failed(0)], situation("vllm", "vllm", deadline=100.0))) is Why.TIME


# --- a plan that was refused ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        (FailureKind.REFUSED, 400),
        (FailureKind.REFUSED, 422),
        (FailureKind.REFUSED, 499),
        (FailureKind.AUTH, 401),
        (FailureKind.NOT_FOUND, 404),
        (FailureKind.CONTEXT_LENGTH, 400),
        (FailureKind.CONTENT_FILTER, 400),
    ],
)
def test_a_4xx_to_a_continuation_counts_against_its_target_alone(
    kind: FailureKind, status: int
) -> None:
    """It is not asked to go on again; what broke the answer still decides, and is what the caller is told."""
    history = [failed(0), failed(1, kind, status=status, plan=CONTINUATION)]
    assert history[1].refused
    assert decide(history, situation("vllm", "vllm", "vllm")) == goes_on(2)
    assert decide(history, situation("vllm", "vllm")) == goes_on(0, wait=0.25)
    alone = decide(history, situation("none", "vllm"))
    assert why(alone) is Why.TARGETS
    assert isinstance(alone, GiveUp)
    assert (alone.error.status, alone.error.code) == (502, "stream_cut")


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        (FailureKind.RATE_LIMITED, 429),
        (FailureKind.UNAVAILABLE, 408),
        (FailureKind.UNAVAILABLE, 409),
        (FailureKind.UNAVAILABLE, 503),
        (FailureKind.UNUSABLE, 200),
    ],
)
def test_a_busy_provider_has_not_refused_to_go_on(kind: FailureKind, status: int) -> None:
    """It may be asked again, when its turn comes."""
    history = [failed(0), failed(1, kind, status=status, plan=CONTINUATION)]
    assert not history[1].refused
    assert decide(history, situation("none", "vllm")) == goes_on(1, wait=0.25)


@pytest.mark.parametrize(
    ("plan", "status", "refused"),
    [
        (EXACT, 400, False),
        (CONTINUATION, 399, False),
        (CONTINUATION, 400, True),
        (DirectiveKind.SCHEMA, 400, True),
        (CONTINUATION, 500, False),
        (CONTINUATION, 0, False),
    ],
)
def test_a_request_is_refused_by_a_4xx_where_it_was_not_the_callers(
    plan: DirectiveKind, status: int, *, refused: bool
) -> None:
    """The caller's own is answered with it."""
    assert failed(0, FailureKind.REFUSED, status=status, plan=plan).refused is refused


def test_who_began_anew_is_not_asked_to_go_on_again() -> None:
    """Others are; and where none is left the caller is told that."""
    history = [failed(0), failed(1, FailureKind.RESTARTED, plan=CONTINUATION)]
    assert decide(history, situation("vllm", "vllm", "vllm")) == goes_on(2)
    assert decide(history, situation("vllm", "vllm")) == goes_on(0, wait=0.25)
    alone = decide(history, situation("none", "vllm"))
    assert why(alone) is Why.TARGETS
    assert isinstance(alone, GiveUp)
    assert alone.error.code == "continuation_restarted"


def test_an_attempt_of_the_callers_own_request_shows_nothing_about_going_on() -> None:
    """Whatever it failed by, its target may be told to."""
    assert decide([failed(0, FailureKind.RESTARTED)], situation("vllm")) == goes_on(0, wait=0.125)


def test_an_answer_behind_the_seam_ends_the_exchange() -> None:
    """A filter of the provider struck: nobody has refused a plan."""
    history = [failed(0), failed(1, FailureKind.CONTENT_FILTER, plan=CONTINUATION)]
    assert why(decide(history, situation("vllm", "vllm", "vllm"))) is Why.RELEASED


# --- loops ---------------------------------------------------------------------------------------

LOOP: Final = FailureKind.REPETITION


def test_after_a_loop_a_target_that_was_not_asked_comes_first() -> None:
    """With the caller's own request, at once."""
    rules = situation("vllm", "vllm", "none", released=False)
    assert decide([failed(0, LOOP)], rules) == Next((1, 2), 0.0, last=False)
    assert decide([failed(0, LOOP), failed(1, LOOP)], rules) == Next((2,), 0.0, last=False)


def test_where_all_were_asked_the_answer_goes_on_from_before_the_loop() -> None:
    """In text that nobody has seen, and at a target that can be told to; with the oldest failure first."""
    history = [failed(0, LOOP), failed(1, LOOP)]
    unreleased = situation("vllm", "vllm", released=False)
    assert decide(history, unreleased) == goes_on(0, 1, wait=0.25)
    assert decide(history, situation("none", "vllm", released=False)) == goes_on(1, wait=0.25)


@pytest.mark.parametrize(
    "changes",
    [
        {"mode": "off"},
        {"resume": None},
        {"resume": SEEN, "mode": "committed"},
        {"ceiling_left": False},
        {"barred": frozenset({CONTINUATION})},
    ],
)
def test_where_it_can_not_go_on_the_round_begins_anew(changes: dict[str, Any]) -> None:
    """With the caller's own request."""
    history = [failed(0, LOOP), failed(1, LOOP)]
    decision = decide(history, situation("vllm", "vllm", released=False, **changes))
    assert decision == Next((0, 1), 0.25, last=False)
    assert decide([failed(0, LOOP)], situation("none", released=False)) == Next((0,), 0.125, last=False)  # fmt: skip


def test_a_target_that_refused_to_go_on_is_asked_the_callers_own_request() -> None:
    """What would have come without the plan comes next."""
    history = [failed(0, LOOP), failed(0, FailureKind.REFUSED, status=400, plan=CONTINUATION)]
    assert decide(history, situation("vllm", released=False)) == Next((0,), 0.25, last=False)


@pytest.mark.parametrize(
    ("mode", "resume", "reason"),
    [
        ("held", HELD, None),
        ("committed", HELD, None),
        ("held", SEEN, Why.NO_RESUME),
        ("committed", SEEN, Why.NO_RESUME),
        ("committed", None, Why.NO_RESUME),
        ("off", HELD, Why.RELEASED),
    ],
)
def test_after_a_release_a_loop_goes_on_only_from_text_that_nobody_has_seen(
    mode: str, resume: Resume | None, reason: Why | None
) -> None:
    """The seam would lie in the loop otherwise."""
    decision = decide([failed(0, LOOP)], situation("vllm", "vllm", mode=mode, resume=resume))
    if reason is None:
        assert decision == goes_on(1)
    else:
        assert why(decision) is reason
        assert isinstance(decision, GiveUp)
        assert decision.error.code == "repetition_loop"


# --- the error that is left ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("history", "status", "code"),
    [
        ([failed(0), failed(1, FailureKind.REFUSED, status=422, plan=CONTINUATION)], 502, "stream_cut"),
        ([failed(0, FailureKind.NO_PROGRESS), failed(1, FailureKind.AUTH, status=401, plan=CONTINUATION), failed(2, FailureKind.REFUSED, status=400, plan=CONTINUATION)], 504, "first_content_timeout"),
        ([failed(0), failed(1, plan=CONTINUATION, kind=FailureKind.CONNECT)], 502, "provider_connect"),
        ([failed(0), failed(1, FailureKind.RATE_LIMITED, status=429, plan=CONTINUATION)], 502, "provider_error"),
        ([failed(0, FailureKind.BUDGET), failed(1, FailureKind.REFUSED, status=400, plan=CONTINUATION)], 503, "memory_budget"),
    ],
)  # fmt: skip
def test_a_plan_that_was_refused_is_not_the_callers_error(
    history: list[Attempted], status: int, code: str
) -> None:
    """The failure before it is."""
    error = last_error(history, 100.0)
    assert (error.status, error.code) == (status, code)


def test_a_refused_plan_takes_nothing_from_a_429() -> None:
    """All that was asked in the caller's name was limited."""
    history = [
        failed(0, FailureKind.RATE_LIMITED, status=429, retry_after=9.0),
        failed(1, FailureKind.REFUSED, status=400, plan=CONTINUATION),
    ]
    error = last_error(history, 102.0)
    assert (error.status, error.code, error.retry_after) == (429, "rate_limited", 7.0)


# --- what no history can make it do --------------------------------------------------------------

dialects = st.lists(st.sampled_from(("none", "vllm", "prefix")), min_size=1, max_size=4)
resumes = st.sampled_from((None, HELD, SEEN))
ends = st.tuples(st.sampled_from(FailureKind), st.sampled_from((0, 400, 429, 503)))


@given(
    dialects=dialects,
    resume=resumes,
    mode=st.sampled_from(("off", "held", "committed")),
    released=st.booleans(),
    data=st.data(),
)
def test_an_answer_goes_on_by_the_rules_and_to_an_end(
    dialects: list[Prefill],
    resume: Resume | None,
    mode: str,
    released: bool,
    data: st.DataObject,
) -> None:
    """Played out: only where and as the route allows, in one dialect, never again at a target that can't, and nothing else after a release."""
    kind, status = data.draw(ends)
    history = [failed(0, kind, status=status)]
    unable: set[int] = set()
    rules = situation(
        *dialects, resume=resume, mode=mode, released=released, recovery={"attempts_max": 6}
    )
    while isinstance(decision := decide(history, rules), Next):
        assert decision.targets
        assert decision.last == (len(history) == 5)
        if decision.directive is CONTINUATION:
            assert resume is not None
            assert mode == "committed" or (mode == "held" and resume.held)
            assert len({dialects[target] for target in decision.targets}) == 1
            assert dialects[decision.targets[0]] != "none"
            assert unable.isdisjoint(decision.targets)
        else:
            assert decision.directive is EXACT
            assert not released
        target = data.draw(st.sampled_from(decision.targets))
        kind, status = data.draw(ends)
        history.append(failed(target, kind, status=status, plan=decision.directive))
        if decision.directive is CONTINUATION and (
            history[-1].refused or kind is FailureKind.RESTARTED
        ):
            unable.add(target)
    assert len(history) <= 6
    assert decision.error.status not in {0, 200}
