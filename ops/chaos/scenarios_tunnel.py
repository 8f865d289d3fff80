"""Scenarios in which a provider's bytes go to the caller as they are: chat through a tunnel, alone and in a mixed pool, and endpoints that are only relayed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from gate.config import FilterConfig, HoldConfig
from ops.chaos.scenario import Asking, Scenario, route
from ops.chaos.wire import (
    ALIAS,
    DONE,
    ROLE,
    STOP,
    json_body,
    refuses,
    request,
    spoken,
    stream,
    text,
)
from ops.provider_script import Attempt, Ending, Step, Write

__all__ = ["scenarios"]

HELLO: Final = spoken("He", "llo", every_ms=100)
GUARD: Final = FilterConfig(kind="patterns", patterns=("secret",), action="next_provider")
WINDOW: Final = route(hold=HoldConfig(mode="window", tail_chars=8))
VECTORS: Final = '{"object": "list", "data": [{"index": 0, "embedding": [0.5]}]}'
SOUND: Final = "\x00RIFF" * 8
ASKED: Final = msgspec.json.encode({"model": ALIAS, "input": "Hi"})
STREAMED: Final = msgspec.json.encode({"model": ALIAS, "input": "Hi", "stream": True})


def _body(*pieces: bytes, kind: str, end: Ending | None = None) -> Attempt:
    """A body that is no event stream, read by read."""
    steps: list[Step] = [Write(piece) for piece in pieces]
    return Attempt((*steps, *([end] if end else [])), 200, (("content-type", kind),))


def scenarios() -> dict[str, Scenario]:
    """By name."""
    return {**_chat(), **_relays()}


def _chat() -> Mapping[str, Scenario]:
    return {
        "tunnel": Scenario(
            about="a stream through a tunnel",
            paths=("tunnel",),
            targets=[[HELLO]],
            said="Hello",
        ),
        "tunnel-json": Scenario(
            about="a JSON body through a tunnel; the first target refuses",
            paths=("tunnel", "tunnel"),
            targets=[[refuses(503)], [json_body("Hello")]],
            said="Hello",
            asking=Asking((request(stream=False),)),
        ),
        "tunnel-cut": Scenario(
            about="a tunnel that breaks off behind its first bytes",
            paths=("tunnel",),
            targets=[[spoken("He", "llo", end=[Ending.CUT])]],
            said="Hello",
            gets="Hello",
            code="stream_cut",
        ),
        "tunnel-stalled": Scenario(
            about="a tunnel that falls silent behind its first bytes, and a slow caller",
            paths=("tunnel",),
            targets=[[spoken("He", "llo", end=[Ending.STALL])]],
            said="Hello",
            gets="Hello",
            code="gap_timeout",
            asking=Asking(seconds=0.3),
        ),
        "tunnel-denied": Scenario(
            about="a pattern that may not be seen, then the same provider's other answer",
            paths=("tunnel", "tunnel"),
            targets=[[spoken("He", " sec", "ret", every_ms=50)], [HELLO]],
            said="Hello",
            filters=("empty", "guard"),
            tables={"guard": GUARD},
            hidden=("secret",),
            route=WINDOW,
        ),
        "tunnel-then-ours": Scenario(
            about="a tunnel that fails before a byte, then a provider that we frame",
            paths=("tunnel", "normalized"),
            targets=[[stream(ROLE, Ending.CUT)], [HELLO]],
            said="Hello",
        ),
        "ours-then-tunnel": Scenario(
            about="the other way round",
            paths=("normalized", "tunnel"),
            targets=[[stream(ROLE, Ending.CUT)], [stream(ROLE, text("Hello"), STOP, DONE)]],
            said="Hello",
        ),
        "tunnel-continued": Scenario(
            about="a tunnel breaks off in what is held, and is asked to go on",
            paths=("normalized", "tunnel"),
            targets=[
                [spoken("One", " two", " three", end=[Ending.CUT])],
                [spoken("One", " two", " three", " four", every_ms=100)],
            ],
            said="One two three four",
            route=route(hold=HoldConfig(mode="window", tail_chars=6)),
            prefill="vllm",
        ),
    }


def _relays() -> Mapping[str, Scenario]:
    return {
        "relayed": Scenario(
            about="an endpoint that nobody reads; the first target breaks off at once",
            endpoint="/v1/embeddings",
            relays=True,
            targets=[
                [_body(kind="application/json", end=Ending.CUT)],
                [_body(VECTORS[:20].encode(), VECTORS[20:].encode(), kind="application/json")],
            ],
            said=VECTORS,
            asking=Asking((ASKED,)),
        ),
        "relayed-cut": Scenario(
            about="a body that nobody reads breaks off behind its first bytes",
            endpoint="/v1/audio/speech",
            relays=True,
            targets=[
                [_body(SOUND[:9].encode(), SOUND[9:].encode(), kind="audio/wav", end=Ending.CUT)]
            ],
            said=SOUND + "more",
            gets=SOUND,
            code="stream_cut",
            asking=Asking((STREAMED,), seconds=0.1),
        ),
    }
