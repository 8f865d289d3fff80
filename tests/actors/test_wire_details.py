"""What a chat answer has beside its text, whole exchange by whole exchange: every choice and its finish, usage, log probabilities, refusals, reasoning, calls of the older kind, audio, annotations, moderation, padding."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest
import trio
import trio.testing

from gate.config import HoldConfig, PathKind
from tests.doubles import (
    DONE,
    Answer,
    Read,
    RecordingCaller,
    ScriptedProvider,
    body,
    event,
    gateway,
    request,
    says,
    supervise,
)

TUNNEL: Final[list[PathKind]] = ["tunnel"]
USAGE: Final = {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}
ENVELOPE: Final = {"id": "up-1", "object": "chat.completion.chunk", "created": 7, "model": "m"}
TOKENS: Final[list[Any]] = [{"token": "a", "logprob": -0.5, "bytes": [97], "top_logprobs": []}]
LOGPROBS: Final = {"content": TOKENS, "refusal": None}


def chunk(*choices: dict[str, Any], **members: Any) -> bytes:
    """One chunk with these choices, and more of its own."""
    return event({**ENVELOPE, "choices": list(choices), **members})


def of(
    index: int = 0, /, *, finish: str | None = None, beside: Any = None, **delta: Any
) -> dict[str, Any]:
    """One choice of a chunk."""
    return {"index": index, "delta": delta, "finish_reason": finish, **(beside or {})}


def choice(**delta: Any) -> dict[str, Any]:
    """A choice whose members have names that are known at run time only."""
    return {"index": 0, "delta": delta, "finish_reason": None}


async def seen(
    *pieces: bytes, paths: Any = (), data: bytes = b"", **policy: Any
) -> tuple[RecordingCaller, list[dict[str, Any]]]:
    """A whole stream as its caller got it, chunk by chunk."""
    caller = RecordingCaller(data or request())
    gate = gateway(ScriptedProvider(says(*pieces)), paths=paths, filters=(), **policy)
    outcome = await supervise(gate, caller)
    assert outcome.code == ""
    assert caller.received.endswith(DONE)
    blocks = caller.received.removesuffix(DONE).split(b"\n\n")[:-1]
    assert all(block.startswith(b"data: {") and b"\n" not in block for block in blocks)
    return caller, [json.loads(block.removeprefix(b"data: ")) for block in blocks]


def of_choice(chunks: list[dict[str, Any]], index: int) -> list[dict[str, Any]]:
    """What a stream says of one choice."""
    return [each for one in chunks for each in one["choices"] if each["index"] == index]


# --- choices ---------------------------------------------------------------------------------------

INTERLEAVED: Final = (
    chunk(of(0, role="assistant", content="")),
    chunk(of(1, role="assistant", content="")),
    chunk(of(1, content="B")),
    chunk(of(0, content="a")),
    chunk(of(1, content="b", finish="length", beside={"stop_reason": 2})),
    chunk(of(0, content="A")),
    chunk(of(0, finish="stop")),
    DONE,
)


async def test_choices_may_interleave_and_each_has_its_own_end(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """In the order of arrival; one role and one finish for each, with what its provider says beside it, and no finish before another choice's text."""
    _, chunks = await seen(*INTERLEAVED, data=request(n=2))
    told = [(each["index"], each["delta"].get("content"), each["finish_reason"]) for one in chunks for each in one["choices"]]  # fmt: skip
    assert told == [
        (0, "", None), (1, "", None), (1, "B", None), (0, "a", None), (1, "b", None), (0, "A", None), (1, None, "length"), (0, None, "stop"),
    ]  # fmt: skip
    assert [len([each for each in of_choice(chunks, n) if "role" in each["delta"]]) for n in (0, 1)] == [1, 1]  # fmt: skip
    assert of_choice(chunks, 1)[-1]["stop_reason"] == 2
    assert {json.dumps([one[name] for name in ("id", "object", "created", "model")]) for one in chunks} == {
        '["up-1", "chat.completion.chunk", 7, "small"]'
    }  # fmt: skip


