"""The exchanges whose bytes are written down beside this file: each framing, with an answer that goes through, an error before and after the first byte, and recoveries.

    python -m tests.golden.exchanges    writes all pages anew, and names those that have changed

Write anew only where what callers get is meant to change; the change is then a part of the commit, to be read like any other. `test_golden.py` compares.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import trio
import trio.testing

from gate.config import HoldConfig, RecoveryConfig
from gate.errors import UpstreamFault
from tests.doubles import (
    COMMENT,
    DONE,
    JSON,
    ROLE,
    SSE,
    STOP,
    Answer,
    Read,
    RecordingCaller,
    ScriptedProvider,
    body,
    event,
    gateway,
    left_behind,
    refuses,
    supervise,
    text,
    thought,
)
from tests.golden.drawing import answer_of, asked_of, got_of, lines_of, told_of
from tests.responding import added, completed, created, message, response
from tests.responding import answer as response_answer
from tests.responding import text as response_text

HERE: Final = Path(__file__).parent
CHAT: Final = "/v1/chat/completions"
RESPONSES: Final = "/v1/responses"
COMPLETIONS: Final = "/v1/completions"
SITUATIONS: Final = ("success", "error before commit", "error after commit", "recovery")
ONCE: Final[dict[str, Any]] = {"recovery": RecoveryConfig(attempts_max=1)}
TWICE: Final[dict[str, Any]] = {"recovery": RecoveryConfig(same_target_retries=0)}
LOST: Final = Read(fault=UpstreamFault.CUT)


@dataclass(frozen=True, slots=True)
class Golden:
    """One exchange. `answers`: of each provider in turn, one; `asks`: what the request says beside its model."""

    framing: str
    situation: str
    endpoint: str
    asks: Mapping[str, Any]
    answers: Sequence[Answer]
    path: str = "normalized"
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def title(self) -> str:
        return f"== {self.framing}: {self.situation}"

    async def page(self) -> list[str]:
        """The exchange, played and written down."""
        asked = json.dumps({"model": "small", **self.asks}, separators=(",", ":")).encode()
        providers = [ScriptedProvider(answer) for answer in self.answers]
        paths = [self.path] * len(providers)
        gate = gateway(*providers, **{"paths": paths, **self.options})
        caller = RecordingCaller(asked)
        outcome = await supervise(gate, caller, endpoint=self.endpoint)
        assert left_behind(gate) == []
        lines = [self.title, "", "-- the caller asks", f"POST {self.endpoint}", *lines_of(asked)]
        for number, (provider, answer) in enumerate(zip(providers, self.answers, strict=True)):
            for each in provider.asked:
                lines += ["", *asked_of(each, f"p{number}"), *answer_of(answer, f"p{number}")]
        return [*lines, "", *got_of(caller), "", told_of(outcome)]


def said(*pieces: bytes, head: Sequence[tuple[bytes, bytes]] = SSE) -> Answer:
    """A body that comes in these pieces, one a second."""
    return Answer([Read(piece, 1.0) for piece in pieces], headers=head)


def lost(*pieces: bytes, head: Sequence[tuple[bytes, bytes]] = SSE) -> Answer:
    """The same, and then the connection breaks."""
    return Answer([*(Read(piece, 1.0) for piece in pieces), LOST], headers=head)


def other(*pieces: bytes) -> list[bytes]:
    """The same from a provider that gives other ids."""
    return [piece.replace(b"up-1", b"up-2").replace(b"resp_up", b"resp_2") for piece in pieces]


def _situations(framing: str, endpoint: str, asks: Mapping[str, Any], plays: Mapping[str, Any], **members: Any) -> Iterator[Golden]:  # fmt: skip
    """An exchange for each situation: `plays` has its answers, and what is special about its gateway."""
    for situation, (answers, options) in plays.items():
        path = members.get("path", "normalized")
        both = {**members.get("options", {}), **options}
        yield Golden(framing, situation, endpoint, asks, answers, path, both)


# --- chat ------------------------------------------------------------------------------------------

THOUGHT: Final = thought("Hm.")
SPENT: Final = event({"id": "up-1", "object": "chat.completion.chunk", "created": 7, "model": "m", "choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}})  # fmt: skip
HELLO: Final = (ROLE, text("He"), text("llo"), STOP + SPENT, DONE)
STREAM: Final[dict[str, Any]] = {"messages": [{"role": "user", "content": "Hi"}], "stream": True, "stream_options": {"include_usage": True}}  # fmt: skip
WHOLE: Final[dict[str, Any]] = {"messages": [{"role": "user", "content": "Hi"}]}
UNASKED: Final = {name: value for name, value in STREAM.items() if name != "stream_options"}
EXPLAINED: Final = {"metadata": {"trace_stream": "true"}}
TOOLS: Final = {"tools": [{"type": "function", "function": {"name": "look", "parameters": {"type": "object", "required": ["at"]}}}]}  # fmt: skip
JSON_ASKED: Final = {"response_format": {"type": "json_object"}}
OBJECT: Final = json.dumps(
    {
        "id": "up-1", "object": "chat.completion", "created": 7, "model": "m",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "Hello", "refusal": None}, "finish_reason": "stop", "logprobs": None}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}, "system_fingerprint": "fp_1",
    }
).encode()  # fmt: skip
BAD_CALL: Final = (ROLE, event({"id": "up-1", "model": "m", "choices": [{"index": 0, "delta": {"tool_calls": [{"index": 0, "id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}]}, "finish_reason": "tool_calls"}]}), DONE)  # fmt: skip
BUFFERED: Final = {"hold": HoldConfig(mode="buffered")}
PINGED: Final = {"hold": HoldConfig(mode="buffered", ping_seconds=0.4, pings_commit=True)}
SILENT: Final = {"hold": HoldConfig(mode="buffered", ping_seconds=0.7, pings_commit=True)}
COMMITTED: Final = {"prefill": "vllm", "recovery": RecoveryConfig(continuation="committed")}
NO_REPAIR: Final = {"recovery": RecoveryConfig(attempts_max=1), "filters": ("empty", "tool_calls", "structured_output")}  # fmt: skip


def _chat() -> Iterator[Golden]:
    live = {
        "success": ([said(*HELLO)], {}),
        "error before commit": ([lost(ROLE)], ONCE),
        "error after commit": ([lost(ROLE, text("He"))], ONCE),
        "recovery": ([lost(ROLE), said(*other(*HELLO))], TWICE),
        "continuation": ([lost(ROLE, text("He")), said(*other(*HELLO[:1], *HELLO[2:]))], COMMITTED),
    }
    yield from _situations("chat_sse_live", CHAT, STREAM, live)
    yield Golden("chat_sse_live", "recovery, explained", CHAT, STREAM | EXPLAINED, live["recovery"][0], options=TWICE)  # fmt: skip
    yield Golden("chat_sse_live", "usage that only the gate asked for", CHAT, UNASKED, [said(*HELLO)], options={"asks": True})  # fmt: skip
    held = {
        "success": ([said(*HELLO)], BUFFERED),
        "error before commit": ([lost(*HELLO[:3])], BUFFERED | ONCE),
        "error after commit": ([lost(*HELLO[:3])], PINGED | ONCE),
        "recovery": ([lost(*HELLO[:3]), said(*other(*HELLO))], BUFFERED | TWICE),
    }
    yield from _situations("chat_sse_buffered", CHAT, STREAM, held)
    yield Golden("chat_sse_buffered", "error before commit, older contract", CHAT, STREAM, [lost(*HELLO[:3])], options=BUFFERED | ONCE | {"streams_errors": True})  # fmt: skip
    yield Golden("chat_sse_buffered", "silence, explained", CHAT, STREAM | EXPLAINED, [lost(*HELLO[:3])], options=SILENT | ONCE)  # fmt: skip
    for name, more, answer in (
        ("a call that fails validation", TOOLS, said(*BAD_CALL)),
        ("an answer that is no JSON", JSON_ASKED, said(*HELLO)),
    ):
        yield Golden("chat_sse_buffered", name, CHAT, STREAM | more, [answer], options=BUFFERED | NO_REPAIR)  # fmt: skip
    whole = {
        "success": ([body(OBJECT)], {}),
        "success, from a stream": ([said(*HELLO)], {}),
        "error before commit": ([refuses(500, b"{}")], ONCE),
        "recovery": ([body(b'{"error":{"code":"overloaded"}}'), body(OBJECT)], TWICE),
    }
    yield from _situations("chat_json", CHAT, WHOLE, whole)
    yield Golden("chat_json", "recovery, explained", CHAT, WHOLE | EXPLAINED, whole["recovery"][0], options=TWICE)  # fmt: skip
    yield Golden("chat_json", "error before commit, explained", CHAT, WHOLE | EXPLAINED, whole["error before commit"][0], options=ONCE)  # fmt: skip


# --- responses -------------------------------------------------------------------------------------

ASKED: Final[dict[str, Any]] = {"input": "Hi", "instructions": "Be brief.", "temperature": 0.5}
STARTED: Final = (created(), added(message()), response_text("He"))
RESPONSE: Final = json.dumps(response("completed", message("Hello"))).encode()


def _blocks(data: bytes) -> list[bytes]:
    return [block + b"\n\n" for block in data.split(b"\n\n")[:-1]]


def _responses() -> Iterator[Golden]:
    healthy = said(*_blocks(response_answer("He", "llo")))
    cut = completed(message("He"), status="incomplete", incomplete_details={"reason": "max_output_tokens"})  # fmt: skip
    plays = {
        "success": ([healthy], {}),
        "incomplete": ([said(*STARTED, cut)], {}),
        "error before commit": ([lost(*STARTED[:2])], ONCE),
        "error after commit": ([lost(*STARTED)], ONCE),
        "recovery": (
            [lost(*STARTED[:2]), said(*other(*_blocks(response_answer("He", "llo"))))],
            TWICE,
        ),
        "continuation": (
            [lost(*STARTED), said(*other(*_blocks(response_answer("llo"))))],
            COMMITTED,
        ),
    }
    yield from _situations("responses_sse", RESPONSES, {**ASKED, "stream": True}, plays)
    yield Golden("responses_sse", "error behind a comment, before any answer", RESPONSES, {**ASKED, "stream": True}, [refuses(503, b"{}", after=0.7)], options=PINGED | ONCE)  # fmt: skip
    yield Golden("responses_sse", "error after commit, explained", RESPONSES, {**ASKED, "stream": True, **EXPLAINED}, plays["error after commit"][0], options=ONCE)  # fmt: skip
    whole = {
        "success": ([body(RESPONSE)], {}),
        "success, from a stream": ([healthy], {}),
        "error before commit": ([body(json.dumps(response("failed", error={"code": "server_error"})).encode())], ONCE),
        "recovery": ([refuses(503), body(RESPONSE)], TWICE),
    }  # fmt: skip
    yield from _situations("responses_json", RESPONSES, ASKED, whole)


def _over_chat() -> Iterator[Golden]:
    """Responses that a provider of chat completions gives."""
    options: dict[str, Any] = {"capabilities": ("tools",), "responses_over_chat": True}
    streams = {
        "success": ([said(THOUGHT, *HELLO)], {}),
        "error before commit": ([lost(ROLE)], ONCE),
        "error after commit": ([lost(ROLE, text("He"))], ONCE),
        "recovery": ([lost(ROLE), said(*other(*HELLO))], TWICE),
        "continuation": ([lost(ROLE, text("He")), said(*other(ROLE, text("llo"), STOP + SPENT, DONE))], COMMITTED),
        "refused before any attempt": ([], {}),
    }  # fmt: skip
    for situation, (answers, more) in streams.items():
        kept = {"previous_response_id": "resp_1"} if situation.startswith("refused") else {}
        asks = {**ASKED, "stream": True, **kept}
        given = answers or [said(*HELLO)]
        yield Golden("responses_over_chat_sse", situation, RESPONSES, asks, given, options={**options, **more})  # fmt: skip
    whole = {
        "success": ([body(OBJECT)], options),
        "error before commit": ([refuses(503)], {**options, **ONCE}),
        "recovery": ([refuses(503), body(OBJECT)], {**options, **TWICE}),
    }
    yield from _situations("responses_over_chat_json", RESPONSES, ASKED, whole)


# --- the tunnel ------------------------------------------------------------------------------------

OLDER: Final = ONCE | {"tunnel_marks": False}
HEAD: Final = (*SSE, (b"x-ratelimit-remaining-requests", b"7"), (b"server", b"up"), (b"set-cookie", b"a=b"))  # fmt: skip


def _tunnelled() -> Iterator[Golden]:
    """The streams that are understood."""
    spoken = _blocks(response_answer("He", "llo"))
    legacy = [event({"id": "c", "object": "text_completion", "model": "m", "choices": [{"index": 0, "text": word, "finish_reason": end}]}) for word, end in (("He", None), ("llo", None), ("", "stop"))]  # fmt: skip
    for framing, endpoint, asks, pieces, begun in (
        ("chat_tunnel_sse", CHAT, STREAM, (COMMENT, *HELLO), 3),
        ("responses_tunnel_sse", RESPONSES, {**ASKED, "stream": True}, spoken, 5),
        ("completions_tunnel_sse", COMPLETIONS, {"prompt": "Hi", "stream": True}, (*legacy, DONE), 1),
    ):  # fmt: skip
        plays = {
            "success": ([said(*pieces, head=HEAD)], {}),
            "error before commit": ([lost(*pieces[: begun - 1])], ONCE),
            "error after commit": ([lost(*pieces[:begun])], ONCE),
            "error after commit, older contract": ([lost(*pieces[:begun])], OLDER),
            "recovery": ([lost(*pieces[: begun - 1]), said(*other(*pieces))], TWICE),
        }
        yield from _situations(framing, endpoint, asks, plays, path="tunnel")
    yield Golden("chat_tunnel_sse", "success, explained", CHAT, STREAM | EXPLAINED, [said(COMMENT, *HELLO)], "tunnel")  # fmt: skip
    yield Golden("chat_tunnel_sse", "usage that only the gate asked for", CHAT, UNASKED, [said(COMMENT, *HELLO)], "tunnel", {"asks": True})  # fmt: skip
    completion = json.dumps({"id": "c", "object": "text_completion", "model": "m", "choices": [{"index": 0, "text": "Hello", "finish_reason": "stop"}]}).encode()  # fmt: skip
    for framing, endpoint, asks, answer in (
        ("chat_tunnel_json", CHAT, WHOLE, OBJECT),
        ("responses_tunnel_json", RESPONSES, ASKED, RESPONSE),
        ("completions_tunnel_json", COMPLETIONS, {"prompt": "Hi"}, completion),
    ):
        plays = {
            "success": ([body(answer, headers=(*JSON, *HEAD[1:]))], {}),
            "error before commit": ([body(answer[:40])], ONCE),
            "recovery": ([body(answer[:40]), body(answer)], TWICE),
        }
        yield from _situations(framing, endpoint, asks, plays, path="tunnel")


# --- what is only relayed --------------------------------------------------------------------------

VECTORS: Final = b'{"object":"list","data":[{"embedding":[0.1]}],"model":"m"}'
SOUND: Final = ((b"content-type", b"audio/mpeg"),)
PICTURES: Final = (event({"type": "image_generation.partial_image", "model": "m"}), event({"type": "image_generation.completed"}))  # fmt: skip


def _relayed() -> Iterator[Golden]:
    vectors = {
        "success": ([body(VECTORS)], {}),
        "error before commit": ([refuses(400, b'{"error":{"message":"secret","code":"bad_input"}}')], ONCE),
        "recovery": ([refuses(503), body(VECTORS)], TWICE),
    }  # fmt: skip
    yield from _situations("relay_json", "/v1/embeddings", {"input": ["a"]}, vectors)
    speech = {
        "success": ([said(b"ID3\x04\x00", b"\xff\xfb\x90", head=SOUND)], {}),
        "error before commit": ([lost(head=SOUND)], ONCE),
        "error after commit": ([lost(b"ID3\x04\x00", head=SOUND)], ONCE),
        "recovery": ([lost(head=SOUND), said(b"ID3\x04\x00", head=SOUND)], TWICE),
    }
    yield from _situations("relay_bytes", "/v1/audio/speech", {"input": "a", "stream": True}, speech)  # fmt: skip
    pictures = {
        "success": ([said(*PICTURES)], {}),
        "error before commit": ([said(event({"error": {"code": "server_error", "message": "secret"}}))], ONCE),
        "error after commit": ([lost(PICTURES[0])], ONCE),
        "recovery": ([lost(), said(*PICTURES)], TWICE),
    }  # fmt: skip
    yield from _situations("relay_sse", "/v1/images/generations", {"prompt": "a", "stream": True}, pictures)  # fmt: skip


def goldens() -> list[Golden]:
    """All of them; their titles differ."""
    found = [*_chat(), *_responses(), *_over_chat(), *_tunnelled(), *_relayed()]
    assert len({each.title for each in found}) == len(found)
    return found


def played(golden: Golden) -> list[str]:
    """The page of one exchange, on a virtual clock."""
    return trio.run(golden.page, clock=trio.testing.MockClock(autojump_threshold=0))


def pages() -> Mapping[str, list[str]]:
    """For each framing, its file's lines as they are now."""
    found: dict[str, list[str]] = {}
    for golden in goldens():
        lines = found.setdefault(golden.framing, [])
        lines += ["", ""] if lines else []
        lines += played(golden)
    return found


def path_of(framing: str) -> Path:
    """The file of one framing."""
    return HERE / f"{framing}.txt"


def main() -> None:
    """Writes what has changed."""
    known = pages()
    for framing, lines in known.items():
        path, data = path_of(framing), "\n".join(lines) + "\n"
        if not path.exists() or path.read_text(encoding="utf-8") != data:
            path.write_text(data, encoding="utf-8")
            sys.stdout.write(f"{path.name} is written\n")
    for path in HERE.glob("*.txt"):
        if path.stem not in known:
            path.unlink()
            sys.stdout.write(f"{path.name} is gone\n")


if __name__ == "__main__":
    main()
