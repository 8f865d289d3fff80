"""Judging takes time in proportion to the answer: eight times the text, about eight times the work, for each filter and for all together, in small events and in one."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import pytest

from gate.config import FilterConfig
from gate.filters.builtin import filter_context
from gate.filters.contract import FilterContext
from gate.ingress import read_chat_request
from tests.pipeline import run

SMALL: Final = 4_096  # characters
TIMES: Final = 8
RATIO_MAX: Final = 3.0 * TIMES  # what is quadratic takes 64 times as long
TABLES: Final = {"keys": FilterConfig(kind="patterns", pattern_set="secrets")}
ALL: Final = (
    "empty",
    "repetition",
    "encoding",
    "tool_calls",
    "structured_output",
    "refusal",
    "keys",
)


def prose(size: int) -> str:
    """Words."""
    return "".join(f"word {n} and <b>\n" for n in range(size // 16))


def numbers(size: int) -> str:
    """JSON of many small values."""
    return json.dumps({"x": [{"n": n, "s": "é"} for n in range(size // 24)]})


def one_text(size: int) -> str:
    """JSON of one long text."""
    return json.dumps({"x": prose(size)})


def open_match(size: int) -> str:
    """What a pattern may begin with, to the end."""
    return "eyJ" + "".join(f"{n:x}" for n in range(size // 4))


def markup(size: int) -> str:
    """What a call in the text may begin with, line by line."""
    return "".join(f"\n<tool_call {n}" for n in range(size // 16))


PROGRAM: Final = {"type": "object", "properties": {"x": {}}}
TOOLS: Final = {"tools": [{"type": "function", "function": {"name": "f", "parameters": PROGRAM}}]}
FORMAT: Final = {"response_format": {"type": "json_schema", "json_schema": {"schema": PROGRAM}}}
CASES: Final[Mapping[str, tuple[Sequence[str], Callable[[int], str], str, Mapping[str, Any]]]] = {
    "repetition": (("repetition",), prose, "content", {}),
    "encoding": (("encoding",), prose, "content", {}),
    "patterns": (("keys",), prose, "content", {}),
    "patterns-open": (("keys",), open_match, "content", {}),
    "refusal": (("refusal",), prose, "content", {}),
    "calls": (("tool_calls",), numbers, "arguments", TOOLS),
    "calls-text": (("tool_calls",), one_text, "arguments", TOOLS),
    "markup": (("tool_calls",), markup, "content", TOOLS),
    "format": (("structured_output",), numbers, "content", FORMAT),
    "format-text": (("structured_output",), one_text, "content", FORMAT),
    "all": (ALL, prose, "content", TOOLS),
    "all-calls": (ALL, numbers, "arguments", TOOLS),
    "all-format": (ALL, numbers, "content", FORMAT),
}


def context_of(members: Mapping[str, Any]) -> FilterContext:
    """What the filters know of such a request."""
    body = json.dumps({"model": "alias", "messages": [{}], **members}).encode()
    return filter_context(body, read_chat_request(body, depth_max=64), structured_output="repair")


def events(text: str, channel: str, size: int) -> list[bytes]:
    """A stream of this text, so many characters an event."""
    deltas: list[Any] = [text[at : at + size] for at in range(0, len(text), size)]
    if channel == "content":
        deltas = [{"content": each} for each in deltas]
    else:
        named = {"id": "c1", "type": "function"}
        deltas = [
            {"tool_calls": [{"index": 0, **({} if n else named), "function": {**({} if n else {"name": "f"}), "arguments": each}}]}
            for n, each in enumerate(deltas)
        ]  # fmt: skip
    chunks = [{"id": "c1", "choices": [{"index": 0, "delta": each}]} for each in deltas]
    chunks.append({"id": "c1", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    return [b"data: %b\n\n" % json.dumps(each).encode() for each in chunks]


def seconds(case: str, length: int, size: int, *, stream: bool) -> float:
    """The processor time of one answer; the shorter of two tries."""
    filters, make, channel, members = CASES[case]
    reads = events(make(length), channel, size)
    took = []
    for _ in range(2):
        began = time.thread_time()
        passed = run(reads, stream=stream, context=context_of(members), filters=filters, tables=TABLES)  # fmt: skip
        took.append(time.thread_time() - began)
        assert passed.failure is None
    return min(took)


@pytest.mark.slow
@pytest.mark.parametrize("size", [16, 1 << 20], ids=["small", "one"])
@pytest.mark.parametrize("case", CASES)
def test_eight_times_the_text_is_about_eight_times_the_work(case: str, size: int) -> None:
    """Streamed; and whole, where the caller wants one object."""
    stream = case != "all"
    small = seconds(case, SMALL, size, stream=stream)
    large = seconds(case, TIMES * SMALL, size, stream=stream)
    assert large < RATIO_MAX * max(small, 0.0005), (small, large)
