"""The fault catalogue as a provider of the Responses API shows it: one attempt's answer for each row, as a stream and as one object."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

from gate.errors import UpstreamFault
from tests import responding as api
from tests.doubles import COMMENT, Answer, Read, body, fails, says, stalls
from tests.traces.faults import IN_TEXT, LATE, NUMBERS, PACE, WORDS

PLACE: Final[Mapping[str, Any]] = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
PART: Final[Mapping[str, Any]] = {"type": "output_text", "text": "", "annotations": []}
SAID: Final = tuple(map(api.text, WORDS))
WHOLE_TEXT: Final = "".join(WORDS)
BEGUN: Final = (
    api.created(),
    api.added(api.message()) + api.event("content_part.added", **PLACE, part=PART),
)


def _ended(text: str, **members: Any) -> tuple[bytes, ...]:
    return (
        api.event("output_text.done", **PLACE, text=text),
        api.event("content_part.done", **PLACE, part={**PART, "text": text}),
        api.done(api.message(text)),
        api.completed(api.message(text), **members),
    )


def _stream(*pieces: bytes) -> Answer:
    return says(*pieces, every=PACE)


def spoken(*words: str, **members: Any) -> Answer:
    """A whole stream of one message that says this."""
    return _stream(*BEGUN, *map(api.text, words), *_ended("".join(words), **members))


def _cut(count: int, fault: UpstreamFault = UpstreamFault.CUT) -> Answer:
    return says(*BEGUN, *SAID[:count], every=PACE, then=[Read(fault=fault)])


def _calls(*pieces: str, name: str = "gauge", status: str = "completed") -> Answer:
    whole = api.call("".join(pieces), name=name)
    events = (api.added({**whole, "arguments": ""}), *map(api.arguments, pieces), api.done(whole))
    return _stream(api.created(), *events, api.completed(whole, status=status))


def _split(data: bytes, size: int) -> Answer:
    return _stream(*(data[at : at + size] for at in range(0, len(data), size)))


def _without(data: bytes, *members: str) -> bytes:
    """The same events, without these members."""
    events = [each for each in data.split(b"\n\n") if each]
    return b"".join(map(partial(_less, members), events))


def _less(members: Sequence[str], event: bytes) -> bytes:
    head, _, payload = event.partition(b"data: ")
    kept = {name: item for name, item in json.loads(payload).items() if name not in members}
    return head + b"data: " + json.dumps(kept).encode() + b"\n\n"


GOOD: Final = b"".join((*BEGUN, *SAID, *_ended(WHOLE_TEXT)))
FLAGS: Final = "Grüße — 水門 🚢 am Tor"
FAILED: Final = api.event("failed", response=api.response("failed", error={"code": "server_error", "message": "secret detail"}))  # fmt: skip
REFUSED: Final = api.event("refusal.delta", **PLACE, delta="I will not answer that.")
THOUGHT: Final = (
    api.added(api.thought()),
    api.event("reasoning_text.delta", item_id="rs_1", output_index=0, content_index=0, delta="First the level."),
    api.done(api.thought("First the level.")),
)  # fmt: skip


def _two(first: Mapping[str, Any], second: Mapping[str, Any]) -> Answer:
    """Two calls, one behind the other."""
    pieces = [
        piece
        for place, whole in enumerate((first, second))
        for piece in (api.added({**whole, "arguments": ""}, place), api.arguments(whole["arguments"], index=place, item=whole["id"]), api.done(whole, place))
    ]  # fmt: skip
    return _stream(api.created(), *pieces, api.completed(first, second))


def _less_call(*members: str) -> Answer:
    """A call whose item lacks these members, from its beginning to the end."""
    whole = {name: item for name, item in api.call('{"level": 4}', name="gauge").items() if name not in members}  # fmt: skip
    events = (api.added({**whole, "arguments": ""}), api.arguments('{"level": 4}'), api.done(whole))
    return _stream(api.created(), *events, api.completed(whole))


CALLED: Final = api.call('{"level": 4}', name="gauge")
SPOKEN: Final = (
    api.added({**CALLED, "arguments": ""}, 1),
    api.arguments('{"level": 4}', index=1),
    api.done(CALLED, 1),
)

STREAM: Final[Mapping[str, Answer]] = {
    "healthy": spoken(*WORDS),
    "no-connection": fails(UpstreamFault.CONNECT, after=0.1),
    "reset-before-head": fails(UpstreamFault.RESET),
    "no-http": fails(UpstreamFault.PROTOCOL),
    "no-head": Answer(head_after=LATE),
    "cut-before-content": _cut(0),
    "cut-early": _cut(2),
    "cut-late": _cut(6),
    "reset-mid-stream": _cut(3, UpstreamFault.RESET),
    "bad-http": _cut(3, UpstreamFault.PROTOCOL),
    "bad-encoding": _cut(1, UpstreamFault.ENCODING),
    "split-utf-8": _split(b"".join((*BEGUN, api.text(FLAGS), *_ended(FLAGS))), 7),
    "one-read": _stream(GOOD),
    "crlf": _split(GOOD.replace(b"\n", b"\r\n"), 61),
    "cr": _split(GOOD.replace(b"\n", b"\r"), 97),
    "no-space": _stream(GOOD.replace(b"data: ", b"data:")),
    "unnamed-events": _stream(*(each.partition(b"\n")[2] for each in (api.created(), *SAID)), *_ended(WHOLE_TEXT)),
    "unnumbered": _stream(_without(GOOD, "output_index", "content_index", "item_id")),
    "comments": _stream(COMMENT, *BEGUN, COMMENT, *SAID, COMMENT, *_ended(WHOLE_TEXT)),
    "comments-hide-a-stall": says(*BEGUN, *SAID[:2], *(COMMENT for _ in range(12)), every=0.4),
    "ping-events": _stream(*BEGUN, b"event: ping\n\n\n\n", *SAID[:3], b"data:\n\n", b"event: ping\ndata:\n\n", *SAID[3:], *_ended(WHOLE_TEXT)),
    "odd-line-ends-in-text": spoken("a\u2028b\u0085c\x0cd", *WORDS),
    "stall-before-content": stalls(*BEGUN),
    "stall": stalls(*BEGUN, *SAID[:3]),
    "more-after-the-end": _stream(*BEGUN, *SAID, b"".join((*_ended(WHOLE_TEXT), api.text("late"))), api.text("later")),
    "lingers-after-the-end": says(*BEGUN, *SAID, *_ended(WHOLE_TEXT), every=PACE, then=[Read(after=60.0)]),
    "error-first": _stream(api.event("error", code="server_error", message="secret detail")),
    "error-late": _stream(*BEGUN, *SAID[:4], api.event("error", code="server_error", message="secret detail")),
    "error-as-data": _stream(*BEGUN, *SAID[:4], b'data: {"error":{"message":"secret detail","code":"server_error"}}\n\n'),
    "failed": _stream(*BEGUN, *SAID[:4], FAILED),
    "failed-named-completed": _stream(*BEGUN, *SAID[:4], FAILED.replace(b"response.failed", b"response.completed")),
    "incomplete": _stream(*BEGUN, *SAID[:4], *_ended("".join(WORDS[:4]), status="incomplete", incomplete_details={"reason": "max_output_tokens"})),
    "filtered": _stream(*BEGUN, *SAID[:2], *_ended("".join(WORDS[:2]), status="incomplete", incomplete_details={"reason": "content_filter"})),
    "json-for-a-stream": body(json.dumps(api.response("completed", api.message(WHOLE_TEXT))).encode()),
    "json-error-for-a-stream": body(b'{"error":{"message":"secret detail","code":"server_error"}}'),
    "no-terminal": _stream(*BEGUN, *SAID),
    "terminal-alone": _stream(api.created(), api.completed(api.message(WHOLE_TEXT))),
    "terminal-without-items": _stream(*BEGUN, *SAID, api.completed()),
    "unknown-event": _stream(*BEGUN, *SAID[:2], api.event("ripple", depth=2), *SAID[2:], *_ended(WHOLE_TEXT)),
    "call": _calls('{"level"', ": 4}"),
    "call-cut": says(api.created(), api.added(api.call()), api.arguments('{"lev'), every=PACE, then=[Read(fault=UpstreamFault.CUT)]),
    "call-broken": _calls('{"level": '),
    "call-off-schema": _calls('{"level": "high"}'),
    "call-beside-words": _stream(*BEGUN, api.text("Let me see."), api.done(api.message("Let me see.")), *SPOKEN, api.completed(api.message("Let me see."), CALLED)),
    "call-unknown": _calls("{}", name="sluice"),
    "call-without-index": _stream(_without(b"".join((api.created(), api.added({**CALLED, "arguments": ""}), api.arguments('{"level": 4}'), api.done(CALLED))), "output_index"), api.completed(CALLED)),
    "call-without-id": _less_call("call_id"),
    "call-repeated": _calls('{"level": 4}', '{"level": 4}'),
    "call-accumulated": _calls('{"level"', '{"level": 4}'),
    "call-prefixed": _calls("{}", '{"level": 4}'),
    "call-with-list": _calls("[4]"),
    "call-nameless": _less_call("name"),
    "call-not-asked": _calls('{"level": 4}'),
    "call-missing": spoken(*WORDS),
    "call-other": _calls("{}", name="valve"),
    "call-in-text": spoken("\n", IN_TEXT),
    "calls-parallel": _two(CALLED, api.call('{"level": 5}', name="gauge", call_id="call_2", item="fc_2")),
    "reasoning": _stream(api.created(), *THOUGHT, api.added(api.message(name="msg_2"), 1), api.text("The gate.", index=1, item="msg_2"), api.done(api.message("The gate.", name="msg_2"), 1), api.completed(api.thought("First the level."), api.message("The gate.", name="msg_2"))),
    "reasoning-only": _stream(api.created(), *THOUGHT, api.completed(api.thought("First the level."))),
    "long-line": _stream(*BEGUN, api.text(NUMBERS), api.done(api.message(NUMBERS)), api.completed(api.message(NUMBERS))),
    "event-too-large": _stream(*BEGUN, SAID[0], api.text("x" * 9_000)),
    "event-without-end": _stream(*BEGUN, SAID[0], *(b"data: " + b"x" * 3_000 for _ in range(4))),
    "malformed-event": _stream(*BEGUN, *SAID[:3], b'data: {"type": "resp\n\n', *SAID[3:], *_ended(WHOLE_TEXT)),
    "drip": says(*BEGUN, *SAID, *_ended(WHOLE_TEXT), every=0.9),
    "empty-answer": _stream(*BEGUN, *_ended("")),
    "no-body": _stream(),
    "refusal": _stream(*BEGUN, REFUSED, api.completed(api.message("", content=[{"type": "refusal", "refusal": "I will not answer that."}]))),
    "refusal-in-text": spoken("I'm sorry, but I can't help with that."),
    "loop": spoken(*["and the gate is shut, "] * 60),
    "mojibake": spoken("a\ufffdb\ufffd\ufffdc\ufffd", "\ufffd" * 12),
    "denied-words": spoken(*WORDS[:3], " the password is", " swordfish"),
    "fenced": spoken("```json\n", '{"level": 4}', "\n```"),
    "not-json": spoken(*WORDS),
    "off-schema": spoken('{"level": "high"}'),
    "think-tags": spoken("<think>First the", " level.</think>", *WORDS),
}  # fmt: skip


def _object(text: str, status: str = "completed", **members: Any) -> Answer:
    return body(json.dumps(api.response(status, api.message(text), **members)).encode())


WHOLE: Final[Mapping[str, Answer]] = {
    "healthy": _object(WHOLE_TEXT),
    "no-connection": fails(UpstreamFault.CONNECT, after=0.1),
    "no-head": Answer(head_after=8.0),
    "short": body(json.dumps(api.response("completed", api.message(WHOLE_TEXT))).encode()[:-20]),
    "error-in-200": body(b'{"error":{"message":"secret detail","code":"server_error"}}'),
    "html": body(b"<!doctype html><p>restarting</p>", headers=((b"content-type", b"text/html"),)),
    "stream-for-json": spoken(*WORDS),
    "empty-answer": _object(""),
    "failed": body(json.dumps(api.response("failed", error={"code": "server_error", "message": "secret detail"})).encode()),
    "incomplete": _object("The keeper", "incomplete", incomplete_details={"reason": "max_output_tokens"}),
    "in-progress": _object("The keeper", "in_progress"),
    "call-off-schema": body(json.dumps(api.response("completed", api.call('{"level": "high"}', name="gauge"))).encode()),
    "not-json": _object("The keeper opens."),
    "off-schema": _object('{"level": "high"}'),
    "fenced": _object('```json\n{"level": 4}\n```'),
    "denied-words": _object("the password is swordfish"),
    "loop": _object("and the gate is shut, " * 60),
}  # fmt: skip


def second(fault: str, *, stream: bool) -> Answer:
    """What the other provider says: an answer that fits the request."""
    if fault.startswith("call") and fault != "call-not-asked":
        call = body(json.dumps(api.response("completed", api.call('{"level": 4}', name="gauge"))).encode())  # fmt: skip
        return STREAM["call"] if stream else call
    words: Sequence[str] = ('{"level":', " 4}") if fault in {"not-json", "off-schema", "fenced"} else WORDS  # fmt: skip
    return spoken(*words) if stream else _object("".join(words))
