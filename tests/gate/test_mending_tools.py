"""Tool calls are put together: what the provider meant comes out, whole calls only, in order of arrival, and what needed nothing keeps its bytes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gate.events import Complete, Facts, Finish, Frame, TextDelta, ToolDelta, ToolEnd
from gate.mending import ChatMender
from gate.mending_tools import ToolMender, stays_as_it_is
from gate.reader import ChatBodyReader
from tests.assembly import Call, assemble
from tests.calling import ARGUMENTS, ROLE, begin, calling, end, entry, frames_of, payload


def mended(
    *payloads: bytes, choices: int = 1, ceiling: int | None = None, complete: Complete | None = None
) -> tuple[list[Frame], Facts]:
    """What comes of these payloads, and the facts."""
    mender = ChatMender(choices=choices, ceiling=ceiling)
    frames = mender.mend(frames_of(*payloads, choices=choices))
    rest, facts = mender.finish(complete or Complete())
    assert not mender.holding
    assert mender.held_bytes == 0
    return frames + rest, facts


def calls_in(frames: Sequence[Frame], choice: int = 0) -> dict[int, Call]:
    """What a client assembles."""
    values = [{"created": 7, "model": "m", "id": "c1"} | json.loads(frame.data) for frame in frames]
    answer = assemble(values).choices
    return answer[choice].calls if choice in answer else {}


def calls_of(*payloads: bytes) -> list[Call]:
    """The calls of one choice that a client assembles of the answer, in order of their indexes, which go up from 0."""
    calls = calls_in(mended(payload(ROLE), *payloads, end())[0])
    assert list(calls) == list(range(len(calls)))
    return list(calls.values())


# --- what stays ----------------------------------------------------------------------------------


def test_a_call_that_needs_nothing_leaves_in_the_providers_own_frames() -> None:
    """Every byte, in pieces, two calls one after another; the last frame of each says that it is whole."""
    pieces = [calling(begin()), calling(entry(arguments='{"path"')), calling(entry(arguments=':"a"}')), calling(begin(1, "g", "{}"))]  # fmt: skip
    frames, facts = mended(payload(ROLE), *pieces, end())
    assert [frame.data for frame in frames] == [payload(ROLE), *pieces]
    ends = [event for frame in frames for event in frame.events if isinstance(event, ToolEnd)]
    assert ends == [ToolEnd(0, 0), ToolEnd(0, 1)]
    assert isinstance(frames[3].events[-1], ToolEnd)
    assert [fact.reason for fact in facts.finishes] == ["tool_calls"]


def test_null_and_empty_members_of_later_pieces_are_fine() -> None:
    """No client stumbles over them."""
    pieces = [calling(begin(arguments=None)), calling(entry(id=None, name=None, arguments="{")), calling(entry(id="", type="function", name="", arguments="}"))]  # fmt: skip
    assert [frame.data for frame in mended(payload(ROLE), *pieces, end())[0][1:]] == pieces


def test_a_call_waits_until_it_is_whole_and_text_before_it_does_not() -> None:
    """Until the next call begins, if its arguments are an object by then, or its choice is over; what comes behind it waits with it."""
    mender = ChatMender(choices=2)
    counts = []
    batches = [payload(ROLE), payload({"content": "I look."}), calling(begin()), calling(entry(arguments=ARGUMENTS)), payload({"content": "b"}, choice=1), calling(begin(1, "g")), calling(entry(1, arguments="{}")), end()]  # fmt: skip
    for frame in frames_of(*batches, choices=2):
        counts.append(len(mender.mend([frame])))
        assert mender.holding is (mender.held_bytes > 0)
    assert counts == [1, 1, 0, 0, 0, 3, 0, 2]
    assert mender.held_bytes == 0


def test_an_ordinary_frame_is_the_very_object_again_once_nothing_is_held() -> None:
    """Before a call and behind it."""
    mender = ChatMender()
    role, first, call, stop, last = frames_of(payload(ROLE), payload({"content": "a"}), calling(begin(arguments="{}")), end(), payload({"content": "b"}))  # fmt: skip
    mender.mend([role])
    assert mender.mend([first])[0] is first
    assert mender.mend([call]) == []
    assert len(mender.mend([stop])) == 1
    assert mender.mend([last])[0] is last


def test_what_is_held_is_accounted_and_forgotten_when_it_is_dropped() -> None:
    """With what a frame and a call cost beside their bytes."""
    mender = ChatMender()
    frames = frames_of(calling(begin()), payload({"content": "a"}))
    mender.mend(frames)
    assert mender.held_bytes == sum(frame.size for frame in frames)
    assert mender.ledger_bytes > mender.held_bytes + 1024
    mender.drop()
    assert (mender.holding, mender.held_bytes, mender.ledger_bytes) == (False, 0, 0)


# --- shapes seen ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        # no index: a new id with a name opens the next call, anything else belongs to the newest
        ([[begin(None)], [entry(None, arguments=ARGUMENTS)]], [Call("call_f", "f", ARGUMENTS)]),
        ([[begin(None)], [entry(None, arguments="{}")], [begin(None, "g", "{}")]], [Call("call_f", "f", "{}"), Call("call_g", "g", "{}")]),
        ([[begin(None, "f", "{}"), begin(None, "g", "{}")]], [Call("call_f", "f", "{}"), Call("call_g", "g", "{}")]),
        ([[begin(None, "f", "{")], [begin(None, "g", "{")], [begin(None, "f", "}")], [begin(None, "g", "}")]], [Call("call_f", "f", "{}"), Call("call_g", "g", "{}")]),
        ([[begin(None)], [entry(None, id="x", arguments="{}")]], [Call("call_f", "f", "{}")]),
        # every call at one index
        ([[begin(0, "f", "{}")], [begin(0, "g", "{}")], [begin(0, "h", "{}")]], [Call(f"call_{name}", name, "{}") for name in "fgh"]),
        ([[begin(0, "f", "{")], [begin(0, "g", "{")], [entry(0, arguments="}")], [begin(0, "f", "}")]], [Call("call_f", "f", "{}"), Call("call_g", "g", "{}")]),
        ([[begin(0, "f", "{}")], [begin(0, "g", "{}")], [begin(1, "h")], [entry(1, arguments="{}")]], [Call(f"call_{name}", name, "{}") for name in "fgh"]),
        # a new id for each piece, without a name
        ([[begin()], *[[entry(0, id=f"c{n}", name="", arguments=each)] for n, each in enumerate(ARGUMENTS)]], [Call("call_f", "f", ARGUMENTS)]),
        # id, name and type again and again
        ([[begin(arguments=each)] for each in ARGUMENTS], [Call("call_f", "f", ARGUMENTS)]),
        # the name in pieces, and repeated
        ([[begin(0, "get_", None, id="x")], [entry(name="file")], [entry(name="get_file", arguments="{}")]], [Call("x", "get_file", "{}")]),
        # what a call begins with comes late
        ([[entry(0, name="f", type="function")], [entry(0, id="x", name="f", arguments="{}")]], [Call("x", "f", "{}")]),
        ([[entry(0, id="x", type="function")], [entry(0, id="y", name="f", arguments="{}")]], [Call("x", "", ""), Call("y", "f", "{}")]),
        ([[entry(0, type="function", arguments="{")], [entry(0, id="x", name="f", arguments="}")]], [Call("x", "f", "{}")]),
        # the index moves on within one call
        ([[begin(0, "f")], [entry(1, id="call_f", arguments="{}")]], [Call("call_f", "f", "{}")]),
        # arguments that are no string
        ([[begin(arguments={"path": "\u00e9"})]], [Call("call_f", "f", '{"path":"\u00e9"}')]),
        ([[begin(arguments=[1])]], [Call("call_f", "f", "[1]")]),
        ([[entry(0, id="x", type="function", name="f")]], [Call("x", "f", "")]),
        # an index that is no number
        ([[begin("0", "f", "{}")], [begin("1", "g", "{}")]], [Call("call_f", "f", "{}"), Call("call_g", "g", "{}")]),
        ([[begin(-1, "f", "{}")], [begin(True, "g", "{}")]], [Call("call_f", "f", "{}"), Call("call_g", "g", "{}")]),
        # two pieces of one call in one delta
        ([[begin(0, "f", "{"), entry(0, arguments="}")]], [Call("call_f", "f", "{}")]),
        # interleaved
        ([[begin(0, "f", "{"), begin(1, "g", "{")], [entry(1, arguments="}"), entry(0, arguments="}")]], [Call("call_f", "f", "{}"), Call("call_g", "g", "{}")]),
        # halves of a character
        ([[begin(arguments='{"a":"\ud83d')], [entry(arguments='\ude80"}')]], [Call("call_f", "f", '{"a":"\U0001f680"}')]),
        ([[begin(arguments='{"a":"\ud83d"}')]], [Call("call_f", "f", '{"a":"\ufffd"}')]),
        ([[begin(arguments='{"a":"\\ud83d')], [entry(arguments='\\ude80"}')]], [Call("call_f", "f", '{"a":"\\ud83d\\ude80"}')]),
        # nothing, and noise behind a whole call
        ([[entry(0)], [entry(None)]], []),
        ([[begin(0, "f", "{}")], [begin(1, "g", "{}")], [entry(0, arguments="")], [entry(0, name="f")]], [Call("call_f", "f", "{}"), Call("call_g", "g", "{}")]),
    ],
)  # fmt: skip
def test_every_shape_seen_gives_the_calls_that_were_meant(
    pieces: list[list[dict[str, Any]]], expected: list[Call]
) -> None:
    """One chunk for each list of entries; and all of them at once."""
    assert calls_of(*(calling(*entries) for entries in pieces)) == expected
    assert calls_of(calling(*[each for entries in pieces for each in entries])) == expected


def test_a_missing_id_is_made_of_the_attempts_identity_and_the_call() -> None:
    """The same for the same, another for any other; once for a call, whatever its pieces."""
    pieces = [calling(entry(0, type="function", name="f", arguments=each)) for each in "{}"]
    twice = calling(begin(0, "f", "{}", id=""), begin(1, "f", "{}", id=None))
    (one,), (same,), both = calls_of(*pieces), calls_of(*pieces), calls_of(twice)
    other = ToolMender()
    other.name = "another"
    (frame,) = [*other.take(frames_of(*pieces)[0]), *other.finish()]
    ids = [one.id, *[call.id for call in both], calls_in([frame])[0].id]
    assert one == same
    assert one.id.startswith("call_")
    assert len(one.id) == 29
    assert len(set(ids)) == 3
    assert both[0].id == one.id


def test_an_id_that_another_call_has_is_replaced() -> None:
    """Ids are unique; the first one keeps it."""
    first, second = calls_of(calling(begin(0, "f", "{}", id="x"), begin(1, "g", "{}", id="x")))
    assert first == Call("x", "f", "{}")
    assert second.id not in {"x", ""}
    assert (second.name, second.arguments) == ("g", "{}")


def test_a_mended_call_leaves_as_one_delta_with_all_its_members() -> None:
    """Unknown ones too, of the entry and of its function; the frame's own stay."""
    pieces = [calling(begin(None, "f", "{", extra_content={"a": 1}), system_fingerprint="x"), calling(entry(None, seen=2, arguments="}")), calling({"index": 0, "function": {"kind": "k"}})]  # fmt: skip
    frames, _ = mended(payload(ROLE), *pieces, end())
    assert len(frames) == 2
    value = json.loads(frames[1].data)
    assert value["system_fingerprint"] == "x"
    function = {"kind": "k", "name": "f", "arguments": "{}"}
    beside = {"extra_content": {"a": 1}, "seen": 2, "function": function}
    (made,) = value["choices"][0]["delta"]["tool_calls"]
    assert made == {"index": 0, "id": "call_f", "type": "function"} | beside
    assert frames[1].events == (ToolDelta(0, 0, "call_f", "f", "{}"), ToolEnd(0, 0))
    assert frames[1].size >= len(frames[1].data)


