"""The command says what it found, and how to see it again."""

from __future__ import annotations

from pathlib import Path

import pytest

from ops.chaos.command import run_chaos
from ops.chaos.scenarios import SCENARIOS


def test_one_case_tells_what_it_hit(capsys: pytest.CaptureFixture[str]) -> None:
    """With the place, the outcome and the caller's bytes."""
    assert run_chaos(["healthy"], cancel=["req:60"], raised=["port:3"]) == 0
    said = capsys.readouterr().out
    assert "--cancel req:60: t=" in said
    assert "ports that failed: provider.connect" in said
    assert "every invariant holds" in said
    assert run_chaos(["rebuilds"], cancel=["req:20"]) == 0


@pytest.mark.parametrize("ring", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_one_case_that_strikes_nothing_is_no_success(
    ring: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """It says so, and how far its run goes."""
    assert run_chaos(["healthy"], cancel=["req:999999"], ring=ring) == 1
    said = capsys.readouterr().out
    assert "--cancel req:999999 struck nothing: its run has " in said
    assert "every invariant holds" not in said


def test_a_line_of_the_corpus_that_strikes_nothing_fails_the_search(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """It guards nothing any more; the search itself found nothing."""
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("at-once --cancel req:5\nat-once --cancel req:9999  # moved\n")
    assert run_chaos(["at-once"], jobs=1, corpus=corpus, schedule="fifo", stop=True) == 1
    said = capsys.readouterr().out
    assert " 1 failures" in said
    assert "tidegate chaos at-once --cancel req:9999 " in said
    assert "inert --cancel req:9999 struck nothing" in said


@pytest.mark.slow
@pytest.mark.parametrize(("ring", "who"), [(2, "reset:50"), (3, "half:50")])
def test_one_case_of_another_ring_is_told_too(
    ring: int, who: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """By the same command."""
    assert run_chaos(["json"], cancel=[who], ring=ring) == 0
    said = capsys.readouterr().out
    assert "the caller: status " in said
    assert "every invariant holds" in said


@pytest.mark.slow
def test_a_search_is_a_table_with_its_figures(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """And the await sites, if they are asked for."""
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("# a remark\n\nhealthy --cancel req:5  # seen once\n")
    assert run_chaos(["left-early"], jobs=1, corpus=corpus, sites=True) == 0
    said = capsys.readouterr().out
    assert "left-early" in said
    assert "corpus.txt" in said
    assert " 0 failures" in said
    assert "await sites" in said


@pytest.mark.slow
def test_a_search_of_everything_that_reaches_too_few_sites_fails(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here there are few scenarios. Of one that is named nobody expects all."""
    few = {"left-early": SCENARIOS["left-early"]}
    monkeypatch.setattr("ops.chaos.command.SCENARIOS", few)
    monkeypatch.setattr("ops.chaos.rebuilds.CROWDS", {})
    assert run_chaos([], jobs=1, ring=1, schedule="fifo", sites=True) == 1
    assert "too few: " in capsys.readouterr().out
    assert run_chaos([], jobs=1, ring=1, schedule="fifo") == 0
    assert run_chaos(["left-early"], jobs=1, schedule="fifo", sites=True) == 0
    assert "too few: " not in capsys.readouterr().out


@pytest.mark.slow
def test_under_a_schedule_that_is_named_nothing_is_left_out(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The quick search tries a third."""
    points = []
    for schedule in (None, "fifo"):
        assert run_chaos(["left-early"], schedule=schedule, jobs=1) == 0
        points.append(int(capsys.readouterr().out.partition(" points (")[0].split()[-1]))
    assert points[0] < points[1] < 4 * points[0]


@pytest.mark.slow
@pytest.mark.no_cover
def test_a_search_of_a_ring_is_a_table_too(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Cases of every ring may stand in a corpus, and run first."""
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("json --ring 3 --cancel reset:50\njson --ring 2 --cancel reset:50\n")
    assert run_chaos(["json"], jobs=1, corpus=corpus, ring=3) == 0
    said = capsys.readouterr().out
    assert "corpus.txt" in said
    assert "35 points" in said
    assert " 0 failures" in said


@pytest.mark.parametrize(
    ("scenarios", "options", "reason"),
    [
        (["nothing"], {}, "no scenario 'nothing'"),
        (["healthy"], {"schedule": "lifo"}, "'lifo' is none of"),
        (["healthy"], {"cancel": ["req"]}, "'req' is not WHO:K"),
        ([], {"cancel": ["req:1"]}, "a fault needs one scenario"),
        ([], {"level": "loud"}, "no search 'loud'"),
        (["healthy"], {"ring": 4}, "no ring '4'"),
        ([], {"ring": 0}, "no ring '0'"),
        (["healthy"], {"ring": -1, "cancel": ["req:1"]}, "no ring '-1'"),
        (["healthy"], {"jobs": -1}, "--jobs -1: from 1 to 256 processes"),
        (["healthy"], {"jobs": 257}, "--jobs 257: from 1 to 256 processes"),
        (["healthy"], {"cancel": ["req:" + "9" * 5_000]}, "is not WHO:K"),
        (["healthy"], {"cancel": ["req:5", "req:5"]}, "the same fault twice"),
        (["healthy"], {"ring": 2, "sites": True}, "await sites are looked at in ring 1"),
        (["healthy"], {"cancel": ["req:5"], "sites": True}, "of a search, not of one case"),
        (["healthy"], {"raised": ["port:5"], "corpus": Path("x")}, "of a search, not of one case"),
        (["rebuilds"], {"cancel": ["drain:1"]}, "rebuilds has no caller"),
        (["judged"], {"ring": 3}, "no scenario 'judged' in ring 3"),
        (["healthy"], {"cancel": ["reset:1"]}, "ring 1 has no connections"),
        ([], {"corpus": Path("/nowhere/corpus.txt")}, "No such file"),
    ],
)
def test_bad_usage_is_told_from_a_broken_invariant(
    scenarios: list[str],
    options: dict[str, object],
    reason: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """By the exit code, and with a reason."""
    assert run_chaos(scenarios, **options) == 2  # type: ignore[arg-type]
    assert reason in capsys.readouterr().err
