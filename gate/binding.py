"""Binding a body to a target: the same bytes with the model's name replaced, as slices that are written one after another."""

from __future__ import annotations

from collections.abc import Sequence

from gate.splice import Body, Member

__all__ = ["bind_segments"]


def bind_segments(
    segments: Sequence[Body], model_at: Member | None, value: bytes
) -> tuple[Sequence[bytes | memoryview], int]:
    """Slices of a body, in one part or several, with `value` (the provider's model) in its place, and their length in bytes. Nothing else changes, and nothing is copied.

    `model_at` counts over all the parts, and its value may lie in more than one; None where the body names no model.
    """
    if model_at is None:
        return [memoryview(segment) for segment in segments], sum(map(len, segments))
    slices: list[bytes | memoryview] = []
    offset = 0
    for segment in segments:
        view = memoryview(segment)
        first, last = model_at.value_start - offset, model_at.value_end - offset
        own = value if 0 <= first < len(view) else b""
        parts = (view[: max(first, 0)], own, view[max(last, 0) :])
        slices += (part for part in parts if part)
        offset += len(view)
    return slices, sum(len(piece) for piece in slices)
