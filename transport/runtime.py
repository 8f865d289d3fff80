"""A checked configuration -> a gateway that can serve: clients, pools, places, budget."""

from __future__ import annotations

import random
import secrets
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

import trio

from actors.awaiting import Threaded
from actors.context import Gateway, OpenExchanges, Pool, Target
from actors.dispatch import Dispatch
from actors.ports import AwaitingFilters, Provider
from actors.world import World
from gate.budget import MemoryBudget
from gate.config import GatewayConfig, ModelConfig, ProviderConfig
from gate.config_plugins import NO_PLUGINS, Plugins
from gate.filters.plugin import plugged_in
from gate.health import ProviderHealth
from gate.observe import Probe
from gate.retry_budget import RetryBudget
from transport.configfile import Loaded
from transport.http1 import Http1Transport
from transport.pool import Connect
from transport.provider import HttpProvider
from transport.telemetry import LogSink
from transport.webhook import Webhook

__all__ = ["Upstream", "make_pools", "open_gateway", "real_world"]


def real_world() -> World:
    """Time, ids and draws of the running process."""
    return World(
        wall=lambda: int(time.time()),  # noqa: TID251 - `created` is wall time; this is the edge
        new_id=lambda: f"tg-{secrets.token_hex(12)}",
        draw=random.random,
    )


@dataclass(frozen=True, slots=True)
class Upstream:
    """One provider: what was configured, its client, and how it is."""

    config: ProviderConfig
    client: Provider
    health: ProviderHealth


@asynccontextmanager
async def open_gateway(
    loaded: Loaded,
    log: LogSink,
    probe: Probe | None = None,
    *,
    connect: Connect | None = None,
    world: World | None = None,
) -> AsyncIterator[Gateway]:
    """The gateway of a configuration; its clients are closed at the end of the block.

    `probe`: who gets its observations, if not the log alone. `connect`: opens connections to providers and filters, if not TCP; `world`: in place of the process's own.
    """
    config, limits = loaded.config, loaded.config.limits
    async with AsyncExitStack() as clients:
        upstreams = {
            provider.name: Upstream(
                provider,
                await clients.enter_async_context(_client(provider, loaded, connect)),
                ProviderHealth(
                    failures=provider.breaker.failures, open_seconds=provider.breaker.open_seconds
                ),
            )
            for provider in config.providers
        }
        webhooks = {
            name: await clients.enter_async_context(
                Webhook(name, table, loaded.secrets.filters.get(name), transport=_over(connect))
            )
            for name, table in config.filters.items()
            if table.kind == "webhook"
        }
        yield Gateway(
            pools=make_pools(config, upstreams, webhooks, plugins=loaded.plugins),
            limits=limits,
            caller_write_seconds=config.server.caller_write_seconds,
            dispatch=Dispatch(
                exchanges_max=limits.exchanges_max,
                queue_max=limits.queue_max,
                queue_seconds_max=limits.queue_seconds_max,
                concurrency={each.name: each.concurrency_max for each in config.providers},
            ),
            budget=MemoryBudget("process", limits.process_bytes_max),
            world=world or real_world(),
            probe=probe or log.observe,
            crashed=log.crashed,
            open=OpenExchanges(),
            tunnel_marks=config.compat.tunnel_cut == "mark",
            streams_errors=config.compat.buffered_error == "stream",
            explains=config.observe.explain,
        )


def _over(connect: Connect | None) -> Http1Transport | None:
    return Http1Transport(connect) if connect is not None else None


def _client(provider: ProviderConfig, loaded: Loaded, connect: Connect | None) -> HttpProvider:
    return HttpProvider(
        name=provider.name,
        base_url=provider.base_url,
        api_key=loaded.secrets.providers.get(provider.name),
        headers=provider.headers,
        ca=provider.ca,
        client_cert=provider.client_cert,
        transport=_over(connect),
    )


def make_pools(
    config: GatewayConfig,
    upstreams: Mapping[str, Upstream],
    awaiting: Mapping[str, AwaitingFilters],
    *,
    plugins: Plugins = NO_PLUGINS,
) -> dict[str, Pool]:
    """The pools by alias. `upstreams`: by the provider's name; `awaiting`: by the name of its table, where a filter that awaits comes from.

    A plug-in that computes for long awaits as well, in a thread, where nothing else is said of it.
    """
    now, threads = trio.current_time(), Threaded()
    heavy = {kind for kind, plugin in plugins.items() if plugin.heavy}
    in_threads: dict[str, AwaitingFilters] = {
        name: threads for name, table in config.filters.items() if table.kind in heavy
    }
    waited_for = {**in_threads, **awaiting}
    factories = {kind: plugged_in(plugin) for kind, plugin in plugins.items()}
    pools = {}
    for model in config.models:
        route = config.routes[model.route]
        budget = route.recovery
        pools[model.alias] = Pool(
            alias=model.alias,
            route=route,
            filters=route.filters,
            targets=tuple(_targets(model, upstreams)),
            retries=RetryBudget(
                share=budget.retry_budget_share, floor=budget.retry_budget_floor, now=now
            ),
            tables=config.filters,
            plugins=factories,
            awaiting={name: waited_for[name] for name in route.filters if name in waited_for},
            route_name=model.route,
        )
    return pools


def _targets(model: ModelConfig, upstreams: Mapping[str, Upstream]) -> list[Target]:
    """The targets that may be chosen, with what a target leaves out as its provider has it."""
    targets = []
    for target in model.targets:
        upstream = upstreams[target.provider]
        able, prefill = target.capabilities, target.prefill
        targets.append(
            Target(
                provider_name=target.provider,
                provider=upstream.client,
                model=target.model,
                priority=target.priority,
                capabilities=frozenset(upstream.config.capabilities if able is None else able),
                health=upstream.health,
                prefill=upstream.config.prefill if prefill is None else prefill,
                path=upstream.config.path,
                ask_usage=upstream.config.ask_usage,
                idempotency_header=upstream.config.idempotency_header,
            )
        )
    return targets
