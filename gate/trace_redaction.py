"""Redaction: bytes of a stream or of a body in which every text, name and number is masked that the protocols do not know.

Every byte keeps its place, so that a redacted stream is cut and parsed as the real one was. What stays readable stands where the protocol has its own words:
a key that it knows, and behind some of them a word or a number, unless that is within what belongs to the user (arguments, metadata, schemas, and whatever
stands under a key that is not known).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

__all__ = ["redacted", "unhurried"]

PAUSE_TOKENS: Final = 256  # half a millisecond

# A string, closed or cut off; a number; a word; any other byte.
_TOKEN: Final = re.compile(
    rb'"(?:[^"\\\r\n]|\\[^\r\n])*(?:"|\\?)|-?[0-9][0-9.eE+-]*|[A-Za-z_][A-Za-z0-9_]*|.', re.DOTALL
)
_COLON: Final = re.compile(rb"[ \t]*:")
_ESCAPE: Final = re.compile(rb"\\u[0-9A-Fa-f]{4}|\\.|[^\\]|\\", re.DOTALL)
_DIGIT: Final = re.compile(rb"[0-9]")
_STRUCTURE: Final = frozenset(b": \t\r\n")
_FIELDS: Final = frozenset({b"data", b"event", b"id", b"retry"})  # of an event stream
_WORDS: Final = _FIELDS | {b"true", b"false", b"null", b"DONE"}
_KEYS: Final = frozenset(
    b"arguments audio choices code completion_tokens completion_tokens_details content created delta error "
    b"finish_reason function function_call id include_usage index input logprobs max_completion_tokens max_tokens "
    b"message messages model n name object output param parallel_tool_calls parameters prompt prompt_tokens "
    b"prompt_tokens_details reasoning reasoning_content refusal response_format role schema stop stream "
    b"stream_options strict system_fingerprint temperature text tool_call_id tool_calls tool_choice tools top_p "
    b"total_tokens type usage "
    # and of the Responses API
    b"annotations background call_id completed_at content_index created_at format incomplete_details input_tokens input_tokens_details instructions item "
    b"item_id max_output_tokens metadata obfuscation output_index output_tokens output_tokens_details part previous_response_id reason response "
    b"sequence_number status store summary summary_index truncation".split()
)
_TOLD: Final = frozenset(b"code finish_reason model object role type".split())  # their strings
_COUNTED: Final = frozenset(  # their numbers
    b"completion_tokens content_index created created_at index input_tokens max_completion_tokens max_output_tokens max_tokens n output_index output_tokens "
    b"prompt_tokens sequence_number summary_index temperature top_p total_tokens".split()
)
_OWN: Final = frozenset(
    b"arguments metadata parameters prompt schema".split()
)  # the user's, whatever is in them
_NAME: Final = re.compile(rb"[a-z0-9][a-z0-9_.:/-]{0,63}")  # what a word of the protocol looks like
_MODEL: Final = re.compile(rb"[A-Za-z0-9][A-Za-z0-9_.:/-]{0,127}")
_NO_KEY: Final = b""  # of an element of an array, and of the whole
_UNKNOWN: Final = b"?"


def unhurried() -> None:
    """For whoever has the processor to itself."""


def redacted(data: bytes, pause: Callable[[], object] = unhurried) -> bytes:
    """`data`, event stream or JSON, masked. `pause` is called now and then, so that a thread can let others go on."""
    out: list[bytes] = []
    place = _Place()
    for number, found in enumerate(_TOKEN.finditer(data)):
        token = found[0]
        first = token[:1]
        if first == b'"':
            if _COLON.match(data, found.end()):
                out.append(token if place.knows(_inner(token)) else _mask_string(token))
            else:
                out.append(token if place.tells(_inner(token)) else _mask_string(token))
        elif first.isdigit() or (first == b"-" and len(token) > 1):
            out.append(token if place.counts() else _DIGIT.sub(b"1", token))
        elif first.isalpha() or first == b"_":
            if token in _FIELDS:
                place = _Place()  # an event begins, however the last one ended
            out.append(token if token in _WORDS else b"x" * len(token))
        else:
            out.append(token if place.moves(first) or token[0] in _STRUCTURE else b"x")
        if number % PAUSE_TOKENS == PAUSE_TOKENS - 1:
            pause()
    return b"".join(out)


class _Place:
    """Where in a JSON value the next token stands."""

    def __init__(self) -> None:
        self._key = _NO_KEY  # under which the next value stands
        self._private = False
        self._outer: list[tuple[bool, bool]] = []  # private, and an object
        self._in_object = False

    def knows(self, key: bytes) -> bool:
        """A key; whether it may be read."""
        known = key in _KEYS and not self._private
        self._key = key if known else _UNKNOWN
        return known

    def tells(self, text: bytes) -> bool:
        """A string that is a value; whether it may be read."""
        key = self._taken()
        if key == b"model":
            return _MODEL.fullmatch(text) is not None
        return key in _TOLD and _NAME.fullmatch(text) is not None

    def counts(self) -> bool:
        """A number; whether it may be read."""
        return self._taken() in _COUNTED

    def moves(self, mark: bytes) -> bool:
        """Any other byte; whether it is one that parts values."""
        if mark in {b"{", b"["}:
            self._outer.append((self._private, self._in_object))
            self._private = self._private or self._key == _UNKNOWN or self._key in _OWN
            self._in_object = mark == b"{"
        elif mark in {b"}", b"]"}:
            self._private, self._in_object = self._outer.pop() if self._outer else (False, False)
        elif mark != b",":
            return False
        self._key = _UNKNOWN if self._in_object else _NO_KEY
        return True

    def _taken(self) -> bytes:
        """The key of this value. It has no other value."""
        key, self._key = self._key, _UNKNOWN if self._in_object else _NO_KEY
        return _UNKNOWN if self._private else key


def _inner(token: bytes) -> bytes:
    return token[1:].removesuffix(b'"') if len(token) > 1 else b""


def _mask_string(token: bytes) -> bytes:
    closed = token[1:].endswith(b'"') and len(token) > 1
    inner = token[1:-1] if closed else token[1:]
    return b'"' + _ESCAPE.sub(_mask_piece, inner) + (b'"' if closed else b"")


def _mask_piece(found: re.Match[bytes]) -> bytes:
    piece = found[0]
    if piece[:1] != b"\\":
        return b"x"
    return b"\\u0078" if piece[1:2] == b"u" and len(piece) > 2 else piece
