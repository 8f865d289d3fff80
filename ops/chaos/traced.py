"""Recorded traces as scenarios: `FILE@ID` is the exchange ID of a trace file, with its providers' answers, its configuration and its caller.

What a recording tells is kept (what each attempt brought and when, how it ended, what the caller did); what it can't tell is made up: an attempt that the recording does not have gets the last answer
that its provider gave, and one that the gate left says no more. Reads are joined to a few, since each is a dozen points more. The run in which nothing strikes says what the caller gets; where attempts
said different things only that run is held against it. What a tunnel relays is its provider's: where that breaks the grammar of answers by itself, no strike may break it in another way; where
it can't be read at all there is nothing to judge. Nothing else that goes wrong without a strike is a reason to pass a trace over: the search meets it again, as a failure.
"""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from gate.config import GatewayConfig, Prefill, ProviderConfig, RouteConfig, TargetConfig
from gate.config_check import decode_config
from gate.config_rules import ConfigInvalid
from gate.endpoints import ENDPOINTS
from gate.observe import OutcomeKind
from gate.trace import Answered, CallerEvent, Part, Read, Record, Request, Trace, Upstream
from gate.trace import Attempt as Asked
from gate.trace_codec import TraceInvalid
from ops.chaos.cases import Case, CaseInvalid
from ops.chaos.reading import Read as Seen
from ops.chaos.reading import plain, read_body, read_events
from ops.chaos.run import play
from ops.chaos.scenario import Asking, Scenario, Service
from ops.chaos.wire import ALIAS, Answer
from ops.plugins import load_plugins
from ops.provider_script import Attempt, Ending, Head, Sleep, Step, Write
from ops.trace import read_traces

__all__ = ["MARK", "is_traced", "names_in", "traced"]

MARK: Final = "@"
OTHERS_MAX: Final = 3  # traces whose reason is told where no other can be played
READS_MAX: Final = 8  # of one attempt
UNREADABLE: Final = (LookupError, TypeError, ValueError)  # what a reader of answers raises


def is_traced(name: str) -> bool:
    """Whether a scenario's name is that of a trace."""
    return MARK in name


def names_in(file: Path) -> tuple[list[str], list[str]]:
    """The scenarios of a trace file, and why others of its traces are none. Raises `CaseInvalid` where it has none at all."""
    try:
        found = _traces(file)
    except (TraceInvalid, OSError) as error:
        raise CaseInvalid(f"{file}: {error}") from None
    names, others = [], []
    for each, trace in found.items():
        if not trace.replayable:
            others.append(f"{each} can't be played: it takes full content")
            continue
        name = f"{file}{MARK}{each}"
        try:
            traced(name)
            names.append(name)
        except CaseInvalid as error:
            others.append(str(error))
    if not names:
        why = "; ".join(others[:OTHERS_MAX]) or "it is empty"
        raise CaseInvalid(f"{file} has no trace that can be played: {why}")
    return names, others


@functools.cache
def traced(name: str) -> Scenario:
    """The scenario of this name. Raises `CaseInvalid`."""
    file, _, identity = name.rpartition(MARK)
    try:
        scenario = _scenario(_traces(Path(file))[identity])
    except KeyError:
        raise CaseInvalid(f"{file} has no trace {identity}") from None
    except (TraceInvalid, ConfigInvalid, OSError) as error:
        raise CaseInvalid(f"{name}: {error}") from None
    return _answered(name, scenario)


def _traces(file: Path) -> dict[str, Trace]:
    """By id. A file is read once, however many of its traces are played."""
    return _read_once(file, file.stat().st_mtime_ns)


@functools.lru_cache(maxsize=4)
def _read_once(file: Path, _changed: int) -> dict[str, Trace]:
    found: dict[str, Trace] = {}
    for each in read_traces(file):
        found.setdefault(each.header.trace_id, each)
    return found


def _asking(records: Sequence[Record], config: GatewayConfig) -> Asking:
    """The caller's body, for the alias that the explorer's gateway knows; as it is where it asks for no model, or for one that there is not."""
    parts = [each for each in records if isinstance(each, Part)]
    body = b"".join(each.b for each in parts)
    with suppress(ValueError):
        value = json.loads(body)
        if isinstance(value, dict) and value.get("model") in {each.alias for each in config.models}:
            body = json.dumps({**value, "model": ALIAS}, separators=(",", ":")).encode()
    whole = any(each.last for each in parts)
    return Asking(parts=(body,), leaves_at=_when(records, "gone"), whole=whole)


def _scenario(trace: Trace) -> Scenario:
    """Without what its caller gets."""
    records, plugins = trace.records, load_plugins()
    config = decode_config(trace.header.config, plugins=plugins)
    request = next((each for each in records if isinstance(each, Request)), None)
    if request is None or request.method != "POST":
        raise CaseInvalid(f"{trace.header.trace_id} is no request that can be played")
    targets = _targets(config)
    route = config.routes[config.models[0].route] if config.models else RouteConfig()
    by_name = {each.name: each for each in config.providers}
    answers = {name: list(_answers(records, name)) for name in by_name}
    last: list[Answer] = [each for name in answers for each in answers[name]][-1:] or [None]
    hooks = {name for name in route.filters if name in config.filters and config.filters[name].kind == "webhook"}  # fmt: skip
    asked = [each for each in records if isinstance(each, Asked)]
    return Scenario(
        about=f"recorded: {len(asked)} attempts",
        targets=[answers[each.provider] or last for each in targets] or [[None]],
        endpoint=request.endpoint,
        paths=tuple(by_name[each.provider].path for each in targets),
        relays=request.endpoint not in ENDPOINTS,
        varies=len(asked) > 1,
        asking=_asking(records, config),
        drains_at=_when(records, "shutdown"),
        services={name: Service(_waited(records), table=config.filters[name]) for name in hooks},
        filters=tuple(name for name in route.filters if name not in hooks),
        tables=config.filters,
        plugins=plugins,
        route=route,
        limits=config.limits,
        prefill=_prefill(targets, by_name),
    )


