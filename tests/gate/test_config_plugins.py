"""Tables of a plug-in's kind: the keys of every filter, and its own."""

from __future__ import annotations

from typing import Any

import pytest

from gate.config import PluginConfig
from gate.config_active import inactive
from gate.config_check import decode_config
from gate.config_plugins import SHARED_KEYS, without_own_keys
from gate.config_rules import ConfigInvalid
from tests.plugins import Said, WordPlugin

PLUGINS = {"word": WordPlugin}


def said(filters: object, **more: Any) -> list[str]:
    """Everything that is wrong with a file that has these filters."""
    with pytest.raises(ConfigInvalid) as caught:
        decode_config({"filters": filters, **more}, plugins=PLUGINS)
    return [str(problem) for problem in caught.value.problems]


def test_a_table_of_a_plugin_s_kind_holds_its_options() -> None:
    """Beside those of every filter; other tables are as ever."""
    tables: dict[str, dict[str, object]] = {
        "mine": {"kind": "word", "word": "blast", "action": "exact", "gating": False},
        "plain": {"kind": "word"},
        "loops": {"kind": "repetition", "chars_min": 40},
    }
    raw = {"filters": tables, "routes": {"default": {"filters": ["mine", "empty"]}}}
    config = decode_config(raw, plugins=PLUGINS)
    mine, plain, loops = (config.filters[name] for name in ("mine", "plain", "loops"))
    assert mine == PluginConfig(
        kind="word", action="exact", gating=False, options=Said(word="blast")
    )
    assert isinstance(plain, PluginConfig)
    assert plain.options == Said()
    assert not isinstance(loops, PluginConfig)
    shared = without_own_keys(raw, PLUGINS)
    assert inactive(shared) == ()
    assert tables["mine"]["word"] == "blast", "the tables of the file stay as they are"


def test_the_keys_of_every_filter_are_these() -> None:
    """What a plug-in's options may not be called."""
    shared = {"kind", "action", "gating", "failure", "deadline_ms", "horizon_chars"}
    assert shared == SHARED_KEYS


@pytest.mark.parametrize(
    ("table", "problems"),
    [
        ({"worde": "x"}, ["filters.f.worde: unknown key for the kind word (did you mean word?)"]),
        ({"url": "http://x", "patterns": []}, ["filters.f.url: unknown key for the kind word", "filters.f.patterns: unknown key for the kind word"]),
        ({"word": 3}, ["filters.f.word: expected str, got int"]),
        ({"limit": 0}, ["filters.f.limit: expected int >= 1"]),
        ({"word": "a b"}, ["filters.f: word: a single one"]),
        ({"word": "bug"}, ["filters.f: the plug-in can't read its options: ZeroDivisionError"]),
        ({"deadline_ms": 0, "word": "a b"}, ["filters.f.deadline_ms: must be at least 1", "filters.f: word: a single one"]),
        ({"action": "schema"}, ["filters.f.action: word can't say what a repair would have to mend"]),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_at_its_path(table: dict[str, Any], problems: list[str]) -> None:
    """Whoever decides it, the gate or the plug-in."""
    assert said({"f": {"kind": "word", **table}}) == problems


def test_an_option_that_is_missing_is_named() -> None:
    """Like any key without a default."""

    class Needed(Said, frozen=True, kw_only=True):
        most: int

    plugin = type("Needing", (WordPlugin,), {"options_type": Needed})
    with pytest.raises(ConfigInvalid, match=r"^filters\.f\.most: is missing$"):
        decode_config({"filters": {"f": {"kind": "needing"}}}, plugins={"needing": plugin})


def test_a_kind_that_nobody_brings_is_unknown() -> None:
    """The plug-ins' are named with the others; a slip is recognised, and without the plug-in its table means nothing."""
    [problem] = said({"f": {"kind": "worde"}})
    assert problem.startswith("filters.f.kind: must be one of patterns, ")
    assert problem.endswith(", webhook, word (did you mean word?)")
    with pytest.raises(ConfigInvalid, match=r"filters\.f\.kind: must be one of"):
        decode_config({"filters": {"f": {"kind": "word", "word": "x"}}})


@pytest.mark.parametrize(
    "filters",
    [3, {"f": 3}, {"f": {"kind": 3}}, {"f": {}}, {"f": {"kind": ["word"]}}],
)
def test_tables_of_another_shape_are_said_to_be_wrong(filters: object) -> None:
    """By the walk over the file, once."""
    assert len(said(filters)) == 1


def test_a_route_needs_a_table_for_a_plugin_s_kind() -> None:
    """Its name is no filter by itself."""
    routes = {"default": {"filters": ["word"]}}
    assert said({}, routes=routes) == ["routes.default.filters[0]: unknown filter 'word'"]
