"""Think tags: what is thought becomes reasoning, a stray closing tag goes, an answer about tags survives, and the cut makes no difference."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gate.events import Complete, Frame, ReasoningDelta, TextDelta
from gate.evidence import FRAME_OVERHEAD_BYTES
from gate.loose_json import integer, items
from gate.mending import ChatMender
from gate.mending_think import SPACES_MAX, ThinkTags
from gate.openai import decode_object
from gate.reader import ChatBodyReader, ChatStreamReader

Said = dict[int, tuple[str, str]]


def chunk(*choices: dict[str, Any]) -> bytes:
    """One event of these choices."""
    return b"data: %b\n\n" % json.dumps({"id": "c1", "choices": list(choices)}).encode()


def delta(*, index: int = 0, **members: object) -> bytes:
    """One event of one delta."""
    return chunk({"index": index, "delta": members})


ROLE = delta(role="assistant", content="")


def frames_of(*events: bytes) -> list[Frame]:
    """Each event as a frame."""
    return ChatStreamReader(choices=9, event_bytes_max=1 << 20).feed(b"".join(events)).frames


def mender(field: str = "reasoning_content", before: str = "") -> ChatMender:
    """One with the step."""
    return ChatMender(reasoning_field=field, roles=frozenset(range(9)), tags=ThinkTags(field, before=before))  # fmt: skip


def mended(*events: bytes, before: str = "") -> list[Frame]:
    """What leaves the mender of a complete attempt."""
    made = mender(before=before)
    frames = [frame for event in events for frame in made.mend(frames_of(event))]
    return frames + made.finish(Complete())[0]


def said_in(frames: list[Frame], field: str = "reasoning_content") -> Said:
    """Reasoning and text of each choice: the events say it, and so do the bytes."""
    by_events: dict[int, tuple[str, str]] = {}
    by_bytes: dict[int, tuple[str, str]] = {}
    for frame in frames:
        for event in frame.events:
            if isinstance(event, TextDelta | ReasoningDelta):
                add(by_events, event.choice, event.text, thought=isinstance(event, ReasoningDelta))
        for choice in items(json.loads(frame.data)["choices"]):
            message = choice.get("delta") or choice.get("message") or {}
            add(by_bytes, integer(choice.get("index")), message.get(field) or "", thought=True)
            add(by_bytes, integer(choice.get("index")), message.get("content") or "", thought=False)
    assert by_events == {choice: said for choice, said in by_bytes.items() if any(said)}
    return by_events


def add(said: Said, choice: int, text: str, *, thought: bool) -> None:
    """`text` behind what was said before."""
    reasoning, answer = said.get(choice, ("", ""))
    said[choice] = (reasoning + text, answer) if thought else (reasoning, answer + text)


def split(text: str) -> tuple[str, str]:
    """Reasoning and text that come of an answer, whole, character by character, and as a JSON body: always the same."""
    whole = said_in(mended(ROLE, delta(content=text)))
    single = said_in(mended(ROLE, *(delta(content=each) for each in text)))
    assert single == whole
    body = json.dumps({"choices": [{"message": {"content": text}, "finish_reason": "stop"}]})
    reader = ChatBodyReader(choices=1, body_bytes_max=1 << 20, stream=False)
    reader.feed(body.encode())
    made = mender()
    (frame,) = [*made.mend(reader.eof().frames), *made.finish(Complete())[0]]
    assert frame.whole
    assert said_in([frame]) == whole
    return whole.get(0, ("", ""))


# --- what becomes of a text ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "reasoning", "answer"),
    [
        ("<think>a</think>b", "a", "b"),
        ("<think>\nOkay.\nWell.\n</think>\n\nYes. ", "Okay.\nWell.", "Yes. "),
        ("\n<think>\n\n</think>\n\nYes.", "", "Yes."),
        ("<think></think>Yes.", "", "Yes."),
        ("<think>a</think> <think>b</think> c", "ab", "c"),
        ("<think>a</think></think>c", "a", "c"),
        ("<think>a <think> b</think>c", "a <think> b", "c"),
        ("<think>a < b </thin </think>c", "a < b </thin", "c"),
        ("<think>a</think>b </think> c", "a", "b  c"),
    ],
)
def test_what_is_thought_at_the_beginning_becomes_reasoning(
    text: str, reasoning: str, answer: str
) -> None:
    """The tags go, with the white space around them."""
    assert split(text) == (reasoning, answer)


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("</think>\n\nYes.", "Yes."),
        ("Hm.\n</think>\n\nYes.", "Hm.\n\n\nYes."),
        ("Part one </think> part two", "Part one  part two"),
        ("a</think></think>b", "ab"),
        ("a<</think>b", "a<b"),
    ],
)
def test_a_closing_tag_that_closes_nothing_goes(text: str, answer: str) -> None:
    """And nothing else does, but for white space at the beginning of an answer."""
    assert split(text) == ("", answer)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "  ",
        "\n\nYes.",
        "The tag <think> opens and </think> closes; </think> again.",
        "`<think>` and </think>",
        "a < b, </thinking>, <thin",
        "</THINK>",
        "<thinking>a</thinking>",
        " <",
        "</thin",
        "a </thin",
        "x" * 100 + "<think>a</think>",
        " " * (SPACES_MAX + 1) + "<think>a</think>",
    ],
)
def test_any_other_text_stays_as_it_is(text: str) -> None:
    """Every frame with its bytes."""
    assert split(text) == ("", text)
    events = [ROLE, *(delta(content=each) for each in text)]
    assert [frame.data for frame in mended(*events)] == [
        frame.data for frame in ChatMender(roles=frozenset({0})).mend(frames_of(*events))
    ]


@pytest.mark.parametrize(
    ("text", "reasoning"),
    [("<think>", ""), ("<think>\n", ""), ("<think>\nHm. ", "Hm. "), ("<think>a</th", "a</th")],
)
def test_what_is_never_closed_was_reasoning_only(text: str, reasoning: str) -> None:
    """There is no answer in it; whether that is a fault, others judge."""
    assert split(text) == (reasoning, "")


def test_much_white_space_in_a_thought_is_part_of_it() -> None:
    """No more than a bounded run belongs to the tag."""
    reasoning, answer = split("<think>a" + "\n" * 100 + "</think>b")
    assert (reasoning, answer) == ("a" + "\n" * (100 - SPACES_MAX), "b")


# --- frames --------------------------------------------------------------------------------------


def test_a_frame_that_has_no_part_in_a_tag_is_the_same_object() -> None:
    """At a glance, or after it was held."""
    made = mender()
    (first, second, third) = frames_of(delta(content="a"), delta(content="b <"), delta(content=" c"))  # fmt: skip
    assert made.mend([first])[0] is first
    assert made.mend([second]) == []
    released = made.mend([third])
    assert released[0] is second
    assert released[1] is third


def test_a_held_frame_holds_every_later_one() -> None:
    """Of any choice or channel, in order; it is accounted meanwhile."""
    made = mender()
    frames = frames_of(delta(content="a</"), delta(content="b", index=1), delta(reasoning_content="c"))  # fmt: skip
    assert made.mend(frames) == []
    assert made.held_bytes == sum(frame.size for frame in frames)
    assert made.ledger_bytes == made.held_bytes + 3 * FRAME_OVERHEAD_BYTES
    last = frames_of(delta(content="p>"))
    assert made.mend(last) == [*frames, *last]
    assert (made.held_bytes, made.ledger_bytes) == (0, 0)
    assert ChatMender().held_bytes == ChatMender().ledger_bytes == 0


def test_a_tag_that_is_cut_takes_its_part_of_each_frame() -> None:
    """A frame that had nothing else goes; unknown members stay, and so does the role."""
    frames = mended(
        delta(content="<th", role="assistant", token_id=7),
        delta(content="ink>a"),
        delta(content="</think"),
        delta(content=">"),
        delta(content="b", token_id=8),
    )
    assert [json.loads(frame.data)["choices"][0]["delta"] for frame in frames] == [
        {"content": "", "token_id": 7},
        {"content": "", "reasoning_content": "a"},
        {"content": "b", "token_id": 8},
    ]


def test_log_probabilities_stay_with_their_frame() -> None:
    """Even where its text has gone."""
    (frame, _) = mended(
        chunk({"index": 0, "delta": {"content": "<think>"}, "logprobs": {"content": [1]}}),
        delta(content="a"),
    )
    assert json.loads(frame.data)["choices"][0]["logprobs"] == {"content": [1]}


def test_each_choice_thinks_for_itself() -> None:
    """Interleaved, and both in one frame."""
    frames = mended(
        delta(content="<think>", index=1),
        delta(content="<think> is a tag", index=0),
        chunk(
            {"index": 0, "delta": {"content": "a</think>b"}},
            {"index": 1, "delta": {"content": "c</think>d"}},
        ),
        delta(content="Yes </think>", index=2),
    )
    assert said_in(frames) == {0: ("is a taga", "b"), 1: ("c", "d"), 2: ("", "Yes ")}


def test_a_choice_that_stands_twice_in_a_frame_says_it_once() -> None:
    """In the first place."""
    twice = chunk(
        {"index": 0, "delta": {"content": "<think>a"}},
        {"index": 0, "delta": {"content": "</think>b"}},
    )
    assert said_in(mended(twice)) == {0: ("a", "b")}


def test_reasoning_beside_a_thought_comes_before_it() -> None:
    """Under the name that the route writes, whatever the provider's."""
    made = mender("reasoning")
    frames = made.mend(frames_of(delta(content="<think>b", reasoning_content="a")))
    assert said_in(frames, "reasoning") == {0: ("ab", "")}
    frames = made.mend(frames_of(delta(content="</think>c", reasoning="z")))
    assert said_in(frames, "reasoning") == {0: ("z", "c")}


