"""A Responses answer as events: which are written for a frame, with what numbers, and what has to begin or to end before.

    numbers     `sequence_number` is given as an event is written; `output_index`, the parts' indexes and ids at an item's first release, in order of arrival
    identity    one response id and one `created_at`; `model` is the alias that was asked for, in every response object
    beginning   `response.created` and `response.in_progress` go with the first release; an item and a part begin where they first have something to say
    end         what its provider said of a part's, or an item's, end is kept until something else follows, because another attempt may go on in it; what was not said is made up for

Every other member of an event keeps its provider's bytes; an event that nobody here knows is numbered and passes, with the identity of this response where it names one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Final

import msgspec

from gate.events import (
    Frame,
    Place,
    ReasoningDelta,
    RefusalDelta,
    Start,
    TextDelta,
    ToolDelta,
)
from gate.responses import CALL_DELTAS, LIFECYCLE, TERMINAL, TEXT_DELTAS
from gate.responses_defaults import filled
from gate.responses_frames import (
    CALL_DONE,
    ITEM_ADDED,
    ITEM_DONE,
    PART_ADDED,
    PART_DONE,
    TEXT_DONE,
    owner,
    part_kind,
)
from gate.responses_items import CALL_FIELDS, MESSAGE, PART_OF, PARTS, REASONING
from gate.responses_log import (
    Item,
    Members,
    Part,
    final_item,
    identified,
    joined,
    members,
    value_of,
    with_text,
    without_nulls,
)

__all__ = ["Encoder"]

ANNOTATION: Final = "response.output_text.annotation.added"
_FIRST: Final = frozenset({"type", "sequence_number"})
_AT: Final = frozenset({"item_id", "output_index"})
_OWN: Final[Mapping[type, str]] = {
    TextDelta: "output_text",
    RefusalDelta: "refusal",
    ReasoningDelta: "reasoning_text",
}
_MADE: Final = -2  # items that no event of a provider began are counted down from here


@lru_cache(maxsize=256)
def _named(member: str) -> bytes:
    """A member's name as it stands within an object."""
    return b",%b:" % msgspec.json.encode(member)


