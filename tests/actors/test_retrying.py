"""Whole exchanges whose first attempts fail: what is tried again, where and when, and what the caller sees of it."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest
import trio
import trio.testing

from gate.config import ClocksConfig, HoldConfig, LimitsConfig, RecoveryConfig
from gate.errors import UpstreamFault
from gate.observe import OutcomeKind, What
from tests.doubles import (
    COMMENT,
    DONE,
    EMPTY,
    ERROR_EVENT,
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
    delta,
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
    thought,
    whole,
)

CUT = Read(fault=UpstreamFault.CUT)
CLOCKS = ClocksConfig(
    connect_seconds=5, headers_seconds=60, first_content_seconds=40, gap_seconds=30
)
# What may happen to an attempt before anything of it was shown, the code it is recorded under, and the seconds until it is known.
BEFORE_COMMIT: Mapping[str, tuple[Answer, str, float]] = {
    "no connection": (fails(UpstreamFault.CONNECT), "provider_connect", 0),
    "no connection in time": (fails(UpstreamFault.RESET, after=999), "provider_connect", 5),
    "reset": (fails(UpstreamFault.RESET), "provider_reset", 0),
    "no HTTP": (fails(UpstreamFault.PROTOCOL), "malformed_event", 0),
    "slow head": (Answer(head_after=999), "headers_timeout", 60),
    "silence": (stalls(), "first_content_timeout", 40),
    "comments for ever": (says(*[COMMENT] * 9, every=9), "first_content_timeout", 40),
    "stall while thinking": (stalls(ROLE, thought("hm")), "gap_timeout", 30),
    "cut": (says(ROLE, EMPTY, thought("hm"), then=[CUT]), "stream_cut", 0),
    "no terminal": (says(ROLE, thought("hm")), "missing_terminal", 0),
    "malformed": (says(ROLE, b"data: {not json\n\n"), "malformed_event", 0),
    "empty": (says(ROLE, EMPTY, STOP, DONE), "empty_answer", 0),
    "only white space": (says(ROLE, text(" \n"), STOP, DONE), "empty_answer", 0),
    "only thoughts": (says(thought("hm"), STOP, DONE), "empty_answer", 0),
    "no body": (says(), "empty_answer", 0),
    "204": (Answer(status=204), "provider_answer", 0),
    "redirect": (refuses(302), "provider_answer", 0),
    "HTML": (body(b"<html>", headers=[(b"content-type", b"text/html")]), "provider_answer", 0),
    "broken JSON": (body(b'{"choices":['), "malformed_event", 0),
    "large event": (says(b"data: " + b"x" * 60_000), "malformed_event", 0),
    "their key": (refuses(401), "provider_auth", 0),
}


@pytest.mark.parametrize("fault", BEFORE_COMMIT)
async def test_a_failure_that_nobody_saw_is_mended_by_the_next_provider(
    fault: str, autojump_clock: trio.testing.MockClock
) -> None:
    """At once; the caller gets one whole answer and not a trace of the other."""
    answer, code, seconds = BEFORE_COMMIT[fault]
    first, second = ScriptedProvider(answer), ScriptedProvider(healthy("He", "llo"))
    records, caller = Records(), RecordingCaller()
    limits = LimitsConfig(event_bytes_max=50_000)
    gate = gateway(first, second, clocks=CLOCKS, limits=limits, records=records)
    outcome = await supervise(gate, caller)
    assert (outcome.kind, outcome.attempts) == (OutcomeKind.SUCCESS, 2)
    assert caller.text == "Hello"
    assert caller.received.endswith(DONE)
    assert b"hm" not in caller.received
    assert caller.headers[b"x-tidegate-attempts"] == b"2"
    assert records.codes(What.ATTEMPT_ENDED) == [code, "complete"]
    assert first.asked[0].closed_at == second.asked[0].asked_at == pytest.approx(seconds)
    assert left_behind(gate) == []


@pytest.mark.parametrize(
    "answer",
    [
        *[refuses(status) for status in (408, 409, 500, 502, 503, 529)],
        says(ROLE, thought("hm"), ERROR_EVENT),
        body(b'{"error":{"message":"secret"}}'),
    ],
)
async def test_a_busy_provider_is_asked_once_more_before_the_next(
    answer: Answer, autojump_clock: trio.testing.MockClock
) -> None:
    """After a pause, then it is the other's turn; an error within a 200 is what it says that it is."""
    first = ScriptedProvider(answer, answer)
    second, caller = ScriptedProvider(healthy("Hi")), RecordingCaller()
    gate = gateway(first, second, recovery=RecoveryConfig(backoff_seconds=2))
    await supervise(gate, caller)
    assert [asked.asked_at for asked in first.asked] == [0, 1]
    assert [asked.asked_at for asked in second.asked] == [1]
    assert caller.text == "Hi"


