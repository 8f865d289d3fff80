"""`transport.pool`: idle connections, sockets and TLS."""

from __future__ import annotations

import socket
import ssl
from dataclasses import dataclass
from pathlib import Path

import pytest
import trio
import trio.testing
import trustme

from ops.provider_connection import reset
from tests.transport.servers import Handler, loopback, read_to_end
from transport.pool import Connection, IdleStore, Origin, Wire, client_tls, tcp_connector

HERE = Origin("here", 80, tls=False)
THERE = Origin("there", 80, tls=False)


@dataclass
class FakeWire:
    closed: bool = False
    stale: bool = False

    def connection(self, origin: Origin = HERE) -> Connection:
        stream, _ = trio.testing.memory_stream_pair()
        return Connection(
            origin,
            Wire(stream, stream.receive_some, self.close, lambda: self.stale),
            on_close=lambda: None,
        )

    def close(self) -> None:
        assert not self.closed
        self.closed = True


def test_the_newest_idle_connection_of_an_origin_is_taken_first() -> None:
    """The newest has the best chance of being alive."""
    store = IdleStore()
    old, new, other = FakeWire().connection(), FakeWire().connection(), FakeWire().connection(THERE)
    for connection in (old, new, other):
        store.put(connection, now=0.0)
    assert store.take(HERE, now=1.0) is new
    assert store.take(HERE, now=1.0) is old
    assert store.take(HERE, now=1.0) is None
    assert len(store) == 1


def test_an_expired_connection_is_closed_when_another_is_put_or_taken() -> None:
    """Expiry needs no task of its own."""
    store = IdleStore(seconds=15.0)
    first, second = FakeWire(), FakeWire()
    store.put(first.connection(), now=0.0)
    store.put(second.connection(THERE), now=15.0)
    assert first.closed
    assert store.take(HERE, now=30.0) is None
    assert second.closed


def test_the_oldest_connection_gives_way_at_the_limit() -> None:
    """The store is bounded."""
    store = IdleStore(limit=2)
    wires = [FakeWire() for _ in range(3)]
    for wire in wires:
        store.put(wire.connection(), now=0.0)
    assert [wire.closed for wire in wires] == [True, False, False]
    assert len(store) == 2


def test_a_connection_that_became_readable_while_idle_is_discarded() -> None:
    """Nothing may come between two requests: it is an EOF, or the answer to nobody."""
    store = IdleStore()
    good, stale = FakeWire(), FakeWire(stale=True)
    kept = good.connection()
    store.put(kept, now=0.0)
    store.put(stale.connection(), now=0.0)
    assert store.take(HERE, now=0.0) is kept
    assert stale.closed


def test_a_closed_store_closes_what_it_holds_and_what_comes_later() -> None:
    """A connection in use may come back after the close."""
    store = IdleStore()
    held, late = FakeWire(), FakeWire()
    store.put(held.connection(), now=0.0)
    store.close()
    store.put(late.connection(), now=0.0)
    assert held.closed
    assert late.closed
    assert len(store) == 0


def test_a_connection_says_what_state_it_is_in_and_closes_once() -> None:
    """Its `repr` is what a debugger shows."""
    connection = FakeWire().connection()
    assert repr(connection) == "<Connection here:80 open, served 0>"
    connection.close()
    connection.close()
    assert repr(connection) == "<Connection here:80 closed, served 0>"


async def _silent(stream: trio.SocketStream) -> None:
    await read_to_end(stream)


async def _talkative(stream: trio.SocketStream) -> None:
    await stream.send_all(b"HTTP/1.1 408 Request Timeout\r\n\r\n")
    await read_to_end(stream)


async def _leaving(stream: trio.SocketStream) -> None:
    await trio.lowlevel.checkpoint()
    stream.socket.close()


async def _resetting(stream: trio.SocketStream) -> None:
    await trio.lowlevel.checkpoint()
    reset(stream)


