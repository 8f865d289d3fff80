"""`transport.serve`: the listener, callers that do not read, and the drain; as a process of its own where signals matter."""

from __future__ import annotations

import gc
import json
import signal
import socket
import ssl
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import httpx
import pytest
import trio
import trustme

from gate.config import ServerConfig
from ops.provider import RunningProvider, running_provider
from ops.provider_script import Attempt, Pace, Repeat, Script
from tests.transport.edge import (
    CHAT,
    ROOT,
    Answer,
    Models,
    Process,
    asking,
    code_of,
    eventually,
    question,
    read_answer,
    running_process,
    write_config,
)
from transport.configfile import load_config
from transport.serve import ListenFailed, open_listener, seldom_collected, serve

FAST: Final = Script(pace=Pace(chunk_ms=0))
BRISK: Final = Script(pace=Pace(chunk_ms=10))
SERVE: Final = ("ops", "serve", "--bind", "127.0.0.1:0", "--config")
MARKER: Final = "marker-7f3a"

# About 400 MB in events of 40 kB: more than any socket buffers hold.
_WORDS: Final = json.dumps(
    {"id": "c", "choices": [{"index": 0, "delta": {"content": "wave " * 8_000}}]}
)
FLOOD: Final = Script(attempts=(Attempt((Repeat(f"data: {_WORDS}\n\n".encode(), 10_000),)),))
FLOODED: Final = """
[[providers]]
name = "flood"
base_url = "{url}"
[routes.flood]
filters = ["empty"]  # a flood is a loop
[[models]]
alias = "flood"
route = "flood"
targets = [{{ provider = "flood", model = "flood" }}]
"""


async def median_seconds(url: str, times: int = 9) -> float:
    """How long a short stream takes another caller."""
    taken = []
    async with httpx.AsyncClient(base_url=url, trust_env=False) as client:
        for _ in range(times):
            began = trio.current_time()
            answer = await client.post(CHAT, content=question("small"))
            assert answer.content.endswith(b"[DONE]\n\n")
            taken.append(trio.current_time() - began)
    return sorted(taken)[times // 2]


# --- the listener --------------------------------------------------------------------------------


def test_the_listener_gives_every_connection_its_write_limit() -> None:
    """Accepted connections inherit it; the kernel counts in milliseconds."""
    listener = open_listener(ServerConfig(bind="127.0.0.1:0", caller_write_seconds=1.5))
    with listener, socket.create_connection(listener.getsockname()[:2]):
        accepted, _ = listener.accept()
        with accepted:
            limit = accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)
            no_delay = accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    assert limit == 1500
    assert no_delay


def test_an_address_that_is_taken_is_refused_with_its_name() -> None:
    """And the reason, in words."""
    with open_listener(ServerConfig(bind="127.0.0.1:0")) as taken:
        bind = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(ListenFailed, match=f"cannot listen on {bind}: Address already in use"):
            open_listener(ServerConfig(bind=bind))


@pytest.mark.skipif(not Path("/proc/net/if_inet6").exists(), reason="no IPv6 here")
def test_the_listener_speaks_ipv6() -> None:
    """In brackets, as in a URL."""
    with open_listener(ServerConfig(bind="[::1]:0")) as listener:
        assert listener.getsockname()[0] == "::1"


def test_garbage_is_collected_less_often_while_the_service_runs_and_only_then() -> None:
    """What was there before it is not looked at; a failure puts everything back, too."""
    before, frozen = gc.get_threshold(), gc.get_freeze_count()

    def fails() -> None:
        with seldom_collected():
            assert gc.isenabled()
            assert gc.get_threshold()[0] > before[0]
            assert gc.get_freeze_count() > frozen
            raise KeyError

    with pytest.raises(KeyError):
        fails()
    assert gc.get_threshold() == before
    assert gc.get_freeze_count() == 0


async def test_a_service_ends_when_its_scope_is_cancelled(tmp_path: Path) -> None:
    """And lets its address go."""
    path = write_config(tmp_path, "http://127.0.0.1:9/v1")
    loaded = load_config(path, {})
    listener = open_listener(ServerConfig(bind="127.0.0.1:0"))
    port = listener.getsockname()[1]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve, loaded, listener)
        async with httpx.AsyncClient(
            base_url=f"http://127.0.0.1:{port}", trust_env=False
        ) as client:
            assert (await client.get("/healthz")).status_code == 200
        nursery.cancel_scope.cancel()
    with pytest.raises(OSError, match="refused"), socket.create_connection(("127.0.0.1", port)):
        pass


