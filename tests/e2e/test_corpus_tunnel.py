"""Recorded streams through a tunnel: wherever the network cuts, the caller gets the recorded bytes, with the alias in the place of the model's name.

What must come of a stream follows from its facts, as on the other path (`test_corpus.py`). What the name's places are is found here by another way: every payload is parsed, and what is not the same
afterwards is the top-level `model` alone.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
import trio

from gate.completions import PATH as COMPLETIONS
from gate.config import PathKind, RecoveryConfig
from gate.model_echo import ModelEcho
from tests.doubles import (
    RecordingCaller,
    ScriptedProvider,
    gateway,
    refuses,
    request,
    says,
    supervise,
)
from tests.e2e.test_corpus import (
    CORPUS,
    Recorded,
    at_random,
    ending_by_the_byte,
    one_byte,
    per_event,
    recordings,
    split,
    whole,
)
from tests.pipeline import relay

ERRORS: Final = CORPUS.parent / "errors"
Cut = Callable[[Recorded], Sequence[bytes]]
CUTS: Final = (whole, per_event, one_byte, at_random)
EVERY_CUT: Final = 100  # so many boundaries of one stream, and so many at each of its ends
ENDS: Final = 20


@dataclass(frozen=True, slots=True)
class Refused:
    """A recorded answer that is no 2xx."""

    name: str
    status: int
    body: bytes


def legacy() -> list[Recorded]:
    """The recorded streams of legacy completions."""
    found = []
    for path in sorted(CORPUS.rglob("*.json")):
        meta = json.loads(path.read_text())
        if meta["endpoint"] == COMPLETIONS:
            oracle = meta["assembled"]
            choices = (meta.get("request") or {}).get("n") or max(len(oracle.get("choices", ())), 1)
            data = path.with_suffix(".sse").read_bytes()
            found.append(
                Recorded(meta["name"], meta["provider"], frozenset(), data, choices, oracle)
            )
    return found


def refusals() -> list[Refused]:
    """Every recorded error."""
    found = []
    for path in sorted(ERRORS.glob("*.json")):
        meta = json.loads(path.read_text())
        found.append(Refused(meta["name"], meta["status"], path.with_suffix(".body").read_bytes()))
    return found


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Tests that take a recording of one kind run once for each."""
    full = metafunc.config.getoption("--corpus") == "full"
    kinds: dict[str, Callable[[], Sequence[Any]]] = {
        "recorded": lambda: recordings(full=full),
        "completion": legacy,
        "refused": refusals,
    }
    for name in kinds.keys() & set(metafunc.fixturenames):
        found = kinds[name]() if CORPUS.is_dir() else []
        absent = pytest.param(
            None, marks=pytest.mark.skip(reason="the recorded streams are not here")
        )
        metafunc.parametrize(
            name, found or [absent], ids=lambda each: each.name if each else "none"
        )


def renamed(data: bytes) -> bytes:
    """The recorded bytes with the alias in them, by way of parsed payloads: in each line the one place is found that makes its top-level name another."""
    return b"".join(_renamed(line) for line in data.splitlines(keepends=True))


def relayed(recorded: Recorded) -> bytes:
    """What has to come of a complete answer: the recorded bytes, less an error that came when it was complete already, which would make it a failure for the caller alone."""
    if not recorded.oracle.get("errors_in_stream"):
        return recorded.data
    return b"".join(event for event in recorded.events if not _is_error(event))


def _is_error(event: bytes) -> bool:
    value = _object(event.rpartition(b"data:")[2])
    return isinstance(value, dict) and bool(value.get("error"))


def _renamed(line: bytes) -> bytes:
    at = line.find(b"{")
    value = _object(line[at:]) if line.startswith(b"data:") and at > 0 else None
    if value is None or not isinstance(value.get("model"), str):
        return line
    wanted = {**value, "model": "alias"}
    for start, end in _quoted(line, json.dumps(value["model"]).encode()):
        changed = line[:start] + b'"alias"' + line[end:]
        if _object(changed[at:]) == wanted:
            return changed
    raise AssertionError("the name is spelled in another way")


def _quoted(line: bytes, name: bytes) -> Iterator[tuple[int, int]]:
    at = line.find(name)
    while at >= 0:
        yield at, at + len(name)
        at = line.find(name, at + 1)


def _object(data: bytes) -> Any:
    try:
        return json.loads(data)
    except ValueError:
        return None


@pytest.mark.parametrize("cut", CUTS)
def test_the_bytes_are_those_that_were_recorded(recorded: Recorded, cut: Cut) -> None:
    """To the last one where the answer is complete; else a beginning of them, without what shows that it failed."""
    passed = relay(
        cut(recorded), choices=recorded.choices, echo=ModelEcho("alias"), context=recorded.context
    )
    assert (passed.failure is None) is recorded.complete
    if recorded.complete:
        assert passed.body == renamed(relayed(recorded))
    else:
        assert renamed(recorded.data).startswith(passed.body)


