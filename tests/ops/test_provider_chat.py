"""Requests are read leniently, and answers are a function of them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ops.provider_chat import (
    QUOTED_CHARS_MAX,
    Call,
    Chat,
    InvalidChat,
    Said,
    error_body,
    read_chat,
)


def body(*messages: dict[str, Any], **more: object) -> bytes:
    """A request body."""
    return json.dumps({"model": "m", "messages": messages, **more}).encode()


def user(content: object) -> dict[str, Any]:
    """A user message."""
    return {"role": "user", "content": content}


def test_the_answer_depends_on_the_last_user_message_alone() -> None:
    """It quotes it; neither the history nor the number of the request matters."""
    first = read_chat(body(user("High or low?")), serial=1)
    later = read_chat(
        body(user("x"), {"role": "assistant", "content": "y"}, user("High or low?")), serial=2
    )
    assert first.text() == later.text()
    assert first.text().startswith("You asked: “High or low?”. ")
    assert 35 <= len(first.text().split()) <= 50
    assert first.text() != read_chat(body(user("Low or high?")), serial=1).text()


def test_content_parts_are_read_as_one_message() -> None:
    """Parts without text count as empty."""
    parts = [{"type": "text", "text": "two"}, {"type": "image_url"}, {"type": "text", "text": "b"}]
    assert read_chat(body(user(parts)), serial=1).prompt == "two  b"
    assert read_chat(body({"role": "user", "content": None}), serial=1).prompt == ""


def test_a_long_prompt_is_quoted_in_part() -> None:
    """The answer stays short, however long the question is."""
    assert len(Chat(model="m", serial=1, prompt="x" * 10_000).text()) < QUOTED_CHARS_MAX + 250


@pytest.mark.parametrize(
    "asked",
    [{"continue_final_message": True}, {}],
    ids=["flag beside the messages", "flag in the message"],
)
@pytest.mark.parametrize("flag", ["prefix", "partial"])
def test_a_started_answer_is_continued(asked: dict[str, Any], flag: str) -> None:
    """What is said after the prefix is the rest of the healthy answer, to the letter."""
    whole = read_chat(body(user("q")), serial=1).text()
    started: dict[str, Any] = {"role": "assistant", "content": whole[:30]}
    if not asked:
        started[flag] = True
    rest = read_chat(body(user("q"), started, **asked), serial=2).answer(0)
    assert whole[:30] + "".join(rest.words) == whole


def test_without_a_flag_a_started_answer_is_history() -> None:
    """A provider that is not asked to continue begins anew."""
    whole = read_chat(body(user("q")), serial=1).text()
    started = {"role": "assistant", "content": whole[:30]}
    assert "".join(read_chat(body(user("q"), started), serial=2).answer(0).words) == whole


def test_the_ceiling_ends_the_answer_with_length() -> None:
    """The newer name of the two wins."""
    said = read_chat(body(user("q"), max_tokens=9, max_completion_tokens=2), serial=1).answer(0)
    assert (len(said.words), said.finish) == (2, "length")


def test_null_members_mean_their_defaults() -> None:
    """Clients send nulls for what they do not set."""
    nulls = dict.fromkeys(("stream", "n", "stream_options", "max_tokens", "tools"))
    chat = read_chat(body(user("q"), **nulls), serial=1)
    assert (chat.stream, chat.n, chat.include_usage, chat.tokens_max) == (False, 1, False, None)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        (b"", "truncated"),
        (b"{", "truncated"),
        (b'{"model": "\xff"}', "UTF-8"),
        (b'{"model": "m"}', "`messages`"),
        (body(), "`$.messages`"),
        (body(user(1)), "`$.messages[0].content`"),
        (body(user("q"), n=1_000), "`$.n`"),
    ],
)
def test_what_is_no_request_is_refused_with_its_place(text: bytes, place: str) -> None:
    """The message is good enough for the 400 it becomes."""
    with pytest.raises(InvalidChat) as caught:
        read_chat(text, serial=1)
    assert place in str(caught.value)


def test_deep_nesting_is_refused() -> None:
    """Nesting beyond the decoder's own limit is a bad request, not a crash."""
    deep = b'{"model": "m", "messages": [], "x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    with pytest.raises(InvalidChat):
        read_chat(deep, serial=1)


def test_a_tool_call_suits_the_declared_schema() -> None:
    """Required members only, with values of their types."""
    properties = {
        "place": {"type": "string"},
        "unit": {"enum": ["m", "ft"]},
        "kind": {"const": "spring"},
        "days": {"type": "array", "items": {"type": "integer"}},
        "deep": {"type": "object", "properties": {"x": {}}, "required": ["x"]},
        "spare": {"type": "string"},
    }
    required = [name for name in properties if name != "spare"]
    schema = {"type": "object", "properties": properties, "required": required}
    tools = [{"type": "custom"}, {"type": "function", "function": _function(schema)}]
    call = read_chat(body(user("q"), tools=tools), serial=7).call(0)
    assert (call.id, call.name) == ("call_00000007_0", "look")
    assert json.loads(call.arguments) == {
        "place": "harbour",
        "unit": "m",
        "kind": "spring",
        "days": [1],
        "deep": {"x": {}},
    }


