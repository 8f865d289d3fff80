"""`patterns`: not one byte of a match passes, however it is cut and wherever it stands, and nothing else is held for long."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Final, Literal

import pytest
import re2
from hypothesis import given
from hypothesis import strategies as st

from gate.config import FilterConfig
from gate.events import (
    AudioDelta,
    Event,
    Facts,
    Frame,
    ReasoningDelta,
    RefusalDelta,
    RoleDelta,
    TextDelta,
    ToolDelta,
)
from gate.failure import Failure, FailureKind
from gate.filters.contract import FilterContext, Passed, Primed, Verdict, Violated
from gate.filters.pattern_sets import PATTERN_SETS
from gate.filters.patterns import CHANNELS_MAX, OBSERVED_BYTES_MAX, OFTEN_BYTES_MAX, PatternsFilter
from gate.regex import compile_patterns
from tests.gate.filters.secrets import SECRETS

DENIED: Final = Failure(FailureKind.DENIED, verdict="pattern_match")
MAKERS: Final[Sequence[Callable[[str], Event]]] = (
    lambda text: TextDelta(0, text),
    lambda text: TextDelta(1, text),
    lambda text: ReasoningDelta(0, text),
    lambda text: RefusalDelta(0, text),
    lambda text: AudioDelta(0, text),
    lambda text: ToolDelta(0, 0, None, None, text),
    lambda text: ToolDelta(0, None, None, None, text),
)


def a_filter(
    *patterns: str,
    action: Literal["error", "next_provider"] | None = None,
    gating: bool = True,
) -> PatternsFilter:
    """One attempt's; without patterns it has the set of secrets."""
    name = "" if patterns else "secrets"
    table = FilterConfig(kind="patterns", patterns=patterns, pattern_set=name, action=action)
    judge = PatternsFilter(FilterContext(1, table=table))
    judge.gating = gating
    return judge


def frame(event: Event) -> Frame:
    """A frame of one event."""
    return Frame(b"{}", (event,), 2)


def texts(*said: str) -> list[Frame]:
    """A frame for each piece of choice 0's text."""
    return [frame(TextDelta(0, text)) for text in said]


def released(judge: PatternsFilter, frames: Sequence[Frame]) -> tuple[int, Verdict]:
    """How many frames would have gone out, read one by one, and the last verdict."""
    out = 0
    for at, each in enumerate(frames):
        verdict = judge.observe([each], at)
        if isinstance(verdict, Violated):
            return out, verdict
        assert verdict.position >= out, "nothing is taken back"
        out = verdict.position
    return out, judge.finish(len(frames), Facts())


def test_there_is_one_example_of_each_secret() -> None:
    """Each pattern of the set is proved below."""
    patterns = PATTERN_SETS["secrets"]
    assert len(SECRETS) == len(patterns)
    for pattern, secret in zip(patterns, SECRETS, strict=True):
        assert re2.search(pattern, secret), pattern
        assert compile_patterns((pattern,)).match(secret.encode(), ended=True) is not None


@pytest.mark.parametrize("secret", SECRETS, ids=[secret[:6] for secret in SECRETS])
def test_not_one_byte_of_a_secret_passes_wherever_it_is_cut(secret: str) -> None:
    """In three pieces, and character by character; before it everything goes, and what is before its frame can be gone on from."""
    lead, tail = "The key is: ", " and that is all."
    text = lead + secret + tail
    for cut in range(1, len(text)):
        for second in {cut, min(cut + 7, len(text) - 1)}:
            pieces = [text[:cut], text[cut:second], text[second:]]
            out, verdict = released(a_filter(), texts(*pieces))
            assert isinstance(verdict, Violated)
            assert len("".join(pieces[:out])) <= len(lead)
            assert verdict.position >= out
            assert len("".join(pieces[: verdict.position])) <= len(lead)
    out, verdict = released(a_filter(), texts(*text))
    assert out == len(lead)
    assert isinstance(verdict, Violated)
    assert len(lead) == verdict.position < verdict.seen < len(text)


@pytest.mark.parametrize("make", MAKERS, ids=range(len(MAKERS)))
def test_every_channel_is_judged(make: Callable[[str], Event]) -> None:
    """Reasoning, refusals and tool arguments leave with the same bytes as text."""
    for secret in (SECRETS[0], SECRETS[10]):
        frames = [frame(make(char)) for char in f'say "{secret}" aloud']
        out, verdict = released(a_filter(), frames)
        assert out == 5
        assert isinstance(verdict, Violated)


