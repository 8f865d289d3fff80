"""Framings: the caller's bytes, written down; and one identity in chunk after chunk with every other byte as it came."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gate.endpoints import framing_for
from gate.envelope import refusal
from gate.events import Facts, Finish, FinishFact, Frame
from gate.framing import ChatJson, ChatSse, Identify
from gate.sse import SseDecoder
from tests.assembly import read_stream
from tests.pipeline import run, start

PROVIDER = b"".join(
    b"data: " + payload + b"\n\n"
    for payload in (
        b'{"id":"up-1","object":"chat.completion.chunk","created":5,"model":"big","system_fingerprint":"fp","choices":[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}],"usage":null}',
        b'{"id":"up-1","object":"chat.completion.chunk","created":5,"model":"big","system_fingerprint":"fp","choices":[{"index":0,"delta":{"content":"Say \\"model\\": \\u00e9"},"logprobs":null,"finish_reason":null}],"usage":null}',
        b'{"id":"up-1","object":"chat.completion.chunk","created":5,"model":"big","system_fingerprint":"fp","choices":[{"index":0,"delta":{},"logprobs":null,"finish_reason":"stop","stop_reason":9}],"usage":null}',
        b'{"id":"up-1","object":"chat.completion.chunk","created":5,"model":"big","system_fingerprint":"fp","choices":[],"usage":{"total_tokens":3}}',
        b"[DONE]",
    )
)  # fmt: skip
HEAD = b'data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":7,"model":"alias"'


# --- whole responses, byte for byte --------------------------------------------------------------


def test_a_chat_stream_is_written_down() -> None:
    """Start, frames, the finish with its members, the usage that was asked for, the end."""
    assert run([PROVIDER]).body == b"".join(
        (
            HEAD, b',"system_fingerprint":"fp","choices":[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}],"usage":null}\n\n',
            HEAD, b',"system_fingerprint":"fp","choices":[{"index":0,"delta":{"content":"Say \\"model\\": \\u00e9"},"logprobs":null,"finish_reason":null}],"usage":null}\n\n',
            HEAD, b',"system_fingerprint":"fp","choices":[{"index":0,"delta":{},"finish_reason":"stop","stop_reason":9}]}\n\n',
            HEAD, b',"system_fingerprint":"fp","choices":[],"usage":{"total_tokens":3}}\n\n',
            b"data: [DONE]\n\n",
        )
    )  # fmt: skip


def test_a_chat_object_is_written_down() -> None:
    """The same answer, folded."""
    assert run([PROVIDER], stream=False).body.decode() == (
        '{"id":"chatcmpl-1","object":"chat.completion","created":7,"model":"alias","choices":[{"index":0,'
        '"message":{"role":"assistant","content":"Say \\"model\\": é","refusal":null},"logprobs":null,"finish_reason":"stop","stop_reason":9}],'
        '"usage":{"total_tokens":3},"system_fingerprint":"fp"}'
    )


def test_usage_that_was_not_asked_for_is_not_written_into_a_stream() -> None:
    """Neither on a chunk of its own nor on another; a JSON object always has it."""
    assert b"total_tokens" not in run([PROVIDER], usage=False).body
    on_content = PROVIDER.replace(b'"usage":null', b'"usage":{"total_tokens":1}')
    assert b"total_tokens" not in run([on_content], usage=False).body
    assert b'"usage":{"total_tokens":3}' in run([PROVIDER], stream=False, usage=False).body


def test_the_error_of_a_stream_that_has_begun_is_one_frame_without_done() -> None:
    """No `event:` line, no finish."""
    assert ChatSse(start()).error(refusal(500, "internal_error")).startswith(b'data: {"error":{')
    assert ChatSse(start()).error(refusal(500, "internal_error")).endswith(b"}}\n\n")


def test_a_json_response_can_not_have_begun() -> None:
    """So there is no error within one."""
    with pytest.raises(AssertionError):
        ChatJson(start(stream=False)).error(refusal(500, "internal_error"))


def test_the_caller_chooses_the_framing_and_each_has_its_headers() -> None:
    """A JSON body has a length, a stream has none."""
    sse, whole = framing_for(start()), framing_for(start(stream=False))
    assert (sse.name, whole.name) == ("chat_sse", "chat_json")
    assert (b"content-type", b"text/event-stream; charset=utf-8") in sse.headers
    assert whole.headers == ((b"content-type", b"application/json"),)
    assert (sse.length(b"12345"), whole.length(b"12345")) == ((), ((b"content-length", b"5"),))


def test_a_success_without_any_release_still_says_role_finish_and_done() -> None:
    """A choice whose role went out already says it no second time; no usage came."""
    facts = Facts((FinishFact(1, "length"), FinishFact(0, "stop", b',"x":1', b',"y":2')), roles=frozenset({0}))  # fmt: skip
    assert ChatSse(start()).success(facts) == b"".join(
        (
            HEAD, b',"choices":[{"index":1,"delta":{"role":"assistant","content":""},"finish_reason":"length"}]}\n\n',
            HEAD, b',"y":2,"choices":[{"index":0,"delta":{},"finish_reason":"stop","x":1}]}\n\n',
            b"data: [DONE]\n\n",
        )
    )  # fmt: skip


def test_the_usage_chunk_keeps_what_stood_beside_it() -> None:
    """Costs, for one."""
    facts = Facts(usage=b'{"n":1}', usage_members=b',"cost":0.1')
    assert ChatSse(start()).success(facts) == HEAD + b',"cost":0.1,"choices":[],"usage":{"n":1}}\n\ndata: [DONE]\n\n'  # fmt: skip


# --- a provider's own object ---------------------------------------------------------------------


def body(finish: str = "stop", **choice: object) -> bytes:
    """A provider's `chat.completion`, spelled its own way."""
    return b'{ "id":"up","object":"chat.completion","model":"big","created":5,"choices":[ {"index":0,"message":{"role":"assistant","content":"h\\u00e9"},"finish_reason":"%b"%b} ],"usage":{"cost":0.00007159} }' % (
        finish.encode(),
        b"".join(b',"%b":%b' % (name.encode(), json.dumps(item).encode()) for name, item in choice.items()),
    )  # fmt: skip


