"""Which steps of mending an attempt's frames go through: those of chat, the same over a tunnel's decoded copy, or none."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from gate.events import Facts, Frame
from gate.mending import ChatMender
from gate.mending_format import FormatMender, Settled
from gate.mending_think import ThinkTags
from gate.mending_tunnel import Observer, TunnelMender

__all__ = ["Mender", "Menders", "settled"]

Mender: TypeAlias = ChatMender | TunnelMender


class Menders(msgspec.Struct, frozen=True):
    """The steps of one exchange, made anew for each attempt. `choices`: how many the caller asked for; `ceiling`: the completion tokens that it allows; `opaque`: nothing here reads its answer."""

    choices: int
    reasoning_field: str
    ceiling: int | None
    think_tags: bool
    format_mender: FormatMender | None
    opaque: bool

    def make(self, *, going_on: bool, before: str, tunnel: bool) -> Mender:
        """The steps of one attempt. `going_on`: with an answer that begins with the text `before`; `tunnel`: its bytes are relayed."""
        if self.opaque:
            return TunnelMender(Observer(), choices=0)
        tags = ThinkTags(self.reasoning_field, before=before) if self.think_tags else None
        mender = ChatMender(
            choices=self.choices,
            reasoning_field=self.reasoning_field,
            roles=frozenset({0}) if going_on else frozenset(),
            ceiling=self.ceiling,
            tags=tags,
        )
        if not tunnel:
            return mender
        copied = self.format_mender is not None
        return TunnelMender(mender, choices=self.choices, keeps_copy=copied)


def settled(mender: Mender, last: FormatMender, frames: list[Frame], facts: Facts) -> Settled:
    """What the last step makes of all frames of a complete attempt, which `mender` has let go."""
    if isinstance(mender, TunnelMender):
        return mender.settle(last, frames, facts)
    return last.settle(frames, facts)
