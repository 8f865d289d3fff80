"""The exchanges of the captured-trace suite: every fault under every hold mode, every directive, every filter's violation, callers and a process that misbehave.

    python -m tests.traces.scenarios    records all of them anew, and takes down anew what is decided of a model server's answers

A recording is kept, not made in the test: what replays has to be what an earlier version did. Record anew only where a change of behaviour is meant, and say so in its commit.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import trio
import trio.testing

from actors.ports import AwaitingFilters, Caller
from gate.errors import UpstreamFault
from gate.trace import Trace
from gate.trace_codec import sealed, traces
from ops.replay import differences, replay
from ops.trace import read_traces, write_traces
from tests.doubles import (
    DONE,
    FOREVER,
    ROLE,
    STOP,
    Answer,
    Read,
    RecordingCaller,
    ScriptedProvider,
    body,
    healthy,
    request,
    says,
    text,
    whole,
)
from tests.traces.faults import PACE, STATUS, STREAM, WHOLE, WORDS
from tests.traces.responses_scenarios import responses_scenarios
from tests.traces.scenario import (
    FILTERS,
    HOLDS,
    LIMITS,
    SCHEMA,
    STRUCTURED,
    TOOL_RULES,
    LeavingCaller,
    Scenario,
    Service,
    callers,
    configured,
)
from tests.tracing import Recording

CAPTURED: Final = Path(__file__).with_name("captured.trace.gz")
MODEL_SERVER: Final = Path(__file__).with_name("llamacpp.trace.gz")  # by ops/e2e/traces.sh

TOOLS: Final = [{"type": "function", "function": {"name": "gauge", "parameters": {"type": "object", "properties": {"level": {"type": "integer"}}, "required": ["level"]}}}]  # fmt: skip
VALVE: Final = {"type": "function", "function": {"name": "valve", "parameters": {"type": "object"}}}
FORMAT: Final = {"type": "json_schema", "json_schema": {"name": "reading", "schema": SCHEMA}}
HEALTHY_CALL: Final = STREAM["call"]


def _asked(fault: str, *, stream: bool) -> bytes:
    members: dict[str, Any] = {}
    if fault.startswith("call"):
        members |= {"tools": TOOLS, **TOOL_RULES.get(fault, {})}
    if fault == "call-other":
        members |= {"tools": [*TOOLS, VALVE], "tool_choice": {"type": "function", "function": {"name": "gauge"}}}  # fmt: skip
    if fault in STRUCTURED:
        members["response_format"] = FORMAT
    if fault == "usage-alone":
        members["stream_options"] = {"include_usage": True}
    return request(stream=stream, **members)


def _second(fault: str, *, stream: bool) -> Answer:
    """What the other provider says: an answer that fits the request."""
    if fault.startswith("call") and fault != "call-not-asked" and stream:
        return HEALTHY_CALL
    if fault in STRUCTURED:
        return healthy('{"level":', " 4}", every=PACE) if stream else body(whole('{"level": 4}'))
    return healthy(*WORDS, every=PACE) if stream else body(whole("".join(WORDS)))


def _pair(fault: str, answer: Answer, *, stream: bool) -> list[ScriptedProvider]:
    return [
        ScriptedProvider(answer, for_ever=True),
        ScriptedProvider(_second(fault, stream=stream), for_ever=True),
    ]


def _faults() -> Iterator[Scenario]:
    """The catalogue under every hold mode, then as JSON answers."""
    for hold in HOLDS:
        for fault, answer in {**STREAM, **STATUS}.items():
            caller = RecordingCaller(_asked(fault, stream=True))
            pair = _pair(fault, answer, stream=True)
            yield Scenario(f"{fault}/{hold}", Recording(configured(hold), pair, caller))
    for fault, answer in {**WHOLE, **STATUS}.items():
        caller = RecordingCaller(_asked(fault, stream=False))
        pair = _pair(fault, answer, stream=False)
        yield Scenario(f"{fault}/json", Recording(configured("live"), pair, caller))


def _tunnelled() -> Iterator[Scenario]:
    """The catalogue where the provider's own bytes leave, under every hold mode and as JSON answers."""
    for hold in HOLDS:
        for fault, answer in {**STREAM, **STATUS}.items():
            caller = RecordingCaller(_asked(fault, stream=True))
            raw = configured(hold, provider={"path": "tunnel"})
            pair = _pair(fault, answer, stream=True)
            yield Scenario(f"{fault}/tunnel/{hold}", Recording(raw, pair, caller))
    for fault, answer in {**WHOLE, **STATUS}.items():
        caller = RecordingCaller(_asked(fault, stream=False))
        raw = configured("live", provider={"path": "tunnel"})
        pair = _pair(fault, answer, stream=False)
        yield Scenario(f"{fault}/tunnel/json", Recording(raw, pair, caller))


