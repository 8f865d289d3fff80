"""The edges of HTTP on the provider's side: what a caller of the whole gateway gets, over loopback sockets."""

from __future__ import annotations

import gzip
import json
import socket
import zlib
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, Final

import brotli
import pytest
import trio

from ops.provider_connection import reset
from tests.assembly import read_stream
from tests.transport.edge import (
    Answer,
    Edge,
    ask,
    code_of,
    edge_before,
    head,
    question,
    running_edge,
    settled,
    write_config,
)
from tests.transport.servers import Handler, loopback, read_request, read_to_end
from transport.provider import HttpProvider

ONCE: Final = "[routes.default.recovery]\nattempts_max = 1\n"
TWICE: Final = "[routes.default.recovery]\nattempts_max = 2\nbackoff_seconds = 0.0\n"
NO_GRACE: Final = "[routes.default.clocks]\nlast_candidate_factor = 1.0\n"
HAS_IPV6: Final = Path("/proc/net/if_inet6").exists()

HEAD: Final = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
CHUNKED: Final = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
JSON_HEAD: Final = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"

Play = Callable[[trio.SocketStream], Awaitable[None]]


def event(delta: dict[str, str], finish: str | None = None) -> bytes:
    """One event of a chat stream."""
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    value = {"id": "c-1", "object": "chat.completion.chunk", "created": 7, "model": "m"}
    return b"data: " + json.dumps({**value, "choices": [choice]}).encode() + b"\n\n"


ROLE: Final = event({"role": "assistant", "content": ""})
WORDS: Final = [event({"content": word}) for word in ("The ", "tide ", "is in.")]
END: Final = event({}, "stop") + b"data: [DONE]\n\n"
STREAM: Final = [ROLE, *WORDS, END]
TEXT: Final = "The tide is in."
OBJECT: Final = json.dumps(
    {
        "id": "c-1",
        "object": "chat.completion",
        "created": 7,
        "model": "m",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": TEXT},
                "finish_reason": "stop",
            }
        ],
    }
).encode()


def chunks(*parts: bytes, last: bytes = b"0\r\n\r\n") -> bytes:
    """Parts of a body as chunks."""
    return b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts) + last


GOOD: Final = CHUNKED + chunks(*STREAM)
SIZED: Final = HEAD + b"Content-Length: %d\r\n\r\n" % len(b"".join(STREAM)) + b"".join(STREAM)


def connections(*plays: Play) -> Handler:
    """A provider whose n-th connection is the n-th play; the last one goes on. A gateway that hangs up ends a play."""
    coming = iter(plays)

    async def handle(stream: trio.SocketStream) -> None:
        try:
            await next(coming, plays[-1])(stream)
        except (EOFError, trio.BrokenResourceError):
            return

    return handle


def says(*answers: bytes | Sequence[bytes], stay: bool = True) -> Play:
    """Request, answer, request, answer; then the connection stays until the gateway closes it, or is closed."""

    async def play(stream: trio.SocketStream) -> None:
        for answer in answers:
            await read_request(stream)
            for piece in [answer] if isinstance(answer, bytes) else answer:
                await stream.send_all(piece)
        if stay:
            await read_to_end(stream)

    return play


def resets_after(sent: bytes) -> Play:
    """Sends so much of an answer, and resets the connection when that has been read."""

    async def play(stream: trio.SocketStream) -> None:
        await read_request(stream)
        await stream.send_all(sent)
        await trio.sleep(0.03)  # a reset overtakes what was not read yet
        reset(stream)

    return play


def provider_of(edge: Edge) -> HttpProvider:
    """The one provider of an edge."""
    provider = edge.gateway.pools["small"].targets[0].provider
    assert isinstance(provider, HttpProvider)
    return provider


def assert_told(answer: Answer) -> None:
    """The caller has the whole text, and a clean end."""
    assert (answer.status, answer.whole) == (200, True)
    said = read_stream(answer.body)
    assert said.clean
    assert said.choices[0].text == TEXT


