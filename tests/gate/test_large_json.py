"""A large body read in steps: what comes out is what the small path says of it, wherever its windows end.

The windows of these tests are so small that every token is cut by one somewhere.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from typing import Any, Final

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gate.errors import RequestRefused
from gate.ingress import read_chat_request, read_large_request
from gate.large_json import NAME_BYTES_MAX, JsonNotObject, is_json, scan_large
from gate.splice import Body, JsonMalformed, JsonRefused, JsonTooDeep, JsonTooMany, scan_members
from gate.steps import WINDOW, Steps, finished
from tests.doubles import mapped

SMALLEST: Final = 24  # a window; no scalar here is as long
DEPTH: Final = 64

# --- both paths ------------------------------------------------------------------------------------


def outcome(read: Callable[[], object]) -> object:
    """What is read, or the code and param of the refusal."""
    try:
        return read()
    except RequestRefused as refused:
        return refused.public_code, refused.param


def assert_as_small(body: bytes, window: int, *, depth_max: int = DEPTH) -> None:
    """The large path says what the small one says, of bytes and of mapped memory."""
    expected = outcome(lambda: read_chat_request(body, depth_max=depth_max))
    for large in (body, mapped(body) if body else body):
        steps = read_large_request(large, depth_max=depth_max, window=window)
        assert outcome(lambda steps=steps: finished(steps)) == expected  # type: ignore[misc]


def scan(body: Body, window: int = SMALLEST, **limits: int) -> Any:
    """The members of the root."""
    return finished(scan_large(body, window=window, **{"depth_max": DEPTH, **limits}))


def refused_by(body: bytes, window: int = SMALLEST, **limits: int) -> type[JsonRefused]:
    """The kind of the refusal."""
    with pytest.raises(JsonRefused) as caught:
        scan(body, window, **limits)
    return type(caught.value)


def count(steps: Steps[object]) -> int:
    """How many steps it takes, to its end or to a refusal."""
    taken = 0
    try:
        for _ in steps:
            taken += 1
    except JsonRefused:
        pass
    return taken


windows = st.integers(SMALLEST, 40) | st.sampled_from([64, 100, 4_096])
texts = st.text(st.sampled_from('ab"\\/[]{}:, \t\n\x00é€😀\ud800'), max_size=30)
names = texts | st.sampled_from(
    ["model", "messages", "stream", "n", "tools", "response_format", "stream_options", "x"]
)
values = st.recursive(
    st.sampled_from([None, True, False, 0, -1, 1.5, 1e300, 123_456_789, "", "small"]) | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(names, inner, max_size=3),
    max_leaves=25,
)
blanks = st.sampled_from(["", "", "", " ", "\n\t ", "\r" * 50])


@st.composite
def requests(draw: st.DrawFn) -> bytes:
    """An object, with names that stand twice, and white space of any length."""
    members = draw(st.lists(st.tuples(names, values), max_size=6))
    if draw(st.booleans()):
        members += [("model", "m"), ("messages", draw(values))]
    indent = draw(st.sampled_from([None, None, 0, 45]))
    texts_of = (
        json.dumps(name) + draw(blanks) + ":" + draw(blanks)
        + json.dumps(value, ensure_ascii=draw(st.booleans()), indent=indent) + draw(blanks)
        for name, value in members
    )  # fmt: skip
    body = draw(blanks) + "{" + draw(blanks) + ",".join(texts_of) + "}" + draw(blanks)
    return body.encode(errors="surrogatepass")


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A request with a few places where bytes are missing, doubled or others."""
    body = draw(requests())
    for _ in range(draw(st.integers(1, 3))):
        start = draw(st.integers(0, len(body)))
        end = start + draw(st.integers(0, 3))
        piece = draw(
            st.sampled_from(list(b'"\\[]{},: \n1-.eatfn\xff\xc3\x80\x00')).map(lambda b: bytes([b]))
            | st.sampled_from([b"\\u12", b"\\ud800", b"null", b'"":0,', b"0,", b"[" * 70])
            | st.just(b"")
        )
        body = body[:start] + piece + body[end:]
    return body


