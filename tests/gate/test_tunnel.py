"""Reading for a tunnel: the raw bytes of all frames are the body, wherever the network cuts; and how it ended is told as elsewhere."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gate.completions import PATH as COMPLETIONS
from gate.events import Complete, Finish, Frame, HowEnded, RawDelta, TextDelta
from gate.failure import Failure, FailureKind
from gate.ingress_responses import RESPONSES_PATH
from gate.model_echo import ModelEcho
from gate.reader import AnswerReader
from gate.relay import OpaqueBytes
from gate.tunnel import CHAT, TunnelBodyReader, TunnelStreamReader, is_watched, tunnel_reader
from tests.responding import answer, message, response
from tests.responding import event as response_event

SSE = b"text/event-stream; charset=utf-8"
ROLE = b'data: {"id":"c1","model":"m","choices":[{"index":0,"delta":{"role":"assistant"}}]}\n\n'
TEXT = b'data: {"id":"c1","model":"m","choices":[{"index":0,"delta":{"content":"hi"}}]}\n\n'
STOP = b'data: {"id":"c1","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
USAGE = b'data: {"id":"c1","choices":[],"usage":{"total_tokens":3}}\n\n'
ERROR = b'data: {"error":{"code":500}}\n\n'
DONE = b"data: [DONE]\n\n"
MARK = b"\xef\xbb\xbf"
CUT = Failure(FailureKind.CUT)
MALFORMED = Failure(FailureKind.MALFORMED)


def reader(
    endpoint: str = CHAT, kind: bytes = SSE, *, echo: bool = False, limit: int = 1 << 16, stream: bool = True, may_be_empty: bool = False
) -> AnswerReader:  # fmt: skip
    """For one choice."""
    nested = endpoint == RESPONSES_PATH
    made = tunnel_reader(
        endpoint,
        kind,
        echo=ModelEcho("small", nested=nested) if echo else None,
        choices=1,
        event_bytes_max=limit,
        body_bytes_max=limit,
        stream=stream,
        may_be_empty=may_be_empty,
    )
    assert made is not None
    return made


def read(pieces: Iterable[bytes], to: AnswerReader) -> tuple[list[Frame], HowEnded]:
    """Everything up to the end."""
    frames: list[Frame] = []
    for piece in pieces:
        step = to.feed(piece)
        frames += step.frames
        if step.end is not None:
            return frames, step.end
    step = to.eof()
    assert step.end is not None
    return frames + step.frames, step.end


def raw(frames: Iterable[Frame]) -> bytes:
    """What is relayed."""
    return b"".join(frame.raw for frame in frames)


@pytest.mark.parametrize(
    "data",
    [
        ROLE + TEXT + STOP + DONE, TEXT + STOP, b"\n\r\n" + b": c\n\n" + TEXT + b": d\r\r" + STOP + USAGE + b"\n\n" + DONE, TEXT + STOP + b": the rest\n\n\n", MARK + TEXT + STOP,
        (TEXT + STOP + DONE).replace(b"\n", b"\r\n"), (TEXT + STOP + DONE).replace(b"\n", b"\r"), TEXT + USAGE + DONE, TEXT + STOP[:-2],
        TEXT + STOP + b": half a comment", TEXT + STOP + DONE.strip(), TEXT + STOP + b": c\n\n" + DONE[:-1], b"event: x\n" + TEXT + b"id: 7\n" + STOP,
    ],
)  # fmt: skip
@pytest.mark.parametrize("size", [1, 2, 7, 1_000])
def test_all_bytes_of_a_complete_answer_are_relayed(data: bytes, size: int) -> None:
    """Whatever stands between the frames, and however the stream was cut."""
    pieces = [data[at : at + size] for at in range(0, len(data), size)]
    frames, end = read(pieces, reader())
    assert isinstance(end, Complete)
    assert raw(frames) == data
    assert any(frame.events for frame in frames)


@given(st.lists(st.sampled_from([ROLE, TEXT, STOP, USAGE, DONE, ERROR, b": c\n\n", b"\n", b"data: x\n\n", b"data:\n\n"]), max_size=8), st.sets(st.integers(0, 600), max_size=6))  # fmt: skip
def test_no_cut_makes_a_difference(blocks: list[bytes], cuts: set[int]) -> None:
    """Same bytes, same frames, same end; and what is relayed is a beginning of them, but for the name."""
    data = b"".join(blocks)
    marks = [0, *sorted(each for each in cuts if each < len(data)), len(data)]
    pieces = [data[a:b] for a, b in itertools.pairwise(marks) if a < b]
    assert read(pieces, reader(echo=True)) == read([data], reader(echo=True))
    frames, _ = read(pieces, reader(echo=True))
    assert data.replace(b'"m"', b'"small"').startswith(raw(frames))


@pytest.mark.parametrize(
    ("data", "end"),
    [
        (TEXT, Failure(FailureKind.MISSING_TERMINAL)), (TEXT + DONE, Failure(FailureKind.MISSING_TERMINAL)), (b"", Failure(FailureKind.EMPTY)), (TEXT + ERROR + DONE, Failure(FailureKind.UNAVAILABLE, 500)),
        (TEXT + b"data: <html>\n\n", MALFORMED), (TEXT + STOP.replace(b"stop", b"error"), Failure(FailureKind.FAILED_FINISH)),
    ],
)  # fmt: skip
def test_what_shows_that_an_answer_failed_is_not_relayed(data: bytes, end: Failure) -> None:
    """The frames before it are."""
    frames, ended = read([data + b": rest\n\n"], reader())
    assert (raw(frames), ended) == (TEXT if data else b"", end)


def test_what_would_have_been_a_failure_is_left_out_behind_completeness() -> None:
    """It makes no failure of a good answer, here or at the caller's."""
    for bad in (ERROR, b"data: <html>\n\n"):
        frames, end = read([TEXT + STOP + bad + USAGE + bad + DONE], reader())
        assert (raw(frames), end) == (TEXT + STOP + USAGE + DONE, Complete())


