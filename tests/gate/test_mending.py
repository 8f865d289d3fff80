"""Mending: closing facts leave the frames and are kept, texts become whole, roles are said once, and every other byte stays."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gate.events import (
    Complete,
    Facts,
    Finish,
    FinishFact,
    Frame,
    Identity,
    Mend,
    ReasoningDelta,
    RoleDelta,
    TextDelta,
    UsageReport,
)
from gate.mending import ChatMender
from gate.reader import ChatBodyReader, ChatStreamReader

ROLES = frozenset({0})


def frames_of(*payloads: bytes) -> list[Frame]:
    """Each payload as its own event."""
    reader = ChatStreamReader(choices=1, event_bytes_max=1 << 20)
    stream = b"".join(b"data: " + payload.replace(b"\n", b"\ndata: ") + b"\n\n" for payload in payloads)  # fmt: skip
    frames = reader.feed(stream).frames
    assert len(frames) == len(payloads)
    return frames


def mended(*payloads: bytes) -> list[bytes]:
    """What remains of these payloads."""
    return [frame.data for frame in ChatMender().mend(frames_of(*payloads))]


def facts_of(*payloads: bytes, end: Complete | None = None) -> Facts:
    """The facts of these payloads."""
    mender = ChatMender()
    mender.mend(frames_of(*payloads))
    frames, facts = mender.finish(end or Complete())
    assert frames == []
    return facts


def chunk(choices: bytes, rest: bytes = b"") -> bytes:
    """One chunk."""
    return b'{"id":"c1","choices":[%b]%b}' % (choices, rest)


def delta(members: bytes, rest: bytes = b"", *, index: int = 0) -> bytes:
    """One chunk of one choice."""
    return chunk(b'{"index":%d,"delta":{%b}%b}' % (index, members, rest))


FIRST = delta(b'"role":"assistant","content":""')


# --- roles ---------------------------------------------------------------------------------------


def test_an_ordinary_frame_is_passed_on_as_it_is() -> None:
    """The very object."""
    mender = ChatMender()
    mender.mend(frames_of(FIRST))
    (frame,) = frames_of(b'{"choices":[{"index":0,"delta":{"content":"a"}}]}')
    assert mender.mend([frame])[0] is frame


def test_the_providers_first_role_frame_stays() -> None:
    """With all its bytes."""
    assert mended(FIRST) == [FIRST]


def test_a_repeated_role_goes_and_what_it_stood_beside_stays() -> None:
    """At the beginning of a delta, within it, at its end."""
    members = [b'"role":"assistant","content":"a"', b'"content":"a", "role":"assistant","x":1', b'"content":"a","role" : "assistant"']  # fmt: skip
    kept = [b'"content":"a"', b'"content":"a","x":1', b'"content":"a"']
    assert mended(FIRST, *map(delta, members)) == [FIRST, *map(delta, kept)]


def test_a_frame_with_nothing_but_a_repeated_role_is_dropped() -> None:
    """OpenRouter's empty deltas."""
    noise = delta(b'"role":"assistant","content":"","reasoning":null,"reasoning_details":[]')
    assert mended(FIRST, noise, delta(b'"role":"assistant"')) == [FIRST]


@pytest.mark.parametrize(
    ("members", "kept"),
    [
        (b'"content":"a"', b'"role":"assistant","content":"a"'),
        (b'"role":null,"content":"a"', b'"role":"assistant","content":"a"'),
        (b'"content":"a","role":""', b'"content":"a","role":"assistant"'),
        (b'"audio":{"id":"a"}', b'"role":"assistant","audio":{"id":"a"}'),
    ],
)
def test_where_no_role_came_the_first_content_says_it(members: bytes, kept: bytes) -> None:
    """Put in, or in the place of one that says nothing; the second frame is left alone."""
    second = delta(b'"content":"b"')
    assert mended(delta(members), second) == [delta(kept), second]


def test_an_empty_delta_waits_for_the_content_with_the_role() -> None:
    """It has no facts, so it stays."""
    assert mended(delta(b'"content":""'), delta(b"")) == [delta(b'"content":""'), delta(b"")]


