"""Exchanges of the Responses API through a tunnel: the provider's bytes, watched; recovery before the first of them; what is said when they break off behind it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

import pytest
import trio

from gate.config import FilterConfig, HoldConfig, LimitsConfig, PathKind
from gate.errors import UpstreamFault
from gate.observe import OutcomeKind, What
from tests.actors.test_responding import ALL, TOOL, WORDS, Run, healthy, lost, request
from tests.assembly_responses import read_events
from tests.doubles import (
    COMMENT,
    DONE,
    JSON,
    SSE,
    Answer,
    Read,
    body,
    fails,
    refuses,
    says,
    stalls,
)
from tests.responding import (
    added,
    answer,
    arguments,
    call,
    completed,
    created,
    done,
    event,
    message,
    response,
    spoken_call,
    text,
)

TUNNEL: Final[list[PathKind]] = ["tunnel"]
BOTH: Final[list[PathKind]] = ["tunnel", "tunnel"]
CUT: Final = [Read(fault=UpstreamFault.CUT)]
PLACE: Final = {"item_id": "msg_1", "output_index": 0, "content_index": 0}


def echoed(*pieces: bytes) -> bytes:
    """The bytes with the alias in the place of the provider's name."""
    return b"".join(pieces).replace(b'"model":"big"', b'"model":"small"')


def blocks(data: bytes) -> list[bytes]:
    """Event by event."""
    return [piece + b"\n\n" for piece in data.split(b"\n\n")[:-1]]


async def test_a_stream_is_relayed_byte_by_byte(autojump_clock: trio.abc.Clock) -> None:
    """Comments and `[DONE]`, the provider's own numbers, ids and events; the alias in every response object, and nowhere else."""
    odd = event("brand.new", sequence_number=77, model="big", data={"model": "big"})
    said = text('"model":"big"')
    pieces = [b"\n", COMMENT, *blocks(answer("He", "llo"))[:5], COMMENT, odd, said, *blocks(answer("He", "llo"))[5:], COMMENT, DONE, b"\n"]  # fmt: skip
    reads = [Read(piece) for piece in pieces]
    run = Run([Answer(reads, 201, [*SSE, (b"set-cookie", b"a"), (b"openai-version", b"7")])], paths=TUNNEL)  # fmt: skip
    outcome = await run.play()
    wanted = echoed(*pieces[:-1]).replace(b'"data":{"model":"small"}', b'"data":{"model":"big"}')
    assert run.caller.received == wanted
    assert (outcome.kind, outcome.framing, outcome.mode) == (OutcomeKind.SUCCESS, "tunnel_sse", "passthrough")  # fmt: skip
    assert run.caller.status == 201
    assert run.caller.headers[b"openai-version"] == b"7"
    assert b"set-cookie" not in run.caller.headers
    asked = run.providers[0].asked[0]
    assert (asked.path, asked.headers[b"accept"]) == ("/responses", b"text/event-stream")
    assert asked.body == run.body.replace(b'"small"', b'"model-0"')


async def test_events_leave_as_they_come(autojump_clock: trio.abc.Clock) -> None:
    """Nothing before there is answer text; the event that ends it waits until nothing can come behind it."""
    pieces = blocks(answer("a", "b"))
    run = Run([says(*pieces, every=1.0)], paths=TUNNEL)
    await run.play()
    writes = [(at, data) for at, data in run.caller.writes if data]
    assert writes[0] == (5.0, echoed(*pieces[:5]))
    assert [data for _, data in writes[1:-1]] == pieces[5:-1]
    assert writes[-1] == (10.0, echoed(pieces[-1]))


async def test_a_provider_that_does_not_hang_up_is_not_waited_for(
    autojump_clock: trio.abc.Clock,
) -> None:
    """The answer is complete with its last event; what may come behind it has its grace."""
    run = Run([stalls(answer("Hi"))], paths=TUNNEL)
    outcome = await run.play()
    assert (outcome.code, run.caller.received) == ("", echoed(answer("Hi")))
    run = Run([says(answer("Hi"), then=CUT)], paths=TUNNEL)
    outcome = await run.play()
    assert (outcome.code, run.caller.received) == ("", echoed(answer("Hi")))


