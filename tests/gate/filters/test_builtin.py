"""The table of built-in kinds: every attempt gets filters of its own."""

from __future__ import annotations

import json
from typing import Any, get_args

import pytest

from gate.config import FilterKind
from gate.events import Facts, Frame, TextDelta
from gate.filters.builtin import BUILT, filter_context, make_filters
from gate.filters.contract import FilterContext, Passed, Violated
from gate.ingress import read_chat_request
from gate.refs import is_stable_token


def test_a_route_gets_the_filters_it_lists_as_far_as_they_are_built() -> None:
    """In its order; what is missing was said at the start."""
    made = make_filters(["patterns-of-mine", "empty", "webhook"], FilterContext(1))
    assert [each.name for each in made] == ["empty"]
    assert make_filters([], FilterContext(1)) == []


def test_every_built_kind_is_one_that_a_configuration_may_name() -> None:
    """Under the filter's own, stable name."""
    assert set(get_args(FilterKind)) >= BUILT.keys()
    context = FilterContext(1, {"type": "json_object"}, "repair", "strict")
    for kind, build in BUILT.items():
        made = build(context)
        assert made is not None
        assert made.name == kind
        assert is_stable_token(kind)


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
    assert context() == FilterContext(1, None, "reject", "strict")
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
