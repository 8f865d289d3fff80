"""The Caller port over ASGI's `receive` and `send` (ASGI 3.0, HTTP sub-specification 2.3)."""

from __future__ import annotations

from typing import Final, cast

import trio
from hypercorn.typing import ASGIReceiveCallable, ASGISendCallable, HTTPResponseStartEvent

from actors.ports import BodyPart, Disconnected, Headers

__all__ = ["LINGER_SECONDS", "AsgiCaller"]

LINGER_SECONDS: Final = 2.0  # a caller that is still writing then is cut off


class AsgiCaller:
    """One caller. `receive` is for ingress alone, the rest for the sink alone."""

    def __init__(self, receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
        self._receive = receive
        self._send = send
        self._body_over = trio.Event()
        self._receiving: trio.Event | None = None  # set when what is being received has come
        self.started = False
        self.ended = False
        self.aborted = False

    async def receive(self) -> BodyPart | Disconnected:
        """The next part of the body, or that the caller has left. After a normal end the server says so as well."""
        receiving = self._receiving = trio.Event()
        try:
            message = await self._receive()
        finally:
            receiving.set()
            self._receiving = None
        if message["type"] != "http.request":
            self._body_over.set()
            return Disconnected()
        last = not message.get("more_body", False)
        if last:
            self._body_over.set()
        return BodyPart(bytes(message.get("body", b"")), last=last)

    async def start(self, status: int, headers: Headers) -> None:
        """Status and header fields; the server sends them with the first bytes of the body."""
        self.started = True
        event = {"type": "http.response.start", "status": status, "headers": list(headers)}
        try:
            await self._send(cast(HTTPResponseStartEvent, event))
        except trio.Cancelled:
            self.started = False  # the server writes all of one, or begins none
            raise

    async def write(self, data: bytes) -> None:
        """Bytes of the body. Does not raise when the caller has left: the watch on `receive` is what tells."""
        await self._send({"type": "http.response.body", "body": data, "more_body": True})

    async def end(self, data: bytes = b"") -> None:
        """The last bytes of the body.

        While the caller still writes its own (a refusal), the connection is held open for a moment more: closed at once, the kernel would answer
        the rest with a reset, and the caller would never read what it was told. Whoever receives meanwhile goes on; where nobody does, because
        ingress is no more, this does.
        """
        if not self._body_over.is_set():
            await self.write(data)
            data = b""
            with trio.move_on_after(LINGER_SECONDS):
                await self._rest_received()
            self._body_over.set()  # waited for long enough
        await self._send({"type": "http.response.body", "body": data, "more_body": False})
        self.ended = True

    def abort(self) -> None:
        """Whoever runs the application returns without the last part: the server then drops the connection, or resets the stream."""
        self.aborted = True

    async def _rest_received(self) -> None:
        """Reads the rest of a body and forgets it, by turns with whoever else receives."""
        while not self._body_over.is_set():
            if self._receiving is None:
                await self.receive()
            else:
                await self._receiving.wait()
