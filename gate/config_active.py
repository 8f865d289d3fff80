"""What the schema accepts and this version does not act on yet.

The schema is whole from the first day, so that a file written for it stays valid. What is accepted
but without effect is listed here as data, for one warning at start-up and for ``check-config``.
"""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping
from typing import Any, Final, get_args

import msgspec

from gate.config import GatewayConfig
from gate.config_rules import join


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
    "models[].targets[].weight",
    "models[].targets[].context_tokens",
    "routes.*.clocks.chars_per_second_min",
    "routes.*.recovery.loop_temperature_add",
    "admin.key_env",
    "admin.bind",
    "store.url",
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
    """The paths that the file sets to something else than the default, and without effect so far; ``raw`` are tables that ``decode_config`` accepted."""
    return tuple(path for pattern in NOT_ACTIVE for path in _set_paths(pattern, raw))


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
