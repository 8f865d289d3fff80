"""Ingress: reads the caller's body into the snapshot under its limits, then watches for the caller leaving.

It is the one reader of `receive()`, all the time: under this server a write to a caller that has left does not fail, so the watch is what tells.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Final

import trio

from actors.context import Door, Ending
from actors.ports import Caller, Disconnected
from actors.probe import acting
from gate.config import LimitsConfig
from gate.envelope import refusal
from gate.errors import BudgetExceeded, RequestRefused, SnapshotClosed
from gate.events import Gone, Intake, Ready, Refused
from gate.ingress import IngressSnapshot, read_chat_request

__all__ = ["run"]

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
    ending: Ending,
    caller_write_seconds: float,
    leave: Callable[[], None],
) -> None:
    """Sends one message to `intake`; calls `leave` when the caller has left before the end."""
    with intake, acting("ingress"):
        message = await _read_body(caller, snapshot, door, limits)
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
    caller: Caller, snapshot: IngressSnapshot, door: Door, limits: LimitsConfig
) -> Intake:
    try:
        with trio.fail_after(limits.body_seconds_max):
            body = await _collect(caller, snapshot, door, limits)
        if body is None:
            return Gone()
        request = read_chat_request(body, depth_max=limits.json_depth_max)
        snapshot.fill(body, request)
    except trio.TooSlowError:
        return Refused(refusal(408, "body_timeout"), close=True)
    except BudgetExceeded as error:
        status = 413 if error.scope == "exchange" else 503
        return Refused(refusal(status, error.public_code), close=True)
    except SnapshotClosed:  # the drain ended the exchange while its body was still coming
        return Refused(refusal(503, "shutdown"), close=True)
    except RequestRefused as error:
        too_large = error.http_status == 413
        return Refused(
            refusal(error.http_status, error.public_code, param=error.param), close=too_large
        )
    return Ready()


async def _collect(
    caller: Caller, snapshot: IngressSnapshot, door: Door, limits: LimitsConfig
) -> bytes | None:
    """The whole body, or None when the caller left first."""
    size = 0
    parts: list[bytes] = []
    snapshot.reserve(door.content_length or 0)
    while True:
        part = await caller.receive()
        if isinstance(part, Disconnected):
            return None
        size += len(part.data)
        if size > limits.body_bytes_max:
            raise RequestRefused(413, "body_too_large")
        snapshot.reserve(max(size, door.content_length or 0))
        parts.append(part.data)
        if part.last:
            return parts[0] if len(parts) == 1 else b"".join(parts)
