"""Replay: a recorded exchange once more through the same actors, on a virtual clock, with everything that it was told fed to it from the trace.

*Verify* runs it under the configuration of its header: the response's bytes and every decision have to be the same again, over any schedule. *What if* runs it under
another one, as far as the recording tells.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any, Final

import msgspec
import trio
import trio.testing

from actors.context import Door, Gateway, OpenExchanges, Pool
from actors.exchange import run_exchange
from actors.recording import ended, recorded
from actors.tape import Tape
from gate.budget import MemoryBudget
from gate.config import GatewayConfig
from gate.config_check import decode_config
from gate.config_plugins import NO_PLUGINS, Plugins
from gate.observe import Observation
from gate.trace import (
    Attempt,
    CallerEvent,
    Decision,
    Record,
    Release,
    Request,
    ResponseHead,
    Term,
    Trace,
    digest_of,
)
from gate.trace_codec import TraceInvalid
from ops.replay_ports import (
    Horizon,
    ReplayCaller,
    ReplayDispatch,
    ReplayFilters,
    ReplayHealth,
    ReplayProvider,
    ReplayRetries,
    replay_world,
)
from ops.replay_script import SLACK_SECONDS, Script, plain
from transport.runtime import Upstream, make_pools

__all__ = ["Replayed", "differences", "replay"]

TEXT_SHOWN: Final = 400  # bytes of the output where it differs
_MOMENTARY: Final = frozenset({"kind", "code", "size", "sha", "status", "attempts"})
WAIT_SECONDS_MAX: Final = 86_400.0  # virtual, behind the recording's end: no policy waits so long
RECORDS_MAX: Final = 1_000_000  # a replay takes down all of it


@dataclass(frozen=True, slots=True)
class Replayed:
    """What a replay came to: its own records and the response's body. `horizon`: where the recording could tell no more; empty: nowhere."""

    records: Sequence[Record]
    body: bytes
    horizon: str = ""
    crashes: tuple[str, ...] = ()


def replay(
    trace: Trace, config: GatewayConfig | None = None, *, plugins: Plugins = NO_PLUGINS
) -> Replayed:
    """Runs `trace` once, under its own configuration or another. Raises `ConfigInvalid` where its own is none any more, and `TraceInvalid` where nothing says what was asked, or the end does not come."""
    verifies = config is None
    request = next((each for each in trace.records if isinstance(each, Request)), None)
    if request is None:
        raise TraceInvalid("there is no record of its request")
    if config is None:
        config = decode_config(trace.header.config, plugins=plugins)
    script = Script(trace, keeps=verifies)
    return trio.run(
        _run, script, _door(trace, request), config, plugins, clock=trio.testing.MockClock(autojump_threshold=0)
    )  # fmt: skip


async def _run(script: Script, door: Door, config: GatewayConfig, plugins: Plugins) -> Replayed:
    horizon = Horizon(script)
    crashes: list[str] = []
    gateway = _gateway(script, config, plugins, horizon, crashes)
    caller = ReplayCaller(script)
    tape = Tape(
        script.trace.header.salt, bytes_max=config.limits.process_bytes_max, records_max=RECORDS_MAX
    )  # fmt: skip
    taped_caller, taped_gateway = recorded(door, caller, gateway, tape)
    horizon.scope.deadline = script.ends + WAIT_SECONDS_MAX
    with horizon.scope:
        async with trio.open_nursery() as nursery:
            if script.shutdown_at is not None:
                nursery.start_soon(_shut_down, gateway, script.shutdown_at)
            outcome = await run_exchange(door, taped_caller, taped_gateway)
            ended(outcome, tape)
            nursery.cancel_scope.cancel()
    if horizon.scope.cancelled_caught and not horizon.reached:
        raise TraceInvalid("it waits for something that is not among its records")
    return Replayed(tape.records, bytes(caller.body), horizon.reached, tuple(crashes))


async def _shut_down(gateway: Gateway, at: float) -> None:
    await trio.sleep_until(at)
    gateway.open.shut_down()


def _door(trace: Trace, request: Request) -> Door:
    return Door(
        exchange=trace.header.trace_id,
        models=None if request.models is None else frozenset(request.models),
        content_type=request.content_type.encode("latin-1"),
        content_length=request.content_length,
        forwarded=plain(request.forwarded),
        endpoint=request.endpoint,
        method=request.method,
        query=request.query,
        model=request.model,
    )


def _gateway(
    script: Script,
    config: GatewayConfig,
    plugins: Plugins,
    horizon: Horizon,
    crashes: list[str],
) -> Gateway:
    provider = ReplayProvider(script, horizon)
    upstreams = {
        each.name: Upstream(each, provider, ReplayHealth(each.name, script))
        for each in config.providers
    }
    heavy = {kind for kind, plugin in plugins.items() if plugin.heavy}
    awaiting = {
        name: ReplayFilters(name, script, horizon)
        for name, table in config.filters.items()
        if table.kind in heavy | {"webhook"}
    }
    pools: Mapping[str, Pool] = {
        alias: replace(pool, retries=ReplayRetries(script))
        for alias, pool in make_pools(config, upstreams, awaiting, plugins=plugins).items()
    }
    return Gateway(
        pools=pools,
        limits=config.limits,
        caller_write_seconds=config.server.caller_write_seconds,
        dispatch=ReplayDispatch(script, upstreams, horizon),
        budget=MemoryBudget("process", config.limits.process_bytes_max),
        world=replay_world(script),
        probe=_ignore,
        crashed=lambda exchange, error: crashes.append(type(error).__name__),
        open=OpenExchanges(),
        tunnel_marks=config.compat.tunnel_cut == "mark",
        streams_errors=config.compat.buffered_error == "stream",
        explains=config.observe.explain,
    )


