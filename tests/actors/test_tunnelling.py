"""Whole exchanges through a tunnel: the provider's bytes, watched; recovery before the first of them; what is said when they break off behind it."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest
import trio

from gate.config import (
    ClocksConfig,
    FilterConfig,
    HoldConfig,
    LimitsConfig,
    PathKind,
    RecoveryConfig,
)
from gate.errors import UpstreamFault
from gate.observe import OutcomeKind, What
from tests.doubles import (
    COMMENT,
    DONE,
    ERROR_EVENT,
    JSON,
    ROLE,
    SSE,
    STOP,
    Answer,
    Read,
    RecordingCaller,
    Records,
    ScriptedProvider,
    body,
    cut,
    event,
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
    whole,
)

TUNNEL: Final[list[PathKind]] = ["tunnel"]
BOTH: Final[list[PathKind]] = ["tunnel", "tunnel"]
LATE_CUT: Final = Read(fault=UpstreamFault.CUT)


def echoed(*pieces: bytes) -> bytes:
    """The bytes with the alias in the place of the provider's name."""
    return b"".join(pieces).replace(b'"model":"m"', b'"model":"small"')


async def test_a_stream_is_relayed_byte_by_byte(autojump_clock: trio.abc.Clock) -> None:
    """Comments, blank lines, `[DONE]`; nothing of ours is added, and the provider's headers come with it."""
    pieces = [b"\n", COMMENT, ROLE, text("He"), COMMENT, b"\r\n\n", text("llo"), STOP, COMMENT, DONE, b"\n"]  # fmt: skip
    answer = Answer(
        [Read(piece) for piece in pieces],
        201,
        [*SSE, (b"set-cookie", b"a=b"), (b"x-ratelimit-limit-requests", b"7"), (b"server", b"up")],
    )
    provider = ScriptedProvider(answer)
    caller = RecordingCaller()
    outcome = await supervise(gateway(provider, paths=TUNNEL), caller)
    assert caller.received == echoed(*pieces[:-1])
    assert (outcome.kind, outcome.framing, outcome.mode) == (OutcomeKind.SUCCESS, "tunnel_sse", "passthrough")  # fmt: skip
    assert (caller.status, caller.headers) == (
        201,
        {
            b"content-type": b"text/event-stream",
            b"x-ratelimit-limit-requests": b"7",
            b"cache-control": b"no-cache",
            b"x-accel-buffering": b"no",
            b"x-request-id": b"ex-1",
            b"x-tidegate-attempts": b"1",
        },
    )
    assert json.loads(provider.asked[0].body)["model"] == "model-0"


async def test_frames_leave_as_they_come(autojump_clock: trio.abc.Clock) -> None:
    """Nothing waits for the end but the frame with the last finish reason, and what follows it."""
    pieces = [ROLE, text("a"), text("b"), STOP, DONE]
    caller = RecordingCaller()
    await supervise(gateway(ScriptedProvider(says(*pieces, every=1.0)), paths=TUNNEL), caller)
    assert [(at, data) for at, data in caller.writes if data] == [
        (2.0, echoed(ROLE, text("a"))),
        (3.0, echoed(text("b"))),
        (5.0, echoed(STOP, DONE)),
    ]


async def test_nothing_is_rewritten_where_the_alias_is_the_models_name(
    autojump_clock: trio.abc.Clock,
) -> None:
    """Whatever name the provider gives then."""
    gate = gateway(ScriptedProvider(healthy("hi")), paths=TUNNEL)
    (pool,) = gate.pools.values()
    object.__setattr__(pool.targets[0], "model", "small")
    caller = RecordingCaller()
    await supervise(gate, caller)
    assert caller.received == ROLE + text("hi") + STOP + DONE


