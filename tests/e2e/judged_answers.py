"""Answers for the filters, drawn at random: healthy ones and those that a filter condemns, of every channel, several choices and formats; and the requests that they may answer."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from hypothesis import strategies as st

from gate.config import FilterConfig, OutputPolicy, StructuredOutput
from gate.filters.builtin import filter_context
from gate.filters.contract import FilterContext
from gate.ingress import read_chat_request

# Put together here so that no scanner takes this file for a leak.
KEY: Final = "AKIA" + "ABCDEFGHIJ234567"
TABLES: Final[Mapping[str, FilterConfig]] = {
    "keys": FilterConfig(kind="patterns", pattern_set="secrets"),
    "keys-too": FilterConfig(kind="patterns", pattern_set="secrets"),
    "words": FilterConfig(
        kind="patterns",
        patterns=(r"(?i)\bforbidden\b", "^never", "last$", r"é{2}\d+"),
        action="next_provider",
    ),
    "long": FilterConfig(kind="patterns", patterns=("<secret>(?s:.)*</secret>",), action="exact"),
    "watched": FilterConfig(kind="patterns", patterns=("island|tr.e",), gating=False),
    "loops": FilterConfig(kind="repetition", chars_min=64, repeats_min=4, gating=False),
}
FILTERS: Final = (
    "empty",
    "repetition",
    "encoding",
    "tool_calls",
    "structured_output",
    "refusal",
    *TABLES,
)
SCHEMA: Final = {
    "type": "object",
    "properties": {"path": {"type": "string"}, "n": {"type": "integer"}},
    "required": ["path"],
}
GOOD: Final = '{"path":"a b","n":1}'

Delta = dict[str, Any]
Item = tuple[int, Delta]
"""A choice, and its next delta."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What a request says, and under which policy of its route."""

    choices: int
    members: Mapping[str, Any]
    structured_output: StructuredOutput
    output_policy: OutputPolicy
    think_tags: bool

    @property
    def context(self) -> FilterContext:
        body = json.dumps(
            {"model": "alias", "messages": [{}], **self.members, "n": self.choices}
        ).encode()
        return filter_context(
            body,
            read_chat_request(body, depth_max=64),
            structured_output=self.structured_output,
            output_policy=self.output_policy,
        )


def _tool(name: str) -> Delta:
    return {"type": "function", "function": {"name": name, "parameters": SCHEMA}}


TOOLS: Final = {"tools": [_tool("find"), _tool("go to")]}
REQUESTS: Final[Sequence[Mapping[str, Any]]] = (
    {},
    TOOLS,
    {**TOOLS, "parallel_tool_calls": False},
    {**TOOLS, "tool_choice": "required"},
    {**TOOLS, "tool_choice": "none"},
    {"response_format": {"type": "json_object"}},
    {"response_format": {"type": "json_schema", "json_schema": {"schema": SCHEMA}}},
)
asked: Final = st.builds(
    Asked,
    st.integers(1, 2),
    st.sampled_from(REQUESTS),
    st.sampled_from(["off", "check", "repair", "reject"]),
    st.sampled_from(["off", "strict"]),
    st.booleans(),
)

SAID: Final = (
    "The island ",
    "is small. ",
    "\n",
    " \n ",
    "no tree",
    "It has one tree. " * 40,
    "ab" * 300,
    "\ufffd" * 9,
    "\ufffd",
    "a" + KEY + " b",
    "FORBIDDEN ",
    "forbiddenly ",
    "never",
    "last",
    "éé7",
    "<secret>",
    "x" * 900,
    "</secret>",
    "<think>",
    "</think>",
    "<tool_call>",
    ' {"name": "find"}',
    "<|call|>find ",
    "[TOOL_CALLS] go to",
    "I'm sorry, but I can't help with that.",
    GOOD,
    '{"n":',
    '"x"}',
    "```json\n",
    "\n```",
    "[1, 2",
    "9" * 9_000,
)
ARGUMENTS: Final = (
    GOOD,
    GOOD,
    '{"path":1}',
    '{"path":"' + KEY + '"}',
    "{}",
    '{"path":"a',
    "[1]",
    "",
    GOOD + GOOD,
    '{"path":"' + "ab" * 400 + '"}',
)


@st.composite
def _pieces(draw: st.DrawFn, text: str) -> list[str]:
    """A text in pieces: single characters, some, or all of it."""
    size = draw(st.sampled_from([1, 3, 7, 1_000, 100_000]))
    size = max(size, len(text) // 100)
    return [text[at : at + size] for at in range(0, len(text), size)] or [""]


@st.composite
def _spoken(draw: st.DrawFn) -> list[Delta]:
    name = draw(st.sampled_from(["content", "content", "content", "reasoning_content", "refusal"]))
    return [{name: piece} for piece in draw(_pieces(draw(st.sampled_from(SAID))))]


@st.composite
def _called(draw: st.DrawFn) -> list[Delta]:
    index = draw(st.sampled_from([0, 0, 1, 2]))
    name = draw(st.sampled_from(["find", "find", "go to", "other", ""]))
    head = {
        "index": index,
        "id": draw(st.sampled_from(["c1", "c2", "c3", ""])),
        "type": "function",
    }
    deltas = [{"tool_calls": [{**head, "function": {"name": name, "arguments": ""}}]}]
    pieces = draw(_pieces(draw(st.sampled_from(ARGUMENTS))))
    return deltas + [
        {"tool_calls": [{"index": index, "function": {"arguments": piece}}]} for piece in pieces
    ]


@st.composite
def streams(draw: st.DrawFn, choices: int) -> tuple[bytes, ...]:
    """The events of one answer to so many choices, which take turns."""
    waiting: list[list[Item]] = []
    for choice in range(choices):
        parts = draw(st.lists(_spoken() | _spoken() | _called(), max_size=5))
        waiting.append([(choice, delta) for part in parts for delta in part])
    items: list[Item] = []
    while any(waiting):
        turn = draw(st.sampled_from([each for each in waiting if each]))
        count = draw(st.sampled_from([1, 4, 1_000]))
        items += turn[:count]
        del turn[:count]
    reasons = [draw(st.sampled_from(["stop", "stop", "tool_calls", "length"])) for _ in range(choices)]  # fmt: skip
    ends = [_event(choice, {}, reason) for choice, reason in enumerate(reasons)]
    return (*(_event(choice, delta) for choice, delta in items), *ends, b"data: [DONE]\n\n")


def _event(choice: int, delta: Delta, finish: str | None = None) -> bytes:
    part = {"index": choice, "delta": delta, "finish_reason": finish}
    value = {"id": "c1", "object": "chat.completion.chunk", "created": 7, "model": "m"}
    return b"data: %b\n\n" % json.dumps({**value, "choices": [part]}).encode()
