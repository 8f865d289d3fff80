"""Framings: what the caller's bytes look like (chat, normalized path). Encoders over one commit boundary; they write nothing themselves.

One identity per response: `id` and `created` of the first released attempt, `model` = the alias that was asked for. A frame is written as slices
with these three put in; every other byte is the provider's. Frames of one stream nearly always begin and end with the same bytes, so a
remembered beginning and end make the patch two comparisons and one join; any other frame is scanned.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from typing import Final, Protocol

import msgspec

from gate.envelope import PublicError, envelope
from gate.events import Facts, Finish, FinishFact, Frame, Start
from gate.fold import ChatFold
from gate.loose_json import encoded, integer, tolerant_object
from gate.splice import Member, apply_edits, elements_of, members_of, remove_member_span
from gate.sse import DONE

__all__ = [
    "SSE_HEADERS",
    "ChatJson",
    "ChatSse",
    "Framing",
    "Identify",
    "sse_error",
]

Headers = tuple[tuple[bytes, bytes], ...]
_EMPTY_CALLS: Final = re.compile(rb'"tool_calls"\s*:\s*\[\s*\]')
_CHUNK: Final = b'"chat.completion.chunk"'
_COMPLETION: Final = b'"chat.completion"'
JSON_HEADERS: Final = ((b"content-type", b"application/json"),)
SSE_HEADERS: Final = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
)


class Framing(Protocol):
    """One response in one framing. `name` labels metrics and outcomes; `status` and `headers` are those of a success; `comments`: ours may stand in it.

    `explains`: so may those that a caller has asked for.
    """

    @property
    def name(self) -> str: ...

    @property
    def status(self) -> int: ...

    @property
    def comments(self) -> bool: ...

    @property
    def explains(self) -> bool: ...

    @property
    def headers(self) -> Headers: ...

    def release(self, frames: list[Frame]) -> bytes:
        """The bytes of frames that have passed; kept, and nothing written, where the framing does not stream."""

    def success(self, facts: Facts) -> bytes:
        """Everything from here to the end of a complete answer."""

    def length(self, body: bytes) -> Headers:
        """The `content-length` of a response that is written whole; nothing where a stream has none."""

    def error(self, error: PublicError) -> bytes | None:
        """The in-stream error of a response that has begun, as its last bytes; None where it can only be broken off."""


def sse_error(error: PublicError) -> bytes:
    """The in-stream error of an event stream: no event name, no finish, and no `[DONE]` behind it."""
    return b"data: %b\n\n" % envelope(error)


class Identify:
    """Puts one identity into chunk after chunk, and what such an object is called where it does not say. `hides_usage`: a `usage` that is null, because somebody else has asked for it, is taken out."""

    def __init__(
        self,
        identity: str,
        created: int,
        model: str,
        *,
        kind: bytes = _CHUNK,
        hides_usage: bool = False,
    ) -> None:
        self._hides_usage = hides_usage
        self._values = {
            "id": msgspec.json.encode(identity),
            "object": kind,
            "created": str(created).encode(),
            "model": msgspec.json.encode(model),
        }
        self.members = b",".join(
            (
                b'"id":' + self._values["id"],
                b'"object":' + kind,
                b'"created":' + self._values["created"],
                b'"model":' + self._values["model"],
            )
        )
        self._head, self._head_now = b"", b""
        self._tail, self._tail_now = b"", b""

    def patch(self, data: bytes) -> bytes:
        """`data`, one JSON object, with this identity."""
        head, tail = self._head, self._tail
        if head and data.startswith(head) and data.endswith(tail, len(head) + 1):
            middle = data[len(head) : len(data) - len(tail)]
            hidden = self._hides_usage and b'"usage"' in middle
            if not hidden and not _names_identity(middle):
                return self._head_now + middle + self._tail_now
        return self._scan(data)

    def _scan(self, data: bytes) -> bytes:
        members = members_of(data)
        edits = [
            (member.value_start, member.value_end, self._values[member.key])
            for member in members
            if member.key in self._values
            and (member.key != "object" or data[member.value_start : member.value_end] == b"null")
        ]
        named = {member.key for member in members}
        if self._hides_usage:
            edits = sorted([*edits, *_null_usage(data, members)])
        missing = b",".join(
            b'"%b":%b' % (name.encode(), value)
            for name, value in self._values.items()
            if name not in named
        )
        if missing:
            opening = data.index(b"{") + 1
            edits.insert(0, (opening, opening, missing + b"," if members else missing))
        choices = next((member for member in members if member.key == "choices"), None)
        if choices is not None:
            self._remember(data, choices.key_start, choices.value_end, edits)
        return apply_edits(data, edits)

    def _remember(
        self, data: bytes, start: int, end: int, edits: list[tuple[int, int, bytes]]
    ) -> None:
        """Keeps the bytes before `choices` and behind it, as they are and as they become, for the frames that follow."""
        self._head, self._tail = data[:start], data[end:]
        self._head_now = apply_edits(self._head, [edit for edit in edits if edit[1] <= start])
        behind = [(a - end, b - end, value) for a, b, value in edits if a >= end]
        self._tail_now = apply_edits(self._tail, behind)


def _without_empty_calls(body: bytes) -> bytes:
    """Some servers say `"tool_calls": []` in every message; clients that ask whether it is there take the answer for a call."""
    if _EMPTY_CALLS.search(body) is None:
        return body
    choices = [each.value_start for each in members_of(body) if each.key == "choices"]
    edits: list[tuple[int, int, bytes]] = []
    for start, _ in elements_of(body, choices[-1]):
        for member in members_of(body, start) if body.startswith(b"{", start) else ():
            if member.key == "message" and body.startswith(b"{", member.value_start):
                edits += _empty_calls(body, members_of(body, member.value_start))
    return apply_edits(body, edits)


def _numbered(body: bytes) -> bytes:
    """Every choice says its index: where its provider says none, its place."""
    edits: list[tuple[int, int, bytes]] = []
    choices = [each.value_start for each in members_of(body) if each.key == "choices"]
    starts = [start for start, _ in elements_of(body, choices[-1])] if choices else []
    for number, start in enumerate(each for each in starts if body.startswith(b"{", each)):
        members = members_of(body, start)
        index = next((each for each in members if each.key == "index"), None)
        if index is None:
            edits.append(
                (start + 1, start + 1, b'"index":%d%b' % (number, b"," if members else b""))
            )
        elif body[index.value_start : index.value_end] == b"null":
            edits.append((index.value_start, index.value_end, b"%d" % number))
    return apply_edits(body, edits)


def _empty_calls(body: bytes, members: tuple[Member, ...]) -> Iterator[tuple[int, int, bytes]]:
    for index, member in enumerate(members):
        if _EMPTY_CALLS.fullmatch(body, member.key_start, member.value_end):
            yield (*remove_member_span(members, index, body), b"")


def _null_usage(data: bytes, members: tuple[Member, ...]) -> Iterator[tuple[int, int, bytes]]:
    """The edits that take it out, with the comma before it; as the first member it stays."""
    for before, member in itertools.pairwise(members):
        null = data[member.value_start : member.value_end] == b"null"
        if member.key == "usage" and null:
            yield before.value_end, member.value_end, b""


def _names_identity(middle: bytes) -> bool:
    """Whether the bytes between the remembered ends name a member of the identity; then only a scan can tell whose it is."""
    names = (b'"id"', b'"model"', b'"created"', b'"object"')
    return any(name in middle for name in names)


class ChatSse:
    """`text/event-stream` of `chat.completion.chunk`."""

    name = "chat_sse"
    status = 200
    comments = True
    explains = True
    headers = SSE_HEADERS

    def __init__(self, start: Start) -> None:
        self._include_usage = start.shape.include_usage
        shape = start.shape
        self._identity = Identify(
            start.id, start.created, shape.model, hides_usage=shape.hides_usage
        )

    def release(self, frames: list[Frame]) -> bytes:
        patch = self._identity.patch
        return b"".join([b"data: %b\n\n" % patch(frame.data) for frame in frames])

    def success(self, facts: Facts) -> bytes:
        parts = [self._finish(fact, said=fact.choice in facts.roles) for fact in facts.finishes]
        if self._include_usage and facts.usage:
            members = self._identity.members + facts.usage_members
            parts.append(b'data: {%b,"choices":[],"usage":%b}\n\n' % (members, facts.usage))
        parts.append(DONE)
        return b"".join(parts)

    def _finish(self, fact: FinishFact, *, said: bool) -> bytes:
        delta = b"{}" if said else b'{"role":"assistant","content":""}'
        reason = encoded(fact.reason)
        choice = b'{"index":%d,"delta":%b,"finish_reason":%b%b}' % (
            fact.choice,
            delta,
            reason,
            fact.choice_members,
        )
        return b'data: {%b%b,"choices":[%b]}\n\n' % (
            self._identity.members,
            fact.event_members,
            choice,
        )

    def length(self, body: bytes) -> Headers:
        return ()

    def error(self, error: PublicError) -> bytes:
        return sse_error(error)


class ChatJson:
    """One `chat.completion` object."""

    name = "chat_json"
    status = 200
    comments = False
    explains = False
    headers = JSON_HEADERS

    def __init__(self, start: Start) -> None:
        self._start = start
        self._fold = ChatFold()
        self._whole: Frame | None = None

    def release(self, frames: list[Frame]) -> bytes:
        for frame in frames:
            if frame.whole:
                self._whole = frame
            else:
                self._fold.add(frame.data)
        return b""

    def success(self, facts: Facts) -> bytes:
        if self._whole is not None:
            return self._patched(self._whole, facts)
        start = self._start
        identity = {"id": start.id, "created": start.created, "model": start.shape.model}
        return encoded(self._fold.result(identity, facts))

    def _patched(self, whole: Frame, facts: Facts) -> bytes:
        """A provider's own object: the identity put in, finish reasons as OpenAI spells them, and no list of calls where there are none."""
        start = self._start
        data = _numbered(_without_empty_calls(whole.data))
        body = Identify(start.id, start.created, start.shape.model, kind=_COMPLETION).patch(data)
        reasons = {fact.choice: fact.reason for fact in facts.finishes}
        if not any(
            isinstance(event, Finish) and event.said != reasons.get(event.choice, event.reason)
            for event in whole.events
        ):
            return body
        value = tolerant_object(body) or {}
        choices = [choice for choice in value.get("choices") or () if isinstance(choice, dict)]
        for number, choice in enumerate(choices):
            index = choice.get("index")
            index = number if index is None else integer(index)
            choice["finish_reason"] = reasons.get(index, choice.get("finish_reason"))
        return encoded(value)

    def length(self, body: bytes) -> Headers:
        return ((b"content-length", b"%d" % len(body)),)

    def error(self, error: PublicError) -> bytes:
        raise AssertionError("a JSON response does not begin before its terminal")