def test_a_custom_call_keeps_its_input() -> None:
    """Free text; it is over with its choice only, since nothing tells whether text is whole."""
    pieces = [calling({"id": "x", "type": "custom", "custom": {"name": "c", "input": "a b"}}), calling({"custom": {"input": "}"}}), calling(begin(1, "g", "{}"))]  # fmt: skip
    frames, _ = mended(payload(ROLE), *pieces, end())
    made = [each for frame in frames for each in json.loads(frame.data)["choices"][0]["delta"].get("tool_calls", ())]  # fmt: skip
    assert made[0] == {"index": 0, "id": "x", "type": "custom", "custom": {"name": "c", "input": "a b}"}}  # fmt: skip
    assert made[1] == begin(1, "g", "{}")
    assert ToolDelta(0, 0, "x", "c", "a b}", custom=True) in frames[1].events


def test_only_what_belongs_to_a_mended_call_changes_in_a_frame() -> None:
    """Text, log probabilities, another call that needs nothing; half a character in the text waits for its other half."""
    pieces = [payload({"content": "\ud83d", "tool_calls": [begin(0, "f", "{"), begin(1, "g", "{}")]}), payload({"content": "\ude80", "tool_calls": [entry(0, id="y", arguments="}")]})]  # fmt: skip
    frames, _ = mended(payload(ROLE), *pieces, end())
    assert "".join(event.text for frame in frames for event in frame.events if isinstance(event, TextDelta)) == "\U0001f680"  # fmt: skip
    assert calls_in(frames) == {0: Call("call_f", "f", "{}"), 1: Call("call_g", "g", "{}")}
    assert json.loads(frames[1].data)["choices"][0]["delta"]["tool_calls"][1] == begin(1, "g", "{}")
    probable = payload({"tool_calls": [entry(0, id="y", arguments="}")]})
    probable = probable.replace(b'"delta"', b'"logprobs":{"content":[1]},"delta"')
    frames, _ = mended(payload(ROLE), calling(begin(0, "f", "{")), probable, end())
    assert json.loads(frames[2].data)["choices"][0]["logprobs"] == {"content": [1]}
    assert json.loads(frames[2].data)["choices"][0]["delta"] == {}


