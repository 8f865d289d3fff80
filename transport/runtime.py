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
from actors.ports import AwaitingFilters
from actors.world import World
from gate.budget import MemoryBudget
from gate.config import ModelConfig, ProviderConfig
from gate.filters.plugin import plugged_in
from gate.health import ProviderHealth
from gate.observe import Probe
from gate.retry_budget import RetryBudget
from transport.configfile import Loaded
from transport.provider import HttpProvider
from transport.telemetry import LogSink
from transport.webhook import Webhook

__all__ = ["open_gateway", "real_world"]


def real_world() -> World:
    """Time, ids and draws of the running process."""
    return World(
        wall=lambda: int(time.time()),  # noqa: TID251 - `created` is wall time; this is the edge
        new_id=lambda: f"tg-{secrets.token_hex(12)}",
        draw=random.random,
    )


@dataclass(frozen=True, slots=True)
class _Upstream:
    """One provider: what was configured, its client, and how it is."""

    config: ProviderConfig
    client: HttpProvider
    health: ProviderHealth


@asynccontextmanager
async def open_gateway(
    loaded: Loaded, log: LogSink, probe: Probe | None = None
) -> AsyncIterator[Gateway]:
    """The gateway of a configuration; its clients are closed at the end of the block. `probe`: who gets its observations, if not the log alone."""
    config, limits = loaded.config, loaded.config.limits
    async with AsyncExitStack() as clients:
        upstreams = {
            provider.name: _Upstream(
                provider,
                await clients.enter_async_context(_client(provider, loaded)),
                ProviderHealth(
                    failures=provider.breaker.failures, open_seconds=provider.breaker.open_seconds
                ),
            )
            for provider in config.providers
        }
        webhooks = {
            name: await clients.enter_async_context(
                Webhook(name, table, loaded.secrets.filters.get(name))
            )
            for name, table in config.filters.items()
            if table.kind == "webhook"
        }
        yield Gateway(
            pools=_pools(loaded, upstreams, webhooks),
            limits=limits,
            caller_write_seconds=config.server.caller_write_seconds,
            dispatch=Dispatch(
                exchanges_max=limits.exchanges_max,
                queue_max=limits.queue_max,
                queue_seconds_max=limits.queue_seconds_max,
                concurrency={each.name: each.concurrency_max for each in config.providers},
            ),
            budget=MemoryBudget("process", limits.process_bytes_max),
            world=real_world(),
            probe=probe or log.observe,
            crashed=log.crashed,
            open=OpenExchanges(),
            tunnel_marks=config.compat.tunnel_cut == "mark",
        )


def _client(provider: ProviderConfig, loaded: Loaded) -> HttpProvider:
    return HttpProvider(
        name=provider.name,
        base_url=provider.base_url,
        api_key=loaded.secrets.providers.get(provider.name),
        headers=provider.headers,
        ca=provider.ca,
        client_cert=provider.client_cert,
    )


def _pools(
    loaded: Loaded, upstreams: Mapping[str, _Upstream], webhooks: Mapping[str, Webhook]
) -> dict[str, Pool]:
    config, now = loaded.config, trio.current_time()
    plugins = {kind: plugged_in(plugin) for kind, plugin in loaded.plugins.items()}
    threads = Threaded()
    heavy = {kind for kind, plugin in loaded.plugins.items() if plugin.heavy}
    awaiting: dict[str, AwaitingFilters] = {
        name: threads for name, table in config.filters.items() if table.kind in heavy
    }
    awaiting |= webhooks
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
            plugins=plugins,
            awaiting={name: awaiting[name] for name in route.filters if name in awaiting},
            route_name=model.route,
        )
    return pools


def _targets(model: ModelConfig, upstreams: Mapping[str, _Upstream]) -> list[Target]:
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
            )
        )
    return targets
