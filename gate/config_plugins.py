"""``[filters.*]`` tables of a plug-in's kind: which keys are its own, and what they hold.

Such a table holds the keys of every filter, and those of the plug-in's ``options_type``. The former
are checked like everything else; for that the latter are taken out of the tables first.
"""

from __future__ import annotations

import re
import types
from collections.abc import Iterator, Mapping
from typing import Final, TypeAlias

import msgspec

from gate.config import FILTER_KEYS, FilterConfig, GatewayConfig, PluginConfig, Table
from gate.config_rules import Problem, hint, join
from gate.filters.plugin import FilterPlugin

Plugins: TypeAlias = Mapping[str, type[FilterPlugin]]
"""Kind -> plug-in."""

NO_PLUGINS: Final[Plugins] = types.MappingProxyType({})
# The keys that every filter knows.
SHARED_KEYS: Final[frozenset[str]] = frozenset(FilterConfig.__struct_fields__).difference(
    *FILTER_KEYS.values()
)
_AT: Final = re.compile(r" - at `\$(.*)`$")


def without_own_keys(raw: Mapping[str, object], plugins: Plugins) -> Mapping[str, object]:
    """``raw`` without the keys that only plug-ins know."""
    tables, own = raw.get("filters"), _own_keys(raw, plugins)
    if not own or not isinstance(tables, Mapping):
        return raw
    shared = {
        name: {key: value for key, value in table.items() if key not in own[name]}
        if name in own
        else table
        for name, table in tables.items()
    }
    return {**raw, "filters": shared}


def option_problems(raw: Mapping[str, object], plugins: Plugins) -> Iterator[Problem]:
    """What is wrong with the keys that only plug-ins know."""
    for name, own in _own_keys(raw, plugins).items():
        kind = _kind(raw, name)
        yield from _wrong_options(kind, plugins[kind].options_type, own, join("filters", name))


def with_options(
    config: GatewayConfig, raw: Mapping[str, object], plugins: Plugins
) -> GatewayConfig:
    """``config`` with the options of its plug-ins' tables. ``option_problems`` yields nothing for ``raw``."""
    filters = dict(config.filters)
    for name, own in _own_keys(raw, plugins).items():
        table = filters[name]
        options = msgspec.convert(own, plugins[table.kind].options_type)
        filters[name] = PluginConfig(**msgspec.structs.asdict(table), options=options)
    return msgspec.structs.replace(config, filters=filters)


def _own_keys(raw: Mapping[str, object], plugins: Plugins) -> Mapping[str, Mapping[str, object]]:
    """By the name of each table of a plug-in's kind, the keys that not every filter knows."""
    tables = raw.get("filters")
    if not isinstance(tables, Mapping):
        return {}
    return {
        name: {key: value for key, value in table.items() if key not in SHARED_KEYS}
        for name, table in tables.items()
        if isinstance(table, Mapping) and _kind(raw, name) in plugins
    }


def _kind(raw: Mapping[str, object], name: str) -> str:
    """The kind that a table says it is of; empty where it is no text."""
    tables = raw["filters"]
    assert isinstance(tables, Mapping)
    kind = tables[name].get("kind")
    return kind if isinstance(kind, str) else ""


def _wrong_options(
    kind: str, options: type[Table], own: Mapping[str, object], path: str
) -> Iterator[Problem]:
    """Unknown and missing keys, each; what else is wrong, the first of it only: the struct decides that as a whole."""
    fields = {field.encode_name: field for field in msgspec.structs.fields(options)}
    problems = [
        Problem(join(path, key), f"unknown key for the kind {kind}{hint(key, fields)}")
        for key in own
        if key not in fields
    ]
    problems += [
        Problem(join(path, name), "is missing")
        for name, field in fields.items()
        if field.required and name not in own
    ]
    if problems:
        yield from problems
        return
    try:
        msgspec.convert(own, options)
    except msgspec.ValidationError as error:
        at = _AT.search(str(error))
        place = path + at[1] if at is not None else path
        words = _AT.sub("", str(error)).replace("`", "")
        yield Problem(place, words[:1].lower() + words[1:])
    except Exception as error:  # noqa: BLE001 - code of others; a bug of it is told like a bad value
        yield Problem(path, f"the plug-in can't read its options: {type(error).__name__}")
