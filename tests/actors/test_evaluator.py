"""The evaluator by itself: evidence in, releases and reports out, and what it reserves meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
import pytest
import trio
import trio.testing

from actors import evaluator
from actors.attempt import Evidence
from actors.context import Exchange
from actors.evaluator import Reports
from gate.config import HoldConfig, LimitsConfig
from gate.events import (
    Batch,
    Complete,
    End,
    Ended,
    Facts,
    Frame,
    Head,
    Release,
    Start,
    Violation,
    Wire,
)
from gate.failure import Failure, FailureKind
from gate.filters.builtin import make_filters
from gate.filters.contract import FilterContext, Passed, Verdict
from gate.judging import STEP_FRAMES_MAX, Judge
from gate.observe import What
from gate.reader import ChatStreamReader
from tests.doubles import (
    ROLE,
    STOP,
    Records,
    ScriptedProvider,
    exchange_of,
    gateway,
    request,
    text,
    thought,
)

CUT = Failure(FailureKind.CUT)


def batch(*pieces: bytes, n: int = 1) -> Batch:
    """The frames of one read."""
    reader = ChatStreamReader(choices=1, event_bytes_max=1_000_000)
    frames = reader.feed(b"".join(pieces)).frames
    assert len(frames) == len(pieces)
    return Batch(n, frames, 0.0)


def head(n: int = 1) -> Head:
    """The provider has answered."""
    return Head(n, 0, 200)


def ended(how: Complete | Failure = Complete(), n: int = 1) -> End:  # noqa: B008 - frozen
    """The runner is done with the attempt."""
    return End(n, how, 0)


def judge_of(exchange: Exchange) -> Judge:
    """The judge that an exchange would make."""
    asked, route = exchange.snapshot.request, exchange.pool.route
    return Judge(
        route.hold,
        streams=asked.stream,
        held_bytes_max=exchange.limits.held_bytes_max,
        make_filters=lambda: make_filters(exchange.pool.filters, FilterContext(asked.choices)),
    )


class Stubborn:
    """A filter that passes the first two frames, and nothing more before the end."""

    name = "stubborn"
    gating = True
    notice: str | None = None

    def observe(self, frames: Sequence[Frame], position: int) -> Verdict:
        return Passed(min(2, position + len(frames)))

    def finish(self, position: int, facts: Facts) -> Verdict:
        return Passed(position)


async def evaluate(exchange: Exchange, *items: Evidence) -> tuple[list[Wire], list[Reports]]:
    """What goes to the sink and to the coordinator; both have room for all of it."""
    send, evidence = trio.open_memory_channel[Evidence](len(items))
    send_wire, wire = trio.open_memory_channel[Wire](100)
    send_reports, reports = trio.open_memory_channel[Reports](100)
    with send:
        for item in items:
            send.send_nowait(item)
    await evaluator.run(evidence, send_wire, send_reports, exchange, judge_of(exchange))
    return [item async for item in wire], [item async for item in reports]


def texts(wires: Sequence[Wire]) -> list[list[str]]:
    """The answer text of each frame of each release."""
    return [
        ["".join(getattr(each, "text", "") for each in frame.events) for frame in item.frames]
        for item in wires
        if isinstance(item, Release)
    ]


async def test_what_has_passed_goes_on_at_once() -> None:
    """The start first, then a release per read; the end comes with the facts."""
    exchange = exchange_of(gateway(ScriptedProvider()))
    wires, reports = await evaluate(
        exchange, head(), batch(ROLE, text("He")), batch(text("llo"), STOP), ended()
    )
    start, *releases = wires
    assert isinstance(start, Start)
    assert (start.n, start.id, start.created) == (1, "up-1", 7)
    assert (start.shape.model, start.shape.stream, start.shape.include_usage) == (
        "small",
        True,
        False,
    )
    assert texts(releases) == [["", "He"], ["llo"]]
    (report,) = reports
    assert isinstance(report, Ended)
    assert (report.n, report.how, report.target, report.released) == (1, Complete(), 0, 3)
    assert report.facts is not None
    assert [fact.reason for fact in report.facts.finishes] == ["stop"]


async def test_nothing_goes_before_the_opening() -> None:
    """A role and reasoning are no answer; they leave with its first character."""
    exchange = exchange_of(gateway(ScriptedProvider()))
    wires, _ = await evaluate(
        exchange, head(), batch(ROLE), batch(thought("hm")), batch(text("  ")), batch(text("A"))
    )
    assert texts(wires) == [["", "hm", "  ", "A"]]


async def test_what_is_held_is_reserved_until_it_goes() -> None:
    """Raw bytes, and what keeping a frame costs; given back with a release, or with the attempt's failure."""
    seen: list[int] = []
    exchange = exchange_of(gateway(ScriptedProvider(), hold=HoldConfig(opening_chars=6)))
    base = exchange.budget.used
    send, evidence = trio.open_memory_channel[Evidence](1)
    send_wire, wire = trio.open_memory_channel[Wire](100)
    send_reports, reports = trio.open_memory_channel[Reports](100)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(
            evaluator.run, evidence, send_wire, send_reports, exchange, judge_of(exchange)
        )
        with send, wire, reports:
            said = [batch(text("He")), batch(text("llo"))]
            items: list[Evidence] = [head(), *said, batch(text("!")), ended()]
            for item in (*items, head(2), *said, ended(CUT, 2)):
                await send.send(item)
                await trio.testing.wait_all_tasks_blocked()
                seen.append(exchange.budget.used - base)
    size = len(text("He")) + 384
    assert seen == [0, size, 2 * size + 1, 0, 0, 0, size, 2 * size + 1, 0]


