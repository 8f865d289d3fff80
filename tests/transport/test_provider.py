"""`transport.provider`: what a provider is sent and what the actor gets, over in-memory wires and real sockets."""

from __future__ import annotations

import gc
import gzip
import socket
import ssl
import weakref
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
import trio
import trio.testing
import trustme

from actors.ports import Provider, UpstreamRequest
from gate.errors import UpstreamFailed, UpstreamFault
from ops.provider_connection import reset
from tests.transport.servers import (
    CancelAtStep,
    Handler,
    MemoryEnd,
    MemoryNet,
    Script,
    answers,
    loopback,
    read_request,
    read_to_end,
)
from transport.http1 import Http1Transport
from transport.provider import HttpProvider

HEAD = b"HTTP/1.1 200 OK\r\n"
FIVE = HEAD + b"Content-Length: 5\r\nX-Name: Value\r\n\r\nhello"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
HOSTS = ["127.0.0.1", "::1"] if Path("/proc/net/if_inet6").exists() else ["127.0.0.1"]


def _upstream(*slices: bytes | memoryview, path: str = "/chat/completions") -> UpstreamRequest:
    fields = ((b"content-type", b"application/json"), (b"x-request-id", b"ex-1"))
    return UpstreamRequest(path, fields, slices, sum(map(len, slices)))


def _nobody() -> None:
    """Nobody asked for the connection."""


async def _ask(provider: Provider, request: UpstreamRequest | None = None) -> bytes:
    """One whole attempt."""
    body = b""
    async with provider.attempt(request or _upstream(b"{}"), on_connected=_nobody) as answer:
        while data := await answer.read():
            body += data
    return body


@asynccontextmanager
async def _memory_provider(
    *scripts: Script, api_key: str | None = None, headers: dict[str, str] | None = None
) -> AsyncIterator[tuple[HttpProvider, MemoryNet]]:
    net = MemoryNet()
    async with (
        trio.open_nursery() as nursery,
        HttpProvider(
            name="local",
            base_url="http://[::1]:8000/v1/",
            api_key=api_key,
            headers=headers,
            transport=Http1Transport(net),
        ) as provider,
    ):
        await nursery.start(net.serve, *scripts)
        yield provider, net
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def _socket_provider(
    handler: Handler, *, host: str = "127.0.0.1"
) -> AsyncIterator[HttpProvider]:
    shown = f"[{host}]" if ":" in host else host
    async with (
        loopback(handler, host=host) as port,
        HttpProvider(name="local", base_url=f"http://{shown}:{port}/v1") as provider,
    ):
        yield provider
        assert provider.connections_open <= 1
    assert provider.connections_open == 0


async def _fault(provider: Provider) -> UpstreamFault:
    with pytest.raises(UpstreamFailed) as caught:
        await _ask(provider)
    return caught.value.fault


async def test_the_head_is_ours_and_nothing_else_goes_on() -> None:
    """The actor's headers, the key, the static ones, and what framing needs: no trace of a library."""
    seen: list[bytes] = []

    async def note(stream: MemoryEnd) -> None:
        seen.append(await read_request(stream))
        await stream.send_all(FIVE)

    headers = {"X-Team": "a", "User-Agent": "other"}
    async with _memory_provider(note, api_key="secret", headers=headers) as (provider, _):
        assert await _ask(provider, _upstream(b'{"model":', memoryview(b'"m"'), b"}")) == b"hello"
        assert "secret" not in repr(provider)
    head, _, body = seen[0].partition(b"\r\n\r\n")
    assert body == b'{"model":"m"}'
    assert head.split(b"\r\n") == [
        b"POST /v1/chat/completions HTTP/1.1",
        b"host: [::1]:8000",
        b"content-type: application/json",
        b"x-request-id: ex-1",
        b"accept-encoding: identity",
        b"content-length: 13",
        b"authorization: Bearer secret",
        b"x-team: a",
        b"user-agent: other",
    ]


async def test_the_answer_shows_status_and_headers_in_lower_case() -> None:
    """`on_connected` is told before the head has come."""
    order: list[str] = []

    async def note(stream: MemoryEnd) -> None:
        await read_request(stream)
        order.append("request read")
        await stream.send_all(FIVE)

    async with _memory_provider(note) as (provider, _):
        port: Provider = provider
        told = partial(order.append, "connected")
        async with port.attempt(_upstream(b"{}"), on_connected=told) as answer:
            assert answer.status == 200
            assert list(answer.headers) == [(b"content-length", b"5"), (b"x-name", b"Value")]
    assert order == ["connected", "request read"]


@pytest.mark.parametrize("location", [b"http://elsewhere/", b"/here"])
async def test_a_redirect_is_not_followed(location: bytes) -> None:
    """It is an answer like any other."""
    raw = b"HTTP/1.1 307 Moved\r\nLocation: %b\r\nContent-Length: 0\r\n\r\n" % location
    async with _memory_provider(answers(raw)) as (provider, net):
        async with provider.attempt(_upstream(b"{}"), on_connected=_nobody) as answer:
            assert answer.status == 307
        assert net.opened == 1


