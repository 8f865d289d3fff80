"""Random faults, callers and cancels at the Responses API, normalized and through tunnels. After each exchange nothing is held or open, what the caller got is the beginning of one legal response, and it ends as
the outcome says: `response.completed` or `.incomplete` behind the whole of what was said, `response.failed` where it broke.

`--corpus=full` runs many more; a case that fails is named by its seed, number and mix.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final

import msgspec
import pytest
import trio
import trio.testing

from actors.context import Gateway
from gate.observe import OutcomeKind, What
from tests.e2e.random_responses import FAULTS_HERE, RESPONSES, responses_case
from tests.e2e.random_runs import (
    Run,
    asked_to_go_on_with,
    check,
    check_nothing_left,
    check_outcome,
    check_times,
    exchange,
    prepared,
)
from tests.e2e.random_scripts import NEVER_TOLD
from tests.e2e.test_random_faults import GROWTH_BYTES_MAX, OWN_GROWTH_BYTES_MAX, Kind, grown
from tests.e2e.test_random_tunnels import MIXES, check_relayed, relaying
from tests.stepping import seed_scheduler

SEED: Final = 3
SEEDS: Final = 10  # with `--corpus=full`
CASES: Final = 300  # of each, normalized
RELAYED: Final = 100  # of each, and each mix


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One seed, or all of them."""
    if "seed" in metafunc.fixturenames:
        full = metafunc.config.getoption("--corpus") == "full"
        metafunc.parametrize("seed", range(SEED, SEED + (SEEDS if full else 1)))


def play(seed: int, number: int, mix: str = "") -> Run:
    """One case, from its beginning to its end."""
    runs: list[Run] = []

    async def main() -> None:
        runs.append(prepared(responses_case(seed, number), wire=RESPONSES))
        if mix:
            relaying(runs[0], mix)
        await exchange(runs[0])

    seed_scheduler(number)
    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
    return runs[0]


def checked(seed: int, number: int, mix: str = "") -> Run:
    """One case with its checks; one that fails is named."""
    try:
        run = play(seed, number, mix)
        check_relayed_run(run) if mix else check(run)
        check_kept(run)
    except BaseException as error:
        error.add_note(f"case {seed}/{number} {mix}")
        raise
    return run


def check_relayed_run(run: Run) -> None:
    """Whatever path the last attempt took."""
    if run.outcome is not None and run.outcome.mode != "passthrough":
        check(run)
        return
    check_nothing_left(run)
    check_outcome(run)
    check_times(run)
    received = run.caller.received
    told = received.rpartition(b"\n\n")[0] if run.caller.status == 200 else received
    assert NEVER_TOLD.encode() not in told, "a caller saw a provider's own words"
    if run.outcome is not None:
        check_relayed(run)


def check_kept(run: Run) -> None:
    """A request that a provider keeps is sent as the caller wrote it, again and again, unless it goes on; and what may have been left there is noted."""
    sent = b"".join(run.case.request.parts)
    for at, asked in enumerate(run.asked):
        if asked_to_go_on_with(run, at) is None:
            model = asked.body.partition(b'"model": "')[2].partition(b'"')[0]
            assert asked.body.replace(model, b"small", 1) == sent
    orphans = [each for each in run.records.observations if each.what is What.ORPHANED]
    assert not orphans or b'"store": true' in sent


def counted(run: Run) -> Iterator[str]:
    """The kinds of things that happened in it."""
    yield from (f"fault {script.fault}" for script in run.played)
    yield f"status {run.caller.status}"
    if run.outcome is None:
        return
    yield f"outcome {run.outcome.kind.value}"
    if run.outcome.kind is OutcomeKind.SUCCESS and len(run.asked) > 1:
        yield "recovered"
    if any(asked_to_go_on_with(run, at) for at in range(len(run.asked))):
        yield f"continued {run.outcome.kind.value}"
    if b"response.failed" in run.caller.received:
        yield "failed in the stream"
    if any(each.what is What.ORPHANED for each in run.records.observations):
        yield "orphaned"


