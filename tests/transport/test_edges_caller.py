"""The edges of HTTP on the caller's side, over loopback sockets: what is answered, what is closed, and what never reaches a provider."""

from __future__ import annotations

import io
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final

import h2.events
import pytest
import trio
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes

from ops.provider import RunningProvider, running_provider
from ops.provider_connection import reset
from ops.provider_script import Attempt, Ending, Pace, Repeat, Script, Write
from tests.assembly import read_stream
from tests.transport.edge import (
    CHAT,
    SMALL,
    Edge,
    Models,
    code_of,
    eventually,
    head,
    question,
    read_answer,
    running_edge,
    settled,
    write_config,
)

FAST: Final = Script(pace=Pace(chunk_ms=0))
BODY: Final = question()
SIZE: Final = len(BODY)
PAGE: Final = b"GET /healthz HTTP/1.1\r\nhost: gate\r\n\r\n"


@asynccontextmanager
async def edge_of(
    folder: Path, models: Models = SMALL, *, tables: str = ""
) -> AsyncIterator[tuple[Edge, RunningProvider]]:
    """An edge with a loopback provider behind it; in the end nothing is open, nothing is reserved, and nothing has crashed."""
    out = io.StringIO()
    async with running_provider(FAST) as provider:
        path = write_config(folder, provider.base_url, models, tables=tables)
        async with running_edge(path, log_out=out) as edge:
            yield edge, provider
            await settled(edge)
    said = {json.loads(line)["event"] for line in out.getvalue().splitlines()}
    assert not said & {"crashed", "connection_failed"}


async def everything(stream: trio.SocketStream) -> bytes:
    """What comes until the other side closes."""
    received = b""
    with trio.fail_after(10):
        try:
            while data := await stream.receive_some():
                received += data
        except trio.BrokenResourceError:
            pass
    return received


# --- bodies --------------------------------------------------------------------------------------


@pytest.mark.parametrize("sent", [b"", b"{", BODY[:-1]], ids=["none", "first byte", "all but one"])
@pytest.mark.parametrize("length", [SIZE, None], ids=["sized", "chunked"])
async def test_a_body_that_does_not_come_in_time_is_refused(
    tmp_path: Path, sent: bytes, length: int | None
) -> None:
    """However near its end it stopped; the connection is of no more use."""
    tables = "[limits]\nbody_seconds_max = 0.1"
    part = sent if length else b"%x\r\n%b\r\n" % (len(sent), sent) if sent else b""
    async with edge_of(tmp_path, tables=tables) as (edge, provider), await edge.connect() as stream:
        began = trio.current_time()
        await stream.send_all(head(length) + part)
        with trio.fail_after(10):
            answer = await read_answer(stream)
        assert 0.05 <= trio.current_time() - began <= 5.0
        assert (answer.status, code_of(answer.body)) == (408, "body_timeout")
        assert answer.headers["connection"] == "close"
        assert provider.stats.connections == 0


async def test_a_body_that_dribbles_is_not_slow_by_its_bytes_but_as_a_whole(tmp_path: Path) -> None:
    """A byte now and then buys no time."""
    tables = "[limits]\nbody_seconds_max = 0.2"
    async with edge_of(tmp_path, tables=tables) as (edge, _), await edge.connect() as stream:
        await stream.send_all(head(SIZE))
        began = trio.current_time()
        for at in range(20):
            await stream.send_all(BODY[at : at + 1])
            await trio.sleep(0.02)
        assert (await read_answer(stream)).status == 408
        assert trio.current_time() - began < 10


@pytest.mark.parametrize("way", ["fin", "rst"])
async def test_a_body_that_breaks_off_is_no_request(tmp_path: Path, way: str) -> None:
    """Shorter than its length says: nobody is asked; one that still listens is told."""
    async with edge_of(tmp_path) as (edge, provider):
        async with await edge.connect() as stream:
            await stream.send_all(head(SIZE) + BODY[:-1])
            await eventually(lambda: len(edge.gateway.open) == 1)
            if way == "rst":
                reset(stream)
            else:
                await stream.send_eof()
                assert (await everything(stream)).startswith(b"HTTP/1.1 400 ")
        await settled(edge)
        assert provider.stats.connections == 0