def test_behind_the_end_nothing_is_relayed() -> None:
    """But for the other half of its own line end."""
    for data, sent in (
        (TEXT + STOP + DONE + b"data: more\n\n", TEXT + STOP + DONE),
        ((TEXT + STOP + DONE + b"\n").replace(b"\n", b"\r\n"), (TEXT + STOP + DONE).replace(b"\n", b"\r\n")),
    ):  # fmt: skip
        frames, end = read([data], reader())
        assert (raw(frames), end) == (sent, Complete())
    early = (TEXT + STOP + DONE).replace(b"\n", b"\r")
    to = reader()
    assert to.feed(early).end is None
    assert to.complete
    assert to.feed(b"data: more\n\n") == ([], False, Complete())
    to = reader()
    assert to.feed(early).end is None
    assert to.eof() == ([], False, Complete())


def test_an_event_that_is_too_large_ends_it() -> None:
    """Behind completeness it is no failure; and comments without a frame are bounded likewise."""
    assert read([TEXT, b"data: " + b"x" * 200], reader(limit=150)) == (
        read([TEXT], reader(limit=150))[0],
        MALFORMED,
    )
    assert read([TEXT + STOP, b"data: " + b"x" * 200], reader(limit=150))[1] == Complete()
    assert read([TEXT + STOP + DONE + b"x" * 200], reader(limit=150))[1] == Complete()
    to = reader(limit=150)
    assert to.feed(b": " + b"x" * 100 + b"\n\n").end is None
    assert to.pending == 104
    assert to.feed(b": " + b"x" * 100 + b"\n\n").end == MALFORMED


def test_the_decoded_copy_is_watched() -> None:
    """With the events and the payload that the other path would see."""
    (frame,) = reader(echo=True).feed(TEXT).frames
    assert frame.events[0] == TextDelta(0, "hi")
    assert frame.data == TEXT[6:-2]
    assert frame.size == len(TEXT)
    assert frame.raw == TEXT.replace(b'"m"', b'"small"')
    completion = b'data: {"model":"m","choices":[{"text":"hi","finish_reason":"stop"}]}\n\n'
    (frame,) = reader(COMPLETIONS).feed(completion).frames
    assert frame.events == (TextDelta(0, "hi"), Finish(0, "stop", "stop"))
    (frame,) = reader("/v1/images/generations", echo=True).feed(TEXT).frames
    assert frame.events == (RawDelta(),)
    assert frame.raw == TEXT.replace(b'"m"', b'"small"')


@pytest.mark.parametrize("size", [1, 3, 10_000])
@pytest.mark.parametrize("rest", [b"", DONE, b": c\n\n", b"data: [DONE]\n", b"\n\n" + DONE])
def test_responses_are_relayed_to_the_end_of_their_stream(size: int, rest: bytes) -> None:
    """Renamed in every response object; `[DONE]` only where it came."""
    data = answer("He", "llo") + rest
    pieces = [data[at : at + size] for at in range(0, len(data), size)]
    frames, end = read(pieces, reader(RESPONSES_PATH, echo=True))
    assert (raw(frames), end) == (data.replace(b'"model":"big"', b'"model":"small"'), Complete())
    assert data.count(b'"model":"big"') == 3


def test_behind_the_last_event_of_a_response_nothing_else_is_relayed() -> None:
    """Neither an end that contradicts it, nor more of an answer."""
    failed = response_event("failed", response={"status": "failed"})
    more = response_event("output_text.delta", delta="more")
    frames, end = read([answer("Hi") + failed + more + b": c\n\n" + DONE + more], reader(RESPONSES_PATH))  # fmt: skip
    assert (raw(frames), end) == (answer("Hi") + b": c\n\n" + DONE, Complete())


