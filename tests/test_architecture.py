"""The tables in ARCHITECTURE.md are those of the code."""

from __future__ import annotations

from pathlib import Path

from gate.commit import TRANSITIONS, Act
from gate.config import LIMIT_REASONS, LimitsConfig
from gate.recovery_table import TABLE, Row

PAGE = Path(__file__).parent.parent / "ARCHITECTURE.md"


def commit_table() -> str:
    """The commit boundary as a Markdown table."""
    lines = [
        "| state | " + " | ".join(act.value for act in Act) + " |",
        "|---" * (len(Act) + 1) + "|",
    ]
    for state, row in TRANSITIONS.items():
        cells = []
        for act in Act:
            outcome = row.get(act)
            cells.append(f"{outcome[1].value} → {outcome[0].value}" if outcome else "refused")
        lines.append(f"| {state.value} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def limits_table() -> str:
    """The table [limits] with the reason of each."""
    defaults = LimitsConfig()
    lines = ["| limit | default | why |", "|---|---|---|"]
    for path, reason in LIMIT_REASONS.items():
        name = path.removeprefix("limits.")
        lines.append(f"| `{name}` | {getattr(defaults, name):_} | {reason} |")
    return "\n".join(lines) + "\n"


def recovery_table() -> str:
    """What is tried after which failure; kinds with the same steps share a line."""
    rows: dict[Row, list[str]] = {}
    for kind, row in TABLE.items():
        rows.setdefault(row, []).append(f"`{kind.value}`")
    lines = ["| failure | nothing released | something released |", "|---|---|---|"]
    for row, kinds in rows.items():
        cells = [" → ".join(step.value for step in steps) or "-" for steps in row]
        lines.append(f"| {', '.join(kinds)} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def test_the_recovery_table_is_the_one_in_the_code() -> None:
    """Generated from gate/recovery_table.py, in its order."""
    assert recovery_table() in PAGE.read_text(), recovery_table()


def test_the_commit_table_is_the_one_in_the_code() -> None:
    """Generated from gate/commit.py; what is printed here is what has to stand there."""
    assert commit_table() in PAGE.read_text(), commit_table()


def test_the_limits_table_is_the_one_in_the_code() -> None:
    """Generated from gate/config.py, in its order."""
    assert limits_table() in PAGE.read_text(), limits_table()


def test_every_limit_has_its_reason() -> None:
    """A limit without a reason is not documented."""
    assert {f"limits.{name}" for name in LimitsConfig.__struct_fields__} == set(LIMIT_REASONS)
