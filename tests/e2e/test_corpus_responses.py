"""Recorded Responses streams of nine kinds of servers: wherever the network cuts, the caller assembles what an independent reader made of the same bytes.

Each stream's `.json` holds that reader's result, the oracle: texts by their digest, items, usage, and how it ended. `--corpus=full` goes through all of them.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
import trio

from gate.config import RecoveryConfig
from gate.endpoints import RESPONSES
from tests.assembly_responses import Answer, read_events, texts_of
from tests.doubles import RecordingCaller, ScriptedProvider, gateway, says, supervise
from tests.pipeline import cut_at, run

CORPUS: Final = Path(__file__).resolve().parents[2].parent / "shared" / "corpus" / "streams"
SAMPLE_BYTES_MAX: Final = 40_000
DELTAS: Final = {
    "output_text": "delta_text",
    "refusal": "delta_refusal",
    "reasoning_text": "delta_reasoning",
    "reasoning_summary_text": "delta_reasoning",
}


@dataclass(frozen=True, slots=True)
class Recorded:
    """One stream and its oracle."""

    name: str
    provider: str
    features: frozenset[str]
    data: bytes
    oracle: Any
    stream: Any

    @property
    def complete(self) -> bool:
        return self.oracle["terminal"] in {"response.completed", "response.incomplete"}


def load(path: Path) -> Recorded | None:
    """One recording, if it is of the Responses API."""
    meta = json.loads(path.read_text())
    if meta["endpoint"] != "/v1/responses":
        return None
    data = path.with_suffix(".sse").read_bytes()
    events = [
        json.loads(line.removeprefix(b"data:"))
        for line in data.splitlines()
        if line.startswith(b"data:") and b"{" in line
    ]
    return Recorded(meta["name"], meta["provider"], frozenset(meta["features"]), data, meta["assembled"], events)  # fmt: skip


def recordings(*, full: bool) -> list[Recorded]:
    """All, or the smallest of each provider and of each feature."""
    found = [each for path in sorted(CORPUS.rglob("*.json")) if (each := load(path)) is not None]
    if full:
        return found
    found.sort(key=lambda each: (len(each.data), each.name))
    kinds = {each.provider for each in found} | {f for each in found for f in each.features}
    taken: dict[str, Recorded] = {}
    for kind in sorted(kinds):
        shows = [each for each in found if kind == each.provider or kind in each.features]
        taken |= {each.name: each for each in shows[:1] if len(each.data) <= SAMPLE_BYTES_MAX}
    return sorted(taken.values(), key=lambda each: each.name)


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


# --- cuts ----------------------------------------------------------------------------------------


def whole(recorded: Recorded) -> Sequence[bytes]:
    """Everything in one read."""
    return [recorded.data]


def one_byte(recorded: Recorded) -> Sequence[bytes]:
    """One byte per read: inside characters, line ends and names."""
    return list(cut_at(recorded.data, 1))


def at_random(recorded: Recorded) -> Sequence[bytes]:
    """Reads of 1 to 400 bytes, the same every time."""
    draw = random.Random(recorded.name)  # noqa: S311 - cuts, not secrets
    ends = itertools.accumulate(iter(lambda: draw.randint(1, 400), 0))
    marks = list(itertools.takewhile(lambda end: end < len(recorded.data), ends))
    return [recorded.data[a:b] for a, b in itertools.pairwise([0, *marks, len(recorded.data)])]


CUTS: Final = (whole, one_byte, at_random)
Cut = Callable[[Recorded], Sequence[bytes]]

# --- what must come of it ------------------------------------------------------------------------


def parts_of(recorded: Recorded) -> dict[str, list[str]]:
    """What the recorded deltas say, part by part, by kind; their sum is the oracle's text."""
    found: dict[str, dict[tuple[int, int], str]] = {kind: {} for kind in DELTAS}
    for event in recorded.stream:
        kind = event["type"].removeprefix("response.").removesuffix(".delta")
        if kind in DELTAS and event["type"].endswith(".delta"):
            at = event["output_index"], event.get("content_index", event.get("summary_index", 0))
            found[kind][at] = found[kind].get(at, "") + event["delta"]
    return {kind: [parts[at] for at in sorted(parts)] for kind, parts in found.items()}


