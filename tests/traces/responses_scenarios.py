"""The Responses API in the captured-trace suite: the catalogue under every hold and as one object, continuations, denied words, a service, callers."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from actors.ports import AwaitingFilters
from gate.ingress_responses import RESPONSES_PATH
from tests.doubles import ALIAS, Answer, RecordingCaller, ScriptedProvider
from tests.traces.faults import STATUS, WORDS
from tests.traces.responses_faults import STREAM, WHOLE, second, spoken
from tests.traces.scenario import (
    FILTERS,
    HOLDS,
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

TOOLS: Final = [{"type": "function", "name": "gauge", "parameters": {"type": "object", "properties": {"level": {"type": "integer"}}, "required": ["level"]}}]  # fmt: skip
VALVE: Final = {"type": "function", "name": "valve", "parameters": {"type": "object"}}
FORMAT: Final = {"format": {"type": "json_schema", "name": "reading", "schema": SCHEMA}}


def _asked(fault: str, *, stream: bool = True) -> bytes:
    members: dict[str, Any] = {}
    if fault.startswith("call"):
        members |= {"tools": TOOLS, **TOOL_RULES.get(fault, {})}
    if fault == "call-other":
        members |= {"tools": [*TOOLS, VALVE], "tool_choice": {"type": "function", "name": "gauge"}}
    if fault in STRUCTURED:
        members["text"] = FORMAT
    return _request(stream=stream, **members)


def _request(**members: Any) -> bytes:
    return json.dumps({"model": ALIAS, "input": "Hi", "stream": True, **members}).encode()


def _scenario(
    fault: str,
    form: str,
    raw: Mapping[str, Any],
    answer: Answer,
    *,
    stream: bool = True,
    then: Answer | None = None,
    caller: RecordingCaller | None = None,
    awaiting: Mapping[str, AwaitingFilters] | None = None,
) -> Scenario:
    other = then if then is not None else second(fault, stream=stream)
    pair = [ScriptedProvider(answer, for_ever=True), ScriptedProvider(other, for_ever=True)]
    caller = caller or RecordingCaller(_asked(fault, stream=stream))
    recording = Recording(raw, pair, caller, awaiting, endpoint=RESPONSES_PATH)
    return Scenario(f"{fault}/responses-{form}", recording)


def _faults() -> Iterator[Scenario]:
    for hold in HOLDS:
        for fault, answer in {**STREAM, **STATUS}.items():
            yield _scenario(fault, hold, configured(hold), answer)
    for fault, answer in {**WHOLE, **STATUS}.items():
        yield _scenario(fault, "json", configured("live"), answer, stream=False)


def _tunnelled() -> Iterator[Scenario]:
    """The same where the provider's own events leave."""
    path = {"path": "tunnel"}
    for hold in HOLDS:
        for fault, answer in {**STREAM, **STATUS}.items():
            yield _scenario(fault, f"tunnel/{hold}", configured(hold, provider=path), answer)
    for fault, answer in {**WHOLE, **STATUS}.items():
        yield _scenario(fault, "tunnel/json", configured("live", provider=path), answer, stream=False)  # fmt: skip


def _continued() -> Iterator[Scenario]:
    rest = {
        "exact": WORDS[3:],
        "overlapping": WORDS[1:],
        "anew": WORDS,
        "foreign": (" Something", " else", " entirely."),
    }
    route = {"recovery": {"continuation": "committed"}}
    raw = configured("window", provider={"prefill": "vllm"}, route=route)
    for fault in ("cut-early", "cut-late", "stall", "error-late", "no-terminal", "malformed-event"):
        for form, words in rest.items():
            yield _scenario(fault, f"continued/{form}", raw, STREAM[fault], then=spoken(*words))


def _denied() -> Iterator[Scenario]:
    for action in ("error", "exact", "next_provider", "continuation"):
        for hold in HOLDS:
            table = {"kind": "patterns", "patterns": ["swordfish"], "action": action}
            words: dict[str, Any] = {"filters": ["words"], "recovery": {"continuation": "committed"}}  # fmt: skip
            raw = configured(hold, route=words, filters={"words": table}, provider={"prefill": "vllm"})  # fmt: skip
            yield _scenario("denied-words", f"{hold}/{action}", raw, STREAM["denied-words"])
    strict = {"filters": [*FILTERS, "output_policy"], "output_policy": "strict", "think_tags": True}
    for fault in ("fenced", "think-tags", "reasoning", "not-json"):
        yield _scenario(fault, "strict", configured("buffered", route=strict), STREAM[fault])
    bare = {"filters": FILTERS, "output_policy": "strict", "structured_output": "check"}
    for fault, form in (("fenced", "fenced"), ("call-tagged", "think-tags"), ("call-beside-words", "call-beside-words")):  # fmt: skip
        raw = configured("buffered", route=bare)
        yield _scenario(fault, "unmended/strict", raw, STREAM[form])
    for level in ("check", "reject", "off"):
        raw = configured("buffered", route={"structured_output": level})
        yield _scenario("off-schema", f"structured/{level}", raw, STREAM["off-schema"])


def _others() -> Iterator[Scenario]:
    for form, service in (("slow", Service(0.2)), ("denying", Service(0.03, denied=4)), ("away", Service(0.01, fault="http_503"))):  # fmt: skip
        for policy in ("open", "closed"):
            table = {"kind": "webhook", "url": "http://127.0.0.1:9/", "failure": policy}
            raw = configured("live", route={"filters": ["empty", "hook"]}, filters={"hook": table})
            yield _scenario(f"webhook-{form}", f"live/{policy}", raw, STREAM["healthy"], awaiting={"hook": service})  # fmt: skip
    asked = _asked("")
    for name, caller in (
        ("leaves-early", LeavingCaller(1, asked)),
        ("leaves-late", LeavingCaller(5, asked)),
        ("background", RecordingCaller(_request(background=True))),
        ("no-input", RecordingCaller(_request(input=None))),
    ):
        yield _scenario(f"caller-{name}", "live", configured("live"), STREAM["healthy"], caller=caller)  # fmt: skip
    quick = {"server": {"caller_write_seconds": 2.0}}
    for path, infix in (("normalized", ""), ("tunnel", "tunnel/")):
        for held in HOLDS:
            for name, caller in callers(asked).items():
                raw = configured(held, provider={"path": path}, **quick)
                yield _scenario(f"caller-{name}", f"{infix}{held}", raw, STREAM["healthy"], caller=caller)  # fmt: skip
    hold = {"mode": "buffered", "ping_seconds": 0.3, "pings_commit": True}
    yield _scenario("drip", "pings", configured("buffered", route={"hold": hold}), STREAM["drip"])


def responses_scenarios() -> Iterator[Scenario]:
    """All of them."""
    yield from _faults()
    yield from _tunnelled()
    yield from _continued()
    yield from _denied()
    yield from _others()
