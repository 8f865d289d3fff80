"""Exchanges with random faults of providers, random callers and random cancels, through the real actors on a virtual clock.

After each one nothing is held or open, what the caller got is the beginning of one legal answer of one attempt, and it ends as the outcome says. Over many
of them memory does not grow. `--corpus=full` runs ten thousand; a case that fails is named by the line that runs it alone, as in `--fault=1/4711`.
"""

from __future__ import annotations

import gc
import sys
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
import pytest
import trio
import trio.testing

from actors.context import Gateway
from gate.config import LimitsConfig
from gate.observe import OutcomeKind
from tests.doubles import ScriptedProvider, gateway
from tests.e2e.random_cases import Case, draw_case
from tests.e2e.random_runs import Run, asked_to_go_on_with, check, exchange, prepared, run_once
from tests.e2e.random_scripts import FAULTS

SEED: Final = 1
MEMORY_SEED: Final = 100
SAMPLE: Final = 300  # exchanges, of one seed
CASES: Final = 1_000  # of each seed, with `--corpus=full`
SEEDS: Final = 10
FAILURES_SHOWN: Final = 5
LINE_CHARS_MAX: Final = 400
ROOT: Final = Path(__file__).resolve().parents[2]
PACKAGES: Final = ("gate", "actors", "transport", "ops")
# 216 and 664 bytes were seen, however many exchanges; one object of each would be some thousands.
# The decoder keeps short names of members, in places that they take from each other: they count where they were read.
OWN_GROWTH_BYTES_MAX: Final = 1_024
GROWTH_BYTES_MAX: Final = 2_048
NOT_OURS: Final = [
    tracemalloc.Filter(inclusive=False, filename_pattern=each)
    for each in (tracemalloc.__file__, "*/fnmatch.py", "*/re/*.py")  # the measuring itself
]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test that takes a `seed` runs once with each; with `--fault` only with the one of that case."""
    if "seed" in metafunc.fixturenames:
        alone = metafunc.config.getoption("--fault")
        count = SEEDS if full(metafunc.config) else 1
        seeds = range(SEED, SEED + count)
        metafunc.parametrize("seed", [int(alone.partition("/")[0])] if alone else seeds)


# --- what was exercised --------------------------------------------------------------------------


def counted(run: Run) -> Iterator[str]:
    """The kinds of things that happened in it."""
    yield from (f"fault {script.fault}" for script in run.played)
    yield f"hold {run.case.route.hold.mode}"
    yield f"attempts {len(run.asked)}"
    struck = run.case.strike.what if run.struck_at is not None else ""
    yield f"strike {struck or 'none'}"
    yield f"status {run.caller.status}"
    if run.outcome is None:
        yield "outcome refused" if run.refused else "outcome cancelled"
        return
    yield f"outcome {run.outcome.kind.value}"
    yield f"code {run.outcome.code}"
    yield from (f"limit {kind}" for kind, codes in LIMITS.items() if run.outcome.code in codes)
    if run.outcome.kind is OutcomeKind.SUCCESS and len(run.asked) > 1:
        yield "recovered"
    if any(asked_to_go_on_with(run, at) for at in range(len(run.asked))):
        yield f"continued {run.outcome.kind.value}"
    if run.outcome.code and run.caller.status == 200:
        yield "error in stream"


LIMITS: Final = {
    "time": {"headers_timeout", "first_content_timeout", "json_timeout", "gap_timeout", "total_timeout", "stream_limit"},
    "memory": {"exchange_budget", "process_budget", "memory_budget", "held_limit"},
    "queue": {"queue_full", "queue_timeout"},
}  # fmt: skip
# At least so many of each in a thousand exchanges.
FLOORS: Final = {
    **{f"hold {mode}": 150 for mode in ("live", "window", "buffered")},
    **{f"attempts {count}": least for count, least in enumerate((50, 250, 50, 15, 3))},
    **{f"strike {what}": 10 for what in ("leave", "cancel", "shutdown", "drain")},
    **{f"status {status}": 5 for status in (0, 400, 413, 502, 503, 504)},
    **{f"code {code}": 4 for code in ("stream_cut", "gap_timeout", "shutdown")},
    **{f"limit {kind}": 8 for kind in LIMITS},
    "strike none": 500,
    "status 200": 200,
    "outcome success": 150,
    "outcome error": 200,
    "outcome abandoned": 20,
    "outcome cancelled": 10,
    "outcome refused": 1,
    "recovered": 30,
    "continued success": 10,
    "continued error": 20,
    "error in stream": 30,
}


def check_floors(seen: Counter[str], runs: int) -> None:
    """Every fault was played, and of every kind of end there were enough."""
    floors = {name: least * runs // 1000 for name, least in FLOORS.items()}
    floors |= {f"fault {name}": max(1, runs // 500) for name in FAULTS}
    missed = {name: seen[name] for name, least in floors.items() if seen[name] < least}
    assert not missed, "the drawing has become too tame"


def line_of(case: Case) -> str:
    """The line that runs one case alone."""
    return f".venv/bin/pytest tests/e2e/test_random_faults.py -k no_random_fault --fault={case.seed}/{case.number}"


def test_no_random_fault_leaves_anything_behind_or_reaches_a_caller_as_anything_illegal(
    seed: int, pytestconfig: pytest.Config
) -> None:
    """Each case on its own clock, under its own schedule."""
    alone = pytestconfig.getoption("--fault")
    if alone:
        run_once(draw_case(seed, int(alone.partition("/")[2])))
        return
    count = CASES if full(pytestconfig) else SAMPLE
    failed: list[str] = []
    seen: Counter[str] = Counter()
    for number in range(count):
        case = draw_case(seed, number)
        try:
            seen.update(counted(run_once(case)))
        except Exception as error:  # noqa: BLE001 - whatever it is, the line that shows it again is worth more
            failed.append(f"{line_of(case)}  # {error!r}"[:LINE_CHARS_MAX])
    assert not failed, "\n".join([f"{len(failed)} of {count}", *failed[:FAILURES_SHOWN]])
    check_floors(seen, count)


def full(config: pytest.Config) -> bool:
    """Whether everything is run."""
    return bool(config.getoption("--corpus") == "full")


# --- memory --------------------------------------------------------------------------------------


class Kind(NamedTuple):
    """Cases of one kind: `prepare` makes one of a seed and a number in a process, `check` looks at it afterwards."""

    prepare: Callable[[int, int, Gateway], Run]
    check: Callable[[Run], None]


CHATS: Final = Kind(lambda seed, number, process: prepared(draw_case(seed, number), process), check)


def memory() -> tuple[int, int]:
    """Bytes that are in use: allocated by the project's own lines, and by all."""
    # What CPython remembers of attributes it looked up is bounded, but large beside a leak.
    getattr(sys, "_clear_internal_caches", sys._clear_type_cache)()
    gc.collect()
    snapshot = tracemalloc.take_snapshot()
    ours = [tracemalloc.Filter(inclusive=True, filename_pattern=f"{ROOT}/{each}/*") for each in PACKAGES]  # fmt: skip
    own, everything = snapshot.filter_traces(ours), snapshot.filter_traces(NOT_OURS)
    return sizes(own), sizes(everything)


