"""The caller's side: what a client makes of the bytes it gets, accumulated like an SDK does it, and without a line of the program."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

END: Final = b"[DONE]"


@dataclass(slots=True)
class Call:
    """One tool call."""

    id: str = ""
    name: str = ""
    arguments: str = ""


@dataclass(slots=True)
class Choice:
    """One choice: its texts, its calls by index, every finish reason and every role that was said."""

    text: str = ""
    reasoning: str = ""
    refusal: str = ""
    calls: dict[int, Call] = field(default_factory=dict)
    finishes: list[str] = field(default_factory=list)
    roles: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Answer:
    """A whole answer, as far as it came. `done`: it ended with `[DONE]`, or was one JSON body; `error`: the envelope that it ended with."""

    choices: dict[int, Choice] = field(default_factory=dict)
    usage: Any = None
    done: bool = False
    error: Any = None
    identities: set[tuple[Any, Any, Any]] = field(default_factory=set)

    @property
    def clean(self) -> bool:
        """A client takes this for a success."""
        return self.done and self.error is None


def read_stream(body: bytes) -> Answer:
    """An event stream of chat chunks, each event whole, nothing behind `[DONE]`."""
    *events, rest = body.split(b"\n\n")
    assert rest == b"", "the stream ends within an event"
    payloads = [event.removeprefix(b"data: ") for event in events if not event.startswith(b":")]
    assert END not in payloads[:-1], "something follows the end"
    done = payloads[-1:] == [END]
    answer = assemble(json.loads(payload) for payload in payloads if payload != END)
    answer.done = done
    return answer


def read_object(body: bytes) -> Answer:
    """One `chat.completion`, or one error."""
    answer = assemble([json.loads(body)])
    answer.done = answer.error is None
    return answer


def assemble(values: Iterable[Mapping[str, Any]]) -> Answer:
    """Chunks, or one whole object, put together."""
    answer = Answer()
    for value in values:
        if "error" in value:
            answer.error = value["error"]
            continue
        answer.identities.add((value["id"], value["created"], value["model"]))
        answer.usage = value.get("usage") or answer.usage
        for part in value.get("choices") or ():
            _add(answer.choices.setdefault(part["index"], Choice()), part)
    return answer


def _add(choice: Choice, part: Mapping[str, Any]) -> None:
    said = (part["delta"] if "delta" in part else part.get("message")) or {}
    choice.text += said.get("content") or ""
    choice.reasoning += said.get("reasoning_content") or said.get("reasoning") or ""
    choice.refusal += said.get("refusal") or ""
    if said.get("role"):
        choice.roles.append(said["role"])
    for place, piece in enumerate(said.get("tool_calls") or ()):
        call = choice.calls.setdefault(piece.get("index", place), Call())
        function = piece.get("function") or {}
        call.id = call.id or piece.get("id") or ""
        if (function.get("name") or "") != call.name:
            call.name += function.get("name") or ""
        call.arguments += function.get("arguments") or ""
    if part.get("finish_reason"):
        choice.finishes.append(part["finish_reason"])
