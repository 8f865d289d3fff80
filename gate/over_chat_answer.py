"""A chat answer as a Responses answer: what a provider's chunks say, said in events, so that everything behind reads, judges and writes them as those of a Responses provider.

    thoughts, text    deltas of a reasoning item, of a message: another item begins where the other kind follows
    refusals          a part of the message
    calls             an item each, as soon as the call is whole
    annotations       events of their own, behind the text that they came with
    log probabilities with their delta, and in the objects at the end
    service tier      in the response objects
    finish, usage     the event at the end: `length` and `content_filter` are `incomplete`

Anything else of an answer has no event here, and is left out: audio, pictures, lists of sources beside the text, and members that nobody here knows.

The chunks are mended as chat first; then the events are as Responses (`gate.responses_mending`), which numbers items over attempts of both kinds.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from gate.events import (
    Complete,
    Event,
    Facts,
    Frame,
    Identity,
    Mend,
    ReasoningDelta,
    RefusalDelta,
    Slot,
    TextDelta,
    ToolDelta,
    ToolEnd,
    UsageReport,
)
from gate.loose_json import encoded, integer, items, string, tolerant_object
from gate.mending import ChatMender
from gate.responses import CALL_DELTAS, TEXT_DELTAS, finish_of
from gate.responses_frames import ITEM_ADDED, ITEM_DONE
from gate.responses_items import CALL_FIELDS, MESSAGE, REASONING
from gate.responses_mending import ResponsesMender

__all__ = ["OverChatMender"]

_CHATS: Final = "chatcmpl-"
_OURS: Final = "resp_"
_TIER: Final = b'"service_tier"'
_TORN: Final = Mend.TEXT.value
_BESIDE_TEXT: Final = re.compile(rb'"(?:logprobs"[ \t]*:[ \t]*\{|annotations"[ \t]*:[ \t]*\[)')
_DELTAS: Final[Mapping[type[Event], tuple[str, str]]] = {
    ReasoningDelta: ("response.reasoning_text.delta", REASONING),
    TextDelta: ("response.output_text.delta", MESSAGE),
    RefusalDelta: ("response.refusal.delta", MESSAGE),
}
_ANNOTATION: Final = "response.output_text.annotation.added"
_INCOMPLETE: Final = {"length": "max_output_tokens", "content_filter": "content_filter"}
# Usage by the names of chat and of Responses, with their details.
_USAGE: Final = (
    ("prompt_tokens", "input_tokens"),
    ("completion_tokens", "output_tokens"),
    ("total_tokens", "total_tokens"),
)
_DETAILS: Final = (
    ("prompt_tokens_details", "input_tokens_details", "cached_tokens"),
    ("completion_tokens_details", "output_tokens_details", "reasoning_tokens"),
)


_LOGPROB_BYTES: Final = 1_024  # of one token's, with those that were likely too: as Python keeps it


class OverChatMender:
    """Mends one attempt's chat frames in order, and makes them frames of a Responses answer. `responses` mends those."""

    def __init__(self, chat: ChatMender, responses: ResponsesMender) -> None:
        self._chat = chat
        self.responses = responses
        self._said = _Said()
        self._usage = b""
        self._silent = True  # it has said nothing yet
        self._tier = ""  # that serves the answer, as its provider says

    @property
    def identity(self) -> Identity | None:
        """A name for the response that is made of the provider's for its answer."""
        known = self._chat.identity
        if known is None:
            return None
        return Identity(f"{_OURS}{known.id.removeprefix(_CHATS)}", known.created)

    @property
    def usage(self) -> bytes:
        """What the attempt has reported so far: by the names of chat, until it is complete."""
        return self._usage or self._chat.usage

    @property
    def holding(self) -> bool:
        """Something has begun that no other attempt can take up."""
        return self._chat.holding or self.responses.holding

    @property
    def held_bytes(self) -> int:
        """Raw bytes of what is held."""
        return self._chat.held_bytes + self.responses.held_bytes

    @property
    def ledger_bytes(self) -> int:
        """What is held costs so much."""
        return self._chat.ledger_bytes + self.responses.ledger_bytes + self._said.ledger_bytes

    def drop(self) -> None:
        """Nothing that is held is wanted any more."""
        self._chat.drop()
        self.responses.drop()
        self._said = _Said()

    def mend(self, frames: list[Frame]) -> list[Frame]:
        """The frames that remain, as Responses events."""
        mended: list[Frame] = []
        if not self._tier:
            mended += self.responses.mend(self._began(frames))
        for frame in self._chat.mend(frames):
            mended += self._translated(frame)
        self._silent = self._silent and not mended
        return mended

    def finish(self, end: Complete) -> tuple[list[Frame], Facts]:
        """The frames that were still held and the end, and the facts of a complete attempt."""
        frames, facts = self._chat.finish(end)
        mended = [each for frame in frames for each in self._translated(frame)]
        reason = next((fact.reason for fact in facts.finishes), "stop")
        self._usage = _usage(facts.usage)
        mended += self.responses.mend([*self._said.ended(reason), self._last(reason)])
        rest, facts = self.responses.finish(end)
        return [*mended, *rest], facts

    def _began(self, frames: Sequence[Frame]) -> list[Frame]:
        """The beginning of a response that says how it is served, once its provider has."""
        said = (_tier_in(frame) for frame in frames if _TIER in frame.data)
        self._tier = next(filter(None, said), "")
        if not self._tier or not self._silent:
            return []
        response = {"object": "response", "status": "in_progress", "service_tier": self._tier}
        kind = "response.created"
        data = encoded({"type": kind, "response": response})
        return [Frame(data, (Slot(kind),), len(data))]

    def _translated(self, frame: Frame) -> list[Frame]:
        mended = self.responses.mend(list(self._said.events(frame)))
        if frame.mend & _TORN and mended:  # half a character is missing behind it
            mended[-1] = msgspec.structs.replace(mended[-1], mend=_TORN)
        return mended

    def _last(self, reason: str) -> Frame:
        """The event that ends a stream."""
        why = _INCOMPLETE.get(reason)
        kind = "response.completed" if why is None else "response.incomplete"
        response: dict[str, Any] = {
            "object": "response",
            "status": kind.removeprefix("response."),
            "incomplete_details": None if why is None else {"reason": why},
            "output": [],
            "usage": tolerant_object(self._usage) if self._usage else None,
        }
        if self._tier:
            response["service_tier"] = self._tier
        data = encoded({"type": kind, "response": response})
        events: tuple[Event, ...] = (Slot(kind), finish_of(response, kind))
        if self._usage:
            events += (UsageReport(self._usage),)
        if self.identity is not None:
            events += (self.identity,)
        return Frame(data, events, len(data))


