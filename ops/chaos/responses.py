"""What a caller makes of a connection's bytes: one HTTP response, read by h11, and whether HTTP says that it is complete."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

import h11

from ops.chaos.reading import CHAT, Read, read_body, read_events

__all__ = ["Response", "request_bytes"]

SHOWN_BYTES: Final = 2_000


def request_bytes(length: int, *fields: str, path: str = CHAT) -> bytes:
    """The head of a request whose body has so many bytes; `fields`: more header lines."""
    lines = [f"POST {path} HTTP/1.1", "host: gate", f"content-length: {length}", *fields]
    return "\r\n".join([*lines, "", ""]).encode()


@dataclass(eq=False)
class Response:
    """Fed with what comes. `whole`: it has ended as HTTP says it must; `broken`: what is no HTTP at all; `rest`: bytes behind its end."""

    status: int = 0
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytearray = field(default_factory=bytearray)
    whole: bool = False
    over: bool = False
    broken: str = ""
    rest: bytes = b""

    def __post_init__(self) -> None:
        self._parser = h11.Connection(h11.CLIENT)
        self._parser.send(h11.Request(method="POST", target="/", headers=[("host", "gate")]))
        self._parser.send(h11.EndOfMessage())

    @property
    def streamed(self) -> bool:
        """Its body says that it is an event stream."""
        return self.headers.get("content-type", "").startswith("text/event-stream")

    @property
    def closes(self) -> bool:
        """It says that its connection ends with it."""
        return self.headers.get("connection", "").lower() == "close"

    def read(self, endpoint: str = CHAT) -> Read:
        """The answer in it, as far as it came, as this endpoint has it. Raises ValueError, KeyError and the like for what is none."""
        body = bytes(self.body)
        return read_events(endpoint, body) if self.streamed else read_body(endpoint, body)

    def told(self) -> Iterator[str]:
        """For a person to read."""
        yield f"the caller: status {self.status}, {'whole' if self.whole else 'not whole'}, got"
        yield bytes(self.body[-SHOWN_BYTES:]).decode(errors="replace")

    def feed(self, data: bytes) -> None:
        """The bytes of one read; none: the connection has ended."""
        if self.over:
            self.rest += data
            return
        try:
            self._parser.receive_data(data)
            while self._take(self._parser.next_event()):
                pass
        except h11.RemoteProtocolError as error:
            self.over = True
            if data:
                self.broken = str(error)

    def _take(self, event: object) -> bool:
        """Whether there may be more."""
        match event:
            case h11.InformationalResponse():
                return True
            case h11.Response():
                self.status = event.status_code
                self.headers = {name.decode(): value.decode() for name, value in event.headers}
                return True
            case h11.Data():
                self.body += event.data
                return True
            case h11.EndOfMessage():
                self.whole = self.over = True
                self.rest = self._parser.trailing_data[0]
            case h11.ConnectionClosed():
                self.over = True
            case _:
                pass
        return False
