"""`transport.containment`: a connection that fails ends alone, and a caller who leaves is missed although nobody reads."""

from __future__ import annotations

import io
import json
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest
import trio
import trio.testing
import trustme
from h2.config import H2Configuration
from h2.connection import H2Connection
from hypercorn.protocol.h2 import H2Protocol, StreamBuffer
from hypercorn.protocol.h11 import H11Protocol
from hypercorn.trio.tcp_server import TCPServer

from gate.config import ServerConfig
from ops.provider import running_provider
from ops.provider_connection import reset
from ops.provider_script import Pace, Script
from tests.transport.edge import (
    CHAT,
    ask,
    eventually,
    head,
    question,
    read_answer,
    running_edge,
    settled,
    write_config,
)
from tests.transport.servers import read_to_end
from transport.configfile import load_config
from transport.containment import contained
from transport.serve import open_listener, serve

FAST: Final = Script(pace=Pace(chunk_ms=0))
SOCKET: Final = (
    "connection: upgrade",
    "upgrade: websocket",
    "sec-websocket-version: 13",
    "sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==",
)


def over_http2(*, method: bytes = b"POST", path: bytes = CHAT.encode()) -> bytes:
    """A request by prior knowledge, whatever its parts are."""
    config = H2Configuration(
        header_encoding=None, validate_outbound_headers=False, normalize_outbound_headers=False
    )
    connection = H2Connection(config)
    connection.initiate_connection()
    fields = [(b":method", method), (b":path", path), (b":scheme", b"http")]
    connection.send_headers(1, [*fields, (b":authority", b"gate")], end_stream=True)
    return connection.data_to_send()


FATAL: Final = {
    "a path that is not ASCII": over_http2(path=b"/v1/\xff"),
    "a method that is not ASCII": over_http2(method=b"P\xffST"),
    "bad settings in an upgrade": b"GET / HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: h2c\r\nhttp2-settings: A\r\n\r\n",
    "a web socket that speaks too early": head(0, *SOCKET, method="GET") + b"early",
    "a sub-protocol that is not ASCII": head(
        0, *SOCKET, "sec-websocket-protocol: \u00fc", method="GET"
    ),
}


@pytest.mark.parametrize("name", FATAL)
async def test_a_connection_that_fails_inside_the_server_ends_alone(
    tmp_path: Path, name: str
) -> None:
    """One caller can't end the service for all: the failing connection is closed and logged, another goes on."""
    out = io.StringIO()
    async with running_provider(FAST) as provider:
        path = write_config(tmp_path, provider.base_url)
        async with running_edge(path, log_out=out) as edge:
            async with await edge.connect() as stream:
                await stream.send_all(FATAL[name])
                with trio.fail_after(10):
                    await read_to_end(stream)
            assert (await ask(edge, question())).status == 200
            await settled(edge)
    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    [failed] = [line for line in lines if line["event"] == "connection_failed"]
    assert failed["errors"]
    assert "early" not in str(failed)


LEAVES: Final[dict[str, Callable[[trio.SocketStream], object]]] = {
    "fin": lambda stream: stream.socket.close(),
    "half-close": lambda stream: stream.socket.shutdown(trio.socket.SHUT_WR),
    "rst": reset,
}


@pytest.mark.parametrize("behind", [b"GET /healthz HTTP/1.1\r\nhost: gate\r\n\r\n", b"x" * 20_000])
@pytest.mark.parametrize("way", LEAVES)
@pytest.mark.parametrize("model", ["no-answer", "stall:3"])
async def test_a_pipelining_caller_who_leaves_is_missed_although_nobody_reads_from_it(
    tmp_path: Path, model: str, way: str, behind: bytes
) -> None:
    """The provider works for nobody no longer than for any other caller that has left."""
    body = question()
    async with running_provider(FAST) as provider:
        path = write_config(tmp_path, provider.base_url, {"small": model})
        async with running_edge(path) as edge, await edge.connect() as stream:
            await stream.send_all(head(len(body)) + body + behind)
            await provider.stats.wait_until(lambda: len(provider.requests) == 1)
            if model != "no-answer":
                assert b" 200 " in await stream.receive_some()
            left = trio.current_time()
            LEAVES[way](stream)
            with trio.fail_after(10):
                await provider.stats.wait_until(lambda: provider.open_connections == 0)
            assert provider.closed_early[0].time - left <= 2.0
            await settled(edge)