def test_a_providers_object_keeps_all_bytes_but_its_identity() -> None:
    """Spelling of numbers, escapes and blanks."""
    expected = body().replace(b'"up"', b'"chatcmpl-1"').replace(b'"big"', b'"alias"').replace(b'"created":5', b'"created":7')  # fmt: skip
    assert run([body()], stream=False, body=True).body == expected


def test_finish_reasons_of_a_providers_object_are_spelled_like_openais() -> None:
    """With or without an index; choices that are none stay."""
    value = json.loads(run([body("eos", x=[1])], stream=False, body=True).body)
    assert value["choices"][0]["finish_reason"] == "stop"
    assert value["choices"][0]["x"] == [1]
    bare = body("max_tokens").replace(b'"index":0,', b'"index":null,').replace(b"choices\":[", b"choices\":[7,")  # fmt: skip
    value = json.loads(run([bare], stream=False, body=True).body)
    assert (value["choices"][0], value["choices"][1]["finish_reason"]) == (7, "length")


@pytest.mark.parametrize("index", [b"", b'"index":null,', b'"index": null ,'])
def test_a_providers_object_says_what_it_is_and_numbers_its_choices(index: bytes) -> None:
    """As strict clients want it; a choice without members, and what is none, do no harm."""
    bare = body().replace(b'"object":"chat.completion",', b"").replace(b'"index":0,', index)
    value = json.loads(run([bare], stream=False, body=True).body)
    assert (value["object"], value["choices"][0]["index"]) == ("chat.completion", 0)
    framing = ChatJson(start(stream=False))
    framing.release([Frame(b'{"choices":[7,{"x":1},{}]}', (), 1, whole=True)])
    value = json.loads(framing.success(Facts()))
    assert value["choices"] == [7, {"index": 0, "x": 1}, {"index": 1}]
    framing.release([Frame(b"{}", (), 1, whole=True)])
    assert json.loads(framing.success(Facts()))["object"] == "chat.completion"


