"""What the proof of the guardrail is made of: texts that patterns match, channels that they stand in, pieces that they come in, and framings in which a caller reads.

A framing has a wire, what its provider says (`tests.e2e.guarded_responses` has that of the Responses API), and a path. A new one is a row in `FRAMINGS`.
"""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from gate.endpoints import endpoint_of
from tests.e2e import guarded_responses
from tests.e2e.guarded_wire import written
from tests.gate.filters.secrets import SECRETS
from tests.pipeline import Passed, relay, run

CONSTANTS: Final = frozenset(
    {"c1", "chatcmpl-1", "ex-1", "alias", "small", "m", "assistant", "function", "custom", "f"}
    | {
        "stop",
        "length",
        "tool_calls",
        "chat.completion.chunk",
        "chat.completion",
        "text_completion",
    }
    | guarded_responses.CONSTANTS
)
"""Every string of an answer that is not said in a channel."""

# --- what must not be seen -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Match:
    """A text with a match of `pattern` in it (empty: of the set of secrets), alone or between other words. `anchored`: it depends on the ends of its channel."""

    pattern: str
    said: str
    lead: str = "Well, this is it: "
    tail: str = " and no more."
    anchored: bool = False

    @property
    def text(self) -> str:
        return self.lead + self.said + self.tail


ADVERSARIAL: Final = (
    Match("(?:alpha|alpine|al)beta", "alpinebeta"),
    Match("ab(?:c|d(?:e|f)){2,}g", "abdfcdeg"),
    Match("[^b-y]{2}[[:digit:]]{3,5}z", "az1234z"),
    Match(r"\bkey\b", "key"),
    Match(r"x\b-\by\B", "x-yz"),
    Match("(?i)kelvin|secret", "\u212aElViN"),
    Match("(?i)straße|maß(?-i:NAHME)", "MaßNAHME"),
    Match("é{2,}→(?:😀|👍🏽)+!", "ééé→😀👍🏽!"),
    Match(r"\p{Greek}{3}\p{Lu}", "αβγÄ"),
    Match("<a.*?z>", "<a b z>"),
    Match("<a.*z>", "<a z> b z>"),
    Match("(?s)BEGIN.*?END", "BEGIN\n\n\n...END"),
    Match("(?:ab?c?){3,}d", "acabacabcd"),
    Match('(?:"[a-z]*": ?){2}', '"a": "b":'),
    Match(r"\\u0041|\x5c\x5c", "\\u0041"),
    Match("[0-9]{13,16}|[0-9]{4}(?:-[0-9]{4}){3}", "4000-1234-5678-9010"),
    Match("a{0,3}b{1,2}c*d", "aabbcccd"),
    Match("^never", "never", lead="", anchored=True),
    Match("^(?s:.){4}no", "\n...no", lead="", anchored=True),
    Match("last words$", "last words", tail="", anchored=True),
    Match(r"^only\s*this$", "only \t this", lead="", tail="", anchored=True),
    Match("(?:^|,)a(?:,|$)", ",a", lead="b", tail="", anchored=True),
)
MATCHES: Final = (*(Match("", secret) for secret in SECRETS), *ADVERSARIAL)

# --- where it is said ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Channel:
    """`delta` makes the next piece; `around` stands before and behind everything that is said, and `free`: it is any text at all. `left_out`: mending takes it out, where it mends."""

    name: str
    delta: Callable[[str, bool], dict[str, Any]]
    around: tuple[str, str] = ("", "")
    free: bool = True
    finish: str = "stop"
    left_out: bool = False
    pieces: bool = True


def _field(name: str) -> Callable[[str, bool], dict[str, Any]]:
    return lambda text, first: {name: text}


def _call(kind: str, member: str) -> Callable[[str, bool], dict[str, Any]]:
    def delta(text: str, first: bool) -> dict[str, Any]:
        head = {"id": "c1", "type": kind} if first else {}
        inner = {"name": "f", member: text} if first else {member: text}
        return {"tool_calls": [{"index": 0, **head, kind: inner}]}

    return delta


def _legacy(text: str, first: bool) -> dict[str, Any]:
    return {"function_call": {**({"name": "f"} if first else {}), "arguments": text}}


