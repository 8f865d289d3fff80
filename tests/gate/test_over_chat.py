"""A Responses request as a chat request: what is renamed, what stays, and what has no place there."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gate.over_chat import callers_param
from tests.translating import chat_of, refused_for, responses_request, translated_bytes

TOOL = {"type": "function", "name": "sail", "parameters": {"type": "object"}}
SAID = {"role": "user", "content": "Hi"}


def test_the_smallest_request() -> None:
    """One text is one message; nothing is added to it but what a stream needs."""
    assert chat_of() == {"messages": [SAID]}
    assert chat_of(stream=True) == {
        "messages": [SAID],
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    options = {"include_obfuscation": False}
    assert chat_of(stream=False, stream_options=options) == {"messages": [SAID]}


@pytest.mark.parametrize(
    ("members", "told"),
    [
        (
            {"temperature": 0.5, "top_p": 1, "user": "u"},
            {"temperature": 0.5, "top_p": 1, "user": "u"},
        ),
        ({"metadata": {"a": "b"}, "service_tier": "flex"}, None),
        ({"safety_identifier": "s", "prompt_cache_key": "k"}, None),
        ({"top_k": 5, "stop": ["x"], "chat_template_kwargs": {"thinking": False}}, None),
        ({"max_output_tokens": 16}, {"max_tokens": 16}),
        ({"max_output_tokens": None, "tools": None, "text": None, "reasoning": None}, {}),
        ({"reasoning": {"effort": "low", "summary": "auto"}}, {"reasoning_effort": "low"}),
        ({"reasoning": {"effort": None, "generate_summary": None, "x": None}}, {}),
        ({"text": {"verbosity": "low", "format": None}}, {"verbosity": "low"}),
        ({"text": {"format": {"type": "text"}}}, {}),
        ({"store": False, "background": False, "truncation": "disabled", "max_tool_calls": 3}, {}),
        ({"store": None, "previous_response_id": None, "conversation": None}, {}),
        ({"include": []}, {}),
        ({"include": None, "top_logprobs": 3}, {}),
        ({"include": ["reasoning.encrypted_content"]}, {}),
        ({"include": ["message.output_text.logprobs"]}, {"logprobs": True}),
        (
            {"include": ["message.output_text.logprobs"], "top_logprobs": 2},
            {"logprobs": True, "top_logprobs": 2},
        ),
    ],
)
def test_members_are_said_as_chat_says_them(
    members: dict[str, Any], told: dict[str, Any] | None
) -> None:
    """What both know is called the same; a server's own members pass."""
    expected = members if told is None else told
    assert chat_of(**members) == {"messages": [SAID], **expected}


@pytest.mark.parametrize(
    ("members", "param"),
    [
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
        ({"conversation": "c"}, "conversation"),
        ({"prompt": {"id": "p"}}, "prompt"),
        ({"context_management": [{}]}, "context_management"),
        ({"store": True}, "store"),
        ({"truncation": "auto"}, "truncation"),
        ({"include": ["reasoning.encrypted_content", "file_search_call.results"]}, "include[1]"),
        ({"reasoning": {"mode": "pro"}}, "reasoning.mode"),
        ({"reasoning": {"\ud800": 1}}, "reasoning"),
        ({"text": {"shape": 1}}, "text.shape"),
        ({"messages": []}, "messages"),
        ({"response_format": {}}, "response_format"),
        ({"max_tokens": 5}, "max_tokens"),
        ({"n": 2}, "n"),
        ({"reasoning_effort": "low"}, "reasoning_effort"),
    ],
)
def test_what_has_no_place_in_chat_is_refused(members: dict[str, Any], param: str) -> None:
    """With its path, as the caller knows it."""
    assert refused_for(**members) == ("unsupported_over_chat", param)


@pytest.mark.parametrize(
    ("members", "param"),
    [
        ({"instructions": 5}, "instructions"),
        ({"truncation": 5}, "truncation"),
        ({"include": "x"}, "include"),
        ({"include": [5]}, "include[0]"),
        ({"reasoning": "low"}, "reasoning"),
        ({"reasoning": {"effort": 5}}, "reasoning.effort"),
        ({"text": {"verbosity": 5}}, "text.verbosity"),
    ],
)
def test_a_value_of_another_type_is_refused(members: dict[str, Any], param: str) -> None:
    """What is read has to be what it is."""
    assert refused_for(**members) == ("invalid_type", param)


def test_without_anything_to_go_on_from_there_has_to_be_an_input() -> None:
    """A request that brings none is one that only a provider's memory could answer."""
    code, param = refused_for(input=..., prompt={"id": "p"})
    assert (code, param) == ("unsupported_over_chat", "prompt")


def test_members_of_a_provider_keep_their_bytes() -> None:
    """Names and numbers too, however they are written; those that stand there twice stand there twice."""
    data = b'{"model":"m","input":"a","se\\u0065d" : 1.50, "x":1,"x":2}'
    made, told = translated_bytes(data)
    assert b'"se\\u0065d" : 1.50' in made
    assert [member.key for member in told.members] == ["model", "messages", "seed", "x", "x"]
    assert json.loads(made)["seed"] == 1.5


@given(st.recursive(st.none() | st.text() | st.integers(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=20), st.booleans())  # fmt: skip
def test_what_nobody_knows_passes_whatever_it_is(value: Any, large: bool) -> None:
    """Of any size and from any kind of memory; what comes out is JSON."""
    data = responses_request(vendor=value, input=[{"role": "user", "content": "x" * 40_000}])
    made, _ = translated_bytes(data, large=large)
    told = json.loads(made)
    assert (told["vendor"], told["messages"][0]["content"]) == (value, "x" * 40_000)


def test_the_needs_of_a_request_are_those_of_its_chat_request() -> None:
    """But for the endpoint."""
    text = {"format": {"type": "json_schema", "name": "n", "schema": {}}}
    _, told = translated_bytes(responses_request(tools=[TOOL], text=text))
    assert told.needs == {"tools", "json_schema"}


def test_what_a_provider_blames_is_called_as_the_caller_calls_it() -> None:
    """As far as it has a name there."""
    assert callers_param(None) is None
    assert callers_param("messages") == callers_param("messages[3].content") == "input"
    assert callers_param("max_tokens") == "max_output_tokens"
    assert callers_param("response_format.json_schema") == "text.format"
    assert callers_param("messages_too") == "messages_too"
    assert callers_param("temperature") == "temperature"