async def test_a_service_with_nothing_open_ends_as_soon_as_it_is_told(tmp_path: Path) -> None:
    """The time to drain is for others; an idle connection is nobody's stream."""
    loaded = load_config(write_config(tmp_path, "http://127.0.0.1:9/v1"), {})
    listener = open_listener(ServerConfig(bind="127.0.0.1:0"))
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve, loaded, listener)
        async with httpx.AsyncClient(base_url=url, trust_env=False) as client:
            assert (await client.get("/readyz")).status_code == 200
            with trio.fail_after(10):
                signal.raise_signal(signal.SIGTERM)
                while nursery.child_tasks:  # noqa: ASYNC110 - nothing tells
                    await trio.sleep(0.005)


def certificate(folder: Path) -> tuple[ssl.SSLContext, str]:
    """What a caller trusts, and the `[server]` table of a service that has it."""
    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1")
    chain, key = folder / "chain.pem", folder / "key.pem"
    chain.write_bytes(b"".join(each.bytes() for each in issued.cert_chain_pems))
    issued.private_key_pem.write_to_path(str(key))
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)
    return trusting, f'[server]\ntls_cert = "{chain}"\ntls_key = "{key}"'


async def test_a_service_with_a_certificate_speaks_https(tmp_path: Path) -> None:
    """Streams like any other, and nothing to callers without TLS."""
    trusting, tables = certificate(tmp_path)
    async with running_provider(FAST) as provider, trio.open_nursery() as nursery:
        loaded = load_config(write_config(tmp_path, provider.base_url, tables=tables), {})
        listener = open_listener(ServerConfig(bind="127.0.0.1:0"))
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        nursery.start_soon(serve, loaded, listener)
        async with httpx.AsyncClient(verify=trusting, trust_env=False) as client:
            answer = await client.post(f"https://{address}{CHAT}", content=question())
            with pytest.raises(httpx.TransportError):
                await client.get(f"http://{address}/healthz")
        nursery.cancel_scope.cancel()
    assert answer.status_code == 200
    assert answer.content.endswith(b"data: [DONE]\n\n")


def test_a_certificate_that_can_not_be_used_is_refused_before_anything_is_served(
    tmp_path: Path,
) -> None:
    """A key that belongs to another certificate, and a file that is not there."""
    certificate(tmp_path)
    chain, other = str(tmp_path / "chain.pem"), tmp_path / "other.pem"
    trustme.CA().issue_cert("a").private_key_pem.write_to_path(str(other))
    for key in (str(other), str(tmp_path / "none.pem")):
        with pytest.raises(
            ListenFailed, match=r"cannot use server\.tls_cert with server\.tls_key: "
        ):
            open_listener(ServerConfig(bind="127.0.0.1:0", tls_cert=chain, tls_key=key))


# --- callers that do not read --------------------------------------------------------------------


@pytest.mark.e2e
async def test_a_caller_that_never_reads_harms_nobody_and_is_let_go(tmp_path: Path) -> None:
    """Others are served as fast as before, memory stays, the provider is held back, and after the write limit the caller is gone."""
    async with running_provider(FAST) as provider, running_provider(FLOOD) as flood:
        tables = "[server]\ncaller_write_seconds = 1.0\n" + FLOODED.format(url=flood.base_url)
        path = write_config(tmp_path, provider.base_url, tables=tables)
        async with running_process(*SERVE, str(path)) as process:
            alone = await median_seconds(process.url)
            before = process.rss_bytes()
            async with asking(process.port, question("flood"), narrow=True):
                began = trio.current_time()
                await flood.stats.wait_until(lambda: len(flood.requests) == 1)
                beside = await median_seconds(process.url)
                await trio.sleep(0.3)
                assert process.rss_bytes() - before < 24_000_000
                assert beside < 3 * alone + 0.5
                with trio.fail_after(10):
                    await flood.stats.wait_until(lambda: flood.open_connections == 0)
                assert 0.9 <= trio.current_time() - began <= 10.0
            await eventually(lambda: "caller_too_slow" in process.output())
            process.popen.send_signal(signal.SIGTERM)
            assert await process.exit_code(within=10) == 0
            [line] = [each for each in process.log() if each.get("code") == "caller_too_slow"]
            assert line["event"] == "exchange_ended"


# --- the drain -----------------------------------------------------------------------------------

PHASES: Final[Models] = {
    "small": "healthy",
    "stuck": "stall:3",
    "held": "role-then-silence",
    "mute": "no-answer",
}


@dataclass
class Drained:
    """What callers got while a process went down; `told`: the seconds until the last of those who read had an answer, `ended`: until its exit."""

    answers: dict[str, Answer]
    late: httpx.Response
    ready: httpx.Response
    told: float
    ended: float


