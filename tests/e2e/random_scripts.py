"""What the provider of one random exchange does, attempt by attempt: what it has to say, and what goes wrong with it.

Every attempt says something that no other attempt says, so that a mixture of two would show; and whatever no caller may see has one word in it.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeVar

from gate.errors import UpstreamFault
from tests.doubles import COMMENT, DONE, FOREVER, JSON, SSE, Answer, Read, fails

Item = TypeVar("Item")

EVENT_BYTES_MAX: Final = 65_536
BIG: Final = "x" * 25_000  # a frame of it is larger than a piece
MANY: Final = 24  # of those are more than may be on their way to a caller
NEVER_TOLD: Final = "secret"  # in whatever a provider says and no caller may see
SURE_SECONDS: Final = 4.0  # an answer that takes no longer is within every clock that is drawn


class Draw(random.Random):
    """The one source of chance of a case."""

    def chance(self, share: float) -> bool:
        return self.random() < share

    def weighted(self, weights: Mapping[Item, int]) -> Item:
        return self.choices(list(weights), list(weights.values()))[0]


# --- what an attempt says ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Said:
    """One attempt's whole answer. `finishes`: which of the events of its healthy stream say that a choice is finished, and of which choice."""

    name: str
    texts: tuple[str, ...]
    thought: str
    events: tuple[bytes, ...]
    finishes: Mapping[int, int]

    @property
    def last(self) -> int:
        """The event that makes the answer complete."""
        return max(self.finishes)

    @property
    def complete_at(self) -> int:
        """With so many bytes of its stream the answer may be taken for complete; with two more, the blank line, it has to be."""
        return self.size(self.last + 1) - 2

    def size(self, count: int) -> int:
        """Bytes of the first `count` events."""
        return sum(map(len, self.events[:count]))


def draw_said(draw: Draw, number: int, choices: int) -> Said:
    """What attempt `number` says: every text begins with the attempt and the choice."""
    name = f"up-{number}"
    words = [_words(draw, f"{number}{'ab'[choice]}") for choice in range(choices)]
    thought = f"{number}?" if draw.chance(0.2) else ""
    events: list[bytes] = []
    finishes: dict[int, int] = {}
    role = {"role": "assistant", "content": ""}
    events += [_chunk(name, each, role) for each in range(choices) if draw.chance(0.8)]
    if thought:
        events.append(_chunk(name, 0, {"reasoning_content": thought}))
    left = {choice: list(each) for choice, each in enumerate(words)}
    while left:
        choice = draw.choice(list(left))
        if left[choice]:
            events.append(_chunk(name, choice, {"content": left[choice].pop(0)}))
        else:
            del left[choice]
            finishes[len(events)] = choice
            events.append(_chunk(name, choice, {}, finish=draw.choice(("stop", "length"))))
        if draw.chance(0.05):
            events.append(COMMENT)
    events += [_usage(name)] if draw.chance(0.5) else []
    events += [DONE] if draw.chance(0.9) else []
    texts = tuple("".join(each) for each in words)
    return Said(name, texts, thought, tuple(events), finishes)


def _words(draw: Draw, mark: str) -> list[str]:
    """A few short words, sometimes many, sometimes a very long one."""
    count = draw.weighted({draw.randint(1, 4): 6, draw.randint(5, 15): 4, 60: 1})
    words = [mark]
    words += [f" {mark}{at}" + draw.choice(("", ".", "é", "🌊", "\\n")) for at in range(1, count)]
    if draw.chance(0.04):
        at = draw.randint(1, len(words))
        words[at:at] = [BIG] * draw.choice((1, 1, 1, MANY))
    return words


def _chunk(name: str, choice: int, delta: object, *, finish: str | None = None) -> bytes:
    part = {"index": choice, "delta": delta, "finish_reason": finish}
    return _event(_object(name, "chat.completion.chunk", [part]))


def _usage(name: str) -> bytes:
    usage = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
    return _event({**_object(name, "chat.completion.chunk", []), "usage": usage})


def _object(name: str, kind: str, choices: Sequence[object]) -> dict[str, Any]:
    return {"id": name, "object": kind, "created": 7, "model": "m", "choices": choices}


