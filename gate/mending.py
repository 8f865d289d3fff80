"""Mending: the ordered, lossless repairs of a chat attempt's frames before anything judges them.

    0. calls       tool calls are put together (`gate.mending_tools`); what is held for that meets the other steps when it goes on
    0. index       a choice that says no number is the first
    1. fields      content as a list of parts becomes a string; a payload of several lines, or not UTF-8, becomes one line of UTF-8
    2. surrogates  half of a pair that ends a delta moves to where the other half begins; a half that stays alone becomes U+FFFD (both: `gate.mending_renewal`)
    3. names       reasoning goes under the name that the route writes
    4. facts       finish reasons, usage and repeated roles are taken out and kept with the attempt; a frame that had nothing else goes
    5. role        the first frame of a choice says its role, once
    6. think tags  where the route wants it: `gate.mending_think`

Rules of this file: a frame that no step touched keeps its bytes; a touched one changes only in the members named above (names, facts and role by
splicing, calls, fields and surrogates by encoding it anew, unknown members included). State belongs to one attempt.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from gate.events import (
    Complete,
    Facts,
    Finish,
    FinishFact,
    Frame,
    Identity,
    Mend,
    UsageReport,
)
from gate.loose_json import paired, tolerant_object
from gate.mending_renewal import Renewal
from gate.mending_think import ThinkTags
from gate.mending_tools import ToolMender
from gate.openai import finish_reason, says_failure
from gate.splice import (
    Member,
    apply_edits,
    elements_of,
    integer_of,
    joined_members,
    members_of,
    remove_member_span,
)
from gate.usage import merge_usage

__all__ = ["ChatMender"]

_EMPTY_VALUES: Final = frozenset({b"null", b'""', b"[]", b"{}"})
_ENVELOPE: Final = frozenset({"id", "object", "created", "model", "choices", "usage"})
_CHOICE_OWN: Final = frozenset({"index", "delta", "finish_reason", "logprobs"})
_OTHER_NAME: Final = {"reasoning": "reasoning_content", "reasoning_content": "reasoning"}
CHOICES_MAX: Final = 1 << 31  # no bound, where nobody says how many choices were asked for
_NAMES: Final = (Mend.REASONING | Mend.REASONING_CONTENT).value
_TOOLS: Final = Mend.TOOLS.value

Edit = tuple[int, int, bytes]


class ChatMender:
    """Mends one attempt's frames in order, and keeps its closing facts and its identity.

    `roles`: choices whose role was said before it; `ceiling`: the completion tokens that the caller allows; `tags`: its step for think tags.
    """

    def __init__(
        self,
        *,
        choices: int = CHOICES_MAX,
        reasoning_field: str = "reasoning_content",
        roles: frozenset[int] = frozenset(),
        ceiling: int | None = None,
        tags: ThinkTags | None = None,
    ) -> None:
        self._tags = tags
        self._choices = choices
        self.identity: Identity | None = None
        self._reasoning_field = reasoning_field
        # What concerns no step here: reasoning under the name that is written anyway.
        fine = Mend.REASONING if reasoning_field == "reasoning" else Mend.REASONING_CONTENT
        self._concerns = ~fine.value
        self._tools = ToolMender(ceiling=ceiling)
        self._roles = set(roles)
        self._renewal = Renewal()
        self._halves = self._renewal.halves  # looked at for every frame
        self._finishes: dict[int, FinishFact] = {}
        self._usage: list[bytes] = []
        self._usage_members = b""

    def mend(self, frames: list[Frame]) -> list[Frame]:
        """The frames that remain. A frame that needs nothing is passed on as it is."""
        mended: list[Frame] = []
        tools, waiting = self._tools, self._tools.queue
        for frame in frames:
            fine = not frame.mend & self._concerns and not self._halves
            if fine and not waiting and self._ordinary(frame):
                mended.append(frame)
            elif frame.mend & _TOOLS or waiting:
                for each in tools.take(frame):
                    mended += self._step(each)
            else:
                mended += self._step(frame)
        return mended if self._tags is None else self._tags.feed(mended)

    @property
    def holding(self) -> bool:
        """Frames wait for a tool call to end."""
        return bool(self._tools.queue)

    @property
    def held_bytes(self) -> int:
        """Raw bytes of what is held."""
        return self._tools.held_bytes + (self._tags.held_bytes if self._tags is not None else 0)

    @property
    def ledger_bytes(self) -> int:
        """What is held costs so much."""
        tags = self._tags.ledger_bytes if self._tags is not None else 0
        return self._tools.ledger_bytes + tags

    def drop(self) -> None:
        """Nothing that is held is wanted any more."""
        self._tools.drop()
        self._tags = None

    @property
    def usage(self) -> bytes:
        """What the attempt has reported so far: a JSON object, or nothing."""
        return self._usage[0] if len(self._usage) == 1 else merge_usage(self._usage)

    def finish(self, end: Complete) -> tuple[list[Frame], Facts]:
        """The frames that were still held, and the facts of a complete attempt."""
        frames = [mended for each in self._tools.finish() for mended in self._step(each)]
        alone = self._renewal.finish()
        if self._tags is not None:
            frames = self._tags.feed(frames)
        frames += self.mend(alone)
        if self._tags is not None:
            frames += self._tags.finish()
        for implied in end.implied:
            self._finishes.setdefault(implied.choice, FinishFact(implied.choice, implied.reason))
        asked = [fact for fact in self._finishes.values() if fact.choice < self._choices]
        # A choice that nobody asked for ends behind the others, if anything of it was told and it did not fail.
        more = [
            fact
            for fact in self._finishes.values()
            if fact.choice >= self._choices
            and fact.choice in self._roles
            and not says_failure(fact.reason)
        ]
        finishes = tuple(map(self._ending, [*asked, *more]))
        facts = Facts(finishes, self.usage, self._usage_members, frozenset(self._roles))
        return frames, facts

    def _ending(self, fact: FinishFact) -> FinishFact:
        """The fact with what the choice's calls make of its reason."""
        reason = self._tools.reason(fact.choice, fact.reason)
        return fact if reason == fact.reason else msgspec.structs.replace(fact, reason=reason)

    def _step(self, frame: Frame) -> list[Frame]:
        """The steps behind the calls."""
        if frame.whole:
            return [self._note_whole(frame)]
        if not frame.mend & self._concerns & ~_TOOLS and not self._halves and self._ordinary(frame):
            return [frame]
        return list(self._mend(frame))

    def _ordinary(self, frame: Frame) -> bool:
        """No identity to note, and every choice has said its role."""
        roles = self._roles
        for event in frame.events:
            if isinstance(event, Identity) or event.choice not in roles:  # type: ignore[union-attr]
                return False
        return True

    def _note_whole(self, frame: Frame) -> Frame:
        """A JSON body keeps its facts; they are only noted here."""
        for event in frame.events:
            match event:
                case Finish():
                    self._finishes.setdefault(event.choice, FinishFact(event.choice, event.reason))
                case UsageReport():
                    self._usage.append(event.usage)
                case Identity():
                    self._identify(event)
                case _:
                    pass
        edits = self._reasoning_of_body(frame.data) if frame.mend & _NAMES & self._concerns else []
        return msgspec.structs.replace(frame, data=apply_edits(frame.data, edits))

    def _identify(self, identity: Identity) -> None:
        self.identity = identity
        self._tools.name = identity.id

    def _reasoning_of_body(self, data: bytes) -> list[Edit]:
        """The renaming in every message of a JSON body."""
        edits: list[Edit] = []
        choices = [member.value_start for member in members_of(data) if member.key == "choices"]
        for start, _ in elements_of(data, choices[-1]):
            for member in members_of(data, start):
                if member.key == "message":
                    edits += self._named(data, members_of(data, member.value_start))
        return edits

    def _named(self, data: bytes, members: tuple[Member, ...]) -> list[Edit]:
        """The edits that put reasoning under the name that the route writes; of two thoughts the one that was judged is said."""
        wanted, other = self._reasoning_field, _OTHER_NAME[self._reasoning_field]
        values = {member.key: member for member in members}
        found, own = values.get(other), values.get(wanted)
        raw = b"null" if found is None else data[found.value_start : found.value_end]
        if found is None or raw in _EMPTY_VALUES:
            return []
        if own is None:
            end = data.index(b'"', found.key_start + 1) + 1
            return [(found.key_start, end, b'"%b"' % wanted.encode())]
        edits = [(found.value_start, found.value_end, b"null")]
        judged = other == "reasoning_content" and raw.startswith(b'"')
        if judged or data[own.value_start : own.value_end] in _EMPTY_VALUES:
            edits.append((own.value_start, own.value_end, raw))
        return sorted(edits)

    def _mend(self, frame: Frame) -> Iterator[Frame]:
        frame = self._renewal.renewed(frame)
        for event in frame.events:
            if isinstance(event, Identity):
                self._identify(event)
        edits, kept = self._edits(frame)
        if not kept:
            return
        if edits:
            events = tuple(
                event for event in frame.events if not isinstance(event, Finish | UsageReport)
            )
            data = apply_edits(frame.data, sorted(edits))
            frame = Frame(data, events, frame.size)
        # Whoever wants to go on behind this frame has to know that half a character is missing.
        torn = Mend.TEXT.value if self._halves else 0
        yield frame if frame.mend == torn else msgspec.structs.replace(frame, mend=torn)

    # ---- steps 3 and 4: splice ----------------------------------------------------------------------

    def _edits(self, frame: Frame) -> tuple[list[Edit], bool]:
        """The splices that take the facts out of a frame, and whether anything but facts is in it."""
        data = frame.data
        edits: list[Edit] = []
        top = members_of(data)
        extras = joined_members(data, top, _ENVELOPE)
        had_facts = kept = False
        for member in top:
            raw = data[member.value_start : member.value_end]
            if member.key == "usage" and raw.startswith(b"{") and raw != b"{}":
                self._usage.append(raw)
                edits.append((member.value_start, member.value_end, b"null"))
                had_facts = True
            elif member.key == "choices" and raw.startswith(b"["):
                for start, end in elements_of(data, member.value_start):
                    if data[start:end].startswith(b"{"):
                        fact, content = self._choice(data, start, extras, edits)
                        had_facts, kept = had_facts or fact, kept or content
        if had_facts and not kept and extras and not self._finished_now(frame):
            self._usage_members = extras
        return edits, kept or not had_facts

    def _choice(
        self, data: bytes, start: int, extras: bytes, edits: list[Edit]
    ) -> tuple[bool, bool]:
        """One choice: whether it held facts, and whether it holds anything else."""
        members = members_of(data, start)
        values = {member.key: member for member in members}
        index = integer_of(data, values.get("index"))
        edits += _with_index(data, members, values.get("index"), start)
        had_facts = kept = False
        reason = values.get("finish_reason")
        said = data[reason.value_start : reason.value_end] if reason is not None else b""
        if reason is not None and _says(said):
            edits.append((reason.value_start, reason.value_end, b"null"))
            self._note_finish(index, said, members, data, extras)
            had_facts = True
        delta = values.get("delta")
        if delta is not None and data[delta.value_start : delta.value_end].startswith(b"{"):
            repeated, content = self._delta(data, index, delta.value_start, edits)
            had_facts, kept = had_facts or repeated, content
        logprobs = values.get("logprobs")
        if (
            logprobs is not None
            and data[logprobs.value_start : logprobs.value_end] not in _EMPTY_VALUES
        ):
            kept = True
        return had_facts, kept

    def _delta(self, data: bytes, choice: int, start: int, edits: list[Edit]) -> tuple[bool, bool]:
        """One delta: whether its role was a repeat, and whether it holds anything but that."""
        members = members_of(data, start)
        names = [member.key for member in members]
        content = any(
            member.key != "role"
            and data[member.value_start : member.value_end] not in _EMPTY_VALUES
            for member in members
        )
        edits += self._named(data, members)
        role = members[names.index("role")] if "role" in names else None
        said = role is not None and _says(data[role.value_start : role.value_end])
        if choice not in self._roles:
            if said:
                self._roles.add(choice)
                return False, True
            if content:
                self._roles.add(choice)
                edits += _with_role(members, names, start)
            return False, content
        if said:
            begin, end = remove_member_span(members, names.index("role"), data)
            edits.append((begin, end, b""))
        return said, content

    def _note_finish(
        self, choice: int, raw: bytes, members: tuple[Member, ...], data: bytes, extras: bytes
    ) -> None:
        if choice in self._finishes:
            return
        reason = (tolerant_object(b'{"said":%b}' % raw) or {}).get("said", "")
        own = joined_members(data, members, _CHOICE_OWN)
        self._finishes[choice] = FinishFact(choice, finish_reason(paired(reason)), own, extras)

    def _finished_now(self, frame: Frame) -> bool:
        return any(isinstance(event, Finish) for event in frame.events)


def _says(raw: bytes) -> bool:
    """Whether a value is a string with something in it."""
    return raw.startswith(b'"') and raw != b'""'


def _with_index(
    data: bytes, members: tuple[Member, ...], index: Member | None, start: int
) -> list[Edit]:
    """The edits that make a choice without a number say its index: it is the first."""
    if index is None:
        return [(start + 1, start + 1, b'"index":0,' if members else b'"index":0')]
    raw = data[index.value_start : index.value_end]
    fine = raw.isdigit() or raw[1:].isdigit()
    return [] if fine else [(index.value_start, index.value_end, b"0")]


def _with_role(members: tuple[Member, ...], names: list[str], start: int) -> list[Edit]:
    """The edits that make a delta say its role."""
    if "role" in names:
        role = members[names.index("role")]
        return [(role.value_start, role.value_end, b'"assistant"')]
    return [(start + 1, start + 1, b'"role":"assistant",')]
