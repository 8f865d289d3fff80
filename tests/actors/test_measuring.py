"""What is measured of whole exchanges, exactly, on a virtual clock; and what is told of attempts that the end of their exchange cuts off."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import trio

from gate.config import ClocksConfig, FilterConfig, HoldConfig, LimitsConfig, RecoveryConfig
from gate.errors import UpstreamFault
from gate.observe import Measured, Observation, Outcome, Spent, TokenKind, What
from tests.calling import begin, calling, end, entry, payload
from tests.doubles import (
    DONE,
    EMPTY,
    ROLE,
    STOP,
    Answer,
    Read,
    RecordingCaller,
    Records,
    ScriptedProvider,
    body,
    delta,
    gateway,
    healthy,
    left_behind,
    request,
    says,
    stalls,
    supervise,
    text,
    whole,
)

REPORTED, ESTIMATED, WASTED = TokenKind.REPORTED, TokenKind.ESTIMATED, TokenKind.WASTED
WORDS = ("One ", "two ", "three ", "four.")
USED = delta({}, finish="stop", usage={"prompt_tokens": 3, "completion_tokens": 9})


class Run:
    """One exchange over providers with these scripts, and what was told of it."""

    def __init__(
        self, *scripts: list[Answer], data: bytes = b"", hold: HoldConfig | None = None, **more: Any
    ) -> None:
        self.records = Records()
        self.providers = [ScriptedProvider(*script) for script in scripts]
        self.caller = RecordingCaller(data or request())
        self.gate = gateway(*self.providers, hold=hold, records=self.records, **more)

    async def play(self) -> Outcome:
        """To its end, with everything given back."""
        outcome = await supervise(self.gate, self.caller)
        assert left_behind(self.gate) == []
        return outcome

    @property
    def last(self) -> Observation:
        """That of the exchange's end."""
        assert self.records.observations[-1].what is What.EXCHANGE_ENDED
        return self.records.observations[-1]

    @property
    def measured(self) -> Measured:
        """Which is told once."""
        assert self.last.measured is not None
        return self.last.measured

    def attempts(self) -> list[tuple[str, str, str, str]]:
        """Provider, directive, reason and end of each."""
        return [
            (each.provider, each.directive, each.reason, each.code)
            for each in self.records.observations
            if each.what is What.ATTEMPT_ENDED
        ]


def lost(*pieces: bytes, every: float = 0.0) -> Answer:
    """An answer that breaks off behind these pieces."""
    return says(*pieces, every=every, then=[Read(fault=UpstreamFault.CUT)])


