"""The caller's side of the Responses API: what a client makes of the events it gets, with what a strict one asserts, and without a line of the program."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

TERMINAL: Final = frozenset({"response.completed", "response.incomplete", "response.failed"})
_TEXTS: Final = {
    "response.output_text": "text",
    "response.refusal": "refusal",
    "response.reasoning_text": "text",
    "response.reasoning_summary_text": "text",
    "response.function_call_arguments": "arguments",
    "response.custom_tool_call_input": "input",
}


@dataclass(slots=True)
class Answer:
    """A whole answer: its events, its items as they began, texts by (kind of delta, item, part), and the response at the end."""

    events: list[dict[str, Any]] = field(default_factory=list)
    items: list[dict[str, Any]] = field(default_factory=list)
    texts: dict[tuple[str, int, int], str] = field(default_factory=dict)
    response: dict[str, Any] = field(default_factory=dict)

    @property
    def kinds(self) -> list[str]:
        """The types of the events, without their common beginning; each run of equal ones once."""
        types = [each["type"].removeprefix("response.") for each in self.events]
        return [kind for n, kind in enumerate(types) if not n or types[n - 1] != kind]

    def said(self, kind: str) -> str:
        """Every text of a kind, in the order of items and parts."""
        found = sorted(key for key in self.texts if key[0] == f"response.{kind}")
        return "".join(self.texts[key] for key in found)

    @property
    def text(self) -> str:
        return self.said("output_text")


def read_events(body: bytes) -> Answer:
    """An event stream, every event whole, numbered from 0 on, under one response, with items and parts that begin before they speak and say at their end what they said."""
    *blocks, rest = body.split(b"\n\n")
    assert rest == b"", "the stream ends within an event"
    answer = Answer()
    for block in blocks:
        if block.startswith(b":"):
            continue
        name, data = block.split(b"\n")
        value = json.loads(data.removeprefix(b"data: "))
        assert name == b"event: " + value["type"].encode()
        answer.events.append(value)
    _check_order(answer)
    for event in answer.events:
        _add(answer, event)
    return answer


def _check_order(answer: Answer) -> None:
    events = answer.events
    numbers = [event["sequence_number"] for event in events]
    assert numbers == list(range(len(numbers))), "numbered without a gap"
    if not events:
        return
    assert [event["type"] for event in events[:2]] == ["response.created", "response.in_progress"] or "response.queued" in events[1]["type"]  # fmt: skip
    assert sum(event["type"] == "response.created" for event in events) == 1
    assert not TERMINAL.intersection(event["type"] for event in events[:-1]), "something follows the end"  # fmt: skip
    told = [event["response"] for event in events if "response" in event]
    assert len({(each["id"], each["created_at"], each["model"]) for each in told}) == 1
    if events[-1]["type"] in TERMINAL:
        answer.response = events[-1]["response"]


def _add(answer: Answer, event: Mapping[str, Any]) -> None:
    kind = event["type"]
    if kind == "response.output_item.added":
        assert event["output_index"] == len(answer.items), "added once, in order"
        assert event["item"]["id"] not in {item["id"] for item in answer.items}
        answer.items.append(event["item"])
    elif "output_index" in event and "item_id" in event:
        assert event["item_id"] == answer.items[event["output_index"]]["id"]
    if kind == "response.output_item.done":
        assert event["item"]["id"] == answer.items[event["output_index"]]["id"]
    name, _, what = kind.rpartition(".")
    if name not in _TEXTS:
        return
    part = event.get("summary_index" if "summary" in name else "content_index", 0)
    key = name, event["output_index"], part
    if what == "delta":
        answer.texts[key] = answer.texts.get(key, "") + event["delta"]
    elif what == "done":
        assert event[_TEXTS[name]] == answer.texts.get(key, ""), "what is said at the end was said"


def texts_of(response: Mapping[str, Any]) -> dict[str, str]:
    """The texts in a response object, by kind of delta, joined."""
    found: dict[str, str] = {}
    for item in response["output"]:
        for name, value in _texts_in(item):
            found[name] = found.get(name, "") + value
    return {name: value for name, value in found.items() if value}


def _texts_in(item: Mapping[str, Any]) -> list[tuple[str, str]]:
    calls = {"function_call": ("function_call_arguments", "arguments"), "custom_tool_call": ("custom_tool_call_input", "input")}  # fmt: skip
    if item["type"] in calls:
        name, member = calls[item["type"]]
        return [(name, item[member])]
    names = {"output_text": "output_text", "refusal": "refusal", "reasoning_text": "reasoning_text", "summary_text": "reasoning_summary_text"}  # fmt: skip
    parts = [*(item.get("summary") or ()), *(item.get("content") or ())]
    return [(names[part["type"]], part.get("text") or part.get("refusal") or "") for part in parts if part.get("type") in names]  # fmt: skip
