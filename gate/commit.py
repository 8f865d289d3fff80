"""The commit boundary: the one table that every caller-visible byte passes.

Rules of this file: all transitions live here; it knows no framing and no bytes. What the table does not allow is refused, which the sink
takes for a bug of ours, but for a refused staging: a second start never reaches the caller.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final

__all__ = ["TRANSITIONS", "Act", "Commit", "CommitBoundary", "Effect"]


class Commit(Enum):
    UNCOMMITTED = "uncommitted"
    PINGED = "pinged"
    STREAM_OPEN = "stream open"
    TERMINAL = "terminal"


class Act(Enum):
    STAGE = "stage response start"
    RELEASE = "release"
    PING = "ping"
    EARLY_PING = "ping that may commit"
    SUCCESS = "success terminal"
    ERROR = "error terminal"


class Effect(Enum):
    """What the sink does."""

    STAGE = "staged, replacing a former one"
    START_AND_FRAMES = "writes the start, then the frames"
    FRAMES = "writes the frames"
    PING = "writes a comment"
    START_AND_PING = "writes status and headers, then a comment"
    WHOLE = "writes start, answer and ending"
    ENDING = "writes the ending"
    ERROR_RESPONSE = "writes an error response with its own status"
    ERROR_IN_STREAM = "writes the framing's in-stream error"


Outcome = tuple[Commit, Effect]

TRANSITIONS: Final[Mapping[Commit, Mapping[Act, Outcome]]] = {
    Commit.UNCOMMITTED: {
        Act.STAGE: (Commit.UNCOMMITTED, Effect.STAGE),
        Act.RELEASE: (Commit.STREAM_OPEN, Effect.START_AND_FRAMES),
        Act.EARLY_PING: (Commit.PINGED, Effect.START_AND_PING),
        Act.SUCCESS: (Commit.TERMINAL, Effect.WHOLE),
        Act.ERROR: (Commit.TERMINAL, Effect.ERROR_RESPONSE),
    },
    # The status is out, and nothing of an answer: whose it will be is still open.
    Commit.PINGED: {
        Act.STAGE: (Commit.PINGED, Effect.STAGE),
        Act.RELEASE: (Commit.STREAM_OPEN, Effect.FRAMES),
        Act.PING: (Commit.PINGED, Effect.PING),
        Act.EARLY_PING: (Commit.PINGED, Effect.PING),
        Act.SUCCESS: (Commit.TERMINAL, Effect.ENDING),
        Act.ERROR: (Commit.TERMINAL, Effect.ERROR_IN_STREAM),
    },
    Commit.STREAM_OPEN: {
        Act.RELEASE: (Commit.STREAM_OPEN, Effect.FRAMES),
        Act.PING: (Commit.STREAM_OPEN, Effect.PING),
        Act.EARLY_PING: (Commit.STREAM_OPEN, Effect.PING),
        Act.SUCCESS: (Commit.TERMINAL, Effect.ENDING),
        Act.ERROR: (Commit.TERMINAL, Effect.ERROR_IN_STREAM),
    },
    Commit.TERMINAL: {},
}


class CommitBoundary:
    """Where one response stands."""

    def __init__(self) -> None:
        self.state = Commit.UNCOMMITTED

    def apply(self, act: Act) -> Effect | None:
        """Moves on and says what to do; None where the table refuses."""
        outcome = TRANSITIONS[self.state].get(act)
        if outcome is None:
            return None
        self.state, effect = outcome
        return effect

    def __repr__(self) -> str:
        return f"CommitBoundary({self.state.value})"
