"""The parts of a body that has been checked as JSON, by where they stand in it: members, elements, texts. What is large is looked through in bounded steps, and nothing is copied."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

from gate.errors import RequestRefused
from gate.large_json import DEEPEST, LargeScan
from gate.splice import MEMBERS_MAX, Body, JsonTooMany, Member, members_of, scan_elements
from gate.steps import WINDOW, Steps

__all__ = ["Parts", "Span"]

Span: TypeAlias = tuple[int, int]
"""From where to where a value goes, without the white space around it."""

SMALL_BYTES: Final = (
    8_192  # looked through in one go: some milliseconds where each byte opens or closes something
)
TURN_BYTES: Final = 16_384
VALUE_BYTES: Final = 512  # what a value costs beside its length takes as long as so many
WORD_BYTES_MAX: Final = 256  # of a name that something here knows


class Parts:
    """The parts of `body`. `param` names a value where it is refused: a path into the request. Each method raises `RequestRefused` (400) for a value of another type."""

    def __init__(self, body: Body) -> None:
        self.body = body
        self._looked = 0  # bytes looked through since the last turn

    def due(self) -> bool:
        """Whether others should have a turn now: asked between two values, of which each costs something."""
        self._looked += VALUE_BYTES
        if self._looked < TURN_BYTES:
            return False
        self._looked = 0
        return True

    def given(self, span: Span | None) -> bool:
        """Whether a value is there and says something: null does not."""
        return span is not None and self._first(span) != b"n"

    def members(self, span: Span, param: str) -> Steps[Mapping[str, Span]]:
        """The members of an object; of several with one name the last, as most parsers see it."""
        start, end = self._opened(span, b"{", param)
        if end - start <= SMALL_BYTES:
            self._looked += end - start
            found: Sequence[Member] = members_of(bytes(self.body[start:end]))
        else:
            scan = self._scan(start)
            found = yield from scan.members()
            start = 0
            if scan.refused is not None:  # it has too many
                raise RequestRefused(400, "invalid_value", param=param)
        return {each.key: (start + each.value_start, start + each.value_end) for each in found}

    def elements(self, span: Span, param: str) -> Steps[Sequence[Span]]:
        """The elements of an array."""
        start, end = self._opened(span, b"[", param)
        if end - start <= SMALL_BYTES:
            self._looked += end - start
            return scan_elements(self.body, start=start, depth_max=DEEPEST)
        try:
            return (yield from self._scan(start).elements())
        except JsonTooMany as error:
            raise RequestRefused(400, "invalid_value", param=param) from error

    def string(self, span: Span | None, param: str) -> Span:
        """A string, with its quotes."""
        if span is None or not self.given(span):
            raise RequestRefused(400, "missing_required_parameter", param=param)
        return self._opened(span, b'"', param)

    def word(self, span: Span | None, param: str) -> str:
        """A short string, decoded; one that is longer is none that anything here knows."""
        start, end = self.string(span, param)
        raw = bytes(self.body[start : min(end, start + WORD_BYTES_MAX)])
        return str(json.loads(raw)) if end - start <= WORD_BYTES_MAX else ""

    def switch(self, span: Span | None, param: str) -> bool:
        """A switch, off where it is absent or null."""
        if span is None or not self.given(span):
            return False
        if self._first(span) not in {b"t", b"f"}:
            raise RequestRefused(400, "invalid_type", param=param)
        return self._first(span) == b"t"

    def is_text(self, span: Span) -> bool:
        """Whether a value is a string."""
        return self._first(span) == b'"'

    def _scan(self, start: int) -> LargeScan:
        return LargeScan(self.body, DEEPEST, MEMBERS_MAX, WINDOW, at=start + 1)

    def _opened(self, span: Span, opener: bytes, param: str) -> Span:
        if self._first(span) != opener:
            raise RequestRefused(400, "invalid_type", param=param)
        return span

    def _first(self, span: Span) -> bytes:
        return bytes(self.body[span[0] : span[0] + 1])