@given(requests(), windows, st.sampled_from([1, 2, 3, 4, 7, 64]))
def test_a_request_is_read_as_by_the_small_path(body: bytes, window: int, depth_max: int) -> None:
    """The same members, or the same refusal: duplicates, halves of pairs, depth."""
    assert_as_small(body, window, depth_max=depth_max)


@given(damaged(), windows, st.sampled_from([2, 4, 64]))
@example(b'{"a":"x" ' + b" " * 90 + b'"b":1}', SMALLEST, 64)
@example(b'{"a":[' + b" " * 90 + b"]}", SMALLEST, 64)
@example(b'{"a":["x"' + b" " * 90 + b"y]}", SMALLEST, 64)
@example(b'{"a":{1' + b" " * 90 + b":1}}", SMALLEST, 64)
@example(b'{"a":[1,' + b" " * 90 + b"]}", SMALLEST, 64)
@example(b'{"a":[1' + b" " * 90 + b":2]}", SMALLEST, 64)
@example(b'{"a":{"b"' + b" " * 90 + b",1}}", SMALLEST, 64)
@example(b'{"a":[[}}', SMALLEST, 64)
@example(b'{"a":[' + b" " * 90, SMALLEST, 64)
@example(b'{"a":[1' + b" " * 90 + b"2]}", SMALLEST, 64)
@example(b'{"a":[1' + b" " * 90 + b".5,2]}", SMALLEST, 64)
@example(b'{"a":[1' + b" " * 90 + b"e5]}", SMALLEST, 64)
@example(b'{"a":{"b":1' + b" " * 90 + b'.5,"c":2}}', SMALLEST, 64)
@example(b'{"a":"' + b"x" * 90 + b'\n"}', SMALLEST, 64)
@example(b'{"a":"' + b"x" * 90 + b'\x00"}', SMALLEST, 64)
def test_whatever_is_sent_is_refused_as_by_the_small_path(
    body: bytes, window: int, depth_max: int
) -> None:
    """With the same code, or read where the damage did none."""
    assert_as_small(body, window, depth_max=depth_max)


@given(st.binary(max_size=80) | st.text(max_size=60).map(str.encode), windows)
def test_any_bytes_are_judged_as_by_the_small_path(body: bytes, window: int) -> None:
    """Most are no JSON at all."""
    assert_as_small(body, window)


WHOLE: Final = (
    ' { "model" : "sm\\u0061ll" ,"a":[[],{}, [ 1 , -0.5e+1 ,true,null , "]}" ],{"b" :{"c":[false]},"":""}],'
    '"messages":["é€😀 \\ud83d\\ude00 \\ude00 \\\\\\" \\n, long enough to be cut", [[[[[[[[{"d":0}]]]]]]]]]'
    ',"n":1 , "\\ud800":"" } '
).encode()


SPOILERS: Final = b'",:]}[{\\ 0\x80\n'


@pytest.mark.parametrize("window", [SMALLEST, 31, 4_096])
def test_a_body_may_break_anywhere(window: int) -> None:
    """Cut, a byte missing, or a byte too many, at every place, three of the twelve at each; characters of several bytes are cut too."""
    assert_as_small(WHOLE, window)
    for place in range(len(WHOLE)):
        head, tail = WHOLE[:place], WHOLE[place + 1 :]
        assert_as_small(head, window)
        assert_as_small(head + tail, window)
        for byte in SPOILERS[place % 4 :: 4]:
            assert_as_small(head + bytes([byte]) + WHOLE[place:], window)
            assert_as_small(head + bytes([byte]) + tail, window)


@pytest.mark.parametrize(
    "root", [b"[1,2]", b'"text"', b"5", b"null", b" [" + b"[" * 70 + b"]" * 71, b'["' + b"x" * 99 + b'"]']
)  # fmt: skip
def test_a_root_that_is_no_object_is_passed_all_the_same(root: bytes) -> None:
    """Malformed comes first, and too deep is only what is an object."""
    assert refused_by(root) is JsonNotObject
    assert refused_by(root + b"]") is JsonMalformed
    assert_as_small(root, SMALLEST)