async def drained(process: Process, provider: RunningProvider, flood: RunningProvider) -> Drained:
    """Four callers in flight and one that does not read, one SIGTERM, and two that come after it."""
    answers: dict[str, Answer] = {}

    async def call(name: str) -> None:
        async with asking(process.port, question(name)) as stream:
            answers[name] = await read_answer(stream)

    async with (
        asking(process.port, question("flood"), narrow=True),
        httpx.AsyncClient(base_url=process.url, trust_env=False) as client,
    ):
        async with trio.open_nursery() as nursery:
            for name in PHASES:
                nursery.start_soon(call, name)
            await provider.stats.wait_until(lambda: len(provider.requests) == len(PHASES))
            await flood.stats.wait_until(lambda: len(flood.requests) == 1)
            await trio.sleep(0.1)
            process.popen.send_signal(signal.SIGTERM)
            began = trio.current_time()
            ready = await _not_ready(client)
            late = await client.post(CHAT, content=question())
        told = trio.current_time() - began
        assert await process.exit_code(within=11) == 0
    return Drained(answers, late, ready, told, trio.current_time() - began)


async def _not_ready(client: httpx.AsyncClient) -> httpx.Response:
    """The first answer that takes the process out of a balancer."""
    with trio.fail_after(10):
        while True:
            answer = await client.get("/readyz")
            if answer.status_code != 200:
                return answer
            await trio.sleep(0.005)


@pytest.mark.e2e
@pytest.mark.slow
async def test_a_drain_lets_streams_finish_and_tells_the_rest_why(tmp_path: Path) -> None:
    """SIGTERM: a stream ends well, an open one in an error, held ones in a 503; new callers are sent away; one that does not read is left; exit 0."""
    server = "[server]\ndrain_seconds = 1.0\ncaller_write_seconds = 600.0"
    async with running_provider(BRISK) as provider, running_provider(FLOOD) as flood:
        tables = server + FLOODED.format(url=flood.base_url)
        path = write_config(tmp_path, provider.base_url, PHASES, tables=tables)
        async with running_process(*SERVE, str(path)) as process:
            seen = await drained(process, provider, flood)
            [line] = [each for each in process.log() if each["event"].startswith("exit with")]
    whole, stuck = seen.answers["small"], seen.answers["stuck"]
    assert (whole.status, whole.whole) == (200, True)
    assert whole.body.endswith(b"data: [DONE]\n\n")
    assert (stuck.status, stuck.whole) == (200, True)
    last = stuck.body.rstrip().rpartition(b"\n\n")[2]
    assert code_of(last.removeprefix(b"data: ")) == "shutdown"
    assert b"[DONE]" not in stuck.body
    for held in (seen.answers["held"], seen.answers["mute"]):
        assert (held.status, code_of(held.body)) == (503, "shutdown")
        assert held.headers["connection"] == "close"
        assert held.headers["retry-after"]
    assert (seen.late.status_code, code_of(seen.late.content)) == (503, "draining")
    assert seen.late.headers["retry-after"]
    assert seen.late.headers["connection"] == "close"
    assert (seen.ready.status_code, code_of(seen.ready.content)) == (503, "draining")
    assert 0.9 <= seen.told <= 5.0
    assert seen.ended <= 1.0 + 10.0
    assert line["count"] == 1


@pytest.mark.e2e
async def test_a_second_signal_ends_the_process_at_once(tmp_path: Path) -> None:
    """Whatever is still open, and however long the drain was to be."""
    async with running_provider(BRISK) as provider:
        path = write_config(
            tmp_path, provider.base_url, PHASES, tables="[server]\ndrain_seconds = 60.0"
        )
        async with (
            running_process(*SERVE, str(path)) as process,
            asking(process.port, question("stuck")) as stream,
            httpx.AsyncClient(base_url=process.url, trust_env=False) as client,
        ):
            assert b" 200 " in await stream.receive_some()
            process.popen.send_signal(signal.SIGINT)
            await _not_ready(client)
            assert process.popen.poll() is None
            process.popen.send_signal(signal.SIGTERM)
            assert await process.exit_code(within=10) == 0
            [line] = [each for each in process.log() if each["event"].startswith("exit with")]
            assert line["count"] == 1


