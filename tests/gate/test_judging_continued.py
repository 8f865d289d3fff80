"""Judging an answer that goes on: what a failed attempt leaves, how the next one joins it, and that every filter sees one answer."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gate.config import HoldConfig
from gate.continuable import Continuable
from gate.events import Complete, Facts, Finish, Frame, Identity, Resume
from gate.failure import Failure, FailureKind
from gate.filters.contract import Passed, Verdict, Violated
from gate.judging import Judge
from gate.plan import Cursor
from gate.reader import ChatStreamReader
from gate.seam import SeamKind
from gate.transcript import text_bytes, text_of

CUT: Final = Failure(FailureKind.CUT)
LOOP: Final = Failure(FailureKind.REPETITION)
RESTARTED: Final = Failure(FailureKind.RESTARTED)
HELD_LIMIT: Final = Failure(FailureKind.HELD_LIMIT)
WINDOW: Final = HoldConfig(mode="window", tail_chars=8)
BUFFERED: Final = HoldConfig(mode="buffered")
WORDS: Final = ("The", " quick", " brown", " fox", " jumps")
SAID: Final = "".join(WORDS)


def chunks(*deltas: dict[str, Any], name: str = "c1", usage: object = None) -> list[Frame]:
    """One chunk for each delta; a report of usage stands in the last."""
    values: list[dict[str, Any]] = [
        {"id": name, "choices": [{"index": 0, "delta": delta}]} for delta in deltas
    ]
    values[-1:] = [{**each, "usage": usage} if usage is not None else each for each in values[-1:]]
    reader = ChatStreamReader(choices=1, event_bytes_max=1 << 16)
    return reader.feed(b"".join(b"data: %b\n\n" % json.dumps(value).encode() for value in values)).frames  # fmt: skip


def said(*words: str, name: str = "c1", usage: object = None) -> list[Frame]:
    """One chunk for each word, behind a role."""
    role = {"role": "assistant", "content": ""}
    return chunks(role, *({"content": word} for word in words), name=name, usage=usage)


def text(frames: Sequence[Frame]) -> str:
    """The text of frames."""
    return "".join(map(text_of, frames))


class Watch:
    """A filter that writes down what it sees, keeps frames back, and condemns the one that has a word."""

    name = "watch"
    gating = True
    notice: str | None = None

    def __init__(self, *, back: int = 0, bad: str = "\0") -> None:
        self.primed: str | None = None
        self.seen: list[str] = []
        self.first = -1
        self._back = back
        self._bad = bad

    def prime(self, text: str) -> None:
        assert not self.seen
        self.primed = text

    def observe(self, frames: Sequence[Frame], position: int) -> Verdict:
        if not self.seen:
            self.first = position
        assert position == self.first + len(self.seen)
        self.seen += [text_of(frame) for frame in frames]
        for number, frame in enumerate(frames):
            if self._bad in text_of(frame):
                return Violated(position + number, "watch", LOOP)
        return Passed(max(position + len(frames) - self._back, 0))

    def finish(self, position: int, facts: Facts) -> Verdict:
        return Passed(position)


class Judging:
    """A judge over several attempts, with everything that it released. `plans`: the filters of each attempt in turn."""

    def __init__(
        self,
        *plans: Watch,
        hold: HoldConfig = WINDOW,
        continuable: Continuable | None = Continuable({}, ()),  # noqa: B008
        **options: Any,
    ) -> None:
        self.filters: list[Watch] = []
        self._plans = list(plans)
        options = {"streams": True, "held_bytes_max": 1 << 16, **options}
        self.judge = Judge(hold, continuable=continuable, make_filters=self._make, **options)
        self.released: list[Frame] = []

    def _make(self) -> Sequence[Watch]:
        made = self._plans.pop(0) if self._plans else Watch()
        self.filters.append(made)
        return (made,)

    @property
    def text(self) -> str:
        """What the caller has seen."""
        return text(self.released)

    @property
    def cursor(self) -> Cursor | None:
        """Where another attempt may go on."""
        return None if self.judge.resume is None else self.judge.resume.cursor

    def take(self, frames: list[Frame], now: float = 0.0) -> Failure | None:
        """Frames arrive; as the evaluator does it, a failure condemns the attempt."""
        released, failure = self.judge.take(frames, now)
        self.released += released
        if failure is not None:
            self.judge.fail(failure)
        return failure

    def end(self) -> Facts:
        """The attempt is complete, and good."""
        released, failure = self.judge.finish(Complete((Finish(0, "stop", ""),)))
        assert failure is None
        self.released += released
        assert self.judge.facts is not None
        return self.judge.facts

    def loses_and_goes_on(self) -> None:
        """The ordinary beginning: three words are seen and two are kept."""
        assert self.lose(said(*WORDS)) is not None
        self.judge.go_on()

    def lose(self, frames: list[Frame], failure: Failure = CUT) -> Resume | None:
        """An attempt that brings these and fails."""
        assert self.take(frames) is None
        self.judge.fail(failure)
        return self.judge.resume


# --- what a failure leaves -----------------------------------------------------------------------


def test_a_cut_attempt_leaves_what_has_passed_and_is_held() -> None:
    """The caller has seen a part of it; nothing more goes until the seam is judged."""
    judging = Judging()
    resume = judging.lose(said(*WORDS, " "))
    assert judging.text == "The quick brown"
    assert resume == Resume(Cursor(6, len(SAID)), SAID, held=True, produced=5)
    assert (judging.judge.tail.released, judging.judge.tail.newest) == (4, 6)
    assert judging.judge.tick(99.0) == []
    assert judging.judge.wake() is None
    assert judging.judge.facts is None


def test_what_is_kept_is_in_the_ledger() -> None:
    """The transcript, the held frames, the text of the resume point; nothing twice, nothing after a drop."""
    judging = Judging()
    judge = judging.judge
    assert judge.ledger_bytes == 0
    judging.take(said(*WORDS))
    seen = judge.ledger_bytes - judge.tail.ledger_bytes
    assert seen == sum(text_bytes(word) + 8 for word in WORDS[:3])
    judge.fail(CUT)
    assert judge.ledger_bytes == judge.tail.ledger_bytes + seen + text_bytes(SAID)
    judge.go_on()
    before = judge.ledger_bytes
    judging.take(chunks({"content": " ov"}))
    seam = chunks({"content": " ov"})[0].size + 384
    assert judge.ledger_bytes == before + seam
    judge.drop()
    assert judge.ledger_bytes == seen + seam


@pytest.mark.parametrize(
    "failure",
    [
        Failure(FailureKind.TOTAL),
        Failure(FailureKind.DENIED),
        Failure(FailureKind.REFUSED, 400),
        Failure(FailureKind.CONTENT_FILTER),
        HELD_LIMIT,
    ],
)
def test_a_failure_that_nobody_goes_on_after_leaves_nothing(failure: Failure) -> None:
    """An answer, a limit, a deadline."""
    judging = Judging()
    assert judging.lose(said(*WORDS), failure) is None
    assert (judging.judge.tail.newest, judging.judge.tail.held_bytes) == (4, 0)


def test_where_the_request_rules_it_out_nothing_is_kept() -> None:
    """Not even the text."""
    judging = Judging(continuable=None)
    assert judging.lose(said(*WORDS)) is None
    assert judging.judge.ledger_bytes == 0
    assert not judging.judge.forget()


@pytest.mark.parametrize(("failure", "kept"), [(CUT, False), (LOOP, True)])
def test_before_a_release_only_a_loop_leaves_something(failure: Failure, *, kept: bool) -> None:
    """After any other failure the request is sent again as it is."""
    judging = Judging(hold=BUFFERED)
    resume = judging.lose(said(*WORDS), failure)
    assert (resume is not None) is kept
    assert len(judging.judge.tail) == (6 if kept else 0)


def test_a_violation_bounds_what_is_kept() -> None:
    """What was good before the frame that is condemned, also within one batch; the rest goes."""
    judging = Judging(Watch(bad="jumps"), hold=BUFFERED)
    assert judging.take(said(*WORDS, " over")) == LOOP
    assert judging.judge.resume == Resume(
        Cursor(5, 19), "The quick brown fox", held=True, produced=4
    )
    assert judging.judge.tail.newest == 5


def test_what_a_filter_has_not_passed_is_not_kept() -> None:
    """Neither where another filter condemns, nor where the attempt breaks."""
    judging = Judging(Watch(back=2))
    resume = judging.lose(said(*WORDS))
    assert resume is not None
    assert resume.text == "The quick brown"
    judging = Judging(Watch(back=99))
    assert judging.lose(said(*WORDS)) is None


def test_a_second_failure_of_one_attempt_changes_nothing() -> None:
    """It was condemned, and then it also broke."""
    judging = Judging(Watch(bad="jumps"))
    judging.take(said(*WORDS))
    resume = judging.judge.resume
    judging.judge.fail(Failure(FailureKind.TOTAL))
    assert judging.judge.resume is resume
    assert resume is not None


def test_stop_strings_of_the_request_are_no_place_to_go_on() -> None:
    """Their beginning may be one."""
    judging = Judging(continuable=Continuable({}, ("fox jumps over",)))
    resume = judging.lose(said(*WORDS))
    assert resume is not None
    assert resume.text == "The quick brown"


def test_a_live_stream_keeps_one_frame_back() -> None:
    """While nobody could go on behind it; a batch goes but for its last frame."""
    for continuable, times in ((Continuable({}, ()), [2, 0, 1, 2]), (None, [2, 1, 1, 1])):
        judging = Judging(hold=HoldConfig(), continuable=continuable)
        counts = []
        for frames in (said("a"), *[chunks({"content": word}) for word in (" ", " ", "b")]):
            before = len(judging.released)
            judging.take(frames)
            counts.append(len(judging.released) - before)
        assert counts == times
        assert judging.take(said()) is None
    judging = Judging(hold=HoldConfig())
    judging.take(said("a", "b", " "))
    assert judging.text == "ab"
    assert judging.judge.finish(Complete())[0] != []


# --- going on ------------------------------------------------------------------------------------


def test_an_attempt_goes_on_behind_what_was_kept() -> None:
    """Positions go on, the role is not said again, and the caller gets one text."""
    judging = Judging()
    judging.lose(said(*WORDS, " ", name="c1"))
    judging.judge.go_on()
    assert judging.take(said(" over", " it.", name="c2")) is None
    assert judging.text == "The quick brown"
    facts = judging.end()
    assert judging.judge.seam_kind is SeamKind.JOINED
    assert judging.text == SAID + " over it."
    assert judging.judge.tail.released == 8
    assert b"".join(frame.data for frame in judging.released).count(b'"role"') == 1
    assert facts.roles == {0}


def test_nothing_is_released_until_the_seam_is_judged() -> None:
    """Neither by time nor by what has come; the frames that were kept wait too, and then go with the new ones."""
    judging = Judging(hold=HoldConfig(mode="window", tail_ms=10), seam_chars=12)
    judging.take(said(*WORDS[:2]), 0.0)
    judging.released += judging.judge.tick(1.0)
    assert judging.text == "The quick"
    assert judging.lose(chunks({"content": " brown"}, {"content": " fox"})) is not None
    judge = judging.judge
    assert (judge.tick(99.0), judge.wake()) == ([], None)
    judge.go_on()
    judging.take(said(" jumps"), 5.0)
    assert [judge.wake(), judge.answered(), judge.seam_kind, *judge.tick(99.0)] == [None] * 3
    judging.take(chunks({"content": " over a"}), 6.0)
    assert judge.seam_kind is SeamKind.JOINED
    assert (judging.text, judge.wake()) == ("The quick", 6.01)
    assert text(judge.tick(6.01)) == " brown fox jumps over a"


def test_filters_see_one_answer() -> None:
    """Primed with what was released, they judge what was kept again, together with what is new."""
    judging = Judging()
    judging.lose(said(*WORDS, " "))
    judging.judge.go_on()
    judging.take(chunks({"content": " over" + "." * 60}))
    first, second = judging.filters
    assert first.seen == ["", *WORDS, " "]
    assert (second.primed, second.first) == ("The quick brown", 4)
    assert second.seen == [" fox", " jumps", " over" + "." * 60]


def test_the_opening_is_not_waited_for_again() -> None:
    """The stream has begun; where it has not, it is."""
    for opening, seen in ((1, SAID + " over"), (99, "")):
        hold = HoldConfig(opening_chars=opening)
        judging = Judging(Watch(back=1), hold=hold, seam_chars=0)
        judging.lose(said(*WORDS, "!"), LOOP)
        assert judging.text == (SAID if seen else "")
        judging.judge.go_on()
        judging.take(said(" over"))
        assert judging.text == seen


def test_what_was_kept_can_be_condemned_with_what_is_new() -> None:
    """The filter sees more now; nothing of either is shown, and a place before both is gone back to."""
    judging = Judging(Watch(), Watch(bad="fox"), seam_chars=0)
    judging.loses_and_goes_on()
    assert judging.take(said(" over")) == LOOP
    assert judging.text == "The quick brown"
    assert judging.judge.resume == Resume(Cursor(4, 15), "The quick brown", held=False, produced=3)
    assert judging.judge.tail.held_bytes == 0


def test_an_attempt_that_began_anew_leaves_what_was_kept() -> None:
    """It failed; the next one goes on from the same place."""
    judging = Judging()
    resume = judging.lose(said(*WORDS))
    judging.judge.go_on()
    assert judging.take(said("The quick brown dog")) == RESTARTED
    assert judging.judge.seam_kind is SeamKind.RESTARTED
    assert judging.judge.resume is resume
    judging.judge.go_on()
    assert judging.judge.seam_kind is None
    judging.take(said(" over"))
    judging.end()
    assert judging.text == SAID + " over"


def test_an_attempt_may_turn_out_to_have_begun_anew_only_at_its_end() -> None:
    """All of it is the prefix's own beginning, and not all of that."""
    judging = Judging()
    judging.loses_and_goes_on()
    judging.take(said("The quick brown "))
    assert judging.judge.finish(Complete()) == ([], RESTARTED)
    judging.judge.fail(RESTARTED)
    assert judging.judge.facts is None


