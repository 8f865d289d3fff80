"""What is wrong with an answer as it came over HTTP, by its number."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ops.chaos.reading import Read
from ops.chaos.responses import Response
from ops.chaos.scenarios import SCENARIOS
from ops.chaos.wire import DONE, ROLE, STOP, error_event, text
from ops.chaos.wired import answer_findings, words

HEALTHY = SCENARIOS["healthy"]
HELLO = ROLE + text("Hello") + STOP + DONE


def streamed(body: bytes, *, status: int = 200, whole: bool = True) -> Response:
    """An event stream as a caller has read it."""
    headers = {"content-type": "text/event-stream"}
    return Response(status, headers, bytearray(body), whole=whole, over=True)


def numbers(response: Response, *, cut_off: bool = False) -> list[str]:
    """Of the findings."""
    found = answer_findings(HEALTHY, response, cut_off=cut_off, passed=[["Hello"]])
    return sorted({each.split()[0] for each in found})


def test_an_answer_that_is_right_is_right() -> None:
    """Whole, or cut where its caller has left, or never begun."""
    assert numbers(streamed(HELLO)) == []
    assert numbers(streamed(HELLO[:-5], whole=False), cut_off=True) == []
    assert numbers(Response(over=True), cut_off=True) == []
    assert numbers(Response(400, {}, whole=True), cut_off=True) == []


def test_a_part_of_a_call_is_right_where_the_answer_may_stop_anywhere() -> None:
    """And nowhere else; another call is wrong everywhere."""
    wanted = replace(HEALTHY, said="", calls=(("f", '{"a": 1}'),))

    def found(call: tuple[str, str], *, cut_off: bool, done: bool = False) -> list[str]:
        read = Read(calls={1: call}, done=done, finishes=1)
        return [each.split()[0] for each in words(wanted, read, cut_off=cut_off)]

    assert found(("f", '{"a": 1}'), cut_off=False, done=True) == []
    assert found(("f", '{"a'), cut_off=True) == []
    assert found(("f", '{"a'), cut_off=False) == ["I8"]
    assert found(("f", '{"a'), cut_off=True, done=True) == ["I8"]
    assert found(("g", ""), cut_off=True) == ["I8"]
    more = Read(calls={0: ("f", '{"a": 1}'), 1: ("f", "")})
    assert len(list(words(wanted, more, cut_off=False))) == 1


@pytest.mark.parametrize(
    ("response", "expected"),
    [
        (streamed(ROLE + text("He"), whole=True), ["I10"]),
        (streamed(ROLE + text("He"), whole=False), ["I10"]),
        (streamed(ROLE + text("He") + STOP + DONE), ["I8"]),
        (streamed(HELLO[:-5]), ["I10", "I7"]),
        (streamed(HELLO + text("more")), ["I6", "I8", "I9"]),
        (streamed(HELLO, status=502), ["I18"]),
        (streamed(error_event() + DONE), ["I10", "I6", "I7", "I8"]),
        (streamed(ROLE + text("Bye") + STOP + DONE), ["I8", "I9"]),
        (Response(200, {}, bytearray(b"no JSON"), whole=True), ["I7"]),
        (Response(200, {}, bytearray(b'{"error": {"code": "a"}}'), whole=True), ["I18"]),
        (Response(broken="no HTTP", over=True), ["I10", "I7"]),
        (Response(rest=b"x", over=True, whole=True), ["I6"]),
    ],
)
def test_each_kind_of_wrong_has_its_number(response: Response, expected: list[str]) -> None:
    """As the invariants are numbered."""
    assert numbers(response) == expected
