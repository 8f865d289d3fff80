"""What `GET /metrics` says of a gateway that was used: exact numbers, over loopback sockets, for every way in which an exchange can end."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Final

import trio
from prometheus_client.parser import text_string_to_metric_families

from ops.provider import RunningProvider, running_provider
from ops.provider_script import Pace, Script
from tests.transport.edge import (
    CHAT,
    Edge,
    asking,
    eventually,
    question,
    running_edge,
    settled,
    write_config,
)

FAST: Final = Script(pace=Pace(chunk_ms=0))
MODELS: Final = {
    "good": "healthy",
    "mended": ["cut:3", "healthy"],
    "broken": ["cut:3"],
    "denied": "healthy",
    "stalls": "stall",
}
TABLES: Final = """
[filters.no-words]
kind = "patterns"
patterns = ["[a-z]"]
[routes.held.hold]
mode = "buffered"
[routes.denying]
filters = ["no-words"]
"""
ROUTES: Final = {"mended": "held", "denied": "denying"}

Samples = Mapping[tuple[str, frozenset[tuple[str, str]]], float]


def write_routes(folder: Path, base_url: str) -> Path:
    """The models, each under its route."""
    path = write_config(folder, base_url, MODELS, tables=TABLES)
    text = path.read_text()
    for alias, route in ROUTES.items():
        text = text.replace(f'alias = "{alias}"', f'alias = "{alias}"\nroute = "{route}"')
    path.write_text(text)
    return path


@asynccontextmanager
async def edge_of(folder: Path) -> AsyncIterator[tuple[Edge, RunningProvider]]:
    """A gateway before a loopback provider."""
    async with running_provider(FAST) as provider:
        path = write_routes(folder, provider.base_url)
        async with running_edge(path) as edge:
            yield edge, provider


async def scrape(edge: Edge) -> Samples:
    """Everything of ours that the page says."""
    async with edge.client() as client:
        answer = await client.get("/metrics")
    return {
        (each.name.removeprefix("tidegate_"), frozenset(each.labels.items())): each.value
        for family in text_string_to_metric_families(answer.text)
        for each in family.samples
        if each.name.startswith("tidegate_")
    }


def of(told: Samples, name: str, **labels: str) -> float:
    """One sample; 0 where there is none."""
    return told.get((name, frozenset(labels.items())), 0.0)


def sums(told: Samples, name: str) -> float:
    """All samples of that name together."""
    return sum(value for (known, _), value in told.items() if known == name)


async def ask(edge: Edge, model: str, *, stream: bool = True) -> int:
    """One exchange to its end; its status."""
    async with edge.client() as client:
        answer = await client.post(CHAT, content=question(model, stream=stream))
    await settled(edge)
    return answer.status_code


async def test_a_healthy_stream_is_counted_once_everywhere(tmp_path: Path) -> None:
    """And leaves every gauge where it was."""
    async with edge_of(tmp_path) as (edge, _):
        assert await ask(edge, "good") == 200
        told = await scrape(edge)
    labels = {"route": "default", "mode": "normalized", "outcome": "success"}
    assert of(told, "exchanges_total", framing="chat_sse", **labels) == 1
    assert of(told, "attempts_total", provider="local", directive="exact", outcome="complete") == 1
    for name in ("exchanges_total", "attempts_total"):
        assert sums(told, name) == 1
    for name in ("recoveries_total", "verdicts_total", "give_ups_total"):
        assert sums(told, name) == 0
    for name in ("held", "ttft", "first_token_added", "time_per_output_token"):
        assert of(told, f"{name}_seconds_count") == 1
    assert sums(told, "tokens_total") > 0
    assert of(told, "tokens_total", kind="wasted", reason="none") == 0
    for name in ("exchanges_open", "upstream_open", "leases_open", "observations_dropped_total"):
        assert of(told, name) == 0
    assert of(told, "ledger_bytes", kind="retained") == of(told, "ledger_bytes", kind="held") == 0
    assert of(told, "ledger_bytes", kind="peak") > 65_536
    assert of(told, "config_generation") == 1


async def test_tokens_are_what_the_provider_reports_else_what_was_counted(tmp_path: Path) -> None:
    """The provider counts a token for each word, and is not asked for usage by a stream."""
    async with edge_of(tmp_path) as (edge, _):
        async with edge.client() as client:
            body = question("good", stream=False)
            answer = await client.post(CHAT, content=body)
        await settled(edge)
        whole = await scrape(edge)
        await ask(edge, "good")
        both = await scrape(edge)
    reported = json.loads(answer.content)["usage"]["completion_tokens"]
    words = len(answer.json()["choices"][0]["message"]["content"].split())
    assert of(whole, "tokens_total", kind="reported", reason="none") == reported
    assert of(both, "tokens_total", kind="reported", reason="none") == reported
    assert of(both, "tokens_total", kind="estimated", reason="none") == words
    assert of(both, "ttft_seconds_count") == 1
    assert of(both, "held_seconds_count") == 2


async def test_a_recovered_stream_is_one_exchange_of_two_attempts(tmp_path: Path) -> None:
    """With what the first of them has wasted."""
    async with edge_of(tmp_path) as (edge, _):
        assert await ask(edge, "mended") == 200
        told = await scrape(edge)
    assert of(told, "exchanges_total", route="held", framing="chat_sse", mode="normalized", outcome="success") == 1  # fmt: skip
    attempts = {"provider": "local", "directive": "exact"}
    assert of(told, "attempts_total", outcome="stream_cut", **attempts) == 1
    assert of(told, "attempts_total", outcome="complete", **attempts) == 1
    assert of(told, "recoveries_total", directive="exact", reason="stream_cut", outcome="complete") == 1  # fmt: skip
    assert sums(told, "recoveries_total") == 1
    assert of(told, "tokens_total", kind="wasted", reason="stream_cut") == 3


async def test_a_stream_that_nobody_could_mend_ends_in_an_error(tmp_path: Path) -> None:
    """What was seen of it is part of an answer; no more was tried because of that."""
    async with edge_of(tmp_path) as (edge, _):
        assert await ask(edge, "broken") == 200
        told = await scrape(edge)
    assert of(told, "exchanges_total", route="default", framing="chat_sse", mode="normalized", outcome="error") == 1  # fmt: skip
    assert of(told, "give_ups_total", why="released") == 1
    assert of(told, "tokens_total", kind="estimated", reason="none") == 3
    assert of(told, "time_per_output_token_seconds_count") == 0
    assert of(told, "ttft_seconds_count") == 1


async def test_a_violation_is_a_verdict_and_an_error(tmp_path: Path) -> None:
    """Of a filter by the name that the file gives it; nothing has left, so nothing was held for somebody."""
    async with edge_of(tmp_path) as (edge, _):
        assert await ask(edge, "denied") == 502
        told = await scrape(edge)
    assert of(told, "verdicts_total", filter="no-words", code="pattern_match") == 1
    assert sums(told, "verdicts_total") == 1
    attempts = {"provider": "local", "directive": "exact"}
    assert of(told, "attempts_total", outcome="pattern_match", **attempts) == 1
    assert of(told, "exchanges_total", route="denying", framing="chat_sse", mode="normalized", outcome="error") == 1  # fmt: skip
    assert of(told, "tokens_total", kind="wasted", reason="pattern_match") >= 1
    assert of(told, "held_seconds_count") == of(told, "ttft_seconds_count") == 0


async def test_an_exchange_that_its_caller_leaves_is_counted_as_left(tmp_path: Path) -> None:
    """While it is open the gauges say so; then they are back where they were."""
    async with edge_of(tmp_path) as (edge, provider):
        async with asking(edge.port, question("stalls")) as caller:
            await eventually(lambda: len(provider.requests) == 1)
            assert b"200" in await caller.receive_some()
            during = await scrape(edge)
        await settled(edge)
        after = await scrape(edge)
    for name in ("exchanges_open", "upstream_open"):
        assert (of(during, name), of(after, name)) == (1, 0)
    assert of(during, "ledger_bytes", kind="retained") > 0
    assert of(after, "ledger_bytes", kind="retained") == 0
    assert sums(during, "exchanges_total") == sums(during, "attempts_total") == 0
    assert of(after, "exchanges_total", route="default", framing="chat_sse", mode="normalized", outcome="abandoned") == 1  # fmt: skip
    assert of(after, "attempts_total", provider="local", directive="exact", outcome="aborted") == 1


async def test_what_was_no_request_has_no_route(tmp_path: Path) -> None:
    """An exchange all the same: its body was read."""
    async with edge_of(tmp_path) as (edge, _):
        assert await ask(edge, "huge") == 404
        async with edge.client() as client:
            assert (await client.post(CHAT, content=b"{")).status_code == 400
        await settled(edge)
        told = await scrape(edge)
    unknown = {"route": "none", "mode": "normalized", "outcome": "error"}
    assert of(told, "exchanges_total", framing="chat_sse", **unknown) == 1
    assert of(told, "exchanges_total", framing="none", **unknown) == 1
    assert sums(told, "attempts_total") == 0


async def test_no_name_of_a_caller_is_on_the_page(tmp_path: Path) -> None:
    """No alias, no id, no word of a request."""
    async with edge_of(tmp_path) as (edge, _):
        async with edge.client(x_request_id="callers-own-id") as client:
            for model in ("good", "a-model-that-is-not-there"):
                await client.post(CHAT, content=question(model))
        await settled(edge)
        async with edge.client() as client:
            page = (await client.get("/metrics")).text
    for name in ("callers-own-id", "a-model-that-is-not-there", 'good"', "tide is"):
        assert name not in page


async def test_exchanges_side_by_side_are_counted_once_each(tmp_path: Path) -> None:
    """Every histogram has each of them, and all that was lent is back."""
    async with edge_of(tmp_path) as (edge, _):
        async with edge.client() as client, trio.open_nursery() as nursery:
            for _ in range(10):
                nursery.start_soon(partial(client.post, CHAT, content=question("good")))
        await settled(edge)
        told = await scrape(edge)
    assert sums(told, "exchanges_total") == sums(told, "attempts_total") == 10
    for name in ("held", "ttft", "first_token_added", "time_per_output_token"):
        assert of(told, f"{name}_seconds_count") == 10
    assert of(told, "leases_open") == of(told, "upstream_open") == 0
    assert of(told, "observations_dropped_total") == 0
