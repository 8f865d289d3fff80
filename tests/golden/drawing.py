"""One exchange as a page of text: what the caller asked, what each provider was asked and said, and what the caller got, byte for byte, with the times.

A line of a body stands behind `| `; one that has no line end is followed by `\\`; bytes that are no text are in hexadecimal, behind `% `. `bytes_of` reads them back.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from gate.observe import Outcome
from tests.doubles import Answer, Asked, Read, RecordingCaller

GETS: Final = "-- the caller gets"
NO_LINE_END: Final = "\\"


def lines_of(data: bytes) -> Iterator[str]:
    """A body, or a part of one."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = "\0"
    if any(not each.isprintable() and each != "\n" for each in text):
        yield f"% {data.hex(' ')}"
        return
    *lines, last = text.split("\n")
    yield from (f"| {line}".rstrip() if not line else f"| {line}" for line in lines)
    if last:
        yield f"| {last}"
        yield NO_LINE_END


def bytes_of(lines: Iterable[str]) -> bytes:
    """What `lines_of` was given; lines of other kinds are passed over."""
    data = b""
    for line in lines:
        if line.startswith("% "):
            data += bytes.fromhex(line[2:])
        elif line.startswith("|"):
            data += line[2:].encode() + b"\n"
        elif line == NO_LINE_END:
            data = data.removesuffix(b"\n")
    return data


def asked_of(asked: Asked, name: str) -> Iterator[str]:
    """What a provider was asked."""
    yield f"-- {name} is asked, at {asked.asked_at:g} s"
    yield f"{asked.method} {asked.path}"
    yield from lines_of(asked.body)


def answer_of(answer: Answer, name: str) -> Iterator[str]:
    """What a provider says."""
    yield f"-- {name} says"
    if answer.fault is not None:
        yield f"({answer.fault.value})"
        return
    kind = dict(answer.headers).get(b"content-type", b"").decode()
    yield f"{answer.status} {kind}"
    for read in answer.reads:
        yield from _read(read)


def _read(read: Read) -> Iterator[str]:
    if read.after == float("inf"):
        yield "(silence)"
        return
    if read.after:
        yield f"after {read.after:g} s"
    if read.fault is not None:
        yield f"({read.fault.value})"
    else:
        yield from lines_of(read.data)


def got_of(caller: RecordingCaller) -> Iterator[str]:
    """What the caller got."""
    yield GETS
    yield str(caller.status)
    for name, value in caller.headers.items():
        yield f"{name.decode()}: {value.decode()}"
    for at, data in caller.writes:
        if data:
            yield f"at {at:g} s"
            yield from lines_of(data)
    yield f"(ends, at {caller.ended_at:g} s)" if caller.ended else "(is cut off)"


def told_of(outcome: Outcome) -> str:
    """How it ended."""
    attempts = f"{outcome.attempts} attempt{'' if outcome.attempts == 1 else 's'}"
    parts = [outcome.kind.value, outcome.code, attempts, outcome.framing, outcome.mode]
    return "-- " + ", ".join(filter(None, parts))


def received(page: Sequence[str]) -> bytes:
    """Of a page, every byte of the body that the caller got."""
    return bytes_of(page[page.index(GETS) :])
