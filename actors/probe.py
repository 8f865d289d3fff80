"""Who is speaking: the name of the running actor."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

__all__ = ["ACTOR", "acting"]

ACTOR: Final[ContextVar[str]] = ContextVar("ACTOR", default="")
"""The actor that the running task is, inherited by the tasks that it starts."""


@contextmanager
def acting(name: str) -> Iterator[None]:
    """The first line of each actor."""
    token = ACTOR.set(name)
    try:
        yield
    finally:
        ACTOR.reset(token)
