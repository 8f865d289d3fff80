"""Planted faults: each a patch of the program's source, applied to a copy of it. None of them is in the program.

Most are what a reviewer could overlook: a release that is not in a `finally`, a wait without a loop, an end that is said too early, an exception that goes nowhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["MUTANTS", "Mutant"]


@dataclass(frozen=True, slots=True)
class Mutant:
    """`edits`: file, text that stands there once, text in its place. `near`: scenarios that are tried before all others. `masked`: the guard behind which it can't be seen; empty: it has to be found. `ring`: in which it is looked for."""

    name: str
    edits: tuple[tuple[str, str, str], ...]
    near: tuple[str, ...]
    masked: str = ""
    ring: int = 1


def _mutant(name: str, file: str, old: str, new: str, *near: str, masked: str = "") -> Mutant:
    return Mutant(name, ((file, old, new),), near, masked)


REBUILDER: Final = "actors/rebuilder.py"
DISPATCH: Final = "actors/dispatch.py"
EXCHANGE: Final = "actors/exchange.py"
EVALUATOR: Final = "actors/evaluator.py"
ATTEMPT: Final = "actors/attempt.py"
COORDINATOR: Final = "actors/coordinator.py"
SINK: Final = "actors/sink.py"
INGRESS: Final = "actors/ingress.py"
AWAITING: Final = "actors/awaiting.py"

_ROUND: Final = """            while self._in_flight:
                if self._let_go.is_set():
                    self._let_go = trio.Event()
                await self._let_go.wait()
"""