def check_texts(recorded: Recorded, answer: Answer) -> None:
    """Part by part what the oracle has, completed by what an end said where the recording was trimmed."""
    recorded_parts = parts_of(recorded)
    said: dict[str, list[str]] = {kind: [] for kind in DELTAS}
    for name, index, part in sorted(answer.texts):
        kind = name.removeprefix("response.")
        if kind in DELTAS:
            said[kind].append(answer.texts[name, index, part])
    for kind, parts in recorded_parts.items():
        assert len(said[kind]) == len(parts)
        assert all(map(str.startswith, said[kind], parts))
    for name, oracle in recorded.oracle.items():
        kinds = [kind for kind, known in DELTAS.items() if known == name]
        if kinds and all(said[kind] == recorded_parts[kind] for kind in kinds):
            text = "".join("".join(said[kind]) for kind in kinds)
            assert hashlib.sha256(text.encode()).hexdigest() == oracle["sha256"]


def check(recorded: Recorded, response: dict[str, Any]) -> None:
    """The caller's response is the oracle's."""
    oracle = recorded.oracle
    assert response["status"] == oracle["status"]
    assert response.get("incomplete_details") == oracle["incomplete_details"]
    assert response["usage"] == oracle["usage_last"]
    assert [item["type"] for item in response["output"]] == [
        item["type"] for item in oracle["output_items"]
    ]
    for item, known in zip(response["output"], oracle["output_items"], strict=True):
        for member in ("name", "arguments"):
            assert item.get(member) == known.get(member, item.get(member))


def check_stream(recorded: Recorded, answer: Answer) -> None:
    """The stream's own items and texts are those of the response at its end."""
    assert answer.events[-1]["type"] == f"response.{recorded.oracle['status']}"
    assert [item["id"] for item in answer.items] == [item["id"] for item in answer.response["output"]]  # fmt: skip
    check(recorded, answer.response)
    check_texts(recorded, answer)
    kinds = {name.removeprefix("response.") for name, _, _ in answer.texts}
    said = {kind: text for kind in kinds if (text := answer.said(kind))}
    assert texts_of(answer.response) == said


@pytest.mark.parametrize("cut", CUTS)
def test_the_pure_part_gives_the_recorded_answer_wherever_the_network_cuts(
    recorded: Recorded, cut: Cut
) -> None:
    """Reader, judge and framing by themselves, as a stream and as one object."""
    passed = run(cut(recorded), endpoint=RESPONSES)
    assert (passed.failure is None) is recorded.complete
    folded = run(cut(recorded), stream=False, endpoint=RESPONSES)
    assert (folded.failure is None) is recorded.complete
    if not recorded.complete:
        assert not any(event["type"] == "response.completed" for event in read_events(passed.body).events)  # fmt: skip
        assert folded.body == b""
        return
    check_stream(recorded, read_events(passed.body))
    response = json.loads(folded.body)
    check(recorded, response)
    assert response == read_events(passed.body).response


def test_every_cut_gives_the_same_bytes(recorded: Recorded) -> None:
    """What the caller gets is a function of the provider's bytes, not of its packets."""
    for stream in (True, False):
        bodies = {run(cut(recorded), stream=stream, endpoint=RESPONSES).body for cut in CUTS}
        assert len(bodies) == 1


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "json"])
async def test_the_actors_give_the_recorded_answer(
    recorded: Recorded, autojump_clock: trio.abc.Clock, *, stream: bool
) -> None:
    """A whole exchange over a provider that says what was recorded; one attempt, so that a failure shows."""
    body = json.dumps({"model": "small", "input": "Hello", "stream": stream}).encode()
    gate = gateway(
        ScriptedProvider(says(*at_random(recorded))), recovery=RecoveryConfig(attempts_max=1)
    )
    caller = RecordingCaller(body)
    outcome = await supervise(gate, caller, endpoint=RESPONSES.path)
    assert (outcome.code == "") is recorded.complete
    if recorded.complete and stream:
        check_stream(recorded, read_events(caller.received))
    elif recorded.complete:
        response = json.loads(caller.received)
        check(recorded, response)
        pure = json.loads(run(whole(recorded), stream=False, endpoint=RESPONSES).body)
        ours = {"id": response["id"], "created_at": response["created_at"], "model": "small"}
        assert response == {**pure, **ours}


def test_no_boundary_but_the_last_ends_as_a_success(recorded: Recorded) -> None:
    """An orderly end behind any event before the terminal one is a failed attempt."""
    cuts = [n for n in range(len(recorded.data)) if recorded.data.startswith(b"\n\n", n)]
    for at in {*cuts[:8], *cuts[-8:-1]}:
        passed = run([recorded.data[: at + 2]], endpoint=RESPONSES)
        answer = read_events(passed.body)
        assert passed.failure is not None or answer.response["status"] in {"completed", "incomplete"}  # fmt: skip
        if passed.failure is not None:
            assert not answer.response
