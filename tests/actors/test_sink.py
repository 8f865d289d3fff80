"""The sink: the only writer to the caller, over one channel; what it gets here is what evaluator and coordinator would send."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial

import pytest
import trio
import trio.testing

from actors import sink
from actors.context import Ending
from actors.evaluator import PIECE_BYTES_MAX
from actors.sink import Written
from gate.envelope import refusal
from gate.events import (
    Facts,
    FinishFact,
    Frame,
    Ping,
    Release,
    Shape,
    Start,
    Success,
    Terminal,
    TextDelta,
    Wire,
)
from gate.sse import KEEP_ALIVE
from tests.doubles import (
    DONE,
    BrokenCaller,
    RecordingCaller,
    SlowCaller,
    StuckCaller,
    text,
    world,
)

LIVE = Shape("small", stream=True, include_usage=False)
WHOLE = Shape("small", stream=False, include_usage=False)
STARTED = Start(1, "up-1", 7, LIVE)
FACTS = Facts((FinishFact(0, "stop"),), roles=frozenset({0}))
FAILED = Terminal(refusal(502, "stream_cut"), 2)


def frame(said: str) -> Frame:
    """One chunk, as a provider sent it."""
    raw = text(said)
    return Frame(raw.removeprefix(b"data: ").strip(), (TextDelta(0, said),), len(raw))


def words(*said: str) -> Release:
    """A release of one frame per word."""
    return Release(1, [frame(each) for each in said])


async def write(
    caller: RecordingCaller, *items: Wire, room: int = 8, ending: Ending | None = None
) -> Written:
    """Feeds a sink with items that are all there already, then closes the channel."""
    send, wire = trio.open_memory_channel[Wire](room)
    results, written = trio.open_memory_channel[Written](1)
    with send:
        for item in items:
            send.send_nowait(item)
    with written:
        await sink.run(wire, results, caller, request_id=b"ex-1", ending=ending or Ending())
        return written.receive_nowait()


async def test_a_stream_begins_with_the_first_release() -> None:
    """A start alone writes nothing: no byte before there is something to say."""
    caller = RecordingCaller()
    written = await write(caller, STARTED, words("He"), words("llo"), Success(FACTS, 1))
    assert caller.starts == 1
    assert caller.headers == {
        b"content-type": b"text/event-stream; charset=utf-8",
        b"cache-control": b"no-cache",
        b"x-accel-buffering": b"no",
        b"x-request-id": b"ex-1",
        b"x-tidegate-attempts": b"1",
    }
    assert caller.text == "Hello"
    assert caller.received.endswith(DONE)
    assert written == Written("chat_sse", 200, "", 1, len(caller.received))


async def test_releases_that_are_there_already_are_written_together() -> None:
    """One write to the server costs more than many frames."""
    caller = RecordingCaller()
    await write(caller, STARTED, words("He"), words("llo"), words("!"), Success(FACTS, 1))
    assert len(caller.writes) == 2
    assert json.loads(caller.writes[0][1].split(b"\n\n")[2][6:])["choices"][0]["delta"] == {
        "content": "!"
    }


async def test_what_is_joined_into_one_write_is_bounded() -> None:
    """A piece of 20 KiB is written before the next release is taken."""
    caller = RecordingCaller()
    big = words("x" * PIECE_BYTES_MAX)
    await write(caller, STARTED, big, words("a"), words("b"), Success(FACTS, 1))
    assert [len(data) > 20_000 for _, data in caller.writes] == [True, False, False]
    assert caller.text.endswith("ab")


async def test_a_later_start_replaces_one_that_was_not_written() -> None:
    """The answer that is shown is that of the attempt that made it."""
    caller = RecordingCaller()
    await write(caller, STARTED, Start(2, "up-2", 8, LIVE), words("Hi"), Success(FACTS, 2))
    assert caller.headers[b"x-tidegate-attempts"] == b"2"
    assert {each["id"] for each in caller.chunks()} == {"up-2"}


async def test_a_second_start_never_reaches_the_caller() -> None:
    """One identity for the whole of a response."""
    caller = RecordingCaller()
    start = Start(2, "up-2", 8, LIVE)
    await write(caller, STARTED, words("He"), start, words("llo"), Success(FACTS, 2))
    assert caller.starts == 1
    assert {each["id"] for each in caller.chunks()} == {"up-1"}
    assert caller.text == "Hello"


async def test_a_success_without_any_release_is_a_whole_stream() -> None:
    """An answer of `length` may be empty."""
    caller = RecordingCaller()
    facts = Facts((FinishFact(0, "length"),))
    await write(caller, STARTED, Release(1, []), Success(facts, 1))
    (chunk,) = caller.chunks()
    assert chunk["choices"][0]["delta"]["role"] == "assistant"
    assert chunk["choices"][0]["finish_reason"] == "length"
    assert caller.received.endswith(DONE)


async def test_a_json_answer_is_written_whole() -> None:
    """With its length, and nothing before the terminal."""
    caller = RecordingCaller()
    start = Start(1, "up-1", 7, WHOLE)
    written = await write(caller, start, words("He"), words("llo"), Success(FACTS, 1))
    assert len(caller.writes) == 1
    assert json.loads(caller.received)["choices"][0]["message"]["content"] == "Hello"
    assert caller.headers[b"content-length"] == str(len(caller.received)).encode()
    assert written.framing == "chat_json"


async def test_an_error_before_the_first_byte_has_its_own_status() -> None:
    """Whatever was staged is forgotten."""
    caller = RecordingCaller()
    written = await write(caller, STARTED, FAILED)
    assert (caller.status, caller.code) == (502, "stream_cut")
    assert caller.headers[b"content-type"] == b"application/json"
    assert caller.headers[b"content-length"] == str(len(caller.received)).encode()
    assert caller.headers[b"x-tidegate-attempts"] == b"2"
    assert b"connection" not in caller.headers
    assert written == Written("", 502, "stream_cut", 2, len(caller.received))


async def test_an_error_may_end_the_connection_too() -> None:
    """Where the request's body was not read to its end."""
    caller = RecordingCaller()
    await write(caller, Terminal(refusal(413, "body_too_large"), 0, close=True))
    assert caller.headers[b"connection"] == b"close"


