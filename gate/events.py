"""The vocabulary between the actors: events decoded from an attempt, the frames that carry them, and every channel's messages.

An *event* is one semantic item; a *frame* is the smallest thing that is released: one SSE event of the provider, its payload
bytes and its decoded events (one JSON body is one frame). All values are frozen.
"""

from __future__ import annotations

from enum import IntFlag
from typing import TypeAlias

import msgspec

from gate.envelope import PublicError
from gate.failure import Failure
from gate.observe import Told
from gate.plan import Cursor
from gate.repair import RepairNote

__all__ = [
    "AudioDelta",
    "Batch",
    "Complete",
    "End",
    "Ended",
    "Event",
    "Facts",
    "Finish",
    "FinishFact",
    "Frame",
    "Gone",
    "Head",
    "HowEnded",
    "Identity",
    "Intake",
    "Mend",
    "OutputItem",
    "Ping",
    "Place",
    "RawDelta",
    "Ready",
    "ReasoningDelta",
    "RefusalDelta",
    "Refused",
    "Release",
    "Resume",
    "RoleDelta",
    "Shape",
    "Slot",
    "Start",
    "Success",
    "Terminal",
    "TextDelta",
    "ToolDelta",
    "ToolEnd",
    "Tunnel",
    "UsageReport",
    "Violation",
    "Wire",
]


class TextDelta(msgspec.Struct, frozen=True, gc=False, tag=True):
    choice: int
    text: str


class ReasoningDelta(msgspec.Struct, frozen=True, gc=False, tag=True):
    choice: int
    text: str


class RefusalDelta(msgspec.Struct, frozen=True, gc=False, tag=True):
    choice: int
    text: str


class ToolDelta(msgspec.Struct, frozen=True, gc=False, tag=True):
    """A piece of a tool call. `index` is None where the provider gave none; the legacy `function_call` has index -1. `custom`: its arguments are free text."""

    choice: int
    index: int | None
    id: str | None
    name: str | None
    arguments: str | None
    custom: bool = False


class ToolEnd(msgspec.Struct, frozen=True, gc=False, tag=True):
    """A tool call is whole: no piece of it comes behind this. Mending knows, and says it behind the events of the call's last frame."""

    choice: int
    index: int


class AudioDelta(msgspec.Struct, frozen=True, gc=False, tag=True):
    """A piece of audio. `transcript`: what of it is said in words beside it."""

    choice: int
    transcript: str = ""


class RawDelta(msgspec.Struct, frozen=True, gc=False, tag=True):
    """A piece of an answer that is relayed and that nothing here can read: bytes of a picture, an event of another endpoint."""

    choice: int = 0


class OutputItem(msgspec.Struct, frozen=True, gc=False, tag=True):
    """A whole output item (Responses) that is an answer by itself: a picture, or a call of a kind that nobody here judges."""

    choice: int


class Slot(msgspec.Struct, frozen=True, gc=False, tag=True):
    """The `kind` of a Responses event (its `type`), and where its provider says that it belongs: `part` is its `content_index` or `summary_index`. None: it did not say. `progress`: it shows that the provider works."""

    kind: str
    index: int | None = None
    item: str | None = None
    part: int | None = None
    progress: bool = False


class Place(msgspec.Struct, frozen=True, gc=False, tag=True):
    """Where a Responses event stands: `item` counts the items of the exchange's logical response, `part` the parts within it; -1: it belongs to none. Mending puts it where the `Slot` was."""

    kind: str
    item: int = -1
    part: int = -1


class RoleDelta(msgspec.Struct, frozen=True, gc=False, tag=True):
    choice: int
    role: str


class Finish(msgspec.Struct, frozen=True, gc=False, tag=True):
    """`reason` is one of OpenAI's values, or an unknown one that passes unchanged; `said` is the provider's word."""

    choice: int
    reason: str
    said: str


class UsageReport(msgspec.Struct, frozen=True, gc=False, tag=True):
    """The bytes of a `usage` object."""

    usage: bytes


class Identity(msgspec.Struct, frozen=True, gc=False, tag=True):
    """The first non-empty `id` of an attempt, with the `created` beside it (0: none)."""

    id: str
    created: int


Event: TypeAlias = (
    TextDelta
    | ReasoningDelta
    | RefusalDelta
    | ToolDelta
    | ToolEnd
    | AudioDelta
    | RawDelta
    | OutputItem
    | Slot
    | Place
    | RoleDelta
    | Finish
    | UsageReport
    | Identity
)


class Mend(IntFlag):
    """Which mending steps a frame needs; the decoder notes it, so that an ordinary frame costs one comparison."""

    NOTHING = 0
    FACTS = 1  # a role, a finish reason or usage
    TEXT = 2  # half a surrogate pair in a text
    FIELDS = 4  # content as a list of parts
    BYTES = 8  # payload bytes that are not UTF-8, or not one line
    REASONING = 16  # reasoning under the name `reasoning`
    REASONING_CONTENT = 32  # reasoning under the name `reasoning_content`
    TOOLS = 64  # a piece of a tool call
    INDEX = 256  # a choice without an index that is a number
    CALLS = 128  # one that can't stay as it is: no type, arguments or an index of another kind, half a pair in the arguments


class Frame(msgspec.Struct, frozen=True, gc=False):
    """One releasable unit. `data` is the payload (one JSON object); `size` the raw bytes that it came in; `whole`: a JSON body.

    `raw`: what a tunnel relays for it, until the tunnel's step of mending makes that its `data`. `closing`: part of the provider's own ending, which leaves with the success terminal.
    """

    data: bytes
    events: tuple[Event, ...]
    size: int
    mend: int = 0
    whole: bool = False
    raw: bytes = b""
    closing: bool = False


