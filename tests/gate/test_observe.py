"""Observations and outcomes as values: stable tokens and numbers, nothing else."""

from __future__ import annotations

import msgspec
import pytest

from gate.budget import MemoryBudget
from gate.observe import Observation, Outcome, OutcomeKind, What
from gate.refs import is_stable_token


def test_an_observation_is_written_with_what_it_says_only() -> None:
    """A log line is as short as its facts."""
    plain = Observation(What.ATTEMPT_STARTED, "ex-1")
    assert msgspec.to_builtins(plain) == {"what": "attempt_started", "exchange": "ex-1"}
    ended = Observation(What.ATTEMPT_ENDED, "ex-1", attempt=2, code="stream_cut", seconds=1.5)
    assert msgspec.to_builtins(ended) == {
        "what": "attempt_ended",
        "exchange": "ex-1",
        "attempt": 2,
        "code": "stream_cut",
        "seconds": 1.5,
    }


def test_an_observation_can_be_read_back() -> None:
    """What was left out is what it was."""
    seen = Observation(What.GIVE_UP, "ex-1", code="time", status=502, count=3)
    assert msgspec.json.decode(msgspec.json.encode(seen), type=Observation) == seen


def test_an_observation_never_changes() -> None:
    """Several probes see the same one."""
    seen = Observation(What.ATTEMPT_STARTED, "ex-1")
    with pytest.raises(AttributeError):
        seen.code = "other"  # type: ignore[misc]


@pytest.mark.parametrize("member", [*What, *OutcomeKind], ids=lambda member: member.value)
def test_every_subject_is_a_stable_token(member: What | OutcomeKind) -> None:
    """They are labels of metrics."""
    assert is_stable_token(member.value)


def test_an_outcome_shows_no_more_than_codes_and_numbers() -> None:
    """Also in a log by way of its `repr`."""
    outcome = Outcome(
        OutcomeKind.ERROR, "stream_cut", 200, 2, 512, "chat_sse", "normalized", MemoryBudget("e", 1)
    )
    assert (outcome.kind, outcome.code, outcome.ledger.used) == (
        OutcomeKind.ERROR,
        "stream_cut",
        0,
    )
    assert "MemoryBudget(e, used=0, peak=0, max=1, open=0)" in repr(outcome)