async def test_an_error_after_the_first_byte_is_said_in_the_stream() -> None:
    """No clean end: five real clients take one for success."""
    caller = RecordingCaller()
    written = await write(caller, STARTED, words("He"), FAILED)
    assert caller.status == 200
    assert caller.code == "stream_cut"
    assert DONE not in caller.received
    assert b"event:" not in caller.received
    assert (written.code, written.framing) == ("stream_cut", "chat_sse")


@pytest.mark.parametrize("items", [[], [STARTED], [STARTED, words("He")]])
async def test_a_channel_that_closes_without_a_terminal_is_an_error(items: Sequence[Wire]) -> None:
    """Whoever should have sent one is dead."""
    caller = RecordingCaller()
    written = await write(caller, *items)
    assert caller.code == "internal_error"
    assert caller.ended
    assert written.code == "internal_error"


async def test_nothing_is_taken_after_the_terminal() -> None:
    """What comes late finds the channel closed."""
    caller = RecordingCaller()
    await write(caller, STARTED, words("Hi"), Success(FACTS, 1), words("late"), FAILED)
    assert caller.text == "Hi"
    assert caller.received.count(DONE) == 1


async def test_a_release_without_a_start_is_a_bug() -> None:
    """It ends the exchange; nothing is written for it."""
    caller = RecordingCaller()
    with pytest.raises(AssertionError, match="a start is staged"):
        await write(caller, words("Hi"))
    assert caller.starts == 0


async def test_the_moment_of_a_write_is_noted_while_it_lasts(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """So that a caller who stops reading can be told from one who leaves."""
    caller, ending = StuckCaller(), Ending()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_write_quietly, caller, ending)
        await trio.sleep(5)
        assert ending.write_began == 0.0
        caller.reads.set()
        await trio.testing.wait_all_tasks_blocked()
        assert ending.write_began is None
        assert (ending.slowest_at, ending.slowest_seconds) == (5.0, 5.0)
        assert ending.over


async def test_the_longest_write_is_remembered_when_others_follow(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """On a connection that died in the middle of it, what follows takes no time."""
    caller, ending = StuckCaller(), Ending()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_write_quietly, caller, ending, Ping())
        await trio.sleep(5)
        caller.reads.set()
        await trio.testing.wait_all_tasks_blocked()
    assert [data for _, data in caller.writes].count(KEEP_ALIVE) == 1
    assert (ending.slowest_at, ending.slowest_seconds) == (5.0, 5.0)


async def _write_quietly(caller: RecordingCaller, ending: Ending, *more: Wire) -> None:
    await write(caller, STARTED, words("Hi"), *more, Success(FACTS, 1), ending=ending)


async def test_a_caller_who_is_seen_to_leave_gets_no_terminal() -> None:
    """Cancelled in the very step in which the terminal came: abandoned means that none was written."""
    caller = RecordingCaller()
    with trio.CancelScope() as scope:
        scope.cancel()
        await write(caller, STARTED, Success(FACTS, 1))
    assert not caller.ended


async def test_a_port_that_breaks_ends_the_sink() -> None:
    """Its error is for the exchange to report."""
    caller = BrokenCaller()
    with pytest.raises(RuntimeError, match="a bug in the port"):
        await write(caller, STARTED, words("Hi"), words("x" * 30_000), Success(FACTS, 1))
    assert not caller.ended