async def test_choices_are_folded_one_by_one(autojump_clock: trio.testing.MockClock) -> None:
    """For a caller that wants one object."""
    caller = RecordingCaller(request(n=2, stream=False))
    await supervise(gateway(ScriptedProvider(says(*INTERLEAVED))), caller)
    choices = json.loads(caller.received)["choices"]
    assert [(each["index"], each["message"]["content"], each["finish_reason"]) for each in choices] == [(0, "aA", "stop"), (1, "Bb", "length")]  # fmt: skip
    assert choices[1]["stop_reason"] == 2


async def test_a_choice_that_never_ends_is_a_cut(autojump_clock: trio.testing.MockClock) -> None:
    """However well the others did."""
    pieces = [each for each in INTERLEAVED if b'"stop"' not in each]
    for data in (request(n=2), request(n=2, stream=False)):
        caller = RecordingCaller(data)
        gate = gateway(
            ScriptedProvider(says(*pieces), for_ever=True), hold=HoldConfig(mode="buffered")
        )
        await supervise(gate, caller)
        assert caller.code == "stream_cut"


# --- members that nobody here reads ------------------------------------------------------------------

UNREAD: Final[dict[str, bytes]] = {
    "log probabilities": chunk(of(content="a", beside={"logprobs": LOGPROBS})),
    "audio": chunk(of(audio={"id": "au", "data": "UklG", "transcript": "hi", "expires_at": 9})),
    "annotations": chunk(of(content="b", annotations=[{"type": "url_citation", "url_citation": {"url": "u", "title": "t", "start_index": 0, "end_index": 1}}])),
    "padding": chunk(of(content="c"), obfuscation="x9Fq"),
    "a fingerprint": chunk(of(content="d"), system_fingerprint="fp_1", service_tier="fast"),
    "moderation": chunk(moderation={"input": {"flagged": False}, "output": None}),
    "a prompt filter": chunk(prompt_filter_results=[{"prompt_index": 0, "content_filter_results": {}}]),
    "a refusal": chunk(of(content=None, refusal="I can't")),
    "something new": chunk(of(content="e", hologram={"x": [1, {"model": "keep"}]}), frobnicated=1.50),
}  # fmt: skip


@pytest.mark.parametrize("name", UNREAD)
@pytest.mark.parametrize("paths", [[], TUNNEL], ids=["normalized", "tunnel"])
async def test_what_nobody_here_reads_passes_as_it_came(
    name: str, paths: Any, autojump_clock: trio.testing.MockClock
) -> None:
    """In its own chunk, with that chunk's own boundaries; only the identity is ours."""
    pieces = [chunk(of(role="assistant", content="")), chunk(of(content="Hi")), UNREAD[name], chunk(of(content="!")), chunk(of(finish="stop")), DONE]  # fmt: skip
    caller, _ = await seen(*pieces, paths=paths)
    assert UNREAD[name].replace(b'"model":"m"', b'"model":"small"') in caller.received
    assert caller.received.count(b"data: ") == len(pieces)


