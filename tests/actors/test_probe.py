"""Who is speaking: the running actor's name."""

from __future__ import annotations

import pytest
import trio

from actors.probe import ACTOR, acting


async def test_an_actor_has_its_name_while_it_runs() -> None:
    """Two actors side by side each have their own, and the one who started them none."""
    names: list[str] = []

    async def actor(name: str) -> None:
        with acting(name):
            await trio.lowlevel.checkpoint()
            names.append(ACTOR.get())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(actor, "sink")
        nursery.start_soon(actor, "ingress")
    assert sorted(names) == ["ingress", "sink"]
    assert ACTOR.get() == ""


def test_the_name_ends_with_the_actor_even_when_it_dies() -> None:
    """Whatever runs next in that task is not the actor any more."""
    with pytest.raises(RuntimeError, match="a bug"), acting("sink"):
        raise RuntimeError("a bug")
    assert ACTOR.get() == ""