def test_each_choice_says_its_own_role_once() -> None:
    """Interleaved, and two in one chunk."""
    second = delta(b'"content":"b"', index=1)
    both = chunk(b'{"index":1,"delta":{"role":"assistant"}},{"index":0,"delta":{"role":"assistant","content":"a"}}')  # fmt: skip
    left = chunk(b'{"index":1,"delta":{}},{"index":0,"delta":{"content":"a"}}')
    assert mended(FIRST, second, both) == [FIRST, delta(b'"role":"assistant","content":"b"', index=1), left]  # fmt: skip
    assert facts_of(FIRST, second).roles == frozenset({0, 1})


def test_a_role_that_was_said_before_the_attempt_is_a_repeat() -> None:
    """The attempt goes on with an answer: no frame says it again, and none is made to."""
    mender = ChatMender(roles=frozenset({0}))
    second = delta(b'"content":"b"', index=1)
    frames = mender.mend(frames_of(FIRST, delta(b'"content":"a"'), second))
    assert [frame.data for frame in frames] == [
        delta(b'"content":"a"'),
        delta(b'"role":"assistant","content":"b"', index=1),
    ]
    assert mender.finish(Complete())[1].roles == {0, 1}


# --- facts ---------------------------------------------------------------------------------------


def test_a_finish_is_taken_out_of_a_content_frame_with_the_members_of_its_choice() -> None:
    """vLLM: the text stays, the value becomes null, `stop_reason` is kept for the finish."""
    last = chunk(b'{"index":0,"delta":{"content":"."},"logprobs":null,"finish_reason":"stop","stop_reason":7}', b',"model":"m","fp":"x"')  # fmt: skip
    assert mended(FIRST, last)[1] == last.replace(b'"finish_reason":"stop"', b'"finish_reason":null')  # fmt: skip
    assert facts_of(FIRST, last) == Facts((FinishFact(0, "stop", b',"stop_reason":7', b',"fp":"x"'),), roles=ROLES)  # fmt: skip


def test_a_frame_with_nothing_but_a_finish_is_dropped() -> None:
    """Its delta is empty, absent, null, or has empty members."""
    for members in (b'"delta":{},', b"", b'"delta":null,', b'"delta":{"content":"","tool_calls":[],"x":{}},'):  # fmt: skip
        assert mended(FIRST, chunk(b'{"index":0,%b"finish_reason":"length"}' % members)) == [FIRST]


def test_a_finish_beside_logprobs_keeps_its_frame() -> None:
    """They stay with the frame."""
    assert len(mended(FIRST, delta(b"", b',"finish_reason":"stop","logprobs":{"content":[]}'))) == 2
    assert len(mended(FIRST, delta(b"", b',"finish_reason":"stop","logprobs":null'))) == 1


def test_a_finish_holds_no_other_choices_text() -> None:
    """One chunk with the end of one choice and a word of another."""
    both = chunk(b'{"index":0,"delta":{},"finish_reason":"stop"},{"index":1,"delta":{"role":"assistant","content":"b"},"finish_reason":null}')  # fmt: skip
    assert mended(FIRST, both) == [FIRST, both.replace(b'"stop"', b"null")]


def test_finishes_keep_their_order_and_the_first_of_a_choice_stays() -> None:
    """The second one is merged: it says nothing new."""
    ends = [delta(b"", b',"finish_reason":"%b"' % word, index=index) for index, word in ((1, b"max_tokens"), (0, b"stop"), (1, b"stop"))]  # fmt: skip
    assert [(fact.choice, fact.reason) for fact in facts_of(*ends).finishes] == [(1, "length"), (0, "stop")]  # fmt: skip


@pytest.mark.parametrize("word", [b"null", b'""', b"0", b"false", b'["stop"]'])
def test_a_finish_reason_that_is_none_stays_where_it_is(word: bytes) -> None:
    """Null, empty, or no text at all."""
    payload = delta(b'"content":"a"', b',"finish_reason":%b' % word)
    assert mended(FIRST, payload) == [FIRST, payload]
    assert facts_of(FIRST, payload).finishes == ()