def _relayed() -> Iterator[Scenario]:
    """Endpoints that nothing but a tunnel serves: files, streams of bytes, JSON."""
    kind = ((b"content-type", b"audio/mpeg"), (b"set-cookie", b"a=b"))
    cut = Read(after=0.2, fault=UpstreamFault.CUT)
    answers = {
        "file": Answer([Read(b"\xff\xfb"), Read(b"\x00end")], headers=kind),
        "file-cut": Answer([Read(b"\xff\xfb"), cut], headers=kind),
        "json": body(b'{"object":"list","data":[],"model":"m"}'),
        **STATUS,
    }
    for fault, answer in answers.items():
        for stream in (False, True):
            asked = request(stream=stream, input="Hi")
            pair = [
                ScriptedProvider(answer, for_ever=True),
                ScriptedProvider(answers["file"], for_ever=True),
            ]
            taken = Recording(
                configured("live"), pair, RecordingCaller(asked), endpoint="/v1/audio/speech"
            )
            yield Scenario(f"{fault}/relayed/{'stream' if stream else 'whole'}", taken)


def _continued() -> Iterator[Scenario]:
    """Answers that go on at another attempt, with the seam that each of them makes."""
    rest = {
        "exact": WORDS[3:],
        "overlapping": WORDS[1:],
        "anew": WORDS,
        "foreign": (" Something", " else", " entirely."),
    }
    able = {"prefill": "vllm"}
    for fault in ("cut-early", "cut-late", "stall", "error-late", "no-finish", "malformed-event"):
        for form, words in rest.items():
            raw = configured(
                "window", provider=able, route={"recovery": {"continuation": "committed"}}
            )
            second = ScriptedProvider(healthy(*words, every=PACE), for_ever=True)
            first = ScriptedProvider(STREAM[fault], for_ever=True)
            yield Scenario(f"{fault}/continued/{form}", Recording(raw, [first, second]))


def _denied() -> Iterator[Scenario]:
    """Patterns with every action, and the strict output policy."""
    for action in ("error", "exact", "next_provider", "continuation"):
        for hold in HOLDS:
            table = {"kind": "patterns", "patterns": ["swordfish"], "action": action}
            words: dict[str, Any] = {
                "filters": ["words"],
                "recovery": {"continuation": "committed"},
            }
            raw = configured(
                hold, route=words, filters={"words": table}, provider={"prefill": "vllm"}
            )
            pair = _pair("", STREAM["denied-words"], stream=True)
            yield Scenario(f"denied-words/{hold}/{action}", Recording(raw, pair))
    for fault in ("fenced", "think-tags", "reasoning", "not-json"):
        route: dict[str, Any] = {
            "filters": [*FILTERS, "output_policy"],
            "output_policy": "strict",
            "think_tags": True,
        }
        caller = RecordingCaller(_asked(fault, stream=True))
        pair = _pair(fault, STREAM[fault], stream=True)
        yield Scenario(
            f"{fault}/strict", Recording(configured("buffered", route=route), pair, caller)
        )
    bare = {"filters": FILTERS, "output_policy": "strict", "structured_output": "check"}
    for fault, form in (("fenced", "fenced"), ("call-tagged", "think-tags"), ("call-beside-words", "call-beside-words")):  # fmt: skip
        caller = RecordingCaller(_asked(fault, stream=True))
        pair = _pair(fault, STREAM[form], stream=True)
        raw = configured("buffered", route=bare)
        yield Scenario(f"{fault}/unmended/strict", Recording(raw, pair, caller))
    for fault, level in (("off-schema", "check"), ("off-schema", "reject"), ("off-schema", "off")):
        caller = RecordingCaller(_asked(fault, stream=True))
        raw = configured("buffered", route={"structured_output": level})
        pair = _pair(fault, STREAM[fault], stream=True)
        yield Scenario(f"{fault}/structured/{level}", Recording(raw, pair, caller))