async def test_a_json_body_is_relayed_whole(autojump_clock: trio.abc.Clock) -> None:
    """Rewritten once."""
    data = whole("hi").replace(b'"id"', b'"x":{"model":"keep"}, "id"')
    caller = RecordingCaller(request(stream=False))
    outcome = await supervise(gateway(ScriptedProvider(body(data)), paths=TUNNEL), caller)
    assert caller.received == data.replace(b'"model": "m"', b'"model": "small"')
    assert caller.headers[b"content-type"] == b"application/json"
    assert outcome.framing == "tunnel_body"
    assert caller.headers[b"content-length"] == str(len(caller.received)).encode()


@pytest.mark.parametrize("stream", [False, True])
async def test_an_answer_in_the_other_form_is_framed_as_it_was_asked_for(
    autojump_clock: trio.abc.Clock, *, stream: bool
) -> None:
    """As at any provider: clients see nothing in JSON that comes for a stream, and can't parse a stream that comes for JSON."""
    answer = body(whole("hi")) if stream else healthy("hi")
    seen = []
    for path in (TUNNEL, ("normalized",)):
        caller = RecordingCaller(request(stream=stream))
        outcome = await supervise(gateway(ScriptedProvider(answer), paths=path), caller)
        assert (outcome.kind, outcome.mode) == (OutcomeKind.SUCCESS, "normalized")
        seen.append((caller.status, caller.headers[b"content-type"], caller.received))
    assert seen[0] == seen[1]
    assert b"hi" in seen[0][2]
    assert seen[0][2].endswith(DONE) is stream


async def test_an_answer_in_the_other_form_does_not_frame_the_next_attempt(
    autojump_clock: trio.abc.Clock,
) -> None:
    """It failed: what comes then is relayed."""
    empty = body(whole(""))
    gate = gateway(ScriptedProvider(empty, healthy("hi")), paths=TUNNEL)
    caller = RecordingCaller(request(stream=True))
    outcome = await supervise(gate, caller)
    assert caller.received == echoed(ROLE, text("hi"), STOP, DONE)
    assert (outcome.attempts, outcome.framing) == (2, "tunnel_sse")


@pytest.mark.parametrize(
    "first",
    [
        fails(UpstreamFault.CONNECT), fails(UpstreamFault.RESET), refuses(503), refuses(429), says(ROLE), says(ROLE, DONE), says(ROLE, ERROR_EVENT),
        says(ROLE, then=[LATE_CUT]), stalls(ROLE, COMMENT), says(ROLE, b"data: <html>\n\n"), says(ROLE, STOP, DONE), body(b"<html>", headers=((b"content-type", b"text/html"),)),
        body(b'{"error":{"code":500}}'), Answer(status=204), says(ROLE, event({"choices": [{"index": 0, "delta": {"content": "x"}, "finish_reason": "error"}]})),
    ],
)  # fmt: skip
async def test_what_fails_before_the_first_byte_is_made_good(
    autojump_clock: trio.abc.Clock, first: Answer
) -> None:
    """The same request again, at the next provider; nothing of the first is seen."""
    second = ScriptedProvider(healthy("hi"))
    caller = RecordingCaller()
    gate = gateway(ScriptedProvider(first), second, paths=BOTH, recovery=RecoveryConfig(same_target_retries=0))  # fmt: skip
    outcome = await supervise(gate, caller)
    assert caller.received == echoed(ROLE, text("hi"), STOP, DONE)
    assert (outcome.kind, outcome.attempts) == (OutcomeKind.SUCCESS, 2)
    assert left_behind(gate) == []


async def test_an_error_before_the_first_byte_is_our_own(autojump_clock: trio.abc.Clock) -> None:
    """Our envelope, under the mapped status, as the tunnel's; no word of the provider's."""
    caller = RecordingCaller()
    gate = gateway(ScriptedProvider(says(ROLE)), paths=TUNNEL, recovery=RecoveryConfig(attempts_max=1))  # fmt: skip
    outcome = await supervise(gate, caller)
    error = json.loads(caller.received)["error"]
    assert (caller.status, error["type"], error["code"]) == (502, "provider_tunnel_error", "empty_answer")  # fmt: skip
    assert (outcome.framing, outcome.mode) == ("tunnel_sse", "passthrough")


