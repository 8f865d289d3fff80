"""A scenario as the configuration that an operator would write for it: for the rings in which the whole program runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from gate.config import (
    BreakerConfig,
    FilterConfig,
    GatewayConfig,
    ModelConfig,
    ProviderConfig,
    RouteConfig,
    ServerConfig,
    TargetConfig,
)
from ops.chaos.scenario import Scenario, Service
from ops.chaos.wire import ALIAS
from transport.configfile import Loaded, Secrets

__all__ = ["configured"]

ROUTE: Final = "struck"
CHAT_ALONE: Final = ("tools", "json_schema")
ALL: Final = (*CHAT_ALONE, "responses")
_NO_SECRETS: Final = Secrets({}, {}, {}, "")


def configured(
    scenario: Scenario,
    providers: Sequence[str],
    services: Mapping[str, str],
    *,
    caller_write_seconds: float = 60.0,
    drain_seconds: float = 30.0,
    tls: tuple[str, str] = ("", ""),
    retries_min: int | None = None,
) -> Loaded:
    """`providers`: the base URL of each target; `services`: the URL of each filter that awaits. `tls`: the files of a certificate and its key. `retries_min`: that are always allowed, however many fail at once."""
    names = [f"p{at}" for at in range(len(providers))]
    config = GatewayConfig(
        server=ServerConfig(
            bind="127.0.0.1:0",
            caller_write_seconds=caller_write_seconds,
            drain_seconds=drain_seconds,
            tls_cert=tls[0],
            tls_key=tls[1],
        ),
        limits=scenario.limits,
        providers=tuple(
            ProviderConfig(
                name=name,
                base_url=url,
                prefill=scenario.prefill,
                ask_usage=scenario.ask_usage,
                path=scenario.paths[at] if scenario.paths else "normalized",
                capabilities=CHAT_ALONE if at in scenario.chat_only else ALL,
                concurrency_max=scenario.concurrency,
                breaker=BreakerConfig(failures=1000),
            )
            for at, (name, url) in enumerate(zip(names, providers, strict=True))
        ),
        models=(
            ModelConfig(
                alias=ALIAS,
                targets=tuple(
                    TargetConfig(provider=name, model=f"model-{at}", priority=at)
                    for at, name in enumerate(names)
                ),
                route=ROUTE,
            ),
        ),
        routes={ROUTE: _route(scenario, retries_min)},
        filters={**scenario.tables, **_tables(scenario, services)},
    )
    return Loaded(config, {}, _NO_SECRETS, source="a scenario")


def _route(scenario: Scenario, retries_min: int | None) -> RouteConfig:
    recovery = scenario.route.recovery
    if retries_min is not None:
        recovery = msgspec.structs.replace(recovery, retry_budget_floor=retries_min)
    filters = (*scenario.filters, *scenario.services)
    return msgspec.structs.replace(scenario.route, filters=filters, recovery=recovery)


def _tables(scenario: Scenario, urls: Mapping[str, str]) -> dict[str, FilterConfig]:
    return {name: _table(each, urls[name]) for name, each in scenario.services.items()}


def _table(service: Service, url: str) -> FilterConfig:
    action = "next_provider" if service.denied else service.table.action
    return msgspec.structs.replace(service.table, url=url, action=action)
