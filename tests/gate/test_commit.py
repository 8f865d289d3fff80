"""The commit boundary: the whole table, and what no sequence of acts can make it do."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gate.commit import TRANSITIONS, Act, Commit, CommitBoundary, Effect

# One line per state: what each act leads to, and what the sink does; None is a refusal.
TABLE: Mapping[Commit, Mapping[Act, tuple[Commit, Effect] | None]] = {
    Commit.UNCOMMITTED: {
        Act.STAGE: (Commit.UNCOMMITTED, Effect.STAGE),
        Act.RELEASE: (Commit.STREAM_OPEN, Effect.START_AND_FRAMES),
        Act.PING: None,
        Act.EARLY_PING: (Commit.PINGED, Effect.START_AND_PING),
        Act.SUCCESS: (Commit.TERMINAL, Effect.WHOLE),
        Act.ERROR: (Commit.TERMINAL, Effect.ERROR_RESPONSE),
    },
    Commit.PINGED: {
        Act.STAGE: (Commit.PINGED, Effect.STAGE),
        Act.RELEASE: (Commit.STREAM_OPEN, Effect.FRAMES),
        Act.PING: (Commit.PINGED, Effect.PING),
        Act.EARLY_PING: (Commit.PINGED, Effect.PING),
        Act.SUCCESS: (Commit.TERMINAL, Effect.ENDING),
        Act.ERROR: (Commit.TERMINAL, Effect.ERROR_IN_STREAM),
    },
    Commit.STREAM_OPEN: {
        Act.STAGE: None,
        Act.RELEASE: (Commit.STREAM_OPEN, Effect.FRAMES),
        Act.PING: (Commit.STREAM_OPEN, Effect.PING),
        Act.EARLY_PING: (Commit.STREAM_OPEN, Effect.PING),
        Act.SUCCESS: (Commit.TERMINAL, Effect.ENDING),
        Act.ERROR: (Commit.TERMINAL, Effect.ERROR_IN_STREAM),
    },
    Commit.TERMINAL: dict.fromkeys(Act),
}
WAY_TO = {
    Commit.UNCOMMITTED: (),
    Commit.PINGED: (Act.EARLY_PING,),
    Commit.STREAM_OPEN: (Act.STAGE, Act.RELEASE),
    Commit.TERMINAL: (Act.ERROR,),
}
STARTS = {Effect.START_AND_FRAMES, Effect.START_AND_PING, Effect.WHOLE, Effect.ERROR_RESPONSE}
TERMINALS = {Effect.WHOLE, Effect.ENDING, Effect.ERROR_RESPONSE, Effect.ERROR_IN_STREAM}


def boundary_at(state: Commit) -> CommitBoundary:
    """A response that stands there."""
    boundary = CommitBoundary()
    for act in WAY_TO[state]:
        boundary.apply(act)
    assert boundary.state is state
    return boundary


@pytest.mark.parametrize("state", Commit)
@pytest.mark.parametrize("act", Act)
def test_each_cell_of_the_table(state: Commit, act: Act) -> None:
    """A refusal leaves the response where it was."""
    boundary = boundary_at(state)
    effect = boundary.apply(act)
    outcome = TABLE[state][act]
    assert (boundary.state, effect) == (outcome or (state, None))


def test_the_table_is_data_that_a_document_can_be_checked_against() -> None:
    """Every state has its line, and a refused act has no cell."""
    cells = {state: {act: to for act, to in row.items() if to} for state, row in TABLE.items()}
    assert cells == TRANSITIONS


def test_a_later_attempt_replaces_a_staged_start() -> None:
    """As often as it takes; nothing is written by it."""
    boundary = CommitBoundary()
    assert [boundary.apply(Act.STAGE) for _ in range(3)] == [Effect.STAGE] * 3


@given(st.lists(st.sampled_from(Act), max_size=12))
def test_a_response_starts_once_and_ends_once(acts: list[Act]) -> None:
    """Whatever is asked of it: no byte before the start, none after the terminal."""
    boundary = CommitBoundary()
    effects = [
        effect for act in acts if (effect := boundary.apply(act)) not in {None, Effect.STAGE}
    ]
    assert sum(effect in STARTS for effect in effects) == min(1, len(effects))
    assert all(effect in STARTS for effect in effects[:1])
    assert all(effect not in TERMINALS for effect in effects[:-1])


def test_a_boundary_says_where_it_stands() -> None:
    """For a log."""
    assert repr(boundary_at(Commit.STREAM_OPEN)) == "CommitBoundary(stream open)"