def test_a_choice_that_says_nothing_is_passed_over() -> None:
    """Beside one whose call has no id."""
    beside = calling(begin(0, "f", "{}", id=None)).replace(
        b'"choices": [', b'"choices": [{"index": 1, "delta": null}, '
    )
    frames, _ = mended(payload(ROLE), beside, end(), choices=2)
    assert b'{"index":1,"delta":null}' in frames[1].data
    [call] = calls_in(frames).values()
    assert (call.name, call.id[:5]) == ("f", "call_")


def test_a_frame_that_says_who_speaks_stays_when_its_call_goes() -> None:
    """The attempt's identity and the role are worth a frame."""
    frames, _ = mended(calling(entry(0)), payload({"content": "a"}), end("stop"))
    assert len(frames) == 2
    assert json.loads(frames[0].data)["choices"][0]["delta"] == {}


def test_a_piece_for_a_call_that_is_whole_already_is_left_for_others_to_judge() -> None:
    """It can't be joined to what has left, and may not be lost."""
    late = calling(entry(0, arguments='"x"'))
    frames, _ = mended(payload(ROLE), calling(begin(0, "f", "{}")), calling(begin(1, "g", "{}")), late, end())  # fmt: skip
    assert [frame.data for frame in frames][-1] == late
    both = calling(entry(0, arguments='"x"'), entry(1, id="y", arguments=""))
    frames, _ = mended(payload(ROLE), calling(begin(0, "f", "{}")), calling(begin(1, "g", "{}")), both, end())  # fmt: skip
    assert json.loads(frames[-1].data)["choices"][0]["delta"]["tool_calls"] == [entry(0, arguments='"x"')]  # fmt: skip


