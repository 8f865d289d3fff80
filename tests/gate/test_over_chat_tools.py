"""Tools, choices and formats lie one level deeper in chat."""

from __future__ import annotations

from typing import Any

import pytest

from tests.translating import chat_of, refused_for

TOOL = {"type": "function", "name": "sail", "parameters": {"type": "object"}}
GRAMMAR = {"type": "grammar", "syntax": "lark", "definition": "start: /x/"}
NESTED = {"type": "function", "function": {"name": "sail", "parameters": {"type": "object"}}}


@pytest.mark.parametrize(
    ("tool", "told"),
    [
        (TOOL, NESTED),
        (
            {"type": "function", "name": "f", "strict": True, "description": None, "x": 1},
            {
                "type": "function",
                "function": {"name": "f", "strict": True, "description": None, "x": 1},
            },
        ),
        ({"type": "custom", "name": "c"}, {"type": "custom", "custom": {"name": "c"}}),
        (
            {"type": "custom", "name": "c", "format": GRAMMAR},
            {
                "type": "custom",
                "custom": {
                    "name": "c",
                    "format": {
                        "type": "grammar",
                        "grammar": {"syntax": "lark", "definition": "start: /x/"},
                    },
                },
            },
        ),
        (
            {"type": "custom", "format": {"type": "text"}},
            {"type": "custom", "custom": {"format": {"type": "text"}}},
        ),
        (
            {"type": "custom", "name": "c", "format": None},
            {"type": "custom", "custom": {"name": "c", "format": None}},
        ),
    ],
)
def test_a_tool_is_said_in_a_member_of_its_own(tool: Any, told: Any) -> None:
    """With all that it says."""
    assert chat_of(tools=[tool])["tools"] == [told]


def test_many_tools_are_read_in_steps() -> None:
    """All of them, in order."""
    names = [f"f{n}" for n in range(200)]
    tools = chat_of(tools=[{"type": "function", "name": name} for name in names])["tools"]
    assert [tool["function"]["name"] for tool in tools] == names


def test_a_members_name_may_be_anything() -> None:
    """Half a character becomes a whole one, since JSON has to be UTF-8."""
    tools = chat_of(tools=[{"type": "function", "name": "f", 'a"\ud800': 1}])["tools"]
    assert tools[0]["function"] == {"name": "f", 'a"\ufffd': 1}


@pytest.mark.parametrize(
    ("choice", "told"),
    [
        ("auto", "auto"),
        ("none", "none"),
        ("required", "required"),
        (
            {"type": "function", "name": "sail"},
            {"type": "function", "function": {"name": "sail"}},
        ),
        ({"type": "custom", "name": "c"}, {"type": "custom", "custom": {"name": "c"}}),
        (
            {
                "type": "allowed_tools",
                "mode": "required",
                "tools": [{"type": "function", "name": "sail"}, {"type": "custom", "name": "c"}],
            },
            {
                "type": "allowed_tools",
                "allowed_tools": {
                    "mode": "required",
                    "tools": [
                        {"type": "function", "function": {"name": "sail"}},
                        {"type": "custom", "custom": {"name": "c"}},
                    ],
                },
            },
        ),
        (
            {"type": "allowed_tools", "mode": "auto"},
            {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": []}},
        ),
    ],
)
def test_a_choice_is_said_as_chat_says_it(choice: Any, told: Any) -> None:
    """Beside the tools that it chooses from."""
    made = chat_of(tools=[TOOL], tool_choice=choice, parallel_tool_calls=False)
    assert (made["tool_choice"], made["parallel_tool_calls"]) == (told, False)


def test_without_tools_nothing_is_said_of_them() -> None:
    """Servers refuse that; a call that is demanded all the same is demanded there, too."""
    without: tuple[Any, ...] = (None, [], ...)
    for tools in without:
        assert set(chat_of(tools=tools, tool_choice="auto", parallel_tool_calls=True)) == {"messages"}  # fmt: skip
    assert chat_of(tool_choice="required")["tool_choice"] == "required"
    named = {"type": "function", "name": "sail"}
    assert chat_of(tool_choice=named)["tool_choice"]["function"] == {"name": "sail"}


@pytest.mark.parametrize(
    ("form", "told"),
    [
        ({"type": "json_object"}, {"type": "json_object"}),
        (
            {"type": "json_schema", "name": "n", "schema": {"type": "object"}, "strict": True},
            {
                "type": "json_schema",
                "json_schema": {"name": "n", "schema": {"type": "object"}, "strict": True},
            },
        ),
        ({"type": "json_schema"}, {"type": "json_schema", "json_schema": {}}),
    ],
)
def test_a_format_is_the_response_format(form: Any, told: Any) -> None:
    """With its schema one level deeper."""
    assert chat_of(text={"format": form})["response_format"] == told


@pytest.mark.parametrize(
    ("members", "refusal"),
    [
        ({"tools": [{"type": "web_search"}]}, ("unsupported_over_chat", "tools[0].type")),
        ({"tools": [TOOL, {"type": "mcp"}]}, ("unsupported_over_chat", "tools[1].type")),
        ({"tools": [TOOL, 5]}, ("invalid_type", "tools[1]")),
        ({"tools": [{"name": "f"}]}, ("missing_required_parameter", "tools[0].type")),
        (
            {"tools": [{"type": "custom", "name": "c", "format": 5}]},
            ("invalid_type", "tools[0].format"),
        ),
        ({"tool_choice": "any"}, ("unsupported_over_chat", "tool_choice")),
        ({"tool_choice": 5}, ("invalid_type", "tool_choice")),
        ({"tool_choice": {"type": "file_search"}}, ("unsupported_over_chat", "tool_choice.type")),
        (
            {"tool_choice": {"type": "function"}},
            ("missing_required_parameter", "tool_choice.name"),
        ),
        (
            {"tool_choice": {"type": "allowed_tools", "tools": [{"type": "mcp"}]}},
            ("unsupported_over_chat", "tool_choice.tools[0].type"),
        ),
        (
            {"tool_choice": {"type": "allowed_tools", "tools": []}},
            ("missing_required_parameter", "tool_choice.mode"),
        ),
        ({"text": {"format": {"type": "grammar"}}}, ("unsupported_over_chat", "text.format.type")),
        ({"text": {"format": "json"}}, ("invalid_type", "text.format")),
    ],
)
def test_what_a_caller_does_not_carry_out_is_refused(
    members: dict[str, Any], refusal: tuple[str, str]
) -> None:
    """A provider's own tool has no place in chat."""
    assert refused_for(**members) == refusal
