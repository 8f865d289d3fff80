"""What goes wrong on either side of the gateway, as strategies: requests, and providers' answers, from slightly off to plain noise.

`drawn` makes a list of cases from a strategy, the same one every time: thousands of cases run against one gateway, not one gateway per case.
"""

from __future__ import annotations

import gzip
import itertools
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

import brotli
import hypothesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

Draw = st.DrawFn
Case = TypeVar("Case")

CHAT: Final = b"/v1/chat/completions"


def drawn(strategy: st.SearchStrategy[Case], count: int, *, seed: int) -> list[Case]:
    """At most `count` cases, none twice; a third of what is drawn repeats itself. The same seed gives the same cases."""
    found: dict[Case, None] = {}

    @hypothesis.seed(seed)
    @settings(
        max_examples=count * 3 // 2,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def collect(case: Case) -> None:
        found[case] = None

    collect()
    return list(found)[:count]


# --- JSON ----------------------------------------------------------------------------------------

VALUES: Final = (
    *(b"null", b"true", b"false", b"0", b"-1", b"-0", b"7", b"1.5", b"1e400", b"-1e-400", b"1E5"),
    *(b"9" * 20, b"9" * 400, b"9" * 5_000, b"0." + b"1" * 400, b"NaN", b"-Infinity", b"01", b"1."),
    *(b"", b'""', b'" "', b'"stop"', b'"error"', b'"small"', b'"\\ud800"', b'"\\udc00\\ud800"'),
    *(b'"\xff\xfe"', b'"\\u0000"', b'"\x00"', b'"\n"', b'"a', b'"' + b"a" * 20_000 + b'"'),
    *(b'"\xf0\x9f\x8c\x8a"', b'"\xf0\x9f"', b"'a'", b"+1", b"[DONE]", b"ping"),
    *(b"[]", b"[[]]", b"[null]", b"[{}]", b"[1,2]", b"[", b"]", b"{}", b"{", b"}", b'{"":1}'),
    *(b'{"a"}', b'{"a":1,"a":2}', b'{"error":{"code":500}}', b'[{"type":"text","text":"x"}]'),
    *(b"[" * 70 + b"]" * 70, b'{"a":' * 70 + b"1" + b"}" * 70, b"[" * 20_000, b"[" * 3_000),
)
NOISE: Final = st.binary(max_size=24)


@st.composite
def members(draw: Draw, defaults: Mapping[str, bytes], *, wrong: int = 2) -> bytes:
    """An object of which up to `wrong` members are something else, missing, or there twice."""
    fields = list(defaults.items())
    for _ in range(draw(st.integers(0, wrong))):
        at = draw(st.integers(0, len(fields) - 1))
        name = fields[at][0]
        match draw(st.sampled_from(("value", "value", "value", "drop", "twice", "name"))):
            case "value":
                fields[at] = (name, draw(st.sampled_from(VALUES)))
            case "twice":
                fields.append((name, draw(st.sampled_from(VALUES))))
            case "name":
                fields.append((draw(st.sampled_from(("error", "detail", "type", ""))), b'"x"'))
            case _ if len(fields) > 1:
                del fields[at]
    return b"{" + b",".join(b'"%b":%b' % (name.encode(), value) for name, value in fields) + b"}"


@st.composite
def mangled(draw: Draw, data: bytes) -> bytes:
    """`data`, cut off, or with a few bytes replaced, put in, taken out or repeated."""
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(data)))
        to = min(at + draw(st.integers(0, 12)), len(data))
        match draw(st.sampled_from(("cut", "put", "put", "flip", "repeat"))):
            case "cut":
                data = data[:at]
            case "put":
                data = data[:at] + draw(NOISE) + data[to:]
            case "flip":
                data = data[:at] + bytes(byte ^ 0x80 for byte in data[at:to]) + data[to:]
            case _:
                data = data[:to] + data[at:to] * draw(st.integers(1, 40)) + data[to:]
    return data


@st.composite
def rarely_mangled(draw: Draw, data: bytes) -> bytes:
    """Most of the time as it is."""
    return draw(mangled(data)) if draw(st.integers(0, 3)) == 0 else data


# --- requests ------------------------------------------------------------------------------------

MESSAGE: Final = b'{"role":"user","content":"Is the tide in?"}'
ASKED: Final = {"model": b'"small"', "messages": b"[" + MESSAGE + b"]", "stream": b"true"}
MORE_ASKED: Final = {**ASKED, "n": b"1", "stream_options": b'{"include_usage":true}', "x": b"1.0"}


@dataclass(frozen=True, slots=True)
class Request:
    """What a caller sends. `proper`: its HTTP is in order, whatever the body is, so that it has to be answered."""

    raw: bytes
    proper: bool


