"""The patch store: each patch is put once and taken once, and its bytes go back exactly once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pytest

from gate.budget import MemoryBudget
from gate.errors import (
    GateError,
    PatchDuplicate,
    PatchInvalid,
    PatchUnavailable,
    RebuildOverflow,
    StoreClosed,
)
from gate.patches import Appended, Patched, PatchStore
from gate.plan import Continuation, Cursor, SchemaRepair
from gate.refs import SnapshotRef

GO_ON: Final = Continuation(SnapshotRef("ex.snapshot"), Cursor(3, 40))
REPAIR: Final = SchemaRepair("tool.0", "tool_arguments")
ITEMS: Final = b'[ {"role":"user","content":"\\ud83d"} ]'

either = pytest.mark.parametrize("directive", [GO_ON, REPAIR])


def budget_of(size: int = 1_000) -> MemoryBudget:
    """The ledger of one exchange."""
    return MemoryBudget("exchange", size)


def store(budget: MemoryBudget | None = None) -> PatchStore:
    """The patches of a chat exchange."""
    return PatchStore(budget or budget_of(), "messages")


@either
def test_bytes_are_kept_as_they_are(directive: Patched) -> None:
    """White space and half surrogates too, and without a copy."""
    patches = store()
    patches.put(directive, ITEMS)
    with patches.take(directive) as patch:
        assert patch.values == {"messages": ITEMS}
        assert patch.values["messages"] is ITEMS


def test_other_values_are_encoded_and_stand_behind_the_primary_one() -> None:
    """In the order in which they were given."""
    patches = store()
    patches.put(GO_ON, [{"a": "ä"}], siblings={"z": True, "a": memoryview(b" 1 ")}, remove=["n"])
    with patches.take(GO_ON) as patch:
        assert list(patch.values.items()) == [
            ("messages", '[{"a":"ä"}]'.encode()),
            ("z", b"true"),
            ("a", b" 1 "),
        ]
        assert patch.remove == ("n",)


@either
def test_an_item_to_append_is_kept_as_it_is(directive: Patched) -> None:
    """Byte for byte, beside values of siblings; nothing of the caller's is in it."""
    patches, item = store(), b' {"role":"assistant","content":"\\ud83d"} '
    patches.put(directive, Appended(item), siblings={"x": True, "stop": Appended(b'"s"')})
    with patches.take(directive) as patch:
        assert patch.appended == {"messages": item, "stop": b'"s"'}
        assert patch.appended["messages"] is item
        assert patch.values == {"x": b"true"}
    assert (patch.appended, patch.values) == ({}, {})


def test_an_item_to_append_is_counted_and_bounded_like_a_value() -> None:
    """To the byte; its size is given back once."""
    budget = budget_of(6)
    patches = store(budget)
    with pytest.raises(RebuildOverflow) as caught:
        patches.put(GO_ON, Appended(b"[1,2]"), siblings={"x": b"22"})
    assert (caught.value.wanted, caught.value.free, budget.open_reservations) == (7, 6, 0)
    patches.put(GO_ON, Appended(b"[12]"), siblings={"x": b"22"})
    assert budget.used == 6
    patches.discard(GO_ON)
    assert (budget.used, budget.open_reservations) == (0, 0)


@pytest.mark.parametrize("item", [b"", b"{", b'"\xff"', b"1,2"])
def test_an_item_to_append_is_one_json_value(item: bytes) -> None:
    """Two would be two items."""
    budget = budget_of()
    with pytest.raises(PatchInvalid) as caught:
        store(budget).put(GO_ON, Appended(item))
    assert (caught.value.part, budget.open_reservations) == ("value", 0)


@either
def test_a_patch_holds_the_bytes_of_all_its_values_until_it_is_released(directive: Patched) -> None:
    """The store's hand-over changes nothing in the ledger."""
    budget = budget_of()
    patches = store(budget)
    patches.put(directive, b"[1]", siblings={"x": b"22"})
    assert (len(patches), budget.used, budget.open_reservations) == (1, 5, 1)
    patch = patches.take(directive)
    assert (len(patches), budget.used) == (0, 5)
    patch.release()
    assert (patch.values, budget.used, budget.open_reservations) == ({}, 0, 0)
    with pytest.raises(AssertionError, match="released twice"):
        patch.release()