async def test_a_failed_attempt_leaves_nothing_of_what_was_held() -> None:
    """The next one begins with an empty hand."""
    exchange = exchange_of(gateway(ScriptedProvider(), hold=HoldConfig(opening_chars=5)))
    base = exchange.budget.used
    wires, reports = await evaluate(
        exchange,
        head(),
        batch(text("He")),
        ended(CUT),
        head(2),
        batch(text("A"), text("n other"), n=2),
    )
    assert reports == [Ended(1, CUT, 0, 0)]
    assert isinstance(wires[0], Start)
    assert wires[0].n == 2
    assert texts(wires) == [["A", "n other"]]
    assert exchange.budget.used == base


async def test_an_attempt_that_had_no_head_is_reported_like_any_other() -> None:
    """A connection that was refused."""
    exchange = exchange_of(gateway(ScriptedProvider()))
    failure = Failure(FailureKind.CONNECT)
    assert await evaluate(exchange, End(1, failure, -1)) == ([], [Ended(1, failure, -1, 0)])


async def test_an_empty_answer_is_found_out_at_its_end() -> None:
    """The violation is reported before the end, and nothing is written."""
    records = Records()
    exchange = exchange_of(gateway(ScriptedProvider(), records=records))
    wires, reports = await evaluate(exchange, head(), batch(ROLE, STOP), ended())
    assert wires == []
    empty = Failure(FailureKind.EMPTY)
    assert reports == [Violation(1, empty), Ended(1, Complete(), 0, 0)]
    assert records.codes(What.VIOLATION) == ["empty_answer"]


async def test_a_buffered_answer_goes_with_its_end() -> None:
    """Everything, in one go."""
    exchange = exchange_of(gateway(ScriptedProvider(), hold=HoldConfig(mode="buffered")))
    before = await evaluate(exchange, head(), batch(text("He")), batch(text("llo"), STOP))
    assert before == ([], [])
    wires, _ = await evaluate(
        exchange, head(), batch(text("He")), batch(text("llo"), STOP), ended()
    )
    assert texts(wires) == [["He", "llo"]]


async def test_a_json_caller_gets_all_with_the_end_and_the_sink_keeps_the_bytes() -> None:
    """They are on the exchange's own reservation from then on, because the evaluator's ends before the write."""
    exchange = exchange_of(gateway(ScriptedProvider()), data=request(stream=False))
    wires, _ = await evaluate(
        exchange, head(), batch(text("He")), batch(text("llo"), STOP), ended()
    )
    assert texts(wires) == [["He", "llo"]]
    sizes = [sum(len(frame.data) for frame in item.frames) for item in wires if isinstance(item, Release)]  # fmt: skip
    assert exchange.wire.size == sum(sizes)


