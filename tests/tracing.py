"""Recordings made in a test: a gateway from configuration tables over scripted providers, one exchange of it on a tape, and the trace that comes of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import trio
import trio.testing

from actors.context import Gateway, OpenExchanges
from actors.dispatch import Dispatch
from actors.exchange import run_exchange
from actors.ports import AwaitingFilters, Caller
from actors.recording import ended, recorded
from actors.tape import Tape
from gate.budget import MemoryBudget
from gate.config import GatewayConfig
from gate.config_check import decode_config
from gate.health import ProviderHealth
from gate.trace import VERSION, Header, Trace
from gate.trace_codec import sealed, traces
from gate.tunnel import CHAT
from tests.doubles import ALIAS, NOON, RecordingCaller, Records, ScriptedProvider, door, world
from transport.runtime import Upstream, make_pools

SALT: Final = b"salt of the tests"


def tables(
    count: int,
    *,
    route: Mapping[str, Any] | None = None,
    provider: Mapping[str, Any] | None = None,
    filters: Mapping[str, Any] | None = None,
    **more: Any,
) -> dict[str, Any]:
    """Configuration of `count` providers `p0`, `p1`, ... that serve `ALIAS` in this order."""
    names = [f"p{number}" for number in range(count)]
    return {
        "providers": [
            {"name": name, "base_url": f"http://127.0.0.1:9/{name}", "breaker": {"failures": 1000}, **(provider or {})}
            for name in names
        ],
        "models": [
            {
                "alias": ALIAS,
                "targets": [
                    {"provider": name, "model": f"model-{name}", "priority": number}
                    for number, name in enumerate(names)
                ],
            }
        ],
        "routes": {"default": dict(route or {})},
        "filters": dict(filters or {}),
        **more,
    }  # fmt: skip


def gateway_of(
    config: GatewayConfig,
    providers: Sequence[ScriptedProvider],
    awaiting: Mapping[str, AwaitingFilters] | None = None,
) -> Gateway:
    """The gateway of this configuration, with these providers in place of those it names."""
    upstreams = {
        each.name: Upstream(each, provider, ProviderHealth(failures=1000, open_seconds=30.0))
        for each, provider in zip(config.providers, providers, strict=True)
    }
    limits = config.limits
    return Gateway(
        pools=make_pools(config, upstreams, awaiting or {}),
        limits=limits,
        caller_write_seconds=config.server.caller_write_seconds,
        dispatch=Dispatch(
            exchanges_max=limits.exchanges_max,
            queue_max=limits.queue_max,
            queue_seconds_max=limits.queue_seconds_max,
            concurrency={each.name: each.concurrency_max for each in config.providers},
        ),
        budget=MemoryBudget("process", limits.process_bytes_max),
        world=world(),
        probe=Records().observations.append,
        crashed=Records().crashed,
        open=OpenExchanges(),
        tunnel_marks=config.compat.tunnel_cut == "mark",
        streams_errors=config.compat.buffered_error == "stream",
        explains=config.observe.explain,
    )


@dataclass(slots=True)
class Recording:
    """One exchange as it is to be recorded. `raw`: configuration tables."""

    raw: Mapping[str, Any]
    providers: Sequence[ScriptedProvider]
    caller: Caller = field(default_factory=RecordingCaller)
    awaiting: Mapping[str, AwaitingFilters] | None = None
    endpoint: str = CHAT

    async def take(self, exchange: str = "ex-1") -> Trace:
        """Runs it and gives the trace."""
        gate = gateway_of(decode_config(self.raw), self.providers, self.awaiting)
        tape = Tape(SALT)
        let_in = door(exchange, endpoint=self.endpoint)
        taped = recorded(let_in, self.caller, gate, tape)
        outcome = await run_exchange(let_in, *taped)
        ended(outcome, tape)
        return trace_of(tape, self.raw, exchange)


def trace_of(tape: Tape, raw: Mapping[str, Any], exchange: str = "ex-1") -> Trace:
    """What is on a tape, as it comes back from a file."""
    header = Header(VERSION, exchange, {}, NOON, "full", raw, SALT)
    records = sealed([header, *tape.records], dropped=tape.dropped, truncated=tape.truncated)
    return next(traces(records))


def take(recording: Recording) -> Trace:
    """Records on a virtual clock."""
    return trio.run(recording.take, clock=trio.testing.MockClock(autojump_threshold=0))
