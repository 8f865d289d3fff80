"""Judging with the steps of mending that a route or a request asks for: what they hold counts, and filters see what the caller will."""

from __future__ import annotations

from collections.abc import Sequence

from gate.config import HoldConfig
from gate.continuable import Continuable
from gate.events import Complete, Facts, Finish, Frame, ReasoningDelta
from gate.failure import Failure, FailureKind
from gate.filters.builtin import make_filters
from gate.filters.contract import FilterContext, Passed, Verdict
from gate.judging import Judge, Remark
from gate.mending_format import format_mender
from gate.reader import ChatStreamReader
from gate.seam import SeamKind
from gate.transcript import text_of

CUT = Failure(FailureKind.CUT)


def said(*words: str) -> list[Frame]:
    """One chunk of text each."""
    reader = ChatStreamReader(choices=1, event_bytes_max=1 << 16)
    payload = 'data: {"choices":[{"index":0,"delta":{"content":"%s"}}]}\n\n'
    return reader.feed("".join(payload % word for word in words).encode()).frames


class Watch:
    """A filter that passes everything and keeps what it saw."""

    name = "watch"
    gating = True
    notice: str | None = None

    def __init__(self) -> None:
        self.text = ""
        self.thought = ""

    def observe(self, frames: Sequence[Frame], position: int) -> Verdict:
        for frame in frames:
            self.text += text_of(frame)
            for event in frame.events:
                if isinstance(event, ReasoningDelta):
                    self.thought += event.text
        return Passed(position + len(frames))

    def finish(self, position: int, facts: Facts) -> Verdict:
        return Passed(position)


class Judging:
    """A judge of one exchange with such a filter for each attempt."""

    def __init__(self, *, held_bytes_max: int = 1 << 16, tail_chars: int = 0) -> None:
        self.watches: list[Watch] = []
        hold = HoldConfig(mode="window", tail_chars=tail_chars) if tail_chars else HoldConfig()
        self.judge = Judge(
            hold,
            streams=True,
            held_bytes_max=held_bytes_max,
            think_tags=True,
            continuable=Continuable({}, ()),
            make_filters=self._make,
        )

    def _make(self) -> Sequence[Watch]:
        self.watches.append(Watch())
        return self.watches[-1:]


# --- think tags ----------------------------------------------------------------------------------


def test_filters_see_reasoning_where_the_tags_were() -> None:
    """What is held for a tag is judged and released at the end."""
    judging = Judging()
    released, failure = judging.judge.take(said("<think>a", "</think>b", " <"), 0.0)
    assert (len(released), failure) == (2, None)
    released, failure = judging.judge.finish(Complete())
    assert (len(released), failure) == (1, None)
    assert (judging.watches[0].thought, judging.watches[0].text) == ("a", "b <")


def test_what_a_step_holds_is_accounted() -> None:
    """In the ledger, and under the cap."""
    frames = said("a", " <")
    judging = Judging(held_bytes_max=frames[1].size)
    before = judging.judge.ledger_bytes
    released, failure = judging.judge.take(frames, 0.0)
    assert (text_of(released[0]), len(released), failure) == ("a", 1, None)
    assert judging.judge.ledger_bytes > before + frames[1].size
    over = Judging(held_bytes_max=frames[1].size - 1)
    assert over.judge.take(frames, 0.0)[1] == Failure(FailureKind.HELD_LIMIT)


def test_a_continuation_that_thinks_again_has_begun_anew() -> None:
    """Its tags say so, like reasoning of its own."""
    judging = Judging(tail_chars=4)
    judging.judge.take(said("One", " two", " three"), 0.0)
    judging.judge.fail(CUT)
    assert judging.judge.resume is not None
    judging.judge.go_on()
    _, failure = judging.judge.take(said("<think>Again."), 0.0)
    assert failure == Failure(FailureKind.RESTARTED)
    assert judging.judge.seam_kind is SeamKind.RESTARTED


def test_a_continuation_of_words_about_tags_keeps_them() -> None:
    """The opening tag stands in what was said before."""
    judging = Judging(tail_chars=4)
    judging.judge.take(said("A <think> tag", " ends", " with"), 0.0)
    judging.judge.fail(CUT)
    judging.judge.go_on()
    judging.judge.take(said(" the words </think>."), 0.0)
    frames, failure = judging.judge.finish(Complete())
    assert failure is None
    assert text_of(frames[-1]).endswith("</think>.")


# --- an answer to a request with a format ----------------------------------------------------------


NAMES = ("empty", "structured_output")


def formatted(*frames: Frame, ceiling: int = 0) -> tuple[Judge, list[Frame], Failure | None]:
    """What becomes of an answer that has to be a JSON object."""
    context = FilterContext(1, {"type": "json_object"}, "repair", ceiling=ceiling)
    judge = Judge(
        HoldConfig(),
        streams=True,
        held_bytes_max=1 << 16,
        format_mender=format_mender(NAMES, context, "reasoning_content"),
        make_filters=lambda: make_filters(NAMES, context),
    )
    assert judge.take(list(frames), 0.0) == ([], None)
    released, failure = judge.finish(Complete((Finish(0, "stop", ""),)))
    return judge, released, failure


def test_an_answer_in_a_fence_is_judged_without_it() -> None:
    """By fresh filters; positions are those of the frames that leave, and operators are told."""
    judge, released, failure = formatted(*said("```json\\n", "{", "}", "\\n```"))
    assert failure is None
    assert [text_of(frame) for frame in released] == ["", "{", "}"]  # the first says the role
    assert (judge.tail.released, [each.code for each in judge.remarks]) == (3, ["format_unwrapped"])


def test_json_that_was_thought_is_an_answer() -> None:
    """Not an empty one."""
    payload = (
        b'data: {"choices":[{"index":0,"delta":{"content":null,"reasoning_content":"{}"}}]}\n\n'
    )
    frames = ChatStreamReader(choices=1, event_bytes_max=1 << 16).feed(payload).frames
    judge, released, failure = formatted(*frames)
    assert (text_of(released[0]), failure) == ("{}", None)
    assert judge.remarks == [Remark("structured_output", "format_promoted")]


def test_what_does_not_fit_without_its_fence_is_a_violation_all_the_same() -> None:
    """Of what is left of it."""
    judge, released, failure = formatted(*said("```", "[1]", "```"))
    assert released == []
    assert failure == Failure(FailureKind.OUTPUT_INVALID, verdict="schema_mismatch")
    assert judge.notes[0].excerpt == "[1]"


def test_an_answer_that_was_cut_at_the_ceiling_leaves_as_it_is() -> None:
    """Its finish says so."""
    usage = b'data: {"choices":[],"usage":{"completion_tokens":5}}\n\n'
    frames = ChatStreamReader(choices=1, event_bytes_max=1 << 16).feed(usage).frames
    judge, released, failure = formatted(*said("{"), *frames, ceiling=5)
    assert (text_of(released[0]), failure) == ("{", None)
    assert judge.facts is not None
    assert [fact.reason for fact in judge.facts.finishes] == ["length"]
