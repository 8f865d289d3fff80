"""What holds of the bytes that a caller got, whatever struck: I4, I6 to I10, I14 and I18 of `ops.chaos.invariants`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from gate.observe import Outcome, OutcomeKind
from ops.chaos.cases import CALLER, DRAIN, REQUEST
from ops.chaos.inject import Strike, line_of
from ops.chaos.reading import Read, plain, read_body, read_events
from ops.chaos.run import Run
from ops.chaos.wire import ALIAS
from ops.chaos.wired import short, words

__all__ = ["outcome_told", "wire"]

OUTER: Final = frozenset({"sink", "ingress", "watch", "exchange"})
"""Where a cancel strikes the nursery that the sink runs in."""
FOR_THE_SINK: Final = ("releases.send(", "written.receive(")
"""Where the exchange's own task waits for the sink and for nothing else. No line of ours runs in such a step, so no bug of ours ends it there."""
SUDDEN: Final = frozenset({"caller.start", "caller.write", "caller.end"})


def wire(run: Run) -> Iterator[str]:
    caller = run.stage.caller
    for each in caller.misuse:
        number = "I14" if "farewell" in each else "I6" if "torn" in each else "I4"
        yield f"{number} {each}"
    if caller.starts > 1:
        yield "I18 two response starts"
    outcome, endpoint = run.outcome, run.scenario.endpoint
    streamed = caller.headers.get(b"content-type", b"").startswith(b"text/event-stream")
    if outcome is not None and not cut_off(run) and outcome.status != caller.status:
        yield f"I18 status {outcome.status} told, {caller.status} written"
    if caller.aborted and (streamed or not run.scenario.tunnels):
        yield "I10 broken off, where an error could have been told"
    if not caller.received:
        yield from _without_a_word(run)
    elif streamed:
        yield from _streamed(run, read_events(endpoint, bytes(caller.received)))
    else:
        yield from _whole(run)


def _without_a_word(run: Run) -> Iterator[str]:
    caller = run.stage.caller
    if caller.ended and caller.status:
        yield "I7 an end without a body"
    yield from _terminal(run, 0)


def _whole(run: Run) -> Iterator[str]:
    caller = run.stage.caller
    said = caller.headers.get(b"content-length", b"" if run.scenario.tunnels else b"none")
    whole = said == b"%d" % len(caller.received) if said else caller.ended
    if not whole or caller.aborted:
        if not cut_off(run):
            yield from _in_parts(run, said.decode() or "more")
        return
    read = read_body(run.scenario.endpoint, bytes(caller.received))
    if (caller.status == 200) == bool(read.error):
        yield f"I18 status {caller.status} with {'an error' if read.error else 'an answer'}"
    read.done = read.done and caller.ended
    yield from _answer(run, read)
    yield from _terminal(run, 1 if caller.ended else 0)


def _in_parts(run: Run, length: str) -> Iterator[str]:
    """A body that is not whole: of what comes through a tunnel it may be broken off."""
    scenario, caller = run.scenario, run.stage.caller
    if not caller.aborted:
        yield f"I7 a body of {len(caller.received)} bytes where {length} were said"
    if scenario.relays:
        yield from _answer(run, Read(text=caller.received.decode("latin-1")))
    elif not any(each.startswith(caller.received) for each in scenario.bodies(ALIAS)):
        yield f"I7 not its provider's: {bytes(caller.received[:60])!r}"


def _streamed(run: Run, read: Read) -> Iterator[str]:
    if run.stage.caller.status != 200:
        yield f"I18 an event stream under status {run.stage.caller.status}"
    if read.torn and not cut_off(run):
        yield "I7 half an event"
    if run.scenario.tunnels:
        # Nothing is added to a provider's bytes: where it sends no `[DONE]`, its finish is the end.
        read.done = read.done or bool(run.stage.caller.ended and read.finishes and not read.error)
        yield from _raw(run, bytes(run.stage.caller.received))
    wrong = [each for each in read.wrong if each not in run.scenario.quirks]
    yield from (f"{'I6' if 'behind' in each else 'I7'} {each}" for each in wrong)
    yield from _answer(run, read)
    yield from _terminal(run, read.terminals)


