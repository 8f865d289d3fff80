"""What a caller makes of the bytes that it got, without a line of the gate."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Final

__all__ = ["Read", "read_object", "read_stream"]

END: Final = "[DONE]"


@dataclass(slots=True)
class Read:
    """An answer as far as it came. `wrong`: what breaks the grammar of an event stream; `torn`: the last event is not whole."""

    text: str = ""
    reasoning: str = ""
    calls: dict[int, tuple[str, str]] = field(default_factory=dict)
    roles: int = 0
    finishes: int = 0
    done: bool = False
    error: str = ""
    torn: bool = False
    wrong: list[str] = field(default_factory=list)

    @property
    def terminals(self) -> int:
        """Ends that a client would take for one."""
        return self.done + bool(self.error)

    @property
    def said(self) -> bool:
        """Anything at all that a client would show."""
        return bool(self.text or self.reasoning or self.calls)


def read_stream(body: bytes) -> Read:
    """An event stream of chat chunks."""
    *events, rest = body.split(b"\n\n")
    read = Read(torn=bool(rest))
    for event in events:
        if read.terminals:
            read.wrong.append(f"behind the end: {event[:60]!r}")
        if event.startswith(b":"):
            continue
        if not event.startswith(b"data: ") or b"\n" in event:
            read.wrong.append(f"no event: {event[:60]!r}")
            continue
        _take(read, event[6:].decode())
    return read


def _take(read: Read, payload: str) -> None:
    if payload == END:
        read.done = True
        return
    value = json.loads(payload)
    if "error" in value:
        read.error = value["error"]["code"]
        return
    for choice in value.get("choices") or ():
        if choice["index"] == 0:
            _add(read, choice.get("delta") or {}, choice.get("finish_reason"))


def read_object(body: bytes) -> Read:
    """One JSON object: a completion, or an error."""
    value: dict[str, Any] = json.loads(body)
    read = Read()
    if "error" in value:
        read.error = value["error"]["code"]
        return read
    choice = value["choices"][0]
    _add(read, choice["message"], choice["finish_reason"])
    read.done = True
    return read


def _add(read: Read, said: dict[str, Any], finish: str | None) -> None:
    if said.get("role"):
        if read.roles or read.said:
            read.wrong.append("the role does not come first, or comes twice")
        read.roles += 1
    read.text += said.get("content") or ""
    read.reasoning += said.get("reasoning_content") or ""
    for place, piece in enumerate(said.get("tool_calls") or ()):
        function = piece.get("function") or {}
        at = piece.get("index", place)
        name, arguments = read.calls.get(at, ("", ""))
        read.calls[at] = (
            name or function.get("name") or "",
            arguments + (function.get("arguments") or ""),
        )
    if read.said and not read.roles:
        read.wrong.append("words before the role")
    read.finishes += bool(finish)
