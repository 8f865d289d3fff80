"""Work in bounded steps: what the few helpers find, wherever a window ends."""

from __future__ import annotations

import pytest

from gate.steps import Steps, finished, holds, word_in


def counted(steps: Steps[object]) -> tuple[object, int]:
    """What comes of it, and in how many steps before."""
    count = 0
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            return stop.value, count
        count += 1


def test_finished_takes_every_step() -> None:
    """And gives what comes of them."""
    taken: list[int] = []

    def work() -> Steps[str]:
        for number in range(3):
            taken.append(number)
            yield
        return "done"

    assert finished(work()) == "done"
    assert taken == [0, 1, 2]


@pytest.mark.parametrize("window", [1, 2, 3, 100])
def test_the_first_word_is_found_behind_any_white_space(window: int) -> None:
    """Of the four kinds that JSON knows; up to the end that was given, and not beyond."""
    body = b"x \t\n\r  y z"
    assert finished(word_in(body, 1, len(body), window=window)) == 7
    assert finished(word_in(body, 7, len(body), window=window)) == 7
    assert finished(word_in(body, 1, 7, window=window)) == 7
    assert finished(word_in(body, 1, 5, window=window)) == 5
    assert finished(word_in(body, 5, 5, window=window)) == 5


@pytest.mark.parametrize("window", range(1, 9))
def test_a_part_is_found_across_the_ends_of_windows(window: int) -> None:
    """Only where all of it lies between the two offsets."""
    body = b"needneedle"
    assert finished(holds(body, b"needle", 0, 10, window=window))
    assert finished(holds(body, b"needle", 4, 10, window=window))
    assert not finished(holds(body, b"needle", 0, 9, window=window))
    assert not finished(holds(body, b"needle", 5, 10, window=window))
    assert not finished(holds(body, b"needle", 4, 4, window=window))


def test_a_step_is_a_window() -> None:
    """So many of them, and no more, lie before the end."""
    blank = b" " * 1_000
    assert counted(word_in(blank, 0, 1_000, window=100)) == (1_000, 10)
    assert counted(holds(blank, b"x", 0, 1_000, window=100)) == (False, 10)
