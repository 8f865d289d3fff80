"""Requests without a stream, one after the other on one connection: what an exchange costs by itself."""

from __future__ import annotations

import selectors
import socket
from collections.abc import Callable
from typing import Final

from ops.bench_answer import body_of, json_answer, json_problem_of, request_for
from ops.bench_ends import PATIENCE_SECONDS, READ_BYTES, StreamLost

TEXT: Final = "The tide is in, and every boat is at its place."


class Desk:
    """A provider that answers each request with the same JSON, on connections that stay open, and the callers that ask it through something."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port: int = self._listener.getsockname()[1]
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ, self._accept)
        self._open: list[socket.socket] = [self._listener]
        self._read: dict[socket.socket, bytes] = {}

    def caller(self, port: int, model: str, name: str) -> Caller:
        """A caller with a connection of its own to 127.0.0.1:`port`."""
        connection = self._kept(socket.create_connection(("127.0.0.1", port)))
        return Caller(self, connection, model, name)

    def wait(self, caller: socket.socket) -> bytes:
        """Answers whatever is asked, until `caller` has got something: the bytes, b"" at its end. Raises `StreamLost`."""
        self._selector.register(caller, selectors.EVENT_READ)
        try:
            while True:
                ready = self._selector.select(PATIENCE_SECONDS)
                if not ready:
                    raise StreamLost(f"nothing has come for {PATIENCE_SECONDS:g} s")
                for key, _ in ready:
                    if key.fileobj is not caller:
                        self._serve(key.data)
                if any(key.fileobj is caller for key, _ in ready):
                    return caller.recv(READ_BYTES)
        finally:
            self._selector.unregister(caller)

    def close(self) -> None:
        """Closes every connection."""
        self._selector.close()
        for each in self._open:
            each.close()

    def _serve(self, act: Callable[[], None]) -> None:
        try:
            act()
        except ConnectionError as error:
            raise StreamLost("the provider was hung up on") from error

    def _kept(self, connection: socket.socket) -> socket.socket:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._open.append(connection)
        return connection

    def _accept(self) -> None:
        provider = self._kept(self._listener.accept()[0])
        self._read[provider] = b""
        self._selector.register(provider, selectors.EVENT_READ, lambda: self._answer(provider))

    def _answer(self, provider: socket.socket) -> None:
        data = provider.recv(READ_BYTES)
        if not data:
            self._selector.unregister(provider)
            return
        self._read[provider] += data
        if body_of(self._read[provider]) is not None:
            self._read[provider] = b""
            provider.sendall(json_answer(TEXT))


class Caller:
    """One caller: it asks, and looks at what it gets."""

    def __init__(self, desk: Desk, connection: socket.socket, model: str, name: str) -> None:
        self.name = name
        self.problems: list[str] = []
        self._desk = desk
        self._connection = connection
        self._request = request_for(model, name, stream=False)

    def ask(self, times: int) -> int:
        """Asks so many times, one after the other; how often. Raises `StreamLost`."""
        for _ in range(times):
            self._connection.sendall(self._request)
            received = b""
            while body_of(received) is None:
                data = self._desk.wait(self._connection)
                if not data:
                    raise StreamLost(f"{self.name}: hung up")
                received += data
            problem = json_problem_of(received, TEXT)
            if problem:
                self.problems.append(f"{self.name}: {problem}")
        return times
