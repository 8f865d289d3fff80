"""Who is speaking, and to whom: the name of the running actor, and the one synchronous probe that observations go to."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

from gate.observe import Observation, Probe

__all__ = ["ACTOR", "Probe", "acting", "silent"]

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


def silent(observation: Observation) -> None:
    """A probe that drops everything."""
