"""Ingress: the caller's body under its limits, then the watch for the caller's leaving."""

from __future__ import annotations

from mmap import mmap
from typing import Any, Final

import pytest
import trio
import trio.testing

from actors import ingress
from actors.context import Ending
from actors.ports import BodyPart, Disconnected
from gate.budget import MemoryBudget
from gate.config import LimitsConfig
from gate.envelope import refusal
from gate.events import Intake, Ready, Refused
from gate.ingress import INLINE_BYTES_MAX, IngressSnapshot
from tests.doubles import RecordingCaller, door, request, world

LIMITS = LimitsConfig(body_bytes_max=1000, body_seconds_max=60, json_depth_max=4)
WIDE: Final = LimitsConfig(body_seconds_max=60, json_depth_max=4)
LARGE: Final = request(user="x" * 4 * INLINE_BYTES_MAX)
PART: Final = 65_536
PARTS: Final = [LARGE[start : start + PART] for start in range(0, len(LARGE), PART)]


class Reading:
    """One run of ingress, against a caller, until it ends or is cancelled. `left_at`: when it said that the caller had left."""

    def __init__(
        self,
        caller: RecordingCaller,
        *,
        length: int | None = None,
        room: int = 10_000,
        process: int = 100_000,
        limits: LimitsConfig = LIMITS,
    ) -> None:
        self.caller = caller
        self.ending = Ending()
        self.budget = MemoryBudget("exchange", room, MemoryBudget("process", process))
        self.snapshot = IngressSnapshot(self.budget)
        self.left_at: float | None = None
        self.send, self.intake = trio.open_memory_channel[Intake](1)
        self._length = length
        self._limits = limits

    async def run(self) -> None:
        await ingress.run(
            self.send,
            self.caller,
            self.snapshot,
            door(content_length=self._length),
            self._limits,
            world=world(),
            ending=self.ending,
            caller_write_seconds=60.0,
            leave=self._leave,
        )

    def _leave(self) -> None:
        self.left_at = trio.current_time()


async def message_of(reading: Reading) -> Intake:
    """What it tells the exchange; the watch that follows is cut short."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(reading.run)
        message = await reading.intake.receive()
        nursery.cancel_scope.cancel()
    return message


async def refusal_of(caller: RecordingCaller, **room: Any) -> tuple[int, str, str | None, bool]:
    """Status, code and member to blame, and whether the connection is of no more use."""
    message = await message_of(Reading(caller, **room))
    assert isinstance(message, Refused)
    return message.error.status, message.error.code, message.error.param, message.close


async def test_a_body_in_parts_becomes_one_snapshot() -> None:
    """As received, byte for byte; its reservation is its size."""
    data = request()
    reading = Reading(RecordingCaller(data[:10], b"", data[10:]))
    assert isinstance(await message_of(reading), Ready)
    assert reading.snapshot.body == data
    assert reading.budget.used == len(data)


async def test_a_declared_length_is_reserved_before_the_first_byte(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Whoever does not fit is told before anything is read."""
    reading = Reading(RecordingCaller(request(), gap=10), length=900)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(reading.run)
        await trio.sleep(5)
        assert reading.budget.used == 900
        await reading.intake.receive()
        assert reading.budget.used == len(request())
        nursery.cancel_scope.cancel()


