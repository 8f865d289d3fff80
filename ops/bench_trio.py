"""A byte copier on trio, run by the bench in a process of its own: two tasks per connection, and no HTTP."""

from __future__ import annotations

import sys
from functools import partial
from typing import Final

import trio

READ_BYTES: Final = 65_536


async def _copy(
    source: trio.SocketStream, target: trio.SocketStream, scope: trio.CancelScope
) -> None:
    try:
        while data := await source.receive_some(READ_BYTES):
            await target.send_all(data)
    except trio.BrokenResourceError:
        pass  # one end is over, and with it the other
    scope.cancel()


async def _between(port: int, caller: trio.SocketStream) -> None:
    provider = await trio.open_tcp_stream("127.0.0.1", port)
    async with caller, provider, trio.open_nursery() as nursery:
        nursery.start_soon(_copy, caller, provider, nursery.cancel_scope)
        nursery.start_soon(_copy, provider, caller, nursery.cancel_scope)


async def copy_for_ever(port: int) -> None:
    """Copies between callers and the provider at `port` of this machine; says where it listens."""
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1", backlog=4096)
    print(f"listening on http://127.0.0.1:{listeners[0].socket.getsockname()[1]}", flush=True)
    await trio.serve_listeners(partial(_between, port), listeners)


if __name__ == "__main__":
    trio.run(copy_for_ever, int(sys.argv[1]))
