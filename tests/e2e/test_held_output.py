"""A hold changes when an answer leaves, never what: buffered, windowed, opened late or live, the caller gets the same bytes."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from gate.config import HoldConfig, RecoveryConfig
from tests.doubles import Answer as Script
from tests.doubles import Read, RecordingCaller, ScriptedProvider, gateway, request, supervise
from tests.e2e.judged_answers import TABLES, streams
from tests.e2e.test_corpus import CORPUS, Recorded, at_random, per_event, recordings

HOLDS = (
    HoldConfig(mode="buffered"),
    HoldConfig(mode="window", tail_chars=40),
    HoldConfig(mode="window", tail_ms=900),
    HoldConfig(mode="window", tail_chars=12, tail_ms=250, opening_chars=30, opening_ms=700),
    HoldConfig(reasoning="release"),
    HoldConfig(opening_chars=200, opening_ms=2_000),
)
FILTERS = ("empty", "repetition", "encoding", "tool_calls", "keys", "watched")


async def answered(
    reads: Sequence[bytes],
    hold: HoldConfig,
    *,
    choices: int = 1,
    filters: Sequence[str] = FILTERS,
    prefill: bool = False,
) -> tuple[bytes, str, int]:
    """The caller's bytes of an exchange whose provider says this, a read every tenth of a second; its code; and in how many writes they came."""
    script = Script([Read(data, 0.1) for data in reads])
    gate = gateway(
        ScriptedProvider(script),
        hold=hold,
        filters=tuple(filters),
        tables=TABLES,
        prefill="vllm" if prefill else "none",
        recovery=RecoveryConfig(attempts_max=1, continuation="held" if prefill else "off"),
    )
    caller = RecordingCaller(request(n=choices, stream_options={"include_usage": True}))
    outcome = await supervise(gate, caller)
    return caller.received, outcome.code, len(caller.writes)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test that takes `recorded` runs once per recording."""
    if "recorded" in metafunc.fixturenames:
        full = metafunc.config.getoption("--corpus") == "full"
        found = recordings(full=full) if CORPUS.is_dir() else []
        absent = pytest.param(None, marks=pytest.mark.skip(reason="the recorded streams are not here"))  # fmt: skip
        metafunc.parametrize("recorded", found or [absent], ids=lambda each: each.name if each else "none")  # fmt: skip


async def test_a_recorded_answer_is_the_same_under_every_hold(
    recorded: Recorded, autojump_clock: trio.abc.Clock
) -> None:
    """Where it is complete; with a provider that could be told to go on, too, where one more frame may wait."""
    live, code, _ = await answered(per_event(recorded), HoldConfig(), choices=recorded.choices)
    if code:
        assert not recorded.complete
        return
    for hold in HOLDS:
        for cut in (per_event, at_random):
            held = await answered(cut(recorded), hold, choices=recorded.choices, prefill=True)
            assert held[:2] == (live, "")


@settings(max_examples=60)
@given(data=st.data(), choices=st.integers(1, 2), hold=st.sampled_from(HOLDS))
def test_a_drawn_answer_is_the_same_under_every_hold(
    data: st.DataObject, choices: int, hold: HoldConfig
) -> None:
    """And where it is condemned, with the same code; a hold has shown less of it, or the error alone."""
    events = data.draw(streams(choices))

    async def both() -> tuple[tuple[bytes, str, int], tuple[bytes, str, int]]:
        live = await answered(events, HoldConfig(), choices=choices)
        return live, await answered(events, hold, choices=choices)

    live, held = trio.run(both, clock=trio.testing.MockClock(autojump_threshold=0))
    assert held[1] == live[1]
    if not live[1]:
        assert held[0] == live[0]
    if hold.mode == "buffered":
        assert held[2] <= live[2]
