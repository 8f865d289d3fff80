"""Both ends of every stream, the caller's and the provider's, in one thread: a step is over when its last byte has arrived.

    caller's end ──request──► whatever is measured ──request──► provider's end
                 ◄──chunks───                      ◄──chunks───

Nothing here is clever: what this process spends is not measured, and what it sends and gets is kept, to be compared at the end.
"""

from __future__ import annotations

import random
import selectors
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Final

from ops.bench_answer import (
    END,
    HEAD,
    START,
    body_of,
    chunk_of,
    name_in,
    problem_of,
    request_for,
    words,
)

PATIENCE_SECONDS: Final = 30.0  # without a byte; then something hangs
READ_BYTES: Final = 262_144
WRITE_BYTES: Final = 65_536
OPENED_TOGETHER: Final = 64
EVENT_END: Final = b"}\n\n"  # of a chunk; a comment ends otherwise
LAST_CHUNK: Final = b"0\r\n\r\n"


class StreamLost(Exception):
    """A stream has stopped or could not be opened, so that nothing can be measured on it any more."""


class Stream:
    """One answer on its way: the sockets at both its ends, what was said, and what has come."""

    def __init__(self, name: str, caller: socket.socket) -> None:
        self.name = name
        self.caller = caller
        self.provider: socket.socket | None = None
        self.sent: list[bytes] = []
        self.said: list[str] = []
        self.received: list[bytes] = []
        self.over = False
        self._words = words(random.Random(name))  # noqa: S311 - the same text in every run
        self._tail = b""

    def say(self, count: int = 1) -> bytes:
        """The bytes of the next chunks, a word each; not sent yet."""
        said = [next(self._words) for _ in range(count)]
        self.said += said
        data = b"".join(map(chunk_of, said))
        self.sent.append(data)
        return data

    def write(self, data: bytes | memoryview) -> int:
        """Writes at the provider's end what there is room for; how many bytes. Raises `StreamLost` where nobody reads there any more."""
        assert self.provider is not None
        try:
            return self.provider.send(data)
        except BlockingIOError:
            return 0
        except ConnectionError as error:
            raise StreamLost(f"{self.name}: its provider was hung up on") from error

    def send(self, data: bytes) -> None:
        """Writes a chunk, for which there is always room. Raises `StreamLost`."""
        if self.write(data) != len(data):
            raise StreamLost(f"{self.name}: no room for one chunk")

    def receive(self) -> int:
        """Reads what has come to the caller's end; how many chunks of the answer ended in it."""
        try:
            data = self.caller.recv(READ_BYTES)
        except BlockingIOError:
            return 0
        except ConnectionError:
            data = b""
        if not data:
            self.over = True
            return 0
        self.received.append(data)
        near, counted = self._tail + data, self._tail.count(EVENT_END)
        self._tail = near[1 - len(LAST_CHUNK) :]
        self.over = near.endswith(LAST_CHUNK)
        return near.count(EVENT_END) - counted

    @property
    def begun(self) -> bool:
        """Whether the first word has come, with its chunk's end."""
        return EVENT_END in b"".join(self.received).partition(self.said[0].encode())[2]

    def problem(self, *, verbatim: bool) -> str:
        """What is wrong with what has come ("" if nothing is). `verbatim`: every byte has to be the provider's."""
        received, sent = b"".join(self.received), b"".join(self.sent)
        if verbatim and received != sent:
            return f"{self.name}: not the provider's bytes"
        found = problem_of(received, "".join(self.said))
        return f"{self.name}: {found}" if found else ""

    def close(self) -> None:
        """Closes both ends."""
        self.caller.close()
        if self.provider is not None:
            self.provider.close()