def _event(value: object) -> bytes:
    data = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    return b"data: " + data.encode() + b"\n\n"


# --- what goes wrong with it ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Play:
    """How a provider answers. `reach`: how many bytes of the healthy stream come before the fault; `late`: a clock of the route may end it first."""

    answer: Answer
    reach: int = 0
    late: bool = False

    @property
    def largest(self) -> int:
        """Bytes of its largest read."""
        return max([len(read.data) for read in self.answer.reads], default=0)


WHOLE: Final = 1 << 40  # a reach beyond every stream
Fault = Callable[[Draw, Said], Play]


def split(draw: Draw, data: bytes) -> list[bytes]:
    """`data` in reads: all at once, in random pieces, or byte by byte over a stretch."""
    at = draw.randint(0, len(data))
    ways: dict[str, Iterable[int]] = {
        "whole": (),
        "few": [draw.randint(0, len(data)) for _ in range(6)],
        "many": [draw.randint(0, len(data)) for _ in range(30 + len(data) // 5_000)],
        "bytes": range(at, min(at + 50, len(data))),
    }
    many = 20 if len(data) > MANY * 5_000 else 2  # a long answer does not come at once
    cuts = ways[draw.weighted({"whole": 2, "few": 3, "many": many, "bytes": 2})]
    ends = sorted({*cuts, len(data)} - {0})
    return [data[begin:end] for begin, end in zip([0, *ends], ends, strict=False)]


def stream(
    draw: Draw,
    *events: bytes,
    then: Iterable[Read] = (),
    seconds: float | None = None,
    head_after: float = 0.0,
) -> Answer:
    """These events, cut anyhow, over so many seconds (None: a short while); then what ends them."""
    if seconds is None:
        seconds = draw.choice((0.0, 0.0, 0.5, SURE_SECONDS))
    pieces = split(draw, b"".join(events))
    reads = [Read(piece, seconds / len(pieces)) for piece in pieces]
    return Answer([*reads, *then], headers=SSE, head_after=head_after)


def _healthy(draw: Draw, said: Said) -> Play:
    return Play(stream(draw, *said.events), WHOLE)


def _slow_head(draw: Draw, said: Said) -> Play:
    return Play(stream(draw, *said.events, head_after=draw.uniform(0, SURE_SECONDS)), WHOLE)


def _lingers(draw: Draw, said: Said) -> Play:
    """The answer is whole, but its connection does not end, or not well."""
    ends = (Read(after=FOREVER), Read(fault=UpstreamFault.CUT), Read(NEVER_TOLD.encode() * 9))
    return Play(stream(draw, *said.events, then=[draw.choice(ends)]), WHOLE)


def _implied(draw: Draw, said: Said) -> Play:
    """No finish reason at all, but usage and `[DONE]`: a proper end all the same."""
    told = [each for at, each in enumerate(said.events[: said.last]) if at not in said.finishes]
    return Play(stream(draw, *told, _usage(said.name), DONE), WHOLE)


def _drip(draw: Draw, said: Said) -> Play:
    """Few bytes at a time, and for long: a clock may find it too slow, or not."""
    data = b"".join(said.events)
    size = max(20, len(data) // 80)
    pieces = [data[at : at + size] for at in range(0, len(data), size)]
    every = draw.choice((0.2, 1.0, 6.0))
    return Play(Answer([Read(piece, every) for piece in pieces]), WHOLE, late=True)


def _fault(fault: UpstreamFault, _: Draw, __: Said) -> Play:
    """No connection, or no head."""
    return Play(fails(fault))


def _late_head(draw: Draw, said: Said) -> Play:
    connect, head = draw.choice(((1000.0, 0.0), (0.0, 1000.0), (0.0, 1000.0)))
    return Play(Answer(connect_after=connect, head_after=head))


def _ends_at(draw: Draw, said: Said, *, then: Iterable[Read]) -> Play:
    """The stream ends at some byte of it, and this is how."""
    data = b"".join(said.events)
    at = draw.randint(0, len(data))
    return Play(stream(draw, data[:at], then=then), at)


def _fin(draw: Draw, said: Said) -> Play:
    return _ends_at(draw, said, then=())


def _broken(fault: UpstreamFault, draw: Draw, said: Said) -> Play:
    return _ends_at(draw, said, then=[Read(fault=fault)])


def _reset_after_head(_: Draw, __: Said) -> Play:
    return Play(Answer([Read(fault=UpstreamFault.CUT)]))


def _stall(draw: Draw, said: Said) -> Play:
    count = draw.randint(0, len(said.events))
    answer = stream(draw, *said.events[:count], then=[Read(after=FOREVER)])
    return Play(answer, said.size(count))


def _interrupted(draw: Draw, said: Said, wrong: bytes) -> Play:
    """Something wrong between two events, and the rest behind it."""
    count = draw.randint(0, len(said.events))
    events = [*said.events[:count], wrong, *said.events[count:]]
    return Play(stream(draw, *events), said.size(count))


def _malformed(draw: Draw, said: Said) -> Play:
    wrong = (b'{"choices":[{"index":0,"delta":{"content":"secret', b'{"id":', b"{secret}", b"{]")
    return _interrupted(draw, said, b"data: " + draw.choice(wrong) + b"\n\n")


def _oversized(draw: Draw, said: Said) -> Play:
    size = EVENT_BYTES_MAX // len(NEVER_TOLD) + 1
    return _interrupted(draw, said, _chunk(said.name, 0, {"content": NEVER_TOLD * size}))


ERROR_CODES: Final = ("server_error", "rate_limit_exceeded", "invalid_request", 500, None)


def _error(draw: Draw) -> dict[str, Any]:
    code = draw.choice(ERROR_CODES)
    return {"error": {"message": f"{NEVER_TOLD} detail", "type": "odd", "code": code}}


def _in_band_error(draw: Draw, said: Said) -> Play:
    named = b"event: error\n" if draw.chance(0.3) else b""
    return _interrupted(draw, said, named + _event(_error(draw)))


def _empty(draw: Draw, said: Said) -> Play:
    finishes = [_chunk(said.name, choice, {}, finish="stop") for choice in range(len(said.texts))]
    blank = _chunk(said.name, 0, {"content": draw.choice((" ", "\n\n", ""))})
    ways: tuple[list[bytes], ...] = ([], [DONE], [*finishes, DONE], [blank, *finishes, DONE])
    return Play(stream(draw, *draw.choice(ways)))


def _missing_terminal(draw: Draw, said: Said) -> Play:
    """All that it had to say, but for one finish reason."""
    told = said.events[: said.last]
    return Play(stream(draw, *told, *([DONE] if draw.chance(0.5) else [])))


def _failed_finish(draw: Draw, said: Said) -> Play:
    choice = said.finishes[said.last]
    failed = _chunk(said.name, choice, {}, finish=draw.choice(("error", "internal_error")))
    return Play(stream(draw, *said.events[: said.last], failed, DONE))


def _status(status: int, draw: Draw, _: Said) -> Play:
    """An error with a body that may break off or not come, and perhaps the wish to be asked later."""
    data = json.dumps(_error(draw)).encode()
    ends: tuple[list[Read], ...] = ([], [], [Read(fault=UpstreamFault.CUT)], [Read(after=FOREVER)])
    wait = draw.choice(("", "0", "1", "3", "120", "soon")) if status in {429, 503} else ""
    headers = [*JSON, *([(b"retry-after", wait.encode())] if wait else [])]
    bodies: tuple[list[Read], ...] = ([], [Read(data)], [Read(data[: draw.randint(0, len(data))])])
    return Play(Answer([*draw.choice(bodies), *draw.choice(ends)], status, headers))


def _unusable(status: int, media: bytes, _: Draw, __: Said) -> Play:
    headers = [(b"content-type", media), (b"location", NEVER_TOLD.encode())]
    reads = [] if status == 204 else [Read(f"<html>{NEVER_TOLD}</html>".encode())]
    return Play(Answer(reads, status, headers))


def _json(draw: Draw, said: Said) -> bytes:
    messages: list[dict[str, Any]] = [
        {"role": "assistant", "content": said_text} for said_text in said.texts
    ]
    if said.thought:
        messages[0]["reasoning_content"] = said.thought
    choices = [
        {"index": at, "message": message, "finish_reason": "stop"}
        for at, message in enumerate(messages)
    ]
    value = _object(said.name, "chat.completion", choices)
    return json.dumps(value, ensure_ascii=draw.chance(0.5)).encode()


def _body(draw: Draw, data: bytes, *, reach: int = 0, then: Iterable[Read] = ()) -> Play:
    reads = [Read(piece) for piece in split(draw, data)]
    return Play(Answer([*reads, *then], headers=JSON), reach)


def _json_answer(draw: Draw, said: Said) -> Play:
    return _body(draw, _json(draw, said), reach=WHOLE)


def _json_error(draw: Draw, _: Said) -> Play:
    return _body(draw, json.dumps(_error(draw)).encode())


def _json_cut(draw: Draw, said: Said) -> Play:
    data = _json(draw, said)
    ends = ((), [Read(fault=UpstreamFault.CUT)], [Read(after=FOREVER)])
    return _body(draw, data[: draw.randint(0, len(data) - 1)], then=draw.choice(ends))


def _crash(_: Draw, __: Said) -> Play:
    """The port breaks its promise: a bug of ours."""
    return Play(Answer(crash=True))


STATUSES: Final = (400, 401, 403, 404, 408, 409, 413, 422, 429, 500, 502, 503, 529)
FAULTS: Final[Mapping[str, Fault]] = {
    "healthy": _healthy,
    "slow_head": _slow_head,
    "lingers": _lingers,
    "implied": _implied,
    "drip": _drip,
    "connect": partial(_fault, UpstreamFault.CONNECT),
    "reset": partial(_fault, UpstreamFault.RESET),
    "protocol": partial(_fault, UpstreamFault.PROTOCOL),
    "late_head": _late_head,
    "reset_after_head": _reset_after_head,
    "fin": _fin,
    "cut": partial(_broken, UpstreamFault.CUT),
    "broken": partial(_broken, UpstreamFault.PROTOCOL),
    "encoding": partial(_broken, UpstreamFault.ENCODING),
    "stall": _stall,
    "malformed": _malformed,
    "oversized": _oversized,
    "in_band_error": _in_band_error,
    "empty": _empty,
    "missing_terminal": _missing_terminal,
    "failed_finish": _failed_finish,
    "redirect": partial(_unusable, 302, b"text/html"),
    "no_content": partial(_unusable, 204, b"application/json"),
    "html": partial(_unusable, 200, b"text/html"),
    "json_answer": _json_answer,
    "json_error": _json_error,
    "json_cut": _json_cut,
    "crash": _crash,
    **{f"status_{status}": partial(_status, status) for status in STATUSES},
}
# Those that are drawn more often than once: answers, and what happens in the middle of one.
WEIGHTS: Final = {
    "healthy": 16,
    "fin": 5,
    "cut": 5,
    "stall": 4,
    "malformed": 2,
    "in_band_error": 3,
    "late_head": 2,
    "json_answer": 2,
    "status_429": 2,
    "status_503": 2,
}


@dataclass(frozen=True, slots=True)
class Script:
    """One attempt: the fault's name, what it would have said, and what it does."""

    fault: str
    said: Said
    play: Play

    @property
    def may_complete(self) -> bool:
        """A caller may get it as a success."""
        return self.play.reach >= self.said.complete_at

    @property
    def completes(self) -> bool:
        """Whoever sees it to its end has to take it for a success."""
        return self.play.reach >= self.said.complete_at + 2 and not self.play.late


def draw_script(draw: Draw, number: int, choices: int, *, fault: str = "") -> Script:
    """Attempt `number`, with this fault, or any."""
    said = draw_said(draw, number, choices)
    fault = fault or draw.weighted({name: WEIGHTS.get(name, 1) for name in FAULTS})
    return Script(fault, said, FAULTS[fault](draw, said))