def test_a_finish_reason_with_half_a_character_can_be_written() -> None:
    """Escaped as a half of a pair, it becomes U+FFFD."""
    assert facts_of(delta(b"", b',"finish_reason":"x\\ud83d"')).finishes[0].reason == "x�"


def test_usage_is_taken_out_wherever_it_stands() -> None:
    """On a chunk of its own, which goes, and on content chunks, which stay."""
    total = chunk(b'{"index":0,"delta":{"content":"a"}}', b',"usage":{"n":1}')
    bare = chunk(b"", b',"usage":{"n":2},"fp":"x"')
    assert mended(FIRST, total, bare) == [FIRST, total.replace(b'{"n":1}', b"null")]
    facts = facts_of(FIRST, total, bare)
    assert (facts.usage, facts.usage_members) == (b'{"n":2}', b',"fp":"x"')


def test_a_single_usage_object_keeps_its_bytes() -> None:
    """As the provider's own."""
    assert facts_of(chunk(b"", b',"usage":{"cost": 0.00007159}')).usage == b'{"cost": 0.00007159}'


def test_usage_is_known_before_the_attempt_ends() -> None:
    """As it was reported so far; an attempt that is cut is asked for it."""
    mender = ChatMender()
    seen = [mender.usage]
    for usage in (b'{"n": 1}', b'{"n":2,"m":1}'):
        mender.mend(frames_of(chunk(b"", b',"usage":' + usage)))
        seen.append(mender.usage)
    assert seen == [b"", b'{"n": 1}', b'{"n":2,"m":1}']
    assert mender.finish(Complete())[1].usage == mender.usage


def test_the_members_beside_a_finish_are_not_the_usages() -> None:
    """Both in one event: they go out with the finish, once."""
    both = chunk(b'{"index":0,"delta":{},"finish_reason":"stop"}', b',"usage":{"n":1},"fp":"x"')
    facts = facts_of(FIRST, both)
    assert (facts.usage_members, facts.finishes[0].event_members) == (b"", b',"fp":"x"')


@pytest.mark.parametrize("usage", [b"null", b"{}", b"0", b'"n/a"', b"[1]"])
def test_a_usage_that_is_no_object_with_members_stays(usage: bytes) -> None:
    """OpenAI says null on every chunk; the rest is nobody's usage."""
    payload = chunk(b"", b',"usage":%b' % usage)
    assert mended(payload) == [payload]
    assert facts_of(payload).usage == b""


def test_frames_without_facts_stay() -> None:
    """Azure's prompt filter, a choice without a delta, choices that are none."""
    payloads = [b'{"id":"","choices":[],"prompt_filter_results":[]}', chunk(b'{"index":0,"finish_reason":null,"content_filter_results":{}}'), b'{"choices":7,"id":"c"}', chunk(b"7")]  # fmt: skip
    assert mended(*payloads) == payloads


def test_an_implied_finish_is_a_fact_where_none_came() -> None:
    """And does not beat one that came."""
    end = Complete((Finish(0, "stop", ""), Finish(1, "stop", "")))
    facts = facts_of(delta(b"", b',"finish_reason":"length"'), end=end)
    assert [(fact.choice, fact.reason) for fact in facts.finishes] == [(0, "length"), (1, "stop")]


@pytest.mark.parametrize(
    ("index", "choice"), [(b"2", 2), (b"null", 0), (b'"x"', 0), (b"true", 0), (b"2.0", 0)]
)
def test_an_odd_index_is_choice_zero(index: bytes, choice: int) -> None:
    """As the decoder takes it."""
    payload = chunk(b'{"index":%b,"x":NaN,"delta":{"content":"a"},"finish_reason":"stop"}' % index)
    assert facts_of(payload).finishes[0].choice == choice
    assert facts_of(chunk(b'{"finish_reason":"stop"}')).finishes[0].choice == 0


def test_the_identity_of_the_attempt_is_kept() -> None:
    """From the frame that the reader marked."""
    mender = ChatMender()
    mender.mend(frames_of(b'{"choices":[]}', b'{"id":"c9","created":3,"choices":[]}'))
    assert mender.identity == Identity("c9", 3)


