"""A provider's answer as bytes -> frames, progress and how it ended. Pure: clocks and sockets are the attempt runner's.

`ChatStreamReader` reads an event stream, `ChatBodyReader` a JSON body; which one follows from the head, never from what was asked (`gate.endpoints`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

import msgspec

from gate.completeness import Answer
from gate.events import Complete, Frame, HowEnded, Identity, Mend
from gate.failure import Failure, FailureKind, classify_error
from gate.loose_json import encoded, integer, is_plain, items, paired, tolerant_object
from gate.mending_tools import stays_as_it_is
from gate.openai import Note, decode_event, decode_object, error_in
from gate.sse import EventTooLarge, SseDecoder, SseEvent

__all__ = [
    "AnswerReader",
    "ChatBodyReader",
    "ChatStreamReader",
    "Decode",
    "Step",
    "WholeBody",
    "media_type",
]

SSE: Final = b"text/event-stream"
JSON: Final = b"application/json"

Decode: TypeAlias = Callable[[SseEvent], Frame | Failure | Note]
"""What one event is."""
AsChunk: TypeAlias = Callable[[dict[str, Any]], dict[str, Any]]


class Step(NamedTuple):
    """What one read brought: whole frames, whether any was progress, and the end if it came."""

    frames: list[Frame]
    progress: bool
    end: HowEnded | None


class AnswerReader(Protocol):
    """Reads one attempt's body."""

    @property
    def complete(self) -> bool: ...

    @property
    def ends_itself(self) -> bool:
        """After `eof`: whether a complete answer showed its own end, so that it is whole although only the connection's close has ended it.

        True of what is understood (its finish reasons, its terminal event, a JSON body that parses); of anything else by JSON that parses, or `[DONE]`.
        """

    @property
    def pending(self) -> int:
        """Bytes kept that are in no frame yet."""

    def feed(self, data: bytes) -> Step: ...

    def eof(self) -> Step:
        """The body ended in order. The step always has an end."""


def media_type(content_type: bytes) -> bytes:
    """The media type without its parameters; one that is written in JSON is `JSON`."""
    media = content_type.split(b";", 1)[0].strip().lower()
    return JSON if media.endswith(b"+json") else media


class _Named(msgspec.Struct):
    id: str | None = None
    created: Any = None


_named: Final = msgspec.json.Decoder(_Named)


class ChatStreamReader:
    """SSE of chat chunks, or of what `decode` makes into such."""

    ends_itself: Final = True

    def __init__(
        self,
        *,
        choices: int,
        event_bytes_max: int,
        continues: bool = False,
        decode: Decode = decode_event,
    ) -> None:
        self.answer = Answer(choices, begun=continues)
        self.ignored = 0  # events that would have been a failure, had the answer not been complete
        self._decode = decode
        self._sse = SseDecoder(event_bytes_max=event_bytes_max)
        self._identified = False

    @property
    def complete(self) -> bool:
        return self.answer.complete

    @property
    def pending(self) -> int:
        return self._sse.pending

    def feed(self, data: bytes) -> Step:
        try:
            events = self._sse.feed(data)
        except EventTooLarge as error:
            step = self.take(list(error.before))
            end: HowEnded = Complete() if self.complete else Failure(FailureKind.MALFORMED)
            return step if step.end else step._replace(end=end)
        return self.take(events)

    def eof(self) -> Step:
        step = self.take(self._sse.finish())
        return step if step.end else step._replace(end=self.answer.closed())

    def take(self, events: list[SseEvent]) -> Step:
        """Events that somebody else has found in the stream."""
        frames: list[Frame] = []
        progress = False
        answer = self.answer
        for event in events:
            item = self._decode(event)
            if isinstance(item, Frame):
                if not self._identified:
                    item = self._identify(item)
                frames.append(item)
                if answer.observe(item.events):
                    progress = True
                if item.mend and answer.failed:
                    return Step(frames, progress, Failure(FailureKind.FAILED_FINISH))
            elif isinstance(item, Failure):
                if not answer.complete:
                    return Step(frames, progress, item)
                self.ignored += 1
            elif item is Note.DONE or (item is Note.BARE_DONE and answer.finished):
                return Step(frames, progress, answer.done())
        return Step(frames, progress, None)

    def _identify(self, frame: Frame) -> Frame:
        """Adds the attempt's identity to the first frame that has an id."""
        try:
            said = _named.decode(frame.data)
        except msgspec.MsgspecError:
            return frame
        if not said.id:
            return frame
        self._identified = True
        identity = Identity(said.id, integer(said.created))
        return msgspec.structs.replace(frame, events=(*frame.events, identity))


