"""Recording, the process' side: what one exchange asks of the state that all of them share, with the answers taken down.

Each class stands for one object of the process, which it asks and changes as the exchange does; the rules are those of `actors.recording`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager

from actors.context import Ending, Exchange, OpenExchanges
from actors.dispatch import Dispatch, Place
from actors.tape import Tape
from gate.events import HowEnded
from gate.health import ProviderHealth
from gate.retry_budget import RetryBudget
from gate.trace import CallerEvent, Fact

__all__ = ["RecordedDispatch", "RecordedHealth", "RecordedOpen", "RecordedRetries"]


class RecordedHealth(ProviderHealth):
    """The provider's health, whose word is taken down."""

    def __init__(self, name: str, inner: ProviderHealth, tape: Tape) -> None:
        self._name = name
        self._inner = inner
        self._tape = tape

    def wait_seconds(self, now: float) -> float:
        value = self._inner.wait_seconds(now)
        self._tape.add(Fact(self._tape.at(now), "wait", value, self._name))
        return value

    @contextmanager
    def probing(self, now: float) -> Iterator[None]:
        with self._inner.probing(now):
            yield

    def end(self, how: HowEnded, now: float, *, began: float) -> None:
        self._inner.end(how, now, began=began)

    def __repr__(self) -> str:
        return repr(self._inner)


class RecordedRetries(RetryBudget):
    def __init__(self, inner: RetryBudget, tape: Tape) -> None:
        self._inner = inner
        self._tape = tape

    def admit(self, now: float) -> None:
        self._inner.admit(now)

    def left(self, now: float) -> bool:
        value = self._inner.left(now)
        self._tape.add(Fact(self._tape.at(now), "retries", value))
        return value

    def take(self, now: float) -> None:
        self._inner.take(now)

    def __repr__(self) -> str:
        return repr(self._inner)


class RecordedDispatch(Dispatch):
    """The process' places, and what this exchange got of them. It has none of its own: everything else is asked of the one it wraps."""

    def __init__(self, inner: Dispatch, tape: Tape) -> None:
        self._inner = inner
        self._tape = tape

    @property
    def drain_ends(self) -> float:
        value = self._inner.drain_ends
        if value != float("inf"):
            self._tape.add(Fact(self._tape.now(), "drain_ends", self._tape.at(value)))
        return value

    @drain_ends.setter
    def drain_ends(self, value: float) -> None:
        self._inner.drain_ends = value

    @contextmanager
    def place(self) -> Iterator[Place]:
        with self._inner.place() as place:
            yield place

    async def admit(self, place: Place) -> str | None:
        with self._waiting("admit") as told:
            code = await self._inner.admit(place)
            told(code)
        return code

    @asynccontextmanager
    async def slot(self, names: Sequence[str], place: Place) -> AsyncIterator[str | None]:
        async with AsyncExitStack() as held:
            with self._waiting("slot") as told:
                name = await held.enter_async_context(self._inner.slot(names, place))
                told(name)
            yield name

    @contextmanager
    def _waiting(self, what: str) -> Iterator[Callable[[str | None], None]]:
        """Around a wait for `what`: what came of it, and after how long; False where nobody waited for it any more."""
        began = self._tape.now()
        value: str | bool | None = False

        def told(given: str | None) -> None:
            nonlocal value
            value = given

        try:
            yield told
        finally:
            now = self._tape.came = self._tape.now()
            self._tape.add(Fact(now, what, value, us=now - began))


class _Ending(Ending):
    """Stands for an exchange's ending in the list of those that the drain ends."""

    def __init__(self, inner: Ending, tape: Tape) -> None:
        super().__init__()
        self._inner = inner
        self._tape = tape

    @property
    def exchange(self) -> Exchange | None:
        """For whoever counts what all exchanges hold."""
        return self._inner.exchange

    @exchange.setter
    def exchange(self, value: Exchange | None) -> None:
        """The real ending has it."""

    def shut_down(self) -> None:
        self._tape.add(CallerEvent(self._tape.now(), "shutdown", self._tape.written))
        self._inner.shut_down()


class RecordedOpen(OpenExchanges):
    """The process' open exchanges, as this one knows them: it comes and goes."""

    def __init__(self, inner: OpenExchanges, tape: Tape) -> None:
        super().__init__()
        self._inner = inner
        self._tape = tape
        self._stand_in: Ending | None = None

    def add(self, ending: Ending) -> None:
        self._stand_in = _Ending(ending, self._tape)
        self._inner.add(self._stand_in)

    def discard(self, ending: Ending) -> None:
        assert self._stand_in is not None, "added before"
        self._inner.discard(self._stand_in)
