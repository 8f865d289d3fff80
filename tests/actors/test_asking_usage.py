"""Usage that the operator wants and the caller did not ask for: it is asked for upstream, counted, and hidden."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest
import trio
import trio.testing

from gate.config import HoldConfig, PathKind, RecoveryConfig
from gate.errors import UpstreamFault
from gate.observe import Spent, TokenKind, What
from tests.doubles import (
    DONE,
    ROLE,
    STOP,
    Answer,
    Read,
    RecordingCaller,
    Records,
    ScriptedProvider,
    body,
    event,
    fails,
    gateway,
    healthy,
    left_behind,
    refuses,
    request,
    says,
    supervise,
    text,
    whole,
)

USAGE: Final = {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}
TUNNEL: Final[list[PathKind]] = ["tunnel"]
PATHS: Final = pytest.mark.parametrize("paths", [[], TUNNEL], ids=["normalized", "tunnel"])
COMPLETIONS: Final = "/v1/completions"


def chunk(said: str | None, *, finish: str | None = None) -> bytes:
    """A chunk of a provider that was asked for usage, and says in each that it is not there yet."""
    delta = {} if said is None else {"content": said}
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return event({"id": "up-1", "object": "chat.completion.chunk", "created": 7, "model": "m", "choices": [choice], "usage": None})  # fmt: skip


def reported(**members: Any) -> bytes:
    """The chunk that is asked for."""
    return event({"id": "up-1", "object": "chat.completion.chunk", "created": 7, "model": "m", "choices": [], "usage": USAGE, **members})  # fmt: skip


def spent(records: Records) -> list[Spent]:
    """What the exchange has cost, as it is told at its end."""
    (ended,) = [each for each in records.observations if each.what is What.EXCHANGE_ENDED]
    assert ended.measured is not None
    return list(ended.measured.spent)


async def run(
    *script: Answer, asks: bool = True, endpoint: str = "/v1/chat/completions", paths: Any = (), data: bytes = b"", **policy: Any
) -> tuple[RecordingCaller, ScriptedProvider, Records]:  # fmt: skip
    """One exchange with a provider that is asked for usage."""
    records = Records()
    provider = ScriptedProvider(*script)
    gate = gateway(provider, asks=asks, paths=paths, records=records, **policy)
    caller = RecordingCaller(data or request())
    await supervise(gate, caller, endpoint=endpoint)
    assert left_behind(gate) == []
    return caller, provider, records


@PATHS
async def test_usage_is_asked_for_counted_and_hidden(
    paths: Any, autojump_clock: trio.testing.MockClock
) -> None:
    """The caller gets what it would have got without; metrics and log get what was reported."""
    answer = says(ROLE, text("He"), STOP, reported(), DONE)
    caller, provider, records = await run(answer, paths=paths)
    without, _, _ = await run(says(ROLE, text("He"), STOP, DONE), paths=paths, asks=False)
    assert caller.received == without.received
    assert spent(records) == [Spent(TokenKind.REPORTED, 4)]
    asked = json.loads(provider.asked[0].body)
    assert asked == {**json.loads(request()), "model": "model-0", "stream_options": {"include_usage": True}}  # fmt: skip


async def test_chunks_that_say_that_there_is_none_yet_lose_that(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """A caller that did not ask sees no such member; in any place but the first, and among the provider's other members."""
    odd = chunk("lo").replace(b'"choices"', b'"x":{"usage":null},"choices"').replace(b',"usage":null}', b"}")  # fmt: skip
    front = event({"usage": None, "choices": [{"index": 0, "delta": {"content": "!"}}]})
    middle = chunk("?").replace(b',"usage":null}', b"}").replace(b'"created"', b'"usage" : null , "created"')  # fmt: skip
    caller, _, _ = await run(says(ROLE, chunk("He"), chunk("l"), odd, middle, front, chunk(None, finish="stop"), reported(), DONE))  # fmt: skip
    events = [json.loads(data) for data in caller.received.split(b"data: ")[1:-1]]
    assert caller.text == "Hello?!"
    assert [index for index, each in enumerate(events) if "usage" in each] == [5]
    assert events[3]["x"] == {"usage": None}


