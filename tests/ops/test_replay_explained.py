"""Replay of exchanges that were explained, or whose providers were asked for usage: what explains is no part of the recording, and what is asked follows from the configuration."""

from __future__ import annotations

from typing import Any

import pytest

from gate.explain import EXPLAINED_HEADERS
from gate.trace import CallerEvent, ResponseHead, Term
from ops.replay_result import Class, verify
from tests.doubles import (
    DONE,
    ROLE,
    STOP,
    RecordingCaller,
    ScriptedProvider,
    SlowCaller,
    cut,
    event,
    healthy,
    request,
    says,
    text,
)
from tests.tracing import Recording, tables, take

EXPLAINED = request(metadata={"trace_stream": "true"})
USAGE = event({"choices": [], "usage": {"completion_tokens": 4}})


@pytest.mark.parametrize("path", ["normalized", "tunnel"])
@pytest.mark.parametrize("slow", [False, True])
def test_an_explained_exchange_replays_like_any_other(path: str, *, slow: bool) -> None:
    """The tape has the answer's bytes and no comment among them; a replay explains as well, and is compared without that."""
    caller = SlowCaller(EXPLAINED, seconds=0.3) if slow else RecordingCaller(EXPLAINED)
    providers = [ScriptedProvider(cut()), ScriptedProvider(healthy("He", "llo", every=0.1))]
    trace = take(Recording(tables(2, provider={"path": path}), providers, caller))
    assert b": tidegate " in caller.received
    (term,) = [each for each in trace.records if isinstance(each, Term)]
    assert term.size < len(caller.received)
    (head,) = [each for each in trace.records if isinstance(each, ResponseHead)]
    assert not {name.encode() for name, _ in head.headers} & EXPLAINED_HEADERS
    blocked = [each for each in trace.records if isinstance(each, CallerEvent)]
    assert bool(blocked) is slow
    assert verify("", trace).kind is Class.SAME


@pytest.mark.parametrize("path", ["normalized", "tunnel"])
def test_a_body_that_asks_for_usage_is_made_again(path: str) -> None:
    """Attempts are found by the digest of what was sent, and that depends on the provider's keys."""
    provider: dict[str, Any] = {"path": path, "ask_usage": True, "idempotency_header": True}
    answer = says(ROLE, text("He"), STOP, USAGE, DONE)
    trace = take(Recording(tables(1, provider=provider), [ScriptedProvider(answer)]))
    assert verify("", trace).kind is Class.SAME


def test_an_error_in_the_older_shape_replays() -> None:
    """It is in the configuration, too."""
    raw = tables(
        1,
        route={"hold": {"mode": "buffered"}, "recovery": {"attempts_max": 1}},
        compat={"buffered_error": "stream"},
    )
    caller = RecordingCaller()
    trace = take(Recording(raw, [ScriptedProvider(cut("He"))], caller))
    assert (caller.status, caller.code) == (200, "stream_cut")
    assert verify("", trace).kind is Class.SAME
