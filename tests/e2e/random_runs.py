"""One random exchange through the real actors on a virtual clock, with everything that happens around it, and what holds after it.

`run_once` is the whole of it: a case, played and checked.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import trio
import trio.testing

from actors.context import Gateway
from actors.exchange import run_exchange
from gate.errors import BudgetExceeded
from gate.observe import Outcome, OutcomeKind, What
from tests.assembly import Answer, read_object, read_stream
from tests.doubles import (
    ALIAS,
    Asked,
    RecordingCaller,
    Records,
    ScriptedProvider,
    door,
    gateway,
    left_behind,
    untold,
)
from tests.doubles import Answer as Reply
from tests.e2e.random_cases import WIRE_BYTES, Case, Crowd
from tests.e2e.random_scripts import BIG, NEVER_TOLD, SURE_SECONDS, Script
from tests.stepping import Striker, seed_scheduler

DRAIN_SECONDS: Final = 3.0
ERROR_SECONDS: Final = 2.0  # that the body of an error is waited for
ROUNDING: Final = 0.001
HANG_SECONDS: Final = 100_000.0  # of virtual time
STEPS_MAX: Final = 200_000  # of the scheduler; an exchange takes some hundred
STATUSES: Final = frozenset({400, 404, 408, 413, 422, 429, 500, 502, 503, 504})
ENVELOPE: Final = {"message", "type", "param", "code"}
LEFT: Final = frozenset({"caller_gone", "caller_too_slow"})
KEPT_BYTES: Final = 4  # of each character
OUT_OF_TIME: Final = frozenset({"total_timeout", "stream_limit"})  # may end a good answer too


# --- one exchange --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Wire:
    """How an endpoint's answers are read by a client: an event stream, one object; and of a request, as its provider sees it, the answer so far that it is to go on with."""

    path: str
    stream: Callable[[bytes], Answer]
    whole: Callable[[bytes], Answer]
    begun: Callable[[Any], str | None]
    own_codes: bool = True
    """The in-stream error has the gate's own code."""


def _begun(body: Any) -> str | None:
    last = body["messages"][-1]
    return last["content"] if last["role"] == "assistant" else None


CHAT: Final = Wire("/v1/chat/completions", read_stream, read_object, _begun)


class Deck(ScriptedProvider):
    """One of the providers of an exchange: each attempt takes the next answer of them all, and is written down with all."""

    def __init__(self, answers: list[Reply], asked: list[Asked]) -> None:
        super().__init__()
        self._script = answers
        self.asked = asked


class Reader(RecordingCaller):
    """A caller as drawn. Like the server's, a write to one that is stuck can't be cancelled."""

    def __init__(self, case: Case) -> None:
        super().__init__(*case.request.parts, gap=case.request.gap)
        self._reading = case.reading
        self.left_at: float | None = None

    def leave(self) -> None:
        if not self.ended:
            self.left_at = trio.current_time()
        super().leave()

    async def write(self, data: bytes) -> None:
        self._got(data)
        if self._reading.stuck:
            # Bounded by: the strike, with which a caller that is stuck leaves.
            with trio.CancelScope(shield=True):
                await self._left.wait()
        await trio.sleep(self._reading.seconds)


@dataclass
class Run:
    """One exchange, while it goes on and after it."""

    case: Case
    gate: Gateway
    caller: Reader
    asked: list[Asked]  # every attempt as its provider saw it, in order
    wire: Wire
    records: Records = field(default_factory=Records)
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    outcome: Outcome | None = None
    refused: bool = False  # the process had no room for it at all
    ended_at: float = 0.0
    struck_at: float | None = None
    spun: bool = False

    @property
    def played(self) -> Sequence[Script]:
        """What was played of the case's scripts."""
        return self.case.scripts[: len(self.asked)]

    @property
    def quiet(self) -> bool:
        return self.case.quiet

    def strike(self) -> None:
        self.struck_at = trio.current_time()
        match self.case.strike.what:
            case "leave":
                self.caller.leave()
            case "cancel":
                self.scope.cancel()
            case _:
                self.gate.open.shut_down()

    def overrun(self) -> None:
        self.spun = True
        self.scope.cancel()


