"""Thousands of malformed requests, and of malformed answers of providers, against one running gateway.

Whatever comes in on either side: nothing crashes, nothing hangs, a caller gets a legal response (or, where its own HTTP was broken, a closed
connection), and in the end nothing is held or open, and the next healthy request is served. `--corpus=full` runs 5,000 of each.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import h11
import pytest
import trio

from ops.provider_connection import reset
from tests.e2e.malformed import (
    Case,
    Reply,
    Request,
    drawn,
    replies,
    requests,
    whole_reply,
    with_length,
)
from tests.transport.edge import Edge, running_edge, settled, write_config
from tests.transport.servers import loopback, read_request
from transport.provider import HttpProvider

CASES: Final = 250  # of one seed
SEEDS: Final = 20  # with `--corpus=full`
AT_ONCE: Final = 16
PATIENCE_SECONDS: Final = 0.25  # with a caller's request that may not be over
HANG_SECONDS: Final = 5.0
TABLES: Final = """
[limits]
event_bytes_max = 100_000
held_bytes_max = 200_000
body_seconds_max = 2.0
[routes.default.recovery]
attempts_max = 1
[routes.default.clocks]
headers_seconds = 0.2
first_content_seconds = 0.2
gap_seconds = 0.2
json_seconds = 0.4
finish_grace_seconds = 0.1
last_candidate_factor = 1.0
"""
BREAKER: Final = "breaker = { failures = 1_000_000, open_seconds = 1.0 }\n"
QUESTION: Final = {"model": "small", "messages": [{"role": "user", "content": "Is the tide in?"}]}
PROPER_STATUSES: Final = {200, 400, 404, 413, 502, 503}  # 502: more choices asked for than come
ENDINGS: Final = re.compile(rb'"finish_reason"\s*:\s*"[^"]|done|"message"', re.IGNORECASE)
HTTP2: Final = b"\x00\x00"  # how a server's first frame begins
ENVELOPE: Final = {"message", "type", "param", "code"}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test that takes a `seed` runs once with each."""
    if "seed" in metafunc.fixturenames:
        full = metafunc.config.getoption("--corpus") == "full"
        metafunc.parametrize("seed", range(SEEDS if full else 1))


# --- the gateway, and its provider ---------------------------------------------------------------


class Stage:
    """A provider that answers each request with the reply of its number, which is its request id; a good one where there is none."""

    def __init__(self, plays: Sequence[Reply] = ()) -> None:
        self._plays = plays

    async def __call__(self, stream: trio.SocketStream) -> None:
        with suppress(EOFError, trio.BrokenResourceError, trio.ClosedResourceError):
            while True:
                head = (await read_request(stream)).partition(b"\r\n\r\n")[0]
                found = re.search(rb"\r\nx-request-id: case-(\d+)", head)
                streams = b"\r\naccept: text/event-stream" in head
                reply = self._plays[int(found[1])] if found else whole_reply(stream=streams)
                for piece in reply.pieces:
                    await stream.send_all(piece)
                if reply.then == "reset":
                    reset(stream)
                if reply.then != "stay":
                    return


@asynccontextmanager
async def gateway(folder: Path, stage: Stage, *, failing: bool = False) -> AsyncIterator[Edge]:
    """One gateway for all cases; when it is left nothing has crashed, nothing is held or in use, and it still serves.

    `failing`: a caller's connection may have failed inside the server, where it spoke something else than HTTP/1.1.
    """
    out = io.StringIO()
    async with loopback(stage) as port:
        path = write_config(folder, f"http://127.0.0.1:{port}/v1", tables=TABLES)
        path.write_text(path.read_text().replace("base_url", BREAKER + "base_url"))
        async with running_edge(path, log_out=out) as edge:
            yield edge
            await settled(edge)
            body = json.dumps(QUESTION | {"stream": True}).encode()
            check_reply(whole_reply(stream=True), await ask(edge, with_length(body)))
            await settled(edge)
            provider = edge.gateway.pools["small"].targets[0].provider
            assert isinstance(provider, HttpProvider)
            assert provider.connections_open == provider.transport.connections_idle
    said = [json.loads(line) for line in out.getvalue().splitlines()]
    bad = {"crashed"} if failing else {"crashed", "connection_failed"}
    assert [line for line in said if line["event"] in bad] == []


async def in_turn(cases: Sequence[Case], run: Callable[[int, Case], Awaitable[None]]) -> None:
    """All cases, a few at a time; those that fail are named together at the end."""
    left = iter(enumerate(cases))
    failed: list[str] = []

    async def work() -> None:
        for number, case in left:
            try:
                with trio.fail_after(HANG_SECONDS):
                    await run(number, case)
            except (AssertionError, ValueError, KeyError, trio.TooSlowError) as error:
                failed.append(f"case {number}: {error!r}: {case!r}")

    async with trio.open_nursery() as nursery:
        for _ in range(AT_ONCE):
            nursery.start_soon(work)
    assert not failed, "\n".join(failed)


