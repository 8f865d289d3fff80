"""The attempt runner: opens a provider attempt under its clocks, and turns its bytes into batches of frames.

The clocks measure the provider only: they run while the runner waits for it, and stand still while the runner waits for its channel. One
deadline scope per attempt is armed anew; nothing is entered per chunk.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Final, TypeGuard

import msgspec
import trio

from actors.context import Exchange, Target
from actors.endpoint import header_of, path_of, path_taken, reader_of, tunnel_of
from actors.ports import UpstreamRequest, UpstreamResponse
from actors.probe import acting
from actors.world import Moment
from gate.binding import Edit, asking_usage, bind_segments
from gate.budget import Reservation
from gate.clocks import AttemptClocks
from gate.errors import BudgetExceeded, UpstreamFailed, UpstreamFault
from gate.events import Batch, Complete, End, Head, HowEnded
from gate.failure import Failure, FailureKind, classify_status, retry_after_seconds
from gate.observe import What
from gate.over_chat import callers_param
from gate.reader import AnswerReader
from gate.rebuild import Lease
from gate.refs import RequestRef
from gate.tunnel import TunnelStreamReader, is_watched

__all__ = ["AGAIN", "AttemptOrder", "run"]

ERROR_BODY_BYTES_MAX: Final = 65_536  # of an error answer; more is not read
ERROR_BODY_SECONDS: Final = 2.0  # for all of it
OPTIONS: Final = "stream_options"  # the member that has what is asked for behind the caller's back
AGAIN: Final = ".1"  # behind the key of a plan whose request is sent once more in another form
_FAULTS: Final = {
    UpstreamFault.CONNECT: FailureKind.CONNECT,
    UpstreamFault.RESET: FailureKind.RESET,
    UpstreamFault.CUT: FailureKind.CUT,
    UpstreamFault.CLOSED: FailureKind.CUT,
    UpstreamFault.PROTOCOL: FailureKind.MALFORMED,
    UpstreamFault.ENCODING: FailureKind.UNUSABLE,
}

Evidence = Head | Batch | End


@dataclass(frozen=True, slots=True)
class AttemptOrder:
    """Make attempt `n` at the first of `targets` (indexes into the exchange's targets) that has room, with the rebuilt request that `bodies` names for the endpoint which that one is asked at.

    `scope` is entered by the runner and cancelled only by the coordinator and the exchange. `last`: no other attempt could follow. `continues`: it goes on with the
    answer of the one before. `key`: the plan's idempotency key.
    """

    n: int
    bodies: Mapping[str, RequestRef]
    targets: Sequence[int]
    scope: trio.CancelScope
    last: bool
    continues: bool = False
    key: str = ""


async def run(
    orders: trio.MemoryReceiveChannel[AttemptOrder],
    evidence: trio.MemorySendChannel[Evidence],
    exchange: Exchange,
    take: Callable[[RequestRef], Lease],
) -> None:
    """Carries out order after order, each with the body that `take` gives for it; the end of each is sent outside its scope, so that it comes whatever happened."""
    with orders, evidence, acting("runner"):
        async for order in orders:
            runner = _Runner(order, evidence, exchange)
            how: HowEnded = Failure(FailureKind.ABORTED)
            with order.scope, ExitStack() as held:
                leases = {at: held.enter_context(take(ref)) for at, ref in order.bodies.items()}
                how = await runner.attempt(leases)
            await evidence.send(End(order.n, how, runner.target))


class _Runner:
    """One attempt."""

    def __init__(
        self, order: AttemptOrder, evidence: trio.MemorySendChannel[Evidence], exchange: Exchange
    ) -> None:
        self.target = -1
        self._order = order
        self._key = order.key
        self._evidence = evidence
        self._exchange = exchange
        self._scope = trio.CancelScope()
        self._reader: AnswerReader | None = None
        self._clocks = AttemptClocks(
            exchange.pool.route.clocks,
            stream=exchange.snapshot.request.stream,
            last=order.last,
            total=exchange.deadline,
        )

    async def attempt(self, leases: Mapping[str, Lease]) -> HowEnded:
        """Waits for a place at one of the targets, and makes the attempt there."""
        exchange = self._exchange
        by_name = {
            exchange.targets[index].provider_name: index for index in reversed(self._order.targets)
        }
        names = list(
            dict.fromkeys(exchange.targets[index].provider_name for index in self._order.targets)
        )
        async with exchange.dispatch.slot(names, exchange.place) as name:
            if name is None:
                return Failure(FailureKind.QUEUE)
            self.target = by_name[name]
            target = exchange.targets[self.target]
            exchange.attempts += 1
            exchange.asked = name
            exchange.path = path_of(exchange, target, continues=self._order.continues)
            exchange.note(What.ATTEMPT_STARTED, attempt=self._order.n, provider=name)
            return await self._watched(target, leases[exchange.asked_at(target)])

    async def _watched(self, target: Target, lease: Lease) -> HowEnded:
        """The attempt; its provider's health hears of the end, whatever it is."""
        how: HowEnded = Failure(FailureKind.ABORTED)
        began = trio.current_time()
        try:
            how = await self._under_clocks(target, lease)
        finally:
            target.health.end(how, trio.current_time(), began=began)
        return how

    async def _under_clocks(self, target: Target, lease: Lease) -> HowEnded:
        """The attempt, ended by whichever clock runs out first."""
        how: HowEnded | None = None
        self._arm(self._clocks.connect(self._exchange.world.came()))
        with self._scope, self._exchange.budget.reserve(0) as held:
            how = await self._open(target, lease, held)
        how = how if how is not None else self._ran_out()
        if isinstance(how, Complete) and isinstance(self._reader, TunnelStreamReader):
            left = self._reader.left()
            if left:
                await self._send(Batch(self._order.n, left, self._exchange.world.came()))
        return how

    async def _open(self, target: Target, lease: Lease, held: Reservation) -> HowEnded:
        """The answer to the request. What may have been refused for what we put into it is asked for once more without that, in the same attempt: the caller's budget pays for no fault of ours."""
        asking = self._asking(target, lease)
        how = await self._ask(target, lease, held, asking)
        if not asking or not _may_blame(how, OPTIONS):
            return how
        if self._reader is None:
            self._key += AGAIN
            return await self._ask(target, lease, held, ())
        return msgspec.structs.replace(how, provider_param=None)

    async def _ask(
        self, target: Target, lease: Lease, held: Reservation, asking: Sequence[Edit]
    ) -> HowEnded:
        try:
            async with target.provider.attempt(
                self._request(target, lease, asking), on_connected=self._connected
            ) as response:
                answered = 200 <= response.status < 300
                if answered or not asking:
                    lease.release()  # it was written, and what follows is read
                self._arm(self._clocks.head(self._exchange.world.came()))
                if answered:
                    how = await self._answer(target, response, held)
                else:
                    how = await self._refused(response)
                return self._callers(how) if self._exchange.over_chat(target) else how
        except UpstreamFailed as error:
            return self._clocks.fault(Failure(_FAULTS[error.fault]))
        except BudgetExceeded:
            return self._clocks.fault(Failure(FailureKind.BUDGET))

    def _callers(self, how: HowEnded) -> HowEnded:
        """What a provider blames in a body that we made, in the caller's terms."""
        if not isinstance(how, Failure) or how.provider_param is None:
            return how
        param = None if _may_blame(how, OPTIONS) else callers_param(how.provider_param)
        return msgspec.structs.replace(how, provider_param=param)

    def _request(self, target: Target, lease: Lease, asking: Sequence[Edit]) -> UpstreamRequest:
        request, door = self._exchange.sent_to(target), self._exchange.door
        endpoint = self._exchange.asked_at(target)
        body, size = bind_segments(lease.segments, [*self._naming(target, lease), *asking])
        accept = b"text/event-stream" if request.stream else b"application/json"
        headers = [
            (b"accept", accept if is_watched(endpoint) else b"*/*"),
            (b"x-request-id", door.exchange.encode()),
            *door.forwarded,
        ]
        if target.idempotency_header and door.method == "POST":
            headers.append((b"idempotency-key", self._key.encode()))
        if size:
            headers.insert(0, (b"content-type", door.content_type))
        path = endpoint.removeprefix("/v1")
        path = f"{path}?{door.query}" if door.query else path
        return UpstreamRequest(path, headers, body, size, door.method)

    def _naming(self, target: Target, lease: Lease) -> Sequence[Edit]:
        """The name that the model has at this target."""
        at = lease.model_at
        if at is None:
            return ()
        return ((at.value_start, at.value_end, self._exchange.sent_to(target).bound(target.model)),)

    def _asking(self, target: Target, lease: Lease) -> Sequence[Edit]:
        """That this target is to report usage, where the caller has not asked for it."""
        snapshot, request = self._exchange.snapshot, self._exchange.sent_to(target)
        if not target.ask_usage or not request.usage_unasked:
            return ()
        own = request.options_at
        options = b"" if own is None else bytes(snapshot.body[own.value_start : own.value_end])
        return asking_usage(options, lease.options_at, lease.model_at)

    def _connected(self) -> None:
        self._arm(self._clocks.connected(self._exchange.world.came()))

    def _arm(self, deadline: float) -> None:
        self._scope.deadline = self._exchange.world.wake(Moment.CLOCK, deadline)

    def _ran_out(self) -> HowEnded:
        self._exchange.world.look(Moment.CLOCK, 0.0)
        return self._clocks.ran_out()

    async def _refused(self, response: UpstreamResponse) -> HowEnded:
        """An answer that is not a 2xx: its status and code, as far as its body says one."""
        wait = retry_after_seconds(
            header_of(response, b"retry-after"),
            milliseconds=header_of(response, b"retry-after-ms"),
            wall=self._exchange.world.wall(),
        )
        body = b""
        # The status says enough where the body breaks off, or doesn't come.
        with suppress(UpstreamFailed), trio.move_on_after(ERROR_BODY_SECONDS):
            while len(body) < ERROR_BODY_BYTES_MAX:
                data = await response.read()
                if not data:
                    break
                body += data
        return classify_status(response.status, body[:ERROR_BODY_BYTES_MAX], retry_after=wait)

    async def _answer(
        self, target: Target, response: UpstreamResponse, held: Reservation
    ) -> HowEnded:
        exchange, n, continues = self._exchange, self._order.n, self._order.continues
        exchange.path = path_taken(exchange, response)
        reader = self._reader = reader_of(exchange, target, response, continues=continues)
        if reader is None:
            return Failure(FailureKind.UNUSABLE, response.status)
        exchange.note(What.ATTEMPT_ADMITTED, attempt=n, status=response.status)
        tunnel, over_chat = tunnel_of(exchange, response), exchange.over_chat(target)
        await self._send(Head(n, self.target, response.status, continues, tunnel, over_chat))
        try:
            return await self._read(response, reader, held)
        except UpstreamFailed as error:
            if error.fault is not UpstreamFault.CLOSED:
                raise
            return await self._closed(reader, error)

    async def _closed(self, reader: AnswerReader, closed: UpstreamFailed) -> HowEnded:
        """The connection's close is all that ended the body: it is whole where it says so itself. Raises `closed` where it does not."""
        now = self._exchange.world.came()
        if now >= self._scope.deadline:
            return self._ran_out()
        step = reader.eof()
        if isinstance(step.end, Complete) and not reader.ends_itself:
            raise closed
        if step.frames:
            await self._send(Batch(self._order.n, step.frames, now))
        assert step.end is not None, "the end of the body is one"
        return step.end

    async def _read(
        self, response: UpstreamResponse, reader: AnswerReader, held: Reservation
    ) -> HowEnded:
        """Read after read, until the answer's end."""
        n, clocks, came = self._order.n, self._clocks, self._exchange.world.came
        while True:
            data = await response.read()
            now = came()
            if now >= self._scope.deadline:
                return self._ran_out()  # too late: the scope is over, and would lose these bytes
            step = reader.feed(data) if data else reader.eof()
            if reader.pending or held.size:
                held.resize(reader.pending)
            if reader.complete or step.progress:
                self._arm(clocks.progress(now, complete=reader.complete))
            if step.frames:
                await self._send(Batch(n, step.frames, now))
            if step.end is not None:
                return step.end

    async def _send(self, item: Evidence) -> None:
        """To the evaluator; a checkpoint only where it has to wait, with the clocks standing still."""
        try:
            self._evidence.send_nowait(item)
        except trio.WouldBlock:
            self._clocks.pause(trio.current_time())
            self._arm(float("inf"))
            await self._evidence.send(item)
            self._arm(self._clocks.resume(trio.current_time()))


def _may_blame(how: HowEnded, member: str) -> TypeGuard[Failure]:
    """Whether a provider may have refused a request for this member of its body: it says so, or not for which. Many name it in their sentence alone."""
    if not isinstance(how, Failure) or how.kind is not FailureKind.REFUSED:
        return False
    return how.provider_param is None or how.provider_param.startswith(member)
