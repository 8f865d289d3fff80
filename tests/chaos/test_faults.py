"""Every row of the fault catalogue is a script, or says where it is looked at."""

from __future__ import annotations

from ops.chaos.faults import CATALOGUE, ELSEWHERE, scenarios, script_named

ROWS = 32


def test_no_row_is_forgotten_or_named_twice() -> None:
    """Scripts and places together are the whole table."""
    scripted = {row.number for row in CATALOGUE}
    assert scripted | set(ELSEWHERE) == set(range(1, ROWS + 1))
    assert not scripted & set(ELSEWHERE)
    assert len({row.name for row in CATALOGUE}) == len(CATALOGUE) == len(scenarios())


def test_the_provider_plays_a_row_by_its_name() -> None:
    """The fault first, and then an answer that is well."""
    script = script_named("stall")
    assert script is not None
    fault, well = script.attempts
    assert fault != well
    assert script_named("no-such-fault") is None
