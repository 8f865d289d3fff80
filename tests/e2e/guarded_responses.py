"""What a provider of the Responses API says in the guardrail's proof: a text in its deltas, and in every object that may hold it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tests.e2e.guarded_wire import written

FINE: Final = "Yes."
CONSTANTS: Final = frozenset(
    {"resp_up", "msg_1", "rs_1", "fc_1", "ctc_1", "call_1", "big", "response", "message", "reasoning", "function_call", "custom_tool_call", FINE}
    | {"output_audio", "output_text", "refusal", "reasoning_text", "summary_text", "in_progress", "completed", "incomplete", "failed", "max_output_tokens"}
    | {"auto", "disabled", "default", "text"}
    | {"response." + each for each in ("created", "in_progress", "completed", "incomplete", "failed", "output_item.added", "output_item.done", "content_part.added", "content_part.done")}
    | {"response.reasoning_summary_part.added", "response.reasoning_summary_part.done"}
    | {f"response.{each}.{end}" for each in ("audio.transcript", "output_text", "refusal", "reasoning_text", "reasoning_summary_text", "function_call_arguments", "custom_tool_call_input") for end in ("delta", "done")}
)  # fmt: skip
AT: Final = {"output_index": 0}
Event = dict[str, Any]
Split = Sequence[str]


@dataclass(frozen=True, slots=True)
class Channel:
    """Where a text is said. `tell` makes the events of an answer that says these pieces there, `item` the item of a whole one; `around`, `free` and `left_out` as in chat; `pieces`: it matters how it is cut."""

    name: str
    tell: Callable[[Split], list[Event]]
    item: Callable[[str], Event]
    around: tuple[str, str] = ("", "")
    free: bool = True
    left_out: bool = False
    pieces: bool = True


def event(kind: str, **members: Any) -> Event:
    """One event."""
    return {"type": f"response.{kind}", **members}


def response(status: str, *output: Event, **members: Any) -> Event:
    """A response object."""
    known = {
        "id": "resp_up",
        "object": "response",
        "created_at": 7,
        "status": status,
        "model": "big",
    }
    return {**known, "output": list(output), **members}


def message(text: str | None = None, kind: str = "output_text") -> Event:
    """A message, begun or whole."""
    member = {"refusal": "refusal", "output_audio": "transcript"}.get(kind, "text")
    content = [] if text is None else [{"type": kind, member: text}]
    return {"id": "msg_1", "type": "message", "status": "in_progress" if text is None else "completed", "role": "assistant", "content": content}  # fmt: skip


def thought(text: str | None = None, *, summary: bool = False) -> Event:
    """A reasoning item."""
    part = {"type": "summary_text" if summary else "reasoning_text", "text": text}
    parts = [] if text is None else [part]
    return {"id": "rs_1", "type": "reasoning", "summary": parts if summary else [], "content": [] if summary else parts}  # fmt: skip


def call(said: str, *, custom: bool = False) -> Event:
    """A call."""
    kind, member = ("custom_tool_call", "input") if custom else ("function_call", "arguments")
    return {"id": "ctc_1" if custom else "fc_1", "type": kind, "status": "completed", "call_id": "call_1", "name": "f", member: said}  # fmt: skip


BEGUN: Final = [event("created", response=response("in_progress")), event("in_progress", response=response("in_progress"))]  # fmt: skip


def _spoken(begun: Event, deltas: str, item: Callable[[str], Event], **place: Any) -> Callable[[Split], list[Event]]:  # fmt: skip
    """All events of an answer that says its text in deltas, and at each end again."""
    name = "transcript" if "transcript" in deltas else "arguments" if "arguments" in deltas else "input" if "input" in deltas else "refusal" if deltas == "refusal" else "text"  # fmt: skip

    def tell(pieces: Split) -> list[Event]:
        at = {**AT, **place, "item_id": begun["id"]}
        said = "".join(pieces)
        return [
            *BEGUN,
            event("output_item.added", **AT, item=begun),
            *(event(f"{deltas}.delta", **at, delta=piece) for piece in pieces),
            event(f"{deltas}.done", **at, **{name: said}),
            event("output_item.done", **AT, item=item(said)),
            event("completed", response=response("completed", item(said))),
        ]

    return tell


def _only(make: Callable[[str], list[Event]], *, fine: bool) -> Callable[[Split], list[Event]]:
    """An answer that says its text in one object alone; `fine`: its deltas say something else."""

    def tell(pieces: Split) -> list[Event]:
        said = [event("output_text.delta", **AT, item_id="msg_1", content_index=0, delta=FINE)]
        return [*BEGUN, event("output_item.added", **AT, item=message()), *(said if fine else []), *make("".join(pieces))]  # fmt: skip

    return tell


def _last(*events: Event, item: Event | None = None, **members: Any) -> list[Event]:
    """These events, and the end of an answer with this item."""
    output = [] if item is None else [item]
    return [*events, event("completed", response=response("completed", *output, **members))]


PLACE: Final = {**AT, "item_id": "msg_1", "content_index": 0}
_OBJECTS: Final[dict[str, Callable[[str], list[Event]]]] = {
    "done": lambda text: _last(event("output_text.done", **PLACE, text=text), item=message(FINE)),
    "part": lambda text: _last(event("content_part.done", **PLACE, part={"type": "output_text", "text": text}), item=message(FINE)),
    "item": lambda text: _last(event("output_item.done", **AT, item=message(text)), item=message(FINE)),
    "response": lambda text: _last(item=message(text)),
}  # fmt: skip
_ASIDE: Final[dict[str, Callable[[str], list[Event]]]] = {
    "beginning": lambda text: _last(event("in_progress", response=response("in_progress", message(text))), item=message(FINE)),
    "added": lambda text: _last(event("output_item.added", output_index=1, item={**message(text), "id": "m"}), item=message(FINE)),
    "begun-part": lambda text: _last(event("content_part.added", **PLACE | {"content_index": 1}, part={"type": "output_text", "text": text}), item=message(FINE)),
    "beside": lambda text: _last(item=message(FINE), output_text=text),
    "again": lambda text: _last(event("output_item.done", **AT, item=message(FINE)), event("output_item.done", **AT, item=message(text)), item=message(FINE)),
}  # fmt: skip
_ALOUD: Final[dict[str, Callable[[str], list[Event]]]] = {
    "done": lambda text: _last(event("audio.transcript.done", transcript=text), item=message(FINE)),
    "part": lambda text: _last(event("content_part.done", **PLACE | {"content_index": 1}, part={"type": "output_audio", "transcript": text}), item=message(FINE)),
    "item": lambda text: _last(event("output_item.done", output_index=1, item={**message(text, "output_audio"), "id": "m"}), item=message(FINE)),
    "response": lambda text: _last(item=message(text, "output_audio")),
}  # fmt: skip
ARGUMENTS: Final = ('{"path":"', '"}')


def _cut(pieces: Split) -> list[Event]:
    """A call that the answer's end cuts off."""
    whole = _spoken(call(""), "function_call_arguments", call)(pieces)[:-3]
    return [*whole, event("incomplete", response=response("incomplete", incomplete_details={"reason": "max_output_tokens"}))]  # fmt: skip


