"""What providers do wrong, as scripts: one attempt's answer for each row of the fault catalogue, in the forms that a stream and a JSON answer can have."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from gate.errors import UpstreamFault
from tests.doubles import (
    COMMENT,
    DONE,
    ERROR_EVENT,
    JSON,
    ROLE,
    STOP,
    Answer,
    Read,
    body,
    delta,
    event,
    fails,
    healthy,
    refuses,
    says,
    stalls,
    text,
    thought,
    whole,
)

WORDS: Final = ("The keeper", " opens the", " lower gate", " at first", " light, and", " notes the", " level.")  # fmt: skip
SAID: Final = tuple(map(text, WORDS))
PACE: Final = 0.05
LATE: Final = 3.0  # longer than the clocks of the suite allow


def _call(index: int | None, arguments: str | None, **members: Any) -> bytes:
    piece: dict[str, Any] = {"function": {"arguments": arguments}, **members}
    if index is not None:
        piece["index"] = index
    return delta({"tool_calls": [piece]})


def _begun(index: int | None = 0, *, name: str = "gauge", identity: str | None = "call_1") -> bytes:
    function = {"name": name, "arguments": ""}
    piece: dict[str, Any] = {"type": "function", "function": function}
    if identity is not None:
        piece["id"] = identity
    if index is not None:
        piece["index"] = index
    return delta({"tool_calls": [piece]})


CALLED: Final = delta({}, finish="tool_calls")


def _calls(*pieces: bytes) -> Answer:
    return says(ROLE, *pieces, CALLED, DONE, every=PACE)


def _stream(*pieces: bytes) -> Answer:
    return says(*pieces, every=PACE)


def _cut(count: int, fault: UpstreamFault = UpstreamFault.CUT) -> Answer:
    return says(ROLE, *SAID[:count], every=PACE, then=[Read(fault=fault)])


def _split(data: bytes, size: int) -> Answer:
    return _stream(*(data[at : at + size] for at in range(0, len(data), size)))


NUMBERS: Final = " ".join(
    map(str, range(1_500))
)  # a long line that repeats nothing, within the suite's limit
IN_TEXT: Final = '<tool_call>\n{"name": "gauge", "arguments": {"level": 4}}\n</tool_call>'
GOOD: Final = b"".join((ROLE, *SAID, STOP, DONE))
FLAGS: Final = b"".join((ROLE, text("Grüße — 水門 🚢"), text(" am Tor"), STOP, DONE))

# What a stream may do.
STREAM: Final[Mapping[str, Answer]] = {
    "healthy": healthy(*WORDS, every=PACE),
    "no-connection": fails(UpstreamFault.CONNECT, after=0.1),
    "reset-before-head": fails(UpstreamFault.RESET),
    "no-http": fails(UpstreamFault.PROTOCOL),
    "no-head": Answer(head_after=LATE),
    "slow-connect": Answer(connect_after=LATE),
    "cut-before-content": _cut(0),
    "cut-early": _cut(2),
    "cut-late": _cut(6),
    "reset-mid-stream": _cut(3, UpstreamFault.RESET),
    "bad-http": _cut(3, UpstreamFault.PROTOCOL),
    "bad-encoding": _cut(1, UpstreamFault.ENCODING),
    "split-utf-8": _split(FLAGS, 7),
    "one-byte-reads": _split(b"".join((ROLE, *SAID[:2], STOP, DONE)), 19),
    "one-read": _stream(GOOD),
    "crlf": _split(GOOD.replace(b"\n", b"\r\n"), 61),
    "cr": _split(GOOD.replace(b"\n", b"\r"), 97),
    "odd-line-ends-in-text": _stream(ROLE, text("a\u2028b\u0085c\x0cd"), *SAID, STOP, DONE),
    "no-space": _stream(*(each.replace(b"data: ", b"data:", 1) for each in (ROLE, *SAID, STOP, DONE))),
    "comments": _stream(COMMENT, ROLE, COMMENT, *SAID[:3], COMMENT, *SAID[3:], STOP, DONE),
    "comments-hide-a-stall": says(ROLE, *SAID[:2], *(COMMENT for _ in range(12)), every=0.4),
    "ping-events": _stream(ROLE, b"event: ping\n\n\n\n", *SAID[:3], b"data:\n\n", b"event: ping\ndata:\n\n", *SAID[3:], STOP, DONE),
    "stall-before-content": stalls(ROLE),
    "stall": stalls(ROLE, *SAID[:3]),
    "stall-after-finish": stalls(ROLE, *SAID, STOP),
    "lingers-after-done": says(ROLE, *SAID, STOP, DONE, every=PACE, then=[Read(after=60.0)]),
    "more-after-done": _stream(ROLE, *SAID, STOP, DONE + text("late"), text("later")),
    "error-first": _stream(ERROR_EVENT),
    "error-late": _stream(ROLE, *SAID[:4], ERROR_EVENT),
    "error-named": _stream(b'event: error\ndata: {"message":"secret detail","code":"overloaded"}\n\n'),
    "json-for-a-stream": body(whole("".join(WORDS))),
    "json-error-for-a-stream": body(b'{"error":{"message":"secret detail","code":"server_error"}}'),
    "no-finish": _stream(ROLE, *SAID),
    "no-finish-but-done": _stream(ROLE, *SAID, DONE),
    "no-done": _stream(ROLE, *SAID, STOP),
    "usage-alone": _stream(ROLE, *SAID, STOP, event({"id": "up-1", "object": "chat.completion.chunk", "created": 7, "model": "m", "choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 9, "total_tokens": 12}}), DONE),
    "filter-results-first": _stream(event({"id": "", "object": "", "created": 0, "model": "", "choices": [], "prompt_filter_results": [{"prompt_index": 0}]}), ROLE, *SAID, STOP, DONE),
    "call": _calls(_begun(), _call(0, '{"level"'), _call(0, ": 4}")),
    "call-without-index": _calls(_begun(None), _call(None, '{"level": 4}')),
    "call-without-id": _calls(_begun(identity=None), _call(0, '{"level": 4}')),
    "call-cut": says(ROLE, _begun(), _call(0, '{"lev'), then=[Read(fault=UpstreamFault.CUT)]),
    "call-broken": _calls(_begun(), _call(0, '{"level": ')),
    "call-off-schema": _calls(_begun(), _call(0, '{"level": "high"}')),
    "call-beside-words": _calls(text("Let me see."), _begun(), _call(0, '{"level": 4}')),
    "call-unknown": _calls(_begun(name="sluice"), _call(0, "{}")),
    "call-repeated": _calls(_begun(), _call(0, '{"level": 4}'), _call(0, '{"level": 4}')),
    "call-accumulated": _calls(_begun(), _call(0, '{"level"'), _call(0, '{"level": 4}')),
    "call-prefixed": _calls(_begun(), _call(0, "{}"), _call(0, '{"level": 4}')),
    "call-with-list": _calls(_begun(), _call(0, "[4]")),
    "call-nameless": _calls(delta({"tool_calls": [{"index": 0, "id": "call_1", "type": "function", "function": {"arguments": '{"level": 4}'}}]})),
    "call-not-asked": _calls(_begun(), _call(0, '{"level": 4}')),
    "call-missing": _stream(ROLE, *SAID, STOP, DONE),
    "call-other": _calls(_begun(name="valve"), _call(0, "{}")),
    "call-in-text": _stream(ROLE, text("\n"), text(IN_TEXT), STOP, DONE),
    "calls-parallel": _calls(_begun(), _call(0, '{"level": 4}'), _begun(1, identity="call_2"), _call(1, '{"level": 5}')),
    "call-with-object": _calls(_begun(), delta({"tool_calls": [{"index": 0, "function": {"arguments": {"level": 4}}}]})),
    "calls-merged": _calls(_begun(), _call(0, '{"level": 4}'), _begun(0, identity="call_2"), _call(0, '{"level": 5}')),
    "role-again": _stream(ROLE, SAID[0], ROLE, *SAID[1:], STOP, DONE),
    "reasoning": _stream(ROLE, thought("First the"), thought(" level."), *SAID, STOP, DONE),
    "reasoning-renamed": _stream(ROLE, delta({"reasoning": "First the level."}), *SAID, STOP, DONE),
    "reasoning-only": _stream(ROLE, thought("First the level."), STOP, DONE),
    "null-content": _stream(delta({"role": "assistant", "content": None}), *SAID, STOP, DONE),
    "long-line": _stream(ROLE, text(NUMBERS), STOP, DONE),
    "event-too-large": _stream(ROLE, SAID[0], text("x" * 9_000)),
    "event-without-end": _stream(ROLE, SAID[0], *(b"data: " + b"x" * 3_000 for _ in range(4))),
    "malformed-event": _stream(ROLE, *SAID[:3], b'data: {"id": "up-1", "cho\n\n', *SAID[3:], STOP, DONE),
    "drip": says(ROLE, *SAID, STOP, DONE, every=0.9),
    "empty-answer": _stream(ROLE, STOP, DONE),
    "white-space": _stream(ROLE, text(" \n"), STOP, DONE),
    "no-body": _stream(),
    "finish-length": _stream(ROLE, *SAID[:4], delta({}, finish="length"), DONE),
    "finish-filtered": _stream(ROLE, *SAID[:2], delta({}, finish="content_filter"), DONE),
    "finish-unknown": _stream(ROLE, *SAID, delta({}, finish="eos"), DONE),
    "finish-error": _stream(ROLE, *SAID[:2], delta({}, finish="error"), DONE),
    "refusal": _stream(ROLE, delta({"refusal": "I will not answer that."}), STOP, DONE),
    "refusal-in-text": _stream(ROLE, text("I'm sorry, but I can't help with that."), STOP, DONE),
    "loop": _stream(ROLE, *(text("and the gate is shut, ") for _ in range(60)), STOP, DONE),
    "mojibake": _stream(ROLE, text("a\ufffdb\ufffd\ufffdc\ufffd"), text("\ufffd" * 12), STOP, DONE),
    "half-pair": _stream(ROLE, text("x").replace(b'"x"', b'"\\ud83d"'), text("y").replace(b'"y"', b'"\\udea2"'), STOP, DONE),
    "denied-words": _stream(ROLE, *SAID[:3], text(" the password is"), text(" swordfish"), STOP, DONE),
    "fenced": _stream(ROLE, text("```json\n"), text('{"level": 4}'), text("\n```"), STOP, DONE),
    "not-json": _stream(ROLE, *SAID, STOP, DONE),
    "off-schema": _stream(ROLE, text('{"level": "high"}'), STOP, DONE),
    "think-tags": _stream(ROLE, text("<think>First the"), text(" level.</think>"), *SAID, STOP, DONE),
}  # fmt: skip

# What can also happen to an answer that is one JSON body.
WHOLE: Final[Mapping[str, Answer]] = {
    "healthy": body(whole("".join(WORDS))),
    "no-connection": fails(UpstreamFault.CONNECT, after=0.1),
    "no-head": Answer(head_after=8.0),
    "cut": Answer([Read(whole("".join(WORDS))[:90]), Read(fault=UpstreamFault.CUT)], headers=JSON),
    "short": body(whole("".join(WORDS))[:-20]),
    "late": Answer([Read(whole("".join(WORDS)), after=8.0)], headers=JSON),
    "error-in-200": body(b'{"error":{"message":"secret detail","code":"server_error"}}'),
    "html": body(b"<!doctype html><p>restarting</p>", headers=((b"content-type", b"text/html"),)),
    "stream-for-json": healthy(*WORDS),
    "empty-answer": body(whole("")),
    "null-answer": body(whole(None)),
    "no-finish": body(whole("".join(WORDS), finish=None)),
    "finish-length": body(whole("The keeper", finish="length")),
    "not-json": body(whole("The keeper opens.")),
    "off-schema": body(whole('{"level": "high"}')),
    "fenced": body(whole('```json\n{"level": 4}\n```')),
    "denied-words": body(whole("the password is swordfish")),
    "loop": body(whole("and the gate is shut, " * 60)),
}

# Answers that are no 2xx; the same for both.
STATUS: Final[Mapping[str, Answer]] = {
    "status-500": refuses(500, b'{"error":{"message":"secret detail"}}'),
    "status-503": refuses(503, retry_after="1"),
    "status-429": refuses(429, retry_after="1"),
    "status-429-long": refuses(429, retry_after="90"),
    "status-401": refuses(401),
    "status-404": refuses(404, b'{"error":{"code":"model_not_found"}}'),
    "status-400": refuses(400, b'{"error":{"message":"bad","code":"invalid_value","param":"top_p"}}'),
    "context-length": refuses(400, json.dumps({"error": {"code": "context_length_exceeded", "message": "This model's maximum context length is 4096 tokens."}}).encode()),
    "redirect": Answer(status=302, headers=((b"location", b"http://127.0.0.1:9/"),)),
    "no-content": Answer(status=204),
}  # fmt: skip