def test_a_response_that_failed_is_not_relayed() -> None:
    """Whatever its event is called; nor is one that broke off complete."""
    began = answer("Hi").partition(b"event: response.output_text.done")[0]
    for bad in (
        response_event("failed", response={"status": "failed"}),
        response_event("completed", response={"status": "failed"}),
        response_event("error", code="x"),
        b"data: {\n\n",
    ):
        frames, end = read([began, bad], reader(RESPONSES_PATH))
        assert isinstance(end, Failure)
        assert raw(frames) == began
    assert read([began], reader(RESPONSES_PATH))[1] == Failure(FailureKind.MISSING_TERMINAL)
    assert read([began, DONE], reader(RESPONSES_PATH))[1] == Failure(FailureKind.MISSING_TERMINAL)


def test_a_response_object_is_one_frame() -> None:
    """Renamed once; one that failed or is no response is not relayed."""
    data = json.dumps(response("completed", message("hi"), text={"model": "big"})).encode()
    to = reader(RESPONSES_PATH, b"application/json", echo=True, stream=False)
    frames, end = read([data[:9], data[9:]], to)
    assert (raw(frames), end) == (
        data.replace(b'"model": "big"', b'"model": "small"', 1),
        Complete(),
    )
    assert (to.complete, len(frames)) == (True, 1)
    for bad in (response("failed"), {"error": {"code": 500}}, {"id": "x"}):
        to = reader(RESPONSES_PATH, b"application/json", stream=False)
        frames, end = read([json.dumps(bad).encode()], to)
        assert isinstance(end, Failure)
        assert frames == []


def body(said: str, endpoint: str = CHAT) -> bytes:
    """A whole answer."""
    choice = {"message": {"content": said}} if endpoint == CHAT else {"text": said}
    return json.dumps({"model": "m", "choices": [{**choice, "finish_reason": "stop"}]}).encode()


@pytest.mark.parametrize("endpoint", [CHAT, COMPLETIONS])
def test_a_body_is_one_frame(endpoint: str) -> None:
    """Renamed once, whole."""
    data = body("hi", endpoint)
    to = reader(endpoint, b"application/json", echo=True, stream=False)
    frames, end = read([data[:5], data[5:]], to)
    assert (raw(frames), end) == (data.replace(b'"m"', b'"small"'), Complete())
    assert len(frames) == 1
    assert TextDelta(0, "hi") in frames[0].events
    assert (to.complete, to.pending) == (True, 0)


def test_a_body_that_is_no_answer_is_not_relayed() -> None:
    """Empty, an error, cut, or too large."""
    json_type = b"application/json"
    for data, kind in (
        (b"", FailureKind.EMPTY),
        (b'{"error":{"code":500}}', FailureKind.UNAVAILABLE),
        (body("hi")[:-3], FailureKind.MALFORMED),
        (b"[]", FailureKind.MALFORMED),
    ):
        frames, end = read([data] if data else [], reader(kind=json_type, stream=False))
        assert isinstance(end, Failure)
        assert (raw(frames), end.kind) == (b"", kind)
    to = reader(kind=json_type, limit=10, stream=False)
    assert to.feed(b"x" * 6).end is None
    assert to.pending == 6
    assert to.feed(b"x" * 6).end == Failure(FailureKind.HELD_LIMIT)


def test_which_reader_an_answer_gets() -> None:
    """By endpoint and type; what is understood has to be of the type that was asked for."""
    known = [CHAT, COMPLETIONS, RESPONSES_PATH, "/v1/embeddings", "/v1/responses/compact"]
    assert [is_watched(each) for each in known] == [True, True, True, False, False]
    wrong = ((b"text/html", True), (b"", False), (b"application/json", True), (SSE, False))
    for endpoint, (kind, stream) in itertools.product(known[:3], wrong):
        assert tunnel_reader(endpoint, kind, echo=None, choices=1, event_bytes_max=9, body_bytes_max=9, stream=stream) is None  # fmt: skip
    assert isinstance(reader("/v1/files", b"application/problem+json"), TunnelBodyReader)
    assert isinstance(reader("/v1/files", b""), OpaqueBytes)
    assert isinstance(reader("/v1/files"), TunnelStreamReader)
    assert read([DONE], reader("/v1/files"))[1] == Complete()
    assert read([DONE], reader("/v1/responses/r"))[1] == Failure(FailureKind.MISSING_TERMINAL)
    for kind in (b"", b"application/json"):
        assert read([], reader("/v1/files", kind, may_be_empty=True))[1] == Complete()
        assert read([], reader("/v1/files", kind))[1] == Failure(FailureKind.EMPTY)