def test_a_mended_frame_loses_the_events_that_became_facts() -> None:
    """A filter sees the content alone, and the frame still counts as the bytes that it came in."""
    payload = delta(b'"content":"."', b',"finish_reason":"stop"')[:-1] + b',"usage":{"n":1}}'
    (frame,) = ChatMender().mend(frames_of(payload))
    assert (frame.events, frame.size) == ((TextDelta(0, "."), Identity("c1", 0)), len(payload) + 8)


# --- texts ---------------------------------------------------------------------------------------


def texts(*payloads: bytes, name: str = "content") -> list[Any]:
    """One member of choice 0, frame by frame."""
    return [json.loads(data)["choices"][0]["delta"].get(name) for data in mended(*payloads)]


@pytest.mark.parametrize("name", ["content", "reasoning_content", "reasoning", "refusal"])
def test_a_character_cut_in_two_is_put_together_where_its_second_half_begins(name: str) -> None:
    """Over a frame of another channel too; no frame is lost."""
    key = name.encode()
    pieces = [b'"%b":"a\\ud83d"' % key, b'"x":1', b'"%b":"\\ude80b"' % key]
    written = "reasoning_content" if name == "reasoning" else name
    assert texts(FIRST, *map(delta, pieces), name=written)[1:] == ["a", None, "\U0001f680b"]


def test_a_frame_that_lost_half_a_character_is_marked() -> None:
    """Until the other half has come, or something else in its place; in whatever channel it was, and over frames without text."""
    pieces = [b'"content":"a"', b'"content":"b\\ud83d"', b'"x":1', b'"content":"\\ude80\\ud83d"', b'"content":"c"', b'"reasoning":"\\ud83d"', b'"content":"d"', b'"reasoning":"e"', b'"content":"f"']  # fmt: skip
    frames = ChatMender(reasoning_field="reasoning").mend(frames_of(FIRST, *map(delta, pieces)))
    torn = [bool(frame.mend & Mend.TEXT) for frame in frames]
    assert torn == [False, False, True, True, True, False, True, True, False, False]


def test_a_frame_is_marked_with_nothing_else() -> None:
    """What mending did is done, and a whole character at the end is none."""
    for members, mend in ((b'"content":"\\ud83d\\ude80"', 0), (b'"content":[{"type":"text","text":"a"}]', 0), (b'"content":"a\\ud83d"', Mend.TEXT)):  # fmt: skip
        (frame,) = ChatMender().mend(frames_of(delta(members)))
        assert frame.mend == mend


def test_halves_of_different_channels_and_choices_are_not_mixed() -> None:
    """Each waits for its own."""
    frames = mended(delta(b'"content":"\\ud83d","reasoning":"\\ud83c"'), delta(b'"content":"\\ude81"', index=1), delta(b'"content":"\\ude80","reasoning":"\\udf89"'))  # fmt: skip
    deltas = [json.loads(data)["choices"][0]["delta"] for data in frames]
    assert deltas[1]["content"] == "�"
    assert (deltas[2]["content"], deltas[2]["reasoning_content"]) == ("\U0001f680", "\U0001f389")


def test_a_half_that_stays_alone_is_one_replacement_character() -> None:
    """Before other text, at a beginning, between two."""
    assert texts(FIRST, delta(b'"content":"a\\ud83d"'), delta(b'"content":"b"')) == ["", "a", "�b"]
    assert texts(FIRST, delta(b'"content":"\\ude80b"')) == ["", "�b"]
    assert texts(FIRST, delta(b'"content":"a\\ud83d\\ud83d"'), delta(b'"content":"\\ude80"')) == ["", "a�", "\U0001f680"]  # fmt: skip


@pytest.mark.parametrize(("first", "role"), [(FIRST, {}), (b'{"choices":[]}', {"role": "assistant"})])  # fmt: skip
def test_a_half_at_the_very_end_comes_out_before_the_ending(
    first: bytes, role: dict[str, str]
) -> None:
    """As a frame of its own, which says the role if it is the first that does."""
    mender = ChatMender()
    mender.mend(frames_of(first, delta(b'"reasoning":"\\ud83d"')))
    (frame,), facts = mender.finish(Complete())
    value = json.loads(frame.data)
    assert value["choices"] == [{"index": 0, "delta": role | {"reasoning_content": "�"}, "finish_reason": None}]  # fmt: skip
    assert facts.roles == ROLES
    assert mender.finish(Complete())[0] == []


