"""Replace, insert and remove several top-level members of a JSON object in one pass, with the output's size known before anything is made.

Every byte outside the edits stays as it was. A name that the object holds twice is replaced, or removed, in both places: no parser
may see the old value. Names that it does not hold are inserted behind its last member, in the order in which they are given.
"""

from __future__ import annotations

import types
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from gate.splice import Body, Member, first_word

__all__ = ["SplicePlan", "plan_splice"]

_TEXT_ITEM: Final = b'[{"type":"message","role":"user","content":'
NOTHING: Final[Mapping[str, bytes]] = types.MappingProxyType({})


class _Edit(msgspec.Struct, frozen=True):
    """The bytes from `start` to `end` give way to `pieces`."""

    start: int
    end: int
    pieces: tuple[bytes, ...] = ()

    @property
    def growth(self) -> int:
        return sum(map(len, self.pieces)) - (self.end - self.start)


class SplicePlan:
    """What comes out, before it is made: `output_bytes` is exact, and nothing was copied yet."""

    def __init__(self, body: Body, edits: Sequence[_Edit]) -> None:
        self._body = body
        self._edits = edits
        self.output_bytes = len(body) + sum(edit.growth for edit in edits)

    def segments(self) -> Iterator[memoryview | bytes]:
        """The output's parts, none of them empty: views of the body, and the new bytes as they were given."""
        view = memoryview(self._body)
        position = 0
        for edit in self._edits:
            if position < edit.start:
                yield view[position : edit.start]
            yield from edit.pieces
            position = edit.end
        yield view[position:]

    def moved(self, member: Member) -> Member:
        """Where a member that is neither replaced nor removed stands in the output."""
        shift = sum(edit.growth for edit in self._edits if edit.end <= member.key_start)
        return Member(
            member.key,
            member.key_start + shift,
            member.value_start + shift,
            member.value_end + shift,
        )


def plan_splice(
    body: Body,
    members: Sequence[Member],
    values: Mapping[str, bytes],
    *,
    remove: Collection[str] = (),
    appended: Mapping[str, bytes] = NOTHING,
) -> SplicePlan:
    """The plan for `body`, an object with these top-level `members`, all of them, as scanned. `values` are JSON, name by name.

    `appended`: an item, JSON, for each name whose value is an array of items and otherwise stays. One text in its place becomes the first item, a user's message; where
    there is none of either, or null, the item is all that there is.
    """
    assert values.keys().isdisjoint(remove), "replaced and removed"
    edits = [
        _Edit(member.value_start, member.value_end, (values[member.key],))
        for member in members
        if member.key in values
    ]
    edits += _removals(members, remove)
    for member in members:
        if member.key in appended:
            edits += _appending(body, member, appended[member.key])
    known = {member.key for member in members}
    alone = {name: b"[%b]" % item for name, item in appended.items()}
    inserted = {name: value for name, value in {**values, **alone}.items() if name not in known}
    if inserted:
        edits.append(_insertion(body, members, inserted, remove))
    return SplicePlan(body, sorted(edits, key=lambda edit: (edit.start, edit.end)))


def _removals(members: Sequence[Member], remove: Collection[str]) -> Iterator[_Edit]:
    """A member goes with the comma before it; with the one behind it as long as no member stays before it."""
    stays = False
    for index, member in enumerate(members):
        if member.key not in remove:
            stays = True
        elif stays:
            yield _Edit(members[index - 1].value_end, member.value_end)
        elif index + 1 < len(members):
            yield _Edit(member.key_start, members[index + 1].key_start)
        else:
            yield _Edit(member.key_start, member.value_end)


def _appending(body: Body, member: Member, item: bytes) -> Iterator[_Edit]:
    """One more item, before the bracket that closes an array, or behind a text."""
    start, end = member.value_start, member.value_end
    match body[start : start + 1]:
        case b"[":
            empty = first_word(body, start + 1) == end - 1
            yield _Edit(end - 1, end - 1, (item,) if empty else (b",", item))
        case b'"':
            yield _Edit(start, start, (_TEXT_ITEM,))
            yield _Edit(end, end, (b"},", item, b"]"))
        case other:
            assert other == b"n", "an array, a text, or null"
            yield _Edit(start, end, (b"[", item, b"]"))


def _insertion(
    body: Body, members: Sequence[Member], inserted: Mapping[str, bytes], remove: Collection[str]
) -> _Edit:
    """All new members at one place: behind the last that stays, or where the first would stand."""
    last = next((member for member in reversed(members) if member.key not in remove), None)
    if last is not None:
        place = last.value_end
    else:
        place = members[0].key_start if members else body.find(b"{", 0) + 1
    pieces: list[bytes] = []
    for name, value in inserted.items():
        comma = b"," if pieces or last is not None else b""
        pieces += (comma + msgspec.json.encode(name) + b":", value)
    return _Edit(place, place, tuple(pieces))
