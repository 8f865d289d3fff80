"""What a valid configuration says and can hardly mean: told by ``check-config`` and at the start, and changed by nobody."""

from __future__ import annotations

from collections.abc import Iterator

from gate.config import GatewayConfig
from gate.config_rules import join

__all__ = ["hints"]


def hints(config: GatewayConfig) -> tuple[str, ...]:
    """One sentence each, with the path that it is about."""
    return tuple(_without_effect(config))


def _without_effect(config: GatewayConfig) -> Iterator[str]:
    """Capabilities are declared, and the default is to have them all."""
    providers = {provider.name: provider.capabilities for provider in config.providers}
    for name, route in config.routes.items():
        able = [
            providers[target.provider] if target.capabilities is None else target.capabilities
            for model in config.models
            if model.route == name
            for target in model.targets
        ]
        if route.responses_over_chat and able and all("responses" in each for each in able):
            path = join("routes", name)
            yield f'{path}.responses_over_chat: no target needs it, since each has the capability "responses" (a default)'
