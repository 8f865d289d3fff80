"""`transport.asgi`: the door, the lifespan, and what a caller sees of an exchange, over loopback sockets."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, cast

import pytest
import trio
from hypercorn.typing import ASGIReceiveCallable, ASGISendCallable, HTTPScope

from gate.refs import is_stable_token
from ops.provider import RunningProvider, running_provider
from ops.provider_connection import reset
from ops.provider_script import Pace, Script
from tests.transport.edge import (
    CHAT,
    SMALL,
    Edge,
    Models,
    code_of,
    eventually,
    head,
    lifespan,
    question,
    read_answer,
    running_edge,
    settled,
    write_config,
)
from transport.asgi import App, Unfinished
from transport.configfile import load_config

FAST: Final = Script(pace=Pace(chunk_ms=0))
BOTH: Final[Models] = {"small": "healthy", "large": "healthy"}
KEYS: Final = """
[[keys]]
name = "whole"
key_env = "WHOLE"
[[keys]]
name = "part"
key_env = "PART"
models = ["small"]
"""
SECRETS: Final = {"WHOLE": "sk-whole", "PART": "sk-part"}


@asynccontextmanager
async def edge_of(
    folder: Path, models: Models = SMALL, *, tables: str = "", env: Mapping[str, str] | None = None
) -> AsyncIterator[tuple[Edge, RunningProvider]]:
    """An edge with a loopback provider behind it."""
    async with running_provider(FAST) as provider:
        path = write_config(folder, provider.base_url, models, tables=tables)
        async with running_edge(path, env) as edge:
            yield edge, provider


async def test_an_answer_says_who_it_is_for_and_how_many_attempts_it_took(tmp_path: Path) -> None:
    """A JSON caller gets a body with its length, a request id of ours, and the count."""
    async with edge_of(tmp_path) as (edge, _), edge.client() as client:
        answer = await client.post(CHAT, content=question(stream=False))
        assert answer.status_code == 200
        assert answer.headers["content-type"] == "application/json"
        assert int(answer.headers["content-length"]) == len(answer.content)
        assert answer.headers["x-request-id"].startswith("tg-")
        assert answer.headers["x-tidegate-attempts"] == "1"
        assert answer.json()["model"] == "small"
        await settled(edge)


async def test_a_stream_has_the_headers_that_keep_proxies_from_holding_it(tmp_path: Path) -> None:
    """And it counts the attempt that failed before it."""
    async with (
        edge_of(tmp_path, {"small": ["503", "healthy"]}) as (edge, _),
        edge.client() as client,
    ):
        answer = await client.post(CHAT, content=question())
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert answer.headers["cache-control"] == "no-cache"
    assert answer.headers["x-accel-buffering"] == "no"
    assert int(answer.headers["x-tidegate-attempts"]) >= 2
    assert answer.content.endswith(b"data: [DONE]\n\n")


@pytest.mark.parametrize("given", ["mine-1", "a" * 128, "trace:7._"])
async def test_a_request_id_that_is_a_stable_token_is_kept(tmp_path: Path, given: str) -> None:
    """In an answer, in a refusal by the door, in one by the exchange, on a page, and at the provider."""
    async with edge_of(tmp_path) as (edge, provider), edge.client(x_request_id=given) as client:
        answers = [
            await client.post(CHAT, content=question()),
            await client.put(CHAT, content=b"{}"),
            await client.post(CHAT, content=b"{"),
            await client.get("/v1/models"),
        ]
    assert [answer.status_code for answer in answers] == [200, 405, 400, 200]
    assert [answer.headers["x-request-id"] for answer in answers] == [given] * 4
    assert provider.requests[0].header("x-request-id") == given


@pytest.mark.parametrize("given", ["Mine 1", "UPPER", "a" * 129, "a/b", ""])
async def test_a_request_id_that_could_not_be_logged_is_replaced(
    tmp_path: Path, given: str
) -> None:
    """On both sides of the edge, by a fresh one each."""
    async with edge_of(tmp_path) as (edge, _), edge.client(x_request_id=given) as client:
        answers = [await client.put(CHAT, content=b"{}"), await client.get("/nothing")]
    ids = [answer.headers["x-request-id"] for answer in answers]
    assert all(is_stable_token(each) for each in ids)
    assert len({*ids, given}) == 3


@pytest.mark.parametrize(
    ("body", "code", "param"),
    [
        (b"{", "invalid_json", None),
        (b"", "invalid_json", None),
        (b"[]", "invalid_body", None),
        (b'{"messages": [{}]}', "missing_required_parameter", "model"),
        (b'{"model": 7, "messages": [{}]}', "invalid_type", "model"),
        (b'{"model": "small"}', "missing_required_parameter", "messages"),
        (b'{"model": "small", "messages": {}}', "invalid_type", "messages"),
        (b'{"model": "small", "messages": [{}], "stream": "yes"}', "invalid_type", "stream"),
        (b'{"model": "small", "messages": [{}], "n": 0}', "invalid_value", "n"),
    ],
)
async def test_a_body_that_is_wrong_is_a_clear_400(
    tmp_path: Path, body: bytes, code: str, param: str | None
) -> None:
    """The provider is not troubled with it, and the connection goes on."""
    async with edge_of(tmp_path) as (edge, provider), edge.client() as client:
        answer = await client.post(CHAT, content=body)
        after = await client.post(CHAT, content=question(stream=False))
        assert provider.stats.connections == 1
    assert answer.status_code == 400
    assert answer.headers["content-type"] == "application/json"
    assert code_of(answer.content) == code
    assert answer.json()["error"]["param"] == param
    assert answer.json()["error"]["type"] == "invalid_request_error"
    assert after.status_code == 200


async def test_a_model_that_nobody_serves_is_a_404(tmp_path: Path) -> None:
    """With the parameter that is to blame."""
    async with edge_of(tmp_path) as (edge, _), edge.client() as client:
        answer = await client.post(CHAT, content=question("large"))
    assert answer.status_code == 404
    assert code_of(answer.content) == "model_not_found"
    assert answer.json()["error"]["param"] == "model"
    assert answer.headers["x-tidegate-attempts"] == "0"


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS", "PUT", "DELETE"])
async def test_the_supervised_route_takes_posts_only(tmp_path: Path, method: str) -> None:
    """Any other method is told which one is allowed."""
    async with edge_of(tmp_path) as (edge, _), edge.client() as client:
        answer = await client.request(method, CHAT)
    assert answer.status_code == 405
    assert answer.headers["allow"] == "POST"
    assert answer.headers["x-request-id"]
    if method == "HEAD":
        assert answer.content == b""
    else:
        assert code_of(answer.content) == "method_not_allowed"


async def test_a_large_body_reaches_the_provider_byte_for_byte(tmp_path: Path) -> None:
    """Collected, read and written in pieces; only the name of the model is another."""
    body = question()[:-1] + b',"user":"%b"}' % ("é\\n" * 400_000).encode()
    async with edge_of(tmp_path) as (edge, provider), edge.client() as client:
        answer = await client.post(CHAT, content=body)
        await settled(edge)
    assert answer.content.endswith(b"data: [DONE]\n\n")
    (asked,) = provider.requests
    assert asked.body == body.replace(b'"small"', b'"healthy"')


async def test_a_body_that_says_it_is_too_large_is_refused_unread(tmp_path: Path) -> None:
    """The answer comes to a caller that has sent the head and nothing else."""
    async with edge_of(tmp_path) as (edge, _), await edge.connect() as stream:
        await stream.send_all(head(33_554_433))
        with trio.fail_after(10):
            answer = await read_answer(stream)
    assert answer.status == 413
    assert answer.headers["connection"] == "close"
    assert code_of(answer.body) == "body_too_large"


async def test_a_chunked_body_is_refused_as_soon_as_it_is_too_large(tmp_path: Path) -> None:
    """Nothing says its size before; the caller is not done when the answer comes."""
    tables = "[limits]\nbody_bytes_max = 1000"
    async with edge_of(tmp_path, tables=tables) as (edge, _), await edge.connect() as stream:
        await stream.send_all(head(None) + b"3e8\r\n" + b" " * 1000 + b"\r\n")
        with trio.move_on_after(0.1) as patience:
            await stream.receive_some()
        assert patience.cancelled_caught
        await stream.send_all(b"1\r\n \r\n")
        with trio.fail_after(10):
            answer = await read_answer(stream)
    assert answer.status == 413
    assert answer.headers["connection"] == "close"
    assert code_of(answer.body) == "body_too_large"


async def test_an_ordinary_client_that_sends_far_too_much_still_reads_its_413(
    tmp_path: Path,
) -> None:
    """The rest of its body is read and dropped, so that no reset overtakes the answer."""
    tables = "[limits]\nbody_bytes_max = 1000"

    async def endless() -> AsyncIterator[bytes]:
        for _ in range(64):
            await trio.lowlevel.checkpoint()
            yield b" " * 65_536

    async with edge_of(tmp_path, tables=tables) as (edge, _), edge.client() as client:
        known = await client.post(CHAT, content=b" " * 4_194_304)
        chunked = await client.post(CHAT, content=endless())
    assert [known.status_code, chunked.status_code] == [413, 413]
    assert [code_of(known.content), code_of(chunked.content)] == ["body_too_large"] * 2


async def test_a_body_of_exactly_the_limit_is_served(tmp_path: Path) -> None:
    """The limit is a size that is allowed."""
    body = question(stream=False).ljust(1000)
    tables = "[limits]\nbody_bytes_max = 1000"
    async with edge_of(tmp_path, tables=tables) as (edge, _), edge.client() as client:
        assert (await client.post(CHAT, content=body)).status_code == 200
        assert (await client.post(CHAT, content=body + b" ")).status_code == 413


async def test_headers_beyond_their_limit_are_refused(tmp_path: Path) -> None:
    """Before the key is looked at."""
    tables = "[limits]\nheader_bytes_max = 2000\n" + KEYS
    async with (
        edge_of(tmp_path, tables=tables, env=SECRETS) as (edge, _),
        edge.client(x_long="a" * 2000) as client,
    ):
        answer = await client.post(CHAT, content=question())
    assert answer.status_code == 431
    assert answer.headers["connection"] == "close"
    assert code_of(answer.content) == "headers_too_large"


async def test_a_compressed_body_is_refused(tmp_path: Path) -> None:
    """What says that it is not compressed is taken."""
    async with edge_of(tmp_path) as (edge, _), edge.client() as client:
        zipped = await client.post(CHAT, content=b"x", headers={"content-encoding": "gzip"})
        plain = await client.post(
            CHAT, content=question(stream=False), headers={"content-encoding": "Identity"}
        )
    assert zipped.status_code == 415
    assert code_of(zipped.content) == "unsupported_encoding"
    assert plain.status_code == 200


@pytest.mark.parametrize(
    "given", ["", "Bearer", "Bearer wrong", "Bearer sk-whole2", "Basic sk-whole", "sk-whole"]
)
@pytest.mark.parametrize("path", [CHAT, "/v1/models", "/v1/models/small"])
async def test_without_a_valid_key_nothing_is_served(tmp_path: Path, path: str, given: str) -> None:
    """None, a wrong one, and one under another scheme are told the same."""
    async with (
        edge_of(tmp_path, tables=KEYS, env=SECRETS) as (edge, provider),
        edge.client(authorization=given) as client,
    ):
        answer = await client.request("POST" if path == CHAT else "GET", path)
        assert provider.stats.connections == 0
    assert answer.status_code == 401
    assert code_of(answer.content) == "invalid_api_key"
    assert answer.json()["error"]["type"] == "authentication_error"
    assert answer.headers["www-authenticate"] == "Bearer"
    assert answer.headers["x-request-id"]


@pytest.mark.parametrize("given", ["Bearer sk-whole", "bearer  sk-whole"])
async def test_a_key_without_a_list_may_use_every_model(tmp_path: Path, given: str) -> None:
    """The name of the scheme is not case sensitive; health needs no key."""
    async with (
        edge_of(tmp_path, BOTH, tables=KEYS, env=SECRETS) as (edge, _),
        edge.client(authorization=given) as client,
    ):
        listed = (await client.get("/v1/models")).json()
        used = await client.post(CHAT, content=question("large", stream=False))
        health = await client.get("/healthz", headers={"authorization": ""})
    assert [each["id"] for each in listed["data"]] == ["small", "large"]
    assert [used.status_code, health.status_code] == [200, 200]


async def test_a_key_with_a_list_sees_and_uses_nothing_else(tmp_path: Path) -> None:
    """Another model does not exist for it, in the list, on its page and in use."""
    async with (
        edge_of(tmp_path, BOTH, tables=KEYS, env=SECRETS) as (edge, _),
        edge.client(authorization="Bearer sk-part") as client,
    ):
        listed = (await client.get("/v1/models")).json()
        page = await client.get("/v1/models/large")
        refused = await client.post(CHAT, content=question("large"))
        used = await client.post(CHAT, content=question(stream=False))
    assert [each["id"] for each in listed["data"]] == ["small"]
    assert [page.status_code, refused.status_code, used.status_code] == [404, 404, 200]
    assert code_of(refused.content) == "model_not_found"


async def test_a_gate_that_drains_sends_new_callers_elsewhere(tmp_path: Path) -> None:
    """With the time to come again, and without the connection."""
    async with edge_of(tmp_path) as (edge, _), edge.client() as client:
        edge.gateway.draining = True
        answer = await client.post(CHAT, content=question())
        page = (await client.get("/metrics")).text
    assert 'tidegate_refusals_total{code="draining",status="503"} 1.0' in page
    assert answer.status_code == 503
    assert code_of(answer.content) == "draining"
    assert answer.headers["retry-after"] == "2"
    assert answer.headers["connection"] == "close"


async def test_a_gate_that_is_out_of_memory_says_so(tmp_path: Path) -> None:
    """One exchange fills it; the next is refused at once, and served when the first has left."""
    sizes = ("body", "event", "held", "exchange", "process")
    tables = "[limits]\n" + "\n".join(f"{each}_bytes_max = 100_000" for each in sizes)
    async with (
        edge_of(tmp_path, {"small": "healthy", "mute": "no-answer"}, tables=tables) as (
            edge,
            provider,
        ),
        edge.client() as client,
    ):
        async with await edge.connect() as stream:
            body = question("mute")
            await stream.send_all(head(len(body)) + body)
            await provider.stats.wait_until(lambda: len(provider.requests) == 1)
            answer = await client.post(CHAT, content=question())
        await settled(edge)
        page = (await client.get("/metrics")).text
        after = await client.post(CHAT, content=question())
    assert answer.status_code == 503
    assert code_of(answer.content) == "process_budget"
    assert 'tidegate_refusals_total{code="process_budget",status="503"} 1.0' in page
    assert answer.headers["retry-after"]
    assert after.status_code == 200


@pytest.mark.parametrize("ending", ["fin", "rst"])
@pytest.mark.parametrize(
    ("model", "streaming"),
    [("no-answer", False), ("role-then-silence", False), ("stall:3", True)],
    ids=["before headers", "held", "streaming"],
)
async def test_the_provider_is_let_go_when_the_caller_leaves(
    tmp_path: Path, model: str, streaming: bool, ending: str
) -> None:
    """At once in each phase, whichever way the caller goes; and nothing stays reserved."""
    body = question()
    async with edge_of(tmp_path, {"small": model}) as (edge, provider):
        stream = await edge.connect()
        await stream.send_all(head(len(body)) + body)
        await provider.stats.wait_until(lambda: len(provider.requests) == 1)
        if streaming:
            assert (await stream.receive_some()).startswith(b"HTTP/1.1 200")
        else:
            await trio.sleep(0.05)  # the provider's first bytes are on their way
        left = trio.current_time()
        if ending == "fin":
            await stream.aclose()
        else:
            reset(stream)
        with trio.fail_after(10):
            await provider.stats.wait_until(lambda: provider.open_connections == 0)
        assert provider.closed_early[0].time - left <= 2.0
        await settled(edge)


async def test_a_caller_that_leaves_within_its_body_leaves_nothing_behind(tmp_path: Path) -> None:
    """What was declared was reserved; it goes back."""
    async with edge_of(tmp_path) as (edge, provider):
        async with await edge.connect() as stream:
            await stream.send_all(head(1_000_000) + b"{")
            await eventually(lambda: edge.gateway.budget.used >= 1_000_000)
        await settled(edge)
        assert provider.stats.connections == 0


async def test_one_connection_serves_request_after_request(tmp_path: Path) -> None:
    """Streams, refusals and pages in turn."""
    body, wrong = question(), b"{"
    async with edge_of(tmp_path) as (edge, _), await edge.connect() as stream:
        answers = []
        for each in (body, wrong, body):
            await stream.send_all(head(len(each)) + each)
            answers.append(await read_answer(stream))
        await stream.send_all(head(0, method="GET", path="/healthz"))
        answers.append(await read_answer(stream))
    assert [answer.status for answer in answers] == [200, 400, 200, 200]
    assert all(answer.whole for answer in answers)


async def test_a_path_that_is_no_http_is_refused(tmp_path: Path) -> None:
    """There is no web socket here, and an upgrade does not hang."""
    fields = ("connection: upgrade", "upgrade: websocket", "sec-websocket-version: 13")
    key = "sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ=="
    async with edge_of(tmp_path) as (edge, _):
        for path in (CHAT, "/v1/responses", "/v1/realtime?model=small"):
            async with await edge.connect() as stream:
                await stream.send_all(head(0, *fields, key, method="GET", path=path))
                with trio.fail_after(5):
                    answer = await read_answer(stream)
            assert answer.status == 400
            assert code_of(answer.body) == "unsupported_websocket"
            assert answer.headers["x-request-id"]


# --- without a server ----------------------------------------------------------------------------


def http_scope(*headers: tuple[bytes, bytes]) -> HTTPScope:
    """A POST to the supervised route."""
    scope = {"type": "http", "method": "POST", "path": CHAT, "headers": list(headers)}
    return cast(HTTPScope, scope)


async def test_a_response_that_can_not_be_finished_is_a_cut(tmp_path: Path) -> None:
    """The server is told by an exception, so that it drops the connection and ends nothing cleanly."""
    parts = [{"type": "http.request", "body": question(), "more_body": False}]
    sent: list[dict[str, Any]] = []

    async def receive() -> Any:
        if not parts:
            await trio.sleep_forever()
        return parts.pop()

    async def send(message: dict[str, Any]) -> None:
        await trio.lowlevel.checkpoint()
        sent.append(message)
        if len(sent) == 3:
            raise RuntimeError("the server has failed")

    async with running_provider(FAST) as provider:
        path = write_config(tmp_path, provider.base_url)
        app = App(lambda: load_config(path, {}), owns_listener=True)
        async with lifespan(app):
            with pytest.raises(Unfinished, match="internal_error"):
                await app(
                    http_scope(), cast(ASGIReceiveCallable, receive), cast(ASGISendCallable, send)
                )
    assert sent[0]["status"] == 200
    assert all(message.get("more_body", True) for message in sent)


async def test_a_start_without_a_configuration_fails_with_what_to_set() -> None:
    """The server gets a sentence, and no exception."""
    async with lifespan(App(lambda: None)) as living:
        pass
    [said] = living.said
    assert said["type"] == "lifespan.startup.failed"
    assert "TIDEGATE_CONFIG" in said["message"]


async def test_a_start_with_a_bad_configuration_fails_with_its_path(tmp_path: Path) -> None:
    """The same words as `check-config`."""
    path = write_config(tmp_path, "http://127.0.0.1:1/v1", tables="[server]\nlocla = 1")
    async with lifespan(App(lambda: load_config(path, {}))) as living:
        pass
    [said] = living.said
    assert said["type"] == "lifespan.startup.failed"
    assert "server.locla: unknown key" in said["message"]


@pytest.mark.parametrize("owns_listener", [True, False])
async def test_the_log_begins_with_what_an_operator_should_know(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], owns_listener: bool
) -> None:
    """Where the configuration came from, what of it does nothing yet, and that a foreign listener has no write limit."""
    path = write_config(tmp_path, "http://127.0.0.1:1/v1", tables="[store]\nurl = 'valkey://a:1'")
    app = App(lambda: load_config(path, {}), owns_listener=owns_listener)
    async with lifespan(app) as living:
        assert app.gateway is not None
    assert [each["type"] for each in living.said] == [
        "lifespan.startup.complete",
        "lifespan.shutdown.complete",
    ]
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert lines[0]["source"] == str(path)
    warnings = [line["event"] for line in lines if line["level"] == "warning"]
    assert "store.url" in warnings[0]
    assert [warning.startswith("no write limit") for warning in warnings[1:]] == (
        [] if owns_listener else [True]
    )
