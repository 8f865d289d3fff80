"""What the events of a Responses stream say beside their deltas, where a tunnel relays them as they are.

Text stands in many places there: in the event at the end of a part, in the part, in its item, in the response. Elsewhere the deltas hold and the framing writes every such object anew; here each text that is not
what the deltas came to is judged by itself, and so is a call that an object at its end says otherwise. Digests tell, so that no text is kept.
"""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from gate.events import (
    Event,
    Frame,
    Place,
    ReasoningDelta,
    RefusalDelta,
    Slot,
    TextDelta,
    ToolDelta,
    ToolEnd,
)
from gate.loose_json import encoded, items, paired, string, tolerant_object
from gate.openai import REAL_ENDS
from gate.responses import CALL_DELTAS, LIFECYCLE, TERMINAL, TEXT_DELTAS, finish_of
from gate.responses_frames import (
    CALL_DONE,
    ITEM_ADDED,
    ITEM_DONE,
    PART_ADDED,
    PART_DONE,
    TEXT_DONE,
)
from gate.responses_items import CALL_FIELDS, PARTS, said_in
from gate.unmended import Judged, Unmended, readings

__all__ = ["ResponsesUnmended"]

Told: TypeAlias = Mapping[str, Any]
_Text = type[TextDelta] | type[ReasoningDelta] | type[RefusalDelta]
DIGEST_BYTES: Final = 16
TOLD_BYTES: Final = 128  # a digest that is remembered, in CPython 3.11
PART_BYTES: Final = 1_024  # the digest of a text that grows


class _Said(NamedTuple):
    """A text that an object says; or a call, where it has to be one that can be carried out."""

    kind: _Text
    text: str
    call: tuple[str, str, bool] | None = (
        None  # its name, its id, whether its arguments are free text
    )


class ResponsesUnmended(Unmended):
    """Follows one attempt of the Responses API."""

    def __init__(self) -> None:
        super().__init__()
        self._said: list[_Said] = []  # in objects that have not left yet
        self._texts: dict[
            Hashable, Any
        ] = {}  # of each part, the digest as far as it has been judged
        self._grown: set[Hashable] = set()
        self._calls: dict[int, tuple[str, list[str]]] = {}
        self._told: set[bytes] = set()  # all that has been judged as a whole

    @property
    def ledger_bytes(self) -> int:
        return TOLD_BYTES * len(self._told) + PART_BYTES * len(self._texts)

    def saw(self, frame: Frame) -> None:
        super().saw(frame)
        slot = next(iter(frame.events), None)
        if isinstance(slot, Slot) and slot.kind not in TEXT_DELTAS and slot.kind not in CALL_DELTAS:
            self._said += _said_by(slot.kind, tolerant_object(frame.data) or {})

    def judged(self, mended: Sequence[Frame]) -> Judged:
        events, beside = super().judged(mended)
        for frame in mended:
            self._note(frame)
        self._told |= {
            _digest(each.text).digest() for each in beside if isinstance(each, TextDelta)
        }
        if not self._said:
            return events, beside
        self._told.update(self._texts[key].digest() for key in self._grown)
        self._grown.clear()
        beside += [event for said in self._said for event in self._beside(said)]
        self._said.clear()
        return events, beside

    def _call(self, frame: Frame, event: ToolDelta) -> Hashable:
        slot = frame.events[0]
        assert isinstance(slot, Slot), "the decoder puts it first"
        return slot.index, slot.item if slot.index is None else None

    def _note(self, frame: Frame) -> None:
        """What is judged of a mended frame."""
        place = frame.events[0] if frame.events else None
        for event in frame.events:
            match event:
                case TextDelta() | ReasoningDelta() | RefusalDelta():
                    at = (place.item, place.part) if isinstance(place, Place) else (-1, -1)
                    key = (type(event), *at)
                    if key not in self._texts:
                        self._texts[key] = _digest("")
                    self._texts[key].update(event.text.encode())
                    self._grown.add(key)
                case ToolDelta() if event.index is not None:
                    name, pieces = self._calls.get(event.index, ("", []))
                    pieces.append(event.arguments or "")
                    self._calls[event.index] = name or event.name or "", pieces
                case ToolEnd():
                    name, pieces = self._calls.pop(event.index, ("", []))
                    arguments = "".join(pieces)
                    self._told |= {_digest(text).digest() for text in readings(arguments)}
                    self._told.add(_digest(name, arguments).digest())
                case _:
                    pass

    def _beside(self, said: _Said) -> Iterator[Event]:
        """The events of a text or a call, if it has not been judged."""
        names = () if said.call is None else said.call[:1]
        digest = _digest(*names, said.text).digest()
        if digest in self._told:
            return
        self._told.add(digest)
        choice = self._choice()
        if said.call is None:
            yield said.kind(choice, said.text)
        else:
            name, call_id, custom = said.call
            yield ToolDelta(choice, 0, call_id, name, said.text, custom)
            yield ToolEnd(choice, 0)


def _digest(*texts: str) -> Any:
    """Of a text, or of a call's name and arguments."""
    return hashlib.blake2b("\0".join(texts).encode(), digest_size=DIGEST_BYTES)


def _said_by(kind: str, value: Told) -> Iterator[_Said]:
    """Every text that an event says beside a delta."""
    if kind in TEXT_DONE:
        text = string(value.get(TEXT_DONE[kind]))
        yield from _texts([(kind.removesuffix(".done") + ".delta", text)])
    elif kind in CALL_DONE:
        yield from _arguments(value.get(CALL_FIELDS[CALL_DONE[kind]]))
    elif kind in PART_ADDED or kind in PART_DONE:
        yield from _parts({"content": [value.get("part")], "summary": [value.get("part")]})
    elif kind in {ITEM_ADDED, ITEM_DONE}:
        yield from _item(value.get("item"), ended=kind == ITEM_DONE)
    elif kind in LIFECYCLE or kind in TERMINAL:
        yield from _response(value.get("response"), kind)


def _response(response: object, kind: str) -> Iterator[_Said]:
    if not isinstance(response, Mapping):
        return
    ended = kind in TERMINAL and finish_of(response, kind).reason not in REAL_ENDS
    for item in items(response.get("output")):
        yield from _item(item, ended=ended)
    yield from _texts([("response.output_text.delta", string(response.get("output_text")))])


def _item(item: object, *, ended: bool) -> Iterator[_Said]:
    """`ended`: the item is said to be over, and its answer not to have been cut."""
    if not isinstance(item, Mapping):
        return
    yield from _parts(item)
    kind = string(item.get("type")) or ""
    if kind not in CALL_FIELDS:
        return
    called = ended and item.get("status") != "incomplete"
    name, call_id = (paired(string(item.get(member)) or "") for member in ("name", "call_id"))
    call = (name, call_id, kind == "custom_tool_call") if called else None
    for said in _arguments(item.get(CALL_FIELDS[kind])):
        yield said._replace(call=call)
        if call is not None:
            return  # a filter reads it as what it is


def _parts(item: Told) -> Iterator[_Said]:
    return _texts([(PARTS[kind][1], text) for kind, _, text in said_in(item)])


def _texts(found: Sequence[tuple[str, str | None]]) -> Iterator[_Said]:
    for delta, text in found:
        if text:
            yield _Said(TEXT_DELTAS[delta], paired(text))


def _arguments(said: object) -> Iterator[_Said]:
    text = said if isinstance(said, str) else encoded(said).decode() if said else ""
    if text:
        yield from (_Said(TextDelta, paired(each)) for each in readings(text))
