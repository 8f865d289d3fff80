"""The output items of one Responses attempt as they come together: which item and which part an event belongs to, and what has been said of each.

    item   by `output_index`; without one by its id; else the newest of its kind that is open. An event for an item that is over, or that nobody began, begins one
    part   by `content_index` or `summary_index`; without one the newest of its item

What an event at the end says of a text is compared with a digest of what its deltas brought, so that no text is kept here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

from gate.events import Slot
from gate.loose_json import encoded, items, string
from gate.mending_calls import is_whole_object

__all__ = [
    "CALL_FIELDS",
    "ID_DIGITS",
    "MESSAGE",
    "PARTS",
    "PART_OF",
    "REASONING",
    "Call",
    "Item",
    "Items",
    "Part",
    "Said",
    "said_in",
]

MESSAGE: Final = "message"
REASONING: Final = "reasoning"
CALL_FIELDS: Final[Mapping[str, str]] = {
    "function_call": "arguments",
    "custom_tool_call": "input",
}
"""Kinds of items that are calls to be carried out by the caller, and the member that says with what."""

ID_DIGITS: Final = 24
ITEM_BYTES: Final = 2_048  # what is known of an item with its parts, in CPython 3.11
PARTS: Final[Mapping[str, tuple[str, str]]] = {
    "output_text": ("text", "response.output_text.delta"),
    "refusal": ("refusal", "response.refusal.delta"),
    "reasoning_text": ("text", "response.reasoning_text.delta"),
    "summary_text": ("text", "response.reasoning_summary_text.delta"),
}
"""Types of parts that hold text: the member that holds it, and the delta that brings it. One of another type passes as it is."""

PART_OF: Final[Mapping[str, str]] = {delta: part for part, (_, delta) in PARTS.items()}
"""The type of the part that a delta adds to."""

Said: TypeAlias = tuple[str, int, str]
"""A text that an object holds: its part's type and index, and all of it."""


class Part:
    """The text of one part, as far as deltas brought it."""

    def __init__(self) -> None:
        self.half = ""  # of a character; it waits for the other
        self._chars = 0
        self._digest = hashlib.blake2b(digest_size=16)

    def add(self, text: str) -> None:
        """Takes in what a delta brought."""
        self._chars += len(text)
        self._digest.update(text.encode("utf-8", "surrogatepass"))

    def missing(self, text: str) -> str:
        """What of `text`, said to be all of it, no delta brought. Nothing where it says something else: then the deltas hold."""
        if len(text) <= self._chars:
            return ""
        same = hashlib.blake2b(text[: self._chars].encode("utf-8", "surrogatepass"), digest_size=16)
        return text[self._chars :] if same.digest() == self._digest.digest() else ""


class Call:
    """A call of the caller's. `index`: its number in the attempt; `mended`: it can't leave as it came; `left_out`: it never leaves."""

    def __init__(self, index: int, *, custom: bool) -> None:
        self.index = index
        self.custom = custom
        self.id = ""
        self.name = ""
        self.item: dict[str, Any] = {}
        self.mended = False
        self.left_out = False
        self.ended = False
        self._pieces: list[str] = []
        self._said = ""

    @property
    def arguments(self) -> str:
        """All of them: what deltas brought, completed by what an object said."""
        joined = "".join(self._pieces)
        return self._said if self._said.startswith(joined) else joined

    def add(self, piece: str) -> None:
        """Takes in what a delta brought."""
        self._pieces.append(piece)

    def said(self, arguments: str) -> None:
        """What an event at its end says that they are."""
        self._said = arguments or self._said

    def told(self, item: Mapping[str, Any], *, last: bool) -> None:
        """What an item object says of the call; `last`: the object at its end."""
        name, call_id = string(item.get("name")) or "", string(item.get("call_id")) or ""
        said = item.get(self.field)
        if said is not None and not isinstance(said, str):
            said, self.mended = encoded(said).decode(), True
        self.mended |= bool(self.item) and (name, call_id) != (self.name, self.id)
        self.name, self.id = self.name or name, self.id or call_id
        self.item = {**self.item, **item}
        self._said = said or self._said
        if last:
            self.mended |= "".join(self._pieces) != self._said

    def end(self, seed: str, *, cut: bool) -> None:
        """No piece of it comes any more. `cut`: the answer ended early, so a call that is not whole goes; `seed`: what an id is made of where it has none."""
        self.ended = True
        done = self.item.get("status") == "completed"  # free text has no end of its own
        whole = done if self.custom else is_whole_object(self.arguments)
        self.left_out = cut and not whole
        if not self.id:
            digest = hashlib.sha256(f"{seed} {self.index}".encode("utf-8", "replace"))
            self.id = f"call_{digest.hexdigest()[:ID_DIGITS]}"
            self.mended = True
        if not self.mended or self.left_out:
            self.forget()

    def forget(self) -> None:
        """Its arguments are not needed any more."""
        self._pieces.clear()
        self._said = ""

    @property
    def field(self) -> str:
        """The member that holds its arguments."""
        return CALL_FIELDS["custom_tool_call" if self.custom else "function_call"]


