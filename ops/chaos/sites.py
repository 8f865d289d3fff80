"""Coverage of await sites: the places in the actors at which a task can wait, by the source, and those that a fault has struck.

`await`, `async for` and `async with` are sites, by the line on which they stand. A line that waits only for another function of the actors is not one where a task stands: that
function's own line is.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from ops.chaos.explore import Tally

__all__ = ["await_sites", "report_sites"]

ROOT: Final = Path(__file__).resolve().parent.parent.parent
PACKAGE: Final = "actors"


def await_sites(root: Path = ROOT) -> dict[str, str]:
    """`actors/sink.py:61` to the line's text, for each place that waits."""
    found: dict[str, str] = {}
    for file in sorted((root / PACKAGE).glob("*.py")):
        text = file.read_text()
        lines = text.splitlines()
        for line in sorted(_lines(ast.parse(text))):
            found[f"{PACKAGE}/{file.name}:{line}"] = lines[line - 1].strip()
    return found


def _lines(tree: ast.AST) -> Iterator[int]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Await | ast.AsyncFor | ast.AsyncWith):
            yield node.lineno


def report_sites(tally: Tally) -> None:
    """Prints shares and names what was not hit."""
    sites = await_sites()
    for kind, hit in (("a cancel", tally.cancelled), ("a raise", tally.raised)):
        _report(kind, sites, {each for each in hit if each.startswith(f"{PACKAGE}/")}, tally.stood)


def _report(kind: str, sites: dict[str, str], hit: set[str], stood: set[str]) -> None:
    waits = {site for site in sites if site in stood}
    missed = sorted(waits - hit)
    print(f"\nhit by {kind}: {len(waits & hit)} of {len(waits)} await sites at which a task stood")
    for site in missed:
        print(f"    {site}: {sites[site]}")
    if kind == "a cancel":
        print(f"\nnobody ever stood at {len(sites) - len(waits)} of {len(sites)}:")
        for site in sorted(set(sites) - waits):
            print(f"    {site}: {sites[site]}")