def test_two_choices_have_calls_of_their_own() -> None:
    """Interleaved, at the same index."""
    pieces = [calling(begin(0, "f", "{"), choice=0), calling(begin(0, "g", "{"), choice=1), calling(entry(0, arguments="}"), choice=0), calling(entry(0, arguments="}"), choice=1)]  # fmt: skip
    frames, _ = mended(payload(ROLE), payload(ROLE, choice=1), *pieces, end(), end(choice=1), choices=2)  # fmt: skip
    assert [frame.data for frame in frames[2:]] == pieces
    assert calls_in(frames, 1) == {0: Call("call_g", "g", "{}")}


# --- the legacy member ---------------------------------------------------------------------------


def legacy(**members: Any) -> bytes:
    """A chunk with a `function_call`."""
    return payload({"function_call": members})


def test_a_legacy_call_is_held_whole_and_its_finish_stays() -> None:
    """No index, no id, and `stop` is no `tool_calls`."""
    pieces = [legacy(name="f", arguments=""), legacy(arguments="{}")]
    frames, facts = mended(payload(ROLE), *pieces, end("stop"))
    assert [frame.data for frame in frames] == [payload(ROLE), *pieces]
    assert frames[-1].events[-1] == ToolEnd(0, -1)
    assert facts.finishes[0].reason == "stop"


