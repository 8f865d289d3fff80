"""Chat chunks with tool calls, as providers write them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from gate.events import Frame
from gate.reader import ChatStreamReader

ARGUMENTS = '{"path":"a"}'
ROLE = {"role": "assistant", "content": ""}


def entry(index: object = 0, **members: Any) -> dict[str, Any]:
    """One entry of `tool_calls`; name and arguments go where they belong, and an index of None is left out."""
    function = {name: members.pop(name) for name in ("name", "arguments") if name in members}
    made: dict[str, Any] = {} if index is None else {"index": index}
    return made | members | ({"function": function} if function else {})


def begin(index: object = 0, name: str = "f", arguments: Any = "", **members: Any) -> dict[str, Any]:  # fmt: skip
    """The entry that a call begins with, as OpenAI writes it."""
    return entry(index, **({"id": f"call_{name}", "type": "function"} | members), name=name, arguments=arguments)  # fmt: skip


def payload(
    delta: Mapping[str, Any], finish: str | None = None, *, choice: int = 0, **more: Any
) -> bytes:
    """One chunk."""
    part = {"index": choice, "delta": delta, "finish_reason": finish}
    head = {"id": "c1", "object": "chat.completion.chunk", "created": 7, "model": "m"}
    return json.dumps(head | {"choices": [part]} | more).encode()


def calling(*entries: dict[str, Any], finish: str | None = None, choice: int = 0, **more: Any) -> bytes:  # fmt: skip
    """One chunk with these entries in its delta."""
    return payload({"tool_calls": list(entries)}, finish, choice=choice, **more)


def end(reason: str = "tool_calls", choice: int = 0, **more: Any) -> bytes:
    """The chunk with the finish reason."""
    return payload({}, reason, choice=choice, **more)


def frames_of(*payloads: bytes, choices: int = 1) -> list[Frame]:
    """Each payload as its own event."""
    reader = ChatStreamReader(choices=choices, event_bytes_max=1 << 24)
    return reader.feed(b"".join(b"data: %b\n\n" % each for each in payloads)).frames
