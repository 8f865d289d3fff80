"""Content encodings that were not asked for: undone piece by piece, whatever the cut; broken ones are failures."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Sequence

import brotli
import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.ports import Headers
from gate.errors import UpstreamFailed, UpstreamFault
from transport.decoding import PIECE_BYTES_MAX, DecodedResponse, coding_of, decoder_for

TEXT = b"".join(b'data: {"n": %d}\n\n' % n for n in range(400))


def _raw_deflate(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(data) + packer.flush()


def _two_members(data: bytes) -> bytes:
    return gzip.compress(data[:100]) + gzip.compress(data[100:])


PACKED: dict[str, tuple[bytes, Callable[[bytes], bytes]]] = {
    "gzip": (b"gzip", gzip.compress),
    "gzip of two members": (b"x-gzip", _two_members),
    "deflate": (b"deflate", zlib.compress),
    "deflate without its wrapper": (b"deflate", _raw_deflate),
    "br": (b"br", brotli.compress),
}


class Reads:
    """A response whose reads are written down."""

    def __init__(
        self, reads: Sequence[bytes], coding: bytes = b"gzip", *, end: UpstreamFault | None = None
    ) -> None:
        self.status = 200
        self.headers: Headers = [
            (b"content-type", b"text/event-stream"),
            (b"content-encoding", coding),
            (b"content-length", b"77"),
        ]
        self._reads = list(reads)
        self._end = end

    async def read(self) -> bytes:
        if not self._reads and self._end is not None:
            raise UpstreamFailed(self._end)
        return self._reads.pop(0) if self._reads else b""


async def _all_of(
    reads: Sequence[bytes], coding: bytes, *, end: UpstreamFault | None = None
) -> bytes:
    response = DecodedResponse(Reads(reads, coding, end=end), decoder_for([coding]))
    body = b""
    while piece := await response.read():
        body += piece
    assert await response.read() == b""
    return body


@pytest.mark.parametrize("name", PACKED)
@pytest.mark.parametrize("size", [1, 7, 100_000])
async def test_every_coding_is_undone_however_it_is_cut(name: str, size: int) -> None:
    """One byte a read, a few, or all of it at once."""
    coding, pack = PACKED[name]
    packed = pack(TEXT)
    reads = [packed[at : at + size] for at in range(0, len(packed), size)]
    assert await _all_of(reads, coding) == TEXT


async def test_an_event_is_out_as_soon_as_it_was_flushed() -> None:
    """A provider that compresses a live stream flushes after each event; nothing is held back then."""
    packer = zlib.compressobj(wbits=31)
    first = packer.compress(b"data: 1\n\n") + packer.flush(zlib.Z_SYNC_FLUSH)
    second = packer.compress(b"data: 2\n\n") + packer.flush()
    response = DecodedResponse(Reads([first, second]), decoder_for([b"gzip"]))
    assert await response.read() == b"data: 1\n\n"
    assert await response.read() == b"data: 2\n\n"
    assert await response.read() == b""


@pytest.mark.parametrize(("coding", "pack"), [(b"gzip", gzip.compress), (b"br", brotli.compress)])
async def test_a_bomb_comes_out_in_pieces_of_a_bounded_size(
    coding: bytes, pack: Callable[[bytes], bytes]
) -> None:
    """A few bytes stand for 20 MB: no single read gives them all, so that the limits behind it can act."""
    bomb = pack(b"a" * 20_000_000)
    assert len(bomb) < 30_000
    response = DecodedResponse(Reads([bomb], coding), decoder_for([coding]))
    sizes = []
    while piece := await response.read():
        sizes.append(len(piece))
    assert sum(sizes) == 20_000_000
    assert max(sizes) <= 4 * PIECE_BYTES_MAX


@pytest.mark.parametrize("name", PACKED)
async def test_a_body_that_ends_inside_its_encoding_is_cut(name: str) -> None:
    """A clean HTTP end does not make half a stream whole."""
    coding, pack = PACKED[name]
    with pytest.raises(UpstreamFailed) as failure:
        await _all_of([pack(TEXT)[:-9]], coding)
    assert failure.value.fault is UpstreamFault.CUT


async def test_an_empty_body_is_cut_as_well() -> None:
    """Not one byte of the encoding came."""
    with pytest.raises(UpstreamFailed) as failure:
        await _all_of([], b"gzip")
    assert failure.value.fault is UpstreamFault.CUT


@pytest.mark.parametrize("name", PACKED)
async def test_an_encoding_tells_where_a_body_ends_that_only_the_close_ends(name: str) -> None:
    """Whole or cut; any other fault stays what it is."""
    coding, pack = PACKED[name]
    assert await _all_of([pack(TEXT)], coding, end=UpstreamFault.CLOSED) == TEXT
    for fault in (UpstreamFault.CLOSED, UpstreamFault.RESET):
        with pytest.raises(UpstreamFailed) as failure:
            await _all_of([pack(TEXT)[:-9]], coding, end=fault)
        expected = UpstreamFault.CUT if fault is UpstreamFault.CLOSED else fault
        assert failure.value.fault is expected


@pytest.mark.parametrize("coding", [b"gzip", b"deflate", b"br"])
async def test_a_body_that_is_not_in_its_encoding_is_malformed(coding: bytes) -> None:
    """Plain text under a label of compression."""
    with pytest.raises(UpstreamFailed) as failure:
        await _all_of([b"\x1f\x8bdata: plain text that is nothing of the kind\n\n"], coding)
    assert failure.value.fault is UpstreamFault.PROTOCOL


@pytest.mark.parametrize("codings", [[b"zstd"], [b"gzip", b"br"], []])
def test_an_encoding_that_is_not_known_is_refused(codings: list[bytes]) -> None:
    """And so are several on top of each other."""
    with pytest.raises(UpstreamFailed) as failure:
        decoder_for(codings)
    assert failure.value.fault is UpstreamFault.ENCODING


def test_the_codings_are_read_over_lines_and_without_identity() -> None:
    """Several fields, several members of one, any case; `identity` and nothing say nothing."""
    fields = [
        (b"content-encoding", b"Identity"),
        (b"content-encoding", b" GZIP ,, br"),
        (b"x", b"y"),
    ]
    assert coding_of(fields) == [b"gzip", b"br"]


def test_the_headers_speak_of_the_decoded_body() -> None:
    """Encoding and length described the bytes on the wire."""
    response = DecodedResponse(Reads([]), decoder_for([b"gzip"]))
    assert response.status == 200
    assert response.headers == [(b"content-type", b"text/event-stream")]


@given(st.binary(max_size=3000), st.integers(1, 700))
async def test_any_bytes_survive_any_cut(data: bytes, size: int) -> None:
    """The round trip, for every coding."""
    for coding, pack in PACKED.values():
        packed = pack(data)
        reads = [packed[at : at + size] for at in range(0, len(packed), size)]
        assert await _all_of(reads, coding) == data
