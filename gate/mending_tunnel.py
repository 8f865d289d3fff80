"""The step of mending in a tunnel: nothing is mended. The steps run over the decoded copy, so that the filters judge what they would have judged elsewhere; what leaves are the provider's bytes.

A frame leaves when the steps let its copy go. Where they hold frames (a tool call is open, a tag may begin), all that they hold leaves as one frame, which has the events of them
all: so no byte goes before what it says has been judged. The frame with the last finish reason, and what follows it, waits for the end of the attempt, and leaves with the success terminal: until then
it may turn out that the end is none, and an error behind it would contradict it. What the steps take out is relayed, too, and so it is judged (`gate.unmended`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

import msgspec

from gate.events import Complete, Event, Facts, Finish, Frame, Identity
from gate.evidence import FRAME_OVERHEAD_BYTES
from gate.mending_format import FormatMender, Settled
from gate.unmended import Unmended

__all__ = ["Observer", "Steps", "TunnelMender"]


class Steps(Protocol):
    """Mends one attempt's frames in order, as its endpoint has it, or does not mend at all (`Observer`)."""

    @property
    def identity(self) -> Identity | None: ...

    @property
    def holding(self) -> bool: ...

    @property
    def held_bytes(self) -> int: ...

    @property
    def ledger_bytes(self) -> int: ...

    @property
    def usage(self) -> bytes: ...

    def mend(self, frames: list[Frame]) -> list[Frame]: ...

    def drop(self) -> None: ...

    def finish(self, end: Complete) -> tuple[list[Frame], Facts]: ...


class Observer:
    """The steps of an answer that nothing here reads: none. It only notes how the answer closed."""

    identity: Final = None
    holding: Final = False
    held_bytes: Final = 0
    ledger_bytes: Final = 0
    usage: Final = b""

    def mend(self, frames: list[Frame]) -> list[Frame]:
        """The same frames."""
        return frames

    def drop(self) -> None:
        """Nothing is held."""

    def finish(self, end: Complete) -> tuple[list[Frame], Facts]:
        """Such an answer has no facts."""
        return [], Facts()


class TunnelMender:
    """The step, for one attempt whose caller asked for `choices` choices (0: it has none). `keeps_copy`: the whole copy will be asked for at the end; `unmended`: finds what the steps take out."""

    def __init__(
        self,
        steps: Steps,
        *,
        choices: int,
        keeps_copy: bool = False,
        unmended: Unmended | None = None,
    ) -> None:
        self._steps = steps
        self._unmended = unmended or Unmended()
        self._missing = set(range(choices))  # choices without a finish reason
        self._closes = choices > 0
        self._raw: list[bytes] = []  # of frames that the steps have, and that have not left
        self._raw_bytes = 0
        self._ready: list[Frame] = []  # what the steps let go while they hold something else
        self._ready_bytes = 0
        self._last: list[Frame] = []
        self._last_bytes = 0
        self._copy: list[Frame] | None = [] if keeps_copy else None
        self._beside: list[Event] = []  # of the copy
        self._copy_bytes = 0

    @property
    def identity(self) -> Identity | None:
        return self._steps.identity

    @property
    def holding(self) -> bool:
        """Frames wait for something."""
        return bool(self._raw or self._last)

    @property
    def held_bytes(self) -> int:
        """Raw bytes of what is held."""
        return self._raw_bytes + self._last_bytes

    @property
    def ledger_bytes(self) -> int:
        """What is held costs so much: the provider's bytes, and their copy."""
        overhead = FRAME_OVERHEAD_BYTES * len(self._last)
        copies = self._steps.ledger_bytes + self._ready_bytes + self._last_bytes + self._copy_bytes
        beside = self._unmended.ledger_bytes
        return self._raw_bytes + self._last_bytes + overhead + copies + beside

    @property
    def usage(self) -> bytes:
        """What the attempt has reported so far."""
        return self._steps.usage

    def mend(self, frames: list[Frame]) -> list[Frame]:
        """The frames that may leave, with the provider's bytes as their own."""
        left: list[Frame] = []
        for frame in frames:
            if self._waits(frame):
                self._last.append(frame)
                self._last_bytes += frame.size
            else:
                left += self._taken(frame)
        return left

    def drop(self) -> None:
        """Nothing that is held is wanted any more."""
        self._steps.drop()
        self._unmended = Unmended()
        for each in (self._raw, self._ready, self._last, self._copy or []):
            each.clear()
        self._raw_bytes = self._ready_bytes = self._last_bytes = self._copy_bytes = 0

    def finish(self, end: Complete) -> tuple[list[Frame], Facts]:
        """The frames that were still held, and the facts of a complete attempt."""
        last, self._last, self._last_bytes = self._last, [], 0
        left = [each for frame in last for each in self._taken(frame)]
        rest, facts = self._steps.finish(end)
        self._add(rest)
        if self._raw or self._ready:
            left.append(self._let_go())
        return [msgspec.structs.replace(each, closing=True) for each in left], facts

    def settle(self, mender: FormatMender, frames: Sequence[Frame], facts: Facts) -> Settled:
        """What the last step makes of the whole copy; where it changed something, `frames`, which are all of the attempt, become one with the events that it leaves."""
        assert self._copy is not None, "the copy is kept where it is asked for"
        settled = mender.settle(self._copy, facts)
        whole = list(frames)
        if settled.changed:
            raw = b"".join([frame.data for frame in frames])
            size = sum(frame.size for frame in frames)
            events = [event for frame in settled.frames for event in frame.events]
            whole = [Frame(raw, (*events, *self._beside), size, closing=True)]
        return settled._replace(frames=whole)

    def _waits(self, frame: Frame) -> bool:
        """Whether the end has begun."""
        if self._last or frame.closing:
            return True
        for event in frame.events:
            if isinstance(event, Finish):
                self._missing.discard(event.choice)
        return self._closes and not self._missing

    def _taken(self, frame: Frame) -> list[Frame]:
        self._raw.append(frame.raw)
        self._raw_bytes += frame.size
        if frame.events:
            self._unmended.saw(frame)
            self._add(self._steps.mend([frame]))
        return [] if self._steps.held_bytes else [self._let_go()]

    def _add(self, frames: list[Frame]) -> None:
        self._ready += frames
        self._ready_bytes += sum([frame.size for frame in frames])

    def _let_go(self) -> Frame:
        """All that has been held as one frame."""
        raw = self._raw[0] if len(self._raw) == 1 else b"".join(self._raw)
        events, beside = self._unmended.judged(self._ready)
        frame = Frame(raw, (*events, *beside) if beside else events, self._raw_bytes)
        if self._copy is not None:
            self._copy += self._ready
            self._copy_bytes += self._ready_bytes
            self._beside += beside
        self._raw, self._ready = [], []
        self._raw_bytes = self._ready_bytes = 0
        return frame

    def __repr__(self) -> str:
        return f"TunnelMender({self.held_bytes} bytes held)"
