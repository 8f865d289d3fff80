"""The supervised endpoints: for each one the readers of a provider's answer, the mender and the framings. What stands between them is the same for both.

`OVER_CHAT` is the second one at a provider that only has the first: it reads chat, and everything behind that is as at the caller's own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Final, Protocol

import msgspec

from gate.events import Complete, Facts, Frame, Identity, Start
from gate.framing import ChatJson, ChatSse, Framing
from gate.framing_tunnel import TunnelBody, TunnelSse
from gate.ingress import CHAT_PATH, CHAT_RULES, CallerRequest, RequestRules
from gate.ingress_responses import RESPONSES_PATH, RESPONSES_RULES
from gate.mending import ChatMender
from gate.mending_think import ThinkTags
from gate.over_chat_answer import OverChatMender
from gate.reader import JSON, SSE, AnswerReader, ChatBodyReader, ChatStreamReader, media_type
from gate.responses import ResponsesBodyReader, ResponsesStreamReader
from gate.responses_defaults import repeated
from gate.responses_framing import ResponsesJson, ResponsesSse, kept_of
from gate.responses_mending import ResponsesMender
from gate.responses_unmended import ResponsesUnmended
from gate.splice import Body
from gate.unmended import Unmended

__all__ = [
    "CHAT",
    "ENDPOINTS",
    "OVER_CHAT",
    "RESPONSES",
    "Endpoint",
    "Expected",
    "Mender",
    "endpoint_of",
    "framing_for",
]


class Mender(Protocol):
    """Mends one attempt's frames in order, and keeps its closing facts and its identity."""

    @property
    def identity(self) -> Identity | None: ...

    @property
    def usage(self) -> bytes:
        """What the attempt has reported so far: a JSON object, or nothing."""

    @property
    def holding(self) -> bool:
        """Something has begun that no other attempt can take up."""

    @property
    def held_bytes(self) -> int:
        """Raw bytes of what is held."""

    @property
    def ledger_bytes(self) -> int:
        """What is held costs so much."""

    def mend(self, frames: list[Frame]) -> list[Frame]:
        """The frames that remain."""

    def finish(self, end: Complete) -> tuple[list[Frame], Facts]:
        """The frames that were still held, and the facts of a complete attempt."""

    def drop(self) -> None:
        """Nothing that is held is wanted any more."""


class Expected(msgspec.Struct, frozen=True):
    """What is known of an answer before it comes: how many `choices`, whether the caller wants a `stream`, and whether the answer `continues` another attempt's. Sizes in bytes."""

    choices: int
    stream: bool
    event_bytes_max: int
    body_bytes_max: int
    continues: bool = False


class Endpoint(ABC):
    """One endpoint. `path` is what callers ask at, `upstream` what comes behind a provider's base URL; `prefix` begins the ids that we give responses, `label` the names of its framings."""

    path: str
    upstream: str
    prefix: str
    label: str
    rules: RequestRules

    def name(self, exchange: str) -> str:
        """The id of a response whose provider gave none."""
        return f"{self.prefix}{exchange}"

    def reader(self, content_type: bytes, expected: Expected) -> AnswerReader | None:
        """The reader for a 2xx answer, or None where such a body is no answer: which one follows from the head, never from what was asked."""
        media = media_type(content_type)
        if media == SSE:
            return self.stream_reader(expected)
        return self.body_reader(expected) if media == JSON else None

    @abstractmethod
    def stream_reader(self, expected: Expected) -> AnswerReader:
        """Reads an event stream."""

    @abstractmethod
    def body_reader(self, expected: Expected) -> AnswerReader:
        """Reads a JSON body."""

    @abstractmethod
    def mender(
        self,
        choices: int,
        reasoning_field: str,
        ceiling: int | None,
        *,
        tags: ThinkTags | None,
        before: Mender | None,
    ) -> Mender:
        """The mender of one attempt. `before`: that of the attempt which it goes on from."""

    def unmended(self) -> Unmended:
        """What finds, in a tunnel, what the mender takes out."""
        return Unmended()

    @abstractmethod
    def framing(self, start: Start) -> Framing:
        """The framing of one response."""

    def repeated(self, body: Body, request: CallerRequest) -> bytes:
        """What of a request its response repeats: a JSON object, or nothing."""
        return b""

    def kept_bytes(self, frames: Sequence[Frame]) -> int:
        """What the framing of a stream keeps of frames that it gets."""
        return 0


