"""A tool call that is not valid, and what an operator reads of it: one warning for each attempt, with the exchange's id and a stable reason."""

from __future__ import annotations

import io
import json
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import pytest
import trio

from gate.refs import is_stable_token
from tests.transport.edge import ask, edge_before, question, settled
from tests.transport.servers import read_request
from tests.transport.test_edges_upstream import CHUNKED, chunks

PARAMETERS: Final = {"type": "object", "properties": {"knots": {"type": "integer"}}, "required": ["knots"]}  # fmt: skip
TOOLS: Final = [{"type": "function", "function": {"name": "sail", "parameters": PARAMETERS}}]
SAID: Final = "half-past-nine"


def piece(delta: Any, finish: str | None = None) -> bytes:
    """One event of a stream."""
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return f"data: {json.dumps({'id': 'x', 'object': 'chat.completion.chunk', 'created': 1, 'model': 'm', 'choices': [choice]})}\n\n".encode()


CALL: Final = {"index": 0, "id": "c1", "type": "function", "function": {"name": "sail", "arguments": json.dumps({"knots": SAID})}}  # fmt: skip
BAD: Final = (
    CHUNKED
    + chunks(
        piece({"role": "assistant", "content": None, "tool_calls": [CALL]}),
        piece({}, "tool_calls"),
        b"data: [DONE]\n\n",
    )
)  # fmt: skip


async def always(stream: trio.SocketStream) -> None:
    """A provider that answers every request so, on a connection that is kept."""
    with suppress(trio.BrokenResourceError, EOFError):
        while await read_request(stream):
            await stream.send_all(BAD)


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("mode", ["live", "buffered"])
@pytest.mark.parametrize("attempts", [1, 2])
async def test_failed_validation_is_an_error_and_one_warning_for_each_attempt(
    tmp_path: Path, mode: str, attempts: int, *, stream: bool
) -> None:
    """The caller reads which tool and which rule of its own schema; nobody reads the arguments."""
    log = io.StringIO()
    tables = f'[routes.default.recovery]\nattempts_max = {attempts}\nschema_repairs_max = 0\n[routes.default.hold]\nmode = "{mode}"\n'
    async with edge_before(always, tmp_path, tables=tables, log_out=log) as edge:
        got = await ask(edge, question(stream=stream, tools=TOOLS), "x-request-id: ex-9")
        await settled(edge)
    error = json.loads(got.body)["error"]
    assert (got.status, error["type"], error["code"]) == (502, "tool_validation_error", "tool_arguments_schema")  # fmt: skip
    assert "sail" in error["message"]
    assert "/knots" in error["message"]
    assert "integer" in error["message"]
    assert got.headers["x-tidegate-attempts"] == str(attempts)
    assert SAID not in got.body.decode()
    assert SAID not in log.getvalue()
    lines = [json.loads(line) for line in log.getvalue().splitlines()]
    warned = [line for line in lines if line["event"] == "violation"]
    assert [(line["level"], line["exchange"], line["attempt"], line["code"]) for line in warned] == [
        ("warning", "ex-9", n, "tool_arguments_schema") for n in range(1, attempts + 1)
    ]  # fmt: skip
    assert all(is_stable_token(line["code"]) for line in warned)