def _spoken(text: str, first: bool) -> dict[str, Any]:
    return {"audio": {**({"id": "c1"} if first else {}), "transcript": text}}


ARGUMENTS: Final = ('{"path":"', '"}')
CHANNELS: Final = (
    Channel("text", _field("content")),
    Channel("reasoning", _field("reasoning_content")),
    Channel("reasoning-renamed", _field("reasoning")),
    Channel("refusal", _field("refusal")),
    Channel("transcript", _spoken),
    Channel("arguments", _call("function", "arguments"), ARGUMENTS, free=False),
    Channel("input", _call("custom", "input")),
    Channel("legacy", _legacy, ARGUMENTS, free=False),
    Channel("cut", _call("function", "arguments"), ('{"path":"', ""), free=False, finish="length", left_out=True),
)  # fmt: skip

# --- in which pieces -------------------------------------------------------------------------------

Split = Sequence[str]


def splits(text: str, *, full: bool) -> Iterator[Split]:
    """In two at every place, by the character, and in three at places drawn; of these few where not `full`."""
    places = range(1, len(text))
    yield [text]
    yield list(text)
    draw = random.Random(text)  # noqa: S311 - cuts, not secrets
    every = places if full else sorted(draw.sample(places, min(12, len(places))))
    for at in every:
        yield [text[:at], text[at:]]
    pairs = list(itertools.combinations(places, 2))
    for first, second in draw.sample(pairs, min(40 if full else 4, len(pairs))):
        yield [text[:first], text[first:second], text[second:]]


def halves(text: str) -> Iterator[Split]:
    """By the half character: what is written as a pair of escapes comes as two."""
    units = text.encode("utf-16-le")
    yield [units[at : at + 2].decode("utf-16-le", "surrogatepass") for at in range(0, len(units), 2)]  # fmt: skip


def events(
    channel: Channel, pieces: Split, *, escaped: bool, choice: int = 0, choices: int = 1
) -> list[bytes]:
    """The events of an answer that says these pieces; `escaped`: every character of theirs as an escape."""
    deltas = [channel.delta(piece, not number) for number, piece in enumerate(pieces)]
    said = [_event(choice, delta, None, escaped=escaped) for delta in deltas]
    ends = [_event(each, {}, channel.finish, escaped=False) for each in range(choices)]
    return [*said, *ends, b"data: [DONE]\n\n"]


def body(channel: Channel, pieces: Split) -> bytes:
    """The same as one JSON answer."""
    message = {"role": "assistant", "content": None, **channel.delta("".join(pieces), True)}
    choice = {"index": 0, "message": message, "finish_reason": channel.finish}
    value = {"id": "c1", "object": "chat.completion", "created": 7, "model": "m"}
    return json.dumps({**value, "choices": [choice]}).encode()


def _event(choice: int, delta: dict[str, Any], finish: str | None, *, escaped: bool) -> bytes:
    value = {"id": "c1", "object": "chat.completion.chunk", "created": 7, "model": "m"}
    part = {"index": choice, "delta": delta, "finish_reason": finish}
    return b"data: %b\n\n" % written({**value, "choices": [part]}, escaped=escaped)


def completion_events(channel: Channel, pieces: Split, *, escaped: bool) -> list[bytes]:
    """The events of a legacy completion that says these pieces."""
    ends = [("", channel.finish)]
    said = [_completion(text, None, escaped=escaped) for text in pieces]
    return [
        *said,
        *(_completion(text, end, escaped=False) for text, end in ends),
        b"data: [DONE]\n\n",
    ]


def completion_body(channel: Channel, pieces: Split) -> bytes:
    """The same as one JSON answer."""
    choice = {"index": 0, "text": "".join(pieces), "finish_reason": channel.finish}
    return json.dumps({"id": "c1", "object": "text_completion", "created": 7, "model": "m", "choices": [choice]}).encode()  # fmt: skip


def _completion(text: str, finish: str | None, *, escaped: bool) -> bytes:
    value = {"id": "c1", "object": "text_completion", "created": 7, "model": "m"}
    value |= {"choices": [{"index": 0, "text": text, "finish_reason": finish}]}
    return b"data: %b\n\n" % written(value, escaped=escaped)


