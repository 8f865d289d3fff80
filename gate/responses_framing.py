"""Framings of the Responses API: an event stream that is written as its frames are released, and one response object.

Both follow the answer event by event (`gate.responses_encoder`). The response object at the end is its provider's, with the released items in it: where it says what was released, in its provider's
bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from gate.envelope import PublicError, message
from gate.events import (
    Facts,
    Frame,
    ReasoningDelta,
    RefusalDelta,
    TextDelta,
)
from gate.framing import JSON_HEADERS, SSE_HEADERS, Headers
from gate.openai import REAL_ENDS
from gate.responses_encoder import Encoder
from gate.responses_log import (
    Members,
    final_output,
    joined,
    value_of,
)

__all__ = ["ResponsesJson", "ResponsesSse", "kept_of"]

_LIMITS: Final[Mapping[str, bytes]] = {
    "length": b'{"reason":"max_output_tokens"}',
    "content_filter": b'{"reason":"content_filter"}',
}
# Of the codes that OpenAI's schema knows for a response that failed.
_RATE_LIMITED: Final = 429
_TEXTS: Final = (TextDelta, ReasoningDelta, RefusalDelta)
CHAR_BYTES: Final = 4  # of a character in a text that grows


def kept_of(frame: Frame) -> int:
    """What a stream's framing keeps of a frame, in bytes: its text, or, where it has none, what it says."""
    texts = [len(event.text) for event in frame.events if isinstance(event, _TEXTS)]
    return CHAR_BYTES * sum(texts) if texts else len(frame.data)


class _Framing(Encoder):
    """What both framings have in common: how an answer ends."""

    def release(self, frames: list[Frame]) -> bytes:
        """The events that these frames are now."""
        return self.take(frames)

    def _end(self, facts: Facts) -> tuple[str, Members]:
        """The status of a complete answer, and its response object; every item is closed."""
        self._begin()
        reason = facts.finishes[0].reason if facts.finishes else "stop"
        status = "incomplete" if reason in REAL_ENDS else "completed"
        for item in self._released:
            self._close(item, status=status)
        values = {**(self._last or self._response)}
        output = values.get("output", b"[]")
        values |= {"status": msgspec.json.encode(status), "output": final_output(self._released, output, status=status)}  # fmt: skip
        if facts.usage:
            values["usage"] = _kept(values.get("usage"), facts.usage)
        details = value_of(values.get("incomplete_details"))
        if status == "incomplete" and not details:
            values["incomplete_details"] = _LIMITS[reason]
        return status, self._object(values)

    def _failed(self, error: PublicError) -> Members:
        """The response object of an answer that broke off."""
        self._begin()
        code = "rate_limit_exceeded" if error.status == _RATE_LIMITED else "server_error"
        told = {"code": code, "message": message(error)}
        output = final_output(self._released, b"[]", status="incomplete")
        ended = {"status": b'"failed"', "error": msgspec.json.encode(told), "output": output}
        return self._object({**self._response, **ended})


def _kept(said: bytes | None, usage: bytes) -> bytes:
    """The usage of the answer: its provider's bytes where they say the same."""
    same: Any = value_of(said)
    return said if said is not None and same == value_of(usage) else usage


class ResponsesSse(_Framing):
    """`text/event-stream` of Responses events; there is no `[DONE]`."""

    name = "responses_sse"
    status = 200
    comments = True
    explains = True
    headers = SSE_HEADERS

    def success(self, facts: Facts) -> bytes:
        status, values = self._end(facts)
        self._write(f"response.{status}", {"response": joined(values), **self._beside})
        return self._written()

    def length(self, body: bytes) -> Headers:
        return ()

    def error(self, error: PublicError) -> bytes:
        self._write("response.failed", {"response": joined(self._failed(error))})
        return self._written()


class ResponsesJson(_Framing):
    """One response object."""

    name = "responses_json"
    status = 200
    comments = False
    explains = False
    headers = JSON_HEADERS

    def _write(self, kind: str, values: Mapping[str, bytes]) -> None:
        """Nothing is written before the end."""

    def success(self, facts: Facts) -> bytes:
        return joined(self._end(facts)[1])

    def length(self, body: bytes) -> Headers:
        return ((b"content-length", b"%d" % len(body)),)

    def error(self, error: PublicError) -> bytes:
        raise AssertionError("a JSON response does not begin before its terminal")
