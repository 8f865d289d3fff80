"""A response object has what strict clients want to see: the provider's, else the caller's, else the default."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gate.ingress import read_request
from gate.ingress_responses import RESPONSES_RULES
from gate.responses_defaults import REPEATED_BYTES_MAX, filled, repeated

DETAILS = {
    "input_tokens_details": {"cached_tokens": 0},
    "output_tokens_details": {"reasoning_tokens": 0},
}


def asked(**members: Any) -> dict[str, Any]:
    """What a request with these members has its response repeat."""
    body = json.dumps({"model": "m", "input": "Hi", **members}).encode()
    value: dict[str, Any] = json.loads(
        repeated(body, read_request(body, RESPONSES_RULES, depth_max=64))
    )
    return value


def test_a_response_repeats_what_was_asked_for() -> None:
    """Only what it has a member for; null says nothing, and what a provider has to say nobody else says."""
    told = asked(temperature=0.25, instructions="Be brief.", user="u", tools=None, usage=1, error=2)
    assert told == {"temperature": 0.25, "instructions": "Be brief."}


def test_a_function_has_all_its_members() -> None:
    """A provider's own tool stays as it is."""
    function = {"type": "function", "name": "f", "parameters": {"a": 1}}
    tools = asked(tools=[function, {"type": "web_search"}, 5])["tools"]
    assert tools == [{**function, "description": None, "strict": None}, {"type": "web_search"}]


def test_what_is_asked_of_text_and_reasoning_is_whole() -> None:
    """Strict clients want to see every member of them."""
    form = {"type": "json_schema", "name": "n", "schema": {}}
    assert asked(text={"format": form}) == {
        "text": {"format": {**form, "description": None, "strict": False}}
    }
    assert asked(text={"verbosity": "low"})["text"] == {
        "verbosity": "low",
        "format": {"type": "text"},
    }
    assert asked(text={"format": {"type": "json_object"}})["text"] == {
        "format": {"type": "json_object"}
    }
    assert asked(text={"format": 5})["text"] == {"format": 5}
    assert asked(reasoning={"effort": "low"})["reasoning"] == {"effort": "low", "summary": None}


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (b"null", None),
        (b"{}", {}),
        (b'{"input_tokens": 3}', {"input_tokens": 3, **DETAILS}),
        (
            b'{"input_tokens":3,"output_tokens_details":null}',
            {"input_tokens": 3, **DETAILS},
        ),
        (
            b'{"input_tokens_details":{"cached_tokens":2}}',
            {**DETAILS, "input_tokens_details": {"cached_tokens": 2}},
        ),
    ],
)
def test_usage_has_its_details(said: bytes, told: Any) -> None:
    """Behind the provider's own members, which keep their bytes."""
    usage = filled({"usage": said}, {})["usage"]
    assert json.loads(usage) == told
    whole = json.dumps(DETAILS).encode()
    assert filled({"usage": whole}, {})["usage"] == whole


def test_what_is_too_large_is_not_repeated() -> None:
    """All of it together has a bound."""
    half = "x" * (REPEATED_BYTES_MAX // 2)
    told = asked(instructions=half, prompt_cache_key=half, safety_identifier="s")
    assert sorted(told) == ["instructions", "safety_identifier"]


def test_a_providers_member_stays() -> None:
    """Whatever it says; what it leaves out is the caller's, or the default."""
    values = filled({"top_p": b"0.5", "x": b"1"}, {"top_p": b"0.1", "temperature": b"0.2"})
    assert (values["top_p"], values["temperature"], values["x"]) == (b"0.5", b"0.2", b"1")
    assert (values["error"], values["store"], values["tools"]) == (b"null", b"false", b"[]")
    assert list(values)[:2] == ["top_p", "x"]


def test_null_stays_where_it_may_be() -> None:
    """Elsewhere it says as little as nothing."""
    values = filled({"text": b"null", "reasoning": b"null", "error": b"null"}, {"reasoning": b"{}"})
    assert values["text"] == b'{"format":{"type":"text"}}'
    assert (values["reasoning"], values["error"]) == (b"null", b"null")
    assert list(values)[:3] == ["text", "reasoning", "error"]
