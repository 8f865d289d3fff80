"""`tool_calls`: what passes, what is a violation and under which code, what is left alone, and what waits until it is known."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gate.events import (
    Complete,
    Event,
    Facts,
    FinishFact,
    Frame,
    RefusalDelta,
    TextDelta,
    ToolDelta,
    ToolEnd,
)
from gate.failure import FailureKind
from gate.filters.builtin import filter_context
from gate.filters.contract import FilterContext, Passed, Verdict, Violated
from gate.filters.tool_calls import ToolCallsFilter, tool_calls
from gate.ingress import read_chat_request
from gate.mending import ChatMender
from gate.refs import is_stable_token
from tests.calling import begin, calling, end, entry, frames_of, payload

PATH = {
    "type": "object",
    "properties": {"path": {"type": "string"}},
    "required": ["path"],
    "additionalProperties": False,
}
LOOSE = {"type": "object", "properties": {"n": {"$ref": "#/$defs/n"}}, "$defs": {"n": {"type": "integer"}}}  # fmt: skip
TOOLS = [
    {"type": "function", "function": {"name": "get_file", "parameters": PATH, "strict": True}},
    {"type": "function", "function": {"name": "count", "parameters": LOOSE}},
    {"type": "function", "function": {"name": "free"}},
    {"type": "custom", "custom": {"name": "write"}},
]
GOOD = '{"path":"a"}'


def made(*, choices: int = 1, tools: object = TOOLS, **members: Any) -> ToolCallsFilter:
    """The filter of a request with these members."""
    more = members if tools is None else {"tools": tools, **members}
    body = json.dumps({"model": "m", "messages": [{}], "n": choices, **more}).encode()
    request = read_chat_request(body, depth_max=64)
    return tool_calls(filter_context(body, request, structured_output="off"))


def call(
    name: str = "get_file",
    arguments: str = GOOD,
    *,
    index: int = 0,
    choice: int = 0,
    name_id: str | None = "call",
    custom: bool = False,
) -> tuple[Event, ...]:
    """One whole call, in two pieces, with an id of its own."""
    half = len(arguments) // 2
    given = f"{name_id}-{index}" if name_id == "call" else name_id
    return (
        ToolDelta(choice, index, given, name, arguments[:half], custom),
        ToolDelta(choice, index, None, None, arguments[half:]),
        ToolEnd(choice, index),
    )


def judged(
    judge: ToolCallsFilter, *events: Event, reasons: Mapping[int, str] | None = None, at: int = 0
) -> Verdict:
    """The verdict on an answer of one frame per event, beginning at `at`."""
    for position, event in enumerate(events, start=at):
        verdict = judge.observe([Frame(b"{}", (event,), 2)], position)
        if isinstance(verdict, Violated):
            return verdict
    said = {0: "tool_calls"} if reasons is None else reasons
    finishes = tuple(FinishFact(choice, reason) for choice, reason in said.items())
    return judge.finish(at + len(events), Facts(finishes))


def code_of(judge: ToolCallsFilter, *events: Event, **more: Any) -> str:
    """The violation's code, or an empty one."""
    verdict = judged(judge, *events, **more)
    return verdict.code if isinstance(verdict, Violated) else ""


# --- the codes, in order -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "arguments", "code"),
    [
        ("get_file", GOOD, ""),
        ("get_file", f" {GOOD}\n", ""),
        ("count", "", ""),
        ("count", " ", ""),
        ("count", '{"other":1}', ""),
        ("free", "{}", ""),
        ("free", '{"a":"\ufffd\\ud83d"}', ""),
        ("write", "free text", ""),
        ("nobody", GOOD, "tool_unknown"),
        ("nobody", "{", "tool_unknown"),
        ("get_file<|channel|>commentary", GOOD, "tool_unknown"),
        ("", GOOD, "tool_ambiguous"),
        ("get_file", "", "tool_arguments_json"),
        ("get_file", '{"path":"y"', "tool_arguments_json"),
        ("get_file", f"{GOOD} x", "tool_arguments_json"),
        ("get_file", '{"path":NaN}', "tool_arguments_json"),
        ("free", "[" * 200, "tool_arguments_json"),
        ("free", '{"a":' * 100_000 + "1" + "}" * 100_000, "tool_arguments_json"),
        ("get_file", GOOD + GOOD, "tool_ambiguous"),
        ("free", "[1]", "tool_arguments_object"),
        ("free", '"{}"', "tool_arguments_object"),
        ("free", "null", "tool_arguments_object"),
        ("get_file", "{}", "tool_arguments_schema"),
        ("get_file", '{"path":7}', "tool_arguments_schema"),
        ("get_file", '{"path":"a","b":1}', "tool_arguments_schema"),
        ("count", '{"n":"1"}', "tool_arguments_schema"),
    ],
)  # fmt: skip
def test_a_call_is_judged_by_name_arguments_and_schema(
    name: str, arguments: str, code: str
) -> None:
    """In this order."""
    assert code_of(made(), *call(name, arguments)) == code
    assert code == "" or is_stable_token(code)