def _targets(config: GatewayConfig) -> list[TargetConfig]:
    """In the order in which they are asked."""
    found = config.models[0].targets if config.models else ()
    return sorted(found, key=lambda each: each.priority)


def _prefill(targets: Sequence[TargetConfig], providers: Mapping[str, ProviderConfig]) -> Prefill:
    """The first target's; the explorer's have one for all."""
    for each in targets[:1]:
        return providers[each.provider].prefill if each.prefill is None else each.prefill
    return "none"


def _when(records: Sequence[Record], event: str) -> float | None:
    return next(
        (each.t / 1e6 for each in records if isinstance(each, CallerEvent) and each.ev == event),
        None,
    )


def _waited(records: Sequence[Record]) -> float:
    """How long filters that await were waited for, at the most."""
    return max((each.us / 1e6 for each in records if isinstance(each, Answered)), default=0.0)


# --- what providers said -------------------------------------------------------------------------


def _answers(records: Sequence[Record], provider: str) -> Iterator[Answer]:
    for attempt in (each for each in records if isinstance(each, Asked)):
        if attempt.provider == provider:
            own = [each for each in records if isinstance(each, Upstream | Read) and each.n == attempt.n]  # fmt: skip
            yield _answer(attempt.t, own)


def _answer(began: int, own: Sequence[Upstream | Read]) -> Answer:
    """One attempt; None: there was no connection."""
    if any(isinstance(each, Upstream) and each.fault == "CONNECT" for each in own):
        return None
    steps: list[Step] = []
    at, reads = began, [each for each in own if isinstance(each, Read)]
    size = -(-len(reads) // READS_MAX)
    groups = {id(each): index // max(1, size) for index, each in enumerate(reads)}
    open_group, data = -1, b""
    for each in own:
        if isinstance(each, Read) and groups[id(each)] == open_group:
            data += each.b
            steps[-1] = Write(data)
            at = each.t
            continue
        steps += _steps(each, each.t - at)
        at = each.t
        if isinstance(each, Read):
            open_group, data = groups[id(each)], each.b
    return Attempt(steps=tuple(steps), status=0)


def _steps(record: Upstream | Read, waited: int) -> list[Step]:
    pause: list[Step] = [Sleep(round(waited / 1000))] if waited >= 1000 else []
    match record:
        case Read():
            return [*pause, Write(record.b)]
        case Upstream(ev="head"):
            return [*pause, Head(record.status, tuple(record.headers))]
        case Upstream(ev="eof"):
            return [*pause, Ending.CLOSE]
        case Upstream(ev="fault"):
            return [*pause, Ending.CUT]
        case Upstream(ev="left"):
            return [Ending.STALL]
        case _:
            return pause


# --- what its caller gets ------------------------------------------------------------------------


def _answered(name: str, scenario: Scenario) -> Scenario:
    """With what comes of it where nothing strikes. A run that has no end, or whose caller can't make sense of it, is left to the search: there it is a failure."""
    run = play(Case(name), scenario)
    if run.outcome is None:
        return scenario
    caller, received = run.stage.caller, bytes(run.stage.caller.received)
    streamed = caller.headers.get(b"content-type", b"").startswith(b"text/event-stream")
    try:
        read = _read(scenario, received, streamed) if received else Seen()
    except UNREADABLE as error:
        if _own_words(scenario, received, streamed):
            raise CaseInvalid(f"{name} can't be judged: nobody can read its provider's own words ({error!r})") from None  # fmt: skip
        return dataclasses.replace(scenario, code=run.outcome.code)
    calls: Any = tuple(call for _, call in sorted(read.calls.items()))
    # What an exchange that failed or was left would have come to is not known.
    varies = scenario.varies or run.outcome.kind is not OutcomeKind.SUCCESS
    made = dataclasses.replace(
        scenario, said=read.text, calls=calls, code=run.outcome.code, varies=varies
    )
    if not scenario.tunnels:
        return made
    quirks = frozenset(read.wrong) & _quirks(scenario, streamed)
    return dataclasses.replace(made, finishes=read.finishes, quirks=quirks)


def _read(scenario: Scenario, data: bytes, streamed: bool) -> Seen:
    return (read_events if streamed else read_body)(scenario.endpoint, data)


def _own_words(scenario: Scenario, received: bytes, streamed: bool) -> bool:
    """Whether a tunnel brought what a provider said and nothing else, but for the error that may end a stream."""
    if not scenario.tunnels:
        return False
    if not streamed:
        return any(each.startswith(received) for each in scenario.bodies(ALIAS))
    said = scenario.events(ALIAS)
    return all(each in said or b'"error"' in each for each in plain(received).split(b"\n\n")[:-1])


def _quirks(scenario: Scenario, streamed: bool) -> frozenset[str]:
    """What of the providers' own words breaks the grammar of answers, so that the gate need not have done it; of a stream as far as it can be read."""
    found: set[str] = set()
    for body in scenario.bodies(ALIAS):
        events = plain(body).split(b"\n\n") if streamed else [body]
        for end in range(len(events), 0, -1):
            with suppress(*UNREADABLE):
                found.update(_read(scenario, b"\n\n".join(events[:end]), streamed).wrong)
                break
    return frozenset(found)
