"""Scripts of the loopback provider: what is done on one connection, as plain values.

A script is a list of attempts, an attempt a list of steps. Nothing here does I/O or knows a
clock, so that a socket, an in-memory stream and a test can all play the same script:
`ops.provider.play` is the one player.

The file form (TOML, or JSON when the name ends in ``.json``)::

    [pace]
    chunk_ms = 5

    [[attempts]]
    status = 200
    headers = { content-type = "text/event-stream" }
    steps = [{ data = "data: {}\\n\\n" }, { sleep_ms = 20 }, "cut"]

A step is one of ``stall``, ``close``, ``cut`` and ``reset`` as a string, or a table with exactly
one of ``data``, ``b64``, ``sleep_ms`` and ``repeat = { data, times, every_ms }``.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Mapping
from enum import Enum
from http import HTTPStatus
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Final

import msgspec
from msgspec import Meta, Struct

OK: Final = 200
STATUS_MIN: Final = 100
FILE_BYTES_MAX: Final = 16_777_216  # a script is written by hand; a recorded answer fits
BODILESS_STATUSES: Final = frozenset({204, 304})
_REASONS: Final[Mapping[int, str]] = MappingProxyType(
    {status.value: status.phrase for status in HTTPStatus}
)

Milliseconds = Annotated[int, Meta(ge=0, le=3_600_000)]
HeaderName = Annotated[str, Meta(pattern=r"\A[!#$%&'*+.^_`|~0-9A-Za-z-]+\Z")]
HeaderValue = Annotated[str, Meta(pattern=r"\A[\t\x20-\x7e\x80-\xff]*\Z")]


class ScriptError(ValueError):
    """A script file that cannot be used; the text names the file and the place in it."""


class Ending(Enum):
    """How an answer stops."""

    STALL = "stall"  # nothing more is sent; the connection stays open
    CLOSE = "close"  # the body ends as HTTP says it must
    CUT = "cut"  # FIN in the middle of the body
    RESET = "reset"  # RST in the middle of the body


class Head(Struct, frozen=True):
    """Status line and headers. Without one, what is written goes to the wire as it is.

    The body is chunked, unless the headers give a length or `raw` is set.
    """

    status: int
    headers: tuple[tuple[str, str], ...] = ()
    raw: bool = False

    def value(self, name: str) -> str | None:
        """The first value of the header called `name` (lower case), if there is one."""
        return next((value for key, value in self.headers if key.lower() == name), None)


class Write(Struct, frozen=True):
    """Bytes of the body, written in one piece."""

    data: bytes


class Sleep(Struct, frozen=True):
    """Milliseconds of silence."""

    ms: int


class Repeat(Struct, frozen=True):
    """The same bytes `times` times, with `every_ms` of silence before each."""

    data: bytes
    times: int
    every_ms: int = 0


Step = Head | Write | Sleep | Repeat | Ending


class Attempt(Struct, frozen=True):
    """The answer to one request. `status` 0: no head; `raw`: the body is not framed."""

    steps: tuple[Step, ...] = ()
    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()
    raw: bool = False

    def play_list(self) -> Iterator[Step]:
        """The head, if there is one, and the steps after it."""
        if self.status:
            yield Head(self.status, self._with_content_type(), self.raw)
        yield from self.steps

    def _with_content_type(self) -> tuple[tuple[str, str], ...]:
        if self.status in BODILESS_STATUSES or any(
            name.lower() == "content-type" for name, _ in self.headers
        ):
            return self.headers
        kind = "text/event-stream" if self.status == OK else "application/json"
        return (("content-type", kind), *self.headers)


class Pace(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The silences of answers that are chosen by model name, in milliseconds."""

    chunk_ms: Milliseconds = 20  # before each chunk: about 50 tokens a second
    slow_ms: Milliseconds = 2_000  # before each chunk of `slow`, before the first of `slow-first`
    drip_ms: Milliseconds = 0  # before each byte of `drip`


class Script(Struct, frozen=True, kw_only=True):
    """What a provider does. Without attempts, the model name of each request decides.

    With attempts, every POST gets the next one in order of arrival; the last one repeats.
    """

    attempts: tuple[Attempt, ...] = ()
    pace: Pace = Pace()


def load_script(path: Path) -> Script:
    """Read and check the script file at `path`. Raises ScriptError."""
    try:
        with path.open("rb") as file:
            text = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise ScriptError(f"{path}: {error.strerror}") from error
    if len(text) > FILE_BYTES_MAX:
        raise ScriptError(f"{path}: larger than {FILE_BYTES_MAX} bytes")
    try:
        return parse_script(text, json=path.suffix == ".json")
    except ScriptError as error:
        raise ScriptError(f"{path}: {error}") from error


