"""The search of ring 3: many callers at once on one served gate, most of them struck at a random moment, the others owed their answer; then quiet, a look at what is held, and one more request.

Who strikes: `caller` closes, `reset` resets, `half` closes its sending side, `provider` resets what the exchange has open there; at so many tenths of a millisecond after the caller has begun. The moments come
from a seed, and a case names its own. A case that is repeated meets another step of the program: the line says what was done, not what came of it.
"""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Final

import trio

from gate.observe import OutcomeKind
from ops.chaos.cases import CALLER, CANCEL, HALF, PROVIDER, RESET, Case, Fault
from ops.chaos.explore import Failure, Tally
from ops.chaos.hosts import AFTER, FINE, FINE_REQUEST
from ops.chaos.run import warnings_kept
from ops.chaos.scenario import Asking, Scenario
from ops.chaos.sockets import Caller, Served, Socketed, descriptors, served, threads
from ops.chaos.sockets_scenarios import SOCKETED
from ops.chaos.wired import answer_findings, leaves, said
from ops.provider_connection import reset

__all__ = ["RING", "Seen", "explore", "play", "run_case"]

RING: Final = 3
WHO: Final = (CALLER, RESET, HALF, PROVIDER)
TICK: Final = 0.0001  # seconds
QUIET_SECONDS: Final = 10.0  # in which everything has to come back
RUN_SECONDS: Final = 60.0
STOP_SECONDS: Final = 2.0
CLOSE_SECONDS: Final = (
    0.1  # from the caller's leaving to the end of its exchange, on a machine that does nothing else
)
BEAT_SECONDS: Final = 0.01  # between two looks at how late this process comes
LATE_TIMES: Final = 20  # so many turns of the loop lie between, each of which may come as late
PLAIN: Final = 4  # callers of a batch that nothing strikes

_FINE: Final = Socketed(
    scenario=Scenario(about="one more", targets=[], asking=Asking((FINE_REQUEST,)))
)


@dataclass(eq=False)
class Seen:
    """What a batch came to. `findings`: of each case; `common`: of all together; `late`: by how many seconds the process came late at most."""

    callers: list[tuple[Case, Caller]] = field(default_factory=list)
    findings: list[tuple[Case, list[str]]] = field(default_factory=list)
    common: list[str] = field(default_factory=list)
    late: float = 0.0


def play(name: str, cases: Sequence[Case]) -> Seen:
    """The cases at once on one gate."""
    seen, warned = Seen(), list[str]()
    gc.collect()
    before = descriptors(), threads()
    with warnings.catch_warnings(), warnings_kept(warned):
        warnings.simplefilter("always")
        try:
            trio.run(partial(_main, SOCKETED[name], cases, seen))
        except* Exception as group:  # noqa: BLE001 - whatever it is, it is what came of it
            seen.common += [f"I11 {said(each)}" for each in leaves(group)]
        gc.collect()
    seen.common += [f"I15 {each}" for each in dict.fromkeys(warned)]
    after = descriptors(), threads()
    if after != before:
        seen.common.append(f"I15 descriptors and threads {before} before, {after} after")
    return seen


async def _main(case: Socketed, cases: Sequence[Case], seen: Seen) -> None:
    async with served(case) as gate:
        with trio.move_on_after(RUN_SECONDS) as running:
            await _batch(case, cases, gate, seen)
        if running.cancelled_caught:
            seen.common.append("I0 a caller is still waiting")
        await _quiet(gate, seen)
        await _once_more(gate, seen)
        for one, caller in seen.callers:
            seen.findings.append((one, list(_findings(case, one, caller, gate, seen.late))))
        seen.common += [f"I11 {said(leaf)}" for error in gate.crashes for leaf in leaves(error)]
        seen.common += [
            f"I11 {line}" for line in gate.log.getvalue().splitlines() if "_failed" in line
        ]
        stopping = trio.current_time()
    if trio.current_time() - stopping > STOP_SECONDS:
        seen.common.append(f"I12 the service took {trio.current_time() - stopping:.1f} s to stop")