def assert_failed(answer: Answer, code: str, status: int = 502) -> None:
    """The caller has an envelope with its own status, and nothing of the answer."""
    assert (answer.status, answer.whole, code_of(answer.body)) == (status, True, code)


def assert_broken(answer: Answer, code: str, text: str) -> None:
    """The caller has the beginning of the text, and the error in the stream."""
    assert (answer.status, answer.whole) == (200, True)
    said = read_stream(answer.body)
    assert not said.clean
    assert said.error["code"] == code
    assert said.choices[0].text == text
    assert said.choices[0].finishes == []


async def answered(
    handler: Handler, folder: Path, *, tables: str = ONCE, stream: bool = True
) -> Answer:
    """What a caller gets; afterwards nothing is held, and no connection is in use."""
    async with edge_before(handler, folder, tables=tables) as edge:
        answer = await ask(edge, question(stream=stream))
        await settled(edge)
        provider = provider_of(edge)
        assert provider.connections_open == provider.transport.connections_idle
    return answer


# --- connections ---------------------------------------------------------------------------------


async def test_a_connection_that_dies_as_it_is_used_again_costs_no_attempt(tmp_path: Path) -> None:
    """The provider closed it while the request was on its way: sent once more for free, and counted."""

    async def answers_once(stream: trio.SocketStream) -> None:
        await says(GOOD, stay=False)(stream)
        await read_request(stream)

    handler = connections(answers_once, says(GOOD))
    async with edge_before(handler, tmp_path, tables=ONCE) as edge:
        first, second = await ask(edge, question()), await ask(edge, question())
        assert provider_of(edge).stale_retries == 1
    for answer in (first, second):
        assert_told(answer)
        assert answer.headers["x-tidegate-attempts"] == "1"


async def test_the_free_retry_is_one_and_only_one(tmp_path: Path) -> None:
    """The new connection dies as well: now it is a failed attempt."""

    async def answers_once(stream: trio.SocketStream) -> None:
        await says(GOOD, stay=False)(stream)
        await read_request(stream)

    async def dies(stream: trio.SocketStream) -> None:
        await read_request(stream)

    async with edge_before(connections(answers_once, dies), tmp_path, tables=ONCE) as edge:
        assert_told(await ask(edge, question()))
        failed = await ask(edge, question())
        assert provider_of(edge).stale_retries == 1
    assert_failed(failed, "provider_reset")
    assert failed.headers["x-tidegate-attempts"] == "1"


async def test_a_provider_that_closes_between_requests_is_not_asked_on_a_dead_connection(
    tmp_path: Path,
) -> None:
    """The close is seen before anything is sent: no retry, no attempt."""
    async with edge_before(connections(says(GOOD, stay=False)), tmp_path, tables=ONCE) as edge:
        for _ in range(3):
            answer = await ask(edge, question())
            assert_told(answer)
            assert answer.headers["x-tidegate-attempts"] == "1"
            await trio.sleep(0.01)  # its FIN is on its way
        assert provider_of(edge).stale_retries == 0


@pytest.mark.parametrize("told", [b"Connection: close\r\n", b"connection: Keep-Alive, Close\r\n"])
async def test_a_provider_that_says_close_is_left_after_its_answer(
    tmp_path: Path, told: bytes
) -> None:
    """Even where it leaves the connection open; the next request opens another."""
    served = 0
    closing = GOOD.replace(b"\r\n", b"\r\n" + told, 1)

    async def count(stream: trio.SocketStream) -> None:
        nonlocal served
        served += 1
        await says(closing)(stream)

    async with edge_before(connections(count), tmp_path, tables=ONCE) as edge:
        for _ in range(2):
            assert_told(await ask(edge, question()))
            await settled(edge)
            assert provider_of(edge).connections_open == 0
    assert served == 2


# --- heads ---------------------------------------------------------------------------------------


