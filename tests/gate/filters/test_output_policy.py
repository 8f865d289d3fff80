"""`output_policy`: what must not stand in an answer for a program, how little is held to know, and what is left alone."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gate.events import Event, Facts, FinishFact, Frame, RefusalDelta, TextDelta, ToolDelta
from gate.failure import Failure, FailureKind
from gate.filters.contract import FilterContext, Passed, Verdict, Violated
from gate.filters.output_policy import (
    EXCERPT_CHARS,
    NOTES_MAX,
    OutputPolicyFilter,
    output_policy,
)
from gate.repair import FORMAT

OBJECT = {"type": "json_object"}
CALL = ToolDelta(0, 0, "t", "f", "{}")
FUNCTION = {"type": "function", "function": {"name": "f"}}


def made(choices: int = 1, **changes: Any) -> OutputPolicyFilter:
    """The filter of a request for JSON under a strict route that mends nothing, but for these changes."""
    known = {"response_format": OBJECT, "structured_output": "reject", "output_policy": "strict"}
    judge = output_policy(FilterContext(choices, **{**known, **changes}))
    assert judge is not None
    return judge


def calling(**changes: Any) -> OutputPolicyFilter:
    """That of a request with tools."""
    return made(**{"response_format": None, "may_call": True, **changes})


def frame_of(*events: Event) -> Frame:
    """One frame of these."""
    return Frame(b"{}", events, 2)


def observed(judge: OutputPolicyFilter, *said: str | Event) -> list[Verdict]:
    """What is said of an answer, a frame for each, after each; it begins at position 3."""
    events = [TextDelta(0, each) if isinstance(each, str) else each for each in said]
    return [judge.observe([frame_of(each)], at) for at, each in enumerate(events, start=3)]


def passed(judge: OutputPolicyFilter, *said: str | Event) -> list[int | str]:
    """The same, as positions and codes."""
    return [
        each.position if isinstance(each, Passed) else each.code for each in observed(judge, *said)
    ]


def ended(judge: OutputPolicyFilter, *said: str | Event, reason: str = "stop") -> str:
    """The code that an answer has got by its end, or nothing."""
    codes = [each.code for each in observed(judge, *said) if isinstance(each, Violated)]
    last = judge.finish(3 + len(said), Facts((FinishFact(0, reason),)))
    assert isinstance(last, Violated) or last == Passed(3 + len(said))
    return codes[0] if codes else last.code if isinstance(last, Violated) else ""


def test_a_long_answer_is_read_on_behind_what_is_kept_of_it() -> None:
    """Its beginning says whether it is fenced, and nothing more of it is kept."""
    long = '{"a": "' + "x" * EXCERPT_CHARS
    assert passed(made(), long, "more", '"}') == [4, 5, 6]
    assert ended(made(), long, "more", '"}') == ""


@pytest.mark.parametrize(
    "changes",
    [
        {"output_policy": "off"},
        {"response_format": None},
        {"response_format": {"type": "text"}},
    ],
)
def test_without_a_policy_or_a_program_that_reads_it_there_is_no_filter(
    changes: dict[str, Any],
) -> None:
    """A chat is free."""
    known = {"response_format": OBJECT, "output_policy": "strict"}
    assert output_policy(FilterContext(1, **{**known, **changes})) is None
    assert output_policy(FilterContext(1, may_call=True, output_policy="strict")) is not None


# --- think tags ----------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["<think>a</think>{}", "\n<think>", "</think>{}", '{"a": "</think>"}'])  # fmt: skip
def test_think_tags_are_condemned(text: str) -> None:
    """Whole, or character by character."""
    assert passed(made(), text) == ["output_think_tags"]
    assert passed(calling(), *text)[-1] == "output_think_tags"


def test_no_more_is_held_than_may_be_part_of_a_tag() -> None:
    """A text that speaks of tags passes."""
    assert passed(calling(), "a", "b <", "/th", "x", "<", "<", "think>", "</think>") == [4, 4, 4, 7, 7, 8, 10, 11]  # fmt: skip
    assert passed(calling(), " ", "<th", CALL, "<", CALL) == [3, 3, 6, 6, 8]


def test_an_answer_that_goes_on_knows_what_was_said() -> None:
    """A closing tag closes what was opened there."""
    judge = calling()
    judge.prime("The <think> tag")
    assert passed(judge, " and </think>") == [4]
    judge = calling()
    judge.prime("The tag")
    assert passed(judge, " and </think>") == ["output_think_tags"]


# --- fences --------------------------------------------------------------------------------------


def test_a_fence_is_condemned_at_once_where_nobody_mends_it() -> None:
    """What may begin one is held."""
    assert passed(made(), "\n", "``", "`json") == [3, 4, "output_fenced"]
    assert passed(made(), "`", "a", "```") == [3, 5, 6]
    assert passed(made(), "{", '"```"') == [4, 5]


def test_a_fence_that_is_mended_at_the_end_is_judged_there() -> None:
    """Everything is held so long."""
    judge = made(structured_output="repair")
    assert passed(judge, "```json\n", "{}") == [3, 3]
    verdict = judge.finish(5, Facts((FinishFact(0, "stop"),)))
    assert isinstance(verdict, Violated)
    assert (verdict.position, verdict.code) == (3, "output_fenced")
    assert verdict.failure == Failure(FailureKind.OUTPUT_INVALID, verdict="output_fenced")
    (note,) = verdict.notes
    assert (note.schema_ref, note.tool, note.excerpt) == (FORMAT, None, "```json\n{}")
    assert ended(made(structured_output="repair"), "{}") == ""


def test_a_fence_before_a_call_is_fine() -> None:
    """It is held until there is one; without one it is the answer."""
    assert passed(made(may_call=True), "```", "a", CALL, "b") == [3, 3, 6, 7]
    assert ended(made(may_call=True), "```", "a", CALL) == ""
    assert ended(made(may_call=True), "```", "a") == "output_fenced"


def test_a_fence_is_fine_where_no_json_was_asked_for() -> None:
    """Words about code."""
    assert passed(calling(), "```") == [4]
    assert ended(calling(), "```") == ""


@pytest.mark.parametrize("reason", ["length", "content_filter"])
def test_an_answer_that_was_cut_is_as_it_is(reason: str) -> None:
    """What is found at the end is nothing to it."""
    assert ended(made(structured_output="repair"), "```", reason=reason) == ""


# --- words beside a call ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tool_choice", "code"),
    [
        ("required", "output_beside_call"),
        (FUNCTION, "output_beside_call"),
        ({"type": "custom", "custom": {"name": "f"}}, "output_beside_call"),
        ({"type": "allowed_tools", "allowed_tools": {"mode": "required"}}, "output_beside_call"),
        ({"type": "allowed_tools", "allowed_tools": {"mode": "auto"}}, ""),
        ("auto", ""),
        ("none", ""),
        (None, ""),
        (7, ""),
    ],
)
def test_words_beside_a_forced_call_are_condemned(tool_choice: object, code: str) -> None:
    """Before it or behind it; a repair would not know what to ask for."""
    for said in (("I'll look.", CALL), (CALL, "I'll look.")):
        assert ended(calling(tool_choice=tool_choice), *said) == code
    verdict = observed(calling(tool_choice=tool_choice), "a", CALL)[-1]
    assert not isinstance(verdict, Violated) or verdict.notes == ()
    assert output_policy(FilterContext(1, output_policy="strict", tool_choice="required")) is None


def test_a_forced_call_by_itself_is_fine() -> None:
    """With white space, or a piece that says nothing; all of it is held to the end."""
    judge = calling(tool_choice="required")
    assert passed(judge, "\n", CALL, " ", RefusalDelta(0, "No.")) == [3, 3, 3, 3]
    assert ended(calling(tool_choice="required"), "words", ToolDelta(0, 0, "", None, "")) == ""


# --- several choices, any cut ----------------------------------------------------------------------


def test_every_choice_is_judged_by_itself() -> None:
    """The code is the first one's; notes are bounded, and so is what they quote."""
    judge = made(choices=20)
    long = "```" + "x" * 9_000
    choices = [TextDelta(choice, long) for choice in range(1, 20)]
    verdict = judge.observe([frame_of(*choices, TextDelta(0, "</think>"))], 0)
    assert isinstance(verdict, Violated)
    assert verdict.code == "output_think_tags"
    assert len(verdict.notes) == NOTES_MAX
    assert len(verdict.notes[1].excerpt) == EXCERPT_CHARS
    assert passed(made(), TextDelta(7, "```"), TextDelta(-1, "```")) == [4, 5]
    assert made().finish(6, Facts()) == Passed(6)


pieces = st.sampled_from(["```", "`", "<think>", "</think>", "<", "a", "{}", "\n", " "])


@given(text=st.lists(pieces, max_size=8).map("".join), data=st.data(), changes=st.sampled_from([{}, {"structured_output": "repair"}, {"may_call": True}]))  # fmt: skip
def test_any_cut_of_the_same_answer_is_judged_alike(
    text: str, data: st.DataObject, changes: dict[str, Any]
) -> None:
    """And what has passed once stays so."""
    whole = ended(made(**changes), text)
    said: list[str | Event] = []
    while text:
        size = data.draw(st.integers(1, len(text)))
        said.append(text[:size])
        text = text[size:]
    positions = [at for at in passed(made(**changes), *said) if isinstance(at, int)]
    assert positions == sorted(positions)
    assert bool(ended(made(**changes), *said)) == bool(whole)


def test_it_shows_no_content() -> None:
    """By itself."""
    assert repr(made()) == "OutputPolicyFilter(1 choices)"
