"""What the loopback provider answers: a request and a behaviour in, steps out. No I/O, no clock.

A behaviour is asked for by model name, ``FAULT[:K][@N]``: `K` is the number of deltas before the
fault (the seconds of ``Retry-After`` for ``429``, the number of deltas for ``loop``; others ignore
it), and after the first `N` requests for that name the answers are healthy. Any other name is
healthy. A refused connection has no model name: use a port on which nobody listens.

Every answer is a function of the request, so that a test can compute what it should receive.
The wire format is that of OpenAI's chat completions, or of its Responses API.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from itertools import cycle, islice
from types import MappingProxyType
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from ops.provider_chat import SENTENCES, Chat, Said, error_body, words_of
from ops.provider_script import Ending, Head, Pace, Sleep, Step, Write

DELTAS_MAX: Final = 10_000
DELTAS_BEFORE_FAULT: Final = 3
RETRY_AFTER_SECONDS: Final = 1

HTML: Final = b"<!doctype html><title>Gateway</title><p>The upstream is being restarted.</p>\n"
THOUGHTS: Final = "First the level, then the wind; the answer follows from both."
REFUSAL: Final = "I will not answer that."
LOOPED: Final = " " + SENTENCES[0]


class Fault(Enum):
    """The behaviours that a model name can ask for."""

    HEALTHY = "healthy"
    SLOW = "slow"  # a long silence before every delta
    SLOW_FIRST = "slow-first"  # a long silence before the first delta only
    DRIP = "drip"  # one byte at a time
    GZIP = "gzip"  # compressed, whatever the request accepts
    NO_DONE = "no-done"  # everything but the last `[DONE]`
    STALL = "stall"
    CUT = "cut"
    RESET = "reset"
    CLEAN_CUT = "clean-cut"  # the HTTP body ends properly, the answer does not
    ROLE_THEN_SILENCE = "role-then-silence"
    MALFORMED = "malformed"  # one event is broken JSON, the others are not
    LATE_ERROR = "late-error"
    ERROR_IN_200 = "error-in-200"  # the first event is an error
    JSON_ERROR_200 = "json-error-200"  # a stream was asked for, an error object comes
    HTML_200 = "html-200"
    ZERO_BYTE = "zero-byte"
    NO_ANSWER = "no-answer"
    REDIRECT = "redirect"
    EMPTY = "empty"
    LOOP = "loop"  # one sentence, over and over
    LENGTH = "length"
    CONTENT_FILTER = "content-filter"
    REFUSAL = "refusal"
    REASONING = "reasoning"
    TOOL_CALL = "tool-call"
    CONTEXT_LENGTH = "context-length"
    BAD_REQUEST = "400"
    UNAUTHORIZED = "401"
    NOT_FOUND = "404"
    RATE_LIMITED = "429"
    SERVER_ERROR = "500"
    OVERLOADED = "503"


class Behaviour(Struct, frozen=True):
    """A fault, its number `K`, and for how many requests it lasts (None: for all)."""

    fault: Fault = Fault.HEALTHY
    number: int | None = None
    first: int | None = None

    @property
    def deltas(self) -> int:
        """How many deltas come before the fault."""
        return DELTAS_BEFORE_FAULT if self.number is None else self.number

    def at(self, earlier: int) -> Behaviour:
        """The behaviour for a request that `earlier` others of the same name came before."""
        return self if self.first is None or earlier < self.first else Behaviour()


_NAME: Final = re.compile(r"(?P<fault>[a-z0-9-]+)(?::(?P<number>\d{1,5}))?(?:@(?P<first>\d{1,5}))?")
_FAULTS: Final[Mapping[str, Fault]] = MappingProxyType({each.value: each for each in Fault})


def behaviour_of(model: str) -> Behaviour:
    """What the model name asks for; a name that asks for nothing is healthy."""
    match = _NAME.fullmatch(model)
    if match is None or match["fault"] not in _FAULTS:
        return Behaviour()
    number, first = (None if match[key] is None else int(match[key]) for key in ("number", "first"))
    return Behaviour(_FAULTS[match["fault"]], number, first)


def json_steps(
    status: int, body: bytes, headers: tuple[tuple[str, str], ...] = ()
) -> Iterator[Step]:
    """A complete JSON answer with its length."""
    yield Head(status, (*_typed("application/json"), ("content-length", str(len(body))), *headers))
    yield Write(body)


def error_steps(
    status: int,
    code: str,
    message: str,
    *,
    param: str | None = None,
    retry_after: int | None = None,
) -> Iterator[Step]:
    """An error in OpenAI's envelope; the type follows from the status."""
    headers = () if retry_after is None else (("retry-after", str(retry_after)),)
    return json_steps(status, error_body(status, code, message, param=param), headers)


