"""The cancellation explorer: one fault at every scheduler step of a few whole exchanges, and after each run nothing is left and nothing illegal was written.

A run is repeated with the fault one step later until it ends before the fault is due. A step is counted when a task begins it and when it ends it: between
the two lies everything that a task does at once.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import pytest
import trio
import trio.testing

from actors.context import Gateway
from actors.evaluator import PIECE_BYTES_MAX
from actors.exchange import run_exchange
from gate.config import HoldConfig, LimitsConfig, PathKind
from gate.errors import UpstreamFault
from gate.observe import Outcome, OutcomeKind
from tests.actors.test_awaiting import ELSEWHERE, Service
from tests.assembly_responses import read_events
from tests.doubles import (
    DONE,
    ROLE,
    STOP,
    Answer,
    Read,
    RecordingCaller,
    Records,
    ScriptedProvider,
    SlowCaller,
    body,
    cut,
    door,
    gateway,
    healthy,
    left_behind,
    refuses,
    request,
    says,
    text,
    thought,
    untold,
    whole,
)
from tests.responding import answer, created
from tests.responding import text as message_text
from tests.stepping import Striker, seed_scheduler

SEEDS: Final = (0, 1)
BIG: Final = "x" * 30_000  # one frame of it is more than a piece
LARGE: Final = request(user="x" * 300_000)  # is read in steps
SOUND: Final = ((b"content-type", b"audio/mpeg"),)
LATE_CUT: Final = Read(fault=UpstreamFault.CUT)
RESPONSES: Final = {"endpoint": "/v1/responses"}
ASKED: Final = b'{"model":"small","input":"Hi","stream":true}'


def spoken(*words: str) -> Answer:
    """A healthy response, an event at a time."""
    return says(*(block + b"\n\n" for block in answer(*words).split(b"\n\n")[:-1]), every=0.1)


@dataclass(frozen=True, slots=True)
class Scenario:
    """What a caller gets when nothing strikes: its answer text, and the code that ends it (empty: success)."""

    script: Callable[[], list[list[Answer]]]
    said: str
    code: str = ""
    caller: Callable[[], RecordingCaller] = RecordingCaller
    stream: bool = True
    rivals: int = 0
    """Other exchanges that want the same, single place."""
    services: Callable[[], dict[str, Service]] = dict
    """Filters that await, by name."""
    tail_chars: int = 0
    """Of a window that is held back, so that an answer may go on at another attempt."""
    path: PathKind = "normalized"
    door: Mapping[str, Any] = field(default_factory=dict)
    may_abort: bool = False

    @property
    def responses(self) -> bool:
        """It is one of the Responses API."""
        return self.door.get("endpoint") == RESPONSES["endpoint"]


SCENARIOS: Final = {
    "healthy": Scenario(lambda: [[healthy("He", "llo", every=0.1)]], "Hello"),
    "at once": Scenario(lambda: [[says(ROLE + text("Hello") + STOP + DONE)]], "Hello"),
    "recovered": Scenario(
        lambda: [
            [says(ROLE, thought("hm"), then=[LATE_CUT])],
            [refuses(503), healthy("He", "llo")],
        ],
        "Hello",
    ),
    "cut": Scenario(lambda: [[cut("He", "llo")]], "Hello", code="stream_cut"),
    "continued": Scenario(
        lambda: [[cut("One", " two", " three")], [refuses(400)], [healthy(" four", every=0.1)]],
        "One two three four",
        tail_chars=6,
    ),
    "slow caller": Scenario(
        lambda: [[healthy(*"abcdefgh", BIG, "z", every=0.1)]],
        "abcdefgh" + BIG + "z",
        caller=lambda: SlowCaller(seconds=0.7),
    ),
    "json": Scenario(
        lambda: [[healthy("He", BIG)]],
        "He" + BIG,
        caller=lambda: RecordingCaller(request(stream=False)),
        stream=False,
    ),
    "large": Scenario(
        lambda: [[healthy("He", "llo", every=0.1)]],
        "Hello",
        caller=lambda: RecordingCaller(LARGE[:200_000], LARGE[200_000:]),
    ),
    "judged": Scenario(
        lambda: [[healthy("He", "xx", every=0.1)], [healthy("He", "llo", every=0.1)]],
        "Hello",
        services=lambda: {
            "hook": Service(0.25, denied="xx"),
            "watch": Service(0.15),
        },
    ),
    "tunnel": Scenario(
        lambda: [
            [says(ROLE, then=[LATE_CUT])],
            [refuses(503), healthy("He", BIG, "llo", every=0.1)],
        ],
        "He" + BIG + "llo",
        path="tunnel",
    ),
    "tunnel cut": Scenario(lambda: [[cut("He", "llo")]], "Hello", "stream_cut", path="tunnel"),
    "tunnel json": Scenario(
        lambda: [[body(whole("x" * 30_000))]],
        "x" * 30_000,
        caller=lambda: RecordingCaller(request(stream=False)),
        stream=False,
        path="tunnel",
    ),
    "broken off": Scenario(
        lambda: [[Answer([Read(b"a\n\n", 0.1), Read(b"b\n\n", 0.1), LATE_CUT], headers=SOUND)]],
        "",
        "stream_cut",
        door={"endpoint": "/v1/audio/speech"},
        may_abort=True,
    ),
    "responses": Scenario(
        lambda: [
            [says(created(), message_text("He"), then=[LATE_CUT])],
            [refuses(503), spoken("He", "llo")],
        ],
        "Hello",
        caller=lambda: RecordingCaller(ASKED),
        door=RESPONSES,
        tail_chars=6,
    ),
    "responses continued": Scenario(
        lambda: [
            [says(created(), *map(message_text, ("One", " two", " three")), then=[LATE_CUT])],
            [spoken(" four")],
        ],
        "One two three four",
        caller=lambda: RecordingCaller(ASKED),
        door=RESPONSES,
        tail_chars=6,
    ),
    "responses cut": Scenario(
        lambda: [[says(created(), message_text("He"), message_text("llo"), then=[LATE_CUT])]],
        "Hello",
        "stream_cut",
        caller=lambda: RecordingCaller(ASKED),
        door=RESPONSES,
    ),
    "responses json": Scenario(
        lambda: [[spoken("He", BIG)]],
        "He" + BIG,
        caller=lambda: RecordingCaller(ASKED.replace(b"true", b"false")),
        stream=False,
        door=RESPONSES,
    ),
    "responses tunnel": Scenario(
        lambda: [[says(created(), then=[LATE_CUT])], [refuses(503), spoken("He", "llo")]],
        "Hello",
        caller=lambda: RecordingCaller(ASKED),
        door=RESPONSES,
        path="tunnel",
    ),
    "responses tunnel cut": Scenario(
        lambda: [[says(created(), message_text("He"), message_text("llo"), then=[LATE_CUT])]],
        "Hello",
        "stream_cut",
        caller=lambda: RecordingCaller(ASKED),
        door=RESPONSES,
        path="tunnel",
    ),
    "explained": Scenario(
        lambda: [[cut("One", " two", " three")], [healthy(" four", every=0.1)]],
        "One two three four",
        tail_chars=6,
        door={"explain": True},
    ),
    "explained tunnel": Scenario(
        lambda: [[says(ROLE, then=[LATE_CUT])], [healthy("He", BIG, "llo", every=0.1)]],
        "He" + BIG + "llo",
        path="tunnel",
        door={"explain": True},
    ),
    "queued": Scenario(
        lambda: [[healthy("He", "llo", every=0.1) for _ in range(3)]], "Hello", rivals=2
    ),
}


@dataclass
class Run:
    """One run of a scenario, while it goes on and after it."""

    gate: Gateway
    caller: RecordingCaller
    records: Records
    services: dict[str, Service]
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    outcome: Outcome | None = None
    rivals: list[Outcome] = field(default_factory=list)
    struck_at: float | None = None


Strike = Callable[[Run], None]


def run_once(scenario: Scenario, strike: Strike, *, step: int, seed: int) -> Run:
    """The scenario with a strike at this step; raises where a task is left, or where the instrument was thrown out for an error of its own."""
    records = Records()
    limits = LimitsConfig(exchanges_max=1 if scenario.rivals else 64)
    providers = [ScriptedProvider(*answers) for answers in scenario.script()]
    services = scenario.services()
    window = HoldConfig(mode="window", tail_chars=scenario.tail_chars)
    run = Run(
        gateway(
            *providers,
            limits=limits,
            concurrency=1,
            records=records,
            hold=window if scenario.tail_chars else None,
            prefill="vllm" if scenario.tail_chars else "none",
            filters=("empty", *services),
            tables=dict.fromkeys(services, ELSEWHERE),
            awaiting=services,
            paths=[scenario.path] * len(providers),
        ),
        scenario.caller(),
        records,
        services,
    )

    def struck() -> None:
        run.struck_at = trio.current_time()
        strike(run)

    striker = Striker(struck, step)

    async def rival(number: int) -> None:
        run.rivals.append(await run_exchange(door(f"rival-{number}"), RecordingCaller(), run.gate))

    async def main() -> None:
        tasks = trio.lowlevel.current_statistics().tasks_living
        with trio.fail_after(3600):
            async with trio.open_nursery() as nursery:
                for number in range(scenario.rivals):
                    nursery.start_soon(rival, number)
                trio.lowlevel.add_instrument(striker)
                with run.scope:
                    run.outcome = await run_exchange(door(**scenario.door), run.caller, run.gate)
                trio.lowlevel.remove_instrument(striker)
        assert trio.lowlevel.current_statistics().tasks_living == tasks

    seed_scheduler(seed)
    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
    return run


def explore(scenario: Scenario, strike: Strike, seed: int, stride: int) -> Iterator[Run]:
    """Every run that was struck, after the checks that hold for each."""
    for step in itertools.count(1, stride):
        run = run_once(scenario, strike, step=step, seed=seed)
        assert run.records.crashes == [], step
        assert left_behind(run.gate) == [], step
        assert untold(run.records) == [], step
        assert not any(service.open for service in run.services.values()), step
        assert_legal(run, scenario)
        if run.struck_at is None:
            assert step > 50, "the scenario has hardly begun"
            assert run.outcome is not None
            assert run.outcome.code == scenario.code
            return
        yield run


def assert_legal(run: Run, scenario: Scenario) -> None:
    """What the caller got is the beginning of one legal response; with a terminal if it was ended, and without one if not."""
    caller, data = run.caller, run.caller.received
    assert caller.starts <= 1
    assert caller.ended or not data or caller.status == 200
    assert not caller.aborted or scenario.may_abort
    if run.outcome is not None:
        assert run.outcome.ledger.used == 0
        assert run.outcome.kind is OutcomeKind.ABANDONED or run.outcome.bytes_out == len(data)
    if caller.status != 200 or not scenario.stream:
        # A large JSON answer is written before it is ended, so it may be cut off whole.
        large = caller.status == 200 and len(data) > PIECE_BYTES_MAX
        assert not data or caller.ended or (large and json.loads(data))
        return
    assert data.endswith(b"\n\n") or not data
    if scenario.responses:
        assert_legal_response(caller, scenario)
        return
    assert scenario.said.startswith(caller.text)
    errors = data.count(b'data: {"error"')
    assert errors + data.count(DONE) == caller.ended
    assert not errors or b'data: {"error"' in data.rstrip().rpartition(b"\n\n")[2]
    assert DONE not in data or (data.endswith(DONE) and caller.text == scenario.said)


def assert_legal_response(caller: RecordingCaller, scenario: Scenario) -> None:
    """The same of a stream of the Responses API: one end, and a good one only behind the whole text."""
    data = caller.received
    if scenario.path == "tunnel":
        errors = data.count(b'data: {"error"')
        assert errors + data.count(b"event: response.completed") == caller.ended
        texts = [json.loads(line[6:])["delta"] for line in data.split(b"\n") if b'.delta"' in line]
        assert scenario.said.startswith("".join(texts))
        assert errors or not caller.ended or "".join(texts) == scenario.said
        return
    seen = read_events(data)
    assert scenario.said.startswith(seen.text)
    assert bool(seen.response) == caller.ended
    assert seen.response.get("status") != "completed" or seen.text == scenario.said


def code_told(run: Run, scenario: Scenario) -> object:
    """The code of the error that ended it; that of the Responses API is one of a few, and our own is only in its sentence."""
    if not scenario.responses or run.caller.status != 200 or scenario.path == "tunnel":
        return run.caller.code
    error = read_events(run.caller.received).response["error"]
    assert error["code"] == "server_error"
    return "shutdown" if "shutting down" in error["message"] else error["message"]


@pytest.fixture
def stride(pytestconfig: pytest.Config) -> int:
    """Every step with `--corpus=full`, else every third: the beginnings and the ends of steps by turns. The command `chaos` goes through them all."""
    return 1 if pytestconfig.getoption("--corpus") == "full" else 3


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Every scenario under one schedule or the other; with `--corpus=full` under both."""
    if not {"name", "seed"} <= set(metafunc.fixturenames):
        return
    both = metafunc.config.getoption("--corpus") == "full"
    pairs = [
        (name, seed)
        for at, name in enumerate(SCENARIOS)
        for seed in SEEDS
        if both or seed == at % len(SEEDS)
    ]
    metafunc.parametrize(("name", "seed"), pairs)


