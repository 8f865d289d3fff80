"""The ASGI callable: supervised routes and the lifespan at the edge, the QuartTrio app behind it.

A supervised route can't be a Quart view: a view decides its status before its body runs, and its body runs after the view has returned. So the door is
here: it looks at headers only, before a byte of the body is read, and writes its refusals itself; everything later is the sink's to write.

`app` is what `hypercorn -k trio transport.asgi:app` serves: it reads its configuration when the lifespan starts.
"""

from __future__ import annotations

import hmac
import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, AsyncExitStack
from pathlib import Path
from typing import Final, TextIO

import trio
from hypercorn.typing import (
    ASGIReceiveCallable,
    ASGISendCallable,
    ASGISendEvent,
    HTTPScope,
    LifespanScope,
    Scope,
)
from quart_trio import QuartTrio

from actors.context import Door, Gateway
from actors.exchange import run_exchange
from gate.config_active import inactive
from gate.config_hints import hints
from gate.config_rules import ConfigInvalid
from gate.endpoints import ENDPOINTS
from gate.envelope import PublicError, envelope, error_headers, refusal
from gate.errors import BudgetExceeded
from gate.observe import OutcomeKind
from gate.refs import digest_of_key, is_stable_token
from transport.caller import AsgiCaller
from transport.configfile import Loaded, find_config
from transport.containment import contained
from transport.metrics import Metrics
from transport.pages import make_pages
from transport.recorder import Recorder, open_recorder
from transport.runtime import open_gateway
from transport.telemetry import FanOut, LogSink, open_log

__all__ = ["App", "app"]

SUPERVISED: Final = frozenset(ENDPOINTS)
RELAYED_METHODS: Final = ("DELETE", "GET", "POST")
MODELS: Final = "/v1/models"  # served by us: the aliases
MODEL_HEADER: Final = b"x-tidegate-model"  # names the alias where the body names no model
EXPLAIN_HEADER: Final = b"x-tidegate-explain"
IDEMPOTENCY_HEADER: Final = b"idempotency-key"
_KEY: Final = re.compile(rb"[ -~]{1,255}")
_RELAYED: Final = re.compile(r"/v1(?:/[A-Za-z0-9._~!$&'()*+,;=:@-]+)+")
_QUERY: Final = re.compile(rb"[!$&'()*+,\-./0-9:;=?@A-Z\[\]_a-z~%]*")
FORWARDED: Final = frozenset({b"openai-beta"})
LEFT: Final = frozenset({"caller_gone", "caller_too_slow"})  # nobody takes an answer any more
DRAIN_RETRY_AFTER: Final = 2.0  # seconds; another instance takes over meanwhile


class Unfinished(Exception):
    """A response that can't be finished: the server drops the connection, so that the caller sees a cut and no clean end."""


