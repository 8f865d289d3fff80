"""A checked configuration -> a gateway that can serve: clients, pools, places, budget."""

from __future__ import annotations

import random
import secrets
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager

import trio

from actors.context import Gateway, OpenExchanges, Pool, Target
from actors.dispatch import Dispatch
from actors.world import World
from gate.budget import MemoryBudget
from gate.config import GatewayConfig, ModelConfig, ProviderConfig
from gate.config_active import blocked_routes
from transport.configfile import Loaded
from transport.provider import HttpProvider
from transport.telemetry import LogSink

__all__ = ["open_gateway", "real_world"]


def real_world() -> World:
    """Time, ids and draws of the running process."""
    return World(
        clock=trio.current_time,
        wall=lambda: int(time.time()),  # noqa: TID251 - `created` is wall time; this is the edge
        new_id=lambda: f"tg-{secrets.token_hex(12)}",
        draw=random.random,
    )


@asynccontextmanager
async def open_gateway(loaded: Loaded, log: LogSink) -> AsyncIterator[Gateway]:
    """The gateway of a configuration; its clients are closed at the end of the block."""
    config, limits = loaded.config, loaded.config.limits
    async with AsyncExitStack() as clients:
        providers = {
            provider.name: await clients.enter_async_context(_client(provider, loaded))
            for provider in config.providers
        }
        yield Gateway(
            pools=_pools(config, providers),
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
            probe=log.observe,
            crashed=log.crashed,
            open=OpenExchanges(),
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


def _pools(config: GatewayConfig, providers: Mapping[str, HttpProvider]) -> dict[str, Pool]:
    blocked = blocked_routes(config)
    known = {provider.name: provider for provider in config.providers}
    return {
        model.alias: Pool(
            alias=model.alias,
            route=config.routes[model.route],
            filters=_kinds(config, model),
            targets=tuple(_targets(model, known, providers)),
            blocked=blocked.get(model.route),
        )
        for model in config.models
    }


def _kinds(config: GatewayConfig, model: ModelConfig) -> tuple[str, ...]:
    """The kinds of a route's filters; a name without a table is a kind itself."""
    names = config.routes[model.route].filters
    return tuple(config.filters[name].kind if name in config.filters else name for name in names)


def _targets(
    model: ModelConfig, known: Mapping[str, ProviderConfig], providers: Mapping[str, HttpProvider]
) -> list[Target]:
    """The targets that may be chosen: one on a path that is not built never is."""
    return [
        Target(
            provider_name=target.provider,
            provider=providers[target.provider],
            model=target.model,
            priority=target.priority,
            capabilities=frozenset(
                known[target.provider].capabilities
                if target.capabilities is None
                else target.capabilities
            ),
        )
        for target in model.targets
        if known[target.provider].path == "normalized"
    ]
