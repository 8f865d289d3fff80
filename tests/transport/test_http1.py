"""`transport.http1`: framings, failures and keep-alive over in-memory wires."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import httpx
import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from gate.errors import UpstreamFailed, UpstreamFault
from tests.doubles import mapped
from tests.transport.servers import (
    MemoryEnd,
    MemoryNet,
    Script,
    answers,
    read_request,
)
from transport.http1 import EXTENSION, HEAD_BYTES_MAX, Answer, Http1Transport, Outgoing

HEAD = b"HTTP/1.1 200 OK\r\n"
FIVE = HEAD + b"Content-Length: 5\r\n\r\nhello"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"

FRAMINGS = {
    "content length": (FIVE, b"hello", True),
    "content length zero": (HEAD + b"Content-Length: 0\r\n\r\n", b"", True),
    "chunked": (CHUNKED + b"2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n", b"hello", True),
    "chunk extensions and trailers": (
        CHUNKED + b"5;a=b\r\nhello\r\n0\r\nX-T: 1\r\n\r\n",
        b"hello",
        True,
    ),
    "no content": (b"HTTP/1.1 204 No Content\r\n\r\n", b"", True),
    "not modified": (b"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n", b"", True),
    "interim responses": (
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 E\r\nA: b\r\n\r\n" + FIVE,
        b"hello",
        True,
    ),
    "no reason phrase": (b"HTTP/1.1 200\r\nContent-Length: 5\r\n\r\nhello", b"hello", True),
    "asked to close": (
        HEAD + b"Connection: close\r\nContent-Length: 5\r\n\r\nhello",
        b"hello",
        False,
    ),
    "HTTP/1.0": (b"HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nhello", b"hello", False),
}
UNTIL_THE_CLOSE = {
    "HTTP/1.0": b"HTTP/1.0 200 OK\r\n\r\n",
    "HTTP/1.1": HEAD + b"\r\n",
    "identity": HEAD + b"Transfer-Encoding: identity\r\n\r\n",
}


def _request(
    *slices: bytes | memoryview, method: str = "POST", headers: dict[str, str] | None = None
) -> httpx.Request:
    size = sum(map(len, slices))
    return httpx.Request(
        method,
        "http://provider/v1/x?y",
        headers={"host": "provider", "content-length": str(size)} | (headers or {}),
        stream=httpx.ByteStream(b""),
        extensions={EXTENSION: Outgoing(slices, lambda: None)},
    )


async def _send(transport: Http1Transport, request: httpx.Request | None = None) -> Answer:
    response = await transport.handle_async_request(request or _request(b"{}"))
    answer = response.extensions[EXTENSION]
    assert isinstance(answer, Answer)
    return answer


async def _read_all(answer: Answer) -> bytes:
    body = b""
    while data := await answer.read():
        body += data
    assert await answer.read() == b""
    return body


async def _ask_once(response: Iterable[bytes]) -> tuple[Answer, bytes, MemoryNet, Http1Transport]:
    net = MemoryNet()
    transport = Http1Transport(net)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(net.serve, answers(response, close=True))
        answer = await _send(transport)
        body = await _read_all(answer)
    answer.close()
    return answer, body, net, transport


async def _fault(script: Script, *, reads: int = 0) -> UpstreamFailed:
    """What a request fails with after `reads` good reads, 0: before there is an answer; by then the wire has to be closed."""
    net = MemoryNet()
    transport = Http1Transport(net)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(net.serve, script)
        with pytest.raises(UpstreamFailed) as caught:  # noqa: PT012 - one story
            answer = await _send(transport)
            for _ in range(reads and reads + 1):
                assert await answer.read()
        assert net.open == transport.connections_open == 0
        nursery.cancel_scope.cancel()
    return caught.value


@pytest.mark.parametrize("at_a_time", [1, 7, 10_000])
@pytest.mark.parametrize("name", FRAMINGS)
async def test_every_framing_is_read_to_its_end(name: str, at_a_time: int) -> None:
    """In one piece or byte for byte; the connection survives only where both sides let it."""
    raw, expected, survives = FRAMINGS[name]
    pieces = [raw[at : at + at_a_time] for at in range(0, len(raw), at_a_time)]
    answer, body, net, transport = await _ask_once(pieces)
    assert body == expected
    assert all(key == key.lower() and key != b"x-t" for key, _ in answer.headers)
    assert net.open == transport.connections_open == transport.connections_idle == survives


@pytest.mark.parametrize("name", UNTIL_THE_CLOSE)
async def test_a_body_that_only_the_close_ends_says_so(name: str) -> None:
    """All of it is read before; and every read after that says so again."""
    net = MemoryNet()
    transport = Http1Transport(net)
    async with trio.open_nursery() as nursery:
        head = UNTIL_THE_CLOSE[name]
        nursery.start_soon(net.serve, answers([head + b"he", b"llo"], close=True))
        answer = await _send(transport)
        assert await answer.read() + await answer.read() == b"hello"
        for _ in range(2):
            with pytest.raises(UpstreamFailed) as caught:
                await answer.read()
            assert caught.value.fault is UpstreamFault.CLOSED
    assert net.open == transport.connections_open == 0


@given(
    st.lists(st.binary(min_size=1, max_size=40), max_size=8),
    st.lists(st.integers(1, 30), max_size=20),
)
async def test_cuts_between_reads_change_nothing(chunks: list[bytes], cuts: list[int]) -> None:
    """Chunks of any bytes, cut anywhere, give the same body."""
    raw = (
        CHUNKED + b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks) + b"0\r\n\r\n"
    )
    pieces = []
    for cut in cuts:
        pieces.append(raw[:cut])
        raw = raw[cut:]
    _, body, _, transport = await _ask_once([*filter(None, pieces), *([raw] if raw else [])])
    assert body == b"".join(chunks)
    assert transport.connections_idle == 1


async def test_a_read_gives_all_body_bytes_of_one_socket_read() -> None:
    """Batches are as the network made them: chunks of one read are joined, reads are not."""
    net = MemoryNet()
    pieces = [CHUNKED + b"1\r\na\r\n1\r\nb\r\n", b"1\r\nc\r\n1\r\n", b"d\r\n0\r\n\r\n"]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(net.serve, answers(pieces))
        answer = await _send(Http1Transport(net))
        assert [await answer.read() for _ in range(4)] == [b"ab", b"c", b"d", b""]


async def test_a_large_head_does_not_count_against_the_body() -> None:
    """Each has its own limit."""
    head = HEAD + b"Transfer-Encoding: chunked\r\nA: " + b"b" * (HEAD_BYTES_MAX - 500) + b"\r\n\r\n"
    _, body, _, _ = await _ask_once([head, b"5;" + b"c" * 1000, b"\r\nhello\r\n0\r\n\r\n"])
    assert body == b"hello"


async def test_a_head_answer_has_no_body() -> None:
    """Whatever length its head announces; such a connection is not used again."""
    net = MemoryNet()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(net.serve, answers(HEAD + b"Content-Length: 5\r\n\r\n"))
        answer = await _send(Http1Transport(net), _request(method="HEAD"))
        assert not answer.has_body
        assert await answer.read() == b""
    assert net.open == 0


@pytest.mark.parametrize(
    "raw",
    [
        b"SSH-2.0-OpenSSH\r\n",
        b"HTTP/2.0 200 OK\r\n\r\n",
        b"HTTP/1.1 099 X\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n",
        HEAD + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        HEAD + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
        HEAD + b"Content-Length: -5\r\n\r\nhello",
        HEAD + b"A: b\r\n folded\r\n\r\n",
        HEAD + b"A: " + b"b" * HEAD_BYTES_MAX,
        HEAD + b"A: " + b"b" * HEAD_BYTES_MAX + b"\r\n\r\n",
        HEAD + b"A: b\r\n" * HEAD_BYTES_MAX + b"\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n" * 17 + FIVE,
    ],
)
async def test_a_head_that_is_malformed_or_too_large_is_a_protocol_fault(raw: bytes) -> None:
    """Known before anything of the answer is believed."""
    failure = await _fault(answers(raw))
    assert (failure.fault, failure.reused) == (UpstreamFault.PROTOCOL, False)


@pytest.mark.parametrize("coding", [b"gzip, chunked", b"chunked, gzip"])
async def test_a_transfer_coding_that_we_can_not_undo_is_an_encoding_fault(coding: bytes) -> None:
    """The parser would deliver it as it is."""
    failure = await _fault(answers(HEAD + b"Transfer-Encoding: " + coding + b"\r\n\r\n"))
    assert failure.fault is UpstreamFault.ENCODING


@pytest.mark.parametrize(
    ("raw", "fault"),
    [
        (HEAD + b"Content-Length: 9\r\n\r\nhello", UpstreamFault.CUT),
        (CHUNKED + b"5\r\nhello\r\n", UpstreamFault.CUT),
        (CHUNKED + b"5\r\nhello\r\nzz\r\n", UpstreamFault.PROTOCOL),
        (CHUNKED + b"5\r\nhello\r\n0\r\nA: " + b"b" * 140_000, UpstreamFault.PROTOCOL),
        (CHUNKED + b"5\r\nhello\r\n5;" + b"b" * 140_000, UpstreamFault.PROTOCOL),
    ],
)
async def test_a_body_that_does_not_end_as_it_should_fails_after_its_good_bytes(
    raw: bytes, fault: UpstreamFault
) -> None:
    """What came is evidence, what is missing is a fault, and what never ends is bounded."""
    assert (await _fault(answers(raw, close=True), reads=1)).fault is fault


@pytest.mark.parametrize("sent", [b"", b"HTTP/1.1 200"])
async def test_a_connection_lost_before_the_head_has_come_is_a_reset(sent: bytes) -> None:
    """On a fresh connection there is no second try."""
    failure = await _fault(answers(sent, close=True))
    assert (failure.fault, failure.reused) == (UpstreamFault.RESET, False)


async def test_a_connection_is_used_again_after_a_complete_body() -> None:
    """Three requests, one connection."""
    net = MemoryNet()
    transport = Http1Transport(net)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(net.serve, answers(*[FIVE] * 3))
        for _ in range(3):
            assert await _read_all(await _send(transport)) == b"hello"
    assert net.opened == net.open == 1
    await transport.aclose()
    assert net.open == transport.connections_open == 0


@pytest.mark.parametrize("surplus", [b"HTTP/1.1 200 OK\r\n\r\n", b"stray"])
async def test_bytes_behind_a_complete_body_are_ignored_and_end_the_connection(
    surplus: bytes,
) -> None:
    """They would be taken for the next answer."""
    _, body, net, _ = await _ask_once([FIVE + surplus])
    assert body == b"hello"
    assert net.open == 0


async def test_a_connection_that_the_request_asked_to_close_is_closed() -> None:
    """Both sides decide."""
    net = MemoryNet()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(net.serve, answers(FIVE))
        await _read_all(await _send(Http1Transport(net), _request(headers={"Connection": "Close"})))
    assert net.open == 0


async def test_leaving_early_closes_at_once_and_a_later_read_says_cut() -> None:
    """The close is what makes the provider stop."""
    net = MemoryNet()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(net.serve, answers(HEAD + b"Content-Length: 9\r\n\r\nhello"))
        answer = await _send(Http1Transport(net))
        answer.close()
        assert net.open == 0
        assert await answer.read() == b"hello"
        with pytest.raises(UpstreamFailed, match="cut"):
            await answer.read()


async def test_a_cancelled_read_closes_before_anyone_leaves() -> None:
    """Cancellation is a close by itself."""
    net = MemoryNet()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(net.serve, answers(CHUNKED))
        answer = await _send(Http1Transport(net))
        with trio.CancelScope() as scope:
            scope.cancel()
            await answer.read()
        assert net.open == 0


async def test_an_idle_connection_expires(autojump_clock: trio.testing.MockClock) -> None:
    """Before the server's own timer would close it under a request."""
    net = MemoryNet()
    transport = Http1Transport(net)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(net.serve, answers(FIVE), answers(FIVE))
        await _read_all(await _send(transport))
        await trio.sleep(15.0)
        await _read_all(await _send(transport))
    assert (net.opened, net.open, transport.stale_retries) == (2, 1, 0)


