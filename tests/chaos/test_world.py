"""A world is fresh for each run, and says what was left in it."""

from __future__ import annotations

import trio

from ops.chaos.scenarios import SCENARIOS
from ops.chaos.world import SUBJECT, staged


async def test_what_is_held_is_named() -> None:
    """Bytes, places, questions."""
    stage = staged(SCENARIOS["judged"])
    assert stage.left_behind() == []
    held = stage.gate.budget.reserve(5)
    assert stage.gate.dispatch.exchanges.take_nowait(["exchange"]) == "exchange"
    stage.services["hook"].open = 1
    await trio.lowlevel.checkpoint()
    assert len(stage.left_behind()) == 3
    held.release()
    assert len(stage.left_behind()) == 2


def test_no_world_knows_another() -> None:
    """Nothing is shared but the scenario."""
    first, second = staged(SCENARIOS["judged"]), staged(SCENARIOS["judged"])
    assert first.gate.budget is not second.gate.budget
    assert first.services["hook"] is not second.services["hook"]
    assert (first.asked, SUBJECT) == ([], "ex-1")
