"""The planted faults still fit the program; that they are found is what `make chaos-mutants` shows, and one of them here."""

from __future__ import annotations

import ast
from dataclasses import replace

import pytest

from tests.chaos.mutants import MUTANTS, Mutant
from tests.chaos.mutants_edges import EDGES
from tests.chaos.mutate import ROOT, Fate, Hunt, hunt, main, patched, share_killed, summary


@pytest.mark.parametrize("mutant", [*MUTANTS, *EDGES], ids=lambda mutant: mutant.name)
def test_a_patch_fits_one_place_and_is_still_python(mutant: Mutant) -> None:
    """A program that has moved on is noticed here, not in an hour's run."""
    for text in patched(mutant, ROOT).values():
        ast.parse(text)


BOUNDS = {"actors": (MUTANTS, 5), "edges": (EDGES, 4), "both": ((*MUTANTS, *EDGES), 6)}
"""Of so many one may be masked. At the edges guards come in twos, by design: a connection is closed by whoever leaves it and by whoever reads from it next, the server cuts what its application has not ended, and
a connection that was lost is made good for; so one hides more of what the other lacks. With more than a quarter, a list would tell of guards and not of faults. The bound of both together has room for one more."""


def test_there_are_enough_and_each_has_its_own_name() -> None:
    """No name stands for two."""
    assert len({each.name for each in (*MUTANTS, *EDGES)}) == len(MUTANTS) + len(EDGES)
    assert len(MUTANTS) >= 40


@pytest.mark.parametrize("name", BOUNDS)
def test_few_are_masked(name: str) -> None:
    """In neither list is a mask the easy way out."""
    mutants, one_of = BOUNDS[name]
    masked = sum(bool(each.masked) for each in mutants)
    assert masked <= len(mutants) // one_of


@pytest.mark.slow
def test_a_planted_fault_is_found_by_the_command() -> None:
    """In a copy of the program, which is what ran; at once, by the scenario that is near it."""
    hunted = hunt(_named("ending-not-discarded"), everywhere=False)
    assert "I1 still held: 1 open exchanges" in hunted.found
    assert hunted.fate is Fate.FIRST


@pytest.mark.slow
def test_a_change_that_breaks_nothing_survives() -> None:
    """As one would that no scenario near it shows."""
    mutant = _named("ending-not-discarded")
    [(file, old, _)] = mutant.edits
    harmless = replace(mutant, edits=((file, old, old + "\n"),), near=("at-once",))
    assert hunt(harmless, everywhere=False) == Hunt(Fate.SURVIVED)


@pytest.mark.slow
def test_a_search_without_end_is_no_kill(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is told by its own word: that it took too long may be the machine's doing."""
    monkeypatch.setattr("tests.chaos.mutate.SECONDS_MAX", 0.05)
    assert hunt(_named("ending-not-discarded")) == Hunt(Fate.TIMED_OUT)


def test_the_summary_tells_first_kills_and_time_outs_apart() -> None:
    """And by name what was not as the lists say."""
    one, two, three = (each for each in MUTANTS[:4] if not each.masked)
    masked = next(each for each in MUTANTS if each.masked)
    fates = zip((one, two, three, masked), (Fate.FIRST, Fate.LATER, Fate.TIMED_OUT), strict=False)
    hunts = {mutant: Hunt(fate) for mutant, fate in fates} | {masked: Hunt(Fate.SURVIVED)}
    said = summary(hunts)
    assert (
        "2 of 4 killed, 1 of them in the first round (near, fifo); 1 timed out, 1 survived" in said
    )
    assert "of 3 that no guard masks 67% were killed; 1 are masked" in said
    assert f"{three.name}: TIMED OUT, and nobody knows why" in said
    assert masked.name not in said
    assert f"{masked.name}: killed, though" in summary({masked: Hunt(Fate.LATER)})
    assert share_killed(hunts) == pytest.approx(2 / 3)
    assert share_killed({masked: Hunt(Fate.SURVIVED)}) == 1.0


def test_a_name_that_there_is_not_is_bad_usage(capsys: pytest.CaptureFixture[str]) -> None:
    """Not a list of none."""
    assert main(["no-such-fault"]) == 2
    assert "no such mutant: no-such-fault" in capsys.readouterr().err


def _named(name: str) -> Mutant:
    return next(each for each in MUTANTS if each.name == name)
