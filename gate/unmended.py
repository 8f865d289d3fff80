"""What a tunnel relays although mending takes it out elsewhere, or says it otherwise: it is judged all the same, as the texts of choices that nobody asked for, so that no filter takes it for the answer.

    calls       pieces of a call that is left out, since the answer ended before it was whole
    thoughts    reasoning under a second name (chat): the first name that an attempt uses is judged as the choice's, the other one beside it

What the objects of the Responses API say beside their deltas is found by `gate.responses_unmended`. State belongs to one attempt.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from gate.events import Event, Frame, Mend, ReasoningDelta, TextDelta, ToolDelta
from gate.json_escapes import Escapes
from gate.loose_json import integer, items, paired, string, tolerant_object

__all__ = ["ASIDE", "THOUGHTS", "Judged", "Unmended", "readings"]

ASIDE: Final = 1 << 29  # and up: choices that nobody asked for; each text has one to itself
ASIDES_MAX: Final = 256  # what more there is comes together in the last one
THOUGHTS: Final = 1 << 30  # and up: a second thought of the choices from 0 on
Judged: TypeAlias = tuple[tuple[Event, ...], list[Event]]
"""Events of an answer, and those beside it."""

_NAMES: Final = (Mend.REASONING | Mend.REASONING_CONTENT).value
_FIELDS: Final = Mend.FIELDS.value
_FIRST: Final = {
    Mend.REASONING.value: ("reasoning", "reasoning_content"),
    Mend.REASONING_CONTENT.value: ("reasoning_content", "reasoning"),
}


class _Thought(NamedTuple):
    """Reasoning of a choice under both names: what is judged as the choice's, and what beside it."""

    choice: int
    own: str
    other: str


class Unmended:
    """Follows one attempt: a frame is seen as it came, and its events are judged when the steps of mending have let it go."""

    def __init__(self) -> None:
        self._asides = 0
        self._pieces: dict[Hashable, list[str]] = {}  # of calls that have not left yet
        self._named = 0  # names of reasoning in use
        self._first = ("", "")
        self._thoughts: list[_Thought] = []
        self._halves: dict[int, str] = {}  # of characters at the end of second thoughts

    @property
    def ledger_bytes(self) -> int:
        """What is kept beside texts that are held anyway."""
        return 0

    def saw(self, frame: Frame) -> None:
        """A frame, before any step."""
        for event in frame.events:
            if isinstance(event, ToolDelta) and event.arguments:
                key = self._call(frame, event)
                self._pieces.setdefault(key, []).append(event.arguments)
        if frame.mend & _NAMES:
            self._thoughts += self._second(frame)

    def judged(self, mended: Sequence[Frame]) -> Judged:
        """The events to judge of what leaves now: those of the mended frames, and what was seen beside them."""
        if len(mended) == 1 and not self._pieces and not self._thoughts:
            return mended[0].events, []
        events = [event for frame in mended for event in frame.events]
        beside: list[Event] = []
        if self._thoughts:
            events = _parted(events, self._thoughts)
            beside += map(self._other, self._thoughts)
            self._thoughts.clear()
        if self._pieces:
            beside += self._left_out(events)
            self._pieces.clear()
        return tuple(events), beside

    def _call(self, frame: Frame, event: ToolDelta) -> Hashable:
        """Which call a piece belongs to, by what its provider says, as a caller would read it."""
        return event.choice, event.index

    def _choice(self) -> int:
        """A choice for one more text."""
        self._asides += 1
        return ASIDE + min(self._asides, ASIDES_MAX)

    def _left_out(self, events: Sequence[Event]) -> Iterator[Event]:
        """Arguments that no event has."""
        calls: dict[Hashable, list[str]] = {}
        for event in events:
            if isinstance(event, ToolDelta) and event.arguments:
                calls.setdefault((event.choice, event.index), []).append(event.arguments)
        judged = set(map("".join, calls.values()))
        for pieces in self._pieces.values():
            arguments = paired("".join(pieces))
            if arguments not in judged:
                yield from (TextDelta(self._choice(), text) for text in readings(arguments))

    def _second(self, frame: Frame) -> Iterator[_Thought]:
        """Reasoning under the second name, once both are in use."""
        names = frame.mend & _NAMES
        if not self._named:
            self._first = _FIRST.get(names, _FIRST[Mend.REASONING_CONTENT.value])
        self._named |= names
        if self._named != _NAMES and not frame.mend & _FIELDS:
            return
        for choice in items((tolerant_object(frame.data) or {}).get("choices")):
            said: Any = choice.get("delta", choice.get("message"))
            if isinstance(said, dict):
                texts = [string(said.get(name)) or "" for name in self._first]
                yield from _second(integer(choice.get("index")), texts, frame)

    def _other(self, thought: _Thought) -> Event:
        text = self._halves.pop(thought.choice, "") + thought.other
        if "\ud800" <= text[-1] <= "\udbff":
            self._halves[thought.choice] = text[-1]
            text = text[:-1]
        return ReasoningDelta(THOUGHTS + thought.choice, paired(text))


def readings(arguments: str) -> Sequence[str]:
    """The ways in which the arguments of a call read: as they are written, and with their escapes resolved."""
    said = Escapes().resolve(arguments)
    return (arguments,) if said == arguments else (arguments, said)


def _second(choice: int, texts: Sequence[str], frame: Frame) -> Iterator[_Thought]:
    """Where thoughts are parts of the content as well, whatever no event has; else the text under the second name."""
    own, other = texts
    if frame.mend & _FIELDS:
        for text in filter(None, texts):
            if ReasoningDelta(choice, text) not in frame.events:
                yield _Thought(choice, "", text)
    elif other:
        yield _Thought(choice, own, other)


def _parted(events: Sequence[Event], thoughts: Sequence[_Thought]) -> list[Event]:
    """The events without second thoughts, where mending made two of them one."""
    parted = list(events)
    for choice, own, other in thoughts:
        merged = ReasoningDelta(choice, other)
        if other != own and merged in parted:
            at = parted.index(merged)
            parted[at : at + 1] = [ReasoningDelta(choice, paired(own))] if own else []
    return parted
