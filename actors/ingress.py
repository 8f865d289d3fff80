"""Ingress: reads the caller's body into the snapshot under its limits, then watches for the caller leaving.

It is the one reader of `receive()`, all the time: under this server a write to a caller that has left does not fail, so the watch is what tells.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from mmap import MAP_ANONYMOUS, MAP_PRIVATE, mmap
from typing import Final

import trio

from actors.context import Door, Ending
from actors.ports import Caller, Disconnected
from actors.probe import acting
from actors.world import Moment, World
from gate.config import LimitsConfig
from gate.endpoints import ENDPOINTS
from gate.envelope import refusal
from gate.errors import BudgetExceeded, RequestRefused, SnapshotClosed
from gate.events import Gone, Intake, Ready, Refused
from gate.ingress import (
    INLINE_BYTES_MAX,
    CallerRequest,
    IngressSnapshot,
    read_large_request,
    read_request,
)
from gate.ingress_relay import read_relayed_request
from gate.splice import Body
from gate.steps import Steps

__all__ = ["refused", "run"]

TOO_SLOW_SHARE: Final = (
    0.9  # of caller_write_seconds: a disconnect this long into a write is the write limit's doing
)
JUST_NOW_SECONDS: Final = 0.1


async def run(
    intake: trio.MemorySendChannel[Intake],
    caller: Caller,
    snapshot: IngressSnapshot,
    door: Door,
    limits: LimitsConfig,
    *,
    world: World,
    ending: Ending,
    caller_write_seconds: float,
    leave: Callable[[], None],
) -> None:
    """Sends one message to `intake`; calls `leave` when the caller has left before the end."""
    with intake, acting("ingress"):
        message = await _read_body(caller, snapshot, door, limits, world)
        if not isinstance(message, Gone):
            with suppress(trio.BrokenResourceError):  # the exchange ended first
                intake.send_nowait(message)
            await _watch(caller)
        if not ending.over:
            ending.because(_reason(ending, caller_write_seconds))
            leave()


def _reason(ending: Ending, caller_write_seconds: float) -> str:
    """A write returns when its connection dies, too: the sink may hear of that a moment before the watch does, and have written on."""
    now, stuck = trio.current_time(), 0.0
    if ending.write_began is not None:
        stuck = now - ending.write_began
    if now - ending.slowest_at < JUST_NOW_SECONDS:
        stuck = max(stuck, ending.slowest_seconds)
    return "caller_too_slow" if stuck >= TOO_SLOW_SHARE * caller_write_seconds else "caller_gone"


async def _watch(caller: Caller) -> None:
    while not isinstance(await caller.receive(), Disconnected):
        pass


async def _read_body(
    caller: Caller, snapshot: IngressSnapshot, door: Door, limits: LimitsConfig, world: World
) -> Intake:
    try:
        due = trio.current_time() + limits.body_seconds_max
        with trio.fail_at(world.wake(Moment.BODY, due)):
            body = await _collect(caller, snapshot, door, limits)
        if body is None:
            return Gone()
        snapshot.fill(body, await _read(body, snapshot, door, limits))
    except trio.TooSlowError:
        world.look(Moment.BODY, 0.0)
        return Refused(refusal(408, "body_timeout"), close=True)
    except (BudgetExceeded, RequestRefused) as error:
        return refused(error)
    except SnapshotClosed:  # the drain ended the exchange while its body was still coming
        return Refused(refusal(503, "shutdown"), close=True)
    return Ready()


def refused(error: BudgetExceeded | RequestRefused) -> Refused:
    """The answer to a request that can't be taken. A body that was not read to its end takes the connection with it."""
    if isinstance(error, BudgetExceeded):
        status = 413 if error.scope == "exchange" else 503
        return Refused(refusal(status, error.public_code), close=True)
    status = error.http_status
    told = refusal(status, error.public_code, param=error.param)
    return Refused(told, close=status == 413)


async def _collect(
    caller: Caller, snapshot: IngressSnapshot, door: Door, limits: LimitsConfig
) -> Body | None:
    """The whole body, or None when the caller left first."""
    size = 0
    collected = _Collected(limits.body_bytes_max)
    snapshot.reserve(door.content_length or 0)
    while True:
        part = await caller.receive()
        if isinstance(part, Disconnected):
            return None
        size += len(part.data)
        if size > limits.body_bytes_max:
            raise RequestRefused(413, "body_too_large")
        snapshot.reserve(max(size, door.content_length or 0))
        collected.add(part.data)
        if part.last:
            return collected.whole()


class _Collected:
    """The parts of a body so far. What is more than a small body goes into memory of its own, which is used as far as it was written.

    Neither a list of parts nor a bytearray will do: at the end, or now and then, all that is there would be copied in one call.
    """

    def __init__(self, size_max: int) -> None:
        self._size_max = size_max
        self._parts: list[bytes] = []
        self._size = 0
        self._large: mmap | None = None

    def add(self, part: bytes) -> None:
        """Keeps one more part."""
        if self._size > INLINE_BYTES_MAX:
            if self._large is None:
                self._large = mmap(-1, self._size_max, flags=MAP_PRIVATE | MAP_ANONYMOUS)
                self._large.write(b"".join(self._parts))
                self._parts.clear()
            self._large.write(part)
        else:
            self._parts.append(part)
        self._size += len(part)

    def whole(self) -> Body:
        """All of them, as one."""
        if self._large is not None:
            self._large.resize(self._size)
            return self._large
        return self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)


async def _read(
    body: Body, snapshot: IngressSnapshot, door: Door, limits: LimitsConfig
) -> CallerRequest:
    """The request that the body is; a large one is read step by step, with the loop free in between."""
    steps = _steps(body, door, limits.json_depth_max)
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            request: CallerRequest = stop.value
            return request
        snapshot.reserve(len(body))  # the exchange may have ended
        await trio.lowlevel.checkpoint()


def _steps(body: Body, door: Door, depth_max: int) -> Steps[CallerRequest]:
    if door.relayed:
        return (
            yield from read_relayed_request(
                body,
                door.content_type,
                endpoint=door.endpoint,
                depth_max=depth_max,
                query=door.query,
            )
        )
    rules = ENDPOINTS[door.endpoint].rules
    if isinstance(body, bytes) and len(body) <= INLINE_BYTES_MAX:
        return read_request(body, rules, depth_max=depth_max)
    return (yield from read_large_request(body, rules, depth_max=depth_max))
