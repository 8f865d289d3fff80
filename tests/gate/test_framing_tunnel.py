"""What a tunnel relays of a head, and how its response ends."""

from __future__ import annotations

import json

import msgspec
import pytest

from gate.endpoints import framing_for
from gate.envelope import PublicError, refusal
from gate.events import Facts, Frame, Shape, Start, Tunnel
from gate.framing_tunnel import TunnelBody, TunnelSse, relayed_headers, tunnelled

KIND = (b"content-type", b"text/event-stream")
ERROR = refusal(502, "stream_cut")


def test_only_some_fields_are_relayed() -> None:
    """None that belongs to the connection, to the body's encoding or to an account; the first of a name; none that would break out of its line."""
    kept = [
        KIND, (b"content-language", b"en"), (b"content-disposition", b"inline"), (b"retry-after", b"3"), (b"x-ratelimit-limit-requests", b" 1 "), (b"openai-processing-ms", b"7"),
        (b"openai-version", b"\xe9"),
    ]  # fmt: skip
    gone = [
        (b"content-length", b"3"), (b"content-encoding", b"gzip"), (b"transfer-encoding", b"chunked"), (b"set-cookie", b"a"), (b"server", b"up"), (b"openai-organization", b"o"),
        (b"x-request-id", b"theirs"), (b"content-type", b"second"), (b"x-ratelimit-bad", b"a\0b"), (b"x-ratelimit-named", b"1"), (b"connection", b"close, X-RateLimit-Named"),
    ]  # fmt: skip
    assert relayed_headers([*kept, *gone]) == tuple((name, value.strip()) for name, value in kept)
    assert relayed_headers([]) == ()


def test_a_stream_is_the_providers_bytes() -> None:
    """Nothing stands before or behind them; its own ending comes with ours, so that no error can follow it."""
    framing = TunnelSse(Tunnel(0, (KIND,)))
    frames = [Frame(b"a", (), 1), Frame(b"b", (), 1)]
    assert (framing.name, framing.status, framing.comments) == ("tunnel_sse", 200, False)
    assert framing.headers == (KIND, (b"cache-control", b"no-cache"), (b"x-accel-buffering", b"no"))
    assert (framing.release(frames), framing.release([])) == (b"ab", b"")
    assert (framing.success(Facts()), framing.length(b"")) == (b"", ())
    assert framing.release([Frame(b"c", (), 1), Frame(b"d", (), 1, closing=True)]) == b"c"
    assert framing.release([Frame(b"e", (), 1, closing=True)]) == b""
    assert framing.success(Facts()) == b"de"


def test_a_body_comes_at_the_end() -> None:
    """With its length."""
    framing = TunnelBody(Tunnel(201, ()))
    assert framing.release([Frame(b"a", (), 1)]) == framing.release([Frame(b"b", (), 1)]) == b""
    assert framing.success(Facts()) == b"ab"
    assert (framing.name, framing.status, framing.headers) == ("tunnel_body", 201, ())
    assert framing.length(b"ab") == ((b"content-length", b"2"),)


@pytest.mark.parametrize("kind", [b"text/event-stream; charset=utf-8", b"audio/mpeg", b""])
def test_an_error_is_told_where_it_can_be_read(kind: bytes) -> None:
    """By an event behind the last one; any other body is broken off, and under the older contract each just ends."""
    headers = ((b"content-type", kind),) if kind else ()
    told = TunnelSse(Tunnel(200, headers)).error(ERROR)
    if kind.startswith(b"text"):
        assert told is not None
        assert told.startswith(b"data: {")
        assert told.endswith(b"}\n\n")
        assert json.loads(told[6:])["error"]["type"] == "provider_tunnel_error"
    else:
        assert told is None
    assert TunnelSse(Tunnel(200, headers, marks=False)).error(ERROR) == b""


def test_only_a_runs_error_is_the_tunnels() -> None:
    """A limit, a verdict or the caller's fault keeps its type."""
    assert tunnelled(ERROR).type == "provider_tunnel_error"
    assert tunnelled(ERROR).code == "stream_cut"
    told = PublicError(502, "run_error", "too_rude", None, 2.0, False, "content_denied", "/a")
    assert tunnelled(told) == msgspec.structs.replace(told, type="provider_tunnel_error")
    for error in (refusal(503, "draining"), refusal(404, "not_found")):
        assert tunnelled(error) is error


def test_the_framing_is_chosen_by_the_start() -> None:
    """The caller's wish and the attempt's path."""
    for stream, kind in ((True, TunnelSse), (False, TunnelBody)):
        start = Start(1, "c", 7, Shape("small", stream, False), Tunnel(200, ()))
        assert type(framing_for(start)) is kind
