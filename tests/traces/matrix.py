"""What the captured suite has to hold: for each row of the fault catalogue the scenarios that show it, at either endpoint, under every framing and hold mode; or the reason why there can be none."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from gate.ingress_responses import RESPONSES_PATH
from gate.tunnel import CHAT
from tests.traces.scenario import HOLDS

ROWS: Final = range(1, 33)
FRAMINGS: Final = ("normalized", "tunnel")
CALLERS: Final = frozenset({29, 30, 31})  # rows that are no provider's doing


@dataclass(frozen=True, slots=True)
class Row:
    """Scenarios of one row, or why there are none. One that has no `responses` of its own has those of chat."""

    chat: tuple[str, ...] = ()
    responses: tuple[str, ...] = ()
    why_not: str = ""
    why_not_responses: str = ""

    def faults(self, endpoint: str) -> tuple[str, ...]:
        """By name; none where there is a reason."""
        if self.why_not or (endpoint == RESPONSES_PATH and self.why_not_responses):
            return ()
        return self.responses if endpoint == RESPONSES_PATH and self.responses else self.chat


@dataclass(frozen=True, slots=True)
class Cell:
    """One place of the matrix, and the name of its trace."""

    row: int
    fault: str
    endpoint: str
    framing: str
    hold: str

    @property
    def trace_id(self) -> str:
        """`fault[.tunnel].hold` in chat, `fault.responses[-tunnel].hold` at the other endpoint."""
        tunnel = self.framing == "tunnel"
        if self.endpoint == RESPONSES_PATH:
            return f"{self.fault}.responses-{'tunnel.' if tunnel else ''}{self.hold}"
        return f"{self.fault}.{'tunnel.' if tunnel else ''}{self.hold}"


MATRIX: Final[Mapping[int, Row]] = {
    1: Row(("cut-before-content", "cut-early", "cut-late", "reset-mid-stream")),
    2: Row(("split-utf-8",)),
    3: Row(("crlf", "cr")),
    4: Row(("odd-line-ends-in-text",)),
    5: Row(("no-space",)),
    6: Row(("comments",)),
    7: Row(("ping-events",)),
    8: Row(("comments-hide-a-stall",)),
    9: Row(("stall-before-content", "stall")),
    10: Row(("lingers-after-done",), ("lingers-after-the-end",)),
    11: Row(("more-after-done",), ("more-after-the-end",)),
    12: Row(("error-first", "error-late"), ("error-as-data", "error-late", "failed")),
    13: Row(("error-named",), ("error-first",)),
    14: Row(("json-for-a-stream", "json-error-for-a-stream")),
    15: Row(("no-finish",), ("no-terminal",)),
    16: Row(("no-finish-but-done",), why_not_responses="its last event is the answer's end and says how it ended, both"),
    17: Row(("usage-alone", "filter-results-first"), why_not_responses="its events have no choices that could be missing"),
    18: Row(("call-without-index",)),
    19: Row(("call-without-id",)),
    20: Row(("call-repeated", "call-accumulated", "call-prefixed")),
    21: Row(("role-again",), why_not_responses="the role stands in the item, and its pieces have none"),
    22: Row(("reasoning", "reasoning-renamed", "null-content", "reasoning-only"), ("reasoning", "reasoning-only")),
    23: Row(("long-line", "event-too-large")),
    24: Row(("event-without-end",)),
    # What is compressed is undone below the port that is recorded; what can't be undone is a fault there.
    25: Row(("bad-encoding",)),
    # Providers are spoken to in HTTP/1.1 only: frames of another version are no HTTP.
    26: Row(("no-http", "bad-http")),
    # The second try of a request that a reused connection lost is made below the port that is recorded; this is what is left of it.
    27: Row(("reset-before-head",)),
    28: Row(why_not="places in the pool are the transport's, and no input or decision of an exchange"),
    29: Row(("caller-leaves-waiting",)),
    # A half-close counts as leaving: what is recorded of either is the same.
    30: Row(("caller-leaves-waiting",)),
    31: Row(("caller-slow", "caller-takes-nothing")),
    32: Row(("drip",)),
}  # fmt: skip


def cells() -> Iterator[Cell]:
    """All that apply."""
    for number, row in MATRIX.items():
        for endpoint in (CHAT, RESPONSES_PATH):
            for fault in row.faults(endpoint):
                for framing in FRAMINGS:
                    for hold in HOLDS:
                        yield Cell(number, fault, endpoint, framing, hold)