def test_without_another_name_they_are_the_same_bytes(recorded: Recorded) -> None:
    """Off where the alias is the model's own name; think tags held or not."""
    passed = relay(at_random(recorded), choices=recorded.choices, think_tags=True)
    if recorded.complete:
        assert passed.body == relayed(recorded)
    else:
        assert recorded.data.startswith(passed.body)


@pytest.mark.parametrize("cut", CUTS)
def test_legacy_completions_are_relayed_likewise(completion: Recorded, cut: Cut) -> None:
    """Complete as the oracle says, by the same rule as chat."""
    passed = relay(cut(completion), endpoint=COMPLETIONS, choices=completion.choices, echo=ModelEcho("alias"))  # fmt: skip
    finished = [choice["finish_reasons"] for choice in completion.oracle.get("choices", {}).values()]  # fmt: skip
    complete = len(finished) == completion.choices and all(finished)
    assert (passed.failure is None) is complete
    whole_body = renamed(completion.data)
    assert passed.body == whole_body if complete else whole_body.startswith(passed.body)


def test_a_completion_that_is_cut_is_none(
    completion: Recorded, pytestconfig: pytest.Config
) -> None:
    """Every event boundary with an orderly end behind it, before the last finish reason; of a long one its ends, and some between, but with `--corpus=full`."""
    events = split(completion.data)
    every = 1 if pytestconfig.getoption("--corpus") == "full" else len(events) // EVERY_CUT + 1
    ends = [*range(min(ENDS, len(events))), *range(max(0, len(events) - ENDS), len(events))]
    for count in sorted({*ends, *range(0, len(events), every)}):
        said = b"".join(events[:count])
        finishes = said.count(b'"finish_reason":"') + said.count(b'"finish_reason": "')
        passed = relay(events[:count], endpoint=COMPLETIONS, choices=completion.choices)
        assert (passed.failure is None) is (finishes >= completion.choices), count


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
    caller = RecordingCaller(request(n=recorded.choices))
    outcome = await supervise(gate, caller)
    assert (outcome.code == "") is recorded.complete
    whole_body = relayed(recorded) if recorded.complete else recorded.data
    wanted = renamed(whole_body).replace(b'"alias"', b'"small"')
    if recorded.complete:
        assert caller.received == wanted
    elif caller.status == 200:
        sent, _, error = caller.received.rstrip(b"\n").rpartition(b"\n\n")
        assert wanted.startswith(sent)
        assert json.loads(error.removeprefix(b"data: "))["error"]["code"] == outcome.code


@pytest.mark.parametrize(
    ("endpoint", "paths"),
    [
        ("/v1/chat/completions", ["tunnel"]),
        ("/v1/chat/completions", []),
        ("/v1/responses", []),
        (COMPLETIONS, []),
    ],
    ids=["tunnel", "chat", "responses", "completions"],
)
@pytest.mark.parametrize("stream", [True, False], ids=["stream", "json"])
async def test_recorded_errors_get_our_envelope(
    refused: Refused,
    endpoint: str,
    paths: Sequence[PathKind],
    autojump_clock: trio.abc.Clock,
    *,
    stream: bool,
) -> None:
    """On either path and at every endpoint: the caller's fault as the provider said it, everything else as the gate's own; no word of the provider's, and nothing but the envelope."""
    gate = gateway(
        ScriptedProvider(refuses(refused.status, refused.body), for_ever=True), paths=paths
    )
    caller = RecordingCaller(request(stream=stream, input="Hi", prompt="Hi"))
    outcome = await supervise(gate, caller, endpoint=endpoint)
    error = json.loads(caller.received)["error"]
    assert set(error) == {"message", "type", "param", "code"}
    gone = refused.status == 400 and b"model_not_found" in refused.body
    assert caller.status == (404 if gone else 502 if refused.status == 401 else refused.status)
    assert caller.headers[b"content-type"] == b"application/json"
    type_ = {400: "invalid_request_error", 404: "not_found_error", 429: "rate_limit_error"}
    tunnelled = bool(paths) or endpoint == COMPLETIONS
    ours = "provider_tunnel_error" if tunnelled else "run_error"
    assert error["type"] == type_.get(caller.status, ours)
    assert (outcome.code, outcome.status) == (error["code"], caller.status)
    told = _object(refused.body) or {}
    inner = told.get("error") if isinstance(told, dict) else None
    message = inner.get("message") if isinstance(inner, dict) else inner
    assert not isinstance(message, str) or message not in caller.received.decode()


def test_the_corpus_is_where_it_is_looked_for() -> None:
    """So that a wrong path is no success."""
    if Path(CORPUS).is_dir():
        assert len(legacy()) == 8
        assert len(refusals()) == 32
