"""Answers that nothing here reads."""

from __future__ import annotations

import pytest

from gate.events import Complete, RawDelta
from gate.failure import Failure, FailureKind
from gate.relay import ERROR_BYTES_MAX, OpaqueBody, OpaqueBytes, OpaqueStream, StoredStream
from gate.sse import SseDecoder

PIECE = (RawDelta(),)


def test_an_event_with_a_payload_is_a_frame() -> None:
    """And progress; one without is none; only HTTP says that the stream is complete."""
    stream = OpaqueStream()
    step = stream.take(SseDecoder(event_bytes_max=99).feed(b"data: x\n\n: c\n\nevent: a\ndata: {}\n\n"))  # fmt: skip
    assert [(each.data, each.events, each.size) for each in step.frames] == [(b"x", PIECE, 9), (b"{}", PIECE, 19)]  # fmt: skip
    assert (step.progress, step.end, stream.complete) == (True, None, False)
    assert stream.take([]) == ([], False, None)
    assert stream.eof() == ([], False, Complete())


@pytest.mark.parametrize(
    ("raw", "kind"),
    [
        (b'data: {"error":{"code":429}}\n\n', FailureKind.RATE_LIMITED), (b"event: error\ndata: {}\n\n", FailureKind.UNAVAILABLE), (b"event: error\n\n", FailureKind.UNAVAILABLE),
        (b"error: x\n\n", FailureKind.UNAVAILABLE), (b'data: {"type":"error","code":"rate_limit"}\n\n', FailureKind.RATE_LIMITED),
    ],
)  # fmt: skip
def test_an_error_is_one(raw: bytes, kind: FailureKind) -> None:
    """What came before it in the same read is kept."""
    events = SseDecoder(event_bytes_max=99).feed(b"data: x\n\n" + raw)
    step = OpaqueStream().take(events)
    assert len(step.frames) == 1
    assert isinstance(step.end, Failure)
    assert step.end.kind is kind


@pytest.mark.parametrize(
    "data",
    [
        b'{"id":"b","error":{"code":500}}', b'{"data":[],"error":"x"}', b'{"error":null}', b"[]", b"{", b'{"error":"' + b"x" * ERROR_BYTES_MAX + b'"}', b"1",
    ],
)  # fmt: skip
def test_what_is_stored_may_have_an_error_of_its_own(data: bytes) -> None:
    """A batch that failed is a good answer to who asks for it; and no envelope is that large."""
    events = SseDecoder(event_bytes_max=1 << 20).feed(b"data: " + data + b"\n\n")
    assert OpaqueStream().take(events).end is None
    body = OpaqueBody()
    assert body.feed(data) == ([], False, None)
    step = body.eof()
    assert (step.end, [each.data for each in step.frames]) == (Complete(), [data])


def test_a_body_may_be_an_error_or_nothing() -> None:
    """A byte order mark hides neither."""
    body = OpaqueBody()
    body.feed(b'\xef\xbb\xbf{"error":{"code":500}}')
    assert body.eof().end == Failure(FailureKind.UNAVAILABLE, 500)
    assert body.eof() == ([], False, Failure(FailureKind.EMPTY))
    assert OpaqueBody(may_be_empty=True).eof() == ([], False, Complete())


def test_json_shows_its_own_end() -> None:
    """A close may have cut anything else; only what parses to its end has one."""
    for data, whole in ((b'\xef\xbb\xbf{"data":[1]}', True), (b'{"object":"list","mod', False), (b"12", False)):  # fmt: skip
        body = OpaqueBody()
        body.feed(data)
        assert (body.eof().end, body.ends_itself) == (Complete(), whole)
    assert not OpaqueBytes().ends_itself


def test_events_show_their_own_end_by_done() -> None:
    """As the last of them."""
    stream = OpaqueStream()
    seen = []
    for raw in (b"data: x\n\n", b"data: [DONE] \n\n", b": c\n\n", b"data: y\n\n"):
        stream.take(SseDecoder(event_bytes_max=99).feed(raw))
        seen.append(stream.ends_itself)
    assert seen == [False, True, True, False]


ENDS = [
    b'{"type":"response.completed","response":{"status":"completed"}}', b'{"type":"response.failed"}', b'{"type":"response.done","response":{"status":"cancelled"}}',
]  # fmt: skip


@pytest.mark.parametrize("last", ENDS)
def test_a_stored_response_is_told_to_its_end(last: bytes) -> None:
    """Whatever became of it; what comes behind is kept back with it, and no error there counts."""
    stream = StoredStream()
    begun = b'{"type":"response.created","response":{"status":"in_progress"}}'
    events = SseDecoder(event_bytes_max=999).feed(b"data: %b\n\n: c\n\ndata: [1]\n\n" % begun)
    step = stream.take(events)
    assert [frame.closing for frame in step.frames] == [False, False]
    assert (stream.complete, stream.eof().end, stream.ends_itself) == (False, Failure(FailureKind.MISSING_TERMINAL), False)  # fmt: skip
    raw = b'data: %b\n\ndata: {"error":{"code":500}}\n\ndata: [DONE]\n\n' % last
    step = stream.take(SseDecoder(event_bytes_max=999).feed(raw))
    assert [frame.closing for frame in step.frames] == [True, True]
    assert (step.progress, step.end, stream.complete, stream.ignored) == (True, None, True, 1)
    assert (stream.eof(), stream.ends_itself) == (([], False, Complete()), True)


def test_an_error_before_the_end_of_a_stored_response_is_one() -> None:
    """It is the provider's, not the response's."""
    raw = b'data: {}\n\ndata: {"error":{"code":500}}\n\n'
    step = StoredStream().take(SseDecoder(event_bytes_max=999).feed(raw))
    assert len(step.frames) == 1
    assert step.end == Failure(FailureKind.UNAVAILABLE, 500)


def test_bytes_pass_as_they_come() -> None:
    """None at all are an answer only where one may be empty."""
    body = OpaqueBytes()
    step = body.feed(b"\xff")
    assert [(each.raw, each.events, each.size) for each in step.frames] == [(b"\xff", PIECE, 1)]
    assert (step.progress, body.eof()) == (True, ([], False, Complete()))
    assert OpaqueBytes().eof().end == Failure(FailureKind.EMPTY)
    assert OpaqueBytes(may_be_empty=True).eof().end == Complete()