def _ignore(observation: Observation) -> None:
    """The tape has it already."""


# ---- verify -------------------------------------------------------------------------------------


def differences(trace: Trace, replayed: Replayed) -> list[str]:
    """What the replay did otherwise than the recording, in lines for a person; empty where both are one."""
    if replayed.horizon:
        return [f"it went its own way {replayed.horizon}"]
    was, now = _term(trace.records), _term(replayed.records)
    # A caller leaves when it leaves: what was on its way then is a matter of moments. All the same, it can only be more or less of one output.
    until, left = inf, False
    if was is not None and now is not None and was.kind == "abandoned":
        gone = (each.t for each in trace.records if isinstance(each, CallerEvent) and each.ev == "gone")  # fmt: skip
        until = min([was.t, *gone]) - SLACK_SECONDS * 1e6
        left = now.kind == "abandoned" or now.t >= until  # it may even have ended just before
    found = [f"the replay crashed: {each}" for each in replayed.crashes]
    found += _sequence("attempt", _attempts(trace, until), _attempts(replayed, until))
    found += _decisions(trace, replayed, until)
    heads = _heads(trace), _heads(replayed)
    found += _sequence("head", *heads) if not left or all(heads) else ()
    found += _output(trace, replayed.body, partly=left)
    found += _terminal(was, now, but=_MOMENTARY if left else set())
    return found


def _sequence(what: str, before: Sequence[object], after: Sequence[object]) -> Iterator[str]:
    for number, (was, now) in enumerate(zip(before, after, strict=False), start=1):
        if was != now:
            yield f"{what} {number}: recorded {was}, replayed {now}"
    if len(before) != len(after):
        yield f"{what}s: recorded {len(before)}, replayed {len(after)}"


def _attempts(of: Trace | Replayed, until: float) -> list[tuple[str, int, str]]:
    return [
        (each.provider, each.size, each.sha.hex())
        for each in of.records
        if isinstance(each, Attempt) and each.t < until
    ]


def _heads(of: Trace | Replayed) -> list[tuple[int, object]]:
    """The response's head, and whether it was cut off."""
    return [
        (each.status, each.headers) if isinstance(each, ResponseHead) else (each.off, each.ev)
        for each in of.records
        if isinstance(each, ResponseHead)
        or (isinstance(each, CallerEvent) and each.ev == "aborted")
    ]


def _decisions(was: Trace, now: Replayed, until: float) -> Iterator[str]:
    """Decisions of one exchange are compared as a bag: two actors may be heard in either order. Those from `until` on are not missed."""
    before, after = _all(was.records, inf), _all(now.records, inf)
    for said in (_all(was.records, until) - after).elements():
        yield f"decision only in the recording: {said}"
    for said in (_all(now.records, until) - before).elements():
        yield f"decision only in the replay: {said}"


def _all(records: Sequence[Record], until: float) -> Counter[str]:
    return Counter(_said(each) for each in records if isinstance(each, Decision) and each.t < until)


def _said(decision: Decision) -> str:
    parts: dict[str, Any] = msgspec.structs.asdict(decision)
    return " ".join(f"{name}={value}" for name, value in parts.items() if value and name != "t")


def _output(trace: Trace, body: bytes, *, partly: bool) -> Iterator[str]:
    """The first release that has other bytes. `partly`: it may also be missing."""
    before = 0
    for each in trace.records:
        if isinstance(each, Release):
            if partly and len(body) < each.off:
                return
            if len(body) < each.off or digest_of([body[: each.off]], trace.header.salt) != each.sha:
                there = body[before : each.off][:TEXT_SHOWN]
                yield f"output: bytes {before}..{each.off} differ; the replay has {len(body)} bytes, there: {there!r}"
                return
            before = each.off


def _term(records: Sequence[Record]) -> Term | None:
    return next((each for each in records if isinstance(each, Term)), None)


def _terminal(was: Term | None, now: Term | None, *, but: Collection[str]) -> Iterator[str]:
    if was is None or now is None:
        if was is not now:
            yield f"terminal: recorded {was}, replayed {now}"
        return
    for name in ("kind", "code", "status", "attempts", "framing", "size", "sha"):
        before, after = getattr(was, name), getattr(now, name)
        if before != after and name not in but:
            shown = (before.hex(), after.hex()) if name == "sha" else (before, after)
            yield f"terminal: {name} was {shown[0]!r}, is {shown[1]!r}"
