"""The Provider port over httpx: builds the head of a request to a provider, and opens attempts.

Rule of this file: of the caller's head nothing goes on but what the actor put into `UpstreamRequest.headers`.
Nothing of the environment takes part (no proxies, no netrc), no cookie is kept, no redirect followed, and httpx has no clock:
deadlines are the actor's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Final, Self

import httpx

from actors.ports import UpstreamRequest, UpstreamResponse
from gate.errors import UpstreamFailed, UpstreamFault
from transport.decoding import DecodedResponse, coding_of, decoder_for
from transport.http1 import EXTENSION, Answer, Http1Transport, Outgoing
from transport.pool import client_tls, tcp_connector

USER_AGENT = b"tidegate"
URLS_MAX = 64  # kept; a path may name a file, and there is no end of those

_RESERVED = frozenset(
    (
        "accept-encoding",
        "connection",
        "content-length",
        "expect",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    )
)
"""Headers that say how this connection is used: no configuration may set them."""

_BODYLESS = frozenset({"GET", "DELETE"})  # by habit; a length of 0 would say nothing

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9a-z-]+")  # RFC 9110, 5.6.2


class HttpProvider:
    """One provider behind `base_url`, as `actors.ports.Provider`; `async with` closes its idle connections.

    `headers` are sent with every request and win over ours of the same name. `ca` and `client_cert` are PEM files, "" for none.
    Raises ValueError for a header that can't be one or is reserved and for a URL that isn't HTTP, OSError for PEM files that can't be used.
    """

    def __init__(
        self,
        *,
        name: str,
        base_url: str,
        api_key: str | None = None,
        headers: Mapping[str, str] | None = None,
        ca: str = "",
        client_cert: str = "",
        transport: Http1Transport | None = None,
    ) -> None:
        self.name = name
        self._url = parse_base_url(base_url)
        self._base_path = self._url.raw_path.rstrip(b"/")
        self._static = static_headers(headers or {}, api_key)
        if transport is None:
            tls = (
                client_tls(ca=ca, client_cert=client_cert) if self._url.scheme == "https" else None
            )
            transport = Http1Transport(tcp_connector(tls))
        self.transport = transport
        self._urls: dict[str, httpx.URL] = {}  # of the paths that came first: the endpoints
        self._client = _Client(
            transport=transport,
            trust_env=False,
            follow_redirects=False,
            timeout=None,  # the actor's clocks cancel us
        )

    def __repr__(self) -> str:
        return f"<HttpProvider {self.name}, {self.transport.connections_open} connections>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()

    @property
    def connections_open(self) -> int:
        """In use and idle ones."""
        return self.transport.connections_open

    @property
    def stale_retries(self) -> int:
        """Requests that were sent again because an idle connection was dead."""
        return self.transport.stale_retries

    def attempt(self, request: UpstreamRequest, *, on_connected: Callable[[], None]) -> Attempt:
        """As `actors.ports.Provider.attempt`; entering may raise ENCODING too. `on_connected` is called once per attempt at most."""
        return Attempt(self, request, on_connected)

    async def aclose(self) -> None:
        """Closes idle connections now, and those in use when their attempts end. Twice is fine."""
        await self._client.aclose()

    async def send(self, request: UpstreamRequest, on_connected: Callable[[], None]) -> Answer:
        """The answer, open from its head on; whoever called has to close it. Raises UpstreamFailed."""
        assert sum(map(len, request.body)) == request.content_length
        try:
            outgoing = httpx.Request(
                request.method,
                self._url_of(request.path),
                headers=self._head(request),
                stream=httpx.ByteStream(b""),
                extensions={EXTENSION: Outgoing(request.body, on_connected)},
            )
            response = await self._client.send(outgoing, stream=True)
        except (httpx.HTTPError, httpx.InvalidURL, OSError, UnicodeError) as error:
            raise UpstreamFailed(UpstreamFault.PROTOCOL) from error
        answer = response.extensions[EXTENSION]
        assert isinstance(answer, Answer)
        # httpx keeps response and requests in a cycle until the collector comes by; the body must not wait for that.
        outgoing.extensions.clear()
        response.next_request = None
        return answer

    def _url_of(self, path: str) -> httpx.URL:
        url = self._urls.get(path)
        if url is None:
            url = self._url.copy_with(raw_path=self._base_path + path.encode("ascii"))
            if len(self._urls) < URLS_MAX:
                self._urls[path] = url
        return url

    def _head(self, request: UpstreamRequest) -> list[tuple[bytes, bytes]]:
        ours = [
            (b"host", self._url.netloc),
            (b"user-agent", USER_AGENT),
            *request.headers,
            (b"accept-encoding", b"identity"),
        ]
        if request.content_length or request.method not in _BODYLESS:
            ours.append((b"content-length", b"%d" % request.content_length))
        return [field for field in ours if field[0] not in self._static] + list(
            self._static.items()
        )


class Attempt:
    """One request to a provider, as an async context manager: entered when the head has come, left without waiting."""

    __slots__ = ("_answer", "_on_connected", "_provider", "_request")

    def __init__(
        self, provider: HttpProvider, request: UpstreamRequest, on_connected: Callable[[], None]
    ) -> None:
        self._provider = provider
        self._request: UpstreamRequest | None = request
        self._on_connected = on_connected
        self._answer: Answer | None = None

    async def __aenter__(self) -> UpstreamResponse:
        request, self._request = self._request, None  # its body is not ours to keep
        assert request is not None
        answer = await self._provider.send(request, self._on_connected)
        codings = coding_of(answer.headers) if answer.has_body else ()
        if not codings:
            self._answer = answer
            return answer
        try:
            decoded = DecodedResponse(answer, decoder_for(codings))
        except UpstreamFailed:
            answer.close()
            raise
        self._answer = answer
        return decoded

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._answer is not None
        self._answer.close()


class _NoCookies(httpx.Cookies):
    """Keeps none: nothing would send them, and they would pile up."""

    def extract_cookies(self, response: httpx.Response) -> None:
        """Takes nothing, and so doesn't parse either."""


class _Client(httpx.AsyncClient):
    """The ordinary client, less its cookies."""

    @property
    def cookies(self) -> httpx.Cookies:
        return _NO_COOKIES

    @cookies.setter
    def cookies(self, cookies: object) -> None:
        raise AttributeError("this client keeps no cookies")


_NO_COOKIES: Final = _NoCookies()


def parse_base_url(base_url: str) -> httpx.URL:
    try:
        url = httpx.URL(base_url)
    except httpx.InvalidURL as error:
        raise ValueError("the base URL is malformed") from error
    if (
        url.scheme not in {"http", "https"}
        or not url.host
        or url.query
        or url.fragment
        or url.userinfo
    ):
        raise ValueError("the base URL has to be http(s)://host[:port][/path]")
    return url


def static_headers(headers: Mapping[str, str], api_key: str | None) -> dict[bytes, bytes]:
    """Raises ValueError for names and values that would not stay one header, without showing any."""
    fields = {"authorization": f"Bearer {api_key}"} if api_key else {}
    fields |= {name.lower(): value for name, value in headers.items()}
    for name, value in fields.items():
        if (
            name in _RESERVED
            or not _TOKEN.fullmatch(name)
            or not (value.isascii() and value.isprintable())
        ):
            raise ValueError("a static header is malformed or reserved")
    return {name.encode("ascii"): value.strip().encode("ascii") for name, value in fields.items()}
