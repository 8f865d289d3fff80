"""Await sites are read from the source, and those that nothing struck are named."""

from __future__ import annotations

from pathlib import Path

import pytest

from ops.chaos.explore import Tally
from ops.chaos.sites import await_sites, report_sites


def test_every_kind_of_await_is_a_site(tmp_path: Path) -> None:
    """Each by its line."""
    (tmp_path / "actors").mkdir()
    lines = [
        "async def f(a):",
        "    await a",
        "    async with a:",
        "        pass",
        "    async for _ in a: pass",
    ]
    (tmp_path / "actors" / "x.py").write_text("\n".join(lines))
    assert list(await_sites(tmp_path)) == ["actors/x.py:2", "actors/x.py:3", "actors/x.py:5"]


def test_what_nothing_struck_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    """With its text, so that it can be judged without a search."""
    site, other = list(await_sites())[:2]
    tally = Tally(stood={site, other}, cancelled={site, other}, raised={site, "gate/x.py:1"})
    assert not report_sites(tally, judged=False)
    said = capsys.readouterr().out
    assert "hit by a cancel: 2 of 2" in said
    assert "hit by a raise: 1 of 2" in said
    assert f"{other}: " in said.partition("hit by a raise")[2]
    assert "too few" not in said


ALL = list(await_sites())
STOOD = -(-3 * len(ALL) // 4)
RAISED = -(-95 * STOOD // 100)


@pytest.mark.parametrize(
    ("stood", "cancelled", "raised", "said"),
    [
        (STOOD, STOOD, RAISED, ""),
        (STOOD, STOOD - 1, STOOD, "less than 100%"),
        (STOOD, STOOD, RAISED - 1, "less than 95%"),
        (STOOD - 1, STOOD - 1, STOOD - 1, "less than 75%"),
        (0, 0, 0, "less than 75%"),
    ],
)
def test_too_little_is_told(
    stood: int, cancelled: int, raised: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """All by a cancel, nearly all by a raise; and of nothing at all that would be easy."""
    tally = Tally(stood=set(ALL[:stood]), cancelled=set(ALL[:cancelled]), raised=set(ALL[:raised]))
    assert report_sites(tally, judged=True) == (not said)
    told = [each for each in capsys.readouterr().out.splitlines() if each.startswith("too few")]
    assert len(told) == bool(said)
    assert all(said in each for each in told)