def test_content_as_parts_becomes_text_and_reasoning() -> None:
    """Mistral's list; what stands beside it stays."""
    parts = b'"content":[{"type":"thinking","thinking":[{"type":"text","text":"hm"}]},{"type":"text","text":"a"}],"x":{"y":[1]}'
    (data,) = mended(delta(b'"role":"assistant",' + parts))
    assert json.loads(data)["choices"][0]["delta"] == {"role": "assistant", "content": "a", "reasoning_content": "hm", "x": {"y": [1]}}  # fmt: skip
    (data,) = mended(delta(b'"content":[{"type":"text","text":"a"}],"reasoning":"r"'))
    assert json.loads(data)["choices"][0]["delta"] == {"role": "assistant", "content": "a", "reasoning_content": "r"}  # fmt: skip


@pytest.mark.parametrize(
    ("field", "before", "after"),
    [
        ("reasoning_content", b'"reasoning":"r","x":1.0e0', b'"reasoning_content":"r","x":1.0e0'),
        ("reasoning_content", b'"reasoning_content":"r"', b'"reasoning_content":"r"'),
        ("reasoning_content", b'"reasoning_content":null,"reasoning":"r"', b'"reasoning_content":"r","reasoning":null'),
        ("reasoning_content", b'"reasoning":"r","reasoning_content":"r"', b'"reasoning":null,"reasoning_content":"r"'),
        ("reasoning_content", b'"reasoning":"","content":"a"', b'"reasoning":"","content":"a"'),
        ("reasoning", b'"reasoning_content":"r"', b'"reasoning":"r"'),
        ("reasoning", b'"reasoning":"r"', b'"reasoning":"r"'),
    ],
)  # fmt: skip
def test_reasoning_is_written_under_the_routes_name(
    field: str, before: bytes, after: bytes
) -> None:
    """Two names are read and one is written; every other byte stays."""
    first, payload = frames_of(FIRST, delta(before))
    mender = ChatMender(reasoning_field=field)
    mender.mend([first])
    (frame,) = mender.mend([payload])
    assert frame.data == delta(after)
    assert [event for event in frame.events if isinstance(event, ReasoningDelta)] == (
        [ReasoningDelta(0, "r")] if b'"r"' in before else []
    )


def test_reasoning_in_a_json_body_is_written_under_the_routes_name() -> None:
    """In every message, and only there."""
    body = b'{"reasoning":"mine","choices":[{"message":{"reasoning":"r","content":"a"},"finish_reason":"stop"}]}'
    reader = ChatBodyReader(choices=1, body_bytes_max=1 << 20, stream=False)
    reader.feed(body)
    (frame,) = ChatMender().mend(reader.eof().frames)
    assert frame.whole
    assert frame.data == body.replace(b'{"reasoning":"r"', b'{"reasoning_content":"r"')
    reader = ChatBodyReader(choices=1, body_bytes_max=1 << 20, stream=False)
    reader.feed(body)
    (frame,) = ChatMender(reasoning_field="reasoning").mend(reader.eof().frames)
    assert frame.data == body


def test_bytes_that_are_not_utf8_and_payloads_of_two_lines_become_one_line_of_utf8() -> None:
    """Whether or not anything else is to be done."""
    broken = b'{"id":"c1",\n"x":"\xff","choices":[{"index":0,"delta":{"content":"a\xff"}}]}'
    second = b'{"x":"\xff","choices":[]}'
    first, other = mended(broken, second)
    assert json.loads(first.decode())["choices"][0]["delta"] == {"role": "assistant", "content": "a�"}  # fmt: skip
    assert b"\n" not in first
    assert json.loads(other.decode()) == {"x": "�", "choices": []}