def test_a_providers_object_without_a_finish_reason_gets_the_implied_one() -> None:
    """It parsed whole and has content."""
    value = json.loads(run([body("")], stream=False, body=True).body)
    assert value["choices"][0]["finish_reason"] == "stop"


def test_a_finish_of_a_choice_that_an_object_does_not_hold_changes_nothing_in_it() -> None:
    """The reasons are put in by index."""
    framing = ChatJson(start(stream=False))
    framing.release([Frame(body("odd"), (Finish(0, "stop", "eos"),), 1, whole=True)])
    assert json.loads(framing.success(Facts((FinishFact(3, "stop"),))))["choices"][0]["finish_reason"] == "odd"  # fmt: skip


@pytest.mark.parametrize(
    ("message", "left"),
    [
        (b'{"role":"assistant","content":"h","tool_calls":[]}', b'{"role":"assistant","content":"h"}'),
        (b'{"tool_calls" : [ ] , "content":"h"}', b'{"content":"h"}'),
        (b'{"content":"h", "tool_calls":[\n],"audio":null}', b'{"content":"h","audio":null}'),
        (b'{"content":"h","x":{"tool_calls":[]}}', b'{"content":"h","x":{"tool_calls":[]}}'),
        (b'{"content":"\\"tool_calls\\":[]","tool_calls":null}', b'{"content":"\\"tool_calls\\":[]","tool_calls":null}'),
    ],
)  # fmt: skip
def test_a_message_without_calls_has_no_list_of_them(message: bytes, left: bytes) -> None:
    """As OpenAI's has none; every other byte stays, also of what stands deeper."""
    whole = b'{"id":"up","object":"chat.completion","model":"big","created":5,"choices":[7,{"index":0,"x":[],"message":%b,"finish_reason":"stop"},{"index":1,"message":8}]}'
    framing = ChatJson(start(stream=False))
    framing.release([Frame(whole % message, (), 1, whole=True)])
    expected = (whole % left).replace(b'"up"', b'"chatcmpl-1"').replace(b'"big"', b'"alias"').replace(b'"created":5', b'"created":7')  # fmt: skip
    assert framing.success(Facts()) == expected


def test_a_providers_object_is_one_chunk_of_a_stream() -> None:
    """For a caller that asked for one."""
    answer = read_stream(run([body("eos")], body=True).body)
    assert answer.clean
    assert (answer.choices[0].text, answer.choices[0].finishes, answer.choices[0].roles) == ("hé", ["stop"], ["assistant"])  # fmt: skip
    assert answer.usage == {"cost": 0.00007159}


def test_a_character_cut_in_two_where_nobody_mends_it_is_whole_in_the_object() -> None:
    """In arguments and in members that we don't know."""
    pieces = [
        b'{"role":"assistant","tool_calls":[{"index":0,"id":"t","function":{"name":"f","arguments":"{\\"a\\":\\"\\ud83d"}}]}',
        b'{"tool_calls":[{"index":0,"function":{"arguments":"\\ude80\\"}"}}],"odd":"\\ud83d"}',
    ]
    stream = b"".join(b'data: {"choices":[{"index":0,"delta":%b}]}\n\n' % piece for piece in pieces)
    stream += b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}\n\n'
    message = json.loads(run([stream], stream=False).body)["choices"][0]["message"]
    assert message["tool_calls"][0]["function"]["arguments"] == '{"a":"\U0001f680"}'
    assert message["odd"] == "�"


# --- one identity --------------------------------------------------------------------------------

KIND = {"object": "chat.completion.chunk"}
OURS = {"id": "c-ours", **KIND, "created": 7, "model": "alias"}


