"""Binding a body to a target: its model, and not one other byte."""

from __future__ import annotations

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gate.binding import Edit, asking_usage, bind_segments
from gate.ingress import read_chat_request
from tests.doubles import mapped

BODY = b'{ "temperature":1.0e0, "model" :\t"small" ,"messages":[{"model":"small"}],"x":1,"x":2 }\n'


def named(body: bytes, model: str) -> list[Edit]:
    """The edit that puts a name in the place of the request's own."""
    at = read_chat_request(body, depth_max=64).model_at
    assert at is not None
    return [(at.value_start, at.value_end, json.dumps(model, ensure_ascii=False).encode())]


def bound(body: bytes, model: str) -> bytes:
    """The body as the provider gets it; the announced length is the real one."""
    slices, size = bind_segments([body], named(body, model))
    whole = b"".join(slices)
    assert len(whole) == size
    return whole


@pytest.mark.parametrize(
    ("model", "written"),
    [
        ("Qwen/Qwen3-8B", b'"Qwen/Qwen3-8B"'),
        ('a"b\\c', b'"a\\"b\\\\c"'),
        ("modèle", '"modèle"'.encode()),
        ("small", b'"small"'),
    ],
)
def test_only_the_value_of_the_top_level_model_changes(model: str, written: bytes) -> None:
    """White space, number spelling, duplicate names and a nested `model` stay."""
    assert bound(BODY, model) == BODY.replace(b'\t"small"', b"\t" + written)


def test_binding_copies_nothing() -> None:
    """The slices look into the caller's body, so a large one costs no second copy."""
    slices, _ = bind_segments([BODY], named(BODY, "m"))
    views = [piece for piece in slices if isinstance(piece, memoryview)]
    assert [view.obj is BODY for view in views] == [True, True]


def test_a_body_in_memory_of_its_own_is_bound_alike() -> None:
    """Its slices look into that memory."""
    body = mapped(BODY)
    slices, size = bind_segments([body], named(BODY, "m"))
    assert b"".join(slices) == bound(BODY, "m")
    assert size == len(bound(BODY, "m"))
    assert [view.obj is body for view in slices if isinstance(view, memoryview)] == [True, True]


names = st.text(max_size=3).filter(lambda name: name != "n")  # it would be read
values = st.recursive(
    st.none() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=5,
)


@given(
    before=st.dictionaries(names, values, max_size=3),
    after=st.dictionaries(names, values, max_size=3),
    indent=st.sampled_from([None, 0, 2]),
    model=st.text(min_size=1, max_size=8),
)
def test_all_other_bytes_are_kept_in_any_body(
    before: dict[str, object], after: dict[str, object], indent: int | None, model: str
) -> None:
    """Seen as bytes around the value, and as a parser sees it."""
    members = {**before, "model": "S-m-a-l-l", "messages": [1], **after}
    body = json.dumps(members, indent=indent).encode()
    head, tail = body.split(b'"S-m-a-l-l"')
    result = bound(body, model)
    assert result.startswith(head)
    assert result.endswith(tail)
    assert json.loads(result[len(head) : len(result) - len(tail)]) == model
    assert json.loads(result) == {**members, "model": model}


@given(
    st.lists(st.integers(0, len(BODY)), max_size=4), st.sampled_from(["m", "a-much-longer-name"])
)
def test_a_body_in_parts_is_bound_as_one_in_one_piece(cuts: list[int], model: str) -> None:
    """Wherever it is cut, also within the value; no part is empty and none is a copy."""
    edges = [0, *sorted(cuts), len(BODY)]
    parts = [BODY[start:end] for start, end in itertools.pairwise(edges)]
    slices, size = bind_segments(parts, named(BODY, model))
    assert b"".join(slices) == bound(BODY, model)
    assert size == len(bound(BODY, model))
    assert all(slices)
    views = [piece for piece in slices if isinstance(piece, memoryview)]
    assert len(slices) - len(views) == 1
    assert all(any(view.obj is part for part in parts) for view in views)


# --- usage that the caller did not ask for -------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "asked"),
    [
        (None, {"include_usage": True}),
        (b"null", {"include_usage": True}),
        (b"{ }", {"include_usage": True}),
        (b'{"include_obfuscation":false}', {"include_obfuscation": False, "include_usage": True}),
        (b'{ "include_usage" : false , "x":[{}]}', {"include_usage": True, "x": [{}]}),
        (b'{"include_usage":null,"include_usage":false}', {"include_usage": True}),
    ],
)
@pytest.mark.parametrize("first", [True, False])
def test_a_provider_is_asked_for_usage(
    options: bytes | None, asked: dict[str, object], *, first: bool
) -> None:
    """The caller's own options are extended; every other byte stays, on either side of the model's name, and the body may come in parts."""
    own = [] if options is None else [b'"stream_options": ' + options]
    model = [b'"model" : "small"']
    parts = [*own, *model] if first else [*model, *own]
    body = b"{" + b" , ".join([*parts, b'"messages":[{"stream_options":1}]']) + b"}"
    request = read_chat_request(body, depth_max=64)
    edits = asking_usage(options or b"", request.options_at, request.model_at)
    wanted = body
    for start, end, new in sorted([*named(body, "m"), *edits], reverse=True):
        wanted = wanted[:start] + new + wanted[end:]
    messages = [{"stream_options": 1}]
    assert json.loads(wanted) == {"model": "m", "messages": messages, "stream_options": asked}
    for cut in range(len(body)):
        slices, size = bind_segments([body[:cut], body[cut:]], [*named(body, "m"), *edits])
        assert b"".join(slices) == wanted
        assert len(wanted) == size


def test_a_body_without_a_model_and_options_has_no_place_for_the_question() -> None:
    """Such a request of a relayed endpoint goes as it is."""
    assert asking_usage(b"", None, None) == ()