def prepared(case: Case, process: Gateway | None = None, wire: Wire = CHAT) -> Run:
    """The case's gateway and caller; with the places and the memory of `process`, if one is given."""
    records = Records()
    answers = [script.play.answer for script in case.scripts]
    asked: list[Asked] = []
    hold, clocks, recovery = case.route.hold, case.route.clocks, case.route.recovery
    gate = gateway(
        Deck(answers, asked),
        Deck(answers, asked),
        hold=hold,
        clocks=clocks,
        recovery=recovery,
        limits=case.limits,
        concurrency=1,
        prefill=case.prefill,
        records=records,
    )
    pool = gate.pools[ALIAS]
    targets = tuple(
        dataclasses.replace(pool.targets[provider], model=f"model-{at}", priority=priority)
        for at, (provider, priority) in enumerate(zip(case.targets, case.priorities, strict=True))
    )
    gate.pools = {ALIAS: dataclasses.replace(pool, targets=targets)}
    if process is not None:
        gate.budget, gate.open = process.budget, process.open
        # A drain is for good.
        gate.dispatch = gate.dispatch if case.strike.what == "drain" else process.dispatch
    return Run(case, gate, Reader(case), asked, wire, records)


def gather(gate: Gateway, crowd: Crowd, held: contextlib.ExitStack) -> None:
    """Takes what others hold; closing `held` gives it back."""
    for places, name, wanted in (
        (gate.dispatch.exchanges, "exchange", crowd.exchanges),
        (gate.dispatch.providers, "p0", crowd.provider),
    ):
        while wanted and places.take_nowait([name]):
            held.callback(places.give, name)
    if crowd.free_bytes is not None:
        size = gate.budget.bytes_max - gate.budget.used - crowd.free_bytes
        held.enter_context(gate.budget.reserve(size))


async def disperse(held: contextlib.ExitStack, seconds: float) -> None:
    """The crowd leaves."""
    await trio.sleep(seconds)
    held.close()


async def strike_in_time(run: Run) -> None:
    """The strike, where it comes at a time."""
    strike = run.case.strike
    if not strike.what or strike.step:
        return
    await trio.sleep(strike.at)
    if strike.what == "drain":
        run.gate.dispatch.drain(trio.current_time() + DRAIN_SECONDS)
        await trio.sleep(DRAIN_SECONDS)
    run.strike()


@contextlib.contextmanager
def instruments(run: Run) -> Iterator[None]:
    """What counts the scheduler's steps; one that failed is not there any more, and that is an error."""
    used = [Striker(run.overrun, STEPS_MAX)]
    used += [Striker(run.strike, run.case.strike.step)] if run.case.strike.step else []
    for each in used:
        trio.lowlevel.add_instrument(each)
    try:
        yield
    finally:
        for each in used:
            trio.lowlevel.remove_instrument(each)


async def exchange(run: Run) -> None:
    """The exchange, with everything that happens around it, to the end of all of it."""
    tasks = trio.lowlevel.current_statistics().tasks_living
    with trio.fail_after(HANG_SECONDS), contextlib.ExitStack() as crowd:
        gather(run.gate, run.case.crowd, crowd)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(disperse, crowd, run.case.crowd.until)
            nursery.start_soon(strike_in_time, run)
            size = sum(map(len, run.case.request.parts))
            length = size if run.case.request.told_length else None
            with instruments(run), run.scope:
                try:
                    run.outcome = await run_exchange(
                        door(content_length=length, endpoint=run.wire.path), run.caller, run.gate
                    )
                except BudgetExceeded:
                    run.refused = True
            run.ended_at = trio.current_time()
            nursery.cancel_scope.cancel()
    assert trio.lowlevel.current_statistics().tasks_living == tasks, "a task is left"


