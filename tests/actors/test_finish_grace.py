"""The time between an answer's last finish reason and its end, in a tunnel: `[DONE]` is never added, and never taken away from what has come."""

from __future__ import annotations

import json
from typing import Final

import pytest
import trio
import trio.testing

from gate.config import ClocksConfig, PathKind
from gate.errors import UpstreamFault
from gate.observe import OutcomeKind
from tests.doubles import (
    COMMENT,
    DONE,
    ERROR_EVENT,
    FOREVER,
    ROLE,
    STOP,
    Answer,
    Read,
    RecordingCaller,
    ScriptedProvider,
    event,
    gateway,
    left_behind,
    supervise,
    text,
)

TUNNEL: Final[list[PathKind]] = ["tunnel"]
SILENCE: Final = Read(after=FOREVER)
LATE_CUT: Final = Read(after=0.5, fault=UpstreamFault.CUT)
USAGE: Final = event({"choices": [], "usage": {"completion_tokens": 3}})
CRLF: Final = STOP.replace(b"\n", b"\r\n")


@pytest.mark.parametrize(
    ("reads", "behind", "at"),
    [
        ([Read(STOP), Read(DONE, after=1.5)], STOP + DONE, 1.5),
        ([Read(STOP + DONE + COMMENT), SILENCE], STOP + DONE, 0.0),
        ([Read(STOP), Read(DONE, after=2.5)], STOP, 2.0),
        ([Read(STOP), SILENCE], STOP, 2.0),
        ([Read(STOP)], STOP, 0.0),
        ([Read(STOP), Read(USAGE, after=1), Read(DONE, after=1.5)], STOP + USAGE, 2.0),
        ([Read(STOP), Read(COMMENT, after=1), SILENCE], STOP + COMMENT, 2.0),
        ([Read(STOP), Read(b"\n: one\n: tw", after=1), SILENCE], STOP + b"\n: one\n", 2.0),
        ([Read(STOP), Read(b"data: [DO", after=1), Read(b"NE]\n\n", after=5)], STOP, 2.0),
        ([Read(STOP), Read(b"data: [DO", after=1)], STOP, 1.0),
        ([Read(CRLF[:-1]), Read(b"\n", after=1), SILENCE], CRLF, 2.0),
        ([Read(STOP), Read(COMMENT), LATE_CUT], STOP + COMMENT, 0.5),
        ([Read(STOP), Read(b"data: [DO"), LATE_CUT], STOP, 0.5),
        ([Read(STOP), Read(ERROR_EVENT, after=1), Read(DONE, after=0.5)], STOP + DONE, 1.5),
        ([Read(STOP), Read(ERROR_EVENT, after=1), SILENCE], STOP, 2.0),
    ],
)
async def test_what_has_come_in_time_ends_the_answer(
    reads: list[Read], behind: bytes, at: float, autojump_clock: trio.testing.MockClock
) -> None:
    """A complete answer ends cleanly, with the provider's own bytes up to there: whole events and whole comments, no half of one, no error, and no end mark that did not come."""
    provider = ScriptedProvider(Answer([Read(ROLE + text("a")), *reads]))
    gate = gateway(provider, paths=TUNNEL, clocks=ClocksConfig(finish_grace_seconds=2.0))
    caller = RecordingCaller()
    outcome = await supervise(gate, caller)
    wanted = (ROLE + text("a") + behind).replace(b'"model":"m"', b'"model":"small"')
    assert caller.received == wanted
    assert (outcome.kind, caller.ended, caller.aborted) == (OutcomeKind.SUCCESS, True, False)
    assert (caller.ended_at, provider.asked[0].closed_at) == (at, at)
    assert left_behind(gate) == []


async def test_a_held_body_ends_alike(autojump_clock: trio.testing.MockClock) -> None:
    """For a caller that wants no stream the same bytes are one body."""
    reads = [Read(event({"type": "response.completed"})), Read(COMMENT), SILENCE]
    gate = gateway(ScriptedProvider(Answer(reads)))
    caller = RecordingCaller(b"")
    await supervise(gate, caller, endpoint="/v1/responses/r", method="GET")
    assert caller.received == event({"type": "response.completed"}) + COMMENT
    assert caller.headers[b"content-length"] == str(len(caller.received)).encode()


async def test_the_normalized_path_says_its_own_end_mark(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Once, whether the provider's came or not."""
    for reads in ([Read(STOP), SILENCE], [Read(STOP), Read(DONE, after=5)], [Read(STOP + DONE)]):
        gate = gateway(ScriptedProvider(Answer([Read(ROLE + text("a")), *reads])))
        caller = RecordingCaller()
        await supervise(gate, caller)
        assert caller.received.count(DONE) == 1
        assert caller.received.endswith(DONE)
        assert json.loads(caller.received.split(b"data: ")[-2])["choices"][0]["finish_reason"] == "stop"  # fmt: skip