def test_facts_are_taken_from_a_frame_that_was_encoded_anew_as_well() -> None:
    """The half of a character, the finish and the usage in one chunk."""
    last = chunk(b'{"index":0,"delta":{"content":"a\\ud83d"},"finish_reason":"stop"}', b',"usage":{"n":1}')  # fmt: skip
    mender = ChatMender()
    (_, frame) = mender.mend(frames_of(FIRST, last))
    assert json.loads(frame.data) == {"id": "c1", "choices": [{"index": 0, "delta": {"content": "a"}, "finish_reason": None}], "usage": None}  # fmt: skip
    (rest,), facts = mender.finish(Complete())
    assert rest.events == (TextDelta(0, "�"),)
    assert facts == Facts((FinishFact(0, "stop"),), b'{"n":1}', roles=ROLES)


def test_odd_choices_beside_a_half_do_no_harm() -> None:
    """No delta, an index of another type, something that is no object."""
    odd = [chunk(b'{"index":"x","delta":{"content":"a"}},{"index":0,"delta":null},7'), b'{"choices":7}']  # fmt: skip
    assert mended(FIRST, delta(b'"content":"\\ud83d"'), *odd)[3] == b'{"choices":7}'


# --- whole bodies --------------------------------------------------------------------------------


def test_a_json_body_keeps_its_facts_which_are_only_noted() -> None:
    """Not a byte of it changes."""
    body = b'{"id":"c1","created":3,"choices":[{"index":0,"message":{"role":"assistant","content":"hi"},"finish_reason":"eos"}],"usage":{"n": 1}}'
    reader = ChatBodyReader(choices=1, body_bytes_max=999, stream=False)
    reader.feed(body)
    mender = ChatMender()
    (frame,) = mender.mend(reader.eof().frames)
    assert frame.data == body
    assert mender.identity == Identity("c1", 3)
    assert mender.finish(Complete()) == ([], Facts((FinishFact(0, "stop"),), b'{"n":1}'))


def test_an_empty_json_body_with_usage_is_mended_without_a_crash() -> None:
    """It has no choice to ask for its role."""
    frame = Frame(b'{"usage":{"n":1}}', (UsageReport(b'{"n":1}'),), 17, mend=1, whole=True)
    assert ChatMender().mend([frame]) == [frame]


# --- properties ----------------------------------------------------------------------------------

scalars = st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=3)
nested = st.recursive(scalars, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=2), inner, max_size=2), max_leaves=4)  # fmt: skip
words = st.text(st.characters(exclude_categories=()), max_size=3)
extras = st.dictionaries(st.sampled_from(["logprobs", "x", "y", "stop_reason"]), nested, max_size=2)
deltas = st.fixed_dictionaries({}, optional={"role": st.sampled_from(["assistant", "", None]), "content": words | st.none(), "reasoning": words, "refusal": words, "x": nested})  # fmt: skip
chunks = st.tuples(
    st.lists(st.tuples(st.integers(0, 1), deltas, st.sampled_from([None, "stop", ""]), extras), max_size=2, unique_by=lambda choice: choice[0]),
    st.dictionaries(st.sampled_from(["model", "fp", "created"]), nested, max_size=2),
    st.sampled_from([None, {}, {"n": 1}]),
)  # fmt: skip


def build(made: tuple[list[tuple[int, dict[str, Any], str | None, dict[str, Any]]], dict[str, Any], Any]) -> dict[str, Any]:  # fmt: skip
    """A chunk of generated parts."""
    choices, rest, usage = made
    return {"choices": [{**extra, "index": index, "delta": delta, "finish_reason": finish} for index, delta, finish, extra in choices], **rest, "usage": usage}  # fmt: skip


def without(value: dict[str, Any]) -> dict[str, Any]:
    """A chunk less the members that mending may touch."""
    named = {"role", "content", "reasoning", "reasoning_content", "refusal"}
    choices = [
        {name: item for name, item in choice.items() if name not in {"finish_reason", "delta"}}
        | {"delta": {name: item for name, item in choice["delta"].items() if name not in named}}
        for choice in value["choices"]
    ]
    return {**value, "choices": choices, "usage": None}


