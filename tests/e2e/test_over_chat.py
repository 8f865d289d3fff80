"""Recorded chat streams as responses: what a caller of the one endpoint assembles is what a caller of the other one does. And what a pattern denies is seen at neither."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest

from gate.config import FilterConfig
from gate.endpoints import OVER_CHAT
from tests.assembly import Choice, read_stream
from tests.assembly_responses import read_events, texts_of
from tests.e2e.guarded import CHANNELS, MATCHES, Channel, Match, events, splits
from tests.e2e.test_corpus import Cut, Recorded, at_random, per_event, pytest_generate_tests, whole
from tests.e2e.test_guardrail import first_of, fits
from tests.pipeline import run

__all__ = ["pytest_generate_tests"]
GUARDED = MATCHES[-22:]


def said_by_chat(choice: Choice) -> dict[str, str]:
    """Its texts under the names that they have in a response."""
    calls = "".join(call.arguments for call in choice.calls.values())
    told = {
        "output_text": choice.text,
        "reasoning_text": choice.reasoning,
        "refusal": choice.refusal,
        "function_call_arguments": calls,
    }
    return {name: text for name, text in told.items() if text}


@pytest.mark.parametrize("cut", [whole, per_event, at_random], ids=lambda cut: cut.__name__)
def test_a_recorded_answer_says_the_same_as_a_response(recorded: Recorded, cut: Cut) -> None:
    """Texts, calls, how it ended and what it has cost; where chat ends in an error it does, too, for the same reason."""
    if recorded.choices != 1:
        pytest.skip("a response has one choice")
    pieces = cut(recorded)
    plain = run(pieces, context=recorded.context)
    over = run(pieces, context=recorded.context, endpoint=OVER_CHAT)
    assert (over.failure, over.judged_by) == (plain.failure, plain.judged_by)
    if plain.failure is not None:
        return
    answer = read_stream(plain.body)
    response = read_events(over.body).response
    choice = answer.choices[0]
    assert texts_of(response) == said_by_chat(choice)
    ends_early = choice.finishes[-1:] in (["length"], ["content_filter"])
    assert response["status"] == ("incomplete" if ends_early else "completed")
    if isinstance(answer.usage, dict):
        completion = answer.usage.get("completion_tokens") or 0
        assert response["usage"]["output_tokens"] == completion
    body = run(pieces, context=recorded.context, stream=False, endpoint=OVER_CHAT)
    assert texts_of(json.loads(body.body)) == said_by_chat(choice)


SAID: Final = [each for each in CHANNELS if each.name != "transcript"]  # a response has no sound


@pytest.mark.parametrize("channel", SAID, ids=lambda channel: channel.name)
@pytest.mark.parametrize("match", GUARDED, ids=lambda match: match.pattern[:12])
def test_nothing_of_a_match_is_seen(match: Match, channel: Channel) -> None:
    """Streamed or whole, wherever it is cut; the names and kinds of a response are ours."""
    if not fits(match, channel):
        pytest.skip("it depends on the ends of its channel")
    text = match.text.join(channel.around)
    before = text[: first_of(match, text)]
    table = {"guard": FilterConfig(kind="patterns", patterns=(match.pattern,))}
    for pieces in splits(text, full=False):
        for stream in (True, False):
            passed = run(
                events(channel, pieces, escaped=False),
                stream=stream,
                endpoint=OVER_CHAT,
                filters=("guard",),
                tables=table,
            )
            if channel.left_out:  # a call that is cut never leaves, so nobody has to object to it
                assert '"type":"function_call"' not in passed.body.decode()
                continue
            assert passed.failure is not None
            for said in deltas(passed.body) if stream else [passed.body.decode()]:
                assert before.startswith(said), said


def deltas(body: bytes) -> list[str]:
    """Every text that the events of a stream have brought, joined by its kind."""
    found: dict[Any, str] = {}
    for event in read_events(body).events:
        if "delta" in event:
            found[event["type"]] = found.get(event["type"], "") + event["delta"]
        for name in ("text", "refusal", "arguments", "input"):
            if event["type"].endswith(".done") and name in event:
                found[event["type"], name] = event[name]
    return list(found.values())