async def test_a_finish_that_says_failure_is_no_answer(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Whoever is asked next."""
    failed, caller = says(ROLE, thought("hm"), delta({}, finish="error")), RecordingCaller()
    first = ScriptedProvider(failed, healthy("Hi"))
    await supervise(gateway(first, ScriptedProvider(healthy("Hi"))), caller)
    assert caller.text == "Hi"
    assert b"hm" not in caller.received


async def test_a_provider_that_says_when_is_asked_then(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """To the second; the caller does not notice a rate limit of seven."""
    provider, caller = ScriptedProvider(refuses(429, retry_after="7"), healthy("Hi")), RecordingCaller()  # fmt: skip
    await supervise(gateway(provider), caller)
    assert provider.asked[1].asked_at == pytest.approx(7)
    assert caller.text == "Hi"


async def test_every_attempt_is_made_of_the_bytes_that_the_caller_sent() -> None:
    """The same request again, and only the model's name differs."""
    first, second = ScriptedProvider(fails(UpstreamFault.RESET)), ScriptedProvider(healthy("Hi"))
    data = request(temperature=0.25, x={"model": "kept"})
    await supervise(gateway(first, second), RecordingCaller(data))
    assert first.asked[0].body == data.replace(b'"small"', b'"model-0"')
    assert second.asked[0].body == data.replace(b'"small"', b'"model-1"')


async def test_a_json_caller_is_served_by_the_next_provider_too(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Even where half an answer had come: none of it had been shown."""
    first, second = ScriptedProvider(cut("He")), ScriptedProvider(body(whole("Hello")))
    caller = RecordingCaller(request(stream=False))
    outcome = await supervise(gateway(first, second), caller)
    assert json.loads(caller.received)["choices"][0]["message"]["content"] == "Hello"
    assert json.loads(caller.received)["model"] == "small"
    assert (outcome.framing, outcome.attempts) == ("chat_json", 2)


async def test_a_json_answer_that_takes_too_long_is_asked_for_elsewhere(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """The one clock of an attempt that does not stream."""
    first, second = ScriptedProvider(body(whole("late"), after=99)), ScriptedProvider(body(whole("Hi")))  # fmt: skip
    caller = RecordingCaller(request(stream=False))
    await supervise(gateway(first, second, clocks=ClocksConfig(json_seconds=20)), caller)
    assert second.asked[0].asked_at == pytest.approx(20)
    assert json.loads(caller.received)["choices"][0]["message"]["content"] == "Hi"


@pytest.mark.parametrize(
    ("answer", "status", "code"),
    [
        (refuses(400), 400, "request_refused"),
        (refuses(422, b'{"error":{"code":"bad_tool","param":"tools[0]"}}'), 422, "bad_tool"),
        (refuses(413), 413, "request_refused"),
        (refuses(404), 404, "not_found"),
        (refuses(415), 415, "request_refused"), (refuses(410, b'{"error":{"code":"model_retired"}}'), 410, "model_retired"),
        (refuses(400, b'{"error":{"code":"context_length_exceeded"}}'), 400, "context_length_exceeded"),
        (says(event({"error": {"code": 400}})), 400, "request_refused"),
    ],
)  # fmt: skip
async def test_an_answer_that_blames_the_request_is_passed_on(
    answer: Answer, status: int, code: str
) -> None:
    """Another provider would say the same; the status is the caller's to read."""
    first, second, caller = ScriptedProvider(answer), ScriptedProvider(), RecordingCaller()
    outcome = await supervise(gateway(first, second), caller)
    assert (caller.status, caller.code) == (status, code)
    assert json.loads(caller.received)["error"]["type"] in {
        "invalid_request_error",
        "not_found_error",
    }
    assert (outcome.code, outcome.attempts, second.asked) == (code, 1, [])


@pytest.mark.parametrize(
    ("reason", "answer"),
    [
        ("not_found", refuses(404)),
        ("context_length", refuses(400, b'{"error":{"code":"context_length_exceeded"}}')),
        ("content_filter", refuses(400, b'{"error":{"code":"content_filter"}}')),
    ],
)
async def test_a_route_may_ask_another_provider_all_the_same(reason: str, answer: Answer) -> None:
    """Where it says that it falls back on such an answer."""
    recovery = RecoveryConfig(fallback_on=(reason,))  # type: ignore[arg-type]
    caller = RecordingCaller()
    gate = gateway(ScriptedProvider(answer), ScriptedProvider(healthy("Hi")), recovery=recovery)
    await supervise(gate, caller)
    assert caller.text == "Hi"


async def test_a_providers_refusal_of_our_key_is_not_the_callers_fault() -> None:
    """With nobody else to ask it is a bad gateway, and not a 401."""
    caller = RecordingCaller()
    await supervise(gateway(ScriptedProvider(refuses(401))), caller)
    assert (caller.status, caller.code) == (502, "provider_auth")


async def test_attempts_come_to_an_end(autojump_clock: trio.testing.MockClock) -> None:
    """The last failure is what the caller is told, and that his client should not do it all again."""
    provider = ScriptedProvider(*[fails(UpstreamFault.RESET)] * 3, cut())
    caller = RecordingCaller()
    outcome = await supervise(gateway(provider, recovery=RecoveryConfig(attempts_max=4)), caller)
    assert (caller.status, caller.code) == (502, "stream_cut")
    assert caller.headers[b"x-should-retry"] == b"false"
    assert (outcome.attempts, len(provider.asked)) == (4, 4)


async def test_a_pool_that_is_limited_throughout_says_when_to_come_again(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """The smallest wait still to go, in whole seconds."""
    first = ScriptedProvider(refuses(429, retry_after="300"))
    second, caller = ScriptedProvider(refuses(429, retry_after="99.5")), RecordingCaller()
    await supervise(gateway(first, second, recovery=RecoveryConfig(attempts_max=2)), caller)
    assert (caller.status, caller.code) == (429, "rate_limited")
    assert caller.headers[b"retry-after"] == b"100"
    assert b"x-should-retry" not in caller.headers


async def test_after_the_total_no_attempt_is_made(autojump_clock: trio.testing.MockClock) -> None:
    """And one that has made no progress is ended."""
    provider, caller = ScriptedProvider(*[stalls()] * 9), RecordingCaller()
    clocks = ClocksConfig(first_content_seconds=40, total_seconds=100)
    gate = gateway(provider, clocks=clocks, recovery=RecoveryConfig(attempts_max=9))
    await supervise(gate, caller)
    assert (caller.status, caller.code) == (504, "total_timeout")
    assert trio.current_time() == pytest.approx(100)


async def test_the_last_attempt_is_waited_for_longer(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Where giving up would be the end of it, patience costs nothing."""
    late = Answer([Read(ROLE + text("Hi") + STOP + DONE, after=70)])
    first, second, caller = ScriptedProvider(late), ScriptedProvider(late), RecordingCaller()
    recovery = RecoveryConfig(attempts_max=2)
    await supervise(gateway(first, second, clocks=CLOCKS, recovery=recovery), caller)
    assert caller.text == "Hi"
    assert trio.current_time() == pytest.approx(40 + 70)


@pytest.mark.parametrize(
    ("then", "code"),
    [
        ([CUT], "stream_cut"),
        ([], "missing_terminal"),
        ([Read(after=999)], "gap_timeout"),
        ([Read(b"data: {not json\n\n")], "malformed_event"),
        ([Read(ERROR_EVENT)], "provider_error"),
        ([Read(b": " + b"x" * 60_000)], "malformed_event"),
    ],
)
async def test_a_failure_after_the_first_byte_is_said_in_the_stream(
    then: list[Read], code: str, autojump_clock: trio.testing.MockClock
) -> None:
    """Never a clean end, never a second answer behind half of one, and none of the provider's words."""
    first, second = ScriptedProvider(says(ROLE, text("He"), then=then)), ScriptedProvider()
    caller, limits = RecordingCaller(), LimitsConfig(event_bytes_max=50_000)
    gate = gateway(first, second, clocks=CLOCKS, limits=limits)
    outcome = await supervise(gate, caller)
    assert caller.status == 200
    assert caller.text == "He"
    assert caller.code == code
    assert DONE not in caller.received
    assert b'"finish_reason":"' not in caller.received
    assert b"secret" not in caller.received
    assert second.asked == []
    assert (outcome.kind, outcome.code, outcome.status) == (OutcomeKind.ERROR, code, 200)
    assert left_behind(gate) == []


async def test_nothing_without_content_commits(autojump_clock: trio.testing.MockClock) -> None:
    """Role, comments, empty deltas and white space are held for as long as it takes."""
    answer = says(ROLE, COMMENT, EMPTY, text(" "), text("Hi"), STOP, DONE, every=10)
    caller = RecordingCaller()
    await supervise(gateway(ScriptedProvider(answer)), caller)
    assert caller.started_at == pytest.approx(50)
    assert caller.text == " Hi"


async def test_an_opening_of_some_length_can_be_asked_for(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """What fails within it is not seen."""
    hold = HoldConfig(opening_chars=5)
    first, caller = ScriptedProvider(cut("He", "l")), RecordingCaller()
    second = ScriptedProvider(healthy(*"Hello!", every=1))
    await supervise(gateway(first, second, hold=hold), caller)
    assert caller.text == "Hello!"
    assert caller.started_at == pytest.approx(6)


@pytest.mark.parametrize(("reasoning", "started"), [("hold", 3), ("release", 1)])
async def test_reasoning_opens_a_stream_only_where_the_route_says_so(
    reasoning: str, started: float, autojump_clock: trio.testing.MockClock
) -> None:
    """Held, it leaves with the first of the answer."""
    answer = says(thought("hm"), thought("so"), text("Hi"), STOP, DONE, every=1)
    caller, hold = RecordingCaller(), HoldConfig(reasoning=reasoning)  # type: ignore[arg-type]
    await supervise(gateway(ScriptedProvider(answer), hold=hold), caller)
    assert caller.started_at == pytest.approx(started)
    assert b"hm" in caller.received
    assert b"so" in caller.received


async def test_a_buffered_answer_fails_unseen(autojump_clock: trio.testing.MockClock) -> None:
    """Even when all but its end had come."""
    hold, caller = HoldConfig(mode="buffered"), RecordingCaller()
    first = ScriptedProvider(cut("He", "llo"))
    second = ScriptedProvider(healthy("He", "llo", every=1))
    await supervise(gateway(first, second, hold=hold), caller)
    assert caller.text == "Hello"
    assert caller.received.endswith(DONE)
    assert caller.started_at >= 4


@pytest.mark.parametrize(
    ("limits", "hold", "words", "code"),
    [
        (LimitsConfig(held_bytes_max=1_000), HoldConfig(mode="buffered"), "abcdefghijkl", "held_limit"),
        (LimitsConfig(exchange_bytes_max=68_000), HoldConfig(mode="buffered"), "abcdefghijkl", "memory_budget"),
        (LimitsConfig(exchange_bytes_max=80_000), HoldConfig(), ["x" * 40_000], "memory_budget"),
        (LimitsConfig(process_bytes_max=68_000), HoldConfig(mode="buffered"), "abcdefghijkl", "memory_budget"),
    ],
)  # fmt: skip
async def test_an_answer_beyond_what_may_be_held_is_an_error(
    limits: LimitsConfig, hold: HoldConfig, words: list[str], code: str
) -> None:
    """Without another attempt: it would be as large. Nothing stays reserved."""
    first, second, caller = ScriptedProvider(healthy(*words)), ScriptedProvider(), RecordingCaller()
    gate = gateway(first, second, limits=limits, hold=hold)
    await supervise(gate, caller)
    assert (caller.status, caller.code) == ({"held_limit": 502}.get(code, 503), code)
    assert second.asked == []
    assert left_behind(gate) == []


async def test_an_event_in_pieces_beyond_the_budget_is_an_error() -> None:
    """Bytes that are in no frame yet count as well."""
    pieces = Answer([Read(b"data: " + b"x" * 20_000), Read(b"x" * 20_000)], headers=SSE)
    gate = gateway(ScriptedProvider(pieces), limits=LimitsConfig(exchange_bytes_max=90_000))
    caller = RecordingCaller()
    await supervise(gate, caller)
    assert (caller.status, caller.code) == (503, "memory_budget")
    assert left_behind(gate) == []
