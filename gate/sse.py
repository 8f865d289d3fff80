"""Server-Sent Events: an incremental decoder on bytes, and the encoder.

Source: WHATWG HTML, section 9.2 "Server-sent events". Three differences are deliberate: nothing
is decoded to text, the raw bytes of every block are kept, and a last block without its blank line
is delivered instead of dropped, because the provider's last words may be an error.

The rule of this file: blank lines between blocks mean nothing, so they may be skipped freely. An
LF that follows a CR which has already ended a block is just one more of them, which is why a CR at
the end of a read can end its line at once and no flag has to remember it.
"""

from __future__ import annotations

import enum
import re
from typing import Final

import msgspec

DONE: Final = b"data: [DONE]\n\n"
KEEP_ALIVE: Final = b": keep-alive\n\n"

_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
_LINE_FEED: Final = 0x0A
_SPACE: Final = 0x20

_WORD: Final = re.compile(rb"[^\r\n]")
# A line end, and after it a line end that makes an empty line. CR LF as the first of the two is
# found from its LF on. Every branch begins with a literal, so that the search skips by character.
_BLOCK_END: Final = re.compile(rb"\n\n|\n\r\n?+|\r\r\n?+")
# One line that says something, of a block whose line ends are LF.
_FIELD: Final = re.compile(rb"^(data|event|error)(?:: ?+([^\n]*+))?+$", re.MULTILINE)

# Lines that say nothing, at the beginning of a block.
_BEFORE: Final = re.compile(rb"(?:(?::[^\r\n]*+)?+(?:\r\n|\n|\r))*+")


class SseEvent(msgspec.Struct, frozen=True, gc=False):
    """One block of the stream.

    `raw` holds every byte of the block: blank lines and comments before it, its fields, the line
    end that closed it. The `raw` of all events in order, then `SseDecoder.rest`, are the bytes fed
    without a byte order mark at the very start.

    `data` is the values of the `data` lines joined by LF, None if the block has no such line.
    `name` is the value of the last `event` line. `error` tells that a field named `error` was
    there; its value, joined likewise, is `data` if no line was named `data`.
    """

    raw: bytes
    data: bytes | None
    name: bytes
    error: bool


class EventTooLarge(Exception):
    """One event is larger than `event_bytes_max`; `before` holds the events of the same read
    that were complete before it.
    """

    def __init__(self, event_bytes_max: int, before: tuple[SseEvent, ...] = ()) -> None:
        super().__init__(f"an event is larger than {event_bytes_max} bytes")
        self.event_bytes_max = event_bytes_max
        self.before = before


class _Phase(enum.Enum):
    START = "start"  # a byte order mark may still come
    IDLE = "idle"  # nothing is held back
    PENDING = "pending"  # the begin of a block, or blank lines before one, is held back
    REFUSED = "refused"
    FINISHED = "finished"


# A member of an enum costs a lookup through its metaclass; the fast path runs once per token.
_IDLE: Final = _Phase.IDLE


