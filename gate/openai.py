"""OpenAI's chat wire shapes: one SSE payload -> one frame with its events.

Two tiers. The fast one decodes a partial, typed struct with msgspec (0.4 us): only the members that something here reads. Whatever it refuses
(lone surrogate escapes, content as a list, arguments as an object, numbers as strings, NaN, invalid UTF-8) goes through a tolerant one over
the standard library's parser, which takes what providers really send. Either way the frame keeps the payload's own bytes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Any, Final

import msgspec

from gate.events import (
    AudioDelta,
    Event,
    Finish,
    Frame,
    Mend,
    ReasoningDelta,
    RefusalDelta,
    RoleDelta,
    TextDelta,
    ToolDelta,
    UsageReport,
)
from gate.failure import Failure, FailureKind, classify_error
from gate.loose_json import (
    SHALLOW_BYTES,
    encoded,
    is_plain,
    is_utf8,
    items,
    paired,
    string,
    tolerant_object,
    too_deep,
)
from gate.openai_tools import (
    LONE_HALF,
    Function,
    Tool,
    loose_function,
    loose_tool,
    odd_calls,
    tool_deltas,
    untyped,
)
from gate.sse import SseEvent

__all__ = [
    "FINISH_REASONS",
    "REAL_ENDS",
    "Note",
    "decode_event",
    "decode_object",
    "error_in",
    "finish_reason",
    "frame_of",
    "note_of",
    "says_failure",
]


class Note(Enum):
    """What a payload is when it is neither a frame nor a failure."""

    COMMENT = "comment"
    DONE = "done"  # [DONE]
    BARE_DONE = "bare_done"  # DONE in another form: the end only where a finish came


# ---- finish reasons --------------------------------------------------------------------------------

FINISH_REASONS: Final = frozenset(
    {"stop", "length", "tool_calls", "content_filter", "function_call"}
)
"""OpenAI's own; any other passes unchanged, with an observation."""

REAL_ENDS: Final = frozenset({"length", "content_filter"})
"""Ends that break an answer off and leave it one all the same: what came is judged as it stands."""

_SPELLINGS: Final = {
    **{word: word for word in FINISH_REASONS},
    "eos": "stop",
    "eos_token": "stop",
    "end_turn": "stop",
    "end": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "max_output_tokens": "length",
    "model_length": "length",
    "tool_use": "tool_calls",
    "tool_call": "tool_calls",
}
_FAILED_WORDS: Final = frozenset({"abort", "aborted", "cancelled", "canceled", "failed"})


def finish_reason(said: str) -> str:
    """OpenAI's value for a provider's word; an unknown word stays as it is."""
    return _SPELLINGS.get(said.lower(), said)


def says_failure(said: str) -> bool:
    """Whether a finish reason means that the answer failed."""
    word = said.lower()
    return "error" in word or word in _FAILED_WORDS


# ---- the fast tier ---------------------------------------------------------------------------------


class _Delta(msgspec.Struct):
    role: str | None = None
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    refusal: str | None = None
    tool_calls: list[Tool] | None = None
    function_call: Function | None = None
    audio: msgspec.Raw = msgspec.Raw(b"null")


class _Choice(msgspec.Struct):
    index: int | None = None
    delta: _Delta | None = None
    finish_reason: str | None = None


class _Chunk(msgspec.Struct):
    object: str | None = None
    type: str | None = None
    choices: list[_Choice] | None = None
    usage: msgspec.Raw = msgspec.Raw(b"null")
    detail: msgspec.Raw = msgspec.Raw(b"null")


class _Audio(msgspec.Struct):
    transcript: str | None = None


_fast: Final = msgspec.json.Decoder(_Chunk)
_fast_audio: Final = msgspec.json.Decoder(_Audio)
_NULL: Final = msgspec.Raw(b"null")
_BARE_WORD: Final = re.compile(rb"[A-Za-z][A-Za-z_.-]*")
_DONE_WORD: Final = re.compile(rb"\[?\s*done\s*\]?", re.IGNORECASE)
_NOTHING: Final = frozenset({b"null", b"{}", b'""', b"[]", b"false", b"0", b""})


