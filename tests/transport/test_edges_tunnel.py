"""The tunnel over loopback sockets: bytes, heads, ends that are none, and the endpoints that are only relayed."""

from __future__ import annotations

import gzip
import io
import json
from pathlib import Path
from typing import Final

import pytest
import trio

from tests.transport.edge import (
    ask,
    asking,
    code_of,
    edge_before,
    eventually,
    head,
    question,
    read_answer,
    running_edge,
    settled,
    write_config,
)
from tests.transport.servers import Handler, loopback, read_request, read_to_end
from tests.transport.test_edges_upstream import (
    CHUNKED,
    OBJECT,
    ROLE,
    STREAM,
    WORDS,
    chunks,
    connections,
    resets_after,
    says,
)

TUNNEL: Final = 'path = "tunnel"'
ONCE: Final = "[routes.default.recovery]\nattempts_max = 1\n"
ENDS: Final = '[compat]\ntunnel_cut = "end"\n'
SPEECH: Final = json.dumps({"model": "small", "input": "Hi", "stream": True}).encode()
MP3: Final = b"HTTP/1.1 200 OK\r\nContent-Type: audio/mpeg\r\nTransfer-Encoding: chunked\r\n\r\n"


def echoed(data: bytes) -> bytes:
    """With the alias where the provider's name is."""
    return data.replace(b'"model": "m"', b'"model": "small"')


def as_json(*fields: bytes, data: bytes = OBJECT) -> bytes:
    """A JSON response with more fields in its head."""
    lines = [b"HTTP/1.1 200 OK", b"Content-Type: application/json", *fields]
    lines.append(b"Content-Length: %d" % len(data))
    return b"\r\n".join([*lines, b"", data])


async def test_the_bytes_and_the_head_of_a_stream(tmp_path: Path) -> None:
    """What belongs to one connection, to its encoding or to an account stays with the gateway."""
    fields = b"Connection: x-ratelimit-odd, keep-alive\r\nX-RateLimit-Odd: 1\r\nX-RateLimit-Remaining-Tokens: 9\r\nOpenAI-Version: 1\r\nOpenAI-Organization: org\r\n"
    fields += b"Set-Cookie: a=b\r\nServer: up\r\nX-Request-Id: theirs\r\nRetry-After: 1\r\n"
    answer = CHUNKED.replace(b"\r\n\r\n", b"\r\n" + fields + b"\r\n") + chunks(*STREAM)
    handler = connections(says(answer))
    async with edge_before(handler, tmp_path, provider=TUNNEL) as edge:
        got = await ask(edge, question(), "x-request-id: ours")
    assert (got.status, got.whole) == (200, True)
    assert got.body == echoed(b"".join(STREAM))
    ours = {"date", "server", "transfer-encoding"}
    assert {name: value for name, value in got.headers.items() if name not in ours} == {
        "content-type": "text/event-stream",
        "x-ratelimit-remaining-tokens": "9",
        "openai-version": "1",
        "retry-after": "1",
        "cache-control": "no-cache",
        "x-accel-buffering": "no",
        "x-request-id": "ours",
        "x-tidegate-attempts": "1",
    }


async def test_a_body_that_was_compressed_has_its_own_length(tmp_path: Path) -> None:
    """Inflated, renamed, and counted anew."""
    packed = gzip.compress(OBJECT)
    handler = connections(says(as_json(b"Content-Encoding: gzip", data=packed)))
    async with edge_before(handler, tmp_path, provider=TUNNEL) as edge:
        got = await ask(edge, question(stream=False))
    assert got.body == echoed(OBJECT)
    assert got.headers["content-length"] == str(len(got.body))
    assert "content-encoding" not in got.headers


async def test_a_reset_before_the_first_byte_is_made_good(tmp_path: Path) -> None:
    """By the same request again."""
    good = CHUNKED + chunks(*STREAM)
    handler = connections(resets_after(CHUNKED + chunks(ROLE, last=b"")), says(good))
    async with edge_before(handler, tmp_path, provider=TUNNEL) as edge:
        got = await ask(edge, question())
        await settled(edge)
    assert (got.body, got.whole) == (echoed(b"".join(STREAM)), True)
    assert got.headers["x-tidegate-attempts"] == "2"


async def test_a_reset_behind_it_is_told_by_an_event(tmp_path: Path) -> None:
    """And the response has a proper end, so that the event is read."""
    handler = connections(resets_after(CHUNKED + chunks(ROLE, *WORDS, last=b"")))
    async with edge_before(handler, tmp_path, provider=TUNNEL, tables=ONCE) as edge:
        got = await ask(edge, question())
    sent = echoed(b"".join([ROLE, *WORDS]))
    assert got.whole
    assert got.body.startswith(sent)
    assert code_of(got.body.removeprefix(sent + b"data: ")) == "stream_cut"


async def test_an_older_contract_ends_without_a_word(tmp_path: Path) -> None:
    """A clean end, as that one had it."""
    handler = connections(resets_after(CHUNKED + chunks(ROLE, *WORDS, last=b"")))
    async with edge_before(handler, tmp_path, provider=TUNNEL, tables=ONCE + ENDS) as edge:
        got = await ask(edge, question())
    assert (got.body, got.whole) == (echoed(b"".join([ROLE, *WORDS])), True)


