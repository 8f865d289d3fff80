"""The scriptable loopback provider: a fake LLM server on sockets, with every fault on demand.

It speaks enough of OpenAI's API for any client: ``POST /v1/chat/completions``, ``POST /v1/responses``,
``GET /v1/models`` and ``GET /healthz``; anything else is a 404. What is answered is decided
without I/O: from the model name by `ops.provider_answers`, or from a script file by
`ops.provider_script`, which then answers every POST.
"""

from __future__ import annotations

import signal
import sys
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import msgspec
import trio

from ops.chaos.faults import CATALOGUE, script_named
from ops.provider_answers import Fault, answer_steps, behaviour_of, error_steps, json_steps
from ops.provider_chat import CREATED, Chat, InvalidChat, read_chat
from ops.provider_connection import ClosedEarly, Connection, RecordedRequest, Stats
from ops.provider_responses import read_responses
from ops.provider_script import Script, ScriptError, Step, load_script

CONNECTIONS_MAX: Final = 1_000
COUNTED_MODELS_MAX: Final = 1_000
PORT_MAX: Final = 65_535


async def serve_provider(
    listener: trio.SocketListener | Sequence[trio.SocketListener],
    script: Script,
    *,
    stats: Stats | None = None,
) -> None:
    """Answer on the listener, or on all of them, until cancelled. Without `stats` nothing is kept.

    A connection above CONNECTIONS_MAX is closed at once, unanswered.
    """
    listeners = [listener] if isinstance(listener, trio.SocketListener) else [*listener]
    desk = _Desk(script)
    kept = Stats(requests_kept_max=0) if stats is None else stats

    async def serve(stream: trio.SocketStream) -> None:
        if kept.open_connections < CONNECTIONS_MAX:
            await Connection(stream, desk.steps_for, kept).serve()

    await trio.serve_listeners(serve, listeners)


@dataclass(frozen=True, slots=True)
class RunningProvider:
    """A provider that answers on a loopback port of its own."""

    address: tuple[str, int]
    stats: Stats

    @property
    def base_url(self) -> str:
        """The base URL for an OpenAI client."""
        host, port = self.address
        return f"http://{host}:{port}/v1"

    @property
    def requests(self) -> Sequence[RecordedRequest]:
        """The requests received, the oldest first."""
        return self.stats.requests

    @property
    def open_connections(self) -> int:
        """How many connections are open now."""
        return self.stats.open_connections

    @property
    def closed_early(self) -> Sequence[ClosedEarly]:
        """The answers whose peer left before their end."""
        return self.stats.closed_early


@asynccontextmanager
async def running_provider(script: Script | None = None) -> AsyncIterator[RunningProvider]:
    """A provider on a free loopback port, ready when entered, gone when left."""
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    stats = Stats()
    host, port = listeners[0].socket.getsockname()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(serve_provider, listeners, script or Script(), stats=stats))
        yield RunningProvider((host, port), stats)
        nursery.cancel_scope.cancel()


async def run_provider(bind: str, script: str | None) -> None:
    """Serve on `bind` (HOST:PORT) until SIGINT or SIGTERM. `script`: the name of a fault of the catalogue, or else a file.

    Raises SystemExit(2), after a message on stderr, for a bad script or an unusable address.
    """
    try:
        plan = Script() if script is None else _plan(script)
        host, port = _host_and_port(bind)
        listeners = await trio.open_tcp_listeners(port, host=host)
    except (ScriptError, _BadBind) as error:
        raise _usage_error(str(error)) from None
    except OSError as error:
        raise _usage_error(f"cannot listen on {bind}: {error}") from None
    port = listeners[0].socket.getsockname()[1]
    shown = f"[{host}]" if ":" in host else host
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(serve_provider, listeners, plan)
            print(f"listening on http://{shown}:{port}/v1", flush=True)
            async for _ in signals:
                nursery.cancel_scope.cancel()


def _plan(script: str) -> Script:
    named = script_named(script)
    if named is None and not Path(script).exists():
        names = ", ".join(row.name for row in CATALOGUE)
        raise ScriptError(
            f"{script}: neither a file nor a fault of the catalogue; there are {names}"
        )
    return named or load_script(Path(script))


class _BadBind(ValueError):
    """An address that is not HOST:PORT."""


def _host_and_port(bind: str) -> tuple[str, int]:
    host, _, port = bind.rpartition(":")
    if not host or not port.isdecimal() or int(port) > PORT_MAX:
        raise _BadBind(f"{bind!r} is not HOST:PORT")
    return host.removeprefix("[").removesuffix("]"), int(port)


def _usage_error(message: str) -> SystemExit:
    print(message, file=sys.stderr)
    return SystemExit(2)


class _Desk:
    """Decides what each request gets: the script in order of arrival, else the model name."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self._serial = 0
        self._earlier: OrderedDict[str, int] = OrderedDict()

    def steps_for(self, request: RecordedRequest) -> Iterator[Step]:
        """The answer to `request`."""
        attempts = self._script.attempts
        if request.method == "POST" and attempts:
            self._serial += 1
            return attempts[min(self._serial, len(attempts)) - 1].play_list()
        match request.method, request.target.partition("?")[0]:
            case "POST", "/v1/chat/completions":
                return self._answer(request.body, lambda body, n: read_chat(body, serial=n))
            case "POST", "/v1/responses":
                return self._answer(request.body, lambda body, n: read_responses(body, serial=n))
            case "GET", "/v1/models":
                return json_steps(200, _models())
            case "GET", "/healthz":
                return json_steps(200, b'{"status":"ok"}')
            case _:
                return error_steps(404, "not_found", "There is no such route.")

    def _answer(self, body: bytes, read: Callable[[bytes, int], Chat]) -> Iterator[Step]:
        self._serial += 1
        try:
            chat = read(body, self._serial)
        except InvalidChat as error:
            return error_steps(400, "invalid_body", str(error))
        behaviour = behaviour_of(chat.model)
        if behaviour.first is not None:
            behaviour = behaviour.at(self._count(chat.model))
        return answer_steps(chat, behaviour, pace=self._script.pace)

    def _count(self, model: str) -> int:
        earlier = self._earlier.pop(model, 0)
        self._earlier[model] = earlier + 1
        if len(self._earlier) > COUNTED_MODELS_MAX:
            self._earlier.popitem(last=False)
        return earlier


def _models() -> bytes:
    models = [
        {"id": each.value, "object": "model", "created": CREATED, "owned_by": "tidegate"}
        for each in Fault
    ]
    return msgspec.json.encode({"object": "list", "data": models})