class _Said:
    """What one attempt has said so far, as far as its events depend on it: which item is open, and pieces of calls that are not whole."""

    def __init__(self) -> None:
        self._index = -1
        self._kind = ""  # of the item that is open
        self._calls: dict[int, list[ToolDelta]] = {}  # in the order in which they began
        self._whole: set[int] = set()
        self._text: list[str] = []  # of the open message, once it has log probabilities
        self._logprobs: list[Any] = []
        self._annotations: list[Any] = []
        self.ledger_bytes = 0

    def events(self, frame: Frame) -> Iterator[Frame]:
        """The events of one frame of the provider's. A thought comes before what was thought about."""
        beside = _beside(frame) if _BESIDE_TEXT.search(frame.data) else {}
        for event in sorted(frame.events, key=_place_of):
            if getattr(event, "choice", 0):
                continue  # one that nobody asked for
            if isinstance(event, ReasoningDelta | TextDelta | RefusalDelta):
                yield from self._delta(event, beside)
            elif isinstance(event, ToolDelta):
                self._calls.setdefault(event.index or 0, []).append(event)
            elif isinstance(event, ToolEnd):
                self._whole.add(event.index)
        yield from self._whole_calls()
        for annotation in items(beside.get("annotations")):
            yield from self._annotation(annotation)

    def ended(self, reason: str) -> Iterator[Frame]:
        """What has to be said before the end: a message whose objects hold more than its text."""
        if self._logprobs:
            yield from self._close("incomplete" if reason in _INCOMPLETE else "completed")

    def _delta(
        self, event: TextDelta | ReasoningDelta | RefusalDelta, beside: Mapping[str, Any]
    ) -> Iterator[Frame]:
        kind, item = _DELTAS[type(event)]
        yield from self._open(item)
        said: dict[str, Any] = {"delta": event.text}
        if isinstance(event, TextDelta):
            told = items(beside.get("logprobs"))
            if told:
                said["logprobs"] = told
                self._logprobs += told
            if self._logprobs:
                self._text.append(event.text)
                self.ledger_bytes += len(event.text) + _LOGPROB_BYTES * len(told)
        yield self._frame(kind, said, TEXT_DELTAS[kind](0, event.text))

    def _annotation(self, annotation: Mapping[str, Any]) -> Iterator[Frame]:
        """Chat names the kind of an annotation, and says it below that name."""
        yield from self._open(MESSAGE)
        kind = annotation.get("type")
        inner = annotation.get(kind) if isinstance(kind, str) else None
        said = {"type": kind, **inner} if isinstance(inner, dict) else dict(annotation)
        told = {"annotation_index": len(self._annotations), "annotation": said}
        self._annotations.append(said)
        yield self._frame(_ANNOTATION, {**told, "content_index": 0}, part=0)

    def _whole_calls(self) -> Iterator[Frame]:
        """Calls that are whole, and have none before them that is not."""
        while self._calls:
            index = next(iter(self._calls))
            if index not in self._whole:
                return
            self._whole.discard(index)
            yield from self._call(self._calls.pop(index))

    def _call(self, pieces: Sequence[ToolDelta]) -> Iterator[Frame]:
        """A call that is whole."""
        custom = any(piece.custom for piece in pieces)
        item = "custom_tool_call" if custom else "function_call"
        kind = next(kind for kind, of in CALL_DELTAS.items() if of is custom)
        field = CALL_FIELDS[item]
        told = [piece.arguments for piece in pieces if piece.arguments]
        known = {
            "type": item,
            "call_id": next((piece.id for piece in pieces if piece.id), ""),
            "name": next((piece.name for piece in pieces if piece.name), ""),
        }
        yield from self._open(item)
        begun = {**known, field: "", "status": "in_progress"}
        yield self._frame(ITEM_ADDED, {"item": begun})
        for piece in told:
            said = ToolDelta(0, None, None, None, piece, custom)
            yield self._frame(kind, {"delta": piece}, said)
        whole = {**known, field: "".join(told), "status": "completed"}
        yield self._frame(ITEM_DONE, {"item": whole})
        self._kind = ""

    def _open(self, kind: str) -> Iterator[Frame]:
        """An item of this kind begins, unless it is the one that is open; that one ends."""
        if kind == self._kind:
            return
        yield from self._close()
        self._index += 1
        self._kind = kind

    def _close(self, status: str = "completed") -> Iterator[Frame]:
        kind, self._kind = self._kind, ""
        if kind == REASONING:
            yield self._frame(ITEM_DONE, {"item": {"type": kind, "summary": []}})
        elif kind == MESSAGE:
            content = [self._part()] if self._logprobs else []
            for part in content:
                done = {"content_index": 0, "part": part}
                yield self._frame("response.content_part.done", done, part=0)
            item = {"type": kind, "role": "assistant", "status": status, "content": content}
            yield self._frame(ITEM_DONE, {"item": item})
            self._text, self._logprobs, self._annotations = [], [], []

    def _part(self) -> dict[str, Any]:
        """The text of the open message with what its deltas had beside it."""
        text, beside = "".join(self._text), self._annotations
        return {"type": "output_text", "text": text, "annotations": beside, "logprobs": self._logprobs}  # fmt: skip

    def _frame(
        self, kind: str, members: Mapping[str, Any], *events: Event, part: int | None = None
    ) -> Frame:
        data = encoded({"type": kind, **members})
        return Frame(data, (Slot(kind, self._index, part=part), *events), len(data))


