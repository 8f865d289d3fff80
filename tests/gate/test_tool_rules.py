"""What a request says of tools is read from its bytes: names, schemas as slices, choices, ceilings; and what is too much or not understood asks for nothing."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gate.ingress import read_chat_request
from gate.tool_rules import (
    TOOL_MEMBERS_MAX,
    TOOLS_BYTES_MAX,
    TOOLS_MAX,
    DeclaredTool,
    ToolRules,
    read_tool_rules,
)

SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}


def function(name: Any, **members: Any) -> dict[str, Any]:
    """One entry of `tools`."""
    return {"type": "function", "function": {"name": name, **members}}


def rules_of(**members: Any) -> ToolRules | None:
    """What a request with these members says."""
    body = json.dumps({"model": "m", "messages": [{}], **members}).encode()
    return read_tool_rules(body, read_chat_request(body, depth_max=64))


def read(**members: Any) -> ToolRules:
    """The same, where it says something."""
    rules = rules_of(**members)
    assert rules is not None
    return rules


def test_a_request_that_says_nothing_has_no_rules() -> None:
    """The usual one."""
    assert rules_of(temperature=1) is None


def test_tools_are_read_with_their_places_and_the_bytes_of_their_schemas() -> None:
    """Custom ones and ones without parameters too."""
    rules = read(tools=[function("f", parameters=SCHEMA), function("g", parameters=None), {"type": "custom", "custom": {"name": "c"}}])  # fmt: skip
    assert rules.tools == {
        "f": DeclaredTool("f", 0, json.dumps(SCHEMA).encode()),
        "g": DeclaredTool("g", 1),
        "c": DeclaredTool("c", 2, custom=True),
    }
    assert rules.closed
    assert (rules.forbidden, rules.required, rules.allowed, rules.parallel) == (False, False, None, True)  # fmt: skip


def test_legacy_functions_are_tools_too() -> None:
    """By their place in their own array; the first of a name counts."""
    rules = read(functions=[{"name": "f", "parameters": SCHEMA}], tools=[function("f")])
    assert rules.tools == {"f": DeclaredTool("f", 0)}
    assert read(functions=[{"name": "f", "parameters": SCHEMA}]).tools["f"].schema


@pytest.mark.parametrize(
    "tool",
    [{"type": "web_search"}, 7, {}, function(7), function(""), {"function": 7}, {"function": {}}, function("x" * 2_000)],
)  # fmt: skip
def test_a_tool_without_a_name_here_leaves_names_unjudged(tool: object) -> None:
    """The provider has its own, and may call them as it likes."""
    rules = read(tools=[function("f"), tool])
    assert list(rules.tools) == ["f"]
    assert not rules.closed
    assert not read(tools=[tool]).closed


@pytest.mark.parametrize("members", [{"tools": []}, {"tools": None}, {"functions": 7}, {"functions": {}}])  # fmt: skip
def test_no_tools_are_no_tools(members: dict[str, Any]) -> None:
    """Names are not judged."""
    assert read(**members) == ToolRules()


def test_too_many_tools_are_none() -> None:
    """Names are not judged, and their schemas neither."""
    large = function("f", description="x" * TOOLS_BYTES_MAX)
    wide = function("f", **{f"x{number}": 0 for number in range(TOOL_MEMBERS_MAX)})
    many = [function(str(number)) for number in range(TOOLS_MAX + 1)]
    for tools in ([large], [wide], many):
        assert read(tools=tools) == ToolRules()
    assert len(read(tools=many[1:]).tools) == TOOLS_MAX


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ("auto", ToolRules()),
        ("none", ToolRules(forbidden=True)),
        ("required", ToolRules(required=True)),
        ("any", ToolRules(required=True)),
        ("novel", ToolRules()),
        (None, ToolRules()),
        (7, ToolRules()),
        ("x" * 70_000, ToolRules()),
        ({"type": "function", "function": {"name": "f"}}, ToolRules(required=True, allowed=frozenset("f"))),
        ({"type": "custom", "custom": {"name": "c"}}, ToolRules(required=True, allowed=frozenset("c"))),
        ({"type": "function", "function": {"name": 7}}, ToolRules()),
        ({"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [function("f"), function("g")]}}, ToolRules(allowed=frozenset("fg"))),
        ({"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [function("f")]}}, ToolRules(required=True, allowed=frozenset("f"))),
        ({"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [{"type": "web_search"}]}}, ToolRules()),
        ({"type": "allowed_tools"}, ToolRules()),
    ],
)  # fmt: skip
def test_a_choice_says_which_tools_may_or_must_be_called(
    choice: object, expected: ToolRules
) -> None:
    """One that is not understood asks for nothing."""
    assert read(tool_choice=choice) == expected


def test_the_legacy_choice_counts_where_there_is_no_other() -> None:
    """The same words, and a bare name."""
    assert read(function_call="none").forbidden
    assert read(function_call={"name": "f"}).allowed == frozenset("f")
    assert not read(function_call="none", tool_choice="auto").forbidden


def test_only_false_forbids_parallel_calls() -> None:
    """Null is the default."""
    assert not read(parallel_tool_calls=False).parallel
    assert read(parallel_tool_calls=None).parallel
    assert read(parallel_tool_calls=0).parallel


@pytest.mark.parametrize(
    ("members", "ceiling"),
    [
        ({"max_tokens": 9}, 9),
        ({"max_tokens": 9, "max_completion_tokens": 5}, 5),
        ({"max_tokens": 9, "n": 3}, 27),
        ({"max_tokens": None, "max_completion_tokens": 0}, None),
        ({"max_tokens": True, "max_completion_tokens": "5"}, None),
        ({"max_tokens": 5.0}, None),
    ],
)
def test_the_smallest_ceiling_counts(members: dict[str, Any], ceiling: int | None) -> None:
    """Each choice may reach it."""
    assert read(**members).ceiling == ceiling


def test_what_is_shown_of_rules_is_numbers() -> None:
    """Names and schemas are the caller's."""
    rules = read(tools=[function("secret", parameters=SCHEMA)])
    for shown in (repr(rules), repr(rules.tools["secret"])):
        assert "secret" not in shown
        assert "required" not in shown
