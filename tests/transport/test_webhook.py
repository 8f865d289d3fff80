"""A guardrail service over HTTP: one POST for each question, and whatever goes wrong is no verdict."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

from gate.config import FilterConfig
from gate.errors import FilterUnavailable
from gate.events import Facts, Frame, RoleDelta, TextDelta
from gate.filters.awaited import Awaited, Question
from gate.filters.contract import Passed, Violated
from tests.transport.servers import MemoryEnd, MemoryNet, Script, answers, read_request
from transport.http1 import Http1Transport
from transport.webhook import Webhook

NEW = Awaited(FilterConfig(kind="webhook"))
ASKED = Question(0, (Frame(b"{}", (TextDelta(0, "Hello"),), 2),))
TOO_MUCH = b'{"pass":true,"x":"' + b"x" * 70_000 + b'"}'


def response(body: bytes, status: bytes = b"200 OK") -> bytes:
    """A whole HTTP response."""
    return b"HTTP/1.1 %b\r\ncontent-length: %d\r\n\r\n%b" % (status, len(body), body)


@asynccontextmanager
async def service(
    *scripts: Script, api_key: str | None = None, **options: Any
) -> AsyncIterator[Webhook]:
    """A webhook whose service answers so, one script per connection."""
    net = MemoryNet()
    table = FilterConfig(kind="webhook", url="http://guard.test:81/v1/judge/", **options)
    async with (
        trio.open_nursery() as nursery,
        Webhook("guard", table, api_key, transport=Http1Transport(net)) as webhook,
    ):
        await nursery.start(net.serve, *scripts)
        yield webhook
        nursery.cancel_scope.cancel()
    assert net.open == 0


async def test_a_question_is_one_post() -> None:
    """To the path of the URL as it stands, with the key of its table; the connection is used again."""
    seen: list[bytes] = []

    async def script(stream: MemoryEnd) -> None:
        for body in (b'{"pass":true}', b'{"pass":false,"code":"pii"}'):
            seen.append(await read_request(stream))
            await stream.send_all(response(body))

    async with service(script, api_key="k-1") as webhook:
        asker = webhook.begin("ex-1", 1, NEW)
        assert await asker.judge(ASKED) == Passed(1)
        denied = await asker.judge(Question(1, ASKED.frames, Facts()))
    assert isinstance(denied, Violated)
    assert (denied.position, denied.code) == (1, "pii")
    head, _, body = seen[0].partition(b"\r\n\r\n")
    assert head.startswith(b"POST /v1/judge/ HTTP/1.1\r\n")
    assert b"\r\nhost: guard.test:81\r\n" in head.lower()
    assert b"authorization: Bearer k-1" in head
    assert json.loads(body)["texts"][0]["text"] == "Hello"


async def test_nothing_is_asked_about_frames_without_text() -> None:
    """There is no server at all."""
    async with service() as webhook:
        asker = webhook.begin("ex-1", 1, NEW)
        silent = Question(0, (Frame(b"{}", (RoleDelta(0, "assistant"),), 2),))
        assert await asker.judge(silent) == Passed(1)
        assert repr(webhook) == "<Webhook guard>"


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (response(b"{}", b"500 Internal Server Error"), "webhook_status"),
        (response(b'{"pass":true}', b"302 Found"), "webhook_status"),
        (response(b"no"), "webhook_answer"),
        (response(TOO_MUCH), "webhook_answer"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 50\r\n\r\n{", "webhook_unreachable"),
        (b"SMTP ready\r\n\r\n", "webhook_unreachable"),
        (b"", "webhook_unreachable"),
    ],
)
async def test_what_goes_wrong_is_no_verdict(answer: bytes, code: str) -> None:
    """Whoever asked has a policy for it."""
    async with service(answers([answer], close=True)) as webhook:
        with pytest.raises(FilterUnavailable) as caught:
            await webhook.begin("ex-1", 1, NEW).judge(ASKED)
    assert caught.value.public_code == code


async def test_a_verdict_that_only_the_close_ends_is_one_where_it_can_be_read() -> None:
    """HTTP/1.0: half a verdict is none."""
    head = b"HTTP/1.0 200 OK\r\n\r\n"
    whole = answers([head + b'{"pass":true}'], close=True)
    half = answers([head + b'{"pass":tr'], close=True)
    async with service(whole, half) as webhook:
        asker = webhook.begin("ex-1", 1, NEW)
        assert await asker.judge(ASKED) == Passed(1)
        with pytest.raises(FilterUnavailable) as caught:
            await asker.judge(ASKED)
    assert caught.value.public_code == "webhook_answer"


async def test_a_question_that_is_given_up_closes_its_connection(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """At once; nothing of it is used again."""

    async def silent(stream: MemoryEnd) -> None:
        await read_request(stream)
        await trio.sleep_forever()

    async with service(silent) as webhook:
        with trio.move_on_after(1) as scope:
            await webhook.begin("ex-1", 1, NEW).judge(ASKED)
        assert scope.cancelled_caught
