"""The seam of a continuation: where a new attempt's text meets the text that is kept, judged by exact comparison only.

    the new text begins like the kept text      held as long as it does
      and brings all of it                      an echo: removed once
      and parts from it after 16 characters     the attempt began anew: it failed, and nothing of it is shown
    it begins with what the kept text ends in   the longest overlap of at least 8 characters is removed
    else                                        joined as it is

No list of phrases: a provider that answers beside the point can't be told from one that goes on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import Enum
from typing import Final

from gate.events import Event, Frame, ReasoningDelta, RefusalDelta, TextDelta, ToolDelta
from gate.evidence import FRAME_OVERHEAD_BYTES
from gate.loose_json import encoded, items, tolerant_object
from gate.transcript import text_of

__all__ = ["OVERLAP_CHARS_MAX", "OVERLAP_CHARS_MIN", "RESTART_CHARS_MIN", "Seam", "SeamKind"]

RESTART_CHARS_MIN: Final = 16  # two answers may begin with the same few words
OVERLAP_CHARS_MIN: Final = 8  # shorter ones happen by chance
OVERLAP_CHARS_MAX: Final = 4_096  # a longer one is not looked for


class SeamKind(Enum):
    """What was found; the value is a stable token."""

    ECHO = "seam_echo"
    OVERLAP = "seam_overlap"
    JOINED = "seam_joined"
    RESTARTED = "seam_restarted"


class Seam:
    """One seam behind `prefix`, all the text that is kept. The first `seam_chars` characters wait for it; `kind` is None until it is judged."""

    def __init__(self, prefix: str, *, seam_chars: int) -> None:
        self.kind: SeamKind | None = None
        self.held_bytes = 0
        self.held: list[Frame] = []
        self._prefix = prefix
        self._seam_chars = seam_chars
        self._pieces: list[str] = []
        self._chars = 0
        self._same = True  # so far the text is what the prefix begins with
        self._common = 0  # characters that both begin with, as far as the rule needs to know

    @property
    def ledger_bytes(self) -> int:
        """What is held costs so much."""
        return self.held_bytes + FRAME_OVERHEAD_BYTES * len(self.held)

    def feed(self, frames: Sequence[Frame]) -> list[Frame]:
        """Takes mended frames in; those that may be judged now, without what was there already. Nothing where the attempt began anew."""
        for number, frame in enumerate(frames):
            self._keep(frame)
            self._look(whole=_ends_text(frame))
            if any(isinstance(event, ReasoningDelta) for event in frame.events):
                # It thinks again, or calls its text thought: either way this is not the answer going on.
                self.kind = SeamKind.RESTARTED
            if self.kind is SeamKind.RESTARTED:
                return self._let_go()
            if self.kind is not None:
                return [*self._let_go(), *frames[number + 1 :]]
        return []

    def finish(self) -> list[Frame]:
        """No more comes: the same, with what is there."""
        if self.kind is None:
            self._look(whole=True)
        return self._let_go()

    def _keep(self, frame: Frame) -> None:
        self.held.append(frame)
        self.held_bytes += frame.size
        piece = text_of(frame)
        if self._same and piece:
            expected = self._prefix[self._chars : self._chars + len(piece)]
            self._same = piece.startswith(expected)
            self._common = self._chars + _in_common(expected, piece)
        self._pieces.append(piece)
        self._chars += len(piece)

    def _look(self, *, whole: bool) -> None:
        prefix = self._prefix
        if self._same and self._chars >= len(prefix):
            self._join(SeamKind.ECHO, len(prefix))
        elif self._same and not whole:
            pass
        elif self._common >= RESTART_CHARS_MIN:
            self.kind = SeamKind.RESTARTED
        elif self._chars >= self._seam_chars or whole:
            overlap = _overlap(prefix, "".join(self._pieces))
            self._join(SeamKind.OVERLAP if overlap else SeamKind.JOINED, overlap)

    def _join(self, kind: SeamKind, dropped: int) -> None:
        self.kind = kind
        self.held = list(_without_text(self.held, dropped))

    def _let_go(self) -> list[Frame]:
        frames, self.held, self.held_bytes = self.held, [], 0
        return [] if self.kind in {None, SeamKind.RESTARTED} else frames

    def __repr__(self) -> str:
        return f"Seam({self.kind}, {self._chars} characters held)"


def _ends_text(frame: Frame) -> bool:
    """Whether something else than text goes on behind it: what there is of text is all there will be to judge by."""
    return any(isinstance(event, ToolDelta | RefusalDelta) for event in frame.events)


def _in_common(one: str, other: str) -> int:
    """How many characters both begin with, counted no further than the rule needs."""
    count = 0
    for a, b in zip(one[:RESTART_CHARS_MIN], other, strict=False):
        if a != b:
            break
        count += 1
    return count


def _overlap(prefix: str, text: str) -> int:
    """The length of the longest end of `prefix` that `text` begins with; 0 where it is too short to mean anything."""
    longest = min(len(prefix), len(text), OVERLAP_CHARS_MAX)
    lengths = range(longest, OVERLAP_CHARS_MIN - 1, -1)
    return next((length for length in lengths if prefix.endswith(text[:length])), 0)


def _without_text(frames: Sequence[Frame], dropped: int) -> Iterator[Frame]:
    """`frames` less their first `dropped` characters; a frame that had nothing else goes."""
    for frame in frames:
        text = text_of(frame)
        if not dropped or not text:
            yield frame
            continue
        gone = min(dropped, len(text))
        dropped -= gone
        others = [event for event in frame.events if not isinstance(event, TextDelta)]
        if gone < len(text) or others:
            yield _with_text(frame, text[gone:], others)


def _with_text(frame: Frame, text: str, others: Sequence[Event]) -> Frame:
    """The frame with this text instead of its own; encoded anew, its end as whole or torn as it was."""
    value = tolerant_object(frame.data)
    assert value is not None, "a frame is a JSON object"
    rest = text
    if "choices" not in value:
        value["delta"] = text
    for choice in items(value.get("choices")):
        delta = choice.get("delta")
        if isinstance(delta, dict) and delta.get("content"):
            delta["content"], rest = rest, ""  # the choice may stand there twice
    events = (TextDelta(0, text), *others) if text else tuple(others)
    return Frame(encoded(value), events, frame.size, frame.mend)
