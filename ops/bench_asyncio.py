"""A byte copier on asyncio, run by the bench in a process of its own: what it costs to stand between two sockets and do nothing.

It is the measure that figures are given against, and the only module of this project on another event loop than trio.
"""

from __future__ import annotations

import asyncio  # noqa: TID251 - what trio is measured beside
import sys
from typing import cast


class Copier(asyncio.Protocol):
    """One end: what it reads is written at its peer. Without a peer it is a caller's, and opens the way to the provider at `port`."""

    def __init__(self, port: int, peer: Copier | None = None) -> None:
        self.transport: asyncio.Transport | None = None
        self._port = port
        self._peer = peer
        self._early: list[bytes] = []  # read before the provider's end was there
        self._opening: asyncio.Task[object] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The end is open."""
        self.transport = cast(asyncio.Transport, transport)
        if self._peer is None:
            self._opening = asyncio.get_running_loop().create_task(self._open())

    async def _open(self) -> None:
        loop = asyncio.get_running_loop()
        _, peer = await loop.create_connection(
            lambda: Copier(self._port, self), "127.0.0.1", self._port
        )
        assert peer.transport is not None
        peer.transport.writelines(self._early)
        self._early.clear()
        self._peer = peer

    def data_received(self, data: bytes) -> None:
        """Bytes to copy."""
        if self._peer is None:
            self._early.append(data)
        elif self._peer.transport is not None:
            self._peer.transport.write(data)

    def pause_writing(self) -> None:
        """Whoever reads from here is slow: so is the other end, from now on."""
        if self._peer is not None and self._peer.transport is not None:
            self._peer.transport.pause_reading()

    def resume_writing(self) -> None:
        """It has caught up."""
        if self._peer is not None and self._peer.transport is not None:
            self._peer.transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        """One end is over, and with it the other."""
        if self._opening is not None:
            self._opening.cancel()
        if self._peer is not None and self._peer.transport is not None:
            self._peer.transport.close()


async def copy_for_ever(port: int) -> None:
    """Copies between callers and the provider at `port` of this machine; says where it listens."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Copier(port), "127.0.0.1", 0, backlog=4096)
    print(f"listening on http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(copy_for_ever(int(sys.argv[1])))
