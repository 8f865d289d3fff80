"""What endpoint and path decide, asked one by one; whole exchanges are in `test_tunnelling.py` and `test_relaying.py`."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from actors.context import Exchange
from actors.endpoint import (
    continuable_of,
    framing_name,
    header_of,
    mode_of,
    path_of,
    reader_of,
    tunnel_of,
)
from gate.config import PathKind
from gate.reader import ChatBodyReader, ChatStreamReader
from gate.tunnel import TunnelStreamReader
from tests.doubles import (
    JSON,
    SSE,
    Answer,
    Asked,
    ScriptedProvider,
    ScriptedResponse,
    door,
    exchange_of,
    gateway,
    request,
)


async def exchange(
    *, path: PathKind = "normalized", stream: bool = True, **changes: Any
) -> Exchange:
    """One at a provider of this path. `changes`: of the door."""
    await trio.lowlevel.checkpoint()
    gate = gateway(ScriptedProvider(), paths=[path], prefill="assistant")
    made = exchange_of(gate, data=request(stream=stream))
    made.door = door(**changes)
    return made


def response(*headers: tuple[bytes, bytes], status: int = 200) -> ScriptedResponse:
    """A provider's head."""
    return ScriptedResponse(Answer(status=status, headers=headers), Asked("", {}, b"", 0.0))


async def test_the_path_is_that_of_the_target_where_there_is_a_choice() -> None:
    """One that goes on with an answer is framed as that was; another endpoint has one path only."""
    for path in ("normalized", "tunnel"):
        made = await exchange(path=path)
        assert path_of(made, made.targets[0], continues=False) == path
        assert path_of(made, made.targets[0], continues=True) == "normalized"
        made.door = door(endpoint="/v1/files")
        assert path_of(made, made.targets[0], continues=False) == "tunnel"


async def test_the_reader_follows_from_path_and_type() -> None:
    """204 is an answer only where nothing was sent."""
    made = await exchange()
    target = made.targets[0]
    assert isinstance(reader_of(made, target, response(*SSE), continues=False), ChatStreamReader)
    assert isinstance(reader_of(made, target, response(*JSON), continues=False), ChatBodyReader)
    assert reader_of(made, target, response(), continues=False) is None
    assert reader_of(made, target, response(*JSON, status=204), continues=False) is None
    made.path = "tunnel"
    assert isinstance(reader_of(made, target, response(*SSE), continues=False), TunnelStreamReader)
    made.door = door(endpoint="/v1/files/1", method="DELETE")
    assert reader_of(made, target, response(status=204), continues=False) is not None


async def test_a_tunnel_relays_a_head() -> None:
    """The other path has its own."""
    made = await exchange()
    answer = response((b"content-type", b"a/b"), (b"server", b"up"), status=201)
    assert tunnel_of(made, answer) is None
    made.path = "tunnel"
    tunnel = tunnel_of(made, answer)
    assert tunnel is not None
    assert (tunnel.status, tunnel.headers, tunnel.marks) == (201, ((b"content-type", b"a/b"),), True)  # fmt: skip
    assert (header_of(answer, b"server"), header_of(answer, b"date")) == (b"up", None)


async def test_only_a_stream_of_chat_is_continued() -> None:
    """Where the route and a target allow it."""
    for made, mode, able in (
        (await exchange(), "held", True),
        (await exchange(), "off", False),
        (await exchange(stream=False), "held", False),
        (await exchange(endpoint="/v1/completions"), "held", False),
    ):
        found = continuable_of(made.door, made.targets, made.snapshot, mode)
        assert (found is not None) is able


@pytest.mark.parametrize("stream", [True, False])
async def test_a_response_that_never_began_is_counted_as_what_it_would_have_been(
    *, stream: bool, autojump_clock: trio.abc.Clock
) -> None:
    """By the attempt that was admitted last."""
    made = await exchange(stream=stream)
    asked = made.snapshot.request
    kind = "sse" if stream else "json"
    assert (framing_name(asked, made), mode_of("", made)) == (f"chat_{kind}", "normalized")
    assert (framing_name(asked, None), mode_of("", None)) == (f"chat_{kind}", "normalized")
    made.path = "tunnel"
    kind = "sse" if stream else "body"
    assert (framing_name(asked, made), mode_of("", made)) == (f"tunnel_{kind}", "passthrough")
    assert mode_of("chat_sse", made) == "normalized"
    assert mode_of("tunnel_sse", None) == "passthrough"
