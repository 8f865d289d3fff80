"""Answers of endpoints that nothing here reads: embeddings, pictures, speech, files. They are relayed, and complete when HTTP says that they are: by the last chunk or the whole content-length.
Where nothing but the connection's close ends them, as HTTP/1.0 has it, JSON that parses and events up to `[DONE]` show their own end; anything else may have been cut anywhere, and counts as cut.

A JSON body or an event that is an error envelope, and nothing else beside it, is one all the same: what is stored at a provider (a batch, a failed response) may have an `error` of its own
and is a good answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from msgspec import structs

from gate.events import Complete, Frame, HowEnded, RawDelta
from gate.failure import Failure, FailureKind, classify_error
from gate.ingress_responses import RESPONSES_PATH
from gate.loose_json import is_whole, tolerant_object
from gate.model_echo import BYTE_ORDER_MARK
from gate.openai import error_in
from gate.reader import Step
from gate.responses import TERMINAL
from gate.sse import SseEvent

__all__ = [
    "STORED_RESPONSES",
    "OpaqueBody",
    "OpaqueBytes",
    "OpaqueStream",
    "StoredStream",
    "is_resource",
]

STORED_RESPONSES: Final = RESPONSES_PATH + "/"  # and the name of one
ERROR_BYTES_MAX: Final = 65_536  # a larger body is no error envelope, and is not parsed
# What OpenAI's API and the servers that speak it have behind `/v1/`.
_RESOURCES: Final = frozenset(
    [
        "assistants",
        "audio",
        "batches",
        "chat",
        "chatkit",
        "classify",
        "completions",
        "containers",
        "conversations",
        "detokenize",
        "embeddings",
        "evals",
        "files",
        "fine_tuning",
        "images",
        "infill",
        "models",
        "moderations",
        "organization",
        "pooling",
        "realtime",
        "rerank",
        "responses",
        "score",
        "threads",
        "tokenize",
        "uploads",
        "vector_stores",
        "videos",
    ]
)
_PIECE: Final = (RawDelta(),)
_RESOURCE: Final = frozenset({"id", "data", "output", "choices"})  # what an error has not


def is_resource(endpoint: str) -> bool:
    """Whether `/v1/...` is a path that some server is known to have; any other is relayed all the same where it is clear to whom."""
    return endpoint.split("/")[2] in _RESOURCES


class OpaqueStream:
    """SSE of an endpoint that nothing here reads; each event with a payload is a frame. Its events are found by somebody else."""

    def __init__(self) -> None:
        self.complete = False  # before HTTP's own end it never is
        self.ends_itself = False  # the newest payload is `[DONE]`
        self.ignored = 0

    def take(self, events: list[SseEvent]) -> Step:
        """Events of the stream."""
        frames: list[Frame] = []
        for event in events:
            failure = _error_event(event)
            if failure is not None:
                return Step(frames, bool(frames), failure)
            if event.data:
                self.ends_itself = event.data.strip() == b"[DONE]"
                frames.append(Frame(event.data, _PIECE, len(event.raw), closing=self.ends_itself))
        return Step(frames, bool(frames), None)

    def eof(self) -> Step:
        """HTTP's end."""
        return Step([], False, Complete())


class StoredStream(OpaqueStream):
    """SSE of a stored response: whatever became of it is a good answer, and has to be told to its end."""

    def take(self, events: list[SseEvent]) -> Step:
        frames: list[Frame] = []
        for event in events:
            step = super().take([event])
            if step.end is not None:
                if not self.complete:
                    return Step(frames, bool(frames), step.end)
                self.ignored += 1
                continue
            self.complete = self.complete or _is_terminal(event)
            frames += [structs.replace(frame, closing=self.complete) for frame in step.frames]
        return Step(frames, bool(frames), None)

    def eof(self) -> Step:
        self.ends_itself = self.complete
        ended = Complete() if self.complete else Failure(FailureKind.MISSING_TERMINAL)
        return Step([], False, ended)


class OpaqueBody:
    """A JSON body of an endpoint that nothing here reads."""

    def __init__(self, *, may_be_empty: bool = False) -> None:
        self.complete = False
        self.pending = 0
        self._may_be_empty = may_be_empty
        self._body = b""
        self._whole = b""  # it, once it has ended

    @property
    def ends_itself(self) -> bool:
        """It parses; whether one that HTTP has ended does is its provider's affair."""
        return is_whole(self._whole.removeprefix(BYTE_ORDER_MARK))

    def feed(self, data: bytes) -> Step:
        """The body, in one piece."""
        self._body = data
        return Step([], False, None)

    def eof(self) -> Step:
        body, self._body = self._body, b""
        self._whole = body
        if not body.strip():
            return Step([], False, _empty(may_be=self._may_be_empty))
        if len(body) <= ERROR_BYTES_MAX:
            error = _error(tolerant_object(body.removeprefix(BYTE_ORDER_MARK)))
            if error is not None:
                return Step([], False, classify_error(error))
        return Step([Frame(body, _PIECE, len(body))], True, Complete())


class OpaqueBytes:
    """A body that is no text at all. What one read brings is a frame: it can be heard or shown as far as it has come."""

    ends_itself: Final = False  # nobody here knows its format

    def __init__(self, *, may_be_empty: bool = False) -> None:
        self.complete = False
        self.pending = 0
        self._may_be_empty = may_be_empty
        self._came = False

    def feed(self, data: bytes) -> Step:
        self._came = True
        return Step([Frame(data, _PIECE, len(data), raw=data)], True, None)

    def eof(self) -> Step:
        return Step([], False, Complete() if self._came else _empty(may_be=self._may_be_empty))


def _empty(*, may_be: bool) -> HowEnded:
    return Complete() if may_be else Failure(FailureKind.EMPTY)


def _is_terminal(event: SseEvent) -> bool:
    """Whether an event is the last of a response: its name says so, or the status of its response does."""
    value = (tolerant_object(event.data) if event.data else None) or {}
    response = value.get("response")
    status = response.get("status") if isinstance(response, dict) else None
    return value.get("type") in TERMINAL or status in TERMINAL.values()


def _error_event(event: SseEvent) -> Failure | None:
    value = (
        tolerant_object(event.data) if event.data and len(event.data) <= ERROR_BYTES_MAX else None
    )
    if event.error or event.name == b"error":
        return classify_error(error_in(value))
    error = _error(value)
    return None if error is None else classify_error(error)


def _error(value: Mapping[str, Any] | None) -> object:
    """The error that a whole object is; None where it is something else."""
    if value is None or not _RESOURCE.isdisjoint(value):
        return None
    return error_in(value, required=False)
