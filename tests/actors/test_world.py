"""The world: one source of time, ids and draws, which a test or a replay puts in place of the real one."""

from __future__ import annotations

import dataclasses

import pytest
import trio
import trio.testing

from gate.config import RecoveryConfig
from gate.observe import OutcomeKind
from tests.doubles import (
    NOON,
    RecordingCaller,
    ScriptedProvider,
    delta,
    gateway,
    healthy,
    refuses,
    says,
    supervise,
    world,
)


def test_a_world_can_not_be_changed_under_an_exchange() -> None:
    """What is fixed for a replay stays fixed."""
    with pytest.raises(dataclasses.FrozenInstanceError):
        world().draw = lambda: 0.5  # type: ignore[misc]


async def test_an_answer_without_an_identity_is_named_and_dated_by_the_world() -> None:
    """The id after the exchange, the second by the wall."""
    chunk = delta({"content": "Hi"}, name="")
    end = delta({}, finish="stop", name="")
    caller = RecordingCaller()
    await supervise(gateway(ScriptedProvider(says(chunk, end))), caller)
    assert {(each["id"], each["created"]) for each in caller.chunks()} == {("chatcmpl-ex-1", NOON)}


@pytest.mark.parametrize(("draw", "seconds"), [(0.25, 0.25), (0.75, 0.75)])
async def test_the_length_of_a_backoff_is_drawn(
    draw: float, seconds: float, autojump_clock: trio.testing.MockClock
) -> None:
    """Up to what the route says; the same draw gives the same wait."""
    provider = ScriptedProvider(refuses(503), healthy("Hi"))
    gate = gateway(provider, recovery=RecoveryConfig(backoff_seconds=1.0))
    gate.world = world(draw=draw)
    outcome = await supervise(gate, RecordingCaller())
    assert outcome.kind is OutcomeKind.SUCCESS
    assert provider.asked[1].asked_at == pytest.approx(seconds)
