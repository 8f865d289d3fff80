"""Endpoints that are only relayed: which alias a request is for, what goes upstream, what comes back, and recovery before the first byte."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest
import trio
import trio.testing

from actors.context import Gateway, Pool
from gate.config import FilterConfig, LimitsConfig, RecoveryConfig
from gate.errors import UpstreamFault
from gate.observe import OutcomeKind
from tests.doubles import (
    DONE,
    JSON,
    SSE,
    Answer,
    Read,
    RecordingCaller,
    ScriptedProvider,
    body,
    event,
    fails,
    gateway,
    left_behind,
    refuses,
    says,
    stalls,
    supervise,
)

EMBEDDINGS: Final[dict[str, Any]] = {"endpoint": "/v1/embeddings"}
COMPLETIONS: Final[dict[str, Any]] = {"endpoint": "/v1/completions"}
FORM: Final[dict[str, Any]] = {
    "endpoint": "/v1/audio/transcriptions",
    "content_type": b"multipart/form-data; boundary=cut",
}
VECTORS: Final = b'{"object":"list","data":[{"embedding":[0.1]}],"model":"m","usage":{}}'
NEXT: Final = RecoveryConfig(same_target_retries=0)
ONCE: Final = RecoveryConfig(attempts_max=1)


def asking(**members: object) -> RecordingCaller:
    """A caller with a JSON body."""
    return RecordingCaller(json.dumps({"model": "small", **members}).encode())


def form(*fields: tuple[str, str], file: bytes = b"RIFF\r\n\0\xff") -> RecordingCaller:
    """A caller with a form: a file, then fields."""
    parts = [b'--cut\r\ncontent-disposition: form-data; name="file"; filename="a.wav"\r\ncontent-type: audio/wav\r\n\r\n' + file + b"\r\n"]  # fmt: skip
    for name, value in fields:
        parts.append(
            f'--cut\r\ncontent-disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'.encode()
        )
    return RecordingCaller(b"".join([*parts, b"--cut--\r\n"]))


def piece(said: str, *, finish: str | None = None) -> bytes:
    """One chunk of a legacy completion."""
    choice = {"index": 0, "text": said, "finish_reason": finish}
    return event({"id": "c", "object": "text_completion", "model": "m", "choices": [choice]})


async def test_a_body_is_relayed_with_the_alias_in_its_place(
    autojump_clock: trio.abc.Clock,
) -> None:
    """Both ways: the provider's name upstream, the alias downstream, and nothing else."""
    provider = ScriptedProvider(body(VECTORS))
    caller = RecordingCaller(b'{ "input": ["a"], "model" :"small"}')
    outcome = await supervise(gateway(provider), caller, **EMBEDDINGS)
    (asked,) = provider.asked
    assert (asked.path, asked.method) == ("/embeddings", "POST")
    assert asked.body == b'{ "input": ["a"], "model" :"model-0"}'
    assert asked.headers[b"accept"] == b"*/*"
    assert caller.received == VECTORS.replace(b'"m"', b'"small"')
    assert caller.headers[b"content-length"] == str(len(caller.received)).encode()
    assert (outcome.framing, outcome.mode) == ("tunnel_body", "passthrough")


@pytest.mark.parametrize(
    "first",
    [
        fails(UpstreamFault.CONNECT), refuses(500), body(b""), body(b'{"error":{"code":503}}'), Answer([Read(b"[1"), Read(fault=UpstreamFault.CUT)], headers=JSON),
        Answer(status=204),
    ],
)  # fmt: skip
async def test_what_fails_is_asked_for_again(autojump_clock: trio.abc.Clock, first: Answer) -> None:
    """The same request, at the next provider."""
    second = ScriptedProvider(body(VECTORS))
    gate = gateway(ScriptedProvider(first), second, recovery=NEXT)
    caller = asking(input="a")
    outcome = await supervise(gate, caller, **EMBEDDINGS)
    assert (outcome.kind, outcome.attempts) == (OutcomeKind.SUCCESS, 2)
    assert json.loads(second.asked[0].body) == {"model": "model-1", "input": "a"}
    assert left_behind(gate) == []


