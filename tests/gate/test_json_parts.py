"""Parts of a body by their places: what a parser would say, however large they are, and in bounded steps."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gate.errors import RequestRefused
from gate.json_parts import SMALL_BYTES, TURN_BYTES, VALUE_BYTES, Parts, Span
from gate.splice import ELEMENTS_MAX, MEMBERS_MAX, Body
from gate.steps import finished
from tests.doubles import mapped

VALUES = st.recursive(
    st.none() | st.booleans() | st.text(max_size=40) | st.integers(),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=9), inner),
    max_leaves=30,
)


def parts_of(value: Any, *, pad: int = 0) -> tuple[Parts, Span]:
    """The parts of a body that holds this value behind something else, with so much white space in it."""
    text = json.dumps({"before": "{[", "value": value}, indent=1)
    body = text.replace("{", "{" + " " * pad, 1).replace(": {", ": {" + " " * pad, 1).encode()
    start = body.index(b'"value": ') + 9
    large: Body = mapped(body) if pad else body
    return Parts(large), (start, len(body) - 2)


def decoded(parts: Parts, span: Span) -> Any:
    return json.loads(bytes(parts.body[slice(*span)]))


@given(st.dictionaries(st.text(max_size=9), VALUES), st.sampled_from([0, SMALL_BYTES]))
def test_members_are_those_of_the_object(value: dict[str, Any], pad: int) -> None:
    """Small or large."""
    parts, span = parts_of(value, pad=pad)
    found = finished(parts.members(span, "p"))
    assert {name: decoded(parts, each) for name, each in found.items()} == value


@given(st.lists(VALUES), st.booleans())
def test_elements_are_those_of_the_array(value: list[Any], large: bool) -> None:
    """Small or large."""
    told = [*value, "x" * SMALL_BYTES] if large else value
    parts, span = parts_of(told)
    assert [decoded(parts, each) for each in finished(parts.elements(span, "p"))] == told


def test_the_last_of_members_with_one_name_counts() -> None:
    """As most parsers see it."""
    body = b'{"a":1,"b":2,"a":3}'
    for pad in (b"", b" " * SMALL_BYTES):
        parts = Parts(body.replace(b"{", b"{" + pad))
        found = finished(parts.members((0, len(parts.body)), "p"))
        assert decoded(parts, found["a"]) == 3


def test_what_is_not_bounded_by_its_size_has_a_bound() -> None:
    """Members and elements are as many as they may be, and no more."""
    for text, read, most in (
        ("{%s}", "members", MEMBERS_MAX),
        ("[%s]", "elements", ELEMENTS_MAX),
    ):
        for count, fine in ((most, True), (most + 1, False)):
            item = (lambda n: f'"{n}":0') if read == "members" else str
            body = (text % ",".join(map(item, range(count)))).encode() + b" " * 99
            steps = getattr(Parts(body), read)((0, len(body.rstrip())), "p")
            if fine:
                assert len(finished(steps)) == count
                continue
            with pytest.raises(RequestRefused) as caught:
                finished(steps)
            assert (caught.value.public_code, caught.value.param) == ("invalid_value", "p")


def test_large_parts_are_looked_through_in_steps() -> None:
    """Each of them looks at a window at most."""
    size = 1 << 20
    parts, span = parts_of(["x" * size, {"a": ["y"] * (size // 8)}])
    steps = parts.elements(span, "p")
    taken = 0
    steps = parts.elements(span, "p")
    while True:
        try:
            next(steps)
        except StopIteration:
            break
        taken += 1
    assert taken > 2 * size // 65_536


def test_others_have_a_turn_now_and_then() -> None:
    """After so many values, or so many bytes of them."""
    parts, span = parts_of(["x" * (SMALL_BYTES - 50)])
    turns = [parts.due() for _ in range(2 * TURN_BYTES // VALUE_BYTES)]
    assert turns.count(True) == 2
    for _ in range(2):
        finished(parts.elements(span, "p"))
    assert parts.due()


def test_strings_switches_and_nulls() -> None:
    """Each is what it is, or refused by its name."""
    parts, span = parts_of({"s": "a\\u00e9", "n": None, "t": True, "f": False, "i": 5, "l": "x" * 300})  # fmt: skip
    found = finished(parts.members(span, "p"))
    assert parts.word(found["s"], "p") == "a\\u00e9"
    assert parts.word(found["l"], "p") == ""
    assert [parts.switch(found.get(name), "p") for name in ("t", "f", "n", "none")] == [True, False, False, False]  # fmt: skip
    assert [parts.given(found.get(name)) for name in ("s", "n", "none")] == [True, False, False]
    assert [parts.is_text(found[name]) for name in ("s", "i")] == [True, False]
    for read, code in (
        (lambda: parts.switch(found["i"], "p"), "invalid_type"),
        (lambda: parts.string(found["i"], "p"), "invalid_type"),
        (lambda: parts.string(found["n"], "p"), "missing_required_parameter"),
        (lambda: parts.string(None, "p"), "missing_required_parameter"),
        (lambda: finished(parts.members(found["s"], "p")), "invalid_type"),
        (lambda: finished(parts.elements(found["s"], "p")), "invalid_type"),
    ):
        with pytest.raises(RequestRefused) as caught:
            read()
        assert (caught.value.public_code, caught.value.param) == (code, "p")
