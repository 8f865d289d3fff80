"""Plug-ins for tests: what packages of others may bring, sound and otherwise."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final

import msgspec

from gate.config import FilterAction, FilterFailure, PluginConfig, Table
from gate.events import Facts, Frame, TextDelta
from gate.filters.contract import FilterContext, Passed, Verdict
from gate.filters.plugin import FilterPlugin

QUOTE: Final = "the answer, quoted"


class Said(Table, frozen=True, kw_only=True):
    """Options: `raises`: in which method; `word`: what may not be said; `notice`: to be told at the end."""

    word: str = "drat"
    raises: str = ""
    notice: str = ""
    limit: Annotated[int, msgspec.Meta(ge=1)] = 1

    def __post_init__(self) -> None:
        if " " in self.word:
            raise ValueError("word: a single one")
        if self.word == "bug":
            raise ZeroDivisionError


class WordPlugin(FilterPlugin):
    """Objects to a frame with the word, and holds a frame that ends in `...` and what is behind it."""

    options_type = Said

    def __init__(self, context: FilterContext, options: Said) -> None:
        self._options = options
        self._held: int | None = None
        self.primed = ""
        self._fail("init")

    def prime(self, text: str) -> None:
        self._fail("prime")
        self.primed = text

    def observe(self, frames: Sequence[Frame], position: int) -> Verdict:
        self._fail("observe")
        for at, frame in enumerate(frames, position):
            text = "".join(each.text for each in frame.events if isinstance(each, TextDelta))
            if self._options.word in self.primed + text:
                return self.violated(at, "word_said")
            if text.endswith("...") and self._held is None:
                self._held = at
        return Passed(position + len(frames) if self._held is None else self._held)

    def finish(self, position: int, facts: Facts) -> Verdict:
        self._fail("finish")
        self.notice = self._options.notice
        return super().finish(position, facts)

    def _fail(self, where: str) -> None:
        if self._options.raises == where:
            raise ValueError(QUOTE)


class HeavyPlugin(WordPlugin):
    """The same, in a thread."""

    heavy = True


class Fixed(FilterPlugin):
    """Says what `verdict` is, whatever comes; only observes."""

    gating = False
    verdict: Any = None

    def observe(self, frames: Sequence[Frame], position: int) -> Verdict:
        verdict: Verdict = self.verdict
        return verdict


class Unfinished(FilterPlugin):
    """Leaves out what it has to have."""


class Loose(Fixed):
    """Its options are none."""

    options_type = dict  # type: ignore[assignment]


class Taken(Table, frozen=True, kw_only=True):
    """An option under the name of one that every filter has."""

    failure: str = ""


class Overlapping(Fixed):
    """Its option is every filter's."""

    options_type = Taken


def table(
    *, action: FilterAction | None = None, failure: FilterFailure = "closed", **options: Any
) -> PluginConfig:
    """A table of the kind `word`."""
    return PluginConfig(kind="word", action=action, failure=failure, options=Said(**options))