def run_once(case: Case) -> Run:
    """The case by itself, from its beginning to its checks."""
    runs: list[Run] = []

    async def main() -> None:
        runs.append(prepared(case))
        await exchange(runs[0])

    seed_scheduler(case.number)
    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
    check(runs[0])
    return runs[0]


# --- what holds after each -----------------------------------------------------------------------


def check(run: Run) -> None:
    """Every invariant that can be seen from outside."""
    check_nothing_left(run)
    check_outcome(run)
    check_times(run)
    received = run.caller.received
    told = received + b"".join(value for _, value in run.caller.headers.items())
    assert NEVER_TOLD.encode() not in told, "a caller saw a provider's own words"
    if run.caller.status == 200:
        check_answer(run, answer_of(run))
    elif run.caller.status:
        check_refusal(run, read_object(received) if received else None)
    if run.quiet:
        check_quiet(run)


def check_nothing_left(run: Run) -> None:
    """Bytes, places, connections, tasks; and nobody crashed who had no reason to."""
    assert not run.spun, "more steps than an exchange can need"
    assert left_behind(run.gate) == []
    assert untold(run.records) == []
    providers = [each.provider for each in run.gate.pools[ALIAS].targets]
    assert sum(each.open for each in providers if isinstance(each, Deck)) == 0
    for first, second in itertools.pairwise(run.asked):
        assert first.closed_at <= second.asked_at, "two attempts at once"
    crashes = [str(error) for _, error in run.records.crashes]
    assert len(crashes) <= any(script.fault == "crash" for script in run.played), crashes


def check_outcome(run: Run) -> None:
    """The outcome says what the caller got; without one, the exchange was cancelled, or never begun."""
    outcome, caller = run.outcome, run.caller
    assert caller.starts <= 1
    ends = [each for each in run.records.observations if each.what is What.EXCHANGE_ENDED]
    assert len(ends) == (not run.refused)
    if outcome is None:
        assert run.refused or run.case.strike.what == "cancel"
        assert not run.refused or caller.starts == 0
        return
    assert (outcome.ledger.used, outcome.ledger.open_reservations) == (0, 0)
    assert outcome.attempts == len(run.asked)
    assert (ends[0].code, ends[0].status) == (outcome.code or outcome.kind.value, outcome.status)
    assert outcome.status == caller.status
    if outcome.kind is OutcomeKind.ABANDONED:
        assert outcome.code in LEFT
        assert caller.left_at is not None
        assert not caller.ended
        return
    assert caller.ended
    assert outcome.bytes_out == len(caller.received)
    assert (outcome.kind is OutcomeKind.SUCCESS) == (outcome.code == "")


def check_times(run: Run) -> None:
    """Who leaves or is cancelled is let go in the same moment of virtual time, and so is the provider; and nobody waits for an error's body."""
    for script, asked in zip(run.played, run.asked, strict=True):
        waited = asked.closed_at - asked.asked_at
        assert waited <= ERROR_SECONDS + ROUNDING or not script.fault.startswith("status_")
    stuck = run.case.reading.stuck
    over = run.caller.left_at
    if run.case.strike.what == "cancel":
        over = run.struck_at
    if over is None or stuck:
        return
    assert run.ended_at <= max(over, run.caller.ended_at)
    assert all(at <= over for at, _ in run.caller.writes) or run.caller.ended
    assert all(asked.closed_at <= over for asked in run.asked) or run.caller.ended


def answer_of(run: Run) -> Answer:
    """What a client makes of the body of a 200, as far as it came."""
    streamed = run.caller.headers[b"content-type"].startswith(b"text/event-stream")
    assert streamed == run.case.request.stream
    if streamed:
        return run.wire.stream(run.caller.received)
    length = run.caller.headers[b"content-length"]
    received = run.caller.received
    assert length == b"%d" % len(received) or not received
    return run.wire.whole(received) if received else Answer()