# --- what a caller sees ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Wire:
    """What a provider of one endpoint says: the events of an answer in a channel, and the same as one body. `asked`: what a request says beside its model."""

    path: str
    channels: Sequence[Any]
    events: Callable[..., list[bytes]]
    body: Callable[[Any, Split], bytes]
    asked: Mapping[str, Any]


CHAT: Final = Wire("/v1/chat/completions", CHANNELS, events, body, {"messages": [{"role": "user", "content": "Hi"}]})  # fmt: skip
COMPLETIONS: Final = Wire("/v1/completions", CHANNELS[:1], completion_events, completion_body, {"prompt": "Hi"})  # fmt: skip
RESPONSES: Final = Wire("/v1/responses", guarded_responses.CHANNELS, guarded_responses.events, guarded_responses.body, {"input": "Hi"})  # fmt: skip


@dataclass(frozen=True, slots=True)
class Framing:
    """How a caller asks, and over which path it is answered."""

    name: str
    wire: Wire
    stream: bool
    tunnel: bool = False

    def play(self, pieces: Sequence[bytes], *, whole: bool = False, **options: Any) -> Passed:
        """A provider's answer, read by read, to what the caller gets of it; `whole`: it is one JSON body. What a tunnel can't relay, since it is in the other form, is framed by us."""
        if self.relays(whole=whole):
            kind = b"application/json" if whole else b"text/event-stream"
            return relay(pieces, endpoint=self.wire.path, content_type=kind, stream=self.stream, **options)  # fmt: skip
        endpoint = endpoint_of(self.wire.path)
        return run(pieces, stream=self.stream, body=whole, endpoint=endpoint, **options)

    def relays(self, *, whole: bool) -> bool:
        """A tunnel, and an answer in the form that was asked for."""
        return self.tunnel and whole != self.stream

    def reads(self, *, whole: bool) -> bool:
        """Whether such an answer is one: nothing here says a completion in the other form."""
        return self.wire is not COMPLETIONS or self.relays(whole=whole)

    def certain(self, channel: Any, *, whole: bool) -> bool:
        """Whether a match in this channel has to end the attempt: mending doesn't take it out."""
        return self.relays(whole=whole) or not channel.left_out


FRAMINGS: Final = (
    Framing("chat_sse", CHAT, True),
    Framing("chat_json", CHAT, False),
    Framing("responses_sse", RESPONSES, True),
    Framing("responses_json", RESPONSES, False),
    Framing("chat_tunnel_sse", CHAT, True, True),
    Framing("chat_tunnel_body", CHAT, False, True),
    Framing("responses_tunnel_sse", RESPONSES, True, True),
    Framing("responses_tunnel_body", RESPONSES, False, True),
    Framing("completions_tunnel_sse", COMPLETIONS, True, True),
    Framing("completions_tunnel_body", COMPLETIONS, False, True),
)


def values_of(data: bytes) -> list[Any]:
    """Every JSON value that a caller gets, in order: those of an event stream, or one."""
    if data.startswith(b"{"):
        return [json.loads(data)]
    lines = [line.removeprefix(b"data: ") for line in data.split(b"\n") if line.startswith(b"data: ")]  # fmt: skip
    return [json.loads(each) for each in lines if each != b"[DONE]"]


def seen(values: Sequence[Any]) -> list[str]:
    """Every text in what a caller got, pieces of the same member of the same kind of event joined; without constants and errors, whose sentences are ours."""
    joined: dict[str, str] = {}
    for value in values:
        for path, text in _leaves(value, str(value.get("type", ""))):
            if text not in CONSTANTS and "/error" not in path:
                joined[path] = joined.get(path, "") + text
    return list(joined.values())


def _leaves(value: Any, path: str) -> Iterator[tuple[str, str]]:
    match value:
        case dict():
            for name, item in value.items():
                yield from _leaves(item, f"{path}/{name}")
        case list():
            for place, item in enumerate(value):
                yield from _leaves(item, f"{path}/{place}")
        case str():
            yield path, value
        case _:
            return
