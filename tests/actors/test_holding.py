"""Hold policies through the whole exchange: when frames leave changes, their bytes never do."""

from __future__ import annotations

import pytest
import trio

from gate.config import ClocksConfig, HoldConfig, LimitsConfig
from tests.doubles import (
    RecordingCaller,
    ScriptedProvider,
    gateway,
    healthy,
    left_behind,
    stalls,
    supervise,
    text,
)

WORDS = ("One ", "two ", "three ", "four.")


async def answered(hold: HoldConfig, *, every: float = 1.0) -> RecordingCaller:
    """A caller of a healthy provider that says a word every so often."""
    caller = RecordingCaller()
    gate = gateway(ScriptedProvider(healthy(*WORDS, every=every)), hold=hold)
    await supervise(gate, caller)
    assert left_behind(gate) == []
    return caller


@pytest.mark.parametrize(
    "hold",
    [
        HoldConfig(mode="window", tail_ms=2500),
        HoldConfig(mode="window", tail_chars=7),
        HoldConfig(mode="window", tail_chars=7, tail_ms=1500),
        HoldConfig(opening_ms=2200),
        HoldConfig(opening_chars=9),
        HoldConfig(mode="buffered"),
        HoldConfig(mode="buffered", over_cap="release"),
    ],
)
async def test_every_policy_gives_the_same_bytes_in_the_end(
    hold: HoldConfig, autojump_clock: trio.testing.MockClock
) -> None:
    """Holding is later, not other."""
    live = await answered(HoldConfig())
    held = await answered(hold)
    assert held.received == live.received
    assert held.text == "".join(WORDS)


async def test_a_frame_leaves_when_it_is_old_enough_though_nothing_else_arrives(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """The evaluator wakes up for it; a stall behind it is told in the stream then."""
    caller = RecordingCaller()
    provider = ScriptedProvider(stalls(text("Hello")))
    clocks = ClocksConfig(gap_seconds=30)
    gate = gateway(provider, hold=HoldConfig(mode="window", tail_ms=2000), clocks=clocks)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(supervise, gate, caller)
        await trio.sleep(1.9)
        assert caller.received == b""
        await trio.sleep(0.2)
        assert caller.text == "Hello"
    assert caller.code == "gap_timeout"
    assert left_behind(gate) == []


async def test_a_cut_inside_the_window_is_made_good_when_nothing_has_left(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """All of it was still held: the next attempt answers, and no word of the first is seen."""
    caller = RecordingCaller()
    first = ScriptedProvider(stalls(text("Wrong")))
    second = ScriptedProvider(healthy("Right"))
    clocks = ClocksConfig(gap_seconds=3)
    gate = gateway(first, second, hold=HoldConfig(mode="window", tail_ms=5000), clocks=clocks)
    await supervise(gate, caller)
    assert caller.text == "Right"


async def test_a_cap_that_lets_go_turns_a_buffered_answer_live(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """What was held leaves when the cap is reached, long before the end."""
    caller = RecordingCaller()
    words = ["word " * 20] * 8
    provider = ScriptedProvider(healthy(*words, every=1.0))
    limits = LimitsConfig(held_bytes_max=600, event_bytes_max=600)
    gate = gateway(provider, hold=HoldConfig(mode="buffered", over_cap="release"), limits=limits)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(supervise, gate, caller)
        await trio.sleep(6.5)
        assert caller.text.startswith("word word")
        assert not caller.received.endswith(b"[DONE]\n\n")
    assert caller.text == "".join(words)
    assert left_behind(gate) == []
