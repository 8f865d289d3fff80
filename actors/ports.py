"""What the actors ask of the world outside: Protocols that `transport` implements and tests replace by doubles.

Ports raise `gate.errors` only; no exception type of an HTTP library, and no trio channel error, crosses them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

from gate.errors import FilterUnavailable as FilterUnavailable  # what the ports may raise
from gate.errors import UpstreamFailed as UpstreamFailed
from gate.filters.awaited import Awaited, Question
from gate.filters.contract import Verdict

Headers = Sequence[tuple[bytes, bytes]]
"""Header fields in order, names in lower case."""


@dataclass(frozen=True, slots=True)
class UpstreamRequest:
    """One request to a provider. `path` is relative to the provider's base URL (`/chat/completions`), its query included; `body` is written slice after slice."""

    path: str
    headers: Headers
    body: Sequence[bytes | memoryview]
    content_length: int
    method: str = "POST"


class UpstreamResponse(Protocol):
    """A provider's answer, open from its head on. It belongs to the task that opened it."""

    @property
    def status(self) -> int: ...

    @property
    def headers(self) -> Headers: ...

    async def read(self) -> bytes:
        """The body bytes of the next socket read, joined; `b""` when the body is over, and every time after that.

        Raises `UpstreamFailed` (CUT, PROTOCOL, ENCODING) where the body does not end as HTTP says it should, and CLOSED where it ends with the
        connection alone: then the answer itself has to say that it is whole.
        """


class AwaitingFilter(Protocol):
    """A filter that has to wait for its verdict (a service, a model, a thread), for one attempt."""

    async def judge(self, question: Question) -> Verdict:
        """The verdict on these frames, behind those of the questions before; one question at a time. May be cancelled at any moment.

        Raises `FilterUnavailable` where there is none.
        """


class AwaitingFilters(Protocol):
    """Where such filters come from."""

    def begin(self, exchange: str, attempt: int, awaited: Awaited) -> AwaitingFilter:
        """One for a new attempt; `awaited` is the judge's side of it."""


class Provider(Protocol):
    """One upstream server."""

    def attempt(
        self, request: UpstreamRequest, *, on_connected: Callable[[], None]
    ) -> AbstractAsyncContextManager[UpstreamResponse]:
        """Sends `request`; entered when the response head has come.

        `on_connected` is called, synchronously, when a connection is there and the request is about to be written. Entering raises
        `UpstreamFailed` (CONNECT, RESET, PROTOCOL). Leaving, however, closes the connection at once and without waiting,
        unless the body was read to its end and the connection may be used again.
        """


@dataclass(frozen=True, slots=True)
class BodyPart:
    """Bytes of the caller's body; `last` is set on the final one."""

    data: bytes
    last: bool


class Disconnected:
    """The caller has left (or the response is over: the watcher has to know which)."""


class Caller(Protocol):
    """The caller's side of one exchange. `receive` belongs to ingress, everything else to the sink."""

    async def receive(self) -> BodyPart | Disconnected: ...

    async def start(self, status: int, headers: Headers) -> None: ...

    async def write(self, data: bytes) -> None: ...

    async def end(self, data: bytes = b"") -> None:
        """The last bytes of the body. Nothing is written after it."""

    def abort(self) -> None:
        """Ends the response where it stands, in place of `end`: the caller sees a body that was cut off, and no clean end."""