async def test_interim_responses_and_trailers_are_no_part_of_the_answer(tmp_path: Path) -> None:
    """100 and 103 before the head, fields behind the last chunk; the connection serves on."""
    interim = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n"
    trailed = CHUNKED + chunks(*STREAM, last=b"0\r\nX-Sum: secret\r\nX-More: 1\r\n\r\n")
    handler = connections(says(interim + trailed, GOOD))
    async with edge_before(handler, tmp_path, tables=ONCE) as edge:
        for _ in range(2):
            answer = await ask(edge, question())
            assert_told(answer)
            assert not {"link", "x-sum", "x-more"} & answer.headers.keys()
        assert provider_of(edge).connections_open == 1


@pytest.mark.parametrize(
    "flood", [b"X-Flood: " + b"a" * 70_000, b"X-Flood: a\r\n" * 8_000], ids=["one", "many"]
)
async def test_a_flood_of_headers_ends_the_attempt(tmp_path: Path, flood: bytes) -> None:
    """Beyond 64 KiB nobody waits for the head's end."""
    handler = connections(says(b"HTTP/1.1 200 OK\r\n" + flood))
    assert_failed(await answered(handler, tmp_path), "malformed_event")


async def test_headers_that_come_byte_by_byte_run_into_the_headers_clock(tmp_path: Path) -> None:
    """Bytes are no head."""

    async def dribbles(stream: trio.SocketStream) -> None:
        await read_request(stream)
        await stream.send_all(b"HTTP/1.1 200 OK\r\nX: ")
        while True:
            await stream.send_all(b"a")
            await trio.sleep(0.02)

    tables = ONCE + NO_GRACE + "headers_seconds = 0.2\n"
    began = trio.current_time()
    answer = await answered(connections(dribbles), tmp_path, tables=tables)
    assert_failed(answer, "headers_timeout")
    assert 0.15 <= trio.current_time() - began <= 10.0


@pytest.mark.parametrize("status", [b"301 Moved", b"302 Found", b"307 Temporary", b"308 Permanent"])
async def test_a_redirect_is_not_followed_nor_shown(tmp_path: Path, status: bytes) -> None:
    """Whoever can answer for a provider can't send the prompt elsewhere."""
    visits: list[bytes] = []

    async def elsewhere(stream: trio.SocketStream) -> None:
        visits.append(await read_request(stream))

    async with loopback(connections(elsewhere)) as port:
        place = b"http://127.0.0.1:%d/v1/chat/completions" % port
        raw = b"HTTP/1.1 %b\r\nLocation: %b\r\nContent-Length: 0\r\n\r\n" % (status, place)
        answer = await answered(connections(says(raw)), tmp_path)
    assert_failed(answer, "provider_answer")
    assert "location" not in answer.headers
    assert b"127.0.0.1" not in answer.body
    assert visits == []


@pytest.mark.parametrize(
    "raw",
    [
        b"HTTP/1.1 204 No Content\r\n\r\n",
        b"HTTP/1.1 205 Reset Content\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 4\r\n\r\n<p/>",
    ],
    ids=["204", "205", "untyped", "html"],
)
@pytest.mark.parametrize("stream", [True, False], ids=["stream", "json"])
async def test_a_good_status_without_an_answer_is_a_failed_attempt(
    tmp_path: Path, raw: bytes, *, stream: bool
) -> None:
    """And the next one is asked for."""
    handler = connections(says(raw, raw))
    answer = await answered(handler, tmp_path, tables=TWICE, stream=stream)
    assert_failed(answer, "provider_answer")
    assert answer.headers["x-tidegate-attempts"] == "2"


# --- lengths and chunks --------------------------------------------------------------------------


async def test_a_stream_shorter_than_its_length_is_judged_by_its_own_end(tmp_path: Path) -> None:
    """With a finish it is whole whatever its length says; without, it was cut."""
    longer = HEAD + b"Content-Length: 99999\r\n\r\n"
    whole = await answered(connections(says(longer + b"".join(STREAM), stay=False)), tmp_path)
    assert_told(whole)
    cut = await answered(connections(says(longer + ROLE + WORDS[0], stay=False)), tmp_path)
    assert_broken(cut, "stream_cut", "The ")