# --- comments where nothing is said -----------------------------------------------------------------


def watching(
    send: trio.MemorySendChannel[Wire],
    ending: Ending,
    *,
    leave: Callable[[], None] = lambda: None,
) -> Callable[[], Awaitable[None]]:
    """The sink's watch, with 15 seconds to a comment and 60 for a write."""
    return partial(
        sink.watch,
        send,
        ending,
        ping_seconds=15.0,
        caller_write_seconds=60.0,
        leave=leave,
        world=world(),
    )


async def pinged(caller: RecordingCaller, *items: tuple[float, Wire]) -> None:
    """A sink with its keeper, fed with items after so many seconds each; comments after 15 seconds."""
    send, wire = trio.open_memory_channel[Wire](1)
    results, written = trio.open_memory_channel[Written](1)
    ending = Ending()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(watching(send.clone(), ending))
        with send, written:
            nursery.start_soon(_run, wire, results, caller, ending)
            for seconds, item in items:
                await trio.sleep(seconds)
                with suppress(trio.BrokenResourceError):
                    await send.send(item)
            await written.receive()


async def _run(
    wire: trio.MemoryReceiveChannel[Wire],
    results: trio.MemorySendChannel[Written],
    caller: RecordingCaller,
    ending: Ending,
) -> None:
    await sink.run(wire, results, caller, request_id=b"ex-1", ending=ending)


async def test_a_silent_stream_gets_comments(autojump_clock: trio.testing.MockClock) -> None:
    """After each 15 seconds without a write, and at once none after one."""
    caller = RecordingCaller()
    await pinged(
        caller, (0, STARTED), (1, words("He")), (40, words("llo")), (14, Success(FACTS, 1))
    )
    assert [at for at, data in caller.writes if data == KEEP_ALIVE] == [16.0, 31.0]
    assert caller.text == "Hello"
    assert trio.current_time() < 100


async def test_a_stream_that_is_not_open_gets_none(autojump_clock: trio.testing.MockClock) -> None:
    """A comment would commit the status."""
    caller = RecordingCaller()
    await pinged(caller, (0, STARTED), (100, FAILED))
    assert (caller.status, caller.code) == (502, "stream_cut")


async def test_a_stream_that_flows_gets_none(autojump_clock: trio.testing.MockClock) -> None:
    """The silence begins anew with each write."""
    caller = RecordingCaller()
    flow = [(10.0, words("x"))] * 6
    await pinged(caller, (0, STARTED), *flow, (10, Success(FACTS, 1)))
    assert KEEP_ALIVE not in caller.received


async def test_a_slow_write_is_no_silence(autojump_clock: trio.testing.MockClock) -> None:
    """A comment behind a write that took a minute would say nothing new, and an answer is on its way."""
    caller = SlowCaller(seconds=60)
    await pinged(
        caller, (0, STARTED), (0, words("He")), (0, words("llo")), (130, Success(FACTS, 1))
    )
    assert [data == KEEP_ALIVE for _, data in caller.writes] == [False, False, False]


async def test_comments_never_pile_up(autojump_clock: trio.testing.MockClock) -> None:
    """Where something is on its way to the sink already it says more; when the sink has ended nobody asks any more."""
    send, wire = trio.open_memory_channel[Wire](1)
    ending = Ending()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(watching(send, ending))
        await trio.sleep(100)
        assert wire.receive_nowait() == Ping()
        with pytest.raises(trio.WouldBlock):
            wire.receive_nowait()
        wire.close()
    assert trio.current_time() == 105


async def test_a_comment_that_comes_after_the_terminal_is_refused() -> None:
    """The boundary has the last word."""
    caller = RecordingCaller()
    await write(caller, STARTED, words("Hi"), Success(FACTS, 1), Ping())
    assert caller.received.endswith(DONE)


async def test_a_write_that_takes_too_long_lets_the_caller_go(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Counted from the write's own beginning, however late it begins; before that nothing is said of it."""
    send, _wire = trio.open_memory_channel[Wire](1)
    ending, left = Ending(), trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(watching(send, ending, leave=left.set))
        await trio.sleep(7)
        ending.write_began = trio.current_time()
        await trio.sleep(59.9)
        assert not left.is_set()
        await left.wait()
    assert trio.current_time() == pytest.approx(67)
    assert ending.reason == "caller_too_slow"


async def test_writes_that_end_in_time_are_never_too_long(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Many of them one after another are not one."""
    send, _wire = trio.open_memory_channel[Wire](1)
    ending = Ending()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(watching(send, ending, leave=nursery.cancel_scope.cancel))
        for _ in range(5):
            ending.write_began = trio.current_time()
            await trio.sleep(50)
            ending.write_began, ending.written_at = None, trio.current_time()
            await trio.sleep(1)
        assert ending.reason == ""
        nursery.cancel_scope.cancel()
