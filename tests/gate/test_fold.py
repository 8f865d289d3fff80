"""Folding: one `chat.completion` of many chunks, with everything in it that a stream would have said."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gate.events import Facts, FinishFact
from gate.fold import ChatFold

IDENTITY = {"id": "c1", "created": 7, "model": "alias"}


def folded(*values: object, facts: Facts | None = None) -> dict[str, Any]:
    """The object of these chunks."""
    fold = ChatFold()
    for value in values:
        fold.add(json.dumps(value).encode())
    return fold.result(IDENTITY, facts or Facts())


def delta(members: object, *, index: object = 0, **rest: object) -> dict[str, Any]:
    """One chunk of one choice."""
    return {"choices": [{"index": index, "delta": members, **rest}]}


def message(*deltas: object) -> dict[str, Any]:
    """The message of choice 0 of these deltas."""
    made: dict[str, Any] = folded(*map(delta, deltas))["choices"][0]["message"]
    return made


def test_a_whole_object_is_written_down() -> None:
    """Text, identity, finish with its members, usage, log probabilities, members that nobody knows."""
    logprob = {"token": "a", "logprob": -0.5}
    result = folded(
        {"id": "other", "object": "chat.completion.chunk", "created": 1, "model": "m", "fp": "x", "choices": []},
        delta({"role": "assistant", "content": ""}, logprobs=None),
        delta({"content": "He"}, logprobs={"content": [logprob], "refusal": None}),
        delta({"content": "llo"}, logprobs={"content": [logprob], "refusal": None}, filter={"safe": True}),
        facts=Facts((FinishFact(0, "stop", b',"stop_reason":7', b',"tier":"t"'),), b'{"total_tokens": 3}', b',"cost":0.1'),
    )  # fmt: skip
    assert result == {
        "id": "c1", "object": "chat.completion", "created": 7, "model": "alias",
        "choices": [{
            "index": 0,
            "message": {"role": "assistant", "content": "Hello", "refusal": None},
            "logprobs": {"content": [logprob, logprob], "refusal": None},
            "finish_reason": "stop", "filter": {"safe": True}, "stop_reason": 7,
        }],
        "usage": {"total_tokens": 3}, "tier": "t", "fp": "x", "cost": 0.1,
    }  # fmt: skip


def test_no_usage_is_no_member() -> None:
    """Rather than a null that an SDK would have to understand."""
    assert "usage" not in folded(delta({"content": "a"}))


def test_choices_come_out_in_order_each_with_its_own_text() -> None:
    """Interleaved; one that only finished is there too; an odd index is number 0."""
    facts = Facts((FinishFact(2, "length"), FinishFact(0, "stop")))
    choices = folded(
        delta({"content": "b"}, index=1), delta({"content": "a"}, index="x"), delta({"content": "B"}, index=1), facts=facts
    )["choices"]  # fmt: skip
    assert [(each["index"], each["message"]["content"], each["finish_reason"]) for each in choices] == [(0, "a", "stop"), (1, "bB", None), (2, None, "length")]  # fmt: skip


def test_every_text_channel_is_joined() -> None:
    """And audio's transcript and data, under one id."""
    made = message(
        {"reasoning_content": "h", "reasoning": "h", "refusal": "n", "audio": {"id": "a", "transcript": "x", "data": "AA"}},
        {"reasoning_content": "m", "reasoning": "m", "refusal": "o", "audio": {"id": "a", "transcript": "y", "data": "BB", "expires_at": 5}},
        {"audio": {"id": None}},
    )  # fmt: skip
    assert made == {
        "role": "assistant", "content": None, "reasoning_content": "hm", "reasoning": "hm", "refusal": "no",
        "audio": {"id": "a", "transcript": "xy", "data": "AABB", "expires_at": 5},
    }  # fmt: skip


def test_lists_are_appended_and_of_other_unknown_members_the_last_value_wins() -> None:
    """Null takes nothing away."""
    made = message({"details": [1], "mood": "a", "odd": None}, {"details": [2], "mood": "b"}, {"details": None, "mood": None})  # fmt: skip
    assert (made["details"], made["mood"], made["odd"]) == ([1, 2], "b", None)