def test_a_legacy_call_in_odd_pieces_becomes_one() -> None:
    """Name repeated, arguments as an object."""
    frames, _ = mended(payload(ROLE), legacy(name="f"), legacy(name="f", arguments={"a": 1}), end("function_call"))  # fmt: skip
    assert len(frames) == 2
    delta = json.loads(frames[1].data)["choices"][0]["delta"]
    assert delta == {"function_call": {"name": "f", "arguments": '{"a":1}'}}


def test_a_legacy_call_that_is_cut_is_left_out() -> None:
    """Like any other."""
    frames, _ = mended(payload(ROLE), legacy(name="f", arguments='{"a'), end("length"))
    assert [frame.data for frame in frames] == [payload(ROLE)]


# --- how it ends ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "reason"),
    [("stop", "tool_calls"), ("tool_calls", "tool_calls"), ("eos", "tool_calls"), ("length", "length"), ("novel", "novel")],
)  # fmt: skip
def test_a_choice_with_a_whole_call_that_says_stop_ends_with_tool_calls(said: str, reason: str) -> None:  # fmt: skip
    """Any other reason stays."""
    frames, facts = mended(payload(ROLE), calling(begin(arguments="{}")), end(said))
    assert [fact.reason for fact in facts.finishes] == [reason]
    assert len(frames) == 2


def test_a_choice_without_a_call_keeps_its_stop() -> None:
    """Its neighbour has one; noise is none."""
    _, facts = mended(payload({"role": "assistant", "content": "a"}), calling(begin(arguments="{}"), choice=1), end("stop"), end("stop", 1), choices=2)  # fmt: skip
    assert [fact.reason for fact in facts.finishes] == ["stop", "tool_calls"]
    _, facts = mended(payload({"content": "a"}), calling(entry(0)), end("stop"))
    assert [fact.reason for fact in facts.finishes] == ["stop"]


def test_an_implied_finish_counts_calls_too() -> None:
    """The provider said none at all."""
    pieces = [payload(ROLE), calling(begin(arguments="{}")), payload({"content": "a"})]
    frames, facts = mended(*pieces, complete=Complete((Finish(0, "stop", ""),)))
    assert [frame.data for frame in frames] == pieces
    assert [fact.reason for fact in facts.finishes] == ["tool_calls"]


@pytest.mark.parametrize("reason", ["length", "content_filter"])
def test_at_an_early_end_a_call_that_is_not_whole_is_left_out(reason: str) -> None:
    """Text and the calls before it stay as they came."""
    pieces = [payload({"role": "assistant", "content": "I look."}), calling(begin(0, "f", "{}"))]
    for rest in ("", "{", '{"a":"b', "7", "{} {}"):
        cut = [calling(begin(1, "g", rest)), payload({"content": "x"})]
        frames, facts = mended(*pieces, *cut, end(reason))
        assert [frame.data for frame in frames] == [*pieces, cut[1]]
        assert [fact.reason for fact in facts.finishes] == [reason]
    frames, _ = mended(*pieces, calling(begin(1, "g", '{"a":1}')), end(reason))
    assert len(frames) == 3


USED = {"completion_tokens": 8}


@pytest.mark.parametrize(
    ("arguments", "more", "ceiling", "left_out"),
    [
        ('{"path":"y', {"usage": USED}, 8, True),
        ('{"path":', {"usage": USED}, 7, True),
        ('{"a":[1', {"usage": USED}, 8, True),
        ("", {"usage": USED}, 8, True),
        ('{"path":"y', {"usage": USED}, 9, False),
        ('{"path":"y', {"usage": USED}, None, False),
        ('{"path":"y', {}, 8, False),
        ('{"path":"y', {"usage": {"completion_tokens": "8"}}, 8, False),
        ('{"path":y}', {"usage": USED}, 8, False),
        ('{"path":"y"}', {"usage": USED}, 8, False),
    ],
)
def test_a_last_call_that_ends_early_at_the_callers_ceiling_was_cut(
    arguments: str, more: dict[str, Any], ceiling: int | None, *, left_out: bool
) -> None:
    """Whatever the provider calls it; the usage may come behind the finish."""
    pieces = [payload(ROLE), calling(begin(0, "f", "{}")), calling(begin(1, "g", arguments))]
    usage = b'{"id":"c1","choices":[],"usage":%b}' % json.dumps(more.get("usage")).encode()
    for ending in ([end(**more)], [end(), usage]):
        frames, facts = mended(*pieces, *ending, ceiling=ceiling)
        assert list(calls_in(frames)) == ([0] if left_out else [0, 1])
        assert facts.finishes[0].reason == ("length" if left_out else "tool_calls")