async def test_a_stream_longer_than_its_length_ends_where_its_length_says(tmp_path: Path) -> None:
    """What comes behind is nobody's: not this answer's, and not the next one's."""
    body = ROLE + WORDS[0]
    shorter = HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body + b"".join(STREAM[2:])
    async with edge_before(connections(says(shorter), says(GOOD)), tmp_path, tables=ONCE) as edge:
        assert_broken(await ask(edge, question()), "missing_terminal", "The ")
        assert_told(await ask(edge, question()))


@pytest.mark.parametrize(
    ("length", "code"), [(len(OBJECT) + 1, "stream_cut"), (len(OBJECT) - 1, "malformed_event")]
)
async def test_an_object_with_a_wrong_length_is_no_answer(
    tmp_path: Path, length: int, code: str
) -> None:
    """Longer: it was cut. Shorter: what there is does not parse."""
    raw = JSON_HEAD + b"Content-Length: %d\r\n\r\n" % length + OBJECT
    answer = await answered(connections(says(raw, stay=False)), tmp_path, stream=False)
    assert_failed(answer, code)


MANY: Final = b"f" * 17  # a size of more than 64 bits
BAD_CHUNKS: Final = {
    "too large a number": MANY + b"\r\n",
    "negative": b"-5\r\nhello\r\n",
    "signed": b"+5\r\nhello\r\n",
    "prefixed": b"0x5\r\nhello\r\n",
    "no size": b"\r\nhello\r\n",
    "no number": b"zz\r\nhello\r\n",
    "no line end behind it": b"5\r\nhelloXX0\r\n\r\n",
    "an endless extension": b"5;" + b"a" * 140_000,
    "an endless size": b"0" * 140_000,
    "endless trailers": b"0\r\n" + b"A: b\r\n" * 23_000,
}


@pytest.mark.parametrize("name", BAD_CHUNKS)
async def test_a_bad_chunk_is_a_failed_attempt_before_a_release_and_an_error_in_the_stream_after(
    tmp_path: Path, name: str
) -> None:
    """Whatever it claims, nothing waits for it, and nothing is made up in its place."""
    held = connections(says(CHUNKED + chunks(ROLE, last=BAD_CHUNKS[name])))
    assert_failed(await answered(held, tmp_path), "malformed_event")
    shown = connections(says(CHUNKED + chunks(ROLE, WORDS[0], last=BAD_CHUNKS[name])))
    assert_broken(await answered(shown, tmp_path), "malformed_event", "The ")


async def test_a_huge_chunk_is_read_as_it_comes_and_extensions_are_nothing(tmp_path: Path) -> None:
    """A size of an exabyte holds no byte back; a connection that ends inside it was cut, but the answer had ended before."""
    huge = CHUNKED + b"fffffffffffffff;a=b\r\n" + b"".join(STREAM)
    assert_told(await answered(connections(says(huge, stay=False)), tmp_path))
    cut = CHUNKED + b"fffffffffffffff\r\n" + ROLE + WORDS[0]
    assert_broken(
        await answered(connections(says(cut, stay=False)), tmp_path), "stream_cut", "The "
    )


async def test_a_stream_that_comes_byte_by_byte_is_the_same_stream(tmp_path: Path) -> None:
    """Head, chunk lines, line ends and all."""

    async def dribbles(stream: trio.SocketStream) -> None:
        await read_request(stream)
        for at in range(len(GOOD)):
            await stream.send_all(GOOD[at : at + 1])
        await read_to_end(stream)

    dribbled = await answered(connections(dribbles), tmp_path)
    at_once = await answered(connections(says(GOOD)), tmp_path)
    assert_told(dribbled)
    assert dribbled.body == at_once.body


# --- resets --------------------------------------------------------------------------------------

BEFORE_RELEASE: Final = {
    "before the head": (b"", "provider_reset"),
    "inside the head": (b"HTTP/1.1 200 OK\r\nConte", "provider_reset"),
    "behind the head": (CHUNKED, "stream_cut"),
    "in held output": (CHUNKED + chunks(ROLE, last=b""), "stream_cut"),
    "inside an event": (CHUNKED + chunks(ROLE, WORDS[0][:-1], last=b""), "stream_cut"),
}