@pytest.mark.parametrize("failure", [CUT, Failure(FailureKind.TOTAL), Failure(FailureKind.REFUSED, 400)])  # fmt: skip
def test_a_failure_before_the_seam_leaves_what_was_kept(failure: Failure) -> None:
    """Whatever it is: nothing of that attempt has joined."""
    judging = Judging()
    resume = judging.lose(said(*WORDS))
    held = judging.judge.tail.held_bytes
    judging.judge.go_on()
    assert judging.lose(said(" ov"), failure) is resume
    assert judging.judge.tail.held_bytes == held
    judging.judge.go_on()
    judging.take(said(" over", " it."))
    judging.end()
    assert judging.text == SAID + " over it."


def test_continuations_follow_each_other() -> None:
    """Each from all that is kept; the text so far is the prefix of the next."""
    judging = Judging(seam_chars=0)
    judging.loses_and_goes_on()
    resume = judging.lose(said(" over", " the", " lazy", name="c2"))
    assert resume is not None
    assert resume.text == SAID + " over the lazy"
    assert (resume.cursor.position, resume.produced) == (9, 8)
    judging.judge.go_on()
    judging.take(said(" dog", name="c3"))
    judging.end()
    assert judging.text == SAID + " over the lazy dog"
    assert judging.filters[2].primed == "The quick brown fox jumps over"


