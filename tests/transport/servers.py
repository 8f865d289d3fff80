"""Scripted servers for the transport tests: the far end of in-memory wires, and of loopback sockets."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from functools import partial

import trio
import trio.testing

from transport.pool import Wire

MemoryEnd = trio.StapledStream[trio.testing.MemorySendStream, trio.testing.MemoryReceiveStream]
Script = Callable[[MemoryEnd], Awaitable[None]]
Handler = Callable[[trio.SocketStream], Awaitable[None]]


class MemoryNet:
    """A `Connect` without sockets: counts its wires, and gives their far ends to scripts, one script per connection."""

    def __init__(self) -> None:
        self.opened = 0
        self.open = 0
        self.stale = False  # what idle wires say of themselves
        self._arrivals, self._accepted = trio.open_memory_channel[MemoryEnd](64)

    async def __call__(self, host: str, port: int, tls: bool) -> Wire:
        await trio.lowlevel.checkpoint()
        client, server = trio.testing.memory_stream_pair()
        self._arrivals.send_nowait(server)
        self.opened += 1
        self.open += 1

        def close() -> None:
            self.open -= 1
            client.send_stream.close()
            client.receive_stream.close()

        return Wire(client, client.receive_some, close, lambda: self.stale)

    async def serve(
        self, *scripts: Script, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """One after the other; a client that leaves ends a script early."""
        task_status.started()
        for script in scripts:
            stream = await self._accepted.receive()
            try:
                await script(stream)
            except (EOFError, trio.BrokenResourceError):
                continue


def answers(*responses: bytes | Iterable[bytes], close: bool = False) -> Script:
    """A script: for each response it reads a request, then sends the pieces so that each is one read of the client's."""

    async def script(stream: MemoryEnd) -> None:
        for response in responses:
            await read_request(stream)
            for piece in [response] if isinstance(response, bytes) else response:
                await stream.send_all(piece)
                await trio.testing.wait_all_tasks_blocked()
        if close:
            await stream.aclose()

    return script


async def read_request(stream: trio.abc.ReceiveStream) -> bytes:
    """One request, to the end of its body."""
    data = b""
    while b"\r\n\r\n" not in data:
        data += await _more(stream)
    head, _, body = data.partition(b"\r\n\r\n")
    fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:])
    while len(body) < int(fields.get(b"content-length", b"0")):
        body += await _more(stream)
    return head + b"\r\n\r\n" + body


async def _more(stream: trio.abc.ReceiveStream) -> bytes:
    data = await stream.receive_some()
    if not data:
        raise EOFError("the client left in the middle of a request")
    return bytes(data)


async def read_to_end(stream: trio.abc.ReceiveStream) -> None:
    """Waits for the client's FIN or RST."""
    try:
        while await stream.receive_some():
            pass
    except trio.BrokenResourceError:
        pass


@asynccontextmanager
async def loopback(handler: Handler, *, host: str = "127.0.0.1") -> AsyncIterator[int]:
    """A server on loopback; yields its port."""

    async def handle(stream: trio.SocketStream) -> None:
        with stream.socket:
            await handler(stream)

    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(partial(trio.serve_tcp, handle, 0, host=host))
        yield listeners[0].socket.getsockname()[1]
        nursery.cancel_scope.cancel()


class CancelAtStep(trio.abc.Instrument):
    """Cancels a scope before the k-th step of the task that made this."""

    def __init__(self, scope: trio.CancelScope, step: int) -> None:
        self._task = trio.lowlevel.current_task()
        self._scope = scope
        self._left = step

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        if task is self._task:
            self._left -= 1
            if self._left == 0:
                self._scope.cancel()