@either
def test_a_patch_is_taken_once_and_its_key_is_free_again(directive: Patched) -> None:
    """A second plan of the same kind has a patch of its own."""
    patches = store()
    patches.put(directive, b"[1]")
    patches.take(directive).release()
    with pytest.raises(PatchUnavailable):
        patches.take(directive)
    patches.put(directive, b"[2]")
    with patches.take(directive) as patch:
        assert patch.values == {"messages": b"[2]"}


@pytest.mark.parametrize(
    "other",
    [
        Continuation(SnapshotRef("ex.snapshot"), Cursor(3, 41)),
        Continuation(SnapshotRef("ex.snapshot"), Cursor(4, 40)),
        Continuation(SnapshotRef("other.snapshot"), Cursor(3, 40)),
        REPAIR,
    ],
)
def test_a_patch_for_another_place_stays(other: Patched) -> None:
    """It still belongs to the plan that it was put for."""
    patches = store()
    patches.put(GO_ON, b"[1]")
    with pytest.raises(PatchUnavailable):
        patches.take(other)
    patches.discard(other)
    patches.take(GO_ON).release()


def test_a_repair_is_found_under_both_its_names() -> None:
    """Names are compared one by one, however they would look in a row."""
    patches = store()
    patches.put(SchemaRepair("a:b", "c"), b"[1]")
    patches.put(SchemaRepair("a", "b:c"), b"[2]")
    with patches.take(SchemaRepair("a:b", "c")) as patch:
        assert patch.values == {"messages": b"[1]"}
    assert len(patches) == 1


@either
def test_a_second_patch_under_a_key_is_refused_and_the_first_one_stays(directive: Patched) -> None:
    """With nothing reserved for the second."""
    budget = budget_of()
    patches = store(budget)
    patches.put(directive, b"[1]")
    with pytest.raises(PatchDuplicate):
        patches.put(directive, b"[1,2,3]")
    assert budget.used == 3
    with patches.take(directive) as patch:
        assert patch.values == {"messages": b"[1]"}


def test_a_continuation_elsewhere_is_still_a_second_one() -> None:
    """An exchange goes on from one place."""
    patches = store()
    patches.put(GO_ON, b"[1]")
    with pytest.raises(PatchDuplicate):
        patches.put(Continuation(GO_ON.snapshot_ref, Cursor(5, 60)), b"[2]")


@either
def test_a_plan_that_is_given_up_leaves_no_patch(directive: Patched) -> None:
    """To give it up again, or without one, is fine."""
    budget = budget_of()
    patches = store(budget)
    patches.put(directive, b"[1]")
    patches.discard(directive)
    patches.discard(directive)
    assert (len(patches), budget.used, budget.open_reservations) == (0, 0, 0)


def test_a_patch_that_does_not_fit_is_not_kept() -> None:
    """The error says by how much; what fits exactly is kept."""
    budget = budget_of(4)
    patches = store(budget)
    with pytest.raises(RebuildOverflow) as caught:
        patches.put(GO_ON, b"[1,2]")
    assert (caught.value.wanted, caught.value.free, budget.open_reservations) == (5, 4, 0)
    patches.put(GO_ON, b"[12]")
    assert budget.used == 4


def test_a_closed_store_has_given_everything_back() -> None:
    """Nothing is put or taken any more; closing twice is fine."""
    budget = budget_of()
    patches = store(budget)
    patches.put(GO_ON, b"[1]")
    patches.put(REPAIR, b"[2]")
    taken = patches.take(REPAIR)
    patches.close()
    patches.close()
    assert (len(patches), budget.used) == (0, 3)
    taken.release()
    assert (budget.used, budget.open_reservations) == (0, 0)
    patches.discard(GO_ON)
    with pytest.raises(StoreClosed):
        patches.put(GO_ON, b"[1]")
    with pytest.raises(StoreClosed):
        patches.take(GO_ON)