def test_half_a_character_in_a_thought_is_made_whole() -> None:
    """Surrogates come before tags, and a half that stays alone is thought too."""
    pieces = [r'"<think>\ud83d"', r'"\ude00\ud83d"']
    events = [b'data: {"choices":[{"index":0,"delta":{"content":%b}}]}\n\n' % each.encode() for each in pieces]  # fmt: skip
    assert said_in(mended(*events)) == {0: ("\U0001f600\ufffd", "")}


def test_no_tag_goes_on_behind_a_tool_call() -> None:
    """What was held for it goes at once."""
    step = ThinkTags("reasoning_content")
    call = delta(tool_calls=[{"index": 0, "id": "t", "function": {"name": "f"}}])
    frames = frames_of(delta(content="\n"), call)
    assert step.feed(frames[:1]) == []
    assert step.feed(frames[1:]) == frames
    assert step.feed(frames_of(call)) == frames_of(call)
    assert step.feed(frames_of(delta(content="a</", index=1), call)) == []


# --- an answer that goes on ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "text", "reasoning", "answer"),
    [
        ("One", " two </think> three", "", " two  three"),
        ("One", " </think> two", "", "  two"),
        ("One <think>", " two</think>", "", " two</think>"),
        ("One", "<think>a</think>b", "a", "b"),
    ],
)
def test_what_goes_on_knows_what_was_said(
    before: str, text: str, reasoning: str, answer: str
) -> None:
    """The seam sees one that thinks again by its reasoning."""
    assert said_in(mended(delta(content=text), before=before)) == {0: (reasoning, answer)}


