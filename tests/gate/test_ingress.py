"""The caller's body: what is read of it, what is refused and why, and everything else left as it came."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gate.budget import MemoryBudget
from gate.dialects import CEILINGS, flags
from gate.errors import BudgetExceeded, RequestRefused, SnapshotClosed
from gate.ingress import (
    INLINE_BYTES_MAX,
    READ,
    CallerRequest,
    IngressSnapshot,
    read_chat_request,
    read_large_request,
)
from gate.steps import finished

DEPTH = 64
BODY = b'{"model":"small","messages":[{"role":"user","content":"hi"}]}'


def read(body: bytes, depth_max: int = DEPTH) -> CallerRequest:
    """The request that a body is, read in steps as well as at once: the same, or the same refusal."""
    at_once = partial(read_chat_request, body, depth_max=depth_max)
    assert said(lambda: finished(read_large_request(body, depth_max=depth_max))) == said(at_once)
    return at_once()


def said(read_it: Callable[[], CallerRequest]) -> object:
    """The request, or its refusal."""
    try:
        return read_it()
    except RequestRefused as refused:
        return refused.http_status, refused.public_code, refused.param


def with_member(name: str, value: str) -> bytes:
    """A good body with one more member, its value as JSON text."""
    return BODY[:-1] + f',"{name}":{value}}}'.encode()


def refusal_of(body: bytes, depth_max: int = DEPTH) -> tuple[int, str, str | None]:
    """Status, code and param with which a body is refused."""
    with pytest.raises(RequestRefused) as caught:
        read(body, depth_max)
    return caught.value.http_status, caught.value.public_code, caught.value.param


def named(body: bytes, request: CallerRequest) -> bytes:
    """The bytes of the model's name."""
    assert request.model_at is not None
    return body[request.model_at.value_start : request.model_at.value_end]


def test_the_smallest_request_has_the_defaults() -> None:
    """One choice, no stream, no usage, nothing special needed."""
    request = read(BODY)
    assert (request.model, request.stream, request.include_usage) == ("small", False, False)
    assert (request.choices, request.needs) == (1, frozenset())
    assert named(BODY, request) == b'"small"'


def test_everything_that_is_read_is_read() -> None:
    """In any order and with white space around."""
    body = b""" \n{
      "n": 128, "tools": [ {"type": "function"} ], "stream_options" : {"include_usage":true},
      "response_format": {"type": "json_schema", "json_schema": {}}, "messages": [ 1 ],
      "stream":true, "mod\\u0065l": "a/b" , "seed": 1e400 } \r\n"""
    request = read(body)
    assert (request.model, request.stream, request.include_usage) == ("a/b", True, True)
    assert (request.choices, sorted(request.needs)) == (128, ["json_schema", "tools"])
    assert named(body, request) == b'"a/b"'


def test_every_member_of_the_top_level_is_kept_with_its_place() -> None:
    """Whoever changes one later need not read the body again; a name that stands twice is there twice."""
    body = BODY[:-1] + b',"x":1,"x":2}'
    values = [body[each.value_start : each.value_end] for each in read(body).members]
    assert values[-2:] == [b"1", b"2"]
    assert {"model", "messages", "x"} <= {each.key for each in read(body).members}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("stream", "null"),
        ("stream", "false"),
        ("stream_options", "null"),
        ("stream_options", "{}"),
        ("stream_options", '{"include_usage":null}'),
        ("stream_options", '{"include_usage":false,"include_obfuscation":true}'),
        ("n", "null"),
        ("n", "1"),
        ("tools", "null"),
        ("tools", "[ ]"),
        ("response_format", "null"),
        ("response_format", '{"type":"json_object"}'),
        ("max_tokens", '"a number, one hopes"'),
        ("seed", "9" * 5000),
        ("user", '"\\ud83d"'),
        ("metadata", '{"a":1,"a":2}'),
    ],
)
def test_what_says_nothing_new_changes_nothing(name: str, value: str) -> None:
    """Null is absent, and what the gate does not read is the provider's to judge."""
    plain, request = read(BODY), read(with_member(name, value))
    assert msgspec.structs.replace(request, members=plain.members, options_at=None) == plain


