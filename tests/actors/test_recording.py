"""Recording changes nothing of an exchange, and what it takes down is enough to have the exchange again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import trio
import trio.testing

from actors.dispatch import Dispatch
from actors.exchange import run_exchange
from actors.ports import UpstreamRequest
from actors.recording import ended, recorded
from actors.recording_process import RecordedDispatch, RecordedHealth, RecordedRetries
from actors.tape import Tape
from gate.config_check import decode_config
from gate.errors import FilterUnavailable, UpstreamFault
from gate.failure import Failure, FailureKind
from gate.health import ProviderHealth
from gate.observe import OutcomeKind
from gate.retry_budget import RetryBudget
from gate.trace import (
    Answered,
    Attempt,
    CallerEvent,
    Decision,
    Fact,
    Part,
    Ping,
    Read,
    Record,
    Release,
    Request,
    ResponseHead,
    Term,
    Upstream,
)
from tests.actors.test_awaiting import Service
from tests.doubles import (
    ROLE,
    STOP,
    Answer,
    BrokenCaller,
    RecordingCaller,
    ScriptedProvider,
    SlowCaller,
    cut,
    door,
    fails,
    healthy,
    refuses,
    request,
    says,
    stalls,
    text,
)
from tests.doubles import Read as Piece
from tests.stepping import seed_scheduler
from tests.tracing import SALT, gateway_of, tables


class Run:
    """One exchange on a tape."""

    def __init__(self, *scripts: list[Answer], caller: RecordingCaller | None = None, services: Any = None, **raw: Any) -> None:  # fmt: skip
        self.providers = [ScriptedProvider(*script) for script in scripts]
        self.caller = caller or RecordingCaller()
        self.gate = gateway_of(decode_config(tables(len(scripts), **raw)), self.providers, services)
        self.tape = Tape(SALT)

    async def play(self, **through: Any) -> OutcomeKind:
        let_in = door(**through)
        caller, gate = recorded(let_in, self.caller, self.gate, self.tape)
        outcome = await run_exchange(let_in, caller, gate)
        ended(outcome, self.tape)
        assert len(self.gate.open) == 0
        return outcome.kind

    def of(self, *kinds: type[Record]) -> list[Any]:
        return [each for each in self.tape.records if isinstance(each, kinds)]

    def events(self) -> list[str]:
        """What providers did, in words."""
        return [
            f"{each.n} {each.ev} {each.fault}".strip() if isinstance(each, Upstream) else f"{each.n} read"
            for each in self.of(Upstream, Read)
            if not isinstance(each, Upstream) or each.ev != "closed"
        ]  # fmt: skip


async def test_an_exchange_is_taken_down_from_its_request_to_its_terminal(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Inputs with their times and boundaries, decisions without."""
    run = Run([healthy("Hi", every=0.5)])
    assert await run.play() is OutcomeKind.SUCCESS
    assert run.tape.records[0] == Request(0, "application/json", None)
    assert [(each.b, each.last) for each in run.of(Part)] == [(b"".join(each.b for each in run.of(Part)), True)]  # fmt: skip
    assert [(each.t, each.w, each.b) for each in run.of(Read)][:2] == [
        (500_000, 500_000, ROLE),
        (1_000_000, 500_000, text("Hi")),
    ]
    assert [(each.what, each.value) for each in run.of(Fact)] == [
        ("ready", None),
        ("admit", None),
        ("decide", None),
        ("draw", 0.5),
        ("wait", 0.0),
        ("retries", True),
        ("slot", "p0"),
    ]
    assert [each.what for each in run.of(Decision)] == [
        "attempt_started",
        "attempt_admitted",
        "attempt_ended",
    ]
    (attempt,) = run.of(Attempt)
    assert attempt.sha == run.tape.body_digest([run.providers[0].asked[0].body], attempt.size)
    (head,) = run.of(ResponseHead)
    assert dict(head.headers)["x-request-id"] == "ex-1"
    (term,) = run.of(Term)
    assert (term.kind, term.size, term.open) == ("success", len(run.caller.received), 0)
    assert term.sha == run.tape.body_digest([run.caller.received], term.size)
    assert run.events() == ["1 connected", "1 head", "1 read", "1 read", "1 read", "1 read", "1 left"]  # fmt: skip