async def test_bytes_behind_a_body_are_not_part_of_it(tmp_path: Path) -> None:
    """The request is answered; what follows is no request, and ends the connection."""
    async with edge_of(tmp_path) as (edge, provider), await edge.connect() as stream:
        await stream.send_all(head(SIZE) + BODY + b'"stray": 1}\r\n\r\n')
        received = await everything(stream)
        assert len(provider.requests) == 1
        assert b"stray" not in provider.requests[0].body
    answer, _, rest = received.partition(b"\r\n0\r\n\r\n")
    assert answer.endswith(b"data: [DONE]\n\n")
    assert rest.startswith(b"HTTP/1.1 400 ")


BAD_CHUNKS: Final = {
    "no number": b"zz\r\n{}\r\n0\r\n\r\n",
    "negative": b"-2\r\n{}\r\n0\r\n\r\n",
    "prefixed": b"0x2\r\n{}\r\n0\r\n\r\n",
    "too large a number": b"f" * 30 + b"\r\n{}",
    "no line end behind it": b"2\r\n{}XX0\r\n\r\n",
    "an endless extension": b"2;" + b"a" * 200_000,
    "endless trailers": b"2\r\n{}\r\n0\r\n" + b"a: b\r\n" * 40_000,
}


@pytest.mark.parametrize("name", BAD_CHUNKS)
async def test_a_badly_chunked_body_is_no_request(tmp_path: Path, name: str) -> None:
    """400 or a closed connection, at once; nobody is asked."""
    async with edge_of(tmp_path) as (edge, provider), await edge.connect() as stream:
        with trio.fail_after(10):
            with suppress(trio.BrokenResourceError):  # refused before it was all sent
                await stream.send_all(head(None) + BAD_CHUNKS[name])
            received = await everything(stream)
        assert received == b"" or received.startswith((b"HTTP/1.1 400 ", b"HTTP/1.1 431 "))
        assert provider.stats.connections == 0


async def test_a_well_chunked_body_is_a_request_with_its_extensions_and_trailers(
    tmp_path: Path,
) -> None:
    """In chunks of one byte; the provider gets it with a length."""
    ones = b"".join(b"1;a=b\r\n%c\r\n" % byte for byte in BODY) + b"0\r\nx-sum: 1\r\n\r\n"
    async with edge_of(tmp_path) as (edge, provider), await edge.connect() as stream:
        await stream.send_all(head(None) + ones)
        answer = await read_answer(stream)
        assert read_stream(answer.body).clean
        assert dict(provider.requests[0].headers)["content-length"].isdigit()
        assert "x-sum" not in dict(provider.requests[0].headers)


async def test_a_caller_that_waits_for_100_is_told_to_go_on(tmp_path: Path) -> None:
    """Then it gets its answer."""
    async with edge_of(tmp_path) as (edge, _), await edge.connect() as stream:
        await stream.send_all(head(SIZE, "expect: 100-continue"))
        with trio.fail_after(10):
            assert (await stream.receive_some()).startswith(b"HTTP/1.1 100 ")
        await stream.send_all(BODY)
        answer = await read_answer(stream)
    assert read_stream(answer.body).clean


async def test_a_caller_that_asks_first_is_refused_unread(tmp_path: Path) -> None:
    """The server says 100 by itself; the refusal is there before any of the body."""
    async with edge_of(tmp_path) as (edge, _), await edge.connect() as stream:
        await stream.send_all(head(99_999_999_999, "expect: 100-continue"))
        with trio.fail_after(10):
            answer = await read_answer(stream)
    assert (answer.status, code_of(answer.body)) == (413, "body_too_large")


# --- one connection ------------------------------------------------------------------------------


async def test_three_hundred_requests_on_one_connection_leave_nothing_behind(
    tmp_path: Path,
) -> None:
    """Streams, objects and refusals in turn: each whole, each with its own id, and no descriptor more than before."""
    bodies = [question(stream=False), BODY, b"{"]
    ids = set()
    async with edge_of(tmp_path) as (edge, _), await edge.connect() as stream:
        before = 0
        for number in range(300):
            body = bodies[number % 3]
            await stream.send_all(head(len(body)) + body)
            answer = await read_answer(stream)
            assert (answer.whole, answer.status) == (True, 400 if body == b"{" else 200)
            ids.add(answer.headers["x-request-id"])
            if number == 10:
                before = len(os.listdir("/proc/self/fd"))
        # One more connection to the provider may be idle; it has two ends here.
        await eventually(lambda: len(os.listdir("/proc/self/fd")) <= before + 2)
    assert len(ids) == 300