def test_a_request_needs_what_its_members_name() -> None:
    """A tool of any kind, or a schema; the target must be able to serve it."""
    assert read(with_member("tools", "[5]")).needs == frozenset({"tools"})
    schema = with_member("response_format", '{"type":"json_schema"}')
    assert read(schema).needs == frozenset({"json_schema"})


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b" \n",
        b"model",
        b"{",
        BODY[:-1],
        BODY + b"}",
        BODY + BODY,
        b"\xef\xbb\xbf" + BODY,
        BODY.decode().encode("utf-16"),
        with_member("x", "NaN"),
        with_member("x", "-Infinity"),
        with_member("x", "1.0.0"),
        with_member("x", "01"),
        with_member("x", "'a'"),
        with_member("x", '"\t"'),
        with_member("x", '"\\x"'),
        with_member("x", "[1,]"),
        BODY.replace(b"hi", b"h\xe9"),
        BODY.replace(b"hi", b"\xed\xa0\x80"),
        BODY.replace(b"hi", b"\xff\\ud800"),
        BODY.replace(b'"role"', b'"\xc3\x28"'),
        with_member("x", '"\\ud800",}'),
        with_member("x", 'NaN,"y":"\\ud800"'),
    ],
)
def test_what_is_not_json_in_utf_8_is_refused(body: bytes) -> None:
    """Empty, cut, doubled, with a byte order mark, or with what only some parsers take."""
    assert refusal_of(body) == (400, "invalid_json", None)


@pytest.mark.parametrize("body", [b"[]", b"null", b'"model"', b"5", b"[%b]" % BODY])
def test_a_root_that_is_no_object_is_refused(body: bytes) -> None:
    """It is JSON, but no request."""
    assert refusal_of(body) == (400, "invalid_body", None)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("model", '"other"'),
        ("mod\\u0065l", '"other"'),
        ("messages", "[]"),
        ("stream", "true"),
        ("stream_options", "{}"),
        ("n", "2"),
        ("tools", "[]"),
        ("response_format", "{}"),
    ],
)
def test_a_member_that_is_read_may_stand_only_once(name: str, value: str) -> None:
    """The gate and the provider might read different ones."""
    body = BODY
    if name not in {"model", "mod\\u0065l", "messages"}:
        body = with_member(name, value)
    doubled = body[:-1] + f',"{name}":{value}}}'.encode()
    assert refusal_of(doubled) == (400, "duplicate_key", json.loads(f'"{name}"'))


def test_a_member_that_is_not_read_may_stand_twice() -> None:
    """At the top or inside: the provider decides which one counts."""
    read(with_member("x", '1,"x":2'))
    read(with_member("metadata", '{"model":"a","model":"b"}'))


@pytest.mark.parametrize(
    ("body", "param"),
    [
        (b"{}", "model"),
        (b'{"messages":[1]}', "model"),
        (b'{"model":null,"messages":[1]}', "model"),
        (b'{"Model":"small","messages":[1]}', "model"),
        (b'{"model":"small"}', "messages"),
        (b'{"model":"small","messages":null}', "messages"),
    ],
)
def test_a_request_without_model_or_messages_is_refused(body: bytes, param: str) -> None:
    """Null counts as missing."""
    assert refusal_of(body) == (400, "missing_required_parameter", param)


@pytest.mark.parametrize(
    ("name", "value", "param"),
    [
        ("stream", '"true"', "stream"),
        ("stream", "1", "stream"),
        ("stream", "[]", "stream"),
        ("stream_options", "true", "stream_options"),
        ("stream_options", "[]", "stream_options"),
        ("stream_options", '{"include_usage":1}', "stream_options.include_usage"),
        ("n", "true", "n"),
        ("n", "1.0", "n"),
        ("n", '"1"', "n"),
        ("n", "[1]", "n"),
        ("tools", "{}", "tools"),
        ("tools", '"auto"', "tools"),
        ("tools", "5", "tools"),
        ("response_format", '"json_schema"', "response_format"),
        ("response_format", "[]", "response_format"),
    ],
)
def test_a_member_of_the_wrong_type_is_named(name: str, value: str, param: str) -> None:
    """Whatever the gate reads is checked before any attempt."""
    assert refusal_of(with_member(name, value)) == (400, "invalid_type", param)


