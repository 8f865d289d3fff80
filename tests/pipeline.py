"""The pure half of an exchange without its actors: a provider's bytes -> reader -> judge -> framing -> the caller's bytes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from gate.config import HoldConfig
from gate.events import Complete, HowEnded, Shape, Start
from gate.failure import Failure
from gate.filters.builtin import make_filters
from gate.filters.contract import FilterContext
from gate.framing import Framing, framing_for
from gate.judging import Judge
from gate.reader import ChatBodyReader, ChatStreamReader

START_ID: Final = "chatcmpl-1"
LIMIT: Final = 1 << 24


@dataclass(frozen=True, slots=True)
class Passed:
    """What the caller got: bytes, and the failure that ended the attempt, if one did."""

    body: bytes
    failure: Failure | None


def start(*, stream: bool = True, usage: bool = True) -> Start:
    """The start of a response for a caller that asked for `alias`."""
    return Start(1, START_ID, 7, Shape(model="alias", stream=stream, include_usage=usage))


def run(
    pieces: Iterable[bytes],
    *,
    stream: bool = True,
    choices: int = 1,
    usage: bool = True,
    body: bool = False,
) -> Passed:
    """One attempt from its first read to its end. `body`: the provider answers with JSON."""
    reader = (
        ChatBodyReader(choices=choices, body_bytes_max=LIMIT, stream=stream)
        if body
        else ChatStreamReader(choices=choices, event_bytes_max=LIMIT)
    )
    judge = Judge(
        HoldConfig(),
        streams=stream,
        held_bytes_max=LIMIT,
        choices=choices,
        make_filters=lambda: make_filters(["empty"], FilterContext(choices)),
    )
    framing = framing_for(start(stream=stream, usage=usage))
    written = b""
    steps = (reader.feed(piece) if piece else reader.eof() for piece in (*pieces, b""))
    for step in steps:
        frames, failure = judge.take(step.frames, 0.0)
        written += framing.release(frames)
        if failure is not None:
            return Passed(written, failure)
        if step.end is not None:
            return _ended(judge, framing, step.end, written)
    raise AssertionError("a reader says how its answer ended")


def _ended(judge: Judge, framing: Framing, end: HowEnded, written: bytes) -> Passed:
    frames, failure = judge.finish(end) if isinstance(end, Complete) else ([], end)
    if failure is not None:
        return Passed(written, failure)
    assert judge.facts is not None
    written += framing.release(frames)
    return Passed(written + framing.success(judge.facts), None)


def cut_at(data: bytes, size: int) -> Iterator[bytes]:
    """`data` in reads of `size` bytes."""
    return (data[at : at + size] for at in range(0, len(data), size))