def answer_steps(chat: Chat, behaviour: Behaviour, *, pace: Pace | None = None) -> Iterator[Step]:
    """The whole answer to `chat`, as lazily as it is played."""
    pace = pace or Pace()
    fault = behaviour.fault
    if fault in _ERRORS:
        status, code, message, param = _ERRORS[fault]
        seconds = RETRY_AFTER_SECONDS if behaviour.number is None else behaviour.number
        retry_after = seconds if fault is Fault.RATE_LIMITED else None
        return error_steps(status, code, message, param=param, retry_after=retry_after)
    if fault in _ANSWERLESS:
        return _ANSWERLESS[fault](chat)
    steps = (_stream if chat.stream else _whole)(chat, behaviour, pace)
    match fault:
        case Fault.GZIP:
            return _gzipped(steps)
        case Fault.DRIP:
            return _dripped(steps, pace.drip_ms)
        case _:
            return steps


# --- answers that never begin -------------------------------------------------------------------

_ERRORS: Final[Mapping[Fault, tuple[int, str, str, str | None]]] = MappingProxyType(
    {
        Fault.BAD_REQUEST: (400, "invalid_value", "A value is not allowed.", "temperature"),
        Fault.UNAUTHORIZED: (401, "invalid_api_key", "The key is not known.", None),
        Fault.NOT_FOUND: (404, "model_not_found", "There is no such model.", "model"),
        Fault.RATE_LIMITED: (429, "rate_limit_exceeded", "Too many requests.", None),
        Fault.SERVER_ERROR: (500, "engine_failed", "The engine has failed.", None),
        Fault.OVERLOADED: (503, "overloaded", "The engine has no room.", None),
        Fault.CONTEXT_LENGTH: (
            400,
            "context_length_exceeded",
            "The messages are longer than the context of the model.",
            "messages",
        ),
    }
)


def _typed(kind: str) -> tuple[tuple[str, str], ...]:
    return (("content-type", kind),)


def _engine_failed() -> bytes:
    return error_body(500, "engine_failed", "The engine has failed.")


def _html(_: Chat) -> Iterator[Step]:
    yield Head(200, (*_typed("text/html; charset=utf-8"), ("content-length", str(len(HTML)))))
    yield Write(HTML)


def _error_object(_: Chat) -> Iterator[Step]:
    return json_steps(200, _engine_failed())


def _error_first(chat: Chat) -> Iterator[Step]:
    if not chat.stream:
        yield from _error_object(chat)
        return
    yield Head(200, _typed("text/event-stream"))
    for each in chat.failure(_engine_failed()):
        yield Write(each)


def _nothing(chat: Chat) -> Iterator[Step]:
    yield Head(200, _typed("text/event-stream" if chat.stream else "application/json"))


def _no_answer(_: Chat) -> Iterator[Step]:
    yield Ending.STALL


def _redirect(_: Chat) -> Iterator[Step]:
    yield Head(307, (("location", "/v1/moved/chat/completions"), ("content-length", "0")))


_ANSWERLESS: Final[Mapping[Fault, Callable[[Chat], Iterator[Step]]]] = MappingProxyType(
    {
        Fault.HTML_200: _html,
        Fault.JSON_ERROR_200: _error_object,
        Fault.ERROR_IN_200: _error_first,
        Fault.ZERO_BYTE: _nothing,
        Fault.NO_ANSWER: _no_answer,
        Fault.REDIRECT: _redirect,
    }
)

# --- what is said --------------------------------------------------------------------------------