# --- limits ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("levels", [b"[", b"{", b"[{", b"[[{"])
@pytest.mark.parametrize("inside", [b"", b'"' + b"x" * 99 + b'"', b'"a",' * 50 + b"1"])
@pytest.mark.parametrize("window", [SMALLEST, WINDOW])
def test_depth_is_counted_as_by_the_small_path(levels: bytes, inside: bytes, window: int) -> None:
    """To the very level, the root being the first."""
    for depth in range(1, 9):
        stack = (levels * depth)[:depth]
        value = inside if stack.endswith(b"[") else b'"k":1' if inside else b""
        for level in reversed(stack):
            value = b"[%b]" % value if level == ord("[") else b"{%b}" % value
            value = value.replace(b"{{", b'{"k":{').replace(b"{[", b'{"k":[')
        body = b'{"x":%b}' % value
        assert len(scan(body, window, depth_max=depth + 1)) == 1
        assert refused_by(body, window, depth_max=depth) is JsonTooDeep
        assert refused_by(body[:-1], window, depth_max=depth) is JsonMalformed
        scan_members(body, depth_max=depth + 1)
        with pytest.raises(JsonTooDeep):
            scan_members(body, depth_max=depth)


def test_what_is_absurdly_deep_is_not_looked_at_to_its_end() -> None:
    """It would cost a stack, and its end would change nothing."""
    for opener in (b"[", b'{"a":', b'[0,{"a":'):
        body = b'{"x":' + opener * 100_000
        assert refused_by(body, WINDOW) is JsonTooDeep
        assert count(scan_large(body, depth_max=DEPTH)) < 10
    assert refused_by(b"[" * 100_000) is JsonTooDeep


def test_the_first_limit_that_is_met_is_named() -> None:
    """By the order of the members."""
    deep, more = b'"d":[[[1]]]', b'"":0,"":0,"":0'
    limits = {"depth_max": 3, "members_max": 3}
    assert refused_by(b"{%b,%b}" % (deep, more), **limits) is JsonTooDeep
    assert refused_by(b"{%b,%b}" % (more, deep), **limits) is JsonTooMany
    assert refused_by(b"{%b,%b" % (more, deep), **limits) is JsonMalformed
    assert refused_by(b"{%b,}" % more, **limits) is JsonMalformed
    assert refused_by(b"{}", depth_max=0) is JsonTooDeep
    assert len(scan(b"{%b}" % more, **limits)) == 3


@pytest.mark.parametrize("body", [b'{"a":%b}', b'{"a":[%b]}', b'{"a":{"b":%b }}', b'{"a":[%b,1]}'])
def test_a_number_ends_within_a_window(body: bytes) -> None:
    """A longer one is no number that anybody means, wherever it is cut."""
    for scalar in (b"1" * SMALLEST, b"true", b"-0.5E+1"):
        assert len(scan(body % scalar)) == 1
    for digits in range(SMALLEST - 3, 2 * SMALLEST):
        assert refused_by(body % (b"1" * digits + b".5e+5" + b"5" * SMALLEST)) is JsonMalformed
    assert refused_by(b"1" * (SMALLEST + 1)) is JsonMalformed


def test_a_name_is_as_long_as_it_is_and_kept_as_far_as_anybody_looks() -> None:
    """Nothing is held twice that a caller may make large."""
    for name in (b"k" * NAME_BYTES_MAX, b"\\u0041" * 600, b"\\u0041" * 5_000, b"k" * 5_000):
        body = b'{"%b":1, "m":2}' % name
        (first, second), (expected, _) = scan(body), scan_members(body, depth_max=DEPTH)
        assert len(first.key) <= NAME_BYTES_MAX
        assert first.key == expected.key or len(name) > NAME_BYTES_MAX
        assert (first.key_start, first.value_start, first.value_end, second.key) == (
            expected.key_start, expected.value_start, expected.value_end, "m",
        )  # fmt: skip


def test_half_a_pair_is_json_and_half_an_escape_is_not() -> None:
    """As over the whole."""
    assert is_json(b'["\\ud800", "\\ude00\\ud83d"]')
    assert not is_json(b'["\\ud800]')
    assert not is_json(b'["\\ud80"]')


# --- steps -----------------------------------------------------------------------------------------

