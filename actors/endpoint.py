"""What an exchange's endpoint, and the path of the attempt, decide: how its answer is read, judged and called.

Chat and Responses are driven along either path; every other endpoint is relayed. A path decides how bytes leave, never whether they are watched.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import msgspec
import trio

from actors.context import Door, Exchange, Pool, Target
from actors.ports import UpstreamResponse
from gate.config import PathKind
from gate.continuable import Continuable, read_continuable
from gate.dialects import can_continue
from gate.endpoints import CHAT, OVER_CHAT, RESPONSES, Expected, endpoint_of
from gate.envelope import PublicError
from gate.events import Identity, Shape, Start, Terminal, Tunnel
from gate.explain import Explanation
from gate.filters.builtin import filter_context, make_filters
from gate.filters.output_policy import only_calls
from gate.framing_tunnel import relayed_headers
from gate.ingress import CHAT_PATH, CallerRequest, IngressSnapshot
from gate.judging import Judge
from gate.mending_format import format_mender
from gate.model_echo import ModelEcho, echo_for
from gate.observe import Told
from gate.reader import AnswerReader
from gate.schema_cache import SchemaCache
from gate.tunnel import fits, is_watched, tunnel_reader

__all__ = [
    "bare_start",
    "continuable_of",
    "explanation_of",
    "find_continuations",
    "framing_name",
    "header_of",
    "judge_of",
    "mode_of",
    "path_of",
    "path_taken",
    "pings_commit",
    "reader_of",
    "start_of",
    "terminal_of",
    "tunnel_of",
]

_CONTENT: Final = "/content"  # of a file, a picture or a sound that is stored
_NESTED: Final = "/v1/responses"  # where an event names the model inside of its response, too


def path_of(exchange: Exchange, target: Target, *, continues: bool) -> PathKind:
    """How the bytes of an attempt at `target` leave. One that goes on with an answer is in the framing of that; one that is translated is framed by us."""
    if exchange.door.relayed:
        return "tunnel"
    return "normalized" if continues or exchange.over_chat(target) else target.path


def path_taken(exchange: Exchange, response: UpstreamResponse) -> PathKind:
    """The same, now that a 2xx answer has come: one in the form that was not asked for (JSON for a stream, a stream for JSON) can't be relayed, and is framed by us."""
    kind = header_of(response, b"content-type") or b""
    framed = not exchange.door.relayed and not fits(kind, stream=exchange.snapshot.request.stream)
    return "normalized" if framed else exchange.path


def reader_of(
    exchange: Exchange, target: Target, response: UpstreamResponse, *, continues: bool
) -> AnswerReader | None:
    """The reader of a 2xx answer, or None where it is no answer to this request."""
    door, request, limits = exchange.door, exchange.snapshot.request, exchange.limits
    kind = header_of(response, b"content-type") or b""
    may_be_empty = door.relayed and door.method != "POST"
    if response.status == 204 and not may_be_empty:
        return None
    if exchange.path == "tunnel":
        return tunnel_reader(
            door.endpoint,
            kind,
            echo=_echo(exchange, target),
            choices=request.choices,
            event_bytes_max=limits.event_bytes_max,
            body_bytes_max=limits.held_bytes_max,
            stream=request.stream,
            may_be_empty=may_be_empty,
            hides_usage=target.ask_usage and request.usage_unasked,
        )
    expected = Expected(
        choices=request.choices,
        stream=request.stream,
        event_bytes_max=limits.event_bytes_max,
        body_bytes_max=limits.held_bytes_max,
        continues=continues,
    )
    endpoint = OVER_CHAT if exchange.over_chat(target) else endpoint_of(door.endpoint)
    return endpoint.reader(kind, expected)


def _echo(exchange: Exchange, target: Target) -> ModelEcho | None:
    """By whichever way the alias is known. What is in a file is its owner's affair, whatever it looks like."""
    endpoint = exchange.door.endpoint
    if endpoint.endswith(_CONTENT):
        return None
    return echo_for(exchange.pool.alias, target.model, nested=endpoint.startswith(_NESTED))


def tunnel_of(exchange: Exchange, response: UpstreamResponse) -> Tunnel | None:
    """What is relayed of a response's head; None where its answer is framed by us."""
    if exchange.path != "tunnel":
        return None
    headers = relayed_headers(response.headers)
    return Tunnel(response.status, headers, exchange.tunnel_marks)


def header_of(response: UpstreamResponse, name: bytes) -> bytes | None:
    """The first field of that name."""
    return next((value for known, value in response.headers if known == name), None)


def continuable_of(
    door: Door, targets: Sequence[Target], snapshot: IngressSnapshot, continuation: str
) -> Continuable | None:
    """What the request says where an answer may be continued. None where route, targets or endpoint allow none: an answer that is written whole at its end never needs it."""
    request = snapshot.request
    able = any(can_continue(target.prefill, door.endpoint) for target in targets)
    if door.relayed or not able or not request.stream or continuation == "off":
        return None
    return read_continuable(snapshot.body, request, door.endpoint)


