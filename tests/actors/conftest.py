"""Time is virtual for the tests of the actors, but for those that wait for a thread: what a busy machine takes for a step is no part of what they do."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from inspect import iscoroutinefunction
from pathlib import Path

import pytest
import trio
import trio.testing

_HERE = Path(__file__).parent


def _in_virtual_time(
    test: Callable[[], Awaitable[None]],
    *,
    clock: trio.abc.Clock | None,
    instruments: Sequence[trio.abc.Instrument],
) -> None:
    """Run a test under the clock that it asks for, or one that jumps to the next deadline when nothing can go on."""
    virtual = clock or trio.testing.MockClock(autojump_threshold=0)
    trio.run(test, clock=virtual, instruments=instruments)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The hook sees the items of all folders."""
    for item in items:
        virtual = item.path.is_relative_to(_HERE) and not item.get_closest_marker("real_time")
        if virtual and iscoroutinefunction(getattr(item, "obj", None)):
            item.add_marker(pytest.mark.trio(run=_in_virtual_time))
