"""Mending of tool calls (chat): every piece goes to the call that it belongs to, and a call leaves whole or not at all.

    index          names the call; without one a known id does, a new id with a name opens the next call, and anything else belongs to the newest
    new id + name  at an index in use opens a new call, under the next index that is free
    no name        continues the call at its index, whatever its id
    name           a piece equal to the name so far is a repeat, any other is appended
    id             given once, and by us (derived from the attempt's identity and the call) where it is missing or another call's
    arguments      a string, without halves of a surrogate pair

A call is open until its choice has a finish reason; or until the next call of its choice begins, if its arguments are one whole object by then (else the two may be
interleaved). At `length` and `content_filter` a call that is not whole is left out; and so is the last one where its arguments end early and the caller's ceiling of tokens has
been reached, which makes that finish `length` whatever the provider calls it.

Rules of this file: frames leave in order of arrival, so a frame with a piece of an open call holds every later one. The frames of a call that needed nothing leave with their own
bytes; any other call leaves as one entry in its first frame, unknown members included, and out of its other frames. Every piece is looked at a bounded number of times.
"""

from __future__ import annotations

import hashlib
import json
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from gate.events import Finish, Frame, Identity, Mend, ToolDelta, UsageReport
from gate.evidence import FRAME_OVERHEAD_BYTES
from gate.loose_json import encoded, integer, items, paired, tolerant_object
from gate.mending_calls import Call, ChoiceCalls, Held, Unknown
from gate.openai import REAL_ENDS, decode_object

__all__ = ["REAL_ENDS", "ToolMender", "stays_as_it_is"]

"""Finish reasons of answers that are no fault although they end early."""
CALL_BYTES: Final = 1_024  # what is known of a call here and in a filter, in CPython 3.11
_CALLS: Final = Mend.CALLS.value
_TEXT: Final = Mend.TEXT.value
_DONE: Final = (Mend.TOOLS | Mend.CALLS).value
_FUNCTION_OWN: Final = frozenset({"name", "arguments", "input"})
_ENTRY_OWN: Final = frozenset({"index", "id", "type", "function", "custom"})


class ToolMender:
    """Mends the calls of one attempt. `ceiling`: the completion tokens that the caller allows, over all its choices; `name`: the attempt's id, as far as it is known; `queue`: frames that wait for a call to end."""

    def __init__(self, *, ceiling: int | None = None) -> None:
        self.name = ""
        self.held_bytes = 0
        self._ceiling = ceiling
        self._spent = -1  # completion tokens, as reported while something was held
        self._cut: set[int] = set()  # choices that ended with `length`, whatever was said
        self._call_count = 0
        self._choices: dict[int, ChoiceCalls] = {}
        self.queue: deque[Held] = deque()

    @property
    def ledger_bytes(self) -> int:
        """What is held, and what is known of calls, costs so much."""
        return (
            self.held_bytes + FRAME_OVERHEAD_BYTES * len(self.queue) + CALL_BYTES * self._call_count
        )

    def take(self, frame: Frame) -> Iterator[Frame]:
        """One frame that arrived -> the frames that may go on."""
        item = Held(frame)
        finished: list[Finish] = []
        for event in frame.events:
            match event:
                case ToolDelta():
                    self._piece(event, item)
                case Finish():
                    finished.append(event)
                case UsageReport():
                    usage = tolerant_object(event.usage) or {}
                    self._spent = max(self._spent, integer(usage.get("completion_tokens")))
                case Identity():
                    self.name = event.id
                case _:
                    pass
        self.queue.append(item)
        self.held_bytes += frame.size
        for each in finished:
            self._finished(each)
        return self._ready()

    def finish(self) -> Iterator[Frame]:
        """The attempt is complete -> everything that was held."""
        reached = self._ceiling is not None and self._spent >= self._ceiling
        for index, choice in self._choices.items():
            for call in list(choice.open):
                early = reached and call is choice.newest and call.ends_early
                choice.end(call, cut=early)
                if early:
                    self._cut.add(index)
        return self._ready()

    def drop(self) -> None:
        """Nothing that is held is wanted any more."""
        self.queue.clear()
        self._choices.clear()
        self.held_bytes = self._call_count = 0

    def reason(self, choice: int, reason: str) -> str:
        """How a choice ended that the provider says ended so."""
        if choice in self._cut:
            return "length"
        calls = self._choices.get(choice)
        return "tool_calls" if reason == "stop" and calls is not None and calls.made else reason

    def _piece(self, event: ToolDelta, item: Held) -> None:
        choice = self._choices.get(event.choice)
        if choice is None:
            choice = self._choices[event.choice] = ChoiceCalls()
        call = choice.call_of(event)
        if call.ended:
            # Noise of a parser goes; for anything else it is too late, and whoever judges will see it.
            if (event.arguments or "").strip() or event.name not in {None, "", call.name}:
                item.late.add(len(item.calls))
            item.calls.append(None)
            return
        self._call_count += not call.items
        item.calls.append(call)
        call.add(event, item)
        call.mended |= bool(item.frame.mend & _CALLS)

    def _finished(self, finish: Finish) -> None:
        choice = self._choices.get(finish.choice)
        if choice is None:
            return
        cut = finish.reason in REAL_ENDS
        for call in list(choice.open):
            if self._ceiling is not None and call is choice.newest and not call.waiting:
                # What the end of the attempt reports will tell why these arguments end early.
                call.waiting = call.ends_early
            if cut or not call.waiting:
                choice.end(call, cut=cut)

    def _ready(self) -> Iterator[Frame]:
        while self.queue and not self.queue[0].open:
            item = self.queue.popleft()
            self.held_bytes -= item.frame.size
            frame = _as_it_is(item) if item.stays else self._rewritten(item)
            if frame is not None:
                yield frame

    def _rewritten(self, item: Held) -> Frame | None:
        """The frame with its mended calls in one piece each, those that don't begin here taken out; None if nothing is left."""
        frame = item.frame
        if item.bare and not item.ends and not any(map(item.keeps, range(len(item.calls)))):
            return None
        value = _value(frame)
        place = 0
        for delta in _deltas(value):
            for name, pieces in _pieces(delta):
                kept = self._kept(pieces, item, place)
                place += len(pieces)
                del delta[name]
                if kept:
                    delta[name] = kept if name == "tool_calls" else kept[0]["function"]
        return _renewed(item, value)

    def _kept(
        self, pieces: list[Mapping[str, Any]], item: Held, first: int
    ) -> list[Mapping[str, Any]]:
        """What stays of the pieces in one delta; `first`: the place of the first among those of its frame."""
        kept: list[Mapping[str, Any]] = []
        for place, piece in enumerate(pieces, start=first):
            call = item.calls[place]
            if item.keeps(place):
                kept.append(piece)
            elif call is not None and call.items[:1] == [item]:
                kept.append(self._whole(call))
                call.forget()
        return kept

    def _whole(self, call: Call) -> dict[str, Any]:
        """The call as one entry; members that nobody here knows are kept, the last value of each."""
        beside: dict[str, Any] = {}
        function: dict[str, Any] = {}
        kind = "custom" if call.custom else "function"
        for item in call.items:
            for each, inner in _unknown_members(item).get(call, ()):
                beside |= each
                function |= inner
        own = self._choices[call.choice].owns_id(call)
        name = call.id if own else self._made_id(call)
        arguments = "input" if call.custom else "arguments"
        function |= {"name": call.name, arguments: paired(call.arguments)}
        return {"index": call.index, "id": name, "type": kind, **beside, kind: function}

    def _made_id(self, call: Call) -> str:
        """The same wherever the same attempt is played, and another in the next answer."""
        parts = [self.name, str(call.choice), str(call.index), call.name, call.arguments]
        seed = json.dumps(parts).encode()
        return f"call_{hashlib.blake2b(seed, digest_size=12).hexdigest()}"


