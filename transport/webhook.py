"""Guardrail services over HTTP: the filters of the kind `webhook`, one client for each table, for the life of the gateway.

A question is one POST. Its deadline is the asker's, who cancels; a connection that is waited for counts. Nothing queues without bound: an exchange asks one question of a filter at a time.
"""

from __future__ import annotations

import urllib.parse
from types import TracebackType
from typing import Final, Self

import trio

from actors.ports import AwaitingFilter, UpstreamRequest
from gate.config import FilterConfig
from gate.errors import FilterUnavailable, UpstreamFailed
from gate.filters.awaited import Awaited, Question
from gate.filters.contract import Passed, Verdict
from gate.webhook import ANSWER_BYTES_MAX, UNREADABLE, WebhookTalk
from transport.decoding import read_to_close
from transport.http1 import Http1Transport
from transport.provider import HttpProvider

__all__ = ["UNREACHABLE", "Webhook"]

CONNECTIONS_MAX: Final = 64  # of one table at once
UNREACHABLE: Final = "webhook_unreachable"  # no connection, or one that broke
REFUSED: Final = "webhook_status"  # it answered with another status than 2xx
_HEADERS: Final = ((b"content-type", b"application/json"), (b"accept", b"application/json"))


class Webhook:
    """The service of one table, as `actors.ports.AwaitingFilters`; `async with` closes its idle connections."""

    def __init__(
        self,
        name: str,
        table: FilterConfig,
        api_key: str | None = None,
        *,
        transport: Http1Transport | None = None,
    ) -> None:
        parts = urllib.parse.urlsplit(table.url)
        self._path = parts.path or "/"
        self._table = table
        self._client = HttpProvider(
            name=name,
            base_url=f"{parts.scheme}://{parts.netloc}",
            api_key=api_key,
            transport=transport,
        )
        self._places = trio.CapacityLimiter(CONNECTIONS_MAX)

    def __repr__(self) -> str:
        return f"<Webhook {self._client.name}>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._client.aclose()

    def begin(self, exchange: str, attempt: int, awaited: Awaited) -> AwaitingFilter:
        return _Asker(self, WebhookTalk(self._table, exchange, attempt, awaited.before))

    async def post(self, body: bytes) -> bytes:
        """The body of a 2xx answer. Raises `FilterUnavailable`."""
        request = UpstreamRequest(self._path, _HEADERS, [body], len(body))
        try:
            async with (
                self._places,
                self._client.attempt(request, on_connected=lambda: None) as response,
            ):
                if not 200 <= response.status < 300:
                    raise FilterUnavailable(REFUSED)
                answer = bytearray()
                while part := await read_to_close(response):
                    answer += part
                    if len(answer) > ANSWER_BYTES_MAX:
                        raise FilterUnavailable(UNREADABLE)
                return bytes(answer)
        except UpstreamFailed:
            raise FilterUnavailable(UNREACHABLE) from None


class _Asker:
    """One attempt's questions."""

    def __init__(self, service: Webhook, talk: WebhookTalk) -> None:
        self._service = service
        self._talk = talk

    async def judge(self, question: Question) -> Verdict:
        body = self._talk.ask(question)
        if body is None:
            return Passed(question.end)
        return self._talk.read(question, await self._service.post(body))
