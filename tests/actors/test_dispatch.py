"""Places: given in order of arrival, given back by whoever took them, never lost."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from actors.dispatch import Dispatch, Place, Places


def dispatch(*, exchanges_max: int = 1, queue_max: int = 2, seconds: float = 10.0) -> Dispatch:
    """Two providers, `a` and `b`, with one place each."""
    return Dispatch(
        exchanges_max=exchanges_max,
        queue_max=queue_max,
        queue_seconds_max=seconds,
        concurrency={"a": 1, "b": 1},
    )


class Visitor:
    """Takes a place and keeps it until told; `got` is what it was given."""

    def __init__(self, places: Places, *names: str) -> None:
        self.got = ""
        self.scope = trio.CancelScope()
        self.may_go = trio.Event()
        self._places = places
        self._names = names

    async def run(self) -> None:
        with self.scope:
            self.got = await self._places.take(self._names)
            try:
                await self.may_go.wait()
            finally:
                self._places.give(self.got)


async def test_a_free_place_is_taken_at_once() -> None:
    """The first name that has room, in the order in which they are asked for."""
    places = Places({"a": 1, "b": 1})
    assert await places.take(["a", "b"]) == "a"
    assert await places.take(["a", "b"]) == "b"
    assert places.take_nowait(["a", "b"]) is None
    assert repr(places) == "Places(taken={'a': 1, 'b': 1}, waiting=0)"


async def test_whoever_is_cancelled_already_takes_no_place() -> None:
    """Nobody would give it back."""
    places = Places({"a": 1})
    with trio.CancelScope() as scope:
        scope.cancel()
        await places.take(["a"])
    assert scope.cancelled_caught
    assert places.taken["a"] == 0


async def test_a_place_goes_to_whoever_has_waited_longest_for_it() -> None:
    """First come, first served; a newcomer does not overtake."""
    places = Places({"a": 1})
    first, second, third = (Visitor(places, "a") for _ in range(3))
    async with trio.open_nursery() as nursery:
        for visitor in (first, second, third):
            nursery.start_soon(visitor.run)
            await trio.testing.wait_all_tasks_blocked()
        assert places.waiting == 2
        first.may_go.set()
        await trio.testing.wait_all_tasks_blocked()
        assert (second.got, third.got) == ("a", "")
        second.may_go.set()
        third.may_go.set()
    assert third.got == "a"
    assert (places.taken["a"], places.waiting) == (0, 0)


async def test_a_place_that_somebody_waits_for_is_not_given_past_him() -> None:
    """A place came free and is on its way to the one who waits."""
    places = Places({"a": 1, "b": 1})
    first, second = Visitor(places, "a"), Visitor(places, "a")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(first.run)
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(second.run)
        await trio.testing.wait_all_tasks_blocked()
        assert places.take_nowait(["a", "b"]) == "b"
        places.give("b")
        first.may_go.set()
        second.may_go.set()
    assert second.got == "a"


async def test_a_free_place_passes_over_those_who_wait_for_another() -> None:
    """Who waits longest for `a` has no use for `b`."""
    places = Places({"a": 1, "b": 1})
    held_a, held_b = await places.take(["a"]), await places.take(["b"])
    for_a, for_b = Visitor(places, "a"), Visitor(places, "b")
    async with trio.open_nursery() as nursery:
        for visitor in (for_a, for_b):
            nursery.start_soon(visitor.run)
            await trio.testing.wait_all_tasks_blocked()
        places.give(held_b)
        await trio.testing.wait_all_tasks_blocked()
        assert (for_a.got, for_b.got) == ("", "b")
        places.give(held_a)
        for_a.may_go.set()
        for_b.may_go.set()
    assert for_a.got == "a"


async def test_one_who_gives_up_waiting_leaves_the_queue() -> None:
    """The next place goes to the one behind him."""
    places = Places({"a": 1})
    first, second, third = (Visitor(places, "a") for _ in range(3))
    async with trio.open_nursery() as nursery:
        for visitor in (first, second, third):
            nursery.start_soon(visitor.run)
            await trio.testing.wait_all_tasks_blocked()
        second.scope.cancel()
        await trio.testing.wait_all_tasks_blocked()
        assert places.waiting == 1
        first.may_go.set()
        third.may_go.set()
    assert (second.got, third.got) == ("", "a")


async def test_one_who_is_cancelled_as_the_place_comes_hands_it_on() -> None:
    """Both happen in one step, so that he can only find out afterwards."""
    places = Places({"a": 1})
    held = await places.take(["a"])
    second, third = Visitor(places, "a"), Visitor(places, "a")
    async with trio.open_nursery() as nursery:
        for visitor in (second, third):
            nursery.start_soon(visitor.run)
            await trio.testing.wait_all_tasks_blocked()
        second.scope.cancel()
        places.give(held)
        third.may_go.set()
    assert (second.got, third.got) == ("", "a")
    assert (places.taken["a"], places.waiting) == (0, 0)


async def test_an_exchange_gives_its_place_back_with_its_block() -> None:
    """One that was never admitted has nothing to give back."""
    gate = dispatch()
    with gate.place() as empty:
        assert not empty.held
        with gate.place() as place:
            assert await gate.admit(place) is None
            assert gate.exchanges.taken["exchange"] == 1
    assert gate.exchanges.taken["exchange"] == 0


async def test_a_full_queue_refuses_at_once(autojump_clock: trio.testing.MockClock) -> None:
    """Waiting behind so many would help nobody."""
    gate = dispatch(queue_max=0)
    with gate.place() as inside, gate.place() as outside:
        assert await gate.admit(inside) is None
        assert await gate.admit(outside) == "queue_full"
        assert not outside.held
    assert trio.current_time() == 0


async def test_the_queue_ends_after_its_time(autojump_clock: trio.testing.MockClock) -> None:
    """Never a hang."""
    gate = dispatch(seconds=10)
    with gate.place() as inside, gate.place() as outside:
        assert await gate.admit(inside) is None
        assert await gate.admit(outside) == "queue_timeout"
        assert outside.waited == pytest.approx(10)
        assert gate.exchanges.waiting == 0


async def test_the_queue_lets_the_next_one_in() -> None:
    """With the place of the one who left."""
    gate, codes = dispatch(), list[str | None]()

    async def wait() -> None:
        with gate.place() as place:
            codes.append(await gate.admit(place))
            assert place.held

    async with trio.open_nursery() as nursery:
        with gate.place() as inside:
            assert await gate.admit(inside) is None
            nursery.start_soon(wait)
            await trio.testing.wait_all_tasks_blocked()
            assert codes == []
    assert codes == [None]
    assert gate.exchanges.taken["exchange"] == 0


async def test_a_drain_empties_the_queue_and_closes_it() -> None:
    """Who has a place keeps it; a place that is free is still given to one whose body was on its way."""
    gate, codes = dispatch(), list[str | None]()

    async def wait() -> None:
        with gate.place() as place:
            codes.append(await gate.admit(place))

    with gate.place() as inside, gate.place() as late:
        assert await gate.admit(inside) is None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            nursery.start_soon(wait)
            await trio.testing.wait_all_tasks_blocked()
            gate.drain(trio.current_time() + 30)
        assert codes == ["draining", "draining"]
        assert gate.exchanges.waiting == 0
        assert await gate.admit(late) == "draining"
        assert gate.exchanges.taken["exchange"] == 1
    with gate.place() as place:
        assert await gate.admit(place) is None
    assert gate.exchanges.taken["exchange"] == 0


async def test_a_provider_that_is_full_is_passed_over(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """And when all are, the attempt waits for the first place that comes free."""
    gate = dispatch()
    async with (
        gate.slot(["a", "b"], Place()) as first,
        gate.slot(["a", "b"], Place()) as second,
        gate.slot(["a", "b"], Place()) as third,
    ):
        assert (first, second, third) == ("a", "b", None)
    assert gate.providers.taken == {"a": 0, "b": 0}


async def test_all_waiting_of_an_exchange_counts_together(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Six seconds for admission leave four for a provider."""
    gate, place = dispatch(seconds=10), Place()
    place.waited = 6.0
    async with gate.slot(["a"], Place()), gate.slot(["a"], place) as none:
        assert none is None
        assert trio.current_time() == pytest.approx(4)
    async with gate.slot(["a"], Place()), gate.slot(["a"], place) as none:
        assert none is None
        assert trio.current_time() == pytest.approx(4)


async def test_an_attempt_that_is_cancelled_gives_its_provider_back() -> None:
    """However the block is left."""
    gate = dispatch()
    with trio.CancelScope() as scope:
        async with gate.slot(["a"], Place()):
            scope.cancel()
            await trio.lowlevel.checkpoint()
    assert gate.providers.taken["a"] == 0
