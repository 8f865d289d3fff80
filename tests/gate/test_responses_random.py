"""Events that no provider should send, in any order and anywhere: what the caller gets is a legal response all the same, or an error, and depends on no cut."""

from __future__ import annotations

import json
import random
from typing import Any, Final

import pytest

from gate.endpoints import RESPONSES
from tests.assembly_responses import read_events, texts_of
from tests.pipeline import cut_at, run
from tests.responding import call, completed, created, event, message, response, thought

SEEDS: Final = range(240)
TEXTS: Final = ["a", "b", " ", "ab", "é", "\ud83d", "\ude80", "", "<think>", "</think>"]
ITEMS: Final[list[Any]] = [
    message(), message("ab"), message("a", name="msg_2"), call(), call('{"a":1}'), call("{", call_id=""), thought(), thought("hm"),
    {"type": "web_search_call", "id": "ws"}, {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "ab"}]},
    {"type": "custom_tool_call", "id": "ct", "call_id": "k", "name": "p", "input": "x"}, {"type": "message"}, {"type": "image_generation_call"}, {}, None,
    message(None, content=[{"type": "odd", "text": "?"}, {"type": "output_text", "text": "ab"}]),
]  # fmt: skip
DELTAS: Final = ["output_text", "output_text", "output_text", "refusal", "reasoning_text", "reasoning_summary_text", "function_call_arguments", "custom_tool_call_input"]  # fmt: skip
OTHERS: Final = ["output_text.annotation.added", "web_search_call.searching", "new.thing"]


def draw_event(draw: random.Random) -> bytes:
    """One event, in some place or in none."""
    members: dict[str, Any] = {}
    for name, values, share in (
        ("output_index", [0, 1, 2], 0.7),
        ("item_id", ["msg_1", "msg_2", "fc_1", "rs_1", "x"], 0.7),
        ("content_index", [0, 1], 0.5),
        ("summary_index", [0, 1], 0.3),
    ):
        if draw.random() < share:
            members[name] = draw.choice(values)
    text = draw.choice(TEXTS)
    match draw.randrange(8):
        case 0 | 1 | 2:
            return event(f"{draw.choice(DELTAS)}.delta", **members, delta=text)
        case 3:
            item = draw.choice(ITEMS)
            return event(f"output_item.{draw.choice(['added', 'done'])}", **members, item=item)
        case 4:
            name = draw.choice(["content_part", "reasoning_summary_part", "reasoning_part"])
            kinds = ["output_text", "reasoning_text", "summary_text", "refusal", "odd"]
            kind = draw.choice(kinds)
            whole = {"type": kind, "refusal" if kind == "refusal" else "text": text}
            part = draw.choice([whole, whole, {}, None])
            return event(f"{name}.{draw.choice(['added', 'done'])}", **members, part=part)
        case 5:
            said = {"text": text, "refusal": text, "arguments": '{"a":1}', "input": "x"}
            return event(f"{draw.choice(DELTAS)}.done", **members, **said)
        case 6:
            return event(draw.choice(OTHERS), **members, annotation={})
        case _:
            kind = draw.choice(["created", "queued", "in_progress"])
            return event(kind, response=response("in_progress"))


def draw_stream(draw: random.Random) -> bytes:
    """Some events and an end."""
    events = [draw_event(draw) for _ in range(draw.randint(1, 12))]
    output = [draw.choice(ITEMS) for _ in range(draw.randint(0, 3))]
    end = completed(*output, status=draw.choice(["completed", "completed", "incomplete"]))
    return (created() if draw.random() < 0.8 else b"") + b"".join(events) + end


@pytest.mark.parametrize("seed", SEEDS)
def test_a_caller_gets_a_legal_response_or_an_error(seed: int) -> None:
    """Numbered, each item begun once and in order, each end saying what its deltas said; the object at the end says it again, and is the one of a caller without a stream."""
    draw = random.Random(seed)  # noqa: S311 - cases, not secrets
    data, tags = draw_stream(draw), draw.random() < 0.3
    passed = run([data], endpoint=RESPONSES, think_tags=tags)
    seen = read_events(passed.body)
    folded = run([data], stream=False, endpoint=RESPONSES, think_tags=tags)
    pieces = run(cut_at(data, 7), endpoint=RESPONSES, think_tags=tags)
    failed = passed.failure is not None
    assert (folded.failure is not None) is (pieces.failure is not None) is failed
    if failed:
        return
    assert pieces.body == passed.body
    assert json.loads(folded.body) == seen.response
    kinds = {name.removeprefix("response.") for name, _, _ in seen.texts}
    said = {kind: text for kind in kinds if (text := seen.said(kind))}
    assert texts_of(seen.response) == said
    assert [item["id"] for item in seen.items] == [item["id"] for item in seen.response["output"]]
