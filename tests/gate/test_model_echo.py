"""The alias in the provider's bytes: in its place, everywhere, and nowhere else."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gate.model_echo import LARGE_BYTES, ModelEcho, echo_for
from gate.splice import apply_edits
from gate.sse import SseDecoder

ALIAS: Final = "small"
VALUES: Final = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.just('"model":"deep"'),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["model", "response", "a"]), inner, max_size=3),
    max_leaves=8,
)  # fmt: skip
OBJECTS: Final = st.dictionaries(
    st.sampled_from(["id", "model", "response", "choices", "usage"]), VALUES, max_size=5
)


def streamed(data: bytes, echo: ModelEcho) -> bytes:
    """Events in one read, with what follows the last of them."""
    decoder = SseDecoder(event_bytes_max=1 << 20)
    events = decoder.feed(data)
    return b"".join(map(echo.event, events)) + decoder.rest


def wanted(value: Any, *, nested: bool) -> Any:
    """The object as it has to be afterwards, by another way: parsed, changed, compared."""
    changed = dict(value)
    if "model" in changed and (changed["model"] is None or isinstance(changed["model"], str)):
        changed["model"] = ALIAS
    inner = changed.get("response")
    if nested and isinstance(inner, dict):
        changed["response"] = wanted(inner, nested=False)
    return changed


@pytest.mark.parametrize(
    ("data", "after"),
    [
        (b'{"model":"m"}', b'{"model":"small"}'),
        (b' {"a": 1.0e0 , "model" :\t"m\\u0041" ,"b":"\\/"}\n', b' {"a": 1.0e0 , "model" :\t"small" ,"b":"\\/"}\n'),
        (b'{"model":""}', b'{"model":"small"}'),
        (b'{"model":null}', b'{"model":"small"}'),
        (b'{"model":"m","model":"n"}', b'{"model":"small","model":"small"}'),
        (b'\xef\xbb\xbf{"model":"m"}', b'\xef\xbb\xbf{"model":"small"}'),
    ],
)  # fmt: skip
def test_the_top_level_name_is_replaced_and_every_other_byte_stays(
    data: bytes, after: bytes
) -> None:
    """Spelling, white space and a byte order mark included."""
    assert ModelEcho(ALIAS).body(data) == after


@pytest.mark.parametrize(
    "data",
    [
        b"", b"[]", b'"model"', b'[{"model":"m"}]', b'{"x":{"model":"m"}}', b'{"text":"\\"model\\":\\"m\\""}', b'{"model":{"name":"m"}}', b'{"model":7}',
        b'{"model":"m"', b'{"model":"m"}}', b'{"response":{"model":"m"}}', b'{"response":["model"]}',
    ],
)  # fmt: skip
def test_what_is_no_name_of_the_model_stays(data: bytes) -> None:
    """Names deeper down, names in text, values that are no name, and what is no JSON object."""
    assert ModelEcho(ALIAS).body(data) == data


def test_an_event_of_the_responses_api_names_it_twice() -> None:
    """Only there, and only one level down."""
    data = b'{"model":"m","response":{"id":1,"model":"m","x":{"model":"m"}},"x":{"model":"m"}}'
    after = data.replace(b'"m"', b'"small"', 2)
    assert ModelEcho(ALIAS, nested=True).body(data) == after
    odd = b'{"response":{"model":{"a":1}}}'
    assert ModelEcho(ALIAS, nested=True).body(odd) == odd


@pytest.mark.parametrize("ends", [b"\n", b"\r\n", b"\r"])
def test_an_event_keeps_all_its_lines(ends: bytes) -> None:
    """Comments, names, fields that nobody knows, payloads over several lines, lines `data` without anything."""
    lines = [b": model", b"", b"event: x", b'data: {"model":"m",', b"data", b'data:"id":1}', b"id: 7", b"", b""]  # fmt: skip
    raw = ends.join(lines)
    assert streamed(raw, ModelEcho(ALIAS)) == raw.replace(b'"m"', b'"small"')


def test_an_event_without_the_name_or_without_a_payload_stays() -> None:
    """Comments that speak of it, and payloads that name it where it is not looked for."""
    raw = b': "model":"m"\n\ndata: [DONE]\n\nevent: "model"\n\ndata: {"a":{"model":"m"}}\n\n'
    raw += b'event: x\ndata: {"a":{"model":"m"}}\n\n'
    assert streamed(raw, ModelEcho(ALIAS)) == raw


def test_a_beginning_that_is_the_same_does_not_hide_another_name() -> None:
    """A frame that begins like the one before, and names the model once more."""
    first = b'data: {"id":"c","model":"m","text":"a"}\n\n'
    second = b'data: {"id":"c","model":"m","model":"n"}\n\n'
    third = b'data: {"id":"c","model":"m","text":"b"}\n\n'
    after = streamed(first + second + third, ModelEcho(ALIAS))
    assert after == (first + second + third).replace(b'"m"', b'"small"').replace(b'"n"', b'"small"')


@given(values=st.lists(OBJECTS, max_size=6), nested=st.booleans(), separator=st.sampled_from([",", " , "]))  # fmt: skip
def test_every_event_says_the_same_but_for_the_name(
    values: list[Any], nested: bool, separator: str
) -> None:
    """Parsed, each is what another way of changing it gives; and the echo of an echo is the echo."""
    payloads = [json.dumps(value, separators=(separator, ":")) for value in values]
    raw = "".join(f"data: {payload}\n\n" for payload in payloads).encode()
    after = streamed(raw, ModelEcho(ALIAS, nested=nested))
    said = [json.loads(block[6:]) for block in after.split(b"\n\n") if block]
    assert said == [wanted(value, nested=nested) for value in values]
    assert streamed(after, ModelEcho(ALIAS, nested=nested)) == after


BULK: Final = (
    b'[{"model":"m","embedding":[' + b"0.123," * (LARGE_BYTES // 6) + b'1]},"model",{"model":[]}]'
)
BIG: Final = b'"x":' + BULK


@pytest.mark.parametrize(
    ("data", "times"),
    [
        (b'{"model":"m",%b}', 1), (b'{"id":"\\"model\\":","model" : "m" , %b}', 1), (b'{%b,"model":"m","a":1}', 1), (b'{"model":null,%b,"model":"m"}', 2), (b"{%b}", 0),
        (b'[{"model":"m",%b}]', 0), (b'{"a":{"model":"m",%b}}', 0), (b'{"a":{"model":"m"},%b}', 0), (b'{%b,"a":{"model":"m"}}', 0), (b'{%b,"a":[{"model":"m"}]}', 0),
        (b'{"model":{"a":"m"},%b}', 0), (b'{%b,"model":{"a":"m"}}', 0), (b'{%b,"model":7}', 0), (b'{"model":7,%b}', 0), (b'{%b,"x\\"model":"m"}', 0), (b'{%b,"model":"m"', 0),
        (b'{"a":[{"model":"m"},{"model":"m"},{"model":"m"},{"model":"m"},{"model":"m"},{"model":"m"},{"model":"m"},{"model":"m"}],"model":"m",%b}', 1), (b'{"model":"a\\"b",%b}', 1),
    ],
)  # fmt: skip
def test_a_large_body_is_scanned_from_the_side_of_the_name(data: bytes, times: int) -> None:
    """With the same result, wherever its bulk stands and whatever is in it."""
    whole = data % BIG
    after = ModelEcho(ALIAS).body(whole)
    assert after.count(b'"small"') == times
    assert after == apply_edits(whole, ModelEcho(ALIAS)._edits(whole))


def test_nothing_is_rewritten_where_the_alias_is_the_name() -> None:
    """The provider's own bytes pass, whatever name it gives."""
    assert echo_for("m", "m") is None
    echo = echo_for("small", "m", nested=True)
    assert echo is not None
    assert echo.body(b'{"response":{"model":"m"}}') == b'{"response":{"model":"small"}}'