async def _hang_up(stream: MemoryEnd) -> None:
    await read_request(stream)
    await stream.aclose()


async def test_a_request_that_meets_a_dying_idle_connection_is_sent_again_once() -> None:
    """The server closed while the request was under way: a free retry, counted; `on_connected` is told once."""
    net = MemoryNet()
    transport = Http1Transport(net)
    told: list[int] = []
    request = _request()
    request.extensions[EXTENSION] = Outgoing((), lambda: told.append(net.opened))

    async def answer_once_then_hang_up(stream: MemoryEnd) -> None:
        await answers(FIVE)(stream)
        await _hang_up(stream)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(net.serve, answer_once_then_hang_up, _hang_up)
        await _read_all(await _send(transport))
        with pytest.raises(UpstreamFailed) as caught:
            await _send(transport, request)
    assert (caught.value.fault, caught.value.reused) == (UpstreamFault.RESET, False)
    assert (net.opened, net.open, transport.stale_retries, told) == (2, 0, 1, [1])


async def test_a_reused_connection_that_dies_inside_the_head_is_not_retried() -> None:
    """The server had begun to answer: the request was processed."""
    net = MemoryNet()
    transport = Http1Transport(net)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(net.serve, answers(FIVE, b"HTTP/1.1 2", close=True))
        await _read_all(await _send(transport))
        with pytest.raises(UpstreamFailed) as caught:
            await _send(transport)
    assert (caught.value.fault, caught.value.reused) == (UpstreamFault.RESET, True)
    assert (transport.stale_retries, net.open) == (0, 0)