def sizes(snapshot: tracemalloc.Snapshot) -> int:
    return sum(each.size for each in snapshot.statistics("filename"))


async def growth(
    cases: int, rounds: int, kept: Callable[[Run], None], kind: Kind
) -> tuple[int, int]:
    """How much more memory is in use after so many rounds of the same cases, all in one process, than after the first."""
    process = gateway(
        ScriptedProvider(),
        ScriptedProvider(),
        limits=LimitsConfig(exchanges_max=2),
        concurrency=1,
    )
    memory()  # measuring leaves something behind the first time
    await one_round(cases, process, kept, kind)
    before = memory()
    for _ in range(rounds):
        await one_round(cases, process, kept, kind)
    after = memory()
    return after[0] - before[0], after[1] - before[1]


async def one_round(cases: int, process: Gateway, kept: Callable[[Run], None], kind: Kind) -> None:
    """Case after case, each checked."""
    for number in range(cases):
        run = kind.prepare(MEMORY_SEED, number, process)
        await exchange(run)
        kind.check(run)
        kept(run)


def grown(
    cases: int,
    rounds: int,
    kept: Callable[[Run], None] = lambda run: None,
    kind: Kind = CHATS,
) -> tuple[int, int]:
    """`growth`, traced."""
    tracemalloc.start()
    try:
        clock = trio.testing.MockClock(autojump_threshold=0)
        return trio.run(growth, cases, rounds, kept, kind, clock=clock)
    finally:
        tracemalloc.stop()