def _say(chat: Chat, behaviour: Behaviour, choice: int) -> Said:
    """What choice number `choice` says, before any fault of the transport."""
    said = chat.answer(choice)
    before = said.words[: behaviour.deltas]
    match behaviour.fault:
        case Fault.EMPTY:
            said = Said()
        case Fault.LENGTH:
            said = Said(words=before, finish="length")
        case Fault.CONTENT_FILTER:
            said = Said(words=before, finish="content_filter")
        case Fault.REFUSAL:
            said = Said(refusal=words_of(REFUSAL))
        case Fault.REASONING:
            said = replace(said, reasoning=words_of(THOUGHTS))
        case Fault.TOOL_CALL:
            said = Said(call=chat.call(choice), finish="tool_calls")
        case Fault.LOOP:
            times = DELTAS_MAX if behaviour.number is None else behaviour.number
            looped = islice(cycle(words_of(LOOPED)), min(times, DELTAS_MAX // chat.n))
            said = Said(words=tuple(looped), finish="length")
        case _:
            pass
    return said


_BREAKS: Final[Mapping[Fault, Ending]] = MappingProxyType(
    {
        Fault.STALL: Ending.STALL,
        Fault.ROLE_THEN_SILENCE: Ending.STALL,
        Fault.CUT: Ending.CUT,
        Fault.RESET: Ending.RESET,
        Fault.CLEAN_CUT: Ending.CLOSE,
    }
)

# --- streamed ------------------------------------------------------------------------------------


def _stream(chat: Chat, behaviour: Behaviour, pace: Pace) -> Iterator[Step]:
    """Head, roles, deltas, finishes, usage, `[DONE]`; or as far as the fault lets it come."""
    fault = behaviour.fault
    yield Head(200, (*_typed("text/event-stream"), ("cache-control", "no-cache")))
    for opening in chat.opening(chat.n):
        yield Write(opening)
    said = [_say(chat, behaviour, choice) for choice in range(chat.n)]
    yield from _deltas(chat, said, behaviour, pace)
    if fault in _BREAKS:
        yield _BREAKS[fault]
        return
    late = fault is Fault.LATE_ERROR
    ending = (
        chat.failure(_engine_failed())
        if late
        else chat.ending(said, mark=fault is not Fault.NO_DONE)
    )
    for each in ending:
        yield Write(each)


def _deltas(chat: Chat, said: Sequence[Said], behaviour: Behaviour, pace: Pace) -> Iterator[Step]:
    """One delta of each choice in turn; those before the fault, where one stops the answer."""
    turns = chat.turns(said)
    fault = behaviour.fault
    stop = 0 if fault is Fault.ROLE_THEN_SILENCE else behaviour.deltas
    if fault is Fault.MALFORMED:
        stop = min(stop, len(turns) - 1)  # one event is broken, however short the answer is
    for ordinal, turn in enumerate(turns):
        if ordinal == stop and (fault in _BREAKS or fault is Fault.LATE_ERROR):
            return
        silence = _silence_ms(fault, pace, ordinal)
        if silence:
            yield Sleep(silence)
        broken = fault is Fault.MALFORMED and ordinal == stop
        for data in turn:
            yield Write(_broken(data) if broken else data)


def _silence_ms(fault: Fault, pace: Pace, ordinal: int) -> int:
    slow = fault is Fault.SLOW or (fault is Fault.SLOW_FIRST and ordinal == 0)
    return pace.slow_ms if slow else pace.chunk_ms


def _broken(data: bytes) -> bytes:
    """The event with the second half of its JSON missing."""
    return data[: len(data) // 2] + b"\n\n"


# --- in one piece --------------------------------------------------------------------------------


def _whole(chat: Chat, behaviour: Behaviour, pace: Pace) -> Iterator[Step]:
    """The JSON body; a fault that breaks a stream breaks it in the middle."""
    fault = behaviour.fault
    if fault is Fault.LATE_ERROR:
        yield from _error_object(chat)
        return
    body = chat.whole([_say(chat, behaviour, choice) for choice in range(chat.n)])
    half = body[: len(body) // 2]
    if fault in {Fault.SLOW, Fault.SLOW_FIRST} and pace.slow_ms:
        yield Sleep(pace.slow_ms)
    if fault is Fault.MALFORMED:
        yield from json_steps(200, half)
    elif fault is Fault.CLEAN_CUT:
        yield Head(200, _typed("application/json"))
        yield Write(half)
    elif fault in _BREAKS:
        yield Head(200, (*_typed("application/json"), ("content-length", str(len(body)))))
        yield Write(half)
        yield _BREAKS[fault]
    else:
        yield from json_steps(200, body)


# --- what happens to the bytes -------------------------------------------------------------------


def _gzipped(steps: Iterable[Step]) -> Iterator[Step]:
    """The same body compressed; each piece can be inflated as it comes."""
    packer = zlib.compressobj(wbits=zlib.MAX_WBITS | 16)
    for step in steps:
        match step:
            case Head(status, headers):
                kept = tuple(pair for pair in headers if pair[0] != "content-length")
                yield Head(status, (*kept, ("content-encoding", "gzip")))
            case Write(data):
                yield Write(packer.compress(data) + packer.flush(zlib.Z_SYNC_FLUSH))
            case _:
                yield step
    yield Write(packer.flush())


def _dripped(steps: Iterable[Step], pause_ms: int) -> Iterator[Step]:
    """The same body, each byte written alone."""
    for step in steps:
        if not isinstance(step, Write):
            yield step
            continue
        for start in range(len(step.data)):
            if pause_ms:
                yield Sleep(pause_ms)
            yield Write(step.data[start : start + 1])