def identify() -> Identify:
    """A fresh one."""
    return Identify("c-ours", 7, "alias")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b'{"id":"a","created":1,"model":"m","choices":[]}', b'{"object":"chat.completion.chunk","id":"c-ours","created":7,"model":"alias","choices":[]}'),
        (b'{"choices":[],"model":"m","x":1,"id":null,"created":0}', b'{"object":"chat.completion.chunk","choices":[],"model":"alias","x":1,"id":"c-ours","created":7}'),
        (b'{ "choices" : [] }', b'{"id":"c-ours","object":"chat.completion.chunk","created":7,"model":"alias", "choices" : [] }'),
        (b'{"id":"a","choices":[]}', b'{"object":"chat.completion.chunk","created":7,"model":"alias","id":"c-ours","choices":[]}'),
        (b"{}", b'{"id":"c-ours","object":"chat.completion.chunk","created":7,"model":"alias"}'),
        (b'{"id":"a","id":"b","created":1,"model":"m","model":"n"}', b'{"object":"chat.completion.chunk","id":"c-ours","id":"c-ours","created":7,"model":"alias","model":"alias"}'),
        (b'{"i\\u0064":{"id":1},"created":1,"model":["model"]}', b'{"object":"chat.completion.chunk","i\\u0064":"c-ours","created":7,"model":"alias"}'),
        (b'{"id":"a","created":1,"model":"m","choices":[{"id":"t","model":"u"}],"o":{"created":1}}', b'{"object":"chat.completion.chunk","id":"c-ours","created":7,"model":"alias","choices":[{"id":"t","model":"u"}],"o":{"created":1}}'),
        (b'{"id":"a","object":"","created":1,"model":"m"}', b'{"id":"c-ours","object":"","created":7,"model":"alias"}'),
        (b'{"object":null,"id":"a","created":1,"model":"m"}', b'{"object":"chat.completion.chunk","id":"c-ours","created":7,"model":"alias"}'),
        (b'{"object":"o.d","id":"a","created":1,"model":"m"}', b'{"object":"o.d","id":"c-ours","created":7,"model":"alias"}'),
    ],
)  # fmt: skip
def test_an_identity_is_put_in_at_the_top_level_and_nowhere_else(
    before: bytes, after: bytes
) -> None:
    """Any order, members missing or twice, a name with escapes, the same names further in."""
    assert identify().patch(before) == after


@pytest.mark.parametrize(
    ("data", "left"),
    [
        (b'{"choices":[],"usage":null}', b'{"choices":[]}'),
        (b'{"choices":[] , "usage" : null ,"x":1}', b'{"choices":[] ,"x":1}'),
        (b'{"x":1,"usage":null,"choices":[]}', b'{"x":1,"choices":[]}'),
        (b'{"usage":null,"choices":[]}', b'{"usage":null,"choices":[]}'),
        (b'{"choices":[{"usage":null}]}', b'{"choices":[{"usage":null}]}'),
        (b'{"choices":[],"usage":{}}', b'{"choices":[],"usage":{}}'),
    ],
)
def test_a_usage_that_nobody_asked_for_and_that_is_not_there_yet_is_not_told(
    data: bytes, left: bytes
) -> None:
    """With its comma; whatever was remembered of the frames before, and only where it was asked for behind the caller's back."""
    plain, hiding = Identify("i", 1, "m"), Identify("i", 1, "m", hides_usage=True)
    for before in (b'{"choices":[1]}', b'{"choices":[1],"usage":null}', b'{"x":1,"choices":[1]}'):
        hiding.patch(before)
        assert hiding.patch(data) == Identify("i", 1, "m").patch(left)
        assert hiding.patch(data) == Identify("i", 1, "m").patch(left)
        assert plain.patch(data) == Identify("i", 1, "m").patch(data)


def test_names_and_values_of_an_identity_are_encoded() -> None:
    """Quotes in a provider's id."""
    assert json.loads(Identify('a"b', 7, "é").patch(b"{}")) == {"id": 'a"b', **KIND, "created": 7, "model": "é"}  # fmt: skip