class Streams:
    """Streams that are open at the same time through one subject, and what can be done with them."""

    def __init__(self, streams: Sequence[Stream]) -> None:
        self._streams = streams
        self._selector = selectors.DefaultSelector()
        for each in streams:
            self._selector.register(each.caller, selectors.EVENT_READ, each)

    def __len__(self) -> int:
        return len(self._streams)

    def lockstep(self, steps: int) -> int:
        """Each step: one chunk on every stream; the next when all have arrived. How many chunks."""
        for _ in range(steps):
            for each in self._streams:
                each.send(each.say())
            self._receive(len(self._streams))
        return steps * len(self._streams)

    def paced(self, seconds: float, gap_seconds: float) -> int:
        """One chunk per stream and gap, each stream at its own moment in it. How many chunks."""
        streams = self._streams
        count = max(1, round(seconds / gap_seconds)) * len(streams)
        apart, began = gap_seconds / len(streams), time.monotonic()
        sent = arrived = 0
        while sent < count:
            wait = began + sent * apart - time.monotonic()
            if wait > 0:
                time.sleep(wait)
            while sent < count and began + sent * apart <= time.monotonic():
                each = streams[sent % len(streams)]
                each.send(each.say())
                sent += 1
            arrived += self._receive_ready(0)
        self._receive(count - arrived)
        return count

    def burst(self, chunks: int) -> int:
        """So many chunks on every stream as fast as they are taken; over when all have arrived. How many chunks."""
        unsent = {each: memoryview(each.say(chunks)) for each in self._streams}
        expected = chunks * len(unsent)
        with self._writing(unsent):
            while expected > 0:
                expected -= self._exchange(unsent)
        return chunks * len(self._streams)

    def finish(self) -> None:
        """The provider ends every answer in order, and hangs up; over when every caller has seen an end of some kind."""
        for each in self._streams:
            each.sent.append(END)
            each.send(END)
            if each.provider is not None:
                each.provider.close()
        while not all(each.over for each in self._streams):
            self._receive_ready(PATIENCE_SECONDS)

    def problems(self, *, verbatim: bool) -> list[str]:
        """What is wrong with the streams, after `finish`."""
        return [what for each in self._streams if (what := each.problem(verbatim=verbatim))]

    def close(self) -> None:
        """Closes everything, ended or not."""
        self._selector.close()
        for each in self._streams:
            each.close()

    # ---- what comes ------------------------------------------------------------------------------

    def _receive(self, chunks: int) -> None:
        """Until so many chunks have come."""
        while chunks > 0:
            chunks -= self._receive_ready(PATIENCE_SECONDS)

    def _receive_ready(self, wait: float) -> int:
        ready = self._selector.select(wait)
        if not ready and wait:
            raise StreamLost(f"nothing has come for {PATIENCE_SECONDS:g} s")
        return sum(self._receive_one(key.data) for key, _ in ready)

    def _receive_one(self, stream: Stream) -> int:
        chunks = stream.receive()
        if stream.over:
            self._selector.unregister(stream.caller)
            # The end is expected, and awaited, where there is no provider's end any more.
            if stream.provider is not None and stream.provider.fileno() >= 0:
                raise StreamLost(f"{stream.name}: ended before its provider did")
        return chunks

    @contextmanager
    def _writing(self, streams: dict[Stream, memoryview]) -> Iterator[None]:
        for each in streams:
            assert each.provider is not None
            self._selector.register(each.provider, selectors.EVENT_WRITE, each)
        try:
            yield
        finally:
            for each in streams:
                assert each.provider is not None
                with suppress(KeyError):
                    self._selector.unregister(each.provider)

    def _exchange(self, unsent: dict[Stream, memoryview]) -> int:
        """Writes and reads what can be now; how many chunks have come."""
        ready = self._selector.select(PATIENCE_SECONDS)
        if not ready:
            raise StreamLost(f"nothing has come or gone for {PATIENCE_SECONDS:g} s")
        chunks = 0
        for key, _ in ready:
            stream = key.data
            if key.fileobj is stream.caller:
                chunks += self._receive_one(stream)
                continue
            rest = unsent[stream]
            unsent[stream] = rest[stream.write(rest[:WRITE_BYTES]) :]
            if not unsent[stream]:
                self._selector.unregister(key.fileobj)
        return chunks


class Ends:
    """The provider's listener, and the streams that are opened through whatever forwards to it."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=4096)
        self._listener.settimeout(PATIENCE_SECONDS)
        self.port: int = self._listener.getsockname()[1]
        self._open: list[Streams] = []

    def open(self, port: int, model: str, names: Sequence[str]) -> Streams:
        """Opens a stream per name through 127.0.0.1:`port`; returns when each caller has its first chunk. Raises `StreamLost`."""
        opened: list[Stream] = []
        try:
            with ExitStack() as closing:
                closing.callback(_close, opened)
                for start in range(0, len(names), OPENED_TOGETHER):
                    self._open_some(port, model, names[start : start + OPENED_TOGETHER], opened)
                closing.pop_all()
        except OSError as error:
            raise StreamLost(f"could not open {len(names)} streams: {error}") from error
        streams = Streams(opened)
        self._open.append(streams)
        return streams

    def close(self) -> None:
        """Closes the listener and every stream."""
        self._listener.close()
        for each in self._open:
            each.close()

    def _open_some(self, port: int, model: str, names: Sequence[str], opened: list[Stream]) -> None:
        asked: dict[str, Stream] = {}
        for name in names:
            caller = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_SECONDS)
            caller.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            asked[name] = Stream(name, caller)
            opened.append(asked[name])
            caller.sendall(request_for(model, name))
        for _ in names:
            self._accept(asked)
        for each in asked.values():
            while not each.begun:
                each.receive()
                if each.over:
                    raise StreamLost(f"{each.name}: not the answer that was sent")
            each.caller.setblocking(False)

    def _accept(self, asked: dict[str, Stream]) -> None:
        provider, name = self._request()
        while not name:  # whoever hangs up without a word is none of ours: a port that was somebody else's before
            provider.close()
            provider, name = self._request()
        stream = asked[name]
        stream.provider = provider
        provider.setblocking(False)
        stream.sent += [HEAD, START]
        first = HEAD + START + stream.say()
        stream.send(first)

    def _request(self) -> tuple[socket.socket, str]:
        """The next connection, and the name in its request; "" if there was none."""
        provider, _ = self._listener.accept()
        provider.settimeout(PATIENCE_SECONDS)
        provider.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            return provider, _name_in(provider)
        except BaseException:
            provider.close()
            raise


def _close(streams: Sequence[Stream]) -> None:
    for each in streams:
        each.close()


def _name_in(provider: socket.socket) -> str:
    """Reads a whole request; the name of its stream, which is all that its user says; "" where nothing comes at all."""
    data = b""
    while (body := body_of(data)) is None:
        part = provider.recv(READ_BYTES)
        if not part and not data:
            return ""
        if not part:
            raise StreamLost("a request was cut")
        data += part
    return name_in(body)