@pytest.mark.parametrize(
    "first",
    [
        fails(UpstreamFault.CONNECT), fails(UpstreamFault.RESET), refuses(503), lost(), lost(added(message())), says(created()), says(created(), DONE),
        stalls(created(), COMMENT), says(created(), event("failed", response=response("failed"))), says(created(), completed(status="completed", error=None)),
        says(created(), event("completed", response=response("failed"))), says(created(), event("error", code="server_error")), says(created(), b"data: <html>\n\n"),
        body(b'{"error":{"code":500}}', headers=JSON), body(json.dumps(response("failed")).encode(), headers=JSON), body(b"x", headers=((b"content-type", b"text/html"),)),
    ],
)  # fmt: skip
async def test_what_fails_before_the_first_byte_is_made_good(
    first: Answer, autojump_clock: trio.abc.Clock
) -> None:
    """The same request again, at the next provider; nothing of the first is seen."""
    run = Run([first], [healthy(*WORDS)], paths=BOTH, same_target_retries=0)
    outcome = await run.play()
    assert run.caller.received == echoed(answer(*WORDS))
    assert (outcome.code, outcome.attempts) == ("", 2)
    assert run.providers[1].asked[0].body == run.body.replace(b'"small"', b'"model-1"')


async def test_an_error_before_the_first_byte_is_our_own(autojump_clock: trio.abc.Clock) -> None:
    """Our envelope, under the mapped status, as the tunnel's; no word of the provider's."""
    bad = says(created(), event("error", code="server_error", message="secret"))
    run = Run([bad], paths=TUNNEL, attempts_max=1)
    outcome = await run.play()
    error = json.loads(run.caller.received)["error"]
    assert (run.caller.status, error["type"], error["code"]) == (502, "provider_tunnel_error", "provider_error")  # fmt: skip
    assert b"secret" not in run.caller.received
    assert (outcome.framing, outcome.mode) == ("tunnel_sse", "passthrough")


@pytest.mark.parametrize(
    ("rest", "code"),
    [
        (says(then=CUT), "stream_cut"), (stalls(), "gap_timeout"), (says(), "missing_terminal"), (says(DONE), "missing_terminal"),
        (says(event("failed", response=response("failed", error={"code": "server_error"}))), "provider_error"),
        (says(event("completed", response=response("failed", error={"code": "server_error"}))), "provider_error"),
        (says(event("error", code="server_error")), "provider_error"),
    ],
)  # fmt: skip
async def test_behind_the_first_byte_an_event_tells_of_the_failure(
    rest: Answer, code: str, autojump_clock: trio.abc.Clock
) -> None:
    """At the end of the last whole event; there is no further attempt, also where the route continues answers."""
    began = [created(), added(message()), text("a"), text("b")]
    first = Answer([*map(Read, began), *rest.reads])
    run = Run([first], [healthy(*WORDS)], paths=["tunnel", "normalized"], prefill="vllm", continuation="committed")  # fmt: skip
    outcome = await run.play()
    sent = echoed(*began)
    assert run.caller.received.startswith(sent)
    (told,) = run.caller.received.removeprefix(sent).split(b"\n\n")[:-1]
    error = json.loads(told.removeprefix(b"data: "))["error"]
    assert (error["type"], error["code"]) == ("provider_tunnel_error", code)
    assert run.caller.ended
    assert run.providers[1].asked == []
    assert (outcome.code, outcome.status, outcome.mode) == (code, 200, "passthrough")


@pytest.mark.parametrize("reason", ["max_output_tokens", "content_filter"])
async def test_an_incomplete_answer_is_one(reason: str, autojump_clock: trio.abc.Clock) -> None:
    """By its status, whatever its last event is called."""
    for name in ("incomplete", "completed"):
        last = event(name, response=response("incomplete", message("a"), incomplete_details={"reason": reason}))  # fmt: skip
        run = Run([says(created(), text("a"), last)], paths=TUNNEL)
        outcome = await run.play()
        assert (outcome.code, run.caller.received) == ("", echoed(created(), text("a"), last))


