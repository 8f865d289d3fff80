"""What breaks off behind its first byte, told to a caller that speaks HTTP/2: there a clean end is a flag on the last frame, and its absence has to be a reset of the stream."""

from __future__ import annotations

import io
import json
from pathlib import Path

import trio

from tests.transport.edge import code_of, edge_before, question, settled
from tests.transport.test_edges_caller import Http2
from tests.transport.test_edges_tunnel import ENDS, MP3, ONCE, SPEECH, TUNNEL, echoed
from tests.transport.test_edges_upstream import (
    CHUNKED,
    ROLE,
    STREAM,
    WORDS,
    chunks,
    connections,
    resets_after,
    says,
)

SOUND = b"\xff\xfb\x90"
AUDIO = "/v1/audio/speech"
WHOLE = MP3 + chunks(SOUND, SOUND)


async def answered(caller: Http2, body: bytes, *, path: str = "") -> int:
    """Asks, and reads until the answer is over; the number of its stream."""
    caller.body = b""
    number = await (caller.ask(body, path=path) if path else caller.ask(body))
    with trio.fail_after(10):
        while not await caller.read():
            pass
    return number


async def test_a_body_that_breaks_off_is_a_reset_of_its_stream(tmp_path: Path) -> None:
    """And of nothing else: the connection's next stream is served, to a proper end."""
    log = io.StringIO()
    handler = connections(resets_after(MP3 + chunks(SOUND, last=b"")), says(WHOLE))
    async with (
        edge_before(handler, tmp_path, tables=ONCE, log_out=log) as edge,
        await edge.connect() as stream,
    ):
        caller = Http2(stream)
        cut = await answered(caller, SPEECH, path=AUDIO)
        assert (caller.status, caller.body) == (b"200", SOUND)
        assert (caller.resets, caller.ends) == ([cut], [])
        whole = await answered(caller, SPEECH, path=AUDIO)
        assert caller.body == SOUND + SOUND
        assert (caller.resets, caller.ends) == ([cut], [whole])
        await settled(edge)
    lines = [json.loads(line) for line in log.getvalue().splitlines()]
    ended = [line["code"] for line in lines if line["event"] == "exchange_ended"]
    assert ended == ["stream_cut", "success"]
    assert not [line for line in lines if line["event"] in {"crashed", "connection_failed"}]


async def test_an_event_stream_that_breaks_off_says_so_and_ends(tmp_path: Path) -> None:
    """The error is the last event, and a proper end lets it be read."""
    handler = connections(resets_after(CHUNKED + chunks(ROLE, *WORDS, last=b"")))
    async with (
        edge_before(handler, tmp_path, provider=TUNNEL, tables=ONCE) as edge,
        await edge.connect() as stream,
    ):
        caller = Http2(stream)
        number = await answered(caller, question())
    sent = echoed(b"".join([ROLE, *WORDS]))
    assert code_of(caller.body.removeprefix(sent + b"data: ")) == "stream_cut"
    assert (caller.resets, caller.ends) == ([], [number])


async def test_an_older_contract_ends_without_a_word(tmp_path: Path) -> None:
    """A clean end, for whoever relies on it; also where it is a body."""
    handler = connections(resets_after(MP3 + chunks(SOUND, last=b"")))
    async with (
        edge_before(handler, tmp_path, tables=ONCE + ENDS) as edge,
        await edge.connect() as stream,
    ):
        caller = Http2(stream)
        number = await answered(caller, SPEECH, path=AUDIO)
    assert caller.body == SOUND
    assert (caller.resets, caller.ends) == ([], [number])


async def test_a_whole_stream_ends_in_order(tmp_path: Path) -> None:
    """Byte by byte what the provider said, and then the flag."""
    handler = connections(says(CHUNKED + chunks(*STREAM)))
    async with (
        edge_before(handler, tmp_path, provider=TUNNEL) as edge,
        await edge.connect() as stream,
    ):
        caller = Http2(stream)
        number = await answered(caller, question())
    assert caller.body == echoed(b"".join(STREAM))
    assert (caller.resets, caller.ends) == ([], [number])