@pytest.mark.parametrize(
    "directive",
    [
        Continuation(SnapshotRef(""), Cursor(0, 0)),
        SchemaRepair("Tool 0", "code"),
        SchemaRepair("tool.0", ""),
    ],
)
def test_a_key_is_made_of_stable_tokens(directive: Patched) -> None:
    """It may be logged."""
    with pytest.raises(PatchInvalid) as caught:
        store().put(directive, b"[]")
    assert caught.value.part == "key"


@pytest.mark.parametrize("cursor", [Cursor(-1, 0), Cursor(0, -1)])
def test_a_cursor_lies_in_the_answer(cursor: Cursor) -> None:
    """Nothing is before its beginning."""
    with pytest.raises(PatchInvalid) as caught:
        store().put(Continuation(GO_ON.snapshot_ref, cursor), b"[]")
    assert caught.value.part == "cursor"


@pytest.mark.parametrize("value", [b"", b"[1", b'["\xff"]', b"[] []", {1, object()}, "\ud800"])
def test_a_value_is_json(value: object) -> None:
    """As bytes or as something that can be encoded; also that of a sibling."""
    with pytest.raises(PatchInvalid) as caught:
        store().put(REPAIR, value)
    assert caught.value.part == "value"
    with pytest.raises(PatchInvalid):
        store().put(REPAIR, b"[]", siblings={"x": value})


def test_values_that_nest_without_end_are_refused() -> None:
    """However they are given."""
    endless: list[object] = []
    endless.append(endless)
    for value in (endless, b"[" * 100_000 + b"]" * 100_000):
        with pytest.raises(PatchInvalid):
            store().put(REPAIR, value)


def test_the_model_and_the_primary_member_are_no_siblings() -> None:
    """The one is bound later, the other is the patch itself."""
    for name in ("model", "messages"):
        with pytest.raises(AssertionError, match="own members"):
            store().put(REPAIR, b"[]", siblings={name: b"1"})
        with pytest.raises(AssertionError, match="own members"):
            store().put(REPAIR, b"[]", remove=[name])


def test_the_first_thing_that_is_wrong_is_what_is_said() -> None:
    """Key, cursor, value, closed, duplicate, room: mended one by one, in this order."""
    budget = budget_of(3)
    patches, closed = store(budget), store(budget)
    patches.put(GO_ON, b"[1]")
    closed.close()
    bad_key = Continuation(SnapshotRef(""), Cursor(-1, 0))
    bad_cursor = Continuation(GO_ON.snapshot_ref, Cursor(-1, 0))
    large = b"[1,2,3]"
    steps: list[tuple[Callable[[], None], type[GateError], str]] = [
        (lambda: closed.put(bad_key, b"["), PatchInvalid, "patch_key_invalid"),
        (lambda: closed.put(bad_cursor, b"["), PatchInvalid, "patch_cursor_invalid"),
        (lambda: closed.put(GO_ON, b"["), PatchInvalid, "patch_value_invalid"),
        (lambda: closed.put(GO_ON, large), StoreClosed, "store_closed"),
        (lambda: patches.put(GO_ON, large), PatchDuplicate, "patch_duplicate"),
        (lambda: patches.put(REPAIR, large), RebuildOverflow, "rebuild_overflow"),
    ]
    for put, kind, code in steps:
        with pytest.raises(kind) as caught:
            put()
        assert caught.value.public_code == code


def test_what_is_logged_of_a_patch_shows_no_byte_of_it() -> None:
    """Names and sizes."""
    patches = store()
    patches.put(GO_ON, b'["secret"]', siblings={"x": b'"secret"'})
    assert repr(patches) == "PatchStore(1 patches, open)"
    assert repr(patches.take(GO_ON)) == "Patch(['messages', 'x'], 18 bytes)"
    patches.put(GO_ON, Appended(b'"secret"'), siblings={"x": b"1"})
    assert repr(patches.take(GO_ON)) == "Patch(['messages', 'x'], 9 bytes)"
    assert repr(Appended(b'"secret"')) == "Appended(8 bytes)"
    patches.close()
    assert repr(patches) == "PatchStore(0 patches, closed)"