async def test_a_redirect_to_nowhere_is_a_protocol_fault() -> None:
    """httpx looks at the place even if it doesn't go there; the connection is closed."""
    raw = b"HTTP/1.1 307 Moved\r\nLocation: http://x:y/\r\nContent-Length: 5\r\n\r\n"
    async with _memory_provider(answers(raw)) as (provider, net):
        assert await _fault(provider) is UpstreamFault.PROTOCOL
        assert net.open == 0


@pytest.mark.parametrize("coding", [b"zstd", b"gzip, br"])
async def test_a_coding_that_is_not_known_is_an_encoding_fault(coding: bytes) -> None:
    """We asked for identity; the connection is closed."""
    raw = HEAD + b"Content-Encoding: " + coding + b"\r\nContent-Length: 5\r\n\r\n"
    async with _memory_provider(answers(raw)) as (provider, net):
        assert await _fault(provider) is UpstreamFault.ENCODING
        assert net.open == 0


@pytest.mark.parametrize(
    ("coding", "body"), [(b"", b"hello"), (b"Identity", b"hello"), (b"gzip", b"")]
)
async def test_a_coding_that_leaves_nothing_to_decode_is_fine(coding: bytes, body: bytes) -> None:
    """It is none, or there is no body."""
    fields = b"Content-Encoding: %b\r\nContent-Length: %d\r\n\r\n" % (coding, len(body))
    async with _memory_provider(answers(HEAD + fields + body)) as (provider, _):
        assert await _ask(provider) == body


async def test_a_compressed_body_is_read_as_it_was_meant() -> None:
    """A provider that compresses all the same is inflated; the headers speak of what is read."""
    packed = gzip.compress(b"hello " * 50)
    fields = b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(packed)
    async with _memory_provider(answers(HEAD + fields + packed)) as (provider, _):
        assert await _ask(provider) == b"hello " * 50


async def test_cookies_are_not_kept() -> None:
    """One caller's request never carries what another's answer set."""
    seen: list[bytes] = []

    async def note(stream: MemoryEnd) -> None:
        for _ in range(2):
            seen.append(await read_request(stream))
            await stream.send_all(HEAD + b"Set-Cookie: a=b; Path=/\r\nContent-Length: 0\r\n\r\n")

    async with _memory_provider(note) as (provider, net):
        await _ask(provider)
        await _ask(provider)
        assert net.opened == 1
    assert b"cookie" not in seen[1].lower()


class _Slices(list[bytes]):
    """A body that can be watched as it goes."""


async def test_the_body_is_let_go_when_the_head_has_come() -> None:
    """Its lease is released then, so nothing below may keep the bytes, and no collector is waited for."""
    async with _memory_provider(
        answers(b"HTTP/1.1 307 Moved\r\nLocation: /x\r\nContent-Length: 5\r\n\r\n")
    ) as (
        provider,
        _,
    ):
        body = [_Slices([b"{}"])]
        held = weakref.ref(body[0])
        attempt = provider.attempt(UpstreamRequest("/x", (), body.pop(), 2), on_connected=_nobody)
        gc.disable()
        try:
            async with attempt:
                assert held() is None
        finally:
            gc.enable()


@pytest.mark.parametrize("path", ["/a b\n", "/ü"])
async def test_a_path_that_is_none_is_a_protocol_fault(path: str) -> None:
    """It never leaves us as it is."""
    async with _memory_provider() as (provider, net):
        with pytest.raises(UpstreamFailed, match="protocol"):
            await _ask(provider, _upstream(b"{}", path=path))
        assert net.opened == 0


@pytest.mark.parametrize(
    ("base_url", "headers"),
    [
        ("ftp://provider", {}),
        ("provider/v1", {}),
        ("http://x:y", {}),
        ("http://provider/v1?x=y", {}),
        ("http://user:word@provider/v1", {}),
        ("http://provider", {"Content-Length": "1"}),
        ("http://provider", {"a b": "c"}),
        ("http://provider", {"a": "b\r\nc: d"}),
        ("http://provider", {"a": "ü"}),
    ],
)
def test_a_provider_that_can_not_be_asked_is_refused(
    base_url: str, headers: dict[str, str]
) -> None:
    """At construction, not at the first attempt."""
    with pytest.raises(ValueError, match=r"base URL|static header"):
        HttpProvider(name="x", base_url=base_url, headers=headers)


async def _cancelled_at(step: int, provider: HttpProvider) -> bool:
    """Two attempts, the second on the connection of the first, cancelled at `step`; whether that came in time."""
    with trio.CancelScope() as scope:
        instrument = CancelAtStep(scope, step)
        trio.lowlevel.add_instrument(instrument)
        try:
            for _ in range(2):
                assert await _ask(provider, _upstream(b"x" * 300_000)) == b"a"
        finally:
            trio.lowlevel.remove_instrument(instrument)
    return scope.cancelled_caught


