"""A Responses answer as its caller has it so far: items and parts with their released text, and the objects that say so.

Every object that holds text is compared with what was released. One that says the same keeps its provider's bytes, but for its id; any other gets the released text, or is made anew.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

import msgspec

from gate.loose_json import encoded, tolerant_object
from gate.responses_items import CALL_FIELDS, ID_DIGITS, MESSAGE, PARTS, REASONING
from gate.splice import elements_of

__all__ = [
    "Item",
    "Members",
    "Part",
    "elements",
    "final_item",
    "final_output",
    "identified",
    "joined",
    "members",
    "value_of",
    "with_text",
    "without_nulls",
]

Members: TypeAlias = dict[str, bytes]
"""The members of an object, each value as its bytes."""

_members: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_NEVER_NULL: Final = frozenset({"annotations", "logprobs", "phase"})
_PREFIXES: Final = {
    MESSAGE: "msg",
    REASONING: "rs",
    "function_call": "fc",
    "custom_tool_call": "ctc",
}


def members(data: bytes) -> Members:
    """The members of a JSON object, in order; nothing where it is none."""
    try:
        return {name: bytes(raw) for name, raw in _members.decode(data).items()}
    except (msgspec.MsgspecError, RecursionError):
        value = tolerant_object(data) or {}
        return {name: encoded(item) for name, item in value.items()}


def elements(data: bytes | None) -> list[bytes]:
    """The elements of a JSON array, each as its bytes; nothing where it is none."""
    if data is None or not data.startswith(b"["):
        return []
    return [data[start:end] for start, end in elements_of(data, 0)]


def joined(values: Mapping[str, bytes]) -> bytes:
    """JSON of an object with these members."""
    encode = msgspec.json.encode
    return b"{%b}" % b",".join([b"%b:%b" % (encode(name), raw) for name, raw in values.items()])


class Part:
    """One part. `kind`: its type; `index`: within its item, ours from its first release on; `added`, `dones`: the object that began it, and what was said at its end, by event type."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.index = -1
        self.added: Members = {}
        self.dones: dict[str, Members] = {}
        self.annotations: list[bytes] = []
        self.open = False
        self.over = False
        self._text = io.StringIO()

    @property
    def text(self) -> str:
        """All that was released of it."""
        return self._text.getvalue()

    def add(self, text: str) -> None:
        self._text.write(text)

    @property
    def field(self) -> str:
        """The member that holds its text."""
        return PARTS[self.kind][0]

    @property
    def summary(self) -> bool:
        return self.kind == "summary_text"

    def object(self, said: Members | None = None) -> bytes:
        """The whole part; `said`: its provider's object, kept where it says the released text."""
        values = without_nulls(said or self.added)
        if said and value_of(said.get(self.field)) == self.text:
            if self.kind == "output_text":  # strict clients refuse one without
                values.setdefault("annotations", b"[%b]" % b",".join(self.annotations))
                if "logprobs" in said:
                    values.setdefault("logprobs", b"[]")
            return joined(values)
        kind = msgspec.json.encode(self.kind)
        values = {**({} if values.get("type") != kind else values), "type": kind}
        values[self.field] = msgspec.json.encode(self.text)
        if self.kind == "output_text":
            told = b"[%b]" % b",".join(self.annotations)
            values["annotations"] = values.get("annotations", told)
            values["logprobs"] = b"[]"  # those of the deltas are with them
        return joined(values)

    def empty(self) -> bytes:
        """The part as it begins."""
        values = without_nulls(self.added)
        values |= {"type": msgspec.json.encode(self.kind), self.field: b'""'}
        if self.kind == "output_text":
            values.setdefault("annotations", b"[]")
            values.setdefault("logprobs", b"[]")
        return joined(values)


class Item:
    """One item. `index` and `id` are ours from its first release on; `made`: nobody said that it begins."""

    def __init__(self, kind: str, *, made: bool = False) -> None:
        self.kind = kind
        self.made = made
        self.index = -1
        self.id = ""
        self.id_json = b'""'
        self.added: Members = {}
        self.done: Members = {}
        self.call_done: Members = {}
        self.parts: dict[tuple[str, int], Part] = {}
        self.arguments = io.StringIO()
        self.open = False
        self.over = False

    @property
    def hosted(self) -> bool:
        """Neither text nor a call of the caller's: its events pass as they are."""
        return self.kind not in {MESSAGE, REASONING} and self.kind not in CALL_FIELDS

    @property
    def said_nothing(self) -> bool:
        """No part of it has text."""
        return not any(part.text for part in self.parts.values())

    def part(self, kind: str, at: int) -> Part:
        """The part of this type that mending has put at this place; it begins with it."""
        part = self.parts.get((kind, at))
        if part is None:
            part = self.parts[kind, at] = Part(kind)
        return part

    def name(self, index: int, response: str, said: str | None, taken: set[str]) -> None:
        """Its place and its id from now on: the provider's, unless another item has that."""
        self.index = index
        name = said or ""
        if not name or name in taken:
            digest = hashlib.sha256(f"{response} {index}".encode("utf-8", "replace")).hexdigest()
            name = f"{_PREFIXES.get(self.kind, 'item')}_{digest[:ID_DIGITS]}"
        taken.add(name)
        self.id = name
        self.id_json = msgspec.json.encode(name)

    def beginning(self) -> bytes:
        """The item as it begins: without text."""
        values = without_nulls(self.added) or self._bare()
        values["id"] = msgspec.json.encode(self.id)
        if self.hosted:
            return joined(values)
        if "status" in values or self.kind != REASONING:
            values["status"] = b'"in_progress"'
        if self.kind in CALL_FIELDS:
            values[CALL_FIELDS[self.kind]] = b'""'
            return joined(values)
        if self.kind == MESSAGE:
            values["content"] = b"[]"
        else:
            values["summary"] = b"[]"
            if "content" in values:
                values["content"] = b"[]"
        return joined(values)

    def _bare(self) -> Members:
        values = {"id": b'""', "type": msgspec.json.encode(self.kind), "status": b'"in_progress"'}
        return {**values, "role": b'"assistant"'} if self.kind == MESSAGE else values


