"""The provider over real loopback sockets, as a raw client and an HTTP library see it."""

from __future__ import annotations

import json
import os
import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import h11
import httpx
import pytest
import trio

from ops import provider
from ops.chaos.faults import script_named
from ops.provider import RunningProvider, run_provider, running_provider, serve_provider
from ops.provider_answers import Fault
from ops.provider_chat import read_chat
from ops.provider_script import Attempt, Ending, Pace, Repeat, Script, Sleep, Write

if TYPE_CHECKING:
    from pathlib import Path

FAST: Final = Script(pace=Pace(chunk_ms=0, slow_ms=60))
SILENCE_SECONDS: Final = 0.1
QUESTION: Final = [{"role": "user", "content": "Is the tide in?"}]
PATH: Final = "/v1/chat/completions"


def body(model: str = "healthy", *, stream: bool = True, **more: object) -> bytes:
    """A chat completion request."""
    return json.dumps({"model": model, "messages": QUESTION, "stream": stream, **more}).encode()


TEXT: Final = read_chat(body(), serial=1).text()


@dataclass(frozen=True)
class Seen:
    """What a raw client saw: status 0 without a head, and `end` as a word."""

    status: int
    headers: dict[str, str]
    body: bytes
    end: str  # complete | cut | reset | silent
    raw: bytes

    @property
    def text(self) -> str:
        """The text of the whole events of the stream."""
        events = [each for each in self.body.split(b"\n\n") if each.startswith(b"data: {")]
        choices = [choice for each in events for choice in json.loads(each[6:])["choices"]]
        return "".join(each["delta"].get("content", "") for each in choices)


async def read_to_the_end(stream: trio.SocketStream) -> tuple[bytes, str]:
    """All bytes, and how they stopped coming."""
    received = bytearray()
    with trio.move_on_after(SILENCE_SECONDS) as silence:
        try:
            while data := await stream.receive_some():
                received += data
                silence.deadline = trio.current_time() + SILENCE_SECONDS
        except trio.BrokenResourceError:
            return bytes(received), "reset"
    return bytes(received), "silent" if silence.cancelled_caught else "cut"


async def ask(running: RunningProvider, content: bytes, *, path: str = PATH) -> Seen:
    """Send one request on a connection of its own, and read what comes."""
    head = f"POST {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {len(content)}"
    async with await trio.open_tcp_stream(*running.address) as stream:
        await stream.send_all(head.encode() + b"\r\n\r\n" + content)
        raw, end = await read_to_the_end(stream)
    status, headers, received = 0, {}, bytearray()
    if raw.startswith(b"HTTP/"):
        parser = h11.Connection(h11.CLIENT)
        parser.send(h11.Request(method="POST", target=path, headers=[("host", "x")]))
        parser.send(h11.EndOfMessage())
        parser.receive_data(raw)
        while isinstance(event := parser.next_event(), h11.Response | h11.Data):
            if isinstance(event, h11.Data):
                received += event.data
                continue
            status = event.status_code
            headers = {name.decode(): value.decode() for name, value in event.headers}
        if isinstance(event, h11.EndOfMessage):
            end = "complete"
    return Seen(status, headers, bytes(received), end, raw)


async def test_a_healthy_stream_assembles() -> None:
    """An HTTP library sees a stream of events, and the text is the one expected."""
    async with running_provider(FAST) as running, httpx.AsyncClient() as client:
        url = f"{running.base_url}/chat/completions"
        async with client.stream("POST", url, content=body()) as answer:
            lines = [line async for line in answer.aiter_lines() if line]
    assert answer.headers["content-type"] == "text/event-stream"
    assert lines[-1] == "data: [DONE]"
    deltas = [json.loads(line[6:])["choices"][0]["delta"] for line in lines[:-1]]
    assert "".join(delta.get("content", "") for delta in deltas) == TEXT


async def test_a_whole_answer_is_json() -> None:
    """The same text in one piece, with usage."""
    async with running_provider(FAST) as running, httpx.AsyncClient() as client:
        url = f"{running.base_url}/chat/completions"
        answer: dict[str, Any] = (await client.post(url, content=body(stream=False))).json()
    assert answer["choices"][0]["message"] == {"role": "assistant", "content": TEXT}
    assert answer["usage"]["completion_tokens"] == len(TEXT.split())


async def test_gzip_is_inflated_by_an_ordinary_client() -> None:
    """It comes even to one who did not ask for it."""
    async with running_provider(FAST) as running, httpx.AsyncClient() as client:
        answer = await client.post(
            f"{running.base_url}/chat/completions",
            content=body("gzip"),
            headers={"accept-encoding": "identity"},
        )
    assert answer.headers["content-encoding"] == "gzip"
    assert answer.text.endswith("data: [DONE]\n\n")


