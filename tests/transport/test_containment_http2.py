"""`transport.containment` under HTTP/2, where many requests share one connection: what becomes of one is nothing to the others, and nobody waits for what can't come."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import h2.events
import pytest
import trio
import trio.testing
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.settings import SettingCodes
from hypercorn.config import Config
from hypercorn.events import Event, RawData
from hypercorn.protocol.h2 import H2Protocol
from hypercorn.trio.task_group import TaskGroup
from hypercorn.trio.tcp_server import TCPServer
from hypercorn.trio.worker_context import WorkerContext
from hypercorn.typing import ConnectionState

from ops.chaos.pipes import connected
from ops.provider import running_provider
from ops.provider_script import Attempt, Ending, Pace, Script
from tests.transport.edge import CHAT, eventually, question, running_edge, write_config
from tests.transport.test_edges_caller import Http2
from transport.containment import contained

BRISK: Final = Script(pace=Pace(chunk_ms=5))
MUTE: Final = Script(attempts=(Attempt((Ending.STALL,)),))
TOO_LARGE: Final = str(64 * 2**20)


def fields(length: str, *, path: str = CHAT) -> list[tuple[str, str]]:
    """Of a request whose body is said to have so many bytes."""
    named = {":method": "POST", ":path": path, ":scheme": "http", ":authority": "gate"}
    return [*named.items(), ("content-length", length)]


async def test_a_body_behind_a_refusal_hurts_no_other_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second request is refused by its head, and its body comes when nobody waits for it any more."""
    monkeypatch.setattr("transport.caller.LINGER_SECONDS", 0.001)
    async with running_provider(BRISK) as provider:
        path = write_config(tmp_path, provider.base_url)
        async with running_edge(path) as edge, await edge.connect() as stream:
            caller = Http2(stream)
            whole = await caller.ask(question())
            refused = caller.connection.get_next_available_stream_id()
            caller.connection.send_headers(refused, fields(TOO_LARGE))
            await caller.flush()
            with trio.fail_after(10):
                while refused not in caller.ends:
                    await caller.read()
                assert whole not in caller.ends
                caller.connection.send_data(refused, b"x" * 10_000)
                await caller.flush()
                while whole not in caller.ends:
                    await caller.read()
    assert b"data: [DONE]" in caller.body
    assert caller.resets == []


async def test_a_caller_who_leaves_before_its_refusal_is_sent_leaves_nothing_behind(
    tmp_path: Path,
) -> None:
    """Its window is closed, so that the refusal waits for it."""
    async with running_provider(BRISK) as provider:
        path = write_config(tmp_path, provider.base_url)
        async with running_edge(path) as edge:
            await trio.testing.wait_all_tasks_blocked(0.01)
            before = trio.lowlevel.current_statistics().tasks_living
            async with await edge.connect() as stream:
                caller = Http2(stream)
                caller.connection.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: 0})
                number = caller.connection.get_next_available_stream_id()
                caller.connection.send_headers(number, fields(TOO_LARGE))
                await caller.flush()
                with trio.fail_after(10):
                    while not caller.status:
                        await caller.read()
                assert (caller.status, caller.body) == (b"413", b"")
            await eventually(lambda: trio.lowlevel.current_statistics().tasks_living == before)


async def test_a_connection_whose_last_request_was_reset_is_idle(tmp_path: Path) -> None:
    """It is closed like any other, and remembers nothing of the request."""
    async with running_provider(MUTE) as provider:
        path = write_config(tmp_path, provider.base_url)
        async with running_edge(path, idle_seconds=0.2) as edge, await edge.connect() as stream:
            caller = Http2(stream)
            number = await caller.ask(question())
            await provider.stats.wait_until(lambda: len(provider.requests) == 1)
            [protocol] = [each for each in gc.get_objects() if isinstance(each, H2Protocol) and not each.closed]  # fmt: skip
            assert list(protocol.stream_buffers) == [number]
            caller.connection.reset_stream(number, ErrorCodes.CANCEL)
            await caller.flush()
            with trio.fail_after(5):
                while await stream.receive_some():
                    pass
            assert (protocol.streams, protocol.stream_buffers) == ({}, {})


async def answers_of(*, stopped: bool) -> Sequence[h2.events.Event]:
    """What a server says at once to a request with its body in one read."""
    sent, context = bytearray(), WorkerContext(None)
    if stopped:
        await context.terminated.set()

    async def send(event: Event) -> None:  # noqa: ASYNC124 - as the server calls it
        if isinstance(event, RawData):
            sent.extend(event.data)

    async def app(*_: object) -> None:
        await trio.sleep_forever()

    caller = H2Connection(H2Configuration())
    caller.initiate_connection()
    caller.send_headers(1, fields("5"))
    caller.send_data(1, b"hello", end_stream=True)
    async with TaskGroup() as group:
        protocol = H2Protocol(
            app, Config(), context, group, ConnectionState({}), False, None, None, send  # type: ignore[arg-type]
        )  # fmt: skip
        await protocol.initiate()
        await protocol.handle(RawData(caller.data_to_send()))
        assert (1 in protocol.streams) != stopped
        group._nursery.cancel_scope.cancel()  # type: ignore[union-attr]
    return caller.receive_data(bytes(sent))


async def test_what_comes_when_the_service_stops_is_refused_as_not_begun() -> None:
    """A client may send it again to somebody else; one that comes before that is served."""
    with contained(lambda _: None):
        said = await answers_of(stopped=True)
        [reset] = [each for each in said if isinstance(each, h2.events.StreamReset)]
        assert (reset.stream_id, reset.error_code) == (1, ErrorCodes.REFUSED_STREAM)
        said = await answers_of(stopped=False)
        assert not [each for each in said if isinstance(each, h2.events.StreamReset)]


async def test_a_write_that_meets_the_close_is_a_write_to_one_who_has_left() -> None:
    """And no exception of the application's."""
    near, far = connected(1_000)
    events: list[Event] = []

    class Told:
        async def handle(self, event: Event) -> None:
            events.append(event)

    with contained(lambda _: None):
        server = TCPServer(None, Config(), WorkerContext(None), ConnectionState({}), near)  # type: ignore[arg-type]
        server.protocol = Told()  # type: ignore[assignment]
        near._sending = True  # as while its end is being sent
        await server.protocol_send(RawData(b"late"))
    assert [type(each).__name__ for each in events] == ["Closed"]
    near.close()
    far.close()