async def test_ends_of_attempts_are_told_apart() -> None:
    """No connection, a cut, an error answer that ends, a stall that we leave."""
    run = Run(
        [fails(UpstreamFault.CONNECT), cut("a"), refuses(503, b"{}"), healthy("Hi")],
        route={"hold": {"mode": "buffered"}, "recovery": {"attempts_max": 4, "same_target_retries": 3, "backoff_seconds": 0.0}},
    )  # fmt: skip
    assert await run.play() is OutcomeKind.SUCCESS
    told = run.events()
    assert told[:6] == ["1 fault CONNECT", "2 connected", "2 head", "2 read", "2 fault CUT", "3 connected"]  # fmt: skip
    assert "3 eof" in told
    assert [each.status for each in run.of(Upstream) if each.ev == "head"] == [200, 503, 200]


async def test_the_end_of_a_body_is_told_once() -> None:
    """A reader may ask again, and gets the same nothing."""
    run = Run([says(ROLE, text("Hi"), STOP)])
    tape = run.tape
    _, gate = recorded(door(), run.caller, run.gate, tape)
    assert (list(gate.pools), len(gate.pools)) == (["small"], 1)
    target = gate.pools["small"].targets[0]
    request = UpstreamRequest("/chat/completions", [], [b"{}"], 2)
    async with target.provider.attempt(request, on_connected=lambda: None) as response:
        while await response.read():
            pass
        assert await response.read() == b""
    assert run.events()[-2:] == ["1 read", "1 eof"]