# ---- what an attempt left behind ----------------------------------------------------------------


class FinishFact(msgspec.Struct, frozen=True):
    """One choice's end: OpenAI's reason, the other members of that choice and of the event that said it (JSON, `,"k":v...`)."""

    choice: int
    reason: str
    choice_members: bytes = b""
    event_members: bytes = b""


class Facts(msgspec.Struct, frozen=True):
    """Closing facts of a complete attempt: finishes in order of finishing, merged usage (a JSON object, or empty), roles said."""

    finishes: tuple[FinishFact, ...] = ()
    usage: bytes = b""
    usage_members: bytes = b""
    roles: frozenset[int] = frozenset()


class Complete(msgspec.Struct, frozen=True):
    """The attempt is complete. `implied`: finish reasons that its end implies where the provider gave none, by choice."""

    implied: tuple[Finish, ...] = ()


HowEnded: TypeAlias = Complete | Failure

# ---- channel messages -----------------------------------------------------------------------------
# intake: ingress -> exchange, once


class Ready(msgspec.Struct, frozen=True):
    """The body is in the snapshot and has been checked."""


class Refused(msgspec.Struct, frozen=True):
    """The request is answered with this error, without an attempt. `close`: its body was not read to the end."""

    error: PublicError
    close: bool = False


class Gone(msgspec.Struct, frozen=True):
    """The caller left before its body was whole."""


Intake: TypeAlias = Ready | Refused | Gone


# evidence: runner -> evaluator


class Tunnel(msgspec.Struct, frozen=True):
    """What a tunnel relays of a response's head. `marks`: an error behind the first byte is told; False: the body just ends."""

    status: int
    headers: tuple[tuple[bytes, bytes], ...]
    marks: bool = True


class Head(msgspec.Struct, frozen=True):
    """An attempt was admitted by `target` and answered with a 2xx. `continues`: it goes on with the answer of the one before. `tunnel`: its bytes are relayed; `over_chat`: it was asked for a chat completion in place of a response."""

    n: int
    target: int
    status: int
    continues: bool = False
    tunnel: Tunnel | None = None
    over_chat: bool = False


class Batch(msgspec.Struct, frozen=True, gc=False):
    """Everything that one socket read completed. `received_at` is on the exchange's clock, in seconds."""

    n: int
    frames: list[Frame]
    received_at: float


class End(msgspec.Struct, frozen=True):
    """The last item of attempt `n`. `target`: the one that took it (-1: none did)."""

    n: int
    how: HowEnded
    target: int


# reports: evaluator -> coordinator


class Resume(msgspec.Struct, frozen=True):
    """Where and with what an answer may go on. `text`: all of it before the cursor, raw; `held`: whether some of that nobody has seen yet.

    `produced`: the completion tokens that were spent on it, as reported or, where nothing was, one for each frame of text.
    """

    cursor: Cursor
    text: str
    held: bool
    produced: int

    def __repr__(self) -> str:
        return f"Resume({self.cursor}, {self.produced} tokens)"


class Violation(msgspec.Struct, frozen=True):
    """A gating filter, or a limit, condemned attempt `n`; its `Ended` still follows. `notes`, raw: what a repair would have to say."""

    n: int
    failure: Failure
    notes: tuple[RepairNote, ...] = ()


class Ended(msgspec.Struct, frozen=True):
    """Attempt `n` is over. `released` frames of the exchange have gone to the sink; `facts` where it is complete, `resume` where another may go on from it."""

    n: int
    how: HowEnded
    target: int
    released: int
    facts: Facts | None = None
    resume: Resume | None = None


# wire: evaluator, coordinator, exchange -> sink


class Shape(msgspec.Struct, frozen=True):
    """What the framing of a response depends on. `model`: the alias that the caller asked for; `endpoint`: the path that it asked at; `asked`: what of its request a response repeats, a JSON object or nothing.

    `hides_usage`: usage was asked for behind the caller's back.
    """

    model: str
    stream: bool
    include_usage: bool
    endpoint: str = "/v1/chat/completions"
    asked: bytes = b""
    hides_usage: bool = False


class Start(msgspec.Struct, frozen=True):
    """The response start of attempt `n`: staged at the sink, and written with the first release. `tunnel`: the provider's own, where its bytes are relayed."""

    n: int
    id: str
    created: int
    shape: Shape
    tunnel: Tunnel | None = None
    told: Told | None = None


class Release(msgspec.Struct, frozen=True, gc=False):
    """Frames that have passed, in order; what is `told` goes before them."""

    n: int
    frames: list[Frame]
    told: Told | None = None


class Success(msgspec.Struct, frozen=True):
    """The success terminal."""

    facts: Facts
    attempts: int
    told: Told | None = None


class Terminal(msgspec.Struct, frozen=True):
    """An error terminal. `close`: the connection can't serve another request.

    `streamed`: it is told in an event stream of status 200 even where nothing has begun, as an older contract had it. `start`: of a response that consists of this error, where its framing needs one.
    """

    error: PublicError
    attempts: int
    close: bool = False
    told: Told | None = None
    streamed: bool = False
    start: Start | None = None


class Ping(msgspec.Struct, frozen=True):
    """The stream was silent for long; a comment may go out, if it has begun, or, where it `commits`, after `attempts` so far, even if not."""

    commits: bool = False
    attempts: int = 0
    told: Told | None = None


Wire: TypeAlias = Start | Release | Ping | Success | Terminal
