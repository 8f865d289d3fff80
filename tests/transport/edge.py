"""The whole edge on loopback sockets: the application under its server, callers in front, and the same as a process of its own."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any, Final, TextIO, cast

import h11
import httpx
import hypercorn.trio
import trio
from hypercorn.config import Config
from hypercorn.typing import ASGIReceiveCallable, ASGISendCallable, Framework, LifespanScope

from actors.context import Gateway
from tests.transport.servers import Handler, loopback
from transport.asgi import App
from transport.configfile import load_config

ROOT: Final = Path(__file__).resolve().parent.parent.parent
CHAT: Final = "/v1/chat/completions"
LIFESPAN: Final = cast(LifespanScope, {"type": "lifespan", "asgi": {"version": "3.0"}})
_BOUND: Final = "listening on http://"


Models = Mapping[str, str | Sequence[str]]
SMALL: Final[Models] = MappingProxyType({"small": "healthy"})


def write_config(
    folder: Path, base_url: str, models: Models = SMALL, *, tables: str = "", provider: str = ""
) -> Path:
    """A configuration file: one provider (`provider`: more of its keys), and aliases with the names that they have there, in order of preference."""
    lines = [tables, "[[providers]]", 'name = "local"', f'base_url = "{base_url}"', provider]
    for alias, names in models.items():
        chosen = [names] if isinstance(names, str) else names
        targets = [
            f'{{ provider = "local", model = "{name}", priority = {priority} }}'
            for priority, name in enumerate(chosen)
        ]
        lines += ["[[models]]", f'alias = "{alias}"', f"targets = [{', '.join(targets)}]"]
    path = folder / "edge.toml"
    path.write_text("\n".join(lines))
    return path


def question(model: str = "small", *, stream: bool = True, **members: object) -> bytes:
    """A chat request."""
    messages = [{"role": "user", "content": "Is the tide in?"}]
    return json.dumps({"model": model, "messages": messages, "stream": stream, **members}).encode()


async def eventually(holds: Callable[[], bool], *, within: float = 10.0) -> None:
    """Asks again and again: for what happens outside this event loop, or where nothing tells. `within` is for what never comes: no test says so how fast anything is."""
    with trio.fail_after(within):
        while not holds():  # noqa: ASYNC110 - nothing tells
            await trio.sleep(0.005)


def code_of(body: bytes) -> str:
    """The code of an error envelope, which has its four members and no other."""
    error = json.loads(body)["error"]
    assert error.keys() == {"message", "type", "param", "code"}
    assert error["message"]
    return str(error["code"])


@dataclass(frozen=True, slots=True)
class Edge:
    """An application that is being served."""

    app: App
    port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def gateway(self) -> Gateway:
        assert self.app.gateway is not None
        return self.app.gateway

    def client(self, **headers: str) -> httpx.AsyncClient:
        """An ordinary caller, with these headers on every request."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return httpx.AsyncClient(base_url=self.url, headers=named, trust_env=False, timeout=10)

    async def connect(self) -> trio.SocketStream:
        """A caller's bare connection."""
        return await trio.open_tcp_stream("127.0.0.1", self.port)


@asynccontextmanager
async def running_edge(
    path: Path,
    env: Mapping[str, str] | None = None,
    *,
    idle_seconds: float = 5.0,
    log_out: TextIO | None = None,
) -> AsyncIterator[Edge]:
    """The configuration at `path`, served on a free port, gone when left."""
    app = App(lambda: load_config(path, env or {}), owns_listener=True, log_out=log_out)
    config = Config()
    config.bind = ["127.0.0.1:0"]
    config.accesslog = config.errorlog = None
    config.keep_alive_timeout = idle_seconds
    config.h11_max_incomplete_size = 131_072
    async with trio.open_nursery() as nursery:
        serve = partial(hypercorn.trio.serve, cast(Framework, app), config)
        bound: list[str] = await nursery.start(serve)
        yield Edge(app, int(bound[0].rsplit(":", 1)[1]))
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def edge_before(
    handler: Handler,
    folder: Path,
    *,
    tables: str = "",
    provider: str = "",
    host: str = "127.0.0.1",
    log_out: TextIO | None = None,
) -> AsyncIterator[Edge]:
    """An edge whose one provider is `handler`, at `host`, on loopback."""
    shown = f"[{host}]" if ":" in host else host
    async with loopback(handler, host=host) as port:
        base_url = f"http://{shown}:{port}/v1"
        path = write_config(folder, base_url, tables=tables, provider=provider)
        async with running_edge(path, log_out=log_out) as edge:
            yield edge


async def settled(edge: Edge) -> None:
    """Until no exchange is open; then nothing is reserved either."""
    with trio.fail_after(10):
        await edge.gateway.open.wait_empty()
    assert edge.gateway.budget.used == 0


@dataclass(slots=True)
class Living:
    """What a lifespan has said so far."""

    said: list[dict[str, Any]] = field(default_factory=list)


@asynccontextmanager
async def lifespan(app: App) -> AsyncIterator[Living]:
    """The application between start and end, without a server; entered when it has answered the start."""
    living = Living()
    to_app, from_server = trio.open_memory_channel[Any](2)
    answered = trio.Event()

    async def send(message: Any) -> None:
        await trio.lowlevel.checkpoint()
        living.said.append(message)
        answered.set()

    async with trio.open_nursery() as nursery:
        receive = cast(ASGIReceiveCallable, from_server.receive)
        nursery.start_soon(app, LIFESPAN, receive, cast(ASGISendCallable, send))
        await to_app.send({"type": "lifespan.startup"})
        await answered.wait()
        yield living
        await to_app.send({"type": "lifespan.shutdown"})