async def test_a_tunnel_keeps_what_stands_around_the_chunk(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Comments and blank lines are bytes of the provider's, also those in one block with it; so are chunks that are about a choice."""
    late = reported(choices=[{"index": 0, "delta": {}, "finish_reason": None}])
    pieces = [ROLE, chunk("a"), STOP, b": one\n\n", b"\n: two\r\n" + reported(x=1), late, b": three\n\n", DONE]  # fmt: skip
    caller, _, records = await run(says(*pieces), paths=TUNNEL)
    wanted = b"".join([*pieces[:4], b"\n: two\r\n", *pieces[5:]])
    assert caller.received == wanted.replace(b'"model":"m"', b'"model":"small"')
    assert spent(records) == [Spent(TokenKind.REPORTED, 4)]


@PATHS
async def test_a_caller_that_asks_gets_its_chunk(
    paths: Any, autojump_clock: trio.testing.MockClock
) -> None:
    """Its own options go upstream as they are, byte for byte."""
    options = {"include_usage": True, "include_obfuscation": False}
    data = request(stream_options=options)
    caller, provider, _ = await run(
        says(ROLE, text("He"), STOP, reported(), DONE), paths=paths, data=data
    )
    assert provider.asked[0].body == data.replace(b'"small"', b'"model-0"')
    assert caller.received.count(b'"completion_tokens":4') == 1


@pytest.mark.parametrize("options", [None, {}, {"include_usage": False, "x": 1}])
@PATHS
async def test_a_callers_options_are_extended(
    options: Any, paths: Any, autojump_clock: trio.testing.MockClock
) -> None:
    """What else it says stays; it gets no usage all the same."""
    data = request(stream_options=options)
    answer = says(ROLE, text("He"), STOP, reported(), DONE)
    caller, provider, _ = await run(answer, paths=paths, data=data)
    asked = json.loads(provider.asked[0].body)["stream_options"]
    assert asked == {**(options or {}), "include_usage": True}
    assert b"completion_tokens" not in caller.received


async def test_without_a_stream_nothing_is_asked(autojump_clock: trio.testing.MockClock) -> None:
    """The options belong to streams, and a body has its usage anyway."""
    data = request(stream=False)
    _, provider, _ = await run(body(whole("hi")), data=data)
    assert provider.asked[0].body == data.replace(b'"small"', b'"model-0"')


async def test_every_attempt_is_asked(autojump_clock: trio.testing.MockClock) -> None:
    """Also one whose body was made for it, where the options stand behind what was put in; the sum is that of all who contributed."""
    first = says(ROLE, text("One"), text(" two"), text(" three"), then=[Read(fault=UpstreamFault.CUT)])  # fmt: skip
    second = says(ROLE, text(" four"), STOP, reported(), DONE)
    records = Records()
    one, two = ScriptedProvider(first), ScriptedProvider(second)
    hold = HoldConfig(mode="window", tail_chars=6)
    gate = gateway(one, two, asks=True, prefill="assistant", hold=hold, records=records)
    value = json.loads(request())
    data = json.dumps({"messages": value.pop("messages"), "stream_options": {"y": 2}, **value})
    caller = RecordingCaller(data.encode())
    await supervise(gate, caller)
    assert caller.text == "One two three four"
    assert b"completion_tokens" not in caller.received
    for provider in (one, two):
        asked = json.loads(provider.asked[0].body)
        assert asked["stream_options"] == {"y": 2, "include_usage": True}
    assert len(json.loads(two.asked[0].body)["messages"]) == 2
    assert Spent(TokenKind.REPORTED, 4) in spent(records)


@pytest.mark.parametrize(
    ("members", "asked"),
    [
        ({}, {"include_usage": True}),
        ({"stream_options": {"include_usage": False}}, {"include_usage": True}),
        ({"stream_options": {"include_usage": True}}, {"include_usage": True}),
        ({"stream_options": "odd"}, "odd"),
        ({"stream": False}, None),
    ],
)
async def test_legacy_completions_are_asked_alike(
    members: dict[str, Any], asked: object, autojump_clock: trio.testing.MockClock
) -> None:
    """Options that are none are the provider's to refuse."""
    pieces = [
        event({"choices": [{"index": 0, "text": "Hi", "finish_reason": None}]}),
        event({"choices": [{"index": 0, "text": "", "finish_reason": "stop"}]}),
        event({"choices": [], "usage": USAGE}),
        DONE,
    ]
    value = {"prompt": "Hi", "stream": True, "model": "small", **members}
    streams = value["stream"] is True
    answer = says(*pieces) if streams else body(b'{"choices":[{"index":0,"text":"Hi","finish_reason":"stop"}]}')  # fmt: skip
    caller, provider, _ = await run(answer, endpoint=COMPLETIONS, data=json.dumps(value).encode())
    assert json.loads(provider.asked[0].body).get("stream_options") == asked
    own = members.get("stream_options")
    hidden = streams and own not in ("odd", {"include_usage": True})
    assert (b"completion_tokens" in caller.received) is (streams and not hidden)


async def test_a_completion_that_names_no_model_is_not_asked(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """There is no place in its body that is known; it goes as it came."""
    data = b'{"prompt":"Hi","stream":true}'
    pieces = [event({"choices": [{"index": 0, "text": "Hi", "finish_reason": "stop"}]}), DONE]
    _, provider, _ = await run(says(*pieces), endpoint=COMPLETIONS, data=data)
    assert provider.asked[0].body == data


async def test_only_the_provider_that_wants_it_is_asked(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Nothing is added for one that does not."""
    answer = says(ROLE, text("He"), STOP, DONE)
    _, provider, _ = await run(answer, asks=False)
    assert "stream_options" not in json.loads(provider.asked[0].body)


async def test_other_endpoints_are_not_asked(autojump_clock: trio.testing.MockClock) -> None:
    """A stream of Responses has its usage, and of others nobody knows how they say it."""
    data = b'{"model":"small","input":"x","stream":true}'
    for endpoint in ("/v1/responses", "/v1/audio/speech"):
        provider = ScriptedProvider(*[healthy()] * 2)
        gate = gateway(provider, asks=True, recovery=RecoveryConfig(attempts_max=1))
        await supervise(gate, RecordingCaller(data), endpoint=endpoint)
        assert provider.asked[0].body == data.replace(b'"small"', b'"model-0"')


# --- a provider that does not take it ---------------------------------------------------------------


def blames(param: str | None, status: int = 400) -> Answer:
    """A refusal, of this member of the request."""
    error = {"error": {"message": "no", "param": param, "code": "unknown_parameter"}}
    return refuses(status, json.dumps(error).encode())


@PATHS
@pytest.mark.parametrize("refusal", [blames("stream_options"), blames("stream_options.include_usage"), blames(None), refuses(422, b'{"detail":[{"loc":["body"]}]}')])  # fmt: skip
async def test_what_is_refused_with_it_is_sent_once_more_without(
    paths: Any, refusal: Answer, autojump_clock: trio.testing.MockClock
) -> None:
    """At once, at the same provider, in the same attempt: the caller has done nothing wrong."""
    answer = healthy("hi")
    caller, provider, records = await run(
        refusal, answer, paths=paths, keyed=True, recovery=RecoveryConfig(attempts_max=1)
    )
    first, second = provider.asked
    assert second.body == request().replace(b'"small"', b'"model-0"')
    assert first.body != second.body
    assert (first.closes, provider.open_max) == (1, 1)
    assert (caller.status, caller.headers[b"x-tidegate-attempts"]) == (200, b"1")
    assert b"hi" in caller.received
    assert [first.headers[b"idempotency-key"], second.headers[b"idempotency-key"]] == [b"ex-1.1", b"ex-1.1.1"]  # fmt: skip
    assert [each.what for each in records.observations].count(What.ATTEMPT_STARTED) == 1


async def test_what_is_refused_without_it_is_the_callers(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """As the second answer says it; a request that was refused for something else is not sent again."""
    caller, provider, _ = await run(blames(None), blames("messages", 422))
    assert (caller.status, len(provider.asked)) == (422, 2)
    assert json.loads(caller.received)["error"]["param"] == "messages"
    caller, provider, _ = await run(blames("messages"))
    assert (caller.status, len(provider.asked)) == (400, 1)
    caller, provider, _ = await run(refuses(404))
    assert (caller.status, len(provider.asked)) == (404, 1)
    caller, provider, _ = await run(blames("stream_options"), asks=False)
    assert (json.loads(caller.received)["error"]["param"], len(provider.asked)) == ("stream_options", 1)  # fmt: skip


async def test_nobody_is_told_of_a_member_that_is_not_theirs(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """A refusal inside of a 200 has begun an answer: it is not asked for again."""
    said = {"error": {"code": 400, "type": "bad_request", "param": "stream_options"}}
    caller, provider, _ = await run(says(event(said)))
    error = json.loads(caller.received)["error"]
    assert (caller.status, error["param"], len(provider.asked)) == (400, None, 1)


async def test_the_second_request_may_fail_like_any_other(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """And another attempt makes that good; it asks anew."""
    caller, provider, _ = await run(blames(None), fails(UpstreamFault.RESET), healthy("hi"))
    assert b"hi" in caller.received
    assert caller.headers[b"x-tidegate-attempts"] == b"2"
    assert [b"include_usage" in asked.body for asked in provider.asked] == [True, False, True]


# --- the key of a plan ---------------------------------------------------------------------------


async def test_a_provider_that_wants_it_gets_the_key_of_each_plan(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """One that honours it would answer a further attempt with the failed answer, were it the same."""
    script = [says(ROLE, then=[Read(fault=UpstreamFault.CUT)]), healthy("hi")]
    for keyed in (True, False):
        provider = ScriptedProvider(*script)
        await supervise(gateway(provider, keyed=keyed), RecordingCaller())
        keys = [asked.headers.get(b"idempotency-key") for asked in provider.asked]
        assert keys == ([b"ex-1.1", b"ex-1.2"] if keyed else [None, None])


async def test_what_changes_nothing_has_no_key(autojump_clock: trio.testing.MockClock) -> None:
    """The header is for requests that are made twice only by mistake."""
    provider = ScriptedProvider(Answer([Read(b"{}")]))
    gate = gateway(provider, keyed=True)
    await supervise(gate, RecordingCaller(b""), endpoint="/v1/files", method="GET")
    assert b"idempotency-key" not in provider.asked[0].headers
