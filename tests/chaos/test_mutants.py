"""The planted faults still fit the program; that they are found is what `make chaos-mutants` shows, and one of them here."""

from __future__ import annotations

import ast

import pytest

from tests.chaos.mutants import MUTANTS, Mutant
from tests.chaos.mutants_edges import EDGES
from tests.chaos.mutate import ROOT, hunt, patched


@pytest.mark.parametrize("mutant", [*MUTANTS, *EDGES], ids=lambda mutant: mutant.name)
def test_a_patch_fits_one_place_and_is_still_python(mutant: Mutant) -> None:
    """A program that has moved on is noticed here, not in an hour's run."""
    for text in patched(mutant, ROOT).values():
        ast.parse(text)


def test_there_are_enough_and_each_has_its_own_name() -> None:
    """Those that are masked are few, and say by what."""
    assert len({each.name for each in (*MUTANTS, *EDGES)}) == len(MUTANTS) + len(EDGES)
    assert len(MUTANTS) >= 40
    assert sum(bool(each.masked) for each in MUTANTS) <= len(MUTANTS) // 5


@pytest.mark.slow
def test_a_planted_fault_is_found_by_the_command() -> None:
    """In a copy of the program, which is what ran."""
    mutant = next(each for each in MUTANTS if each.name == "ending-not-discarded")
    assert "I1 still held: 1 open exchanges" in hunt(mutant, everywhere=False)
