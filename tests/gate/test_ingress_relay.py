"""What is read of a request that is only relayed."""

from __future__ import annotations

import json

import pytest

from gate.completions import PATH as COMPLETIONS
from gate.errors import RequestRefused
from gate.ingress import INLINE_BYTES_MAX, CallerRequest
from gate.ingress_relay import PROMPTS_MAX, read_relayed_request
from gate.splice import Body
from gate.steps import finished
from tests.doubles import mapped

JSON = b"application/json"
FORM = b"multipart/form-data; boundary=cut"


def read(body: Body, kind: bytes = JSON, *, endpoint: str = "/v1/embeddings") -> CallerRequest:
    """The request."""
    return finished(read_relayed_request(body, kind, endpoint=endpoint, depth_max=8))


def refused(body: Body, kind: bytes = JSON, *, endpoint: str = "/v1/embeddings") -> tuple[str, str | None]:  # fmt: skip
    """How it is refused."""
    with pytest.raises(RequestRefused) as caught:
        read(body, kind, endpoint=endpoint)
    return caught.value.public_code, caught.value.param


def named(body: bytes, request: CallerRequest) -> bytes:
    """The bytes of the model's name."""
    assert request.model_at is not None
    return body[request.model_at.value_start : request.model_at.value_end]


def test_a_json_body_names_its_model() -> None:
    """And whether it wants a stream; the other members are the provider's business."""
    body = b'{"n":"any","model" : "small","stream":true}'
    request = read(body)
    assert (request.model, request.stream, request.choices) == ("small", True, 1)
    assert (request.form, request.needs) == (False, frozenset())
    assert named(body, request) == b'"small"'
    assert request.bound("m\u00f6del") == '"m\u00f6del"'.encode()
    assert read(b'{"stream_format":"sse"}').stream
    assert not read(b'{"stream_format":"audio"}').stream


def test_a_large_body_is_read_in_steps() -> None:
    """With the same result."""
    body = json.dumps({"input": "x" * INLINE_BYTES_MAX, "model": "small"}).encode()
    assert read(mapped(body)) == read(body)
    assert read(body).model == "small"
    assert refused(mapped(body[:-1])) == ("invalid_json", None)


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"", JSON), (b"", b""), (b"{}", JSON), (b'{"model":null}', JSON), (b"RIFF", b"application/octet-stream"), (b'{"a":1}\n{"a":2}', b"application/jsonl"),
        (b"--cut--", FORM), (b"", b"application/x-www-form-urlencoded"),
    ],
)  # fmt: skip
def test_a_body_may_name_no_model(body: bytes, kind: bytes) -> None:
    """A file as it is, or nothing at all."""
    request = read(body, kind)
    assert (request.model, request.model_at) == ("", None)


@pytest.mark.parametrize(
    ("endpoint", "query", "stream"),
    [
        ("/v1/responses/r", "stream=true", True), ("/v1/responses/r", "starting_after=2&stream=1", True), ("/v1/responses/r", "stream=false&stream=True", True),
        ("/v1/responses/r", "", False), ("/v1/responses/r", "stream=maybe&x=stream", False), ("/v1/files/f", "stream=true", False),
    ],
)  # fmt: skip
def test_a_query_asks_for_the_events_of_a_stored_response(
    endpoint: str, query: str, *, stream: bool
) -> None:
    """Of nothing else: there a provider may mean what it likes by it."""
    made = finished(read_relayed_request(b"", b"", endpoint=endpoint, depth_max=8, query=query))
    assert made.stream is stream
    assert not finished(read_relayed_request(b"{}", JSON, endpoint=endpoint, depth_max=8, query=query)).stream  # fmt: skip


def test_an_object_is_read_whatever_it_is_called() -> None:
    """A provider may do so, and must not see another model."""
    body = b'  {"model":"small"}'
    for kind in (b"text/plain", b"", b"application/octet-stream"):
        assert read(body, kind).model == "small"


@pytest.mark.parametrize(
    ("body", "code", "param"),
    [
        (b"{", "invalid_json", None), (b"[]", "invalid_body", None), (b'{"model":7}', "invalid_type", "model"), (b'{"model":""}', "invalid_value", "model"),
        (b'{"model":"a","model":"b"}', "duplicate_key", "model"), (b'{"stream":1}', "invalid_type", "stream"), (b"[" * 20 + b"]" * 20, "invalid_body", None),
        (b'{"a":' + b"[" * 20 + b"]" * 20 + b"}", "json_too_deep", None),
    ],
)  # fmt: skip
def test_a_json_body_is_checked(body: bytes, code: str, param: str | None) -> None:
    """As that of a chat request is."""
    assert refused(body) == (code, param)


@pytest.mark.parametrize(
    ("members", "choices"),
    [
        ({}, 1), ({"prompt": "Hi"}, 1), ({"prompt": "Hi", "n": 3}, 3), ({"prompt": ["a", "b"], "n": 3}, 6), ({"prompt": [1, 2, 3]}, 1), ({"prompt": [[1, 2], [3]]}, 2),
        ({"prompt": []}, 1), ({"prompt": ["]", "\\", '"', ","]}, 4), ({"n": None}, 1),
    ],
)  # fmt: skip
def test_completions_come_for_each_prompt(members: dict[str, object], choices: int) -> None:
    """A list of tokens is one prompt; elsewhere nobody counts."""
    body = json.dumps({"model": "small", **members}).encode()
    assert read(body, endpoint=COMPLETIONS).choices == choices
    assert read(body).choices == 1


def test_prompts_are_counted_up_to_a_bound() -> None:
    """And what is counted has to be countable."""
    for body, param in (
        (json.dumps({"prompt": ["a"] * (PROMPTS_MAX + 1)}).encode(), "prompt"),
        (b'{"prompt":[[[[[[1]]]]]]}', "prompt"),
        (b'{"prompt":"a","n":0}', "n"),
        (b'{"prompt":"a","prompt":"b"}', "prompt"),
    ):
        code, blamed = refused(body, endpoint=COMPLETIONS)
        assert blamed == param, code
    assert read(b'{"n":0}').choices == 1


def test_a_form_names_its_model_in_a_field() -> None:
    """Spelled as it is, without quotes."""
    body = b'--cut\r\ncontent-disposition: form-data; name="model"\r\n\r\nsmall\r\n--cut\r\ncontent-disposition: form-data; name="stream"\r\n\r\nTrue\r\n--cut--'
    request = read(body, FORM)
    assert (request.model, request.stream, request.form) == ("small", True, True)
    assert named(body, request) == b"small"
    assert request.bound("m") == b"m"
    assert refused(body.replace(b"True", b"maybe"), FORM) == ("invalid_type", "stream")
    assert refused(body.replace(b"small", b""), FORM) == ("invalid_value", "model")
    assert read(body.replace(b'"model"', b'"x"'), FORM).stream


@pytest.mark.parametrize(
    ("body", "kind", "code"),
    [
        (b"--cut--", b"multipart/form-data", "invalid_form"), (b"x", FORM, "invalid_form"), (b"model=small", b"application/x-www-form-urlencoded", "unsupported_type"),
    ],
)  # fmt: skip
def test_what_can_not_be_read_for_sure_is_refused(body: bytes, kind: bytes, code: str) -> None:
    """No boundary, no form, or a form of another kind."""
    assert refused(body, kind) == (code, None)
