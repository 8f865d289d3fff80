"""`encoding`: bursts of replacement and control characters are damage, single ones are not."""

from __future__ import annotations

import pytest

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
from gate.filters.contract import FilterContext, Passed, Primed, Verdict, Violated
from gate.filters.encoding import MARKS_MIN, SPAN_CHARS, EncodingFilter

DAMAGED = Failure(FailureKind.MALFORMED, verdict="text_damaged")
BAD = "\ufffd"


def a_filter() -> EncodingFilter:
    """One attempt's, without a table."""
    return EncodingFilter(FilterContext(1))


def frame(event: Event) -> Frame:
    """A frame of one event."""
    return Frame(b"{}", (event,), 2)


def texts(*said: str) -> list[Frame]:
    """A frame for each piece of choice 0's text."""
    return [frame(TextDelta(0, text)) for text in said]


def judged(frames: list[Frame], batch: int = 1) -> Verdict:
    """The last verdict on these frames."""
    judge = a_filter()
    for at in range(0, len(frames), batch):
        verdict = judge.observe(frames[at : at + batch], at)
        if isinstance(verdict, Violated):
            return verdict
    return judge.finish(len(frames), Facts())


@pytest.mark.parametrize("mark", [BAD, "\x00", "\x08", "\x0b", "\x1f", "\x7f", "\x80", "\x9f"])
@pytest.mark.parametrize("batch", [1, 3, 100])
def test_a_burst_is_damage(mark: str, batch: int) -> None:
    """From its first mark on, in however many pieces it comes."""
    last = 1 + MARKS_MIN
    many = texts("Well", ": ", *[mark] * MARKS_MIN)
    assert judged(many, batch) == Violated(2, "text_damaged", DAMAGED, seen=last)
    assert judged(texts("Well", ": ", mark * 900), batch) == Violated(2, "text_damaged", DAMAGED, seen=2)  # fmt: skip
    spread = texts("Well", ": ", *[f"a{mark}éb"] * 90)
    assert judged(spread, batch) == Violated(2, "text_damaged", DAMAGED, seen=last)


@pytest.mark.parametrize(
    "text",
    [
        "na\ufffdve bar",
        "An emoji that was cut: \ufffd\ufffd\ufffd\ufffd, and the text goes on for a while behind it. "
        * 40,
        "tabs\tand\r\nlines\n\n" * 40,
        "\x1b[31mred\x1b[0m \x1b[32mgreen\x1b[0m " * 40,
        "\x0c" + "a page\n" * 9 + "\x0c",
        "naïve Ünïcödé 漢字 🧭\u200b\u2028\u0085 " * 40,
        ("x" * (SPAN_CHARS // (MARKS_MIN - 1)) + BAD) * 40,
    ],
)
def test_a_mark_here_and_there_is_none(text: str) -> None:
    """A character that was cut, a page, colours, other alphabets."""
    for size in (1, 7, len(text)):
        frames = texts(*(text[at : at + size] for at in range(0, len(text), size)))
        assert judged(frames) == Passed(len(frames))


def test_a_mark_is_held_until_enough_stands_behind_it() -> None:
    """Other channels meanwhile are read, and wait behind it."""
    judge = a_filter()
    assert judge.observe(texts("Well", BAD), 0) == Passed(1)
    assert judge.observe([frame(ReasoningDelta(0, "x" * 99)), frame(RoleDelta(0, "a"))], 2) == Passed(1)  # fmt: skip
    assert judge.observe(texts("x" * (SPAN_CHARS - 2)), 4) == Passed(1)
    assert judge.observe(texts("x"), 5) == Passed(6)
    assert judge.observe(texts("x"), 6) == Passed(7)
    assert judge.finish(7, Facts()) == Passed(7)


def test_every_channel_is_read_by_itself() -> None:
    """Reasoning, what is said aloud and tool arguments too; marks of two channels don't add up."""
    half = BAD * (MARKS_MIN // 2)
    assert isinstance(judged([frame(ReasoningDelta(0, half))] * 2), Violated)
    assert isinstance(judged([frame(ToolDelta(0, 0, None, None, half))] * 2), Violated)
    assert isinstance(judged([frame(AudioDelta(0, half))] * 2), Violated)
    assert judged([frame(AudioDelta(0, half)), frame(TextDelta(0, half))]) == Passed(2)
    assert judged([frame(AudioDelta(0))]) == Passed(1)
    assert judged([frame(ToolDelta(0, n, None, None, half)) for n in (0, 1)]) == Passed(2)
    assert judged([frame(TextDelta(n, half)) for n in (0, 1)]) == Passed(2)
    assert judged([frame(ToolDelta(0, 0, "call", "f", None))]) == Passed(1)


def test_an_answer_that_is_gone_on_with_counts_what_stands_at_its_end() -> None:
    """Nothing that has passed is taken back for it."""
    judge = a_filter()
    assert isinstance(judge, Primed)
    judge.prime("It reads " + BAD * (MARKS_MIN - 1))
    assert judge.observe(texts("so"), 7) == Passed(7)
    assert isinstance(judge.observe(texts(BAD), 8), Violated)


def test_damage_is_told_once() -> None:
    """Where the filter only observes, the answer goes on."""
    judge = a_filter()
    assert isinstance(judge.observe(texts(BAD * 20), 0), Violated)
    assert judge.observe(texts(BAD * 20), 1) == Passed(2)


def test_the_table_says_what_is_done() -> None:
    """By default what is done about any malformed answer."""
    table = FilterConfig(kind="encoding", action="error")
    verdict = EncodingFilter(FilterContext(1, table=table)).observe(texts(BAD * 9), 0)
    assert isinstance(verdict, Violated)
    assert verdict.failure == Failure(FailureKind.DENIED, verdict="text_damaged")
