"""The service: our own listener, Hypercorn inside our own `trio.run`, signals, and the drain.

The listener is ours because of one socket option: under Hypercorn a write to a caller that does not read can't be cancelled, and the kernel's
`TCP_USER_TIMEOUT`, inherited by accepted connections, is what ends it (`caller_write_seconds`). A send buffer of a size of our own is not
needed: trio keeps at most 16 KiB unsent on a connection (`TCP_NOTSENT_LOWAT`), so that a write to such a caller waits almost from the start.

SIGTERM or SIGINT: readiness and door say 503, exchanges in flight go on; at `drain_seconds` those left send their terminal; two seconds later
the server is told to stop, with three more for what it is still writing; what hangs after that can only be a write to a caller that does not
read, and the process exits. A second signal goes straight there.
"""

from __future__ import annotations

import gc
import os
import signal
import socket
import ssl
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, cast

import hypercorn.trio
import trio
from hypercorn.config import Config
from hypercorn.typing import Framework
from hypercorn.utils import LifespanFailureError

from actors.context import Gateway
from gate.config import ServerConfig
from gate.config_rules import parse_bind
from transport.asgi import App
from transport.configfile import Loaded
from transport.quick_send import quick_send

__all__ = [
    "GRACEFUL_SECONDS",
    "ListenFailed",
    "drain",
    "open_listener",
    "seldom_collected",
    "serve",
    "serve_app",
    "serve_until",
    "server_config",
]

FAREWELL_SECONDS: Final = 2.0  # for terminals to be written once the drain is over
GRACEFUL_SECONDS: Final = 3.0  # Hypercorn's own, for what it still writes
BACKLOG: Final = 4096
KEEP_ALIVE_SECONDS: Final = (
    75.0  # longer than the pools of common clients and balancers keep a connection
)
REQUESTS_PER_CONNECTION: Final = 1_000_000_000
YOUNG_OBJECTS_MAX: Final = (
    10_000  # more than at the last collection, before the next; Python's own is 700
)


class ListenFailed(Exception):
    """The address can't be listened on, or nothing could answer there."""


def open_listener(server: ServerConfig) -> socket.socket:
    """A listening socket at `server.bind`. Raises `ListenFailed`, for a certificate that can't be used as well."""
    if server.tls_cert:
        _check_certificate(server)
    host, port = parse_bind(server.bind)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            milliseconds = int(server.caller_write_seconds * 1000)
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, milliseconds)
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise ListenFailed(f"cannot listen on {server.bind}: {error.strerror or error}") from error
    return listener


def _check_certificate(server: ServerConfig) -> None:
    """Fails at the start, with a sentence, rather than inside the server."""
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(server.tls_cert, server.tls_key)
    except (OSError, ssl.SSLError) as error:
        reason = error.strerror or str(error)
        raise ListenFailed(f"cannot use server.tls_cert with server.tls_key: {reason}") from error


def server_config(loaded: Loaded) -> Config:
    """How Hypercorn serves us, whatever the address."""
    config = Config()
    config.accesslog = None
    config.loglevel = "WARNING"
    config.include_server_header = False
    config.graceful_timeout = GRACEFUL_SECONDS
    config.keep_alive_timeout = KEEP_ALIVE_SECONDS
    config.keep_alive_max_requests = REQUESTS_PER_CONNECTION
    config.backlog = BACKLOG
    server = loaded.config.server
    if server.tls_cert:
        config.certfile, config.keyfile = server.tls_cert, server.tls_key
    config.h11_max_incomplete_size = loaded.config.limits.header_bytes_max + 8192
    return config


async def serve(loaded: Loaded, listener: socket.socket) -> None:
    """Serves until a signal ends it, or the surrounding scope is cancelled. Takes the listener over."""
    application = App(lambda: loaded, owns_listener=True)
    with seldom_collected():
        await serve_app(application, loaded, listener)


async def serve_app(
    application: App,
    loaded: Loaded,
    listener: socket.socket,
    *,
    hangs: Callable[[App], None] | None = None,
) -> None:
    """Serves this application until a signal ends it, or the surrounding scope is cancelled. Takes the listener over. `hangs`: what is done when it does not come to an end; left out, the process exits."""
    stop, drain_seconds = trio.Event(), loaded.config.server.drain_seconds
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_drain_at_signal, application, drain_seconds, stop, hangs or _exit_now)
        await serve_until(stop, application, loaded, listener)
        nursery.cancel_scope.cancel()


@contextmanager
def seldom_collected() -> Iterator[None]:
    """Garbage in cycles waits a little longer, and what the start has made is not looked at again.

    An open stream is some hundred objects in cycles that live; looked through at Python's own pace they cost every stream an eighth of its CPU time where 300 are open, and more where more are.
    """
    before = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS_MAX, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


async def serve_until(
    stop: trio.Event, application: App, loaded: Loaded, listener: socket.socket
) -> None:
    """Serves until `stop`, or the surrounding scope is cancelled; signals are somebody else's. Takes the listener over."""
    config = server_config(loaded)
    config.bind = [f"fd://{listener.fileno()}"]
    listener.detach()  # Hypercorn makes a socket of its own from the number, and closes it
    with quick_send():
        try:
            await hypercorn.trio.serve(
                cast(Framework, application), config, shutdown_trigger=stop.wait
            )
        except* LifespanFailureError as group:
            raise ListenFailed("the gateway could not start; the log says why") from group


async def _drain_at_signal(
    application: App, drain_seconds: float, stop: trio.Event, hangs: Callable[[App], None]
) -> None:
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        await anext(signals)
        gateway = application.gateway
        if gateway is not None and await _second_signal(signals, gateway, drain_seconds):
            hangs(application)
        stop.set()
        with trio.move_on_after(GRACEFUL_SECONDS + FAREWELL_SECONDS):
            await anext(signals)
        hangs(application)


async def _second_signal(signals: Any, gateway: Gateway, drain_seconds: float) -> bool:
    """Drains; whether a second signal cut it short."""
    async with trio.open_nursery() as nursery:
        again = _Again()
        nursery.start_soon(again.watch, signals, nursery.cancel_scope)
        await drain(gateway, drain_seconds)
        nursery.cancel_scope.cancel()
    return again.came


async def drain(gateway: Gateway, drain_seconds: float) -> None:
    """Nothing new is taken; what is in flight goes on for so long, and then sends its terminal. Over when all is, or a little later."""
    gateway.draining = True
    gateway.dispatch.drain(trio.current_time() + drain_seconds)
    with trio.move_on_after(drain_seconds):
        await gateway.open.wait_empty()
    gateway.open.shut_down()
    with trio.move_on_after(FAREWELL_SECONDS):
        await gateway.open.wait_empty()


class _Again:
    """Whether a signal came once more."""

    def __init__(self) -> None:
        self.came = False

    async def watch(self, signals: Any, scope: trio.CancelScope) -> None:
        await anext(signals)
        self.came = True
        scope.cancel()


def _exit_now(application: App) -> None:
    """What still hangs can only be a write to a caller that does not read; the log says how many."""
    if application.gateway is not None and application.log is not None:
        left = len(application.gateway.open)
        application.log.say("warning", "exit with exchanges open", count=left)
        application.log.close()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
