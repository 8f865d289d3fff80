"""`refusal`: notices an answer that is a refusal. It condemns nothing and holds nothing: a refusal is an answer.

A choice refuses where the provider says so (`refusal`), or where its text begins as refusals do: the first sentence says that the model will not or can't do what was asked. The
table is our own; it looks at the first `BEGINNING_CHARS` characters only, so that an answer that mentions a limit on its way is none.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from gate.events import AudioDelta, Event, Facts, Frame, RefusalDelta, TextDelta
from gate.filters.contract import FilterContext, Passed, Verdict

__all__ = ["RefusalFilter", "begins_as_refusal"]

CODE: Final = "refusal"
BEGINNING_CHARS: Final = 160

_SORRY: Final = (
    r"(?:(?:i'?m|i am) (?:(?:very|really|so|truly) )?sorry|(?:my )?apologies|i apologi[sz]e|sorry|unfortunately|no)"
    r"[,.:;!]? *(?:but |however,? )?(?:but )?"
)
_WILL_NOT: Final = (
    r"i ?(?:can'?t|can ?not|won'?t|will not|must not|have to decline|must decline|(?:am|'m) (?:unable|not able) to"
    r"|(?:am|'m) not (?:comfortable|going to|allowed to|permitted to)|(?:do not|don'?t) feel comfortable)"
)
_DO_IT: Final = (
    r"(?:assist|help(?! but)|comply|provide|providing|fulfil|support|discuss|engage|create|generate|write|writing|produce|share|answer"
    r"|do (?:that|this)|give|giving|offer|participate|assisting|helping)"
)
_BEGINNINGS: Final[Sequence[re.Pattern[str]]] = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        rf"(?:{_SORRY})?(?:as an ai[a-z ]*,? )?{_WILL_NOT}\b[^.!?\n]{{0,60}}?\b{_DO_IT}",
        rf"{_SORRY}(?:that'?s|that is|this is) (?:not something|something) (?:that )?{_WILL_NOT}",
        r"(?:i have to|i must|i need to) (?:respectfully )?(?:decline|refuse)\b",
        r"(?:this|your|that) request (?:goes against|violates|is against|conflicts with)\b",
        r"(?:es )?tut mir (?:sehr )?leid[^.!?\n]{0,20}\b(?:kann|darf) (?:ich )?[^.!?\n]{0,60}\bnicht\b",
        r"(?:je suis )?désolée?[^.!?\n]{0,20}\bje ne (?:peux|puis) pas\b",
        r"lo siento[^.!?\n]{0,20}\bno puedo\b",
        r"(?:mi dispiace|spiacente)[^.!?\n]{0,20}\bnon posso\b",
        r"(?:sinto muito|desculpe)[^.!?\n]{0,20}\bnão posso\b",
        r"(?:非常|很)?(?:抱歉|对不起)[^。\n]{0,20}(?:不能|无法)",
        r"申し訳(?:ありません|ございません)[^。\n]{0,40}(?:できません|できかねます)",
    )
)


class RefusalFilter:
    """Judges nothing, and says at the end whether a choice refused."""

    name = "refusal"
    gating = False

    def __init__(self, context: FilterContext) -> None:
        self.notice: str | None = None
        self._beginnings: dict[tuple[type[Event], int], str] = {}

    def prime(self, text: str) -> None:
        self._beginnings[TextDelta, 0] = text[:BEGINNING_CHARS]

    def observe(self, frames: Sequence[Frame], position: int) -> Verdict:
        for frame in frames:
            for event in frame.events:
                if type(event) is TextDelta:
                    self._read(event, event.text)
                elif type(event) is AudioDelta:
                    self._read(event, event.transcript)
                elif type(event) is RefusalDelta and event.text:
                    self.notice = CODE
        return Passed(position + len(frames))

    def _read(self, event: TextDelta | AudioDelta, said: str) -> None:
        key = type(event), event.choice
        text = self._beginnings.get(key, "")
        if len(text) < BEGINNING_CHARS:
            self._beginnings[key] = (text + said).lstrip()[:BEGINNING_CHARS]

    def finish(self, position: int, facts: Facts) -> Verdict:
        if any(map(begins_as_refusal, self._beginnings.values())):
            self.notice = CODE
        return Passed(position)


def begins_as_refusal(text: str) -> bool:
    """Whether an answer that begins so is a refusal, by its wording."""
    plain = text.lstrip(" \n*_>\"'").replace("\u2019", "'")[:BEGINNING_CHARS]
    return any(pattern.match(plain) for pattern in _BEGINNINGS)
