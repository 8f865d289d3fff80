"""Recorded Responses streams through a tunnel: wherever the network cuts, the caller gets the recorded bytes, with the alias in the place of the model's name, in every response object too.

Where the names stand is found here by another way: every payload is parsed, and what is not the same afterwards is `model` and `response.model` alone.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import pytest
import trio

from gate.config import RecoveryConfig
from gate.endpoints import RESPONSES
from gate.model_echo import ModelEcho
from tests.doubles import (
    JSON,
    RecordingCaller,
    ScriptedProvider,
    body,
    gateway,
    left_behind,
    says,
    supervise,
)
from tests.e2e.test_corpus_responses import (
    CORPUS,
    Recorded,
    at_random,
    one_byte,
    recordings,
    whole,
)
from tests.pipeline import cut_at, relay

PLACES: Final = (("model",), ("response", "model"))
Cut = Callable[[Recorded], Sequence[bytes]]


def per_event(recorded: Recorded) -> Sequence[bytes]:
    """One event per read."""
    return [part + b"\n\n" for part in recorded.data.split(b"\n\n")[:-1]]


def ending_by_the_byte(recorded: Recorded) -> Sequence[bytes]:
    """The last of it by the byte, what comes before in one read."""
    at = max(len(recorded.data) - 400, 0)
    return [recorded.data[:at] or b"\n", *cut_at(recorded.data[at:], 1)]


CUTS: Final = (whole, per_event, one_byte, at_random)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test that takes `recorded` runs once per recording."""
    if "recorded" not in metafunc.fixturenames:
        return
    full = metafunc.config.getoption("--corpus") == "full"
    found = recordings(full=full) if CORPUS.is_dir() else []
    absent = pytest.param(None, marks=pytest.mark.skip(reason="the recorded streams are not here"))
    metafunc.parametrize(
        "recorded", found or [absent], ids=lambda each: each.name if each else "none"
    )


def renamed(data: bytes, alias: str) -> bytes:
    """The recorded bytes with the alias in them, by way of parsed payloads."""
    return b"".join(_renamed(line, alias) for line in data.splitlines(keepends=True))


def _renamed(line: bytes, alias: str) -> bytes:
    at = line.find(b"{")
    if not line.startswith(b"data:") or at < 0:
        return line
    for place in PLACES:
        wanted = json.loads(line[at:])
        inner: Any = wanted if len(place) == 1 else wanted.get(place[0])
        if not isinstance(inner, dict) or not isinstance(inner.get("model"), str):
            continue
        name = json.dumps(inner["model"]).encode()
        inner["model"] = alias
        tried = (line[:start] + json.dumps(alias).encode() + line[end:] for start, end in _quoted(line, name))  # fmt: skip
        line = next(changed for changed in tried if json.loads(changed[at:]) == wanted)
    return line


def _quoted(line: bytes, name: bytes) -> Iterator[tuple[int, int]]:
    at = line.find(name)
    while at >= 0:
        yield at, at + len(name)
        at = line.find(name, at + 1)


@pytest.mark.parametrize("cut", CUTS)
def test_the_bytes_are_those_that_were_recorded(recorded: Recorded, cut: Cut) -> None:
    """To the last one where the answer is complete, `[DONE]` where one was sent; else a beginning of them, without what shows that it failed."""
    echo = ModelEcho("alias", nested=True)
    passed = relay(cut(recorded), endpoint=RESPONSES.path, echo=echo)
    wanted = renamed(recorded.data, "alias")
    assert (passed.failure is None) is recorded.complete
    if recorded.complete:
        assert passed.body == wanted
    else:
        assert wanted.startswith(passed.body)
        assert b"response.failed" not in passed.body


def test_without_another_name_they_are_the_same_bytes(recorded: Recorded) -> None:
    """Off where the alias is the model's own name; think tags looked for or not."""
    passed = relay(at_random(recorded), endpoint=RESPONSES.path, think_tags=True)
    assert recorded.data.startswith(passed.body)
    assert not recorded.complete or passed.body == recorded.data


def test_no_boundary_but_the_last_ends_as_a_success(recorded: Recorded) -> None:
    """An orderly end behind any event before the terminal one is a failed attempt, of which a beginning was relayed."""
    events = per_event(recorded)
    for count in {*range(min(8, len(events))), *range(max(len(events) - 8, 0), len(events))}:
        passed = relay(events[:count], endpoint=RESPONSES.path)
        said = b"".join(events[:count])
        over = recorded.complete and b'"type":"response.%b"' % recorded.oracle["status"].encode() in said.replace(b'": "', b'":"')  # fmt: skip
        assert (passed.failure is None) is over, count
        assert said.startswith(passed.body)


@pytest.mark.parametrize("cut", [per_event, ending_by_the_byte])
async def test_the_actors_relay_them_too(
    recorded: Recorded, cut: Cut, autojump_clock: trio.abc.Clock
) -> None:
    """A whole exchange; one that fails behind its first byte ends in an event of ours."""
    gate = gateway(
        ScriptedProvider(says(*cut(recorded))),
        paths=["tunnel"],
        recovery=RecoveryConfig(attempts_max=1),
    )
    asked = json.dumps({"model": "small", "input": "Hello", "stream": True}).encode()
    caller = RecordingCaller(asked)
    outcome = await supervise(gate, caller, endpoint=RESPONSES.path)
    assert (outcome.code == "") is recorded.complete
    assert left_behind(gate) == []
    wanted = renamed(recorded.data, "small")
    if recorded.complete:
        assert (outcome.framing, outcome.mode) == ("tunnel_sse", "passthrough")
        assert caller.received == wanted
    elif caller.status == 200:
        sent, _, error = caller.received.rstrip(b"\n").rpartition(b"\n\n")
        assert wanted.startswith(sent)
        assert json.loads(error.removeprefix(b"data: "))["error"]["code"] == outcome.code


async def test_a_whole_response_is_relayed_too(
    recorded: Recorded, autojump_clock: trio.abc.Clock
) -> None:
    """The response object at the stream's end, as a body: its bytes, renamed once."""
    if not recorded.complete:
        return
    ended = next(each for each in recorded.stream if each["type"] == f"response.{recorded.oracle['status']}")  # fmt: skip
    said = json.dumps(ended["response"], indent=1).encode()
    gate = gateway(ScriptedProvider(body(said, headers=JSON)), paths=["tunnel"])
    caller = RecordingCaller(b'{"model":"small","input":"Hello"}')
    outcome = await supervise(gate, caller, endpoint=RESPONSES.path)
    assert (outcome.code, outcome.framing) == ("", "tunnel_body")
    assert json.loads(caller.received) == {**ended["response"], "model": "small"}
    name = b'"model": ' + json.dumps(ended["response"]["model"]).encode()
    assert caller.received.replace(b'"model": "small"', name) == said
    assert caller.headers[b"content-length"] == str(len(caller.received)).encode()
