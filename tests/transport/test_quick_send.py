"""The quick way to the socket: only under the server release that it was written for, only for what it can do, and with nothing lost or reordered."""

from __future__ import annotations

import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final, cast

import pytest
import trio
import trio.testing
from hypercorn.events import Closed, Event, RawData, Updated
from hypercorn.trio.tcp_server import TCPServer

from tests.transport.servers import reset
from transport.quick_send import quick_send

HELLO: Final = RawData(data=b"hello")
# More than the small buffers below hold.
LARGE: Final = RawData(data=bytes(range(256)) * 8_000)
ROOM: Final = 16_384


@pytest.fixture
def slowly(monkeypatch: pytest.MonkeyPatch) -> list[Event]:
    """What goes the usual way, which is replaced by a record of it."""
    sent: list[Event] = []

    async def protocol_send(_: TCPServer, event: Event) -> None:
        await trio.lowlevel.checkpoint()
        sent.append(event)

    monkeypatch.setattr(TCPServer, "protocol_send", protocol_send)
    return sent


def server_of(stream: trio.abc.Stream) -> TCPServer:
    """A server's side of one connection, of which only the sending is used."""
    unused = cast(Any, None)
    return TCPServer(unused, unused, unused, unused, cast(Any, stream))


@asynccontextmanager
async def connection() -> AsyncIterator[tuple[TCPServer, trio.SocketStream]]:
    """A server's side and its peer, on loopback, with little room between them."""
    with socket.socket() as listener, socket.socket() as dialled:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, ROOM)
        dialled.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, ROOM)
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        dialled.connect(listener.getsockname())
        accepted, _ = listener.accept()
        async with (
            trio.SocketStream(trio.socket.from_stdlib_socket(accepted)) as stream,
            trio.SocketStream(trio.socket.from_stdlib_socket(dialled)) as peer,
        ):
            yield server_of(stream), peer


async def received(peer: trio.SocketStream, size: int) -> bytes:
    """So many bytes, or as many as come before the end."""
    data = b""
    while len(data) < size:
        more = await peer.receive_some(size - len(data))
        if not more:
            break
        data += more
    return data


def usual() -> object:
    """The method as it stands."""
    return TCPServer.protocol_send


# --- when it is in place -------------------------------------------------------------------------


def test_it_is_in_place_only_within_its_block() -> None:
    """Under the release that is installed; afterwards everything is as it was."""
    before = usual()
    with quick_send() as quick:
        assert quick
        assert usual() is not before
    assert usual() is before


def test_it_is_gone_after_an_error_too() -> None:
    """Whatever ends the service."""
    before = usual()
    with pytest.raises(KeyError), quick_send():
        raise KeyError
    assert usual() is before


@pytest.mark.parametrize("release", ["0.17.3", "0.18.1", "1.0.0"])
def test_another_release_is_left_alone(release: str) -> None:
    """Its method may do other things by then."""
    before = usual()
    with quick_send(release) as quick:
        assert not quick
        assert usual() is before


# --- what it does --------------------------------------------------------------------------------


async def test_what_the_kernel_takes_at_once_is_sent(slowly: list[Event]) -> None:
    """And does not go the usual way as well."""
    async with connection() as (server, peer):
        with quick_send():
            await server.protocol_send(HELLO)
        assert await received(peer, 5) == b"hello"
    assert slowly == []


async def test_what_the_kernel_does_not_take_goes_the_usual_way(slowly: list[Event]) -> None:
    """The rest of a write, once."""
    async with connection() as (server, peer):
        with quick_send():
            await server.protocol_send(LARGE)
        [rest] = slowly
        assert isinstance(rest, RawData)
        taken = len(LARGE.data) - len(rest.data)
        assert 0 < taken < len(LARGE.data)
        assert await received(peer, taken) + rest.data == LARGE.data


async def test_where_there_is_no_room_all_of_it_goes_the_usual_way(slowly: list[Event]) -> None:
    """A full buffer is no error."""
    async with connection() as (server, _):
        with quick_send(), trio.fail_after(2):
            while LARGE not in slowly:
                await server.protocol_send(LARGE)


async def test_nothing_overtakes_a_write_that_waits(slowly: list[Event]) -> None:
    """Whoever holds the lock has bytes that come first."""
    async with connection() as (server, peer):
        with quick_send():
            async with server.send_lock:
                await server.protocol_send(HELLO)
        await server.stream.send_eof()
        assert await received(peer, 5) == b""
    assert slowly == [HELLO]


async def test_a_stream_under_tls_goes_the_usual_way(slowly: list[Event]) -> None:
    """Its bytes are not the socket's."""
    async with connection() as (plain, _):
        context = ssl.create_default_context()
        server = server_of(trio.SSLStream(plain.stream, context, server_hostname="gate"))
        with quick_send():
            await server.protocol_send(HELLO)
    assert slowly == [HELLO]


@pytest.mark.parametrize("whose", ["peer's", "own"])
async def test_an_error_is_left_to_the_usual_way(whose: str, slowly: list[Event]) -> None:
    """It knows what to make of a connection that was reset, or is closed."""
    async with connection() as (server, peer):
        if whose == "own":
            await server.stream.aclose()
        else:
            reset(peer)
        with quick_send():
            await server.protocol_send(HELLO)
    assert slowly == [HELLO]


async def test_what_is_not_bytes_goes_the_usual_way(slowly: list[Event]) -> None:
    """The end of a connection, and whether it is idle."""
    async with connection() as (server, _):
        with quick_send():
            await server.protocol_send(Updated(idle=True))
            await server.protocol_send(Closed())
    assert slowly == [Updated(idle=True), Closed()]


async def test_bytes_arrive_whole_and_in_order() -> None:
    """Quick and usual writes in turn, to a peer that begins to read late."""
    events = [HELLO, LARGE, HELLO, RawData(data=b""), LARGE]
    expected = b"".join(event.data for event in events)

    async def send_all(server: TCPServer) -> None:
        for event in events:
            await server.protocol_send(event)

    async with connection() as (server, peer), trio.open_nursery() as nursery:
        with quick_send():
            nursery.start_soon(send_all, server)
            await trio.testing.wait_all_tasks_blocked()
            assert await received(peer, len(expected)) == expected