# --- a caller ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Answer:
    """One response. `whole`: HTTP says so."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    whole: bool


async def ask(edge: Edge, raw: bytes, *, patience: float = HANG_SECONDS) -> list[Answer]:
    """Sends bytes; the response that came back, the end, or `patience` ran out."""
    received = b""
    async with await edge.connect() as stream:
        with suppress(trio.BrokenResourceError), trio.move_on_after(patience):
            await stream.send_all(raw)
            while not (answers := parse(received)) or not answers[0].whole:
                data = await stream.receive_some()
                if not data:
                    break
                received += data
    return parse(received)


def parse(received: bytes) -> list[Answer]:
    """The first response in it, read as a client does; interim ones are passed over, and so is another protocol."""
    if not received:
        return []
    parser = h11.Connection(h11.CLIENT)
    parser.send(h11.Request(method="POST", target="/", headers=[("host", "gate")]))
    parser.send(h11.EndOfMessage())
    parser.receive_data(received)
    start: h11.Response | None = None
    body = b""
    while True:
        try:
            event = parser.next_event()
        except h11.RemoteProtocolError:
            assert b"HTTP/1.1 101 " in received or received.startswith(HTTP2), received
            return []
        if isinstance(event, h11.Response):
            start = event
        elif isinstance(event, h11.Data):
            body += event.data
        elif not isinstance(event, h11.InformationalResponse):
            break
    if start is None:
        return []
    named = {name.decode(): value.decode() for name, value in start.headers}
    return [Answer(start.status_code, named, body, isinstance(event, h11.EndOfMessage))]


# --- what is legal -------------------------------------------------------------------------------


def value_of(data: bytes) -> Any:
    """One JSON object, by the letter."""
    value = json.loads(data.decode(), parse_constant=_refuse)
    assert isinstance(value, dict)
    return value


def items(value: object) -> list[dict[str, Any]]:
    """The objects of a list. (Values of a wrong type are the provider's, and go on as they are.)"""
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def check_error(error: Any) -> None:
    """An error of ours, and not one that says that we have a bug."""
    assert error.keys() == ENVELOPE
    assert error["code"] != "internal_error"


def check_events(body: bytes, *, over: bool = True) -> bool:
    """Whole events, each a chunk, an error at the end or the end; whether the stream ended cleanly. `over`: no more will come."""
    *blocks, rest = body.split(b"\n\n")
    assert not over or rest == b""
    payloads = [block.removeprefix(b"data: ") for block in blocks if not block.startswith(b":")]
    clean = payloads[-1:] == [b"[DONE]"]
    values = [value_of(payload) for payload in (payloads[:-1] if clean else payloads)]
    choices = [choice for value in values for choice in items(value.get("choices"))]
    said = [each.get("finish_reason") for each in choices if each.get("index") == 0]
    finishes = sum(isinstance(finish, str) and bool(finish) for finish in said)
    failed = [value for value in values if "error" in value]
    assert failed in ([], values[-1:])
    for value in failed:
        check_error(value["error"])
    if over:
        assert clean is not bool(failed)
        assert finishes == clean
    return clean


def check_legal(answer: Answer) -> bool:
    """A stream, an object, an error, or the server's own refusal; whether it looks like a success."""
    assert answer.status != 500
    if answer.headers.get("content-type", "").startswith("text/event-stream"):
        assert answer.status == 200
        return check_events(answer.body, over=answer.whole)
    if answer.whole and answer.body:
        value = value_of(answer.body)
        if answer.status != 200:
            check_error(value["error"])
    return answer.status == 200


def check_request(request: Request, answers: Sequence[Answer]) -> None:
    """A request in proper HTTP is answered, whatever is in it; any other may be dropped."""
    for answer in answers:
        check_legal(answer)
    if request.proper:
        [answer] = answers
        assert answer.whole
        assert answer.status in PROPER_STATUSES


def check_reply(reply: Reply, answers: Sequence[Answer]) -> None:
    """The caller always has a whole response of ours; one that looks complete was complete."""
    [answer] = answers
    assert answer.whole
    success = check_legal(answer)
    if success:
        assert ENDINGS.search(reply.plain), (
            "nothing that was sent said that the answer was complete"
        )
    if reply.whole:
        assert success
        assert all(word in answer.body for word in (b"The ", b"tide ", b"is in."))


async def test_no_request_however_malformed_crashes_or_hangs_the_gateway(
    tmp_path: Path, seed: int
) -> None:
    """Each gets a legal response or a closed connection; one in proper HTTP gets a response."""
    async with gateway(tmp_path, Stage(), failing=True) as edge:

        async def run(_: int, request: Request) -> None:
            patience = HANG_SECONDS if request.proper else PATIENCE_SECONDS
            check_request(request, await ask(edge, request.raw, patience=patience))

        await in_turn(drawn(requests(), CASES, seed=seed), run)


async def test_no_answer_however_malformed_reaches_a_caller_as_anything_but_a_legal_response(
    tmp_path: Path, seed: int
) -> None:
    """Whole frames, a clean end only where the answer was complete, or an error; each tenth answer is a good one, and comes out whole."""
    plays = drawn(replies(), CASES, seed=seed)
    plays[::10] = [whole_reply(stream=at % 20 == 0) for at in range(0, len(plays), 10)]
    async with gateway(tmp_path, Stage(plays)) as edge:

        async def run(number: int, reply: Reply) -> None:
            body = json.dumps(QUESTION | {"stream": reply.stream}).encode()
            raw = with_length(body, None, b"x-request-id: case-%d" % number)
            check_reply(reply, await ask(edge, raw))

        await in_turn(plays, run)