def final_item(item: Item, said: Members | None = None, *, status: str = "completed") -> bytes:
    """The whole item. `said`: what the response object at the end says of it; `status`: of one whose end nobody said."""
    values = without_nulls(said or item.done)
    if not values:
        values = {**(dict(item.added) or item._bare()), "status": msgspec.json.encode(status)}
    values["id"] = msgspec.json.encode(item.id)
    if item.hosted:
        return joined(values)
    if item.kind in CALL_FIELDS:
        field, arguments = CALL_FIELDS[item.kind], item.arguments.getvalue()
        if value_of(values.get(field)) != arguments:
            values[field] = msgspec.json.encode(arguments)
        return joined(values)
    for member, summary in (("summary", True), ("content", False)):
        written = [part for part in item.parts.values() if part.open and part.summary is summary]
        parts = sorted(written, key=lambda part: part.index)
        _put_parts(values, member, parts, needed=member == _needed(item.kind))
    return joined(values)


def _needed(kind: str) -> str:
    return "content" if kind == MESSAGE else "summary"


def _put_parts(values: Members, member: str, parts: Sequence[Part], *, needed: bool) -> None:
    """The parts of an item: each as it is said where that is what was released. One of a type that holds no text we know stays."""
    raw = values.get(member)
    if raw is None and not parts and not needed:
        return
    left = list(parts)
    told: list[bytes] = []
    for said in elements(raw):
        known = members(said)
        kind = value_of(known.get("type"))
        if kind not in PARTS:
            told.append(said)
        elif left:
            told.append(left.pop(0).object(known))
        elif not value_of(known.get(PARTS[kind][0])):
            told.append(said)
    told += [part.object() for part in left]
    values[member] = b"[%b]" % b",".join(told)


def final_output(released: Sequence[Item], output: bytes, *, status: str) -> bytes:
    """The `output` of a response: the released items in their order, each as the response object `output` (JSON) says it, as far as it does."""
    said = [members(item) for item in elements(output)]
    finals: list[bytes] = []
    for item in released:
        at = next((n for n, each in enumerate(said) if _is(item, each)), None)
        known = None if at is None else said.pop(at)
        finals.append(final_item(item, known, status=status))
    return b"[%b]" % b",".join(finals)


def with_text(values: Members, released: Sequence[Item]) -> Members:
    """A response object whose member `output_text`, which some servers write beside the items, says what was released."""
    said = value_of(values.get("output_text"))
    parts = [
        part for item in released for part in item.parts.values() if part.kind == "output_text"
    ]
    text = "".join([part.text for part in parts])
    if not isinstance(said, str) or said == text:
        return values
    return {**values, "output_text": msgspec.json.encode(text)}


def identified(data: bytes, identity: Mapping[str, bytes]) -> bytes:
    """A response object (JSON) as its provider wrote it, but for those of these members that it has and that say otherwise; what is no object stays."""
    said = members(data) if data.startswith(b"{") else {}
    ours = {name: raw for name, raw in identity.items() if name in said}
    same = all(value_of(said[name]) == value_of(raw) for name, raw in ours.items())
    return data if same else joined({**said, **ours})


def _is(item: Item, said: Members) -> bool:
    """Whether an object may be this item: of its kind, and no other call."""
    if value_of(said.get("type")) != item.kind:
        return False
    call_id = value_of(said.get("call_id"))
    ours = value_of((item.done or item.added).get("call_id"))
    return call_id == ours or not (call_id and ours)


def without_nulls(values: Members) -> Members:
    """These members, less those that are null where strict clients take none: they are as good as missing."""
    return {name: raw for name, raw in values.items() if raw != b"null" or name not in _NEVER_NULL}


def value_of(raw: bytes | None) -> Any:
    """A value, decoded; None where it is not there."""
    return None if raw is None else (tolerant_object(b'{"value":%b}' % raw) or {}).get("value")