class App:
    """One application. `load` gives the configuration when the lifespan starts; `owns_listener`: the server's sockets are ours; `log_out`: not stderr."""

    def __init__(
        self,
        load: Callable[[], Loaded | None],
        *,
        owns_listener: bool = False,
        log_out: TextIO | None = None,
    ) -> None:
        self.gateway: Gateway | None = None
        self.log: LogSink | None = None
        self.recorder: Recorder | None = None
        self.metrics = Metrics()
        self._load = load
        self._owns_listener = owns_listener
        self._log_out = log_out
        self._keys: Mapping[str, tuple[bytes, frozenset[str] | None]] = {}
        self._header_bytes_max = 0
        self._pages: QuartTrio | None = None

    async def __call__(
        self, scope: Scope, receive: ASGIReceiveCallable, send: ASGISendCallable
    ) -> None:
        if scope["type"] == "lifespan":
            await self._lifespan(scope, receive, send)
        elif scope["type"] == "http" and (_is_ours(scope) or _is_ambiguous(scope)):
            await self._supervised(scope, receive, send)
        else:
            assert self._pages is not None, "the lifespan starts before requests come"
            await self._pages(scope, receive, _uninterrupted(send))

    # ---- lifespan --------------------------------------------------------------------------------

    async def _lifespan(
        self, scope: LifespanScope, receive: ASGIReceiveCallable, send: ASGISendCallable
    ) -> None:
        await receive()
        try:
            loaded = self._load()
        except ConfigInvalid as error:
            await send({"type": "lifespan.startup.failed", "message": str(error)})
            return
        if loaded is None:
            message = "no configuration: set TIDEGATE_CONFIG or OPENAI_BASE_URL"
            await send({"type": "lifespan.startup.failed", "message": message})
            return
        with self._log(loaded) as log, contained(log.connection_failed) as known:
            self._warn(loaded, log, known_server=known)
            async with AsyncExitStack() as opened:
                metrics = self.metrics
                probe = FanOut(log.observe, metrics.observe, crashed=log.crashed)
                self.recorder = opened.enter_context(open_recorder(loaded.config, log.say))
                try:
                    gateway = await opened.enter_async_context(open_gateway(loaded, log, probe))
                    metrics.watch(gateway, lambda: log.dropped + probe.dropped, self.recorder)
                    self.begin(loaded, gateway)
                    self._pages = make_pages(gateway, metrics, self.models_for)
                except Exception as error:  # noqa: BLE001 - a server that can't start must not listen
                    log.crashed("", error)
                    message = "the gateway could not start; the log says where"
                    await send({"type": "lifespan.startup.failed", "message": message})
                    return
                self.log = log
                await send({"type": "lifespan.startup.complete"})
                await receive()
            await send({"type": "lifespan.shutdown.complete"})

    def _log(self, loaded: Loaded) -> AbstractContextManager[LogSink]:
        limits = loaded.config.limits
        form = loaded.config.observe.log
        return open_log(form, lines_max=limits.observations_max, out=self._log_out)

    def _warn(self, loaded: Loaded, log: LogSink, *, known_server: bool) -> None:
        log.say("info", "configuration", source=loaded.source)
        paths = inactive(loaded.raw)
        if paths:
            log.say("warning", "not active yet: " + ", ".join(paths))
        for each in hints(loaded.config):
            log.say("warning", each)
        if not known_server:
            log.say(
                "warning", "this release of Hypercorn is not known: connections are not kept apart"
            )
        if not self._owns_listener:
            log.say(
                "warning",
                "no write limit: a caller that does not read is never let go by this server; use `tidegate serve`",
            )

    def begin(self, loaded: Loaded, gateway: Gateway) -> None:
        """From here on the supervised routes are served; for whoever has opened a gateway without a lifespan, and wants no pages."""
        config = loaded.config
        self._keys = {
            key.name: (loaded.secrets.keys[key.name].encode(), frozenset(key.models) or None)
            for key in config.keys
        }
        self._header_bytes_max = config.limits.header_bytes_max
        self.gateway = gateway

    # ---- the door ---------------------------------------------------------------------------------

    def models_for(self, headers: Mapping[bytes, bytes]) -> frozenset[str] | PublicError | None:
        """The aliases that the request's key may use (None: all), or the refusal. Every key is compared, in constant time each."""
        if not self._keys:
            return None
        scheme, _, given = headers.get(b"authorization", b"").partition(b" ")
        found: tuple[bytes, frozenset[str] | None] | None = None
        for key in self._keys.values():
            if hmac.compare_digest(key[0], given.strip()):
                found = key
        if found is None or scheme.lower() != b"bearer":
            return refusal(401, "invalid_api_key")
        return found[1]

    async def _supervised(
        self, scope: HTTPScope, receive: ASGIReceiveCallable, send: ASGISendCallable
    ) -> None:
        gateway = self.gateway
        assert gateway is not None, "the lifespan starts before requests come"
        headers = {name.lower(): value for name, value in scope["headers"]}
        given = headers.get(b"x-request-id", b"").decode("latin-1")
        request_id = given if is_stable_token(given) else gateway.world.new_id()
        caller = AsgiCaller(receive, send)
        refused = (
            refusal(400, "ambiguous_length")
            if _is_ambiguous(scope)
            else self._refused(scope, headers, gateway)
        )
        models = self.models_for(headers) if refused is None else None
        if isinstance(models, PublicError):
            refused, models = models, None
        if refused is not None:
            self.metrics.refused(refused)
            await _refuse(caller, refused, request_id, allow=_methods(scope["path"]))
            return
        length = headers.get(b"content-length")
        door = Door(
            exchange=request_id,
            models=models,
            content_type=headers.get(b"content-type", b"application/json"),
            content_length=int(length) if length else None,
            forwarded=[(name, value) for name, value in headers.items() if name in FORWARDED],
            endpoint=scope["path"],
            method=scope["method"],
            query=_query(scope).decode("ascii"),
            model=headers.get(MODEL_HEADER, b"").decode("utf-8", "replace"),
            explain=headers.get(EXPLAIN_HEADER, b"").strip() == b"1",
            idempotency=digest_of_key(headers.get(IDEMPOTENCY_HEADER, b"").strip()),
        )
        try:
            run = run_exchange if self.recorder is None else self.recorder.run
            outcome = await run(door, caller, gateway)
        except BudgetExceeded as error:
            refused = refusal(503, error.public_code)
            self.metrics.refused(refused)
            await _refuse(caller, refused, request_id)
            return
        left = outcome.kind is OutcomeKind.ABANDONED and outcome.code in LEFT
        if left or caller.ended or caller.aborted:
            return
        if caller.started:
            raise Unfinished(outcome.code)
        told = refusal(503, "shutdown") if outcome.code == "shutdown" else refusal(500, "internal_error")  # fmt: skip
        await _refuse(caller, told, request_id)

    def _refused(
        self, scope: HTTPScope, headers: Mapping[bytes, bytes], gateway: Gateway
    ) -> PublicError | None:
        """What the door refuses by headers alone."""
        refused = _refused_target(scope) or _refused_headers(headers)
        if refused is not None:
            return refused
        size = sum(len(name) + len(value) + 4 for name, value in scope["headers"])
        if size > self._header_bytes_max:
            return refusal(431, "headers_too_large")
        length = headers.get(b"content-length", b"0")
        if not length.isdigit() or int(length) > gateway.limits.body_bytes_max:
            return refusal(413, "body_too_large")
        if gateway.draining:
            return refusal(503, "draining", retry_after=DRAIN_RETRY_AFTER)
        return None