async def test_an_attempt_that_is_left_before_its_head_is_left(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """The clock for the head runs out."""
    run = Run([Answer(head_after=999)], route={"clocks": {"headers_seconds": 1}, "recovery": {"attempts_max": 1}})  # fmt: skip
    assert await run.play() is OutcomeKind.ERROR
    assert run.events() == ["1 connected", "1 left"]


async def test_only_fields_that_are_read_are_kept_of_a_providers_head() -> None:
    """A cookie or a key is never on a tape."""
    answer = healthy("Hi")
    headers = [*answer.headers, (b"set-cookie", b"secret"), (b"retry-after", b"1")]
    run = Run([Answer(answer.reads, headers=headers)])
    await run.play()
    assert [dict(each.headers) for each in run.of(Upstream) if each.ev == "head"] == [
        {"content-type": "text/event-stream", "retry-after": "1"}
    ]


async def test_pings_and_slow_writes_are_told(autojump_clock: trio.testing.MockClock) -> None:
    """Neither is part of the output; both say why times are as they are."""
    run = Run(
        [healthy("Hi", every=2.0)],
        caller=SlowCaller(seconds=0.25),
        route={"hold": {"ping_seconds": 1.0, "pings_commit": True}},
    )
    await run.play()
    assert run.of(Ping)
    blocked = run.of(CallerEvent)
    assert {(each.ev, each.us) for each in blocked} == {("blocked", 250_000)}
    pings = len(run.caller.received) - run.tape.written
    assert pings == len(run.of(Ping)) * len(b": keep-alive\n\n")


async def test_what_explains_is_no_part_of_the_recording(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Neither its comments nor its header fields: they tell times, which a replay need not meet."""
    plain = Run([healthy("Hi", every=0.5)])
    await plain.play()
    explained = Run([healthy("Hi", every=0.5)])
    await explained.play(explain=True)
    assert b": tidegate " in explained.caller.received
    assert explained.tape.output_digest() == plain.tape.output_digest()
    assert explained.of(ResponseHead, Release, Ping) == plain.of(ResponseHead, Release, Ping)


async def test_a_caller_that_leaves_is_an_input(autojump_clock: trio.testing.MockClock) -> None:
    """At the byte that it had got to."""
    run = Run([stalls(ROLE, text("Hi"))])
    async with trio.open_nursery() as nursery:
        nursery.start_soon(run.play)
        await trio.sleep(3)
        run.caller.leave()
    assert run.of(CallerEvent) == [CallerEvent(3_000_000, "gone", run.tape.written)]
    (term,) = run.of(Term)
    assert (term.kind, term.code) == ("abandoned", "caller_gone")


async def test_a_write_that_does_not_return_is_told_as_stuck() -> None:
    """So is one that ends in a bug."""
    run = Run([healthy("Hi")], caller=BrokenCaller())
    assert await run.play() is OutcomeKind.ERROR
    assert [each.ev for each in run.of(CallerEvent)] == ["stuck"]


class _NoEnd(RecordingCaller):
    """Takes everything but the last bytes."""

    async def end(self, data: bytes = b"") -> None:
        raise RuntimeError("a bug in the port")


async def test_a_last_write_that_does_not_return_is_told_as_stuck() -> None:
    """It is another call of the port."""
    run = Run([healthy("Hi")], caller=_NoEnd())
    assert await run.play() is OutcomeKind.ERROR
    assert [each.ev for each in run.of(CallerEvent)] == ["stuck"]


async def test_a_response_that_is_cut_off_is_told(autojump_clock: trio.testing.MockClock) -> None:
    """With the byte it got to; and what the door knew of the request."""
    kind = ((b"content-type", b"audio/mpeg"), (b"x-ratelimit-limit-tokens", b"7"))
    answer = Answer([Piece(b"\xff\xfb"), Piece(fault=UpstreamFault.CUT)], headers=kind)
    run = Run([answer], caller=RecordingCaller(request(input="Hi")))
    assert await run.play(endpoint="/v1/audio/speech") is OutcomeKind.ERROR
    assert [(each.ev, each.off) for each in run.of(CallerEvent)] == [("aborted", 2)]
    assert [each.endpoint for each in run.of(Request)] == ["/v1/audio/speech"]
    assert [each.headers for each in run.of(Upstream) if each.ev == "head"] == [
        (("content-type", "audio/mpeg"), ("x-ratelimit-limit-tokens", "7"))
    ]


async def test_the_drains_end_is_an_input(autojump_clock: trio.testing.MockClock) -> None:
    """The exchange is in the process' list under its stand-in, once."""
    run = Run([stalls(ROLE, text("Hi"))], route={"hold": {"mode": "buffered"}})
    async with trio.open_nursery() as nursery:
        nursery.start_soon(run.play)
        await trio.sleep(2)
        assert len(run.gate.open) == 1
        assert run.gate.open.held_bytes > 0
        run.gate.open.shut_down()
    assert [(each.t, each.ev) for each in run.of(CallerEvent)] == [(2_000_000, "shutdown")]
    (term,) = run.of(Term)
    assert term.code == "shutdown"


SERVICES: list[tuple[Callable[[], Service], dict[str, Any]]] = [
    (Service, {"passed": 2, "violated": None, "fault": None}),
    (lambda: Service(denied="Hi"), {"passed": None, "fault": None}),
    (lambda: Service(fault=RuntimeError("bug")), {"passed": None, "violated": None, "fault": "error"}),
    (lambda: Service(9.0), {"passed": None, "violated": None, "fault": None}),
]  # fmt: skip


@pytest.mark.parametrize(("service", "said"), SERVICES)
async def test_what_a_filter_said_is_an_input(
    service: Callable[[], Service], said: dict[str, Any], autojump_clock: trio.testing.MockClock
) -> None:
    """A position, a violation, a fault, or nothing before its deadline."""
    run = Run(
        [says(ROLE + text("Hi") + STOP + b"data: [DONE]\n\n")],
        services={"hook": service()},
        route={"filters": ["hook"], "recovery": {"attempts_max": 1}},
        filters={"hook": {"kind": "webhook", "url": "http://127.0.0.1:9/"}},
    )
    await run.play()
    first = run.of(Answered)[0]
    assert (first.n, first.name, first.start, first.end) == (1, "hook", 0, 2)
    assert {name: getattr(first, name) for name in said} == said
    if "violated" not in said:
        assert first.violated["code"] == "bad"


async def test_a_filter_that_can_not_be_asked_is_told_by_its_code() -> None:
    """The failure policy decides what comes of it, on replay as well."""
    run = Run(
        [healthy("Hi")],
        services={"hook": Service(fault=FilterUnavailable("http_503"))},
        route={"filters": ["hook"]},
        filters={"hook": {"kind": "webhook", "url": "http://127.0.0.1:9/", "failure": "open"}},
    )
    assert await run.play() is OutcomeKind.SUCCESS
    assert [each.fault for each in run.of(Answered)] == ["http_503"]


async def test_when_a_hold_was_looked_at_is_a_fact(autojump_clock: trio.testing.MockClock) -> None:
    """A busy loop comes late for it, and what has gone by a failure depends on that."""
    run = Run(
        [says(ROLE, text("Hi"), STOP, b"data: [DONE]\n\n", every=0.5)],
        route={"hold": {"mode": "window", "tail_ms": 200}},
    )
    await run.play()
    looks = [each.t for each in run.of(Fact) if each.what == "hold"]
    assert looks == [1_200_000]


async def test_an_exchange_that_ends_while_it_waits_for_a_place_says_so(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """It was never told whether it would have got one."""
    run = Run([healthy("Hi")])
    run.gate.dispatch.providers.taken["p0"] = 64
    async with trio.open_nursery() as nursery:
        nursery.start_soon(run.play)
        await trio.sleep(2)
        run.caller.leave()
    slots = [(each.value, each.us) for each in run.of(Fact) if each.what == "slot"]
    assert slots == [(False, 2_000_000)]


async def test_wall_time_is_a_fact() -> None:
    """Where an answer has no date of its own."""
    chunk = text("Hi").replace(b'"created":7', b'"created":0')
    run = Run([says(chunk, STOP.replace(b'"created":7', b'"created":0'), b"data: [DONE]\n\n")])
    await run.play()
    assert [each.what for each in run.of(Fact)][-1] == "wall"


# --- the process ---------------------------------------------------------------------------------


async def test_the_process_state_is_asked_and_changed_as_ever() -> None:
    """Health, retries and places belong to all exchanges; a recorded one is no exception."""
    tape = Tape(SALT)
    health = ProviderHealth(failures=1, open_seconds=30.0)
    retries = RetryBudget(share=0.0, floor=1.0, now=0.0)
    dispatch = Dispatch(exchanges_max=1, queue_max=0, queue_seconds_max=0.0, concurrency={"p0": 1})
    told = RecordedHealth("p0", health, tape)
    budget = RecordedRetries(retries, tape)
    places = RecordedDispatch(dispatch, tape)
    with told.probing(1.0):
        told.end(Failure(FailureKind.CUT), 1.0, began=0.5)
    assert told.wait_seconds(2.0) == health.wait_seconds(2.0) == 29.0
    budget.admit(1.0)
    budget.take(1.0)
    assert budget.left(1.0) is retries.left(1.0) is False
    with places.place() as place:
        assert await places.admit(place) is None
        assert dispatch.exchanges.taken["exchange"] == 1
        async with places.slot(["p0"], place) as name:
            assert name == "p0"
    assert places.drain_ends == float("inf")
    places.drain_ends = tape.began + 5.0
    assert dispatch.drain_ends == places.drain_ends == tape.began + 5.0
    assert (repr(told), repr(budget)) == (repr(health), repr(retries))
    facts = [each for each in tape.records if isinstance(each, Fact)]
    assert [(each.what, each.value) for each in facts] == [
        ("wait", 29.0),
        ("retries", False),
        ("admit", None),
        ("slot", "p0"),
        ("drain_ends", 5_000_000),
    ]


async def test_recording_adds_no_checkpoint() -> None:
    """As many scheduler steps with a tape as without one."""

    class Steps(trio.abc.Instrument):
        count = 0

        def before_task_step(self, task: trio.lowlevel.Task) -> None:
            self.count += 1

    async def steps(*, taped: bool) -> int:
        run = Run([cut("a"), healthy("b")], [healthy("c")], route={"recovery": {"backoff_seconds": 0.0}})  # fmt: skip
        counted = Steps()
        seed_scheduler(1)  # the same order of tasks for both
        trio.lowlevel.add_instrument(counted)
        if taped:
            await run.play()
        else:
            await run_exchange(door(), run.caller, run.gate)
        trio.lowlevel.remove_instrument(counted)
        return counted.count

    assert await steps(taped=True) == await steps(taped=False)