async def test_a_live_stream_is_held_for_as_long_as_its_role_waits(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Nothing is added to the first token, and each takes the second that its provider took."""
    run = Run([healthy(*WORDS, every=1)])
    await run.play()
    spent = (Spent(ESTIMATED, 4),)
    assert run.measured == Measured(1.0, 2.0, 0.0, 1.0, spent)
    assert (run.last.route, run.last.mode, run.last.outcome) == ("default", "normalized", "success")
    assert run.attempts() == [("p0", "exact", "", "complete")]


async def test_a_window_in_time_holds_for_just_so_long(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Words at 1, 2, 3 and 4 s; the first two leave after 2.5 s, the others at the answer's end, at 6 s."""
    hold = HoldConfig(mode="window", tail_ms=2500)
    run = Run([says(*map(text, WORDS), USED, DONE, every=1)], hold=hold)
    await run.play()
    assert run.measured == Measured(2.5, 3.5, 2.5, 2.5 / 8, (Spent(REPORTED, 9),))


async def test_a_window_in_characters_holds_until_more_has_come(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """A frame leaves when ten characters stand behind it, the first with the third; the last two leave at the end."""
    hold = HoldConfig(mode="window", tail_chars=10)
    run = Run([says(*map(text, WORDS), STOP, DONE, every=1)], hold=hold)
    await run.play()
    assert (run.measured.held_seconds, run.measured.ttft_added_seconds) == (3.0, 2.0)


async def test_a_buffered_stream_is_held_from_its_first_frame_to_its_end(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Everything leaves in one moment."""
    run = Run([healthy(*WORDS, every=1)], hold=HoldConfig(mode="buffered"))
    await run.play()
    assert run.measured == Measured(6.0, 7.0, 5.0, 0.0, (Spent(ESTIMATED, 4),))


@pytest.mark.parametrize("answer", [healthy("He", "llo", every=1), body(whole("Hello"), after=4)])
async def test_a_caller_of_one_object_has_no_first_token(
    answer: Answer, autojump_clock: trio.testing.MockClock
) -> None:
    """What came piece by piece was held for it until the end."""
    run = Run([answer], data=request(stream=False))
    await run.play()
    measured = run.measured
    assert measured.held_seconds == (4.0 if answer.headers[0][1] != b"application/json" else 0.0)
    assert (measured.ttft_seconds, measured.ttft_added_seconds) == (None, None)
    assert measured.token_seconds is None


async def test_a_tool_call_waits_for_its_end(autojump_clock: trio.testing.MockClock) -> None:
    """Mending holds its pieces, which have no position until then."""
    pieces = (calling(begin(0, "look")), calling(entry(arguments="{}")), end())
    first = payload({"role": "assistant", "content": "Well"})
    events = [b"data: %b\n\n" % each for each in (first, *pieces)]
    tools = [{"type": "function", "function": {"name": "look"}}]
    run = Run([says(*events, DONE, every=1)], data=request(tools=tools))
    assert (await run.play()).code == ""
    assert run.measured.held_seconds == 2.0
    assert run.measured.ttft_seconds == 1.0
    alone = Run([says(*events[1:], DONE, every=1)], data=request(tools=tools))
    assert (await alone.play()).code == ""
    assert (alone.measured.ttft_seconds, alone.measured.ttft_added_seconds) == (3.0, 2.0)


async def test_a_recovery_adds_to_the_first_token_what_it_took(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """From the first content of all, which nobody saw; that attempt's tokens are wasted."""
    held = HoldConfig(opening_chars=12)
    run = Run([lost(ROLE, *map(text, WORDS[:2]), every=1)], [healthy(*WORDS, every=1)], hold=held)
    await run.play()
    # Words at 2 and 3, lost at 3; words at 5, 6, 7 and 8, of which the third opens the stream.
    assert run.measured == Measured(
        3.0, 7.0, 5.0, 1 / 3, (Spent(WASTED, 2, "stream_cut"), Spent(ESTIMATED, 4))
    )
    assert run.attempts() == [
        ("p0", "exact", "", "stream_cut"),
        ("p1", "exact", "stream_cut", "complete"),
    ]


async def test_a_condemned_attempt_is_told_by_what_condemned_it(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """And so are its tokens, though its connection was closed by us."""
    tables = {"no-two": FilterConfig(kind="patterns", patterns=("two",), action="next_provider")}
    run = Run(
        [stalls(*map(text, WORDS))],
        [healthy("Only one.")],
        hold=HoldConfig(mode="buffered"),
        filters=("no-two",),
        tables=tables,
    )
    await run.play()
    assert run.measured.spent[0].reason == "pattern_match"
    assert run.attempts()[0] == ("p0", "exact", "", "pattern_match")
    assert run.attempts()[1][2:] == ("pattern_match", "complete")


async def test_an_answer_that_goes_on_has_cost_what_its_parts_have(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """What stood behind the place where it went on is wasted; what was seen is not held by the pause."""
    hold = HoldConfig(mode="window", tail_chars=4)
    run = Run(
        [lost(ROLE, *map(text, ("The", " sea", " is", " ")), every=1)],
        [says(ROLE, text(" blue"), text(" today."), USED, DONE, every=1)],
        hold=hold,
        prefill="vllm",
    )
    outcome = await run.play()
    assert (outcome.code, run.caller.text) == ("", "The sea is blue today.")
    assert run.attempts()[1] == ("p1", "continuation", "stream_cut", "complete")
    assert run.measured.spent == (
        Spent(ESTIMATED, 3),
        Spent(WASTED, 1, "stream_cut"),
        Spent(REPORTED, 9),
    )
    # "The" came at 2 and left with " is" at 4; " sea" and " is" waited from 3 and 4 on for the seam, until 9.
    assert run.measured.held_seconds == 6.0


async def test_an_attempt_without_a_place_was_none(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """It is told by how it ended, and of no provider."""
    run = Run([stalls(text("a"))], concurrency=1, limits=LimitsConfig(queue_seconds_max=1.0))
    async with trio.open_nursery() as nursery:
        busy = RecordingCaller()
        nursery.start_soon(partial(supervise, run.gate, busy, exchange="ex-0"))
        await trio.sleep(0.5)
        outcome = await supervise(run.gate, run.caller)
        busy.leave()
    assert (outcome.code, outcome.attempts) == ("queue_timeout", 0)
    ended = [each for each in run.records.observations if each.what is What.ATTEMPT_ENDED]
    assert [(each.exchange, each.provider, each.code) for each in ended] == [
        ("ex-1", "", "queue_timeout"),
        ("ex-0", "p0", "aborted"),
    ]


async def test_an_attempt_that_is_cut_off_is_told_all_the_same(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """With the tokens that the caller left behind."""
    run = Run([stalls(*map(text, WORDS))], hold=HoldConfig(mode="window", tail_chars=10))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(run.play)
        await trio.sleep(3)
        run.caller.leave()
    assert run.attempts() == [("p0", "exact", "", "aborted")]
    assert (run.last.outcome, run.last.code) == ("abandoned", "caller_gone")
    assert run.measured.spent == (Spent(ESTIMATED, 2), Spent(WASTED, 2, "caller_gone"))
    assert run.measured.token_seconds is None


async def test_an_attempt_that_waits_for_a_place_is_no_news_when_its_caller_leaves(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """It was not begun."""
    run = Run([stalls(text("a"))], concurrency=1)
    async with trio.open_nursery() as nursery:
        busy = RecordingCaller()
        nursery.start_soon(partial(supervise, run.gate, busy, exchange="ex-0"))
        await trio.sleep(1)
        nursery.start_soon(partial(supervise, run.gate, run.caller))
        await trio.sleep(1)
        run.caller.leave()
        await trio.sleep(1)
        assert run.attempts() == []
        assert run.measured == Measured()
        busy.leave()


async def test_the_end_of_a_drain_is_a_reason(autojump_clock: trio.testing.MockClock) -> None:
    """For tokens that had not gone out by then."""
    run = Run([stalls(text("a"))], hold=HoldConfig(mode="buffered"))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(run.play)
        await trio.sleep(1)
        run.gate.open.shut_down()
    assert (run.last.outcome, run.last.code) == ("error", "shutdown")
    assert run.measured.spent == (Spent(WASTED, 1, "shutdown"),)


async def test_what_was_refused_has_a_route_only_if_its_alias_has_one() -> None:
    """And nothing was measured."""
    unknown = Run([], data=request(model="huge"))
    await unknown.play()
    assert (unknown.last.route, unknown.last.outcome, unknown.last.measured) == ("", "error", None)
    full = Run([], limits=LimitsConfig(exchanges_max=1, queue_max=0))
    assert full.gate.dispatch.exchanges.take_nowait(["exchange"])
    await supervise(full.gate, full.caller)
    assert (full.last.route, full.last.code) == ("default", "queue_full")
    assert full.last.measured is None


async def test_what_is_held_and_lent_can_be_read_while_it_is(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Over all exchanges in flight, and of one that has not been admitted: nothing."""
    seen: list[tuple[int, int]] = []

    def look() -> None:
        seen.append((run.gate.open.held_bytes, run.gate.open.leases))

    reads = [Read(text(word), 1.0, meanwhile=look) for word in WORDS]
    run = Run([says(then=[*reads, Read(STOP + DONE)])], hold=HoldConfig(mode="buffered"))
    waits = RecordingCaller(b"{", b"}", gap=3.0)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(supervise, run.gate, waits, exchange="ex-0"))
        nursery.start_soon(partial(supervise, run.gate, run.caller))
        await trio.sleep(0.5)
        assert len(run.gate.open) == 2
        look()
    held, leases = zip(*seen, strict=True)
    assert held[:2] == (0, 0)
    assert 0 < held[2] < held[3] < held[4]
    assert leases == (0,) * 5
    assert (run.gate.open.held_bytes, run.gate.open.leases) == (0, 0)


async def test_a_body_is_lent_until_the_head_has_come(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """And given back by whoever took it."""
    run = Run([Answer([Read(text("a") + STOP + DONE)], head_after=2.0)])
    async with trio.open_nursery() as nursery:
        nursery.start_soon(run.play)
        await trio.sleep(1)
        assert run.gate.open.leases == 1
        await trio.sleep(2)
        assert run.gate.open.leases == 0


async def test_empty_deltas_cost_nothing(autojump_clock: trio.testing.MockClock) -> None:
    """Nobody has counted them as tokens; an attempt that sends nothing else is given up for its silence."""
    run = Run(
        [says(ROLE, *[EMPTY] * 5, every=1, then=[Read(after=60.0)])],
        [healthy("a")],
        clocks=ClocksConfig(first_content_seconds=3),
        recovery=RecoveryConfig(backoff_seconds=0),
    )
    await run.play()
    assert run.measured.spent == (Spent(ESTIMATED, 1),)
    assert run.attempts()[1][2] == "first_content_timeout"
