"""What stays readable in redacted content is the protocol's alone."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gate.trace_redaction import PAUSE_TOKENS, redacted

MASKED = [
    (b'data: {"id":"up-1","created":77,"model":"m"}\n\n', b'data: {"id":"xxxx","created":77,"model":"m"}\n\n'),
    (b'{"secret_key":"a","n":2,"logprob":-12.5e-3}', b'{"xxxxxxxxxx":"x","n":2,"logprob":-11.1e-1}'.replace(b"logprob", b"xxxxxxx")),
    (b'"a\\n\\u00e9\\"b', b'"x\\n\\u0078\\"x'),
    (b'"cut \\', b'"xxxx\\'),
    (b'"cut \\u00', b'"xxxx\\uxx'),
    (b"<p>Bob has 3</p>", b"xxxxxx xxx 1xxxx"),
    (b": OPENROUTER\n\ndata: [DONE]\n\n", b": xxxxxxxxxx\n\ndata: [DONE]\n\n"),
    ("é".encode(), b"xx"),
    (b'"', b'"'),
    (b"-", b"x"),
    (b'{"finish_reason": "stop", "text":"stop"}', b'{"finish_reason": "stop", "text":"xxxx"}'),
    (b'{"bytes":[72,105]}', b'{"xxxxx":[11,111]}'),
    (b'"open\nnext"', b'"xxxx\nxxxx"'),
]  # fmt: skip


@pytest.mark.parametrize(("data", "masked"), MASKED)
def test_only_what_the_protocol_knows_stays_readable(data: bytes, masked: bytes) -> None:
    """Names, numbers and texts of others become others of the same length."""
    assert redacted(data) == masked


@given(st.binary(max_size=200))
def test_no_byte_moves_and_no_letter_beyond_ascii_stays(data: bytes) -> None:
    """Whatever a provider sends."""
    masked = redacted(data)
    assert len(masked) == len(data)
    assert masked.isascii()


@given(st.recursive(st.text() | st.integers() | st.booleans() | st.none(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))  # fmt: skip
def test_json_stays_json_and_shows_no_text_of_its_own(value: Any) -> None:
    """The same tree, with other leaves."""
    for text in (
        json.dumps({"content": value}),
        json.dumps({"content": value}, ensure_ascii=False),
    ):
        masked = json.loads(redacted(text.encode(errors="replace")))
        assert list(masked) == ["content"]
        assert type(masked["content"]) is type(value) or isinstance(value, bool | int)


OWN = [
    {"metadata": {"code": "pin-1234", "type": "alice", "index": 7}},
    {"message": {"tool_calls": [{"function": {"arguments": {"code": "print", "n": 4155551234, "in": [{"type": "x"}]}}}]}},
    {"tools": [{"function": {"parameters": {"properties": {"type": {"enum": ["alice"]}}}}}]},
    {"response_format": {"json_schema": {"schema": {"type": "alice"}}}},
    {"messages": [{"role": "user"}, "alice"]},
    {"unknown": {"role": "alice", "model": "alice"}},
    {"role": "alice@example.com", "type": "Bob Smith", "model": "Bob of Basel", "code": "PIN"},
    {"required": ["type", "alice"], "model": ["alice"], "index": [12]},
    {"prompt": {"model": "alice"}},
]  # fmt: skip


@pytest.mark.parametrize("value", OWN)
def test_what_belongs_to_the_user_is_masked_whatever_it_is_called(value: Any) -> None:
    """Words of the protocol stand in a user's own objects too; there they are the user's."""
    text = json.dumps(value)
    masked = redacted(text.encode())
    assert leaves(json.loads(masked)) <= {"user", "1", "11", "1111111111"} | {
        "x" * n for n in range(40)
    }
    assert [each for each in masked if each in b"{}[]:,"] == [
        each for each in text.encode() if each in b"{}[]:,"
    ]


def leaves(value: Any) -> set[str]:
    """Strings and numbers of a tree."""
    if isinstance(value, dict | list):
        inner = value.values() if isinstance(value, dict) else value
        return {leaf for each in inner for leaf in leaves(each)}
    return {str(value)}


def test_the_next_event_is_read_however_the_last_one_ended() -> None:
    """One that broke off within somebody's arguments hides nothing behind it."""
    cut = b'data: {"delta":{"metadata":{"type":"alice\n\ndata: {"type":"response.created"}\n\n'
    assert redacted(cut).endswith(b'data: {"type":"response.created"}\n\n')
    assert b"alice" not in redacted(cut)
    assert redacted(b']}{"type":"a"}') == b']}{"type":"a"}'


def test_whoever_redacts_much_lets_others_go_on() -> None:
    """After a part that takes no longer than a moment."""
    paused: list[int] = []
    redacted(b"1 " * PAUSE_TOKENS, lambda: paused.append(1))
    assert len(paused) == 2
