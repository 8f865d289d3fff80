"""HTTP/1.1 to providers: an `httpx.AsyncBaseTransport` on trio streams, parsed by httptools.

    take an idle connection, or open one ─► write head and body ─► read the head ─► Answer: one item per socket read

Rules of this file: one task owns a connection from `handle_async_request` to `Answer.close`; a cancellation or an error at any await
closes it at once, synchronously; it goes back to the idle store only after a complete body that both sides let it survive. Failures
are `gate.errors.UpstreamFailed`, never exceptions of httpx (but for requests that we should not have made: `httpx.LocalProtocolError`).
Source: RFC 9110, RFC 9112.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass
from http import HTTPStatus

import httptools
import httpx
import trio

from gate.errors import UpstreamFailed, UpstreamFault
from transport.pool import Connect, Connection, IdleStore, Origin

READ_BYTES = 65_536  # one socket read, hence one item
JOIN_BYTES = 65_536  # smaller pieces of a request are written together ...
WRITE_BYTES = 262_144  # ... and larger ones cut: TLS encrypts a whole piece in one call
HEAD_BYTES_MAX = 65_536  # a response's head with its interim responses; also whatever comes between two body bytes (trailers)
INTERIM_MAX = 16  # 1xx responses before the real one
EXTENSION = "tidegate"  # in a request: an Outgoing; in a response: the Answer

_PARSER_ERRORS = (httptools.HttpParserError, httptools.HttpParserUpgrade)


@dataclass(frozen=True, slots=True)
class Outgoing:
    """What goes with a request, under `EXTENSION`: its body in slices, and whom to tell when a connection is there (told once)."""

    body: Sequence[bytes | memoryview]
    on_connected: Callable[[], None]


class _Refused(Exception):
    """Raised in a callback of the parser to stop it; the parser turns it into an error of its own."""


class _Stale(UpstreamFailed):
    """A connection that had served before was lost before the first byte of this answer: nobody's fault, worth one more try."""

    def __init__(self) -> None:
        super().__init__(UpstreamFault.RESET, reused=True)