@pytest.mark.parametrize(
    ("answer", "status", "kind"),
    [
        (refuses(400, b'{"error":{"message":"secret","code":"bad_thing","type":"x"}}'), 400, "invalid_request_error"),
        (refuses(401, b'{"error":"Unauthorized"}'), 502, "provider_tunnel_error"),
        (refuses(404), 404, "not_found_error"),
        (refuses(429), 429, "rate_limit_error"),
        (stalls(ROLE), 504, "provider_tunnel_error"),
    ],
)  # fmt: skip
async def test_types_follow_the_status(
    autojump_clock: trio.abc.Clock, answer: Answer, status: int, kind: str
) -> None:
    """Only what would be a run's error is the tunnel's."""
    caller = RecordingCaller()
    gate = gateway(ScriptedProvider(answer), paths=TUNNEL, recovery=RecoveryConfig(attempts_max=1))
    await supervise(gate, caller)
    assert caller.status == status
    assert json.loads(caller.received)["error"]["type"] == kind
    assert b"secret" not in caller.received


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (cut("a", "b"), "stream_cut"), (stalls(text("a"), text("b")), "gap_timeout"), (says(text("a"), text("b")), "missing_terminal"),
        (says(text("a"), text("b"), ERROR_EVENT), "provider_error"), (says(text("a"), text("b"), DONE), "missing_terminal"),
    ],
)  # fmt: skip
async def test_behind_the_first_byte_an_event_tells_of_the_failure(
    autojump_clock: trio.abc.Clock, answer: Answer, code: str
) -> None:
    """At the end of the last whole frame, without `[DONE]`; there is no further attempt."""
    second = ScriptedProvider(healthy("never"))
    caller = RecordingCaller()
    gate = gateway(ScriptedProvider(answer), second, paths=["tunnel", "normalized"], prefill="assistant", recovery=RecoveryConfig(continuation="committed"))  # fmt: skip
    outcome = await supervise(gate, caller)
    sent = echoed(text("a"), text("b"))
    assert caller.received.startswith(sent)
    (error,) = caller.received.removeprefix(sent).split(b"\n\n")[:-1]
    told = json.loads(error.removeprefix(b"data: "))["error"]
    assert (told["type"], told["code"]) == ("provider_tunnel_error", code)
    assert caller.ended
    assert not second.asked
    assert (outcome.code, outcome.status, outcome.mode) == (code, 200, "passthrough")


async def test_an_older_contract_just_ends(autojump_clock: trio.abc.Clock) -> None:
    """As callers of the older gate expect it."""
    caller = RecordingCaller()
    gate = gateway(ScriptedProvider(cut("a")), paths=TUNNEL, tunnel_marks=False, recovery=RecoveryConfig(attempts_max=1))  # fmt: skip
    outcome = await supervise(gate, caller)
    assert caller.received == echoed(text("a"))
    assert caller.ended
    assert outcome.code == "stream_cut"


# --- providers of both kinds for one alias ---------------------------------------------------------


@pytest.mark.parametrize("paths", [["tunnel", "normalized"], ["normalized", "tunnel"]])
async def test_the_framing_is_that_of_the_attempt_which_is_released(
    autojump_clock: trio.abc.Clock, paths: list[PathKind]
) -> None:
    """An attempt that failed before has no part in it."""
    caller = RecordingCaller()
    gate = gateway(ScriptedProvider(cut()), ScriptedProvider(healthy("hi")), paths=paths)
    outcome = await supervise(gate, caller)
    assert caller.text == "hi"
    assert (outcome.framing, outcome.mode) == (
        ("chat_sse", "normalized") if paths[1] == "normalized" else ("tunnel_sse", "passthrough")
    )