async def test_an_answer_that_says_no_is_our_envelope(autojump_clock: trio.abc.Clock) -> None:
    """Under the provider's status where the fault is the caller's."""
    caller = asking()
    gate = gateway(ScriptedProvider(refuses(400, b'{"error":{"message":"secret"}}')))
    await supervise(gate, caller, **EMBEDDINGS)
    assert caller.status == 400
    assert json.loads(caller.received)["error"]["type"] == "invalid_request_error"
    assert b"secret" not in caller.received


# --- legacy completions -----------------------------------------------------------------------------


async def test_completions_are_watched(autojump_clock: trio.abc.Clock) -> None:
    """Relayed as they come, complete with a finish reason for every prompt."""
    pieces = [piece("He"), piece("llo"), piece("", finish="stop"), DONE]
    caller = asking(prompt="Hi", stream=True)
    outcome = await supervise(gateway(ScriptedProvider(says(*pieces))), caller, **COMPLETIONS)
    assert caller.received == b"".join(pieces).replace(b'"m"', b'"small"')
    assert outcome.framing == "tunnel_sse"


async def test_a_completion_that_is_cut_ends_in_an_error(autojump_clock: trio.abc.Clock) -> None:
    """A second prompt has no answer: the first one's finish is no end."""
    pieces = [piece("He"), piece("", finish="stop"), DONE]
    caller = asking(prompt=["Hi", "Ho"], stream=True)
    gate = gateway(ScriptedProvider(says(*pieces)), recovery=ONCE)
    outcome = await supervise(gate, caller, **COMPLETIONS)
    assert outcome.code == "stream_cut"
    assert json.loads(caller.received.split(b"data: ")[-1])["error"]["code"] == "stream_cut"


async def test_completions_are_judged(autojump_clock: trio.abc.Clock) -> None:
    """The route's filters read them, streamed or not."""
    table = {"no-keys": FilterConfig(kind="patterns", patterns=("sk-[0-9]{4}",))}
    for stream in (True, False):
        whole = {"choices": [{"index": 0, "text": "sk-1234", "finish_reason": "stop"}]}
        answer = says(piece("a sk-1"), piece("234"), piece("", finish="stop"), DONE)
        provider = ScriptedProvider(answer if stream else body(json.dumps(whole).encode()))
        caller = asking(prompt="Hi", stream=stream)
        gate = gateway(provider, filters=("no-keys",), tables=table)
        outcome = await supervise(gate, caller, **COMPLETIONS)
        assert outcome.code == "pattern_match"
        assert b"sk-" not in caller.received


@pytest.mark.parametrize("stream", [True, False])
async def test_a_completion_in_the_other_form_is_none(
    autojump_clock: trio.abc.Clock, *, stream: bool
) -> None:
    """Nothing here could write it in the one that was asked for."""
    whole = body(b'{"choices":[{"text":"Hello","finish_reason":"stop"}],"model":"m"}')
    events = says(piece("Hello", finish="stop"), DONE)
    first, second = (whole, events) if stream else (events, whole)
    gate = gateway(ScriptedProvider(first), ScriptedProvider(second), recovery=NEXT)
    caller = asking(prompt="Hi", stream=stream)
    outcome = await supervise(gate, caller, **COMPLETIONS)
    assert (outcome.kind, outcome.attempts) == (OutcomeKind.SUCCESS, 2)
    assert caller.received.startswith(b"data:") is stream


async def test_an_empty_completion_is_none(autojump_clock: trio.abc.Clock) -> None:
    """As in chat."""
    empty = {"choices": [{"text": "", "finish_reason": "stop"}], "model": "m"}
    good = {"choices": [{"text": "Hello", "finish_reason": "stop"}], "model": "m"}
    first, second = (ScriptedProvider(body(json.dumps(each).encode())) for each in (empty, good))
    caller = asking(prompt="Hi")
    outcome = await supervise(gateway(first, second, recovery=NEXT), caller, **COMPLETIONS)
    assert outcome.attempts == 2
    assert json.loads(caller.received) == {**good, "model": "small"}


