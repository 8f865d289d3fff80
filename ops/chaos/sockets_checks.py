"""What holds of each caller of ring 3, and of its exchange."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from gate.observe import Observation, OutcomeKind
from ops.chaos.cases import HALF, STOP, Case
from ops.chaos.scenario import Scenario
from ops.chaos.sockets import DRAIN_SECONDS, Served
from ops.chaos.sockets_callers import Caller
from ops.chaos.wired import answer_findings

__all__ = ["LATE_TIMES", "caller_findings"]

CLOSE_SECONDS: Final = (
    0.1  # from the caller's leaving to the end of its exchange, on a machine that does nothing else
)
LATE_TIMES: Final = 20  # so many turns of the loop lie between, each of which may come as late
CLOCKS: Final = frozenset({"headers_timeout", "first_content_timeout", "json_timeout"})
REFUSAL: Final = Scenario(about="what the door says", targets=[])
REFUSED: Final = "draining"  # what comes when the service has been told to stop
ENDED: Final = "shutdown"  # what is not over when its drain is


def caller_findings(one: Case, caller: Caller, gate: Served, machine: float) -> Iterator[str]:
    """`machine`: by how many seconds this process came late at most."""
    scenario = caller.case.scenario
    gone, end = caller.cut_off(_first(caller)), _end_of(caller, gate)
    unserved = [_unserved(caller, number, gate) for number in range(len(caller.responses))]
    for number, response in enumerate(caller.responses):
        if not unserved[number]:
            cut_off = caller.cut_off(number) or scenario.asking.stuck
            refused = caller.case.refuses(number)
            expected = REFUSAL if refused else scenario
            yield from answer_findings(expected, response, cut_off=cut_off)
            if refused and not cut_off and gate.life.stopped_at is None:
                yield from _refusal(caller)
    struck = [each for each in one.faults if each.who != STOP]
    reads_on = any(each.who == HALF for each in struck) and scenario.asking.seconds
    if end is not None and gone and not scenario.asking.stuck and not reads_on:
        assert caller.left_at is not None  # one that reads on slowly is still being written to
        late = end[0] - caller.left_at
        if late > CLOSE_SECONDS + LATE_TIMES * machine:
            yield f"I12 ended {late:.2f} s after the caller had left"
    # A clock that strikes because this process had no time to go on says nothing.
    starved = LATE_TIMES * machine > scenario.route.clocks.headers_seconds
    if not struck and not (starved and end is not None and end[1].code in CLOCKS):
        yield from _answered(caller, gate, unserved)


def _first(caller: Caller) -> int:
    """The number of the first request that is to become an exchange."""
    return int(caller.case.refuses(0))


def _end_of(caller: Caller, gate: Served) -> tuple[float, Observation] | None:
    """When and how its first exchange ended."""
    return gate.end_of(caller.name(_first(caller)))


def _refusal(caller: Caller) -> Iterator[str]:
    """Its caller has read it to the end, however much of its body was still to come."""
    if _error(caller) != caller.case.refused:
        yield f"I13 refused with {caller.response.status} {_error(caller)!r}, not {caller.case.refused!r}"


def _unserved(caller: Caller, number: int, gate: Served) -> bool:
    """A service that stops may close its doors on a request that it has not begun. Its word of that may be lost where more requests stand behind it, which nobody reads: the kernel answers those with a reset."""
    response, case = caller.responses[number], caller.case
    piled = case.pipelined > 1 and not case.http2
    if gate.life.stopped_at is None or response.status not in {0, *([503] if piled else [])}:
        return False
    return not any(each.exchange == caller.name(number) for _, each in gate.told)


def _answered(caller: Caller, gate: Served, unserved: list[bool]) -> Iterator[str]:
    """One that nothing struck gets what its scenario says, or hears that the service stops."""
    scenario, end = caller.case.scenario, _end_of(caller, gate)
    gone, stopped = caller.left_at is not None, gate.life.stopped_at is not None
    if end is None:
        told = {REFUSED, caller.case.refused or REFUSED}
        if not stopped and caller.case.pipelined > _first(caller):
            yield "I13 no exchange, and nothing struck"
        elif stopped and not (caller.refused or all(unserved) or _error(caller) in told):
            yield f"I13 no exchange, and {caller.response.status} {_error(caller)!r}"
        return
    code = "" if end[1].outcome == OutcomeKind.SUCCESS.value else end[1].code
    if scenario.asking.stuck:
        # Whoever counts first, the kernel or the gate: both let it go, and neither waits until it does so itself.
        late = gone and end[0] > (caller.left_at or 0.0)
        expected = code in {scenario.code, "caller_gone"} or _stops(gate, *end, caller)
        if late or not expected:
            yield f"I12 a caller that takes nothing ended with {code!r}"
    elif code != scenario.code and not _stops(gate, *end, caller):
        yield f"I8 ended with {code!r} where nothing struck, not with {scenario.code!r}"
    whole = [each for each in caller.responses if each.whole]
    reads = not (gone or scenario.asking.stuck)
    if reads and len(whole) + sum(unserved) != caller.case.pipelined and not stopped:
        yield "I8 not every request was answered"


def _stops(gate: Served, at: float, told: Observation, caller: Caller) -> bool:
    """Whether an exchange may end like this at this time because the service stops: where it would need another attempt, that may be more than the drain has time for."""
    since = gate.life.stopped_at
    if since is None or at < since or told.outcome == OutcomeKind.SUCCESS.value:
        return False
    several = sum(map(len, caller.case.scenario.targets)) > 1
    return several or told.code == REFUSED or (told.code == ENDED and at >= since + DRAIN_SECONDS)


def _error(caller: Caller) -> str:
    """That its first answer tells; empty where it tells none."""
    return (
        caller.response.read(caller.case.scenario.endpoint).error if caller.response.whole else ""
    )
