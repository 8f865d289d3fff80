"""What a client makes of the bytes, and what it would stumble over."""

from __future__ import annotations

from ops.chaos.reading import read_object, read_stream
from ops.chaos.wire import DONE, ROLE, STOP, calls, error_event, json_body, text, thought
from ops.provider_script import Write


def test_a_stream_is_put_together() -> None:
    """Text, reasoning, calls, the role, the finish and the end."""
    body = b"".join([ROLE, thought("hm"), text("He"), text("llo"), *calls("f", "{}"), STOP, DONE])
    read = read_stream(body)
    assert (read.text, read.reasoning, read.calls) == ("Hello", "hm", {0: ("f", "{}")})
    assert (read.roles, read.finishes, read.terminals, read.wrong) == (1, 1, 1, [])
    assert not read.torn


def test_what_breaks_the_grammar_is_said() -> None:
    """Words before the role, a second role, something behind the end, half an event, a line that is none."""
    assert read_stream(text("a")).wrong == ["words before the role"]
    assert read_stream(ROLE + ROLE).wrong == ["the role does not come first, or comes twice"]
    assert read_stream(ROLE + DONE + text("a")).wrong[0].startswith("behind the end")
    assert read_stream(ROLE[:-1]).torn
    assert read_stream(b"event: a\n\n").wrong == ["no event: b'event: a'"]


def test_an_error_is_an_end() -> None:
    """In a stream and alone."""
    read = read_stream(ROLE + error_event())
    assert (read.error, read.terminals, read.said) == ("engine_failed", 1, False)
    assert read_object(b'{"error": {"code": "x"}}').error == "x"


def test_a_whole_object_is_read_the_same_way() -> None:
    """Its message is one delta."""
    step = json_body("Hello").steps[0]
    assert isinstance(step, Write)
    read = read_object(step.data)
    assert (read.text, read.done, read.finishes) == ("Hello", True, 1)
