"""Playing steps, keeping count, and HTTP/1.1 as an awkward peer speaks it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Final

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from ops import provider_connection
from ops.provider import running_provider
from ops.provider_connection import (
    HEAD_BYTES_MAX,
    PIPELINED_BYTES_MAX,
    REQUEST_SECONDS_MAX,
    ClosedEarly,
    Connection,
    Played,
    RecordedRequest,
    Stats,
    play,
    reset,
)
from ops.provider_script import Ending, Framer, Head, Repeat, Sleep, Step, Write

GET: Final = b"GET /a HTTP/1.1\r\nhost: x\r\n\r\n"
HELLO: Final = (Head(200, (("content-length", "5"),)), Write(b"hello"))


class Pieces(list[tuple[float, bytes]]):
    """What was sent, and when."""

    async def send(self, data: bytes) -> None:
        """Take a piece."""
        await trio.lowlevel.checkpoint()
        self.append((trio.current_time(), data))


def request(body: bytes = b"") -> RecordedRequest:
    """A recorded request."""
    return RecordedRequest("POST", "/", (("a", "b"),), body, 1)


@asynccontextmanager
async def connected(
    steps: tuple[Step, ...] = HELLO,
) -> AsyncIterator[tuple[trio.SocketStream, Stats]]:
    """The peer's end of a connection on which every request is answered with `steps`."""
    stats = Stats()

    def steps_for(_: RecordedRequest) -> Iterator[Step]:
        return iter(steps)

    ours, theirs = trio.socket.socketpair()
    async with trio.open_nursery() as nursery:
        served = Connection(trio.SocketStream(ours), steps_for, stats)
        nursery.start_soon(served.serve)  # noqa: ASYNC113 - it reads whenever it gets there
        async with trio.SocketStream(theirs) as peer:
            yield peer, stats
        nursery.cancel_scope.cancel()


async def read_all(peer: trio.SocketStream) -> bytes:
    """Everything until the other side ends the connection."""
    received = bytearray()
    with trio.fail_after(10):
        while data := await peer.receive_some():
            received += data
    return bytes(received)


async def read_until(peer: trio.SocketStream, end: bytes) -> bytes:
    """Everything up to `end`."""
    received = bytearray()
    with trio.fail_after(10):
        while not received.endswith(end):
            data = await peer.receive_some()
            assert data
            received += data
    return bytes(received)


async def test_steps_are_played_in_their_time(autojump_clock: MockClock) -> None:
    """A silence lasts as long as it says, and each piece is sent alone."""
    start = trio.current_time()
    pieces = Pieces()
    steps: list[Step] = [Write(b"a"), Sleep(1_500), Write(b"b"), Repeat(b"c", 2, 250), Ending.CLOSE]
    played = await play(steps, pieces.send, Framer())
    sent = [(round(time - start, 3), data) for time, data in pieces]
    assert sent == [(0, b"a"), (1.5, b"b"), (1.75, b"c"), (2.0, b"c"), (2.0, b"")]
    assert played == Played(Ending.CLOSE)


@pytest.mark.parametrize("ending", [Ending.CUT, Ending.RESET])
async def test_a_broken_body_has_no_last_chunk(ending: Ending) -> None:
    """Whoever owns the transport learns how to break it."""
    pieces = Pieces()
    played = await play([Head(200), Write(b"x"), ending], pieces.send, Framer())
    assert played == Played(ending)
    assert pieces[-1][1] == b"1\r\nx\r\n"


async def test_a_whole_answer_leaves_the_connection_usable() -> None:
    """The same goes for an answer that says `close` and for one that just stops."""
    endings: tuple[list[Step], ...] = ([], [Ending.CLOSE])
    for ending in endings:
        pieces = Pieces()
        assert await play([Head(200), Write(b"x"), *ending], pieces.send, Framer()) == Played(
            Ending.CLOSE, reusable=True
        )
        assert pieces[-1][1] == b"0\r\n\r\n"


async def test_a_stall_lasts_until_it_is_cancelled(autojump_clock: MockClock) -> None:
    """Not even a day is long enough."""
    with trio.move_on_after(86_400) as day:
        await play([Ending.STALL], Pieces().send, Framer())
    assert day.cancelled_caught


def test_the_oldest_requests_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """By their number and by the bytes of their bodies."""
    stats = Stats(requests_kept_max=2)
    for body in (b"a", b"b", b"c"):
        stats.received(request(body))
    assert [each.body for each in stats.requests] == [b"b", b"c"]
    monkeypatch.setattr(provider_connection, "BODY_BYTES_KEPT_MAX", 10)
    stats.received(request(b"123456789"))
    assert [each.body for each in stats.requests] == [b"c", b"123456789"]
    stats.received(request(b"12"))
    assert [each.body for each in stats.requests] == [b"12"]


async def test_waiting_for_a_change_wakes_on_it(autojump_clock: MockClock) -> None:
    """A test need not poll."""
    stats = Stats()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(stats.wait_until, lambda: bool(stats.closed_early))
        await wait_all_tasks_blocked()
        stats.opened()
        await wait_all_tasks_blocked()
        assert len(nursery.child_tasks) == 1
        await trio.sleep(3)
        stats.left(1)
    assert list(stats.closed_early) == [ClosedEarly(1, trio.current_time())]
    assert repr(stats) == "<Stats connections=1 open=1 requests=0 closed_early=1>"


def test_a_recorded_header_is_found_by_name() -> None:
    """The first of its name, or nothing."""
    assert (request().header("a"), request().header("c")) == ("b", None)


