"""`transport.pages`: health, readiness, models, and the envelope for everything that is not there, over loopback sockets."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
import trio

from actors.context import Pool
from tests.transport.edge import (
    CHAT,
    Edge,
    Models,
    code_of,
    head,
    question,
    read_answer,
    running_edge,
    write_config,
)

NOBODY = "http://127.0.0.1:9/v1"  # these pages ask no provider
ALIASES: Models = {"small": "healthy", "qwen/qwen3": "healthy"}


@asynccontextmanager
async def pages(folder: Path) -> AsyncIterator[tuple[Edge, httpx.AsyncClient]]:
    """An edge, and a caller of its pages."""
    async with running_edge(write_config(folder, NOBODY, ALIASES)) as edge, edge.client() as client:
        yield edge, client


async def test_a_process_that_answers_is_healthy(tmp_path: Path) -> None:
    """Draining or not: it must not be killed while its streams end."""
    async with pages(tmp_path) as (edge, client):
        edge.gateway.draining = True
        answer = await client.get("/healthz")
    assert answer.status_code == 200
    assert answer.json() == {"status": "ok"}


async def test_a_gate_with_a_provider_is_ready_until_it_drains(tmp_path: Path) -> None:
    """Then the balancer takes it out."""
    async with pages(tmp_path) as (edge, client):
        before = await client.get("/readyz")
        edge.gateway.draining = True
        after = await client.get("/readyz")
    assert before.status_code == 200
    assert before.json() == {"status": "ready"}
    assert after.status_code == 503
    assert code_of(after.content) == "draining"
    assert after.headers["retry-after"]


async def test_a_gate_without_a_usable_provider_is_not_ready(tmp_path: Path) -> None:
    """Here the only one could not be reached, and is left alone for a while."""
    path = write_config(tmp_path, NOBODY, provider="breaker = { failures = 1 }")
    async with running_edge(path) as edge, edge.client() as client:
        await client.post(CHAT, content=question())
        answer = await client.get("/readyz")
    assert answer.status_code == 503
    assert code_of(answer.content) == "no_provider"
    assert answer.json()["error"]["type"] == "overloaded_error"


async def test_metrics_are_prometheus_text(tmp_path: Path) -> None:
    """For every scraper, with no key; a page that was read is no exchange."""
    async with pages(tmp_path) as (_, client):
        answer = await client.get("/metrics")
        asked = await client.get("/metrics", headers={"accept": "application/openmetrics-text"})
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain; version=")
    assert "tidegate_exchanges_open 0.0" in answer.text.splitlines()
    assert asked.headers["content-type"].startswith("application/openmetrics-text")
    assert asked.text.endswith("# EOF\n")


async def test_the_models_are_the_aliases_in_the_order_of_the_file(tmp_path: Path) -> None:
    """As an SDK reads them; where they are served is nobody's business."""
    async with pages(tmp_path) as (_, client):
        answer = await client.get("/v1/models")
    listed = answer.json()
    assert listed["object"] == "list"
    assert [each["id"] for each in listed["data"]] == ["small", "qwen/qwen3"]
    assert {(each["object"], each["owned_by"]) for each in listed["data"]} == {
        ("model", "tidegate")
    }
    assert all(isinstance(each["created"], int) for each in listed["data"])
    assert "healthy" not in answer.text


@pytest.mark.parametrize(
    ("path", "alias"),
    [("small", "small"), ("qwen/qwen3", "qwen/qwen3"), ("qwen%2Fqwen3", "qwen/qwen3")],
)
async def test_one_model_has_a_page(tmp_path: Path, path: str, alias: str) -> None:
    """Also where its name has a slash, written either way."""
    async with pages(tmp_path) as (_, client):
        answer = await client.get(f"/v1/models/{path}")
    assert answer.status_code == 200
    assert answer.json()["id"] == alias


