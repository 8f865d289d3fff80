"""Filters that other packages bring: their base class, and what stands between one and the judge.

A plug-in is a class derived from `FilterPlugin`, named by an entry point of the group `tidegate.filters`; the entry point's name is its kind. Each attempt gets an object of
its own. It computes: it never waits, reads no clock, and looks at each frame once.

What it raises, or says against the contract, is its own failure and never one of the exchange's tasks: `gate.filters.policed` stands around it, as around every filter with a table.
"""

from __future__ import annotations

import abc
import functools
from collections.abc import Callable, Collection, Sequence
from typing import Any, ClassVar

from gate.config import PluginConfig, Table
from gate.events import Facts, Frame
from gate.failure import Failure, FailureKind
from gate.filters.action import failure_for
from gate.filters.awaited import Awaited
from gate.filters.contract import Filter, FilterContext, FilterFactory, Passed, Verdict, Violated
from gate.refs import is_stable_token

__all__ = ["FilterPlugin", "plugged_in"]


class FilterPlugin(abc.ABC):
    """One filter of a plug-in's kind, for one attempt.

    `options_type`: a frozen struct derived from `gate.config.Table`, with the keys that a table of this kind may hold beside those of every filter. It is decoded when the
    configuration is read; a `ValueError` of its `__post_init__` is told to the operator. `gating`: False for a kind that only observes;
    `heavy`: True for one that may compute longer than other streams can wait, a few milliseconds: it is then asked in a worker thread, and one object is never asked twice at once.
    `endpoints` (such as `/v1/responses`) and `paths`: its scope; where an attempt is outside of it there is no such filter. None: everywhere that answers are read.
    """

    options_type: ClassVar[type[Table]] = Table
    gating: ClassVar[bool] = True
    heavy: ClassVar[bool] = False
    endpoints: ClassVar[Collection[str] | None] = None
    paths: ClassVar[Collection[str] | None] = None
    notice: str | None = None  # a stable token to be observed at the end, beside the verdict

    def __init__(self, context: FilterContext, options: Any) -> None:  # noqa: B027 - for those that keep nothing
        """`context`: what is known of the request and its route; `options`: the table's own keys, an `options_type`. Called for each attempt: what is costly is kept elsewhere."""

    @abc.abstractmethod
    def observe(self, frames: Sequence[Frame], position: int) -> Verdict:
        """Judges the next frames; `position` is that of the first of them.

        `Passed(p)`: no objection to what stands before the frame at `p`; what is behind it is held. `self.violated(p, code)`: the frame at `p` may not be seen.
        """

    def finish(self, position: int, facts: Facts) -> Verdict:
        """Judges the answer as a whole, at the end of a complete attempt; `position` is the one behind its last frame."""
        return Passed(position)

    def prime(self, text: str) -> None:  # noqa: B027 - most kinds need not know
        """The answer text of choice 0 that stands before an attempt which continues another; called once, before the first `observe`."""

    @staticmethod
    def violated(position: int, code: str) -> Violated:
        """An objection to the frame at `position`. `code` is a stable token; what is done about it is the `action` of the table, an error where it says nothing."""
        return Violated(position, code, Failure(FailureKind.DENIED, verdict=code))


def plugged_in(plugin: type[FilterPlugin]) -> FilterFactory:
    """What makes a plug-in's filter for an attempt. The context's table is a `PluginConfig`."""
    return functools.partial(_made, plugin)


def _made(plugin: type[FilterPlugin], context: FilterContext) -> Filter | None:
    """The filter of one attempt; None where that is outside of the plug-in's scope."""
    if plugin.endpoints is not None and context.endpoint not in plugin.endpoints:
        return None
    if plugin.paths is not None and context.path not in plugin.paths:
        return None
    make: Callable[[FilterContext], Filter] = functools.partial(_PluggedIn, plugin)
    return _in_thread(plugin, make, context) if plugin.heavy else make(context)


def _in_thread(
    plugin: type[FilterPlugin], make: Callable[[FilterContext], Filter], context: FilterContext
) -> Filter:
    awaited = Awaited(context.table, heavy=lambda: make(context))
    awaited.gating = plugin.gating
    return awaited


class _PluggedIn:
    """A plug-in's filter as the judge sees it. Raises what the plug-in does, and `TypeError` for a verdict that is none."""

    name = ""

    def __init__(self, plugin: type[FilterPlugin], context: FilterContext) -> None:
        assert isinstance(context.table, PluginConfig), "a kind of this sort needs a table"
        self.gating = plugin.gating
        self.notice: str | None = None
        self._plugin = plugin
        self._context = context
        self._table = context.table
        self._passed = -1

    @functools.cached_property
    def _filter(self) -> FilterPlugin:
        # Made when it is first asked, where what it raises is its own failure, and not with the others of the attempt.
        return self._plugin(self._context, self._table.options)

    def prime(self, text: str) -> None:
        self._filter.prime(text)

    def observe(self, frames: Sequence[Frame], position: int) -> Verdict:
        self._begin(position)
        return self._checked(self._filter.observe(frames, position), position + len(frames))

    def finish(self, position: int, facts: Facts) -> Verdict:
        self._begin(position)
        verdict = self._checked(self._filter.finish(position, facts), position)
        notice = self._filter.notice
        self.notice = notice if is_stable_token(notice) else None
        return verdict

    def _begin(self, position: int) -> None:
        """What stands before the first frame that it sees was judged by others of its kind."""
        if self._passed < 0:
            self._passed = position

    def _checked(self, said: object, newest: int) -> Verdict:
        """A verdict within the contract: a position that does not go back, nor beyond what has come; a code that may be shown."""
        if isinstance(said, Passed):
            self._passed = max(self._passed, min(said.position, newest))
            return Passed(self._passed)
        if isinstance(said, Violated) and is_stable_token(said.code):
            failure = failure_for(self._table.action, own=FailureKind.DENIED, code=said.code)
            place = max(self._passed, min(said.position, newest))
            return Violated(place, said.code, failure, seen=min(said.seen, newest))
        raise TypeError("a verdict is Passed, or Violated with a stable token as its code")