def test_memory_does_not_grow_with_the_exchanges(pytestconfig: pytest.Config) -> None:
    """One process for all of them. What stays by chance is far less than one object of each exchange would be."""
    cases, rounds = (125, 8) if full(pytestconfig) else (50, 1)
    own, everything = grown(cases, rounds)
    assert own <= OWN_GROWTH_BYTES_MAX
    assert everything <= GROWTH_BYTES_MAX


# --- each check can fail -------------------------------------------------------------------------


def test_the_same_case_is_the_same_run() -> None:
    """A case that fails can be looked at again."""
    for number in range(10):
        runs = [run_once(draw_case(SEED, number)) for _ in "ab"]
        assert runs[0].caller.writes == runs[1].caller.writes
        assert runs[0].records.observations == runs[1].records.observations
        assert runs[0].ended_at == runs[1].ended_at


def test_one_object_of_each_exchange_would_be_noticed() -> None:
    """Even of few, and though it is small."""
    forgotten: list[object] = []
    _, everything = grown(20, 1, lambda run: forgotten.append(run.outcome))
    assert everything > GROWTH_BYTES_MAX


def told(wanted: Callable[[Run], bool]) -> Run:
    """The first run of the sample that is like that."""
    runs = (run_once(draw_case(SEED, number)) for number in range(SAMPLE))
    return next(run for run in runs if run.quiet and run.case.request.stream and wanted(run))


def recovered(run: Run) -> bool:
    return b"[DONE]" in run.caller.received and len(run.played) > 1


def broke(run: Run) -> bool:
    return run.caller.status == 200 and run.caller.received.count(b'"error"') == 1


@pytest.mark.parametrize(
    ("like", "forge"),
    [
        (recovered, lambda data: data.replace(b"data: [DONE]\n\n", b"")),
        (recovered, lambda data: data + b"data: [DONE]\n\n"),
        (recovered, lambda data: data[:-1]),
        (recovered, lambda data: data.replace(b'"finish_reason":"', b'"reason":"')),
        (recovered, lambda data: data.replace(b'"content":"2a', b'"content":"1a')),
        (recovered, lambda data: data.replace(b'"content":"2a', b'"content":"2a2a')),
        (recovered, lambda data: data.replace(b'"id":"up-2"', b'"id":"up-1"', 1)),
        (recovered, lambda data: data.replace(b'"small"', b'"m"', 1)),
        (broke, lambda data: data + b"data: [DONE]\n\n"),
        (broke, lambda data: data[: data.rindex(b"data: ")]),
        (broke, lambda data: data[: data.rindex(b"data: ")] + b"data: [DONE]\n\n"),
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


@pytest.mark.parametrize(
    "leak",
    [
        lambda run: run.gate.budget.reserve(1),
        lambda run: run.gate.dispatch.exchanges.take_nowait(["exchange"]),
        lambda run: run.gate.dispatch.providers.take_nowait(["p1"]),
        lambda run: setattr(run.asked[0], "closes", 0),
        lambda run: setattr(run.caller, "starts", 2),
        lambda run: run.records.crashed("ex-1", RuntimeError()),
        lambda run: setattr(run, "outcome", None),
    ],
)
def test_whatever_is_left_is_noticed(leak: Callable[[Run], object]) -> None:
    """Bytes, places, connections; and a crash, or a loss of the outcome."""
    run = told(recovered)
    leak(run)
    with pytest.raises(AssertionError):
        check(run)