async def test_a_whole_response_is_relayed(autojump_clock: trio.abc.Clock) -> None:
    """Renamed once, with its length; from a stream for a caller that wants none, its object, and from an object for one that wants a stream, its events."""
    data = json.dumps(response("completed", message(ALL), error=None, model="big")).encode()
    run = Run([body(data, headers=JSON)], body=request(stream=False), paths=TUNNEL)
    outcome = await run.play()
    assert run.caller.received == data.replace(b'"model": "big"', b'"model": "small"')
    assert run.caller.headers[b"content-length"] == str(len(run.caller.received)).encode()
    assert (outcome.code, outcome.framing) == ("", "tunnel_body")
    assert run.providers[0].asked[0].headers[b"accept"] == b"application/json"
    run = Run([healthy("Hi")], body=request(stream=False), paths=TUNNEL)
    outcome = await run.play()
    assert (json.loads(run.caller.received)["object"], outcome.framing) == ("response", "responses_json")  # fmt: skip
    run = Run([body(data, headers=JSON)], paths=TUNNEL)
    outcome = await run.play()
    assert outcome.framing == "responses_sse"
    assert run.caller.received.count(b"event: response.completed\n") == 1
    assert b'"big"' not in run.caller.received.replace(b'"text":{"model":"big"}', b"")
    large = json.dumps(response("completed", message("x" * 20_000))).encode()
    limits = LimitsConfig(held_bytes_max=10_000)
    run = Run([body(large, headers=JSON)], body=request(stream=False), paths=TUNNEL, limits=limits, attempts_max=1)  # fmt: skip
    assert (await run.play()).code == "held_limit"


async def test_an_answer_that_a_provider_may_keep_is_noted(autojump_clock: trio.abc.Clock) -> None:
    """And asked for again as the caller wrote it."""
    asked = request(store=True, previous_response_id="r")
    run = Run([lost(added(message()))], [healthy(*WORDS)], body=asked, paths=BOTH)
    await run.play()
    noted = [each.attempt for each in run.records.observations if each.what is What.ORPHANED]
    assert noted == [1]
    assert run.providers[1].asked[0].body == asked.replace(b'"small"', b'"model-1"')


# --- providers of both kinds for one alias ---------------------------------------------------------


@pytest.mark.parametrize("paths", [["tunnel", "normalized"], ["normalized", "tunnel"]])
async def test_the_framing_is_that_of_the_attempt_which_is_released(
    paths: list[PathKind], autojump_clock: trio.abc.Clock
) -> None:
    """An attempt that failed before has no part in it."""
    run = Run([lost(added(message()))], [healthy(*WORDS)], paths=paths)
    outcome = await run.play()
    if paths[1] == "tunnel":
        assert (outcome.framing, outcome.mode) == ("tunnel_sse", "passthrough")
        assert run.caller.received == echoed(answer(*WORDS))
    else:
        assert (outcome.framing, outcome.mode) == ("responses_sse", "normalized")
        assert read_events(run.caller.received).text == ALL


async def test_behind_a_normalized_beginning_a_tunnel_is_driven_as_normalized(
    autojump_clock: trio.abc.Clock,
) -> None:
    """One id, one message, our numbers: decoded and framed anew."""
    broken = lost(added(message()), *map(text, WORDS[:5]))
    window = HoldConfig(mode="window", tail_chars=8)
    rest = healthy(" over", " it.")
    run = Run([broken], [rest], hold=window, prefill="vllm", paths=["normalized", "tunnel"])
    seen = await run.whole(2)
    assert (seen.text, len(seen.items)) == (ALL, 1)


# --- what is watched -------------------------------------------------------------------------------

TABLE: Final = {"no-keys": FilterConfig(kind="patterns", patterns=("sk-[0-9]{8}",))}


@pytest.mark.parametrize(
    "pieces",
    [
        [text("a sk-"), text("1234"), text("5678 b"), completed(message("a sk-12345678 b"))],
        [text("a"), event("output_text.done", **PLACE, text="sk-12345678"), completed(message("a"))],
        [text("a"), completed(message("sk-12345678"))],
        [text("a"), completed(message("a"), output_text="sk-12345678")],
        [added(message("sk-12345678")), text("a"), completed(message("a"))],
        [text("a"), added(call(), 1), arguments('{"a":"sk-', index=1), arguments("12345678", index=1), completed(message("a"), status="incomplete")],
        [text("a"), event("in_progress", response=response("in_progress", message("sk-12345678"))), completed(message("a"))],
    ],
)  # fmt: skip
async def test_a_pattern_never_gets_out(
    pieces: Sequence[bytes], autojump_clock: trio.abc.Clock
) -> None:
    """Wherever an event says it, though the bytes are the provider's."""
    run = Run([says(created(), *pieces)], paths=TUNNEL, filters=("empty", "no-keys"), tables=TABLE, attempts_max=1)  # fmt: skip
    outcome = await run.play()
    assert outcome.code == "pattern_match"
    assert b"1234" not in run.caller.received
    assert b"sk-" not in run.caller.received