@st.composite
def bodies(draw: Draw) -> bytes:
    """Bodies of requests, good ones among them."""
    stream = draw(st.sampled_from((b"true", b"false")))
    body = draw(members({**MORE_ASKED, "stream": stream}))
    match draw(st.integers(0, 9)):
        case 0:
            body = draw(mangled(body))
        case 1:
            body = draw(st.sampled_from(VALUES))
        case 2:
            body = draw(st.sampled_from((b"\xef\xbb\xbf", b"\xff\xfe", b" \n", b"\x00"))) + body
        case 3:
            body += draw(st.sampled_from((b" ", b"{}", b"\x00", b",", b"]")))
        case _:
            pass
    return body


def with_length(body: bytes, length: int | bytes | None = None, *more: bytes) -> bytes:
    """A whole request, with the length that it says."""
    said = len(body) if length is None else length
    size = b"%d" % said if isinstance(said, int) else said
    lines = (b"POST " + CHAT + b" HTTP/1.1", b"host: gate", b"content-length: " + size, *more)
    return b"\r\n".join([*lines, b"", b""]) + body


@st.composite
def as_chunks(draw: Draw, body: bytes) -> bytes:
    """A body in chunks of any sizes, some with extensions."""
    coded, left = b"", body
    while left:
        size = draw(st.integers(1, max(len(left), 1)))
        extension = draw(st.sampled_from((b"", b"", b";a=b", b';a="b"')))
        coded += b"%x%b\r\n%b\r\n" % (size, extension, left[:size])
        left = left[size:]
    return coded + b"0\r\n" + draw(st.sampled_from((b"", b"x-sum: 1\r\n"))) + b"\r\n"


LINES: Final = (
    *(b"content-length: 5", b"content-length: -1", b"transfer-encoding: chunked", b"te: trailers"),
    *(b"transfer-encoding: gzip, chunked", b"expect: 100-continue", b"expect: x", b"host: other"),
    *(b"connection: close", b"connection: upgrade", b"upgrade: h2c", b"upgrade: websocket"),
    *(b"http2-settings: AAMAAABk", b"http2-settings: %", b"sec-websocket-version: 13"),
    *(b"content-encoding: gzip", b"content-type: \xff", b"authorization: Basic \xff\x00", b"x:"),
    *(b" folded", b": none", b"x y: z", b"x-request-id: a\rb", b"x: " + b"a" * 70_000, b"x" * 300),
    *(b"openai-beta: a\r\n b", b"x-request-id: \xc3\xbc", b"content-length: " + b"9" * 30, b"\x00"),
)
STARTS: Final = (
    *(b"POST " + CHAT + b" HTTP/1.0", b"POST " + CHAT + b" HTTP/2.0", b"POST " + CHAT, b"POST"),
    *(b"GET " + CHAT + b" HTTP/1.1", b"GET /v1/models/%ff%00 HTTP/1.1", b"GET / HTTP/1.1"),
    *(b"POST //v1/../x HTTP/1.1", b"POST /\xff HTTP/1.1", b"OPTIONS * HTTP/1.1", b"\x16\x03\x01"),
    *(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"CONNECT a:1 HTTP/1.1", b"POST http://x/ HTTP/1.1"),
)


@st.composite
def heads(draw: Draw, body: bytes) -> bytes:
    """A request whose head has a line too many, another beginning, or noise in it."""
    raw = with_length(body, None, *draw(st.lists(st.sampled_from(LINES), max_size=3)))
    head, _, rest = raw.partition(b"\r\n\r\n")
    start, _, fields = head.partition(b"\r\n")
    match draw(st.integers(0, 3)):
        case 0:
            start = draw(st.sampled_from(STARTS))
        case 1:
            fields = draw(mangled(fields))
        case 2:
            start = draw(mangled(start))
        case _:
            pass
    return start + b"\r\n" + fields + b"\r\n\r\n" + rest


@st.composite
def requests(draw: Draw) -> Request:
    """Half of them proper HTTP with any body, half broken in HTTP itself."""
    body = draw(bodies())
    match draw(st.integers(0, 7)):
        case 0 | 1 | 2:
            return Request(with_length(body), proper=True)
        case 3:
            start = (
                b"POST " + CHAT + b" HTTP/1.1\r\nhost: gate\r\ntransfer-encoding: chunked\r\n\r\n"
            )
            coded = draw(as_chunks(body))
            broken = draw(st.booleans())
            return Request(start + (draw(mangled(coded)) if broken else coded), proper=not broken)
        case 4:
            lie = draw(st.integers(-60, 60)) or 1
            return Request(with_length(body, max(len(body) + lie, 0)), proper=False)
        case 5:
            return Request(draw(mangled(with_length(body))), proper=False)
        case _:
            return Request(draw(heads(body)), proper=False)