@pytest.mark.parametrize(
    ("model", "end", "text"),
    [
        ("stall:2", "silent", "You asked:"),
        ("cut:2", "cut", "You asked:"),
        ("reset:2", "reset", "You asked:"),
        ("clean-cut:2", "complete", "You asked:"),
        ("role-then-silence", "silent", ""),
        ("empty", "complete", ""),
        ("no-done", "complete", TEXT),
        ("length:2", "complete", "You asked:"),
        ("slow-first", "complete", TEXT),
        ("loop:3", "complete", " The gate opens"),
    ],
)
async def test_a_stream_ends_as_the_model_name_says(model: str, end: str, text: str) -> None:
    """The transport does what the name promises, after the words it promises."""
    async with running_provider(FAST) as running:
        seen = await ask(running, body(model))
    assert (seen.status, seen.end, seen.text) == (200, end, text)


@pytest.mark.parametrize("model", ["cut", "reset", "stall"])
async def test_a_body_that_breaks_is_shorter_than_promised(model: str) -> None:
    """Without a stream the same faults hit the JSON body."""
    async with running_provider(FAST) as running:
        seen = await ask(running, body(model, stream=False))
    assert seen.end == {"cut": "cut", "reset": "reset", "stall": "silent"}[model]
    assert 0 < len(seen.body) < int(seen.headers["content-length"])


@pytest.mark.parametrize("fault", [each for each in Fault if each.value.isdecimal()])
async def test_a_status_is_answered_with_its_envelope(fault: Fault) -> None:
    """The name of the model is the status."""
    async with running_provider(FAST) as running:
        seen = await ask(running, body(fault.value))
    assert (seen.status, seen.end) == (int(fault.value), "complete")
    assert set(json.loads(seen.body)["error"]) == {"message", "type", "param", "code"}


async def test_a_drip_comes_byte_by_byte() -> None:
    """Each byte is a chunk of its own."""
    async with running_provider(FAST) as running:
        seen = await ask(running, body("drip", max_tokens=2))
    assert seen.text == "You asked:"
    assert seen.raw.count(b"\r\n1\r\n") == len(seen.body)


async def test_no_answer_is_a_connection_and_nothing_else() -> None:
    """Not even a status comes."""
    async with running_provider(FAST) as running:
        assert (await ask(running, body("no-answer"))).raw == b""
        await running.stats.wait_until(lambda: running.open_connections == 0)
        assert len(running.closed_early) == 1


async def test_long_gaps_come_between_words() -> None:
    """The pace is that of the script."""
    async with running_provider(FAST) as running:
        start = trio.current_time()
        await ask(running, body("slow", max_tokens=2))
        assert trio.current_time() - start >= 0.12


async def test_a_fault_can_hit_the_first_requests_for_a_model_only() -> None:
    """Other names are counted apart."""
    async with running_provider(FAST) as running:
        models = ["cut:1@1", "503@1", "cut:1@1", "503@1", "healthy"]
        seen = [await ask(running, body(model)) for model in models]
    assert [each.status for each in seen] == [200, 503, 200, 200, 200]
    assert [each.end for each in seen] == ["cut", "complete", "complete", "complete", "complete"]