def test_text_that_is_said_twice_is_judged_once() -> None:
    """An echo reaches no filter."""
    judging = Judging()
    judging.loses_and_goes_on()
    judging.take(said(SAID, " over"))
    assert judging.judge.seam_kind is SeamKind.ECHO
    assert judging.filters[1].seen == [" fox", " jumps", " over"]
    judging = Judging(hold=HoldConfig())
    judging.lose(said("a", "b", " "))
    judging.judge.go_on()
    assert judging.take(said("ab")) is None
    assert (judging.text, judging.judge.seam_kind) == ("ab", SeamKind.ECHO)


# --- caps ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("over_cap", ["fail", "release"])
def test_a_cap_counts_what_waits_for_the_seam(over_cap: Any) -> None:
    """It can't be let go before it is judged, whatever the route says."""
    hold = HoldConfig(mode="window", tail_chars=8, over_cap=over_cap)
    kept = sum(frame.size for frame in said(*WORDS)[4:])
    new = chunks({"content": " over"})
    for room, failure in ((0, None), (-1, HELD_LIMIT)):
        judging = Judging(hold=hold)
        judging.loses_and_goes_on()
        judging.judge._held_bytes_max = kept + new[0].size + room
        assert judging.take(list(new)) == failure
        assert judging.text == "The quick brown"