def _raw(run: Run, received: bytes) -> Iterator[str]:
    """Where every answer comes through a tunnel, each event but an error is its provider's, with the model's name in it another; one in the other form than was asked for is framed anew."""
    scenario = run.scenario
    if run.outcome is not None and not run.outcome.framing.startswith("tunnel"):
        return
    if set(scenario.paths) != {"tunnel"} or cut_off(run):
        return
    said = scenario.events(ALIAS)
    for event in plain(received).split(b"\n\n")[:-1]:
        if event not in said and b'"error"' not in event:
            yield f"I7 not its provider's: {event[:60]!r}"


def _answer(run: Run, read: Read) -> Iterator[str]:
    scenario = run.scenario
    if scenario.varies and run.struck:
        return
    yield from words(scenario, read, cut_off=cut_off(run))
    yield from _passed(run, read.text)


def _passed(run: Run, text: str) -> Iterator[str]:
    """The filters that decide have let it through."""
    for service in run.stage.services.values():
        if not service.decides:
            continue
        if not any(each.startswith(text) for each in [*service.passed.values(), ""]):
            yield f"I9 {short(text)} was not passed by {service.name}"


def _terminal(run: Run, terminals: int) -> Iterator[str]:
    """One, unless the caller has left or the sink could not write it."""
    caller = run.stage.caller
    if caller.ended and caller.status == 200 and terminals != 1 and not cut_off(run):
        yield f"I10 an end with {terminals} terminals"
    if terminals > caller.ended and not cut_off(run):
        yield "I10 a terminal, and no end"
    if not caller.ended and not caller.aborted and not cut_off(run):
        yield "I10 no terminal, and the caller is there"


def cut_off(run: Run) -> bool:
    """The response may stop anywhere: the caller has left, the exchange was cancelled from outside, or one of those was struck that hold the sink."""
    if run.stage.caller.left_at is not None or SUDDEN & set(run.stage.calls.failed):
        return True
    return any(
        each.hit and each.fault.who not in {CALLER, DRAIN} and _holds_the_sink(each)
        for each in run.injector.strikes
    )


def _holds_the_sink(strike: Strike) -> bool:
    """Whether the sink goes with whoever was struck."""
    if strike.error is None:
        return strike.fault.who == REQUEST or strike.actor in OUTER
    waits = strike.actor == "exchange" and any(
        each in line_of(strike.sites) for each in FOR_THE_SINK
    )
    return strike.actor == "sink" or waits


def outcome_told(run: Run) -> Iterator[str]:
    """It says what was written; and a scenario that nothing struck ends as it is meant to."""
    outcome, caller = run.outcome, run.stage.caller
    if outcome is None:
        if not any(each.hit and each.fault.who == REQUEST for each in run.injector.strikes):
            yield f"I13 no outcome, and nobody cancelled it: {run.escaped!r}"
        return
    if outcome.kind is not OutcomeKind.ABANDONED and not cut_off(run):
        if not caller.ended and not (caller.aborted and outcome.code):
            yield f"I10 {outcome.kind.value} without an end"
        if outcome.bytes_out != len(caller.received):
            yield f"I18 {outcome.bytes_out} bytes told, {len(caller.received)} written"
        if outcome.code and caller.ended and not _heard(run).error:
            yield f"I10 {outcome.code} told, and the caller saw a clean end"
    yield from _as_meant(run, outcome)


def _as_meant(run: Run, outcome: Outcome) -> Iterator[str]:
    """Nobody is said to have left who is there; and where nothing strikes, the end is the scenario's."""
    caller, heard = run.stage.caller, _heard(run).text
    gone = caller.left_at is not None or outcome.code == "caller_too_slow"
    if outcome.kind is OutcomeKind.ABANDONED and not gone and not cut_off(run):
        yield f"I10 {outcome.code}, and the caller is there"
    if not run.struck and outcome.code != run.scenario.code:
        yield f"I8 ended with {outcome.code!r} where nothing struck, not with {run.scenario.code!r}"
    if not run.struck and not heard.startswith(run.scenario.gets):
        yield f"I8 its caller got {short(heard)} where nothing struck, not {short(run.scenario.gets)}"
    if not run.struck and not outcome.code and not caller.ended:
        yield "I8 a success that the caller did not get"


def _heard(run: Run) -> Read:
    """What the caller makes of all that it has got; of half a JSON body nothing but its bytes."""
    caller, endpoint = run.stage.caller, run.scenario.endpoint
    received = bytes(caller.received)
    if caller.headers.get(b"content-type", b"").startswith(b"text/event-stream"):
        return read_events(endpoint, received)
    if caller.ended and received:
        return read_body(endpoint, received)
    return Read(text=received.decode("latin-1"))
