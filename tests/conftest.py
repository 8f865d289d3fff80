"""Options and settings of the whole suite."""

from __future__ import annotations

import pytest
from hypothesis import settings

# Its checks say what was not as it should be, like those of a test module.
pytest.register_assert_rewrite("tests.e2e.random_runs")

# No deadline: a busy machine is not a failure. Derandomized: the same tree gives the same result.
settings.register_profile("house", deadline=None, derandomize=True)
settings.load_profile("house")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What goes through very many cases is not measured: what they meet, others have covered by name, and measured it takes four times as long."""
    for item in items:
        if item.get_closest_marker("hypothesis"):
            item.add_marker(pytest.mark.no_cover)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--corpus`: how much the tests go through that have more than fits in every run; and `--fault`: one random case alone."""
    parser.addoption(
        "--corpus",
        choices=("sample", "full"),
        default="sample",
        help="recorded streams to test: a sample (default), or all of them at every cut",
    )
    parser.addoption(
        "--fault", metavar="SEED/NUMBER", default="", help="the one case of random faults to run"
    )
