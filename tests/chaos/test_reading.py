"""What a client makes of the bytes, and what it would stumble over."""

from __future__ import annotations

import json

from ops.chaos import wire_responses
from ops.chaos.reading import RESPONSES, read_body, read_events, read_object, read_stream
from ops.chaos.wire import DONE, ROLE, STOP, calls, delta, error_event, json_body, text, thought
from ops.provider_script import Attempt, Write


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
    assert read_stream(b"data:\n\n").wrong == ["no event: b'data:'"]


def test_what_providers_say_in_their_own_way_is_read_too() -> None:
    """No blank behind the colon, arguments that are an object, an error that is no object or has no code, an event without a number."""
    assert read_stream(ROLE + text("a").replace(b"data: ", b"data:")).text == "a"
    given = {"tool_calls": [{"index": 0, "function": {"name": "f", "arguments": {"a": 1}}}]}
    assert read_stream(ROLE + delta(given)).calls == {0: ("f", '{"a": 1}')}
    assert read_object(b'{"error": "broken"}').error == "broken"
    assert "'m'" in read_stream(b'data: {"error": {"message": "m"}}\n\n').error
    begun = b'event: response.created\ndata: {"type": "response.created"}\n\n'
    assert read_events(RESPONSES, begun).wrong[0].startswith("no event 0")
    for nothing in (b"event: ping\n\n", b"event: ping\ndata:\n\n", b"\n\n"):
        assert read_events(RESPONSES, nothing).wrong == [f"no event: {nothing[:-2]!r}"]
    added = {"type": "response.output_item.added", "item": {"type": "function_call", "name": "f"}}
    placeless = b"event: response.output_item.added\ndata: " + json.dumps(added).encode() + b"\n\n"
    read = read_events(RESPONSES, begun + placeless)
    assert (read.calls, read.wrong[-1]) == ({0: ("f", "")}, "a call without its place")


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


def test_a_response_is_put_together_and_held_against_its_end() -> None:
    """By its deltas, and by the object that ends it."""
    body = b"".join(writes(wire_responses.spoken("He", "llo")("")))
    read = read_events(RESPONSES, body)
    assert (read.text, read.done, read.finishes, read.wrong) == ("Hello", True, 1, [])
    call = read_events(RESPONSES, b"".join(writes(wire_responses.called("f", '{"a": 1}'))))
    assert (call.calls, call.wrong) == ({0: ("f", '{"a": 1}')}, [])
    failed = read_events(RESPONSES, b"".join(writes(wire_responses.failed())))
    assert (failed.error, failed.terminals) == ("engine_failed", 1)
    relayed = read_events(
        RESPONSES, body[: body.index(b"event: response.completed")] + error_event()
    )
    assert (relayed.text, relayed.error, relayed.done) == ("Hello", "engine_failed", False)
    (whole,) = writes(wire_responses.whole("Hello"))
    assert read_body(RESPONSES, whole).text == "Hello"


def test_what_no_client_of_responses_would_take_is_said() -> None:
    """A number that is missing, a beginning that comes late, an end that says something else."""
    *events, last, _ = b"".join(writes(wire_responses.spoken("He", "llo")(""))).split(b"\n\n")
    whole = [each + b"\n\n" for each in (*events, last)]
    assert read_events(RESPONSES, b"".join(whole[:2] + whole[3:])).wrong[0].startswith("no event 2")
    assert "does not begin first" in read_events(RESPONSES, b"".join(whole[1:])).wrong[1]
    other = last.replace(b"Hello", b"Hullo") + b"\n\n"
    assert "is another" in read_events(RESPONSES, b"".join([*whole[:-1], other])).wrong[0]


def test_what_is_relayed_is_its_own_text() -> None:
    """But for an error."""
    assert read_body("/v1/embeddings", b'{"data": []}').text == '{"data": []}'
    assert read_body("/v1/audio/speech", b"\xff\x00").text == "\xff\x00"
    assert read_body("/v1/embeddings", b'{"error": {"code": "x"}}').error == "x"


def writes(script: Attempt) -> list[bytes]:
    """What a script writes."""
    return [step.data for step in script.steps if isinstance(step, Write)]
