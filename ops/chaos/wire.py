"""What providers say in the scenarios: chunks, whole bodies, and answers that know what they were asked to go on with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from ops.provider_chat import Call, Chat, Delta, Said, error_body, event
from ops.provider_script import Attempt, Ending, Sleep, Step, Write

__all__ = [
    "DONE",
    "ROLE",
    "STOP",
    "USAGE",
    "Answer",
    "Reply",
    "calls",
    "delta",
    "error_event",
    "finish",
    "json_body",
    "refuses",
    "request",
    "rest_of",
    "spoken",
    "stream",
    "text",
    "thought",
]

ALIAS: Final = "small"
Reply = Callable[[str], Attempt]
"""An answer, made from the answer text that the request asks to go on with (empty: none)."""
Answer = Attempt | Reply | None
"""None: nobody listens."""

_CHAT: Final = Chat(model="m", serial=1, stream=True, prompt_tokens=3)
DONE: Final = b"data: [DONE]\n\n"


def delta(members: Delta, *, choice: int = 0) -> bytes:
    """One chunk."""
    return _CHAT.chunk(choice, members)


def text(said: str, *, choice: int = 0) -> bytes:
    """One chunk of answer text."""
    return delta({"content": said}, choice=choice)


def thought(said: str) -> bytes:
    """One chunk of reasoning."""
    return delta({"reasoning_content": said})


def finish(reason: str = "stop", *, choice: int = 0) -> bytes:
    """The chunk with the finish reason."""
    return _CHAT.chunk(choice, {}, finish=reason)


ROLE: Final = delta({"role": "assistant", "content": ""})
STOP: Final = finish()
USAGE: Final = _CHAT.usage_chunk([Said(words=("a", "b"))])


def error_event(status: int = 503) -> bytes:
    """An error in the place of an event."""
    return b"data: " + error_body(status, "engine_failed", "a secret of the engine") + b"\n\n"


def calls(name: str, arguments: str, *, pieces: int = 2) -> list[bytes]:
    """A tool call, its arguments in so many pieces."""
    head = {"index": 0, "id": "call_1", "type": "function"}
    step = -(-len(arguments) // pieces)
    cuts = [arguments[at : at + step] for at in range(0, len(arguments), step)]
    return [
        delta({"tool_calls": [{**head, "function": {"name": name, "arguments": ""}}]}),
        *(delta({"tool_calls": [{"index": 0, "function": {"arguments": cut}}]}) for cut in cuts),
    ]


def stream(*pieces: bytes | int | Ending, headers: Sequence[tuple[str, str]] = ()) -> Attempt:
    """An event stream: bytes of one read, milliseconds of silence, or how it ends."""
    return Attempt(tuple(map(_step, pieces)), 200, tuple(headers))


def _step(piece: bytes | int | Ending) -> Step:
    if isinstance(piece, Ending):
        return piece
    return Sleep(piece) if isinstance(piece, int) else Write(piece)


def spoken(
    *words: str, every_ms: int = 0, end: Sequence[bytes | Ending] = (STOP, DONE), lead: bytes = ROLE
) -> Reply:
    """A stream that says these words, less those that the request brings along already; one read each."""

    def reply(prefix: str) -> Attempt:
        pieces: list[bytes | int | Ending] = [lead] if lead else []
        for word in rest_of(words, prefix):
            pieces += [every_ms, text(word)] if every_ms else [text(word)]
        return stream(*pieces, *end)

    return reply


def rest_of(words: Sequence[str], prefix: str) -> list[str]:
    """What comes behind `prefix`; a word that it ends within is cut there."""
    rest, left = [], len(prefix) if "".join(words).startswith(prefix) else 0
    for word in words:
        rest += [word[left:]] if left < len(word) else []
        left = max(0, left - len(word))
    return rest


def json_body(said: str, *, call: Call | None = None) -> Attempt:
    """An answer that is not streamed."""
    body = _CHAT.whole([Said(words=(said,), call=call)])
    return Attempt((Write(body),), 200, (("content-type", "application/json"),))


def refuses(status: int, *, retry_after: str = "", param: str | None = None) -> Attempt:
    """An answer that is no 2xx; `param`: what of the request it is about."""
    body = error_body(status, "engine_failed", "a secret of the engine", param=param)
    return Attempt((Write(body),), status, (("retry-after", retry_after),) if retry_after else ())


def request(**members: object) -> bytes:
    """A chat request for the alias."""
    value = {"model": ALIAS, "messages": [{"role": "user", "content": "Hi"}], "stream": True}
    return msgspec.json.encode(value | members)


def bare_event(value: object) -> bytes:
    """Any JSON value as an event."""
    return event(value)