def test_a_cap_that_let_go_stays_open_over_the_seam() -> None:
    """The rest of the exchange is live."""
    hold = HoldConfig(mode="window", tail_chars=99, over_cap="release")
    judging = Judging(hold=hold, held_bytes_max=300, seam_chars=0)
    assert judging.lose(said(*WORDS)) is not None
    assert judging.text == SAID
    judging.judge.go_on()
    judging.take(said(" over"))
    assert judging.text == SAID + " over"


# --- forgetting ----------------------------------------------------------------------------------


def test_what_a_continuation_needs_may_be_forgotten() -> None:
    """The stream goes on; from then on nobody can go on from it, and what was kept for that after a failure goes too."""
    judging = Judging()
    judging.take(said(*WORDS))
    assert judging.judge.forget()
    assert not judging.judge.forget()
    judging.take(chunks({"content": " over it"}))
    assert judging.text == SAID
    assert judging.judge.ledger_bytes == judging.judge.tail.ledger_bytes
    judging.judge.fail(CUT)
    assert (judging.judge.resume, len(judging.judge.tail)) == (None, 0)
    judging = Judging()
    judging.lose(said(*WORDS))
    assert judging.judge.forget()
    assert (judging.judge.resume, judging.judge.ledger_bytes) == (None, 0)