async def test_requests_follow_each_other_on_one_connection() -> None:
    """They carry the number of the connection they came on."""
    async with connected() as (peer, stats):
        for _ in range(2):
            await peer.send_all(GET)
            assert (await read_until(peer, b"hello")).startswith(b"HTTP/1.1 200 OK\r\n")
        assert [each.connection for each in stats.requests] == [1, 1]
    assert (stats.open_connections, list(stats.closed_early)) == (0, [])


async def test_pipelined_requests_are_answered_in_turn() -> None:
    """Sent before the first answer or in the middle of it, none is lost."""
    steps = (HELLO[0], Write(b"he"), Sleep(30), Write(b"llo"))
    async with connected(steps) as (peer, stats):
        await peer.send_all(GET + GET)
        assert (await read_until(peer, b"he")).endswith(b"he")
        await peer.send_all(b"GET /a HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        assert (await read_all(peer)).count(b"hello") == 2
        assert len(stats.requests) == 3


async def test_a_peer_that_sends_too_much_during_an_answer_is_let_go() -> None:
    """What waits for the end of an answer is bounded."""
    async with connected((Ending.STALL,)) as (peer, stats):
        with pytest.raises(trio.BrokenResourceError):
            await peer.send_all(GET + bytes(PIPELINED_BYTES_MAX * 8))
        await stats.wait_until(lambda: not stats.open_connections)


@pytest.mark.parametrize("head", [b"HTTP/1.0", b"HTTP/1.1\r\nhost: x\r\nconnection: close"])
async def test_the_connection_ends_where_the_peer_wants_it(head: bytes) -> None:
    """An old peer, or one that says so."""
    async with connected() as (peer, _):
        await peer.send_all(b"GET /a " + head + b"\r\n\r\n")
        assert b"connection: close" in await read_all(peer)


async def test_a_body_in_chunks_is_read_whole() -> None:
    """A peer that asks whether to send it is told to go on."""
    head = (
        b"POST / HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ntransfer-encoding: chunked\r\n\r\n"
    )
    async with connected() as (peer, stats):
        await peer.send_all(head)
        assert (await read_until(peer, b"\r\n\r\n")).startswith(b"HTTP/1.1 100 ")
        await peer.send_all(b"2\r\nab\r\n1\r\nc\r\n0\r\n\r\n")
        await read_until(peer, b"hello")
        assert stats.requests[0].body == b"abc"


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"nonsense\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\nhost: x\r\na: " + b"b" * HEAD_BYTES_MAX, b"431"),
        (b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\n0123456789"[:-1], b"413"),
    ],
    ids=["nonsense", "large head", "large body"],
)
async def test_what_is_not_allowed_is_refused_with_a_reason(
    monkeypatch: pytest.MonkeyPatch, sent: bytes, status: bytes
) -> None:
    """The connection ends in order, so that the reason can be read."""
    monkeypatch.setattr(provider_connection, "BODY_BYTES_MAX", 8)
    async with connected() as (peer, stats):
        await peer.send_all(sent)
        answer = await read_all(peer)
        assert answer.startswith(b"HTTP/1.1 " + status)
        assert b'"code":"invalid_http"' in answer
        await peer.send_all(b"more")
        await peer.send_eof()
        await stats.wait_until(lambda: not stats.open_connections)
        assert not stats.requests


async def test_a_peer_that_never_asks_is_let_go(autojump_clock: MockClock) -> None:
    """Idle time is bounded."""
    async with connected() as (peer, stats):
        start = trio.current_time()
        assert await peer.receive_some() == b""
        assert trio.current_time() - start == pytest.approx(REQUEST_SECONDS_MAX)
        assert stats.open_connections == 0


async def test_a_peer_that_resets_an_idle_connection_is_no_event() -> None:
    """It left between two answers, not early."""
    async with running_provider() as running:
        stream = await trio.open_tcp_stream(*running.address)
        await running.stats.wait_until(lambda: running.open_connections == 1)
        reset(stream)
        with trio.fail_after(10):
            await running.stats.wait_until(lambda: running.open_connections == 0)
        assert not running.closed_early


async def test_a_connection_that_somebody_else_has_reset_is_over() -> None:
    """Just before it would have reset itself, as a search of faults does by chance."""
    stats = Stats()
    ours, theirs = trio.socket.socketpair()

    def steps_for(_: RecordedRequest) -> Iterator[Step]:
        reset(stream)
        yield Ending.RESET

    with theirs:
        stream = trio.SocketStream(ours)
        await theirs.send(GET)
        await Connection(stream, steps_for, stats).serve()
        assert stats.open_connections == 0
        assert ours.fileno() == -1


async def test_a_peer_that_leaves_in_the_middle_of_an_answer_is_recorded() -> None:
    """At once, and whatever the answer is waiting for."""
    async with connected((Head(200), Ending.STALL)) as (peer, stats):
        await peer.send_all(GET)
        await read_until(peer, b"\r\n\r\n")
        left_at = trio.current_time()
        await peer.aclose()
        with trio.fail_after(10):
            await stats.wait_until(lambda: not stats.open_connections)
        assert [each.connection for each in stats.closed_early] == [1]
        assert stats.closed_early[0].time - left_at <= 2.0


async def test_a_peer_that_leaves_while_it_is_written_to_is_recorded() -> None:
    """A write that fails is the same as a read that ends."""
    async with connected((Head(200), Repeat(b"x" * 65_536, 1_000_000))) as (peer, stats):
        await peer.send_all(GET)
        await read_until(peer, b"x")
        await peer.aclose()
        with trio.fail_after(10):
            await stats.wait_until(lambda: not stats.open_connections)
        assert [each.connection for each in stats.closed_early] == [1]
