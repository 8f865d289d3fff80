"""OpenAI's Responses wire shapes: one SSE payload -> one frame with its events, and the two readers of an answer.

An event says in `type` what it is, and in `output_index`, `item_id`, `content_index` or `summary_index` where it belongs; servers leave any of these out. The decoder only
notes them, as a `Slot`; what follows from them is for mending (`gate.responses_mending`). How an answer ended is told by the `status` of its response object, not by the event's name.
A JSON answer is read as the one event that would have ended its stream.

Two tiers, as in `gate.openai`: a typed one for the deltas, and a tolerant one for all else.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from gate.completeness import Answer
from gate.events import (
    AudioDelta,
    Complete,
    Event,
    Finish,
    Frame,
    HowEnded,
    Identity,
    Mend,
    ReasoningDelta,
    RefusalDelta,
    Slot,
    TextDelta,
    ToolDelta,
    UsageReport,
)
from gate.failure import Failure, FailureKind, classify_error
from gate.loose_json import (
    SHALLOW_BYTES,
    encoded,
    integer,
    is_plain,
    is_utf8,
    paired,
    string,
    tolerant_object,
    too_deep,
)
from gate.openai import Note, error_in, note_of
from gate.openai_tools import LONE_HALF
from gate.reader import Step, WholeBody
from gate.responses_spoken import AUDIO_DELTAS
from gate.sse import EventTooLarge, SseDecoder, SseEvent

__all__ = [
    "CALL_DELTAS",
    "LIFECYCLE",
    "TERMINAL",
    "TEXT_DELTAS",
    "ResponsesBodyReader",
    "ResponsesStreamReader",
    "decode_event",
    "finish_of",
    "text_delta",
]

Text = TextDelta | ReasoningDelta | RefusalDelta

TEXT_DELTAS: Final[Mapping[str, type[Text]]] = {
    "response.output_text.delta": TextDelta,
    "response.refusal.delta": RefusalDelta,
    "response.reasoning_text.delta": ReasoningDelta,
    "response.reasoning_summary_text.delta": ReasoningDelta,
}
"""Events that bring text, and what it is."""

CALL_DELTAS: Final[Mapping[str, bool]] = {
    "response.function_call_arguments.delta": False,
    "response.custom_tool_call_input.delta": True,
}
"""Events that bring a piece of a call, and whether that is free text."""

LIFECYCLE: Final = frozenset({"response.created", "response.queued", "response.in_progress"})
"""Events that say nothing but that the response exists."""

TERMINAL: Final[Mapping[str, str]] = {
    "response.completed": "completed",
    "response.incomplete": "incomplete",
    "response.failed": "failed",
    "response.cancelled": "cancelled",
}
"""Events that end a stream, and the status of a response object that gives none."""

_FAILED: Final = frozenset({"failed", "cancelled"})
_SEEN_MAX: Final = 1_024  # events other than deltas that count as progress, each once
_TEXT: Final = Mend.TEXT.value


class _Event(msgspec.Struct):
    type: str | None = None
    output_index: int | None = None
    item_id: str | None = None
    content_index: int | None = None
    summary_index: int | None = None
    delta: str | None = None


_fast: Final = msgspec.json.Decoder(_Event)


def decode_event(event: SseEvent) -> Frame | Failure | Note:
    """One SSE event of a Responses stream. Failure: an in-band error, a response that failed, or `MALFORMED`."""
    data = event.data
    if event.error or event.name == b"error":
        return classify_error(error_in(tolerant_object(data or b"")))
    if data is None:
        return Note.COMMENT
    data = data.strip()
    if not data.startswith(b"{"):
        return note_of(data)
    name = event.name.decode("utf-8", "replace")
    return _decode(data, name, len(event.raw))


def _decode(data: bytes, name: str, size: int) -> Frame | Failure:
    if len(data) > SHALLOW_BYTES and too_deep(data):
        return Failure(FailureKind.MALFORMED)
    if b'"response"' in data or b'"error' in data:
        return _tolerant(data, name, size)
    try:
        said = _fast.decode(data)
    except (msgspec.MsgspecError, RecursionError):
        return _tolerant(data, name, size)
    kind = said.type or ""
    if kind not in TEXT_DELTAS or b"\n" in data or not (data.isascii() or is_utf8(data)):
        return _tolerant(data, name, size)
    part = said.summary_index if said.content_index is None else said.content_index
    slot = Slot(kind, said.output_index, said.item_id, part)
    if not said.delta:
        return Frame(data, (slot,), size)
    return Frame(data, (slot, text_delta(kind, said.delta)), size)


def text_delta(kind: str, text: str) -> Text:
    """The event of a piece of text in a delta of this type."""
    return TEXT_DELTAS[kind](0, text)


def _tolerant(data: bytes, name: str, size: int) -> Frame | Failure:
    value = tolerant_object(data)
    if value is None:
        return Failure(FailureKind.MALFORMED)
    kind = string(value.get("type")) or name
    typed = {**value, "type": kind, "detail": value.get("detail") if not kind else None}
    error = error_in(typed, required=False)
    if error is not None:
        return classify_error(error)
    response = value.get("response")
    response = response if isinstance(response, Mapping) else {}
    if _status(response, kind) in _FAILED:
        return classify_error(response.get("error") or {})
    events, torn = _events(value, kind)
    events += _response_events(response, kind)
    # White space is all that a line end can be in JSON, and a payload is one line.
    data = data.replace(b"\r", b" ").replace(b"\n", b" ") if is_plain(data) else encoded(value)
    return Frame(data, tuple(events), size, _TEXT if torn else 0)


def _status(response: Mapping[str, Any], kind: str) -> str:
    """What a response object says of its end; only an event that ends a stream stands for one that says nothing."""
    return string(response.get("status")) or TERMINAL.get(kind, "")


def _events(value: Mapping[str, Any], kind: str) -> tuple[list[Event], bool]:
    """The slot and what a delta brings; whether half a character stands in it."""
    part = value.get("content_index")
    part = value.get("summary_index") if part is None else part
    delta = value.get("delta")
    delta = encoded(delta).decode() if isinstance(delta, dict) else string(delta)
    slot = Slot(
        kind,
        _number(value.get("output_index")),
        string(value.get("item_id")),
        _number(part),
        bool(delta) or _is_work(kind),
    )
    if not delta:
        return [slot], False
    torn = LONE_HALF.search(delta) is not None
    if kind in TEXT_DELTAS:
        return [slot, text_delta(kind, delta)], torn
    if kind in AUDIO_DELTAS:
        return [slot, AudioDelta(0, delta if AUDIO_DELTAS[kind] else "")], torn
    if kind in CALL_DELTAS:
        return [slot, ToolDelta(0, None, None, None, delta, CALL_DELTAS[kind])], torn
    return [slot], torn


def _is_work(kind: str) -> bool:
    """Whether an event without a delta shows that something is being done: an item or a part of one begins, moves on or ends."""
    return kind.startswith("response.") and kind not in LIFECYCLE


def _response_events(response: Mapping[str, Any], kind: str) -> list[Event]:
    """Identity, usage and finish that a response object gives."""
    events: list[Event] = []
    name = string(response.get("id"))
    if name:
        events.append(Identity(paired(name), integer(response.get("created_at"))))
    if kind in TERMINAL:
        events.append(finish_of(response, kind))
        usage = response.get("usage")
        if isinstance(usage, Mapping) and usage:
            events.append(UsageReport(encoded(usage)))
    return events


def finish_of(response: Mapping[str, Any], kind: str) -> Finish:
    """How an answer ended, in the words of chat: `incomplete` is `length`, but for what a filter of the provider's ended."""
    if _status(response, kind) != "incomplete":
        return Finish(0, "stop", "completed")
    details = response.get("incomplete_details")
    reason = string(details.get("reason")) if isinstance(details, Mapping) else None
    return Finish(0, "content_filter" if reason == "content_filter" else "length", reason or "")


