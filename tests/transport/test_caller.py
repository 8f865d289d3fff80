"""`transport.caller`: ASGI's two callables as a caller, with a scripted server at the other end."""

from __future__ import annotations

from typing import Any, cast

import pytest
import trio
import trio.testing
from hypercorn.typing import ASGIReceiveCallable, ASGISendCallable
from trio.testing import MockClock

from actors.ports import BodyPart, Disconnected
from transport.caller import LINGER_SECONDS, AsgiCaller

GONE = {"type": "http.disconnect"}
LAST = {"type": "http.request", "body": b"}", "more_body": False}


def part(data: bytes) -> dict[str, Any]:
    """A part of a body that goes on."""
    return {"type": "http.request", "body": data, "more_body": True}


class Server:
    """Gives its messages one after the other, the next after `every` seconds, and then nothing more; keeps what it is sent."""

    def __init__(self, *messages: dict[str, Any], every: float = 0.0) -> None:
        self.sent: list[dict[str, Any]] = []
        self._messages = list(messages)
        self._every = every

    async def receive(self) -> Any:
        """The next message."""
        if not self._messages:
            await trio.sleep_forever()
        await trio.sleep(self._every)
        return self._messages.pop(0)

    async def send(self, message: dict[str, Any]) -> None:
        """Keeps it."""
        await trio.lowlevel.checkpoint()
        self.sent.append(message)

    def caller(self) -> AsgiCaller:
        """The caller that this server speaks for."""
        return AsgiCaller(
            cast(ASGIReceiveCallable, self.receive), cast(ASGISendCallable, self.send)
        )


async def test_a_body_comes_in_parts_and_then_the_caller_leaves() -> None:
    """A message without its optional members is an empty last part."""
    caller = Server(part(b"{"), LAST, {"type": "http.request"}, GONE).caller()
    parts = [await caller.receive() for _ in range(3)]
    assert parts == [BodyPart(b"{", last=False), BodyPart(b"}", last=True), BodyPart(b"", True)]
    assert isinstance(await caller.receive(), Disconnected)


async def test_a_start_that_is_cancelled_has_not_begun() -> None:
    """So whoever comes after may still start an answer of its own."""
    server = Server(LAST)
    caller = server.caller()
    with trio.CancelScope() as scope:
        scope.cancel()
        await caller.start(200, [])
    assert not caller.started
    await caller.start(500, [])
    assert caller.started
    assert [each["status"] for each in server.sent] == [500]


async def test_an_answer_is_a_start_then_bytes_then_an_end(autojump_clock: MockClock) -> None:
    """When the caller's body is whole the end waits for nothing."""
    server = Server(LAST)
    caller = server.caller()
    await caller.receive()
    began = trio.current_time()
    await caller.start(200, [(b"a", b"b")])
    await caller.write(b"one")
    assert (caller.started, caller.ended) == (True, False)
    await caller.end(b"two")
    assert caller.ended
    assert trio.current_time() == began
    assert server.sent == [
        {"type": "http.response.start", "status": 200, "headers": [(b"a", b"b")]},
        {"type": "http.response.body", "body": b"one", "more_body": True},
        {"type": "http.response.body", "body": b"two", "more_body": False},
    ]


async def test_a_refusal_is_said_at_once_but_ended_when_the_caller_is_done(
    autojump_clock: MockClock,
) -> None:
    """The bytes go out before the wait, so that the caller can read them and stop."""
    server = Server(part(b"a"), part(b"b"), LAST, every=0.5)
    caller = server.caller()
    began = trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_received_within, trio.CancelScope(), caller)
        await caller.start(413, [])
        await caller.end(b"no")
        nursery.cancel_scope.cancel()
    assert trio.current_time() - began == 1.5
    assert [message.get("body") for message in server.sent] == [None, b"no", b""]
    assert [message.get("more_body") for message in server.sent] == [None, True, False]


async def test_a_caller_that_never_finishes_its_body_is_not_waited_for(
    autojump_clock: MockClock,
) -> None:
    """A moment, and no longer."""
    server = Server(*[part(b"a")] * 100, every=0.1)
    caller = server.caller()
    began = trio.current_time()
    await caller.start(413, [])
    await caller.end(b"no")
    assert trio.current_time() - began == LINGER_SECONDS
    assert server.sent[-1]["more_body"] is False


async def test_nobody_waits_for_the_body_of_a_caller_that_has_left(
    autojump_clock: MockClock,
) -> None:
    """A disconnect within the body ends it."""
    server = Server(part(b"a"), GONE)
    caller = server.caller()
    began = trio.current_time()
    await caller.end(b"no")
    assert trio.current_time() == began
    assert caller.ended


async def test_where_nobody_receives_any_more_the_end_does(autojump_clock: MockClock) -> None:
    """Whoever received was cancelled before, or is meanwhile: a caller that leaves is missed at once."""
    for cancelled_after in (0.0, 0.7):
        server = Server(part(b"a"), GONE, every=0.5)
        caller = server.caller()
        async with trio.open_nursery() as nursery:
            receiving = trio.CancelScope(deadline=trio.current_time() + cancelled_after)
            nursery.start_soon(_received_within, receiving, caller)
            await trio.testing.wait_all_tasks_blocked()
            began = trio.current_time()
            await caller.end(b"no")
            nursery.cancel_scope.cancel()
        assert trio.current_time() - began == pytest.approx(1.0 if not cancelled_after else 1.2)
        assert server.sent[-1] == {"type": "http.response.body", "body": b"", "more_body": False}


async def _received_within(scope: trio.CancelScope, caller: AsgiCaller) -> None:
    with scope:
        while True:
            await caller.receive()
