"""Which targets serve a request, and, where some of them only have chat completions, the caller's Responses request as a chat request for those.

That is made once per exchange, before its first attempt, in bounded steps with the loop free in between. It is a snapshot of its own, under the exchange's budget like the caller's.
"""

from __future__ import annotations

from collections.abc import Sequence
from mmap import MAP_ANONYMOUS, MAP_PRIVATE, mmap
from typing import Final

import trio

from actors.context import Door, Pool, Target
from gate.errors import BudgetExceeded, RequestRefused
from gate.ingress import CallerRequest, IngressSnapshot
from gate.ingress_responses import RESPONSES_PATH
from gate.over_chat import translate
from gate.over_chat_pieces import Output
from gate.rebuild import slices
from gate.splice import Body
from gate.steps import Steps

__all__ = ["targets_for"]

INLINE_BYTES_MAX: Final = 1_048_576  # joined in 0.1 ms


async def targets_for(
    door: Door, pool: Pool, snapshot: IngressSnapshot, chat: IngressSnapshot
) -> Sequence[Target]:
    """The pool's targets that have what the request needs. Where one of them is to be asked at chat completions, `chat` is filled.

    Where that can't be done, they are those that have the caller's endpoint; where there are none of these, it raises `RequestRefused`, or `BudgetExceeded`.
    """
    request = snapshot.request
    able = [target for target in pool.targets if request.needs <= target.capabilities]
    if not pool.route.responses_over_chat or door.endpoint != RESPONSES_PATH or door.relayed:
        return able
    needs = request.needs - {"responses"}
    wider = [target for target in pool.targets if needs <= target.capabilities]
    if len(wider) == len(able):
        return able
    try:
        await _translate(snapshot, chat)
    except (RequestRefused, BudgetExceeded):
        if able:
            return able
        raise
    return wider


async def _translate(snapshot: IngressSnapshot, chat: IngressSnapshot) -> None:
    output = Output(snapshot.body)
    request = await _made(translate(snapshot.body, snapshot.request, output), output, chat)
    chat.reserve(output.kept + output.size)
    chat.fill(await _written(output, snapshot.body), request)


async def _made(
    steps: Steps[CallerRequest], output: Output, chat: IngressSnapshot
) -> CallerRequest:
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            request: CallerRequest = stop.value
            return request
        chat.reserve(output.kept)
        await trio.lowlevel.checkpoint()


async def _written(output: Output, body: Body) -> Body:
    """The whole, as one."""
    if output.size <= INLINE_BYTES_MAX:
        pieces = output.taken()
        return b"".join(
            [each if isinstance(each, bytes) else body[slice(*each)] for each in pieces]
        )
    whole = mmap(-1, output.size, flags=MAP_PRIVATE | MAP_ANONYMOUS)
    view = memoryview(body)
    for each in output.taken():
        for piece in slices(memoryview(each) if isinstance(each, bytes) else view[slice(*each)]):
            whole.write(piece)
            await trio.lowlevel.checkpoint()
    return whole