def check_answer(run: Run, answer: Answer) -> None:
    """The beginning of what one attempt said, or all of it; a clean end only behind the whole."""
    wanted = run.case.request
    script = speaker(run, answer)
    choices = answer.choices
    assert set(choices) <= set(range(wanted.choices))
    assert {model for _, _, model in answer.identities} <= {ALIAS}
    assert len(answer.identities) <= 1
    assert all(len(choice.roles) <= 1 for choice in choices.values())
    assert wanted.include_usage or not wanted.stream or answer.usage is None
    finishes = [len(choices[at].finishes) for at in sorted(choices)]
    if not answer.done:
        assert sum(finishes) == 0
        assert not run.caller.ended or answer.error is not None
        if answer.error is not None:
            check_in_stream(run, answer)
        return
    assert answer.error is None
    assert finishes == [1] * wanted.choices
    assert all(choice.roles == ["assistant"] for choice in choices.values())
    whole = telling(run, len(run.asked) - 1)
    assert tuple(seen(run, choices[at].text) for at in range(wanted.choices)) == whole.texts
    assert choices[0].reasoning == whole.thought
    assert script.may_complete or adds_nothing(run), (
        "a clean end, and nothing that was sent said so"
    )
    if run.outcome is not None and run.caller.ended:
        assert run.outcome.kind is OutcomeKind.SUCCESS


@dataclass(frozen=True, slots=True)
class Telling:
    """What an answer is that ends with one attempt: its own words, behind those that it was asked to go on with. `names`: of the attempt that began it."""

    texts: tuple[str, ...]
    thought: str
    names: frozenset[str]


def asked_to_go_on_with(run: Run, at: int) -> str | None:
    """The answer so far, if attempt `at` was given one."""
    return run.wire.begun(json.loads(run.asked[at].body))


def telling(run: Run, at: int) -> Telling:
    """The answer that ends with attempt `at`. What it was asked to go on with is the beginning of what an earlier one said."""
    said, begun = run.played[at].said, asked_to_go_on_with(run, at)
    if begun is None:
        return Telling(said.texts, said.thought, frozenset({said.name}))
    assert begun.strip() == begun, "no place to go on from"
    found = [
        each for each in (telling(run, j) for j in range(at)) if each.texts[0].startswith(begun)
    ]
    assert found, "words that nobody said"
    assert run.case.continues
    more = "" if run.played[at].fault == "empty" else said.texts[0]
    return Telling((begun + more,), found[-1].thought, found[-1].names)


def adds_nothing(run: Run) -> bool:
    """The last attempt was asked to go on and had nothing to add but its finish, and perhaps white space: then the answer ends there."""
    last = len(run.asked) - 1
    empty = run.played[last].fault == "empty"
    return empty and asked_to_go_on_with(run, last) is not None


def seen(run: Run, text: str) -> str:
    """The text that a caller got, less the white space of an attempt that had nothing else."""
    return text.rstrip() if adds_nothing(run) else text


def speaker(run: Run, answer: Answer) -> Script:
    """The last attempt that was made: nothing but what goes on with the answer follows what was released, so these are its words, or the beginning of them."""
    for choice in answer.choices.values():
        choice.text = seen(run, choice.text)
    found = [at for at in range(len(run.asked)) if said_by(telling(run, at), answer)]
    begun = any(choice.text for choice in answer.choices.values())
    last = len(run.asked) - 1
    continued = asked_to_go_on_with(run, last) is not None
    assert not begun or last in found, "no attempt's text, or one that was given up"
    assert not begun or continued or found == [last], "text of two attempts"
    names = {name for name, _, _ in answer.identities}
    assert not begun or names <= telling(run, last).names
    return run.played[last]