async def _batch(case: Socketed, cases: Sequence[Case], gate: Served, seen: Seen) -> None:
    """All of them, and a look at how busy the machine is."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_beat, seen)
        await _asked(case, cases, gate, seen)
        nursery.cancel_scope.cancel()


async def _beat(seen: Seen) -> None:
    while True:
        due = trio.current_time() + BEAT_SECONDS
        await trio.sleep_until(due)
        seen.late = max(seen.late, trio.current_time() - due)


async def _asked(case: Socketed, cases: Sequence[Case], gate: Served, seen: Seen) -> None:
    async with trio.open_nursery() as nursery:
        for number, one in enumerate(cases):
            caller = Caller(case, f"ex-{number}", partial(_ended, gate, f"ex-{number}"))
            seen.callers.append((one, caller))
            for fault in one.faults or (None,):
                leave = _leaving(fault, gate) if fault is not None else None
                after = fault.at * TICK if fault is not None else 0.0
                nursery.start_soon(partial(caller.ask, gate.port, leave=leave, after=after))


def _ended(gate: Served, exchange: str) -> bool:
    return gate.end_of(exchange) is not None


def _leaving(fault: Fault, gate: Served) -> Callable[[Caller], None]:
    def leave(caller: Caller) -> None:
        stream = caller.stream
        assert stream is not None
        if stream.socket.fileno() < 0:
            return  # it has gone by itself
        match fault.who:
            case who if who == PROVIDER:
                for each in gate.providers:
                    each.reset(caller.exchange)
            case who if who == HALF:
                caller.leaves()
                with suppress(OSError):  # the gate has let it go, which it has not seen yet
                    stream.socket.shutdown(trio.socket.SHUT_WR)
            case who if who == RESET:
                caller.leaves()
                reset(stream)
            case _:
                caller.leaves()
                stream.socket.close()

    return leave


async def _quiet(gate: Served, seen: Seen) -> None:
    """Everything comes back by itself."""
    held: list[str] = []
    with trio.move_on_after(QUIET_SECONDS):
        while held := gate.left_behind():  # noqa: ASYNC110 - nothing tells
            await trio.sleep(0.005)
    seen.common += [f"I1 still held: {each}" for each in held]


async def _once_more(gate: Served, seen: Seen) -> None:
    """The gate is none the worse for it."""
    for each in gate.providers:
        each.over()
    caller = Caller(_FINE, AFTER)
    with trio.move_on_after(QUIET_SECONDS):
        await caller.ask(gate.port, leave=None, after=0.0)
    response = caller.response
    if not response.whole or response.status != 200 or response.read().text != FINE:
        seen.common.append(
            f"I1 one more request: status {response.status}, {bytes(response.body[:200])!r}"
        )


def _findings(
    case: Socketed, one: Case, caller: Caller, gate: Served, machine: float
) -> Iterator[str]:
    scenario = case.scenario
    gone = caller.left_at is not None
    end = gate.end_of(caller.exchange)
    for response in caller.responses or [caller.response]:
        yield from answer_findings(scenario, response, cut_off=gone)
    reads_on = any(each.who == HALF for each in one.faults) and scenario.asking.seconds
    if end is not None and gone and not scenario.asking.stuck and not reads_on:
        assert caller.left_at is not None  # one that reads on slowly is still being written to
        late = end[0] - caller.left_at
        if late > CLOSE_SECONDS + LATE_TIMES * machine:
            yield f"I12 ended {late:.2f} s after the caller had left"
    if one.faults or end is None:
        if end is None and not one.faults:
            yield "I13 no exchange, and nothing struck"
        return
    code = "" if end[1].outcome == OutcomeKind.SUCCESS.value else end[1].code
    if scenario.asking.stuck:
        # Whoever counts first, the kernel or the gate: both let it go, and neither waits until it does so itself.
        if code not in {scenario.code, "caller_gone"} or (
            gone and end[0] > (caller.left_at or 0.0)
        ):
            yield f"I12 a caller that takes nothing ended with {code!r}"
    elif code != scenario.code:
        yield f"I8 ended with {code!r} where nothing struck, not with {scenario.code!r}"
    if not gone and len([each for each in caller.responses if each.whole]) != case.pipelined:
        yield "I8 not every request was answered"


# --- the search ------------------------------------------------------------------------------------


def run_case(case: Case) -> tuple[Seen, list[str]]:
    """One case alone, and what it breaks."""
    seen = play(case.scenario, [case])
    return seen, [*seen.common, *(each for _, found in seen.findings for each in found)]


def explore(name: str, seed: int) -> Tally:
    """A batch at random moments, and some callers that nothing strikes."""
    tally, moments, many = Tally(), SOCKETED[name].moments, SOCKETED[name].many
    draw = Random(f"{name} {seed}")  # noqa: S311 - moments, no secret
    cases = [Case(name, ring=RING)] * PLAIN
    for at in range(many):
        moment = max(1, round(draw.uniform(0, moments) / TICK))
        cases.append(cases[0].with_fault(Fault(CANCEL, WHO[at % len(WHO)], moment)))
    seen = play(name, cases)
    tally.runs += len(cases)
    tally.points += many
    found = [(one, each) for one, each in seen.findings if each]
    tally.failures += [Failure(one, tuple(each)) for one, each in found]
    if seen.common:
        tally.failures.append(_blamed(cases, seen.common))
    return tally


def _blamed(cases: Sequence[Case], common: Sequence[str]) -> Failure:
    """The first case that shows the same alone, or the whole batch under its first case's name."""
    for one in dict.fromkeys(cases):
        findings = run_case(one)[1]
        if {each.split()[0] for each in findings} & {each.split()[0] for each in common}:
            return Failure(one, tuple(findings))
    return Failure(cases[-1], (*common, f"of {len(cases)} at once; none shows it alone"))
