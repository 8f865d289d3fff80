"""The decoder: the same events wherever the network cuts, every byte kept, nothing held without bound."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gate.sse import DONE, KEEP_ALIVE, EventTooLarge, SseDecoder, SseEvent, encode_event

LIMIT = 1 << 20

# Whatever decides about lines and fields, and some bytes that must not.
PIECES = (
    b"\n", b"\n", b"\r", b"\r\n", b"\n\n", b"\r\n\r\n", b"data", b"data:", b"data: ", b"event:", b"error: ",
    b"error", b"id: 7", b"retry:1", b":", b" ", b"x", b"{}", b"\0", b"\xe2\x80\xa8", b"\x85", b"\xff", b"\xef\xbb\xbf",
)  # fmt: skip
streams = st.lists(st.sampled_from(PIECES), max_size=24).map(b"".join)
blocks = st.sampled_from(
    (b"data: {}\n\n", b"data:x\n\n", b"data\n\n", b"event: e\ndata: 1\ndata: 2\n\n", b": hi\n\n", b"error: {}\n\n")
)  # fmt: skip
line_feed_streams = st.lists(blocks | st.sampled_from((b"\n", b"data: half")), max_size=12).map(
    b"".join
)
cuts = st.lists(st.integers(min_value=0, max_value=200), max_size=8)


class Said(NamedTuple):
    """What an event means, without its raw bytes: a swallowed LF may belong to either neighbour."""

    data: bytes | None
    name: bytes
    error: bool


class Decoded(NamedTuple):
    """All that came out of a decoder."""

    events: list[SseEvent]
    rest: bytes
    refused: bool

    @property
    def said(self) -> list[Said]:
        """The events without their raw bytes."""
        return [Said(event.data, event.name, event.error) for event in self.events]

    @property
    def raw(self) -> bytes:
        """Every byte that was let through."""
        return b"".join(event.raw for event in self.events) + self.rest


def decode(reads: Iterable[bytes], *, limit: int = LIMIT) -> Decoded:
    """Feed every read to a new decoder and finish it."""
    decoder = SseDecoder(event_bytes_max=limit)
    events: list[SseEvent] = []
    try:
        for read in reads:
            events += decoder.feed(read)
        events += decoder.finish()
    except EventTooLarge as error:
        return Decoded([*events, *error.before], decoder.rest, refused=True)
    return Decoded(events, decoder.rest, refused=False)


def said(*reads: bytes) -> list[Said]:
    """What the events of these reads mean."""
    return decode(reads).said


def cut(stream: bytes, places: Sequence[int]) -> list[bytes]:
    """The stream in pieces; a place beyond its end, or twice the same, makes an empty read."""
    bounds = [0, *sorted(min(place, len(stream)) for place in places), len(stream)]
    return [stream[begin:end] for begin, end in itertools.pairwise(bounds)]


def one_byte_each(stream: bytes) -> list[bytes]:
    """The worst of networks."""
    return [stream[place : place + 1] for place in range(len(stream))]


def reference(stream: bytes) -> list[Said]:
    """The plain algorithm, on the whole stream at once."""
    found: list[Said] = []
    block: list[bytes] = []
    text = stream.removeprefix(b"\xef\xbb\xbf").replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    for line in [*text.split(b"\n"), b""]:
        if line:
            block.append(line)
        elif block:
            found.append(reference_event(block))
            block = []
    return found


def reference_event(block: Sequence[bytes]) -> Said:
    """One block of lines that are not empty."""
    values: dict[bytes, list[bytes]] = {b"data": [], b"error": [], b"event": [b""]}
    for line in block:
        field, _, value = line.partition(b":")
        values.setdefault(field, []).append(value.removeprefix(b" "))
    lines = values[b"data"] or values[b"error"]
    return Said(b"\n".join(lines) if lines else None, values[b"event"][-1], bool(values[b"error"]))


@given(streams, cuts)
@example(b"data: a\r\n\r\ndata: b\r\n\r\n", [8, 9, 10])
@example(b"\xef\xbb\xbfdata: a\n\n", [1, 2])
@example(b"\xef\xbbdata: a\n\n", [1, 2])
def test_a_stream_means_the_same_wherever_it_is_cut(stream: bytes, places: list[int]) -> None:
    """Against the plain algorithm: whole, cut anywhere, and byte by byte."""
    expected = reference(stream)
    assert decode([stream]).said == expected
    assert decode(cut(stream, places)).said == expected
    assert decode(one_byte_each(stream)).said == expected


@given(line_feed_streams | streams, cuts)
@example(b"\n\n", [])
@example(b"data: a\ndata: b\n\n", [9])
@example(b"data: a\rdata: b\n\n", [])
def test_a_read_after_a_whole_block_means_the_same(stream: bytes, places: list[int]) -> None:
    """Nothing is pending then, which is where the short cuts are taken."""
    reads = [b": first\n\n", *cut(stream, places)]
    assert decode(reads).said == reference(b"".join(reads))
    assert decode(reads).raw == b"".join(reads)


@given(streams, cuts)
def test_no_byte_is_lost_or_moved(stream: bytes, places: list[int]) -> None:
    """The raw bytes of all events and the rest are the stream without its byte order mark."""
    kept = stream.removeprefix(b"\xef\xbb\xbf")
    assert decode([stream]).raw == kept
    assert decode(cut(stream, places)).raw == kept
    assert not decode([stream]).rest.strip(b"\r\n")


@given(line_feed_streams, cuts, st.integers(min_value=1, max_value=40))
def test_the_limit_strikes_at_the_same_event_wherever_the_stream_is_cut(
    stream: bytes, places: list[int], limit: int
) -> None:
    """The events before it are delivered in every case."""
    whole = decode([stream], limit=limit)
    for reads in (cut(stream, places), one_byte_each(stream)):
        pieces = decode(reads, limit=limit)
        assert pieces.events == whole.events
        assert pieces.refused == whole.refused


@given(st.recursive(st.none() | st.integers() | st.text(), st.lists, max_leaves=5))
def test_what_is_encoded_decodes_to_the_same_json(value: object) -> None:
    """Indented JSON too: its line ends are blanks afterwards."""
    [event] = decode([encode_event(json.dumps(value, indent=1).encode())]).events
    assert event.data is not None
    assert json.loads(event.data) == value
    assert event.raw.count(b"\n") == 2


def test_line_ends_within_encoded_data_become_blanks() -> None:
    """One data line, whatever the white space of the JSON."""
    assert encode_event(b'{"a":\r\n1}') == b'data: {"a":  1}\n\n'
    assert encode_event(b"{}") == b"data: {}\n\n"


def test_the_constants_are_whole_blocks() -> None:
    """The end mark is data, the keep-alive is a comment."""
    assert said(DONE, KEEP_ALIVE) == [Said(b"[DONE]", b"", False), Said(None, b"", False)]


@pytest.mark.parametrize("end", [b"\n", b"\r", b"\r\n"])
def test_every_line_end_ends_a_line(end: bytes) -> None:
    """LF, CR and CR LF, each throughout a stream."""
    lines = [b"event: e", b"data: 1", b"data: 2", b"", b"data: 3", b"", b""]
    expected = [Said(b"1\n2", b"e", False), Said(b"3", b"", False)]
    assert said(end.join(lines)) == expected
    assert said(*one_byte_each(end.join(lines))) == expected


@pytest.mark.parametrize("other", ["\u2028", "\u0085", "\x0b", "\x0c", "\x1c", "\0"])
def test_no_other_character_ends_a_line(other: str) -> None:
    """JSON may hold them raw."""
    text = f"a{other}b".encode()
    assert said(b"data: " + text + b"\n\n") == [Said(text, b"", False)]


def test_a_carriage_return_at_the_end_of_a_read_ends_the_event_at_once() -> None:
    """The event must not wait for the next token, and the line feed after it is no blank line."""
    decoder = SseDecoder(event_bytes_max=LIMIT)
    assert [event.data for event in decoder.feed(b"data: 1\r\n\r")] == [b"1"]
    assert decoder.feed(b"\n") == []
    assert decoder.feed(b"data: 2\r") == []
    assert decoder.feed(b"\ndata: 3\r\n") == []
    assert [event.data for event in decoder.feed(b"\r\n")] == [b"2\n3"]


def test_at_most_one_space_is_taken_from_a_value() -> None:
    """Further ones are data."""
    assert said(b"data:a\n\n") == [Said(b"a", b"", False)]
    assert said(b": c\n\n", b"data:  a\n\n", b"data:\n\n", b"data: \n\ndata:\n\n")[1:] == [
        Said(b" a", b"", False),
        Said(b"", b"", False),
        Said(b"", b"", False),
        Said(b"", b"", False),
    ]


def test_a_field_without_a_colon_has_an_empty_value() -> None:
    """Two such data lines are one line end of data."""
    assert said(b"data\ndata\n\n") == [Said(b"\n", b"", False)]
    assert said(b"event: e\nevent\ndata\n\n") == [Said(b"", b"", False)]


def test_other_fields_and_comments_are_ignored() -> None:
    """They neither block nor make data; names are case sensitive and not prefixes."""
    assert said(b"id: 1\nretry: 5\n: c\ndata: a\n\n") == [Said(b"a", b"", False)]
    assert said(b"Data: a\ndatabase: b\n data: c\n\n") == [Said(None, b"", False)]


def test_a_block_of_comments_is_an_event_without_data() -> None:
    """So that a provider's pings are passed on or counted, and never pile up."""
    assert said(b": a\n: b\n\n", b":\n\n") == [Said(None, b"", False), Said(None, b"", False)]