def stays_as_it_is(frame: Frame) -> bool:
    """Whether no call in the one frame of a whole answer has anything to mend, or might have to be left out."""
    mender = ToolMender(ceiling=0)
    mended = [*mender.take(frame), *mender.finish()]
    return len(mended) == 1 and mended[0].data is frame.data


def _as_it_is(item: Held) -> Frame:
    frame = item.frame
    if not item.ends:
        return frame
    return msgspec.structs.replace(frame, events=(*frame.events, *item.ends))


def _renewed(item: Held, value: dict[str, Any]) -> Frame | None:
    """The frame with this value; None where it says nothing any more."""
    frame = item.frame
    events, mend = decode_object(value)
    kept = [event for event in frame.events if isinstance(event, Identity)]
    if not events and not kept and not _says_something(value):
        return None
    # Halves of characters in its texts are another step's to join.
    data = json.dumps(value, separators=(",", ":")).encode() if mend & _TEXT else encoded(value)
    return Frame(data, (*events, *kept, *item.ends), max(frame.size, len(data)), mend & ~_DONE)


def _value(frame: Frame) -> dict[str, Any]:
    try:
        value = msgspec.json.decode(frame.data)
    except (ValueError, RecursionError):
        value = tolerant_object(frame.data)
    assert isinstance(value, dict), "a frame is a JSON object"
    return value


def _deltas(value: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for choice in items(value.get("choices")):
        if isinstance(choice.get("delta"), dict):
            yield choice["delta"]


def _pieces(delta: Mapping[str, Any]) -> list[tuple[str, list[Mapping[str, Any]]]]:
    """The members of a delta that hold pieces of calls, in the order of their events."""
    found = []
    if calls := items(delta.get("tool_calls")):
        found.append(("tool_calls", calls))
    legacy = delta.get("function_call")
    if isinstance(legacy, Mapping):
        found.append(("function_call", [{"function": legacy}]))
    return found


def _unknown_members(item: Held) -> Unknown:
    """The members that nobody here knows of the pieces in a frame: those of the entry, and those of its function. Read once, with whether there is anything else."""
    if item.unknown is None:
        item.unknown = {}
        value = _value(item.frame)
        found: list[Mapping[str, Any]] = []
        for delta in _deltas(value):
            for name, pieces in _pieces(delta):
                found += pieces
                del delta[name]
        only_pieces = all(isinstance(event, ToolDelta) for event in item.frame.events)
        item.bare = only_pieces and not _says_something(value)
        for piece, call in zip(found, item.calls, strict=True):
            beside = _unknown(piece, _ENTRY_OWN)
            function = _unknown(piece.get("function") or piece.get("custom"), _FUNCTION_OWN)
            if call is not None and (beside or function):
                item.unknown.setdefault(call, []).append((beside, function))
    return item.unknown


def _unknown(members: object, own: frozenset[str]) -> dict[str, Any]:
    """The members that are not in `own` and say something."""
    if not isinstance(members, Mapping):
        return {}
    return {name: value for name, value in members.items() if name not in own and value is not None}


def _says_something(value: Mapping[str, Any]) -> bool:
    """Whether anything is left in a frame without events."""
    for choice in items(value.get("choices")):
        delta = choice.get("delta")
        if choice.get("logprobs") or (isinstance(delta, dict) and any(delta.values())):
            return True
    return False