@pytest.mark.parametrize(
    ("choice", "name"),
    [("required", "look"), ({"type": "function", "function": {"name": "listen"}}, "listen")],
)
def test_a_call_that_is_asked_for_is_made(choice: object, name: str) -> None:
    """Of the tool that is named, or of the first."""
    schema = {"type": "object", "properties": {"at": {"type": "string"}}, "required": ["at"]}
    tools = [{"function": {"name": each, "parameters": schema}} for each in ("look", "listen")]
    said = read_chat(body(user("q"), tools=tools, tool_choice=choice), serial=1).answer(0)
    assert said == Said(call=Call("call_00000001_0", name, '{"at":"harbour"}'), finish="tool_calls")


@pytest.mark.parametrize("choice", ["auto", "none", None])
def test_tools_alone_call_nothing(choice: object) -> None:
    """A healthy answer is a text, unless something else is asked for."""
    tools = [{"function": {"name": "look"}}]
    said = read_chat(body(user("q"), tools=tools, tool_choice=choice), serial=1).answer(0)
    assert (said.call, said.finish) == (None, "stop")


def test_json_that_is_asked_for_suits_its_schema() -> None:
    """In pieces, within the ceiling; any object where no schema is given, and a text where no JSON is asked for."""
    properties = {"ok": {"type": "boolean"}, "name": {"type": "string"}}
    schema = {"type": "object", "properties": properties, "required": ["ok", "name"]}
    asked = {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}
    said = read_chat(body(user("q"), response_format=asked), serial=1).answer(0)
    assert json.loads("".join(said.words)) == {"ok": True, "name": "harbour"}
    assert len(said.words) > 2
    cut = read_chat(body(user("q"), response_format=asked, max_tokens=2), serial=1).answer(0)
    assert (list(cut.words), cut.finish) == (list(said.words[:2]), "length")
    plain = {"type": "json_object"}
    assert read_chat(body(user("q"), response_format=plain), serial=1).answer(0).words == ["{}"]
    words = read_chat(body(user("q"), response_format={"type": "text"}), serial=1).answer(0).words
    assert words == read_chat(body(user("q")), serial=1).answer(0).words


def test_an_endless_schema_is_cut() -> None:
    """Arguments are bounded in depth."""
    schema: dict[str, Any] = {"type": "integer"}
    for _ in range(20):
        schema = {"type": "array", "items": schema}
    call = read_chat(body(user("q"), tools=[{"function": _function(schema)}]), serial=1).call(0)
    assert call.arguments == "[" * 8 + "null" + "]" * 8


def _function(schema: object) -> dict[str, object]:
    return {"name": "look", "parameters": schema}


def test_stream_and_body_say_the_same() -> None:
    """The deltas of a choice add up to its message."""
    said = Said(
        reasoning=["r1", " r2"], words=["a", " b"], call=Call("c", "look", '{"a": "bcdef"}')
    )
    deltas = said.deltas()
    assert deltas[:4] == [
        {"reasoning_content": "r1"},
        {"reasoning_content": " r2"},
        {"content": "a"},
        {"content": " b"},
    ]
    calls = [delta["tool_calls"] for delta in deltas[4:]]
    assert calls[0] == [
        {"index": 0, "id": "c", "type": "function", "function": {"name": "look", "arguments": ""}}
    ]
    assert calls[1:] == [
        [{"index": 0, "function": {"arguments": '{"a": "b'}}],
        [{"index": 0, "function": {"arguments": 'cdef"}'}}],
    ]
    function = {"name": "look", "arguments": '{"a": "bcdef"}'}
    assert said.message() == {
        "role": "assistant",
        "content": None,
        "reasoning_content": "r1 r2",
        "tool_calls": [{"id": "c", "type": "function", "function": function}],
    }


def test_a_refusal_has_no_content() -> None:
    """In a body it stands in a member of its own."""
    message = Said(refusal=["no", " way"]).message()
    assert (message["content"], message["refusal"]) == (None, "no way")


def test_an_error_has_the_envelope_and_the_type_of_its_status() -> None:
    """All four members are there, null or not."""
    assert json.loads(error_body(429, "c", "m")) == {
        "error": {"message": "m", "type": "rate_limit_error", "param": None, "code": "c"}
    }
    assert json.loads(error_body(400, "c", "m", param="n"))["error"]["type"] == (
        "invalid_request_error"
    )