@given(st.lists(chunks.map(build), min_size=1, max_size=5))
def test_mending_touches_only_the_members_it_names(values: list[dict[str, Any]]) -> None:
    """What is not dropped comes in order, and all else in it is equal, whole pairs of halves apart."""
    mender = ChatMender()
    for value in values:
        before = json.loads(json.dumps(value))
        for frame in mender.mend(frames_of(json.dumps(value).encode())):
            after = json.loads(frame.data)
            assert without(after) == without(before)
            assert {choice["finish_reason"] for choice in after["choices"]} <= {None, ""}


@given(st.lists(chunks.map(build), min_size=1, max_size=6))
def test_no_text_is_lost_and_roles_and_finishes_are_said_once(values: list[dict[str, Any]]) -> None:
    """Per choice and channel the joined text is the provider's, halves that stay alone as U+FFFD."""
    mender = ChatMender()
    frames = mender.mend(frames_of(*(json.dumps(value).encode() for value in values)))
    rest, facts = mender.finish(Complete())
    after = [json.loads(frame.data) for frame in (*frames, *rest)]
    for index in range(2):
        for name in ("content", "reasoning", "refusal"):
            whole = "".join(said(values, index, name))
            written = "reasoning_content" if name == "reasoning" else name
            assert "".join(said(after, index, written)) == whole.encode("utf-16", "surrogatepass").decode("utf-16", "replace")  # fmt: skip
        assert len([role for role in said(after, index, "role") if role]) <= 1
    finished = {choice["index"] for value in values for choice in value["choices"] if choice["finish_reason"]}  # fmt: skip
    assert {fact.choice for fact in facts.finishes} == finished


def said(values: list[dict[str, Any]], index: int, name: str) -> list[str]:
    """One member of one choice's deltas, where it says something."""
    return [
        choice["delta"][name]
        for value in values
        for choice in value["choices"]
        if choice["index"] == index and choice["delta"].get(name)
    ]


def test_the_events_of_a_mended_frame_are_those_of_its_bytes() -> None:
    """What filters judge is what the caller gets."""
    mender = ChatMender()
    payloads = (
        FIRST,
        delta(b'"role":"assistant","content":"a\\ud83d"'),
        delta(b'"content":"\\ude80b"'),
    )
    frames = mender.mend(frames_of(*payloads))
    assert [event for frame in frames for event in frame.events if isinstance(event, TextDelta)] == [TextDelta(0, "a"), TextDelta(0, "\U0001f680b")]  # fmt: skip
    assert RoleDelta(0, "assistant") in frames[0].events


@pytest.mark.parametrize(
    ("reason", "told"), [("length", [(0, "stop"), (1, "length")]), ("error", [(0, "stop")])]
)
def test_a_choice_that_nobody_asked_for_ends_behind_the_others(
    reason: str, told: list[tuple[int, str]]
) -> None:
    """If anything of it was told, and it did not fail."""
    mender = ChatMender(choices=1)
    said = [delta(b'"content":"b"', index=1), FIRST]
    ends = [b'{"choices":[{"index":%d,"delta":{},"finish_reason":"%b"}]}' % each for each in ((1, reason.encode()), (2, b"stop"), (0, b"stop"))]  # fmt: skip
    mender.mend(frames_of(*said, *ends))
    facts = mender.finish(Complete())[1]
    assert [(fact.choice, fact.reason) for fact in facts.finishes] == told


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (b'"delta":{"content":"a"}', b'"index":0,"delta":{"content":"a"}'),
        (b'"index" : null,"delta":{"content":"a"}', b'"index" : 0,"delta":{"content":"a"}'),
        (b'"index":"1","delta":{"content":"a"}', b'"index":0,"delta":{"content":"a"}'),
        (b"", b'"index":0'),
    ],
)
def test_a_choice_without_a_number_gets_one(said: bytes, told: bytes) -> None:
    """Every other byte stays, and a choice that has one keeps it."""
    first = delta(b'"role":"assistant","content":""')
    (frame,) = mended(first, b'{"choices":[{%b}],"x":1.0}' % said)[1:]
    assert frame == b'{"choices":[{%b}],"x":1.0}' % told