# --- forms and files ---------------------------------------------------------------------------------


async def test_a_form_is_sent_with_the_providers_name_and_sent_again(
    autojump_clock: trio.abc.Clock,
) -> None:
    """Byte for byte, with its own boundary."""
    second = ScriptedProvider(body(b'{"text":"hi"}'))
    gate = gateway(ScriptedProvider(refuses(503)), second, recovery=NEXT)
    caller = form(("model", "small"), ("language", "en"))
    sent = caller._parts[0]
    outcome = await supervise(gate, caller, **FORM)
    (asked,) = second.asked
    assert asked.body == sent.replace(b"\r\n\r\nsmall\r\n", b"\r\n\r\nmodel-1\r\n")
    assert asked.headers[b"content-type"] == b"multipart/form-data; boundary=cut"
    assert (outcome.attempts, caller.received) == (2, b'{"text":"hi"}')


async def test_a_large_file_is_searched_in_steps(autojump_clock: trio.abc.Clock) -> None:
    """Its bytes are never looked at twice, and never all at once."""
    provider = ScriptedProvider(body(b'{"text":"hi"}'))
    caller = form(("model", "small"), file=b"\r\n--cu" * 300_000)
    outcome = await supervise(gateway(provider), caller, **FORM)
    assert outcome.kind is OutcomeKind.SUCCESS
    assert len(provider.asked[0].body) > 1_800_000


async def test_a_form_may_ask_for_a_stream(autojump_clock: trio.abc.Clock) -> None:
    """Events that nothing here reads pass as they come; their end is HTTP's."""
    pieces = [event({"type": "transcript.text.delta", "delta": "a"}), b": x\n\n", event({"type": "transcript.text.done", "model": "m"})]  # fmt: skip
    caller = form(("model", "small"), ("stream", "true"))
    outcome = await supervise(gateway(ScriptedProvider(says(*pieces, every=1.0))), caller, **FORM)
    assert caller.received == b"".join(pieces).replace(b'"m"', b'"small"')
    assert caller.writes[0] == (1.0, pieces[0])
    assert outcome.framing == "tunnel_sse"


# --- bytes that nobody reads --------------------------------------------------------------------------


SPEECH: Final[dict[str, Any]] = {"endpoint": "/v1/audio/speech"}
MP3: Final = ((b"content-type", b"audio/mpeg"), (b"content-disposition", b"attachment"))


async def test_a_file_comes_whole_or_not_at_all(autojump_clock: trio.abc.Clock) -> None:
    """Where no stream is asked for."""
    broken = Answer([Read(b"\xff\xfb"), Read(fault=UpstreamFault.CUT)], headers=MP3)
    good = Answer([Read(b"\xff\xfb"), Read(b'"model":"m"')], headers=MP3)
    caller = asking(input="Hi", voice="a")
    gate = gateway(ScriptedProvider(broken), ScriptedProvider(good), recovery=NEXT)
    await supervise(gate, caller, **SPEECH)
    assert caller.received == b'\xff\xfb"model":"m"'
    assert caller.headers[b"content-type"] == b"audio/mpeg"
    assert caller.headers[b"content-disposition"] == b"attachment"


async def test_a_stream_of_bytes_that_breaks_off_is_broken_off(
    autojump_clock: trio.abc.Clock,
) -> None:
    """No event could be read in it: the response has no proper end."""
    answer = Answer([Read(b"\xff\xfb"), Read(after=1.0, fault=UpstreamFault.CUT)], headers=MP3)
    caller = asking(input="Hi", stream=True)
    gate = gateway(ScriptedProvider(answer), ScriptedProvider())
    outcome = await supervise(gate, caller, **SPEECH)
    assert caller.received == b"\xff\xfb"
    assert (caller.aborted, caller.ended) == (True, False)
    assert (outcome.kind, outcome.code, outcome.status) == (OutcomeKind.ERROR, "stream_cut", 200)


