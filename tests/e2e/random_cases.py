"""Exchanges with random faults, as values: `draw_case(seed, number)` is the same case every time, on every machine.

Each part of a case has one function that draws it: the route, the limits, the request, how the caller reads, who else is there, and what strikes from
outside; what the providers do is drawn in `tests.e2e.random_scripts`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from msgspec.structs import replace

from gate.config import (
    ClocksConfig,
    ContinuationMode,
    HoldConfig,
    LimitsConfig,
    Prefill,
    RecoveryConfig,
    RouteConfig,
)
from tests.doubles import ALIAS, request
from tests.e2e.random_scripts import EVENT_BYTES_MAX, FAULTS, Draw, Script, draw_script

WIRE_BYTES: Final = 65_536  # what every exchange reserves at its start
BODY_BYTES_MAX: Final = 150_000
BODY_SECONDS_MAX: Final = 60.0
CROWDED: Final = 0.15  # share of exchanges that others leave too little
PATIENT: Final = 0.6  # share of exchanges that nothing strikes
FRAGILE: Final = (
    0.25  # share of exchanges whose first answer breaks, where another attempt may go on with it
)
BREAKS: Final = ("fin", "cut", "broken", "stall", "malformed", "in_band_error", "missing_terminal", "failed_finish", "oversized")  # fmt: skip


# --- the gateway ---------------------------------------------------------------------------------


def draw_route(draw: Draw) -> RouteConfig:
    """Everything that a route decides: how much is held, how long a provider may take, what is tried again. A new mode of recovery is drawn here."""
    modes = {
        "live": HoldConfig(
            opening_chars=draw.choice((1, 1, 5, 40)), opening_ms=draw.choice((0, 0, 300))
        ),
        "window": HoldConfig(
            mode="window",
            tail_chars=draw.choice((0, 3, 30)),
            tail_ms=draw.choice((0, 100, 2000)),
            opening_chars=draw.choice((1, 10)),
        ),
        "buffered": HoldConfig(mode="buffered", over_cap=draw.choice(("fail", "release"))),
    }
    clocks = ClocksConfig(
        headers_seconds=draw.choice((10.0, 60.0)),
        first_content_seconds=draw.choice((10.0, 60.0)),
        gap_seconds=draw.choice((5.0, 30.0)),
        json_seconds=draw.choice((20.0, 180.0)),
        total_seconds=draw.choice((600.0, 600.0, 0.0, 40.0)),
        stream_seconds_max=draw.choice((0.0, 0.0, 0.0, 15.0)),
    )
    recovery = RecoveryConfig(
        attempts_max=draw.randint(1, 4),
        same_target_retries=draw.randint(0, 2),
        backoff_seconds=draw.choice((0.0, 0.25)),
        retry_budget_share=1.0,
        continuation=draw.choice(("off", "held", "committed", "committed")),
        seam_chars=draw.choice((0, 8, 64)),
        fallback_on=draw.choice((("auth",), ("auth", "not_found", "context_length"))),
    )
    hold = modes[draw.weighted({"live": 3, "window": 2, "buffered": 2})]
    return RouteConfig(hold=hold, clocks=clocks, recovery=recovery)


def going_on(draw: Draw, route: RouteConfig) -> RouteConfig:
    """The same route, where an answer that breaks off goes on."""
    mode: ContinuationMode = draw.choice(("held", "committed", "committed"))
    hold = draw.choice((HoldConfig(), HoldConfig(mode="window", tail_chars=draw.randint(1, 12))))
    attempts = max(3, route.recovery.attempts_max)
    recovery = replace(route.recovery, continuation=mode, attempts_max=attempts)
    return replace(route, hold=hold, recovery=recovery)


def draw_limits(draw: Draw, *, small: bool) -> LimitsConfig:
    """Ample, or so small that what is held reaches them."""
    held = draw.choice((1_000, 6_000, 30_000)) if small and draw.chance(0.6) else 8_388_608
    room = draw.choice((500, 4_000, 20_000, 120_000)) if small and draw.chance(0.6) else 8_388_608
    return LimitsConfig(
        body_bytes_max=BODY_BYTES_MAX,
        body_seconds_max=BODY_SECONDS_MAX,
        event_bytes_max=EVENT_BYTES_MAX,
        held_bytes_max=held,
        exchange_bytes_max=WIRE_BYTES + room,
        exchanges_max=2,
        queue_max=draw.choice((0, 256, 256)),
    )


@dataclass(frozen=True, slots=True)
class Crowd:
    """What others hold until `until`: the places for exchanges, the first provider's, all of the process's memory but `free_bytes`."""

    until: float = 0.0
    exchanges: bool = False
    provider: bool = False
    free_bytes: int | None = None


def draw_crowd(draw: Draw) -> Crowd:
    """Others who leave too little of one thing."""
    until = draw.choice((0.5, 5.0, 15.0))
    free = WIRE_BYTES + draw.choice((-1, 0, 500, 20_000, 90_000))
    return draw.choice(
        (Crowd(until, exchanges=True), Crowd(until, provider=True), Crowd(until, free_bytes=free))
    )


# --- the caller ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Request:
    """What the caller asks for, in parts with `gap` seconds before each. `refusal`: the status and code that it gets whatever the providers do."""

    parts: tuple[bytes, ...]
    gap: float
    told_length: bool
    stream: bool
    choices: int
    include_usage: bool
    refusal: tuple[int, str] | None = None


BAD_BODIES: Final[Sequence[tuple[bytes, int, str]]] = (
    (b"", 400, "invalid_json"),
    (b'{"model":', 400, "invalid_json"),
    (b"[]", 400, "invalid_body"),
    (request(model="other"), 404, "model_not_found"),
    (request(n=0), 400, "invalid_value"),
    (request(n="two"), 400, "invalid_type"),
    (request(messages=[]), 400, "invalid_value"),
    (b'{"model":"' + ALIAS.encode() + b'"}', 400, "missing_required_parameter"),
    (request(deep=json.loads("[" * 70 + "]" * 70)), 400, "json_too_deep"),
    (request(user="x" * BODY_BYTES_MAX), 413, "body_too_large"),
)


def draw_request(draw: Draw, *, plain: bool) -> Request:
    """Any size, in any number of parts; sometimes one that is refused. `plain`: a stream of one choice."""
    streams, choices, usage = draw.chance(0.7), draw.choice((1, 1, 1, 2)), draw.chance(0.4)
    streams, choices = (True, 1) if plain else (streams, choices)
    members: dict[str, Any] = {"n": choices} if choices > 1 or draw.chance(0.3) else {}
    members |= {"stream_options": {"include_usage": True}} if usage else {}
    members["user"] = "u" * draw.choice((0, 0, 10, 10, 1_000, 10_000, 100_000))
    data, refused = request(stream=streams, **members), None
    if draw.chance(0.06):
        data, status, code = draw.choice(BAD_BODIES)
        refused = (status, code)
    count, gap = draw.choice(((1, 0.0), (1, 0.0), (3, 0.0), (4, 0.2), (2, 25.0)))
    if draw.chance(0.03):
        count, gap = 3, 25.0
    if count * gap > BODY_SECONDS_MAX:
        refused = (408, "body_timeout")
    size = len(data) // count + 1
    parts = tuple(data[at * size : (at + 1) * size] for at in range(count))
    return Request(parts, gap, draw.chance(0.5), streams, choices, usage, refused)


@dataclass(frozen=True, slots=True)
class Reading:
    """How a caller takes what it gets: `seconds` for each write; `stuck`: none returns before it leaves."""

    seconds: float = 0.0
    stuck: bool = False


@dataclass(frozen=True, slots=True)
class Strike:
    """What happens from outside (`leave`, `cancel`, `shutdown`, `drain`), at a scheduler step or at a time; nothing where `what` is empty."""

    what: str = ""
    step: int = 0
    at: float = 0.0


def draw_strike(draw: Draw, crowd: Crowd) -> Strike:
    """Most are early, when most happens; some are in the very moment in which others give back what they held."""
    what = draw.weighted({"leave": 4, "cancel": 3, "shutdown": 3, "drain": 2})
    if what != "drain" and draw.chance(0.6):
        return Strike(what, step=int(10 ** draw.uniform(0, 3.2)))
    if crowd.until and draw.chance(0.7):
        return Strike(what, at=crowd.until)
    return Strike(what, at=draw.choice((0.0, 1.0, 10.0, 100.0)) * draw.random())


# --- the case ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Case:
    """One exchange. `targets`: each one's provider by number; `scripts`: the attempts in the order in which they are made, at whichever provider."""

    seed: int
    number: int
    route: RouteConfig
    limits: LimitsConfig
    ample: bool
    targets: tuple[int, ...]
    priorities: tuple[int, ...]
    prefill: Prefill
    request: Request
    scripts: tuple[Script, ...] = field(repr=False)
    reading: Reading
    crowd: Crowd
    strike: Strike

    @property
    def quiet(self) -> bool:
        """Nothing but the providers' answers and the route decides how it ends."""
        return self.ample and not self.strike.what and self.crowd == Crowd()

    @property
    def continues(self) -> bool:
        """An attempt may go on with another's answer."""
        return self.prefill != "none" and self.route.recovery.continuation != "off"


