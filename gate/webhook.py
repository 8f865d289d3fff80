"""What a guardrail service is asked over HTTP, and what its answers mean. Pure: `transport.webhook` carries it.

Two shapes. `judge` is ours: the request says which exchange, attempt and choice the texts are of, and the answer is `{"pass": true}` or `{"pass": false, "code": "..."}`.
`moderation` is that of OpenAI's endpoint: `{"input": [...]}`, and whatever is flagged in the results does not pass.

A text is what is new in one channel of one choice, behind the last characters of what was asked about before, so that what stands across two questions is seen whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, TypeAlias

import msgspec

from gate.config import FilterConfig, WebhookShape
from gate.errors import FilterUnavailable
from gate.events import (
    AudioDelta,
    Event,
    Frame,
    ReasoningDelta,
    RefusalDelta,
    TextDelta,
    ToolDelta,
)
from gate.failure import FailureKind
from gate.filters.action import failure_for
from gate.filters.awaited import Question
from gate.filters.contract import Passed, Verdict, Violated
from gate.refs import is_stable_token

__all__ = ["ANSWER_BYTES_MAX", "CODE", "UNREADABLE", "WebhookTalk"]

ANSWER_BYTES_MAX: Final = 65_536
CONTEXT_CHARS: Final = 256  # before what is new, where the table gives no horizon
CHANNELS_MAX: Final = 512  # whose ends are remembered; beyond it the oldest are forgotten
CODE: Final = "webhook_denied"
UNREADABLE: Final = "webhook_answer"  # not the answer that its shape asks for


_Channel: TypeAlias = tuple[str, int, int | None]  # its name, the choice, the call's index


class Text(msgspec.Struct, frozen=True):
    """What one channel of one choice has brought. `context`: so many characters of it stood in a question before."""

    choice: int
    channel: str
    text: str
    context: int

    def __repr__(self) -> str:
        return f"Text({self.choice}, {self.channel}, {len(self.text)} characters)"


class _Ask(msgspec.Struct, frozen=True):
    exchange: str
    attempt: int
    last: bool
    texts: Sequence[Text]


class _Told(msgspec.Struct):
    passes: bool = msgspec.field(name="pass")
    code: str = ""


class _Result(msgspec.Struct):
    flagged: bool


class _Moderated(msgspec.Struct):
    results: list[_Result]


_told: Final = msgspec.json.Decoder(_Told)
_moderated: Final = msgspec.json.Decoder(_Moderated)


class WebhookTalk:
    """One attempt's conversation with a service: questions to bodies, answers to verdicts. `before`: the answer text that stands before the attempt."""

    def __init__(self, table: FilterConfig, exchange: str, attempt: int, before: str) -> None:
        self._shape: WebhookShape = table.shape
        self._action = table.action
        self._chars = table.horizon_chars or CONTEXT_CHARS
        self._exchange = exchange
        self._attempt = attempt
        self._ends: dict[_Channel, str] = {}
        if before:
            self._ends["content", 0, None] = before[-self._chars :]

    def ask(self, question: Question) -> bytes | None:
        """The body to send; None where the frames bring no text, and nothing is to be asked."""
        texts = list(self._texts(question.frames))
        if not texts:
            return None
        if self._shape == "moderation":
            return msgspec.json.encode({"input": [each.text for each in texts]})
        last = question.facts is not None
        return msgspec.json.encode(_Ask(self._exchange, self._attempt, last, texts))

    def read(self, question: Question, answer: bytes) -> Verdict:
        """The verdict that a 2xx answer is. Raises `FilterUnavailable` where it is none."""
        try:
            if self._shape == "moderation":
                results = _moderated.decode(answer).results
                passes, code = not any(each.flagged for each in results), ""
                if not results:
                    raise FilterUnavailable(UNREADABLE)
            else:
                told = _told.decode(answer)
                passes, code = told.passes, told.code
        except (msgspec.MsgspecError, RecursionError, UnicodeError):
            raise FilterUnavailable(UNREADABLE) from None
        if passes:
            return Passed(question.end)
        code = code if is_stable_token(code) else CODE
        failure = failure_for(self._action, own=FailureKind.DENIED, code=code)
        return Violated(question.start, code, failure)

    def _texts(self, frames: Sequence[Frame]) -> Iterator[Text]:
        fresh: dict[_Channel, list[str]] = {}
        for frame in frames:
            for event in frame.events:
                key, text = _read(event)
                if text:
                    fresh.setdefault(key, []).append(text)
        for key, pieces in fresh.items():
            channel, choice, _ = key
            context = self._ends.pop(key, "")
            whole = context + "".join(pieces)
            self._ends[key] = whole[-self._chars :]
            if len(self._ends) > CHANNELS_MAX:
                del self._ends[next(iter(self._ends))]
            yield Text(choice, channel, whole, len(context))


def _read(event: Event) -> tuple[_Channel, str]:
    """The channel of an event, and what it adds there."""
    match event:
        case TextDelta():
            return ("content", event.choice, None), event.text
        case ReasoningDelta():
            return ("reasoning", event.choice, None), event.text
        case RefusalDelta():
            return ("refusal", event.choice, None), event.text
        case ToolDelta():
            return ("arguments", event.choice, event.index), event.arguments or ""
        case AudioDelta():
            return ("transcript", event.choice, None), event.transcript
        case _:
            return ("", 0, None), ""