class Answer(httpx.AsyncByteStream):
    """One response as it is read from its connection, which it owns until `close`.

    `status` and `headers` (names in lower case) are there once `read_head` has returned. The parser calls the `on_` methods.
    """

    # A second response, or stray bytes, behind a complete one raise inside the parser and mean only: don't reuse.

    def __init__(self, connection: Connection, *, idle: IdleStore, bodyless: bool) -> None:
        self.status = 0
        self.headers: list[tuple[bytes, bytes]] = []
        self.reusable = True  # our side lets the connection survive
        self._connection = connection
        self._receive = connection.wire.receive
        self._idle = idle
        self._bodyless = bodyless
        self._header_bytes = 0
        self._interims = 0
        self._until_eof = False
        self._over = False
        self._fault: UpstreamFault | None = None
        self._settled = False
        self._silent_bytes = 0  # read since the last body byte: head, chunk lines, trailers
        self._parts: list[bytes] = []
        self.on_body = self._parts.append
        self._parser: httptools.HttpResponseParser | None = httptools.HttpResponseParser(self)

    @property
    def has_body(self) -> bool:
        """Body bytes may come, or have."""
        return bool(self._parts) or not self._over

    async def read(self) -> bytes:
        """As `actors.ports.UpstreamResponse.read`: the body bytes of one socket read, `b""` at the end and ever after."""
        parts = self._parts
        while not parts:
            if self._over:
                self.close()
                return b""
            if self._fault is not None:
                self.close()
                raise UpstreamFailed(self._fault, reused=self._connection.served > 0)
            try:
                data = await self._receive(READ_BYTES)
            except trio.BrokenResourceError:
                self._fault = UpstreamFault.CUT
                continue
            except BaseException:
                self.close()
                raise
            self._feed(data)
        body = parts[0] if len(parts) == 1 else b"".join(parts)
        parts.clear()
        if self._over:
            self.close()
        return body

    async def read_head(self) -> None:
        """Reads as far as the head's end. Raises UpstreamFailed (RESET, PROTOCOL, ENCODING); the caller closes then."""
        reused = self._connection.served > 0
        received = False
        while not self.status:
            try:
                data = await self._receive(READ_BYTES)
            except trio.BrokenResourceError:
                data = b""
            if not data:
                raise (
                    UpstreamFailed(UpstreamFault.RESET, reused=reused)
                    if received or not reused
                    else _Stale
                )
            received = True
            self._feed(data)
            if self._fault is not None and not self.status:
                raise UpstreamFailed(self._fault, reused=reused)
        if _transfer_codings(self.headers) not in ([], [b"chunked"]):
            raise UpstreamFailed(UpstreamFault.ENCODING, reused=reused)

    def close(self) -> None:
        """Gives the connection back if the body came to its end and both sides let it, closes it at once if not. Never waits."""
        if self._settled:
            return
        self._settled = True
        self._parser = None  # it refers to us: a cycle that would wait for the collector
        if self._over and self.reusable and not self._connection.closed:
            self._connection.served += 1
            self._idle.put(self._connection, now=trio.current_time())
        else:
            self._connection.close()
            if not self._over and self._fault is None:
                self._fault = UpstreamFault.CUT  # a later read can't go on

    async def aclose(self) -> None:
        """For httpx."""
        self.close()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """For httpx; a reader that counts its microseconds calls `read`."""
        while data := await self.read():
            yield data

    def on_message_begin(self) -> None:
        if self._over:
            raise _Refused

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.status:
            return  # a trailer: bounded with everything else that isn't body
        self._header_bytes += len(name) + len(value)
        if self._header_bytes > HEAD_BYTES_MAX:
            raise _Refused
        self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        assert self._parser is not None
        status = self._parser.get_status_code()
        is_http1 = self._parser.get_http_version() in {"1.0", "1.1"}
        if not is_http1 or status < HTTPStatus.CONTINUE or status == HTTPStatus.SWITCHING_PROTOCOLS:
            raise _Refused
        if status < HTTPStatus.OK:
            self._interims += 1
            if self._interims > INTERIM_MAX:
                raise _Refused
            self.headers.clear()
            return
        self.status = status
        self._until_eof = _ends_with_connection(self.headers)
        if self._bodyless:
            # The parser doesn't know the method: it would wait for the body that these headers announce.
            self._over = True
            self.reusable = False
            raise _Refused

    def on_message_complete(self) -> None:
        assert self._parser is not None
        if self.status:
            self._over = True
            self.reusable = self.reusable and self._parser.should_keep_alive()

    def _feed(self, data: bytes | bytearray) -> None:
        assert self._parser is not None
        if not data:
            self._end_of_stream()
            return
        in_head = not self.status
        try:
            self._parser.feed_data(data)
        except _PARSER_ERRORS:
            self.reusable = False
            if not self._over:
                self._fault = UpstreamFault.PROTOCOL
        if self._parts or (in_head and self.status):
            self._silent_bytes = 0
            return
        self._silent_bytes += len(data)
        if self._silent_bytes > HEAD_BYTES_MAX and not self._over:
            self._fault = UpstreamFault.PROTOCOL

    def _end_of_stream(self) -> None:
        self.reusable = False
        # A close looks the same whether the server was done or died (RFC 9112, 8): who reads has to know from what came.
        self._fault = UpstreamFault.CLOSED if self._until_eof else UpstreamFault.CUT


