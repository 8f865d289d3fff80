"""Recorded chat streams of twenty-five kinds of servers: wherever the network cuts, the caller assembles what an independent reader made of the same bytes.

Each stream's `.json` holds that reader's result, the oracle. What must come of a stream follows from its facts: an answer that is complete ends
cleanly and equal; every other one ends as an error. `--corpus=full` goes through all of them; the sample is the smallest ones that
show every provider and every oddity.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import json
import random
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
import trio

from gate.config import OutputPolicy, RecoveryConfig, StructuredOutput
from gate.filters.builtin import filter_context
from gate.filters.contract import FilterContext
from gate.ingress import read_chat_request
from tests.assembly import Answer, Call, Choice, read_object, read_stream
from tests.doubles import RecordingCaller, ScriptedProvider, gateway, request, says, supervise
from tests.pipeline import cut_at, run

CORPUS: Final = Path(__file__).resolve().parents[2].parent / "shared" / "corpus" / "streams"
SAMPLE_BYTES_MAX: Final = 40_000  # of one stream
ENDS_MAX: Final = (
    64  # boundaries tried at each end of a stream; in the middle of a long one they are alike
)
EVENT: Final = re.compile(rb".*?(?:\r\n\r\n|\n\n|\Z)", re.DOTALL)
REAL_ENDS: Final = {"length", "content_filter"}


# --- the recordings ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Recorded:
    """One stream and its oracle. `choices`: how many were asked for, or, where nobody kept the request, how many came."""

    name: str
    provider: str
    features: frozenset[str]
    data: bytes
    choices: int
    oracle: Any
    request: Any = None

    @property
    def context(self) -> FilterContext:
        """What the filters know of the request, where somebody kept it."""
        return self.under(structured_output="off")

    def under(
        self, *, structured_output: StructuredOutput, output_policy: OutputPolicy = "off"
    ) -> FilterContext:
        """The same under a route's level and policy."""
        if self.request is None:
            return FilterContext(self.choices)
        body = json.dumps({"messages": [{}], **self.request, "n": self.choices}).encode()
        return filter_context(
            body,
            read_chat_request(body, depth_max=64),
            structured_output=structured_output,
            output_policy=output_policy,
        )

    @property
    def events(self) -> Sequence[bytes]:
        return split(self.data)

    @property
    def finishes(self) -> dict[int, str]:
        """The first finish reason of each choice that has one."""
        by_choice = {
            int(index): each["finish_reasons"] for index, each in self.oracle["choices"].items()
        }
        return {index: reasons[0] for index, reasons in by_choice.items() if reasons}

    @property
    def implied(self) -> bool:
        """No finish reason at all, but a proper end: text or a call, usage, `[DONE]`."""
        proper = self.oracle.get("done_marker") and self.oracle["usage_last"]
        return bool(proper) and not self.finishes and not self.oracle.get("errors_in_stream")

    @property
    def complete(self) -> bool:
        return self.implied or all(index in self.finishes for index in range(self.choices))


@functools.cache
def split(data: bytes) -> Sequence[bytes]:
    """The events of a stream, each with the blank line behind it."""
    return tuple(found for found in EVENT.findall(data) if found)


def load(path: Path) -> Recorded | None:
    """One recording, if it is of chat completions."""
    meta = json.loads(path.read_text())
    if meta["endpoint"] != "/v1/chat/completions":
        return None
    asked = (meta.get("request") or {}).get("n") or len(meta["assembled"]["choices"])
    data = path.with_suffix(".sse").read_bytes()
    return Recorded(meta["name"], meta["provider"], frozenset(meta["features"]), data, asked, meta["assembled"], meta.get("request"))  # fmt: skip


