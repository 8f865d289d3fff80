"""The table of built-in kinds: every attempt gets filters of its own."""

from __future__ import annotations

import json
from typing import Any, cast, get_args

import pytest

from gate.config import FilterConfig, FilterKind
from gate.events import Facts, Frame, TextDelta
from gate.filters.awaited import Awaited
from gate.filters.builtin import BUILT, FORMAT_BYTES_MAX, filter_context, make_filters
from gate.filters.contract import FilterContext, Passed, Violated
from gate.filters.empty import EmptyFilter
from gate.filters.policed import Policed
from gate.ingress import read_chat_request
from gate.refs import is_stable_token
from gate.tool_rules import ToolRules


def test_a_route_gets_the_filters_it_lists() -> None:
    """In its order; those that have a table are under its policies, or wait for their answers."""
    tables = {
        "words": FilterConfig(kind="patterns", patterns=("a",), gating=False),
        "hook": FilterConfig(kind="webhook", url="http://127.0.0.1:1/"),
    }
    made = make_filters(["words", "empty", "hook"], FilterContext(1), tables)
    assert [(each.name, each.gating) for each in made] == [
        ("words", False),
        ("empty", True),
        ("hook", True),
    ]
    assert [type(each) for each in made] == [Policed, EmptyFilter, Awaited]
    assert make_filters([], FilterContext(1)) == []


def test_every_built_kind_is_one_that_a_configuration_may_name() -> None:
    """Under the filter's own, stable name."""
    assert set(get_args(FilterKind)) >= BUILT.keys()
    for kind, build in BUILT.items():
        table = FilterConfig(kind=cast("FilterKind", kind), patterns=("a",))
        rules = ToolRules(required=True)
        made = build(
            FilterContext(1, {"type": "json_object"}, "repair", "strict", tools=rules, table=table)
        )
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


def test_a_policy_that_the_route_switches_on_needs_no_place_in_its_list() -> None:
    """Nor is it there twice; listed, and switched off, it is not there."""
    strict = FilterContext(1, {"type": "json_object"}, "repair", "strict")
    assert [each.name for each in make_filters(["empty"], strict)] == ["empty", "output_policy"]
    assert [each.name for each in make_filters(["output_policy"], strict)] == ["output_policy"]
    off = FilterContext(1, {"type": "json_object"}, "repair")
    assert make_filters(["output_policy"], off) == []


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
    }
    names = ["repetition", "short-loops", "watch"]
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


def context(**members: Any) -> FilterContext:
    """What filters know of a request with these members."""
    value = {"model": "m", "messages": [{"role": "user", "content": "x"}], **members}
    body = json.dumps(value).encode()
    request = read_chat_request(body, depth_max=64)
    return filter_context(body, request, structured_output="reject", output_policy="strict")


def test_filters_know_what_the_request_asks_for() -> None:
    """And what its route says."""
    asked = {"type": "json_object"}
    tools = [{"type": "function", "function": {"name": "f"}}]
    plain = context()
    assert (plain.choices, plain.response_format, plain.may_call) == (1, None, False)
    assert (plain.structured_output, plain.output_policy) == ("reject", "strict")
    assert context(n=2, response_format=asked).response_format == asked
    assert context(n=2).choices == 2
    assert context(tools=tools).may_call
    assert context(tools=tools, tool_choice="required").tool_choice == "required"
    large = {"type": "json_schema", "x": "x" * 600_000}
    assert context(response_format=large).response_format == {"type": "json_schema"}


def test_what_filters_know_shows_no_schema() -> None:
    """By itself."""
    known = FilterContext(2, {"secret": 1}, "check", tool_choice="secret")
    assert repr(known) == "FilterContext(2 choices, check)"


@pytest.mark.parametrize(
    ("members", "ceiling"),
    [
        ({"max_tokens": 7}, 7),
        ({"max_tokens": 7, "max_completion_tokens": 5}, 5),
        ({"max_tokens": None, "max_completion_tokens": 5}, 5),
        ({"max_tokens": 0}, 0),
        ({"max_tokens": True}, 0),
        ({"max_tokens": "7"}, 0),
    ],
)
def test_the_ceiling_is_the_lowest_that_the_request_names(
    members: dict[str, object], ceiling: int
) -> None:
    """Nothing that is no number is one."""
    assert context(**members).ceiling == ceiling