@pytest.mark.parametrize(
    ("first", "then"),
    [
        (b'{"id":"a","created":1,"model":"m","choices":[1]}', b'{"id":"a","created":1,"model":"m","choices":[{"delta":{"tool_calls":[{"id":"t"}]}}]}'),
        (b'{"id":"a","created":1,"model":"m","choices":[1]}', b'{"id":"a","created":1,"model":"m","choices":[2],"model":"n"}'),
        (b'{"id":"a","created":1,"model":"m","choices":[1]}', b'{"id":"b","created":1,"model":"m","choices":[2]}'),
        (b'{"id":"a","created":1,"model":"m","choices":[1]}', b'{"id":"a","created":1,"model":"m","x":1,"choices":[2]}'),
        (b'{"id":"a","created":1,"model":"m","choices":[1],"z":1}', b'{"id":"a","created":1,"model":"m","choices":[2],"z":2}'),
        (b'{"choices":[1],"id":"a","created":1,"model":"m"}', b'{"choices":[2],"id":"a","created":1,"model":"m"}'),
        (b'{"choices":[1]}', b"{}"),
        (b'{"choices":[1]}', b'{"model":"x"}'),
        (b'{"a":1,"choices":[1],"a":1}', b'{"a":1,"a":1}'),
        (b'{"x":[]}', b'{"x":[1]}'),
    ],
)  # fmt: skip
def test_what_is_remembered_of_a_frame_does_not_mislead_the_next(first: bytes, then: bytes) -> None:
    """As a fresh identity would do it."""
    used = identify()
    used.patch(first)
    assert used.patch(then) == identify().patch(then)


keys = st.sampled_from(["id", "created", "model", "choices", "usage", "x", "object"])
values = st.sampled_from(
    [None, 0, 1.5, "", "a", 'says "model": and "id":', [], {}, {"id": "t"}, {"model": "m", "created": 1}, [{"index": 0, "delta": {"content": "}", "tool_calls": [{"id": "t"}]}}]]
)  # fmt: skip
objects = st.lists(st.tuples(keys, values), max_size=7)
gaps = st.sampled_from(["", " ", "\t "])


def written(pairs: list[tuple[str, Any]], gap: str) -> bytes:
    """JSON of pairs, which a dictionary could not hold twice."""
    members = (f"{gap}{json.dumps(key)}{gap}:{gap}{json.dumps(value)}" for key, value in pairs)
    return f"{gap}{{{','.join(members)}{gap}}}{gap}".encode()


def pairs_of(data: bytes) -> list[tuple[str, Any]]:
    """The members of an object in order, duplicates too."""
    top: list[tuple[str, Any]] = json.loads(data, object_pairs_hook=list)
    return top


def reference(pairs: list[tuple[str, Any]], gap: str) -> list[tuple[str, Any]]:
    """Decode, edit, encode: what is missing in front, each of ours replaced, the rest as it is."""
    named = {key for key, _ in pairs}
    missing = [(key, value) for key, value in OURS.items() if key not in named]
    decoded = pairs_of(written(pairs, gap))
    return [*missing, *((key, OURS.get(key, value) if replaces(key, value) else value) for key, value in decoded)]  # fmt: skip


def replaces(key: str, value: Any) -> bool:
    """What an object calls itself stays, unless that is nothing."""
    return key in OURS and (key != "object" or value is None)


@given(st.lists(st.tuples(objects, gaps), min_size=1, max_size=6))
def test_an_identity_is_put_in_like_a_decoder_would_and_all_other_bytes_stay(
    frames: list[tuple[list[tuple[str, Any]], str]],
) -> None:
    """Whatever came before."""
    used = identify()
    for pairs, gap in frames:
        data = written(pairs, gap)
        patched = used.patch(data)
        assert pairs_of(patched) == reference(pairs, gap)
        assert patched == replaced(pairs, gap)


def replaced(pairs: list[tuple[str, Any]], gap: str) -> bytes:
    """The same by plain search: marks in the places of ours, then ours in the places of the marks."""
    marks = {key: f"mark-{key}" for key in OURS}
    data = written(
        [(key, marks[key] if replaces(key, value) else value) for key, value in pairs], gap
    )
    for key, value in OURS.items():
        data = data.replace(json.dumps(marks[key]).encode(), json.dumps(value).encode())
    missing = ",".join(f'"{key}":{json.dumps(value)}' for key, value in OURS.items() if key not in dict(pairs))  # fmt: skip
    return data.replace(b"{", f"{{{missing}{',' if missing and pairs else ''}".encode(), 1)


