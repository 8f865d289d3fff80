"""The evaluator: judges evidence, sends what has passed to the sink, and reports how attempts ended.

Every release of attempt n is sent before n's violation or end is reported: order in the channels is order on the wire. After a violation it goes on
receiving, discards what comes of that attempt, and still reports its end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

import trio

from actors.attempt import Evidence
from actors.awaiting import Answers, Desk
from actors.context import Exchange
from actors.endpoint import start_of
from actors.probe import acting
from actors.world import Moment
from gate.budget import Reservation
from gate.errors import BudgetExceeded
from gate.events import (
    Batch,
    Complete,
    End,
    Ended,
    Facts,
    Frame,
    Head,
    HowEnded,
    Release,
    Tunnel,
    Violation,
    Wire,
)
from gate.explain import held_by
from gate.failure import Failure, FailureKind
from gate.judging import Judge, Judged
from gate.observe import What
from gate.openai import FINISH_REASONS

__all__ = ["PIECE_BYTES_MAX", "WIRE_BYTES", "Reports", "run"]

PIECE_BYTES_MAX: Final = 20_480
"""A release goes over in pieces of at most so many bytes, but for a frame that is larger by itself."""
WIRE_BYTES: Final = 65_536
"""Reserved per exchange: the piece in the channel, and the two that the sink may have joined."""

Reports = Violation | Ended


async def run(
    evidence: trio.MemoryReceiveChannel[Evidence],
    wire: trio.MemorySendChannel[Wire],
    reports: trio.MemorySendChannel[Reports],
    exchange: Exchange,
    judge: Judge,
) -> None:
    """Until `evidence` is closed, and, after a complete answer, until filters that only observe have answered."""
    with evidence, wire, reports, acting("evaluator"), exchange.budget.reserve(0) as held:
        exchange.evidence = held
        awaiting = exchange.pool.awaiting
        answers = Answers()
        desks = [Desk(name, filters, exchange, answers) for name, filters in awaiting.items()]
        evaluator = _Evaluator(wire, reports, exchange, judge, held, desks=desks)
        with evaluator.told():
            if not desks:
                await _evaluate(evidence, evaluator, judge, None)
                return
            async with trio.open_nursery() as nursery:
                for desk in desks:
                    nursery.start_soon(desk.run)
                await _evaluate(evidence, evaluator, judge, answers)
                await evaluator.linger(answers)
                nursery.cancel_scope.cancel()


async def _evaluate(
    evidence: trio.MemoryReceiveChannel[Evidence],
    evaluator: _Evaluator,
    judge: Judge,
    answers: Answers | None,
) -> None:
    while True:
        item = await _next(evidence, evaluator.wake(), answers)
        match item:
            case Batch():
                await evaluator.batch(item)
            case End():
                await evaluator.end(item, answers)
            case Head():
                evaluator.head(item)
            case Waited():
                await evaluator.tick()
            case _:
                return


class Waited:
    """Nothing arrived until the hold policy wanted to be asked again, or a filter that awaits has answered."""


async def _next(
    evidence: trio.MemoryReceiveChannel[Evidence], wake: float | None, answers: Answers | None
) -> Evidence | Waited | None:
    """The next item; None when there are no more. A scope is entered only where time or an answer may matter."""
    try:
        if answers is not None:
            with answers.waking(wake):
                return await evidence.receive()
        elif wake is None:
            return await evidence.receive()
        else:
            with trio.move_on_at(wake):
                return await evidence.receive()
        return Waited()
    except trio.EndOfChannel:
        return None


class _Evaluator:
    """One exchange's evaluation."""

    def __init__(
        self,
        wire: trio.MemorySendChannel[Wire],
        reports: trio.MemorySendChannel[Reports],
        exchange: Exchange,
        judge: Judge,
        held: Reservation,
        *,
        desks: Sequence[Desk],
    ) -> None:
        self.condemned = False
        self._desks = desks
        self._condemned_for = ""
        self._wire = wire
        self._reports = reports
        self._exchange = exchange
        self._judge = judge
        self._held = held
        self._measures = exchange.measures
        # A sink that writes a JSON object keeps what it gets until the terminal, under the exchange's reservation.
        self._streams = exchange.snapshot.request.stream
        self._started = False
        self._tunnel: Tunnel | None = None  # of the attempt that began the answer
        self._seam_noted = False
        self._ended = False  # nothing more comes of the attempt, and what was good of it went
        self._n = 0  # the attempt whose frames are held
        self._whole = False  # the last attempt was complete, and nobody objected
        self._seen_at = 0.0  # when the newest batch came that was judged

    def head(self, head: Head) -> None:
        """An attempt has begun to answer."""
        self.condemned = self._ended = False
        self._condemned_for = ""
        self._seam_noted = False
        self._n = head.n
        if head.continues:
            self._judge.go_on(over_chat=head.over_chat)
        else:
            self._tunnel = head.tunnel
            self._judge.begin(tunnel=head.tunnel is not None, over_chat=head.over_chat)
        self._measures.begin(self._judge.tail.newest)

    async def batch(self, batch: Batch) -> None:
        """What one read brought."""
        self._seen_at = batch.received_at
        if self.condemned:
            return
        self._n = batch.n
        # A read's worth is in flight anyway; only what is more than a piece is reserved before it is judged.
        arrived = sum([frame.size for frame in batch.frames])
        failure = self._account(arrived) if arrived > PIECE_BYTES_MAX else None
        released: list[Frame] = []
        if failure is None:
            released, failure = await self._judged(batch)
        self._measure(batch.frames, batch.received_at)
        if failure is None and self._judge.ledger_bytes > self._held.size:
            failure = self._account()
        self._tell(batch.n)
        if self._desks:
            self._ask()
        if released:
            await self._release(batch.n, released)
        if failure is not None:
            await self._condemn(batch.n, failure)
        elif self._judge.ledger_bytes != self._held.size:
            self._account()

    async def _judged(self, batch: Batch) -> Judged:
        """What is released last, and the failure; what goes before it is sent on the way, so that a call of many frames does not stop other exchanges."""
        steps = self._judge.steps(batch.frames, batch.received_at)
        released, failure = next(steps)
        while (step := next(steps, None)) is not None:
            if released:
                self._measure((), batch.received_at)
                await self._release(batch.n, released)
            await trio.lowlevel.checkpoint()
            released, failure = step
        return released, failure

    @contextmanager
    def told(self) -> Iterator[None]:
        """At the block's end, however it is left, what the judgement has found is told: a filter's bug is one though nobody waits for its verdict any more."""
        try:
            yield
        finally:
            if self._n and not self._ended:
                self._judge.fail(Failure(FailureKind.ABORTED))
            self._tell(self._n)

    def wake(self) -> float | None:
        """When the hold has to be looked at again; None: at nothing but what comes."""
        due = self._judge.wake()
        return None if due is None else self._exchange.world.wake(Moment.HOLD, due)

    async def tick(self) -> None:
        """Time has passed, or a filter has answered: what was held for it may go."""
        if self.condemned or self._ended:
            return
        failure = self._judge.answered() if self._desks else None
        self._tell(self._n)
        if failure is not None:
            await self._condemn(self._n, failure)
            return
        frames = self._judge.tick(self._exchange.world.look(Moment.HOLD, self._seen_at))
        if frames:
            self._explain()
            await self._release(self._n, frames)
        self._account()

    async def linger(self, answers: Answers) -> None:
        """Filters that only observe a complete answer may say so late: each within its deadline, and nobody waits for them but this. What a failed attempt came to is nobody's question."""
        if not self._whole:
            return
        while any(each.closing and not each.settled for each in self._judge.awaited):
            await answers.wait()
        self._judge.answered()
        self._tell(self._n)

    def _ask(self) -> None:
        """Filters that await are asked for what is new; those of an attempt before, no more."""
        for desk in self._desks:
            desk.follow(self._judge, self._n)

    async def end(self, end: End, answers: Answers | None) -> None:
        """The attempt's end: everything held goes, or nothing."""
        how, judge = end.how, self._judge
        self._ended = True
        if isinstance(how, Failure):
            judge.fail(how)
            self._dismiss()
            self._explain()
        elif not self.condemned:
            released, failure = judge.finish(how)
            self._measure((), trio.current_time())
            if failure is None and answers is not None:
                released, failure = await self._settled(answers, released)
            self._tell(end.n)
            if failure is not None:
                await self._condemn(end.n, failure)
            else:
                await self._start(end.n)
                await self._release(end.n, released)
        code = self._condemned_for or (how.code if isinstance(how, Failure) else "")
        self._measures.end(judge.tail.newest, code=code, reported=judge.reported_tokens)
        facts = judge.facts
        self._whole = facts is not None
        if facts is not None:
            self._note_finishes(end.n, how, facts)
            # What the sink keeps it has until its last write.
            self._held.transfer(min(judge.tail.kept_bytes, self._held.size), self._exchange.wire)
            judge.drop()
        elif self._exchange.snapshot.request.stored and judge.identity is not None:
            # The provider may keep an answer that nobody will ask for.
            self._exchange.note(What.ORPHANED, attempt=end.n)
        self._account()
        await self._reports.send(
            Ended(end.n, how, end.target, judge.tail.released, facts, judge.resume)
        )

    async def _settled(self, answers: Answers, released: list[Frame]) -> Judged:
        """What a complete attempt comes to when every filter has answered that a release waits for."""
        self._ask()
        if not self._judge.pending:
            return released, None
        while self._judge.pending:
            await answers.wait()
        return self._judge.settle()

    def _dismiss(self) -> None:
        """Nobody is asked of this attempt any more."""
        for desk in self._desks:
            desk.follow(None, 0)

    def _note_finishes(self, n: int, how: HowEnded, facts: Facts) -> None:
        """What an operator may want to know of an odd ending that was taken for a good one."""
        if isinstance(how, Complete) and how.implied:
            self._exchange.note(What.FINISH_MISSING, attempt=n)
        if any(fact.reason not in FINISH_REASONS for fact in facts.finishes):
            self._exchange.note(What.FINISH_UNKNOWN, attempt=n)

    async def _condemn(self, n: int, failure: Failure) -> None:
        self.condemned, self._condemned_for = True, failure.code
        self._judge.fail(failure)
        self._dismiss()
        self._tell(n)
        self._account()
        by = self._judge.judged_by
        self._exchange.note(What.VIOLATION, attempt=n, code=failure.code, filter=by)
        await self._reports.send(Violation(n, failure, self._judge.notes))

    def _measure(self, frames: Sequence[Frame], at: float) -> None:
        """Frames that have been judged; they arrived at `at`."""
        judge = self._judge
        self._measures.arrive(frames, at, newest=judge.tail.newest, waiting=judge.waiting)

    def _tell(self, n: int) -> None:
        """What the judgement has found beside its result: how a continuation met what was there, once, and remarks."""
        for remark in self._judge.remarks:
            self._exchange.note(What.REMARK, attempt=n, code=remark.code, filter=remark.filter)
            if remark.error is not None:
                self._exchange.crashed(remark.error)
        self._judge.remarks.clear()
        kind = self._judge.seam_kind
        if kind is not None and not self._seam_noted:
            self._seam_noted = True
            self._exchange.note(What.SEAM, attempt=n, code=kind.value)
        self._explain()

    def _explain(self) -> None:
        """What is held by now, for a caller that asked to be told."""
        exchange = self._exchange
        if exchange.explanation is not None:
            held = held_by(self._judge, exchange.pool.route.hold, streams=self._streams)
            released = self._judge.tail.released
            exchange.explanation.hold(held, released=released, now=exchange.elapsed)

    def _account(self, arrived: int = 0) -> Failure | None:
        """Makes the reservation what is kept, and `arrived` bytes more; where there is no room for that, what only a continuation would need goes first."""
        failure = self._grow(self._judge.ledger_bytes + arrived)
        if failure is not None and self._judge.forget():
            failure = self._grow(self._judge.ledger_bytes + arrived)
        return failure

    def _grow(self, size: int) -> Failure | None:
        try:
            self._held.resize(size)
        except BudgetExceeded:
            return Failure(FailureKind.BUDGET)
        return None

    async def _start(self, n: int) -> None:
        if self._started:
            return
        self._started = True
        exchange, identity = self._exchange, self._judge.identity
        told = exchange.told(head=True)
        await self._send(start_of(exchange, n, identity, self._tunnel, told=told))

    async def _release(self, n: int, frames: list[Frame]) -> None:
        if frames:
            self._measures.release(self._judge.tail.released, trio.current_time())
        await self._start(n)
        piece: list[Frame] = []
        size = 0
        for frame in frames:
            if piece and size + len(frame.data) > PIECE_BYTES_MAX:
                await self._send_piece(n, piece, size)
                piece, size = [], 0
            piece.append(frame)
            size += len(frame.data)
        if piece:
            await self._send_piece(n, piece, size)

    async def _send_piece(self, n: int, piece: list[Frame], size: int) -> None:
        """One piece, accounted to the wire where it is larger than what is reserved there, or kept by the sink."""
        large = size > PIECE_BYTES_MAX
        passes = self._streams and not piece[-1].closing
        release = Release(n, piece, self._exchange.told())
        if not large and passes:
            await self._send(release)
            return
        wire = self._exchange.wire
        moved = min(size, self._held.size)
        self._held.transfer(moved, wire)
        await self._send(release)
        if passes:
            # Two empty releases: the channel takes the second when the sink has come back from writing the large one.
            await self._send(Release(n, []))
            await self._send(Release(n, []))
            wire.resize(wire.size - moved)

    async def _send(self, item: Wire) -> None:
        try:
            self._wire.send_nowait(item)
        except trio.WouldBlock:
            await self._wire.send(item)
