"""A response is read as HTTP says, whole or not."""

from __future__ import annotations

import pytest

from ops.chaos.responses import Response, request_bytes

CHUNKED = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
)


def fed(*pieces: bytes) -> Response:
    """What came of these reads."""
    response = Response()
    for piece in pieces:
        response.feed(piece)
    return response


def test_a_chunked_body_is_whole_at_its_last_chunk() -> None:
    """And what follows is not part of it."""
    response = fed(b"HTTP/1.1 100 Continue\r\n\r\n", CHUNKED, b"3\r\nabc\r\n0\r\n\r\nHTTP")
    response.feed(b"/1.1")
    assert (response.status, bytes(response.body), response.whole) == (200, b"abc", True)
    assert response.rest == b"HTTP/1.1"
    assert response.streamed
    assert not response.closes


@pytest.mark.parametrize("length", [40, 90, len(CHUNKED), len(CHUNKED) + 5])
def test_an_end_in_the_middle_is_a_cut(length: int) -> None:
    """Wherever it is."""
    response = fed((CHUNKED + b"3\r\nabc\r\n")[:length], b"")
    assert response.over
    assert not response.whole
    assert not response.broken


def test_what_is_no_http_is_said() -> None:
    """It is no cut."""
    response = fed(b"data: hello\n\n\r\n\r\n")
    assert response.broken
    assert not response.whole


def test_an_object_is_read_and_told() -> None:
    """Its text, and whether the connection goes on."""
    body = b'{"choices":[{"index":0,"message":{"role":"assistant","content":"Hi"},"finish_reason":"stop"}]}'
    head = b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
    response = fed(head % len(body), body)
    assert response.read().text == "Hi"
    assert response.closes
    assert "status 200, whole" in " ".join(response.told())


def test_a_request_says_how_long_its_body_is() -> None:
    """And carries what else it is given."""
    head = request_bytes(7, "x-request-id: a")
    assert head.endswith(b"content-length: 7\r\nx-request-id: a\r\n\r\n")
