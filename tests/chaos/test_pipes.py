"""Connections in memory end, break and fill up as those of the kernel do."""

from __future__ import annotations

import socket
from functools import partial

import pytest
import trio
import trio.testing

from ops.chaos.pipes import connected


async def test_bytes_come_as_they_were_sent_and_then_the_end() -> None:
    """What was sent before a close is still read."""
    near, far = connected(100)
    await near.send_all(b"one")
    await near.send_all(b"two")
    near.close()
    assert await far.receive_some(4) == b"onet"
    assert await far.receive_some() == b"wo"
    assert await far.receive_some() == b""


async def test_a_write_waits_for_room() -> None:
    """And says that it does."""
    near, far = connected(4)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(near.send_all, b"0123456789")
        await near.full.wait()
        read = b""
        while len(read) < 10:
            read += await far.receive_some()
    assert read == b"0123456789"
    await near.wait_send_all_might_not_block()


async def test_a_half_close_ends_one_direction() -> None:
    """Nothing more can be sent in it; the other goes on."""
    near, far = connected(100)
    await near.send_eof()
    assert far.hung_up
    assert far.socket.fileno() == -1
    assert await far.receive_some() == b""
    await far.send_all(b"still")
    assert await near.receive_some() == b"still"
    with pytest.raises(trio.BrokenResourceError):
        await near.send_all(b"x")


async def test_a_reset_breaks_both_directions() -> None:
    """What had come before it is still read."""
    near, far = connected(100)
    await near.send_all(b"last")
    near.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"")
    near.close()
    assert await far.receive_some() == b"last"
    with pytest.raises(trio.BrokenResourceError):
        await far.receive_some()
    with pytest.raises(trio.BrokenResourceError):
        await far.send_all(b"x")


async def test_a_close_with_bytes_unread_is_a_reset() -> None:
    """As the kernel answers it."""
    near, far = connected(100)
    await far.send_all(b"unread")
    near.close()
    with pytest.raises(trio.BrokenResourceError):
        await far.receive_some()


async def test_the_first_write_to_one_who_has_closed_is_taken() -> None:
    """The reset that answers it breaks the second."""
    near, far = connected(100)
    near.close()
    await far.send_all(b"x")
    with pytest.raises(trio.BrokenResourceError):
        await far.send_all(b"y")
    assert await far.receive_some() == b""


async def test_whoever_waits_at_an_end_that_closes_is_told() -> None:
    """In either direction, and afterwards too."""
    near, _far = connected(2)
    async with trio.open_nursery() as nursery:
        for waits in (near.receive_some, partial(near.send_all, b"long"), near.send_eof):
            nursery.start_soon(_closed, waits)
            await trio.testing.wait_all_tasks_blocked()
        near.reset()
    await _closed(near.send_eof)


async def _closed(waits: object) -> None:
    assert callable(waits)
    with pytest.raises((trio.ClosedResourceError, trio.BusyResourceError)):
        await waits()


async def test_two_writers_at_once_are_refused() -> None:
    """As by a socket's stream."""
    near, _far = connected(2)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(near.send_all, b"long")
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(trio.BusyResourceError):
            await near.send_all(b"x")
        nursery.cancel_scope.cancel()


async def test_a_write_while_the_end_is_sent_is_refused() -> None:
    """Likewise."""
    near, far = connected(10)
    ending = near.send_eof()
    ending.send(None)  # as far as it gives way
    with pytest.raises(trio.BusyResourceError):
        await near.send_all(b"x")
    ending.close()
    await near.send_all(b"x")
    assert await far.receive_some() == b"x"


async def test_a_call_may_be_made_to_fail() -> None:
    """Then the connection is lost, for both sides."""
    near, far = connected(100)
    near.fails = lambda call: call == "receive"
    await near.send_all(b"x")
    with pytest.raises(trio.BrokenResourceError):
        await near.receive_next(10)
    assert near.readable
    assert await far.receive_some() == b"x"
    with pytest.raises(trio.BrokenResourceError):
        await far.receive_some()


async def test_a_reader_that_waits_first_gets_the_same() -> None:
    """And the socket has names and a descriptor that can be polled."""
    near, far = connected(100)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(far.send_all, b"x")
        assert await near.receive_next(10) == b"x"
    assert near.socket.getsockname() == near.socket.getpeername()
    assert near.socket.fileno() >= 0
    near.socket.close()
    await near.aclose()
    assert near.socket.fileno() == -1