def said_by(whole: Telling, answer: Answer) -> bool:
    """Whether everything in it is a beginning of that answer."""
    texts, thoughts = whole.texts, (whole.thought, "")
    return all(
        texts[at].startswith(choice.text)
        and thoughts[at].startswith(choice.reasoning)
        and not choice.refusal
        and not choice.calls
        for at, choice in answer.choices.items()
    )


def check_in_stream(run: Run, answer: Answer) -> None:
    """The error is ours, the one that the outcome says, and behind something that was worth releasing."""
    if run.wire.own_codes:
        assert answer.error.keys() == ENVELOPE
        assert run.outcome is None or run.outcome.code == answer.error["code"]
    hold = run.case.route.hold
    if run.case.strike.what or hold.over_cap == "release":
        return
    assert hold.mode != "buffered", "released before the answer was complete"
    seen = sum(len(choice.text) for choice in answer.choices.values())
    if hold.mode == "window":
        whole = sum(map(len, telling(run, len(run.asked) - 1).texts))
        assert seen <= whole - hold.tail_chars, "released before it was far enough behind"
    else:
        assert seen >= hold.opening_chars, "released before the opening"


def check_refusal(run: Run, answer: Answer | None) -> None:
    """A real status with the error envelope, and nothing else; a bug of ours only where there was one."""
    caller = run.caller
    assert caller.status in STATUSES
    assert caller.headers[b"content-type"] == b"application/json"
    if answer is None:
        assert not caller.ended
        return
    assert caller.headers[b"content-length"] == b"%d" % len(caller.received)
    assert answer.error.keys() == ENVELOPE
    assert answer.choices == {}
    code = answer.error["code"]
    assert run.outcome is None or run.outcome.code == code
    crashed = any(script.fault == "crash" for script in run.played)
    assert (caller.status == 500) == (code == "internal_error")
    assert code != "internal_error" or crashed


def check_quiet(run: Run) -> None:
    """Where nothing else interferes, the providers alone decide: a bad request is refused, a complete answer is a success, and no other."""
    assert run.outcome is not None
    refusal = run.case.request.refusal
    if refusal is not None:
        assert (run.caller.status, run.outcome.code) == refusal
        assert not run.asked
        return
    check_peak(run, run.outcome.ledger.peak)
    if run.outcome.code in OUT_OF_TIME:
        return
    last = run.played[-1]
    success = run.outcome.kind is OutcomeKind.SUCCESS
    if run.outcome.code == "gap_timeout" and not (last.play.late or run.case.reading.seconds):
        waited = run.asked[-1].closed_at - run.asked[-1].asked_at
        longest = SURE_SECONDS + 2 * run.case.route.clocks.gap_seconds
        assert waited <= longest + ROUNDING, "a stall took long"
    good = [completes(run, at) for at in range(len(run.asked))]
    assert success or not good[-1], f"a good answer was lost: {run.outcome.code}"
    assert not any(good[:-1])
    assert not success or last.may_complete or adds_nothing(run)


def completes(run: Run, at: int) -> bool:
    """The attempt's answer is one; it is none where it thinks again although it was asked to go on."""
    script = run.played[at]
    again = script.said.thought and asked_to_go_on_with(run, at) is not None
    return script.completes and not again


def check_peak(run: Run, peak: int) -> None:
    """What is streamed live is held as a few reads and frames and never whole, however slowly its caller reads."""
    hold = run.case.route.hold
    bodies = any(script.fault.startswith("json") for script in run.played)
    streams = run.case.request.stream and not bodies
    if hold.mode != "live" or hold.opening_ms or not streams or run.case.continues:
        return
    body = sum(map(len, run.case.request.parts))
    read = max([script.play.largest for script in run.played], default=0)
    # The framing of a response keeps its text, to say it again at each end.
    kept = (
        0 if run.wire is CHAT else KEPT_BYTES * sum(len(each.said.texts[0]) for each in run.played)
    )
    assert peak <= WIRE_BYTES + body + kept + 4 * max(read, len(BIG))