async def test_a_pipelining_caller_who_stays_gets_both_answers(tmp_path: Path) -> None:
    """Although it is looked at many times meanwhile."""
    slow = Script(pace=Pace(chunk_ms=5))
    body = question()
    async with running_provider(slow) as provider:
        path = write_config(tmp_path, provider.base_url)
        async with running_edge(path) as edge, await edge.connect() as stream:
            await stream.send_all((head(len(body)) + body) * 2)
            received = b""
            with trio.fail_after(5):
                while received.count(b"[DONE]") < 2:
                    received += await stream.receive_some()
    assert received.count(b"HTTP/1.1 200") == 2
    assert received.index(b"[DONE]") < received.rindex(b"HTTP/1.1 200")


async def test_a_pipelining_caller_who_leaves_is_missed_over_tls(tmp_path: Path) -> None:
    """The socket under the encryption is the one that is looked at."""
    authority = trustme.CA()
    pem = tmp_path / "server.pem"
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(str(pem))
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)
    body = question()
    async with running_provider(FAST) as provider, trio.open_nursery() as nursery:
        tables = f'[server]\ntls_cert = "{pem}"\ntls_key = "{pem}"\n'
        path = write_config(tmp_path, provider.base_url, {"small": "no-answer"}, tables=tables)
        listener = open_listener(ServerConfig(bind="127.0.0.1:0"))
        port = listener.getsockname()[1]
        nursery.start_soon(serve, load_config(path, {}), listener)
        stream = await trio.open_ssl_over_tcp_stream("127.0.0.1", port, ssl_context=trusting)
        await stream.send_all((head(len(body)) + body) * 2)
        await provider.stats.wait_until(lambda: len(provider.requests) == 1)
        reset(stream.transport_stream)
        with trio.fail_after(10):
            await provider.stats.wait_until(lambda: provider.open_connections == 0)
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("way", LEAVES)
async def test_a_caller_who_leaves_an_idle_connection_leaves_nothing_behind(
    tmp_path: Path, way: str
) -> None:
    """Its task, and with it its descriptor, does not wait for the idle clock."""
    body = question(stream=False)
    async with running_provider(FAST) as provider:
        path = write_config(tmp_path, provider.base_url)
        async with running_edge(path, idle_seconds=60) as edge:
            assert (await ask(edge, body)).whole
            await eventually(lambda: len(edge.gateway.open) == 0)
            await trio.testing.wait_all_tasks_blocked(0.01)
            before = trio.lowlevel.current_statistics().tasks_living
            async with await edge.connect() as stream:
                await stream.send_all(head(len(body)) + body)
                assert (await read_answer(stream)).whole
                assert trio.lowlevel.current_statistics().tasks_living > before
                LEAVES[way](stream)
                await eventually(lambda: trio.lowlevel.current_statistics().tasks_living == before)


def test_an_unknown_release_of_the_server_is_left_as_it_is() -> None:
    """What was written for one release's inside is not put into another's."""

    def patched() -> tuple[object, ...]:
        return (
            TCPServer.run,
            TCPServer._read_data,
            H11Protocol.stream_send,
            TCPServer.protocol_send,
            TCPServer._idle_timeout,
            H2Protocol.stream_send,
            H2Protocol.handle,
            H2Protocol._handle_events,
            StreamBuffer.pop,
        )

    before = patched()
    with contained(lambda _: None, release="0.99.0") as known:
        assert not known
        assert patched() == before
    with contained(lambda _: None) as known:
        assert known
        assert not set(patched()) & set(before)
    assert patched() == before
