"""The demonstration's plain client: it joins the deltas, and believes that a stream which ends is over.

It stops where common clients stop: at `[DONE]`, at an error event, at an event that it can't parse, and when its patience is at an end.
"""

from __future__ import annotations

from enum import Enum

import httpx
import msgspec
import trio
from msgspec import Struct


class End(Enum):
    """How an answer ended, as far as its caller could see."""

    WHOLE = "whole"
    CUT = "cut"  # the stream ended as HTTP says it must, without a finish
    EMPTY = "empty"  # finished, with nothing said
    SILENCE = "silence"
    ERROR = "error"  # an error event in a stream that began with 200
    MALFORMED = "malformed"
    BROKEN = "broken"  # the connection failed
    REFUSED = "refused"  # a status other than 200


class Seen(Struct, frozen=True, kw_only=True):
    """What one caller got. `attempts`: as the gateway's header says; without a gate there is none."""

    end: End
    text: str
    words: int
    status: int
    finish: str | None
    done: bool
    error: str | None
    attempts: int | None
    milliseconds: int


class _Delta(Struct, frozen=True):
    content: str | None = None


class _Choice(Struct, frozen=True):
    delta: _Delta = _Delta()
    finish_reason: str | None = None


class _Error(Struct, frozen=True):
    code: str | int | None = None
    message: str = ""

    def __str__(self) -> str:
        return str(self.code or self.message)


class _Event(Struct, frozen=True):
    choices: tuple[_Choice, ...] = ()
    error: _Error | None = None


class _Heard:
    """What has come so far. After something that stops a client, the rest is not looked at."""

    def __init__(self) -> None:
        self.text = ""
        self.status = 0
        self.finish: str | None = None
        self.done = False
        self.error: str | None = None
        self.stopped: End | None = None

    def line(self, line: str) -> None:
        """One line of the stream."""
        if self.stopped is not None or self.done or not line.startswith("data:"):
            return
        data = line.removeprefix("data:").strip()
        if data == "[DONE]":
            self.done = True
            return
        try:
            event = msgspec.json.decode(data, type=_Event)
        except msgspec.DecodeError:
            self.stop(End.MALFORMED)
            return
        if event.error is not None:
            self.error = str(event.error)
            self.stop(End.ERROR)
        for choice in event.choices:
            self.text += choice.delta.content or ""
            self.finish = choice.finish_reason or self.finish

    def refusal(self, body: bytes) -> None:
        """The body of an answer that is none."""
        self.stop(End.REFUSED)
        try:
            error = msgspec.json.decode(body, type=_Event).error
        except msgspec.DecodeError:
            return
        self.error = None if error is None else str(error)

    def stop(self, end: End) -> None:
        """The first thing that stops a client is what it reports."""
        self.stopped = self.stopped or end

    @property
    def end(self) -> End:
        """The client's conclusion when nothing more comes."""
        if self.stopped is not None:
            return self.stopped
        if self.finish is None:
            return End.CUT
        return End.WHOLE if self.text else End.EMPTY


def plain_client(patience_seconds: float) -> httpx.AsyncClient:
    """A client that gives up after so much silence, and goes to loopback whatever proxies the environment names."""
    return httpx.AsyncClient(timeout=httpx.Timeout(patience_seconds), trust_env=False)


async def ask(client: httpx.AsyncClient, base_url: str, body: bytes) -> Seen:
    """Sends the request and reads what comes, for as long as the client's timeout allows silence."""
    heard, attempts = _Heard(), None
    began = trio.current_time()
    headers = {"content-type": "application/json"}
    try:
        async with client.stream(
            "POST", f"{base_url}/chat/completions", content=body, headers=headers
        ) as response:
            heard.status = response.status_code
            attempts = response.headers.get("x-tidegate-attempts")
            if response.status_code == httpx.codes.OK:
                async for line in response.aiter_lines():
                    heard.line(line)
            else:
                heard.refusal(await response.aread())
    except httpx.TimeoutException:
        heard.stop(End.SILENCE)
    except httpx.TransportError:
        heard.stop(End.BROKEN)
    return Seen(
        end=heard.end,
        text=heard.text,
        words=len(heard.text.split()),
        status=heard.status,
        finish=heard.finish,
        done=heard.done,
        error=heard.error,
        attempts=None if attempts is None else int(attempts),
        milliseconds=round((trio.current_time() - began) * 1000),
    )
