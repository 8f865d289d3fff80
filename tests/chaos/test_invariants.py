"""Each kind of fault that can be planted around an exchange breaks the invariant that is there for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from ops.chaos.cases import parse_case
from ops.chaos.invariants import broken
from ops.chaos.run import Supervise, play, settled
from ops.chaos.scenarios import SCENARIOS
from tests.chaos import planted


def numbers(line: str, supervise: Supervise) -> Sequence[str]:
    """The invariants that a case breaks, each once."""
    case = parse_case(line)
    with settled():
        run = play(case, SCENARIOS[case.scenario], supervise=supervise)
    assert not run.missed
    return sorted({finding.split()[0] for finding in broken(run)})


@pytest.mark.parametrize(
    ("line", "supervise", "expected"),
    [
        ("healthy --cancel req:20", planted.leaks, ["I1"]),
        ("healthy", planted.ends_twice, ["I18", "I6"]),
        ("healthy --cancel req:20", planted.swallows, ["I20"]),
        ("healthy --raise '*:41'", planted.hides, ["I11"]),
        ("healthy", planted.hangs, ["I0"]),
        ("healthy", planted.spins, ["I0"]),
        ("healthy --cancel req:20", planted.lingers, ["I12"]),
        ("healthy", planted.forgets, ["I15"]),
    ],
)
def test_a_planted_fault_breaks_its_invariant(
    line: str, supervise: Supervise, expected: list[str]
) -> None:
    """A leak, a second terminal, a swallowed cancel, a lost exception, a hang, a spin, a slow end, a coroutine that nobody awaits."""
    assert numbers(line, supervise) == expected


@pytest.mark.parametrize("line", ["healthy", "healthy --cancel req:20"])
def test_a_leak_shows_only_where_it_leaks(line: str) -> None:
    """Without a fault that one gives all back."""
    assert bool(numbers(line, planted.leaks)) == ("req" in line)


def test_an_instrument_that_fails_is_noticed() -> None:
    """Trio takes it away, and every run after that would look fine."""
    case = parse_case("healthy --cancel caller:20")
    run = play(case, SCENARIOS["healthy"])
    assert run.alive
    del run.injector.targets
    run.alive = False
    assert broken(run) == ["I19 the instrument was gone before the end"]


def test_text_that_no_provider_said_is_noticed() -> None:
    """Neither a word more, nor an end that comes too early, nor a word that a filter hides."""
    for received, number in (
        (b'data: {"id":"a","choices":[{"index":0,"delta":{"role":"assistant","content":"Hi"}}]}\n\n', "I8"),
        (b'data: {"id":"a","choices":[{"index":0,"delta":{"content":"He"}}]}\n\n', "I7"),
        (b"data: [DONE]\n\n", "I8"),
        (b"data: {}\n\nda", "I7"),
    ):  # fmt: skip
        run = play(parse_case("healthy"), SCENARIOS["healthy"])
        assert broken(run) == []
        run.stage.caller.received[:] = received
        assert number in {finding.split()[0] for finding in broken(run)}, received


def test_a_plans_key_goes_out_once_and_names_its_exchange() -> None:
    """Two attempts of one exchange."""
    run = play(parse_case("exact"), SCENARIOS["exact"])
    for keys, number in (
        ((b"ex-1.1", b"ex-1.2"), []),
        ((b"ex-1.1", b"ex-1.1"), ["I17"]),
        ((b"ex-1.1", b"ex-2.2"), ["I17"]),
    ):
        for asked, key in zip(run.stage.asked, keys, strict=False):
            asked.request = replace(asked.request, headers=[(b"idempotency-key", key)])
        assert [finding.split()[0] for finding in broken(run)] == number


def test_what_is_added_to_a_tunnel_and_an_end_that_breaks_off_are_noticed() -> None:
    """An event that is nobody's, a body that is broken off where an error could be told, a tape that lost something."""
    run = play(parse_case("tunnel"), SCENARIOS["tunnel"])
    assert broken(run) == []
    run.stage.caller.received[:0] = b": ours\n\n"
    assert {finding.split()[0] for finding in broken(run)} >= {"I7"}
    run = play(parse_case("healthy"), SCENARIOS["healthy"])
    run.stage.caller.aborted = True
    assert "I10 broken off, where an error could have been told" in broken(run)
    run = play(parse_case("recorded"), SCENARIOS["recorded"])
    assert run.tape is not None
    run.tape.dropped = 1
    assert broken(run)[0].startswith("I11 not all was taken down")