def rivals_finished(run: Run) -> bool:
    """Whoever waited behind the one that was struck got a whole answer."""
    return [each.kind for each in run.rivals] == [OutcomeKind.SUCCESS] * len(run.rivals)


@pytest.mark.slow
def test_an_exchange_cancelled_at_any_step_leaves_nothing_behind(
    name: str, seed: int, stride: int
) -> None:
    """The server may cancel it from outside, whenever it likes."""
    scenario = SCENARIOS[name]
    for run in explore(scenario, lambda run: run.scope.cancel(), seed, stride):
        assert rivals_finished(run)
        assert len(run.rivals) == scenario.rivals


@pytest.mark.slow
def test_a_caller_may_leave_at_any_step(name: str, seed: int, stride: int) -> None:
    """Nothing more is written, and the provider's connection closes in the same moment."""
    scenario = SCENARIOS[name]
    for run in explore(scenario, lambda run: run.caller.leave(), seed, stride):
        assert rivals_finished(run)
        assert run.outcome is not None
        if run.caller.ended or run.caller.aborted:
            assert run.outcome.code == scenario.code
            continue
        assert (run.outcome.kind, run.outcome.code) == (OutcomeKind.ABANDONED, "caller_gone")
        assert all(at <= (run.struck_at or 0.0) for at, _ in run.caller.writes)
        assert upstream_closed_in_time(run)


