"""The command says what it found, and how to see it again."""

from __future__ import annotations

from pathlib import Path

import pytest

from ops.chaos.command import read_corpus, run_chaos


def test_one_case_tells_what_it_hit(capsys: pytest.CaptureFixture[str]) -> None:
    """With the place, the outcome and the caller's bytes."""
    assert run_chaos(["healthy"], cancel=["req:20"], raised=["port:3"]) == 0
    said = capsys.readouterr().out
    assert "--cancel req:20: t=" in said
    assert "ports that failed:" in said
    assert "every invariant holds" in said
    assert run_chaos(["rebuilds"], cancel=["req:20"]) == 0


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


def test_a_corpus_names_scenarios_that_there_are(tmp_path: Path) -> None:
    """A renamed one is not passed over."""
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("gone --cancel req:5\n")
    with pytest.raises(ValueError, match="no scenario 'gone'"):
        read_corpus(corpus)
