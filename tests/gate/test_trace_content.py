"""What a trace says of content that it may not show."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from gate.config_check import decode_config
from gate.trace import Answered, Part, Read, Record, Request, digest_of
from gate.trace_content import (
    REQUEST_BYTES_MAX,
    alias_of,
    config_tables,
    sealed_content,
    shape_of,
)
from gate.trace_redaction import redacted

BODY = json.dumps(
    {
        "model": "small",
        "stream": True,
        "max_tokens": 9,
        "tools": [{}],
        "messages": [{"role": "user", "content": "Höhe 4?"}, {"role": "boss", "content": []}, 7],
    }
).encode()


def records() -> list[Record]:
    return [
        Request(0, "application/json", None),
        Part(0, 20, False, BODY[:20]),
        Part(1, len(BODY) - 20, True, BODY[20:]),
        Read(1, 2, 1, 12, b'data: {"choi'),
        Read(2, 3, 1, 9, b'{"error":'),
        Read(1, 4, 1, 30, b'ces":[{"delta":{"content":"gate"}}]}'),
        Answered(1, 5, "hook", 0, 1, False, 1, violated={"code": "bad", "notes": ["the gate"]}),
        Answered(1, 6, "hook", 1, 2, False, 1, passed=2),
    ]


def contents(found: list[Record]) -> list[bytes]:
    return [each.b for each in found if isinstance(each, Part | Read)]


def test_full_content_is_kept_and_the_request_gets_its_shape() -> None:
    """Counts and lengths, and no word."""
    request, *rest = sealed_content(records(), "full", b"k")
    assert rest == records()[1:]
    assert isinstance(request, Request)
    assert request.shape == {
        "model": "small",
        "stream": True,
        "n_msgs": 2,
        "roles": ["user", "other"],
        "lens": [7, -1],
        "n_tools": 1,
        "max_tokens": 9,
    }


def test_hashed_content_is_gone_but_for_lengths_and_keyed_digests() -> None:
    """Content that had found no room keeps the digest that it got then."""
    late = Read(1, 9, 1, 3, b"", b"digest")
    *found, last = sealed_content([*records(), late], "hash", b"k")
    assert set(contents(found)) == {b""}
    digests = [each.sha for each in found if isinstance(each, Part | Read)]
    assert digests[0] == digest_of([BODY[:20]], b"k")
    assert len(set(digests)) == 5
    assert last == late
    assert [each.violated for each in found if isinstance(each, Answered)] == [{"code": "bad", "notes": []}, None]  # fmt: skip


def test_redacted_content_is_cut_where_the_real_one_was() -> None:
    """A key that two reads share is known all the same; attempts are told apart."""
    found = sealed_content(records(), "redact", b"k")
    assert [len(each) for each in contents(found)] == [len(each) for each in contents(records())]
    assert contents(found)[2:] == [
        b'data: {"choi',
        b'{"error":',
        b'ces":[{"delta":{"content":"xxxx"}}]}',
    ]
    body = b"".join(contents(found)[:2])
    assert b"4?" not in body
    assert json.loads(body)["messages"][0]["role"] == "user"


BODIES = [b"", b"[]", b"{", b"\xff", b"[" * 100_000, b'{"model":7}', b" " * (REQUEST_BYTES_MAX + 1)]


@pytest.mark.parametrize("body", BODIES)
def test_a_body_that_is_no_chat_request_has_no_alias(body: bytes) -> None:
    """And costs nothing but the look at it."""
    assert alias_of(body) == ""


def test_a_body_without_members_has_a_shape_of_zeroes() -> None:
    """What is no object has none."""
    assert shape_of(b"[]") == {}
    assert shape_of(b'{"messages":7,"max_tokens":"x"}') == {
        "model": "",
        "stream": False,
        "n_msgs": 0,
        "roles": [],
        "lens": [],
        "n_tools": 0,
        "max_tokens": 0,
    }


def test_a_responses_request_has_a_shape_too() -> None:
    """Its input is a text, or items."""
    text = shape_of(b'{"model":"m","input":"Hello","max_output_tokens":5}')
    assert (text["roles"], text["lens"], text["max_tokens"]) == (["user"], [5], 5)
    items = shape_of(b'{"input":[{"role":"developer","content":"ab"},{"type":"reasoning"}]}')
    assert (items["n_msgs"], items["roles"], items["lens"]) == (2, ["developer", "other"], [2, -1])


def test_the_words_of_responses_stay_readable_and_its_texts_do_not() -> None:
    """Names of members and numbers of places; no id, no text."""
    event = b'data: {"type":"response.output_text.delta","sequence_number":4,"output_index":0,"item_id":"msg_1","delta":"swordfish"}\n\n'
    shown = redacted(event)
    assert (
        b'"type":"response.output_text.delta","sequence_number":4,"output_index":0,"item_id":"xxxxx"'
        in shown
    )
    assert b"swordfish" not in shown
    assert len(shown) == len(event)


def configuration() -> dict[str, Any]:
    hook = {
        "kind": "webhook",
        "url": "https://filters.example/judge",
        "api_key_env": "HOOK",
    }
    return {
        "keys": [{"name": "k", "key_env": "KEY"}],
        "providers": [
            {"name": "one", "base_url": "https://one.example/v1", "api_key_env": "ONE", "headers": {"x-tenant": "secret"}},
            {"name": "two", "base_url": "http://127.0.0.1:9/v1"},
        ],
        "models": [
            {"alias": "small", "route": "held", "targets": [{"provider": "one", "model": "m"}]},
            {"alias": "large", "targets": [{"provider": "two", "model": "m"}]},
        ],
        "routes": {"held": {"filters": ["empty", "hook"]}},
        "filters": {"hook": hook, "words": {"kind": "patterns", "patterns": ["swordfish"]}},
    }  # fmt: skip


def test_a_trace_knows_the_configuration_of_its_alias_and_no_secret() -> None:
    """It decodes to the same policy; of the rest nothing is there."""
    config = decode_config(configuration())
    found = config_tables(config, "small")
    again = decode_config(found)
    assert again.routes["held"] == config.routes["held"]
    assert again.limits == config.limits
    assert [each.name for each in again.providers] == ["one"]
    text = msgspec.json.encode(found)
    for secret in (b"secret", b"ONE", b"HOOK", b"KEY", b"swordfish", b"large"):
        assert secret not in text


def test_an_alias_that_nobody_serves_has_a_configuration_too() -> None:
    """The exchange ends in a refusal, and replays to it."""
    found = config_tables(decode_config(configuration()), "nobody")
    assert decode_config(found).models == ()
    assert found["providers"] == []