async def test_a_body_of_unknown_length_is_reserved_as_it_comes(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Before it is kept."""
    reading = Reading(RecordingCaller(b"x" * 100, b"x" * 50, b"x", gap=10))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(reading.run)
        for used in (0, 100, 150):
            await trio.sleep(5)
            assert reading.budget.used == used
            await trio.sleep(5)
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("data", "code", "param"),
    [
        (b"{", "invalid_json", None),
        (b"[]", "invalid_body", None),
        (b'{"messages":[]}', "missing_required_parameter", "model"),
        (request(stream="yes"), "invalid_type", "stream"),
        (request(n=0), "invalid_value", "n"),
        (request(x=[[[[[1]]]]]), "json_too_deep", None),
    ],
)
async def test_a_wrong_request_is_refused_before_any_attempt(
    data: bytes, code: str, param: str | None
) -> None:
    """With the member that is to blame; the connection may serve another request."""
    assert await refusal_of(RecordingCaller(data)) == (400, code, param, False)


async def test_a_body_over_its_limit_is_refused_as_it_comes(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Its end is not waited for, so the connection is of no more use."""
    caller = RecordingCaller(b"x" * 600, b"x" * 600, b"x" * 600, gap=10)
    assert await refusal_of(caller) == (413, "body_too_large", None, True)
    assert trio.current_time() == 20


async def test_a_body_that_trickles_runs_out_of_time(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """The limit is for the whole of it."""
    caller = RecordingCaller(*[b"x"] * 100, gap=7)
    assert await refusal_of(caller) == (408, "body_timeout", None, True)
    assert trio.current_time() == pytest.approx(60)


@pytest.mark.parametrize(
    ("room", "status", "code"),
    [
        ({"room": 50}, 413, "exchange_budget"),
        ({"process": 50}, 503, "process_budget"),
        ({"process": 50, "length": 100}, 503, "process_budget"),
    ],
)
async def test_a_body_without_room_is_refused(room: dict[str, int], status: int, code: str) -> None:
    """One too large for any request is the caller's to shrink; one too many may come again."""
    assert await refusal_of(RecordingCaller(request()), **room) == (status, code, None, True)


async def test_a_body_that_comes_after_the_drain_is_refused() -> None:
    """The exchange has closed its snapshot meanwhile."""
    reading = Reading(RecordingCaller(request()))
    reading.snapshot.close()
    assert await message_of(reading) == Refused(refusal(503, "shutdown"), close=True)


def reading_large(*parts: bytes, length: int | None = None) -> Reading:
    """One run with room for a large body."""
    room = 2 * len(LARGE)
    return Reading(RecordingCaller(*parts), room=room, process=room, limits=WIDE, length=length)


async def test_a_large_body_is_collected_in_memory_of_its_own() -> None:
    """Filled part by part, as large as the body, and counted once."""
    reading = reading_large(*PARTS, length=len(LARGE))
    assert isinstance(await message_of(reading), Ready)
    body = reading.snapshot.body
    assert isinstance(body, mmap)
    assert (body[:], len(body)) == (LARGE, len(LARGE))
    assert reading.budget.used == reading.budget.peak == len(LARGE)


@pytest.mark.parametrize("at", [INLINE_BYTES_MAX, INLINE_BYTES_MAX + 1, len(LARGE)])
async def test_a_body_that_is_large_by_its_last_part_is_read_all_the_same(at: int) -> None:
    """Nothing moves for it alone."""
    reading = reading_large(*[part for part in (LARGE[:at], LARGE[at:]) if part])
    assert isinstance(await message_of(reading), Ready)
    assert reading.snapshot.body[:] == LARGE


async def test_a_large_body_leaves_the_loop_to_others_while_it_is_read() -> None:
    """Many turns of it, though all of the body is there."""
    reading = reading_large(LARGE)
    turns = 0
    async with trio.open_nursery() as nursery:
        nursery.start_soon(reading.run)
        while True:
            turns += 1
            await trio.lowlevel.checkpoint()
            try:
                message = reading.intake.receive_nowait()
            except trio.WouldBlock:
                continue
            break
        nursery.cancel_scope.cancel()
    assert isinstance(message, Ready)
    assert turns > 20


@pytest.mark.parametrize(
    ("data", "code", "param"),
    [
        (LARGE[:-1], "invalid_json", None),
        (b"[%b]" % LARGE, "invalid_body", None),
        (LARGE.replace(b'"stream": true', b'"stream":"yes"'), "invalid_type", "stream"),
        (LARGE.replace(b'"stream": true', b'"stream": [[[[1]]]]'), "json_too_deep", None),
        (LARGE.replace(b"xxx", b"\xff\xff\xff", 1), "invalid_json", None),
    ],
)
async def test_a_large_body_is_refused_for_the_same_reasons(
    data: bytes, code: str, param: str | None
) -> None:
    """It came whole, so the connection may serve another request."""
    message = await message_of(reading_large(*[data[:200_000], data[200_000:]]))
    assert message == Refused(refusal(400, code, param=param), close=False)


async def test_a_drain_ends_the_reading_of_a_large_body() -> None:
    """Its bytes are nobody's from then on, and are not kept to the end of the reading."""
    reading = reading_large(LARGE)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(reading.run)
        for _ in range(5):
            await trio.lowlevel.checkpoint()
        assert reading.budget.used == len(LARGE)
        reading.snapshot.close()
        for _ in range(5):
            await trio.lowlevel.checkpoint()
        assert reading.intake.statistics().current_buffer_used
        assert await reading.intake.receive() == Refused(refusal(503, "shutdown"), close=True)
        nursery.cancel_scope.cancel()


async def test_nobody_need_listen(autojump_clock: trio.testing.MockClock) -> None:
    """The exchange may have ended first; the watch goes on."""
    reading = Reading(RecordingCaller(request(), gap=1))
    reading.intake.close()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(reading.run)
        await trio.sleep(5)
        assert reading.left_at is None
        reading.caller.leave()
    assert reading.left_at == 5.0


@pytest.mark.parametrize("parts", [[request()], [b'{"mod', b"never sent"]])
async def test_a_caller_who_leaves_is_gone(
    parts: list[bytes], autojump_clock: trio.testing.MockClock
) -> None:
    """Before its body is whole or after, at once."""
    reading = Reading(RecordingCaller(*parts, gap=2))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(reading.run)
        await trio.sleep(3)
        reading.caller.leave()
    assert (reading.left_at, reading.ending.reason) == (3.0, "caller_gone")


@pytest.mark.parametrize(("seconds", "reason"), [(53.9, "caller_gone"), (54.0, "caller_too_slow")])
async def test_a_caller_let_go_in_the_middle_of_a_write_was_too_slow(
    seconds: float, reason: str, autojump_clock: trio.testing.MockClock
) -> None:
    """The kernel ended the connection near `caller_write_seconds`; whoever goes sooner went by himself."""
    reading = Reading(RecordingCaller())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(reading.run)
        await trio.sleep(1)
        reading.ending.write_began = 1.0
        await trio.sleep(seconds)
        reading.caller.leave()
    assert reading.ending.reason == reason


@pytest.mark.parametrize(
    ("wrote", "ago", "reason"),
    [(54.0, 0.05, "caller_too_slow"), (54.0, 0.2, "caller_gone"), (53.9, 0.05, "caller_gone")],
)
async def test_a_write_that_ended_with_its_connection_counts_as_under_way(
    wrote: float, ago: float, reason: str, autojump_clock: trio.testing.MockClock
) -> None:
    """The sink may hear of the end first; a caller who read again after a long time, and leaves later, just leaves."""
    reading = Reading(RecordingCaller())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(reading.run)
        await trio.sleep(60)
        reading.ending.slowest_at, reading.ending.slowest_seconds = 60.0, wrote
        await trio.sleep(ago)
        reading.caller.leave()
    assert reading.ending.reason == reason


async def test_a_write_begun_on_a_dead_connection_hides_nothing(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """The sink may have gone on to its next write before the watch hears of the end."""
    reading = Reading(RecordingCaller())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(reading.run)
        await trio.sleep(60)
        reading.ending.slowest_at, reading.ending.slowest_seconds = 60.0, 60.0
        reading.ending.write_began = 60.0
        reading.caller.leave()
    assert reading.ending.reason == "caller_too_slow"


async def test_a_disconnect_after_the_end_is_no_news() -> None:
    """This server says it after every response."""
    reading = Reading(RecordingCaller())
    reading.ending.over = True
    reading.caller.leave()
    await reading.run()
    assert (reading.left_at, reading.ending.reason) == (None, "")


class Talkative(RecordingCaller):
    """Goes on sending after the last part of its body."""

    async def receive(self) -> BodyPart | Disconnected:
        part = await super().receive()
        return BodyPart(part.data, last=True) if isinstance(part, BodyPart) else part


async def test_what_a_caller_still_sends_is_passed_over(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Bytes behind the body are no reason to leave, and no part of it."""
    reading = Reading(Talkative(request(), b"late", b"later", gap=1))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(reading.run)
        await trio.sleep(10)
        assert reading.caller.unsent == 0
        assert reading.left_at is None
        assert reading.snapshot.body == request()
        nursery.cancel_scope.cancel()
