"""Patches: what a recovery plan changes in the request, kept from its decision until its rebuild takes it, once.

A patch is the new value of the primary member (`messages`, or `input`) and of the few siblings that a dialect needs; never the whole request, a header or a
credential. It holds a reservation of its size, which is released exactly once, whatever becomes of it: by whoever takes it, by `discard`, or by `close`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import assert_never

import msgspec

from gate.budget import Held, MemoryBudget, Reservation
from gate.errors import (
    BudgetExceeded,
    PatchDuplicate,
    PatchInvalid,
    PatchUnavailable,
    RebuildOverflow,
    RequestRefused,
    StoreClosed,
)
from gate.ingress import check_json
from gate.plan import Continuation, Cursor, SchemaRepair
from gate.refs import is_stable_token

__all__ = ["Appended", "Patch", "PatchStore", "Patched", "reserve_rebuild"]

Patched = Continuation | SchemaRepair
"""The directives that need a patch."""


class Appended(msgspec.Struct, frozen=True):
    """A value of the primary member, an array: the caller's own items as they are, and this one, JSON, behind them. Nothing of the caller's is copied."""

    item: bytes

    def __repr__(self) -> str:
        return f"Appended({len(self.item)} bytes)"


class Patch(Held):
    """New values by member name, items to append, and names to remove; owned by whoever took it, until `release`."""

    def __init__(
        self,
        values: Mapping[str, bytes],
        remove: Collection[str],
        reservation: Reservation,
        *,
        appended: Mapping[str, bytes],
    ) -> None:
        self.values = values
        self.remove = remove
        self.appended = appended
        self._reservation = reservation

    def release(self) -> None:
        """Lets go of the values, then of their bytes. A second release is a bug."""
        self.values = self.appended = {}
        self._reservation.release()

    def __repr__(self) -> str:
        names = sorted([*self.values, *self.appended])
        return f"Patch({names}, {self._reservation.size} bytes)"


class PatchStore:
    """The patches of one exchange. `primary`: the member that every patch replaces. No method awaits, so each is one step for every task."""

    def __init__(self, budget: MemoryBudget, primary: str) -> None:
        self._budget = budget
        self._primary = primary
        self._patches: dict[tuple[str, ...], tuple[Cursor | None, Patch]] = {}
        self._closed = False

    def __len__(self) -> int:
        return len(self._patches)

    def put(
        self,
        directive: Patched,
        value: object,
        *,
        siblings: Mapping[str, object] | None = None,
        remove: Collection[str] = (),
    ) -> None:
        """Keeps the patch of a plan with this directive. Bytes are JSON already, and kept byte for byte; so is an item to append; anything else is encoded, once.

        Raises, in this order: `PatchInvalid` for the key, the cursor, a value; `StoreClosed`; `PatchDuplicate`; `RebuildOverflow`.
        """
        names = {**(siblings or {}), **dict.fromkeys(remove)}
        assert names.keys().isdisjoint({"model", self._primary}), "the gate's own members"
        key, cursor = _key_of(directive), _cursor_of(directive)
        if not all(map(is_stable_token, key)):
            raise PatchInvalid("key")
        if cursor is not None and not cursor.valid:
            raise PatchInvalid("cursor")
        given = {self._primary: value, **(siblings or {})}
        items = {name: each.item for name, each in given.items() if isinstance(each, Appended)}
        appended = {name: _json(item) for name, item in items.items()}
        values = {name: _json(each) for name, each in given.items() if name not in items}
        if self._closed:
            raise StoreClosed
        if key in self._patches:
            raise PatchDuplicate
        size = sum(map(len, (*values.values(), *appended.values())))
        reservation = reserve_rebuild(self._budget, size)
        self._patches[key] = cursor, Patch(values, tuple(remove), reservation, appended=appended)

    def take(self, directive: Patched) -> Patch:
        """The patch of this directive, which the caller releases; its key is free again. Raises `StoreClosed`, `PatchUnavailable`."""
        if self._closed:
            raise StoreClosed
        patch = self._pop(directive)
        if patch is None:
            raise PatchUnavailable
        return patch

    def discard(self, directive: Patched) -> None:
        """The plan is given up: its patch goes, if it is still here."""
        patch = self._pop(directive)
        if patch is not None:
            patch.release()

    def close(self) -> None:
        """Releases all that is left; nothing is put or taken any more. Closing twice is fine."""
        self._closed = True
        while self._patches:
            self._patches.popitem()[1][1].release()

    def _pop(self, directive: Patched) -> Patch | None:
        key = _key_of(directive)
        if key not in self._patches or self._patches[key][0] != _cursor_of(directive):
            return None
        return self._patches.pop(key)[1]

    def __repr__(self) -> str:
        return f"PatchStore({len(self)} patches, {'closed' if self._closed else 'open'})"


def reserve_rebuild(budget: MemoryBudget, size: int) -> Reservation:
    """Room for a patch or for a rebuilt body. Raises `RebuildOverflow`, with nothing reserved."""
    try:
        return budget.reserve(size)
    except BudgetExceeded as error:
        raise RebuildOverflow(error.scope, wanted=error.wanted, free=error.free) from error


def _key_of(directive: Patched) -> tuple[str, ...]:
    match directive:
        case Continuation(snapshot_ref):
            return ("continuation", snapshot_ref)
        case SchemaRepair(schema_ref, patch_code):
            return ("schema", schema_ref, patch_code)
        case _:
            assert_never(directive)


def _cursor_of(directive: Patched) -> Cursor | None:
    return directive.cursor if isinstance(directive, Continuation) else None


def _json(value: object) -> bytes:
    """JSON bytes of one value."""
    try:
        if isinstance(value, bytes | bytearray | memoryview):
            raw = bytes(value)
            check_json(raw)
            return raw
        return msgspec.json.encode(value)
    except (RequestRefused, TypeError, ValueError, RecursionError) as error:
        raise PatchInvalid("value") from error
