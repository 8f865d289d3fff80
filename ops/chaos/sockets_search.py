"""The search of ring 3: many callers at once on one served gate, most of them struck at a random moment, the others owed their answer; then quiet, a look at what is held, and one more request.

Who strikes: `caller` closes, `reset` resets, `half` closes its sending side, `provider` resets what the exchange has open there, `stop` tells the whole service to stop; at so many tenths of a millisecond after
the caller has begun. The moments come from a seed, and a case names its own. A case that is repeated meets another step of the program: the line says what was done, not what came of it.
"""

from __future__ import annotations

import gc
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Final

import trio

from ops.chaos.cases import CALLER, CANCEL, HALF, PROVIDER, RESET, STOP, Case, Fault
from ops.chaos.explore import Failure, Tally
from ops.chaos.hosts import AFTER, FINE, FINE_REQUEST
from ops.chaos.run import warnings_kept
from ops.chaos.scenario import Asking, Scenario
from ops.chaos.sockets import DRAIN_SECONDS, Life, Served, Socketed, descriptors, served, threads
from ops.chaos.sockets_callers import Caller
from ops.chaos.sockets_checks import LATE_TIMES, caller_findings
from ops.chaos.sockets_scenarios import SOCKETED
from ops.chaos.wired import leaves, said
from transport.serve import FAREWELL_SECONDS

__all__ = ["RING", "Seen", "explore", "play", "run_case"]

RING: Final = 3
STRIKERS: Final = (CALLER, RESET, HALF, PROVIDER)  # of one caller's exchange
WHO: Final = (*STRIKERS, STOP)
TICK: Final = 0.0001  # seconds
MOMENT_MAX: Final = 300_000  # ticks: well before `RUN_SECONDS`
QUIET_SECONDS: Final = 10.0  # in which everything has to come back
RUN_SECONDS: Final = 60.0
STOP_SECONDS: Final = FAREWELL_SECONDS + 0.5  # terminals that somebody still has to take
BEAT_SECONDS: Final = 0.01  # between two looks at how late this process comes
PLAIN: Final = 4  # callers of a batch that nothing strikes
LATECOMERS: Final = (0.0, 0.001, 0.01, 0.1, 0.2)  # seconds behind the order to stop

_FINE: Final = Scenario(about="one more", targets=[], asking=Asking((FINE_REQUEST,)))


@dataclass(eq=False)
class Seen:
    """What a batch came to. `findings`: of each case; `common`: of all together; `late`: by how many seconds the process came late at most; `struck`: the faults that have found something to strike."""

    callers: list[tuple[Case, Caller]] = field(default_factory=list)
    findings: list[tuple[Case, list[str]]] = field(default_factory=list)
    common: list[str] = field(default_factory=list)
    late: float = 0.0
    struck: list[Fault] = field(default_factory=list)


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
        if gate.life.stopped_at is not None:
            with trio.move_on_after(QUIET_SECONDS):
                await gate.life.over.wait()
        await _quiet(gate, seen)
        if gate.life.stopped_at is None:
            await _once_more(case, gate, seen)
        for one, caller in seen.callers:
            seen.findings.append((one, list(caller_findings(one, caller, gate, seen.late))))
        seen.common += [f"I11 {said(leaf)}" for error in gate.crashes for leaf in leaves(error)]
        seen.common += [
            f"I11 {line}" for line in gate.log.getvalue().splitlines() if "_failed" in line
        ]
    _stopped(gate.life, seen)


def _stopped(life: Life, seen: Seen) -> None:
    """In time, and by itself."""
    assert life.stopped_at is not None
    assert life.over_at is not None
    took = life.over_at - life.stopped_at - DRAIN_SECONDS
    if took > STOP_SECONDS + LATE_TIMES * seen.late:
        seen.common.append(f"I12 the service took {took:.1f} s to stop, behind its drain")
    if life.hung:
        seen.common.append("I0 the service did not come to its end")


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
            caller = _caller(case, one, f"ex-{number}", gate, seen)
            own = [each for each in one.faults if each.who != STOP]
            strikes = [(each.at * TICK, partial(_strike, each, gate, seen)) for each in own]
            nursery.start_soon(caller.ask, gate.port, strikes)
            for each in one.faults:
                if each.who == STOP:
                    nursery.start_soon(_stop, case, one, each, gate, seen)


