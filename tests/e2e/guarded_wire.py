"""JSON as a provider of the guardrail's proof writes it: plain, or with every character of what it says as an escape."""

from __future__ import annotations

import json
from typing import Any, Final

SILENT: Final = frozenset(
    {"call_id", "finish_reason", "id", "item_id", "model", "name", "object", "reason", "role", "status", "type"}
)  # fmt: skip
"""Members whose texts nobody says."""


def written(value: Any, *, escaped: bool) -> bytes:
    """The value in UTF-8; half a character of a pair is written as it is."""
    if escaped:
        return _escaped(value).encode()
    return json.dumps(value, ensure_ascii=False).encode(errors="surrogatepass")


def _escaped(value: Any, name: str = "") -> str:
    match value:
        case dict():
            members = (f"{json.dumps(name)}:{_escaped(item, name)}" for name, item in value.items())
            return "{" + ",".join(members) + "}"
        case list():
            return "[" + ",".join(map(_escaped, value)) + "]"
        case str() if name not in SILENT:
            units = value.encode("utf-16-be", "surrogatepass")
            return '"' + "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2)) + '"'  # fmt: skip
        case _:
            return json.dumps(value)