CHANNELS: Final = (
    Channel("text", _spoken(message(), "output_text", message, content_index=0), message),
    Channel("refusal", _spoken(message(), "refusal", lambda text: message(text, "refusal"), content_index=0), lambda text: message(text, "refusal")),
    Channel("reasoning", _spoken(thought(), "reasoning_text", thought, content_index=0), thought),
    Channel("summary", _spoken(thought(), "reasoning_summary_text", lambda text: thought(text, summary=True), summary_index=0), lambda text: thought(text, summary=True)),
    Channel("arguments", _spoken(call(""), "function_call_arguments", call), call, ARGUMENTS, free=False),
    Channel("input", _spoken(call("", custom=True), "custom_tool_call_input", lambda text: call(text, custom=True)), lambda text: call(text, custom=True)),
    Channel("transcript", _spoken(message(), "audio.transcript", lambda text: message(text, "output_audio"), content_index=0), lambda text: message(text, "output_audio")),
    Channel("cut", _cut, call, ('{"path":"', ""), free=False, left_out=True),
    *(Channel(f"aloud-{name}", _only(make, fine=True), message, pieces=False) for name, make in _ALOUD.items()),
    *(Channel(f"only-{name}", _only(make, fine=False), message, pieces=False) for name, make in _OBJECTS.items()),
    *(Channel(f"other-{name}", _only(make, fine=True), message, left_out=True, pieces=False) for name, make in (_OBJECTS | _ASIDE).items()),
)  # fmt: skip


def events(channel: Channel, pieces: Split, *, escaped: bool) -> list[bytes]:
    """The events of an answer that says these pieces."""
    return [
        b"event: %b\ndata: %b\n\n" % (each["type"].encode(), written(each, escaped=escaped))
        for each in channel.tell(pieces)
    ]


def body(channel: Channel, pieces: Split) -> bytes:
    """An answer that says them in one object."""
    return json.dumps(response("completed", channel.item("".join(pieces)))).encode()
