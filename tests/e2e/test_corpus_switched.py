"""Recorded streams under what a caller or an operator may switch on: an explanation changes nothing but comments and header fields, and usage that was asked for behind a caller's back leaves no trace."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Sequence
from typing import Any, Final

import pytest
import trio

from gate.config import HoldConfig, PathKind, RecoveryConfig
from gate.explain import EXPLAINED_HEADERS
from tests.doubles import RecordingCaller, ScriptedProvider, gateway, request, says, supervise
from tests.e2e import test_corpus as chat
from tests.e2e import test_corpus_responses as responses
from tests.e2e.test_corpus import CORPUS, split
from tests.e2e.test_corpus_tunnel import relayed, renamed

COMMENTS: Final = re.compile(rb": tidegate [ -~]*\n\n")
RESPONSES: Final = "/v1/responses"
HOLDS: Final = {
    "live": HoldConfig(),
    "buffered": HoldConfig(mode="buffered"),
}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Once for each recording of the endpoints that a test is about."""
    full = metafunc.config.getoption("--corpus") == "full"
    kinds = {"recorded": (chat, responses), "streamed": (chat,)}
    for name in kinds.keys() & set(metafunc.fixturenames):
        found = [each for kind in kinds[name] for each in kind.recordings(full=full)] if CORPUS.is_dir() else []  # fmt: skip
        absent = pytest.param(
            None, marks=pytest.mark.skip(reason="the recorded streams are not here")
        )
        metafunc.parametrize(
            name, found or [absent], ids=lambda each: each.name if each else "none"
        )


def reads_of(data: bytes, name: str) -> list[bytes]:
    """Reads of 1 to 400 bytes, the same every time."""
    draw = random.Random(name)  # noqa: S311 - cuts, not secrets
    reads, at = [], 0
    while at < len(data):
        size = draw.randint(1, 400)
        reads.append(data[at : at + size])
        at += size
    return reads


def asking(recorded: Any, *, stream: bool = True) -> tuple[bytes, str]:
    """A request for such an answer, and where it is asked."""
    if isinstance(recorded, responses.Recorded):
        value = {"model": "small", "input": "Hi", "stream": stream}
        return json.dumps(value).encode(), RESPONSES
    return request(n=recorded.choices, stream=stream), "/v1/chat/completions"


@pytest.mark.parametrize("hold", HOLDS)
@pytest.mark.parametrize("paths", [[], ["tunnel"]], ids=["normalized", "tunnel"])
async def test_an_explained_answer_is_the_same_answer(
    recorded: Any, paths: Any, hold: str, autojump_clock: trio.abc.Clock
) -> None:
    """Whole or cut: the same status and fields, and the same bytes once the comments are taken out; each of them behind whole events."""
    data, endpoint = asking(recorded)
    callers = [RecordingCaller(data), RecordingCaller(data)]
    for caller in callers:
        provider = ScriptedProvider(says(*reads_of(recorded.data, recorded.name)))
        gate = gateway(provider, paths=paths, hold=HOLDS[hold], recovery=RecoveryConfig(attempts_max=1))  # fmt: skip
        await supervise(gate, caller, endpoint=endpoint, explain=caller is callers[1])
    plain, explained = callers
    assert COMMENTS.sub(b"", explained.received) == plain.received
    assert explained.status == plain.status
    fields = {name: value for name, value in explained.headers.items() if name not in EXPLAINED_HEADERS}  # fmt: skip
    assert fields == plain.headers
    assert bool(COMMENTS.search(explained.received)) is (plain.status == 200)
    written = b""
    for _, piece in explained.writes:
        comment = piece.startswith(b": tidegate ")
        assert not comment or not written or written.endswith((b"\n\n", b"\n\r\n", b"\r\n\r"))
        written += piece


def is_extra(event: bytes) -> bool:
    """The chunk that reports usage and is about no choice."""
    try:
        value = json.loads(event.rpartition(b"data:")[2])
    except ValueError:
        return False
    return isinstance(value, dict) and bool(value.get("usage")) and not value.get("choices")


async def test_usage_that_nobody_saw_asked_for_is_not_seen(
    streamed: Any, autojump_clock: trio.abc.Clock
) -> None:
    """In a tunnel the extra chunk is missing and nothing else; elsewhere nothing tells of usage either. What was reported is counted alike."""
    if not streamed.complete:
        return
    data, _ = asking(streamed)
    body: Sequence[bytes] = split(relayed(streamed))
    wanted = renamed(b"".join(each for each in body if not is_extra(each)))
    ways: tuple[Sequence[PathKind], ...] = (["tunnel"], [])
    for paths in ways:
        caller = RecordingCaller(data)
        provider = ScriptedProvider(says(*reads_of(streamed.data, streamed.name)))
        gate = gateway(provider, paths=paths, asks=True)
        outcome = await supervise(gate, caller)
        assert outcome.code == ""
        assert json.loads(provider.asked[0].body)["stream_options"] == {"include_usage": True}
        if paths:
            assert caller.received == wanted.replace(b'"alias"', b'"small"')
        else:
            chunks = [json.loads(each.partition(b"data: ")[2]) for each in caller.received.split(b"\n\n")[:-2]]  # fmt: skip
            assert not any(each.get("usage") for each in chunks)
            assert all("usage" not in each for each in chunks)


def test_there_are_recordings_with_such_a_chunk() -> None:
    """So that their absence proves something."""
    if CORPUS.is_dir():
        found = [each for each in chat.recordings(full=True) if any(map(is_extra, split(each.data)))]  # fmt: skip
        assert len(found) >= 20
