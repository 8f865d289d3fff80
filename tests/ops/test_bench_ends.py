"""Both ends of a stream: what is counted and compared, straight and through forwarders that do harm."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest

from ops import bench_ends
from ops.bench_ends import Ends, Stream, StreamLost

NAMES = ["one", "two", "three"]


@pytest.fixture
def ends() -> Iterator[Ends]:
    """The provider's listener, and all that is opened through it."""
    made = Ends()
    yield made
    made.close()


Change = Callable[[bytes], bytes]


def pump(source: socket.socket, target: socket.socket, change: Change) -> None:
    """Copies what `change` makes of every read, until that is nothing; then both are hung up on."""
    with suppress(OSError):
        while data := change(source.recv(65_536)):
            target.sendall(data)
    hang_up(source, target)


def hang_up(*sockets: socket.socket) -> None:
    """Whoever reads there sees the end."""
    for each in sockets:
        with suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)


@contextmanager
def forwarder(port: int, change: Change) -> Iterator[int]:
    """Forwards one connection after the other to a port, and changes what comes back. Its own port."""
    listener = socket.create_server(("127.0.0.1", 0))
    opened: list[socket.socket] = []
    threads: list[threading.Thread] = []

    def accept() -> None:
        with suppress(OSError):
            while True:
                caller, _ = listener.accept()
                provider = socket.create_connection(("127.0.0.1", port))
                opened.extend((caller, provider))
                for job in ((caller, provider, bytes), (provider, caller, change)):
                    threads.append(threading.Thread(target=pump, args=job))
                    threads[-1].start()

    threads.append(threading.Thread(target=accept))
    threads[0].start()
    try:
        yield listener.getsockname()[1]
    finally:
        hang_up(listener, *opened)
        for thread in threads:
            thread.join()
        for each in (listener, *opened):
            each.close()


def test_every_way_to_send_counts_its_chunks_and_loses_none(ends: Ends) -> None:
    """One after the other on the same streams; at the end every byte is there."""
    streams = ends.open(ends.port, "bench", NAMES)
    assert len(streams) == 3
    assert streams.lockstep(4) == 12
    assert streams.burst(2_000) == 6_000
    assert streams.paced(seconds=0.02, gap_seconds=0.005) == 12
    assert streams.lockstep(1) == 3
    streams.finish()
    assert streams.problems(verbatim=True) == []
    assert streams.problems(verbatim=False) == []


def test_each_stream_says_something_else(ends: Ends) -> None:
    """So that a chunk that went astray is noticed; and the same in the next run."""
    ends.open(ends.port, "bench", NAMES).lockstep(5)
    again = Stream("one", socket.socket())
    again.say(6)
    said = {tuple(each.said) for each in ends._open[0]._streams}
    assert len(said) == 3
    assert tuple(again.said) in said
    again.close()


def test_a_changed_text_is_wrong_and_changed_framing_only_where_every_byte_counts(
    ends: Ends,
) -> None:
    """A gateway may frame an answer anew, a copier may not."""
    with forwarder(ends.port, lambda data: data.replace(b"chatcmpl-7", b"chatcmpl-8")) as port:
        streams = ends.open(port, "bench", NAMES)
        streams.finish()
        assert streams.problems(verbatim=False) == []
        assert streams.problems(verbatim=True) == [
            f"{name}: not the provider's bytes" for name in NAMES
        ]
    with forwarder(ends.port, lambda data: data.replace(b"stop", b"halt")) as port:
        streams = ends.open(port, "bench", ["late"])
        streams.finish()
        assert streams.problems(verbatim=False) == ["late: finished as ['halt']"]


def test_a_stream_that_ends_too_early_is_lost(ends: Ends) -> None:
    """Nothing could be measured on it any more."""
    seen: list[bytes] = []

    def only_the_first(data: bytes) -> bytes:
        seen.append(data)
        return data if len(seen) == 1 else b""

    with forwarder(ends.port, only_the_first) as port:
        streams = ends.open(port, "bench", ["cut"])
        with pytest.raises(StreamLost, match="cut: ended before its provider did"):
            streams.lockstep(2)


def test_a_provider_that_was_hung_up_on_is_told(ends: Ends) -> None:
    """By the name of its stream."""
    streams = ends.open(ends.port, "bench", ["gone"])
    (stream,) = streams._streams
    stream.caller.shutdown(socket.SHUT_RDWR)
    stream.caller.close()
    for refused in (b"the first is answered with a reset", b"so that the next one fails"):
        with suppress(StreamLost):
            stream.send(refused)
    with pytest.raises(StreamLost, match="gone: its provider was hung up on"):
        stream.send(stream.say())
    streams._selector.close()


def test_an_answer_that_never_begins_is_a_lost_stream(ends: Ends) -> None:
    """A caller that got something else than it was sent, or nothing."""
    with (
        forwarder(ends.port, lambda _: b"HTTP/1.1 503 Busy\r\ncontent-length: 0\r\n\r\n") as port,
        pytest.raises(StreamLost, match="not the answer that was sent"),
    ):
        ends.open(port, "bench", ["busy"])


def test_silence_ends_when_patience_does(ends: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    """On open streams, and before an answer has begun."""
    monkeypatch.setattr(bench_ends, "PATIENCE_SECONDS", 0.05)
    streams = ends.open(ends.port, "bench", ["one"])
    with pytest.raises(StreamLost, match=r"nothing has come for 0\.05 s"):
        streams._receive(1)
    ends._listener.settimeout(0.05)
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        port = deaf.getsockname()[1]
        with pytest.raises(StreamLost, match="could not open 1 streams"):
            ends.open(port, "bench", ["two"])


def test_a_burst_that_nobody_takes_ends_too(ends: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    """When no end of any stream can be read or written."""
    monkeypatch.setattr(bench_ends, "PATIENCE_SECONDS", 0.05)
    streams = ends.open(ends.port, "bench", ["stuck"])
    (stream,) = streams._streams
    streams._selector.unregister(stream.caller)
    with pytest.raises(StreamLost, match="nothing has come or gone"):
        streams.burst(60_000)


def test_a_cut_request_is_a_lost_stream(ends: Ends) -> None:
    """The provider's end reads each to its end, in however many pieces it comes."""
    port = ends.port
    with forwarder(port, bytes) as other, socket.create_connection(("127.0.0.1", other)) as caller:
        caller.sendall(b"POST / HTTP/1.1\r\ncontent-le")
        caller.shutdown(socket.SHUT_WR)
        with pytest.raises(StreamLost, match="a request was cut"):
            ends._accept({})


def test_whoever_hangs_up_without_a_word_is_not_waited_for(ends: Ends) -> None:
    """The stream that comes behind it is the one that was asked for."""
    socket.create_connection(("127.0.0.1", ends.port)).close()
    streams = ends.open(ends.port, "bench", ["ours"])
    streams.finish()
    assert streams.problems(verbatim=True) == []


def test_chunks_are_counted_however_they_are_cut() -> None:
    """Once each, though their end is spread over reads."""
    here, there = socket.socketpair()
    here.setblocking(False)
    stream = Stream("pieces", here)
    counts = []
    for data in (
        b"a}",
        b"\n",
        b"\n\r\n",
        b"b}\n\nc}\n\n",
        b"\n\n: ping\n\n",
        b"}\n\n\r\n0\r\n\r\n",
    ):
        there.sendall(data)
        counts.append(stream.receive())
    assert counts == [0, 0, 1, 2, 0, 1]
    assert stream.over
    assert stream.receive() == 0
    there.close()
    stream.close()
