"""Binding a body to a target: the same bytes with the model's name replaced, and its usage asked for where it is to be, as slices that are written one after another."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

from gate.splice import Body, Member, members_of

__all__ = ["Edit", "asking_usage", "bind_segments"]

Edit: TypeAlias = tuple[int, int, bytes]
"""From where to where the bytes of a body give way to others; it inserts where the two are the same."""

_ASKED = b'"include_usage":true'


def bind_segments(
    segments: Sequence[Body], edits: Sequence[Edit]
) -> tuple[Sequence[bytes | memoryview], int]:
    """Slices of a body, in one part or several, with these edits done, and their length in bytes. Nothing else changes, and nothing is copied.

    The edits count over all the parts, and what one replaces may lie in more than one; none touches another, and none stands behind the last byte.
    """
    in_order = sorted(edits)
    slices: list[bytes | memoryview] = []
    offset = 0
    for segment in segments:
        slices += filter(len, _bound(memoryview(segment), offset, in_order))
        offset += len(segment)
    return slices, sum(map(len, slices))


def _bound(view: memoryview, offset: int, edits: Sequence[Edit]) -> Iterator[bytes | memoryview]:
    """One part, which begins at `offset`."""
    position = 0
    for start, end, value in edits:
        first, last = start - offset, end - offset
        if last < 0 or first >= len(view):
            continue
        if first >= 0:
            yield view[position:first]
            yield value
        position = max(position, last)
    yield view[position:]


def asking_usage(
    options: bytes, options_at: Member | None, model_at: Member | None
) -> Sequence[Edit]:
    """The edits that have a provider report usage in a stream, in a body whose `stream_options` and `model` stand there; `options` are their bytes, empty where the body has none.

    What else the caller's own options say stays as it is. None where the body names no model: then nobody knows a place for them.
    """
    if options_at is None:
        if model_at is None:
            return ()
        at = model_at.key_start
        return ((at, at, b'"stream_options":{%b},' % _ASKED),)
    start, end = options_at.value_start, options_at.value_end
    if not options.startswith(b"{"):
        return ((start, end, b"{%b}" % _ASKED),)
    members = members_of(options)
    said = [member for member in members if member.key == "include_usage"]
    if said:
        return [(start + member.value_start, start + member.value_end, b"true") for member in said]
    comma = b"," if members else b""
    return ((start + 1, start + 1, _ASKED + comma),)
