"""The request and the answer that the bench sends, and what may be wrong with an answer that has come."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Final

import httptools
import msgspec
from msgspec import Struct

SYLLABLES: Final = ("ba", "co", "dri", "el", "fa", "gu", "hin", "ir", "ko", "lan", "me", "nor")
SYLLABLES_MAX: Final = 3  # of a word: with the blank before it about as long as a token

HEAD: Final = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
    b"connection: close\r\ntransfer-encoding: chunked\r\n\r\n"
)


def event_of(delta: bytes, finish: bytes = b"null") -> bytes:
    """One event, as large as those that servers send: about 220 bytes."""
    return (
        b'data: {"id":"chatcmpl-7d1f0c5a94e84c0b8d52","object":"chat.completion.chunk","created":1760000000,'
        b'"model":"bench","choices":[{"index":0,"delta":%b,"logprobs":null,"finish_reason":%b}]}\n\n'
        % (delta, finish)
    )


def chunk_of(text: str) -> bytes:
    """One HTTP chunk with one event that says this text; it has no sign that JSON would escape."""
    return http_chunk(event_of(b'{"content":"%b"}' % text.encode()))


def http_chunk(data: bytes) -> bytes:
    """Data in the framing of HTTP/1.1."""
    return b"%x\r\n%b\r\n" % (len(data), data)


START: Final = http_chunk(event_of(b'{"role":"assistant","content":""}'))
END: Final = (
    http_chunk(event_of(b"{}", b'"stop"')) + http_chunk(b"data: [DONE]\n\n") + http_chunk(b"")
)


def words(draw: random.Random) -> Iterator[str]:
    """Text without end that does not repeat itself: a blank and a made-up word, again and again."""
    while True:
        count = draw.randint(1, SYLLABLES_MAX)
        yield " " + "".join(draw.choice(SYLLABLES) for _ in range(count))


def request_for(model: str, name: str, *, stream: bool = True) -> bytes:
    """A caller's request; its user says the stream's name."""
    messages = [{"role": "user", "content": name}]
    body = msgspec.json.encode({"model": model, "stream": stream, "messages": messages})
    head = (
        b"POST /v1/chat/completions HTTP/1.1\r\nhost: bench\r\ncontent-type: application/json\r\n"
        b"content-length: %d\r\n\r\n" % len(body)
    )
    return head + body


def name_in(body: bytes) -> str:
    """The name in a request's body, wherever it has passed through."""
    return body.rpartition(b'"content":"')[2].partition(b'"')[0].decode()


def body_of(data: bytes) -> bytes | None:
    """The body of a message of HTTP that says its length; None until it is whole."""
    head, found, body = data.partition(b"\r\n\r\n")
    if not found:
        return None
    for line in head.lower().split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name == b"content-length" and len(body) >= int(value):
            return body
    return None


def json_answer(text: str) -> bytes:
    """An answer without a stream, whole."""
    message = {"role": "assistant", "content": text}
    body = msgspec.json.encode(
        {
            "id": "chatcmpl-7d1f0c5a94e84c0b8d52",
            "object": "chat.completion",
            "created": 1760000000,
            "model": "bench",
            "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 9, "completion_tokens": 12, "total_tokens": 21},
        }
    )
    return b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (
        len(body),
        body,
    )


def json_problem_of(received: bytes, text: str) -> str:
    """What is wrong with a response that should be such an answer with this text; "" if nothing is."""
    if not received.startswith(b"HTTP/1.1 200 "):
        return "not answered with 200"
    try:
        choices = msgspec.json.decode(body_of(received) or b"", type=_Whole).choices
    except msgspec.DecodeError:
        return "no answer"
    said = [(each.message.content, each.finish_reason) for each in choices]
    return "" if said == [(text, "stop")] else "another answer"


class _Delta(Struct):
    content: str | None = None


class _Choice(Struct):
    delta: _Delta
    finish_reason: str | None = None


class _Event(Struct):
    choices: list[_Choice]


class _Answered(Struct):
    message: _Delta
    finish_reason: str


class _Whole(Struct):
    choices: list[_Answered]


class _Response:
    """What the parser of HTTP has found."""

    def __init__(self) -> None:
        self.body: list[bytes] = []
        self.on_body = self.body.append
        self.complete = False

    def on_message_complete(self) -> None:
        self.complete = True


def problem_of(received: bytes, text: str) -> str:
    """What is wrong with a response that should be a stream with this text and a proper end; "" if nothing is."""
    response = _Response()
    parser = httptools.HttpResponseParser(response)
    try:
        parser.feed_data(received)
    except httptools.HttpParserError:
        return "not a response of HTTP"
    if not received or parser.get_status_code() != 200:
        return "not answered with 200"
    if not response.complete:
        return "cut"
    events = b"".join(response.body).split(b"\n\n")
    if events[-2:] != [b"data: [DONE]", b""]:
        return "not ended by [DONE]"
    return _problem_in(events[:-2], text)


def _problem_in(events: list[bytes], text: str) -> str:
    said: list[str] = []
    finishes: list[str] = []
    for event in events:
        if event.startswith(b":"):
            continue  # a comment
        try:
            choices = msgspec.json.decode(event.removeprefix(b"data: "), type=_Event).choices
        except msgspec.DecodeError:
            return "an event that is no chunk"
        said += [choice.delta.content or "" for choice in choices]
        finishes += [choice.finish_reason for choice in choices if choice.finish_reason]
    if "".join(said) != text:
        return "another text"
    return "" if finishes == ["stop"] else f"finished as {finishes}"