def test_only_the_last_call_may_have_been_cut() -> None:
    """One before it that ends early is broken; the last one, custom, is free text."""
    custom = {"index": 1, "id": "x", "type": "custom", "custom": {"name": "c", "input": "{"}}
    pieces = [payload(ROLE), calling(begin(0, "f", "{")), calling(custom), end(), end(usage=USED)]
    frames, facts = mended(*pieces, ceiling=8)
    assert list(calls_in(frames)) == [0, 1]
    assert facts.finishes[0].reason == "tool_calls"


def test_a_finish_for_each_frame_is_read_once() -> None:
    """The first one counts."""
    pieces = [calling(begin(0, "f", '{"a'), finish="stop"), end("stop"), end("length")]
    frames, facts = mended(payload(ROLE), *pieces, ceiling=8)
    assert calls_in(frames) == {}
    assert facts.finishes[0].reason == "stop"


# --- JSON bodies ---------------------------------------------------------------------------------


def body_of(*calls: Mapping[str, Any], finish: str | None = "tool_calls", **more: Any) -> bytes:
    """A provider's `chat.completion`."""
    message = {"role": "assistant", "content": None, "tool_calls": calls}
    choices = [{"index": 0, "message": message, "finish_reason": finish}]
    return json.dumps({"id": "c1", "created": 7, "model": "m", "choices": choices} | more).encode()


@pytest.mark.parametrize(
    ("calls", "more", "whole"),
    [
        ([begin(None, "f", "{}"), begin(None, "g", "")], {}, True),
        ([begin(None, "f", "{}")], {"finish": "stop"}, True),
        ([begin(None, "f", "{}")], {"finish": None}, True),
        ([begin(None, "f", "{}")], {"finish": "length"}, True),
        ([begin(None, "f", "{")], {}, True),
        ([begin(None, "f", "{")], {"usage": USED}, False),
        ([begin(None, "f", "{")], {"finish": "length"}, False),
        ([begin(None, "f", {})], {}, False),
        ([begin(None, "f", "{}", id=None)], {}, False),
        ([begin(None, "f", "{}", type=None)], {}, False),
        ([begin(None, "f", "{}", id="x"), begin(None, "g", "{}", id="x")], {}, False),
        ([begin(0, "f", "{}"), begin(0, "g", "{}")], {}, False),
        ([begin(None, "f", '"\ud83d"')], {}, False),
    ],
)
def test_a_body_stays_as_it_is_where_its_calls_need_nothing(
    calls: list[dict[str, Any]], more: dict[str, Any], *, whole: bool
) -> None:
    """Any other becomes a chunk, and is mended like one."""
    data = body_of(*calls, **more)
    reader = ChatBodyReader(choices=1, body_bytes_max=1 << 16, stream=False)
    reader.feed(data)
    (frame,) = reader.eof().frames
    assert frame.whole is whole
    assert (frame.data == data) is whole
    frames, facts = mended_body(frame)
    ends = [event for event in frames[0].events if isinstance(event, ToolEnd)]
    assert len(ends) == (0 if more.get("finish") == "length" and not whole else len(calls))
    assert facts.finishes[0].reason == ("length" if more.get("finish") == "length" else "tool_calls")  # fmt: skip


def mended_body(frame: Frame) -> tuple[list[Frame], Facts]:
    """What comes of a body."""
    mender = ChatMender()
    frames = mender.mend([frame])
    rest, facts = mender.finish(Complete())
    return frames + rest, facts


def test_a_frame_without_calls_stays_as_it_is() -> None:
    """Nothing to mend."""
    assert stays_as_it_is(frames_of(payload(ROLE))[0])


# --- any call, any cut ---------------------------------------------------------------------------

