"""The steps of mending that encode a chat frame anew: content as a list of parts becomes a string, a payload that is not one line of UTF-8 becomes one, and half of a surrogate pair that ends a delta moves to
where the other half begins, in texts and in the transcript of audio. A half that stays alone becomes U+FFFD.

Everything else in such a frame stays, unknown members included. State belongs to one attempt.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from gate.events import (
    AudioDelta,
    Frame,
    Identity,
    Mend,
    ReasoningDelta,
    RefusalDelta,
    TextDelta,
    ToolEnd,
)
from gate.loose_json import encoded, integer, items, joined_halves, tolerant_object
from gate.openai import decode_object

__all__ = ["Renewal"]

_TRANSCRIPT: Final = "transcript"
_TEXTS: Final[Mapping[str, type[TextDelta | ReasoningDelta | RefusalDelta]]] = {
    "content": TextDelta,
    "reasoning_content": ReasoningDelta,
    "reasoning": ReasoningDelta,
    "refusal": RefusalDelta,
}
_NAME_FLAGS: Final = {
    "reasoning": Mend.REASONING.value,
    "reasoning_content": Mend.REASONING_CONTENT.value,
}
_RENEW: Final = (Mend.FIELDS | Mend.BYTES | Mend.TEXT).value


class Renewal:
    """Follows one attempt. `halves`: of characters at the ends of deltas, by choice and member; they wait for the other."""

    def __init__(self) -> None:
        self.halves: dict[tuple[int, str], str] = {}

    def renewed(self, frame: Frame) -> Frame:
        """The frame as it has to be; the same where it needs nothing."""
        changed = bool(frame.mend & _RENEW)
        if not changed and not self.halves:
            return frame
        value = tolerant_object(frame.data)
        assert value is not None, "a frame is a JSON object"
        for choice in items(value.get("choices")):
            delta = choice.get("delta")
            if isinstance(delta, dict):
                changed |= self._delta(integer(choice.get("index")), delta)
        if not changed:
            return frame
        data = encoded(value)
        events, _ = decode_object(value)
        added = [event for event in frame.events if isinstance(event, Identity | ToolEnd)]
        return Frame(data, (*events, *added), frame.size, frame.mend)

    def finish(self) -> list[Frame]:
        """A frame for each half that nothing follows any more."""
        alone = [_lone(choice, name) for choice, name in self.halves]
        self.halves.clear()
        return alone

    def _delta(self, choice: int, delta: dict[str, Any]) -> bool:
        changed = False
        if isinstance(delta.get("content"), list):
            events, _ = decode_object({"choices": [{"delta": {"content": delta["content"]}}]})
            delta["content"] = "".join(
                event.text for event in events if isinstance(event, TextDelta)
            )
            thinking = "".join(event.text for event in events if isinstance(event, ReasoningDelta))
            if thinking:
                delta["reasoning_content"] = thinking
            changed = True
        for name in _TEXTS:
            changed |= self._joined(choice, name, delta)
        audio = delta.get("audio")
        return changed | (isinstance(audio, dict) and self._joined(choice, _TRANSCRIPT, audio))

    def _joined(self, choice: int, name: str, told: dict[str, Any]) -> bool:
        """Puts the half kept before a text there, and keeps a half at its end; whether that changed it."""
        text = told.get(name)
        if not isinstance(text, str) or not text:
            return False
        told[name], half = joined_halves(self.halves.pop((choice, name), "") + text)
        if half:
            self.halves[choice, name] = half
        return bool(told[name] != text)


def _lone(choice: int, name: str) -> Frame:
    """A frame of one character that nobody knows."""
    said = {name: "\ufffd"}
    delta = {"audio": said} if name == _TRANSCRIPT else said
    value = {
        "object": "chat.completion.chunk",
        "choices": [{"index": choice, "delta": delta, "finish_reason": None}],
    }
    event = _TEXTS[name](choice, "\ufffd") if name in _TEXTS else AudioDelta(choice, "\ufffd")
    return Frame(encoded(value), (event,), 0, _NAME_FLAGS.get(name, 0))
