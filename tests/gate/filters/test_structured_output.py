"""`structured_output`: what is judged, what is left alone, and that nothing leaves before the end."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gate.config import StructuredOutput
from gate.events import (
    AudioDelta,
    Event,
    Facts,
    FinishFact,
    Frame,
    ReasoningDelta,
    RefusalDelta,
    TextDelta,
    ToolDelta,
)
from gate.failure import Failure, FailureKind
from gate.filters.contract import Filter, FilterContext, Passed, Verdict, Violated
from gate.filters.structured_output import (
    EARLY_CHARS_MAX,
    NOTES_MAX,
    StructuredOutputFilter,
    read_format,
    structured_output,
)
from gate.repair import FORMAT

OBJECT = {"type": "json_object"}
PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string"}},
    "required": ["name"],
    "additionalProperties": False,
}
CALL = ToolDelta(0, 0, "call-1", "f", "{}")
LEVELS: Sequence[StructuredOutput] = ("check", "repair", "reject")


def schema_format(schema: object = PERSON, **more: object) -> dict[str, object]:
    """A `response_format` with a schema."""
    return {"type": "json_schema", "json_schema": {"name": "person", "schema": schema, **more}}


def made(
    response_format: object = OBJECT,
    level: StructuredOutput = "repair",
    choices: int = 1,
    *,
    may_call: bool = False,
) -> StructuredOutputFilter:
    """The filter of such a request."""
    judge = structured_output(FilterContext(choices, response_format, level, may_call=may_call))
    assert judge is not None
    return judge


def frame_of(*events: Event) -> Frame:
    """One frame of these."""
    return Frame(b"{}", events, 2)


def judged(
    judge: Filter, *events: Event, reasons: Mapping[int, str] | None = None, at: int = 0
) -> Verdict:
    """The verdict on an answer of one frame per event, beginning at `at`; an early one where there is one."""
    for position, event in enumerate(events, start=at):
        verdict = judge.observe([frame_of(event)], position)
        if isinstance(verdict, Violated):
            return verdict
    said = {0: "stop"} if reasons is None else reasons
    finishes = tuple(FinishFact(choice, reason) for choice, reason in said.items())
    return judge.finish(at + len(events), Facts(finishes))


def verdict_on(text: str, response_format: object = OBJECT) -> str:
    """The violation's code, or an empty one, for a text that came whole."""
    verdict = judged(made(response_format), TextDelta(0, text))
    return verdict.code if isinstance(verdict, Violated) else ""


@pytest.mark.parametrize(
    "response_format",
    [None, {"type": "text"}, {}, {"type": "grammar"}, {"type": 7}, "json_object", [], 7],
)
def test_a_request_without_such_a_format_has_no_filter(response_format: object) -> None:
    """Whatever else it is, it is the provider's business."""
    assert structured_output(FilterContext(1, response_format, "repair")) is None


def test_a_route_that_is_off_has_no_filter() -> None:
    """Whatever the request asks for."""
    assert structured_output(FilterContext(1, OBJECT, "off")) is None
    assert structured_output(FilterContext(1, schema_format(), "off")) is None


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ('{"a": 1}', ""),
        (' \n{"a": 1}\t\n', ""),
        ("{}", ""),
        ("[1]", "schema_mismatch"),
        ("7", "schema_mismatch"),
        ("null", "schema_mismatch"),
        ("", "json_invalid"),
        ("  ", "json_invalid"),
        ("Sure! {}", "json_invalid"),
        ("{} {}", "json_invalid"),
        ("```json\n{}\n```", "json_invalid"),
        ('{"a": NaN}', "json_invalid"),
        ('{"a": 1', "json_invalid"),
        ("[" * 100_000, "json_invalid"),
        ('{"a":' * 100_000 + "1" + "}" * 100_000, "json_invalid"),
    ],
)
def test_json_object_asks_for_one_object(text: str, code: str) -> None:
    """White space around it is fine, and nothing else is."""
    assert verdict_on(text) == code


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ('{"name": "a"}', ""),
        ('{"name": 1}', "schema_mismatch"),
        ("{}", "schema_mismatch"),
        ('{"name": "a", "b": 1}', "schema_mismatch"),
        ('{"name": "a"', "json_invalid"),
    ],
)
def test_json_schema_asks_for_a_value_that_fits(text: str, code: str) -> None:
    """`strict` or not."""
    assert verdict_on(text, schema_format()) == code
    assert verdict_on(text, schema_format(strict=True)) == code


