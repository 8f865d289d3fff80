"""The scenarios that are explored: every directive, hold mode and framing, filters that await, queues, slow and stuck callers, a large body, a drain."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from gate.config import ClocksConfig, FilterConfig, HoldConfig, LimitsConfig, RecoveryConfig
from ops.chaos import faults, scenarios_filters, scenarios_responses, scenarios_tunnel
from ops.chaos.scenario import Asking, Scenario, Service, route
from ops.chaos.wire import (
    DONE,
    ROLE,
    STOP,
    USAGE,
    calls,
    finish,
    json_body,
    refuses,
    request,
    spoken,
    stream,
    text,
    thought,
)
from ops.provider_script import Attempt, Ending

__all__ = ["SCENARIOS"]

BIG: Final = "x" * 30_000  # one frame of it is more than a piece of a release
LARGE: Final = request(user="x" * 200_000)  # is read in steps
SCHEMA: Final = {
    "type": "object",
    "properties": {"age": {"type": "integer"}},
    "required": ["age"],
}
FORMAT: Final = {"type": "json_schema", "json_schema": {"name": "person", "schema": SCHEMA}}
TOOL: Final[Mapping[str, Any]] = {
    "type": "function",
    "function": {"name": "note", "parameters": SCHEMA},
}
WINDOW: Final = route(hold=HoldConfig(mode="window", tail_chars=6))
HELLO: Final = spoken("He", "llo", every_ms=100)


def _refuses_to_go_on(prefix: str) -> Attempt:
    """A server that knows no continuation."""
    return refuses(400) if prefix else spoken("One", " two", " three", " four")(prefix)


_SCENARIOS: dict[str, Scenario] = {
    "healthy": Scenario(about="an answer in three reads", targets=[[HELLO]], said="Hello"),
    "at-once": Scenario(
        about="the whole answer in one read",
        targets=[[stream(ROLE + text("Hello") + STOP + USAGE + DONE)]],
        said="Hello",
    ),
    "json": Scenario(
        about="a caller that does not stream, an answer folded from a stream",
        targets=[[HELLO]],
        said="Hello",
        asking=Asking((request(stream=False),)),
    ),
    "json-large": Scenario(
        about="a body larger than a piece",
        targets=[[json_body("He" + BIG)]],
        said="He" + BIG,
        asking=Asking((request(stream=False),)),
    ),
    "exact": Scenario(
        about="a cut before anything was released, a refusal, then another target",
        targets=[
            [stream(ROLE, thought("hm"), Ending.CUT), refuses(503)],
            [refuses(503), HELLO],
        ],
        said="Hello",
    ),
    "refused": Scenario(
        about="nobody listens, then a reset before the head, then an answer",
        targets=[[None], [stream(Ending.RESET), HELLO]],
        said="Hello",
        route=route(recovery=RecoveryConfig(attempts_max=4)),
    ),
    "exhausted": Scenario(
        about="every attempt fails", targets=[[None], [refuses(503)]], code="provider_error"
    ),
    "usage-refused": Scenario(
        about="what the gate has asked for is refused, and the same asked again without, in one attempt",
        targets=[[refuses(400, param="stream_options"), HELLO]],
        said="Hello",
        ask_usage=True,
        route=route(recovery=RecoveryConfig(attempts_max=1)),
    ),
    "cut": Scenario(
        about="cut behind a release, nothing to go on with",
        targets=[[spoken("He", "llo", end=[Ending.CUT])]],
        said="Hello",
        code="stream_cut",
    ),
    "continued": Scenario(
        about="cut in held text, a refused continuation, and one that goes on",
        targets=[
            [spoken("One", " two", " three", end=[Ending.CUT])],
            [_refuses_to_go_on],
            [spoken("One", " two", " three", " four", every_ms=100)],
        ],
        said="One two three four",
        route=WINDOW,
        prefill="vllm",
    ),
    "stalled": Scenario(
        about="silence in the middle, then a continuation",
        targets=[
            [spoken("One", " two", " three", end=[Ending.STALL])],
            [spoken("One", " two", " three", " four")],
        ],
        said="One two three four",
        route=WINDOW,
        prefill="vllm",
    ),
    "repaired": Scenario(
        about="an answer that does not fit its schema is asked for again",
        targets=[
            [
                stream(ROLE, text('{"age"'), text(': "x"}'), STOP, DONE),
                spoken('{"age"', ": 7}"),
            ]
        ],
        said='{"age": 7}',
        asking=Asking((request(response_format=FORMAT),)),
        filters=("empty", "structured_output"),
        hidden=('"x"', '\\"x\\"'),
    ),
    "called": Scenario(
        about="a call with arguments that do not fit, then one with arguments that do",
        targets=[
            [
                stream(ROLE, *calls("note", '{"age": "x"}'), finish("tool_calls"), DONE),
                stream(ROLE, *calls("note", '{"age": 7}'), finish("tool_calls"), DONE),
            ]
        ],
        calls=(("note", '{"age": 7}'),),
        asking=Asking((request(tools=[TOOL]),)),
        filters=("empty", "tool_calls"),
        hidden=('\\"x\\"',),
    ),
    "buffered": Scenario(
        about="everything is held to the end; the first attempt breaks late",
        targets=[[spoken("He", "llo", end=[Ending.CUT])], [HELLO]],
        said="Hello",
        route=route(hold=HoldConfig(mode="buffered")),
    ),
    "window": Scenario(
        about="a tail that is held by characters and by time, and an opening",
        targets=[[spoken("One", " two", " three", " four", every_ms=50)]],
        said="One two three four",
        route=route(
            hold=HoldConfig(
                mode="window", tail_chars=4, tail_ms=120, opening_chars=5, opening_ms=80
            )
        ),
    ),
    "pinged": Scenario(
        about="comments commit the status while the provider thinks; then it fails",
        targets=[[stream(ROLE, 5_000, thought("hm"), 5_000, Ending.CUT)], [HELLO]],
        said="Hello",
        route=route(hold=HoldConfig(pings_commit=True, ping_seconds=2.0)),
    ),
    "denied": Scenario(
        about="a pattern that may not be seen, then another target",
        targets=[[spoken("He", " sec", "ret", every_ms=50)], [HELLO]],
        said="Hello",
        filters=("empty", "guard"),
        tables={
            "guard": FilterConfig(kind="patterns", patterns=("secret",), action="next_provider")
        },
        hidden=("secret",),
        route=route(hold=HoldConfig(mode="window", tail_chars=8)),
    ),
    "denied-at-once": Scenario(
        about="the same in a burst, with more behind it, and then silence",
        targets=[
            [spoken("He", " sec", "ret", " and", " more", end=[Ending.STALL])],
            [HELLO],
        ],
        said="Hello",
        filters=("empty", "guard"),
        tables={
            "guard": FilterConfig(kind="patterns", patterns=("secret",), action="next_provider")
        },
        hidden=("secret",),
        route=route(hold=HoldConfig(mode="window", tail_chars=8)),
        lasts=1.0,
    ),
    "judged": Scenario(
        about="two filters that await, one of which denies the first answer",
        targets=[[spoken("He", "xx", every_ms=100)], [HELLO]],
        said="Hello",
        services={"hook": Service(0.25, denied="xx"), "watch": Service(0.15)},
        hidden=("xx",),
    ),
    "judged-slow-caller": Scenario(
        about="answers of a filter come while a slow caller is written to",
        targets=[[spoken(*"abcdef", every_ms=50)]],
        said="abcdef",
        asking=Asking(seconds=0.5),
        services={"hook": Service(0.07)},
    ),
    "judged-late": Scenario(
        about="a filter that awaits answers only after its deadline",
        targets=[[HELLO]],
        code="filter_unavailable",
        services={"hook": Service(9.0, table=FilterConfig(kind="webhook", horizon_chars=1))},
    ),
    "slow-caller": Scenario(
        about="each write takes its caller long",
        targets=[[spoken(*"abcd", BIG, "z", every_ms=100)]],
        said="abcd" + BIG + "z",
        asking=Asking(seconds=0.7),
    ),
    "stuck-caller": Scenario(
        about="a caller that takes nothing, until the kernel gives up",
        targets=[[spoken(*"abcdef", BIG, every_ms=100)]],
        said="abcdef" + BIG,
        code="caller_too_slow",
        asking=Asking(stuck=True),
        wait=62.0,
    ),
    "left": Scenario(
        about="the caller leaves in the middle",
        targets=[[spoken(*"abcdef", every_ms=100)]],
        said="abcdef",
        code="caller_gone",
        asking=Asking(leaves_at=0.35),
    ),
    "left-early": Scenario(
        about="the caller leaves while its body is still coming",
        targets=[[HELLO]],
        said="Hello",
        code="caller_gone",
        asking=Asking((request()[:20], request()[20:]), gap=1.0, leaves_at=1.5),
    ),
    "never-whole": Scenario(
        about="a body whose end never comes",
        targets=[[HELLO]],
        code="body_timeout",
        asking=Asking((request()[:20],), whole=False),
        limits=LimitsConfig(body_seconds_max=2.0),
    ),
    "large": Scenario(
        about="a body that is read in steps",
        targets=[[spoken("He", "llo", end=[Ending.CUT])], [HELLO]],
        said="Hello",
        asking=Asking((LARGE[:150_000], LARGE[150_000:])),
        route=route(hold=HoldConfig(mode="buffered")),
    ),
    "queued": Scenario(
        about="three exchanges, one place, one connection",
        targets=[[HELLO]],
        said="Hello",
        rivals=1,
        followers=1,
        limits=LimitsConfig(exchanges_max=1),
        concurrency=1,
    ),
    "queued-out": Scenario(
        about="the place of another is not free in time",
        targets=[[spoken("He", "llo", every_ms=9_000)]],
        said="Hello",
        code="queue_timeout",
        rivals=1,
        limits=LimitsConfig(exchanges_max=1),
    ),
    "crowded": Scenario(
        about="places for all, one connection",
        targets=[[HELLO]],
        said="Hello",
        rivals=1,
        followers=1,
        concurrency=1,
    ),
    "backoff": Scenario(
        about="a limit of the provider, and a wait that it asks for",
        targets=[[refuses(429, retry_after="2"), HELLO]],
        said="Hello",
    ),
    "drained": Scenario(
        about="a drain that ends before the answer does",
        targets=[[spoken(*"abcdef", every_ms=200)]],
        said="abcdef",
        code="shutdown",
        drains_at=0.5,
    ),
    "drained-early": Scenario(
        about="a drain that ends while an attempt has not begun to answer",
        targets=[[stream(9_000, ROLE, text("a"), STOP, DONE)]],
        said="a",
        code="shutdown",
        drains_at=0.5,
    ),
    "no-memory": Scenario(
        about="more is held than the exchange may keep",
        targets=[[spoken("a" * 4_000, "b" * 4_000)]],
        said="a" * 4_000 + "b" * 4_000,
        code="held_limit",
        limits=LimitsConfig(held_bytes_max=2_000),
        route=route(hold=HoldConfig(mode="buffered")),
    ),
    "late-head": Scenario(
        about="no head in time, then another target",
        targets=[[stream(9_000, ROLE, STOP)], [HELLO]],
        said="Hello",
        route=route(clocks=ClocksConfig(headers_seconds=3.0)),
    ),
}

SCENARIOS: Final[Mapping[str, Scenario]] = MappingProxyType(
    {
        **_SCENARIOS,
        **scenarios_responses.scenarios(),
        **scenarios_tunnel.scenarios(),
        **scenarios_filters.scenarios(),
        **faults.scenarios(),
    }
)