async def test_what_nobody_here_reads_is_in_the_object_too(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Lists go on, texts are joined, and of others the last value stands."""
    pieces = [chunk(of(role="assistant", content="")), *UNREAD.values(), UNREAD["log probabilities"], chunk(of(finish="stop")), DONE]  # fmt: skip
    caller = RecordingCaller(request(stream=False))
    await supervise(gateway(ScriptedProvider(says(*pieces)), filters=()), caller)
    answer = json.loads(caller.received)
    (choice,) = answer["choices"]
    message = choice["message"]
    assert message["content"] == "abcdea"
    assert message["refusal"] == "I can't"
    assert message["audio"] == {"id": "au", "data": "UklG", "transcript": "hi", "expires_at": 9}
    assert message["annotations"][0]["url_citation"]["url"] == "u"
    assert message["hologram"] == {"x": [1, {"model": "keep"}]}
    assert "tool_calls" not in message
    assert choice["logprobs"] == {"content": TOKENS * 2, "refusal": None}
    assert (answer["system_fingerprint"], answer["service_tier"]) == ("fp_1", "fast")
    assert answer["moderation"] == {"input": {"flagged": False}, "output": None}


# --- reasoning and calls ---------------------------------------------------------------------------


@pytest.mark.parametrize("said", ["reasoning", "reasoning_content"])
@pytest.mark.parametrize("written", ["reasoning", "reasoning_content"])
@pytest.mark.parametrize("stream", [True, False])
async def test_both_names_of_reasoning_are_read_and_one_is_written(
    said: str, written: str, autojump_clock: trio.testing.MockClock, *, stream: bool
) -> None:
    """The route says which; null and empty ones are none, and say nothing of their own."""
    pieces = [
        chunk(choice(role="assistant", content="", **{said: None})),
        chunk(choice(**{said: "hm"})),
        chunk(choice(content="Hi", **{said: None})),
        chunk(of(finish="stop")),
        DONE,
    ]
    caller = RecordingCaller(request(stream=stream))
    gate = gateway(ScriptedProvider(says(*pieces)), reasoning_field=written)
    await supervise(gate, caller)
    other = "reasoning" if written == "reasoning_content" else "reasoning_content"
    if stream:
        chunks = [json.loads(each) for each in caller.received.split(b"data: ")[1:-1]]
        deltas = [each["choices"][0]["delta"] for each in chunks]
        assert [each[written] for each in deltas if each.get(written)] == ["hm"]
        assert not any(each.get(other) for each in deltas)
    else:
        message = json.loads(caller.received)["choices"][0]["message"]
        assert (message[written], message.get(other)) == ("hm", None)


@pytest.mark.parametrize("stream", [True, False])
async def test_a_call_of_the_older_kind_keeps_its_shape(
    autojump_clock: trio.testing.MockClock, *, stream: bool
) -> None:
    """`function_call`, and its finish reason."""
    pieces = [
        chunk(of(role="assistant", content=None, function_call={"name": "sail", "arguments": ""})),
        chunk(of(function_call={"arguments": '{"a":'})),
        chunk(of(function_call={"arguments": "1}"})),
        chunk(of(finish="function_call")),
        DONE,
    ]
    functions = [{"name": "sail", "parameters": {"type": "object"}}]
    caller = RecordingCaller(request(stream=stream, functions=functions))
    gate = gateway(ScriptedProvider(says(*pieces)), filters=("empty", "tool_calls"))
    outcome = await supervise(gate, caller)
    assert outcome.code == ""
    if stream:
        chunks = [json.loads(each) for each in caller.received.split(b"data: ")[1:-1]]
        deltas = [each["choices"][0]["delta"].get("function_call", {}) for each in chunks]
        assert "".join(each.get("arguments") or "" for each in deltas) == '{"a":1}'
        assert [each["name"] for each in deltas if each.get("name")] == ["sail"]
        assert chunks[-1]["choices"][0]["finish_reason"] == "function_call"
    else:
        (choice,) = json.loads(caller.received)["choices"]
        assert choice["finish_reason"] == "function_call"
        assert choice["message"]["function_call"] == {"name": "sail", "arguments": '{"a":1}'}
        assert choice["message"]["content"] is None


# --- usage ---------------------------------------------------------------------------------------------

SHAPES: Final[dict[str, list[bytes]]] = {
    "a chunk of its own": [chunk(of(content="a")), chunk(of(finish="stop")), chunk(usage=USAGE)],
    "without choices": [chunk(of(content="a")), chunk(of(finish="stop")), event({**ENVELOPE, "usage": USAGE})],
    "choices null": [chunk(of(content="a")), chunk(of(finish="stop")), event({**ENVELOPE, "choices": None, "usage": USAGE})],
    "with the finish": [chunk(of(content="a")), chunk(of(finish="stop"), usage=USAGE)],
    "in every chunk": [chunk(of(content="a"), usage={**USAGE, "completion_tokens": 1}), chunk(of(finish="stop"), usage=USAGE), chunk(usage=USAGE)],
    "null until it comes": [chunk(of(content="a"), usage=None), chunk(of(finish="stop"), usage=None), chunk(usage=USAGE)],
}  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("asked", [True, False])
async def test_usage_comes_once_and_only_where_it_was_asked_for(
    shape: str, autojump_clock: trio.testing.MockClock, *, asked: bool
) -> None:
    """In one chunk about no choice, behind the last finish and before the end mark, whatever the provider does."""
    pieces = [chunk(of(role="assistant", content="")), *SHAPES[shape], DONE]
    data = request(stream_options={"include_usage": True}) if asked else request()
    _, chunks = await seen(*pieces, data=data)
    told = [each for each in chunks if each.get("usage")]
    if not asked:
        assert told == []
        assert chunks[-1]["choices"][0]["finish_reason"] == "stop"
        return
    assert told == [chunks[-1]]
    assert (chunks[-1]["choices"], chunks[-1]["usage"]) == ([], USAGE)
    assert chunks[-2]["choices"][0]["finish_reason"] == "stop"


@pytest.mark.parametrize("shape", SHAPES)
async def test_an_object_always_has_the_usage_that_was_reported(
    shape: str, autojump_clock: trio.testing.MockClock
) -> None:
    """It need not be asked for there."""
    pieces = [chunk(of(role="assistant", content="")), *SHAPES[shape], DONE]
    caller = RecordingCaller(request(stream=False))
    await supervise(gateway(ScriptedProvider(says(*pieces))), caller)
    assert json.loads(caller.received)["usage"] == USAGE


# --- terminals without an answer -----------------------------------------------------------------------


async def test_a_success_without_a_release_is_a_whole_stream(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Start, role, finish and end mark: an answer that its ceiling left no room for is one."""
    caller, chunks = await seen(chunk(of(finish="length")), DONE)
    assert (caller.status, caller.headers[b"content-type"]) == (200, b"text/event-stream; charset=utf-8")  # fmt: skip
    assert [(each["choices"][0]["delta"], each["choices"][0]["finish_reason"]) for each in chunks] == [({"role": "assistant", "content": ""}, "length")]  # fmt: skip


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("paths", [[], TUNNEL], ids=["normalized", "tunnel"])
@pytest.mark.parametrize(
    "nothing",
    [
        says(chunk(of(role="assistant", content="")), chunk(of(finish="stop")), DONE),
        says(chunk(of(content="  ")), chunk(of(finish="stop")), DONE),
        says(DONE),
        says(),
        body(b'{"id":"x","choices":[{"index":0,"message":{"role":"assistant","content":""},"finish_reason":"stop"}]}'),
        body(b'{"id":"x","choices":[]}'),
        body(b""),
        Answer(status=204),
    ],
    ids=["role", "white space", "end mark", "no event", "empty body", "no choice", "no body", "204"],
)  # fmt: skip
async def test_a_success_without_a_usable_result_is_an_error(
    nothing: Answer, paths: Any, autojump_clock: trio.testing.MockClock, *, stream: bool
) -> None:
    """The provider says that all is well, and there is nothing to give: 502, and the envelope."""
    caller = RecordingCaller(request(stream=stream))
    gate = gateway(ScriptedProvider(nothing, for_ever=True), paths=paths)
    outcome = await supervise(gate, caller)
    assert (caller.status, outcome.code) == (502, json.loads(caller.received)["error"]["code"])
    assert outcome.code in {"empty_answer", "provider_answer"}


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("paths", [[], TUNNEL], ids=["normalized", "tunnel"])
async def test_a_200_that_is_none_is_never_a_silent_end(
    paths: Any, autojump_clock: trio.testing.MockClock, *, stream: bool
) -> None:
    """A page, an error as JSON, and text that is neither: clients would take each for an empty answer."""
    html = ((b"content-type", b"text/html"),)
    for odd in (
        Answer([Read(b"<html>busy</html>")], headers=html),
        body(b'{"error":{"message":"no","code":"server_error"}}'),
        body(b'{"detail":"no"}'),
        says(event({"error": "no"})),
        says(b"data: <html>\n\n"),
    ):
        caller = RecordingCaller(request(stream=stream))
        gate = gateway(ScriptedProvider(odd, for_ever=True), paths=paths)
        await supervise(gate, caller)
        assert caller.status == 502
        assert caller.headers[b"x-should-retry"] == b"false"
        assert b"no" not in json.loads(caller.received)["error"]["message"].encode().split()