def _number(value: object) -> int | None:
    return value if type(value) is int and value >= 0 else None


# ---- the readers -----------------------------------------------------------------------------------


class ResponsesStreamReader:
    """SSE of Responses events. `continues`: the answer has begun at another attempt; `lingers`: the answer ends with its stream, not with its last event."""

    ends_itself: Final = True

    def __init__(
        self, *, event_bytes_max: int, continues: bool = False, lingers: bool = False
    ) -> None:
        self.complete = False
        self.ignored = 0  # events behind the last one, of whatever kind
        self._lingers = lingers
        self._progressed = continues
        self._answer = Answer(1)
        self._sse = SseDecoder(event_bytes_max=event_bytes_max)
        self._seen: set[tuple[str, int | None, str | None, int | None]] = set()

    @property
    def pending(self) -> int:
        return self._sse.pending

    def feed(self, data: bytes) -> Step:
        try:
            events = self._sse.feed(data)
        except EventTooLarge as error:
            step = self.take(list(error.before))
            return step if step.end else step._replace(end=Failure(FailureKind.MALFORMED))
        return self.take(events)

    def eof(self) -> Step:
        step = self.take(self._sse.finish())
        return step if step.end else step._replace(end=self._closed())

    def _closed(self) -> HowEnded:
        """Without a terminal event an answer is none, however the connection closed."""
        if self.complete:
            return Complete()
        progressed = self._progressed or self._answer.progressed
        return Failure(FailureKind.MISSING_TERMINAL if progressed else FailureKind.EMPTY)

    def take(self, events: list[SseEvent]) -> Step:
        """Events that somebody else has found in the stream."""
        frames: list[Frame] = []
        progress = False
        for event in events:
            item = decode_event(event)
            if item is Note.DONE:
                return Step(frames, progress, self._closed())
            if self.complete:
                self.ignored += not isinstance(item, Note)
            elif isinstance(item, Frame):
                frames.append(item)
                progress = self._observe(item) or progress
                if self.complete and not self._lingers:
                    return Step(frames, progress, Complete())
            elif isinstance(item, Failure):
                return Step(frames, progress, item)
        return Step(frames, progress, None)

    def _observe(self, frame: Frame) -> bool:
        """Whether a frame is progress; `complete` once it is the last."""
        slot = frame.events[0]
        assert isinstance(slot, Slot), "the decoder puts it first"
        self.complete = slot.kind in TERMINAL
        if self._answer.observe(frame.events):
            return True
        if not slot.progress or self.complete:
            return False
        seen = (slot.kind, slot.index, slot.item if slot.index is None else None, slot.part)
        if not slot.kind.endswith(".delta"):
            # Said once it is work; said again and again it may be a clock in a dead server.
            if seen in self._seen or len(self._seen) >= _SEEN_MAX:
                return False
            self._seen.add(seen)
        self._progressed = True
        return True


class ResponsesBodyReader(WholeBody):
    """One JSON body: an error, or a response object as the event that ends its stream."""

    def _read(self, body: bytes) -> Step:
        body = body.removeprefix(b"\xef\xbb\xbf")
        value = tolerant_object(body)
        if value is None:
            kind = FailureKind.MALFORMED if body.strip() else FailureKind.EMPTY
            return Step([], False, Failure(kind))
        status = string(value.get("status")) or ("completed" if "output" in value else "")
        if status not in {"completed", "incomplete"}:
            # A response object has a member `error` of its own, which is null where it has not failed.
            error = error_in(value, required=False)
            known = status in _FAILED or error is not None
            kind = FailureKind.MISSING_TERMINAL
            return Step([], False, classify_error(error or {}) if known else Failure(kind))
        data = b'{"type":"response.%b","response":%b}' % (status.encode(), body.strip())
        frame = _tolerant(data, "", len(body))
        assert isinstance(frame, Frame), "its status is a good one"
        self.complete = True
        return Step([frame], True, Complete())