@given(st.lists(st.integers(0, len(PROVIDER)), max_size=8), st.booleans())
def test_any_cut_of_the_same_bytes_gives_the_same_bytes(cuts: list[int], stream: bool) -> None:
    """Confluence of reader, judge and framing."""
    marks = sorted({0, len(PROVIDER), *cuts})
    pieces = [PROVIDER[a:b] for a, b in itertools.pairwise(marks)]
    assert run(pieces, stream=stream) == run([PROVIDER], stream=stream)


texts = st.text(st.characters(exclude_categories=()), max_size=4)


@given(st.lists(st.tuples(st.integers(0, 1), texts), max_size=6))
def test_a_stream_carries_the_providers_text_whatever_is_in_it(
    pieces: list[tuple[int, str]],
) -> None:
    """Line separators, quotes, halves of characters, two choices; each event is one line."""
    chunks = [{"choices": [{"index": index, "delta": {"content": text}}]} for index, text in pieces]
    ends = [{"choices": [{"index": index, "delta": {"content": "."}, "finish_reason": "stop"}]} for index in (0, 1)]  # fmt: skip
    data = b"".join(b"data: %b\n\n" % json.dumps(chunk).encode() for chunk in (*chunks, *ends))
    passed = run([data], choices=2)
    assert len(SseDecoder(event_bytes_max=1 << 20).feed(passed.body)) == passed.body.count(b"\n\n")
    answer = read_stream(passed.body)
    for index in (0, 1):
        whole = "".join(text for choice, text in pieces if choice == index) + "."
        expected = whole.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        assert answer.choices[index].text == expected


# Values of every type, in every place where the program looks for one.
odd = st.sampled_from(
    [None, 0, -1, True, 2.5, 10**30, float("nan"), "", "a", "\ud83d", "\ude80", "stop", [], ["a"], [{"type": "text", "text": "t"}], {}, {"text": "x"}, {"name": "f", "arguments": {"a": 1}}]
)  # fmt: skip
odd_deltas = st.dictionaries(st.sampled_from(["role", "content", "reasoning", "refusal", "function_call", "audio", "x"]), odd) | odd  # fmt: skip
odd_calls = st.lists(st.dictionaries(st.sampled_from(["index", "id", "function", "custom"]), odd), max_size=2)  # fmt: skip
odd_choices = st.fixed_dictionaries({}, optional={"index": odd, "delta": odd_deltas | odd_calls.map(lambda calls: {"tool_calls": calls}), "message": odd_deltas, "finish_reason": odd, "logprobs": odd}) | odd  # fmt: skip
odd_objects = st.fixed_dictionaries({}, optional={"id": odd, "created": odd, "model": odd, "usage": odd, "z": odd, "choices": st.lists(odd_choices, max_size=2) | odd})  # fmt: skip
GOOD = b'data: {"choices":[{"index":0,"delta":{"content":"ok"},"finish_reason":"stop"}]}\n\n'


@given(st.lists(odd_objects, max_size=3), st.booleans())
def test_no_chunk_whatever_it_holds_breaks_an_exchange(values: list[object], stream: bool) -> None:
    """It ends in a failure, or in a response that a client can read."""
    data = b"".join(b"data: %b\n\n" % json.dumps(value).encode() for value in values)
    passed = run([data.replace(b'"a"', b'"a\xff"') + GOOD], stream=stream)
    if passed.failure is None:
        payloads = passed.body.decode().split("\n\n")[:-2] if stream else [passed.body.decode()]
        assert all(json.loads(payload.removeprefix("data: ")) for payload in payloads)


@given(odd_objects, st.booleans())
def test_no_body_whatever_it_holds_breaks_an_exchange(value: object, stream: bool) -> None:
    """The same for one JSON object."""
    data = json.dumps(value).encode().replace(b'"a"', b'"a\xff"')
    passed = run([data], stream=stream, body=True)
    if passed.failure is None:
        payloads = passed.body.decode().split("\n\n")[:-2] if stream else [passed.body.decode()]
        assert all(json.loads(payload.removeprefix("data: ")) for payload in payloads)
