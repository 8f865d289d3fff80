"""The tool calls of one attempt as they come together: which piece belongs to which call, when a call is over, and which frames wait for that.

The rules stand in `gate.mending_tools`, which carries them out.
"""

from __future__ import annotations

import re
from typing import Any, Final, TypeAlias

from gate.events import Frame, ToolDelta, ToolEnd
from gate.openai_tools import LEGACY
from gate.strict_json import NotJson, parse_json

__all__ = ["Call", "ChoiceCalls", "Held", "Unknown", "ends_early", "is_whole_object"]

NAME_CHARS_MAX: Final = 4_096  # of a name that comes in pieces; no tool has a longer one
_STRINGS: Final = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)


class Held:
    """A frame that waits. `calls`: for each of its pieces the call; None: a piece of none, which is taken out or, where it came too `late`, left alone."""

    __slots__ = ("bare", "calls", "ends", "frame", "late", "open", "unknown")

    def __init__(self, frame: Frame) -> None:
        self.frame = frame
        self.calls: list[Call | None] = []
        self.late: set[int] = set()
        self.open = 0  # calls that it waits for
        self.ends: list[ToolEnd] = []
        self.bare = False  # nothing but pieces, as far as it is known
        self.unknown: Unknown | None = None  # what its pieces hold beside, once it has been read

    @property
    def stays(self) -> bool:
        """Nothing in it has to change."""
        return all(map(self.keeps, range(len(self.calls))))

    def keeps(self, place: int) -> bool:
        """Whether this piece stays as it is."""
        call = self.calls[place]
        if call is None:
            return place in self.late
        return not call.mended and not call.left_out


class Call:
    """One call. `said`: the index that the provider gave it; `items`: the held frames with pieces of it; `left_out`: it never leaves."""

    def __init__(self, event: ToolDelta, index: int, *, mended: bool) -> None:
        self.choice = event.choice
        self.said = event.index
        self.index = index
        self.custom = event.custom
        self.mended = mended
        self.id = ""
        self.name = ""
        self.items: list[Held] = []
        self.ended = False
        self.left_out = False
        self.tried = False  # the next one began, and this one was not whole
        self.waiting = False  # the answer is over, and only its usage tells whether this was cut
        self._pieces: list[str] = []
        self._begun = False  # some piece had arguments, empty or not

    @property
    def arguments(self) -> str:
        """All of them, as they came."""
        return "".join(self._pieces)

    @property
    def whole(self) -> bool:
        """Its arguments are one object: nothing that could follow would change that."""
        return bool(self.name) and not self.custom and is_whole_object(self.arguments)

    @property
    def ends_early(self) -> bool:
        """Its arguments are only the beginning of a JSON value: within a string or a container, or nothing yet."""
        return not self.custom and ends_early(self.arguments)

    def add(self, event: ToolDelta, item: Held) -> None:
        """Takes in a piece of it."""
        first = not self.items
        self.custom |= event.custom
        if first or self.items[-1] is not item:
            self.items.append(item)
            item.open += 1
        else:
            self.mended = True  # two pieces in one frame
        if event.id:
            self.mended |= not first
            self.id = self.id or event.id
        if event.name:
            self.mended |= not first
            if event.name != self.name and len(self.name) < NAME_CHARS_MAX:
                self.name += event.name
        if event.arguments is not None:
            self._begun = True
            self._pieces.append(event.arguments)

    def end(self, *, cut: bool) -> None:
        """No piece comes any more. `cut`: the answer ended early, so a call that is not whole goes."""
        self.ended = True
        nothing = not self.id and not self.name and not self.arguments.strip()
        self.left_out = nothing or (cut and not self.whole)
        self.mended |= not self._begun or (not self.id and self.index != LEGACY)
        for item in self.items:
            item.open -= 1
        if self.left_out:
            self.forget()
            return
        self.items[0 if self.mended else -1].ends.append(ToolEnd(self.choice, self.index))
        if not self.mended:
            self.forget()

    def forget(self) -> None:
        """Its pieces are not needed any more."""
        self.items.clear()
        self._pieces.clear()


Unknown: TypeAlias = dict[Call, list[tuple[dict[str, Any], dict[str, Any]]]]


class ChoiceCalls:
    """The calls of one choice. `made`: one of them is whole; `open`: those that are not over."""

    def __init__(self) -> None:
        self.made = False
        self.newest: Call | None = None
        self.open: dict[Call, None] = {}
        self._at: dict[int, Call] = {}  # the newest at each of the provider's indexes
        self._by_id: dict[str, Call] = {}
        self._used: set[int] = set()
        self._next = 0  # behind the largest index in use

    def call_of(self, event: ToolDelta) -> Call:
        """The call that this piece belongs to, which may begin with it."""
        named = bool(event.name)
        known = self._by_id.get(event.id) if event.id else None
        if event.index is None:
            call = known or (None if event.id and named else self.newest)
        else:
            call = self._at.get(event.index)
            if known is not None and (known.said == event.index or (call is None and not named)):
                call = known
        if call is None or (event.id and named and known is None and _is_another(call, event)):
            return self._begin(event)
        call.mended |= event.index != call.index
        if event.id:
            self._by_id.setdefault(event.id, call)
        return call

    def owns_id(self, call: Call) -> bool:
        """Whether the call has an id, and no other call had it before."""
        return bool(call.id) and self._by_id.get(call.id) is call

    def end(self, call: Call, *, cut: bool = False) -> None:
        """This call is over."""
        del self.open[call]
        call.end(cut=cut)
        self.made |= not call.left_out and call.index != LEGACY

    def _begin(self, event: ToolDelta) -> Call:
        newest = self.newest
        if newest is not None and not newest.ended and not newest.tried:
            newest.tried = True
            if newest.whole:
                self.end(newest)
        said = event.index
        index = self._next if said is None or said in self._used else said
        call = Call(event, index, mended=index != said)
        self._used.add(index)
        self._next = max(self._next, index + 1)
        self._at[index if said is None else said] = call
        if event.id and self._by_id.setdefault(event.id, call) is not call:
            call.mended = True
        self.open[call] = None
        self.newest = call
        return call


def _is_another(call: Call, event: ToolDelta) -> bool:
    """Whether a piece with a new id and a name begins a call of its own; it may also bring the id that its call did not have."""
    return bool(call.id) or (bool(call.name) and call.name != event.name)


def ends_early(arguments: str) -> bool:
    """Whether the text is only the beginning of a JSON value: within a string or a container, or nothing yet."""
    outside = _STRINGS.sub("", arguments)
    opened = outside.count("{") + outside.count("[")
    closed = outside.count("}") + outside.count("]")
    return '"' in outside or not outside or opened > closed


def is_whole_object(arguments: str) -> bool:
    """Whether the text is one JSON object and nothing else."""
    if not arguments.rstrip().endswith("}"):
        return False
    try:
        return isinstance(parse_json(arguments), dict)
    except NotJson:
        return False