class Item:
    """One output item of the attempt. `key` names it in the exchange's logical response; `shift`: where its parts begin in there."""

    def __init__(self, key: int, kind: str, *, shift: int = 0) -> None:
        self.key = key
        self.kind = kind
        self.shift = shift
        self.over = False
        self.announced = False  # an event said that it begins
        self.ids: set[str] = set()
        self.parts: dict[tuple[str, int], Part] = {}
        self.call: Call | None = None

    def part(self, index: int | None, kind: str) -> tuple[int, Part]:
        """The part of this type at `index`, or, where that is not said, the newest; which begins with it if it is not there."""
        if index is None:
            known = [number for of, number in self.parts if of == kind]
            index = known[-1] if known else 0
        part = self.parts.get((kind, index))
        if part is None:
            part = self.parts[kind, index] = Part()
        return index, part

    def opened(self, index: int | None, kind: str) -> int:
        """A part begins: its index, the next one where none is said."""
        if index is None:
            index = sum(of == kind for of, _ in self.parts)
        return self.part(index, kind)[0]


class Items:
    """The items of one attempt, in the order in which they began. `first`: the first key that is free; `going_on`: an open message of the answer so far, its key and its newest part."""

    def __init__(self, first: int = 0, going_on: tuple[int, int] | None = None) -> None:
        self.next_key = first
        self.all: list[Item] = []
        self.text_at: tuple[int, int] | None = going_on  # where the newest answer text stands
        self._going_on = going_on
        self._calls = 0
        self.ledger_bytes = 0
        self._at: dict[int, Item] = {}
        self._by_id: dict[str, Item] = {}

    def at(self, slot: Slot) -> Item | None:
        """The item that an event names, by its index, else by its id."""
        if slot.index is not None:
            return self._at.get(slot.index)
        return self._by_id.get(slot.item) if slot.item is not None else None

    def find(self, slot: Slot, kind: str | None = None) -> Item | None:
        """The item that an event belongs to, of this kind where it has to be one; None where there is none that is open."""
        found = self.at(slot)
        if found is None and slot.index is None:
            fit = (
                each for each in reversed(self.all) if not each.over and kind in {None, each.kind}
            )
            found = next(fit, None)
        if found is None or found.over or (kind is not None and found.kind != kind):
            return None
        self._name(found, slot.item)
        return found

    def of(self, slot: Slot, kind: str) -> Item:
        """The item that an event belongs to; one that nobody began begins with it."""
        return self.find(slot, kind) or self.begin(slot.index, slot.item, kind)

    def begin(self, index: int | None, name: str | None, kind: str) -> Item:
        """Another item."""
        if kind == MESSAGE and self._going_on is not None:
            (key, part), self._going_on = self._going_on, None
            item = Item(key, kind, shift=part)
        else:
            item = Item(self.next_key, kind)
            self.next_key += 1
        if kind in CALL_FIELDS:
            item.call = Call(self._calls, custom=kind == "custom_tool_call")
            self._calls += 1
        self.all.append(item)
        self.ledger_bytes += ITEM_BYTES
        if index is not None:
            self._at[index] = item
        self._name(item, name)
        return item

    def _name(self, item: Item, name: str | None) -> None:
        if name:
            item.ids.add(name)
            self._by_id.setdefault(name, item)

    @property
    def resumable(self) -> bool:
        """Nothing but one message, and thoughts before it."""
        kinds = [item.kind for item in self.all if item.kind != REASONING]
        return kinds in ([], [MESSAGE])

    def matched(
        self, output: Sequence[Mapping[str, Any]]
    ) -> Iterator[tuple[Item, Mapping[str, Any]]]:
        """The items of a response object, each with the item of the attempt that it is: by its id, else the next one of its kind. One that did not come before begins."""
        free = list(self.all)
        for said in output:
            kind, name = string(said.get("type")), string(said.get("id"))
            if not kind:
                continue
            same = [each for each in free if each.kind == kind]
            named = [each for each in same if name in each.ids]
            item = next(iter(named or same), None)
            if item is None:
                item = self.begin(None, name, kind)
            else:
                free.remove(item)
            yield item, said


def said_in(item: Mapping[str, Any]) -> Iterator[Said]:
    """Every text that an item object holds."""
    for member in ("summary", "content"):
        for index, part in enumerate(items(item.get(member))):
            kind = string(part.get("type")) or ""
            text = string(part.get(PARTS[kind][0])) if kind in PARTS else None
            if text:
                yield kind, index, text