def explanation_of(door: Door, request: CallerRequest, pool: Pool) -> Explanation | None:
    """Where the caller wants to be told what is decided; it says so in a header or in its metadata."""
    asked = door.explain or request.traced
    return Explanation(pool.route_name, pool.route.hold) if asked else None


def pings_commit(exchange: Exchange) -> bool:
    """Whether a comment may go out, with the status 200, before the answer. Where a tunnel may answer, status and headers are its provider's, and not known before it does."""
    ours = all(
        path_of(exchange, each, continues=False) == "normalized" for each in exchange.targets
    )
    asked = exchange.pool.route.hold.pings_commit and exchange.snapshot.request.stream
    return asked and ours and not exchange.door.relayed


def start_of(
    exchange: Exchange,
    n: int,
    identity: Identity | None = None,
    tunnel: Tunnel | None = None,
    *,
    told: Told | None = None,
) -> Start:
    """The start of attempt `n`'s response: its provider's `identity`, as far as that gave one."""
    snapshot, endpoint = exchange.snapshot, endpoint_of(exchange.endpoint)
    request = snapshot.request
    name = identity.id if identity else endpoint.name(exchange.refs.exchange)
    created = identity.created if identity and identity.created else exchange.world.wall()
    asked = endpoint.repeated(snapshot.body, request)
    hides = request.usage_unasked and any(target.ask_usage for target in exchange.targets)
    shape = Shape(request.model, request.stream, request.include_usage, endpoint.path, asked, hides)
    return Start(n, name, created, shape, tunnel, told)


def bare_start(exchange: Exchange) -> Start | None:
    """Of a response that may come to nothing but an error, where its framing is more than a line of it: a comment has begun a stream of Responses, and no attempt ever answered."""
    needed = exchange.endpoint == RESPONSES.path and pings_commit(exchange)
    return start_of(exchange, 0) if needed else None


def terminal_of(exchange: Exchange, error: PublicError, *, close: bool = False) -> Terminal:
    """The error terminal of an exchange that was admitted."""
    streamed = exchange.streams_errors and exchange.path == "normalized" and exchange.attempts > 0
    told = exchange.told(head=True)
    return Terminal(error, exchange.attempts, close, told, streamed, exchange.bare)


def find_continuations(exchange: Exchange) -> None:
    """Notes what the request says of that, in each form in which it is sent."""
    mode = exchange.pool.route.recovery.continuation
    own = [target for target in exchange.targets if not exchange.over_chat(target)]
    exchange.continuable = continuable_of(exchange.door, own, exchange.snapshot, mode)
    if exchange.chat is not None:
        others = [target for target in exchange.targets if exchange.over_chat(target)]
        door = replace(exchange.door, endpoint=CHAT_PATH)
        exchange.chat_continuable = continuable_of(door, others, exchange.chat, mode)


def judge_of(exchange: Exchange, schemas: SchemaCache) -> Judge:
    """Judges the exchange's attempts, with the filters of its route where they can read the answer. `schemas`: those that were compiled for other exchanges."""
    request, pool = exchange.snapshot.request, exchange.pool
    opaque = exchange.door.relayed and not is_watched(exchange.door.endpoint)
    names = () if opaque else pool.filters
    context = filter_context(
        exchange.snapshot.body,
        request,
        structured_output=pool.route.structured_output,
        output_policy="off" if opaque else pool.route.output_policy,
        schemas=schemas,
    )
    mender = format_mender(names, context, pool.route.reasoning_field)
    # What is streamed as it comes has a status of its own before anything fails.
    exchange.streams_errors = exchange.streams_errors and (
        request.stream
        and not exchange.door.relayed
        and request.endpoint == CHAT.path
        and (pool.route.hold.mode == "buffered" or mender is not None or only_calls(context))
    )
    return Judge(
        pool.route.hold,
        streams=request.stream,
        held_bytes_max=exchange.limits.held_bytes_max,
        choices=request.choices,
        reasoning_field=pool.route.reasoning_field,
        ceiling=context.tools.ceiling if context.tools is not None else None,
        think_tags=pool.route.think_tags,
        format_mender=mender,
        continuable=exchange.continuable or exchange.chat_continuable,
        seam_chars=pool.route.recovery.seam_chars,
        opaque=opaque,
        endpoint=endpoint_of(exchange.door.endpoint),
        make_filters=lambda: make_filters(
            names,
            msgspec.structs.replace(context, path=exchange.path),
            pool.tables,
            plugins=pool.plugins,
            clock=trio.current_time,
        ),
    )


def mode_of(framing: str, exchange: Exchange | None) -> str:
    """Whether the caller got, or without a framing would have got, the provider's bytes as they are."""
    if framing:
        return "passthrough" if framing.startswith("tunnel") else "normalized"
    return "passthrough" if exchange is not None and exchange.path == "tunnel" else "normalized"


def framing_name(request: CallerRequest, exchange: Exchange | None) -> str:
    """The framing of a response that never began."""
    if exchange is not None and exchange.path == "tunnel":
        return "tunnel_sse" if request.stream else "tunnel_body"
    return f"{endpoint_of(request.endpoint).label}_{'sse' if request.stream else 'json'}"
