"""The Responses API over sockets: before the loopback provider, with each of its faults, an answer that is held comes out whole, and one that was seen says that it failed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pytest

from ops.provider import running_provider
from ops.provider_responses import read_responses
from ops.provider_script import Pace, Script
from tests.assembly_responses import read_events, texts_of
from tests.transport.edge import running_edge, settled, write_config

RESPONSES: Final = "/v1/responses"
FAST: Final = Script(pace=Pace(chunk_ms=0))
QUESTION: Final = "Is the tide in?"
HELD: Final = '[routes.default.hold]\nmode = "buffered"\n[routes.default.recovery]\nbackoff_seconds = 0.01\n'  # fmt: skip
GOING_ON: Final = '[routes.default.hold]\nmode = "window"\ntail_chars = 20\n'
FAULTS: Final = [
    "cut:3",
    "reset:3",
    "clean-cut:3",
    "no-done",
    "late-error:3",
    "error-in-200",
    "json-error-200",
    "html-200",
    "malformed:3",
    "zero-byte",
    "redirect",
    "empty",
    "503",
]


def asked(model: str = "small", *, stream: bool = True, **members: Any) -> bytes:
    """A request."""
    return json.dumps({"model": model, "input": QUESTION, "stream": stream, **members}).encode()


def healthy_text() -> str:
    """What a healthy answer says."""
    return read_responses(asked(), serial=1).text()


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "json"])
@pytest.mark.parametrize("fault", ["healthy", "gzip", "drip", *FAULTS])
async def test_an_answer_that_is_held_comes_out_whole(
    tmp_path: Path, fault: str, *, stream: bool
) -> None:
    """As the caller wants it, whatever its first provider did. (A whole answer in one piece has no end that could be missing.)"""
    text = healthy_text()
    async with running_provider(FAST) as provider:
        path = write_config(tmp_path, provider.base_url, {"small": [fault, "healthy"]}, tables=HELD)
        async with running_edge(path) as edge, edge.client() as client:
            answer = await client.post(RESPONSES, content=asked(stream=stream))
            await settled(edge)
    assert answer.status_code == 200
    if stream:
        seen = read_events(answer.content)
        assert (seen.text, seen.response["status"]) == (text, "completed")
        response = seen.response
    else:
        response = answer.json()
    assert texts_of(response) == {"output_text": text}
    assert (response["model"], response["error"]) == ("small", None)
    whole = fault in {"healthy", "gzip", "drip"} or (not stream and fault == "no-done")
    attempts = int(answer.headers["x-tidegate-attempts"])
    assert (attempts == 1) is whole


@pytest.mark.parametrize("fault", ["cut:3", "clean-cut:3", "late-error:3", "malformed:3"])
async def test_an_answer_that_was_seen_says_that_it_failed(tmp_path: Path, fault: str) -> None:
    """With what was seen in it, and as the last event."""
    async with running_provider(FAST) as provider:
        path = write_config(tmp_path, provider.base_url, {"small": fault})
        async with running_edge(path) as edge, edge.client() as client:
            answer = await client.post(RESPONSES, content=asked())
            await settled(edge)
    seen = read_events(answer.content)
    assert seen.response["status"] == "failed"
    assert healthy_text().startswith(seen.text)
    assert texts_of(seen.response) == {"output_text": seen.text}


async def test_an_answer_goes_on_at_the_same_kind_of_server(tmp_path: Path) -> None:
    """One response, though its first half came from another attempt."""
    async with running_provider(FAST) as provider:
        models = {"small": ["cut:20", "healthy"]}
        path = write_config(tmp_path, provider.base_url, models, tables=GOING_ON)
        config = path.read_text().replace('name = "local"', 'name = "local"\nprefill = "vllm"')
        path.write_text(config)
        async with running_edge(path) as edge, edge.client() as client:
            answer = await client.post(RESPONSES, content=asked())
            await settled(edge)
        kept = json.loads(provider.requests[-1].body)["input"][-1]
    seen = read_events(answer.content)
    assert (seen.text, len(seen.items)) == (healthy_text(), 1)
    assert (kept["status"], kept["role"]) == ("incomplete", "assistant")
    assert healthy_text().startswith(kept["content"][0]["text"])


@pytest.mark.parametrize("model", ["reasoning", "refusal", "tool-call", "length:4"])
async def test_every_kind_of_answer_goes_through(tmp_path: Path, model: str) -> None:
    """The stream's response is what a caller without a stream gets."""
    async with running_provider(FAST) as provider:
        path = write_config(tmp_path, provider.base_url, {"small": model})
        async with running_edge(path) as edge, edge.client() as client:
            streamed = await client.post(RESPONSES, content=asked())
            whole = await client.post(RESPONSES, content=asked(stream=False))
            await settled(edge)
    response = read_events(streamed.content).response
    other = whole.json()
    assert texts_of(response) == texts_of(other)
    assert response["status"] == other["status"]
    assert [item["type"] for item in response["output"]] == [i["type"] for i in other["output"]]


async def test_the_door_is_the_same(tmp_path: Path) -> None:
    """A method that is not served, a body that is none."""
    async with running_provider(FAST) as provider:
        path = write_config(tmp_path, provider.base_url)
        async with running_edge(path) as edge, edge.client() as client:
            assert (await client.get(RESPONSES)).status_code == 405
            refused = await client.post(RESPONSES, content=b"{")
            await settled(edge)
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "invalid_json")