async def test_a_release_goes_over_in_pieces() -> None:
    """Of at most 20 KiB, each of whole frames; a frame that is larger goes by itself."""
    exchange = exchange_of(gateway(ScriptedProvider(), hold=HoldConfig(mode="buffered")))
    sizes = [9_000, 9_000, 9_000, 25_000, 100]
    read = batch(*[text("x" * size) for size in sizes], STOP)
    wires, _ = await evaluate(exchange, head(), read, ended())
    assert [[len(said) for said in piece] for piece in texts(wires)] == [
        [9_000, 9_000],
        [9_000],
        [25_000],
        [],
        [],
        [100],
    ]


async def test_a_large_frame_stays_reserved_until_the_sink_has_written_it() -> None:
    """It is beyond what the exchange has set aside for the wire."""
    exchange = exchange_of(gateway(ScriptedProvider()))
    base = exchange.budget.used
    send, evidence = trio.open_memory_channel[Evidence](2)
    send_wire, wire = trio.open_memory_channel[Wire](1)
    send_reports, reports = trio.open_memory_channel[Reports](2)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(
            evaluator.run, evidence, send_wire, send_reports, exchange, judge_of(exchange)
        )
        with send, reports, wire:
            send.send_nowait(head())
            send.send_nowait(batch(text("x" * 30_000)))
            assert isinstance(await wire.receive(), Start)
            large = await wire.receive()
            assert isinstance(large, Release)
            await trio.testing.wait_all_tasks_blocked()
            assert exchange.wire.size > 30_000
            assert exchange.budget.used - base >= exchange.wire.size
            for _ in range(2):  # the sink comes back only when the large one is written
                assert await wire.receive() == Release(1, [])
            await trio.testing.wait_all_tasks_blocked()
            assert exchange.wire.size == 0
            assert exchange.budget.used == base


def cramped(**hold: object) -> Exchange:
    """An exchange with room for its request and 10,000 bytes, of which none are held by the wire."""
    limits = LimitsConfig(exchange_bytes_max=len(request()) + 10_000)
    return exchange_of(
        gateway(ScriptedProvider(), limits=limits, hold=HoldConfig(**hold))  # type: ignore[arg-type]
    )


@pytest.mark.parametrize(
    "read", [batch(text("x" * 30_000)), batch(*[text("x" * 200)] * 40), batch(text("x" * 9_900))]
)
async def test_evidence_without_room_ends_the_attempt(read: Batch) -> None:
    """Whether it comes in one read that is large, or is held; nothing is written, and nothing stays reserved."""
    exchange = cramped(mode="buffered")
    base = exchange.budget.used
    wires, reports = await evaluate(exchange, head(), read, read, ended())
    assert wires == []
    budget = Failure(FailureKind.BUDGET)
    assert reports == [Violation(1, budget), Ended(1, Complete(), 0, 0)]
    assert exchange.budget.used == base


async def test_what_may_be_held_has_a_limit_of_its_own() -> None:
    """Beyond it the exchange fails; another attempt would fare no better."""
    limits = LimitsConfig(held_bytes_max=1_000)
    exchange = exchange_of(
        gateway(ScriptedProvider(), limits=limits, hold=HoldConfig(mode="buffered"))
    )
    reads = [batch(text("x" * 200)) for _ in range(5)]
    wires, reports = await evaluate(exchange, head(), *reads, ended())
    assert wires == []
    assert reports[0] == Violation(1, Failure(FailureKind.HELD_LIMIT))


async def test_what_still_comes_of_a_condemned_attempt_is_dropped() -> None:
    """Its end is reported all the same, and the next attempt is judged anew."""
    exchange = cramped()
    wires, reports = await evaluate(
        exchange,
        head(),
        batch(text("x" * 30_000)),
        batch(text("late")),
        ended(CUT),
        head(2),
        batch(text("Hello"), STOP, n=2),
        ended(n=2),
    )
    assert texts(wires) == [["Hello"]]
    assert [type(each) for each in reports] == [Violation, Ended, Ended]
    last = reports[-1]
    assert isinstance(last, Ended)
    assert last.facts is not None


