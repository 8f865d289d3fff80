"""The quick way to the socket: only under the server release that it was written for, only for what it can do, and with nothing lost or reordered."""

from __future__ import annotations

import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final, cast

import h2.connection
import h2.events
import h11
import hypercorn.trio
import pytest
import trio
import trio.testing
from hypercorn.config import Config
from hypercorn.events import Closed, Event, RawData, Updated
from hypercorn.protocol.http_stream import HTTPStream
from hypercorn.trio.tcp_server import TCPServer

from ops.provider_connection import reset
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


def usual() -> tuple[object, object]:
    """The methods as they stand."""
    return TCPServer.protocol_send, HTTPStream.app_send


# --- when it is in place -------------------------------------------------------------------------


def test_it_is_in_place_only_within_its_block() -> None:
    """Under the release that is installed; afterwards everything is as it was."""
    before = usual()
    with quick_send() as quick:
        assert quick
        assert all(now is not was for now, was in zip(usual(), before, strict=True))
    assert usual() == before


def test_it_is_gone_after_an_error_too() -> None:
    """Whatever ends the service."""
    before = usual()
    with pytest.raises(KeyError), quick_send():
        raise KeyError
    assert usual() == before


@pytest.mark.parametrize(
    ("release", "h11_release"),
    [("0.17.3", None), ("0.18.1", None), ("1.0.0", None), (None, "0.15.0"), (None, "0.17.0")],
)
def test_another_release_is_left_alone(release: str | None, h11_release: str | None) -> None:
    """Its methods may do other things by then."""
    before = usual()
    with quick_send(release, h11_release) as quick:
        assert not quick
        assert usual() == before


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
        with quick_send(), trio.fail_after(10):
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


# --- bodies --------------------------------------------------------------------------------------

PIECES: Final = (b"one", b"", b"two and more " * 40, b"three")
CHUNKED: Final = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in PIECES if piece)
WHOLE: Final = b"".join(PIECES)


@pytest.fixture
def usually(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The pieces of bodies that go the usual way, as they go it."""
    pieces: list[bytes] = []
    original = HTTPStream.app_send

    async def app_send(stream: HTTPStream, message: Any) -> None:
        if message is not None and message["type"] == "http.response.body":
            pieces.append(message["body"])
        await original(stream, message)

    monkeypatch.setattr(HTTPStream, "app_send", app_send)
    return pieces


async def streams(scope: Any, receive: Any, send: Any) -> None:
    """Answers with the pieces; the path says how long they are together, if it says it."""
    if scope["type"] == "lifespan":
        await receive()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await send({"type": "lifespan.shutdown.complete"})
        return
    length = [(b"content-length", b"%d" % len(WHOLE))] if scope["path"] == "/long" else []
    await send({"type": "http.response.start", "status": 200, "headers": length})
    for piece in PIECES:
        await send({"type": "http.response.body", "body": piece, "more_body": True})
    await send({"type": "http.response.body", "body": b"", "more_body": False})


@asynccontextmanager
async def quick_service(application: Any = streams) -> AsyncIterator[int]:
    """An application, served with quick writes; its port."""
    config = Config()
    config.bind = ["127.0.0.1:0"]
    config.accesslog = config.errorlog = None
    with quick_send() as quick:
        assert quick
        async with trio.open_nursery() as nursery:
            serve = partial(hypercorn.trio.serve, application, config)
            bound: list[str] = await nursery.start(serve)
            yield int(bound[0].rsplit(":", 1)[1])
            nursery.cancel_scope.cancel()


async def answered(port: int, request: bytes) -> tuple[bytes, bytes]:
    """Head and rest of the answer to a request that ends the connection."""
    async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
        await stream.send_all(request + b"\r\nhost: a\r\nconnection: close\r\n\r\n")
        data = b"".join([part async for part in stream])
    head, _, rest = data.partition(b"\r\n\r\n")
    return head.lower(), rest


async def test_pieces_of_a_body_in_chunks_are_written_here(usually: list[bytes]) -> None:
    """Each as one chunk, with the end that the server gives it."""
    async with quick_service() as port:
        head, rest = await answered(port, b"GET / HTTP/1.1")
    assert b"transfer-encoding: chunked" in head
    assert rest == CHUNKED + b"0\r\n\r\n"
    assert usually == [b"", b""]


@pytest.mark.parametrize(
    ("request_line", "body"),
    [
        (b"GET / HTTP/1.0", WHOLE),
        (b"GET /long HTTP/1.1", WHOLE),
        (b"HEAD / HTTP/1.1", b""),
    ],
)
async def test_any_other_body_goes_the_usual_way(
    request_line: bytes, body: bytes, usually: list[bytes]
) -> None:
    """Without chunks, with a length that is counted, or with nothing in it."""
    async with quick_service() as port:
        _, rest = await answered(port, request_line)
    assert rest == body
    assert usually == [*PIECES, b""]


async def test_a_body_under_http_2_goes_the_usual_way(usually: list[bytes]) -> None:
    """Its frames are the protocol's."""
    client = h2.connection.H2Connection()
    received = b""
    async with (
        quick_service() as port,
        await trio.open_tcp_stream("127.0.0.1", port) as stream,
    ):
        client.initiate_connection()
        fields = ((":method", "GET"), (":path", "/"), (":scheme", "http"), (":authority", "a"))
        client.send_headers(1, fields, end_stream=True)
        over = False
        while not over:
            await stream.send_all(client.data_to_send())
            for event in client.receive_data(await stream.receive_some()):
                over = over or isinstance(event, h2.events.StreamEnded)
                if isinstance(event, h2.events.DataReceived):
                    received += event.data or b""
    assert received == WHOLE
    assert usually == [*PIECES, b""]


async def test_a_piece_after_the_end_is_not_written(usually: list[bytes]) -> None:
    """The server knows what to do with what comes too late: here, nothing."""

    async def talks_on(scope: Any, receive: Any, send: Any) -> None:
        await streams(scope, receive, send)
        if scope["type"] == "http":
            await send({"type": "http.response.body", "body": b"late", "more_body": True})

    async with quick_service(talks_on) as port:
        _, rest = await answered(port, b"GET / HTTP/1.1")
    assert b"late" not in rest
    assert usually[-1] == b"late"


async def test_a_connection_that_has_failed_is_left_to_the_usual_way(usually: list[bytes]) -> None:
    """Nothing is written on it that h11 would refuse."""
    refused: list[type[Exception]] = []

    async def fails(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await streams(scope, receive, send)
            return
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"good", "more_body": True})
        send.__self__.send.__self__.connection.send_failed()
        try:
            await send({"type": "http.response.body", "body": b"bad", "more_body": True})
        except h11.LocalProtocolError as error:
            refused.append(type(error))

    async with quick_service(fails) as port:
        _, rest = await answered(port, b"GET / HTTP/1.1")
    assert rest == b"4\r\ngood\r\n"
    assert refused == [h11.LocalProtocolError]
    assert usually == [b"bad"]
