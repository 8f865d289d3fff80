"""What providers of the Responses API say in the scenarios: the same words as in `ops.chaos.wire`, in the events of that API."""

from __future__ import annotations

from typing import Final

import msgspec

from ops.chaos.wire import ALIAS, Reply, rest_of, stream
from ops.provider_chat import Call, Said, error_body
from ops.provider_responses import Response
from ops.provider_script import Attempt, Ending, Write

__all__ = ["asked_for", "called", "failed", "spoken", "whole"]

_RESPONSE: Final = Response(model="m", serial=1, stream=True, prompt_tokens=3)


def _played(said: Said, every_ms: int, end: Ending | None) -> Attempt:
    pieces: list[bytes | int | Ending] = [b"".join(_RESPONSE.opening(1))]
    for turn in _RESPONSE.turns([said]):
        pieces += [every_ms, *turn] if every_ms else turn
    return stream(*pieces, b"".join(_RESPONSE.ending([said], mark=True)) if end is None else end)


def spoken(*words: str, every_ms: int = 0, end: Ending | None = None) -> Reply:
    """A response that says these words, less those that the request brings along already; one read each. `end`: how it breaks off, instead of coming to its end."""
    return lambda prefix: _played(Said(words=tuple(rest_of(words, prefix))), every_ms, end)


def called(name: str, arguments: str) -> Attempt:
    """A response that is one call."""
    return _played(Said(call=Call("call_1", name, arguments)), 0, None)


def failed(status: int = 500) -> Attempt:
    """A response that fails in its stream."""
    body = error_body(status, "engine_failed", "a secret of the engine")
    return stream(b"".join(_RESPONSE.opening(1)), b"".join(_RESPONSE.failure(body)))


def whole(said: str) -> Attempt:
    """A response that is not streamed."""
    body = _RESPONSE.whole([Said(words=(said,))])
    return Attempt((Write(body),), 200, (("content-type", "application/json"),))


def asked_for(**members: object) -> bytes:
    """A request of the Responses API for the alias."""
    value: dict[str, object] = {"model": ALIAS, "input": "Hi", "stream": True}
    return msgspec.json.encode(value | members)