async def test_a_model_that_is_not_there_is_a_404(tmp_path: Path) -> None:
    """In the envelope, with the parameter."""
    async with pages(tmp_path) as (_, client):
        answer = await client.get("/v1/models/huge")
    assert answer.status_code == 404
    assert code_of(answer.content) == "model_not_found"
    assert answer.json()["error"]["param"] == "model"


@pytest.mark.parametrize(
    "path", ["/", "/nothing", "/v1//models", "/v1/models/", "/%ff", "/healthz/"]
)
async def test_what_is_not_there_is_a_404_in_the_envelope(tmp_path: Path, path: str) -> None:
    """No page of a framework, and no redirect to a path that was not asked for."""
    async with pages(tmp_path) as (_, client):
        answer = await client.get(path)
    assert answer.status_code == 404
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-request-id"].startswith("tg-")
    assert answer.json()["error"]["type"] == "not_found_error"


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
@pytest.mark.parametrize(
    "path", ["/healthz", "/readyz", "/metrics", "/v1/models", "/v1/models/small"]
)
async def test_a_page_is_only_read(tmp_path: Path, path: str, method: str) -> None:
    """Whoever tries more is told what is allowed."""
    async with pages(tmp_path) as (_, client):
        answer = await client.request(method, path, content=b"{}")
    assert answer.status_code == 405
    assert code_of(answer.content) == "method_not_allowed"
    assert answer.headers["allow"] == "GET, HEAD, OPTIONS"


async def test_a_head_request_gets_the_head_of_the_page(tmp_path: Path) -> None:
    """And nothing behind it."""
    async with pages(tmp_path) as (_, client):
        answer = await client.head("/healthz")
        whole = await client.get("/healthz")
    assert answer.status_code == 200
    assert answer.content == b""
    assert answer.headers["content-length"] == whole.headers["content-length"]


async def test_options_says_what_a_page_allows(tmp_path: Path) -> None:
    """Without a body."""
    async with pages(tmp_path) as (_, client):
        answer = await client.options("/v1/models")
    assert answer.status_code == 200
    assert sorted(answer.headers["allow"].split(", ")) == ["GET", "HEAD", "OPTIONS"]
    assert answer.content == b""


async def test_a_page_lets_the_connection_go_when_it_was_asked_to(tmp_path: Path) -> None:
    """Health checks often ask for it, and wait for the end."""
    async with pages(tmp_path) as (edge, _), await edge.connect() as stream:
        await stream.send_all(head(0, "connection: close", method="GET", path="/healthz"))
        answer = await read_answer(stream)
        with trio.fail_after(10):
            assert await stream.receive_some() == b""
    assert answer.status == 200


async def test_a_connection_is_idle_after_a_page(tmp_path: Path) -> None:
    """So the server's idle clock runs, and ends it."""
    path = write_config(tmp_path, NOBODY, ALIASES)
    async with running_edge(path, idle_seconds=0.1) as edge, await edge.connect() as stream:
        await stream.send_all(head(0, method="GET", path="/healthz"))
        assert (await read_answer(stream)).status == 200
        with trio.fail_after(10):
            assert await stream.receive_some() == b""


class _Broken(Mapping[str, Pool]):
    """Pools that can't be listed."""

    def __getitem__(self, alias: str) -> Pool:
        raise RuntimeError("a secret of the pools")

    def __iter__(self) -> Iterator[str]:
        raise RuntimeError("a secret of the pools")

    def __len__(self) -> int:
        return 1


async def test_a_page_that_fails_is_a_500_and_a_line_for_the_operator(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The line says where; the text of the exception is nobody's."""
    async with pages(tmp_path) as (edge, client):
        edge.gateway.pools = _Broken()
        answer = await client.get("/v1/models")
    assert answer.status_code == 500
    assert code_of(answer.content) == "internal_error"
    assert answer.headers["x-request-id"]
    logged = capsys.readouterr().err
    assert "a secret of the pools" not in answer.text + logged
    [line] = [json.loads(each) for each in logged.splitlines() if '"crashed"' in each]
    assert line["errors"][0].startswith("RuntimeError at ")
    assert "test_pages.py" in line["errors"][0]