async def test_requests_behind_each_other_are_answered_in_order(tmp_path: Path) -> None:
    """A stream, an object and a page, sent at once."""
    async with edge_of(tmp_path) as (edge, _), await edge.connect() as stream:
        whole = question(stream=False)
        await stream.send_all(head(SIZE) + BODY + head(len(whole)) + whole + PAGE)
        received = b""
        with trio.fail_after(10):
            while not received.endswith(b'{"status":"ok"}\n'):
                received += await stream.receive_some()
    first, second, third = received.split(b"HTTP/1.1 200 ")[1:]
    assert b"[DONE]" in first
    assert b'"chat.completion"' in second
    assert b"[DONE]" not in second + third


CLOSING: Final = {
    "stream": (head(SIZE, "connection: close") + BODY, 200),
    "refusal": (head(1, "connection: close") + b"{", 400),
    "door": (head(0, "connection: close", method="GET"), 405),
    "page": (head(0, "connection: close", method="GET", path="/healthz"), 200),
    "nothing": (head(0, "connection: close", method="GET", path="/nothing"), 404),
}


@pytest.mark.parametrize("name", CLOSING)
async def test_a_caller_that_says_close_is_let_go_after_its_answer(
    tmp_path: Path, name: str
) -> None:
    """Whoever wrote the answer, the server closes first."""
    sent, status = CLOSING[name]
    async with edge_of(tmp_path) as (edge, _), await edge.connect() as stream:
        await stream.send_all(sent)
        received = await everything(stream)
    assert received.startswith(b"HTTP/1.1 %d " % status)
    assert received.endswith((b"}", b"}\n", b"0\r\n\r\n"))


@pytest.mark.parametrize("fields", [(), ("connection: keep-alive",)], ids=["plain", "keep-alive"])
@pytest.mark.parametrize("stream", [True, False], ids=["stream", "json"])
async def test_http_1_0_gets_its_answer_without_chunks_and_a_closed_connection(
    tmp_path: Path, fields: tuple[str, ...], *, stream: bool
) -> None:
    """Whatever it says about the connection."""
    body = question(stream=stream)
    async with edge_of(tmp_path) as (edge, _), await edge.connect() as connection:
        await connection.send_all(head(len(body), *fields).replace(b"1.1", b"1.0", 1) + body)
        received = await everything(connection)
    start, _, content = received.partition(b"\r\n\r\n")
    assert start.startswith(b"HTTP/1.1 200 ")
    assert b"transfer-encoding" not in start.lower()
    assert b"connection: close" in start.lower()
    if stream:
        assert read_stream(content).clean
    else:
        assert json.loads(content)["object"] == "chat.completion"


@pytest.mark.parametrize("method", ["HEAD", "OPTIONS"])
@pytest.mark.parametrize("path", [CHAT, "/healthz", "/v1/models", "*"])
async def test_other_methods_leave_the_connection_usable(
    tmp_path: Path, method: str, path: str
) -> None:
    """An answer to HEAD has no body, so that the next answer begins where it should."""
    async with edge_of(tmp_path) as (edge, provider), await edge.connect() as stream:
        await stream.send_all(head(0, method=method, path=path))
        first = await read_answer(stream, method=method)
        assert first.status in {200, 204, 404, 405}
        assert (first.body == b"") or method == "OPTIONS"
        await stream.send_all(PAGE)
        assert (await read_answer(stream)).status == 200
        assert provider.stats.connections == 0


# --- leaving -------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", ["no-answer", "role-then-silence", "stall:3"])
async def test_a_half_close_counts_as_leaving(tmp_path: Path, model: str) -> None:
    """ASGI can't tell the two apart; the provider is let go at once."""
    async with (
        edge_of(tmp_path, {"small": model}) as (edge, provider),
        await edge.connect() as stream,
    ):
        await stream.send_all(head(SIZE) + BODY)
        await provider.stats.wait_until(lambda: len(provider.requests) == 1)
        left = trio.current_time()
        await stream.send_eof()
        with trio.fail_after(10):
            await provider.stats.wait_until(lambda: provider.open_connections == 0)
        assert provider.closed_early[0].time - left <= 2.0
        assert b"[DONE]" not in await everything(stream)


# --- smuggling -----------------------------------------------------------------------------------