async def test_the_counted_models_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one that was asked for the longest ago is forgotten."""
    monkeypatch.setattr(provider, "COUNTED_MODELS_MAX", 1)
    async with running_provider(FAST) as running:
        models = ["503@1", "500@1", "503@1"]
        assert [(await ask(running, body(each))).status for each in models] == [503, 500, 503]


async def test_requests_are_recorded_as_they_arrived() -> None:
    """Head, body and the number of the connection, even where the answer is an error."""
    async with running_provider(FAST) as running:
        await ask(running, body("503"))
        seen = await ask(running, b"{}")
        first, second = running.requests
    assert (first.method, first.target, first.connection) == ("POST", PATH, 1)
    assert (first.body, first.header("host")) == (body("503"), "x")
    assert (second.connection, seen.status) == (2, 400)
    assert "`model`" in json.loads(seen.body)["error"]["message"]


async def test_the_models_are_the_faults() -> None:
    """A person can ask which there are; anything else is not found."""
    async with running_provider() as running, httpx.AsyncClient() as client:
        models = (await client.get(f"{running.base_url}/models")).json()
        assert [each["id"] for each in models["data"]] == [each.value for each in Fault]
        root = running.base_url.removesuffix("/v1")
        assert (await client.get(f"{root}/healthz")).status_code == 200
        absent = await client.get(f"{root}/v1/absent")
        assert (absent.status_code, absent.json()["error"]["code"]) == (404, "not_found")
        assert (await client.head(f"{root}/healthz")).status_code == 404
        moved = await client.post(f"{running.base_url}/chat/completions", content=body("redirect"))
        assert (moved.status_code, moved.headers["location"]) == (307, f"/v1/moved{PATH[3:]}")


async def test_a_script_plays_its_attempts_in_order_of_arrival() -> None:
    """Whatever the route; the last attempt repeats."""
    script = Script(
        attempts=(
            Attempt(status=503, headers=(("retry-after", "1"),), steps=(Write(b"{}"),)),
            Attempt(steps=(Write(b"data: 1\n\n"), Sleep(5), Repeat(b"!", 3, 1), Ending.CUT)),
            Attempt(status=0, steps=(Write(b"SSH-2.0\r\n"), Ending.RESET)),
            Attempt(raw=True, steps=(Write(b"unframed"),)),
        )
    )
    async with running_provider(script) as running:
        seen = [await ask(running, b"", path="/v1/responses") for _ in range(5)]
        assert (await ask(running, b"")).raw == seen[3].raw
    assert (seen[0].status, seen[0].headers["retry-after"], seen[0].body) == (503, "1", b"{}")
    assert (seen[1].body, seen[1].end) == (b"data: 1\n\n!!!", "cut")
    assert (seen[2].raw, seen[2].end) == (b"SSH-2.0\r\n", "reset")
    assert (seen[3].body, seen[3].end) == (b"unframed", "cut")
    assert seen[4].raw == seen[3].raw


async def test_connections_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """One too many is closed at once, and the others live on."""
    monkeypatch.setattr(provider, "CONNECTIONS_MAX", 1)
    async with running_provider(FAST) as running:
        async with await trio.open_tcp_stream(*running.address):
            await running.stats.wait_until(lambda: running.open_connections == 1)
            assert (await ask(running, body())).status == 0
        await running.stats.wait_until(lambda: running.open_connections == 0)
        assert (await ask(running, body())).status == 200


async def test_one_listener_is_enough() -> None:
    """Without stats nothing is kept."""
    [listener] = await trio.open_tcp_listeners(0, host="127.0.0.1")
    host, port = listener.socket.getsockname()
    async with trio.open_nursery() as nursery, httpx.AsyncClient() as client:
        nursery.start_soon(serve_provider, listener, FAST)
        assert (await client.get(f"http://{host}:{port}/healthz")).json() == {"status": "ok"}
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]"])
async def test_the_command_says_where_it_listens_and_ends_on_a_signal(
    capsys: pytest.CaptureFixture[str], host: str
) -> None:
    """Port 0 is any free port; the line is printed when connections are taken."""
    printed = ""
    async with trio.open_nursery() as nursery, httpx.AsyncClient() as client:
        nursery.start_soon(run_provider, f"{host}:0", None)
        with trio.fail_after(10):
            while "\n" not in printed:
                await trio.sleep(0.005)
                printed += capsys.readouterr().out
        assert printed.startswith(f"listening on http://{host}:")
        models = await client.get(f"{printed.split()[-1]}/models")
        assert models.status_code == 200
        os.kill(os.getpid(), signal.SIGTERM)


@pytest.mark.parametrize("bind", ["8080", ":8080", "localhost:", "localhost:99999", "x:y"])
async def test_a_bad_address_is_bad_usage(capsys: pytest.CaptureFixture[str], bind: str) -> None:
    """Exit code 2 and one line, no traceback."""
    with pytest.raises(SystemExit) as caught:
        await run_provider(bind, None)
    assert caught.value.code == 2
    assert capsys.readouterr().err == f"{bind!r} is not HOST:PORT\n"


async def test_a_taken_port_is_bad_usage(capsys: pytest.CaptureFixture[str]) -> None:
    """The message names the address and the reason."""
    async with running_provider() as running:
        bind = f"127.0.0.1:{running.address[1]}"
        with pytest.raises(SystemExit):
            await run_provider(bind, None)
    assert capsys.readouterr().err.startswith(f"cannot listen on {bind}: ")


async def test_a_bad_script_is_bad_usage(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """The message names the file and the place in it."""
    script = tmp_path / "script.toml"
    script.write_text("[[attempts]]\nstatus = 'x'")
    with pytest.raises(SystemExit) as caught:
        await run_provider("127.0.0.1:0", str(script))
    assert caught.value.code == 2
    message = capsys.readouterr().err
    assert message == f"{script}: Expected `int`, got `str` - at `$.attempts[0].status`\n"


@pytest.mark.parametrize("script", ["nosuch", "./stall", "no/such.toml"])
async def test_a_script_that_there_is_not_is_told_with_those_that_there_are(
    capsys: pytest.CaptureFixture[str], script: str
) -> None:
    """A path is none of their names."""
    with pytest.raises(SystemExit) as caught:
        await run_provider("127.0.0.1:0", script)
    assert caught.value.code == 2
    message = capsys.readouterr().err
    assert message.startswith(f"{script}: neither a file nor a fault of the catalogue; there are ")
    assert "cut-chunked, " in message
    assert ", reuse-race, " in message


async def test_a_kept_connection_is_closed_under_its_second_request() -> None:
    """The fault of the catalogue as a plain client meets it: an answer, then none, then one again."""
    script = script_named("reuse-race")
    assert script is not None
    async with running_provider(script) as running, httpx.AsyncClient() as client:
        url = f"{running.base_url}/chat/completions"
        assert (await client.post(url, content=body())).status_code == 200
        with pytest.raises(httpx.RemoteProtocolError, match="without sending a response"):
            await client.post(url, content=body())
        assert (await client.post(url, content=body())).status_code == 200
        assert [each.connection for each in running.requests] == [1, 1, 2]