def decode_event(event: SseEvent) -> Frame | Failure | Note:
    """One SSE event of a chat stream. Failure: an in-band error, or `MALFORMED`."""
    data = event.data
    if event.error or event.name == b"error":
        return classify_error(error_in(tolerant_object(data or b"")))
    if data is None:
        return Note.COMMENT
    if data.startswith(b"{"):
        return _decode(data, len(event.raw))
    data = data.strip()
    return _decode(data, len(event.raw)) if data.startswith(b"{") else note_of(data)


def _decode(data: bytes, size: int) -> Frame | Failure:
    if b'"error' in data:
        return _tolerant(data, size)
    if len(data) > SHALLOW_BYTES and too_deep(data):
        return Failure(FailureKind.MALFORMED)
    try:
        chunk = _fast.decode(data)
        events = _events(chunk)
    except (msgspec.MsgspecError, RecursionError):
        return _tolerant(data, size)
    if chunk.object == "error" or chunk.type == "error" or chunk.detail != _NULL:
        return _tolerant(data, size)
    plain = b"\n" not in data and (data.isascii() or is_utf8(data))
    return Frame(data, tuple(events), size, _mend(chunk, events) | (0 if plain else _BYTES))


# Flags as plain numbers: an enum's operators cost more than the whole decoding.
_FACTS: Final = Mend.FACTS.value
_BYTES: Final = Mend.BYTES.value
_TOOLS: Final = Mend.TOOLS.value
_CALLS: Final = Mend.CALLS.value
_INDEX: Final = Mend.INDEX.value
_REASONING: Final = Mend.REASONING.value
_REASONING_CONTENT: Final = Mend.REASONING_CONTENT.value


def _mend(chunk: _Chunk, events: list[Event]) -> int:
    """The flags that follow from what is in the chunk."""
    mend = 0
    for choice in chunk.choices or ():
        if choice.index is None:
            mend = _INDEX
    for event in events:
        if isinstance(event, RoleDelta | Finish | UsageReport):
            mend |= _FACTS
        elif isinstance(event, ReasoningDelta):
            mend |= _reasoning_names(chunk)
        elif isinstance(event, ToolDelta):
            mend |= _TOOLS
    if mend & _TOOLS and any(
        untyped(choice.delta.tool_calls)
        for choice in chunk.choices or ()
        if choice.delta is not None
    ):
        mend |= _CALLS
    return mend


def _reasoning_names(chunk: _Chunk) -> int:
    mend = 0
    for choice in chunk.choices or ():
        if choice.delta is not None and choice.delta.reasoning:
            mend |= _REASONING
        if choice.delta is not None and choice.delta.reasoning_content:
            mend |= _REASONING_CONTENT
    return mend


def note_of(data: bytes) -> Note | Failure:
    """What a payload is that is no JSON object: a comment, an end, or `MALFORMED`."""
    if _DONE_WORD.fullmatch(data):
        return Note.DONE if data == b"[DONE]" else Note.BARE_DONE
    if not data or data.startswith(b":") or _BARE_WORD.fullmatch(data):
        return Note.COMMENT
    return Failure(FailureKind.MALFORMED)


def _events(chunk: _Chunk) -> list[Event]:
    events: list[Event] = []
    for choice in chunk.choices or ():
        delta, index = choice.delta, choice.index or 0
        if delta is not None:
            if delta.role:
                events.append(RoleDelta(index, delta.role))
            if delta.content:
                events.append(TextDelta(index, delta.content))
            if delta.reasoning_content or delta.reasoning or delta.refusal or delta.audio != _NULL:
                events += _rare(delta, index)
            if delta.tool_calls or delta.function_call:
                events += tool_deltas(index, delta.tool_calls, delta.function_call)
        if choice.finish_reason:
            events.append(Finish(index, finish_reason(choice.finish_reason), choice.finish_reason))
    if chunk.usage != _NULL and (usage := bytes(chunk.usage)) not in _NOTHING:
        events.append(UsageReport(usage))
    return events


def _rare(delta: _Delta, index: int) -> Iterator[Event]:
    """The channels that an ordinary text delta does not use."""
    reasoning = delta.reasoning_content or delta.reasoning
    if reasoning:
        yield ReasoningDelta(index, reasoning)
    if delta.refusal:
        yield RefusalDelta(index, delta.refusal)
    if bytes(delta.audio) not in _NOTHING:
        yield AudioDelta(index, _fast_audio.decode(delta.audio).transcript or "")