def recordings(*, full: bool) -> list[Recorded]:
    """All, or the smallest of each provider and of each feature."""
    found = [each for path in sorted(CORPUS.rglob("*.json")) if (each := load(path)) is not None]
    if full:
        return found
    found.sort(key=lambda each: (len(each.data), each.name))
    taken: dict[str, Recorded] = {}
    for kind in sorted(
        {each.provider for each in found} | {f for each in found for f in each.features}
    ):
        shows = [each for each in found if kind == each.provider or kind in each.features]
        taken |= {each.name: each for each in shows[:1] if len(each.data) <= SAMPLE_BYTES_MAX}
    return sorted(taken.values(), key=lambda each: each.name)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test that takes `recorded` runs once per recording."""
    if "recorded" not in metafunc.fixturenames:
        return
    found = (
        recordings(full=metafunc.config.getoption("--corpus") == "full") if CORPUS.is_dir() else []
    )
    absent = pytest.param(None, marks=pytest.mark.skip(reason="the recorded streams are not here"))
    metafunc.parametrize(
        "recorded", found or [absent], ids=lambda each: each.name if each else "none"
    )


# --- cuts ----------------------------------------------------------------------------------------


def whole(recorded: Recorded) -> Sequence[bytes]:
    """Everything in one read."""
    return [recorded.data]


def per_event(recorded: Recorded) -> Sequence[bytes]:
    """One event per read."""
    return recorded.events


def one_byte(recorded: Recorded) -> Sequence[bytes]:
    """One byte per read: inside characters, line ends and names."""
    return list(cut_at(recorded.data, 1))


def at_random(recorded: Recorded) -> Sequence[bytes]:
    """Reads of 1 to 400 bytes, the same every time."""
    draw = random.Random(recorded.name)  # noqa: S311 - cuts, not secrets
    ends = itertools.accumulate(iter(lambda: draw.randint(1, 400), 0))
    marks = list(itertools.takewhile(lambda end: end < len(recorded.data), ends))
    return [recorded.data[a:b] for a, b in itertools.pairwise([0, *marks, len(recorded.data)])]


def ending_by_the_byte(recorded: Recorded) -> Sequence[bytes]:
    """The last events by the byte, what comes before them in one read: a read costs the actors far more than the pure part."""
    at = max(len(recorded.data) - 400, 0)
    return [recorded.data[:at] or b"\n", *cut_at(recorded.data[at:], 1)]


CUTS: Final = (whole, per_event, one_byte, at_random)
Cut = Callable[[Recorded], Sequence[bytes]]


# --- what must come of it ------------------------------------------------------------------------


def check(recorded: Recorded, answer: Answer) -> None:
    """The caller's answer is the oracle's, or an error where the oracle has no complete answer."""
    assert answer.clean is recorded.complete
    if not recorded.complete:
        assert not any(choice.finishes for choice in answer.choices.values())
        return
    assert len(answer.identities) == 1
    assert next(iter(answer.identities))[2] in {"alias", "small"}
    for index, oracle in recorded.oracle["choices"].items():
        check_choice(answer.choices[int(index)], oracle, recorded.finishes.get(int(index)))
    assert len(answer.choices) == len(recorded.oracle["choices"])
    # An error beats every other member of its event, and the one usage report that came in such an event with it.
    lost = bool(recorded.oracle.get("errors_in_stream"))
    assert answer.usage == (None if lost else recorded.oracle["usage_last"])


def check_choice(choice: Choice, oracle: Any, finish: str | None) -> None:
    """One choice: texts by their digest, calls in order, one finish, one role."""
    said = {"content": choice.text, "reasoning": choice.reasoning, "refusal": choice.refusal}
    for name, text in said.items():
        assert digest(text) == (oracle[name]["sha256"] if name in oracle else digest("")), name
    wanted = [
        Call(call["id"], call["name"], call["arguments"])
        for call in oracle.get("tool_calls", {}).values()
    ]
    assert list(choice.calls.values()) == wanted
    # OpenAI says `stop` where one function was asked for; a call is a call.
    assert choice.finishes == [
        "tool_calls" if wanted and finish in {None, "stop"} else finish or "stop"
    ]
    assert choice.roles == ["assistant"]


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "json"])
@pytest.mark.parametrize("cut", CUTS)
def test_the_pure_part_gives_the_recorded_answer_wherever_the_network_cuts(
    recorded: Recorded, cut: Cut, *, stream: bool
) -> None:
    """Reader, judge and framing by themselves; the filters know the request's own tools, and find nothing."""
    passed = run(cut(recorded), stream=stream, choices=recorded.choices, context=recorded.context)
    assert (passed.failure is None) is recorded.complete
    if stream or recorded.complete:
        check(recorded, read_stream(passed.body) if stream else read_object(passed.body))
    else:
        assert passed.body == b""


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "json"])
def test_every_cut_gives_the_same_bytes(recorded: Recorded, *, stream: bool) -> None:
    """What the caller gets is a function of the provider's bytes, not of its packets."""
    bodies = {run(cut(recorded), stream=stream, choices=recorded.choices).body for cut in CUTS}
    assert len(bodies) == 1


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "json"])
@pytest.mark.parametrize("cut", [whole, per_event, ending_by_the_byte, at_random])
async def test_the_actors_give_the_recorded_answer_wherever_the_network_cuts(
    recorded: Recorded, cut: Cut, autojump_clock: trio.abc.Clock, *, stream: bool
) -> None:
    """A whole exchange over a provider that says what was recorded; one attempt, so that a failure shows."""
    members = {
        "n": recorded.choices,
        **({"stream_options": {"include_usage": True}} if stream else {}),
    }
    gate = gateway(ScriptedProvider(says(*cut(recorded))), recovery=RecoveryConfig(attempts_max=1))
    caller = RecordingCaller(request(stream=stream, **members))
    outcome = await supervise(gate, caller)
    assert (outcome.code == "") is recorded.complete
    assert caller.ended
    streamed = caller.headers[b"content-type"].startswith(b"text/event-stream")
    check(recorded, read_stream(caller.received) if streamed else read_object(caller.received))


def test_a_stream_that_ends_between_two_events_is_a_success_only_if_it_was_complete(
    recorded: Recorded,
) -> None:
    """Every event boundary with an orderly end behind it: the place where relays turn a cut into an answer."""
    events = recorded.events
    near = {*range(ENDS_MAX), *range(len(events) - ENDS_MAX, len(events))}
    for count in sorted(near & set(range(len(events)))):
        passed = run(events[:count], choices=recorded.choices)
        assert (passed.failure is None) is finished(events[:count], recorded.choices), count
        answer = read_stream(passed.body)
        assert answer.clean is (passed.failure is None)
        finishes = sum(len(choice.finishes) for choice in answer.choices.values())
        assert finishes == (recorded.choices if answer.clean else 0)


def finished(events: Sequence[bytes], choices: int) -> bool:
    """By the events alone: every choice has a finish reason and no error came before, or `[DONE]` came, which is the recording's own end."""
    seen: set[int] = set()
    usage = done = False
    for value in payloads(events):
        if value is None:
            done = True
            continue
        if value.get("error"):
            break
        usage = usage or bool(value.get("usage"))
        parts = value.get("choices") or ()
        seen |= {part.get("index", 0) for part in parts if part.get("finish_reason")}
        if seen >= set(range(choices)):
            return True
    return done and usage and not seen


def payloads(events: Sequence[bytes]) -> Iterator[Any]:
    """The JSON of each event that has some; None for `[DONE]`."""
    for event in events:
        for line in event.splitlines():
            data = line.removeprefix(b"data:").strip()
            if line.startswith(b"data:") and data:
                yield None if data == b"[DONE]" else json.loads(data)