async def test_a_cancellation_at_any_step_leaves_no_open_connection() -> None:
    """When the cancelled task is out, every wire is closed, or idle after a complete body."""
    step, cancelled, idle_seen = 0, True, set()
    script = answers(*[[CHUNKED, b"1\r\na\r\n", b"0\r\n\r\n"]] * 2)
    while cancelled:
        step += 1
        async with _memory_provider(script) as (provider, net):
            cancelled = await _cancelled_at(step, provider)
            assert net.open == provider.connections_open == provider.transport.connections_idle
            idle_seen.add(net.open)
    assert step > 10
    assert idle_seen == {0, 1}


async def test_a_cancelled_attempt_is_closed_on_the_socket_within_100_ms() -> None:
    """The provider learns at once that nobody wants its tokens: while it thinks, and while it streams."""
    left = trio.Event()

    async def think_or_stream(stream: trio.SocketStream) -> None:
        request = await read_request(stream)
        if b"stream" in request:
            await stream.send_all(CHUNKED + b"5\r\nhello\r\n")
        await read_to_end(stream)
        left.set()

    async with _socket_provider(think_or_stream) as provider:
        for body in (b"think", b"stream"):
            with trio.move_on_after(0.05) as scope:
                await _ask(provider, _upstream(body))
            assert scope.cancelled_caught
            assert provider.connections_open == 0
            with trio.fail_after(10):
                await left.wait()
            left = trio.Event()


async def test_a_refused_connection_and_an_unknown_host_are_connect_faults() -> None:
    """`on_connected` is not told."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        for host in (f"127.0.0.1:{unused.getsockname()[1]}", "name.invalid", f"{'x' * 64}.invalid"):
            async with HttpProvider(name="x", base_url=f"http://{host}") as provider:
                assert await _fault(provider) is UpstreamFault.CONNECT
                assert provider.connections_open == 0


@pytest.mark.parametrize(
    ("sent", "fault"),
    [
        (b"", UpstreamFault.RESET),
        (b"HTTP/1.1 200", UpstreamFault.RESET),
        (CHUNKED + b"5\r\nhello\r\n", UpstreamFault.CUT),
        (HEAD + b"\r\nhello", UpstreamFault.CUT),
    ],
)
async def test_a_reset_is_told_by_the_phase_it_comes_in(sent: bytes, fault: UpstreamFault) -> None:
    """Before the head, inside it, and inside bodies: a body that ends with the connection doesn't end with a reset."""

    async def abort(stream: trio.SocketStream) -> None:
        await read_request(stream)
        await stream.send_all(sent)
        await trio.sleep(0.02)  # lets the client read: a reset overtakes what was sent
        reset(stream)

    async with _socket_provider(abort) as provider:
        assert await _fault(provider) is fault


@pytest.mark.parametrize("host", HOSTS)
async def test_a_server_that_closes_between_requests_costs_no_retry(host: str) -> None:
    """The closed connection is seen when it is taken; over IPv6 as well."""

    async def one_each(stream: trio.SocketStream) -> None:
        await read_request(stream)
        await stream.send_all(FIVE)

    async with _socket_provider(one_each, host=host) as provider:
        for _ in range(3):
            assert await _ask(provider) == b"hello"
            await trio.sleep(0.01)
        assert provider.stale_retries == 0


async def test_a_large_body_arrives_whole_and_an_early_refusal_of_it_is_heard() -> None:
    """8 MiB in slices; then the server answers 413 after the first bytes and closes."""
    size = 8_388_608
    received: list[int] = []

    async def swallow_then_refuse(stream: trio.SocketStream) -> None:
        received.append(len(await read_request(stream)))
        await stream.send_all(FIVE)
        await stream.receive_some()
        await stream.send_all(b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n")

    body = [memoryview(bytes(size))[start : start + 262_144] for start in range(0, size, 262_144)]
    async with _socket_provider(swallow_then_refuse) as provider:
        assert await _ask(provider, _upstream(*body)) == b"hello"
        async with provider.attempt(_upstream(*body), on_connected=_nobody) as answer:
            assert answer.status == 413
    assert received[0] > size


@pytest.mark.parametrize("trusted", [True, False])
async def test_a_provider_behind_tls_is_reached_only_if_its_certificate_is_good(
    tmp_path: Path, trusted: bool
) -> None:
    """Keep-alive works there too; a bad certificate is a connect fault."""
    authority = trustme.CA()
    (authority if trusted else trustme.CA()).cert_pem.write_to_path(tmp_path / "ca.pem")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(context)

    async def hello(stream: trio.SocketStream) -> None:
        secured = trio.SSLStream(stream, context, server_side=True, https_compatible=True)
        try:
            for _ in range(2):
                await read_request(secured)
                await secured.send_all(FIVE)
        except (EOFError, trio.BrokenResourceError):
            return

    async with loopback(hello) as port:
        base_url, ca = f"https://127.0.0.1:{port}/v1", str(tmp_path / "ca.pem")
        async with HttpProvider(name="x", base_url=base_url, ca=ca) as provider:
            if not trusted:
                assert await _fault(provider) is UpstreamFault.CONNECT
                return
            assert [await _ask(provider) for _ in range(2)] == [b"hello", b"hello"]
            assert provider.connections_open == 1