async def test_a_stream_of_bytes_may_be_asked_for_as_events(
    autojump_clock: trio.abc.Clock,
) -> None:
    """`stream_format`, as speech has it; what stalls between two events is told by one."""
    sound = event({"type": "speech.audio.delta", "audio": "AAAA"})
    caller = asking(input="Hi", stream_format="sse")
    gate = gateway(ScriptedProvider(stalls(sound)), recovery=ONCE)
    outcome = await supervise(gate, caller, **SPEECH)
    assert caller.received.startswith(sound + b'data: {"error"')
    assert outcome.code == "gap_timeout"


async def test_an_error_among_events_is_one(autojump_clock: trio.abc.Clock) -> None:
    """By its name or by what it holds; a stored thing that has an error of its own is no error."""
    for bad in (b"event: error\ndata: {}\n\n", event({"error": {"code": 500}}), b"error: no\n\n"):
        gate = gateway(ScriptedProvider(says(bad)), recovery=ONCE)
        caller = asking(stream=True)
        assert (await supervise(gate, caller, **SPEECH)).code == "provider_error"
    stored = {"id": "batch-1", "object": "batch", "error": {"code": 500}, "errors": [1]}
    caller = asking(stream=True)
    gate = gateway(ScriptedProvider(says(event(stored))))
    assert (await supervise(gate, caller, **SPEECH)).kind is OutcomeKind.SUCCESS
    assert caller.received == event(stored)


# --- ends that only the connection's close tells -------------------------------------------------------


CLOSED: Final = Read(fault=UpstreamFault.CLOSED)


@pytest.mark.parametrize(
    ("broken", "good", "endpoint"),
    [
        (Answer([Read(b'{"object":"list","mod'), CLOSED], headers=JSON), Answer([Read(VECTORS), CLOSED], headers=JSON), EMBEDDINGS),
        (Answer([Read(b"\xff\xfb"), CLOSED], headers=MP3), Answer([Read(b"\xff\xfb\xfc")], headers=MP3), SPEECH),
        (Answer([CLOSED], headers=JSON), body(VECTORS), EMBEDDINGS),
        (says(event({"type": "a"}), then=[CLOSED]), says(event({"type": "b"}), DONE, then=[CLOSED]), SPEECH),
    ],
    ids=["json", "bytes", "nothing", "events"],
)  # fmt: skip
async def test_a_close_alone_is_no_end(
    autojump_clock: trio.abc.Clock, broken: Answer, good: Answer, endpoint: dict[str, Any]
) -> None:
    """What does not show its own end is asked for again; what does is fine, closed or not."""
    gate = gateway(ScriptedProvider(broken), ScriptedProvider(good), recovery=NEXT)
    caller = asking(input="a")
    outcome = await supervise(gate, caller, **endpoint)
    assert (outcome.kind, outcome.attempts) == (OutcomeKind.SUCCESS, 2)
    sent = b"".join(each.data for each in good.reads)
    assert caller.received == sent.replace(b'"m"', b'"small"')
    assert left_behind(gate) == []


async def test_a_close_alone_breaks_off_what_has_begun(autojump_clock: trio.abc.Clock) -> None:
    """Events by one more, that says so; bytes by no proper end."""
    sound = event({"type": "speech.audio.delta", "audio": "AAAA"})
    caller = asking(input="Hi", stream_format="sse")
    gate = gateway(ScriptedProvider(says(sound, then=[CLOSED])), recovery=ONCE)
    assert (await supervise(gate, caller, **SPEECH)).code == "stream_cut"
    assert caller.received.startswith(sound + b'data: {"error"')
    caller = asking(input="Hi", stream=True)
    gate = gateway(ScriptedProvider(Answer([Read(b"\xff"), CLOSED], headers=MP3)), recovery=ONCE)
    assert (await supervise(gate, caller, **SPEECH)).code == "stream_cut"
    assert (caller.received, caller.aborted, caller.ended) == (b"\xff", True, False)