FLOORS: Final = {"status 200": 60, "outcome success": 45, "outcome error": 50, "outcome abandoned": 5, "recovered": 8, "continued success": 2, "failed in the stream": 8, "orphaned": 5}  # fmt: skip


@pytest.mark.slow
def test_no_random_fault_reaches_a_caller_as_anything_illegal(seed: int) -> None:
    """And of every kind of end there are enough for that to say something."""
    seen = Counter(kind for number in range(CASES) for kind in counted(checked(seed, number)))
    floors = FLOORS | {f"fault {name}": 1 for name in FAULTS_HERE}
    assert {name: seen[name] for name, least in floors.items() if seen[name] < least} == {}


@pytest.mark.slow
@pytest.mark.parametrize("mix", MIXES)
def test_whatever_happens_the_bytes_are_one_providers(seed: int, mix: str) -> None:
    """Through a tunnel; where only some targets have one, the response is one all the same."""
    kinds: Counter[tuple[str, str]] = Counter()
    for number in range(RELAYED):
        run = checked(seed, number, mix)
        if run.outcome is not None:
            kinds[run.outcome.kind.value, run.outcome.mode] += 1
    assert kinds["success", "passthrough"] > 2
    assert kinds["error", "passthrough"] > 2


def test_memory_does_not_grow_with_the_exchanges() -> None:
    """One process for all of them, on either path."""

    def prepare(seed: int, number: int, process: Gateway) -> Run:
        run = prepared(responses_case(seed, number), process, RESPONSES)
        if number % 2:
            relaying(run, "all")
        return run

    own, everything = grown(50, 1, kind=Kind(prepare, check_relayed_run))
    assert own <= OWN_GROWTH_BYTES_MAX
    assert everything <= GROWTH_BYTES_MAX


# --- each check can fail -------------------------------------------------------------------------


def told(wanted: Callable[[Run], bool]) -> Run:
    """The first run that is like that."""
    runs = (play(SEED, number) for number in range(CASES))
    return next(run for run in runs if run.quiet and run.case.request.stream and wanted(run))


def recovered(run: Run) -> bool:
    return b"response.completed" in run.caller.received and len(run.played) > 1


def broke(run: Run) -> bool:
    return run.caller.status == 200 and b"response.failed" in run.caller.received


def last(data: bytes) -> int:
    """Where the event at the end begins."""
    return data.rindex(b"event: ")


@pytest.mark.parametrize(
    ("like", "forge"),
    [
        (recovered, lambda data: data[: last(data)]),
        (recovered, lambda data: data + data[last(data) :]),
        (recovered, lambda data: data[:-1]),
        (recovered, lambda data: data.replace(b'"delta":"2a', b'"delta":"1a', 1)),
        (recovered, lambda data: data.replace(b'"delta":"2a', b'"delta":"2a2a', 1)),
        (recovered, lambda data: data.replace(b'"id":"up-2"', b'"id":"up-1"', 1)),
        (recovered, lambda data: data.replace(b'"small"', b'"m"', 1)),
        (recovered, lambda data: data.replace(b'"sequence_number":3', b'"sequence_number":4', 1)),
        (broke, lambda data: data[: last(data)]),
        (broke, lambda data: data.replace(b"response.failed", b"response.completed")),
        (broke, lambda data: data.replace(b"The ", b"secret ")),
    ],
)
def test_a_stream_that_was_tampered_with_is_noticed(
    like: Callable[[Run], bool], forge: Callable[[bytes], bytes]
) -> None:
    """Loss, repetition, mixture, and an end that is none."""
    run = told(like)
    forged = forge(run.caller.received)
    assert forged != run.caller.received
    run.caller.writes[:] = [(run.ended_at, forged)]
    assert run.outcome is not None
    run.outcome = msgspec.structs.replace(run.outcome, bytes_out=len(forged))
    with pytest.raises(AssertionError):
        check(run)