SIZED: Final = b"content-length: %d\r\n" % SIZE
SMUGGLED: Final = {
    "two lengths": SIZED + b"content-length: 5\r\n",
    "a list of lengths": b"content-length: %d, 5\r\n" % SIZE,
    "a signed length": b"content-length: +%d\r\n" % SIZE,
    "a length with an underscore": b"content-length: 9_8\r\n",
    "a blank before the colon": b"content-length : %d\r\n" % SIZE,
    "a coding nobody knows": b"transfer-encoding: xchunked\r\n",
    "a coding behind chunked": b"transfer-encoding: chunked, identity\r\n",
    "a coding behind a vertical tab": b"transfer-encoding: \x0bchunked\r\n",
    "two codings": b"transfer-encoding: chunked\r\ntransfer-encoding: identity\r\n",
    "a NUL": SIZED + b"x: a\0b\r\n",
    "a bare CR": SIZED + b"x: a\rtransfer-encoding: chunked\r\n",
    "a name with a blank": SIZED + b"x y: a\r\n",
    "a line without a colon": SIZED + b"x\r\n",
    "two hosts": SIZED + b"host: other\r\n",
    "no name": SIZED + b": a\r\n",
}


@pytest.mark.parametrize("name", SMUGGLED)
async def test_a_head_that_two_servers_might_read_differently_is_refused(
    tmp_path: Path, name: str
) -> None:
    """And the connection closed: nothing behind it can be a request."""
    raw = b"POST %b HTTP/1.1\r\nhost: gate\r\n" % CHAT.encode() + SMUGGLED[name] + b"\r\n"
    async with edge_of(tmp_path) as (edge, provider), await edge.connect() as stream:
        await stream.send_all(raw + BODY + PAGE)
        received = await everything(stream)
        assert provider.stats.connections == 0
    assert received.startswith((b"HTTP/1.1 400 ", b"HTTP/1.1 501 "))
    assert received.count(b"HTTP/1.1 ") == 1


def twice_measured(path: str, *, coded_first: bool) -> bytes:
    """A request that is chunked, and has a length too: twenty bytes more than the body."""
    fields = [b"content-length: %d\r\n" % (SIZE + 20), b"transfer-encoding: chunked\r\n"]
    lines = b"".join(reversed(fields) if coded_first else fields)
    start = b"POST %b HTTP/1.1\r\nhost: gate\r\n" % path.encode()
    return start + lines + b"\r\n%x\r\n%b\r\n0\r\n\r\n" % (SIZE, BODY)


@pytest.mark.parametrize("coded_first", [True, False])
@pytest.mark.parametrize("path", [CHAT, "/v1/models", "/healthz"])
async def test_a_request_with_both_lengths_is_refused(
    tmp_path: Path, path: str, *, coded_first: bool
) -> None:
    """On every path, with its reason, and with the connection."""
    async with edge_of(tmp_path) as (edge, provider), await edge.connect() as stream:
        await stream.send_all(twice_measured(path, coded_first=coded_first))
        answer = await read_answer(stream)
        assert await everything(stream) == b""
        assert provider.stats.connections == 0
    assert (answer.status, code_of(answer.body)) == (400, "ambiguous_length")
    assert answer.headers["connection"] == "close"


@pytest.mark.parametrize("path", [CHAT, "/healthz"])
async def test_what_follows_a_request_with_both_lengths_is_not_heard(
    tmp_path: Path, path: str
) -> None:
    """A proxy that went by the other length has sent it as part of the body; it may well be a request."""
    async with edge_of(tmp_path) as (edge, provider), await edge.connect() as stream:
        smuggled = head(SIZE) + BODY + PAGE
        await stream.send_all(twice_measured(path, coded_first=False) + smuggled)
        received = await everything(stream)
        assert provider.stats.connections == 0
    assert received.count(b"HTTP/1.1 ") <= 1
    assert b" 200 " not in received


async def test_a_folded_field_stays_one_field(tmp_path: Path) -> None:
    """Obsolete, but legal to read: its parts are joined by a blank, and no new line begins anywhere behind us."""
    fold = ("openai-beta: a\r\n authorization: Bearer stolen", "x-request-id: mine\r\n\tother")
    async with edge_of(tmp_path) as (edge, provider), await edge.connect() as stream:
        await stream.send_all(head(SIZE, *fold) + BODY)
        answer = await read_answer(stream)
        named = dict(provider.requests[0].headers)
    assert answer.status == 200
    assert answer.headers["x-request-id"].startswith("tg-")
    assert named["openai-beta"] == "a authorization: Bearer stolen"
    assert "authorization" not in named


# --- HTTP/2 --------------------------------------------------------------------------------------