async def test_behind_a_normalized_beginning_a_tunnel_is_driven_as_normalized(
    autojump_clock: trio.abc.Clock,
) -> None:
    """One identity, one ending, no byte of the second provider's framing."""
    gate = gateway(
        ScriptedProvider(cut("One", " two", " three")),
        ScriptedProvider(healthy(" four")),
        paths=["normalized", "tunnel"],
        prefill="assistant",
        recovery=RecoveryConfig(continuation="committed"),
    )
    caller = RecordingCaller()
    outcome = await supervise(gate, caller)
    assert caller.text == "One two three four"
    assert (outcome.framing, outcome.mode) == ("chat_sse", "normalized")
    assert caller.received.endswith(DONE)


async def test_an_error_takes_the_type_of_the_attempt_that_was_admitted_last(
    autojump_clock: trio.abc.Clock,
) -> None:
    """Whatever the one before was."""
    cases: list[tuple[list[PathKind], str]] = [(["tunnel", "normalized"], "run_error"), (["normalized", "tunnel"], "provider_tunnel_error")]  # fmt: skip
    for paths, kind in cases:
        caller = RecordingCaller()
        gate = gateway(ScriptedProvider(cut()), ScriptedProvider(cut()), paths=paths, recovery=RecoveryConfig(attempts_max=2))  # fmt: skip
        await supervise(gate, caller)
        assert json.loads(caller.received)["error"]["type"] == kind


# --- what is watched -------------------------------------------------------------------------------


async def test_a_pattern_never_gets_out(autojump_clock: trio.abc.Clock) -> None:
    """Its beginning is held, though the bytes are the provider's; a good answer passes whole."""
    table = {"no-keys": FilterConfig(kind="patterns", patterns=("sk-[0-9]{8}",), action="next_provider")}  # fmt: skip
    bad = says(text("a sk-"), text("1234"), text("5678 b"), STOP, DONE)
    gate = gateway(
        ScriptedProvider(says(text("the key: sk-12345678"), STOP, DONE)),
        ScriptedProvider(bad),
        paths=BOTH,
        filters=("no-keys",),
        tables=table,
    )
    caller = RecordingCaller()
    outcome = await supervise(gate, caller)
    assert b"1234" not in caller.received
    assert b"sk-" not in caller.received
    assert outcome.code == "pattern_match"


CALL: Final = {"index": 0, "id": "c1", "type": "function"}
TOOLS: Final = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object", "required": ["at"]}}}]  # fmt: skip


