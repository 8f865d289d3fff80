"""Coverage of await sites: the places in the actors at which a task can wait, by the source, and those that a fault has struck.
A search of all scenarios has to strike all of them by a cancel and nearly all by a raise.

`await`, `async for` and `async with` are sites, by the line on which they stand. A line that waits only for another function of the actors is not one where a task stands: that
function's own line is.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

from ops.chaos.explore import Tally

__all__ = ["await_sites", "report_sites"]

ROOT: Final = Path(__file__).resolve().parent.parent.parent
PACKAGE: Final = "actors"
CANCELLED_MIN: Final = 1.0  # of the sites at which a task stood
RAISED_MIN: Final = (
    0.95  # likewise; at the end of a nursery that was cancelled nothing can be raised
)
STOOD_MIN: Final = (
    0.75  # of all sites: the others are passed through, since what they wait for is there
)


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


def report_sites(tally: Tally, *, judged: bool) -> bool:
    """Prints shares and names what was not hit; `judged`: also what is too little. Whether it is enough for a search of all scenarios."""
    sites = await_sites()
    waits = {site for site in sites if site in tally.stood}
    enough = []
    for kind, hit, least in (
        ("a cancel", tally.cancelled, CANCELLED_MIN),
        ("a raise", tally.raised, RAISED_MIN),
    ):
        print(
            f"\nhit by {kind}: {len(waits & hit)} of {len(waits)} await sites at which a task stood"
        )
        _name(sites, waits - hit)
        enough.append(_enough(len(waits & hit), len(waits), least, judged=judged))
    print(f"\nnobody ever stood at {len(sites) - len(waits)} of {len(sites)}:")
    _name(sites, set(sites) - waits)
    enough.append(_enough(len(waits), len(sites), STOOD_MIN, judged=judged))
    return all(enough)


def _name(sites: Mapping[str, str], missed: Iterable[str]) -> None:
    for site in sorted(missed):
        print(f"    {site}: {sites[site]}")


def _enough(hit: int, of: int, least: float, *, judged: bool) -> bool:
    enough = hit >= least * of
    if judged and not enough:
        print(f"too few: {hit} of {of}, which is less than {least:.0%}")
    return enough
