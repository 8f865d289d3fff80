"""What a guardrail service is asked, and what its answers mean."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gate.config import FilterConfig
from gate.errors import FilterUnavailable
from gate.events import (
    AudioDelta,
    Event,
    Facts,
    Frame,
    ReasoningDelta,
    RefusalDelta,
    RoleDelta,
    TextDelta,
    ToolDelta,
)
from gate.failure import FailureKind
from gate.filters.awaited import Question
from gate.filters.contract import Passed, Violated
from gate.webhook import CHANNELS_MAX, CODE, Text, WebhookTalk


def question(*events: Event, start: int = 0, last: bool = False) -> Question:
    """Frames of one event each."""
    frames = tuple(Frame(b"{}", (event,), 2) for event in events)
    return Question(start, frames, Facts() if last else None)


def talk(before: str = "", **options: Any) -> WebhookTalk:
    """With a service under these options."""
    table = FilterConfig(kind="webhook", url="http://127.0.0.1:1/", **options)
    return WebhookTalk(table, "ex-1", 2, before)


def asked(body: bytes | None) -> Any:
    """A request's body."""
    assert body is not None
    return json.loads(body)


def test_a_question_says_what_is_new_in_each_channel() -> None:
    """With the exchange and the attempt that it is of."""
    body = talk().ask(
        question(
            RoleDelta(0, "assistant"),
            ReasoningDelta(0, "Hm."),
            TextDelta(0, "Good"),
            TextDelta(1, "No"),
            TextDelta(0, "bye"),
            RefusalDelta(1, "I won't"),
            AudioDelta(0),
            AudioDelta(1, "Aloud."),
            ToolDelta(0, 0, "c", "f", '{"a":1}'),
            ToolDelta(0, 1, "d", "f", "{}"),
            last=True,
        )
    )
    assert asked(body) == {
        "exchange": "ex-1",
        "attempt": 2,
        "last": True,
        "texts": [
            {"choice": 0, "channel": "reasoning", "text": "Hm.", "context": 0},
            {"choice": 0, "channel": "content", "text": "Goodbye", "context": 0},
            {"choice": 1, "channel": "content", "text": "No", "context": 0},
            {"choice": 1, "channel": "refusal", "text": "I won't", "context": 0},
            {"choice": 1, "channel": "transcript", "text": "Aloud.", "context": 0},
            {"choice": 0, "channel": "arguments", "text": '{"a":1}', "context": 0},
            {"choice": 0, "channel": "arguments", "text": "{}", "context": 0},
        ],
    }


def test_what_stands_across_two_questions_is_seen_whole() -> None:
    """The end of the one stands before the other; the answer that was there before the attempt does too."""
    conversation = talk("once upon", horizon_chars=4)
    first = asked(conversation.ask(question(TextDelta(0, " a bo"))))
    assert first["texts"] == [
        {"choice": 0, "channel": "content", "text": "upon a bo", "context": 4}
    ]
    second = asked(conversation.ask(question(TextDelta(0, "mb"))))
    assert second["texts"] == [{"choice": 0, "channel": "content", "text": "a bomb", "context": 4}]
    assert second["last"] is False


def test_frames_without_text_are_not_asked_about() -> None:
    """A role says nothing."""
    assert talk().ask(question(RoleDelta(0, "assistant"), TextDelta(0, ""))) is None


def test_what_is_remembered_has_a_bound() -> None:
    """The channels that were new longest ago are forgotten."""
    conversation = talk()
    conversation.ask(question(*(TextDelta(choice, "a") for choice in range(CHANNELS_MAX + 1))))
    again = asked(conversation.ask(question(TextDelta(0, "b"), TextDelta(CHANNELS_MAX, "b"))))
    assert [each["context"] for each in again["texts"]] == [0, 1]


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        ({"pass": True}, None),
        ({"pass": True, "code": "pii", "more": 1}, None),
        ({"pass": False, "code": "pii"}, "pii"),
        ({"pass": False}, CODE),
        ({"pass": False, "code": "Your prompt was: secret"}, CODE),
    ],
)
def test_an_answer_is_a_verdict_on_the_whole_question(answer: object, code: str | None) -> None:
    """A code is kept if it is a stable token; what does not pass is denied."""
    asked_ = question(TextDelta(0, "a"), TextDelta(0, "b"), start=3)
    verdict = talk().read(asked_, json.dumps(answer).encode())
    if code is None:
        assert verdict == Passed(5)
        return
    assert isinstance(verdict, Violated)
    assert (verdict.position, verdict.code, verdict.failure.kind) == (3, code, FailureKind.DENIED)


def test_the_table_says_what_follows() -> None:
    """As for every filter."""
    verdict = talk(action="next_provider").read(question(TextDelta(0, "a")), b'{"pass":false}')
    assert isinstance(verdict, Violated)
    assert verdict.failure.kind is FailureKind.DENIED_NEXT


def test_a_moderation_endpoint_is_asked_in_its_own_shape() -> None:
    """Whatever is flagged does not pass."""
    conversation = talk(shape="moderation")
    asked_ = question(ReasoningDelta(0, "Hm."), TextDelta(0, "Hi"))
    assert asked(conversation.ask(asked_)) == {"input": ["Hm.", "Hi"]}
    good = {"id": "m", "results": [{"flagged": False, "categories": {}}, {"flagged": False}]}
    assert conversation.read(asked_, json.dumps(good).encode()) == Passed(2)
    good["results"][1]["flagged"] = True  # type: ignore[index]
    assert isinstance(conversation.read(asked_, json.dumps(good).encode()), Violated)


@pytest.mark.parametrize("shape", ["judge", "moderation"])
@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"<html>",
        b"[]",
        b"{}",
        b'{"pass":"yes"}',
        b'{"results":[]}',
        b'{"results":[{}]}',
        b"\xff",
    ],
)
def test_what_is_no_answer_is_no_verdict(shape: str, answer: bytes) -> None:
    """Neither a pass nor a violation."""
    with pytest.raises(FilterUnavailable) as caught:
        talk(shape=shape).read(question(TextDelta(0, "a")), answer)
    assert caught.value.public_code == "webhook_answer"


def test_no_text_is_shown() -> None:
    """In whatever is logged."""
    assert repr(Text(0, "content", "secret", 2)) == "Text(0, content, 6 characters)"