async def test_a_call_is_held_until_it_is_judged_and_leaves_as_it_came(
    autojump_clock: trio.abc.Clock,
) -> None:
    """A bad one is asked for again, with what was wrong; the good one has the provider's own bytes."""
    good = blocks(spoken_call('{"a":', "7}"))
    run = Run([says(spoken_call('{"a":', '"x"}')), says(*good, every=1.0)], body=request(tools=[TOOL]), paths=TUNNEL)  # fmt: skip
    outcome = await run.play()
    assert (outcome.code, outcome.attempts) == ("", 2)
    assert run.caller.received == echoed(*good)
    first = next(data for at, data in run.caller.writes if data)
    assert first == echoed(*good[:7])
    assert run.asked(0, 1)["input"][1]["role"] == "user"


@pytest.mark.parametrize("last", [call('{"a":"x"}'), call('{"a":7}', name="row")])
async def test_a_call_that_its_end_says_otherwise_is_judged(
    last: Any, autojump_clock: trio.abc.Clock
) -> None:
    """A caller may carry out what the item says."""
    pieces = [created(), added({**call(), "arguments": ""}), arguments('{"a":7}')]
    bad = says(*pieces, done(last), completed(call('{"a":7}')))
    run = Run([bad], body=request(tools=[TOOL]), paths=TUNNEL, attempts_max=1)
    outcome = await run.play()
    assert outcome.code in {"tool_arguments_schema", "tool_unknown"}


async def test_a_call_that_a_ceiling_cut_passes_as_it_is(autojump_clock: trio.abc.Clock) -> None:
    """Elsewhere it is left out; it is no violation."""
    said = [created(), text("a"), added({**call(), "arguments": ""}, 1), arguments('{"a', index=1)]
    said.append(completed(message("a"), status="incomplete"))
    run = Run([says(*said)], body=request(tools=[TOOL]), paths=TUNNEL)
    outcome = await run.play()
    assert (outcome.code, run.caller.received) == ("", echoed(*said))


async def test_an_answer_that_is_no_json_is_asked_for_again(autojump_clock: trio.abc.Clock) -> None:
    """A fence that mending would have taken off is none; the bytes are the provider's."""
    form = {"type": "json_schema", "name": "x", "schema": {"type": "object", "required": ["a"]}}
    fenced = healthy("```json\n", '{"a":1}', "\n```")
    run = Run([healthy('{"b":1}'), fenced], body=request(text={"format": form}), paths=TUNNEL)
    outcome = await run.play()
    assert (outcome.code, outcome.attempts) == ("", 2)
    assert run.caller.received == echoed(answer("```json\n", '{"a":1}', "\n```"))


async def test_a_long_answer_is_kept_by_nobody(autojump_clock: trio.abc.Clock) -> None:
    """The text of a normalized stream is in its framing until the end; a tunnel's is gone."""
    words = ["word " * 400] * 40
    pieces = [created(), added(message()), *map(text, words), completed()]
    small = LimitsConfig(exchange_bytes_max=150_000)
    run = Run([says(*pieces, every=1.0)], limits=small, paths=TUNNEL)
    outcome = await run.play()
    assert (outcome.code, run.caller.received) == ("", echoed(*pieces))


async def test_no_comment_of_ours_gets_in(autojump_clock: trio.abc.Clock) -> None:
    """However long the provider is silent."""
    hold = HoldConfig(ping_seconds=1.0, pings_commit=True)
    pieces = blocks(answer("a", "b"))
    run = Run([says(*pieces, every=3.0)], hold=hold, paths=TUNNEL)
    await run.play()
    assert run.caller.received == echoed(*pieces)