MUTANTS: Final = (
    # --- the rebuilder
    _mutant("close-does-not-wait", REBUILDER, _ROUND, "            pass\n", "rebuilds-sliced"),
    _mutant(
        "close-not-shielded",
        REBUILDER,
        "with trio.CancelScope(shield=True):\n            while",
        "with trio.CancelScope():\n            while",
        "rebuilds-sliced",
    ),
    _mutant(
        "close-waits-once",
        REBUILDER,
        "            while self._in_flight:\n",
        "            if self._in_flight:\n",
        "rebuilds-sliced",
        masked="closed is set first, so that nobody enters while it waits",
    ),
    _mutant(
        "lost-wake-up",
        REBUILDER,
        "                await self._let_go.wait()\n",
        "                await trio.lowlevel.checkpoint()\n                self._let_go = trio.Event()\n                await self._let_go.wait()\n",
        "rebuilds-met",
    ),
    _mutant(
        "last-out-does-not-tell",
        REBUILDER,
        "            if not self._in_flight:\n                self._let_go.set()\n",
        "            if self._in_flight:\n                self._let_go.set()\n",
        "rebuilds-sliced",
    ),
    _mutant(
        "flight-not-in-finally",
        REBUILDER,
        "        try:\n            yield\n        finally:\n            self._in_flight -= 1\n            if not self._in_flight:\n                self._let_go.set()\n",
        "        yield\n        self._in_flight -= 1\n        if not self._in_flight:\n            self._let_go.set()\n",
        "rebuilds-sliced",
    ),
    _mutant("close-leaves-bodies", REBUILDER, "        self._leases.close()\n", "", "rebuilds"),
    _mutant("close-leaves-patches", REBUILDER, "        self.patches.close()\n", "", "continued"),
    _mutant(
        "admits-while-closing",
        REBUILDER,
        "        self._closed = True\n",
        "        await trio.lowlevel.checkpoint()\n",
        "rebuilds",
    ),
    _mutant(
        "patch-not-given-back",
        REBUILDER,
        "        with self.patches.take(directive) as patch, ExitStack() as held:\n",
        "        patch = self.patches.take(directive)\n        with ExitStack() as held:\n",
        "continued",
    ),
    _mutant(
        "output-not-given-back",
        REBUILDER,
        "held.enter_context(reserve_rebuild(self._budget, splice.output_bytes))",
        "reserve_rebuild(self._budget, splice.output_bytes)",
        "rebuilds-sliced",
    ),
    _mutant(
        "block-does-not-close",
        REBUILDER,
        "    try:\n        yield rebuilder\n    finally:\n        await rebuilder.aclose()\n",
        "    yield rebuilder\n    await rebuilder.aclose()\n",
        "continued",
    ),
    # --- places
    _mutant(
        "waiter-stays-queued",
        DISPATCH,
        "            if waiter.granted is None:\n                self._waiters.remove(waiter)\n            else:",
        "            if waiter.granted is not None:",
        "queued",
    ),
    _mutant(
        "granted-place-is-lost",
        DISPATCH,
        "            else:\n                self.give(waiter.granted)\n            raise\n",
        "            raise\n",
        "queued",
        "crowded",
    ),
    _mutant(
        "only-cancels-leave-the-queue",
        DISPATCH,
        "        except BaseException:\n",
        "        except trio.Cancelled:\n",
        "queued",
    ),
    _mutant(
        "slot-not-in-finally",
        DISPATCH,
        "        try:\n            yield name\n        finally:\n            if name is not None:\n                self.providers.give(name)\n",
        "        yield name\n        if name is not None:\n            self.providers.give(name)\n",
        "healthy",
    ),
    _mutant(
        "place-not-in-finally",
        DISPATCH,
        "        try:\n            yield place\n        finally:\n            if place.held:\n                self.exchanges.give(_EXCHANGE)\n",
        "        yield place\n        if place.held:\n            self.exchanges.give(_EXCHANGE)\n",
        "healthy",
    ),
    _mutant(
        "place-held-late",
        DISPATCH,
        "        place.held = True\n        return None\n",
        "        await trio.lowlevel.checkpoint()\n        place.held = True\n        return None\n",
        "healthy",
    ),
    _mutant(
        "nobody-is-served-next",
        DISPATCH,
        "        for waiter in self._waiters:\n            waiter.granted",
        "        for waiter in ():\n            waiter.granted",
        "queued",
    ),
    _mutant(
        "drain-scope-stays",
        DISPATCH,
        "                self._queued.discard(scope)\n",
        "                pass\n",
        "queued",
        masked="a scope that was left and is cancelled again does nothing; the set only grows",
    ),
    # --- the exchange
    _mutant(
        "snapshot-not-in-finally",
        EXCHANGE,
        "    try:\n        yield snapshot\n    finally:\n        snapshot.close()\n",
        "    yield snapshot\n    snapshot.close()\n",
        "healthy",
    ),
    _mutant(
        "ending-not-discarded",
        EXCHANGE,
        "            gateway.open.discard(ending)\n",
        "            if ending.over:\n                gateway.open.discard(ending)\n",
        "healthy",
    ),
    _mutant(
        "a-second-terminal",
        EXCHANGE,
        "                if not self._terminal_sent:\n",
        "                if not self._terminal_sent or self._ending.reason:\n",
        "healthy",
        masked="the sink closes its channel behind its first terminal, and nobody minds",
    ),
    _mutant(
        "no-terminal-after-a-crash",
        EXCHANGE,
        "                if not self._terminal_sent:\n",
        "                if not self._terminal_sent and self._ending.reason:\n",
        "healthy",
    ),
    _mutant(
        "crash-is-not-told",
        EXCHANGE,
        "                        self.crashed(group)\n                if",
        "                        pass\n                if",
        "healthy",
    ),
    _mutant(
        "crash-of-the-outer-tasks-is-not-told",
        EXCHANGE,
        "            supervisor.crashed(group)\n",
        "",
        "healthy",
    ),
    _mutant(
        "sink-beside-the-actors",
        EXCHANGE,
        "                                            inner.start_soon(actor)\n",
        "                                            outer.start_soon(actor)\n",
        "healthy",
    ),
    _mutant(
        "terminal-of-one-who-died-is-unknown",
        EXCHANGE,
        "                    with suppress(trio.BrokenResourceError):\n",
        "                    if True:\n",
        "healthy",
    ),
    _mutant(
        "terminal-shielded",
        EXCHANGE,
        "                    with suppress(trio.BrokenResourceError):\n",
        "                    with suppress(trio.BrokenResourceError), trio.CancelScope(shield=True):\n",
        "drained",
        "stuck-caller",
        masked="a sink that is cancelled closes its end, which ends the wait as well",
    ),
    _mutant(
        "cut-off-attempt-is-not-told",
        EXCHANGE,
        "                                    admitted.cut_off()\n",
        "                                    pass\n",
        "healthy",
    ),
    _mutant(
        "outer-scope-not-cancelled",
        EXCHANGE,
        "            outer.cancel_scope.cancel()\n",
        "",
        "healthy",
    ),
    _mutant(
        "cancelled-is-swallowed",
        EXCHANGE,
        "        except* Exception as group:  # noqa: BLE001 - the boundary where our own bugs become an outcome\n            supervisor.crashed(group)\n",
        "        except* BaseException as group:  # noqa: BLE001\n            supervisor.crashed(group)\n",
        "healthy",
    ),
    _mutant(
        "ingress-takes-the-sink-along",
        EXCHANGE,
        "outer.start_soon(self._guarded, reading)",
        "outer.start_soon(reading)",
        "healthy",
    ),
    _mutant(
        "watch-takes-the-sink-along",
        EXCHANGE,
        "outer.start_soon(self._guarded, watching)",
        "outer.start_soon(watching)",
        "healthy",
    ),
    _mutant(
        "a-death-beside-the-sink-ends-nothing",
        EXCHANGE,
        "            self.crashed(error)\n            self._ending.stop()\n",
        "            self.crashed(error)\n",
        "healthy",
    ),
    # --- the evaluator
    _mutant(
        "tail-not-given-back",
        EVALUATOR,
        'acting("evaluator"), exchange.budget.reserve(0) as held:',
        'acting("evaluator"):\n        held = exchange.budget.reserve(0)',
        "healthy",
    ),
    _mutant(
        "condemned-attempt-goes-on",
        EVALUATOR,
        "        self.condemned, self._condemned_for = True, failure.code\n",
        "        self._condemned_for = failure.code\n",
        "denied-at-once",
        "judged",
        masked="the judge releases nothing of an attempt that has failed",
    ),
    _mutant(
        "end-before-the-release",
        EVALUATOR,
        "                await self._start(end.n)\n                await self._release(end.n, released)\n",
        "                await self._start(end.n)\n",
        "window",
    ),
    _mutant(
        "a-piece-is-lost",
        EVALUATOR,
        "            self._wire.send_nowait(item)\n        except trio.WouldBlock:\n            await self._wire.send(item)\n",
        "            self._wire.send_nowait(item)\n        except trio.WouldBlock:\n            await trio.lowlevel.checkpoint()\n",
        "slow-caller",
    ),
    _mutant(
        "wire-bytes-stay",
        EVALUATOR,
        "            wire.resize(wire.size - moved)\n",
        "            pass\n",
        "slow-caller",
        masked="the exchange gives the whole reservation back at its end",
    ),
    _mutant(
        "filters-not-cancelled",
        EVALUATOR,
        "            nursery.cancel_scope.cancel()\n",
        "",
        "judged",
    ),
    _mutant(
        "does-not-wait-for-filters",
        EVALUATOR,
        "                released, failure = await self._settled(answers, released)\n",
        "                released, failure = judge.settle()\n",
        "judged",
    ),
    _mutant(
        "filter-fails-open",
        AWAITING,
        "                awaited.fail(error.public_code)\n",
        "                awaited.answer(question, Passed(question.end))\n",
        "judged",
    ),
    _mutant(
        "filters-bug-is-not-told",
        AWAITING,
        "                self._crashed(error)",
        "                pass",
        "judged",
    ),
    _mutant(
        "thread-is-waited-for",
        AWAITING,
        "abandon_on_cancel=True",
        "abandon_on_cancel=False",
        "threads-late",
    ),
    _mutant(
        "filter-deadline-ignored",
        AWAITING,
        "            awaited.fail(DEADLINE)\n",
        "",
        "judged-late",
    ),
    _mutant(
        "answer-wakes-nobody",
        AWAITING,
        "        if self._waiting is not None:\n            self._waiting.cancel()\n",
        "",
        "judged",
    ),
    _mutant(
        "answer-before-the-wait-is-lost",
        AWAITING,
        "            if self._fresh:\n                scope.cancel()\n",
        "",
        "judged-in-time",
    ),
    # --- the attempt
    _mutant(
        "provider-not-closed",
        ATTEMPT,
        "            async with target.provider.attempt(\n                self._request(target, lease, asking), on_connected=self._connected\n            ) as response:\n",
        "            response = await target.provider.attempt(\n                self._request(target, lease, asking), on_connected=self._connected\n            ).__aenter__()\n            if response:\n",
        "healthy",
    ),
    _mutant(
        "lease-released-twice",
        ATTEMPT,
        "                    how = await self._answer(target, response, held)\n",
        "                    lease.release()\n                    how = await self._answer(target, response, held)\n",
        "healthy",
    ),
    _mutant(
        "lease-not-in-a-block",
        ATTEMPT,
        "held.enter_context(take(ref))",
        "take(ref)",
        "continued",
    ),
    _mutant(
        "partial-event-not-given-back",
        ATTEMPT,
        "        with self._scope, self._exchange.budget.reserve(0) as held:\n            how",
        "        with self._scope:\n            held = self._exchange.budget.reserve(0)\n            how",
        "healthy",
    ),
    _mutant(
        "one-key-for-all-plans",
        ATTEMPT,
        "self._key.encode()",
        'self._exchange.door.exchange.encode() + b".1"',
        "exact",
    ),
    _mutant(
        "end-inside-the-scope",
        ATTEMPT,
        "                how = await runner.attempt(leases)\n            await evidence.send(End(order.n, how, runner.target))\n",
        "                how = await runner.attempt(leases)\n                await evidence.send(End(order.n, how, runner.target))\n",
        "denied",
    ),
    _mutant(
        "any-exception-is-a-reset",
        ATTEMPT,
        "        except UpstreamFailed as error:\n            return self._clocks.fault(Failure(_FAULTS[error.fault]))\n",
        "        except Exception:\n            return self._clocks.fault(Failure(FailureKind.RESET))\n",
        "healthy",
    ),
    _mutant(
        "health-not-told",
        ATTEMPT,
        "        finally:\n            target.health.end(how, trio.current_time(), began=began)\n",
        "        finally:\n            pass\n",
        "healthy",
        masked="a breaker that hears of nothing stays closed; nothing of one exchange shows it",
    ),
    # --- the coordinator
    _mutant(
        "violation-does-not-stop-the-attempt",
        COORDINATOR,
        "            order.scope.cancel()\n            continue\n",
        "            continue\n",
        "denied-at-once",
    ),
    _mutant(
        "terminal-said-before-it-is-sent",
        COORDINATOR,
        '    with orders, reports, wire, acting("coordinator"):\n',
        '    with orders, reports, wire, acting("coordinator"):\n        sent()\n',
        "healthy",
        "drained",
    ),
    _mutant(
        "second-order-before-the-end",
        COORDINATOR,
        "                await orders.send(order)\n",
        "                await orders.send(order)\n                await orders.send(order)\n",
        "healthy",
    ),
    _mutant(
        "success-of-a-condemned-attempt",
        COORDINATOR,
        "        return msgspec.structs.replace(report, how=violation or report.how), notes\n",
        "        return report, notes\n",
        "denied",
        "repaired",
    ),
    # --- the sink
    _mutant(
        "terminal-to-one-who-left",
        SINK,
        "        await trio.lowlevel.checkpoint_if_cancelled()\n        if len(data)",
        "        if len(data)",
        "healthy",
        "exhausted",
    ),
    _mutant(
        "status-before-the-first-release",
        SINK,
        "                    self._staged = item\n",
        "                    self._staged = item\n                    await self._caller.start(200, self._framing.headers)\n",
        "healthy",
    ),
    _mutant(
        "writes-behind-the-terminal",
        SINK,
        "        while self._boundary.state is not Commit.TERMINAL:\n",
        "        while True:\n",
        "healthy",
    ),
    _mutant(
        "end-of-the-channel-is-a-success",
        SINK,
        '                item = Terminal(refusal(500, "internal_error"), 0)\n',
        "                return\n",
        "healthy",
        masked="the exchange keeps an end of the channel open until it has sent a terminal",
    ),
    _mutant(
        "write-is-shielded",
        SINK,
        "        await self._caller.write(data)\n",
        "        with trio.CancelScope(shield=True):\n            await self._caller.write(data)\n",
        "slow-caller",
    ),
    _mutant(
        "cut-relay-ends-well",
        SINK,
        "await (self._break_off() if body is None else self._end(body))",
        'await self._end(body or b"")',
        "relayed-cut",
    ),
    _mutant(
        "broken-off-before-it-is-over",
        SINK,
        "        self._ending.over = True\n        self._caller.abort()\n",
        "        self._caller.abort()\n        await trio.lowlevel.checkpoint()\n",
        "relayed-cut",
    ),
    _mutant(
        "following-item-is-dropped",
        SINK,
        "            else:\n                following = after\n",
        "            else:\n                break\n",
        "slow-caller",
    ),
    # --- tunnels, and what takes exchanges down
    _mutant(
        "tunnel-error-goes-on",
        "gate/framing_tunnel.py",
        "    comments = False\n",
        "    comments = True\n",
        "tunnel-stalled",
    ),
    _mutant(
        "tape-holds-the-provider-open",
        "actors/recording.py",
        "            return await self._opening.__aexit__(kind, error, trace)",
        "            return await self._opening.__aexit__(kind, error, trace) if error is None else None",
        "recorded",
    ),
    _mutant(
        "tape-keeps-the-slot",
        "actors/recording_process.py",
        "                name = await held.enter_async_context(self._inner.slot(names, place))\n",
        "                name = await self._inner.slot(names, place).__aenter__()\n",
        "recorded",
    ),
    # --- ingress
    _mutant(
        "watch-sees-nothing",
        INGRESS,
        "            await _watch(caller)\n        if not",
        "            await trio.sleep_forever()\n        if not",
        "left",
    ),
    _mutant(
        "large-body-after-the-close",
        INGRESS,
        "        snapshot.reserve(len(body))  # the exchange may have ended\n",
        "",
        "large",
        masked="filling a closed snapshot is refused as well",
    ),
    _mutant(
        "end-is-taken-for-leaving",
        INGRESS,
        "        if not ending.over:\n            ending.because",
        "        if True:\n            ending.because",
        "healthy",
    ),
    _mutant(
        "intake-is-not-sent",
        INGRESS,
        "                intake.send_nowait(message)\n",
        "                pass\n",
        "healthy",
    ),
)