async def test_where_no_event_could_be_read_the_response_is_broken_off(tmp_path: Path) -> None:
    """No last chunk: no client takes it for the whole; and nothing is logged as a fault of the server."""
    log = io.StringIO()
    handler = connections(resets_after(MP3 + chunks(b"\xff\xfb\x90", last=b"")))
    async with edge_before(handler, tmp_path, tables=ONCE, log_out=log) as edge:
        got = await ask(edge, SPEECH, path="/v1/audio/speech")
        await settled(edge)
    assert (got.status, got.body, got.whole) == (200, b"\xff\xfb\x90", False)
    assert got.headers["content-type"] == "audio/mpeg"
    assert "crashed" not in log.getvalue()
    assert '"stream_cut"' in log.getvalue()


async def test_the_provider_is_let_go_when_its_caller_leaves(tmp_path: Path) -> None:
    """As soon as on the other path."""
    left = trio.Event()

    async def endless(stream: trio.SocketStream) -> None:
        await read_request(stream)
        await stream.send_all(CHUNKED + chunks(ROLE, *WORDS, last=b""))
        await read_to_end(stream)
        left.set()

    async with edge_before(endless, tmp_path, provider=TUNNEL) as edge:
        async with asking(edge.port, question()) as stream:
            await stream.receive_some()
        await eventually(left.is_set)
        await settled(edge)


# --- endpoints that are only relayed -------------------------------------------------------------------


def remembering(seen: list[bytes], *answers: bytes) -> Handler:
    """A provider that writes down every request and gives the answers in turn, on whichever connection they are asked for."""
    coming = iter(answers)

    async def play(stream: trio.SocketStream) -> None:
        while True:
            seen.append(await read_request(stream))
            await stream.send_all(next(coming))

    return connections(play)


async def test_an_upload_is_relayed_and_sent_again(tmp_path: Path) -> None:
    """As an ordinary client makes it."""
    seen: list[bytes] = []
    busy = b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n"
    handler = remembering(seen, busy, as_json(data=b'{"text":"hi"}'))
    async with edge_before(handler, tmp_path) as edge, edge.client() as client:
        got = await client.post("/v1/audio/transcriptions", data={"model": "small"}, files={"file": ("a.wav", b"RIFF\0\xff" * 50_000, "audio/wav")})  # fmt: skip
    assert (got.status_code, got.json()) == (200, {"text": "hi"})
    first, second = (request.partition(b"\r\n\r\n")[2] for request in seen)
    assert first == second
    assert b'name="model"\r\n\r\nhealthy\r\n' in first
    assert seen[0].startswith(b"POST /v1/audio/transcriptions HTTP/1.1\r\n")


async def test_a_file_is_fetched_and_another_deleted(tmp_path: Path) -> None:
    """Other methods, with their query; no body, and no length of one."""
    seen: list[bytes] = []
    handler = remembering(seen, as_json(data=b"{}"), b"HTTP/1.1 204 No Content\r\n\r\n")
    async with edge_before(handler, tmp_path) as edge, edge.client() as client:
        got = await client.get("/v1/files/file-1/content?after=a%20b")
        assert (got.status_code, got.content) == (200, b"{}")
        got = await client.delete("/v1/files/file-1")
        assert (got.status_code, got.content) == (204, b"")
    lines = [request.partition(b"\r\n")[0] for request in seen]
    assert lines == [b"GET /v1/files/file-1/content?after=a%20b HTTP/1.1", b"DELETE /v1/files/file-1 HTTP/1.1"]  # fmt: skip
    assert b"content-length" not in b"".join(seen).lower()


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("PUT", "/v1/files/file-1", 405, "method_not_allowed"), ("GET", "/v1/chat/completions", 405, "method_not_allowed"),
        ("GET", "/v1/files/../../secrets", 404, "not_found"), ("GET", "/v1/files/%2e%2e/secrets", 404, "not_found"), ("GET", "/v1/files/a%2Fb", 404, "not_found"),
        ("GET", "/v1//files", 404, "not_found"), ("GET", "/v1", 404, "not_found"), ("GET", "/v1/", 404, "not_found"), ("DELETE", "/v1/models/small", 405, "method_not_allowed"),
        ("GET", "/v1/files?a=<b>", 400, "invalid_query"), ("GET", "/v2/files", 404, "not_found"),
    ],
)  # fmt: skip
async def test_what_is_not_relayed(
    tmp_path: Path, method: str, path: str, status: int, code: str
) -> None:
    """Methods and paths that no endpoint has, and spellings that a provider might read in another way than they were looked at."""
    async with edge_before(remembering([]), tmp_path) as edge, await edge.connect() as stream:
        await stream.send_all(head(0, method=method, path=path))
        with trio.fail_after(5):
            got = await read_answer(stream)
    assert (got.status, code_of(got.body)) == (status, code)


async def test_a_key_opens_the_other_endpoints_too(tmp_path: Path) -> None:
    """None without one; and one that may use a single alias need not name it."""
    tables = '[[keys]]\nname = "a"\nkey_env = "KEY"\nmodels = ["small"]\n'
    models = {"small": "m", "large": "l"}
    async with loopback(remembering([], as_json(data=b"{}"))) as port:
        path = write_config(tmp_path, f"http://127.0.0.1:{port}/v1", models, tables=tables)
        async with running_edge(path, {"KEY": "sk-one"}) as edge, edge.client() as client:
            assert (await client.get("/v1/files")).status_code == 401
            got = await client.get("/v1/files", headers={"authorization": "Bearer sk-one"})
    assert (got.status_code, got.content) == (200, b"{}")