def test_a_field_named_error_marks_the_event() -> None:
    """Its value is the data, unless the block has data of its own."""
    assert said(b'error: {"m":1}\n\n') == [Said(b'{"m":1}', b"", True)]
    assert said(b"data: d\nerror\n\n") == [Said(b"d", b"", True)]
    assert said(b"event: error\ndata: d\n\n") == [Said(b"d", b"error", False)]


@pytest.mark.parametrize("end", [b"\n", b"\r", b"\r\n"])
def test_the_line_end_that_closes_an_event_belongs_to_it(end: bytes) -> None:
    """Both bytes of it, when they arrive together."""
    blocks = [b"data: 1" + end + end, b"data: 2" + end + end]
    assert [event.raw for event in decode([b"".join(blocks)]).events] == blocks


def test_comments_and_blank_lines_belong_to_the_event_that_follows() -> None:
    """Raw bytes are handed on in order."""
    decoded = decode([b"data: 1\n\n\n\n: c\ndata: 2\n\n\n"])
    assert [event.raw for event in decoded.events] == [b"data: 1\n\n", b"\n\n: c\ndata: 2\n\n"]
    assert decoded.rest == b"\n"


def test_what_is_held_back_can_be_asked_for() -> None:
    """Its number of bytes without a copy, and the bytes."""
    decoder = SseDecoder(event_bytes_max=LIMIT)
    assert len(decoder.feed(b"data: 1\n\ndata")) == 1
    assert (decoder.pending, decoder.rest) == (4, b"data")