HOSTILE: Final[dict[str, Callable[[int], bytes]]] = {
    "text": lambda size: b'"%b"' % (b"x" * size),
    "escapes": lambda size: b'"%b"' % (b'\\"' * (size // 2)),
    "backslashes": lambda size: b'["%b"]' % b'","'.join([b"\\\\\\\\\\\\"] * (size // 9)),
    "halves": lambda size: b"[%b]" % b",".join([b'"\\ud800"'] * (size // 9)),
    "numbers": lambda size: b"[%b]" % b",".join([b"1"] * (size // 2)),
    "numbers behind an escape": lambda size: b"[%b]" % b",".join([b'"\\n"', *[b"1"] * 400] * (size // 805)),
    "white space": lambda size: b"[%b]" % (b" " * size),
    "white space between": lambda size: b"[%b]" % b",".join([b'"a"' + b" " * 3_000] * (size // 3_000)),
    "lists": lambda size: b"[%b]" % b",".join([b"[]"] * (size // 3)),
    "deep lists": lambda size: b"[%b]" % b",".join([b"[" * 60 + b"]" * 60] * (size // 121)),
    "deep content": lambda size: b"[" * 60 + b"1," * (size // 2) + b"1" + b"]" * 60,
    "brackets in text": lambda size: b"[%b]" % b",".join([b'"["'] * (size // 4)),
    "long items": lambda size: b"[%b]" % b",".join([b'"%b"' % (b"x" * 5_000)] * (size // 5_000)),
    "no string ends": lambda size: b'["%b' % (b'a,\\"' * (size // 4)),
    "no comma follows": lambda size: b"[%b]" % b",".join([b"0", b"[" * 9 + b"]" * 9] * (size // 22)),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_steps_are_as_many_as_windows(name: str) -> None:
    """However the body is made: a few for each, one of them for UTF-8, and never a few for each byte."""
    window = 1_024
    for size in (50_000, 100_000):
        body = b'{"a":%b}' % HOSTILE[name](size)
        steps = count(scan_large(body, depth_max=DEPTH, window=window))
        passes = 1 if name == "no string ends" else 2
        assert 0.9 * passes < steps * window / size < 12


def test_the_windows_of_a_container_soon_have_their_full_size() -> None:
    """They begin small, since most containers are."""
    body = b'{"a":[%b1]}' % (b'"a",' * 250_000)
    assert count(scan_large(body, depth_max=DEPTH)) < 2 * len(body) / WINDOW + 10


class Watched(bytes):
    """Remembers the most that was asked of it at once."""

    most = 0

    def __getitem__(self, key: Any) -> Any:
        found = super().__getitem__(key)
        if isinstance(found, bytes):
            self.most = max(self.most, len(found))
        return found

    def find(self, part: Any, start: Any = 0, end: Any = None) -> int:
        self.most = max(self.most, (len(self) if end is None else end) - start)
        return super().find(part, start, end)


@pytest.mark.parametrize("name", HOSTILE)
def test_no_call_looks_at_more_than_a_window(name: str) -> None:
    """What comes out is copied in pieces, too."""
    body = Watched(b'{"a":%b}' % HOSTILE[name](50_000))
    count(scan_large(body, depth_max=DEPTH, window=1_024))
    assert 0 < body.most <= 1_024


def test_small_members_are_steps_of_their_own() -> None:
    """A thousand of them are no reason to keep the loop."""
    body = b"{%b}" % b",".join(b'"%d":0' % number for number in range(1_000))
    steps = count(scan_large(body, depth_max=DEPTH))
    assert 1_000 <= steps <= 3_000
    assert [each.key for each in scan(body, WINDOW)] == [str(number) for number in range(1_000)]


def test_the_end_of_a_container_is_found_behind_any_number_of_brackets() -> None:
    """Each of them stands in the window that closes it."""
    for brackets in itertools.chain(range(8), (63, 64, 65, 127, 128, 129, 700)):
        value = b"[%b]" % b",".join([b"[]"] * brackets + [b'"]"'])
        body = b'{"a":%b ,"b":[]}' % value
        assert scan(body, WINDOW) == scan_members(body, depth_max=DEPTH)
