"""Plants each fault in a copy of the program and lets the explorer look for it: `python -m tests.chaos.mutate [NAME...]`.

A mutant is killed when `tidegate chaos` ends with 1. One that survives has to be listed with the guard that masks it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import monotonic
from typing import Final

from tests.chaos.mutants import MUTANTS, Mutant
from tests.chaos.mutants_edges import EDGES

ROOT: Final = Path(__file__).resolve().parent.parent.parent
PACKAGES: Final = ("gate", "actors", "transport", "ops")
SHARE_MIN: Final = 0.95  # of the faults that no guard masks have to be found
SECONDS_MAX: Final = 1_200  # of one mutant; a spin without a checkpoint has no other end


def patched(mutant: Mutant, root: Path) -> dict[str, str]:
    """The text of each file that the mutant changes. Raises AssertionError where a patch does not fit the program any more."""
    texts: dict[str, str] = {}
    for file, old, new in mutant.edits:
        text = texts.get(file) or (root / file).read_text()
        assert text.count(old) == 1, f"{mutant.name}: {text.count(old)} places in {file}"
        texts[file] = text.replace(old, new)
    return texts


def plant(mutant: Mutant, home: Path) -> None:
    """A copy of the program in `home`, with the fault in it."""
    for package in PACKAGES:
        shutil.copytree(
            ROOT / package, home / package, ignore=shutil.ignore_patterns("__pycache__")
        )
    for file, text in patched(mutant, ROOT).items():
        (home / file).write_text(text)


def hunt(mutant: Mutant, *, everywhere: bool = True) -> str:
    """The first failing case as the command prints it; empty where the mutant survives."""
    with tempfile.TemporaryDirectory() as name:
        plant(mutant, Path(name))
        ring = mutant.ring
        near = (_chaos(Path(name), order, mutant.near, ring) for order in ("fifo", "reverse"))
        found = next(filter(None, near), "")
        return found or (_chaos(Path(name), "fifo", (), ring) if everywhere else "")


def _chaos(home: Path, schedule: str, scenarios: Sequence[str], ring: int) -> str:
    options = ["--first", "--jobs", "1", "--schedule", schedule, "--ring", str(ring)]
    command = [sys.executable, "-m", "ops", "chaos", *options, *scenarios]
    environment = {**os.environ, "PYTHONPATH": str(home), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(  # noqa: S603 - our own command on our own copy
            command,
            check=False,
            cwd=home,
            env=environment,
            capture_output=True,
            text=True,
            timeout=SECONDS_MAX,
        )
    except subprocess.TimeoutExpired:
        return "it does not end"
    if done.returncode == 0:
        return ""
    lines = done.stdout.splitlines()
    at = next((at for at, line in enumerate(lines) if line.startswith("tidegate chaos")), None)
    if done.returncode != 1 or at is None:
        raise RuntimeError(done.stderr[-2_000:])
    case = lines[at].removeprefix("tidegate chaos ").partition("#")[0].strip()
    return f"{case}: {lines[at + 1].strip()}"


def _timed(mutant: Mutant) -> tuple[str, float]:
    began = monotonic()
    return hunt(mutant), monotonic() - began


def main(names: Sequence[str]) -> int:
    """Hunts all, or those named; the exit code: 1 where more of those that no guard masks survive than may."""
    chosen = [each for each in (*MUTANTS, *EDGES) if not names or each.name in names]
    killed: set[str] = set()
    with ThreadPoolExecutor(os.cpu_count()) as hunters:
        for mutant, (found, seconds) in zip(chosen, hunters.map(_timed, chosen), strict=True):
            if found:
                killed.add(mutant.name)
            word = "killed  " if found else "SURVIVED"
            what = found[:140] or mutant.masked or "and nobody knows why"
            print(f"{word} {mutant.name}: {what} ({seconds:.0f} s)", flush=True)
    counted = {each.name for each in chosen if not each.masked}
    share = len(killed & counted) / max(1, len(counted))
    print(
        f"{len(killed)} of {len(chosen)} killed; of {len(counted)} that no guard masks {share:.0%}"
    )
    return 0 if share >= SHARE_MIN else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