texts = st.text(st.characters(codec="utf-8"), max_size=8)
objects = st.dictionaries(texts, texts | st.integers() | st.lists(texts, max_size=2), max_size=3)
meant = st.lists(st.tuples(st.sampled_from(["f", "get_file", "x-1"]), objects), min_size=1, max_size=4)  # fmt: skip
STYLES = ("plain", "no_index", "index_0", "fresh_ids", "repeated", "interleaved", "no_id")


def pieces_in(style: str, calls: Sequence[tuple[str, str, str]], sizes: Iterator[int]) -> Iterator[dict[str, Any]]:  # fmt: skip
    """The entries by which a provider of this style says these calls (id, name, arguments)."""
    turns = []
    for number, (name_id, name, arguments) in enumerate(calls):
        index = None if style == "no_index" else 0 if style == "index_0" else number
        given_id = None if style == "no_id" else name_id
        head = begin(index, name, "", id=given_id)
        rest = []
        for at, text in cut(arguments, sizes):
            piece = entry(index, arguments=text)
            if style == "repeated":
                piece = begin(index, name, text, id=name_id)
            elif style == "fresh_ids":
                piece["id"] = f"fresh-{number}-{at}"
            rest.append(piece)
        turns.append([head, *rest])
    if style == "interleaved":
        while any(turns):
            yield from (turn.pop(0) for turn in turns if turn)
    else:
        yield from (each for turn in turns for each in turn)


@given(calls=meant, style=st.sampled_from(STYLES), data=st.data())
def test_a_call_is_assembled_as_it_was_meant_however_it_is_cut(
    calls: list[tuple[str, dict[str, Any]]], style: str, data: st.DataObject
) -> None:
    """Over pieces, deltas and batches; raw halves of characters included."""
    whole = [(f"id-{n}", name, json.dumps(value, ensure_ascii=data.draw(st.booleans()))) for n, (name, value) in enumerate(calls)]  # fmt: skip
    halved = [(name_id, name, "".join(halves(text))) for name_id, name, text in whole]
    sizes = iter(lambda: data.draw(st.integers(1, 9)), 0)
    entries = list(pieces_in(style, halved, sizes))
    payloads = [payload(ROLE)]
    while entries:
        count = data.draw(st.integers(1, 3))
        payloads.append(calling(*entries[:count]))
        entries = entries[count:]
    frames = frames_of(*payloads, end("stop"))
    mender, out = ChatMender(), []
    while frames:
        count = data.draw(st.integers(1, len(frames)))
        out += mender.mend(frames[:count])
        frames = frames[count:]
    rest, facts = mender.finish(Complete())
    made = list(calls_in(out + rest).values())
    assert [(call.name, call.arguments) for call in made] == [each[1:] for each in whole]
    if style != "no_id":
        assert [call.id for call in made] == [each[0] for each in whole]
    assert len({call.id for call in made}) == len(whole)
    assert facts.finishes[0].reason == "tool_calls"
    if style == "plain" and all(text.isascii() for _, _, text in halved) and count_of(payloads):
        assert [frame.data for frame in out + rest] == payloads


def cut(text: str, sizes: Iterator[int]) -> Iterator[tuple[int, str]]:
    """The text in pieces of these sizes, each with its place."""
    at = 0
    while at < len(text):
        size = next(sizes)
        yield at, text[at : at + size]
        at += size


def count_of(payloads: Sequence[bytes]) -> bool:
    """Whether no call has two pieces in one payload."""
    for each in payloads:
        entries = json.loads(each)["choices"][0]["delta"].get("tool_calls", ())
        if len({entry["index"] for entry in entries}) < len(entries):
            return False
    return True


def halves(text: str) -> Iterator[str]:
    """The text in units of UTF-16, as some providers cut it."""
    units = text.encode("utf-16-le")
    return (units[at : at + 2].decode("utf-16-le", "surrogatepass") for at in range(0, len(units), 2))  # fmt: skip


def test_deep_arguments_are_no_end_of_the_stack() -> None:
    """They are text to a mender; as an object they can't even be read."""
    deep = '{"a":' * 50_000 + "1" + "}" * 50_000
    assert calls_of(calling(begin(0, "f", deep)), calling(begin(1, "g", "{}")))[0].arguments == deep