@pytest.mark.parametrize(
    ("handler", "stale"),
    [(_silent, False), (_talkative, True), (_leaving, True), (_resetting, True)],
)
async def test_a_socket_is_stale_when_the_server_sent_left_or_reset(
    handler: Handler, stale: bool
) -> None:
    """Seen without reading, and without waiting."""
    async with loopback(handler) as port:
        wire = await tcp_connector(None)("127.0.0.1", port, False)
        if stale:
            assert isinstance(wire.stream, trio.SocketStream)
            with trio.fail_after(10):
                await trio.lowlevel.wait_readable(wire.stream.socket.fileno())
        assert wire.is_stale() == stale
        wire.close()


async def test_small_writes_are_not_delayed() -> None:
    """TCP_NODELAY is set."""
    async with loopback(_silent) as port:
        wire = await tcp_connector(None)("127.0.0.1", port, False)
        assert isinstance(wire.stream, trio.SocketStream)
        assert wire.stream.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        wire.close()


def _tls_handler(
    authority: trustme.CA, name: str, seen: list[str | None], *, ask_client: bool = False
) -> Handler:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.set_alpn_protocols(["h2", "http/1.1"])
    authority.issue_cert(name).configure_cert(context)
    if ask_client:
        authority.configure_trust(context)
        context.verify_mode = ssl.CERT_REQUIRED

    async def handler(stream: trio.SocketStream) -> None:
        secured = trio.SSLStream(stream, context, server_side=True, https_compatible=True)
        try:
            await secured.do_handshake()
            seen.append(secured.selected_alpn_protocol())
            await secured.send_all(b"hello")
        except trio.BrokenResourceError:
            seen.append("refused")
        await read_to_end(stream)

    return handler


async def test_tls_offers_http1_only_and_checks_the_certificate(tmp_path: Path) -> None:
    """A server that would rather speak HTTP/2 speaks HTTP/1.1."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    seen: list[str | None] = []
    async with loopback(_tls_handler(authority, "127.0.0.1", seen)) as port:
        connect = tcp_connector(client_tls(ca=str(tmp_path / "ca.pem")))
        wire = await connect("127.0.0.1", port, True)
        assert await wire.stream.receive_some(100) == b"hello"
        assert not wire.is_stale()
        wire.close()
    assert seen == ["http/1.1"]


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1"])
async def test_a_certificate_of_another_name_or_authority_is_refused(
    tmp_path: Path, name: str
) -> None:
    """Right authority but wrong name, or right name but wrong authority."""
    authority = trustme.CA()
    trusted = authority if name == "localhost" else trustme.CA()
    trusted.cert_pem.write_to_path(tmp_path / "ca.pem")
    async with loopback(_tls_handler(authority, name, [])) as port:
        connect = tcp_connector(client_tls(ca=str(tmp_path / "ca.pem")))
        with pytest.raises(trio.BrokenResourceError):
            await connect("127.0.0.1", port, True)


async def test_a_client_certificate_is_shown_to_a_server_that_asks(tmp_path: Path) -> None:
    """The PEM file holds the chain and the key."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    authority.issue_cert("gate").private_key_and_cert_chain_pem.write_to_path(tmp_path / "me.pem")
    context = client_tls(ca=str(tmp_path / "ca.pem"), client_cert=str(tmp_path / "me.pem"))
    handler = _tls_handler(authority, "127.0.0.1", [], ask_client=True)
    async with loopback(handler) as port:
        wire = await tcp_connector(context)("127.0.0.1", port, True)
        assert await wire.stream.receive_some(100) == b"hello"
        wire.close()


async def test_tls_without_a_context_is_refused_before_anything_is_sent() -> None:
    """A wrong composition must not fall back to plain text."""
    with pytest.raises(ssl.SSLError):
        await tcp_connector(None)("127.0.0.1", 1, True)


def test_a_pem_file_that_is_missing_is_refused(tmp_path: Path) -> None:
    """TLS is prepared once, long before the first request."""
    with pytest.raises(OSError, match="No such file"):
        client_tls(ca=str(tmp_path / "none.pem"))
