"""The last step for an answer that has to be JSON: what stands around it goes, JSON among thoughts is the answer, a cut is called one; all else stays."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gate.config import StructuredOutput
from gate.events import Facts, FinishFact, Frame, ReasoningDelta, TextDelta
from gate.filters.contract import FilterContext
from gate.mending_format import FormatMender, Settled, format_mender
from gate.openai import decode_object

OBJECT = {"type": "json_object"}
STOP = Facts((FinishFact(0, "stop"),))


def made(level: StructuredOutput = "repair", choices: int = 1, ceiling: int = 0) -> FormatMender:
    """The step of such a request."""
    context = FilterContext(choices, OBJECT, level, ceiling=ceiling)
    mender = format_mender(["empty", "structured_output"], context, "reasoning")
    assert mender is not None
    return mender


def delta(index: int = 0, /, **members: Any) -> Frame:
    """One frame of one choice."""
    value = {"choices": [{"index": index, "delta": members}]}
    events, _ = decode_object(value)
    return Frame(json.dumps(value).encode(), tuple(events), 2)


def said(*words: str) -> list[Frame]:
    """A frame for each."""
    return [delta(content=word) for word in words]


def text(frames: list[Frame], choice: int = 0, name: str = "content") -> str:
    """What the frames say, by their bytes and by their events."""
    kind = TextDelta if name == "content" else ReasoningDelta
    values = [each for frame in frames for each in json.loads(frame.data)["choices"]]
    in_bytes = "".join(each["delta"].get(name) or "" for each in values if each["index"] == choice)
    events = [event for frame in frames for event in frame.events]
    assert in_bytes == "".join(
        event.text for event in events if isinstance(event, kind) and event.choice == choice
    )
    return in_bytes


def used(tokens: int, facts: Facts = STOP) -> Facts:
    """The same with this usage."""
    return Facts(facts.finishes, b'{"completion_tokens":%d}' % tokens)


# --- what stands around it -------------------------------------------------------------------------


def test_a_fence_goes_with_what_it_stood_in() -> None:
    """Cut anywhere; a frame within it keeps its bytes, and one that had nothing else goes."""
    frames = said("``", "`json", '\n{"a": "', "```", '"}', "\n`", "``")
    settled = made().settle(frames, STOP)
    assert (settled.changed, settled.remarks, settled.facts) == (True, ("format_unwrapped",), STOP)
    assert len(settled.frames) == 3
    assert settled.frames[1] is frames[3]
    assert settled.frames[2] is frames[4]
    assert text(settled.frames) == '{"a": "```"}'


def test_outer_white_space_goes_and_other_members_stay() -> None:
    """With a byte order mark."""
    frames = [delta(content="\ufeff "), delta(content=" {}\n", reasoning="Hm.", x=1)]
    settled = made().settle(frames, STOP)
    assert [json.loads(each.data)["choices"][0]["delta"] for each in settled.frames] == [
        {"content": "{}", "reasoning": "Hm.", "x": 1}
    ]


@pytest.mark.parametrize(
    "words",
    ["{}", "Sure! {}", "```\nno\n```", "```json\n{}\n``` Bye", "", "```\n{}\n```\n```\n{}\n```", " x "],
)  # fmt: skip
def test_anything_else_is_left_as_it_is(words: str) -> None:
    """The very list."""
    frames = said(words)
    assert made().settle(frames, STOP) == Settled(frames, STOP)
    assert made().settle(frames, STOP).frames is frames


def test_each_choice_is_mended_by_itself() -> None:
    """Those that were asked for, and ended as an answer."""
    frames = [delta(choice, content=" {}") for choice in range(4)]
    facts = Facts(tuple(FinishFact(choice, "stop" if choice else "length") for choice in range(4)))
    settled = made(choices=3).settle(frames, facts)
    assert [text(settled.frames, choice) for choice in range(4)] == [" {}", "{}", "{}", " {}"]
    assert settled.remarks == ("format_unwrapped",) * 2


@pytest.mark.parametrize(
    "members",
    [
        {"refusal": "No."},
        {"audio": {"id": "a"}},
        {"tool_calls": [{"index": 0, "id": "t", "function": {"name": "f"}}]},
    ],
)
def test_a_choice_that_is_not_text_alone_is_left_alone(members: dict[str, Any]) -> None:
    """A preamble to a call may look as it likes."""
    frames = [*said(" {}"), delta(**members)]
    assert not made().settle(frames, STOP).changed
    empty = delta(tool_calls=[{"index": 0}])
    assert made().settle([*said(" {}"), empty], STOP).changed


def test_a_body_is_mended_too() -> None:
    """It stays one."""
    body = b'{"choices":[{"message":{"content":"```{}```"},"finish_reason":"stop"}]}'
    (frame,) = made().settle([Frame(body, (TextDelta(0, "```{}```"),), 9, whole=True)], STOP).frames
    assert frame.whole
    assert json.loads(frame.data)["choices"][0]["message"]["content"] == "{}"


# --- JSON among thoughts ---------------------------------------------------------------------------


def test_json_in_the_reasoning_is_the_answer_where_there_is_no_other() -> None:
    """With or without what stands around it."""
    frames = [delta(reasoning="```\n"), delta(content="\n"), delta(reasoning='{"a"'), delta(reasoning=":1}\n```")]  # fmt: skip
    settled = made().settle(frames, STOP)
    assert settled.remarks == ("format_promoted",)
    assert (text(settled.frames), text(settled.frames, name="reasoning")) == ('{"a":1}', "")
    assert len(settled.frames) == 2


@pytest.mark.parametrize(
    ("thought", "words"), [("Hm. {}", ""), ("7", ""), ('"a"', ""), ("{}", "No."), ("", "")]
)
def test_what_is_a_thought_stays_one(thought: str, words: str) -> None:
    """Nothing but a whole object or array is an answer, and none where there is text."""
    frames = [delta(reasoning=thought), delta(content=words), delta(x=1)]
    assert not made().settle(frames, STOP).changed


def test_a_frame_without_a_part_in_it_stays() -> None:
    """Promoting touches reasoning only."""
    other = delta(x=1)
    settled = made().settle([delta(reasoning="{}"), other], STOP)
    assert settled.frames[1] is other


def test_a_route_that_rejects_mends_no_text() -> None:
    """What it wants is an answer that fits as it is."""
    for frames in (said(" {}"), said("```{}```"), [delta(reasoning="{}")]):
        assert made("reject").settle(frames, STOP) == Settled(frames, STOP)


# --- a cut -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("words", ['{"a": "b', "[1, 2", "", "```json\n{"])
def test_json_that_ends_early_at_the_ceiling_was_cut(words: str) -> None:
    """Whatever the provider called it."""
    frames = said(words)
    settled = made(ceiling=9).settle(frames, used(9))
    assert (settled.frames, settled.changed, settled.remarks) == (frames, False, ("finish_length",))
    assert settled.facts == used(9, Facts((FinishFact(0, "length"),)))


@pytest.mark.parametrize(
    ("words", "ceiling", "tokens"),
    [("{", 9, 8), ("{", 0, 9), ("{}", 9, 9), ("{} x", 9, 9), ("Sure", 9, 9), ("12", 9, 9)],
)
def test_an_end_that_was_no_cut_keeps_its_name(words: str, ceiling: int, tokens: int) -> None:
    """Below the ceiling, without one, whole, or beside the point."""
    assert made(ceiling=ceiling).settle(said(words), used(tokens)).facts == used(tokens)


def test_a_cut_is_called_one_where_the_route_rejects() -> None:
    """A fence it does not take off is no JSON either."""
    assert made("reject", ceiling=9).settle(said("{"), used(9)).remarks == ("finish_length",)
    assert made("reject", ceiling=9).settle(said("```{"), used(9)).remarks == ()


def test_usage_of_several_choices_is_that_of_all() -> None:
    """Only where it reaches all their ceilings, each has reached its own."""
    facts = Facts((FinishFact(0, "stop"), FinishFact(1, "stop")))
    frames = [delta(0, content="{}"), delta(1, content="{")]
    assert made(choices=2, ceiling=9).settle(frames, used(17, facts)).facts == used(17, facts)
    cut = Facts((FinishFact(0, "stop"), FinishFact(1, "length")))
    assert made(choices=2, ceiling=9).settle(frames, used(18, facts)).facts == used(18, cut)


# --- the request -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("filters", "asked", "level"),
    [
        (["empty"], OBJECT, "repair"),
        (["structured_output"], None, "repair"),
        (["structured_output"], {"type": "text"}, "repair"),
        (["structured_output"], OBJECT, "check"),
        (["structured_output"], OBJECT, "off"),
    ],
)
def test_without_a_filter_that_holds_the_answer_there_is_no_such_step(
    filters: list[str], asked: object, level: StructuredOutput
) -> None:
    """Frames that have been released can't be mended."""
    assert format_mender(filters, FilterContext(1, asked, level), "reasoning") is None


# --- any cut ---------------------------------------------------------------------------------------


@given(
    data=st.data(),
    inner=st.sampled_from(["{}", '{"a": "`` ```"}', "[1]", "no", ""]),
    around=st.sampled_from([("", ""), ("```json\n", "\n```"), ("\ufeff\n", "  "), ("```", "``")]),
    name=st.sampled_from(["content", "reasoning"]),
)
def test_however_an_answer_is_cut_the_same_comes_of_it(
    data: st.DataObject, inner: str, around: tuple[str, str], name: str
) -> None:
    """Its text and its reasoning."""
    rest = around[0] + inner + around[1]
    whole = made().settle([delta(0, **{name: rest})], STOP)
    frames: list[Frame] = []
    while rest:
        size = data.draw(st.integers(1, len(rest)))
        frames.append(delta(0, **{name: rest[:size]}))
        rest = rest[size:]
    settled = made().settle(frames, STOP)
    assert (settled.changed, settled.remarks) == (whole.changed, whole.remarks)
    for each in ("content", "reasoning"):
        assert text(settled.frames, name=each) == text(whole.frames, name=each)
