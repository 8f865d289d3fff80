"""Trace format 1: what one exchange was told by the world, and what it decided.

A trace holds inputs and decisions and nothing that follows from them. Inputs: the caller's body in its parts, what each read from a provider returned and after
how long, answers of filters that await, and what the exchange asked of the process (draws, wall time, places, the health of providers). Decisions: the
observations of the exchange, the response as lengths and rolling hashes, and the terminal. On replay inputs are fed and decisions compared.

Times (`t`) are microseconds since the exchange began; only the header knows the wall clock. `gate.trace_codec` writes and reads traces.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeAlias

import msgspec

from gate.config import RecordContent

__all__ = [
    "VERSION",
    "Answered",
    "Attempt",
    "CallerEvent",
    "Decision",
    "End",
    "Fact",
    "Fields",
    "Header",
    "Part",
    "Ping",
    "Read",
    "Record",
    "Release",
    "Request",
    "ResponseHead",
    "Term",
    "Trace",
    "Upstream",
    "digest_of",
    "keyed",
]

VERSION: Final = (1, 0)
DIGEST_BYTES: Final = 16

Fields = tuple[tuple[str, str], ...]
"""Header fields that were kept, names in lower case."""


class Header(msgspec.Struct, frozen=True, array_like=True, tag=0):
    """The first record. `wall`: Unix seconds at the beginning. `config`: tables that decode to the configuration of this exchange, without secrets.

    `content`: what the `b` of other records is. `salt`: the key of the digests, where the content is full; else the key stays with the
    deployment, and `key_id` names it.
    """

    version: tuple[int, int]
    trace_id: str
    build: Mapping[str, str]
    wall: int
    content: RecordContent
    config: Mapping[str, Any]
    salt: bytes = b""
    key_id: str = ""


class Request(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """What the door let in. `models`: aliases that the key may use, None for all; `model`: an alias that a header named. `shape`: counts and lengths of the body's members."""

    t: int
    content_type: str
    content_length: int | None
    models: tuple[str, ...] | None = None
    forwarded: Fields = ()
    endpoint: str = "/v1/chat/completions"
    method: str = "POST"
    query: str = ""
    model: str = ""
    shape: Mapping[str, Any] | None = None


class Part(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """A part of the caller's body. `sha`: its keyed digest, where the content is not kept; `more`: the next record goes on with the same part."""

    t: int
    size: int
    last: bool
    b: bytes = b""
    sha: bytes = b""
    more: bool = False


class CallerEvent(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """`gone`; `blocked`: the write that ended at byte `off` took until `t`, `us` in all; `stuck`: it was cancelled then; `shutdown`: the drain's end. `aborted` is ours: the response was cut off."""

    t: int
    ev: str
    off: int = 0
    us: int = 0


class Attempt(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """Attempt `n` as its provider was asked, with the keyed digest of its body."""

    n: int
    t: int
    provider: str
    size: int
    sha: bytes


class Upstream(msgspec.Struct, frozen=True, array_like=True, tag=5):
    """`connected`; `head`, with status and kept fields; `eof`; `fault`, with its kind; `left`: we closed it first; `closed`: its connection was let go of."""

    n: int
    t: int
    ev: str
    status: int = 0
    headers: Fields = ()
    fault: str = ""


class Read(msgspec.Struct, frozen=True, array_like=True, tag=6, gc=False):
    """What one read returned, `w` microseconds after it was asked for. `sha`: its keyed digest, where the content is not kept; `more`: the next record goes on with the same read."""

    n: int
    t: int
    w: int
    size: int
    b: bytes = b""
    sha: bytes = b""
    more: bool = False


class Answered(msgspec.Struct, frozen=True, array_like=True, tag=7):
    """What a filter that awaits said of the frames `start` to `end` (`last`: and of the answer as a whole) of attempt `n`.

    `passed` is a position, `violated` a violation as builtins, `fault` the code of one that could not be asked, or `error`. All None: nobody waited for it any more.
    """

    n: int
    t: int
    name: str
    start: int
    end: int
    last: bool
    us: int
    passed: int | None = None
    violated: Mapping[str, Any] | None = None
    fault: str | None = None


class Fact(msgspec.Struct, frozen=True, array_like=True, tag=8):
    """What the exchange asked of the process, and was told, after `us` of waiting: `draw`, `wall`, `wait` (of provider `name`), `slot`, `retries`, `admit`, `drain_ends`.

    False for `slot` and `admit`: the exchange ended while it waited. All others are moments that decided something (`actors.world.Moment`); the value of `hold` is when the newest batch had come that was
    judged by then.
    """

    t: int
    what: str
    value: bool | int | float | str | None
    name: str = ""
    us: int = 0


class Decision(msgspec.Struct, frozen=True, array_like=True, tag=9):
    """One observation of the exchange, without its times."""

    t: int
    what: str
    attempt: int = 0
    code: str = ""
    provider: str = ""
    filter: str = ""
    status: int = 0
    count: int = 0


class ResponseHead(msgspec.Struct, frozen=True, array_like=True, tag=10):
    """Status and fields that the caller got."""

    t: int
    status: int
    headers: Fields = ()


class Release(msgspec.Struct, frozen=True, array_like=True, tag=11, gc=False):
    """Bytes of the response's body, up to `off`; `sha`: the keyed digest of all of them so far. Comments are not among them."""

    t: int
    off: int
    size: int
    sha: bytes


class Ping(msgspec.Struct, frozen=True, array_like=True, tag=12):
    """A comment of ours."""

    t: int


class Term(msgspec.Struct, frozen=True, array_like=True, tag=13):
    """How it ended. `kind`: success, error, abandoned; `sha`: the keyed digest of the response's body. `peak`: the ledger's high water; `open`: bytes that did not come back.

    `held_us`: the longest that a released frame has stayed, -1 where none was released; `wasted`: completion tokens that nobody has seen.
    """

    t: int
    kind: str
    code: str
    status: int
    attempts: int
    framing: str
    size: int
    sha: bytes
    peak: int = 0
    open: int = 0
    held_us: int = -1
    wasted: int = 0


class End(msgspec.Struct, frozen=True, array_like=True, tag=14):
    """The last record. `truncated`: content is missing, so the trace can only be counted; `dropped`: records that found no room. `sha`: of all records before it, in their binary form."""

    records: int
    dropped: int
    truncated: bool
    sha: bytes


Record: TypeAlias = (
    Header
    | Request
    | Part
    | CallerEvent
    | Attempt
    | Upstream
    | Read
    | Answered
    | Fact
    | Decision
    | ResponseHead
    | Release
    | Ping
    | Term
    | End
)


class Trace(msgspec.Struct, frozen=True):
    """One whole trace: its header, what follows, and how it was closed."""

    header: Header
    records: tuple[Record, ...]
    end: End

    @property
    def replayable(self) -> bool:
        """Nothing of its inputs is missing."""
        return self.header.content == "full" and not self.end.truncated


def keyed(key: bytes) -> hashlib.blake2b:
    """A digest that is told nothing yet. Prompts can be guessed, so a hash without a key would tell them."""
    return hashlib.blake2b(key=key, digest_size=DIGEST_BYTES)


def digest_of(pieces: Iterable[bytes | memoryview], key: bytes) -> bytes:
    """The keyed digest of a body."""
    hashed = keyed(key)
    for piece in pieces:
        hashed.update(piece)
    return hashed.digest()
