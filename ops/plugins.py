"""The filters that other packages bring, by the entry point group `tidegate.filters`: the entry point's name is the kind, what it names the class."""

from __future__ import annotations

import importlib.metadata
import inspect
from collections.abc import Iterable, Iterator
from importlib.metadata import EntryPoint
from typing import Final, get_args

from gate.config import FilterKind, Table
from gate.config_plugins import SHARED_KEYS, Plugins
from gate.config_rules import ConfigInvalid, Problem
from gate.filters.plugin import FilterPlugin
from gate.refs import is_stable_token

__all__ = ["GROUP", "load_plugins"]

GROUP: Final = "tidegate.filters"


def load_plugins(found: Iterable[EntryPoint] | None = None) -> Plugins:
    """Every plug-in that is installed, or those `found`, by kind.

    Raises `ConfigInvalid` with everything that can't be used: one that is installed and does not load would be missed only where it was to protect somebody.
    """
    points = list(importlib.metadata.entry_points(group=GROUP) if found is None else found)
    loaded: dict[str, type[FilterPlugin]] = {}
    problems: list[Problem] = []
    for point in points:
        kind = point.name
        path = f"{GROUP}: {kind[:128]!a} ({point.value[:256]!a})"
        wrong = list(_wrong_kind(kind, taken=loaded.keys()))
        if not wrong:
            try:
                loaded[kind] = point.load()
            except Exception as error:  # noqa: BLE001 - importing runs code of others
                told = str(error).partition("\n")[0][:256]
                wrong = [f"can't be loaded: {type(error).__name__}: {told}"]
            else:
                wrong = list(_wrong_class(loaded[kind]))
        problems += [Problem(path, each) for each in wrong]
    if problems:
        raise ConfigInvalid(tuple(problems))
    return loaded


def _wrong_kind(kind: str, *, taken: Iterable[str]) -> Iterator[str]:
    if not is_stable_token(kind):
        yield "the name must be 1 to 128 characters of a-z 0-9 . _ : -"
    if kind in get_args(FilterKind):
        yield "is the name of a built-in kind"
    if kind in taken:
        yield "another package has a plug-in of this name"


def _wrong_class(plugin: object) -> Iterator[str]:
    if not (isinstance(plugin, type) and issubclass(plugin, FilterPlugin)):
        yield "is no class derived from gate.filters.plugin.FilterPlugin"
        return
    if inspect.isabstract(plugin):
        yield f"leaves out {', '.join(sorted(plugin.__abstractmethods__))}"
    options: object = plugin.options_type
    if not (isinstance(options, type) and issubclass(options, Table)):
        yield "its options_type is no struct derived from gate.config.Table"
        return
    for key in sorted(SHARED_KEYS.intersection(options.__struct_fields__)):
        yield f"its option {key} is a key of every filter"
