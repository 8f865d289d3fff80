"""The bench's request and answer, and what it notices about an answer that has come."""

from __future__ import annotations

import json
import random
from itertools import islice, pairwise

import pytest

from ops.bench_answer import (
    END,
    HEAD,
    START,
    body_of,
    chunk_of,
    event_of,
    http_chunk,
    json_answer,
    json_problem_of,
    name_in,
    problem_of,
    request_for,
    words,
)

TEXT = " ebb and flood"
GOOD = HEAD + START + chunk_of(" ebb") + chunk_of(" and flood") + END
STOPPED = http_chunk(event_of(b"{}", b'"stop"'))
DONE = http_chunk(b"data: [DONE]\n\n")


def test_a_request_asks_for_a_stream_in_its_name() -> None:
    """The body is as long as the head says."""
    head, _, body = request_for("bench", "stream 7").partition(b"\r\n\r\n")
    assert b"content-length: %d" % len(body) in head
    assert json.loads(body) == {
        "model": "bench",
        "stream": True,
        "messages": [{"role": "user", "content": "stream 7"}],
    }


def test_a_request_is_read_when_it_is_whole() -> None:
    """Its name is found whatever the gateway has put in front of it."""
    whole = request_for("bench", "stream 7", stream=False)
    assert [body_of(whole[:at]) for at in (0, 20, len(whole) - 1)] == [None] * 3
    body = body_of(whole)
    assert body is not None
    assert json.loads(body)["stream"] is False
    assert name_in(body) == "stream 7"
    assert body_of(b"GET / HTTP/1.1\r\nhost: bench\r\n\r\n") is None


@pytest.mark.parametrize(
    ("received", "problem"),
    [
        (json_answer("Yes."), ""),
        (json_answer("No."), "another answer"),
        (json_answer("Yes.").replace(b"stop", b"halt"), "another answer"),
        (json_answer("Yes.").replace(b"200 OK", b"502 No"), "not answered with 200"),
        (json_answer("Yes.").replace(b'"choices"', b'"voices!"'), "no answer"),
        (json_answer("Yes.")[:-1], "no answer"),
    ],
)
def test_what_is_wrong_with_an_answer_that_is_no_stream(received: bytes, problem: str) -> None:
    """Text and finish are compared."""
    assert json_problem_of(received, "Yes.") == problem


def test_words_are_the_same_for_the_same_seed_and_hardly_repeat() -> None:
    """A loop would be held back by the filter that looks for them."""
    first, again, other = (_words(seed) for seed in (1, 1, 2))
    assert first == again != other
    assert all(each.startswith(" ") and each[1:].isalpha() for each in first)
    assert len(set(pairwise(first))) > 0.9 * len(first)


def _words(seed: int) -> list[str]:
    return list(islice(words(random.Random(seed)), 500))  # noqa: S311 - the same in every run


def test_a_good_answer_has_no_problem() -> None:
    """A comment in it is none; nor is another way of cutting it into HTTP chunks."""
    assert problem_of(GOOD, TEXT) == ""
    assert problem_of(GOOD.replace(DONE, http_chunk(b": ping\n\n") + DONE), TEXT) == ""
    joined = http_chunk(event_of(b'{"content":" ebb"}') + event_of(b'{"content":" and flood"}'))
    assert problem_of(HEAD + joined + END, TEXT) == ""


@pytest.mark.parametrize(
    ("received", "problem"),
    [
        (b"", "not answered with 200"),
        (b"nonsense\r\n\r\n", "not a response of HTTP"),
        (GOOD.replace(b"200 OK", b"503 Busy"), "not answered with 200"),
        (GOOD.removesuffix(http_chunk(b"")), "cut"),
        (GOOD.replace(DONE, b""), "not ended by [DONE]"),
        (GOOD.replace(DONE, DONE + chunk_of(" late")), "not ended by [DONE]"),
        (GOOD.replace(b" ebb", b" ebc"), "another text"),
        (GOOD.replace(chunk_of(" ebb"), b""), "another text"),
        (GOOD.replace(chunk_of(" ebb"), chunk_of(" ebb") * 2), "another text"),
        (GOOD.replace(STOPPED, b""), "finished as []"),
        (GOOD.replace(STOPPED, STOPPED * 2), "finished as ['stop', 'stop']"),
        (GOOD.replace(b'"stop"', b'"halt"'), "finished as ['halt']"),
        (
            GOOD.replace(STOPPED, http_chunk(b'data: {"error": {}}\n\n')),
            "an event that is no chunk",
        ),
    ],
)
def test_whatever_is_wrong_has_a_name(received: bytes, problem: str) -> None:
    """Lost, doubled and changed text, a missing or a second end, and what is no answer at all."""
    assert problem_of(received, TEXT) == problem