def upstream_closed_in_time(run: Run) -> bool:
    """Every attempt of the exchange that was struck was over when its caller left."""
    return all(
        asked.closed_at <= (run.struck_at or 0.0)
        for target in run.gate.pools["small"].targets
        if isinstance(target.provider, ScriptedProvider)
        for asked in target.provider.asked
        if asked.headers[b"x-request-id"] == b"ex-1"
    )


@pytest.mark.slow
def test_a_drain_that_ends_at_any_step_still_gives_one_terminal(
    name: str, seed: int, stride: int
) -> None:
    """The answer as it would have been, or the error that says why not."""
    scenario = SCENARIOS[name]
    for run in explore(scenario, lambda run: run.gate.open.shut_down(), seed, stride):
        assert run.outcome is not None
        assert run.caller.ended or run.caller.aborted
        assert run.outcome.code in {scenario.code, "shutdown"}
        if run.outcome.code == "shutdown" and run.caller.ended:
            assert run.caller.status in {200, 503}
            assert code_told(run, scenario) == "shutdown"


def test_the_explorer_notices_a_task_that_is_left() -> None:
    """A strike that cancels too little: the check after the run is what tells."""
    scenario = SCENARIOS["healthy"]

    def leak(run: Run) -> None:
        run.gate.dispatch.exchanges.taken["exchange"] += 1

    with pytest.raises(AssertionError, match="Places"):
        list(explore(scenario, leak, seed=0, stride=1))


def test_the_same_seed_gives_the_same_schedule() -> None:
    """A step that fails can be looked at again."""
    scenario = SCENARIOS["recovered"]
    runs = [run_once(scenario, lambda run: run.scope.cancel(), step=200, seed=7) for _ in "ab"]
    assert runs[0].caller.writes == runs[1].caller.writes
    assert runs[0].struck_at == runs[1].struck_at