class Encoder:
    """One response, event by event. `write` takes an event's type and its members."""

    def __init__(self, start: Start) -> None:
        self._start = start
        self._identity: Members = {
            "id": msgspec.json.encode(start.id),
            "created_at": str(start.created).encode(),
            "model": msgspec.json.encode(start.shape.model),
        }
        # What an event itself may say of these, beside a response object.
        self._names = {"response_id": self._identity["id"], "model": self._identity["model"]}
        self._asked = members(start.shape.asked or b"{}")
        self._number = 0
        self._out: list[bytes] = []
        self._begun = False
        self._before: dict[str, Members] = {}  # what came before the first item, by type
        self._response: Members = {}  # the response object as its provider began it
        self._last: Members = {}  # and as it ended it
        self._beside: Members = {}  # what else the event at the end says
        self._items: dict[int, Item] = {}
        self._released: list[Item] = []
        self._taken: set[str] = set()
        self._steps: Mapping[str, Callable[[Frame, Place], None]] = {
            ITEM_ADDED: self._item_added,
            ITEM_DONE: self._item_done,
            ANNOTATION: self._annotation,
            **dict.fromkeys(TEXT_DELTAS, self._delta),
            **dict.fromkeys(CALL_DELTAS, self._call_delta),
            **dict.fromkeys(PART_ADDED, self._part_added),
            **dict.fromkeys(PART_DONE, self._part_done),
            **dict.fromkeys(TEXT_DONE, self._part_done),
            **dict.fromkeys(CALL_DONE, self._call_done),
            **dict.fromkeys(LIFECYCLE, self._lifecycle),
            **dict.fromkeys(TERMINAL, self._terminal),
        }

    def take(self, frames: list[Frame]) -> bytes:
        """The events that these frames are now."""
        for frame in frames:
            place = frame.events[0]
            if not isinstance(place, Place):  # a step that changes text may have put it behind that
                place = next(each for each in frame.events if isinstance(each, Place))
            self._steps.get(place.kind, self._other)(frame, place)
        return self._written()

    def _written(self) -> bytes:
        data = b"".join(self._out)
        self._out.clear()
        return data

    def _write(self, kind: str, values: Mapping[str, bytes]) -> None:
        """One event; its type and its number stand first."""
        name = kind.encode()
        told = [b'event: %b\ndata: {"type":"%b","sequence_number":%d' % (name, name, self._number)]
        mentions = "response" in values and kind not in LIFECYCLE and kind not in TERMINAL
        if mentions:  # an event that is not about the response is of it all the same
            values = {**values, "response": identified(values["response"], self._identity)}
        for member, raw in values.items():
            if member not in _FIRST:
                told += (_named(member), self._names.get(member, raw))
        told.append(b"}\n\n")
        self._number += 1
        self._out += told

    # ---- the response object --------------------------------------------------------------------

    def _lifecycle(self, frame: Frame, place: Place) -> None:
        """Another attempt's, or one too late, says nothing new."""
        if self._begun:
            return
        values = members(frame.data)
        said = members(values.get("response", b"{}"))
        self._response = self._response or said
        self._before.setdefault(place.kind, {**values, "response": joined(self._began(said))})

    def _began(self, said: Members) -> Members:
        queued = said.get("status") == b'"queued"'
        status = b'"queued"' if queued else b'"in_progress"'
        return self._object({**said, "status": status, "output": b"[]"})

    def _object(self, values: Members) -> Members:
        """A response object of this identity."""
        first = {"id": b"", "object": b'"response"', "created_at": b""}
        told = with_text({**first, **values, **self._identity}, self._released)
        return filled(told, self._asked)

    def _begin(self) -> None:
        """Nothing is written before an item has something to say."""
        if self._begun:
            return
        self._begun = True
        events, self._before = self._before, {}
        beginning = {"response": joined(self._began(self._response))}
        self._write("response.created", events.get("response.created", beginning))
        if "response.queued" in events:
            self._write("response.queued", events["response.queued"])
        self._write("response.in_progress", events.get("response.in_progress", beginning))

    # ---- items and parts ------------------------------------------------------------------------

    def _item(self, place: Place, kind: str) -> Item:
        item = self._items.get(place.item)
        if item is None:
            item = self._items[place.item] = Item(kind)
        return item

    def _open(self, item: Item, name: bytes | None = None) -> None:
        """The item begins, if it has not; what is over before it ends."""
        if item.open:
            return
        self._begin()
        for each in self._released:
            if each.done or each.made:
                self._close(each)
        item.open = True
        said = value_of(item.added.get("id") or name)
        item.name(len(self._released), self._start.id, said if isinstance(said, str) else None, self._taken)  # fmt: skip
        self._released.append(item)
        self._write(ITEM_ADDED, {"output_index": b"%d" % item.index, "item": item.beginning()})

    def _open_part(self, item: Item, part: Part, name: bytes | None = None) -> None:
        """The part begins, if it has not; the one before it ends."""
        self._open(item, name)
        if part.open:
            return
        for each in item.parts.values():
            self._close_part(item, each)
        part.open = True
        part.index = (
            sum(each.open and each.summary is part.summary for each in item.parts.values()) - 1
        )
        kind = "response.reasoning_summary_part.added" if part.summary else "response.content_part.added"  # fmt: skip
        self._write(kind, {**self._at(item, part), "part": part.empty()})

    def _at(self, item: Item, part: Part | None = None) -> Members:
        """Where an event of this item, or part, stands."""
        told = {
            "item_id": item.id_json,
            "output_index": b"%d" % item.index,
        }
        if part is not None:
            told["summary_index" if part.summary else "content_index"] = b"%d" % part.index
        return told

    def _item_added(self, frame: Frame, place: Place) -> None:
        values = members(frame.data)
        said = members(values.get("item", b"{}"))
        kind = value_of(said.get("type"))
        known = self._items.get(place.item)
        if known is not None:
            if not known.open:
                known.added = known.added or said
            return  # another attempt goes on with it
        item = self._items[place.item] = Item(str(kind))
        item.added = said
        if kind not in {MESSAGE, REASONING}:
            self._open(item)

    def _part_added(self, frame: Frame, place: Place) -> None:
        kind = part_kind(frame, place.kind)
        if kind is None:
            self._other(frame, place)
            return
        part = self._item(place, owner(kind)).part(kind, place.part)
        part.added = part.added or members(members(frame.data).get("part", b"{}"))

    def _delta(self, frame: Frame, place: Place) -> None:
        kind = PART_OF[place.kind]
        own = TEXT_DELTAS[place.kind]
        for event in frame.events:
            if isinstance(event, own):
                self._own_delta(frame, place, kind, event.text)
            elif isinstance(event, TextDelta | ReasoningDelta | RefusalDelta):
                self._moved_delta(event)

    def _own_delta(self, frame: Frame, place: Place, kind: str, text: str) -> None:
        values = members(frame.data)
        item = self._item(place, owner(kind))
        part = item.part(kind, place.part)
        if not part.open:
            self._open_part(item, part, values.get("item_id"))
        part.add(text)
        if part.dones or item.done:
            part.dones.clear()
            item.done = {}
        if kind == "output_text" and values.get("logprobs", b"null") == b"null":
            values["logprobs"] = b"[]"
        values.update(self._at(item, part))
        self._write(place.kind, values)

    def _moved_delta(self, event: TextDelta | ReasoningDelta | RefusalDelta) -> None:
        """Text that mending has called something else than its event does: it goes to an item of ours."""
        kind = _OWN[type(event)]
        wanted = owner(kind)
        item = next((each for each in self._released if each.made and each.kind == wanted and not each.over), None)  # fmt: skip
        if item is None:
            item = self._items[_MADE - len(self._items)] = Item(wanted, made=True)
        part = item.part(kind, 0)
        self._open_part(item, part)
        part.add(event.text)
        values = {**self._at(item, part), "delta": msgspec.json.encode(event.text)}
        if kind == "output_text":
            values["logprobs"] = b"[]"
        self._write(PARTS[kind][1], values)

    def _annotation(self, frame: Frame, place: Place) -> None:
        item = self._items.get(place.item)
        if item is None or item.kind != MESSAGE:
            self._other(frame, place)
            return
        values = members(frame.data)
        part = item.part("output_text", max(place.part, 0))
        self._open_part(item, part, values.get("item_id"))
        part.annotations.append(values.get("annotation", b"null"))
        self._write(place.kind, {**values, **self._at(item, part)})

    def _part_done(self, frame: Frame, place: Place) -> None:
        """Kept until something else follows."""
        delta = place.kind.removesuffix(".done") + ".delta"
        kind = PART_OF.get(delta) or part_kind(frame, place.kind)
        if kind is None:
            self._other(frame, place)
            return
        item = self._items.get(place.item)
        part = item.parts.get((kind, place.part)) if item is not None else None
        if part is not None:
            part.dones[place.kind] = members(frame.data)

    def _item_done(self, frame: Frame, place: Place) -> None:
        said = members(members(frame.data).get("item", b"{}"))
        item = self._item(place, str(value_of(said.get("type"))))
        item.done = said
        item.added = item.added or said
        if item.kind in CALL_FIELDS or item.hosted:
            self._open(item)
            self._close(item)
        elif not item.open and not self._stands_for(item):
            self._open(item)

    def _stands_for(self, item: Item) -> bool:
        """Whether an item of ours holds what this empty one would have said."""
        moved = any(each.made and each.kind == item.kind for each in self._released)
        return moved and item.said_nothing

    def _call_delta(self, frame: Frame, place: Place) -> None:
        item = self._items[place.item]
        for event in frame.events:
            if isinstance(event, ToolDelta) and event.arguments:
                item.arguments.write(event.arguments)
        self._write(place.kind, {**members(frame.data), **self._at(item)})

    def _call_done(self, frame: Frame, place: Place) -> None:
        self._items[place.item].call_done = members(frame.data)

    def _other(self, frame: Frame, place: Place) -> None:
        """What nobody here knows is numbered like everything else; where it names an item that is not there, it names none."""
        values = members(frame.data)
        item = self._items.get(place.item)
        if item is None:
            self._begin()
            at: Members = {}
        else:
            self._open(item)
            at = self._at(item)
        kept = {
            name: at.get(name, raw) for name, raw in values.items() if name in at or name not in _AT
        }
        self._write(place.kind, kept)

    # ---- ends -----------------------------------------------------------------------------------

    def _close_part(self, item: Item, part: Part) -> None:
        if not part.open or part.over:
            return
        part.over = True
        at = self._at(item, part)
        text_done = PARTS[part.kind][1].removesuffix(".delta") + ".done"
        said = without_nulls(part.dones.get(text_done, {}))
        values = {**said, **at, part.field: msgspec.json.encode(part.text)}
        if value_of(said.get(part.field)) == part.text:
            values[part.field] = said[part.field]
        part_done = "response.reasoning_summary_part.done" if part.summary else "response.content_part.done"  # fmt: skip
        known = part.dones.get(part_done, {})
        told = members(known["part"]) if "part" in known else None
        if part.kind == "output_text":
            same = told is not None and value_of(told.get(part.field)) == part.text
            beside = without_nulls(told) if same and told is not None else {}
            values.setdefault("logprobs", beside.get("logprobs", b"[]"))
        self._write(text_done, values)
        self._write(part_done, {**known, **at, "part": part.object(told)})

    def _close(self, item: Item, *, status: str = "completed") -> None:
        """The item's end: what was said of it, with what was released."""
        if not item.open or item.over:
            return
        for part in item.parts.values():
            self._open_part(item, part)  # one without text, too
            self._close_part(item, part)
        item.over = True
        if item.kind in CALL_FIELDS:
            self._close_call(item)
        final = final_item(item, status=status)
        self._write(ITEM_DONE, {"output_index": b"%d" % item.index, "item": final})

    def _close_call(self, item: Item) -> None:
        field, kind = (
            CALL_FIELDS[item.kind],
            next(k for k, of in CALL_DONE.items() if of == item.kind),
        )
        arguments = item.arguments.getvalue()
        said = item.call_done
        values = {**said, **self._at(item), field: msgspec.json.encode(arguments)}
        if value_of(said.get(field)) == arguments:
            values[field] = said[field]
        self._write(kind, values)

    def _terminal(self, frame: Frame, place: Place) -> None:
        values = members(frame.data)
        self._last = members(values.pop("response", b"{}"))
        self._beside = values
