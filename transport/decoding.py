"""Undoing a content encoding that we did not ask for (RFC 9110, 8.4): gzip, deflate and br, incrementally.

Output comes in pieces of a bounded size, so that a small input that stands for a huge body (a bomb) meets the same limits, event by event, as one that was sent
as it is. A body that ends inside its encoding is cut; one that is not in it is malformed.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

import brotli
import trio

from actors.ports import Headers, UpstreamResponse
from gate.errors import UpstreamFailed, UpstreamFault

__all__ = ["DecodedResponse", "coding_of", "decoder_for", "read_to_close"]

PIECE_BYTES_MAX: Final = 65_536  # one piece of output; what is left stays inside the decoder
_ZLIB_OR_GZIP: Final = 47  # zlib's window bits: either wrapper, told by its head
_RAW_DEFLATE: Final = -15
_DROPPED: Final = frozenset({b"content-encoding", b"content-length"})


class Decoder(Protocol):
    """One coding being undone."""

    @property
    def waiting(self) -> bool:
        """There is output that needs no more input."""

    @property
    def finished(self) -> bool:
        """The encoding came to its own end."""

    def feed(self, data: bytes) -> bytes:
        """At most a piece of output, give or take what the library rounds up. Raises `UpstreamFailed` (PROTOCOL)."""


class _Zlib:
    """gzip (one member or several), or deflate: zlib's own wrapper, or none, as some servers have it (RFC 9110, 8.4.1.2)."""

    def __init__(self) -> None:
        self._inflater = zlib.decompressobj(_ZLIB_OR_GZIP)
        self._rest = b""
        self._begun = False

    @property
    def waiting(self) -> bool:
        return bool(self._rest)

    @property
    def finished(self) -> bool:
        return self._inflater.eof and not self._rest

    def feed(self, data: bytes) -> bytes:
        data = self._rest + data
        if data and not self._begun:
            self._begun = True
            if data[0] & 0x0F != zlib.DEFLATED and not data.startswith(b"\x1f"):
                self._inflater = zlib.decompressobj(_RAW_DEFLATE)
        if self._inflater.eof and data:
            self._inflater = zlib.decompressobj(_ZLIB_OR_GZIP)
        try:
            output = self._inflater.decompress(data, PIECE_BYTES_MAX)
        except zlib.error as error:
            raise UpstreamFailed(UpstreamFault.PROTOCOL) from error
        self._rest = self._inflater.unused_data or self._inflater.unconsumed_tail
        return output


class _Brotli:
    """br (RFC 7932)."""

    def __init__(self) -> None:
        self._decoder = brotli.Decompressor()
        self._full = False  # the last piece was as large as one may be: there may be more

    @property
    def waiting(self) -> bool:
        return self._full and not self.finished

    @property
    def finished(self) -> bool:
        return bool(self._decoder.is_finished())

    def feed(self, data: bytes) -> bytes:
        try:
            output = bytes(self._decoder.process(data, output_buffer_limit=PIECE_BYTES_MAX))
        except brotli.error as error:
            raise UpstreamFailed(UpstreamFault.PROTOCOL) from error
        self._full = len(output) >= PIECE_BYTES_MAX
        return output


_DECODERS: Final[Mapping[bytes, Callable[[], Decoder]]] = {
    b"gzip": _Zlib,
    b"x-gzip": _Zlib,
    b"deflate": _Zlib,
    b"br": _Brotli,
}


def coding_of(headers: Headers) -> Sequence[bytes]:
    """The codings of a body in the order in which they were applied, `identity` left out."""
    values = [value for name, value in headers if name == b"content-encoding"]
    codings = [coding.strip().lower() for value in values for coding in value.split(b",")]
    return [coding for coding in codings if coding not in {b"", b"identity"}]


def decoder_for(codings: Sequence[bytes]) -> Decoder:
    """The decoder of one coding. Raises `UpstreamFailed` (ENCODING) for one that is not known, and for several at once."""
    if len(codings) != 1 or codings[0] not in _DECODERS:
        raise UpstreamFailed(UpstreamFault.ENCODING)
    return _DECODERS[codings[0]]()


class DecodedResponse:
    """A response whose body is read decoded; its headers speak of the body as it is read."""

    def __init__(self, response: UpstreamResponse, decoder: Decoder) -> None:
        self.status = response.status
        self.headers: Headers = [field for field in response.headers if field[0] not in _DROPPED]
        self._response = response
        self._decoder = decoder

    async def read(self) -> bytes:
        """As `actors.ports.UpstreamResponse.read`, for the decoded body."""
        decoder = self._decoder
        while True:
            if decoder.waiting:
                await trio.lowlevel.checkpoint()
                data = b""
            else:
                data = await read_to_close(self._response)
                if not data:
                    if decoder.finished:
                        return b""
                    raise UpstreamFailed(UpstreamFault.CUT)
            output = decoder.feed(data)
            if output:
                return output


async def read_to_close(response: UpstreamResponse) -> bytes:
    """The next bytes, `b""` at the end, which the connection's close is too: for whoever can tell from the bytes whether they are whole (an encoding has an end of its own, a verdict parses). Raises `UpstreamFailed`."""
    try:
        return await response.read()
    except UpstreamFailed as error:
        if error.fault is not UpstreamFault.CLOSED:
            raise
        return b""
