"""The scanner: agrees with a full parser about the top level, and leaves every other byte alone."""

from __future__ import annotations

import json
from typing import Final

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gate.splice import (
    JsonMalformed,
    JsonRefused,
    JsonTooDeep,
    JsonTooMany,
    Member,
    apply_edits,
    remove_member_span,
    scan_elements,
    scan_members,
)

DEPTH: Final = 64
BODY: Final = b'{"model": "m", "n":1 ,"tools":[{"a":[1]}] }'

blanks = st.text(" \t\n\r", max_size=3)
scalars = st.sampled_from(
    ("null", "true", "false", "0", "-1", "1.50", "-2.5E+30", "1e9", '""', '"\\\\"', '"\\""', '"]},:"', '"\\ud800"')
) | st.text(max_size=4).map(json.dumps)  # fmt: skip
names = st.text(max_size=4).map(json.dumps) | st.sampled_from(
    ('"a"', '"a"', '"model"', '"mod\\u0065l"', '"\\"a"', '"\\udc00"', '"{"')
)


def arrays(values: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """The text of an array, with white space wherever it may stand."""
    padded = st.tuples(blanks, values, blanks).map("".join)
    filled = st.lists(padded, min_size=1, max_size=4).map(lambda parts: f"[{','.join(parts)}]")
    return filled | blanks.map(lambda blank: f"[{blank}]")


def objects(values: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """The text of an object, likewise, its names perhaps twice."""
    colon = st.just(":")
    member = st.tuples(blanks, names, blanks, colon, blanks, values, blanks).map("".join)
    filled = st.lists(member, min_size=1, max_size=4).map(lambda parts: f"{{{','.join(parts)}}}")
    return filled | blanks.map(lambda blank: f"{{{blank}}}")


values = st.recursive(scalars, lambda inner: arrays(inner) | objects(inner), max_leaves=12)
documents = st.tuples(blanks, objects(values), blanks).map(lambda parts: "".join(parts).encode())


def pairs_of(body: bytes) -> list[tuple[str, object]]:
    """Name and value of each top-level member, by the full parser."""
    found: list[tuple[str, object]] = json.loads(body, object_pairs_hook=list)
    return found


def value_of(text: bytes) -> object:
    """A value in the form that `pairs_of` gives it."""
    return json.loads(text, object_pairs_hook=list)


def is_json(text: bytes) -> bool:
    """What the full parser says."""
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def scanned(body: bytes) -> list[tuple[str, object]]:
    """What `pairs_of` answers, by the scanner."""
    return [
        (member.key, value_of(body[member.value_start : member.value_end]))
        for member in scan_members(body, depth_max=DEPTH)
    ]


def brackets(depth: int) -> bytes:
    """Alternating arrays and objects, `depth` of them in each other, between two neighbours."""
    text = b'"]"'
    for level in range(depth):
        text = b'{"a":0,"b":%b}' % text if level % 2 else b"[{},%b,[ ]]" % text
    return text


@given(documents)
@example(b'{"a":"\\\\"}')
@example(b'{"":[[[[[[[[[]]]]]]]],{"a":{"a":{"a":{"a":{"a":{"a":{"a":{}}}}}}}}]}')
def test_the_scanner_finds_what_a_full_parser_finds(body: bytes) -> None:
    """Names decoded, values as they stand, in order, duplicates included."""
    assert scanned(body) == pairs_of(body)


@given(documents, st.data(), values)
def test_a_replacement_changes_one_value_and_no_other_byte(
    body: bytes, data: st.DataObject, value: str
) -> None:
    """The bytes before and after are those of the body; the other values are equal."""
    members = scan_members(body, depth_max=DEPTH)
    if not members:
        return
    index = data.draw(st.integers(0, len(members) - 1))
    member = members[index]
    start, end = member.value_start, member.value_end
    changed = apply_edits(body, [(start, end, value.encode())])
    assert changed == body[:start] + value.encode() + body[end:]
    expected = pairs_of(body)
    expected[index] = (member.key, value_of(value.encode()))
    assert pairs_of(changed) == expected


@given(documents, st.data())
def test_an_object_stays_valid_without_one_of_its_members(body: bytes, data: st.DataObject) -> None:
    """First, last, in the middle or the only one."""
    members = scan_members(body, depth_max=DEPTH)
    if not members:
        return
    index = data.draw(st.integers(0, len(members) - 1))
    start, end = remove_member_span(members, index, body)
    expected = pairs_of(body)
    del expected[index]
    assert pairs_of(apply_edits(body, [(start, end, b"")])) == expected


@given(arrays(values).map(str.encode), blanks)
def test_the_elements_of_an_array_are_what_a_full_parser_finds(text: bytes, blank: str) -> None:
    """The array may stand in a larger body, and what follows it is not looked at."""
    body = b'{"messages":' + blank.encode() + text + b"}"
    spans = scan_elements(body, start=len(b'{"messages":'), depth_max=DEPTH)
    assert [value_of(body[start:end]) for start, end in spans] == value_of(text)


@given(documents, st.data())
def test_a_truncated_body_is_refused(body: bytes, data: st.DataObject) -> None:
    """Unless only white space is missing."""
    short = body[: data.draw(st.integers(0, len(body.rstrip()) - 1))]
    with pytest.raises(JsonMalformed):
        scan_members(short, depth_max=DEPTH)


@given(documents, st.data(), st.sampled_from([*b'"\\[]{}:,0 \nx\xff']))
def test_a_damaged_body_is_scanned_or_refused(body: bytes, data: st.DataObject, byte: int) -> None:
    """Nothing else is ever raised, and nothing is refused that a full parser accepts."""
    place = data.draw(st.integers(0, len(body) - 1))
    damaged = body[:place] + bytes((byte,)) + body[place + data.draw(st.integers(0, 1)) :]
    try:
        members = scan_members(damaged, depth_max=DEPTH)
    except JsonRefused:
        assert not is_json(damaged)
        return
    for member in members:
        assert damaged[member.key_start : member.key_start + 1] == b'"'
        assert member.key_start < member.value_start < member.value_end < len(damaged)


@pytest.mark.parametrize(
    "body",
    [
        b"", b" ", b"[]", b"1", b"\xef\xbb\xbf{}", b"{", b"{,}", b'{"a"}', b'{"a":}', b'{"a":1,}', b'{"a":1 "b":2}',
        b'{a:1}', b'{"a":1]', b'{"a":[1}', b'{"a":[}]}', b'{"a":{]}', b'{"a":[]', b'{"a":[]]', b'{"a":[] 1}',
        b'{"a":"', b'{"a":"\\', b'{"a":"\\"}', b'{"a":["]}', b'{"a":01}', b'{"a":1.}', b'{"a":nul}', b'{"a":NaN}',
        b'{"a":+1}', b'{"\\q":1}', b'{"\\u00g0":1}', b"{} {}", b'{"a":1}x', b'{"a":1}\0', b'{"a":truefalse}',
    ],
)  # fmt: skip
def test_broken_structure_is_refused(body: bytes) -> None:
    """The offset lies within the body or at its end; the content is not shown."""
    with pytest.raises(JsonMalformed, match="at or after byte") as refusal:
        scan_members(body, depth_max=DEPTH)
    assert 0 <= refusal.value.offset <= len(body)


@pytest.mark.parametrize(
    "text", [b"", b"{}", b"[", b"[,]", b"[1,]", b"[1 2]", b"[1}", b"[[]", b"[[]}", b'["]', b"[[1}]"]
)
def test_a_broken_array_is_refused(text: bytes) -> None:
    """As an object is."""
    with pytest.raises(JsonMalformed):
        scan_elements(text, start=0, depth_max=DEPTH)


@pytest.mark.parametrize("depth", range(1, 20))
def test_nesting_is_counted_to_the_last_level(depth: int) -> None:
    """As deep as the limit is scanned, one level deeper is refused, however the levels are passed.

    The innermost level of the text holds containers itself, so it counts one more.
    """
    nested = brackets(depth)
    body = b'{"a":%b}' % nested
    levels = depth + 2
    assert scanned(body) == pairs_of(body)
    assert len(scan_members(body, depth_max=levels)) == 1
    with pytest.raises(JsonTooDeep, match=f"deeper than {levels - 1} levels"):
        scan_members(body, depth_max=levels - 1)
    assert len(scan_elements(b"[%b]" % nested, start=0, depth_max=levels)) == 1
    with pytest.raises(JsonTooDeep):
        scan_elements(b"[%b]" % nested, start=0, depth_max=levels - 1)


def test_the_scanned_container_is_the_first_level() -> None:
    """A flat object needs one."""
    assert len(scan_members(b'{"a":1}', depth_max=1)) == 1
    with pytest.raises(JsonTooDeep):
        scan_members(b'{"a":1}', depth_max=0)
    with pytest.raises(JsonTooDeep):
        scan_members(b'{"a":[]}', depth_max=1)


def test_a_million_open_brackets_are_refused() -> None:
    """By depth where the limit is low, by the missing end where it is not; never by the interpreter."""
    body = b'{"a":' + b"[" * 1_000_000
    with pytest.raises(JsonTooDeep):
        scan_members(body, depth_max=DEPTH)
    with pytest.raises(JsonMalformed):
        scan_members(b'{"a":' + b"[{" * 1_000, depth_max=10_000)


def test_the_number_of_entries_is_bounded() -> None:
    """As many as the limit are found, one more is refused."""
    body = b'{"a":1,"a":2}'
    assert len(scan_members(body, depth_max=DEPTH, members_max=2)) == 2
    with pytest.raises(JsonTooMany, match="more than 1 entries") as refusal:
        scan_members(body, depth_max=DEPTH, members_max=1)
    assert refusal.value.count_max == 1
    assert len(scan_elements(b"[1,2]", start=0, depth_max=DEPTH, elements_max=2)) == 2
    with pytest.raises(JsonTooMany):
        scan_elements(b"[1,2]", start=0, depth_max=DEPTH, elements_max=1)


def test_offsets_are_those_of_the_body() -> None:
    """The key's quote, and the value without the white space around it."""
    assert scan_members(b' { "a" : [1] , "b":2}', depth_max=DEPTH) == (
        Member("a", 3, 9, 12),
        Member("b", 15, 19, 20),
    )


def test_an_object_within_a_body_is_scanned_from_its_start() -> None:
    """What stands behind it is not looked at."""
    members = scan_members(BODY, depth_max=DEPTH, start=BODY.index(b"[") + 1)
    assert [(member.key, BODY[member.value_start : member.value_end]) for member in members] == [
        ("a", b"[1]")
    ]


def test_a_name_that_is_not_utf_8_is_still_a_name() -> None:
    """Its bytes stay; a lone surrogate stays one too; a control character is not our concern."""
    members = scan_members(b'{"\xff":"\xff\xfe","\\ud800":"\\udc00","a\nb\\t":0}', depth_max=DEPTH)
    assert [member.key for member in members] == ["\ufffd", "\ud800", "a\nb\t"]


def test_edits_replace_delete_and_insert() -> None:
    """In order of position; neighbours may touch."""
    assert apply_edits(b"abcdef", [(0, 1, b"X"), (1, 3, b""), (4, 4, b"--"), (6, 6, b"!")]) == (
        b"Xd--ef!"
    )
    assert apply_edits(b"abc", []) == b"abc"


@pytest.mark.parametrize(
    "edits", [[(2, 3, b""), (0, 1, b"")], [(0, 2, b""), (1, 3, b"")], [(2, 1, b"")], [(0, 4, b"")]]
)
def test_edits_out_of_order_are_a_mistake_of_ours(edits: list[tuple[int, int, bytes]]) -> None:
    """Overlapping, reversed or beyond the end."""
    with pytest.raises(AssertionError):
        apply_edits(b"abc", edits)


def test_removing_takes_the_comma_along() -> None:
    """The one before, or the one after the first; white space of the neighbours stays."""
    members = scan_members(BODY, depth_max=DEPTH)
    without = [
        apply_edits(BODY, [(*remove_member_span(members, index, BODY), b"")]) for index in range(3)
    ]
    assert without == [
        b'{"n":1 ,"tools":[{"a":[1]}] }',
        b'{"model": "m" ,"tools":[{"a":[1]}] }',
        b'{"model": "m", "n":1 }',
    ]
    only = b'{ "a" : 1 }'
    assert remove_member_span(scan_members(only, depth_max=DEPTH), 0, only) == (2, 9)


def test_members_of_another_body_are_a_mistake_of_ours() -> None:
    """Their offsets mean nothing there."""
    with pytest.raises(AssertionError):
        remove_member_span(scan_members(b' {"a":1}', depth_max=DEPTH), 0, b'{"a":1}')
