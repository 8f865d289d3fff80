"""What a Responses attempt says aloud: the transcript of its audio, piece by piece in deltas, and whole in the objects at an end.

A transcript is the model's own answer in words, so filters read it; the audio passes as it came. An object's transcript is judged by itself, as that of a choice that nobody asked for, unless it is what
the deltas came to, or was judged before. Digests tell, so that no text is kept.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any, Final

from gate.events import AudioDelta, Frame
from gate.loose_json import encoded, items, joined_halves, paired, string, tolerant_object
from gate.unmended import ASIDE, ASIDES_MAX

__all__ = ["AUDIO_DELTAS", "Spoken"]

AUDIO_DELTAS: Final[Mapping[str, bool]] = {
    "response.audio.delta": False,
    "response.output_audio.delta": False,
    "response.audio.transcript.delta": True,
    "response.audio_transcript.delta": True,
    "response.output_audio_transcript.delta": True,
}
"""Events that bring audio, and whether that is its transcript."""

DIGEST_BYTES: Final = 16
TOLD_BYTES: Final = 128  # a digest that is remembered, in CPython 3.11
TOLD_MAX: Final = 1_024  # what is said behind so many is judged again
SPOKEN: Final = ASIDE + (1 << 20)  # and up: choices that nobody asked for, as in `gate.unmended`
_NAME: Final = b'"transcript"'


class Spoken:
    """Follows one attempt."""

    def __init__(self) -> None:
        self._asides = 0
        self._half = ""  # of a character, at the end of the last delta
        self._told: set[bytes] = set()
        self._pieces = hashlib.blake2b(digest_size=DIGEST_BYTES)  # of the transcript that grows

    @property
    def ledger_bytes(self) -> int:
        """What is kept costs so much."""
        return TOLD_BYTES * len(self._told)

    def take(self, frame: Frame) -> tuple[Frame, tuple[AudioDelta, ...]]:
        """A frame, with half a character at the end of a delta's words moved to where the other half comes; and what it has of audio: that of a delta, and the transcripts in objects that have not been judged."""
        heard = [event for event in frame.events if isinstance(event, AudioDelta)]
        if heard:
            return self._delta(frame, heard[0])
        if _NAME not in frame.data:
            return frame, ()
        return frame, tuple(map(self._aside, filter(self._fresh, _said(frame))))

    def _delta(self, frame: Frame, heard: AudioDelta) -> tuple[Frame, tuple[AudioDelta, ...]]:
        if frame.mend or self._half:
            value = tolerant_object(frame.data) or {}
            text, self._half = joined_halves(self._half + heard.transcript)
            heard = AudioDelta(0, text)
            frame = Frame(encoded({**value, "delta": text}), frame.events, frame.size)
        self._pieces.update(heard.transcript.encode())
        return frame, (heard,)

    def _fresh(self, text: str) -> bool:
        digest = hashlib.blake2b(text.encode(), digest_size=DIGEST_BYTES).digest()
        known = digest in self._told
        if digest == self._pieces.digest():
            self._pieces = hashlib.blake2b(digest_size=DIGEST_BYTES)
            known = True
        if len(self._told) < TOLD_MAX:
            self._told.add(digest)
        return not known

    def _aside(self, text: str) -> AudioDelta:
        self._asides += 1
        return AudioDelta(SPOKEN + min(self._asides, ASIDES_MAX), text)


def _said(frame: Frame) -> Iterator[str]:
    """Every transcript in the objects of an event: its own, that of its part, of its item, and of its response."""
    value = tolerant_object(frame.data) or {}
    response = value.get("response")
    output = response.get("output") if isinstance(response, Mapping) else None
    parts: list[Any] = [value, value.get("part")]
    for item in (*items([value.get("item")]), *items(output)):
        parts += items(item.get("content"))
    for part in items(parts):
        text = string(part.get("transcript"))
        if text:
            yield paired(text)