def test_an_attempt_that_goes_on_may_still_do_so_when_there_is_no_room_for_another() -> None:
    """Its seam is judged; but if it breaks before that, it was the last."""
    judging = Judging()
    judging.loses_and_goes_on()
    assert judging.judge.forget()
    judging.take(said(" over"))
    judging.end()
    assert judging.text == SAID + " over"
    judging = Judging()
    judging.loses_and_goes_on()
    assert judging.judge.forget()
    assert judging.lose(said(" ov")) is None
    assert len(judging.judge.tail) == 0


# --- identity ------------------------------------------------------------------------------------


def test_an_answer_has_the_identity_of_the_attempt_that_began_it() -> None:
    """Before and after the seam."""
    judging = Judging()
    judging.lose(said(*WORDS, name="c1"))
    judging.judge.go_on()
    assert judging.judge.identity == Identity("c1", 0)
    judging.take(said(" over", name="c2"))
    judging.end()
    assert judging.judge.identity == Identity("c1", 0)


def test_an_answer_that_begins_anew_has_an_identity_of_its_own() -> None:
    """Although something was kept to go on from: another provider was asked first."""
    judging = Judging(hold=BUFFERED)
    assert judging.lose(said(*WORDS, name="c1"), LOOP) is not None
    judging.judge.begin()
    assert judging.judge.identity is None
    judging.take(said("A", name="c2"))
    assert judging.judge.identity == Identity("c2", 0)
    judging.end()
    assert judging.text == "A"


# --- usage ---------------------------------------------------------------------------------------


def usage(prompt: int, completion: int) -> dict[str, object]:
    """A report."""
    return {"prompt_tokens": prompt, "completion_tokens": completion, "x": 1}


def used(facts: Facts) -> tuple[int, int]:
    """Prompt and completion."""
    value = json.loads(facts.usage)
    return value["prompt_tokens"], value["completion_tokens"]