# --- answers -------------------------------------------------------------------------------------

DELTA: Final[Mapping[str, bytes]] = {"role": b'"assistant"', "content": b'"The "'}
CHOICE: Final = {"index": b"0", "finish_reason": b"null", "logprobs": b"null"}
CHUNK: Final = {
    "id": b'"c-1"',
    "object": b'"chat.completion.chunk"',
    "created": b"7",
    "model": b'"m"',
    "usage": b"null",
}
WORDS: Final = (b'"The "', b'"tide "', b'"is in."')
CALL: Final = b'[{"index":0,"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}]'


@dataclass(frozen=True, slots=True)
class Reply:
    """What a provider sends, read by read, and how it goes on: `close`, `reset` or `stay`.

    `stream`: what the caller asks for. `plain`: the body before its framing and coding. `whole`: nothing at all is wrong with it.
    """

    pieces: tuple[bytes, ...]
    then: str
    stream: bool
    plain: bytes
    whole: bool


def good_chunk(delta: bytes, finish: bytes = b"null") -> bytes:
    """One chunk of a stream with nothing wrong."""
    choice = b'{"index":0,"delta":%b,"finish_reason":%b}' % (delta, finish)
    return b'{"id":"c-1","created":7,"model":"m","choices":[%b]}' % choice


GOOD: Final = (
    good_chunk(b'{"role":"assistant","content":""}'),
    *(good_chunk(b'{"content":%b}' % word) for word in WORDS),
    good_chunk(b"{}", b'"stop"'),
    b"[DONE]",
)


@st.composite
def chunks_of_json(draw: Draw) -> bytes:
    """A chat chunk with something wrong at some depth."""
    extra = draw(st.sampled_from(({}, {}, {"tool_calls": CALL}, {"reasoning_content": b'"Hm"'})))
    delta = draw(members({**DELTA, **extra}, wrong=1))
    choice = draw(members({**CHOICE, "delta": delta}, wrong=1))
    return draw(members({**CHUNK, "choices": b"[" + choice + b"]"}, wrong=1))


LINE_ENDS: Final = (b"\n", b"\n", b"\n", b"\r", b"\r\n")
BETWEEN: Final = (
    *(
        b": ping",
        b"event: error",
        b"event: x",
        b"id: 1",
        b"retry: 5",
        b"data",
        b"data:",
        b"error: x",
    ),
    *(b"data: [done]", b"data: ping", b"data: : x", b"\xef\xbb\xbf", b"data:[1]", b"", b"nonsense"),
    *(b'data: {"error":{"message":"m","code":"rate_limit"}}', b"data: " + b"a" * 30_000, b"\xff"),
    *(b'data: {"detail":"x"}', b'data: {"object":"error","message":"x"}', b"data: \xf0\x9f"),
)


@st.composite
def event_streams(draw: Draw) -> bytes:
    """Streams that end too soon, or whose events are wrong, doubled, missing, out of order, or not events at all."""
    payloads = list(GOOD[: draw(st.integers(1, 2 * len(GOOD)))])
    for _ in range(max(draw(st.integers(-2, 3)), 0)):
        at = draw(st.integers(0, len(payloads)))
        match draw(st.integers(0, 3)):
            case 0:
                payloads.insert(at, draw(chunks_of_json()))
            case 1:
                payloads.insert(at, draw(st.sampled_from(payloads or [b"[DONE]"])))
            case 2:
                del payloads[at : at + 1]
            case _:
                payloads.insert(at, draw(st.sampled_from(VALUES)))
    end = draw(st.sampled_from(LINE_ENDS))
    begin = draw(st.sampled_from((b"data: ", b"data: ", b"data:")))
    blocks = [begin + payload + end + end for payload in payloads]
    for line in draw(st.lists(st.sampled_from(BETWEEN), max_size=2)):
        blocks.insert(draw(st.integers(0, len(blocks))), line + end * draw(st.integers(0, 2)))
    return draw(rarely_mangled(b"".join(blocks)))


@st.composite
def objects(draw: Draw) -> bytes:
    """JSON bodies with something wrong."""
    message = draw(members({**DELTA, "content": b'"The tide is in."'}, wrong=1))
    finish = draw(st.sampled_from((b'"stop"', b'"stop"', b"null", b'"error"', b'""')))
    choice = draw(members({**CHOICE, "message": message, "finish_reason": finish}, wrong=1))
    body = draw(members({**CHUNK, "choices": b"[" + choice + b"]"}, wrong=1))
    return draw(rarely_mangled(body))