class _Chat(Endpoint):
    path = CHAT_PATH
    rules = CHAT_RULES
    upstream = "/chat/completions"
    prefix = "chatcmpl-"
    label = "chat"

    def stream_reader(self, expected: Expected) -> AnswerReader:
        return ChatStreamReader(
            choices=expected.choices,
            event_bytes_max=expected.event_bytes_max,
            continues=expected.continues,
        )

    def body_reader(self, expected: Expected) -> AnswerReader:
        return ChatBodyReader(
            choices=expected.choices,
            body_bytes_max=expected.body_bytes_max,
            stream=expected.stream,
        )

    def mender(
        self,
        choices: int,
        reasoning_field: str,
        ceiling: int | None,
        *,
        tags: ThinkTags | None,
        before: Mender | None,
    ) -> Mender:
        return ChatMender(
            choices=choices,
            reasoning_field=reasoning_field,
            roles=frozenset() if before is None else frozenset({0}),
            ceiling=ceiling,
            tags=tags,
        )

    def framing(self, start: Start) -> Framing:
        return ChatSse(start) if start.shape.stream else ChatJson(start)


class _Responses(Endpoint):
    path = RESPONSES_PATH
    rules = RESPONSES_RULES
    upstream = "/responses"
    prefix = "resp_"
    label = "responses"

    def stream_reader(self, expected: Expected) -> AnswerReader:
        return ResponsesStreamReader(
            event_bytes_max=expected.event_bytes_max, continues=expected.continues
        )

    def body_reader(self, expected: Expected) -> AnswerReader:
        return ResponsesBodyReader(body_bytes_max=expected.body_bytes_max)

    def mender(
        self,
        choices: int,
        reasoning_field: str,
        ceiling: int | None,
        *,
        tags: ThinkTags | None,
        before: Mender | None,
    ) -> Mender:
        return ResponsesMender(before=_responses(before), ceiling=ceiling, tags=tags)

    def unmended(self) -> Unmended:
        return ResponsesUnmended()

    def framing(self, start: Start) -> Framing:
        return ResponsesSse(start) if start.shape.stream else ResponsesJson(start)

    def repeated(self, body: Body, request: CallerRequest) -> bytes:
        return repeated(body, request)

    def kept_bytes(self, frames: Sequence[Frame]) -> int:
        return sum(map(kept_of, frames))


class _OverChat(_Responses):
    upstream = _Chat.upstream

    def stream_reader(self, expected: Expected) -> AnswerReader:
        return CHAT.stream_reader(expected)

    def body_reader(self, expected: Expected) -> AnswerReader:
        # A body is said as one chunk, whatever the caller gets in the end.
        return CHAT.body_reader(msgspec.structs.replace(expected, stream=True))

    def mender(
        self,
        choices: int,
        reasoning_field: str,
        ceiling: int | None,
        *,
        tags: ThinkTags | None,
        before: Mender | None,
    ) -> Mender:
        # Nobody sees a role: none is put in.
        chat = ChatMender(
            choices=choices,
            reasoning_field=reasoning_field,
            roles=frozenset({0}),
            ceiling=ceiling,
            tags=tags,
        )
        return OverChatMender(chat, ResponsesMender(before=_responses(before)))


def _responses(before: Mender | None) -> ResponsesMender | None:
    """The mender of Responses events that an attempt goes on from, whatever its provider had."""
    if isinstance(before, OverChatMender):
        return before.responses
    return before if isinstance(before, ResponsesMender) else None


CHAT: Final[Endpoint] = _Chat()
RESPONSES: Final[Endpoint] = _Responses()
OVER_CHAT: Final[Endpoint] = _OverChat()
ENDPOINTS: Final[Mapping[str, Endpoint]] = {each.path: each for each in (CHAT, RESPONSES)}
"""By path."""


def endpoint_of(path: str) -> Endpoint:
    """The endpoint that is supervised at this path; what is only relayed counts as chat."""
    return ENDPOINTS.get(path, CHAT)


def framing_for(start: Start) -> Framing:
    """The framing of a response, chosen once, at its first commit."""
    if start.tunnel is not None:
        return TunnelSse(start.tunnel) if start.shape.stream else TunnelBody(start.tunnel)
    return ENDPOINTS[start.shape.endpoint].framing(start)
