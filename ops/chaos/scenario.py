"""A scenario: what providers, filters, the caller and everybody else do, and what a caller gets when nothing strikes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from gate.config import (
    ClocksConfig,
    FilterConfig,
    HoldConfig,
    LimitsConfig,
    PathKind,
    Prefill,
    RecoveryConfig,
    RouteConfig,
)
from gate.filters.plugin import FilterPlugin
from gate.ingress import CHAT_PATH
from ops.chaos.reading import plain
from ops.chaos.wire import Answer, request
from ops.provider_script import Attempt, Write

__all__ = ["Asking", "Scenario", "Service"]

_NAMED: Final = re.compile(rb'("model"\s*:\s*)("(?:[^"\\]|\\.)*"|null)')
_EMPTY: Final = ("empty",)
_ROUTE: Final = RouteConfig()
_LIMITS: Final = LimitsConfig()
_WEBHOOK: Final = FilterConfig(
    kind="webhook", url="http://127.0.0.1:1/", horizon_chars=1, deadline_ms=60_000
)


@dataclass(frozen=True, slots=True)
class Asking:
    """How the caller behaves. Seconds on the virtual clock; `leaves_at`: None, it stays; `whole`: its body comes to an end."""

    parts: tuple[bytes, ...] = (request(),)
    gap: float = 0.0
    seconds: float = 0.0
    stuck: bool = False
    whole: bool = True
    leaves_at: float | None = None


@dataclass(frozen=True, slots=True)
class Service:
    """A filter that awaits: seconds for each question, and text that it denies."""

    seconds: float
    denied: str = ""
    table: FilterConfig = _WEBHOOK


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """`targets`: the script of each, asked in this order. `said`: the whole answer text; `code`: what the exchange ends with (empty: success).

    `calls`: name and arguments of the tool calls of the answer. `rivals`: other exchanges that want the same places and began before it; `followers`: after it. `drains_at`: when the drain ends, in seconds.
    `gets`: what of it the caller has got in the end where nothing strikes, also where that is an error. `endpoint`: what is asked; `paths`: of each target, in order. `ask_usage`: its providers are asked for the usage, which the caller does not want. `chat_only`: the targets that have nothing but chat. `relays`: the answer is nobody's to read, and `said` all of its body.
    `finishes`: finish reasons of a whole answer, of which a provider's own may have none; `quirks`: what else of a provider's own words breaks the grammar of a stream.
    `plugins`: by kind, filters that other packages bring; `thread_seconds`: that each worker thread takes. `recorded`: the exchange is taken down on a tape; `explained`: its caller is told what is decided. `varies`: its attempts do not say the same, so that a strike may lead to another answer.
    `hidden`: text that no caller may see. `rows`: of the fault catalogue. `wait`: seconds of virtual time that an exchange may still take when it was cancelled or its caller left; `lasts`: that it takes at most where nothing strikes; `lingers`: that it may go on behind its last byte.
    """

    about: str
    targets: Sequence[Sequence[Answer]]
    said: str = ""
    code: str = ""
    gets: str = ""
    endpoint: str = CHAT_PATH
    paths: tuple[PathKind, ...] = ()
    relays: bool = False
    finishes: int = 1
    quirks: frozenset[str] = frozenset()
    chat_only: tuple[int, ...] = ()
    plugins: Mapping[str, type[FilterPlugin]] = field(default_factory=dict)
    thread_seconds: float = 0.0
    recorded: bool = False
    explained: bool = False
    varies: bool = False
    calls: tuple[tuple[str, str], ...] = ()
    asking: Asking = Asking()
    rivals: int = 0
    followers: int = 0
    services: Mapping[str, Service] = field(default_factory=dict)
    drains_at: float | None = None
    hidden: tuple[str, ...] = ()
    rows: tuple[int, ...] = ()
    wait: float = 0.0
    lasts: float | None = None
    lingers: float = 0.0
    filters: tuple[str, ...] = _EMPTY
    tables: Mapping[str, FilterConfig] = field(default_factory=dict)
    route: RouteConfig = _ROUTE
    limits: LimitsConfig = _LIMITS
    prefill: Prefill = "none"
    ask_usage: bool = False
    concurrency: int = 64

    @property
    def tunnels(self) -> bool:
        """Some answer is its provider's bytes."""
        return self.relays or "tunnel" in self.paths

    def events(self, alias: str) -> set[bytes]:
        """What its providers say in streams, event by event, as a caller of this alias gets it through a tunnel."""
        return {event for each in self.bodies(alias) for event in plain(each).split(b"\n\n")}

    def bodies(self, alias: str) -> Iterator[bytes]:
        """What its providers say, answer by answer, with this name wherever a model's stands."""
        for answer in (each for script in self.targets for each in script if each is not None):
            script = answer if isinstance(answer, Attempt) else answer("")
            body = b"".join(step.data for step in script.steps if isinstance(step, Write))
            yield _NAMED.sub(rb'\1"%b"' % alias.encode(), body)

    @property
    def streams(self) -> bool:
        """The caller asked for a stream."""
        return b'"stream":true' in b"".join(self.asking.parts)


def route(
    *,
    hold: HoldConfig | None = None,
    clocks: ClocksConfig | None = None,
    recovery: RecoveryConfig | None = None,
    **policy: object,
) -> RouteConfig:
    """A route's policy, the rest as the configuration has it."""
    return RouteConfig(
        hold=hold or HoldConfig(),
        clocks=clocks or ClocksConfig(),
        recovery=recovery or RecoveryConfig(),
        **policy,  # type: ignore[arg-type]
    )