def _awaiting() -> Iterator[Scenario]:
    """A webhook that answers, denies, is late or away, under both failure policies."""
    services: Mapping[str, Callable[[], Service]] = {
        "quick": lambda: Service(0.01),
        "slow": lambda: Service(0.2),
        "late": lambda: Service(0.8),
        "denying": lambda: Service(0.03, denied=4),
        "away": lambda: Service(0.01, fault="http_503"),
        "hanging": lambda: Service(FOREVER),
    }
    for form, service in services.items():
        for policy in ("open", "closed"):
            for hold in ("live", "buffered"):
                table = {"kind": "webhook", "url": "http://127.0.0.1:9/", "failure": policy}
                raw = configured(
                    hold, route={"filters": ["empty", "hook"]}, filters={"hook": table}
                )
                awaiting: dict[str, AwaitingFilters] = {"hook": service()}
                pair = _pair("", STREAM["healthy"], stream=True)
                name = f"webhook-{form}/{hold}/{policy}"
                yield Scenario(name, Recording(raw, pair, awaiting=awaiting))


def _callers() -> Iterator[Scenario]:
    """Callers that leave, are slow, take nothing, or send what can't be served."""
    quick = {"server": {"caller_write_seconds": 2.0}}
    alone: Mapping[str, Callable[[], Caller]] = {
        "leaves-early": lambda: LeavingCaller(1),
        "leaves-late": lambda: LeavingCaller(5),
        "parts": lambda: RecordingCaller(*_cut_up(request()), gap=0.05),
        "no-json": lambda: RecordingCaller(b"{"),
        "no-model": lambda: RecordingCaller(b'{"messages":[]}'),
        "other-model": lambda: RecordingCaller(request(model="large")),
        "never-whole": lambda: RecordingCaller(b'{"model"', endless=True),
    }
    for form, caller in alone.items():
        raw = {**configured("live"), **quick, "limits": {**LIMITS, "body_seconds_max": 2.0}}
        pair = _pair("", STREAM["healthy"], stream=True)
        yield Scenario(f"caller-{form}/live", Recording(raw, pair, caller()))
    for path, infix in (("normalized", ""), ("tunnel", "tunnel/")):
        for hold in HOLDS:
            for form, each in callers(request()).items():
                raw = configured(hold, provider={"path": path}, **quick)
                pair = _pair("", STREAM["healthy"], stream=True)
                yield Scenario(f"caller-{form}/{infix}{hold}", Recording(raw, pair, each))
    long = {**configured("live", route={"filters": ["empty"]}), "limits": {}}
    answer = says(ROLE, text("x" * 200_000), STOP, DONE)
    pair = _pair("", answer, stream=True)
    yield Scenario("long-line/live/200-kb", Recording(long, pair))
    pinged = configured(
        "buffered", route={"hold": {"mode": "buffered", "ping_seconds": 0.3, "pings_commit": True}}
    )
    pair = _pair("", STREAM["drip"], stream=True)
    yield Scenario("drip/pings", Recording(pinged, pair))


def _cut_up(data: bytes) -> Sequence[bytes]:
    return [data[:9], data[9:40], data[40:]]


def scenarios() -> list[Scenario]:
    """All of them; their names differ."""
    found = [
        *_faults(),
        *_tunnelled(),
        *_relayed(),
        *_continued(),
        *_denied(),
        *_awaiting(),
        *_callers(),
        *responses_scenarios(),
    ]
    assert len({each.name for each in found}) == len(found)
    return found


def take(scenario: Scenario) -> Trace:
    """Records one on a virtual clock."""
    return trio.run(scenario.take, clock=trio.testing.MockClock(autojump_threshold=0))


def decided_anew(trace: Trace) -> Trace:
    """The same inputs with what is decided of them now; a trace that replays stays as it is."""
    replayed = replay(trace)
    assert not replayed.horizon, f"{trace.header.trace_id} has to be recorded anew: {replayed.horizon}"  # fmt: skip
    if not differences(trace, replayed):
        return trace
    return next(traces(sealed([trace.header, *replayed.records])))


def main() -> None:
    """Records the suite anew."""
    count = write_traces(CAPTURED, map(take, scenarios()))
    sys.stdout.write(f"{CAPTURED.name}: {count} traces, {CAPTURED.stat().st_size} bytes\n")
    count = write_traces(MODEL_SERVER, list(map(decided_anew, read_traces(MODEL_SERVER))))
    sys.stdout.write(f"{MODEL_SERVER.name}: {count} traces\n")


if __name__ == "__main__":
    main()
