"""Judging: what arrives is mended, every filter sees it, and nothing goes before the opening, the filters and the hold allow it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from gate.config import HoldConfig
from gate.continuable import Continuable
from gate.events import Complete, Facts, Finish, FinishFact, Frame, Identity
from gate.failure import Failure, FailureKind
from gate.filters.contract import Passed, Verdict, Violated
from gate.judging import STEP_FRAMES_MAX, Judge, Remark
from gate.reader import ChatStreamReader

BAD = Failure(FailureKind.CONTENT_FILTER)


def frames_of(*deltas: bytes, rest: bytes = b"") -> list[Frame]:
    """One chunk per delta of choice 0."""
    reader = ChatStreamReader(choices=1, event_bytes_max=1 << 16)
    payload = b'data: {"id":"c1","choices":[{"index":0,"delta":%b%b}]}\n\n'
    return reader.feed(b"".join(payload % (delta, rest) for delta in deltas)).frames


ROLE = frames_of(b'{"role":"assistant","content":""}')
A = frames_of(b'{"content":"a"}')
B = frames_of(b'{"content":"bcd"}')
BLANK = frames_of(b'{"content":"  "}')
THOUGHT = frames_of(b'{"reasoning":"hm"}')
CALL = frames_of(b'{"tool_calls":[{"index":0,"id":"t"}]}')
STOP = frames_of(b"{}", rest=b',"finish_reason":"stop"')
HALF = frames_of(b'{"content":"\\ud83d"}')


class Script:
    """A filter that says what it is told: how many of the frames seen it keeps back, and which of them it condemns."""

    notice: str | None = None

    def __init__(
        self,
        name: str,
        *,
        back: int = 0,
        bad_at: int = -1,
        bad_end: bool = False,
        gating: bool = True,
    ) -> None:
        self.name = name
        self.gating = gating
        self.seen: list[bytes] = []
        self.primed: str | None = None
        self.facts: Facts | None = None
        self._back = back
        self._bad_at = bad_at
        self._bad_end = bad_end

    def prime(self, text: str) -> None:
        self.primed = text

    def observe(self, frames: Sequence[Frame], position: int) -> Verdict:
        self.seen += [frame.data for frame in frames]
        newest = position + len(frames)
        if position <= self._bad_at < newest:
            return Violated(self._bad_at, self.name, BAD)
        return Passed(max(newest - self._back, 0))

    def finish(self, position: int, facts: Facts) -> Verdict:
        self.facts = facts
        return Violated(0, self.name, BAD) if self._bad_end else Passed(position)


def judging(
    *filters: Script,
    hold: HoldConfig | None = None,
    streams: bool = True,
    held_bytes_max: int = 1 << 16,
    choices: int = 1,
) -> Judge:
    """A judge of one attempt."""
    return Judge(hold or HoldConfig(), streams=streams, held_bytes_max=held_bytes_max, choices=choices, make_filters=lambda: filters)  # fmt: skip


def took(judge: Judge, *batches: list[Frame]) -> list[int]:
    """How many frames each batch released."""
    released = []
    for batch in batches:
        frames, failure = judge.take(batch, 0.0)
        assert failure is None
        released.append(len(frames))
    return released


def finished(judge: Judge, end: Complete | None = None) -> list[Frame]:
    """What the end of a complete attempt released."""
    frames, failure = judge.finish(end or Complete())
    assert failure is None
    return frames


# --- the opening and the hold --------------------------------------------------------------------


def test_nothing_goes_before_the_first_answer_content() -> None:
    """Role, reasoning and white space wait, and leave with the first character; from there on all goes at once."""
    assert took(judging(), ROLE, THOUGHT, BLANK, A, THOUGHT, B) == [0, 0, 0, 4, 1, 1]


def test_the_opening_counts_characters_of_answer_content() -> None:
    """Three of them, white space before the first apart."""
    hold = HoldConfig(opening_chars=3)
    assert took(judging(hold=hold), BLANK, A, A, A) == [0, 0, 0, 4]
    assert took(judging(hold=hold), A, B) == [0, 2]


def test_reasoning_opens_where_the_route_releases_it() -> None:
    """And only there."""
    assert took(judging(hold=HoldConfig(reasoning="release")), ROLE, THOUGHT) == [0, 2]


def test_a_buffered_hold_lets_nothing_go_before_the_end() -> None:
    """Then everything."""
    judge = judging(hold=HoldConfig(mode="buffered"))
    assert took(judge, ROLE, A, B) == [0, 0, 0]
    assert len(finished(judge)) == 3


def test_a_caller_that_does_not_stream_gets_nothing_before_the_end() -> None:
    """Under a live hold too."""
    judge = judging(streams=False)
    assert took(judge, ROLE, A, B) == [0, 0, 0]
    assert len(finished(judge)) == 3


def test_the_end_opens_whatever_the_size() -> None:
    """An answer shorter than the opening is an answer."""
    judge = judging(hold=HoldConfig(opening_chars=99))
    assert took(judge, ROLE, A) == [0, 0]
    assert len(finished(judge)) == 2


# --- filters -------------------------------------------------------------------------------------


def test_the_filter_that_has_passed_least_decides() -> None:
    """In whatever order they are asked; each sees every frame, mended."""
    for order in ((0, 1), (1, 0)):
        filters = [Script("a", back=0), Script("b", back=2)]
        judge = judging(*(filters[each] for each in order))
        assert took(judge, A, A, B + B, B) == [0, 0, 2, 1]
        assert len(finished(judge)) == 2
        assert filters[0].seen == filters[1].seen
        assert len(filters[0].seen) == 5


def test_the_opening_counts_only_what_has_passed() -> None:
    """The first character is still in doubt, so the role waits too."""
    assert took(judging(Script("a", back=1)), ROLE, A, A) == [0, 0, 2]


def test_a_violation_is_a_failure_and_releases_nothing() -> None:
    """Also of a frame in the middle of a batch."""
    judge = judging(Script("fine"), Script("strict", bad_at=3))
    assert took(judge, ROLE + A) == [2]
    assert judge.take(A + B + A, 0.0) == ([], BAD)


def test_a_filter_may_condemn_the_answer_as_a_whole() -> None:
    """It has seen how it closed."""
    strict = Script("strict", bad_end=True)
    judge = judging(strict)
    took(judge, ROLE + A + STOP)
    assert judge.finish(Complete()) == ([], BAD)
    assert strict.facts is not None
    assert strict.facts.finishes == (FinishFact(0, "stop"),)


def test_filters_also_see_what_mending_gives_back_at_the_end() -> None:
    """Half a character that stayed alone."""
    seeing, strict = Script("a"), Script("b", bad_at=2)
    judge = judging(seeing)
    took(judge, A, HALF)
    (rest,) = finished(judge)
    assert seeing.seen[2] == rest.data
    judge = judging(strict)
    took(judge, A, HALF)
    assert judge.finish(Complete()) == ([], BAD)


# --- facts, identity, attempts -------------------------------------------------------------------


def test_facts_and_identity_are_the_attempts() -> None:
    """Closing facts are no frames; implied ones count as well."""
    judge = judging(choices=2)
    assert judge.identity is None
    assert took(judge, ROLE, A, STOP) == [0, 2, 0]
    assert judge.identity == Identity("c1", 0)
    assert judge.facts is None
    assert finished(judge, Complete((Finish(1, "stop", ""),))) == []
    assert judge.facts == Facts((FinishFact(0, "stop"), FinishFact(1, "stop")), roles=frozenset({0}))  # fmt: skip


def test_a_new_attempt_begins_anew_behind_what_was_released() -> None:
    """Held frames, halves, roles, facts and filter state of the former one are forgotten; positions go on."""
    made: list[Script] = []

    def make() -> list[Script]:
        made.append(Script(f"f{len(made)}"))
        return [made[-1]]

    judge = Judge(HoldConfig(opening_chars=2), streams=True, held_bytes_max=1 << 16, make_filters=make)  # fmt: skip
    assert took(judge, ROLE, A, A + HALF, THOUGHT) == [0, 0, 4, 1]
    judge.begin()
    assert (judge.tail.released, judge.tail.newest, judge.tail.held_bytes) == (5, 5, 0)
    assert judge.identity is None
    assert took(judge, ROLE, A, A) == [0, 0, 3]
    assert (judge.tail.released, len(made[0].seen), len(made[1].seen)) == (8, 5, 3)
    assert finished(judge) == []


def test_what_a_failed_attempt_held_is_dropped() -> None:
    """Its bytes count no more, nor its facts."""
    judge = judging(streams=False)
    took(judge, ROLE, A)
    assert (judge.tail.newest, judge.tail.held_bytes) == (2, ROLE[0].size + A[0].size)
    judge.drop()
    assert (judge.tail.newest, judge.tail.held_bytes) == (0, 0)
    took(judge, ROLE, A, STOP)
    finished(judge)
    judge.drop()
    assert judge.facts is None


@pytest.mark.parametrize(("room", "fits"), [(0, True), (-1, False)])
def test_held_bytes_have_a_cap(room: int, *, fits: bool) -> None:
    """The raw bytes of what is held after the release, to the byte."""
    size = ROLE[0].size + BLANK[0].size
    judge = judging(held_bytes_max=size + room)
    frames, failure = judge.take(ROLE + BLANK, 0.0)
    assert frames == []
    assert failure == (None if fits else Failure(FailureKind.HELD_LIMIT))
    assert took(judging(held_bytes_max=9), ROLE + A) == [2]


def test_what_has_passed_leaves_before_a_cap_condemns_the_rest() -> None:
    """The frames that may go are told together with the failure: nothing is lost in between."""
    judge = judging(Script("back", back=2), held_bytes_max=ROLE[0].size)
    frames, failure = judge.take(ROLE + A + B + B, 0.0)
    assert [frame.data for frame in frames] == [ROLE[0].data, A[0].data]
    assert failure == Failure(FailureKind.HELD_LIMIT)


def test_a_batch_that_leaves_nothing_is_no_news() -> None:
    """A repeated role, a finish: no filter is asked."""
    seeing = Script("a")
    judge = judging(seeing)
    assert took(judge, ROLE, frames_of(b'{"role":"assistant"}'), STOP, BLANK) == [0, 0, 0, 0]
    assert len(seeing.seen) == 2


def test_a_filter_that_only_observes_holds_and_condemns_nothing() -> None:
    """It sees every frame and the facts; what it says changes nothing."""
    watcher = Script("watcher", back=9, bad_at=1, bad_end=True, gating=False)
    judge = judging(watcher)
    assert took(judge, ROLE, A, B) == [0, 2, 1]
    assert judge.finish(Complete()) == ([], None)
    assert len(watcher.seen) == 3
    assert watcher.facts is not None


def test_a_cap_may_let_go_instead_of_failing() -> None:
    """What the filters have passed leaves, and the rest of the exchange is live, over attempts too."""
    hold = HoldConfig(mode="buffered", over_cap="release")
    judge = judging(hold=hold, held_bytes_max=300)
    assert took_once(judge, ROLE + A) == []
    assert len(took_once(judge, A + A + A)) == 5
    assert len(took_once(judge, B)) == 1
    judge.begin()
    assert len(took_once(judge, A)) == 1


def test_a_cap_that_frees_nothing_is_a_failure_all_the_same() -> None:
    """A filter holds it, or the caller gets one JSON object."""
    hold = HoldConfig(over_cap="release")
    stubborn = judging(Script("stubborn", back=99), hold=hold, held_bytes_max=9)
    assert stubborn.take(ROLE + A, 0.0) == ([], Failure(FailureKind.HELD_LIMIT))
    whole = judging(hold=hold, streams=False, held_bytes_max=9)
    assert whole.take(ROLE + A, 0.0) == ([], Failure(FailureKind.HELD_LIMIT))


def test_what_is_held_for_its_age_leaves_when_it_is_old_enough() -> None:
    """`wake` names the time; without anything held there is none."""
    judge = judging(hold=HoldConfig(mode="window", tail_ms=500))
    assert judge.wake() is None
    assert took_once(judge, ROLE + A) == []
    assert judge.wake() == 0.5
    assert len(judge.tick(0.5)) == 2
    assert judge.wake() is None


def took_once(judge: Judge, batch: list[Frame]) -> list[Frame]:
    """What one batch released."""
    frames, failure = judge.take(batch, 0.0)
    assert failure is None
    return frames


def test_a_choice_that_nobody_asked_for_has_no_ending_to_tell() -> None:
    """A provider that finishes more choices than the request has."""
    judge = judging()
    assert took(judge, ROLE, A, STOP) == [0, 2, 0]
    finished(judge, Complete((Finish(1, "stop", ""),)))
    assert judge.facts is not None
    assert [fact.choice for fact in judge.facts.finishes] == [0]


# --- tool calls that are not whole yet -----------------------------------------------------------

PART = frames_of(b'{"tool_calls":[{"index":0,"id":"t","type":"function","function":{"name":"f","arguments":"{"}}]}')  # fmt: skip


def test_a_call_that_is_held_counts_against_the_cap_and_in_the_ledger() -> None:
    """Mending holds it; a failure forgets it."""
    judge = judging(held_bytes_max=300)
    assert took(judge, ROLE, PART) == [0, 0]
    assert judge.ledger_bytes > judge.tail.ledger_bytes + 1_024
    frames, failure = judge.take(PART, 0.0)
    assert frames == []
    assert failure is not None
    assert failure.kind is FailureKind.HELD_LIMIT
    judge.fail(failure)
    assert judge.ledger_bytes == 0


def test_a_whole_call_opens_the_stream() -> None:
    """Once the next one begins."""
    whole = PART[0].data.replace(b'"{"', b'"{}"').replace(b'"id":"t"', b'"id":"s"')
    reader = ChatStreamReader(choices=1, event_bytes_max=1 << 16)
    calls = reader.feed(b"data: %b\n\ndata: %b\n\n" % (whole, PART[0].data.replace(b'"index":0,"id"', b'"index":1,"id"')))  # fmt: skip
    assert took(judging(), ROLE, calls.frames[:1], calls.frames[1:]) == [0, 0, 2]


def test_nothing_goes_on_behind_a_call_that_has_begun() -> None:
    """Nobody can take it up again."""
    for held, resumes in ((A, True), (PART, False)):
        judge = Judge(HoldConfig(), streams=True, held_bytes_max=1 << 16, continuable=Continuable({}, ()), make_filters=list)  # fmt: skip
        took(judge, ROLE, A, held)
        judge.fail(Failure(FailureKind.CUT))
        assert (judge.resume is not None) is resumes


def test_who_said_something_is_told_by_name() -> None:
    """The filter that condemned the attempt, and the one that only saw it."""
    judge = judging(Script("a", back=1), Script("b", bad_at=1), Script("c", bad_at=1, gating=False))
    judge.take(ROLE, 0.0)
    assert (judge.judged_by, judge.remarks) == ("", [])
    _, failure = judge.take(A, 0.0)
    assert failure == BAD
    assert (judge.judged_by, judge.remarks) == ("b", [Remark("c", "c")])
    judge.begin()
    assert judge.judged_by == ""


def test_many_frames_are_judged_in_steps_and_nothing_follows_a_failure() -> None:
    """A failure keeps back its own step; what left before it has left, as if it had come before."""
    frames = A * (3 * STEP_FRAMES_MAX)
    steps = list(judging().steps(frames, 0.0))
    assert [(len(released), failure) for released, failure in steps] == [(STEP_FRAMES_MAX, None)] * 3  # fmt: skip
    bad_at = STEP_FRAMES_MAX + 1
    steps = list(judging(Script("strict", bad_at=bad_at)).steps(frames, 0.0))
    assert [(len(released), failure) for released, failure in steps] == [(STEP_FRAMES_MAX, None), (0, BAD)]  # fmt: skip
    released, failure = judging(Script("strict", bad_at=bad_at)).take(frames, 0.0)
    assert (len(released), failure) == (STEP_FRAMES_MAX, BAD)
    assert list(judging().steps([], 0.0)) == [([], None)]
