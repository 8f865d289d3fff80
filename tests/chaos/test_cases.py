"""A case and its line are the same thing."""

from __future__ import annotations

import pytest

from ops.chaos.cases import Case, CaseInvalid, Fault, parse_case

LINES = (
    "healthy",
    "healthy --schedule s7 --cancel req:78 --raise '*:79'",
    "judged --raise port:3",
    "queued --schedule reverse --cancel caller:5",
    "healthy --ring 2 --schedule s7 --cancel reset:78 --raise sink:79",
    "json --ring 3 --cancel half:5",
)


@pytest.mark.parametrize("line", LINES)
def test_a_line_is_read_and_written(line: str) -> None:
    """Character by character."""
    assert str(parse_case(line)) == line


def test_a_remark_is_not_part_of_the_case() -> None:
    """It tells where the case comes from."""
    assert parse_case("healthy --cancel req:1   # trio 0.35.0") == Case(
        "healthy", faults=(Fault("cancel", "req", 1),)
    )


@pytest.mark.parametrize(
    "line",
    [
        "",
        "# nothing",
        "healthy --cancel req",
        "healthy --cancel req:0",
        "healthy --cancel req:x",
        "healthy --cancel :1",
        "healthy --cancel port:1",
        "healthy --raise drain:1",
        "healthy --cancel",
        "healthy --break req:1",
        "healthy --cancel req:1 --cancel req:2 --cancel req:3",
        "healthy --cancel reset:1",
        "healthy --ring 1 --cancel provider:1",
        "healthy --ring 2 --raise half:1",
        "healthy --ring 4",
    ],
)
def test_a_line_that_says_nothing_is_refused(line: str) -> None:
    """With a reason."""
    with pytest.raises(CaseInvalid):
        parse_case(line)


def test_fewer_faults_are_simpler_and_then_the_plain_schedule() -> None:
    """A case that is as simple as can be has nothing simpler."""
    case = parse_case("healthy --schedule s7 --cancel req:78 --raise sink:79")
    assert [str(each) for each in case.simpler()] == [
        "healthy --schedule s7 --cancel req:78",
        "healthy --schedule s7 --raise sink:79",
        "healthy --cancel req:78 --raise sink:79",
    ]
    assert parse_case("healthy --cancel req:78").simpler() == []