@dataclass(frozen=True, slots=True)
class Answer:
    """What a bare connection got. `whole`: HTTP says that it is complete."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    whole: bool


def head(length: int | None = None, *fields: str, method: str = "POST", path: str = CHAT) -> bytes:
    """A request's head; without a length the body is chunked."""
    size = "transfer-encoding: chunked" if length is None else f"content-length: {length}"
    lines = [f"{method} {path} HTTP/1.1", "host: gate", size, *fields]
    return "\r\n".join([*lines, "", ""]).encode()


async def ask(edge: Edge, body: bytes, *fields: str, path: str = CHAT) -> Answer:
    """What a caller of its own connection gets for a chat request, or one to another `path`."""
    async with await edge.connect() as stream:
        await stream.send_all(head(len(body), *fields, path=path) + body)
        with trio.fail_after(5):
            return await read_answer(stream)


@asynccontextmanager
async def asking(
    port: int, body: bytes, *, narrow: bool = False
) -> AsyncIterator[trio.SocketStream]:
    """A caller's connection on which `body` has been sent. `narrow`: what it does not read stays below 100 kB, as on a slow network."""
    plain = socket.socket()
    if narrow:
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, 1_000)
    stream = trio.SocketStream(trio.socket.from_stdlib_socket(plain))
    async with stream:
        await stream.socket.connect(("127.0.0.1", port))
        await stream.send_all(head(len(body)) + body)
        yield stream


async def read_answer(stream: trio.SocketStream, *, method: str = "POST") -> Answer:
    """One response, up to its end or the connection's."""
    parser = h11.Connection(h11.CLIENT)
    parser.send(h11.Request(method=method, target="/", headers=[("host", "gate")]))
    parser.send(h11.EndOfMessage())
    start: h11.Response | None = None
    body = b""
    while True:
        try:
            event = parser.next_event()
            if event is h11.NEED_DATA:
                parser.receive_data(await stream.receive_some())
                continue
        except (h11.RemoteProtocolError, trio.BrokenResourceError):
            event = h11.ConnectionClosed()
        if isinstance(event, h11.InformationalResponse):
            continue
        if isinstance(event, h11.Response):
            start = event
        elif isinstance(event, h11.Data):
            body += event.data
        else:
            assert start is not None, "the connection ended without an answer"
            named = {name.decode(): value.decode() for name, value in start.headers}
            return Answer(start.status_code, named, body, isinstance(event, h11.EndOfMessage))


@dataclass(slots=True)
class Process:
    """The service as a process of its own."""

    popen: subprocess.Popen[bytes]
    port: int
    host: str
    out: IO[bytes]

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"

    def output(self) -> str:
        """Everything that it has written so far, on either stream."""
        self.out.seek(0)
        return self.out.read().decode()

    def log(self) -> list[dict[str, Any]]:
        """The lines of its log so far."""
        lines = [line for line in self.output().splitlines() if line.startswith("{")]
        return [json.loads(line) for line in lines]

    def rss_bytes(self) -> int:
        """Its resident memory."""
        status = Path(f"/proc/{self.popen.pid}/status").read_text()
        line = next(each for each in status.splitlines() if each.startswith("VmRSS"))
        return int(line.split()[1]) * 1024

    async def exit_code(self, *, within: float) -> int:
        """Waits for its end."""
        await eventually(lambda: self.popen.poll() is not None, within=within)
        return self.popen.returncode


@asynccontextmanager
async def running_process(
    *arguments: str,
    env: Mapping[str, str] | None = None,
    host: str = "127.0.0.1",
    port: int = 0,
    cwd: Path = ROOT,
) -> AsyncIterator[Process]:
    """`python -m ARGUMENTS`, ready when entered; killed when left, if it has not ended by then.

    Its port is read from what it prints, unless `port` says it.
    """
    variables = {**os.environ, "PYTHONPATH": str(ROOT), **(env or {})}
    with tempfile.TemporaryFile("a+b") as out:
        command = [sys.executable, "-m", *arguments]
        popen = subprocess.Popen(command, stdout=out, stderr=out, cwd=cwd, env=variables)  # noqa: ASYNC220, S603 - it returns at once, and the command is ours
        process = Process(popen, port, host, out)
        try:
            await _until_ready(process)
            yield process
        finally:
            popen.kill()
            popen.wait()


async def _until_ready(process: Process) -> None:
    with trio.fail_after(15):
        while not process.port:
            assert process.popen.poll() is None, process.output()
            text = process.output()
            if _BOUND in text:
                address = text.partition(_BOUND)[2].partition(";")[0]
                process.port = int(address.rsplit(":", 1)[1])
            await trio.sleep(0.02)
        async with httpx.AsyncClient(trust_env=False) as client:
            while not await _is_ready(client, process):
                assert process.popen.poll() is None, process.output()
                await trio.sleep(0.02)


async def _is_ready(client: httpx.AsyncClient, process: Process) -> bool:
    try:
        return (await client.get(f"{process.url}/readyz")).status_code == 200
    except httpx.TransportError:
        return False
