"""`repetition`: loops are cut, what only looks like one is not, and ordinary text is never held."""

from __future__ import annotations

import base64
import random
from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gate.config import FilterConfig
from gate.events import (
    AudioDelta,
    Event,
    Facts,
    Frame,
    ReasoningDelta,
    RoleDelta,
    TextDelta,
    ToolDelta,
)
from gate.failure import Failure, FailureKind
from gate.filters import repetition
from gate.filters.contract import FilterContext, Passed, Primed, Verdict, Violated
from gate.filters.repetition import CHANNELS_MAX, WINDOW_CHARS, RepetitionFilter

LOOP: Final = Failure(FailureKind.REPETITION, verdict="repetition_loop")
LEAD: Final = "The island is small. Nobody has counted the birds on it.\n"


def a_filter(*, chars_min: int = 0, repeats_min: int = 0) -> RepetitionFilter:
    """One attempt's, with these options in its table."""
    table = FilterConfig(kind="repetition", chars_min=chars_min, repeats_min=repeats_min)
    return RepetitionFilter(FilterContext(1, table=table))


def frame(*events: Event) -> Frame:
    """One frame of these events."""
    return Frame(b"{}", events, 2)


def body(text: str) -> list[Frame]:
    """A JSON body with this text."""
    return [Frame(b"{}", (TextDelta(0, text),), 2, whole=True)]


def texts(text: str, size: int = 4) -> list[Frame]:
    """`text` in deltas of `size` characters, one in each frame."""
    return [frame(TextDelta(0, text[at : at + size])) for at in range(0, len(text), size)]


def judged(judge: RepetitionFilter, frames: Sequence[Frame], *, batch: int = 1) -> Verdict:
    """The last verdict on these frames, in batches; a violation ends it."""
    for at in range(0, len(frames), batch):
        verdict = judge.observe(frames[at : at + batch], at)
        if isinstance(verdict, Violated):
            return verdict
    return judge.finish(len(frames), Facts())


def cut_after(text: str, **options: int) -> int | None:
    """How many characters it took to see a loop in `text`, or None."""
    judge = a_filter(**options)
    for at, each in enumerate(texts(text, 1)):
        if isinstance(judge.observe([each], at), Violated):
            return at + 1
    return None


@pytest.mark.parametrize(
    ("unit", "repeats"),
    [
        ("It has one tree. ", 21),
        ("the ", 66),
        ("!", 260),
        ("哈", 260),
        ("ha ", 90),
        ("\n", 70),
        (" \n", 45),
        ("\t", 260),
        ("-", 390),
        ("0, ", 130),
        ("<li>one more</li>\n", 21),
        ('{"a": 1, "b": [2, 3]}, ', 21),
        ("All that is left is to say it once more, in other words, and to say it well. " * 6, 10),
        ("= = = = = = = = = = = = = = = = = = = =\n and a half", 21),
    ],
)
def test_a_loop_is_cut_well_before_a_few_hundred_repeats(unit: str, repeats: int) -> None:
    """White space soonest for its line ends; lines and rows of digits last, because tables are made of them."""
    chars = cut_after(LEAD + unit * 600)
    assert chars is not None
    assert (chars - len(LEAD)) / len(unit) <= repeats


@pytest.mark.parametrize("size", [1, 3, 7, 40, 100])
def test_a_violation_begins_with_the_first_repeat(size: int) -> None:
    """The unit itself has been said once and may stay."""
    unit = "It has one tree. "
    verdict = judged(a_filter(), texts(LEAD + unit * 200, size))
    at, into = divmod(len(LEAD) + len(unit), size)
    rest = size - into  # a frame of which only a little is repeated stays
    at += rest < len(unit) and 2 * rest < size
    assert isinstance(verdict, Violated)
    assert verdict == Violated(at, "repetition_loop", LOOP, seen=verdict.seen)
    assert verdict.seen > at


