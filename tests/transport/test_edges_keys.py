"""Keys of the configuration and of a request's head that change what goes over a socket: explanations, usage, idempotency keys, the older shape of errors."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import Any, Final

import pytest

from gate.refs import digest_of_key
from ops.provider import running_provider
from tests.transport.edge import (
    ask,
    code_of,
    question,
    read_answer,
    running_edge,
    settled,
    write_config,
)
from tests.transport.test_edges_caller import FAST, edge_of

COMMENTS: Final = re.compile(rb": tidegate [ -~]+\n\n")
KEY: Final = "8e03978e-40d5-43dd-bc93-6894a57f9324"


# --- explained -----------------------------------------------------------------------------------


@pytest.mark.parametrize("given", ["1", " 1 "])
async def test_a_caller_that_asks_is_told(tmp_path: Path, given: str) -> None:
    """In comments and header fields; the answer is what it is for everybody."""
    async with edge_of(tmp_path, {"small": ["503", "healthy"]}) as (edge, _):
        got = await ask(edge, question(), f"X-Tidegate-Explain: {given}")
    assert (got.status, got.whole) == (200, True)
    assert COMMENTS.search(got.body)
    assert got.headers["x-tidegate-plans"].startswith("attempt=1 directive=exact provider=local code=provider_error, ")  # fmt: skip
    assert got.headers["x-tidegate-route"].startswith("route=default hold=live ")
    assert got.body.endswith(b"data: [DONE]\n\n")


@pytest.mark.parametrize("given", [(), ("X-Tidegate-Explain: 0",), ("X-Tidegate-Explain: yes",)])
async def test_nobody_else_is(tmp_path: Path, given: tuple[str, ...]) -> None:
    """Not a byte of it."""
    async with edge_of(tmp_path) as (edge, _):
        got = await ask(edge, question(), *given)
    assert not COMMENTS.search(got.body)
    assert not [name for name in got.headers if name.startswith("x-tidegate-") and name != "x-tidegate-attempts"]  # fmt: skip


async def test_what_is_told_has_no_word_of_the_request_or_the_answer(tmp_path: Path) -> None:
    """Nor the provider's address, its name for the model, or a key."""
    async with edge_of(tmp_path, {"small": "healthy"}) as (edge, provider):
        got = await ask(edge, question(), "X-Tidegate-Explain: 1", "Authorization: Bearer sk-mine")
        told = b"".join(COMMENTS.findall(got.body)).decode()
        told += "".join(v for k, v in got.headers.items() if k.startswith("x-tidegate-"))
        words = {"tide in?", "healthy", "sk-mine", provider.base_url, "127.0.0.1"}
    assert not [word for word in words if word in told]


# --- the caller's idempotency key ------------------------------------------------------------------


async def requests_of(
    folder: Path, *fields: str, provider: str = ""
) -> tuple[list[dict[str, str]], list[dict[str, Any]], Any]:
    """One exchange whose first two attempts fail: what its provider got, the log's lines of exchanges, and the answer."""
    out = io.StringIO()
    async with running_provider(FAST) as upstream:
        models = {"small": ["503", "healthy"]}
        path = write_config(folder, upstream.base_url, models, provider=provider)
        async with running_edge(path, log_out=out) as edge:
            got = await ask(edge, question(), *fields)
            await settled(edge)
        heads = [dict(each.headers) for each in upstream.requests]
    assert KEY not in out.getvalue()
    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    return heads, [line for line in lines if line["event"] == "exchange_ended"], got


async def test_a_callers_key_is_recorded_as_a_digest_and_goes_no_further(tmp_path: Path) -> None:
    """A provider that honours it would answer a further attempt with the answer that failed."""
    heads, (ended,), got = await requests_of(tmp_path, f"Idempotency-Key: {KEY}")
    assert got.status == 200
    assert ended["idempotency"] == digest_of_key(KEY.encode())
    assert len(heads) == 3
    assert not [name for head in heads for name in head if name.lower() == "idempotency-key"]
    assert not [value for head in heads for value in head.values() if KEY in value]


async def test_without_one_nothing_is_recorded(tmp_path: Path) -> None:
    """The field is not there."""
    _, (ended,), _ = await requests_of(tmp_path)
    assert "idempotency" not in ended


async def test_a_provider_that_wants_it_gets_the_plans_key(tmp_path: Path) -> None:
    """Of each attempt, and not the caller's."""
    fields = (f"Idempotency-Key: {KEY}", "X-Request-Id: ex-7")
    heads, _, _ = await requests_of(tmp_path, *fields, provider="idempotency_header = true")
    keys = [{name.lower(): value for name, value in head.items()}["idempotency-key"] for head in heads]  # fmt: skip
    assert keys == ["ex-7.1", "ex-7.2", "ex-7.3"]


@pytest.mark.parametrize("given", ["", " ", "a\tb", "a" * 256, "é"])
async def test_a_key_that_can_be_none_is_refused(tmp_path: Path, given: str) -> None:
    """Before a byte of the body is read; without an attempt."""
    async with edge_of(tmp_path) as (edge, provider):
        async with await edge.connect() as stream:
            head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: gate\r\ncontent-length: {len(question())}\r\nidempotency-key: {given}\r\n\r\n"
            await stream.send_all(head.encode() + question())
            answer = await read_answer(stream)
        assert (answer.status, code_of(answer.body)) == (400, "invalid_idempotency_key")
        assert not provider.requests


# --- providers and older contracts -------------------------------------------------------------------


@pytest.mark.parametrize("path", ["normalized", "tunnel"])
async def test_usage_is_asked_for_and_hidden(tmp_path: Path, path: str) -> None:
    """The log has what the provider reported; the caller what it asked for."""
    out = io.StringIO()
    async with running_provider(FAST) as upstream:
        keys = f'path = "{path}"\nask_usage = true'
        config = write_config(tmp_path, upstream.base_url, provider=keys)
        async with running_edge(config, log_out=out) as edge:
            hidden = await ask(edge, question())
            shown = await ask(edge, question(stream_options={"include_usage": True}))
            await settled(edge)
        asked = [json.loads(each.body)["stream_options"] for each in upstream.requests]
    assert asked == [{"include_usage": True}] * 2
    assert b"completion_tokens" not in hidden.body
    assert b"completion_tokens" in shown.body
    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    reported = [line["tokens_reported"] for line in lines if line["event"] == "exchange_ended"]
    assert reported[0] == reported[1] > 0


@pytest.mark.parametrize("value", ["stream", "status"])
async def test_an_older_contract_tells_errors_in_the_stream(tmp_path: Path, value: str) -> None:
    """A buffered one's, with the status 200; today's has the status."""
    tables = f'[compat]\nbuffered_error = "{value}"\n[routes.default.hold]\nmode = "buffered"'
    async with edge_of(tmp_path, {"small": "503"}, tables=tables) as (edge, _):
        got = await ask(edge, question())
    if value == "status":
        assert (got.status, code_of(got.body)) == (502, "provider_error")
        return
    assert (got.status, got.whole) == (200, True)
    assert got.headers["content-type"].startswith("text/event-stream")
    assert code_of(got.body.removeprefix(b"data: ")) == "provider_error"
