"""Figures: the middle of their samples, and what was not to be had."""

from __future__ import annotations

from ops.bench_figures import Figure, Sample, difference, figure, ratio


def test_a_figure_is_its_samples_middle_and_both_ends() -> None:
    """In the order in which they were taken."""
    assert figure("n", [3.0, 1.0, 8.0]) == Figure(
        name="n", median=3.0, low=1.0, high=8.0, samples=(3.0, 1.0, 8.0)
    )
    assert figure("n", [1.0, 2.0]).median == 1.5


def test_without_samples_there_is_no_figure() -> None:
    """A sample that was not to be had is not zero."""
    assert figure("n", [None, None]) == Figure(
        name="n", median=None, low=None, high=None, samples=()
    )
    assert figure("n", [None, 2.0]).samples == (2.0,)


def test_a_ratio_and_a_difference_are_made_turn_by_turn() -> None:
    """A slow turn of both is no difference between them."""
    ours, theirs = [4.0, 40.0, None], [2.0, 20.0, 1.0]
    assert ratio("x", ours, theirs).samples == (2.0, 2.0)
    assert difference("d", ours, theirs).samples == (2.0, 20.0)
    assert ratio("x", [1.0], [0.0]).samples == ()
    assert ratio("x", [1.0], [None]).samples == ()


def test_a_sample_is_told_by_the_event_in_microseconds() -> None:
    """Where there is no process there is no CPU time."""
    assert Sample(events=100, wall=0.5, cpu=0.01).wall_us == 5_000
    assert Sample(events=100, wall=0.5, cpu=0.01).cpu_us == 100
    assert Sample(events=100, wall=0.5, cpu=None).cpu_us is None