@pytest.mark.parametrize(
    "text",
    [
        "".join(f"| {row} | yes | - | - | - |\n" for row in range(300)),
        "|" + "---|" * 40 + "\n" + ("| a | b " * 20 + "|\n") * 3,
        "".join(f"{number}, " for number in range(2000)),
        "0, " * 60 + "\n" + "1, " * 60,
        "- milk\n- bread\n- milk\n- bread\n- milk\n- eggs\n" * 3,
        base64.b64encode(b"".join(sha256(bytes([n])).digest() for n in range(250))).decode(),
        "".join(f"    def test_{n}(self):\n        self.assertEqual({n}, {n})\n\n" for n in range(90)),
        ("x" * 70 + "\n" + " " * 60 + "|\n") * 6,
        "+" + "-" * 270 + "+\n|" + " " * 228 + "|\n",
        "我爱你、我爱你、我爱你。" * 4 + "天地玄黄宇宙洪荒日月盈昃辰宿列张" * 3,
        "la la la la la la la la\n" * 8 + "".join(f"verse {n} of it\nla la la\n" for n in range(90)),
        "\n" * 12 + " " * 190 + "x" + "\n\n\n" * 12,
        "<div class='cell'></div>\n" * 16,
        "no " * 50 + "!",
    ],
    ids=range(14),
)  # fmt: skip
def test_what_only_looks_like_a_loop_is_none(text: str) -> None:
    """Tables, lists, code, drawings, base64, numbers, CJK, refrains."""
    for size in (1, 5, 3000):
        assert isinstance(judged(a_filter(), texts(text, size)), Passed)


def test_ordinary_text_is_never_held() -> None:
    """Everything that came has passed, whatever the frames carry."""
    words = random.Random(2)  # noqa: S311 - words, not secrets
    text = " ".join("".join(words.choices("etaoinshr", k=5)) for _ in range(3000))
    judge = a_filter()
    for at, each in enumerate(texts(text)):
        assert judge.observe([each, frame(RoleDelta(0, "assistant"))], 2 * at) == Passed(2 * at + 2)


def test_what_may_be_a_loop_is_held_until_it_breaks() -> None:
    """From two units on; then everything goes."""
    judge = a_filter()
    said = ["The island ", "is small.\n", *["It has one tree. "] * 5, "And then ", "it had none. "]
    passed = [judge.observe([frame(TextDelta(0, text))], at) for at, text in enumerate(said)]
    assert passed == [Passed(at) for at in (1, 2, 3, 4, 4, 4, 4, 8, 9)]


def test_what_came_in_one_read_is_held_from_the_first_repeat_on() -> None:
    """Nothing of it has passed yet, so nothing of the loop needs to."""
    frames = texts("Listen:\n" + "ho! " * 30, 4)
    assert a_filter().observe(frames, 10) == Passed(10 + 3)


def test_nothing_that_has_passed_is_taken_back() -> None:
    """A suspicion that begins in what was released holds what follows."""
    judge = a_filter()
    judge.prime("ho! " * 20)
    assert judge.observe(texts("ho! "), 40) == Passed(40)
    assert judge.observe(texts("But no. "), 41) == Passed(43)


def test_an_answer_that_is_gone_on_with_is_judged_with_what_was_seen_of_it() -> None:
    """The loop may have begun in the attempt before; of a long text only the end matters."""
    judge = a_filter()
    assert isinstance(judge, Primed)
    judge.prime("word " * 3 * WINDOW_CHARS + "Round and round. " * 18)
    verdict = judged(judge, texts("Round and round. " * 4))
    assert isinstance(verdict, Violated)


@pytest.mark.parametrize(
    "said",
    [
        lambda text: ReasoningDelta(0, text),
        lambda text: ToolDelta(0, 0, "", "", text),
        lambda text: AudioDelta(0, text),
    ],
)
def test_reasoning_tool_arguments_and_transcripts_are_channels_too(
    said: Callable[[str], Event],
) -> None:
    """White space without end inside of a JSON text is the best known of them."""
    pieces = ['{"city": "Par', *["\n"] * 400]
    verdict = judged(a_filter(), [frame(said(text)) for text in pieces])
    assert isinstance(verdict, Violated)
    assert verdict == Violated(2, "repetition_loop", LOOP, seen=verdict.seen)
    empty = [frame(ToolDelta(0, 0, "call", "f", None), AudioDelta(0))] * 900
    assert judged(a_filter(), empty) == Passed(900)


