"""The splice of several members at once: what a full parser sees changes as asked, and no other byte does."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Final

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gate.splice import Member, scan_members
from gate.splice_plan import SplicePlan, plan_splice
from tests.doubles import mapped

BODY: Final = b'{ "model" : "m" ,"messages":[ 1 ], "n":2 }\n'

Written = tuple[str, str, str, str, str]  # blank, name, blanks around the colon, value, blank

blanks = st.text(" \t\n\r", max_size=2)
names = st.sampled_from(("a", "b", "c", "model", "{", 'q"q', "\u00e4"))
texts = st.sampled_from(("1", "-2.50e1", '"x,}"', '{"a": [1]}', "[]", "null", '"\\ud800"'))
escaped = names.map(json.dumps) | names.map(lambda name: f'"\\u{ord(name[0]):04x}{name[1:]}"' if len(name) == 1 else json.dumps(name))  # fmt: skip
written = st.tuples(blanks, escaped, blanks.map(lambda blank: f"{blank}:{blank}"), texts, blanks)
bodies = st.lists(written, max_size=5)
changes = st.dictionaries(names, texts, max_size=4)


def test_a_body_in_memory_of_its_own_is_changed_alike() -> None:
    """Its segments look into that memory."""
    body, members = mapped(BODY), scan_members(BODY, depth_max=64)
    plan = plan_splice(body, members, {"n": b"3", "x": b"1"})
    segments = list(plan.segments())
    assert b"".join(segments) == spliced(BODY, {"n": b"3", "x": b"1"})
    assert all(each.obj is body for each in segments if isinstance(each, memoryview))
    assert b"".join(plan_splice(mapped(b"{ }"), (), {"x": b"1"}).segments()) == b'{"x":1 }'


def as_body(members: Sequence[Written], blank: str = " ") -> bytes:
    """The object in the form in which its parts were drawn."""
    inside = ",".join(map("".join, members)) if members else blank
    return f" {{{inside}}}\n".encode()


def planned(body: bytes, values: Mapping[str, bytes], remove: Collection[str] = ()) -> SplicePlan:
    """The plan for a body that has just been scanned."""
    return plan_splice(body, scan_members(body, depth_max=64), values, remove=remove)


def spliced(body: bytes, values: Mapping[str, bytes], remove: Collection[str] = ()) -> bytes:
    """The output in one piece; its size is the one that was promised."""
    plan = planned(body, values, remove)
    segments = list(plan.segments())
    assert all(len(segment) for segment in segments)
    output = b"".join(segments)
    assert len(output) == plan.output_bytes
    return output


def appended_to(body: bytes, items: Mapping[str, bytes], **values: bytes) -> bytes:
    """The output with an item behind those of each array; its size is the one that was promised."""
    members = scan_members(body, depth_max=64)
    plan = plan_splice(body, members, values, appended=items)
    output = b"".join(plan.segments())
    assert len(output) == plan.output_bytes
    return output


def pairs_of(body: bytes) -> list[tuple[str, object]]:
    """Name and value of each top-level member, by the standard library."""
    found: list[tuple[str, object]] = json.loads(body, object_pairs_hook=list)
    return found


def by_hand(members: Sequence[Written], changed: Mapping[str, str]) -> bytes:
    """The same change where the parts are known: a value in each member of that name, the rest behind the last value."""
    known = {json.loads(member[1]) for member in members}
    parts = [
        (before, name, colon, changed.get(json.loads(name), value), after)
        for before, name, colon, value, after in members
    ]
    new = [f"{json.dumps(name, ensure_ascii=False)}:{value}" for name, value in changed.items() if name not in known]  # fmt: skip
    if not parts:
        return f" {{{','.join(new)} }}\n".encode()
    before, name, colon, value, after = parts[-1]
    parts[-1] = (before, name, colon, ",".join([value, *new]), after)
    return as_body(parts)


@given(bodies, changes)
@example([], {"a": "1", "b": "2"})
@example([("", '"a"', ":", "1", ""), (" ", '"\\u0061"', ":", "2", " ")], {"a": "3"})
def test_a_change_touches_only_what_it_names(
    members: Sequence[Written], changed: Mapping[str, str]
) -> None:
    """Byte by byte: white space, escapes, number spelling and all other members stay, in their order."""
    values = {name: value.encode() for name, value in changed.items()}
    assert spliced(as_body(members), values) == by_hand(members, changed)


@given(bodies, changes, st.sets(names, max_size=3))
def test_a_parser_sees_exactly_what_was_asked_for(
    members: Sequence[Written], changed: Mapping[str, str], removed: set[str]
) -> None:
    """Replaced, removed and inserted in one pass, duplicates included."""
    removed -= changed.keys()
    body = as_body(members)
    old = pairs_of(body)
    expected = [
        (name, json.loads(changed[name], object_pairs_hook=list) if name in changed else value)
        for name, value in old
        if name not in removed
    ]
    expected += [
        (name, json.loads(value, object_pairs_hook=list))
        for name, value in changed.items()
        if name not in dict(old)
    ]
    values = {name: value.encode() for name, value in changed.items()}
    assert pairs_of(spliced(body, values, removed)) == expected


@given(bodies, changes, st.sets(names, max_size=3), st.data())
def test_a_member_that_stays_is_found_again(
    members: Sequence[Written], changed: Mapping[str, str], removed: set[str], data: st.DataObject
) -> None:
    """Its new place holds its key and its old value."""
    body = as_body(members)
    staying = [
        member
        for member in scan_members(body, depth_max=64)
        if member.key not in changed and member.key not in removed
    ]
    if not staying:
        return
    member = data.draw(st.sampled_from(staying))
    plan = planned(body, {k: v.encode() for k, v in changed.items()}, removed - changed.keys())
    output, moved = b"".join(plan.segments()), plan.moved(member)
    assert output[moved.key_start : moved.value_end] == body[member.key_start : member.value_end]
    assert moved in scan_members(output, depth_max=64)


elements = st.lists(st.tuples(blanks, texts, blanks), max_size=4)


@given(bodies, elements, blanks, bodies, texts)
@example([], [], "", [], "1")
@example([], [("", "[]", "")], " ", [], "1")
def test_an_item_stands_behind_the_others_and_no_byte_of_them_changes(
    before: Sequence[Written],
    inside: Sequence[tuple[str, str, str]],
    blank: str,
    behind: Sequence[Written],
    item: str,
) -> None:
    """Wherever the array stands, and whatever is in it."""
    array = ",".join(map("".join, inside)) if inside else blank
    parts = ["".join(each) for each in before]
    own = f'{blank}"items"{blank}:{blank}[%s]{blank}'
    others = ["".join(each) for each in behind]
    old = f"{{{','.join([*parts, own % array, *others])}}}".encode()
    comma = "," if inside else ""
    new = f"{{{','.join([*parts, own % (array + comma + item), *others])}}}".encode()
    assert appended_to(old, {"items": item.encode()}) == new
    found = dict(pairs_of(new))["items"]
    assert found == [*dict(pairs_of(old))["items"], json.loads(item, object_pairs_hook=list)]  # type: ignore[misc]


@pytest.mark.parametrize(
    ("body", "output"),
    [
        (b'{"items":[]}', b'{"items":[{}]}'),
        (b'{"items":[ \n]}', b'{"items":[ \n{}]}'),
        (b'{"items":[1 ]}', b'{"items":[1 ,{}]}'),
        (b'{"items":[[]] , "n":1}', b'{"items":[[],{}] , "n":1}'),
        (b'{"items":["]"]}', b'{"items":["]",{}]}'),
        (b'{"items":[1],"items":[]}', b'{"items":[1,{}],"items":[{}]}'),
        (b'{"n":1}', b'{"n":1,"items":[{}]}'),
        (b'{"items": null ,"n":1}', b'{"items": [{}] ,"n":1}'),
        (
            b'{"items": "a \\"]" ,"n":1}',
            b'{"items": [{"type":"message","role":"user","content":"a \\"]"},{}] ,"n":1}',
        ),
    ],
)
def test_an_item_is_put_before_the_closing_bracket(body: bytes, output: bytes) -> None:
    """With a comma where another stands before it; in each place of a name that stands twice. A text becomes the first item, and where there is none the item is all there is."""
    assert appended_to(body, {"items": b"{}"}) == output


def test_an_item_and_new_members_go_in_together() -> None:
    """Behind an array that is the last member too; what stands behind it is found again."""
    body = b'{"n":1,"items":[1],"model":"m"}'
    members = scan_members(body, depth_max=64)
    plan = plan_splice(body, members, {"n": b"22", "x": b"3"}, appended={"items": b"{}"})
    output = b"".join(plan.segments())
    assert output == b'{"n":22,"items":[1,{}],"model":"m","x":3}'
    assert plan.moved(members[2]) in scan_members(output, depth_max=64)
    last = b'{"n":1,"items":[ ]}'
    assert appended_to(last, {"items": b"{}"}, x=b"3") == b'{"n":1,"items":[ {}],"x":3}'


@pytest.mark.parametrize("value", [b"{}", b"1", b"true"])
def test_only_a_list_of_items_or_a_text_takes_an_item(value: bytes) -> None:
    """Anything else is a mistake of ours."""
    with pytest.raises(AssertionError, match="an array"):
        appended_to(b'{"items":%b}' % value, {"items": b"1"})


@pytest.mark.parametrize(
    ("body", "values", "remove", "output"),
    [
        (BODY, {"messages": b"[]"}, (), b'{ "model" : "m" ,"messages":[], "n":2 }\n'),
        (BODY, {"x": b"1", "y": b"2"}, (), b'{ "model" : "m" ,"messages":[ 1 ], "n":2,"x":1,"y":2 }\n'),
        (BODY, {"y": b"2", "n": b"0", "x": b"1"}, (), b'{ "model" : "m" ,"messages":[ 1 ], "n":0,"y":2,"x":1 }\n'),
        (BODY, {"x": b"1"}, ("n",), b'{ "model" : "m" ,"messages":[ 1 ],"x":1 }\n'),
        (BODY, {}, ("model", "messages"), b'{ "n":2 }\n'),
        (BODY, {}, ("messages", "n"), b'{ "model" : "m" }\n'),
        (BODY, {"x": b"1"}, ("model", "messages", "n"), b'{ "x":1 }\n'),
        (BODY, {}, ("model", "messages", "n"), b"{  }\n"),
        (BODY, {}, ("none",), BODY),
        (BODY, {}, (), BODY),
        (b"{}", {"x": b"1"}, (), b'{"x":1}'),
        (b" { } ", {"x": b"1", "y": b"2"}, (), b' {"x":1,"y":2 } '),
        (b'{"a":1,"a":2}', {"a": b"3"}, (), b'{"a":3,"a":3}'),
        (b'{"a":1,"b":2,"a":3}', {}, ("a",), b'{"b":2}'),
    ],
)  # fmt: skip
def test_written_down(
    body: bytes, values: Mapping[str, bytes], remove: Sequence[str], output: bytes
) -> None:
    """One comma between members, none at an end; new ones in the order of the mapping."""
    assert spliced(body, values, remove) == output


def test_nothing_is_copied_before_it_is_asked_for() -> None:
    """The parts look into the body, and new values are the objects that were given."""
    value = b'["new"]'
    segments = list(planned(BODY, {"messages": value}).segments())
    views = [segment for segment in segments if isinstance(segment, memoryview)]
    assert [view.obj is BODY for view in views] == [True, True]
    assert [segment for segment in segments if segment is value] == [value]


def test_the_size_is_known_without_making_anything() -> None:
    """A body that will not fit costs nothing."""
    assert planned(BODY, {"messages": b"[" + b" " * 1_000_000 + b"]"}).output_bytes == 1_000_040


def test_a_member_behind_a_change_moves_by_its_growth() -> None:
    """The place of `n` in the output, counted by hand."""
    body = b'{"model":"m","messages":[],"n":2}'
    plan = planned(body, {"messages": b"[1,2]"}, ("model",))
    assert b"".join(plan.segments()) == b'{"messages":[1,2],"n":2}'
    assert plan.moved(Member("n", 27, 31, 32)) == Member("n", 18, 22, 23)


def test_a_name_is_changed_or_removed() -> None:
    """Both at once is a mistake of ours."""
    with pytest.raises(AssertionError, match="replaced and removed"):
        planned(BODY, {"n": b"1"}, ("n",))