def _is_ours(scope: HTTPScope) -> bool:
    """Whether the request is supervised, or relayed. A path that is spelled in another way than it reads (escapes, dots) is nobody's: what the provider would make of it is not known."""
    path = scope["path"]
    if path in SUPERVISED:
        return True
    if path == MODELS or path.startswith(MODELS + "/") or not _RELAYED.fullmatch(path):
        return False
    spelled = scope["raw_path"] == path.encode("ascii")
    return spelled and not any(part.strip(".") == "" for part in path.split("/")[1:])


def _methods(path: str) -> Sequence[str]:
    """The methods that an endpoint knows. Of a supervised one everything but POST is relayed below it only."""
    return ("POST",) if path in SUPERVISED else RELAYED_METHODS


def _refused_target(scope: HTTPScope) -> PublicError | None:
    """What is refused by the request's first line."""
    if scope["method"] not in _methods(scope["path"]):
        return refusal(405, "method_not_allowed")
    return None if _QUERY.fullmatch(_query(scope)) else refusal(400, "invalid_query")


def _refused_headers(headers: Mapping[bytes, bytes]) -> PublicError | None:
    """What is refused by one of its header fields."""
    if headers.get(b"content-encoding", b"identity").strip().lower() not in {b"", b"identity"}:
        return refusal(415, "unsupported_encoding")
    if not _KEY.fullmatch(headers.get(IDEMPOTENCY_HEADER, b"none")):
        return refusal(400, "invalid_idempotency_key")
    return None


def _query(scope: HTTPScope) -> bytes:
    """What stands behind the question mark, where it goes on to the provider."""
    return b"" if scope["path"] in SUPERVISED else scope["query_string"]


def _is_ambiguous(scope: HTTPScope) -> bool:
    """Both lengths: a proxy in front may have believed the other one, and what follows would be a request that it never saw (RFC 9112, 6.1)."""
    names = {name.lower() for name, _ in scope["headers"]}
    return names >= {b"content-length", b"transfer-encoding"}


def _uninterrupted(send: ASGISendCallable) -> ASGISendCallable:
    """For an application that cancels itself when it hears that its response is over: the server says so from within the last `send`,
    and would then neither close the connection nor start its idle clock."""

    async def send_whole(message: ASGISendEvent) -> None:
        # Bounded by: the server's own write, which it shields as well.
        with trio.CancelScope(shield=True):
            await send(message)

    return send_whole


async def _refuse(
    caller: AsgiCaller, error: PublicError, request_id: str, *, allow: Sequence[str] = ()
) -> None:
    body = envelope(error)
    headers = [
        *error_headers(error),
        (b"content-length", str(len(body)).encode()),
        (b"x-request-id", request_id.encode()),
    ]
    if error.status == 405:
        headers.append((b"allow", ", ".join(allow).encode()))
    if error.status in {413, 431, 503} or error.code == "ambiguous_length":
        headers.append((b"connection", b"close"))
    await caller.start(error.status, headers)
    await caller.end(body)


def _load_from_environment() -> Loaded | None:
    return find_config(None, os.environ, Path.cwd())


app: Final = App(_load_from_environment)
