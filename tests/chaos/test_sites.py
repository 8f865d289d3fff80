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
    report_sites(Tally(stood={site, other}, cancelled={site, other}, raised={site}))
    said = capsys.readouterr().out
    assert "hit by a cancel: 2 of 2" in said
    assert "hit by a raise: 1 of 2" in said
    assert f"{other}: " in said.partition("hit by a raise")[2]
