"""A Responses request, translated: the chat request that a provider would get, and what is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gate.errors import RequestRefused
from gate.ingress import CallerRequest, read_chat_request, read_request
from gate.ingress_responses import RESPONSES_RULES
from gate.over_chat import translate
from gate.over_chat_pieces import Output
from gate.splice import Body
from gate.steps import finished
from tests.doubles import mapped


def responses_request(**members: Any) -> bytes:
    """A request of the Responses API; a member that is Ellipsis is left out."""
    told = {"model": "small", "input": "Hi", **members}
    return json.dumps({name: value for name, value in told.items() if value is not ...}).encode()


def written(output: Output, body: Body) -> bytes:
    """All of its pieces, as one."""
    pieces = output.taken()
    return b"".join([each if isinstance(each, bytes) else body[slice(*each)] for each in pieces])


def translated_bytes(data: bytes, *, large: bool = False) -> tuple[bytes, CallerRequest]:
    """The chat request of this one. `large`: from mapped memory, as large bodies are."""
    body: Body = mapped(data) if large else data
    request = read_request(data, RESPONSES_RULES, depth_max=64)
    output = Output(body)
    told = finished(translate(body, request, output))
    made = written(output, body)
    assert output.size == len(made)
    return made, told


def chat_of(**members: Any) -> dict[str, Any]:
    """The chat request, decoded; what the gate knows of it is what a reader of it would find."""
    made, told = translated_bytes(responses_request(**members))
    again = read_chat_request(made, depth_max=64)
    assert (again.members, again.model_at, again.stream) == (told.members, told.model_at, told.stream)  # fmt: skip
    assert (again.needs, again.include_usage, again.choices) == (told.needs, told.include_usage, 1)
    value: dict[str, Any] = json.loads(made)
    assert value.pop("model") == "small"
    return value


def messages_of(*items: Any, **members: Any) -> Any:
    """The messages of a request with these input items."""
    return chat_of(input=list(items), **members)["messages"]


def refused_for(**members: Any) -> tuple[str, str | None]:
    """The code and the param of the refusal."""
    with pytest.raises(RequestRefused) as caught:
        translated_bytes(responses_request(**members))
    assert caught.value.http_status == 400
    return caught.value.public_code, caught.value.param