# --- any cut -------------------------------------------------------------------------------------


pieces = st.sampled_from(["<think>", "</think>", "<", "/", "think>", "</th", "a", "b c", "\n", " ", "  \n", "x" * 70, " " * 70])  # fmt: skip
texts = st.lists(pieces, max_size=12).map("".join)


@given(said=st.lists(texts, min_size=1, max_size=3), data=st.data())
def test_however_a_text_is_cut_the_same_comes_of_it(said: list[str], data: st.DataObject) -> None:
    """Over frames, the choices in any mixture; nothing is lost but tags and white space, and a text without a tag keeps its frames."""
    whole = said_in(mended(*(delta(content=text, index=index) for index, text in enumerate(said))))
    rests = {index: text for index, text in enumerate(said) if text}
    events: list[bytes] = []
    while rests:
        index = data.draw(st.sampled_from(sorted(rests)))
        size = data.draw(st.integers(1, len(rests[index])))
        events.append(delta(content=rests[index][:size], index=index))
        rests[index] = rests[index][size:]
        if not rests[index]:
            del rests[index]
    frames = mended(*events)
    assert said_in(frames) == whole
    if not any("think>" in text for text in said):
        assert [frame.data for frame in frames] == [frame.data for frame in frames_of(*events)]
    for frame in frames:
        again = decode_object(json.loads(frame.data))[0]
        assert {type(event): event for event in again} == {type(event): event for event in frame.events if isinstance(event, TextDelta | ReasoningDelta)}  # fmt: skip


def test_it_shows_no_content() -> None:
    """By itself."""
    tags = ThinkTags("reasoning")
    tags.feed(frames_of(delta(content="<th")))
    assert repr(tags) == "ThinkTags(1 frames held)"
