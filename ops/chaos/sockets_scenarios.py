"""The scenarios of ring 3: those of ring 1 that are over in a moment of real time, and those that only sockets have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final

import trio

from gate.config import ClocksConfig, HoldConfig, LimitsConfig, RecoveryConfig
from ops.chaos.certificates import can_be_made
from ops.chaos.scenario import Asking, Scenario, route
from ops.chaos.scenarios import SCENARIOS
from ops.chaos.sockets import Socketed
from ops.chaos.wire import ROLE, json_body, request, spoken, stream, text
from ops.provider_connection import reset
from ops.provider_script import Ending

__all__ = ["SOCKETED"]

QUICK: Final = (
    "healthy", "at-once", "json", "json-large", "exact", "refused", "exhausted", "cut", "continued", "repaired", "called", "buffered", "window", "denied", "large", "no-memory",
    "cut-chunked", "reset-chunked", "utf8-split", "crlf", "lingering", "behind-done", "clean-eof", "long-line", "gzip", "goaway",
)  # fmt: skip
"""By name in ring 1."""

HELLO: Final = spoken("He", "llo", every_ms=10)
LARGE: Final = request(
    user="x" * 4_000_000
)  # more than the kernel takes for a provider that does not read
LONG: Final = "x" * 20_000
FLOOD: Final = [LONG] * 400  # more than the kernel takes for a caller that does not read
NEXT: Final = route(
    clocks=ClocksConfig(headers_seconds=2.0, json_seconds=2.0, last_candidate_factor=5.0),
    recovery=RecoveryConfig(attempts_max=3, backoff_seconds=0.0),
)


TOO_LARGE: Final = Scenario(
    about="a request that is refused by its head, and its body behind it",
    targets=[[HELLO]],
    said="Hello",
    asking=Asking((b"x" * 100_000,) * 10, gap=0.01),
    limits=LimitsConfig(body_bytes_max=500_000),
)
OUTLASTING: Final = replace(
    TOO_LARGE,
    about="the same, and its body comes for longer than its answer waits for it",
    asking=Asking((b"x" * 100_000,) * 10, gap=0.3),
)


async def _never_reads(stream: trio.SocketStream) -> None:
    """Accepts, and nothing else."""
    await trio.sleep_forever()


async def _resets_at_once(stream: trio.SocketStream) -> None:
    """Resets the connection while the request is still being written."""
    await stream.receive_some(1_000)
    reset(stream)


async def _half_closes(stream: trio.SocketStream) -> None:
    """Ends its side in the middle of an answer, and reads on."""
    await stream.receive_some()
    chunk = ROLE + text("He")
    head = (
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    )
    await stream.send_all(head + b"%x\r\n%b\r\n" % (len(chunk), chunk))
    await stream.send_eof()
    while await stream.receive_some():
        pass


_OWN: Final[dict[str, Socketed]] = {
    "pipelined": Socketed(
        scenario=Scenario(
            about="three requests at once on one connection", targets=[[HELLO]], said="Hello"
        ),
        pipelined=3,
    ),
    "slow-reader": Socketed(
        scenario=Scenario(
            about="a caller that reads slowly, and a kernel that keeps little for it",
            targets=[[spoken(*[LONG] * 20)]],
            said=LONG * 20,
            asking=Asking(seconds=0.002),
        ),
        narrow=True,
    ),
    "never-reads": Socketed(
        scenario=Scenario(
            about="a caller that reads nothing, until it is let go",
            targets=[[spoken(*FLOOD)]],
            said="".join(FLOOD),
            code="caller_too_slow",
            asking=Asking(stuck=True),
        ),
        narrow=True,
        write_seconds=0.3,
    ),
    "provider-never-reads": Socketed(
        scenario=Scenario(
            about="a provider that accepts and never reads, then another",
            targets=[[None], [HELLO]],
            said="Hello",
            asking=Asking((LARGE,)),
            route=NEXT,
        ),
        handlers={0: _never_reads},
        many=6,
    ),
    "provider-resets": Socketed(
        scenario=Scenario(
            about="a provider that resets while the request is written, then another",
            targets=[[None], [HELLO]],
            said="Hello",
            asking=Asking((LARGE,)),
            route=route(recovery=RecoveryConfig(backoff_seconds=0.0)),
        ),
        handlers={0: _resets_at_once},
        many=6,
    ),
    "provider-half-closes": Socketed(
        scenario=Scenario(
            about="a provider that ends its side in the middle, held; then another",
            targets=[[None], [HELLO]],
            said="Hello",
            route=route(hold=HoldConfig(mode="buffered"), recovery=RecoveryConfig(backoff_seconds=0.0)),
        ),
        handlers={0: _half_closes},
    ),
    "provider-stalls": Socketed(
        scenario=Scenario(
            about="silence behind a release, until it has lasted too long",
            targets=[[stream(ROLE, text("He"), Ending.STALL)]],
            said="He",
            code="gap_timeout",
            route=route(clocks=ClocksConfig(gap_seconds=0.2, last_candidate_factor=1.0)),
        ),
    ),
    "reuse-race": Socketed(scenario=SCENARIOS["reuse-race"], pipelined=3),
    "too-large": Socketed(scenario=TOO_LARGE, refused="body_too_large", moments=0.1),
    "json-slow": Socketed(
        scenario=Scenario(
            about="an object of a size to a slow caller",
            targets=[[json_body(LONG * 20)]],
            said=LONG * 20,
            asking=Asking((request(stream=False),), seconds=0.002),
        ),
        narrow=True,
    ),
}  # fmt: skip

_HTTP2: Final[dict[str, Socketed]] = {
    f"{name}-http2": Socketed(scenario=SCENARIOS[name], http2=True, pipelined=3, many=12)
    for name in ("healthy", "json", "cut", "continued", "denied", "refused", "called")
}
_HTTP2_OWN: Final[dict[str, Socketed]] = {
    "too-large-http2": Socketed(
        scenario=OUTLASTING, refused="body_too_large", http2=True, pipelined=3, moments=3.0, many=12
    ),
    "slow-reader-http2": Socketed(scenario=_OWN["slow-reader"].scenario, http2=True, pipelined=2),
    "never-reads-http2": Socketed(
        scenario=_OWN["never-reads"].scenario, http2=True, pipelined=2, write_seconds=0.3
    ),
}
_TLS: Final[dict[str, Socketed]] = {
    "healthy-tls": Socketed(scenario=SCENARIOS["healthy"], tls=True),
    "cut-tls": Socketed(scenario=SCENARIOS["cut"], tls=True),
    "json-large-tls": Socketed(scenario=SCENARIOS["json-large"], tls=True),
    "pipelined-tls": Socketed(scenario=_OWN["pipelined"].scenario, tls=True, pipelined=3),
    "slow-reader-tls": Socketed(scenario=_OWN["slow-reader"].scenario, tls=True, narrow=True),
    "never-reads-tls": Socketed(
        scenario=_OWN["never-reads"].scenario, tls=True, narrow=True, write_seconds=0.3
    ),
    "healthy-http2-tls": Socketed(
        scenario=SCENARIOS["healthy"], http2=True, tls=True, pipelined=3, many=12
    ),
}

SOCKETED: Final[Mapping[str, Socketed]] = MappingProxyType(
    {
        **{name: Socketed(scenario=SCENARIOS[name]) for name in QUICK},
        **_OWN,
        **_HTTP2,
        **_HTTP2_OWN,
        **(_TLS if can_be_made() else {}),
    }
)