TWO = (*call(), *call(index=1))
ONLY = {"type": "function", "function": {"name": "count"}}
SUBSET = {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [ONLY]}}


@pytest.mark.parametrize(
    ("members", "events", "code"),
    [
        ({"tool_choice": "none"}, call(), "tool_choice_none"),
        ({"tool_choice": "none"}, call("nobody"), "tool_unknown"),
        ({"tool_choice": "none"}, (), ""),
        ({"tool_choice": "required"}, call(), ""),
        ({"tool_choice": "required"}, (TextDelta(0, "a"),), "tool_choice_required"),
        ({"tool_choice": "required"}, (), "tool_choice_required"),
        ({"tool_choice": "required"}, (RefusalDelta(0, "No."),), ""),
        ({"tool_choice": ONLY}, call(), "tool_choice_other"),
        ({"tool_choice": ONLY}, call("count", "{}"), ""),
        ({"tool_choice": ONLY}, (), "tool_choice_required"),
        ({"tool_choice": SUBSET}, call(), "tool_choice_other"),
        ({"tool_choice": SUBSET}, (), ""),
        ({"tool_choice": "auto"}, (), ""),
        ({"parallel_tool_calls": False}, TWO, "tool_calls_parallel"),
        ({"parallel_tool_calls": False}, call(), ""),
        ({}, TWO, ""),
        ({}, call(name_id=""), "tool_ambiguous"),
        ({}, (*call(name_id="x"), *call(name_id="x", index=1)), "tool_ambiguous"),
        ({}, (*call(), ToolDelta(0, 0, None, None, "x")), "tool_ambiguous"),
        ({}, (ToolDelta(0, None, "a", "get_file", GOOD),), "tool_ambiguous"),
        ({"functions": [{"name": "f"}], "tools": None}, call("f", "{}", index=-1, name_id=None), ""),
        ({"functions": [{"name": "f"}], "tools": None}, call("g", "{}", index=-1, name_id=None), "tool_unknown"),
        ({"functions": [{"name": "f"}], "tools": None, "function_call": {"name": "f"}}, (), "tool_choice_required"),
    ],
)  # fmt: skip
def test_what_the_caller_asked_for_is_judged_behind_the_call_itself(
    members: dict[str, Any], events: Sequence[Event], code: str
) -> None:
    """`tool_choice`, `parallel_tool_calls`, ids of their own; the legacy members too."""
    assert code_of(made(**members), *events) == code


@pytest.mark.parametrize("reason", ["length", "content_filter"])
def test_a_forced_call_may_be_missing_where_the_answer_was_cut(reason: str) -> None:
    """It is the answer that there is."""
    assert code_of(made(tool_choice="required"), reasons={0: reason}) == ""
    judge = made(tool_choice="required", choices=2)
    assert code_of(judge, reasons={0: reason, 1: "stop"}) == "tool_choice_required"
    judge = made(tool_choice="required", choices=2)
    assert code_of(judge, *call(choice=1), reasons={0: reason, 1: "stop"}) == ""


def test_parallel_calls_are_counted_choice_by_choice() -> None:
    """Each may have its one."""
    judge = made(parallel_tool_calls=False, choices=2)
    assert code_of(judge, *call(), *call(choice=1)) == ""


def test_without_tools_in_the_request_names_are_not_judged() -> None:
    """A stored prompt may carry them; arguments are, unless the call is custom."""
    for tools in (None, [], [{"type": "web_search"}]):
        assert code_of(made(tools=tools), *call("any", '{"a":1}')) == ""
        assert code_of(made(tools=tools), *call("any", "{")) == "tool_arguments_json"
        assert code_of(made(tools=tools), *call("any", "text", custom=True)) == ""
    assert code_of(tool_calls(FilterContext(1)), *call("any", "")) == ""


@pytest.mark.parametrize("schema", [{"$ref": "https://example.com/s"}, {"type": "novel"}, 7])
def test_a_schema_that_is_not_usable_is_not_judged_by(schema: object) -> None:
    """The filter says so; the arguments have to be an object all the same."""
    tools = [{"type": "function", "function": {"name": "f", "parameters": schema}}]
    judge = made(tools=tools)
    assert judge.notice is None
    assert code_of(judge, *call("f", '{"a":1}')) == ""
    assert judge.notice == "schema_unusable"
    assert code_of(made(tools=tools), *call("f", "")) == ""
    assert code_of(made(tools=tools), *call("f", "[]")) == "tool_arguments_object"


