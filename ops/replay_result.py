"""What a replay says of one trace: figures of the exchange before and after, and the class that the difference falls into."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Final

import msgspec

from gate.config import GatewayConfig
from gate.config_check import decode_config
from gate.config_plugins import NO_PLUGINS, Plugins
from gate.trace import Attempt, Decision, Read, Record, Release, Term, Trace
from ops.replay import Replayed, differences, replay
from ops.replay_timeline import Timeline, timeline

__all__ = ["Class", "Figures", "Result", "figures", "verify", "what_if"]

JUST_AS_LONG_SECONDS: Final = (
    0.001  # a byte that comes so much earlier or later comes at the same time
)


UNSERVED: Final = "model_not_found"
ALIASES_MAX: Final = 8  # that are named


class Class(Enum):
    """What a replay comes to; the value is what people read."""

    SAME = "same"
    DIFFERENT = "different"  # verify only: it should have been the same
    COUNTED = "counted only"  # the trace holds too little to be replayed
    TIMING = "same bytes, other timing"
    EARLIER = "same bytes, earlier"
    LATER = "same bytes, later"
    BYTES = "other bytes"
    STOPPED = "now stopped"
    PASSED = "now passed"
    DIVERGED = "diverged"
    UNSERVED = "model not served"  # what if only: the other configuration has no such alias
    UNREADABLE = "unreadable"  # it can't be replayed at all


class Figures(msgspec.Struct, frozen=True):
    """One exchange. Times in seconds since its beginning; `first_byte` is -1 where none came. `mean_byte`: the mean time at which a byte went out.

    `held`: the longest that a released frame has stayed; `wasted_tokens`: completion tokens that nobody has seen, `wasted_bytes`: what was read of attempts that came to nothing.
    """

    kind: str
    code: str
    status: int
    attempts: int
    size: int
    first_byte: float
    mean_byte: float
    held: float
    ended: float
    wasted_tokens: int
    wasted_bytes: int
    verdicts: tuple[str, ...]

    @property
    def unserved(self) -> bool:
        """The gate knew no such model; a provider that does not is asked first."""
        return self.code == UNSERVED and not self.attempts


class Result(msgspec.Struct, frozen=True):
    """What one trace came to. `lines`: differences, or where the recording ended, in words."""

    source: str
    trace_id: str
    kind: Class
    before: Figures
    after: Figures | None = None
    lines: tuple[str, ...] = ()
    timelines: tuple[Timeline, ...] = ()


def figures(records: Sequence[Record]) -> Figures:
    """The figures of an exchange, recorded or replayed."""
    term = next((each for each in records if isinstance(each, Term)), None)
    releases = [each for each in records if isinstance(each, Release)]
    size = sum(each.size for each in releases)
    byte_seconds = sum(each.size * each.t for each in releases) / 1e6
    decisions = [each for each in records if isinstance(each, Decision)]
    lost = {
        each.attempt
        for each in decisions
        if each.what == "attempt_ended" and each.code != "complete"
    }
    last = records[-1] if records else None
    return Figures(
        kind=term.kind if term else "",
        code=term.code if term else "",
        status=term.status if term else 0,
        attempts=sum(isinstance(each, Attempt) for each in records),
        size=size,
        first_byte=releases[0].t / 1e6 if releases else -1.0,
        mean_byte=byte_seconds / size if size else 0.0,
        held=max(0, term.held_us) / 1e6 if term else 0.0,
        wasted_tokens=term.wasted if term else 0,
        ended=getattr(last, "t", 0) / 1e6,
        wasted_bytes=sum(
            each.size for each in records if isinstance(each, Read) and each.n in lost
        ),
        verdicts=tuple(each.code for each in decisions if each.what == "violation"),
    )


def verify(
    source: str, trace: Trace, *, show: bool = False, plugins: Plugins = NO_PLUGINS
) -> Result:
    """The trace under its own configuration: same, or different, or only counted."""
    before = figures(trace.records)
    if not trace.replayable:
        return Result(source, trace.header.trace_id, Class.COUNTED, before)
    replayed = replay(trace, plugins=plugins)
    lines = tuple(differences(trace, replayed))
    kind = Class.DIFFERENT if lines else Class.SAME
    drawn = (timeline(trace.records), timeline(replayed.records)) if show else ()
    after = figures(replayed.records)
    return Result(source, trace.header.trace_id, kind, before, after, lines, drawn)


def what_if(
    source: str,
    trace: Trace,
    config: GatewayConfig,
    *,
    show: bool = False,
    plugins: Plugins = NO_PLUGINS,
) -> Result:
    """The trace under another configuration, compared with its replay under its own: both on the same clock."""
    trace_id = trace.header.trace_id
    if not trace.replayable:
        return Result(source, trace_id, Class.COUNTED, figures(trace.records))
    own = decode_config(trace.header.config, plugins=plugins)
    was = replay(trace, own, plugins=plugins)
    now = replay(trace, config, plugins=plugins)
    before, after = figures(was.records), figures(now.records)
    drawn = (timeline(was.records), timeline(now.records)) if show else ()
    if after.unserved and not before.unserved:
        return Result(
            source,
            trace_id,
            Class.UNSERVED,
            before,
            lines=(_unserved(trace, config),),
            timelines=drawn[:1],
        )
    kind = _class(was, now, before, after)
    lines = tuple(_changes(before, after)) if not now.horizon else (f"diverged {now.horizon}",)
    return Result(source, trace_id, kind, before, after, lines, drawn)


def _unserved(trace: Trace, config: GatewayConfig) -> str:
    """Which alias, and which there are. The header has the tables of the exchange's own alias only."""
    asked = ", ".join(repr(each["alias"]) for each in trace.header.config.get("models", ()))
    there = ", ".join(repr(each.alias) for each in config.models[:ALIASES_MAX])
    more = ", ..." if len(config.models) > ALIASES_MAX else ""
    return f"the configuration has no model {asked}; it has {there or 'none'}{more}"


def _class(was: Replayed, now: Replayed, before: Figures, after: Figures) -> Class:
    if now.horizon or was.horizon:
        return Class.DIVERGED
    if before.kind != after.kind and "success" in {before.kind, after.kind}:
        return Class.PASSED if after.kind == "success" else Class.STOPPED
    one_way = was.body.startswith(now.body) or now.body.startswith(was.body)
    if before.kind == after.kind == "abandoned" and one_way:
        # The caller leaves when it left; what it has got by then says who was quicker.
        return _quicker(after.size, before.size)
    if was.body != now.body or before.status != after.status or before.kind != after.kind:
        return Class.BYTES
    later = after.mean_byte - before.mean_byte
    if abs(later) > JUST_AS_LONG_SECONDS:
        return Class.LATER if later > 0 else Class.EARLIER
    moved = abs(after.first_byte - before.first_byte) > JUST_AS_LONG_SECONDS
    other = before.attempts != after.attempts or before.verdicts != after.verdicts
    return Class.TIMING if moved or other else Class.SAME


def _quicker(now: int, before: int) -> Class:
    if now == before:
        return Class.SAME
    return Class.EARLIER if now > before else Class.LATER


def _changes(before: Figures, after: Figures) -> list[str]:
    found = []
    for name in ("kind", "code", "status", "attempts", "size", "verdicts"):
        was, now = getattr(before, name), getattr(after, name)
        if was != now:
            found.append(f"{name}: {_shown(was)} -> {_shown(now)}")
    return found


def _shown(value: object) -> str:
    return (
        ", ".join(map(str, value)) or "none" if isinstance(value, tuple) else str(value) or "none"
    )
