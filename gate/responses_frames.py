"""The frames of a Responses attempt as mending makes and reads them: the names of events by what they do, a frame with its place, frames of our own, and those that wait for a call to end."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from gate.events import Event, Frame, Place, Slot, ToolDelta, ToolEnd
from gate.evidence import FRAME_OVERHEAD_BYTES
from gate.loose_json import encoded, paired, tolerant_object
from gate.responses import CALL_DELTAS
from gate.responses_items import MESSAGE, PARTS, REASONING, Call, Item

__all__ = [
    "CALL_DONE",
    "ITEM_ADDED",
    "ITEM_DONE",
    "PART_ADDED",
    "PART_DONE",
    "SUMMARY",
    "TEXT_DONE",
    "CallQueue",
    "Held",
    "added_frame",
    "created_frame",
    "is_on_the_way",
    "item_of",
    "owner",
    "part_kind",
    "placed",
    "whole_call",
]

ITEM_ADDED: Final = "response.output_item.added"
ITEM_DONE: Final = "response.output_item.done"
SUMMARY: Final = "response.reasoning_summary"
PART_ADDED: Final = frozenset(
    {
        "response.content_part.added",
        "response.reasoning_part.added",
        "response.reasoning_summary_part.added",
    }
)
PART_DONE: Final = frozenset(
    {
        "response.content_part.done",
        "response.reasoning_part.done",
        "response.reasoning_summary_part.done",
    }
)
# Events that say all of a text: the member that holds it.
TEXT_DONE: Final[Mapping[str, str]] = {
    "response.output_text.done": "text",
    "response.refusal.done": "refusal",
    "response.reasoning_text.done": "text",
    "response.reasoning_summary_text.done": "text",
}
CALL_DONE: Final[Mapping[str, str]] = {
    "response.function_call_arguments.done": "function_call",
    "response.custom_tool_call_input.done": "custom_tool_call",
}
# What a provider does on its way to an answer, and what its tools gave back: no answer by themselves.
_ON_THE_WAY: Final = frozenset(
    {
        "code_interpreter_call",
        "compaction",
        "file_search_call",
        "mcp_call",
        "mcp_list_tools",
        "web_search_call",
    }
)


def placed(
    frame: Frame, slot: Slot, item: Item | None, part: int, events: tuple[Event, ...] = ()
) -> Frame:
    """The frame with its place, and these events behind it."""
    place = Place(slot.kind, -1 if item is None else item.key, part)
    return Frame(frame.data, (place, *events), frame.size)


def owner(part: str) -> str:
    """The kind of item that a part of this type belongs to."""
    return REASONING if part in {"reasoning_text", "summary_text"} else MESSAGE


def part_kind(frame: Frame, kind: str) -> str | None:
    """The type of the part that an event of this type is about; None where it is none that holds text."""
    if kind.startswith(SUMMARY):
        return "summary_text"
    part = (tolerant_object(frame.data) or {}).get("part")
    said = part.get("type") if isinstance(part, dict) else None
    if said is None and kind.startswith("response.reasoning"):
        return "reasoning_text"
    return said if said in PARTS else None


def item_of(frame: Frame) -> dict[str, Any]:
    """The item object of an event."""
    item = (tolerant_object(frame.data) or {}).get("item")
    return item if isinstance(item, dict) else {}


def is_on_the_way(kind: str) -> bool:
    """Whether an item of this kind is no answer by itself, or is judged by its text."""
    return kind in {MESSAGE, REASONING} or kind in _ON_THE_WAY or kind.endswith("_output")


def created_frame(response: Mapping[str, Any]) -> Frame:
    """The beginning of a response of which only the end came."""
    began = {**response, "status": "in_progress", "output": []}
    nothing = ("usage", "error", "incomplete_details", "completed_at")
    began |= {name: None for name in nothing if name in began}
    data = encoded({"type": "response.created", "response": began})
    return Frame(data, (Place("response.created"),), len(data))


def added_frame(item: Item, said: Mapping[str, Any]) -> Frame:
    """The beginning of an item of which only the end came."""
    began = {name: value for name, value in said.items() if name not in {"content", "summary"}}
    data = encoded({"type": ITEM_ADDED, "item": {**began, "status": "in_progress"}})
    return Frame(data, (Place(ITEM_ADDED, item.key),), len(data))


def whole_call(item: Item, call: Call) -> Iterator[Frame]:
    """A mended call: its beginning, all of its arguments, its end."""
    name, call_id, arguments = paired(call.name), paired(call.id), paired(call.arguments)
    known = {**call.item, "type": item.kind, "call_id": call_id, "name": name}
    kind = next(kind for kind, custom in CALL_DELTAS.items() if custom is call.custom)
    begun = ToolDelta(0, call.index, call_id, name, None, call.custom)
    piece = ToolDelta(0, call.index, None, None, arguments, call.custom)
    told: list[tuple[dict[str, Any], str, Event]] = [
        ({"item": {**known, call.field: "", "status": "in_progress"}}, ITEM_ADDED, begun),
        ({"delta": arguments}, kind, piece),
        (
            {"item": {**known, call.field: arguments, "status": "completed"}},
            ITEM_DONE,
            ToolEnd(0, call.index),
        ),
    ]
    for members, type_, event in told:
        data = encoded({"type": type_, **members})
        yield Frame(data, (Place(type_, item.key), event), len(data))


class Held(NamedTuple):
    """A frame that waits, or follows one that does. `call`: the one that it is of."""

    frame: Frame
    call: Call | None
    item: Item | None

    def saying(self, events: tuple[Event, ...]) -> Held:
        """The same frame with these events, too."""
        if not events:
            return self
        frame = msgspec.structs.replace(self.frame, events=(*self.frame.events, *events))
        return self._replace(frame=frame)


class CallQueue:
    """Frames that wait for a call to end. Those of a call that needed nothing leave as they came, those of any other give way to frames of our own, and those of one that is left out go."""

    def __init__(self) -> None:
        self.held_bytes = 0
        self._held: deque[Held] = deque()
        self._made: set[int] = set()  # indexes of mended calls that have left

    def __len__(self) -> int:
        return len(self._held)

    @property
    def ledger_bytes(self) -> int:
        """What is held costs so much."""
        return self.held_bytes + FRAME_OVERHEAD_BYTES * len(self._held)

    def hold(self, held: Held) -> None:
        """One more frame."""
        self._held.append(held)
        self.held_bytes += held.frame.size

    def ready(self) -> Iterator[Frame]:
        """The frames that wait for nothing any more."""
        queue = self._held
        while queue and (queue[0].call is None or queue[0].call.ended):
            frame, call, item = queue.popleft()
            self.held_bytes -= frame.size
            if call is None or not (call.mended or call.left_out):
                yield frame
            elif call.mended and not call.left_out and call.index not in self._made:
                self._made.add(call.index)
                assert item is not None, "a call is an item"
                yield from whole_call(item, call)
                call.forget()

    def clear(self) -> None:
        """Nothing of it is wanted any more."""
        self._held.clear()
        self.held_bytes = 0
