"""`transport.runtime`: what a configuration becomes."""

from __future__ import annotations

import io
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import trio

from actors.context import Gateway, Target
from actors.ports import UpstreamRequest
from gate.filters.builtin import make_filters
from gate.filters.contract import FilterContext
from gate.filters.policed import Policed
from gate.refs import is_stable_token
from ops.provider import running_provider
from ops.provider_script import Pace, Script
from tests.plugins import WordPlugin
from tests.transport.edge import question, write_config
from transport.configfile import load_config
from transport.runtime import open_gateway, real_world
from transport.telemetry import open_log

FAST: Final = Script(pace=Pace(chunk_ms=0))
CONFIG: Final = """
[limits]
process_bytes_max = 200_000_000
exchanges_max = 3
[server]
caller_write_seconds = 7.5
[compat]
tunnel_cut = "end"
[observe]
explain = false
[[providers]]
name = "one"
base_url = "{url}"
api_key_env = "ONE"
capabilities = ["tools"]
concurrency_max = 2
headers = {{ x-team = "tide" }}
[[providers]]
name = "two"
base_url = "{url}"
path = "tunnel"
[[models]]
alias = "small"
targets = [
    {{ provider = "one", model = "healthy", priority = 4 }},
    {{ provider = "two", model = "hidden" }},
    {{ provider = "one", model = "seeing", capabilities = ["vision"] }},
]
[[models]]
alias = "guarded"
route = "guarded"
targets = [{{ provider = "one", model = "healthy" }}]
[routes.guarded]
filters = ["empty", "no-keys"]
[filters.no-keys]
kind = "webhook"
url = "http://127.0.0.1:9/judge"
"""


@asynccontextmanager
async def gateway_at(folder: Path, url: str) -> AsyncIterator[Gateway]:
    """The gateway of CONFIG, with its one provider at `url`."""
    path = folder / "runtime.toml"
    path.write_text(CONFIG.format(url=url))
    loaded = load_config(path, {"ONE": "sk-upstream"})
    with open_log("json", lines_max=10, out=io.StringIO()) as log:
        async with open_gateway(loaded, log) as gateway:
            yield gateway


async def ask(target: Target) -> bytes:
    """One whole attempt."""
    body = question(target.model, stream=False)
    request = UpstreamRequest("/chat/completions", [], [body], len(body))
    answer = b""
    async with target.provider.attempt(request, on_connected=lambda: None) as response:
        while data := await response.read():
            answer += data
    return answer


async def test_an_alias_becomes_a_pool_of_the_targets_that_can_be_used(tmp_path: Path) -> None:
    """Each on its provider's path; capabilities are the target's own, else the provider's."""
    async with gateway_at(tmp_path, "http://127.0.0.1:9/v1") as gateway:
        pool = gateway.pools["small"]
        assert list(gateway.pools) == ["small", "guarded"]
        assert [(each.model, each.priority, each.path) for each in pool.targets] == [
            ("healthy", 4, "normalized"),
            ("hidden", 0, "tunnel"),
            ("seeing", 0, "normalized"),
        ]
        able = {"tools", "json_schema", "vision", "responses"}
        assert [each.capabilities for each in pool.targets] == [{"tools"}, able, {"vision"}]
        assert [each.provider_name for each in pool.targets] == ["one", "two", "one"]
        assert pool.awaiting == {}


async def test_a_route_knows_its_filters_by_name(tmp_path: Path) -> None:
    """With the options of those that have a table, and the client of those that ask a service."""
    async with gateway_at(tmp_path, "http://127.0.0.1:9/v1") as gateway:
        pool = gateway.pools["guarded"]
    assert pool.filters == ("empty", "no-keys")
    assert pool.tables["no-keys"].url == "http://127.0.0.1:9/judge"
    assert [repr(each) for each in pool.awaiting.values()] == ["<Webhook no-keys>"]


async def test_plugins_reach_every_pool(tmp_path: Path) -> None:
    """By kind, as what makes a filter for an attempt."""
    text = '[filters.mine]\nkind = "word"\nraises = "observe"\n'
    path = write_config(tmp_path, "http://127.0.0.1:9/v1", tables=text)
    loaded = load_config(path, {}, plugins={"word": WordPlugin})
    with open_log("json", lines_max=10, out=io.StringIO()) as log:
        async with open_gateway(loaded, log) as gateway:
            pool = gateway.pools["small"]
            context = FilterContext(1)
            [each] = make_filters(["mine"], context, pool.tables, plugins=pool.plugins)
    assert isinstance(each, Policed)
    each.observe([], 0)
    assert isinstance(each.error, ValueError)


async def test_limits_are_those_of_the_file(tmp_path: Path) -> None:
    """Memory, places and the time for a write."""
    async with gateway_at(tmp_path, "http://127.0.0.1:9/v1") as gateway:
        assert gateway.budget.bytes_max == 200_000_000
        assert gateway.caller_write_seconds == 7.5
        assert gateway.tunnel_marks is False
        assert gateway.explains is False
        places = [gateway.dispatch.exchanges.take_nowait(["exchange"]) for _ in range(4)]
        assert places == ["exchange"] * 3 + [None]
        slots = [gateway.dispatch.providers.take_nowait(["one"]) for _ in range(3)]
        assert slots == ["one", "one", None]


async def test_a_provider_gets_its_own_key_and_headers(tmp_path: Path) -> None:
    """From the variable that the file names; the connection is kept while the gateway is open, and closed with it."""
    async with running_provider(FAST) as provider:
        async with gateway_at(tmp_path, provider.base_url) as gateway:
            answer = await ask(gateway.pools["small"].targets[0])
            assert b'"finish_reason":"stop"' in answer
            assert provider.open_connections == 1
        with trio.fail_after(10):
            await provider.stats.wait_until(lambda: provider.open_connections == 0)
    [request] = provider.requests
    assert request.header("authorization") == "Bearer sk-upstream"
    assert request.header("x-team") == "tide"


async def test_the_real_world_moves_on() -> None:
    """Ids are fresh stable tokens, draws lie in [0, 1), and the clock is trio's."""
    world = real_world()
    await trio.lowlevel.checkpoint()
    ids = {world.new_id() for _ in range(100)}
    assert len(ids) == 100
    assert all(is_stable_token(each) for each in ids)
    draws = [world.draw() for _ in range(100)]
    assert all(0 <= draw < 1 for draw in draws)
    assert len(set(draws)) > 1
    assert world.wall() > 1_700_000_000