# ---- the tolerant tier -----------------------------------------------------------------------------


def _tolerant(data: bytes, size: int) -> Frame | Failure:
    value = tolerant_object(data)
    if value is None:
        return Failure(FailureKind.MALFORMED)
    error = error_in(value, required=False)
    if error is not None:
        return classify_error(error)
    return frame_of(value, data, size)


def decode_object(value: Mapping[str, Any]) -> tuple[list[Event], int]:
    """Events of a chunk that has been parsed already, and the `Mend` flags that it needs."""
    mend = Mend.NOTHING
    chunk = _Chunk(choices=[])
    assert chunk.choices is not None
    for choice in items(value.get("choices")):
        delta = choice.get("delta")
        loose, needs = _loose_delta(delta) if isinstance(delta, Mapping) else (None, Mend.NOTHING)
        mend |= needs
        finish = paired(string(choice.get("finish_reason")) or "")
        index = choice.get("index")
        chunk.choices.append(_Choice(index if type(index) is int else None, loose, finish))
    usage = value.get("usage")
    if isinstance(usage, Mapping) and usage:
        chunk.usage = msgspec.Raw(encoded(usage))
    events = _events(chunk)
    return events, mend.value | _mend(chunk, events)


def frame_of(value: Mapping[str, Any], data: bytes, size: int) -> Frame:
    """A frame for a chunk that has been parsed already; `data` are its bytes."""
    events, mend = decode_object(value)
    if b"\n" in data or not is_plain(data):
        mend |= _BYTES
    return Frame(data, tuple(events), size, mend)


def _loose_delta(delta: Mapping[str, Any]) -> tuple[_Delta, Mend]:
    mend = Mend.NOTHING
    content, reasoning = delta.get("content"), None
    if isinstance(content, list):
        content, reasoning = _parts(content)
        mend |= Mend.FIELDS
    loose = _Delta(
        role=string(delta.get("role")),
        content=string(content),
        reasoning_content=reasoning or string(delta.get("reasoning_content")),
        reasoning=string(delta.get("reasoning")),
        refusal=string(delta.get("refusal")),
        tool_calls=[loose_tool(tool) for tool in items(delta.get("tool_calls"))],
        function_call=loose_function(delta.get("function_call")),
    )
    audio = delta.get("audio")
    spoken = string(audio.get("transcript")) if isinstance(audio, Mapping) else None
    if audio:
        loose.audio = msgspec.Raw(encoded({"transcript": spoken}))
    texts = (loose.content, loose.reasoning_content, loose.reasoning, loose.refusal, spoken)
    if any(text and LONE_HALF.search(text) for text in texts):
        mend |= Mend.TEXT
    if odd_calls(delta):
        mend |= Mend.CALLS
    return loose, mend


def _parts(parts: list[Any]) -> tuple[str, str | None]:
    """Typed content parts (Mistral): the text of `text` parts, and that of `thinking` parts."""
    text, thinking = [], []
    for part in parts:
        if not isinstance(part, Mapping):
            continue
        inner = part.get("thinking")
        thinking += [string(piece.get("text")) or "" for piece in items(inner)]
        if isinstance(inner, str):
            thinking.append(inner)
        text.append(string(part.get("text")) or "")
    return "".join(text), "".join(thinking) or None


def error_in(value: Mapping[str, Any] | None, *, required: bool = True) -> Any:
    """The error that an event holds: a member `error...` that says something, a bare error object, or a bare `detail`."""
    if value is None:
        return {} if required else None
    for name in sorted(value, key=lambda name: name != "error"):
        if name.startswith("error") and value[name]:
            error = value[name]
            # A bare text may have its code beside it: {"code": ..., "error": "..."}.
            return error if isinstance(error, Mapping) else {**value, "error": None}
    if value.get("object") == "error" or value.get("type") == "error":
        return value
    if value.get("detail") and not value.get("choices"):
        return {"message": "detail", "code": 422 if isinstance(value["detail"], list) else None}
    return value if required else None