async def test_a_close_that_comes_too_late_is_a_silence(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """The loop was busy elsewhere when the clock ran out."""
    sound = event({"type": "speech.audio.delta", "audio": "AAAA"})
    late = Read(fault=UpstreamFault.CLOSED, meanwhile=lambda: autojump_clock.jump(90.0))
    gate = gateway(ScriptedProvider(says(sound, DONE, then=[late])), recovery=ONCE)
    caller = asking(input="Hi", stream_format="sse")
    assert (await supervise(gate, caller, **SPEECH)).code == "gap_timeout"


# --- which alias ---------------------------------------------------------------------------------------


FILES: Final[dict[str, Any]] = {"endpoint": "/v1/files/file-1/content", "method": "GET", "query": "a=b&c=%20"}  # fmt: skip


def with_two(gate: Gateway) -> Gateway:
    """The gateway with a second alias, served by the same targets."""
    (pool,) = gate.pools.values()
    other = Pool("other", pool.route, pool.filters, pool.targets, pool.retries)
    gate.pools = {**gate.pools, "other": other}
    return gate


async def test_a_request_that_names_no_model_is_for_the_only_alias(
    autojump_clock: trio.abc.Clock,
) -> None:
    """Nothing is rewritten in a request that names none, nor in a file."""
    stored = b'{"object":"file","model":"m"}'
    provider = ScriptedProvider(body(stored))
    caller = RecordingCaller(b"")
    await supervise(gateway(provider), caller, **FILES)
    (asked,) = provider.asked
    assert (asked.method, asked.path, asked.body) == ("GET", "/files/file-1/content?a=b&c=%20", b"")
    assert b"content-type" not in asked.headers
    assert caller.received == stored


STORED: Final[dict[str, Any]] = {"endpoint": "/v1/responses/resp_1", "method": "GET"}


@pytest.mark.parametrize("changes", [{"model": "other"}, {"models": frozenset({"other"})}])
@pytest.mark.parametrize(
    "asked", [STORED, {"endpoint": "/v1/responses/resp_1/cancel"}, {"endpoint": "/v1/chat/completions/c", "method": "GET"}]
)  # fmt: skip
async def test_an_answer_has_the_alias_however_it_is_known(
    autojump_clock: trio.abc.Clock, asked: dict[str, Any], changes: dict[str, Any]
) -> None:
    """From a header, or from a key with one model."""
    gate = with_two(gateway(ScriptedProvider(body(b'{"id":"r","model":"m"}'))))
    caller = RecordingCaller(b"")
    await supervise(gate, caller, **asked, **changes)
    assert caller.received == b'{"id":"r","model":"other"}'


async def test_the_events_of_a_stored_response_are_a_stream(
    autojump_clock: trio.abc.Clock,
) -> None:
    """Asked for by the query; they come as they come, and to their end or to an error."""
    begun = event({"type": "response.created", "response": {"id": "r", "model": "m"}})
    ended = event({"type": "response.failed", "response": {"id": "r", "model": "m", "error": {}}})
    door = {**STORED, "query": "stream=true&starting_after=1"}
    caller = RecordingCaller(b"")
    gate = gateway(ScriptedProvider(says(begun, ended, every=1.0)))
    outcome = await supervise(gate, caller, **door)
    assert caller.received == (begun + ended).replace(b'"m"', b'"small"')
    assert caller.writes[0] == (1.0, begun.replace(b'"m"', b'"small"'))
    assert (outcome.kind, outcome.framing) == (OutcomeKind.SUCCESS, "tunnel_sse")
    caller = RecordingCaller(b"")
    gate = gateway(ScriptedProvider(says(begun)), recovery=ONCE)
    assert (await supervise(gate, caller, **door)).code == "missing_terminal"
    assert b'data: {"error"' in caller.received


async def test_where_there_are_several_a_header_says_which(autojump_clock: trio.abc.Clock) -> None:
    """Or the key, if it may use one only; else nobody guesses, and what no server is known to have is not there."""
    gate = with_two(gateway(ScriptedProvider(body(b"{}"), for_ever=True)))
    caller = RecordingCaller(b"")
    await supervise(gate, caller, **FILES)
    error = json.loads(caller.received)["error"]
    assert (caller.status, error["code"], error["param"]) == (400, "model_required", "model")
    nowhere = RecordingCaller(b"{}")
    await supervise(gate, nowhere, **{**FILES, "endpoint": "/v1/no/such/path"})
    assert (nowhere.status, json.loads(nowhere.received)["error"]["code"]) == (404, "not_found")
    for changes, status in (
        ({"model": "other"}, 200),
        ({"models": frozenset({"other"})}, 200),
        ({"model": "other", "models": frozenset({"small"})}, 404),
        ({"model": "nobody"}, 404),
        ({"models": frozenset({"small", "other"})}, 400),
    ):
        caller = RecordingCaller(b"")
        await supervise(gate, caller, **{**FILES, **changes})
        assert caller.status == status, changes


async def test_the_body_names_the_model_whatever_a_header_says(
    autojump_clock: trio.abc.Clock,
) -> None:
    """A key that may not use it is refused."""
    gate = with_two(gateway(ScriptedProvider()))
    caller = asking()
    door = {**EMBEDDINGS, "model": "other", "models": frozenset({"other"})}
    await supervise(gate, caller, **door)
    assert (caller.status, caller.code) == (404, "model_not_found")


async def test_nothing_is_a_good_answer_where_nothing_was_sent(
    autojump_clock: trio.abc.Clock,
) -> None:
    """204, or a body without a byte; to a POST it is none."""
    for answer in (Answer(status=204, headers=()), Answer(headers=JSON), Answer(headers=MP3)):
        caller = RecordingCaller(b"")
        outcome = await supervise(
            gateway(ScriptedProvider(answer)),
            caller,
            endpoint="/v1/files/file-1",
            method="DELETE",
        )
        assert (outcome.kind, caller.status) == (OutcomeKind.SUCCESS, answer.status)
        assert caller.received == b""
    gate = gateway(ScriptedProvider(Answer(headers=MP3)), recovery=ONCE)
    outcome = await supervise(gate, asking(), **SPEECH)
    assert outcome.code == "empty_answer"


async def test_a_body_is_refused_like_any_other(autojump_clock: trio.abc.Clock) -> None:
    """Not JSON, no form, too large."""
    for data, changes, code in (
        (b"{", EMBEDDINGS, "invalid_json"),
        (b"[]", EMBEDDINGS, "invalid_body"),
        (b"--cut", FORM, "invalid_form"),
        (b"a=b", {**FORM, "content_type": b"application/x-www-form-urlencoded"}, "unsupported_type"),
        (b" " * 2_000, EMBEDDINGS, "body_too_large"),
    ):  # fmt: skip
        caller = RecordingCaller(data)
        gate = gateway(ScriptedProvider(), limits=LimitsConfig(body_bytes_max=1_000))
        await supervise(gate, caller, **changes)
        assert caller.code == code


async def test_an_answer_of_another_kind_is_none_to_completions(
    autojump_clock: trio.abc.Clock,
) -> None:
    """What is understood has to be what it should be."""
    page = Answer([Read(b"<html>")], headers=((b"content-type", b"text/html"),))
    gate = gateway(ScriptedProvider(page), recovery=ONCE)
    caller = asking(prompt="Hi")
    assert (await supervise(gate, caller, **COMPLETIONS)).code == "provider_answer"
    events = Answer([Read(b"data: x\n\n")], headers=SSE)
    caller = asking(input="a")
    await supervise(gateway(ScriptedProvider(events)), caller, **EMBEDDINGS)
    assert caller.received == b"data: x\n\n"