class Http2:
    """A caller that speaks HTTP/2 by prior knowledge."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self._stream = stream
        self.connection = H2Connection(H2Configuration())
        self.connection.initiate_connection()
        self.status = b""
        self.body = b""
        self.resets: list[int] = []
        self.ends: list[int] = []

    async def ask(self, body: bytes = BODY, *, path: str = CHAT) -> int:
        """Sends a request, for chat if nothing else is said; the number of its stream."""
        number = self.connection.get_next_available_stream_id()
        fields = {":method": "POST", ":path": path, ":scheme": "http", ":authority": "gate"}
        fields["content-length"] = str(len(body))
        self.connection.send_headers(number, list(fields.items()))
        self.connection.send_data(number, body, end_stream=True)
        await self.flush()
        return number

    async def flush(self) -> None:
        """Sends what is due."""
        await self._stream.send_all(self.connection.data_to_send())

    async def read(self) -> bool:
        """One read's worth; whether the answer is over."""
        over = False
        for event in self.connection.receive_data(await self._stream.receive_some()):
            if isinstance(event, h2.events.ResponseReceived):
                self.status = dict(event.headers)[b":status"]
            elif isinstance(event, h2.events.DataReceived):
                self.body += event.data
                self.connection.acknowledge_received_data(
                    event.flow_controlled_length, event.stream_id
                )
            elif isinstance(event, h2.events.StreamReset):
                self.resets.append(event.stream_id)
            elif isinstance(event, h2.events.StreamEnded):
                self.ends.append(event.stream_id)
            over = over or isinstance(event, h2.events.StreamEnded | h2.events.StreamReset)
        await self.flush()
        return over


async def test_a_stream_over_http_2_is_whole(tmp_path: Path) -> None:
    """Twice on one connection."""
    async with edge_of(tmp_path) as (edge, _), await edge.connect() as stream:
        caller = Http2(stream)
        for _ in range(2):
            caller.body = b""
            await caller.ask()
            with trio.fail_after(10):
                while not await caller.read():
                    pass
            assert caller.status == b"200"
            assert read_stream(caller.body).clean


@pytest.mark.parametrize("model", ["no-answer", "stall:3"])
async def test_a_reset_of_an_http_2_stream_lets_the_provider_go(tmp_path: Path, model: str) -> None:
    """The connection stays, the stream's exchange does not."""
    async with (
        edge_of(tmp_path, {"small": model}) as (edge, provider),
        await edge.connect() as stream,
    ):
        caller = Http2(stream)
        number = await caller.ask()
        await provider.stats.wait_until(lambda: len(provider.requests) == 1)
        with trio.fail_after(10):
            while model != "no-answer" and not caller.body:
                await caller.read()
        left = trio.current_time()
        caller.connection.reset_stream(number, error_code=ErrorCodes.CANCEL)
        await caller.flush()
        with trio.fail_after(10):
            await provider.stats.wait_until(lambda: provider.open_connections == 0)
        assert provider.closed_early[0].time - left <= 2.0
        await settled(edge)


async def test_a_caller_over_http_2_that_never_reads_on_is_left(tmp_path: Path) -> None:
    """Its window never grows, so not a byte is unacknowledged and the kernel sees nothing; its next stream is served."""
    tables = '[server]\ncaller_write_seconds = 0.3\n[routes.default]\nfilters = ["empty"]'
    chunk = b'data: {"id":"1","choices":[{"index":0,"delta":{"content":"%b"}}]}\n\n' % (
        b"word " * 50
    )
    long = Attempt((Repeat(chunk, 100_000), Ending.CLOSE))
    last = (
        b'data: {"id":"1","choices":[{"index":0,"delta":{"content":"In."},"finish_reason":"stop"}]}'
    )
    short = Attempt((Write(last + b"\n\ndata: [DONE]\n\n"), Ending.CLOSE))
    out = io.StringIO()
    async with running_provider(Script(attempts=(long, short))) as provider:
        path = write_config(tmp_path, provider.base_url, tables=tables)
        async with running_edge(path, log_out=out) as edge, await edge.connect() as stream:
            caller = Http2(stream)
            stuck = await caller.ask()
            began = trio.current_time()
            await provider.stats.wait_until(lambda: len(provider.requests) == 1)
            with trio.fail_after(10):
                await edge.gateway.open.wait_empty()
                await provider.stats.wait_until(lambda: provider.open_connections == 0)
            assert 0.3 <= trio.current_time() - began <= 10.0
            assert edge.gateway.budget.used == 0
            caller.connection.increment_flow_control_window(2**20)
            with trio.fail_after(10):
                while not await caller.read():
                    pass
            assert caller.resets == [stuck]
            caller.body = b""
            await caller.ask()
            with trio.fail_after(10):
                while not await caller.read():
                    pass
            assert read_stream(caller.body).clean
    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    assert [line["code"] for line in lines if "framing" in line] == ["caller_too_slow"]
