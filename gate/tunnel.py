"""Reading an answer that a tunnel relays: each frame carries the provider's raw bytes, and its decoded copy is watched as everywhere.

What stands between two frames (comments, blank lines, events that are none) belongs to the frame that follows, and what is left at the end to a last frame without events, so the raw
bytes of all frames in order are the body. Only the model's name in it is another (`gate.model_echo`). An event that shows that an attempt has failed is no part of any frame, also where it
comes too late to make it fail: a provider's own error never goes on.

Three kinds of answers are known: chat and legacy completions, whose end is told as in `gate.completeness`; those of the Responses API, which say it themselves; and every other, which is complete
when HTTP says so. What is known is read to the end of its stream: some servers put `[DONE]` behind the last event of the Responses API.
"""

from __future__ import annotations

from typing import Final, Protocol

import msgspec

from gate.completions import PATH as COMPLETIONS
from gate.completions import as_chunk, decode_completion
from gate.events import Complete, Frame, HowEnded, UsageReport
from gate.failure import Failure, FailureKind
from gate.ingress_responses import RESPONSES_PATH
from gate.loose_json import tolerant_object
from gate.model_echo import BYTE_ORDER_MARK, ModelEcho
from gate.openai import decode_event
from gate.reader import (
    JSON,
    SSE,
    AnswerReader,
    ChatBodyReader,
    ChatStreamReader,
    Step,
    WholeBody,
    media_type,
)
from gate.relay import STORED_RESPONSES, OpaqueBody, OpaqueBytes, OpaqueStream, StoredStream
from gate.responses import ResponsesBodyReader, ResponsesStreamReader
from gate.sse import EventTooLarge, SseDecoder, SseEvent, before_fields

__all__ = ["CHAT", "TunnelBodyReader", "TunnelStreamReader", "fits", "is_watched", "tunnel_reader"]

CHAT: Final = "/v1/chat/completions"
NOTHING: Final = b"{}"  # the payload of a frame that says nothing


def is_watched(endpoint: str) -> bool:
    """Whether the answers of this endpoint are understood."""
    return endpoint in (CHAT, COMPLETIONS, RESPONSES_PATH)


def fits(content_type: bytes, *, stream: bool) -> bool:
    """Whether a body of that type is in the form that was asked for: clients see nothing in a JSON body that comes for a stream, and can't parse a stream that comes for one."""
    media = media_type(content_type)
    return media == SSE if stream else media == JSON


class StreamWatch(Protocol):
    """Reads the decoded copy of a stream: the events are found by somebody else."""

    @property
    def complete(self) -> bool: ...

    @property
    def ends_itself(self) -> bool:
        """As `gate.reader.AnswerReader.ends_itself`."""

    @property
    def ignored(self) -> int:
        """How many events came behind completeness that are no part of the answer: they would have been a failure before it, or none may come there."""

    def take(self, events: list[SseEvent]) -> Step: ...

    def eof(self) -> Step: ...


def tunnel_reader(
    endpoint: str,
    content_type: bytes,
    *,
    echo: ModelEcho | None,
    choices: int,
    event_bytes_max: int,
    body_bytes_max: int,
    stream: bool,
    may_be_empty: bool = False,
    hides_usage: bool = False,
) -> AnswerReader | None:
    """The reader for a 2xx answer of an endpoint, or None where such a body is no answer to it.

    `choices`: how many there will be, 0 where nobody can say; `may_be_empty`: a body without a byte is an answer too; `hides_usage`: the chunk that a stream has only because the gate has asked
    for it is watched, and not relayed.
    """
    media = media_type(content_type)
    if is_watched(endpoint):
        if not fits(content_type, stream=stream):
            return None
        return _watched(
            endpoint,
            echo=echo,
            choices=choices,
            event_bytes_max=event_bytes_max,
            body_bytes_max=body_bytes_max,
            stream=stream,
            hides_usage=hides_usage,
        )
    if media == SSE:
        opaque = StoredStream() if endpoint.startswith(STORED_RESPONSES) else OpaqueStream()
        return TunnelStreamReader(opaque, echo=echo, event_bytes_max=event_bytes_max)
    if media == JSON:
        body = OpaqueBody(may_be_empty=may_be_empty)
        return TunnelBodyReader(body, echo=echo, body_bytes_max=body_bytes_max)
    return OpaqueBytes(may_be_empty=may_be_empty)


def _watched(
    endpoint: str,
    *,
    echo: ModelEcho | None,
    choices: int,
    event_bytes_max: int,
    body_bytes_max: int,
    stream: bool,
    hides_usage: bool,
) -> AnswerReader:
    """The reader of an answer that is understood."""
    if stream:
        watch = _watch(endpoint, choices=choices, event_bytes_max=event_bytes_max)
        return TunnelStreamReader(
            watch, echo=echo, event_bytes_max=event_bytes_max, hides_usage=hides_usage
        )
    if endpoint == RESPONSES_PATH:
        answer: AnswerReader = ResponsesBodyReader(body_bytes_max=body_bytes_max)
    else:
        legacy = endpoint == COMPLETIONS
        answer = ChatBodyReader(
            choices=choices,
            body_bytes_max=body_bytes_max,
            stream=legacy,
            as_chunk=as_chunk if legacy else None,
        )
    return TunnelBodyReader(answer, echo=echo, body_bytes_max=body_bytes_max)


def _watch(endpoint: str, *, choices: int, event_bytes_max: int) -> StreamWatch:
    """What reads the events of such an answer."""
    if endpoint == RESPONSES_PATH:
        return ResponsesStreamReader(event_bytes_max=event_bytes_max, lingers=True)
    decode = decode_completion if endpoint == COMPLETIONS else decode_event
    return ChatStreamReader(choices=choices, event_bytes_max=event_bytes_max, decode=decode)


