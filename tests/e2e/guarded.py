"""What the proof of the guardrail is made of: texts that patterns match, channels that they stand in, pieces that they come in, and framings in which a caller reads."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tests.gate.filters.secrets import SECRETS

CONSTANTS: Final = frozenset(
    {"c1", "chatcmpl-1", "ex-1", "alias", "small", "m", "assistant", "function", "custom", "f"}
    | {"stop", "tool_calls", "chat.completion.chunk", "chat.completion"}
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
    """`delta` makes the next piece; `around` stands before and behind everything that is said, and `free`: it is any text at all."""

    name: str
    delta: Callable[[str, bool], dict[str, Any]]
    around: tuple[str, str] = ("", "")
    free: bool = True
    finish: str = "stop"


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


ARGUMENTS: Final = ('{"path":"', '"}')
CHANNELS: Final = (
    Channel("text", _field("content")),
    Channel("reasoning", _field("reasoning_content")),
    Channel("reasoning-renamed", _field("reasoning")),
    Channel("refusal", _field("refusal")),
    Channel("arguments", _call("function", "arguments"), ARGUMENTS, free=False),
    Channel("input", _call("custom", "input")),
    Channel("legacy", _legacy, ARGUMENTS, free=False),
)

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
    data = json.dumps({**value, "choices": [part]}, ensure_ascii=False)
    return b"data: %b\n\n" % (_escaped(data) if escaped else data.encode(errors="surrogatepass"))


def _escaped(data: str) -> bytes:
    """Every character of every string that is no name of a member and no constant, written as an escape."""
    value = json.loads(data)
    return _written(value).encode()


def _written(value: Any) -> str:
    match value:
        case dict():
            members = (f"{json.dumps(name)}:{_written(item)}" for name, item in value.items())
            return "{" + ",".join(members) + "}"
        case list():
            return "[" + ",".join(map(_written, value)) + "]"
        case str() if value not in CONSTANTS:
            units = value.encode("utf-16-be", "surrogatepass")
            return '"' + "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2)) + '"'  # fmt: skip
        case _:
            return json.dumps(value)


# --- what a caller sees ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Framing:
    """How a caller asks, and `read`: every JSON value that it gets, in order."""

    name: str
    stream: bool
    read: Callable[[bytes], list[Any]]


def _events_read(data: bytes) -> list[Any]:
    payloads = [line.removeprefix(b"data: ") for line in data.split(b"\n\n") if line.startswith(b"data: ")]  # fmt: skip
    return [json.loads(each) for each in payloads if each != b"[DONE]"]


FRAMINGS: Final = (
    Framing("chat_sse", True, _events_read),
    Framing("chat_json", False, lambda data: [json.loads(data)] if data else []),
)


def seen(values: Sequence[Any]) -> list[str]:
    """Every text in what a caller got, pieces of the same member joined; without constants and errors, whose sentences are ours."""
    joined: dict[str, str] = {}
    for value in values:
        for path, text in _leaves(value, ""):
            if text not in CONSTANTS and not path.startswith("/error"):
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