@pytest.mark.parametrize(
    "response_format",
    [
        {"type": "json_schema"},
        {"type": "json_schema", "json_schema": None},
        {"type": "json_schema", "json_schema": {"name": "x"}},
        schema_format(None),
        schema_format(True),
        schema_format({}),
    ],
)
def test_a_format_without_a_schema_asks_for_json(response_format: object) -> None:
    """Of any kind."""
    assert verdict_on("[1]", response_format) == ""
    assert verdict_on("words", response_format) == "json_invalid"


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "https://example.com/s.json"},
        {"type": "novel"},
        {"$comment": "x" * 300_000},
        {"$defs": {"a": {"allOf": [{"$ref": "#/$defs/a"}]}}, "$ref": "#/$defs/a"},
        [],
    ],
    ids=["remote", "invalid", "large", "endless", "no schema"],
)
def test_a_schema_that_is_not_usable_leaves_json_to_be_judged(schema: object) -> None:
    """The answer is not held against the provider, and the filter says so."""
    judge = made(schema_format(schema), choices=2)
    assert judge.notice is None
    verdict = judged(judge, TextDelta(0, "[1]"), TextDelta(1, "2"))
    assert verdict == Passed(2)
    assert judge.notice == "schema_unusable"
    assert verdict_on("words", schema_format(schema)) == "json_invalid"


def test_a_usable_schema_is_no_news() -> None:
    """Judged by it or not."""
    judge = made(schema_format())
    judged(judge, TextDelta(0, "{}"))
    assert judge.notice is None


def test_a_violation_says_what_a_repair_needs() -> None:
    """From where the attempt began, since all of it is to be replaced."""
    verdict = judged(made(schema_format()), TextDelta(0, '{"name"'), TextDelta(0, ": 1}"), at=3)
    assert isinstance(verdict, Violated)
    assert (verdict.position, verdict.code) == (3, "schema_mismatch")
    reason = "/properties/name/type, expected string"
    failure = Failure(FailureKind.OUTPUT_INVALID, verdict="schema_mismatch", reason=reason)
    assert verdict.failure == failure
    assert verdict.failure.code == "schema_mismatch"
    (note,) = verdict.notes
    assert (note.schema_ref, note.tool, note.excerpt) == (FORMAT, None, '{"name": 1}')
    [error] = note.errors
    assert (error.pointer, error.message) == ("/name", 'this value is not of type "string"')
    assert "name" not in repr(verdict)


def test_text_that_is_no_json_is_told_where_it_breaks() -> None:
    """As one error of the whole."""
    verdict = judged(made(), TextDelta(0, "{} x"))
    assert isinstance(verdict, Violated)
    (error,) = verdict.notes[0].errors
    assert (error.pointer, error.keyword) == ("", "json")
    assert "char 3" in error.message


@pytest.mark.parametrize("level", ["repair", "reject"])
def test_nothing_passes_before_the_end(level: StructuredOutput) -> None:
    """The error can still be a status."""
    judge = made(level=level)
    assert judge.gating
    frames = [frame_of(TextDelta(0, "["))]
    assert judge.observe(frames, 4) == Passed(4)
    assert judge.observe([*frames, *frames], 5) == Passed(4)


