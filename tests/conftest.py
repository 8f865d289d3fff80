"""Options and settings of the whole suite."""

from __future__ import annotations

import pytest
from hypothesis import settings

# No deadline: a busy machine is not a failure. Derandomized: the same tree gives the same result.
settings.register_profile("house", deadline=None, derandomize=True)
settings.load_profile("house")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--corpus`: how much of the recorded streams the corpus tests go through."""
    parser.addoption(
        "--corpus",
        choices=("sample", "full"),
        default="sample",
        help="recorded streams to test: a sample (default), or all of them at every cut",
    )