@pytest.mark.parametrize(
    ("body", "param"),
    [
        (b'{"model":5,"messages":[1]}', "model"),
        (b'{"model":["small"],"messages":[1]}', "model"),
        (b'{"model":"small","messages":{"role":"user"}}', "messages"),
        (b'{"model":"small","messages":"hi"}', "messages"),
    ],
)
def test_a_required_member_of_the_wrong_type_is_named(body: bytes, param: str) -> None:
    """Likewise."""
    assert refusal_of(body) == (400, "invalid_type", param)


@pytest.mark.parametrize(
    ("body", "param"),
    [
        (b'{"model":"","messages":[1]}', "model"),
        (b'{"model":"%b","messages":[1]}' % (b"m" * 257), "model"),
        (b'{"model":"small","messages":[]}', "messages"),
        (b'{"model":"small","messages":[ \n ]}', "messages"),
        (with_member("n", "0"), "n"),
        (with_member("n", "-1"), "n"),
        (with_member("n", "129"), "n"),
        (with_member("n", "9" * 5000), "n"),
        (with_member("stream_options", '{"a":%s}' % ("9" * 5000)), "stream_options"),
    ],
)
def test_a_value_out_of_range_is_named(body: bytes, param: str) -> None:
    """Also a number with more digits than Python converts."""
    assert refusal_of(body) == (400, "invalid_value", param)


def test_the_longest_model_name_passes() -> None:
    """The bound is inclusive."""
    assert len(read(b'{"model":"%b","messages":[1]}' % (b"m" * 256)).model) == 256


@pytest.mark.parametrize(("depth", "limit"), [(63, 64), (2, 3), (511, 512)])
def test_a_body_may_nest_up_to_its_limit(depth: int, limit: int) -> None:
    """The object of the request is the first level."""
    read(with_member("x", "[" * depth + "]" * depth), limit)


@pytest.mark.parametrize(
    ("depth", "limit"), [(64, 64), (3, 3), (512, 512), (1_100, 64), (200_000, 512)]
)
def test_a_body_that_nests_deeper_is_refused_as_such(depth: int, limit: int) -> None:
    """A parser that gives up over its own stack is no reason for another code."""
    for inner in ("", '"\\ud800"'):
        body = with_member("x", "[" * depth + inner + "]" * depth)
        assert refusal_of(body, limit) == (400, "json_too_deep", None)


def test_half_a_surrogate_pair_in_a_text_passes() -> None:
    """JavaScript cuts strings there; the bytes go on as they are, in names too."""
    for text in ("\\ud83d", "\\ude00", "\\ude00\\ud83d"):
        read(BODY.replace(b"hi", text.encode()))
        read(with_member(text, "1"))
    assert read(b'{"model":"\\ud800","messages":[1]}').model == "\ud800"


def test_a_number_of_many_digits_passes_beside_half_a_surrogate_pair() -> None:
    """Neither is looked at."""
    read(with_member("user", '"\\ud800","seed":' + "9" * 5000))


@pytest.mark.parametrize("text", [b"x", b"\\ud83d", b'\\"', "é".encode()])
def test_a_large_body_is_read(text: bytes) -> None:
    """A megabyte of text, whatever it is made of."""
    body = BODY.replace(b"hi", text * (1_000_000 // len(text)))
    request = read(body)
    assert request.model == "small"
    assert named(body, request) == b'"small"'


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("model", b'"%b"'),
        ("stream", b'["%b"]'),
        ("stream_options", b'{"include_usage":true,"x":"%b"}'),
        ("n", b'{"%b":1}'),
    ],
)
def test_a_value_that_is_decoded_may_not_be_a_large_one(name: str, value: bytes) -> None:
    """None that means anything is; to decode it would take its time in one go."""
    members = {"model": b'"small"', "messages": b"[1]", name: value % (b"x" * INLINE_BYTES_MAX)}
    body = b"{%b}" % b",".join(b'"%b":%b' % (key.encode(), each) for key, each in members.items())
    assert refusal_of(body) == (400, "invalid_value", name)