@pytest.mark.parametrize("level", ["repair", "reject"])
def test_what_can_not_become_json_any_more_is_condemned_at_once(level: StructuredOutput) -> None:
    """With what there is of it; each choice by itself."""
    judge = made(level=level, choices=2)
    assert judge.observe([frame_of(TextDelta(0, '{"a": '), TextDelta(1, "{}"))], 4) == Passed(4)
    verdict = judge.observe([frame_of(TextDelta(0, "None")), frame_of(TextDelta(0, "}"))], 5)
    assert isinstance(verdict, Violated)
    assert (verdict.position, verdict.code) == (4, "json_invalid")
    kind = FailureKind.OUTPUT_INVALID if level == "repair" else FailureKind.OUTPUT_REJECTED
    assert verdict.failure == Failure(kind, verdict="json_invalid")
    assert [note.excerpt for note in verdict.notes] == (['{"a": None'] if level == "repair" else [])


def test_what_mending_takes_off_at_the_end_is_no_reason() -> None:
    """Where the level mends; where it does not, a fence is one."""
    frames = [frame_of(TextDelta(0, piece)) for piece in ("\ufeff\n``", "`json", "\n{}\n`")]
    assert made().observe(frames, 0) == Passed(0)
    assert isinstance(made(level="reject").observe(frames, 0), Violated)
    assert made(level="reject").observe([frame_of(TextDelta(0, "\n {"))], 0) == Passed(0)
    prose = [frame_of(TextDelta(0, "```json\nSure"))]
    assert isinstance(made().observe(prose, 0), Violated)


def test_much_text_at_once_is_judged_at_the_end() -> None:
    """Looking at it would stop the loop; nor is what comes behind it looked at."""
    judge = made()
    half = frame_of(TextDelta(0, "[" + " " * (EARLY_CHARS_MAX // 2)))
    assert judge.observe([half], 0) == Passed(0)
    assert judge.observe([half, half], 1) == Passed(0)
    assert judge.observe([frame_of(TextDelta(0, "words"))], 3) == Passed(0)
    assert isinstance(judge.finish(4, Facts((FinishFact(0, "stop"),))), Violated)


def test_words_before_a_call_are_no_reason() -> None:
    """Where the request brings tools, nor are those of a choice that has shown to be something else."""
    words = [frame_of(TextDelta(0, "I'll look."))]
    assert made(may_call=True).observe(words, 0) == Passed(0)
    assert made().observe([frame_of(RefusalDelta(0, "No.")), *words], 0) == Passed(0)


def test_a_route_that_checks_holds_nothing() -> None:
    """It judges all the same."""
    judge = made(level="check")
    assert not judge.gating
    assert judge.observe([frame_of(TextDelta(0, "words"))], 4) == Passed(5)
    verdict = judge.finish(5, Facts((FinishFact(0, "stop"),)))
    assert isinstance(verdict, Violated)
    assert verdict.code == "json_invalid"


@pytest.mark.parametrize("reason", ["length", "content_filter"])
def test_an_answer_that_was_cut_is_an_answer(reason: str) -> None:
    """Whatever it is cut to."""
    assert judged(made(), TextDelta(0, '{"a'), reasons={0: reason}) == Passed(1)


@pytest.mark.parametrize("reason", ["stop", "tool_calls", "novel"])
def test_any_other_end_is_judged(reason: str) -> None:
    """A promise of tool calls without one too."""
    assert isinstance(judged(made(), TextDelta(0, "a"), reasons={0: reason}), Violated)


@pytest.mark.parametrize("event", [RefusalDelta(0, "No."), AudioDelta(0), CALL])
def test_a_choice_that_is_no_text_is_not_judged(event: Event) -> None:
    """A refusal is said in words, a call is another filter's, before text or behind it."""
    assert judged(made(), event) == Passed(1)
    assert judged(made(may_call=True), TextDelta(0, "I'll look."), event) == Passed(2)
    assert judged(made(), TextDelta(0, "["), event) == Passed(2)


@pytest.mark.parametrize("event", [ReasoningDelta(0, "{}"), ToolDelta(0, 0, "", None, "")])
def test_what_says_nothing_excuses_nothing(event: Event) -> None:
    """Nor is reasoning the answer."""
    assert isinstance(judged(made(), event), Violated)


def test_an_attempt_without_a_frame_is_judged_too() -> None:
    """At the position where it ends."""
    verdict = judged(made(), at=6)
    assert isinstance(verdict, Violated)
    assert verdict.position == 6


def test_every_choice_is_judged_by_itself() -> None:
    """The code is the first one's; each has a note."""
    judge = made(schema_format(), choices=4)
    verdict = judged(
        judge,
        TextDelta(2, '"words"'),
        TextDelta(0, '{"name": "a"}'),
        TextDelta(1, "{}"),
        TextDelta(3, '{"cut'),
        reasons={0: "stop", 1: "stop", 2: "stop", 3: "length"},
    )
    assert isinstance(verdict, Violated)
    assert verdict.code == "schema_mismatch"
    assert [note.excerpt for note in verdict.notes] == ["{}", '"words"']


def test_a_choice_that_nobody_asked_for_is_not_judged() -> None:
    """Some providers send them."""
    assert judged(made(), TextDelta(0, "{}"), TextDelta(1, "x"), TextDelta(-1, "x")) == Passed(3)


def test_a_violation_has_a_bounded_number_of_notes() -> None:
    """However many choices were asked for."""
    verdict = judged(made(choices=100))
    assert isinstance(verdict, Violated)
    assert len(verdict.notes) == NOTES_MAX


def test_a_format_shows_no_schema() -> None:
    """By itself."""
    formats = [OBJECT, schema_format({"secret": 1}), {"type": "json_schema"}]
    assert list(map(repr, map(read_format, formats))) == [
        "OutputFormat(object)",
        "OutputFormat(schema)",
        "OutputFormat(JSON)",
    ]


answers = st.recursive(
    st.none() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["name", "b"]), inner)
    ),
    max_leaves=6,
).map(json.dumps)


