"""The same random exchanges through tunnels: providers' faults, callers, cancels. After each one nothing is left, and what the caller got is a beginning of one provider's bytes, with an error of ours behind it or nothing.

The cases are those of `test_random_faults.py`; here every target relays, or only the first, or only the others.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections import Counter
from typing import Final

import pytest
import trio
import trio.testing

from gate.config import PathKind
from gate.observe import OutcomeKind
from tests.doubles import ALIAS
from tests.e2e.random_cases import draw_case
from tests.e2e.random_runs import (
    ENVELOPE,
    STATUSES,
    Run,
    check_nothing_left,
    check_outcome,
    check_times,
    exchange,
    prepared,
)
from tests.e2e.random_scripts import NEVER_TOLD
from tests.stepping import seed_scheduler

SEED: Final = 7
SEEDS: Final = 20  # with `--corpus=full`
CASES: Final = 150  # of each
BLOCK: Final = re.compile(rb".*?(?:\r\n\r\n|\n\n|\r\r|\Z)", re.DOTALL)
MIXES: Final = ("all", "first", "others")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One seed, or all of them."""
    if "seed" in metafunc.fixturenames:
        full = metafunc.config.getoption("--corpus") == "full"
        metafunc.parametrize("seed", range(SEED, SEED + (SEEDS if full else 1)))


def relaying(run: Run, mix: str) -> None:
    """Makes targets relay."""
    pool = run.gate.pools[ALIAS]
    targets = []
    for at, target in enumerate(pool.targets):
        path: PathKind = "tunnel" if mix == "all" or (at == 0) == (mix == "first") else "normalized"
        targets.append(dataclasses.replace(target, path=path))
    run.gate.pools = {ALIAS: dataclasses.replace(pool, targets=tuple(targets))}


def play(seed: int, number: int, mix: str) -> Run:
    """One case, from its beginning to its checks."""
    runs: list[Run] = []

    async def main() -> None:
        runs.append(prepared(draw_case(seed, number)))
        relaying(runs[0], mix)
        await exchange(runs[0])

    seed_scheduler(number)
    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
    (run,) = runs
    check_nothing_left(run)
    check_outcome(run)
    check_times(run)
    # What is no line yet is no word of anybody's, and is relayed like a comment.
    received = run.caller.received
    told = received.rpartition(b"\n\n")[0] if run.caller.status == 200 else received
    told += b"".join(run.caller.headers.values())
    assert NEVER_TOLD.encode() not in told, "a caller saw a provider's own words"
    if run.outcome is not None and run.outcome.mode == "passthrough":
        check_relayed(run)
    return run


def sent_by(run: Run) -> bytes:
    """What the last attempt's provider would send, with the alias in it."""
    data = b"".join(read.data for read in run.played[-1].play.answer.reads)
    return data.replace(b'"model":"m"', b'"model":"small"').replace(
        b'"model": "m"', b'"model": "small"'
    )


def without_faults(data: bytes) -> bytes:
    """The same without the events that would have been a failure, had they come before the answer was complete."""
    return b"".join(block for block in BLOCK.findall(data) if not is_fault(block))


def is_fault(block: bytes) -> bool:
    """Whether an event is an error, or nothing that can be read."""
    payload = block.partition(b"data:")[2].strip()
    if not payload.startswith(b"{"):
        return False
    try:
        return block.startswith(b"event: error") or "error" in json.loads(payload)
    except ValueError:
        return True


def check_relayed(run: Run) -> None:
    """One attempt's bytes and no other's; the whole of them where the exchange is a success, and an error that says so where it is not."""
    caller, outcome = run.caller, run.outcome
    assert outcome is not None
    received = caller.received
    if caller.status in STATUSES:
        assert not received or json.loads(received)["error"].keys() == ENVELOPE
        return
    assert caller.status in {0, 200}
    if outcome.kind is OutcomeKind.SUCCESS:
        assert received
        sent = sent_by(run)
        assert sent.startswith(received) or without_faults(sent).startswith(received)
        return
    if outcome.kind is OutcomeKind.ERROR and received:
        begin, _, error = received.rstrip(b"\n").rpartition(b"data: ")
        assert json.loads(error)["error"]["code"] == outcome.code
        assert b"[DONE]" not in begin
        received = begin
    assert sent_by(run).startswith(received)


@pytest.mark.slow
@pytest.mark.parametrize("mix", MIXES)
def test_whatever_happens_the_bytes_are_one_providers(seed: int, mix: str) -> None:
    """And enough of them end in each way for that to say something."""
    kinds: Counter[tuple[str, str]] = Counter()
    for number in range(CASES):
        try:
            run = play(seed, number, mix)
        except BaseException as error:
            error.add_note(f"case {seed}/{number}, {mix}")
            raise
        if run.outcome is not None:
            kinds[run.outcome.kind.value, run.outcome.mode] += 1
    assert kinds["success", "passthrough"] > 5
    assert kinds["error", "passthrough"] > 5