CODINGS: Final = {
    b"gzip": gzip.compress,
    b"deflate": zlib.compress,
    b"br": brotli.compress,
    b"zstd": bytes,
    b"identity": bytes,
}
KINDS: Final = (b"text/html", b"application/jsonl", b"text/event-stream;x=\xff", b"", b"x/y+json")
FIELDS: Final = (
    *(b"Content-Length: 5", b"Content-Length: -1", b"Content-Length: x", b"Connection: close"),
    *(b"Transfer-Encoding: chunked", b"Transfer-Encoding: gzip", b"Content-Encoding: zstd", b"X"),
    *(
        b"Set-Cookie: a=\xff",
        b"Location: http://x:y/",
        b"Retry-After: \xff",
        b" folded",
        b"X: \x00",
    ),
    *(b"X: " + b"a" * 70_000, b"Content-Encoding: gzip, br", b"Upgrade: h2c", b": none"),
)
STATUSES: Final = (
    *(
        b"HTTP/1.1 200 OK",
        b"HTTP/1.0 200 OK",
        b"HTTP/1.1 200",
        b"HTTP/1.1 201 C",
        b"HTTP/1.1 204 N",
    ),
    *(
        b"HTTP/1.1 206 P",
        b"HTTP/1.1 302 F",
        b"HTTP/1.1 304 N",
        b"HTTP/1.1 400 B",
        b"HTTP/1.1 401 U",
    ),
    *(
        b"HTTP/1.1 418 T",
        b"HTTP/1.1 429 T",
        b"HTTP/1.1 500 E",
        b"HTTP/1.1 599 E",
        b"HTTP/1.1 999 E",
    ),
    *(
        b"HTTP/1.1 101 S",
        b"HTTP/1.1 099 X",
        b"HTTP/2 200",
        b"ICY 200 OK",
        b"HTTP/1.1 100 C\r\n\r\n",
    ),
)


@st.composite
def framed(draw: Draw, body: bytes, kind: bytes) -> bytes:
    """A whole response, its framing perhaps wrong as well."""
    fields = [b"Content-Type: " + kind]
    if draw(st.integers(0, 4)) == 0:
        coding = draw(st.sampled_from(tuple(CODINGS)))
        fields.append(b"Content-Encoding: " + coding)
        if draw(st.integers(0, 4)):
            body = draw(rarely_mangled(CODINGS[coding](body)))
    match draw(st.integers(0, 5)):
        case 0 | 1 | 2:
            fields.append(b"Transfer-Encoding: chunked")
            body = draw(rarely_mangled(draw(as_chunks(body))))
        case 3:
            fields.append(b"Content-Length: %d" % len(body))
        case 4:
            fields.append(b"Content-Length: %d" % max(len(body) + draw(st.integers(-50, 50)), 0))
        case _:
            pass
    status = b"HTTP/1.1 200 OK"
    if draw(st.integers(0, 4)) == 0:
        status = draw(st.sampled_from(STATUSES))
        fields += draw(st.lists(st.sampled_from(FIELDS), max_size=2))
    return b"\r\n".join([status, *fields, b"", b""]) + body


@st.composite
def cut_up(draw: Draw, raw: bytes) -> tuple[bytes, ...]:
    """A few writes."""
    marks = sorted(draw(st.lists(st.integers(0, len(raw)), max_size=3)))
    edges = [0, *marks, len(raw)]
    return tuple(raw[a:b] for a, b in itertools.pairwise(edges) if b > a)


@st.composite
def replies(draw: Draw) -> Reply:
    """Answers to a caller that asked for a stream or for an object, of either kind."""
    stream, streams = draw(st.booleans()), draw(st.integers(0, 3))
    plain = draw(event_streams() if streams else objects())
    kind = b"text/event-stream" if streams else b"application/json"
    if draw(st.integers(0, 9)) == 0:
        kind = draw(st.sampled_from(KINDS))
    raw = draw(framed(plain, kind))
    if draw(st.integers(0, 7)) == 0:
        raw = draw(mangled(raw))
    then = draw(st.sampled_from(("close", "close", "close", "reset", "stay")))
    return Reply(draw(cut_up(raw)), then, stream, plain, whole=False)


def whole_reply(*, stream: bool) -> Reply:
    """An answer with nothing wrong, to be found between the others."""
    plain = b"".join(b"data: " + payload + b"\n\n" for payload in GOOD)
    start = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: %d\r\n\r\n"
    return Reply((start % len(plain) + plain,), "stay", stream, plain, whole=True)
