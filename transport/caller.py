"""The Caller port over ASGI's `receive` and `send` (ASGI 3.0, HTTP sub-specification 2.3)."""

from __future__ import annotations

from typing import cast

from hypercorn.typing import ASGIReceiveCallable, ASGISendCallable, HTTPResponseStartEvent

from actors.ports import BodyPart, Disconnected, Headers

__all__ = ["AsgiCaller"]


class AsgiCaller:
    """One caller. `receive` is for ingress alone, the rest for the sink alone."""

    def __init__(self, receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
        self._receive = receive
        self._send = send
        self.started = False
        self.ended = False

    async def receive(self) -> BodyPart | Disconnected:
        """The next part of the body, or that the caller has left. After a normal end the server says so as well."""
        message = await self._receive()
        if message["type"] == "http.request":
            return BodyPart(
                bytes(message.get("body", b"")), last=not message.get("more_body", False)
            )
        return Disconnected()

    async def start(self, status: int, headers: Headers) -> None:
        """Status and header fields; the server sends them with the first bytes of the body."""
        self.started = True
        event = {"type": "http.response.start", "status": status, "headers": list(headers)}
        await self._send(cast(HTTPResponseStartEvent, event))

    async def write(self, data: bytes) -> None:
        """Bytes of the body. Does not raise when the caller has left: the watch on `receive` is what tells."""
        await self._send({"type": "http.response.body", "body": data, "more_body": True})

    async def end(self, data: bytes = b"") -> None:
        """The last bytes of the body."""
        await self._send({"type": "http.response.body", "body": data, "more_body": False})
        self.ended = True
