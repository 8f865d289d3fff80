"""Filters that await: one desk for each, which asks it for what is new, one question at a time, through all attempts of an exchange.

A desk never delays another, nor the evaluator: that goes on judging, and learns by `Answers` that a verdict has changed. What an attempt was asked for dies with it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import trio

from actors.context import Exchange
from actors.ports import AwaitingFilter, AwaitingFilters
from actors.probe import acting
from actors.world import Moment
from gate.errors import FilterUnavailable
from gate.filters.awaited import Awaited, Question
from gate.filters.contract import Filter, Passed, Primed, Verdict
from gate.filters.policed import DEADLINE, FAILED
from gate.judging import Judge

__all__ = ["Answers", "Desk", "Threaded"]

THREADS_MAX: Final = 4  # of filters that compute for long, over all exchanges of the process


class Answers:
    """Wakes the one task that waits for an answer; one that comes while nobody waits is kept until somebody does."""

    def __init__(self) -> None:
        self._fresh = False
        self._waiting: trio.CancelScope | None = None

    def tell(self) -> None:
        """A filter has answered, or failed."""
        self._fresh = True
        if self._waiting is not None:
            self._waiting.cancel()

    @contextmanager
    def waking(self, deadline: float | None) -> Iterator[None]:
        """A block that is left at an answer, or at `deadline` on trio's clock."""
        with trio.CancelScope(deadline=math.inf if deadline is None else deadline) as scope:
            self._waiting = scope
            if self._fresh:
                scope.cancel()
            try:
                yield
            finally:
                self._waiting = None
        # Where something else came in the same moment, the answer is still to be looked at.
        if scope.cancelled_caught:
            self._fresh = False

    async def wait(self) -> None:
        """Until there is an answer."""
        with self.waking(None):
            await trio.sleep_forever()


class Desk:
    """Where one filter is asked."""

    def __init__(
        self, name: str, filters: AwaitingFilters, exchange: Exchange, answers: Answers
    ) -> None:
        self.name = name
        self._filters = filters
        self._exchange = exchange.refs.exchange
        self._crashed = exchange.crashed
        self._world = exchange.world
        self._answers = answers
        self._awaited: Awaited | None = None
        self._filter: AwaitingFilter | None = None
        self._work = trio.Event()
        self._asking: trio.CancelScope | None = None

    def follow(self, judge: Judge | None, attempt: int) -> None:
        """Asks for what this judge wants to know now; None: for nothing more. What was asked for another attempt is given up."""
        found = judge.awaited if judge is not None else []
        awaited = next((each for each in found if each.name == self.name), None)
        if awaited is not self._awaited:
            self._awaited, self._filter = awaited, None
            if awaited is not None:
                self._filter = self._filters.begin(self._exchange, attempt, awaited)
            if self._asking is not None:
                self._asking.cancel()
        if awaited is not None and awaited.asks:
            self._work.set()

    async def run(self) -> None:
        """For ever; its owner cancels it."""
        with acting("filter"):
            while True:
                await self._work.wait()
                self._work = trio.Event()
                with trio.CancelScope() as self._asking:
                    await self._ask_all()
                self._asking = None

    async def _ask_all(self) -> None:
        awaited, filter_ = self._awaited, self._filter
        if awaited is None or filter_ is None:
            return
        while awaited.asks:
            await self._gather(awaited)
            if awaited.asks:  # it may have failed meanwhile
                await self._ask(awaited, filter_, awaited.take())
            self._answers.tell()

    async def _gather(self, awaited: Awaited) -> None:
        """More may come that can be asked for at once; at the end nothing more does."""
        with trio.move_on_after(awaited.gather_seconds):
            while not awaited.closing:
                await self._work.wait()
                self._work = trio.Event()

    async def _ask(self, awaited: Awaited, filter_: AwaitingFilter, question: Question) -> None:
        due = trio.current_time() + awaited.deadline_seconds
        with trio.move_on_at(self._world.wake(Moment.FILTER, due)) as clock:
            try:
                verdict = await filter_.judge(question)
            except FilterUnavailable as error:
                awaited.fail(error.public_code)
            except Exception as error:  # noqa: BLE001 - a bug of the filter is its failure, and has a policy
                awaited.fail(FAILED)
                # At once: of an exchange that is over nobody asks for a verdict.
                self._crashed(error)
            else:
                awaited.answer(question, verdict)
        if clock.cancelled_caught:
            self._world.look(Moment.FILTER, 0.0)
            awaited.fail(DEADLINE)


class Threaded:
    """Filters that compute for too long to do it on the loop: what each is asked is judged in a worker thread, of which all share a few."""

    def __init__(self) -> None:
        self._threads = trio.CapacityLimiter(THREADS_MAX)

    def begin(self, exchange: str, attempt: int, awaited: Awaited) -> AwaitingFilter:
        assert awaited.heavy is not None, "somebody has to compute"
        return _InThread(awaited.heavy(), self._threads, awaited.before)


class _InThread:
    """One attempt's. Cancelled, it leaves its thread behind, which then judges for nobody; the thread keeps its place until it is done."""

    def __init__(self, inner: Filter, threads: trio.CapacityLimiter, before: str) -> None:
        self._inner = inner
        self._threads = threads
        self._before = before

    async def judge(self, question: Question) -> Verdict:
        return await trio.to_thread.run_sync(
            self._judge, question, abandon_on_cancel=True, limiter=self._threads
        )

    def _judge(self, question: Question) -> Verdict:
        inner, before = self._inner, self._before
        if before and isinstance(inner, Primed):
            inner.prime(before)
        self._before = ""
        verdict: Verdict = Passed(question.end)
        if question.frames:
            verdict = inner.observe(question.frames, question.start)
        if question.facts is not None and isinstance(verdict, Passed):
            verdict = inner.finish(question.end, question.facts)
        return verdict