@pytest.mark.parametrize(
    ("first", "joined"), [(None, (15, 7)), (usage(10, 6), (10, 8)), (usage(10, 0), (10, 7))]
)
def test_usage_is_joined_over_the_attempts_that_contributed(
    first: object, joined: tuple[int, int]
) -> None:
    """As reported, else a token for each frame that was kept."""
    judging = Judging()
    resume = judging.lose(said(*WORDS, " ", usage=first))
    assert resume is not None
    assert resume.produced == joined[1] - 2
    judging.judge.go_on()
    judging.take(said(" over", " it.", usage=usage(20, 2)))
    assert used(judging.end()) == joined


def test_an_attempt_that_contributed_nothing_has_no_share() -> None:
    """It broke before its seam, or behind it with nothing that was kept."""
    judging = Judging(seam_chars=0)
    judging.loses_and_goes_on()
    judging.lose(said(usage=usage(1, 90)))
    judging.judge.go_on()
    judging.lose(said(" ", "\n", usage=usage(1, 90)))
    judging.judge.go_on()
    judging.take(said(" over", usage=usage(20, 2)))
    assert used(judging.end()) == (15, 7)


def test_text_that_was_given_up_since_is_in_no_share() -> None:
    """A later attempt was condemned for what an earlier one had said, and the answer goes on from before that."""
    judging = Judging(Watch(), Watch(bad="jumps"), seam_chars=0)
    judging.loses_and_goes_on()
    judging.take(said(" over"))
    resume = judging.judge.resume
    assert resume is not None
    assert (resume.text, resume.produced) == ("The quick brown fox", 4)
    judging.judge.go_on()
    judging.take(said(" sits", usage=usage(20, 1)))
    assert used(judging.end()) == (16, 5)


def test_an_attempt_of_which_nothing_is_left_has_no_share() -> None:
    """All that it added was given up."""
    judging = Judging(Watch(), Watch(), Watch(bad="over"), seam_chars=0)
    judging.loses_and_goes_on()
    second = judging.lose(said(" over", " it", usage=usage(1, 90)))
    assert second is not None
    assert second.produced == 5 + 90
    judging.judge.go_on()
    judging.take(said(" all"))
    resume = judging.judge.resume
    assert resume is not None
    assert (resume.text, resume.produced) == (SAID, 5)


def test_an_answer_that_one_attempt_gave_keeps_its_report() -> None:
    """Byte for byte, after others that failed too."""
    judging = Judging(hold=BUFFERED)
    judging.lose(said(*WORDS), LOOP)
    judging.judge.begin()
    judging.take(said("A", usage=usage(20, 2)))
    assert judging.end().usage == json.dumps(usage(20, 2)).encode()


# --- for every cut -------------------------------------------------------------------------------

words = st.lists(st.sampled_from(("ab", " cd", " ", "ef", "\n", "g.")), min_size=1, max_size=10)
fresh = st.lists(st.sampled_from(("XY", " ZW", " ", "V!")), max_size=6)
holds = st.sampled_from((HoldConfig(), WINDOW, HoldConfig(mode="window", tail_chars=3)))


@given(words, fresh, holds, st.sampled_from((0, 3, 64)))
def test_what_the_caller_sees_is_what_was_kept_and_what_came_then(
    first: list[str], second: list[str], hold: HoldConfig, seam_chars: int
) -> None:
    """Under every hold: what was shown is the beginning of what is kept, and the whole is that and the new text."""
    judging = Judging(hold=hold, seam_chars=seam_chars)
    resume = judging.lose(said(*first))
    seen = judging.text
    if resume is None:
        assert len(judging.judge.tail) == 0
        return
    assert "".join(first).startswith(resume.text)
    assert resume.text.startswith(seen)
    assert resume.held == (len(resume.text) > len(seen))
    judging.judge.go_on()
    for word in second:
        assert judging.take(chunks({"content": word})) is None
    judging.end()
    assert judging.text == resume.text + "".join(second)