def test_a_byte_order_mark_is_dropped_at_the_very_start_only() -> None:
    """Later it is part of a name that nobody knows."""
    mark = b"\xef\xbb\xbf"
    assert said(mark + b"data: a\n\n" + mark + b"data: b\n\n") == [
        Said(b"a", b"", False),
        Said(None, b"", False),
    ]


@pytest.mark.parametrize("last", [b"data: 1\n", b"data: 1", b"data: 1\r"])
def test_a_last_event_without_its_blank_line_is_delivered(last: bytes) -> None:
    """A provider that dies after its last words has still said them."""
    assert decode([last]) == Decoded([SseEvent(last, b"1", b"", False)], b"", refused=False)


@pytest.mark.no_cover
def test_a_long_event_arrives_byte_by_byte() -> None:
    """Nothing is copied or searched again for each byte."""
    data = b"x" * 65_536
    assert said(*one_byte_each(b"data: " + data + b"\r\n\r\n")) == [Said(data, b"", False)]


@pytest.mark.parametrize("first", [b"", b": first\n\n"])
def test_an_event_as_large_as_the_limit_passes(first: bytes) -> None:
    """One byte more does not, finished or not."""
    event = b"data: 123\n\n"
    assert not decode([first, event], limit=len(event)).refused
    assert decode([first, event], limit=len(event) - 1).refused
    assert decode([first, event[:-1]], limit=len(event) - 2).refused


@pytest.mark.parametrize("endless", [b"data: x\n", b": x\n", b"\n", b"\r", b"x"])
def test_whatever_never_ends_is_refused(endless: bytes) -> None:
    """Lines, comments, blank lines and one long line are all held, so all are counted."""
    assert decode([endless] * 101, limit=100) == Decoded([], b"", refused=True)


def test_after_a_refusal_nothing_more_is_decoded() -> None:
    """The bytes are let go; each later call is refused again."""
    decoder = SseDecoder(event_bytes_max=12)
    with pytest.raises(EventTooLarge, match="12 bytes") as refusal:
        decoder.feed(b"data: 1\n\ndata: too large\n\ndata: 3\n\n")
    assert [event.data for event in refusal.value.before] == [b"1"]
    assert repr(decoder) == "<SseDecoder refused, 0 bytes pending>"
    with pytest.raises(EventTooLarge):
        decoder.feed(b"data: 4\n\n")
    with pytest.raises(EventTooLarge):
        decoder.finish()


def test_a_finished_decoder_may_not_be_fed() -> None:
    """That would be a mistake of ours."""
    decoder = SseDecoder(event_bytes_max=LIMIT)
    assert decoder.finish() == []
    with pytest.raises(AssertionError, match="finished"):
        decoder.feed(b"data: 1\n\n")