@pytest.mark.e2e
async def test_callers_in_the_queue_are_sent_away_when_the_drain_begins(tmp_path: Path) -> None:
    """They have no answer to lose, and another instance can take them now."""
    tables = "[server]\ndrain_seconds = 60.0\n[limits]\nexchanges_max = 1\nqueue_seconds_max = 60.0"
    async with running_provider(BRISK) as provider:
        path = write_config(tmp_path, provider.base_url, PHASES, tables=tables)
        async with (
            running_process(*SERVE, str(path)) as process,
            asking(process.port, question("stuck")) as stream,
        ):
            assert b" 200 " in await stream.receive_some()
            async with asking(process.port, question("small")) as queued:
                await trio.sleep(0.2)
                process.popen.send_signal(signal.SIGTERM)
                with trio.fail_after(10):
                    answer = await read_answer(queued)
    assert (answer.status, code_of(answer.body)) == (503, "draining")
    assert answer.headers["retry-after"]
    assert answer.headers["connection"] == "close"


# --- under another server, and what is written down ----------------------------------------------


def free_port() -> int:
    """A port that nobody listens on just now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.mark.e2e
async def test_plain_hypercorn_serves_the_application(tmp_path: Path) -> None:
    """With a warning about the write limit that it does not have."""
    port = free_port()
    async with running_provider(FAST) as provider:
        env = {"TIDEGATE_CONFIG": str(write_config(tmp_path, provider.base_url))}
        command = ("hypercorn", "-k", "trio", "-b", f"127.0.0.1:{port}", "transport.asgi:app")
        async with (
            running_process(*command, env=env, port=port) as process,
            httpx.AsyncClient(base_url=process.url, trust_env=False) as client,
        ):
            answer = await client.post(CHAT, content=question())
            assert answer.content.endswith(b"data: [DONE]\n\n")
            await eventually(lambda: "no write limit" in process.output())
            [line] = [each for each in process.log() if each["event"].startswith("no write limit")]
            assert line["level"] == "warning"
            process.popen.send_signal(signal.SIGTERM)
            await process.exit_code(within=5)


@pytest.mark.e2e
async def test_plain_hypercorn_says_what_is_wrong_with_the_configuration(tmp_path: Path) -> None:
    """With the path of the error, and it does not go on without a configuration."""
    path = write_config(tmp_path, "http://127.0.0.1:9/v1", tables="[server]\nlocla = 1")
    command = ["hypercorn", "-k", "trio", "-b", "127.0.0.1:0", "transport.asgi:app"]
    with trio.fail_after(10):
        ended = await trio.run_process(
            [sys.executable, "-m", *command],
            check=False,
            capture_stdout=True,
            capture_stderr=True,
            env={"TIDEGATE_CONFIG": str(path)},
            cwd=ROOT,
        )
    assert b"server.locla: unknown key" in ended.stderr


@pytest.mark.e2e
async def test_no_prompt_key_or_provider_text_gets_into_the_log(tmp_path: Path) -> None:
    """However the exchange ends, and on whichever of the two streams of output."""
    leak = json.dumps({"error": {"message": MARKER, "code": MARKER + "!", "type": "x"}}).encode()
    attempts = (
        Attempt((Repeat(leak, 1),), status=400),
        Attempt((Repeat(leak, 1),), status=500),
        Attempt((Repeat(b"data: " + leak + b"\n\n", 1),)),
        Attempt((Repeat(MARKER.encode(), 1),), headers=(("content-type", "text/html"),)),
    )
    tables = (
        '[[keys]]\nname = "a"\nkey_env = "CALLER"\n[routes.default.recovery]\nbackoff_seconds = 0.0'
    )
    prompt = [{"role": "user", "content": MARKER}]
    env = {"CALLER": f"sk-{MARKER}", "UPSTREAM": f"up-{MARKER}"}
    async with running_provider(Script(attempts=attempts)) as provider:
        path = write_config(tmp_path, provider.base_url, {MARKER: MARKER}, tables=tables)
        keyed = path.read_text().replace("base_url", 'api_key_env = "UPSTREAM"\nbase_url')
        path.write_text(keyed)
        async with (
            running_process(*SERVE, str(path), env=env) as process,
            httpx.AsyncClient(base_url=process.url, trust_env=False) as client,
        ):
            answers = [
                await client.post(
                    CHAT,
                    content=question(MARKER, messages=prompt, note=MARKER),
                    headers={"authorization": f"Bearer {key}", "x-request-id": f"{MARKER} ?"},
                )
                for key in (f"sk-{MARKER}", f"sk-{MARKER}", f"wrong-{MARKER}")
            ]
            assert [answer.status_code for answer in answers] == [400, 502, 401]
            process.popen.send_signal(signal.SIGTERM)
            assert await process.exit_code(within=10) == 0
            ended = [line for line in process.log() if line["event"] == "exchange_ended"]
            logged = process.output().partition('"event": "configuration"')[2]
    assert len(ended) == 2
    assert "exchange_ended" in logged
    assert MARKER not in logged
    assert all(MARKER not in answer.text for answer in answers)
