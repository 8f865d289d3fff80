"""The pure half of an exchange without its actors: a provider's bytes -> reader -> judge -> framing -> the caller's bytes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from gate.config import FilterConfig, HoldConfig
from gate.endpoints import CHAT, Endpoint, Expected, endpoint_of, framing_for
from gate.events import Complete, HowEnded, Shape, Start, Tunnel
from gate.failure import Failure
from gate.filters.builtin import make_filters
from gate.filters.contract import FilterContext
from gate.framing import Framing
from gate.judging import Judge, Remark
from gate.mending_format import format_mender
from gate.model_echo import ModelEcho
from gate.reader import AnswerReader
from gate.repair import RepairNote
from gate.tunnel import tunnel_reader

START_ID: Final = "chatcmpl-1"
LIMIT: Final = 1 << 24
FILTERS: Final = ("empty", "tool_calls", "structured_output")


@dataclass(frozen=True, slots=True)
class Passed:
    """What the caller got: bytes, and the failure that ended the attempt, if one did; which filter said it, with which notes, and what others have remarked."""

    body: bytes
    failure: Failure | None
    judged_by: str = ""
    notes: tuple[RepairNote, ...] = ()
    remarks: frozenset[Remark] = frozenset()


def start(*, stream: bool = True, usage: bool = True, endpoint: Endpoint = CHAT) -> Start:
    """The start of a response for a caller that asked for `alias`."""
    return Start(1, START_ID, 7, Shape("alias", stream, usage, endpoint.path))


def run(
    pieces: Iterable[bytes],
    *,
    stream: bool = True,
    choices: int = 1,
    usage: bool = True,
    body: bool = False,
    context: FilterContext | None = None,
    filters: Sequence[str] = FILTERS,
    tables: Mapping[str, FilterConfig] | None = None,
    hold: HoldConfig | None = None,
    think_tags: bool = False,
    reasoning_field: str = "reasoning_content",
    endpoint: Endpoint = CHAT,
) -> Passed:
    """One attempt from its first read to its end. `body`: the provider answers with JSON; `context`: what the request says, where it is known; `filters` as in a route's list."""
    known = context or FilterContext(choices)
    expected = Expected(choices, stream, LIMIT, LIMIT)
    reader = endpoint.body_reader(expected) if body else endpoint.stream_reader(expected)
    judge = Judge(
        hold or HoldConfig(),
        streams=stream,
        held_bytes_max=LIMIT,
        choices=choices,
        reasoning_field=reasoning_field,
        ceiling=known.tools.ceiling if known.tools is not None else None,
        think_tags=think_tags,
        format_mender=format_mender(filters, known, reasoning_field),
        endpoint=endpoint,
        make_filters=lambda: make_filters(filters, known, tables or {}),
    )
    framing = framing_for(start(stream=stream, usage=usage, endpoint=endpoint))
    return _through(reader, judge, framing, pieces)


def relay(
    pieces: Iterable[bytes],
    *,
    endpoint: str = CHAT.path,
    content_type: bytes = b"text/event-stream",
    stream: bool = True,
    choices: int = 1,
    echo: ModelEcho | None = None,
    context: FilterContext | None = None,
    filters: Sequence[str] = FILTERS,
    tables: Mapping[str, FilterConfig] | None = None,
    hold: HoldConfig | None = None,
    opaque: bool = False,
    think_tags: bool = False,
) -> Passed:
    """The same through a tunnel: what the caller gets are the provider's bytes."""
    known = context or FilterContext(choices)
    supervised = endpoint_of(endpoint)
    reader = tunnel_reader(
        endpoint,
        content_type,
        echo=echo,
        choices=choices,
        event_bytes_max=LIMIT,
        body_bytes_max=LIMIT,
        stream=stream,
    )
    assert reader is not None
    judge = Judge(
        hold or HoldConfig(),
        streams=stream,
        held_bytes_max=LIMIT,
        choices=choices,
        ceiling=known.tools.ceiling if known.tools is not None else None,
        opaque=opaque,
        think_tags=think_tags,
        format_mender=None if opaque else format_mender(filters, known, "reasoning_content"),
        endpoint=supervised,
        make_filters=lambda: [] if opaque else make_filters(filters, known, tables or {}),
    )
    judge.begin(tunnel=True)
    begun = start(stream=stream, endpoint=supervised)
    tunnel = Tunnel(200, ((b"content-type", content_type),))
    framing = framing_for(msgspec.structs.replace(begun, tunnel=tunnel))
    return _through(reader, judge, framing, pieces)


def _through(
    reader: AnswerReader, judge: Judge, framing: Framing, pieces: Iterable[bytes]
) -> Passed:
    written: list[bytes] = []
    steps = (reader.feed(piece) if piece else reader.eof() for piece in (*pieces, b""))
    for step in steps:
        frames, failure = judge.take(step.frames, 0.0)
        written.append(framing.release(frames))
        if failure is not None:
            return _passed(written, failure, judge)
        if step.end is not None:
            return _ended(judge, framing, step.end, written)
    raise AssertionError("a reader says how its answer ended")


def _ended(judge: Judge, framing: Framing, end: HowEnded, written: list[bytes]) -> Passed:
    frames, failure = judge.finish(end) if isinstance(end, Complete) else ([], end)
    if failure is not None:
        return _passed(written, failure, judge)
    assert judge.facts is not None
    written += [framing.release(frames), framing.success(judge.facts)]
    return _passed(written, None, judge)


def _passed(written: Sequence[bytes], failure: Failure | None, judge: Judge) -> Passed:
    return Passed(
        b"".join(written), failure, judge.judged_by, judge.notes, frozenset(judge.remarks)
    )


def cut_at(data: bytes, size: int) -> Iterator[bytes]:
    """`data` in reads of `size` bytes."""
    return (data[at : at + size] for at in range(0, len(data), size))
