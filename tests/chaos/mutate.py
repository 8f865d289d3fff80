"""Plants each fault in a copy of the program and lets the explorer look for it: `python -m tests.chaos.mutate [NAME...]`.

A mutant is killed when `tidegate chaos` ends with 1; in the first round where the scenarios named as near to it show it under the plain schedule. One whose search has to be ended for want of time is neither killed, since no invariant
has told of it, nor has it survived. One that survives has to be listed with the guard that masks it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import Enum
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


class Fate(Enum):
    """What became of a mutant."""

    FIRST = "killed in round 1"  # near it, plain schedule
    LATER = "killed later"  # near it in reverse, or anywhere
    TIMED_OUT = "TIMED OUT"
    SURVIVED = "SURVIVED"


KILLED: Final = (Fate.FIRST, Fate.LATER)


@dataclass(frozen=True, slots=True)
class Hunt:
    """`found`: the first failing case as the command prints it, with what it breaks; empty where there is none."""

    fate: Fate
    found: str = ""


def hunt(mutant: Mutant, *, everywhere: bool = True) -> Hunt:
    """Round by round, until one tells of it or does not end."""
    rounds = [("fifo", mutant.near), ("reverse", mutant.near)]
    rounds += [("fifo", ())] if everywhere else []
    with tempfile.TemporaryDirectory() as name:
        plant(mutant, Path(name))
        for number, (schedule, scenarios) in enumerate(rounds):
            try:
                found = _chaos(Path(name), schedule, scenarios, mutant.ring)
            except subprocess.TimeoutExpired:
                return Hunt(Fate.TIMED_OUT)
            if found:
                return Hunt(Fate.LATER if number else Fate.FIRST, found)
    return Hunt(Fate.SURVIVED)


def _chaos(home: Path, schedule: str, scenarios: Sequence[str], ring: int) -> str:
    options = ["--first", "--jobs", "1", "--schedule", schedule, "--ring", str(ring)]
    command = [sys.executable, "-m", "ops", "chaos", *options, *scenarios]
    environment = {**os.environ, "PYTHONPATH": str(home), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(  # noqa: S603 - our own command on our own copy
        command,
        check=False,
        cwd=home,
        env=environment,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
    )
    if done.returncode == 0:
        return ""
    lines = done.stdout.splitlines()
    at = next((at for at, line in enumerate(lines) if line.startswith("tidegate chaos")), None)
    if done.returncode != 1 or at is None:
        raise RuntimeError(done.stderr[-2_000:])
    case = lines[at].removeprefix("tidegate chaos ").partition("#")[0].strip()
    return f"{case}: {lines[at + 1].strip()}"


def _timed(mutant: Mutant) -> tuple[Hunt, float]:
    began = monotonic()
    return hunt(mutant), monotonic() - began


def share_killed(hunts: Mapping[Mutant, Hunt]) -> float:
    """Of those that no guard masks; a time-out is no kill. All, where there are none."""
    counted = [each.fate for mutant, each in hunts.items() if not mutant.masked]
    return sum(fate in KILLED for fate in counted) / len(counted) if counted else 1.0


def summary(hunts: Mapping[Mutant, Hunt]) -> str:
    """The closing lines: figures, and by name what was not as it should be."""
    fates = Counter(each.fate for each in hunts.values())
    unmasked = sum(not mutant.masked for mutant in hunts)
    lines = [
        f"{sum(fates[each] for each in KILLED)} of {len(hunts)} killed, {fates[Fate.FIRST]} of them in the first round (near, fifo); {fates[Fate.TIMED_OUT]} timed out, {fates[Fate.SURVIVED]} survived",
        f"of {unmasked} that no guard masks {share_killed(hunts):.0%} were killed; {len(hunts) - unmasked} are masked",
    ]
    for mutant, each in hunts.items():
        if each.fate not in KILLED and not mutant.masked:
            lines.append(f"    {mutant.name}: {each.fate.value}, and nobody knows why")
        elif each.fate in KILLED and mutant.masked:
            lines.append(f"    {mutant.name}: killed, though it is listed as masked")
    return "\n".join(lines)


def main(names: Sequence[str]) -> int:
    """Hunts all, or those named; the exit code: 1 where fewer of those that no guard masks are killed than have to be, 2 for a name that there is not."""
    every = {each.name: each for each in (*MUTANTS, *EDGES)}
    unknown = [name for name in names if name not in every]
    if unknown:
        print(f"no such mutant: {', '.join(unknown)}", file=sys.stderr)
        return 2
    chosen = [each for each in every.values() if not names or each.name in names]
    hunts: dict[Mutant, Hunt] = {}
    with ThreadPoolExecutor(os.cpu_count()) as hunters:
        for mutant, (each, seconds) in zip(chosen, hunters.map(_timed, chosen), strict=True):
            hunts[mutant] = each
            what = each.found[:140] or mutant.masked or "and nobody knows why"
            print(f"{each.fate.value:<17} {mutant.name}: {what} ({seconds:.0f} s)", flush=True)
    print(summary(hunts))
    return 0 if share_killed(hunts) >= SHARE_MIN else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
