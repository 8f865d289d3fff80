"""What a provider is told when its answer did not fit: the notes of a violation, and the one message that asks for the whole answer again.

Notes are raw: they quote the answer. They go from the filter to the recovery coordinator and nowhere else; what they show of themselves is lengths. The answer is quoted as
text and never replayed as `tool_calls`, which servers refuse or silently change where it is malformed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from gate.loose_json import paired
from gate.plan import SchemaRepair
from gate.rebuild import primary_member
from gate.schema import SchemaError

__all__ = ["FORMAT", "RepairNote", "excerpt_of", "reason_of", "repair_item", "repair_key"]

FORMAT: Final = "format"  # schema ref of the request's response format
EXCERPT_BYTES_MAX: Final = 4_096
# Of the whole message; the first note always fits, and what comes after it is counted where it does not.
MESSAGE_CHARS_MAX: Final = 24_576
_BACKTICKS: Final = re.compile("`+")


class RepairNote(msgspec.Struct, frozen=True):
    """One thing that did not fit. `schema_ref`: `tool.<n>` (n: its place in the request's `tools`) or `format`; `tool`: its name, where it is declared."""

    schema_ref: str
    tool: str | None
    errors: tuple[SchemaError, ...]
    excerpt: str

    def __repr__(self) -> str:
        return f"RepairNote({self.schema_ref!r}, {len(self.errors)} errors, {len(self.excerpt)} characters)"


def excerpt_of(text: str) -> str:
    """The beginning of an answer, cut at a code point; a half surrogate becomes U+FFFD."""
    return paired(text[:EXCERPT_BYTES_MAX]).encode()[:EXCERPT_BYTES_MAX].decode(errors="ignore")


def reason_of(tool: str | None, errors: Sequence[SchemaError]) -> str:
    """What a caller may be told of it: the tool that was declared, the rule of its schema that was not kept, and the type that this asks for. Nothing of the answer."""
    parts = [f"tool {tool}"] if tool else []
    if errors and errors[0].rule:
        parts.append(errors[0].rule)
        if errors[0].expected:
            parts.append(f"expected {errors[0].expected}")
    return "".join(each if each.isprintable() else "?" for each in ", ".join(parts))


def repair_key(notes: Sequence[RepairNote], code: str) -> SchemaRepair:
    """Under which the patch of a violation with these notes is stored."""
    return SchemaRepair(notes[0].schema_ref, code)


def repair_item(notes: Sequence[RepairNote], *, endpoint: str) -> bytes:
    """JSON of the user message that is put behind the caller's own. Raises `EndpointUnsupported`."""
    text = paired(_told(notes))
    if primary_member(endpoint) == "messages":
        return msgspec.json.encode({"role": "user", "content": text})
    part = {"type": "input_text", "text": text}
    return msgspec.json.encode({"type": "message", "role": "user", "content": [part]})


def _told(notes: Sequence[RepairNote]) -> str:
    parts = [_about(notes[0])]
    size = len(parts[0])
    for note in notes[1:]:
        part = _about(note)
        size += len(part)
        if size > MESSAGE_CHARS_MAX:
            break
        parts.append(part)
    left = len(notes) - len(parts)
    if left:
        parts.append(f"There are {left} more problems of this kind.")
    parts.append(_wish(notes))
    return "\n\n".join(parts)


def _about(note: RepairNote) -> str:
    what = _subject(note)
    fence = "`" * max(3, 1 + max(map(len, _BACKTICKS.findall(note.excerpt)), default=0))
    lines = [f"{what} can't be used. What is wrong with {_pronoun(note)}:", *_errors(note)]
    lines += ["", "This is what you gave, or its beginning:", fence, note.excerpt, fence]
    return "\n".join(lines)


def _subject(note: RepairNote) -> str:
    if note.schema_ref == FORMAT:
        return "Your previous answer"
    name = "" if note.tool is None else f" of the tool {_quoted(note.tool)}"
    return f"Your previous call{name}"


def _pronoun(note: RepairNote) -> str:
    return "it" if note.schema_ref == FORMAT else "its arguments"


def _errors(note: RepairNote) -> Iterator[str]:
    for error in note.errors:
        place = f"at {_quoted(error.pointer)}" if error.pointer else "as a whole"
        yield f"- {place} ({error.keyword}): {' '.join(error.message.split())}"


def _wish(notes: Sequence[RepairNote]) -> str:
    if any(note.schema_ref == FORMAT for note in notes):
        return (
            "Give the whole answer again, corrected: one JSON value that fits the requested format,"
            " without any text or code fence around it."
        )
    return (
        "Give the whole answer again, corrected: call the tool with arguments that are one JSON object"
        " and fit its parameters."
    )


def _quoted(text: str) -> str:
    return msgspec.json.encode(paired(text)).decode()