def calls(arguments: str) -> list[bytes]:
    """A call of `look`, in pieces."""
    first = {**CALL, "function": {"name": "look", "arguments": ""}}
    pieces = [first, *({"index": 0, "function": {"arguments": piece}} for piece in arguments)]
    value: dict[str, Any] = {"id": "up-1", "model": "m"}
    chunks = [{**value, "choices": [{"index": 0, "delta": {"tool_calls": [piece]}}]} for piece in pieces]  # fmt: skip
    end = {**value, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
    return [event(chunk) for chunk in [*chunks, end]]


async def test_a_call_is_held_until_it_is_judged_and_leaves_as_it_came(
    autojump_clock: trio.abc.Clock,
) -> None:
    """A bad one is asked for again; the good one has the provider's own bytes, finish reason included."""
    good = [ROLE, *calls('{"at":1}'), DONE]
    provider = ScriptedProvider(says(ROLE, *calls('{"at"'), DONE), says(*good, every=1.0))
    caller = RecordingCaller(request(tools=TOOLS))
    outcome = await supervise(gateway(provider, paths=TUNNEL, filters=("tool_calls",)), caller)
    assert outcome.attempts == 2
    assert caller.received == echoed(*good)
    assert {at for at, data in caller.writes if data} == {float(len(good))}


async def test_a_fenced_answer_passes_as_it_is(autojump_clock: trio.abc.Clock) -> None:
    """Mending would have taken the fence off, so it is no violation; the bytes are the provider's."""
    pieces = [ROLE, text("```json\n"), text('{"a":'), text("1}\n```"), STOP, DONE]
    provider = ScriptedProvider(says(*pieces))
    caller = RecordingCaller(request(response_format={"type": "json_object"}))
    gate = gateway(provider, paths=TUNNEL, filters=("empty", "structured_output"))
    outcome = await supervise(gate, caller)
    assert outcome.kind is OutcomeKind.SUCCESS
    assert caller.received == echoed(*pieces)


async def test_an_answer_that_is_no_json_is_asked_for_again(autojump_clock: trio.abc.Clock) -> None:
    """What would have been a violation is one."""
    good = [ROLE, text('{"a":1}'), STOP, DONE]
    provider = ScriptedProvider(healthy("no json"), says(*good))
    caller = RecordingCaller(request(response_format={"type": "json_object"}))
    gate = gateway(provider, paths=TUNNEL, filters=("empty", "structured_output"))
    outcome = await supervise(gate, caller)
    assert outcome.attempts == 2
    assert caller.received == echoed(*good)


async def test_think_tags_pass_and_are_held_until_they_are_understood(
    autojump_clock: trio.abc.Clock,
) -> None:
    """What is between them is no answer, here as elsewhere; the text stays as it is."""
    pieces = [ROLE, text("<th"), text("ink>hm</think>"), text("yes"), STOP, DONE]
    caller = RecordingCaller()
    gate = gateway(ScriptedProvider(says(*pieces, every=1.0)), paths=TUNNEL, think_tags=True)
    await supervise(gate, caller)
    assert caller.received == echoed(*pieces)
    assert caller.writes[0] == (4.0, echoed(*pieces[:4]))


async def test_only_thinking_is_an_empty_answer(autojump_clock: trio.abc.Clock) -> None:
    """The filters see what mending would have made of it."""
    caller = RecordingCaller()
    gate = gateway(ScriptedProvider(healthy("<think>hm</think>")), paths=TUNNEL, think_tags=True, recovery=RecoveryConfig(attempts_max=1))  # fmt: skip
    outcome = await supervise(gate, caller)
    assert (caller.status, outcome.code) == (502, "empty_answer")


async def test_no_comment_of_ours_gets_in(autojump_clock: trio.abc.Clock) -> None:
    """However long the provider is silent; and no comment commits where a tunnel may answer."""
    hold = HoldConfig(ping_seconds=1.0, pings_commit=True)
    pieces = [text("a"), text("b"), STOP + DONE]
    caller = RecordingCaller()
    gate = gateway(ScriptedProvider(says(*pieces, every=5.0)), paths=TUNNEL, hold=hold)
    await supervise(gate, caller)
    assert caller.received == echoed(*pieces)
    assert caller.writes[0][0] == 5.0


async def test_what_is_held_is_in_the_ledger_and_bounded(autojump_clock: trio.abc.Clock) -> None:
    """Comments without end are no frame, and are kept nowhere for long."""
    limits = LimitsConfig(event_bytes_max=1_000, held_bytes_max=10_000)
    clocks = ClocksConfig(first_content_seconds=1e5)
    gate = gateway(ScriptedProvider(says(*[COMMENT] * 200)), paths=TUNNEL, limits=limits, clocks=clocks, recovery=RecoveryConfig(attempts_max=1))  # fmt: skip
    caller = RecordingCaller()
    outcome = await supervise(gate, caller)
    assert outcome.code == "malformed_event"
    large = ScriptedProvider(body(whole("x" * 20_000), headers=JSON))
    gate = gateway(large, paths=TUNNEL, limits=limits, recovery=RecoveryConfig(attempts_max=1))
    outcome = await supervise(gate, RecordingCaller(request(stream=False)))
    assert outcome.code == "held_limit"


async def test_an_odd_ending_is_noted(autojump_clock: trio.abc.Clock) -> None:
    """As on the other path."""
    records = Records()
    pieces = [text("a"), event({"choices": [], "usage": {"total_tokens": 3}}), DONE]
    gate = gateway(ScriptedProvider(says(*pieces)), paths=TUNNEL, records=records)
    caller = RecordingCaller()
    await supervise(gate, caller)
    assert caller.received == echoed(*pieces)
    assert [each.what for each in records.observations].count(What.FINISH_MISSING) == 1