def _place_of(event: Event) -> bool:
    return not isinstance(event, ReasoningDelta)


def _beside(frame: Frame) -> dict[str, Any]:
    """The log probabilities and annotations of the one choice."""
    value = tolerant_object(frame.data) or {}
    choice = next(iter(items(value.get("choices"))), {})
    delta, logprobs = choice.get("delta"), choice.get("logprobs")
    return {
        "logprobs": logprobs.get("content") if isinstance(logprobs, dict) else None,
        "annotations": delta.get("annotations") if isinstance(delta, dict) else None,
    }


def _tier_in(frame: Frame) -> str:
    return string((tolerant_object(frame.data) or {}).get("service_tier")) or ""


def _usage(reported: bytes) -> bytes:
    """A usage object by the names of Responses; nothing where nothing was reported."""
    known = tolerant_object(reported) if reported else None
    if known is None:
        return b""
    told: dict[str, Any] = {}
    for chats, name in _USAGE:
        told[name] = _count(known.get(chats))
    told["total_tokens"] = told["total_tokens"] or told["input_tokens"] + told["output_tokens"]
    for chats, name, detail in _DETAILS:
        inner = known.get(chats)
        told[name] = {detail: _count(inner.get(detail) if isinstance(inner, dict) else None)}
    return encoded(told)


def _count(value: object) -> int:
    return max(integer(value), 0)
