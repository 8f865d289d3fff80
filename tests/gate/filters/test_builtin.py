"""The table of built-in kinds: every attempt gets filters of its own."""

from __future__ import annotations

import json
from typing import cast, get_args

from gate.config import FilterConfig, FilterKind
from gate.events import Facts, Frame, TextDelta
from gate.filters.builtin import BUILT, FORMAT_BYTES_MAX, filter_context, make_filters
from gate.filters.contract import FilterContext, Passed, Violated
from gate.ingress import read_chat_request
from gate.refs import is_stable_token
from gate.tool_rules import ToolRules


def test_a_route_gets_the_filters_it_lists_as_far_as_they_are_built() -> None:
    """In its order; what is missing was said at the start."""
    made = make_filters(["patterns-of-mine", "empty", "webhook"], FilterContext(1))
    assert [each.name for each in made] == ["empty"]
    assert make_filters([], FilterContext(1)) == []


def test_every_built_kind_is_one_that_a_configuration_may_name() -> None:
    """Under the filter's own, stable name."""
    assert set(get_args(FilterKind)) >= BUILT.keys()
    for kind, build in BUILT.items():
        table = FilterConfig(kind=cast("FilterKind", kind), patterns=("a",))
        rules = ToolRules(required=True)
        made = build(FilterContext(1, {"type": "json_object"}, "repair", rules, table=table))
        assert made is not None
        assert made.name == kind
        assert is_stable_token(kind)


def context_of(**members: object) -> FilterContext:
    """What the filters know of a request with these members."""
    body = json.dumps({"model": "m", "messages": [{}], "n": 2, **members}).encode()
    request = read_chat_request(body, depth_max=64)
    return filter_context(body, request, structured_output="repair")


def test_the_context_is_read_from_the_request() -> None:
    """Each member once, in bounded steps; what is too large to be judged by still asks for something."""
    plain = context_of()
    assert (plain.choices, plain.response_format, plain.tools) == (2, None, None)
    asked = context_of(response_format={"type": "json_object"}, tool_choice="none", max_tokens=3)
    assert asked.response_format == {"type": "json_object"}
    assert asked.tools == ToolRules(forbidden=True, ceiling=6)
    large = {"type": "json_schema", "x": "x" * FORMAT_BYTES_MAX}
    assert context_of(response_format=large).response_format == {"type": "json_schema"}


def test_a_new_attempt_is_judged_anew() -> None:
    """The words of a lost attempt don't make an answer of an empty one."""
    (first,) = make_filters(["empty"], FilterContext(1))
    (second,) = make_filters(["empty"], FilterContext(1))
    first.observe([Frame(b"{}", (TextDelta(0, "hello"),), 2)], 0)
    assert isinstance(first.finish(1, Facts()), Passed)
    assert isinstance(second.finish(0, Facts()), Violated)


def test_filters_know_how_many_choices_were_asked_for() -> None:
    """One answer of two is not enough."""
    (judge,) = make_filters(["empty"], FilterContext(2))
    judge.observe([Frame(b"{}", (TextDelta(0, "hello"),), 2)], 0)
    assert isinstance(judge.finish(1, Facts()), Violated)


def test_a_filter_has_the_name_and_the_options_of_its_table() -> None:
    """Two of one kind, one of which only observes; a name without a table is its kind with its own defaults."""
    tables = {
        "short-loops": FilterConfig(kind="repetition", chars_min=40, repeats_min=2),
        "watch": FilterConfig(kind="empty", gating=False),
        "hook": FilterConfig(kind="webhook", url="http://127.0.0.1:1"),
    }
    names = ["repetition", "short-loops", "watch", "hook"]
    made = make_filters(names, FilterContext(1), tables)
    assert [(each.name, each.gating) for each in made] == [
        ("repetition", True),
        ("short-loops", True),
        ("watch", False),
    ]
    loop = [Frame(b"{}", (TextDelta(0, "la " * 20),), 2, whole=True)]
    assert [isinstance(each.observe(loop, 0), Violated) for each in made] == [False, True, False]


def test_a_table_does_not_make_an_observer_gate() -> None:
    """What a route only checks stays a check."""
    context = FilterContext(1, {"type": "json_object"}, "check")
    tables = {"format": FilterConfig(kind="structured_output")}
    assert [each.gating for each in make_filters(["format"], context, tables)] == [False]


def test_a_filter_that_the_request_gives_nothing_to_judge_is_not_made() -> None:
    """A plain text under a route that checks formats."""
    context = FilterContext(1, None, "repair")
    assert [each.name for each in make_filters(["structured_output", "empty"], context)] == [
        "empty"
    ]
