"""The shape of the raw tables: unknown and missing keys, types, closed sets, ranges.

The types of ``gate.config`` are the schema. They are walked beside the values of the file, so that
every problem is found in one go, each with its own path; a decoder would stop at the first.
"""

from __future__ import annotations

import math
import types
from collections.abc import Collection, Iterator, Mapping
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec

from gate.config import FILTER_KEYS, FilterKind, GatewayConfig, Range, Table
from gate.config_rules import Problem, hint, join


def shape_problems(
    raw: Mapping[str, object], *, plugins: Collection[str] = ()
) -> Iterator[Problem]:
    """Everything that keeps ``raw`` from being a ``GatewayConfig`` within its ranges.

    ``plugins``: the kinds of filters that are known beside the built-in ones; the keys that are
    theirs alone are not in ``raw``. Where nothing is yielded, ``msgspec.convert(raw,
    GatewayConfig)`` succeeds.
    """
    yield from _walk(GatewayConfig, raw, "")
    yield from _filter_tables(raw, (*get_args(FilterKind), *plugins))


def _walk(kind: Any, value: object, path: str) -> Iterator[Problem]:
    """Problems of ``value`` as a ``kind`` (a type of ``gate.config``), each with its path."""
    origin, args = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):  # only "or None", which TOML can't say
        yield from _walk(args[0], value, path)
    elif origin is Annotated:
        yield from _number(args[0], args[1], value, path)
    elif origin is Literal:
        if value not in args:
            yield Problem(path, f"must be one of {', '.join(args)}{hint(value, args)}")
    elif origin is tuple and isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from _walk(args[0], item, f"{path}[{index}]")
    elif origin is Mapping and isinstance(value, Mapping):
        for name, item in value.items():
            yield from _walk(args[1], item, join(path, name))
    elif isinstance(kind, type) and issubclass(kind, Table) and isinstance(value, Mapping):
        yield from _table(kind, value, path)
    else:
        yield from _plain(kind, value, path)


def _table(kind: type[Table], value: Mapping[str, object], path: str) -> Iterator[Problem]:
    fields = {field.name: field for field in msgspec.structs.fields(kind)}
    for name, item in value.items():
        if name in fields:
            yield from _walk(fields[name].type, item, join(path, name))
        else:
            yield Problem(join(path, name), f"unknown key{hint(name, fields)}")
    for name, field in fields.items():
        if field.required and name not in value:
            yield Problem(join(path, name), "is missing")


def _number(kind: type, bounds: Range, value: object, path: str) -> Iterator[Problem]:
    problems = list(_plain(kind, value, path))
    yield from problems
    if problems or not isinstance(value, int | float):
        return
    if isinstance(value, float) and not math.isfinite(value):
        yield Problem(path, "must be a finite number")
    elif bounds.exclusive and value <= bounds.low:
        yield Problem(path, f"must be more than {bounds.low:g}")
    elif value < bounds.low:
        yield Problem(path, f"must be at least {bounds.low:g}")
    elif value > bounds.high:
        yield Problem(path, f"must be at most {bounds.high:.15g}")


def _plain(kind: Any, value: object, path: str) -> Iterator[Problem]:
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        words = str(error).replace("`", "")
        yield Problem(path or "(file)", words[:1].lower() + words[1:])


def _filter_tables(raw: Mapping[str, object], kinds: Collection[str]) -> Iterator[Problem]:
    """``[filters.*]`` tables of no known kind, and keys that belong to another kind than their table's."""
    tables = raw.get("filters")
    for name, table in tables.items() if isinstance(tables, Mapping) else ():
        kind = table.get("kind") if isinstance(table, Mapping) else None
        if not isinstance(kind, str):
            continue  # the walk has said so
        path = join("filters", name)
        if kind not in kinds:
            reason = f"must be one of {', '.join(kinds)}{hint(kind, kinds)}"
            yield Problem(join(path, "kind"), reason)
            continue
        for owner, keys in FILTER_KEYS.items():
            for key in sorted(keys.intersection(table)) if owner != kind else ():
                yield Problem(join(path, key), f"unknown key for the kind {kind}")
