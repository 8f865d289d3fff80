"""Input items become messages, in an order that chat servers take."""

from __future__ import annotations

from typing import Any

import pytest

from tests.translating import chat_of, messages_of, refused_for

CALL = {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "sail", "arguments": "{}", "status": "completed"}  # fmt: skip
OUTPUT = {"type": "function_call_output", "call_id": "c1", "output": "done"}
CALLED = {"id": "c1", "type": "function", "function": {"name": "sail", "arguments": "{}"}}


def user(content: Any) -> dict[str, Any]:
    """A user's message."""
    return {"role": "user", "content": content}


def said(content: Any, **members: Any) -> dict[str, Any]:
    """The assistant's, as an output item of an earlier response."""
    return {"type": "message", "role": "assistant", "id": "msg_1", "status": "completed", "content": content, **members}  # fmt: skip


def output_text(text: str) -> dict[str, Any]:
    """A part of it."""
    return {"type": "output_text", "text": text, "annotations": []}


def test_messages_become_messages() -> None:
    """With or without a type; what only Responses knows of them goes."""
    told = messages_of(user("Hi"), said([output_text("Ho")]), {"type": "message", **user("Hm")})
    assert told == [user("Hi"), {"role": "assistant", "content": "Ho"}, user("Hm")]


@pytest.mark.parametrize(
    ("items", "told"),
    [
        ([], "Be brief."),
        ([{"role": "system", "content": "Now."}], "Be brief.\n\nNow."),
        (
            [
                {"role": "developer", "content": [{"type": "input_text", "text": 'A "b"'}]},
                {"role": "system", "content": [{"type": "input_text", "text": "c"}] * 2},
            ],
            'Be brief.\n\nA "b"\n\nc\n\nc',
        ),
    ],
)
def test_what_the_system_says_at_the_beginning_is_one_message(items: list[Any], told: str) -> None:
    """Instructions first."""
    made = messages_of(*items, user("Hi"), instructions="Be brief.")
    assert made == [{"role": "system", "content": told}, user("Hi")]


def test_what_the_system_says_later_stands_where_it_was_said() -> None:
    """Under the name that every server knows; so does what is no text."""
    late = messages_of(user("Hi"), {"role": "developer", "content": "Now."}, user("Ho"))
    assert late == [user("Hi"), {"role": "system", "content": "Now."}, user("Ho")]
    picture = {"type": "input_image", "image_url": "data:x"}
    told = messages_of({"role": "system", "content": "a"}, {"role": "system", "content": [picture]})
    assert told == [
        {"role": "system", "content": "a"},
        {"role": "system", "content": [{"type": "image_url", "image_url": {"url": "data:x"}}]},
    ]
    assert messages_of(user("Hi"), instructions=None) == [user("Hi")]


def test_instructions_stand_before_one_text() -> None:
    """Which is the user's."""
    told = chat_of(input="Hi", instructions="Be brief.")["messages"]
    assert told == [{"role": "system", "content": "Be brief."}, user("Hi")]


def test_a_call_in_a_namespace_is_refused() -> None:
    """Its name alone may be another tool's; null says nothing, and the phase of a message is left out."""
    assert refused_for(input=[{**CALL, "namespace": "sea"}, OUTPUT])[1] == "input[0].namespace"
    assert messages_of({**CALL, "namespace": None})[0]["tool_calls"] == [CALLED]
    told = messages_of({**user("Hi"), "phase": "commentary"}, said("Ho", phase="final_answer"))
    assert told == [user("Hi"), {"role": "assistant", "content": "Ho"}]


def test_calls_belong_to_one_message() -> None:
    """That of the assistant before them, or one without words; what they gave comes behind it."""
    second = {**CALL, "call_id": "c2"}
    told = messages_of(user("Hi"), said("I will."), CALL, second, OUTPUT, {**OUTPUT, "call_id": "c2"})  # fmt: skip
    assert told[1] == {
        "role": "assistant",
        "content": "I will.",
        "tool_calls": [CALLED, {**CALLED, "id": "c2"}],
    }
    assert told[2:] == [
        {"role": "tool", "tool_call_id": "c1", "content": "done"},
        {"role": "tool", "tool_call_id": "c2", "content": "done"},
    ]


def test_a_call_behind_something_else_begins_a_message() -> None:
    """So does a message behind calls."""
    told = messages_of(user("Hi"), CALL, OUTPUT, CALL, said("Ho"), user("Hm"))
    calling = {"role": "assistant", "content": None, "tool_calls": [CALLED]}
    result = {"role": "tool", "tool_call_id": "c1", "content": "done"}
    answer = {"role": "assistant", "content": "Ho"}
    assert told == [user("Hi"), calling, result, calling, answer, user("Hm")]


def test_thoughts_of_earlier_turns_are_left_out() -> None:
    """They part nothing that belongs together."""
    thought = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x"}
    told = messages_of(user("Hi"), thought, said("Ho"), thought, CALL, OUTPUT)
    assert [each["role"] for each in told] == ["user", "assistant", "tool"]
    assert told[1]["tool_calls"] == [CALLED]


def test_a_custom_tool_is_called_with_text() -> None:
    """And gives back what any tool does."""
    call = {"type": "custom_tool_call", "call_id": "c1", "name": "run", "input": "ls"}
    result = {"type": "custom_tool_call_output", "call_id": "c1", "output": [{"type": "input_text", "text": "a"}]}  # fmt: skip
    told = messages_of(user("Hi"), call, result)
    custom = {"id": "c1", "type": "custom", "custom": {"name": "run", "input": "ls"}}
    assert told[1] == {"role": "assistant", "content": None, "tool_calls": [custom]}
    assert told[2] == {"role": "tool", "tool_call_id": "c1", "content": "a"}


@pytest.mark.parametrize(
    ("item", "refusal"),
    [
        ({"type": "item_reference", "id": "x"}, ("unsupported_over_chat", "input[1].type")),
        ({"type": "web_search_call"}, ("unsupported_over_chat", "input[1].type")),
        ({"type": 5}, ("invalid_type", "input[1].type")),
        ({"type": "m" * 300}, ("unsupported_over_chat", "input[1].type")),
        ("text", ("invalid_type", "input[1]")),
        ({}, ("missing_required_parameter", "input[1].role")),
        ({"role": "tool", "content": "x"}, ("invalid_value", "input[1].role")),
        ({"role": "user"}, ("missing_required_parameter", "input[1].content")),
        ({"role": "user", "content": None}, ("missing_required_parameter", "input[1].content")),
        ({"role": "user", "content": 5}, ("invalid_type", "input[1].content")),
        ({**CALL, "arguments": {}}, ("invalid_type", "input[1].arguments")),
        ({**CALL, "name": None}, ("missing_required_parameter", "input[1].name")),
        ({**OUTPUT, "call_id": 5}, ("invalid_type", "input[1].call_id")),
        ({**OUTPUT, "output": None}, ("missing_required_parameter", "input[1].output")),
        (
            {"type": "function_call_output", "call_id": "c"},
            ("missing_required_parameter", "input[1].output"),
        ),
    ],
)
def test_an_item_that_chat_has_no_place_for_is_refused(item: Any, refusal: tuple[str, str]) -> None:
    """By its place."""
    assert refused_for(input=[user("Hi"), item]) == refusal
