"""Filters that await are asked beside each other and beside the stream; what they hold waits, and nothing else does."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio
import trio.testing

from actors.awaiting import THREADS_MAX, Answers, Desk, Threaded
from actors.context import Exchange
from actors.ports import AwaitingFilter
from gate.config import FilterConfig, HoldConfig, PluginConfig, RecoveryConfig
from gate.errors import FilterUnavailable, UpstreamFault
from gate.events import Facts, Frame, TextDelta
from gate.failure import Failure, FailureKind
from gate.filters.awaited import BEHIND, Awaited, Question
from gate.filters.contract import Passed, Verdict, Violated
from gate.filters.plugin import plugged_in
from gate.judging import Judge
from gate.observe import Outcome, What
from tests.doubles import (
    DONE,
    FOREVER,
    ROLE,
    STOP,
    Answer,
    Read,
    RecordingCaller,
    Records,
    ScriptedProvider,
    gateway,
    healthy,
    left_behind,
    request,
    says,
    supervise,
    text,
    world,
)
from tests.plugins import HeavyPlugin, Said

Judges = Callable[[Question], Awaitable[Verdict]]
BAD = Violated(0, "bad", Failure(FailureKind.DENIED_NEXT, verdict="bad"))
ELSEWHERE = FilterConfig(kind="webhook", url="http://127.0.0.1:1/", horizon_chars=1)


def words_of(question: Question) -> str:
    """The answer text of the frames that are asked about."""
    events = [event for frame in question.frames for event in frame.events]
    return "".join(event.text for event in events if isinstance(event, TextDelta))


class Service:
    """A service that takes `seconds` for each question and denies those that say `denied`; as filters and as the filter of each attempt."""

    def __init__(
        self, seconds: float = 0.0, *, denied: str = "", fault: Exception | None = None
    ) -> None:
        self.begun: list[tuple[str, int, str]] = []
        self.asked: list[tuple[float, str, bool]] = []
        self.open = 0
        self.most = 0
        self._seconds = seconds
        self._denied = denied
        self._fault = fault

    def begin(self, exchange: str, attempt: int, awaited: Awaited) -> AwaitingFilter:
        self.begun.append((exchange, attempt, awaited.before))
        return self

    async def judge(self, question: Question) -> Verdict:
        words = words_of(question)
        self.asked.append((trio.current_time(), words, question.facts is not None))
        self.open += 1
        self.most = max(self.most, self.open)
        try:
            await trio.sleep(self._seconds)
        finally:
            self.open -= 1
        if self._fault is not None:
            raise self._fault
        if self._denied and self._denied in words:
            return Violated(question.start, "bad", Failure(FailureKind.DENIED_NEXT, verdict="bad"))
        return Passed(question.end)


class Run:
    """One exchange over providers with these scripts, judged by these services, each under its table."""

    def __init__(
        self,
        *scripts: list[Answer],
        services: dict[str, Service],
        tables: dict[str, FilterConfig] | None = None,
        hold: HoldConfig | None = None,
        caller: RecordingCaller | None = None,
        filters: tuple[str, ...] = ("empty",),
        **recovery: Any,
    ) -> None:
        self.records = Records()
        self.services = services
        self.providers = [ScriptedProvider(*script) for script in scripts]
        self.caller = caller or RecordingCaller()
        self.gate = gateway(
            *self.providers,
            hold=hold or HoldConfig(),
            recovery=RecoveryConfig(**recovery),
            filters=(*filters, *services),
            tables=tables or dict.fromkeys(services, ELSEWHERE),
            awaiting=services,
            prefill="vllm",
            records=self.records,
        )

    async def play(self) -> Outcome:
        """To its end, with everything given back and nobody asked any more."""
        outcome = await supervise(self.gate, self.caller)
        assert left_behind(self.gate) == []
        assert [each.open for each in self.services.values()] == [0] * len(self.services)
        return outcome

    def noted(self, what: What) -> list[tuple[str, str]]:
        """The filters and codes of these observations."""
        return [(each.filter, each.code) for each in self.records.observations if each.what is what]

    @property
    def times(self) -> list[tuple[float, str]]:
        """When which text of the answer was written."""
        began = self.providers[0].asked[0].asked_at
        return [
            (round(at - began, 3), data.decode().partition('"content":"')[2].partition('"')[0])
            for at, data in self.caller.writes
        ]


def table(**options: Any) -> FilterConfig:
    """A service's, with no more of a horizon than it must have."""
    return FilterConfig(
        kind="webhook", url="http://127.0.0.1:1/", **{"horizon_chars": 1, **options}
    )