@pytest.mark.parametrize("phase", BEFORE_RELEASE)
async def test_a_reset_before_a_release_is_a_failed_attempt_and_the_next_one_answers(
    tmp_path: Path, phase: str
) -> None:
    """Nobody has seen anything: the caller gets the second answer, or an envelope."""
    sent, code = BEFORE_RELEASE[phase]
    assert_failed(await answered(connections(resets_after(sent)), tmp_path), code)
    handler = connections(resets_after(sent), says(GOOD))
    recovered = await answered(handler, tmp_path, tables=TWICE)
    assert_told(recovered)
    assert recovered.headers["x-tidegate-attempts"] == "2"


async def test_a_reset_after_a_release_is_told_in_the_stream(tmp_path: Path) -> None:
    """Never a second beginning, never a clean end."""
    handler = connections(resets_after(CHUNKED + chunks(ROLE, *WORDS[:2], last=b"")), says(GOOD))
    answer = await answered(handler, tmp_path, tables=TWICE)
    assert_broken(answer, "stream_cut", "The tide ")
    assert answer.headers["x-tidegate-attempts"] == "1"


async def test_a_reset_behind_the_finish_harms_nobody(tmp_path: Path) -> None:
    """The answer was complete."""
    sent = CHUNKED + chunks(*STREAM[:-1], event({}, "stop"), last=b"")
    assert_told(await answered(connections(resets_after(sent)), tmp_path))


# --- encodings that nobody asked for -------------------------------------------------------------


class Packer:
    """A compressor that flushes."""

    def __init__(self, coding: str) -> None:
        self._coding = coding
        self._zlib = zlib.compressobj(wbits=31)
        self._brotli = brotli.Compressor()

    def flushed(self, data: bytes) -> bytes:
        """`data`, compressed and flushed."""
        if self._coding == "br":
            return bytes(self._brotli.process(data) + self._brotli.flush())
        return self._zlib.compress(data) + self._zlib.flush(zlib.Z_SYNC_FLUSH)

    def end(self) -> bytes:
        """The end of the encoding."""
        return bytes(self._brotli.finish()) if self._coding == "br" else self._zlib.flush()


@pytest.mark.parametrize("coding", ["gzip", "br"])
async def test_a_compressed_stream_is_streamed_event_by_event(tmp_path: Path, coding: str) -> None:
    """The caller has the first word while the provider holds back the second."""
    go_on = trio.Event()
    asked: list[bytes] = []

    async def packs(stream: trio.SocketStream) -> None:
        asked.append(await read_request(stream))
        packer = Packer(coding)
        coded = HEAD + b"Content-Encoding: %b\r\nTransfer-Encoding: chunked\r\n\r\n"
        await stream.send_all(coded % coding.encode())
        await stream.send_all(chunks(packer.flushed(ROLE + WORDS[0]), last=b""))
        await go_on.wait()
        await stream.send_all(chunks(packer.flushed(b"".join(STREAM[2:])), packer.end()))

    body = question()
    async with (
        edge_before(connections(packs), tmp_path, tables=ONCE) as edge,
        await edge.connect() as stream,
    ):
        await stream.send_all(head(len(body)) + body)
        first = rest = b""
        with trio.fail_after(10):
            while b"The " not in first:
                first += await stream.receive_some()
            go_on.set()
            while not rest.endswith(b"\r\n0\r\n\r\n"):
                rest += await stream.receive_some()
    assert b"accept-encoding: identity\r\n" in asked[0]
    assert b"content-encoding" not in first.lower()
    assert b"is in." in rest
    assert b"[DONE]" in rest


def _brotli_bomb(data: bytes) -> bytes:
    return bytes(brotli.compress(data, quality=5))


