"""The endpoints: each brings its own parts, found by its path."""

from __future__ import annotations

import pytest

from gate.endpoints import CHAT, ENDPOINTS, RESPONSES, Endpoint, Expected, framing_for
from gate.framing import ChatJson, ChatSse
from gate.ingress import read_request
from gate.mending import ChatMender
from gate.reader import ChatBodyReader, ChatStreamReader
from gate.responses import ResponsesBodyReader, ResponsesStreamReader
from gate.responses_framing import ResponsesJson, ResponsesSse
from gate.responses_mending import ResponsesMender
from gate.responses_unmended import ResponsesUnmended
from gate.unmended import Unmended
from tests.pipeline import start

PARTS = {
    CHAT: (ChatStreamReader, ChatBodyReader, ChatMender, ChatSse, ChatJson),
    RESPONSES: (ResponsesStreamReader, ResponsesBodyReader, ResponsesMender, ResponsesSse, ResponsesJson),
}  # fmt: skip


@pytest.mark.parametrize("endpoint", PARTS, ids=lambda each: each.label)
def test_an_endpoint_brings_its_own_parts(endpoint: Endpoint) -> None:
    """Readers by what the head says, one mender, two framings named after it."""
    stream, body, mender, sse, whole = PARTS[endpoint]
    expected = Expected(1, True, 9, 9)
    assert type(endpoint.reader(b"text/event-stream; charset=utf-8", expected)) is stream
    assert type(endpoint.reader(b"application/json", expected)) is body
    assert type(endpoint.reader(b"application/problem+json", expected)) is body
    assert endpoint.reader(b"text/html", expected) is None
    made = endpoint.mender(1, "reasoning", None, tags=None, before=None)
    assert type(made) is mender
    after = endpoint.mender(1, "reasoning", None, tags=None, before=made)
    assert type(after) is mender
    for streams, kind in ((True, sse), (False, whole)):
        framing = framing_for(start(stream=streams, endpoint=endpoint))
        assert type(framing) is kind
        assert framing.name.startswith(endpoint.label)


def test_an_endpoint_is_found_by_its_path() -> None:
    """Its rules, its way to a provider and its ids belong to it."""
    assert set(ENDPOINTS) == {"/v1/chat/completions", "/v1/responses"}
    for path, endpoint in ENDPOINTS.items():
        assert endpoint.path == endpoint.rules.path == path
        assert path == f"/v1{endpoint.upstream}"
    assert (CHAT.name("x"), RESPONSES.name("x")) == ("chatcmpl-x", "resp_x")
    assert CHAT.kept_bytes([]) == 0
    assert (type(CHAT.unmended()), type(RESPONSES.unmended())) == (Unmended, ResponsesUnmended)
    body = b'{"model":"m","messages":[1],"temperature":0.5}'
    assert CHAT.repeated(body, read_request(body, CHAT.rules, depth_max=64)) == b""
