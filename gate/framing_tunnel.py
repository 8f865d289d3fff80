"""The framings of a tunnel: the provider's status, some of its headers, and its bytes.

Frames that have been mended for a tunnel (`gate.mending_tunnel`) are those bytes. Nothing is added to them, not even a comment while the stream is silent: it would be no byte of the provider's.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import msgspec

from gate.envelope import PublicError, envelope
from gate.events import Facts, Frame, Tunnel
from gate.reader import SSE, media_type

__all__ = ["TunnelBody", "TunnelSse", "relayed_headers", "tunnelled"]

Headers = tuple[tuple[bytes, bytes], ...]
_RELAYED: Final = frozenset(
    {
        b"content-disposition",
        b"content-language",
        b"content-type",
        b"openai-processing-ms",
        b"openai-version",
        b"retry-after",
    }
)
_RELAYED_PREFIX: Final = b"x-ratelimit-"
_VALUE: Final = re.compile(rb"[\t\x20-\x7e\x80-\xff]*")
_STREAMED: Final = ((b"cache-control", b"no-cache"), (b"x-accel-buffering", b"no"))


def relayed_headers(headers: Sequence[tuple[bytes, bytes]]) -> Headers:
    """The header fields (names in lower case) of a provider that go on to the caller; what `Connection` names is not among them (RFC 9110, 7.6.1), nor what is no field value, and of several fields of a name the first is."""
    named = {
        token.strip().lower()
        for name, value in headers
        if name == b"connection"
        for token in value.split(b",")
    }
    relayed: dict[bytes, bytes] = {}
    for name, value in headers:
        known = name in _RELAYED or name.startswith(_RELAYED_PREFIX)
        if known and name not in named and _VALUE.fullmatch(value):
            relayed.setdefault(name, value.strip())
    return tuple(relayed.items())


def tunnelled(error: PublicError) -> PublicError:
    """The error of an exchange whose last attempt went through a tunnel: what would be a `run_error` is told as the tunnel's."""
    if error.type != "run_error":
        return error
    return msgspec.structs.replace(error, type="provider_tunnel_error")


class _Tunnel:
    """What both have in common. `marks`: an error is told in the stream, or by its being cut off; False: it just ends, as in an older contract."""

    comments = False

    def __init__(self, tunnel: Tunnel) -> None:
        self.status = tunnel.status or 200
        self.headers: Headers = tunnel.headers
        kind = dict(tunnel.headers).get(b"content-type", b"")
        self._is_sse = media_type(kind) == SSE
        self._marks = tunnel.marks

    def error(self, error: PublicError) -> bytes | None:
        """An event behind the last whole one; where the body is no event stream, nobody could read one: it is cut off (None)."""
        if not self._marks:
            return b""
        return b"data: %b\n\n" % envelope(tunnelled(error)) if self._is_sse else None


class TunnelSse(_Tunnel):
    """The provider's bytes as they pass, but for its own ending, which comes with ours."""

    name = "tunnel_sse"

    def __init__(self, tunnel: Tunnel) -> None:
        super().__init__(tunnel)
        self.explains = self._is_sse
        self.headers = (*self.headers, *_STREAMED)
        self._ending: list[bytes] = []

    def release(self, frames: list[Frame]) -> bytes:
        self._ending += [frame.data for frame in frames if frame.closing]
        return b"".join([frame.data for frame in frames if not frame.closing])

    def success(self, facts: Facts) -> bytes:
        return b"".join(self._ending)

    def length(self, body: bytes) -> Headers:
        return ()


class TunnelBody(_Tunnel):
    """The provider's bytes, all at once, when the answer is complete."""

    name = "tunnel_body"
    explains = False

    def __init__(self, tunnel: Tunnel) -> None:
        super().__init__(tunnel)
        self._parts: list[bytes] = []

    def release(self, frames: list[Frame]) -> bytes:
        self._parts += [frame.data for frame in frames]
        return b""

    def success(self, facts: Facts) -> bytes:
        body = b"".join(self._parts)
        self._parts.clear()
        return body

    def length(self, body: bytes) -> Headers:
        return ((b"content-length", b"%d" % len(body)),)