class TunnelStreamReader:
    """SSE, event by event. `watch` reads the decoded copy; `hides_usage`: a chunk with nothing but usage is not relayed."""

    def __init__(
        self,
        watch: StreamWatch,
        *,
        echo: ModelEcho | None,
        event_bytes_max: int,
        hides_usage: bool = False,
    ) -> None:
        self._hides_usage = hides_usage
        self._watch = watch
        self._echo = echo
        self._event_bytes_max = event_bytes_max
        self._sse = SseDecoder(event_bytes_max=event_bytes_max)
        self._between: list[bytes] = []
        self._between_bytes = 0
        self._begin: bytes | None = (
            b""  # the first bytes, until it is known whether they are a byte order mark
        )
        self._done: HowEnded | None = None  # the end came, and half of a line end may be missing
        self._over = False  # the end came

    @property
    def complete(self) -> bool:
        return self._watch.complete or self._done is not None

    @property
    def ends_itself(self) -> bool:
        return self._watch.ends_itself

    @property
    def pending(self) -> int:
        return self._sse.pending + self._between_bytes

    def feed(self, data: bytes) -> Step:
        if self._done is not None:
            return Step(_rest([data[:1]]) if data.startswith(b"\n") else [], False, self._done)
        if self._begin is not None:
            self._note_mark(data)
        try:
            step = self._take(self._sse.feed(data))
        except EventTooLarge as error:
            step = self._take(list(error.before))
            return step if step.end else step._replace(end=self._too_large())
        if step.end is None and self._between_bytes > self._event_bytes_max:
            return step._replace(end=self._too_large())
        return step

    def eof(self) -> Step:
        if self._done is not None:
            return Step([], False, self._done)
        step = self._take(self._sse.finish())
        self._over = True
        if step.end is None:
            step = step._replace(end=self._watch.eof().end)
            if isinstance(step.end, Complete):
                self._keep(self._sse.rest)
                step.frames.extend(self._left())
        return step

    def left(self) -> list[Frame]:
        """What of the bytes so far is in no frame, where nothing more is read although the end has not come: whole lines that say nothing. Half an event is none."""
        if self._over:
            return []
        self._keep(before_fields(self._sse.rest))
        return self._left()

    def _too_large(self) -> HowEnded:
        return Complete() if self.complete else Failure(FailureKind.MALFORMED)

    def _note_mark(self, data: bytes) -> None:
        """The decoder drops a byte order mark; the caller gets it."""
        assert self._begin is not None
        self._begin += data[: len(BYTE_ORDER_MARK)]
        if self._begin.startswith(BYTE_ORDER_MARK):
            self._keep(BYTE_ORDER_MARK)
            self._begin = None
        elif not BYTE_ORDER_MARK.startswith(self._begin):
            self._begin = None

    def _take(self, events: list[SseEvent]) -> Step:
        frames: list[Frame] = []
        progress = False
        for event in events:
            ignored = self._watch.ignored
            step = self._watch.take([event])
            if self._watch.ignored > ignored:
                continue
            progress |= step.progress
            if isinstance(step.end, Failure):
                return Step(frames, progress, step.end)
            if self._hides_usage and _is_usage_chunk(step.frames):
                self._keep(before_fields(event.raw))
            else:
                self._keep(event.raw if self._echo is None else self._echo.event(event))
            if step.frames:  # one event is one frame at most
                frames.append(msgspec.structs.replace(step.frames[0], raw=self._kept()))
            if step.end is not None:
                return self._ended(Step([*frames, *self._left()], progress, step.end), event)
        return Step(frames, progress, None)

    def _ended(self, step: Step, last: SseEvent) -> Step:
        """The provider said that it is done. The line feed of its last line end belongs to it, and may come with the next read."""
        self._over = True
        if not last.raw.endswith(b"\r") or self._sse.pending:
            return step
        self._done = step.end
        return step._replace(end=None)

    def _keep(self, raw: bytes) -> None:
        if raw:
            self._between.append(raw)
            self._between_bytes += len(raw)

    def _kept(self) -> bytes:
        """What has been kept up to here, which is taken."""
        kept = self._between[0] if len(self._between) == 1 else b"".join(self._between)
        self._between.clear()
        self._between_bytes = 0
        return kept

    def _left(self) -> list[Frame]:
        return _rest([self._kept()]) if self._between else []


class TunnelBodyReader(WholeBody):
    """One body, relayed whole. `watch` reads the decoded copy."""

    def __init__(self, watch: AnswerReader, *, echo: ModelEcho | None, body_bytes_max: int) -> None:
        super().__init__(body_bytes_max=body_bytes_max)
        self._watch = watch
        self._echo = echo

    @property
    def ends_itself(self) -> bool:
        return self._watch.ends_itself

    def _read(self, body: bytes) -> Step:
        self._watch.feed(body)
        step = self._watch.eof()
        if not isinstance(step.end, Complete):
            return step._replace(frames=[])
        self.complete = True
        raw = body if self._echo is None else self._echo.body(body)
        frames = [msgspec.structs.replace(frame, raw=raw) for frame in step.frames]
        return step._replace(frames=frames)


def _is_usage_chunk(frames: list[Frame]) -> bool:
    """Whether an event is the chunk that reports usage and is about no choice."""
    if not any(isinstance(event, UsageReport) for frame in frames for event in frame.events):
        return False
    value = tolerant_object(frames[0].data)
    return value is not None and not value.get("choices")


def _rest(parts: list[bytes]) -> list[Frame]:
    """A frame that says nothing, behind all others."""
    raw = b"".join(parts)
    return [Frame(NOTHING, (), len(raw), raw=raw, closing=True)]