def test_what_is_only_looked_for_may_be_anywhere_in_a_large_value() -> None:
    """White space before the first message or tool, and text before the word."""
    blank, text = b" " * 200_000, b"x" * 200_000
    parts = b'"messages":[%b%%b],"tools":[%b%%b],"response_format":{"a":"%b"%%b}' % (
        blank,
        blank,
        text,
    )
    body = b'{"model":"small",%b}' % parts
    assert read(body % (b"1", b"1", b',"type":"json_schema"')).needs == {"tools", "json_schema"}
    assert read(body % (b"1", b"", b"")).needs == frozenset()
    assert refusal_of(body % (b"", b"", b"")) == (400, "invalid_value", "messages")


def test_more_members_than_any_request_has_are_refused() -> None:
    """Each costs far more memory than its bytes."""
    body = b'{"model":"small","messages":[1],%b}' % b",".join(b'"":0' for _ in range(5_000))
    assert refusal_of(body) == (400, "invalid_json", None)


@given(
    st.binary(max_size=40)
    | st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=4),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["model", "messages", "stream", "stream_options", "n", "tools"]),
                inner,
            )
        ),
        max_leaves=8,
    ).map(lambda value: json.dumps(value).encode())
)
def test_any_body_is_a_request_or_a_clear_refusal(body: bytes) -> None:
    """Nothing else comes out, whatever a caller sends."""
    try:
        model = read(body).model
    except RequestRefused as refused:
        status, model = refused.http_status, None
    else:
        status = 200
    assert status == 400 or json.loads(body)["model"] == model


# --- the snapshot --------------------------------------------------------------------------------


def test_a_snapshot_keeps_the_very_bytes_under_their_size() -> None:
    """What was asked for while the body came is more than what it needed."""
    budget = MemoryBudget("exchange", 1000)
    snapshot = IngressSnapshot(budget)
    assert (budget.used, budget.open_reservations) == (0, 1)
    snapshot.reserve(500)
    assert budget.used == 500
    request = read(BODY)
    snapshot.fill(BODY, request)
    assert snapshot.body is BODY
    assert snapshot.request is request
    assert budget.used == len(BODY)
    snapshot.close()
    assert (budget.used, budget.open_reservations) == (0, 0)


def test_a_body_that_does_not_fit_is_refused_before_it_is_kept() -> None:
    """What was there stays."""
    budget = MemoryBudget("exchange", 10)
    snapshot = IngressSnapshot(budget)
    snapshot.reserve(8)
    with pytest.raises(BudgetExceeded):
        snapshot.reserve(11)
    with pytest.raises(BudgetExceeded):
        snapshot.fill(BODY, read(BODY))
    assert budget.used == 8
    snapshot.close()


def test_a_closed_snapshot_refuses_every_use() -> None:
    """Its bytes went back to the budget."""
    snapshot = IngressSnapshot(MemoryBudget("exchange", 1000))
    snapshot.fill(BODY, read(BODY))
    snapshot.close()
    for use in (
        snapshot.close,
        lambda: snapshot.reserve(1),
        lambda: snapshot.fill(BODY, read(BODY)),
        lambda: snapshot.body,
        lambda: snapshot.request,
    ):
        with pytest.raises(SnapshotClosed):
            use()


def test_a_request_that_is_read_before_it_was_filled_is_a_bug() -> None:
    """The exchange waits for ingress."""
    snapshot = IngressSnapshot(MemoryBudget("exchange", 1000))
    with pytest.raises(AssertionError, match="filled before"):
        _ = snapshot.request


def test_a_snapshot_shows_its_size_only() -> None:
    """A prompt never gets into a log by way of a `repr`."""
    snapshot = IngressSnapshot(MemoryBudget("exchange", 1000))
    snapshot.fill(BODY, read(BODY))
    assert repr(snapshot) == f"IngressSnapshot({len(BODY)} bytes)"
    snapshot.close()
    assert repr(snapshot) == "IngressSnapshot(closed)"


def test_whatever_is_read_or_patched_must_not_stand_there_twice() -> None:
    """Also what only a plan or a filter needs."""
    patched = {*CEILINGS["/v1/chat/completions"], *flags("vllm", "/v1/chat/completions")}
    assert patched <= READ
    for name in sorted(READ):
        body = b'{"model":"m","messages":[{}],"%b":null,"%b":null}' % ((name.encode(),) * 2)
        with pytest.raises(RequestRefused) as caught:
            read_chat_request(body, depth_max=64)
        assert (caught.value.public_code, caught.value.param) == ("duplicate_key", name)