class WholeBody(ABC):
    """Collects one body of at most `body_bytes_max` bytes for a reader; `complete`, once it was judged to be an answer."""

    def __init__(self, *, body_bytes_max: int) -> None:
        self.complete = False
        self._body_bytes_max = body_bytes_max
        self._parts: list[bytes] = []
        self._size = 0

    @property
    def ends_itself(self) -> bool:
        return True

    @property
    def pending(self) -> int:
        return self._size

    def feed(self, data: bytes) -> Step:
        self._size += len(data)
        if self._size > self._body_bytes_max:
            self._parts.clear()
            return Step([], False, Failure(FailureKind.HELD_LIMIT))
        self._parts.append(data)
        return Step([], False, None)

    def eof(self) -> Step:
        body = b"".join(self._parts)
        self._parts.clear()
        self._size = 0
        return self._read(body)

    @abstractmethod
    def _read(self, body: bytes) -> Step:
        """What the whole body says; the step has an end."""


class ChatBodyReader(WholeBody):
    """One JSON body: an error, or a complete answer as one frame. `as_chunk`: how the answer is said as one chunk."""

    def __init__(
        self,
        *,
        choices: int,
        body_bytes_max: int,
        stream: bool,
        as_chunk: AsChunk | None = None,
    ) -> None:
        super().__init__(body_bytes_max=body_bytes_max)
        self._as_chunk = as_chunk or _as_chunk
        self._has_messages = as_chunk is None
        self._answer = Answer(choices)
        self._stream = stream

    def _read(self, body: bytes) -> Step:
        body = body.removeprefix(b"\xef\xbb\xbf")
        value = tolerant_object(body)
        if value is None:
            kind = FailureKind.MALFORMED if body.strip() else FailureKind.EMPTY
            return Step([], False, Failure(kind))
        failure = _body_error(value)
        if failure is not None:
            return Step([], False, failure)
        return self._answered(value, body)

    def _answered(self, value: dict[str, Any], body: bytes) -> Step:
        chunk = self._as_chunk(value)
        events, mend = decode_object(chunk)
        as_it_is = not self._stream and mend & _RENEW == 0 and is_plain(body)
        if as_it_is and mend & Mend.TOOLS:
            as_it_is = stays_as_it_is(Frame(encoded(chunk), tuple(events), 0, mend))
        self._answer.observe(tuple(events))
        if self._answer.failed:
            return Step([], False, Failure(FailureKind.FAILED_FINISH))
        end = self._body_end()
        if self._has_messages and _lacks_a_message(value):
            end = Failure(FailureKind.EMPTY)  # whatever its finish reason says
        events += end.implied if isinstance(end, Complete) else ()
        self.complete = isinstance(end, Complete)
        name = value.get("id")
        if isinstance(name, str) and name:
            events.append(Identity(paired(name), integer(value.get("created"))))
        data = body if as_it_is else encoded(chunk)
        frame = Frame(data, tuple(events), len(body), mend | Mend.FACTS.value, whole=as_it_is)
        return Step([frame], True, end)

    def _body_end(self) -> HowEnded:
        """A body that parses whole and has content is an end by itself."""
        if self._answer.complete:
            return Complete()
        if self._answer.finished:
            return Failure(FailureKind.CUT)
        return (
            Failure(FailureKind.EMPTY) if self._answer.empty else Complete(self._answer.implied())
        )


def _body_error(value: dict[str, Any]) -> Failure | None:
    error = error_in(value, required=False)
    return None if error is None else classify_error(error)


def _lacks_a_message(value: dict[str, Any]) -> bool:
    choices = items(value.get("choices"))
    return any(not isinstance(each.get("message"), dict) for each in choices)


_RENEW: Final = (
    Mend.FIELDS | Mend.TEXT | Mend.CALLS
).value  # a body that needs it is mended as a chunk
_MESSAGE_ONLY: Final = frozenset({"message", "index", "finish_reason"})


def _as_chunk(value: dict[str, Any]) -> dict[str, Any]:
    """A `chat.completion` as the one `chat.completion.chunk` that says the same: message -> delta, tool calls numbered."""
    choices = []
    for number, choice in enumerate(items(value.get("choices"))):
        message = choice.get("message")
        delta = dict(message) if isinstance(message, dict) else {}
        calls = delta.get("tool_calls")
        if isinstance(calls, list):
            delta["tool_calls"] = [
                {"index": index, **call} for index, call in enumerate(items(calls))
            ]
        rest = {name: item for name, item in choice.items() if name not in _MESSAGE_ONLY}
        index = choice.get("index")
        index = number if index is None else index
        finish = choice.get("finish_reason")
        choices.append({"index": index, "delta": delta, "finish_reason": finish, **rest})
    return {**value, "object": "chat.completion.chunk", "choices": choices}
