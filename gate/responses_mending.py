"""Mending of a Responses attempt: every event gets its place, what objects say completes what deltas brought, and the end becomes facts.

    places      item and part of each event, as `gate.responses_items` finds them; the framing numbers by them, whatever the provider's own numbers say
    texts       a `.done` event, an item or the response object at the end may hold text that no delta brought: a delta of ours brings it, so that it is judged; where they say something
                else than the deltas, the deltas hold
    surrogates  half of a pair that ends a delta moves to where the other half begins; a half that stays alone becomes U+FFFD
    calls       a call leaves whole or not at all; one that needed nothing keeps its provider's own events, any other one leaves as its beginning, one delta and its end. Under an end that
                breaks the answer off, a call that is not whole is left out; so is the last one where its arguments end early and the caller's ceiling of tokens has been reached
    facts       usage and the finish are kept with the attempt; the event that ends the stream stays, as the last frame
    audio       what is said aloud is judged by its transcript (`gate.responses_spoken`)
    think tags  where the route wants it: `gate.mending_think`

Rules of this file: frames leave in order of arrival, so a frame of an open call holds every later one; a frame that needs nothing keeps its bytes; an event that nobody here knows passes.
State belongs to one attempt.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from gate.events import (
    Complete,
    Event,
    Facts,
    Finish,
    FinishFact,
    Frame,
    Identity,
    Mend,
    OutputItem,
    Place,
    ReasoningDelta,
    RefusalDelta,
    Slot,
    TextDelta,
    ToolDelta,
    ToolEnd,
    UsageReport,
)
from gate.loose_json import encoded, items, joined_halves, paired, string, tolerant_object
from gate.mending_calls import ends_early
from gate.mending_think import ThinkTags
from gate.openai import REAL_ENDS
from gate.responses import CALL_DELTAS, LIFECYCLE, TERMINAL, TEXT_DELTAS, text_delta
from gate.responses_frames import (
    CALL_DONE,
    ITEM_ADDED,
    ITEM_DONE,
    PART_ADDED,
    PART_DONE,
    TEXT_DONE,
    CallQueue,
    Held,
    added_frame,
    created_frame,
    is_on_the_way,
    item_of,
    owner,
    part_kind,
    placed,
)
from gate.responses_items import (
    CALL_FIELDS,
    PART_OF,
    PARTS,
    Item,
    Items,
    Said,
    said_in,
)
from gate.responses_spoken import Spoken
from gate.usage import completion_tokens

__all__ = ["ResponsesMender"]

_TEXT: Final = Mend.TEXT.value


class ResponsesMender:
    """Mends one attempt's frames in order, and keeps its closing facts and its identity.

    `before`: the mender of the attempt that this one goes on from; `ceiling`: the output tokens that the caller allows; `tags`: its step for think tags.
    """

    def __init__(
        self,
        *,
        before: ResponsesMender | None = None,
        ceiling: int | None = None,
        tags: ThinkTags | None = None,
    ) -> None:
        self.identity: Identity | None = None
        self.usage = b""
        self._items = Items() if before is None else before.going_on()
        self._ceiling = ceiling
        self._tags = tags
        self._queue = CallQueue()
        self._spoken = Spoken()
        self._begun = before is not None
        self._reason = ""
        self._steps: Mapping[str, Callable[[Frame, Slot], Iterator[Held]]] = {
            ITEM_ADDED: self._item_added,
            ITEM_DONE: self._item_done,
            **dict.fromkeys(TEXT_DELTAS, self._text),
            **dict.fromkeys(CALL_DELTAS, self._piece),
            **dict.fromkeys(PART_ADDED, self._part_added),
            **dict.fromkeys(PART_DONE, self._part_done),
            **dict.fromkeys(TEXT_DONE, self._text_done),
            **dict.fromkeys(CALL_DONE, self._call_done),
            **dict.fromkeys(LIFECYCLE, self._lifecycle),
            **dict.fromkeys(TERMINAL, self._terminal),
        }

    def going_on(self) -> Items:
        """The items of an attempt that goes on with this one's message."""
        return Items(self._items.next_key, self._items.text_at)

    # ---- what the judge asks ---------------------------------------------------------------------

    @property
    def holding(self) -> bool:
        """Something has begun that no other attempt can take up: a call, a second message, a tool of the provider's."""
        return bool(self._queue) or not self._items.resumable

    @property
    def held_bytes(self) -> int:
        """Raw bytes of what is held."""
        return self._queue.held_bytes + (self._tags.held_bytes if self._tags is not None else 0)

    @property
    def ledger_bytes(self) -> int:
        """What is held costs so much."""
        tags = self._tags.ledger_bytes if self._tags is not None else 0
        known = self._items.ledger_bytes + self._spoken.ledger_bytes
        return self._queue.ledger_bytes + known + tags

    def drop(self) -> None:
        """Nothing that is held is wanted any more."""
        self._queue.clear()
        self._items.ledger_bytes = 0
        self._spoken = Spoken()
        self._tags = None

    def mend(self, frames: list[Frame]) -> list[Frame]:
        """The frames that remain."""
        mended: list[Frame] = []
        for each in frames:
            slot = each.events[0]
            assert isinstance(slot, Slot), "the decoder puts it first"
            step = self._steps.get(slot.kind, self._other)
            frame, spoken = self._spoken.take(each)
            for held in step(frame, slot):
                told, spoken = held.saying(spoken), ()
                if told.call is None and not self._queue:
                    mended.append(told.frame)
                else:
                    self._queue.hold(told)
            if self._queue:
                mended += self._queue.ready()
        return mended if self._tags is None else self._tags.feed(mended)

    def finish(self, end: Complete) -> tuple[list[Frame], Facts]:
        """The frames that were still held, and the facts of a complete attempt."""
        frames = [] if self._tags is None else self._tags.finish()
        return frames, Facts((FinishFact(0, self._reason),), self.usage, b"", frozenset({0}))

    @property
    def _seed(self) -> str:
        """What ids of ours are made of."""
        return self.identity.id if self.identity is not None else ""

    # ---- the steps -------------------------------------------------------------------------------

    def _other(self, frame: Frame, slot: Slot) -> Iterator[Held]:
        """An event that nobody here knows, or that only has to be numbered."""
        self._begun = True
        item = self._items.find(slot)
        part = -1 if item is None or slot.part is None else item.shift + slot.part
        yield Held(placed(frame, slot, item, part), item.call if item else None, item)

    def _lifecycle(self, frame: Frame, slot: Slot) -> Iterator[Held]:
        self._note(frame.events)
        self._begun = True
        yield Held(msgspec.structs.replace(frame, events=(Place(slot.kind),)), None, None)

    def _text(self, frame: Frame, slot: Slot) -> Iterator[Held]:
        self._begun = True
        if len(frame.events) == 1:
            return  # an empty delta
        kind = PART_OF[slot.kind]
        item = self._items.of(slot, owner(kind))
        index, part = item.part(slot.part, kind)
        said = frame.events[1]
        assert isinstance(said, TextDelta | ReasoningDelta | RefusalDelta), "of such a type"
        if part.half or frame.mend:
            text, part.half = joined_halves(part.half + said.text)
            if not text:
                return
            said = text_delta(slot.kind, text)
            value = {**(tolerant_object(frame.data) or {}), "delta": text}
            frame = Frame(encoded(value), (), frame.size, _TEXT if part.half else 0)
        part.add(said.text)
        yield self._said(frame, item, kind, index, said)

    def _said(self, frame: Frame, item: Item, kind: str, index: int, said: Event) -> Held:
        place = Place(PARTS[kind][1], item.key, item.shift + index)
        if isinstance(said, TextDelta | RefusalDelta):
            self._items.text_at = place.item, place.part
        return Held(Frame(frame.data, (place, said), frame.size, frame.mend), None, None)

    def _own_text(self, item: Item, kind: str, index: int, text: str) -> Held:
        """A delta of ours."""
        delta = PARTS[kind][1]
        data = encoded({"type": delta, "delta": text})
        return self._said(Frame(data, (), len(data)), item, kind, index, text_delta(delta, text))

    def _completed(self, item: Item, texts: Iterable[Said]) -> Iterator[Held]:
        """What objects say that no delta brought."""
        for kind, index, text in texts:
            part = item.part(index, kind)[1]
            rest = part.missing(paired(text))
            if rest:
                part.half = ""
                part.add(rest)
                yield self._own_text(item, kind, index, rest)

    def _lone_halves(self, item: Item) -> Iterator[Held]:
        """Halves of characters that nothing follows any more."""
        for (kind, index), part in item.parts.items():
            if part.half:
                part.half = ""
                part.add("\ufffd")
                yield self._own_text(item, kind, index, "\ufffd")

    def _part_added(self, frame: Frame, slot: Slot) -> Iterator[Held]:
        self._begun = True
        kind = part_kind(frame, slot.kind)
        if kind is None:
            yield from self._other(frame, slot)
            return
        item = self._items.of(slot, owner(kind))
        index = item.opened(slot.part, kind)
        yield Held(placed(frame, slot, item, item.shift + index), None, item)

    def _part_done(self, frame: Frame, slot: Slot) -> Iterator[Held]:
        kind = part_kind(frame, slot.kind)
        if kind is None:
            yield from self._other(frame, slot)
            return
        item = self._items.of(slot, owner(kind))
        index, _ = item.part(slot.part, kind)
        part = (tolerant_object(frame.data) or {}).get("part")
        texts = [(kind, index, text) for of, _, text in said_in({"content": [part]}) if of == kind]
        yield from self._completed(item, texts)
        yield Held(placed(frame, slot, item, item.shift + index), None, item)

    def _text_done(self, frame: Frame, slot: Slot) -> Iterator[Held]:
        kind = PART_OF[slot.kind.removesuffix(".done") + ".delta"]
        item = self._items.of(slot, owner(kind))
        index, _ = item.part(slot.part, kind)
        text = string((tolerant_object(frame.data) or {}).get(TEXT_DONE[slot.kind]))
        yield from self._completed(item, [(kind, index, text)] if text else [])
        yield Held(placed(frame, slot, item, item.shift + index), None, item)

    def _item_added(self, frame: Frame, slot: Slot) -> Iterator[Held]:
        self._begun = True
        said = item_of(frame)
        kind, name = string(said.get("type")), string(said.get("id"))
        if not kind:
            return
        slot = msgspec.structs.replace(slot, item=name)
        item = self._items.at(slot)
        if (
            item is None
            or item.over
            or item.kind != kind
            or (item.announced and name not in item.ids)
        ):
            item = self._items.begin(slot.index, name, kind)
        elif item.announced:
            return  # said twice
        item.announced = True
        events: tuple[Event, ...] = ()
        if item.call is not None:
            call = item.call
            call.told(said, last=False)
            events = (ToolDelta(0, call.index, call.id, call.name, None, call.custom),)
        yield Held(placed(frame, slot, item, -1, events), item.call, item)

    def _item_done(self, frame: Frame, slot: Slot) -> Iterator[Held]:
        said = item_of(frame)
        kind, name = string(said.get("type")), string(said.get("id"))
        if not kind:
            return
        slot = msgspec.structs.replace(slot, item=name)
        known = self._items.at(slot)
        if known is not None and known.over and known.kind == kind:
            return  # said twice
        item = self._items.of(slot, kind)
        yield from self._over(frame, slot, item, said)

    def _over(
        self, frame: Frame, slot: Slot, item: Item, said: Mapping[str, Any], *, cut: bool = False
    ) -> Iterator[Held]:
        """An item is over, and `said` is all of it."""
        item.over = True
        events: tuple[Event, ...] = ()
        if item.call is not None:
            item.call.told(said, last=True)
            item.call.mended |= not item.announced
            item.call.end(self._seed, cut=cut)
            events = (ToolEnd(0, item.call.index),)
        else:
            if not item.announced and not item.parts:
                yield Held(added_frame(item, said), None, item)
            yield from self._completed(item, said_in(said))
            yield from self._lone_halves(item)
            if not is_on_the_way(item.kind):
                events = (OutputItem(0),)
        yield Held(placed(frame, slot, item, -1, events), item.call, item)

    # ---- calls -----------------------------------------------------------------------------------

    def _piece(self, frame: Frame, slot: Slot) -> Iterator[Held]:
        self._begun = True
        custom = CALL_DELTAS[slot.kind]
        item = self._items.of(slot, "custom_tool_call" if custom else "function_call")
        call = item.call
        assert call is not None, "of such a kind"
        pieces = [event.arguments or "" for event in frame.events if isinstance(event, ToolDelta)]
        if not pieces:
            return
        call.add(pieces[0])
        call.mended |= bool(frame.mend)
        piece = ToolDelta(0, call.index, None, None, pieces[0], custom)
        yield Held(placed(frame, slot, item, -1, (piece,)), call, item)

    def _call_done(self, frame: Frame, slot: Slot) -> Iterator[Held]:
        kind = CALL_DONE[slot.kind]
        item = self._items.of(slot, kind)
        assert item.call is not None, "of such a kind"
        said = string((tolerant_object(frame.data) or {}).get(CALL_FIELDS[kind]))
        item.call.said(said or "")
        yield Held(placed(frame, slot, item, -1), item.call, item)

    # ---- the end ---------------------------------------------------------------------------------

    def _terminal(self, frame: Frame, slot: Slot) -> Iterator[Held]:
        self._note(frame.events)
        response = (tolerant_object(frame.data) or {}).get("response")
        response = response if isinstance(response, dict) else {}
        if not self._begun:
            yield Held(created_frame(response), None, None)
        self._reason = next(each.reason for each in frame.events if isinstance(each, Finish))
        cut = self._reason in REAL_ENDS
        for item, said in self._items.matched(items(response.get("output"))):
            if not item.over:
                done = Frame(encoded({"type": ITEM_DONE, "item": said}), (), 0)
                done = msgspec.structs.replace(done, size=len(done.data))
                early = cut or self._ends_early(item, said)
                yield from self._over(done, Slot(ITEM_DONE), item, said, cut=early)
        for item in self._items.all:
            if not item.over:
                item.over = True
                yield from self._lone_halves(item)
                if item.call is not None:
                    item.call.mended = True  # nobody said its end
                    item.call.end(self._seed, cut=cut or self._ends_early(item, {}))
        calls = [item.call for item in self._items.all if item.call is not None]
        if calls and not cut:
            self._reason = "length" if any(call.left_out for call in calls) else "tool_calls"
        yield Held(msgspec.structs.replace(frame, events=(Place(slot.kind),)), None, None)

    def _ends_early(self, item: Item, said: Mapping[str, Any]) -> bool:
        """Whether the last item is a call that the caller's ceiling has cut, whatever the provider calls its end."""
        call = item.call
        reached = self._ceiling is not None and completion_tokens(self.usage) >= self._ceiling
        if call is None or call.custom or not reached or item is not self._items.all[-1]:
            return False
        told = string(said.get(call.field)) or ""
        return ends_early(max(call.arguments, told, key=len))

    def _note(self, events: Iterable[Event]) -> None:
        for event in events:
            if isinstance(event, Identity):
                self.identity = self.identity or event
            elif isinstance(event, UsageReport):
                self.usage = event.usage