def parse_script(text: bytes, *, json: bool = False) -> Script:
    """Decode a script from TOML or JSON. Raises ScriptError with the path of the fault."""
    try:
        file = _decode(text, json=json)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ScriptError(str(error)) from error
    return Script(attempts=tuple(each.attempt() for each in file.attempts), pace=file.pace)


def _decode(text: bytes, *, json: bool) -> _ScriptFile:
    if json:
        return msgspec.json.decode(text, type=_ScriptFile)
    return msgspec.toml.decode(text, type=_ScriptFile)


class _RepeatTable(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    data: str
    times: Annotated[int, Meta(ge=0, le=1_000_000)]
    every_ms: Milliseconds = 0


class _StepTable(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    data: str | None = None
    b64: str | None = None
    sleep_ms: Milliseconds | None = None
    repeat: _RepeatTable | None = None

    def __post_init__(self) -> None:
        given = [name for name in self.__struct_fields__ if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError("A step has exactly one of `data`, `b64`, `sleep_ms`, `repeat`")
        self.step()

    def step(self) -> Step:
        """The step this table stands for. Raises ValueError for what is not base64."""
        if self.sleep_ms is not None:
            return Sleep(self.sleep_ms)
        if self.repeat is not None:
            table = self.repeat
            return Repeat(table.data.encode(), table.times, table.every_ms)
        if self.b64 is None:
            return Write((self.data or "").encode())
        try:
            return Write(base64.b64decode(self.b64, validate=True))
        except binascii.Error as error:
            raise ValueError(f"`b64` is not base64: {error}") from error


class _AttemptTable(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    status: Annotated[int, Meta(ge=0, le=999)] = 200
    headers: dict[HeaderName, HeaderValue] = {}
    raw: bool = False
    steps: Annotated[tuple[_StepTable | Ending, ...], Meta(max_length=10_000)] = ()

    def __post_init__(self) -> None:
        if 0 < self.status < STATUS_MIN:
            raise ValueError("`status` is 0 (no head) or has three digits")
        if any(isinstance(each, Ending) for each in self.steps[:-1]):
            raise ValueError("Nothing is played after `stall`, `close`, `cut` or `reset`")

    def attempt(self) -> Attempt:
        steps = tuple(each if isinstance(each, Ending) else each.step() for each in self.steps)
        return Attempt(steps, self.status, tuple(self.headers.items()), self.raw)


class _ScriptFile(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    attempts: Annotated[tuple[_AttemptTable, ...], Meta(max_length=1_000)] = ()
    pace: Pace = Pace()


class _Body(Enum):
    RAW = "raw"  # as it comes; only the end of the connection ends it
    CHUNKED = "chunked"
    SIZED = "sized"


class Framer:
    """Turns the steps of one answer into HTTP/1.1 bytes (RFC 9112 §6). Pure; one per answer.

    `may_chunk` is false for a peer that speaks HTTP/1.0; `last` says in the head that the
    connection ends with this answer.
    """

    def __init__(self, *, may_chunk: bool = True, last: bool = False) -> None:
        self._may_chunk = may_chunk
        self._last = last
        self._body = _Body.RAW
        self._unwritten = 0

    @property
    def reusable(self) -> bool:
        """Whether the peer knows where the answer ended and another one can follow."""
        whole = self._body is _Body.CHUNKED or (self._body is _Body.SIZED and not self._unwritten)
        return whole and not self._last

    def head(self, head: Head) -> bytes:
        """The status line, the headers and what the framing adds to them."""
        lines = [f"HTTP/1.1 {head.status} {_REASONS.get(head.status, '')}"]
        lines += [f"{name}: {value}" for name, value in head.headers]
        length = head.value("content-length")
        if head.status in BODILESS_STATUSES:
            self._body = _Body.SIZED
        elif length is not None and length.isdecimal():
            self._body, self._unwritten = _Body.SIZED, int(length)
        elif self._may_chunk and not head.raw and head.value("transfer-encoding") is None:
            self._body = _Body.CHUNKED
            lines.append("transfer-encoding: chunked")
        self._last = self._last or head.value("connection") == "close"
        if not head.raw and head.value("connection") is None and not self._keeps_open():
            lines.append("connection: close")
        return "\r\n".join((*lines, "", "")).encode("latin-1")

    def body(self, data: bytes) -> bytes:
        """The bytes that carry `data`; none for none, since an empty chunk would be the last."""
        if self._body is _Body.SIZED:
            self._unwritten -= len(data)
        if self._body is not _Body.CHUNKED or not data:
            return data
        return b"%x\r\n%b\r\n" % (len(data), data)

    def end(self) -> bytes:
        """What ends the body."""
        return b"0\r\n\r\n" if self._body is _Body.CHUNKED else b""

    def _keeps_open(self) -> bool:
        return self._body is not _Body.RAW and not self._last