def call(**members: object) -> dict[str, Any]:
    """A delta with one piece of a call."""
    return {"tool_calls": [members]}


def test_pieces_of_a_call_are_merged_by_index() -> None:
    """Parallel ones interleaved; empty ids and nulls of later pieces change nothing; no index and no empty text is left."""
    made = message(
        {"role": "assistant", "content": ""},
        call(index=0, id="t0", type="function", function={"name": "f", "arguments": ""}),
        call(index=1, id="t1", type="function", function={"name": "g", "arguments": None}),
        call(index=0, id="", function={"name": None, "arguments": '{"a"'}),
        call(index=1, id=None, function={"arguments": "{}"}),
        call(index=0, function={"arguments": ":1}"}),
    )
    assert made["content"] is None
    assert made["tool_calls"] == [
        {"id": "t0", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}},
        {"id": "t1", "type": "function", "function": {"name": "g", "arguments": "{}"}},
    ]


def test_a_text_before_the_calls_stays() -> None:
    """Only an empty one becomes null."""
    made = message({"content": "Let me see."}, call(index=0, id="t", function={"name": "f"}))
    assert made["content"] == "Let me see."


def test_without_an_index_a_new_id_with_a_name_opens_the_next_call() -> None:
    """Anything else belongs to the newest; Mistral gives none."""
    made = message(
        call(function={"arguments": "0"}),
        call(id="t1", function={"name": "f", "arguments": "1"}),
        call(id="t1", function={"arguments": "2"}),
        call(function={"name": "f"}),
        call(id="t2", function={"name": "g", "arguments": "3"}),
        call(id="t2", custom={"name": "c", "input": "x"}),
        call(custom={"input": "y"}),
    )
    assert [each.get("id") for each in made["tool_calls"]] == [None, "t1", "t2"]
    assert [each["function"].get("arguments") for each in made["tool_calls"]] == ["0", "12", "3"]
    assert made["tool_calls"][2]["custom"] == {"name": "c", "input": "xy"}


def test_a_name_that_comes_again_is_a_repeat_and_a_piece_is_appended() -> None:
    """`get_` and `weather`, then the whole name once more."""
    pieces = [call(index=0, function={"name": name}) for name in ("get_", "weather", "get_weather")]
    assert message(*pieces)["tool_calls"] == [{"function": {"name": "get_weather"}}]


def test_the_legacy_function_call_is_merged_like_a_call() -> None:
    """A null name behind the first piece takes nothing away."""
    made = message({"function_call": {"name": "f", "arguments": ""}}, {"function_call": {"name": None, "arguments": "{"}}, {"function_call": {"arguments": "}"}})  # fmt: skip
    assert made["function_call"] == {"name": "f", "arguments": "{}"}


@pytest.mark.parametrize(
    "odd",
    [
        {"choices": 7}, {"choices": [7]}, delta(7), delta({"tool_calls": 7}), delta({"tool_calls": [7]}), delta({"content": "a"}, logprobs=7),
        delta(call(index=[1], function=7)), delta(call(id=[1], function={"name": "f"})), delta({"function_call": 7}),
    ],
)  # fmt: skip
def test_odd_chunks_do_no_harm(odd: dict[str, Any]) -> None:
    """What has no sense is skipped or kept as it is; the text is whole."""
    result = folded(odd, delta({"content": "b", "function_call": {"name": "f"}}))
    assert result["choices"][0]["message"]["content"] in {"b", "ab"}
    assert json.loads(json.dumps(result)) == result


def test_members_of_log_probabilities_may_come_one_by_one() -> None:
    """A list is appended wherever it begins; of anything else the last value wins."""
    result = folded(
        delta({}, logprobs={"content": None, "top": 1}), delta({}, logprobs={"content": [1], "refusal": [2]}), delta({}, logprobs={"content": None, "top": 2})
    )  # fmt: skip
    assert result["choices"][0]["logprobs"] == {"content": [1], "refusal": [2], "top": 2}
