"""Scenarios at `/v1/responses`: each directive, a hold, an answer that is not streamed, a failure that is said in the stream."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from gate.config import HoldConfig
from ops.chaos import wire as chat
from ops.chaos.reading import RESPONSES
from ops.chaos.scenario import Asking, Scenario, Service, route
from ops.chaos.wire import DONE, ROLE, refuses, stream
from ops.chaos.wire_responses import asked_for, called, failed, spoken, whole
from ops.provider_script import Ending

__all__ = ["scenarios"]

TOOL: Final[Mapping[str, Any]] = {
    "type": "function",
    "name": "note",
    "parameters": {
        "type": "object",
        "properties": {"age": {"type": "integer"}},
        "required": ["age"],
    },
}
WORDS: Final = ("One", " two", " three", " four")
SAID: Final = "".join(WORDS)
STREAM: Final = Asking((asked_for(),))
OBJECT: Final = Asking((asked_for(stream=False),))
WINDOW: Final = route(hold=HoldConfig(mode="window", tail_chars=6))


def scenarios() -> dict[str, Scenario]:
    """By name."""
    return {**_ours(), **_tunnels(), **_translated()}


def _ours() -> Mapping[str, Scenario]:
    return {
        "responses": Scenario(
            about="a response in three reads",
            endpoint=RESPONSES,
            targets=[[spoken("He", "llo", every_ms=100)]],
            said="Hello",
            asking=STREAM,
        ),
        "responses-json": Scenario(
            about="a response that is not streamed; the first is refused",
            endpoint=RESPONSES,
            targets=[[refuses(503)], [whole("Hello")]],
            said="Hello",
            asking=OBJECT,
        ),
        "responses-failed": Scenario(
            about="a response says that it failed, then another target",
            endpoint=RESPONSES,
            targets=[[failed()], [spoken("He", "llo")]],
            said="Hello",
            asking=STREAM,
        ),
        "responses-cut": Scenario(
            about="a response is cut behind a release, nothing to go on with",
            endpoint=RESPONSES,
            targets=[[spoken("He", "llo", end=Ending.CUT)]],
            said="Hello",
            gets="Hello",
            code="stream_cut",
            asking=STREAM,
        ),
        "responses-continued": Scenario(
            about="cut in held text, and one response to its end",
            endpoint=RESPONSES,
            targets=[[spoken(*WORDS[:3], end=Ending.CUT)], [spoken(*WORDS, every_ms=100)]],
            said=SAID,
            asking=STREAM,
            route=WINDOW,
            prefill="vllm",
        ),
        "responses-called": Scenario(
            about="a call with arguments that do not fit, then one with arguments that do",
            endpoint=RESPONSES,
            targets=[[called("note", '{"age": "x"}'), called("note", '{"age": 7}')]],
            calls=(("note", '{"age": 7}'),),
            asking=Asking((asked_for(tools=[TOOL]),)),
            filters=("empty", "tool_calls"),
            hidden=('\\"x\\"',),
        ),
        "responses-judged": Scenario(
            about="a filter that awaits denies the first response",
            endpoint=RESPONSES,
            targets=[[spoken("He", "xx", every_ms=100)], [spoken("He", "llo")]],
            said="Hello",
            asking=STREAM,
            services={"hook": Service(0.15, denied="xx")},
            hidden=("xx",),
        ),
    }


def _tunnels() -> Mapping[str, Scenario]:
    return {
        "responses-tunnel": Scenario(
            about="through a tunnel: a response that failed, then another target",
            endpoint=RESPONSES,
            paths=("tunnel", "tunnel"),
            targets=[[failed()], [spoken("He", "llo", every_ms=100)]],
            said="Hello",
            asking=STREAM,
        ),
        "responses-tunnel-cut": Scenario(
            about="a tunnel that breaks off behind its first bytes",
            endpoint=RESPONSES,
            paths=("tunnel",),
            targets=[[spoken("He", "llo", end=Ending.CUT)]],
            said="Hello",
            gets="Hello",
            code="stream_cut",
            asking=STREAM,
        ),
    }


def _translated() -> Mapping[str, Scenario]:
    over_chat = route(responses_over_chat=True)
    return {
        "responses-over-chat": Scenario(
            about="a response made of a chat answer; the first one is cut",
            endpoint=RESPONSES,
            chat_only=(0,),
            targets=[[stream(ROLE, Ending.CUT), chat.spoken("He", "llo", every_ms=100)]],
            said="Hello",
            asking=STREAM,
            route=over_chat,
        ),
        "responses-over-both": Scenario(
            about="a target that has chat alone refuses, one that has responses answers; not streamed",
            endpoint=RESPONSES,
            chat_only=(0,),
            targets=[[refuses(503)], [whole("Hello")]],
            said="Hello",
            asking=OBJECT,
            route=over_chat,
        ),
        "responses-over-chat-called": Scenario(
            about="a call in chat that does not fit, then one that does",
            endpoint=RESPONSES,
            chat_only=(0,),
            targets=[
                [
                    stream(
                        ROLE, *chat.calls("note", '{"age": "x"}'), chat.finish("tool_calls"), DONE
                    ),
                    stream(
                        ROLE, *chat.calls("note", '{"age": 7}'), chat.finish("tool_calls"), DONE
                    ),
                ]
            ],
            calls=(("note", '{"age": 7}'),),
            asking=Asking((asked_for(tools=[TOOL]),)),
            filters=("empty", "tool_calls"),
            hidden=('\\"x\\"',),
            route=over_chat,
        ),
    }