class SseDecoder:
    """Turns reads of any size into events, in time linear in the bytes fed.

    Holds at most `event_bytes_max` bytes between two calls. Comments and blank lines count.
    """

    def __init__(self, *, event_bytes_max: int) -> None:
        assert event_bytes_max > 0
        self._event_bytes_max = event_bytes_max
        self._phase = _Phase.START
        self._pending = bytearray()
        self._blank = True  # nothing but line ends is pending
        self._scanned = 0  # no block ends in the pending bytes before this offset

    def __repr__(self) -> str:
        return f"<SseDecoder {self._phase.value}, {len(self._pending)} bytes pending>"

    @property
    def pending(self) -> int:
        """How many bytes are held back."""
        return len(self._pending)

    @property
    def rest(self) -> bytes:
        """The bytes that were fed and have not been part of an event."""
        return bytes(self._pending)

    def feed(self, chunk: bytes) -> list[SseEvent]:
        """The events that `chunk` completes, in order.

        Raises EventTooLarge when an event, complete or not, exceeds the limit, and again on
        every later call.
        """
        size = len(chunk)
        # `find` and not `in`: for bytes, `in` first tries its operand as a number, at twice the cost.
        if self._phase is _IDLE and chunk.find(b"\r") < 0 and size <= self._event_bytes_max:
            stop = chunk.find(b"\n")
            if stop == size - 2 and chunk[-1] == _LINE_FEED and chunk[:5] == b"data:":
                # The usual read: one token, one line, one block.
                return [SseEvent(chunk, chunk[6 if chunk[5] == _SPACE else 5 : stop], b"", False)]
            if stop and chunk[-2:] == b"\n\n" and chunk.find(b"\n\n\n") < 0:
                return [_event_of(block + b"\n\n", block) for block in chunk.split(b"\n\n")[:-1]]
        return self._feed_any(chunk)

    def finish(self) -> list[SseEvent]:
        """The last event, if the stream ended without its blank line or within a line.

        Ends the decoder: it may not be fed again. Raises EventTooLarge if `feed` has done so.
        """
        self._check_open()
        self._phase = _Phase.FINISHED
        raw = bytes(self._pending)
        lines = raw.strip(b"\r\n")
        if not lines:
            return []
        self._pending.clear()
        return [_event_of(raw, lines)]

    def _feed_any(self, chunk: bytes) -> list[SseEvent]:
        """`feed` for every case; what is pending is copied only when a block ends."""
        self._check_open()
        self._pending += chunk
        if self._phase is _Phase.START and not self._start():
            return []
        end = self._block_end(self._pending)
        events = self._take_blocks(end) if end else []
        self._phase = _Phase.PENDING if self._pending else _Phase.IDLE
        if len(self._pending) > self._event_bytes_max:
            raise self._refuse(events)
        return events

    def _start(self) -> bool:
        """Drop a byte order mark; False while it cannot be told yet whether there is one."""
        if len(self._pending) < len(_BYTE_ORDER_MARK) and _BYTE_ORDER_MARK.startswith(
            self._pending
        ):
            return False
        if self._pending.startswith(_BYTE_ORDER_MARK):
            del self._pending[: len(_BYTE_ORDER_MARK)]
        return True

    def _take_blocks(self, end: int) -> list[SseEvent]:
        """The events of the complete blocks pending, the first of which stops at `end`."""
        held = bytes(self._pending)
        events: list[SseEvent] = []
        begin, stop = 0, end
        while stop:
            if stop - begin > self._event_bytes_max:
                raise self._refuse(events)
            raw = held[begin:stop]
            events.append(_event_of(raw, raw.strip(b"\r\n")))
            begin, stop = stop, self._block_end(held)
        del self._pending[:begin]
        self._scanned -= begin
        return events

    def _block_end(self, held: bytes | bytearray) -> int:
        """Where the next block of `held` stops, 0 if it is not complete. Never looks back by more
        than one byte, which is what keeps reads of one byte linear.
        """
        if self._blank:
            word = _WORD.search(held, self._scanned)
            if word is None:
                self._scanned = len(held)
                return 0
            self._blank = False
            self._scanned = word.start()
        found = _BLOCK_END.search(held, self._scanned)
        if found is None:
            # The last byte may be the first of the two line ends.
            self._scanned = len(held) - 1
            return 0
        self._blank = True
        self._scanned = found.end()
        return self._scanned

    def _check_open(self) -> None:
        assert self._phase is not _Phase.FINISHED, "the decoder is finished"
        if self._phase is _Phase.REFUSED:
            raise EventTooLarge(self._event_bytes_max)

    def _refuse(self, before: list[SseEvent]) -> EventTooLarge:
        self._phase = _Phase.REFUSED
        self._pending.clear()
        return EventTooLarge(self._event_bytes_max, tuple(before))


def before_fields(raw: bytes) -> bytes:
    """The blank lines and comments that a block begins with."""
    found = _BEFORE.match(raw)
    assert found is not None, "it may be nothing"
    return found[0]


def encode_event(data: bytes) -> bytes:
    """One event with `data` on one line.

    `data` is JSON, in which a line end can only be white space between tokens: each becomes a
    blank. Anything else that holds line ends would be changed.
    """
    if b"\n" in data or b"\r" in data:
        data = data.replace(b"\n", b" ").replace(b"\r", b" ")
    return b"data: " + data + b"\n\n"


def _event_of(raw: bytes, lines: bytes) -> SseEvent:
    """The event of a block. `lines` is `raw` without line ends at its begin and its end."""
    if lines.find(b"\r") >= 0:
        lines = lines.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    if lines[:5] == b"data:" and lines.find(b"\n") < 0:
        return SseEvent(raw, lines[6 if lines[5:6] == b" " else 5 :], b"", False)
    data: list[bytes] = []
    errors: list[bytes] = []
    name = b""
    for found in _FIELD.finditer(lines):
        field, value = found.groups(b"")
        if field == b"data":
            data.append(value)
        elif field == b"event":
            name = value
        else:
            errors.append(value)
    said = data or errors
    return SseEvent(raw, b"\n".join(said) if said else None, name, bool(errors))