def draw_case(seed: int, number: int) -> Case:
    """Case `number` of a seed. Every third one begins with a fault whose turn it is, so that none is left out."""
    draw = Draw(f"{seed}/{number}")
    small = draw.chance(0.2)
    fragile = draw.chance(FRAGILE)
    route, asked = draw_route(draw), draw_request(draw, plain=fragile)
    route = going_on(draw, route) if fragile else route
    crowd = draw_crowd(draw) if draw.chance(CROWDED) else Crowd()
    strike = Strike() if draw.chance(PATIENT) else draw_strike(draw, crowd)
    reading = Reading(seconds=draw.choice((0.0, 0.0, 0.0, 1.0, 7.0, 25.0)))
    if strike.what == "leave" and draw.chance(0.3):
        strike = Strike("leave", at=draw.choice((5.0, 100.0)))
        reading = Reading(stuck=True)
    targets = tuple(draw.randint(0, 1) for _ in range(draw.randint(1, 3)))
    turn = list(FAULTS)[number // 3 % len(FAULTS)] if number % 3 == 0 else ""
    turn = draw.choice(BREAKS) if fragile and not turn else turn
    scripts = [
        draw_script(draw, each, asked.choices, fault=turn if each == 1 else "")
        for each in range(1, route.recovery.attempts_max + 1)
    ]
    return Case(
        seed,
        number,
        route,
        draw_limits(draw, small=small),
        ample=not small,
        targets=targets,
        priorities=tuple(draw.randint(0, 1) for _ in targets),
        prefill="vllm" if fragile else draw.choice(("none", "vllm", "assistant")),
        request=asked,
        scripts=tuple(scripts),
        reading=reading,
        crowd=crowd,
        strike=strike,
    )