def test_channels_are_texts_of_their_own() -> None:
    """Two choices in turns don't hide what each of them says, nor make up what none does."""
    one, two = "AKIAABCDEFGH", "IJ234567 is it"
    frames = [frame(TextDelta(choice, text)) for text in (one, two) for choice in (0, 1)]
    out, verdict = released(a_filter(), frames)
    assert (out, verdict) == (0, Violated(0, "pattern_match", DENIED, seen=2))
    apart = [frame(TextDelta(0, one)), frame(ReasoningDelta(0, two))]
    assert released(a_filter(), apart) == (0, Passed(2))


def test_what_can_not_become_a_match_is_not_held() -> None:
    """A word is, as long as it may be the beginning of one."""
    said: list[str | Event] = [
        "I ",
        "sk",
        "ip ",
        "the ta",
        "sk",
        "force",
        " sk-",
        "a b",
        RoleDelta(0, "assistant"),
    ]
    frames = [frame(each) if not isinstance(each, str) else texts(each)[0] for each in said]
    judge = a_filter()
    passed = [judge.observe([each], at) for at, each in enumerate(frames)]
    assert passed == [Passed(at) for at in (1, 1, 3, 4, 5, 6, 6, 8, 9)]


def test_the_ends_of_a_text_are_not_those_of_a_batch() -> None:
    """`^` is the beginning of the whole, `$` its end."""
    begin, end = a_filter("^secret"), a_filter("secret$")
    assert released(begin, texts("no ", "secret ", "secret")) == (3, Passed(3))
    assert released(end, texts("no ", "secret", " secre")) == (2, Passed(3))
    assert released(a_filter("^secret"), texts("sec", "ret"))[0] == 0
    out, verdict = released(a_filter("secret$"), texts("no ", "sec", "ret"))
    assert (out, verdict) == (1, Violated(1, "pattern_match", DENIED))
    assert released(a_filter("^a.c$"), texts("a", "b", "c"))[0] == 0


def test_an_answer_that_is_gone_on_with_is_one_text() -> None:
    """What was released is its beginning; a match does not begin in it, for then it would have been held."""
    judge = a_filter("^secret", "key: [0-9]+$")
    assert isinstance(judge, Primed)
    judge.prime("The ")
    assert judge.observe(texts("secret"), 7) == Passed(8)
    late = a_filter("ab+c")
    late.prime("xab")
    assert late.observe(texts("b"), 7) == Passed(7)
    assert late.observe(texts("d"), 8) == Passed(9)


def test_the_table_says_what_is_done() -> None:
    """An error by default, else what it asks for."""
    verdict = a_filter("no", action="next_provider").observe(texts("no"), 0)
    failure = Failure(FailureKind.DENIED_NEXT, verdict="pattern_match")
    assert verdict == Violated(0, "pattern_match", failure, seen=0)
    verdict = a_filter("no").observe(texts("no"), 0)
    assert verdict == Violated(0, "pattern_match", DENIED, seen=0)


def test_a_match_is_told_once() -> None:
    """Where the filter only observes, the answer goes on."""
    judge = a_filter("no", gating=False)
    assert isinstance(judge.observe(texts("no"), 0), Violated)
    assert judge.observe(texts("no"), 1) == Passed(2)
    assert judge.finish(2, Facts()) == Passed(2)


