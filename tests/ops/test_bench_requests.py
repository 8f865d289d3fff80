"""Requests without a stream: asked, answered and compared in one thread."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from ops import bench_requests
from ops.bench_answer import json_answer
from ops.bench_ends import StreamLost
from ops.bench_requests import Desk


@pytest.fixture
def desk() -> Iterator[Desk]:
    """A provider and its callers."""
    made = Desk()
    yield made
    made.close()


def test_every_request_is_answered_on_the_same_connection(desk: Desk) -> None:
    """Each caller has its own."""
    first, second = (desk.caller(desk.port, "bench", name) for name in ("first", "second"))
    assert first.ask(3) == 3
    assert second.ask(1) == 1
    assert first.ask(2) == 2
    assert first.problems == second.problems == []
    assert len(desk._read) == 2


def test_another_answer_is_a_problem_of_its_caller(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once for each."""
    monkeypatch.setattr(bench_requests, "json_answer", lambda _: json_answer("something else"))
    caller = desk.caller(desk.port, "bench", "wronged")
    caller.ask(2)
    assert caller.problems == ["wronged: another answer"] * 2


def test_a_caller_that_is_hung_up_on_is_lost(desk: Desk) -> None:
    """Before its answer."""
    with socket.create_server(("127.0.0.1", 0)) as rude:
        caller = desk.caller(rude.getsockname()[1], "bench", "gone")
        rude.accept()[0].close()
        with pytest.raises((StreamLost, ConnectionError)):
            caller.ask(1)


def test_a_provider_that_is_hung_up_on_says_so(desk: Desk) -> None:
    """An end is an end, a reset is a loss; a piece of a request is waited for."""
    caller = desk.caller(desk.port, "bench", "one")
    with socket.create_connection(("127.0.0.1", desk.port)) as other:
        other.sendall(b"POST / HTTP/1.1\r\ncontent-length: 5\r\n\r\n12")
        assert caller.ask(1) == 1
    assert caller.ask(1) == 1
    other = socket.create_connection(("127.0.0.1", desk.port))
    assert caller.ask(1) == 1
    other.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    other.close()
    with pytest.raises(StreamLost, match="the provider was hung up on"):
        caller.ask(1)


def test_silence_ends_when_patience_does(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nobody answers."""
    monkeypatch.setattr(bench_requests, "PATIENCE_SECONDS", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        caller = desk.caller(deaf.getsockname()[1], "bench", "waiting")
        with pytest.raises(StreamLost, match=r"nothing has come for 0\.05 s"):
            caller.ask(1)
