"""What a caller makes of the bytes that it got, without a line of the gate: chat completions, responses, and bodies that are not read at all."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

__all__ = [
    "CHAT",
    "RESPONSES",
    "Read",
    "plain",
    "read_body",
    "read_events",
    "read_object",
    "read_stream",
]

END: Final = "[DONE]"
CHAT: Final = "/v1/chat/completions"
RESPONSES: Final = "/v1/responses"


@dataclass(slots=True)
class Read:
    """An answer as far as it came. `wrong`: what breaks the grammar of an event stream; `torn`: the last event is not whole.

    `calls`: name and arguments by their place: the index of a call in chat, that of its output item in a response.
    """

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


def read_events(endpoint: str, body: bytes) -> Read:
    """An event stream of this endpoint."""
    return _read_responses(body) if endpoint == RESPONSES else read_stream(body)


def read_body(endpoint: str, body: bytes) -> Read:
    """One JSON object: an answer, or an error; what no endpoint has a shape for is its own text."""
    value: Any = {}
    with suppress(ValueError):
        value = json.loads(body)
    if isinstance(value, dict) and value.get("error"):
        return Read(error=_code_of(value["error"]))
    if endpoint == RESPONSES:
        return _response(Read(), value)
    return _completion(value) if endpoint == CHAT else Read(text=body.decode("latin-1"), done=True)


def _code_of(error: Any) -> str:
    """Our own always have a code; those of a provider may be anything."""
    return str(error.get("code") or error) if isinstance(error, dict) else str(error)


def plain(body: bytes) -> bytes:
    """An event stream with one kind of line ends: what a tunnel relays may have any."""
    return body.replace(b"\r\n", b"\n").replace(b"\r", b"\n")


def read_stream(body: bytes) -> Read:
    """An event stream of chat chunks."""
    *events, rest = plain(body).split(b"\n\n")
    read = Read(torn=bool(rest))
    for event in events:
        if read.terminals:
            read.wrong.append(f"behind the end: {event[:60]!r}")
        if event.startswith(b":"):
            continue
        if not event.startswith(b"data:") or b"\n" in event or not _data(event):
            read.wrong.append(f"no event: {event[:60]!r}")
            continue
        _take(read, _data(event).decode())
    return read


def _data(line: bytes) -> bytes:
    """One blank behind the colon belongs to the field's name."""
    return line.removeprefix(b"data:").removeprefix(b" ")


def _take(read: Read, payload: str) -> None:
    if payload == END:
        read.done = True
        return
    value = json.loads(payload)
    if "error" in value:
        read.error = _code_of(value["error"])
        return
    for choice in value.get("choices") or ():
        if choice["index"] == 0:
            _add(read, choice.get("delta") or {}, choice.get("finish_reason"))


def read_object(body: bytes) -> Read:
    """One JSON object of chat: a completion, or an error."""
    return read_body(CHAT, body)


def _completion(value: dict[str, Any]) -> Read:
    read, choice = Read(), value["choices"][0]
    _add(read, choice["message"], choice["finish_reason"])
    read.done = True
    return read


def _read_responses(body: bytes) -> Read:
    """The events of one response, numbered from 0."""
    *events, rest = plain(body).split(b"\n\n")
    read, number = Read(torn=bool(rest)), 0
    for event in events:
        if read.terminals:
            read.wrong.append(f"behind the end: {event[:60]!r}")
        if event.startswith(b":"):
            continue
        name, _, data = event.rpartition(b"\n")
        if not data.startswith(b"data:") or not _data(data):
            read.wrong.append(f"no event: {event[:60]!r}")
            continue
        value = json.loads(_data(data))
        if not name and "error" in value:
            read.error = _code_of(value["error"])  # told by whoever relays the events
            continue
        if name != b"event: " + value["type"].encode() or value.get("sequence_number") != number:
            read.wrong.append(f"no event {number}: {event[:60]!r}")
        number += 1
        _take_event(read, value)
    return read


def _take_event(read: Read, value: dict[str, Any]) -> None:
    if (value["type"] == "response.created") == bool(read.roles):
        read.wrong.append("the response does not begin first, or begins twice")
        return
    match value["type"].removeprefix("response."):
        case "created":
            read.roles = 1
        case "output_text.delta":
            read.text += value["delta"]
        case "function_call_arguments.delta":
            at = _place(read, value)
            name, arguments = read.calls.get(at, ("", ""))
            read.calls[at] = name, arguments + value["delta"]
        case "output_item.added" if value["item"]["type"] == "function_call":
            read.calls[_place(read, value)] = value["item"]["name"], ""
        case "completed" | "incomplete":
            whole = _response(Read(), value["response"])
            if (whole.text, whole.calls) != (read.text, read.calls):
                read.wrong.append(f"the response at the end is another: {whole}")
            read.done, read.finishes = True, 1
        case "failed":
            read.error = _code_of(value["response"]["error"])
        case "error":
            read.error = _code_of(value)
        case _:
            pass


def _place(read: Read, value: dict[str, Any]) -> int:
    """The output item that an event of a call belongs to; without one it is taken for the first."""
    if "output_index" not in value:
        read.wrong.append("a call without its place")
    at: int = value.get("output_index", 0)
    return at


def _response(read: Read, value: dict[str, Any]) -> Read:
    """A response object."""
    for at, item in enumerate(value["output"]):
        if item["type"] == "function_call":
            read.calls[at] = item["name"], item["arguments"]
        if item["type"] == "message":
            read.text += "".join(part.get("text", "") for part in item["content"])
    read.done, read.finishes = value["status"] in {"completed", "incomplete"}, 1
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
            arguments + _arguments(function.get("arguments")),
        )
    if read.said and not read.roles:
        read.wrong.append("words before the role")
    read.finishes += bool(finish)


def _arguments(said: Any) -> str:
    """Some providers send the object in place of its text."""
    return said if isinstance(said, str) else json.dumps(said) if said else ""