# --- what a violation says -----------------------------------------------------------------------


def test_a_violation_names_the_tool_and_quotes_the_arguments() -> None:
    """From where the call began; what shows of it are numbers."""
    verdict = judged(made(), TextDelta(0, "I look."), *call("count", '{"n":"x"}'), at=3)
    assert isinstance(verdict, Violated)
    assert verdict.position == 4
    assert verdict.failure.kind is FailureKind.TOOL_INVALID
    assert verdict.failure.code == "tool_arguments_schema"
    assert verdict.failure.reason == "tool count, /$defs/n/type, expected integer"
    (note,) = verdict.notes
    assert (note.schema_ref, note.tool, note.excerpt) == ("tool.1", "count", '{"n":"x"}')
    assert note.errors[0].pointer == "/n"
    assert "count" not in repr(verdict)


def test_an_unknown_tool_is_told_which_there_are() -> None:
    """With the call as it came."""
    verdict = judged(made(), *call("nobody", GOOD))
    assert isinstance(verdict, Violated)
    (note,) = verdict.notes
    assert (note.schema_ref, note.tool) == ("tool.unknown", None)
    assert note.excerpt == f"nobody({GOOD})"
    assert "get_file, count, free, write" in note.errors[0].message


def test_empty_arguments_are_told_what_is_missing() -> None:
    """Where the tool needs some."""
    verdict = judged(made(), *call(arguments=""))
    assert isinstance(verdict, Violated)
    assert verdict.notes[0].errors[0].keyword == "required"


def test_a_call_that_nobody_ended_is_judged_at_the_end() -> None:
    """Whoever mends nothing has no end to tell."""
    assert code_of(made(), *call()[:2]) == ""
    assert code_of(made(), *call(arguments="{")[:2]) == "tool_arguments_json"
    assert code_of(made(), ToolEnd(0, 7)) == ""


# --- what waits ----------------------------------------------------------------------------------


def passed(judge: ToolCallsFilter, *events: Event) -> list[int]:
    """The position that has passed behind each event, a frame each."""
    positions = []
    for position, event in enumerate(events):
        verdict = judge.observe([Frame(b"{}", (event,), 2)], position)
        assert isinstance(verdict, Passed)
        positions.append(verdict.position)
    assert isinstance(judge.finish(len(events), Facts((FinishFact(0, "tool_calls"),))), Passed)
    return positions


def test_a_call_waits_until_it_is_whole_and_text_before_it_does_not() -> None:
    """Parallel calls each for themselves; what comes between waits with them."""
    events = (TextDelta(0, "a"), *call(), *call(index=1)[:2], TextDelta(0, "b"), ToolEnd(0, 1))
    assert passed(made(), *events) == [1, 1, 1, 4, 4, 4, 4, 8]


def test_interleaved_calls_pass_together() -> None:
    """The first that is open holds."""
    one, two = call(), call(index=1)
    events = (one[0], two[0], one[1], two[1], two[2], one[2])
    assert passed(made(), *events) == [0, 0, 0, 0, 0, 6]


def test_where_only_one_call_may_come_it_waits_for_the_end() -> None:
    """Another would be a violation of both."""
    assert passed(made(parallel_tool_calls=False), TextDelta(0, "a"), *call()) == [1, 1, 1, 1]


def test_where_a_call_has_to_come_nothing_passes_before_it() -> None:
    """An answer without one is a violation of all of it."""
    events = (TextDelta(0, "I look."), *call(), TextDelta(0, "b"))
    assert passed(made(tool_choice="required"), *events) == [0, 0, 0, 4, 5]


# --- calls in the text ---------------------------------------------------------------------------


def test_a_call_in_the_text_is_a_violation_where_the_request_has_tools() -> None:
    """It is no tool call for any client."""
    events = (TextDelta(0, "I look.\n"), TextDelta(0, '<tool_call>{"name":'), TextDelta(0, '"count"'), TextDelta(0, "}"))  # fmt: skip
    verdict = judged(made(), *events, reasons={0: "stop"})
    assert isinstance(verdict, Violated)
    assert (verdict.position, verdict.code) == (1, "tool_call_in_text")
    (note,) = verdict.notes
    assert (note.schema_ref, note.tool) == ("tool.1", "count")
    assert note.excerpt.startswith('<tool_call>{"name":"count"')
    assert code_of(made(tools=None), *events, reasons={0: "stop"}) == ""
    assert code_of(made(), *events[:2], TextDelta(0, "count"), reasons={0: "stop"}) == "tool_call_in_text"  # fmt: skip


