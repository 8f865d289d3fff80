"""What the schema accepts and this version does not act on yet.

The schema is whole from the first day, so that a file written for it stays valid. What is accepted
but without effect is listed here as data, for one warning at start-up and for ``check-config``.
"""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping
from typing import Any, Final, get_args

import msgspec

from gate.config import FilterConfig, FilterKind, GatewayConfig, RouteConfig
from gate.config_rules import join
from gate.filters.builtin import BUILT

# Filter kinds that are built; every other kind in a route's list is without effect.
BUILT_KINDS: Final[frozenset[str]] = frozenset(BUILT)


class Place(msgspec.Struct, frozen=True):
    """A value in the raw tables, with its type and what holds where the key is left out."""

    path: str
    kind: Any
    value: Any
    default: object = None


# TOML paths: ``[]`` stands for every entry of an array, ``*`` for every name of a table. A path
# that ends in ``*`` means the tables themselves.
NOT_ACTIVE: Final[tuple[str, ...]] = (
    "server.workers",
    "keys[].requests_per_minute",
    "keys[].tokens_per_minute",
    "keys[].exchanges_max",
    "providers[].path",
    "providers[].ask_usage",
    "providers[].idempotency_header",
    "models[].targets[].weight",
    "models[].targets[].context_tokens",
    "routes.*.responses_over_chat",
    "routes.*.clocks.chars_per_second_min",
    "routes.*.recovery.loop_temperature_add",
    "filters.*.failure",
    "filters.*.deadline_ms",
    "filters.*.horizon_chars",
    "compat.buffered_error",
    "compat.tunnel_cut",
    "admin.key_env",
    "admin.bind",
    "store.url",
    "observe.record_dir",
    "observe.record_content",
    "observe.record_bytes_max",
    "observe.sample_success",
    "observe.sample_failure",
    "observe.otlp_endpoint",
)

# Values of the paths above that ask for exactly what this version does anyway.
ALREADY_SO: Final[Mapping[str, tuple[object, ...]]] = types.MappingProxyType(
    {
        "keys[].requests_per_minute": (0,),
        "keys[].exchanges_max": (0,),
    }
)


def inactive(raw: Mapping[str, object]) -> tuple[str, ...]:
    """The paths that the file sets to something else than the default, and without effect so far.

    Behind them the ``[filters.*]`` tables whose kind is not built, and, for each route that a model
    names, the kinds in its list that are not, as ``routes.NAME.filters: KIND``. ``raw`` are tables
    that ``decode_config`` accepted.
    """
    paths = [path for pattern in NOT_ACTIVE for path in _set_paths(pattern, raw)]
    config = msgspec.convert(raw, GatewayConfig)
    tables = [join("filters", name) for name, table in config.filters.items() if _unbuilt(table)]
    return (*paths, *tables, *_unbuilt_kinds(config))


def blocked_routes(config: GatewayConfig) -> Mapping[str, str]:
    """Route name -> its first gating ``[filters.*]`` table whose kind is not built.

    What such a filter would have to pass can't be judged, so requests to the route are refused.
    """
    blocked: dict[str, str] = {}
    for name, route in config.routes.items():
        for entry in route.filters:
            table = config.filters.get(entry)
            if table is not None and table.gating and _unbuilt(table):
                blocked.setdefault(name, entry)
    return types.MappingProxyType(blocked)


def _unbuilt(table: FilterConfig) -> bool:
    return table.kind not in BUILT_KINDS


def _set_paths(pattern: str, raw: Mapping[str, object]) -> Iterator[str]:
    places = [Place("", GatewayConfig, raw)]
    for segment in pattern.split("."):
        places = [inner for place in places for inner in _step(place, segment)]
    for place in places:
        value = msgspec.convert(place.value, place.kind)
        if value != place.default and value not in ALREADY_SO.get(pattern, ()):
            yield place.path


def _step(place: Place, segment: str) -> Iterator[Place]:
    """The places one segment of a pattern further down; none where the file is silent."""
    if segment == "*":
        for name, item in place.value.items():
            yield Place(join(place.path, name), get_args(place.kind)[1], item)
        return
    name = segment.removesuffix("[]")
    if name not in place.value:
        return
    field = next(field for field in msgspec.structs.fields(place.kind) if field.name == name)
    path, value = join(place.path, name), place.value[name]
    if name == segment:
        yield Place(path, field.type, value, field.default)
        return
    for index, item in enumerate(value):
        yield Place(f"{path}[{index}]", get_args(field.type)[0], item)


def _unbuilt_kinds(config: GatewayConfig) -> Iterator[str]:
    """Built-in kinds without effect, route by route in the order in which models name them."""
    for name in dict.fromkeys(model.route for model in config.models):
        for entry in config.routes.get(name, RouteConfig()).filters:
            tabled = entry in config.filters  # listed as filters.NAME already
            if entry in get_args(FilterKind) and entry not in BUILT_KINDS and not tabled:
                yield f"{join('routes', name)}.filters: {entry}"