async def test_every_release_is_sent_before_the_end_is_reported() -> None:
    """Order in the channels is order on the wire: a terminal can't overtake."""
    exchange = exchange_of(gateway(ScriptedProvider()))
    send, evidence = trio.open_memory_channel[Evidence](4)
    send_wire, wire = trio.open_memory_channel[Wire](1)
    send_reports, reports = trio.open_memory_channel[Reports](2)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(
            evaluator.run, evidence, send_wire, send_reports, exchange, judge_of(exchange)
        )
        with send:
            for item in (head(), batch(text("He")), batch(text("llo"), STOP), ended()):
                send.send_nowait(item)
        for _ in range(2):
            await trio.testing.wait_all_tasks_blocked()
            assert reports.statistics().current_buffer_used == 0
            wire.receive_nowait()
        await trio.testing.wait_all_tasks_blocked()
        assert isinstance(reports.receive_nowait(), Ended)
        assert texts([wire.receive_nowait()]) == [["llo"]]


async def test_age_alone_lets_nothing_go_that_a_filter_holds(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """The hold policy wakes the evaluator for it, which finds that it may not."""
    hold = HoldConfig(mode="window", tail_ms=1000)
    exchange = exchange_of(gateway(ScriptedProvider(), hold=hold))
    judge = Judge(hold, streams=True, held_bytes_max=1 << 16, make_filters=lambda: [Stubborn()])
    send, evidence = trio.open_memory_channel[Evidence](1)
    send_wire, wire = trio.open_memory_channel[Wire](100)
    send_reports, reports = trio.open_memory_channel[Reports](100)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(evaluator.run, evidence, send_wire, send_reports, exchange, judge)
        with send, wire, reports:
            await send.send(head())
            await send.send(batch(ROLE, text("Hi"), text("!")))
            await send.send(msgspec.structs.replace(batch(text("?")), received_at=0.5))
            await trio.sleep(5)
            start, release = wire.receive_nowait(), wire.receive_nowait()
            assert isinstance(start, Start)
            assert texts([release]) == [["", "Hi"]]
            await trio.sleep(5)
            assert wire.statistics().current_buffer_used == 0
            await send.send(ended())
            await trio.sleep(1)
            assert texts([wire.receive_nowait()]) == [["!", "?"]]


class Watching(Stubborn):
    """Writes down at which turn it was asked; holds what it is told to hold."""

    def __init__(self, turn: Callable[[], int], *, holds: bool) -> None:
        self.turns: list[int] = []
        self._turn = turn
        self._holds = holds

    def observe(self, frames: Sequence[Frame], position: int) -> Verdict:
        self.turns.append(self._turn())
        return super().observe(frames, position) if self._holds else Passed(position + len(frames))


@pytest.mark.parametrize("holds", [False, True])
async def test_what_goes_on_at_once_is_judged_in_steps(*, holds: bool) -> None:
    """Others run in between, whether or not something leaves; the order is that of arrival."""
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            await trio.lowlevel.checkpoint()
            turns += 1

    words = [f"{number} " for number in range(3 * STEP_FRAMES_MAX)]
    watching = Watching(lambda: turns, holds=holds)
    exchange = exchange_of(gateway(ScriptedProvider()))
    judge = Judge(HoldConfig(), streams=True, held_bytes_max=1 << 24, make_filters=lambda: [watching])  # fmt: skip
    send, evidence = trio.open_memory_channel[Evidence](3)
    send_wire, wire = trio.open_memory_channel[Wire](1_000)
    send_reports, _reports = trio.open_memory_channel[Reports](9)
    with send:
        for item in (head(), batch(ROLE, *map(text, words), STOP), ended()):
            send.send_nowait(item)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(others)
        await evaluator.run(evidence, send_wire, send_reports, exchange, judge)
        nursery.cancel_scope.cancel()
    assert len(watching.turns) == 4
    # A step is judged before the one in front of it is sent: that leaves two turns between, with both tasks in each.
    assert watching.turns[-1] > watching.turns[0]
    said = [frame for release in texts([item async for item in wire]) for frame in release]
    assert said == ["", *words]