def test_text_that_may_become_a_call_waits_until_it_is_known() -> None:
    """A word of markup, and no more than the window."""
    events = (TextDelta(0, "a\n"), TextDelta(0, "<tool_"), TextDelta(0, "box>"), TextDelta(0, "\n<|x|>"), TextDelta(0, "y" * 300))  # fmt: skip
    assert passed(made(), *events) == [1, 1, 3, 3, 5]


def test_an_answer_that_goes_on_does_not_begin_anew() -> None:
    """What would be markup at the beginning of a text is none within it."""
    events = (TextDelta(0, "<tool_call>count"),)
    judge = made()
    judge.prime("I look at ")
    assert code_of(judge, *events) == ""
    judge = made()
    judge.prime("I look.\n")
    assert code_of(judge, *events) == "tool_call_in_text"


# --- with mending before it: any cut -------------------------------------------------------------


def verdict_of(payloads: Sequence[bytes], sizes: Sequence[int]) -> tuple[Verdict, Any]:
    """The verdict on a stream that came in batches of these sizes, and the calls of the frames that were seen."""
    judge, mender = made(), ChatMender()
    frames = frames_of(*payloads)
    position, at = 0, 0
    seen: list[Frame] = []
    for size in (*sizes, len(frames)):
        batch = mender.mend(frames[at : at + size])
        at += size
        verdict = judge.observe(batch, position)
        position += len(batch)
        seen += batch
        if isinstance(verdict, Violated):
            return verdict, None
    rest, facts = mender.finish(Complete())
    verdict = judge.observe(rest, position)
    if isinstance(verdict, Passed):
        verdict = judge.finish(position + len(rest), facts)
    said = [event for frame in [*seen, *rest] for event in frame.events]
    whole: dict[int | None, tuple[str, str]] = {}
    for event in said:
        if isinstance(event, ToolDelta):
            name, arguments = whole.get(event.index, ("", ""))
            whole[event.index] = (name + (event.name or ""), arguments + (event.arguments or ""))
    return verdict, whole


CALLS = st.lists(
    st.tuples(
        st.sampled_from(["get_file", "count", "free", "nobody"]),
        st.sampled_from([GOOD, "{}", "", '{"n":1}', '{"n":"x"}', "[1]", "{", GOOD + GOOD, '{"path":"\u00e9\U0001f680"}']),
    ),
    min_size=1,
    max_size=3,
)  # fmt: skip


@given(calls=CALLS, data=st.data())
def test_any_cut_of_the_same_calls_gives_the_same_verdict(
    calls: list[tuple[str, str]], data: st.DataObject
) -> None:
    """Over deltas, frames and batches: the code and the notes, and the calls where there is none."""
    whole = [calling(begin(n, name, text)) for n, (name, text) in enumerate(calls)]
    cut: list[bytes] = [payload({"role": "assistant"})]
    for number, (name, text) in enumerate(calls):
        entries = [begin(number, name, "")]
        while text:
            size = data.draw(st.integers(1, 5))
            entries.append(entry(number, arguments=text[:size]))
            text = text[size:]  # noqa: PLW2901 - what is left of it
        cut += map(calling, entries)
    sizes = data.draw(st.lists(st.integers(1, 4), max_size=6))
    first, said = verdict_of([payload({"role": "assistant"}), *whole, end("stop")], [1])
    second, said_too = verdict_of([*cut, end("stop")], sizes)
    if isinstance(first, Passed):
        assert isinstance(second, Passed)
        assert said == said_too
    else:
        assert isinstance(second, Violated)
        assert (second.code, second.failure, second.notes) == (first.code, first.failure, first.notes)  # fmt: skip


@pytest.mark.no_cover
def test_ten_thousand_calls_and_a_hundred_thousand_pieces_are_judged_in_time() -> None:
    """A piece costs microseconds, whatever else is open."""
    judge = made(tools=None)
    open_calls = [ToolDelta(0, index, str(index), "f", "{") for index in range(10_000)]
    for position, event in enumerate(open_calls):
        judge.observe([Frame(b"{}", (event,), 2)], position)
    for _ in range(100_000):
        judge.observe([Frame(b"{}", (ToolDelta(0, 5, None, None, " "),), 2)], 10_000)
    for index in range(10_000):
        events = (ToolDelta(0, index, None, None, "}"), ToolEnd(0, index))
        judge.observe([Frame(b"{}", events, 2)], 10_000)
    assert judge.finish(10_001, Facts((FinishFact(0, "stop"),))) == Passed(10_001)
