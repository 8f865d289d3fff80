"""Usage objects: several reports of one attempt as one, and the attempts that contributed to one answer as one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from gate.loose_json import encoded, integer, tolerant_object

__all__ = ["Share", "completion_tokens", "joined_usage", "kept_shares", "merge_usage"]


# By the names of chat, and by those of Responses.
_PROMPT: Final = ("prompt_tokens", "input_tokens")
_COMPLETION: Final = ("completion_tokens", "output_tokens")


class Share(msgspec.Struct, frozen=True):
    """What one attempt contributed to an answer: the usage that it reported (a JSON object, or nothing) and its frames of text that were kept."""

    reported: bytes
    frames: int

    @property
    def completion_tokens(self) -> int:
        """As reported, else one for each frame of text."""
        return completion_tokens(self.reported) or self.frames

    @property
    def prompt_tokens(self) -> int:
        """As reported; 0: nothing was."""
        return _tokens(self.reported, _PROMPT)


def kept_shares(shares: Sequence[Share], frames: int) -> list[Share]:
    """What is left of the shares where only so many frames of text are kept in all; the last ones are given up first."""
    left = []
    for share in shares:
        kept = min(share.frames, frames)
        frames -= kept
        if kept:
            left.append(msgspec.structs.replace(share, frames=kept))
    return left


def completion_tokens(report: bytes) -> int:
    """As a usage object says; 0 where it says nothing."""
    return _tokens(report, _COMPLETION)


def merge_usage(reports: Sequence[bytes]) -> bytes:
    """One usage object of several: member by member the later value wins, nothing is added up; null says nothing."""
    merged: dict[str, Any] = {}
    for report in reports:
        value = tolerant_object(report)
        if value is not None:
            _merge(merged, value)
    return encoded(merged) if merged else b""


def joined_usage(earlier: Sequence[Share], last: bytes) -> bytes:
    """The usage of an answer that `earlier` attempts began and the one that reported `last` ended; nothing where that one reported nothing.

    The prompt is the caller's own: what the first attempt reported, else what the last one did less the answer that was part of its prompt. Details are
    left out, since nobody can say what they come to.
    """
    if not last:
        return b""
    end = Share(last, 0)
    spent = sum(share.completion_tokens for share in earlier)
    prompt = earlier[0].prompt_tokens or max(end.prompt_tokens - spent, 0)
    completion = spent + end.completion_tokens
    of_responses = _COMPLETION[1] in (tolerant_object(last) or {})
    names = (_PROMPT[of_responses], _COMPLETION[of_responses], "total_tokens")
    return msgspec.json.encode(
        dict(zip(names, (prompt, completion, prompt + completion), strict=True))
    )


def _tokens(report: bytes, names: Sequence[str]) -> int:
    """A number under the first of these names that is there."""
    value = tolerant_object(report) if report else None
    told = (integer((value or {}).get(name)) for name in names)
    return max(next(filter(None, told), 0), 0)


def _merge(into: dict[str, Any], value: dict[str, Any]) -> None:
    for name, item in value.items():
        if isinstance(item, dict) and isinstance(into.get(name), dict):
            _merge(into[name], item)
        elif item is not None or name not in into:
            into[name] = item