def test_channels_do_not_mix() -> None:
    """Two choices that say the same in turns are no loop, and neither are many calls."""
    frames = [
        frame(TextDelta(0, f"{n} green bottles "), TextDelta(1, f"{n} green bottles "))
        for n in range(900)
    ]
    assert judged(a_filter(), frames) == Passed(900)
    calls = [frame(ToolDelta(0, n, f"c{n}", "f", '{"n": 1}')) for n in range(CHANNELS_MAX + 90)]
    assert judged(a_filter(), calls) == Passed(len(calls))


def test_of_many_channels_the_oldest_is_let_go() -> None:
    """Its suspicion with it: what is watched at once has a bound."""
    judge = a_filter()
    assert judge.observe([frame(ToolDelta(0, -1, "", "", "ho! " * 20))], 0) == Passed(0)
    calls = [frame(ToolDelta(0, n, "", "", "{}")) for n in range(CHANNELS_MAX)]
    assert judge.observe(calls, 1) == Passed(1 + CHANNELS_MAX)


def test_places_are_kept_of_the_window_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """A long answer costs no more than a short one; what comes in one event neither."""
    monkeypatch.setattr(repetition, "MARKS_MAX", 64)
    text = "".join(f"line {n}\n" for n in range(4000))
    judge = a_filter()
    frames = texts(text + "again and again, " * 40)
    verdict = judged(judge, frames)
    assert isinstance(verdict, Violated)
    assert verdict.position == (len(text) + 17) // 4 + 1


def test_a_loop_that_comes_in_one_event_is_seen_at_once() -> None:
    """Its length does not matter."""
    for repeats in (22, 100, 9000):
        judge = a_filter(chars_min=40, repeats_min=2)
        assert isinstance(judge.observe(body("ab" * repeats), 0), Violated)


def test_one_event_may_be_padded_with_what_it_likes() -> None:
    """A model loops token by token; what one event says at once, or a body of one character, is somebody's padding."""
    for text in ("a" * 150_000, "round and round " * 9000):
        judge = a_filter()
        assert judge.observe(texts("Well: ", 99), 0) == Passed(1)
        assert judge.observe(texts(text, 200_000), 1) == Passed(1)
        assert judge.observe(texts("And so on."), 2) == Passed(5)
    assert a_filter().observe(body("a" * 9000), 0) == Passed(0)
    assert isinstance(a_filter().observe(body("\n" * 9000), 0), Violated)
    assert isinstance(judged(a_filter(), texts("round and round " * 900, 110)), Violated)


def test_a_loop_that_is_too_short_to_be_looked_at_waits_for_the_end() -> None:
    """The last look is at the end of the attempt."""
    judge = a_filter(chars_min=33)
    assert judge.observe(texts("Well now, " + "a" * 25), 0) == Passed(9)
    assert judge.observe(texts("a" * 20), 9) == Passed(14)
    assert isinstance(judge.finish(14, Facts()), Violated)


def test_the_table_says_from_when_on_it_is_a_loop() -> None:
    """Characters and repeats both count."""
    assert cut_after("x" * 30 + "abcdefgh" * 99, chars_min=64) == 30 + 8 * 20
    assert cut_after("x" * 30 + "abcdefgh" * 99, chars_min=64, repeats_min=5) == 30 + 64
    assert cut_after("x" * 30 + "abcdefgh" * 99, repeats_min=60) == 30 + 8 * 60
    assert cut_after("x" * 30 + "abcdefgh" * 99, chars_min=9999) is None


def test_one_loop_is_told_once() -> None:
    """Where the filter only observes, the answer goes on."""
    judge = a_filter()
    assert isinstance(judge.observe(body("ho! " * 200), 0), Violated)
    assert judge.observe(body("ho! " * 200), 1) == Passed(2)
    assert judge.finish(2, Facts()) == Passed(2)


@given(data=st.data(), start=st.integers(0, 60))
def test_cuts_make_no_difference(data: st.DataObject, start: int) -> None:
    """The same frames, however they were read, are a loop at the same place or are none."""
    text = LEAD[:start] + "abc " * data.draw(st.sampled_from([4, 30, 90])) + LEAD
    frames = texts(text, data.draw(st.integers(1, 30)))
    whole = judged(a_filter(), frames, batch=len(frames))
    assert judged(a_filter(), frames, batch=data.draw(st.integers(1, 9))) == whole
    assert isinstance(whole, Violated) == ("abc " * 90 in text)
