"""In which shape an error reaches its caller where no answer has begun: a status, an event of a stream that has begun or that an older contract promises, and at each endpoint its own."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest
import trio
import trio.testing

from actors.context import Gateway
from gate.config import HoldConfig, RecoveryConfig
from gate.errors import UpstreamFault
from gate.observe import OutcomeKind
from tests.assembly_responses import read_events
from tests.doubles import (
    DONE,
    ROLE,
    STOP,
    Answer,
    Read,
    RecordingCaller,
    Records,
    ScriptedProvider,
    fails,
    gateway,
    healthy,
    left_behind,
    refuses,
    request,
    says,
    stalls,
    supervise,
    text,
)
from tests.responding import answer

BUFFERED: Final = HoldConfig(mode="buffered")
ONCE: Final = RecoveryConfig(attempts_max=1)
FORMAT: Final = {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "object"}}}
TOOLS: Final = [{"type": "function", "function": {"name": "sail", "parameters": {}}}]
FLAT: Final = json.dumps({"model": "small", "input": "Hi", "stream": True}).encode()
RESPONSES: Final = "/v1/responses"


# --- compat.buffered_error ------------------------------------------------------------------------


def older(*script: Answer, **policy: Any) -> Gateway:
    """A gateway that keeps the older contract."""
    values: dict[str, Any] = {"hold": BUFFERED, "recovery": ONCE, **policy}
    return gateway(ScriptedProvider(*script), streams_errors=True, **values)


@pytest.mark.parametrize(
    ("failing", "code", "type_"),
    [
        (fails(UpstreamFault.CONNECT), "provider_connect", "run_error"),
        (refuses(503), "provider_error", "run_error"),
        (refuses(400), "request_refused", "invalid_request_error"),
        (refuses(429, retry_after="9"), "rate_limited", "rate_limit_error"),
        (says(ROLE, text("a"), then=[Read(fault=UpstreamFault.CUT)]), "stream_cut", "run_error"),
        (says(ROLE, STOP, DONE), "empty_answer", "run_error"),
    ],
)
async def test_an_error_of_a_buffered_stream_is_an_event_of_it(
    failing: Answer, code: str, type_: str, autojump_clock: trio.testing.MockClock
) -> None:
    """Status 200, the headers of a stream, one event, and no end mark; nothing of the answer."""
    gate = older(failing)
    caller = RecordingCaller()
    outcome = await supervise(gate, caller)
    assert (caller.status, caller.headers[b"content-type"]) == (200, b"text/event-stream; charset=utf-8")  # fmt: skip
    assert caller.headers.keys().isdisjoint({b"content-length", b"retry-after", b"x-should-retry"})
    assert caller.headers[b"x-tidegate-attempts"] == b"1"
    error = json.loads(caller.received.removeprefix(b"data: "))["error"]
    assert (error["code"], error["type"]) == (code, type_)
    assert caller.received.count(b"\n\n") == 1
    assert (outcome.kind, outcome.code, outcome.status, outcome.framing) == (OutcomeKind.ERROR, code, 200, "chat_sse")  # fmt: skip
    assert left_behind(gate) == []


async def test_failed_validation_is_told_with_its_reason(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """A filter that needs the whole answer holds it like a buffered route does."""
    gate = older(healthy("[1]"), hold=HoldConfig(), filters=("structured_output",), structured_output="reject")  # fmt: skip
    caller = RecordingCaller(request(response_format=FORMAT))
    await supervise(gate, caller)
    error = json.loads(caller.received.removeprefix(b"data: "))["error"]
    assert (caller.status, error["type"], error["code"]) == (200, "output_policy_error", "schema_mismatch")  # fmt: skip
    assert "object" in error["message"]


@pytest.mark.parametrize(
    ("policy", "members", "held"),
    [
        ({"hold": HoldConfig()}, {}, False),
        ({"hold": HoldConfig()}, {"tools": TOOLS}, False),
        ({"hold": HoldConfig()}, {"response_format": FORMAT}, True),
        ({"hold": HoldConfig(), "structured_output": "check"}, {"response_format": FORMAT}, False),
        ({"hold": HoldConfig(), "output_policy": "strict"}, {"tools": TOOLS}, False),
        (
            {"hold": HoldConfig(), "output_policy": "strict"},
            {"tools": TOOLS, "tool_choice": "required"},
            True,
        ),
        ({}, {"tools": TOOLS}, True),
        ({}, {"stream": False}, False),
        ({"paths": ["tunnel"]}, {}, False),
    ],
)
async def test_only_what_is_held_to_its_end_is_told_so(
    policy: dict[str, Any],
    members: dict[str, Any],
    autojump_clock: trio.testing.MockClock,
    *,
    held: bool,
) -> None:
    """A live stream, a JSON object and a tunnel have statuses in the older contract too; tools alone hold nothing."""
    gate = older(refuses(503), filters=("structured_output",), **policy)
    caller = RecordingCaller(request(**members))
    await supervise(gate, caller)
    assert caller.status == (200 if held else 502)
    assert caller.code == "provider_error"


async def test_what_is_refused_without_an_attempt_has_its_status(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """A wrong request, an unknown model, no place: nothing was run that could be streamed."""
    gate = older(healthy("x"))
    for data, status in ((b"{", 400), (request(model="other"), 404)):
        caller = RecordingCaller(data)
        await supervise(gate, caller)
        assert caller.status == status
    gate = older(healthy("x"), capabilities=())
    caller = RecordingCaller(request(tools=TOOLS))
    await supervise(gate, caller)
    assert caller.status == 503


async def test_an_answer_that_is_made_good_is_a_stream_like_any_other(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """The contract is about errors alone."""
    gate = older(refuses(503), healthy("He", "llo"), recovery=RecoveryConfig())
    caller = RecordingCaller()
    await supervise(gate, caller)
    assert (caller.status, caller.text) == (200, "Hello")
    assert caller.received.endswith(DONE)


async def test_todays_contract_has_a_status(autojump_clock: trio.testing.MockClock) -> None:
    """Without the key."""
    caller = RecordingCaller()
    gate = gateway(ScriptedProvider(refuses(503)), hold=BUFFERED, recovery=ONCE)
    await supervise(gate, caller)
    assert (caller.status, caller.headers[b"x-should-retry"]) == (502, b"false")


async def test_the_drains_end_is_told_in_the_stream_as_well(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """It was attempted, and held."""
    gate = older(stalls(ROLE, text("a")))
    caller = RecordingCaller()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(supervise, gate, caller)
        await trio.sleep(1)
        gate.open.shut_down()
    assert (caller.status, caller.code) == (200, "shutdown")
    assert caller.headers[b"connection"] == b"close"


# --- an early comment has begun the stream, and no answer ever does ---------------------------------

PINGED: Final = HoldConfig(ping_seconds=15, pings_commit=True)


async def pinged(
    *script: Answer, endpoint: str = RESPONSES, data: bytes = FLAT, drain: bool = False
) -> tuple[RecordingCaller, Records]:
    """An exchange whose first comment goes out before its provider has answered."""
    records = Records()
    gate = gateway(ScriptedProvider(*script), hold=PINGED, recovery=ONCE, records=records)
    caller = RecordingCaller(data)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: supervise(gate, caller, endpoint=endpoint))
        if drain:
            await trio.sleep(20)
            gate.open.shut_down()
    assert left_behind(gate) == []
    assert caller.received.startswith(b": keep-alive\n\n")
    return caller, records


@pytest.mark.parametrize(
    ("failing", "code", "said", "drain"),
    [
        (refuses(503, after=20), "server_error", "The provider failed to answer.", False),
        (refuses(400, after=20), "server_error", "The provider refused the request.", False),
        (refuses(429, retry_after="9", after=20), "rate_limit_exceeded", "The provider's rate limit is reached. Try again later.", False),
        (refuses(503, after=90), "server_error", "The gateway is shutting down. Try again.", True),
    ],
)  # fmt: skip
async def test_responses_fail_as_a_response(
    failing: Answer, code: str, said: str, autojump_clock: trio.testing.MockClock, *, drain: bool
) -> None:
    """A whole, legal stream of events: one response, of our own name, that begins and fails; numbered, and with no error in the shape of chat."""
    data = json.dumps({"model": "small", "input": "Hi", "stream": True, "temperature": 0.5})
    caller, records = await pinged(failing, data=data.encode(), drain=drain)
    assert records.crashes == []
    seen = read_events(caller.received)
    assert seen.kinds == ["created", "in_progress", "failed"]
    assert {each["response"]["id"] for each in seen.events} == {"resp_ex-1"}
    failed = seen.response
    assert (failed["status"], failed["model"], failed["temperature"]) == ("failed", "small", 0.5)
    assert failed["error"] == {"code": code, "message": said}
    assert failed["output"] == []


async def test_an_answer_behind_a_comment_has_its_own_name(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """What was made ready for an error leaves no trace."""
    late = Answer([Read(answer("He", "llo"))], head_after=20)
    caller, _ = await pinged(late)
    seen = read_events(caller.received)
    assert (seen.text, seen.kinds[-1]) == ("Hello", "completed")
    assert b"resp_ex-1" not in caller.received


async def test_chat_fails_in_its_own_shape(autojump_clock: trio.testing.MockClock) -> None:
    """One event without a name."""
    caller, _ = await pinged(
        refuses(503, after=20), endpoint="/v1/chat/completions", data=request()
    )
    assert caller.code == "provider_error"
    assert b"event:" not in caller.received


@pytest.mark.parametrize("pings_commit", [True, False])
@pytest.mark.parametrize("stream", [True, False])
async def test_where_nothing_has_begun_responses_have_a_status(
    autojump_clock: trio.testing.MockClock, *, pings_commit: bool, stream: bool
) -> None:
    """And the envelope, as every endpoint."""
    hold = HoldConfig(pings_commit=pings_commit)
    caller = RecordingCaller(
        json.dumps({"model": "small", "input": "Hi", "stream": stream}).encode()
    )
    gate = gateway(ScriptedProvider(refuses(503)), hold=hold, recovery=ONCE)
    await supervise(gate, caller, endpoint=RESPONSES)
    assert (caller.status, json.loads(caller.received)["error"]["code"]) == (502, "provider_error")