def _caller(case: Socketed, one: Case, name: str, gate: Served, seen: Seen) -> Caller:
    caller = Caller(case, name, partial(_ended, gate, name))
    seen.callers.append((one, caller))
    return caller


async def _stop(case: Socketed, one: Case, fault: Fault, gate: Served, seen: Seen) -> None:
    """The service is told to stop, and some come too late."""
    await trio.sleep(fault.at * TICK)
    gate.life.stop()
    seen.struck.append(fault)
    async with trio.open_nursery() as nursery:
        for number, late in enumerate(LATECOMERS):
            caller = _caller(case, one, f"late-{number}", gate, seen)
            nursery.start_soon(_ask_late, caller, late, gate)


async def _ask_late(caller: Caller, late: float, gate: Served) -> None:
    await trio.sleep(late)
    await caller.ask(gate.port)


def _ended(gate: Served, exchange: str) -> bool:
    return gate.end_of(exchange) is not None or gate.life.over.is_set()


def _strike(fault: Fault, gate: Served, seen: Seen, caller: Caller) -> None:
    """Where there is still something to strike."""
    assert caller.stream is not None
    if caller.stream.socket.fileno() >= 0 and _hit(fault, gate, caller):
        seen.struck.append(fault)


def _hit(fault: Fault, gate: Served, caller: Caller) -> bool:
    """Strikes; False where what it is meant for has gone."""
    assert caller.stream is not None
    match fault.who:
        case who if who == PROVIDER:
            hits = [each.reset(caller.exchange) for each in gate.providers]
            return any(hits)
        case who if who == HALF:
            caller.leaves()
            try:
                caller.stream.socket.shutdown(trio.socket.SHUT_WR)
            except OSError:  # the gate has let it go, which it has not seen yet
                return False
            return True
        case who if who == RESET:
            return caller.reset()
        case _:
            caller.leaves()
            caller.stream.socket.close()
            return True


async def _quiet(gate: Served, seen: Seen) -> None:
    """Everything comes back by itself."""
    held: list[str] = []
    with trio.move_on_after(QUIET_SECONDS):
        while held := gate.left_behind():  # noqa: ASYNC110 - nothing tells
            await trio.sleep(0.005)
    seen.common += [f"I1 still held: {each}" for each in held]


async def _once_more(case: Socketed, gate: Served, seen: Seen) -> None:
    """The gate is none the worse for it."""
    for each in gate.providers:
        each.over()
    caller = Caller(Socketed(scenario=_FINE, http2=case.http2, tls=case.tls), AFTER)
    with trio.move_on_after(QUIET_SECONDS):
        await caller.ask(gate.port)
    response = caller.response
    if not response.whole or response.status != 200 or response.read().text != FINE:
        seen.common.append(
            f"I1 one more request: status {response.status}, {bytes(response.body[:200])!r}"
        )


# --- the search ------------------------------------------------------------------------------------


def run_case(case: Case) -> tuple[Seen, list[str]]:
    """One case alone, and what it breaks."""
    seen = play(case.scenario, [case])
    return seen, [*seen.common, *(each for _, found in seen.findings for each in found)]


def explore(name: str, seed: int) -> Tally:
    """A batch at random moments, and some callers that nothing strikes; with an odd seed more of these, and the service is told to stop."""
    many, plain = SOCKETED[name].many, Case(name, ring=RING)
    draw = Random(f"{name} {seed}")  # noqa: S311 - moments, no secret
    struck = [_drawn(name, STRIKERS[at % len(STRIKERS)], draw) for at in range(many)]
    if seed % 2:
        cases = [_drawn(name, STOP, draw), *struck[: many // 3], *[plain] * (many // 3)]
    else:
        cases = [*[plain] * PLAIN, *struck]
    return _batch_of(name, cases)


def _drawn(name: str, who: str, draw: Random) -> Case:
    moment = max(1, round(draw.uniform(0, SOCKETED[name].moments) / TICK))
    return Case(name, ring=RING).with_fault(Fault(CANCEL, who, moment))


def _batch_of(name: str, cases: Sequence[Case]) -> Tally:
    """Plays it, and counts."""
    tally, seen = Tally(), play(name, cases)
    tally.runs += len(cases)
    tally.points += sum(bool(each.faults) for each in cases)
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
