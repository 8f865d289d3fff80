"""A request of the Responses API: what is read of it, what is refused and why."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gate.errors import RequestRefused
from gate.ingress import CallerRequest, read_large_request, read_request
from gate.ingress_responses import RESPONSES_RULES
from gate.steps import finished


def read(**members: Any) -> CallerRequest:
    """The request that these members make, read at once as well as in steps."""
    body = json.dumps({"model": "small", "input": "Hi", **members}).encode()
    steps = read_large_request(body, RESPONSES_RULES, depth_max=64)
    request = read_request(body, RESPONSES_RULES, depth_max=64)
    assert finished(steps) == request
    return request


def test_the_smallest_request() -> None:
    """One text, and nothing that is kept."""
    request = read()
    assert (request.endpoint, request.model, request.stream) == ("/v1/responses", "small", False)
    assert (request.choices, request.include_usage, request.stored) == (1, False, False)
    assert request.needs == {"responses"}


@pytest.mark.parametrize(
    ("members", "needs"),
    [
        ({"tools": [{"type": "function"}]}, {"tools"}),
        ({"tools": []}, set()),
        ({"text": {"format": {"type": "json_schema"}}}, {"json_schema"}),
        ({"text": {"format": {"type": "text"}}}, set()),
        ({"text": None, "tools": None, "stream": True, "stream_options": {"x": 1}}, set()),
    ],
)
def test_a_request_needs_what_its_members_name(members: Any, needs: set[str]) -> None:
    """And a provider that knows the endpoint."""
    assert read(**members).needs == needs | {"responses"}


@pytest.mark.parametrize(
    ("members", "stored"),
    [
        ({"store": True}, True),
        ({"store": False}, False),
        ({"previous_response_id": "resp_1"}, True),
        ({"conversation": "conv_1"}, True),
        ({"previous_response_id": None, "prompt": None}, False),
    ],
)
def test_what_a_provider_keeps_is_known(members: Any, *, stored: bool) -> None:
    """An attempt that fails may leave an answer behind there."""
    assert read(**members).stored is stored


@pytest.mark.parametrize(
    "members",
    [
        {"input": [{"role": "user", "content": "Hi"}]},
        {"input": None, "previous_response_id": "resp_1"},
        {"input": [], "prompt": {"id": "p"}},
        {"input": ""},
        {"background": False},
    ],
)
def test_input_is_a_text_or_a_list_of_items(members: Any) -> None:
    """It may be left out where the provider has something to go on from."""
    assert read(**members).model == "small"


@pytest.mark.parametrize(
    ("members", "code", "param"),
    [
        ({"input": None}, "missing_required_parameter", "input"),
        ({"input": []}, "invalid_value", "input"),
        ({"input": {}}, "invalid_type", "input"),
        ({"input": 5, "previous_response_id": "r"}, "invalid_type", "input"),
        ({"background": True}, "unsupported_parameter", "background"),
        ({"background": "yes"}, "invalid_type", "background"),
        ({"store": 1}, "invalid_type", "store"),
        ({"previous_response_id": 5}, "invalid_type", "previous_response_id"),
        ({"stream_options": []}, "invalid_type", "stream_options"),
        ({"tools": {}}, "invalid_type", "tools"),
        ({"text": "json"}, "invalid_type", "text"),
        ({"model": 5}, "invalid_type", "model"),
    ],
)
def test_a_wrong_request_is_refused_with_its_member(members: Any, code: str, param: str) -> None:
    """As a 400."""
    with pytest.raises(RequestRefused) as caught:
        read(**members)
    refused = caught.value
    assert (refused.http_status, refused.public_code, refused.param) == (400, code, param)


def test_no_parser_may_see_another_value() -> None:
    """A member that is read stands there once; one of chat's may stand there as often as it likes."""
    body = b'{"model":"m","input":"a","input":"b"}'
    with pytest.raises(RequestRefused) as caught:
        read_request(body, RESPONSES_RULES, depth_max=64)
    assert (caught.value.public_code, caught.value.param) == ("duplicate_key", "input")
    other = b'{"model":"m","input":"a","messages":1,"messages":2}'
    assert read_request(other, RESPONSES_RULES, depth_max=64).model == "m"