async def test_what_a_service_has_passed_goes_when_it_has_said_so(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Though nothing else arrives; what came meanwhile is asked about together."""
    service = Service(0.35)
    answer = says(
        *(text(word) for word in ("a", "b", "c", "d")),
        every=0.1,
        then=[Read(STOP, 5.0), Read(DONE)],
    )
    run = Run([answer], services={"hook": service})
    outcome = await run.play()
    assert (outcome.code, run.caller.text) == ("", "abcd")
    assert [(word, last) for _, word, last in service.asked] == [("a", False), ("bcd", False)]
    # "d" has no character behind it; the end shows that none comes.
    assert run.times == [(0.45, "a"), (0.8, "b"), (5.4, "d"), (5.4, "")]
    assert service.begun == [("ex-1", 1, "")]


async def test_services_are_asked_side_by_side(autojump_clock: trio.testing.MockClock) -> None:
    """The slowest decides when, and holds up none of the others."""
    quick, slow = Service(0.06), Service(0.37)
    answer = says(*(text(word) for word in "abcdefgh"), every=0.1, then=[Read(STOP), Read(DONE)])
    run = Run([answer], services={"quick": quick, "slow": slow})
    outcome = await run.play()
    assert (outcome.code, run.caller.text) == ("", "abcdefgh")
    assert len(quick.asked) >= 7
    assert [word for _, word, _ in slow.asked] == ["a", "bcd", "efgh"]
    assert (quick.most, slow.most) == (1, 1)


async def test_what_it_denies_is_never_seen_and_asked_for_elsewhere(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """The connection is closed, what was still to be asked is not, and the next attempt is judged anew."""
    service = Service(0.2, denied="secret")
    run = Run(
        [says(ROLE, text("the secret"), text(" word"), every=0.05, then=[Read(after=FOREVER)])],
        [healthy("No", " word.")],
        services={"hook": service},
    )
    outcome = await run.play()
    assert (outcome.code, outcome.attempts, run.caller.text) == ("", 2, "No word.")
    assert run.noted(What.VIOLATION) == [("hook", "bad")]
    assert [attempt for _, attempt, _ in service.begun] == [1, 2]


async def test_what_it_denies_at_the_end_is_found_before_the_end(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """A complete answer waits for the last verdict."""
    service = Service(0.4, denied="secret")
    run = Run([healthy("the ", "secret")], [healthy("Nothing.")], services={"hook": service})
    outcome = await run.play()
    assert (outcome.code, outcome.attempts, run.caller.text) == ("", 2, "Nothing.")


@pytest.mark.parametrize(
    ("service", "code"),
    [
        (Service(9.0), "filter_deadline"),
        (Service(fault=FilterUnavailable("webhook_status")), "webhook_status"),
        (Service(fault=ValueError("a bug")), "filter_failed"),
    ],
    ids=["late", "unavailable", "broken"],
)
@pytest.mark.parametrize("failure", ["closed", "open"])
async def test_a_service_that_can_not_be_asked_has_a_policy(
    service: Service, code: str, failure: str, autojump_clock: trio.testing.MockClock
) -> None:
    """Closed: 503, and no other attempt, which could not be judged either. Open: everything passes. Why is told either way, a bug with its place."""
    run = Run(
        [healthy("Hi", " there")],
        [healthy("never")],
        services={"hook": service},
        tables={"hook": table(failure=failure)},
    )
    outcome = await run.play()
    assert ("hook", code) in run.noted(What.REMARK)
    assert len(run.records.crashes) == (code == "filter_failed")
    if failure == "open":
        assert (outcome.code, run.caller.text) == ("", "Hi there")
        return
    assert (outcome.code, outcome.attempts) == ("filter_unavailable", 1)
    assert (run.caller.status, run.caller.code) == (503, "filter_unavailable")
    assert run.noted(What.VIOLATION) == [("hook", "filter_unavailable")]


async def test_one_that_only_observes_delays_nothing(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """The answer is over before it has looked at the end of it; what it finds then is still told."""
    service = Service(0.4, denied="secret")
    run = Run(
        [says(text("the "), text("secret"), STOP, DONE, every=0.1)],
        services={"hook": service},
        tables={"hook": table(gating=False)},
    )
    outcome = await run.play()
    assert (outcome.code, run.caller.text) == ("", "the secret")
    assert round(run.caller.ended_at - run.providers[0].asked[0].asked_at, 3) == 0.4
    assert run.noted(What.REMARK) == [("hook", "bad")]
    assert run.noted(What.VIOLATION) == []


async def test_a_failed_attempt_is_not_asked_about_any_more(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Nor does an observer linger for it."""
    service = Service(FOREVER)
    run = Run(
        [says(text("half"), then=[Read(after=1.0, fault=UpstreamFault.CUT)])],
        [healthy("whole")],
        services={"hook": service},
        tables={"hook": table(gating=False, deadline_ms=600_000)},
        attempts_max=1,
    )
    began = trio.current_time()
    outcome = await run.play()
    assert outcome.code == "stream_cut"
    assert len(service.asked) == 1
    assert trio.current_time() == began + 1


async def test_a_service_knows_what_stands_before_a_continued_attempt(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """The text that was released."""
    service = Service()
    run = Run(
        [
            says(
                ROLE,
                *map(text, ("One", " two", " three", " four")),
                every=0.1,
                then=[Read(after=0.2)],
            )
        ],
        [
            says(
                ROLE, *map(text, (" four five", " six and more to come, a long way on")), STOP, DONE
            )
        ],
        services={"hook": service},
        continuation="committed",
        seam_chars=0,
    )
    outcome = await run.play()
    assert (outcome.code, outcome.attempts) == ("", 2)
    assert run.caller.text == "One two three four five six and more to come, a long way on"
    assert [before for _, _, before in service.begun] == ["", "One two three"]
    assert service.asked[-1][1] == " four five six and more to come, a long way on"


async def test_a_caller_that_leaves_ends_what_is_asked(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """At once."""
    caller = RecordingCaller(request())
    service = Service(FOREVER)
    run = Run(
        [healthy("Hi")],
        services={"hook": service},
        tables={"hook": table(deadline_ms=600_000)},
        caller=caller,
    )

    async def leave() -> None:
        await trio.sleep(3)
        caller.leave()

    began = trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(leave)
        outcome = await run.play()
    assert outcome.code == "caller_gone"
    assert trio.current_time() - began == 3


async def test_a_service_may_gather_before_it_is_asked(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """For so long, and not beyond the end."""
    service = Service()
    answer = says(*(text(word) for word in "abcdef"), every=0.1, then=[Read(STOP), Read(DONE)])
    run = Run(
        [answer], services={"hook": service}, tables={"hook": table(batch_ms=350, horizon_chars=1)}
    )
    outcome = await run.play()
    assert (outcome.code, run.caller.text) == ("", "abcdef")
    assert [word for _, word, _ in service.asked] == ["abcd", "ef"]


async def test_one_that_has_fallen_behind_while_it_gathers_is_not_asked(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """There is nothing left that it could be asked about."""
    service = Service()
    answer = says(text("few"), text("x" * 1_100_000), STOP, DONE, every=0.1)
    run = Run(
        [answer], services={"hook": service}, tables={"hook": table(gating=False, batch_ms=150)}
    )
    outcome = await run.play()
    assert outcome.code == ""
    assert service.asked == []
    assert run.noted(What.REMARK) == [("hook", BEHIND)]


async def test_a_json_caller_waits_for_the_verdict(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """`stream` makes no difference to what passes."""
    service = Service(0.1, denied="secret")
    run = Run(
        [healthy("a ", "secret")],
        [healthy("Nothing.")],
        services={"hook": service},
        caller=RecordingCaller(request(stream=False)),
    )
    outcome = await run.play()
    assert (outcome.code, outcome.attempts) == ("", 2)
    assert b"secret" not in run.caller.received


# --- the parts -------------------------------------------------------------------------------------


async def test_an_answer_is_not_lost_while_nobody_waits() -> None:
    """It is there for the next wait, once."""
    answers = Answers()
    answers.tell()
    with trio.fail_after(5):
        await answers.wait()
    with trio.move_on_after(0.01) as scope:
        await answers.wait()
    assert scope.cancelled_caught


class Counting:
    """A filter that computes: passes all, and objects at the end where it was told to."""

    name = "counting"
    gating = True
    notice: str | None = None

    def __init__(self, *, primed: bool = False, good: bool = True, bad_at: int = -1) -> None:
        self.primed = primed
        self.calls: list[str] = []
        self._good = good
        self._bad_at = bad_at

    def prime(self, text: str) -> None:
        self.calls.append(f"prime {text}")

    def observe(self, frames: Sequence[Frame], position: int) -> Verdict:
        self.calls.append(f"observe {position}+{len(frames)}")
        return BAD if position == self._bad_at else Passed(position + len(frames))

    def finish(self, position: int, facts: Facts) -> Verdict:
        self.calls.append(f"finish {position}")
        return Passed(position) if self._good else BAD


def asked_of(inner: Counting) -> Awaited:
    """The judge's side of one in a thread; the first has a past."""
    table = FilterConfig(kind="heavy")
    awaited = Awaited(table, heavy=lambda: inner)
    awaited.prime("so far" if inner.primed else "")
    return awaited


@pytest.mark.real_time
async def test_an_attempt_that_ends_before_its_desk_wakes_is_not_asked_about() -> None:
    """The desk goes on waiting, for the next one."""
    inner, refs = Counting(), SimpleNamespace(exchange="ex-1")
    exchange = cast(Exchange, SimpleNamespace(refs=refs, crashed=None, world=world()))
    desk = Desk("heavy", Threaded(), exchange, Answers())
    for left_at_once in (True, False):
        awaited = asked_of(inner)
        awaited.observe((Frame(b"{}", (TextDelta(0, "a"),), 1),), 0)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(desk.run)
            desk.follow(cast(Judge, SimpleNamespace(awaited=[awaited])), 1)
            if left_at_once:
                desk.follow(None, 1)
                await trio.testing.wait_all_tasks_blocked()
            else:
                with trio.fail_after(5):
                    while not inner.calls:  # noqa: ASYNC110 - it is asked in a thread
                        await trio.sleep(0.001)
            nursery.cancel_scope.cancel()
        assert inner.calls == ([] if left_at_once else ["observe 0+1"])


@pytest.mark.real_time
async def test_a_filter_that_computes_for_long_does_it_in_a_thread() -> None:
    """Primed once, then batch by batch, and the end behind the last."""
    made = [Counting(primed=True), Counting(good=False), Counting(bad_at=0)]
    filters = Threaded()
    frames = (Frame(b"{}", (TextDelta(0, "a"),), 1),)
    first, second, third = (filters.begin("ex", 1, asked_of(each)) for each in made)
    assert await first.judge(Question(3, frames)) == Passed(4)
    assert await first.judge(Question(4, frames, Facts())) == Passed(5)
    assert made[0].calls == ["prime so far", "observe 3+1", "observe 4+1", "finish 5"]
    assert await second.judge(Question(0, (), Facts())) == BAD
    assert made[1].calls == ["finish 0"]
    assert await third.judge(Question(0, frames, Facts())) == BAD
    assert made[2].calls == ["observe 0+1"]
    assert THREADS_MAX >= 1


@pytest.mark.real_time
@pytest.mark.parametrize(("raises", "code"), [("", "word_said"), ("init", "filter_unavailable")])
async def test_a_heavy_plugin_judges_beside_the_stream(raises: str, code: str) -> None:
    """What it denies is never seen; what it raises is its own failure."""
    records, caller = Records(), RecordingCaller()
    table = PluginConfig(kind="heavy", options=Said(word="there", raises=raises))
    gate = gateway(
        ScriptedProvider(healthy("Hi", " there")),
        filters=("deep",),
        tables={"deep": table},
        plugins={"heavy": plugged_in(HeavyPlugin)},
        awaiting={"deep": Threaded()},
        records=records,
    )
    outcome = await supervise(gate, caller)
    assert outcome.code == code
    assert b"there" not in caller.received
    assert left_behind(gate) == []
    assert len(records.crashes) == bool(raises)