async def test_an_answer_that_comes_before_the_body_was_written_is_read() -> None:
    """A 413 and a closed door: the failed write is no error, the connection is not used again."""
    net = MemoryNet()
    transport = Http1Transport(net)

    async def refuse(stream: MemoryEnd) -> None:
        await stream.send_all(b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n")
        stream.receive_stream.close()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(net.serve, refuse)
        await trio.testing.wait_all_tasks_blocked()
        answer = await _send(transport, _request(b"x" * 300_000, b"y" * 300_000))
        assert answer.status == 413
        assert await answer.read() == b""
    assert net.open == 0


async def test_a_request_is_written_in_few_pieces_and_its_large_slices_as_they_are() -> None:
    """Head and small slices together; a large slice is cut, never joined."""
    net = MemoryNet()
    seen: list[bytes] = []
    large = memoryview(mapped(b"b" * 300_000))
    slices: Sequence[bytes | memoryview] = (b"{", memoryview(b"model"), b"a" * 300_000, large, b"}")

    async def note(stream: MemoryEnd) -> None:
        seen.append(await read_request(stream))
        await stream.send_all(FIVE)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(net.serve, note)
        await _read_all(await _send(Http1Transport(net), _request(*slices)))
    head = b"POST /v1/x?y HTTP/1.1\r\nhost: provider\r\ncontent-length: 600007\r\n\r\n"
    assert seen == [head + b"".join(slices)]


@pytest.mark.parametrize(
    "request_",
    [
        _request(headers={"a": "b\r\nc: d"}),
        _request(headers={"a": "b\0"}),
        httpx.Request("GET", "ftp://provider/"),
        httpx.Request("POST", "http://provider/", stream=httpx.AsyncByteStream()),
    ],
)
async def test_a_request_that_is_not_ours_to_make_is_refused(request_: httpx.Request) -> None:
    """Nothing is opened for it."""
    net = MemoryNet()
    with pytest.raises(httpx.LocalProtocolError):
        await Http1Transport(net).handle_async_request(request_)
    assert net.opened == 0


async def test_an_ordinary_httpx_client_can_use_the_transport() -> None:
    """Bytes in, iterators out."""
    net = MemoryNet()
    async with (
        httpx.AsyncClient(transport=Http1Transport(net)) as client,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(net.serve, answers(FIVE, CHUNKED + b"2\r\nhi\r\n0\r\n\r\n"))
        assert (await client.post("http://provider/", content=b"x")).text == "hello"
        async with client.stream("GET", "http://provider/") as response:
            assert [piece async for piece in response.aiter_raw()] == [b"hi"]
    assert (net.opened, net.open) == (1, 0)
