"""Binding a body to a target: the same bytes with the top-level `model` replaced, as slices that are written one after another."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from gate.splice import Member, replace_member

__all__ = ["bind_model"]


def bind_model(
    body: bytes, model_at: Member, model: str
) -> tuple[Sequence[bytes | memoryview], int]:
    """Slices of `body` for the provider's `model`, and their length in bytes. Nothing else changes, and nothing is copied."""
    slices = replace_member(body, model_at, msgspec.json.encode(model))
    return slices, sum(len(piece) for piece in slices)
