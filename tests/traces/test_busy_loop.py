"""A loop that is busy comes late to everything: what it then decides is recorded, and replays."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any, Final

import pytest
import trio
import trio.testing

from actors.ports import AwaitingFilters, BodyPart, Caller, Disconnected
from gate.errors import UpstreamFault
from gate.trace import Fact, Trace
from ops.replay import differences, replay
from tests.doubles import (
    DONE,
    STOP,
    Answer,
    Read,
    RecordingCaller,
    ScriptedProvider,
    SlowCaller,
    body,
    refuses,
    request,
    says,
    whole,
)
from tests.stepping import seed_scheduler
from tests.traces.faults import SAID, WORDS
from tests.traces.scenario import Service
from tests.tracing import Recording, tables

LATE_SECONDS: Final = 0.2  # at most, at one step of a task
SHARE: Final = 0.1  # of the steps
RUNS: Final = 60

ROUTES: Final[tuple[Mapping[str, Any], ...]] = (
    {"mode": "live", "ping_seconds": 0.2},
    {"mode": "window", "tail_ms": 150, "ping_seconds": 0.1},
    {"mode": "window", "tail_ms": 60, "tail_chars": 12, "opening_chars": 8, "opening_ms": 120},
    {"mode": "buffered", "pings_commit": True, "ping_seconds": 0.2},
)
CLOCKS: Final = {
    "headers_seconds": 0.6,
    "first_content_seconds": 0.5,
    "gap_seconds": 0.4,
    "json_seconds": 1.0,
    "total_seconds": 3.0,
    "finish_grace_seconds": 0.2,
}
RECOVERY: Final = {"continuation": "committed", "backoff_seconds": 0.2, "retry_budget_share": 1.0}


class Busy(trio.abc.Instrument):
    """Lets time go by while somebody computes: before a step of a task, now and then."""

    def __init__(self, clock: trio.testing.MockClock, draw: random.Random) -> None:
        self._clock = clock
        self._draw = draw

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        if self._draw.random() < SHARE:
            self._clock.jump(self._draw.uniform(0.0, LATE_SECONDS))


class Leaving(RecordingCaller):
    """Leaves after so many seconds."""

    def __init__(self, body: bytes, seconds: float) -> None:
        super().__init__(body)
        self._seconds = seconds

    async def receive(self) -> BodyPart | Disconnected:
        if not self.unsent:
            with trio.move_on_after(self._seconds):
                return await super().receive()
            self.leave()
        return await super().receive()


def answer(draw: random.Random) -> Answer:
    """A slow one, in silences near the clocks of this file; it may break off or stop."""
    every, head = draw.uniform(0.0, 0.45), draw.uniform(0.0, 0.65)
    words = SAID[: draw.randrange(len(SAID) + 1)]
    good = [*SAID, STOP, DONE]
    answers = [
        says(*words, every=every, then=[Read(fault=UpstreamFault.CUT)]),
        says(*words, every=every, then=[Read(after=60.0)]),
        says(*words, b"data: {broken\n\n", every=every),
        refuses(503, after=head),
        body(whole("".join(WORDS)), after=2 * head),
        *[Answer(says(*good, every=every).reads, head_after=head)] * 3,
    ]
    return draw.choice(answers)


def drawn(draw: random.Random) -> Recording:
    """An exchange: a route, two or three attempts, and a caller who may leave, or be slow."""
    hold, stream = draw.choice(ROUTES), draw.random() < 0.8
    filters = ["empty", "repetition"]
    awaiting: dict[str, AwaitingFilters] = {}
    if draw.random() < 0.3:
        filters.append("hook")
        awaiting["hook"] = Service(draw.uniform(0.0, 0.5))
    route = {"hold": hold, "clocks": CLOCKS, "recovery": RECOVERY, "filters": filters}
    hook = {"kind": "webhook", "url": "http://127.0.0.1:9/", "deadline_ms": 300, "failure": draw.choice(["open", "closed"])}  # fmt: skip
    raw = tables(2, route=route, provider={"prefill": "vllm"}, filters={"hook": hook} if awaiting else {})  # fmt: skip
    providers = [ScriptedProvider(answer(draw), for_ever=True) for _ in range(2)]
    asked = request(stream=stream)
    caller: Caller = draw.choice(
        [RecordingCaller(asked), RecordingCaller(asked), Leaving(asked, draw.uniform(0.0, 2.0)), SlowCaller(asked, seconds=0.1)]
    )  # fmt: skip
    return Recording(raw, providers, caller, awaiting)


def busy(seed: int) -> Trace:
    """An exchange as such a loop carried it out."""
    seed_scheduler(seed)
    draw = random.Random(seed)  # noqa: S311 - a draw that can be repeated
    clock = trio.testing.MockClock(autojump_threshold=0)
    recording = drawn(draw)
    return trio.run(recording.take, clock=clock, instruments=[Busy(clock, draw)])


@pytest.mark.parametrize("part", range(4))
def test_what_a_busy_loop_decided_is_decided_again(part: int) -> None:
    """Clocks that ran out late, holds that were looked at late, comments that came late, callers that left meanwhile."""
    wrong = {}
    for seed in range(part * RUNS, (part + 1) * RUNS):
        trace = busy(seed)
        found = differences(trace, replay(trace))
        if found:
            wrong[seed] = found[:3]
    assert wrong == {}


def test_these_exchanges_meet_their_clocks() -> None:
    """Else nothing would be shown."""
    facts = [each.what for seed in range(RUNS) for each in busy(seed).records if isinstance(each, Fact)]  # fmt: skip
    assert min(map(facts.count, ("clock", "ping", "hold", "failed"))) >= RUNS // 6