@given(
    data=st.data(),
    texts=st.lists(answers | st.text('{}[]":,name1 \n', max_size=20), min_size=1, max_size=3),
    response_format=st.sampled_from([OBJECT, schema_format(), {"type": "json_schema"}]),
    level=st.sampled_from(LEVELS),
)
def test_any_cut_of_the_same_answer_is_judged_alike(
    data: st.DataObject, texts: list[str], response_format: Any, level: StructuredOutput
) -> None:
    """Over events, frames and batches, the choices in any mixture."""
    whole = judged(made(response_format, level, len(texts)), *map(TextDelta, range(len(texts)), texts))  # fmt: skip
    rests = dict(enumerate(texts))
    events: list[Event] = []
    while rests:
        choice = data.draw(st.sampled_from(sorted(rests)))
        size = data.draw(st.integers(1, max(1, len(rests[choice]))))
        events.append(TextDelta(choice, rests[choice][:size]))
        rests[choice] = rests[choice][size:]
        if not rests[choice]:
            del rests[choice]
    judge = made(response_format, level, len(texts))
    position = 0
    while events:
        size = data.draw(st.integers(1, len(events)))
        frames = [Frame(b"{}", tuple(events[:size]), 2)]
        passed = judge.observe(frames, position)
        position += len(frames)
        if isinstance(passed, Violated):
            # What is said of it depends on how much there is of it, and where several fail, on which does first.
            assert isinstance(whole, Violated)
            assert (passed.code, passed.position) == ("json_invalid", whole.position)
            return
        assert passed == Passed(0 if judge.gating else position)
        events = events[size:]
    verdict = judge.finish(position, Facts((FinishFact(0, "stop"),)))
    if isinstance(whole, Passed):
        assert verdict == Passed(position)
    else:
        assert verdict == whole