def test_what_stays_open_for_long_is_looked_at_seldom_and_never_let_go() -> None:
    """A pattern without a bound holds until it is decided, with work that grows no faster than the text."""
    judge = a_filter("BEGIN(?s:.)*END")
    frames = texts("so: ", "BEGIN", *["x" * 100] * 400, "END")
    looks = []

    class Counted(type(judge._patterns)):  # type: ignore[misc]
        def match(self, text: bytes, start: int = 0, *, ended: bool) -> int | None:
            looks.append(len(text))
            found: int | None = super().match(text, start, ended=ended)
            return found

    judge._patterns.__class__ = Counted
    try:
        out, verdict = released(judge, frames)
    finally:
        judge._patterns.__class__ = Counted.__mro__[1]
    assert (out, verdict) == (1, Violated(1, "pattern_match", DENIED))
    assert sum(looks) < 12 * 40_000 + (OFTEN_BYTES_MAX // 100) * OFTEN_BYTES_MAX


def test_an_observer_keeps_only_so_much() -> None:
    """It holds nothing, so what it waits for has a bound."""
    judge = a_filter("BEGIN(?s:.)*END", gating=False)
    judge.observe(texts("BEGIN" + "é" * OBSERVED_BYTES_MAX), 0)
    assert judge.finish(1, Facts()) == Passed(1)
    assert judge.observe(texts("END"), 1) == Passed(2)
    near = a_filter("BEGIN(?s:.)*END", gating=False)
    near.observe(texts("BEGIN" + "é" * 100), 0)
    assert isinstance(near.observe(texts("END"), 1), Violated)


def test_of_many_channels_those_without_a_beginning_go() -> None:
    """What is held stays."""
    judge = a_filter("secret")
    judge.observe([frame(ToolDelta(0, -1, None, None, "sec"))], 0)
    calls = [frame(ToolDelta(0, n, None, None, "{}")) for n in range(2 * CHANNELS_MAX)]
    for at, call in enumerate(calls, 1):
        assert judge.observe([call], at) == Passed(0)
    assert len(judge._channels) <= CHANNELS_MAX
    verdict = judge.observe([frame(ToolDelta(0, -1, None, None, "ret"))], 1 + len(calls))
    assert isinstance(verdict, Violated)


@given(
    escaped=st.lists(st.sampled_from(("plain", "unit", "upper")), min_size=6, max_size=6),
    lead=st.sampled_from(("", "to ", r"\"a\\\n ", "\\ud83d\\ude00 ")),
    cuts=st.lists(st.integers(0, 60), max_size=5),
    batch=st.integers(1, 3),
)
def test_no_escape_hides_a_match_in_tool_arguments(
    escaped: list[str], lead: str, cuts: list[int], batch: int
) -> None:
    """Not one byte of it goes, nor of an escape that it begins with; more than one frame at once makes no difference."""
    forms = {"plain": "{}", "unit": "\\u{:04x}", "upper": "\\u{:04X}"}
    said = [
        char if form == "plain" else forms[form].format(ord(char))
        for char, form in zip("sécret", escaped, strict=True)
    ]
    written = '{"a":"' + lead + "".join(said) + '"}'
    ends = [0, *sorted(min(cut, len(written)) for cut in cuts), len(written)]
    pieces = [written[start:end] for start, end in pairwise(ends) if end > start]
    frames = [frame(ToolDelta(0, 0, None, None, piece)) for piece in pieces]
    out, verdict = released(a_filter("sécret"), frames)
    assert isinstance(verdict, Violated)
    assert len("".join(pieces[: max(out, verdict.position)])) <= len('{"a":"' + lead)
    together = a_filter("sécret")
    verdicts = [
        together.observe(frames[at : at + batch], at) for at in range(0, len(frames), batch)
    ]
    assert verdict in verdicts


def test_what_an_escape_has_to_do_with_is_the_call_s_own() -> None:
    """A backslash in one call doesn't keep another; a text has none."""
    judge = a_filter("secret")
    calls = [
        frame(ToolDelta(0, call, None, None, text)) for call, text in enumerate(("\\", "u0073"))
    ]
    assert judge.observe(calls, 0) == Passed(0)
    assert judge.observe([frame(ToolDelta(0, 0, None, None, "u0074"))], 2) == Passed(3)
    spelled = texts(r"\u0073ecret")
    assert judge.observe(spelled, 3) == Passed(4)


PATTERNS: Final = (r"\bab+c\b", "^ba", "c$", "a[^b]c", "é+", "(?i)abba|c{2,}a", r"b\Bc(?:a|bb)*a")


@given(
    pattern=st.sampled_from(PATTERNS),
    pieces=st.lists(st.text(alphabet="abcAé ", min_size=1, max_size=4), max_size=8),
    batch=st.integers(1, 3),
)
def test_whatever_is_cut_however_no_byte_of_a_match_goes(
    pattern: str, pieces: list[str], batch: int
) -> None:
    """Against RE2 over the whole text."""
    text = "".join(pieces)
    found = re2.search(pattern, text)
    judge, out = a_filter(pattern), 0
    verdict: Verdict = Passed(0)
    frames = texts(*pieces)
    for at in range(0, len(frames), batch):
        verdict = judge.observe(frames[at : at + batch], at)
        if isinstance(verdict, Violated):
            break
        out = verdict.position
    if not isinstance(verdict, Violated):
        verdict = judge.finish(len(frames), Facts())
    assert isinstance(verdict, Violated) == (found is not None)
    if found is not None:
        assert len("".join(pieces[:out])) <= found.start()