@pytest.mark.parametrize(
    ("coding", "pack"),
    [("gzip", gzip.compress), ("br", _brotli_bomb)],
    ids=["gzip", "br"],
)
@pytest.mark.parametrize(
    ("stream", "code"), [(True, "malformed_event"), (False, "held_limit")], ids=["stream", "json"]
)
async def test_a_bomb_meets_the_limits_of_what_it_unpacks_to(
    tmp_path: Path, coding: str, pack: Callable[[bytes], bytes], code: str, *, stream: bool
) -> None:
    """64 MB in a few kilobytes: given up at the limit, with half of it still to come."""
    limits = "[limits]\nevent_bytes_max = 100_000\nheld_bytes_max = 200_000\n"
    bomb = pack(b'data: {"x":"' + bytes(67_108_864))
    assert len(bomb) < 100_000
    start = (HEAD if stream else JSON_HEAD) + b"Content-Encoding: %b\r\n" % coding.encode()
    raw = start + b"Content-Length: %d\r\n\r\n" % len(bomb) + bomb[: len(bomb) // 2]
    async with edge_before(connections(says(raw)), tmp_path, tables=limits + ONCE) as edge:
        answer = await ask(edge, question(stream=stream))
        await settled(edge)
        assert provider_of(edge).connections_open == 0
        assert edge.gateway.budget.peak < 500_000
    assert_failed(answer, code)


# --- addresses -----------------------------------------------------------------------------------


@pytest.mark.skipif(not HAS_IPV6, reason="no IPv6 here")
async def test_a_provider_at_an_ipv6_address_is_reached(tmp_path: Path) -> None:
    """And told its own name in brackets."""
    asked: list[bytes] = []

    async def note(stream: trio.SocketStream) -> None:
        asked.append(await read_request(stream))
        await stream.send_all(GOOD)

    async with edge_before(connections(note), tmp_path, host="::1") as edge:
        assert_told(await ask(edge, question()))
    assert b"\r\nhost: [::1]:" in asked[0]


class Resolver(trio.abc.HostnameResolver):
    """Knows one name, at several addresses."""

    def __init__(self, *addresses: str) -> None:
        self._addresses = addresses

    async def getaddrinfo(  # noqa: PLR0917 - the interface says so
        self,
        host: bytes | None,
        port: bytes | str | int | None,
        family: int = 0,
        type: int = 0,  # noqa: A002 - the interface says so
        proto: int = 0,
        flags: int = 0,
    ) -> Any:
        assert host == b"provider.test"
        found = []
        for address in self._addresses:
            kind = socket.AF_INET6 if ":" in address else socket.AF_INET
            place = (address, port, 0, 0) if ":" in address else (address, port)
            found.append((kind, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", place))
        return found

    async def getnameinfo(self, sockaddr: Any, flags: int) -> tuple[str, str]:
        raise NotImplementedError


@pytest.mark.parametrize("refused", ["127.0.0.2", "::1"])
async def test_a_provider_with_several_addresses_is_reached_by_the_one_that_answers(
    tmp_path: Path, refused: str
) -> None:
    """One family or one machine refuses; that is no failed attempt."""
    trio.socket.set_custom_hostname_resolver(Resolver(refused, "127.0.0.1"))
    async with loopback(connections(says(GOOD))) as port:
        path = write_config(tmp_path, f"http://provider.test:{port}/v1", tables=ONCE)
        async with running_edge(path) as edge:
            answer = await ask(edge, question())
    assert_told(answer)
    assert answer.headers["x-tidegate-attempts"] == "1"


async def test_a_proxy_of_the_environment_gets_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever shell the service was started from."""
    visits: list[bytes] = []

    async def proxy(stream: trio.SocketStream) -> None:
        visits.append(await read_request(stream))

    async with loopback(connections(proxy)) as port:
        for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{port}")
            monkeypatch.setenv(name.lower(), f"http://127.0.0.1:{port}")
        monkeypatch.delenv("NO_PROXY", raising=False)
        monkeypatch.delenv("no_proxy", raising=False)
        assert_told(await answered(connections(says(GOOD)), tmp_path))
    assert visits == []
