"""Which steps of mending an attempt's frames go through: those of its endpoint, the same over a tunnel's decoded copy, or none."""

from __future__ import annotations

import msgspec

from gate.endpoints import CHAT, OVER_CHAT, Endpoint, Mender
from gate.events import Facts, Frame
from gate.mending_format import FormatMender, Settled
from gate.mending_think import ThinkTags
from gate.mending_tunnel import Observer, TunnelMender

__all__ = ["Menders", "settled"]


class Menders(msgspec.Struct, frozen=True):
    """The steps of one exchange, made anew for each attempt. `choices`: how many the caller asked for; `ceiling`: the completion tokens that it allows; `opaque`: nothing here reads its answer; `endpoint`: whose steps they are."""

    choices: int
    reasoning_field: str
    ceiling: int | None
    think_tags: bool
    format_mender: FormatMender | None
    opaque: bool
    endpoint: Endpoint = CHAT

    def make(
        self, *, last: Mender | None, before: str, tunnel: bool, over_chat: bool = False
    ) -> Mender:
        """The steps of one attempt. `last`: those of the attempt that it goes on from, whose text is `before`; `tunnel`: its bytes are relayed; `over_chat`: its provider only has chat completions."""
        if self.opaque:
            return TunnelMender(Observer(), choices=0)
        tags = ThinkTags(self.reasoning_field, before=before) if self.think_tags else None
        endpoint = OVER_CHAT if over_chat else self.endpoint
        mender = endpoint.mender(
            self.choices, self.reasoning_field, self.ceiling, tags=tags, before=last
        )
        if not tunnel:
            return mender
        copied = self.format_mender is not None
        unmended = self.endpoint.unmended()
        return TunnelMender(mender, choices=self.choices, keeps_copy=copied, unmended=unmended)


def settled(mender: Mender, last: FormatMender, frames: list[Frame], facts: Facts) -> Settled:
    """What the last step makes of all frames of a complete attempt, which `mender` has let go."""
    if isinstance(mender, TunnelMender):
        return mender.settle(last, frames, facts)
    return last.settle(frames, facts)