class Http1Transport(httpx.AsyncBaseTransport):
    """An httpx transport that opens a connection per request, or reuses an idle one; nobody waits for a connection.

    `stale_retries` counts requests that were sent again because an idle connection turned out to be dead.
    """

    def __init__(self, connect: Connect, *, idle: IdleStore | None = None) -> None:
        self.stale_retries = 0
        self._connect = connect
        self._idle = IdleStore() if idle is None else idle
        self._open = 0

    @property
    def connections_open(self) -> int:
        """In use and idle ones."""
        return self._open

    @property
    def connections_idle(self) -> int:
        """Those that wait for a next request."""
        return len(self._idle)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Sends the request; returns when the response head has come.

        Raises UpstreamFailed (CONNECT, RESET, PROTOCOL, ENCODING), and httpx.LocalProtocolError for a request that isn't HTTP.
        """
        head, outgoing = _encode_head(request), _outgoing(request)
        origin = _origin(request.url)
        connection = self._idle.take(origin, now=trio.current_time())
        if connection is None:
            connection = await self._open_connection(origin)
        try:
            return await self._exchange(connection, request, head, outgoing)
        except _Stale:
            self.stale_retries += 1
        # Told once: the second connection is our own affair.
        silent = Outgoing(outgoing.body, _tell_nobody)
        return await self._exchange(await self._open_connection(origin), request, head, silent)

    async def aclose(self) -> None:
        """Closes the idle connections; one in use is closed by its owner."""
        self._idle.close()

    async def _open_connection(self, origin: Origin) -> Connection:
        try:
            wire = await self._connect(*origin)
        except (OSError, UnicodeError, trio.BrokenResourceError) as error:
            # UnicodeError: a host name that can't be one.
            raise UpstreamFailed(UpstreamFault.CONNECT) from error
        self._open += 1
        return Connection(origin, wire, on_close=self._count_closed)

    def _count_closed(self) -> None:
        self._open -= 1

    async def _exchange(
        self, connection: Connection, request: httpx.Request, head: bytes, outgoing: Outgoing
    ) -> httpx.Response:
        """One request on one connection, which is closed unless an answer comes to own it."""
        answer = Answer(connection, idle=self._idle, bodyless=request.method == "HEAD")
        try:
            outgoing.on_connected()
            answer.reusable = b"close" not in _tokens(request.headers.raw, b"connection")
            try:
                for piece in _pieces(head, outgoing.body):
                    await connection.wire.stream.send_all(piece)
            except trio.BrokenResourceError:
                answer.reusable = False  # refused before it was read to its end, perhaps with an answer (413): go and see
            await answer.read_head()
            return httpx.Response(
                answer.status,
                headers=answer.headers,
                stream=answer,
                extensions={"http_version": b"HTTP/1.1", EXTENSION: answer},
            )
        except BaseException:
            answer.close()
            raise


def _origin(url: httpx.URL) -> Origin:
    if url.scheme not in {"http", "https"} or not url.host:
        raise httpx.LocalProtocolError("the URL is not one of HTTP")
    tls = url.scheme == "https"
    return Origin(url.raw_host.decode("ascii"), url.port or (443 if tls else 80), tls)


def _outgoing(request: httpx.Request) -> Outgoing:
    """The body as slices that can be sent twice. Raises LocalProtocolError for a body that can't."""
    outgoing = request.extensions.get(EXTENSION)
    if isinstance(outgoing, Outgoing):
        return outgoing
    if not isinstance(request.stream, httpx.ByteStream):
        raise httpx.LocalProtocolError("the body has to be bytes")
    return Outgoing(tuple(request.stream), _tell_nobody)


def _tell_nobody() -> None:
    """Stands for `on_connected` where nobody asked."""


def _encode_head(request: httpx.Request) -> bytes:
    """The request line and the headers as they are given. Raises LocalProtocolError where one would break out of its line."""
    lines = [b"%b %b HTTP/1.1\r\n" % (request.method.encode("ascii"), request.url.raw_path)]
    lines += [b"%b: %b\r\n" % (name, value) for name, value in request.headers.raw]
    head = b"".join(lines)
    if head.count(b"\n") != len(lines) or head.count(b"\r") != len(lines) or b"\0" in head:
        raise httpx.LocalProtocolError("a control character in the request head")
    return head + b"\r\n"


def _pieces(head: bytes, body: Sequence[bytes | memoryview]) -> Iterator[bytes | memoryview]:
    """The request in as few writes as is sensible; a large slice is never copied."""
    pending: list[bytes | memoryview] = [head]
    size = len(head)
    for whole in body:
        view = memoryview(whole)
        for start in range(0, len(view), WRITE_BYTES):
            piece = view[start : start + WRITE_BYTES]
            if pending and size + len(piece) > JOIN_BYTES:
                yield b"".join(pending)
                pending, size = [], 0
            if len(piece) > JOIN_BYTES:
                yield piece
            else:
                pending.append(piece)
                size += len(piece)
    if pending:
        yield b"".join(pending)


def _tokens(headers: Sequence[tuple[bytes, bytes]], name: bytes) -> list[bytes]:
    """The members of a comma-separated header, in lower case, over all its lines."""
    lines = [value.lower().split(b",") for key, value in headers if key.lower() == name]
    return [token.strip() for line in lines for token in line if token.strip()]


def _transfer_codings(headers: Sequence[tuple[bytes, bytes]]) -> list[bytes]:
    return [coding for coding in _tokens(headers, b"transfer-encoding") if coding != b"identity"]


def _ends_with_connection(headers: Sequence[tuple[bytes, bytes]]) -> bool:
    """Nothing announces the body's length, so it goes on until EOF (RFC 9112, 6.3; a status without body is over before)."""
    return not _transfer_codings(headers) and not _tokens(headers, b"content-length")
