"""The loopback provider's side of chat completions: requests read, chunks and bodies written.

Wire shapes are those of OpenAI's chat completions, as vLLM writes them: a chunk without usage has
no `usage` member. All of it is a function of the request body and its number.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from types import MappingProxyType
from typing import Annotated, Final

import msgspec
from msgspec import Meta, Struct

CREATED: Final = 1_767_225_600  # one instant for all answers: they can be compared
FINGERPRINT: Final = "fp_tidegate_provider"
CHOICES_MAX: Final = 128  # OpenAI's own limit
QUOTED_WORDS_MAX: Final = 8
QUOTED_CHARS_MAX: Final = 120
JSON_CHARS: Final = 8  # one delta of a tool call's arguments, or of an answer in JSON
SCHEMA_DEPTH_MAX: Final = 8

SENTENCES: Final = (
    "The gate opens when the water stands level on both sides.",
    "A careful keeper reads the gauge twice before turning the wheel.",
    "Small boats pass first, and the long barges wait for slack water.",
    "Every crossing is entered in the book with its hour and draught.",
    "When fog comes in, the bell rings until the last lamp answers.",
    "Nothing leaves the basin that was not counted at the quay.",
    "The tide keeps its own time and asks nobody for permission.",
    "What the channel carries out at dusk it brings back by morning.",
)
SENTENCES_SAID: Final = 3

DONE: Final = b"data: [DONE]\n\n"

Delta = Mapping[str, object]
_SAMPLES: Final[Mapping[str, object]] = MappingProxyType(
    {"string": "harbour", "integer": 1, "number": 1.5, "boolean": True, "array": [], "object": {}}
)
_WORD: Final = re.compile(r"\s*\S+")
_ERROR_TYPES: Final[Mapping[int, str]] = MappingProxyType(
    {
        401: "authentication_error",
        404: "not_found_error",
        429: "rate_limit_error",
        500: "server_error",
        503: "overloaded_error",
    }
)


class InvalidChat(ValueError):
    """A request body that is no chat completion request; the text names the place in it."""


class Tool(Struct, frozen=True):
    """A declared function and the JSON schema of its parameters."""

    name: str
    parameters: object = None


DEFAULT_TOOL: Final = Tool("note_tide", {"type": "object"})


class Call(Struct, frozen=True):
    """A call of a tool; `arguments` is JSON text."""

    id: str
    name: str
    arguments: str


class Said(Struct, frozen=True, kw_only=True):
    """What one choice says, part by part, and its finish reason. A word is one delta."""

    finish: str = "stop"
    reasoning: Sequence[str] = ()
    words: Sequence[str] = ()
    refusal: Sequence[str] = ()
    call: Call | None = None

    def deltas(self) -> list[Delta]:
        """Everything that is said, in the order of a stream, after the role."""
        parts = (
            ("reasoning_content", self.reasoning),
            ("content", self.words),
            ("refusal", self.refusal),
        )
        said: list[Delta] = [{key: word} for key, words in parts for word in words]
        return said + ([] if self.call is None else _call_deltas(self.call))

    def message(self) -> Mapping[str, object]:
        """The same as the message of an answer that is not streamed."""
        spoken = None if self.refusal or self.call else "".join(self.words)
        message: dict[str, object] = {"role": "assistant", "content": spoken}
        if self.reasoning:
            message["reasoning_content"] = "".join(self.reasoning)
        if self.refusal:
            message["refusal"] = "".join(self.refusal)
        if self.call is not None:
            function = {"name": self.call.name, "arguments": self.call.arguments}
            message["tool_calls"] = [{"id": self.call.id, "type": "function", "function": function}]
        return message


class Chat(Struct, frozen=True, kw_only=True):
    """One request, as far as the answer depends on it."""

    model: str
    serial: int
    prompt: str = ""  # the last user message
    prefix: str = ""  # of an answer that is to be continued
    prompt_tokens: int = 0  # words stand for tokens
    tokens_max: int | None = None
    stream: bool = False
    include_usage: bool = False
    n: int = 1
    tool: Tool = DEFAULT_TOOL
    forced: bool = False  # `tool_choice` asks for a call of `tool`
    schema: object = None  # of the JSON that `response_format` asks for; None: text

    def text(self, choice: int = 0) -> str:
        """What a healthy answer says, in about forty words."""
        quoted = " ".join(self.prompt[:QUOTED_CHARS_MAX].split()[:QUOTED_WORDS_MAX])
        start = zlib.crc32(self.prompt.encode(errors="replace")) + choice
        chosen = (SENTENCES[(start + step) % len(SENTENCES)] for step in range(SENTENCES_SAID))
        return " ".join((f"You asked: “{quoted}”.", *chosen))

    def answer(self, choice: int) -> Said:
        """The call or the JSON that was asked for, else the text, or what follows the prefix in it, within the caller's ceiling."""
        if self.forced:
            return Said(call=self.call(choice), finish="tool_calls")
        if self.schema is None:
            words = words_of(self.text(choice).removeprefix(self.prefix))
        else:
            words = _pieces(_sample_text(self.schema))
        kept = words[: self.tokens_max]
        return Said(words=kept, finish="stop" if len(kept) == len(words) else "length")

    def call(self, choice: int) -> Call:
        """A call of the first declared tool, with arguments that suit its schema."""
        arguments = _sample_text(self.tool.parameters)
        return Call(f"call_{self.serial:08d}_{choice}", self.tool.name, arguments)

    def opening(self, choices: int) -> list[bytes]:
        """The events that come before any delta."""
        return [
            self.chunk(choice, {"role": "assistant", "content": ""}) for choice in range(choices)
        ]

    def turns(self, said: Sequence[Said]) -> list[list[bytes]]:
        """The deltas, one of each choice in turn."""
        turns = zip_longest(*(each.deltas() for each in said))
        return [
            [self.chunk(choice, delta) for choice, delta in enumerate(turn) if delta is not None]
            for turn in turns
        ]

    def ending(self, said: Sequence[Said], *, mark: bool) -> list[bytes]:
        """The events that come behind the deltas; `mark`: with the `[DONE]` that ends a stream."""
        events = [self.chunk(choice, {}, finish=each.finish) for choice, each in enumerate(said)]
        if self.include_usage:
            events.append(self.usage_chunk(said))
        return [*events, DONE] if mark else events

    def failure(self, body: bytes) -> list[bytes]:
        """The end of a stream with an error in it; `body` is its envelope."""
        return [b"data: " + body + b"\n\n", DONE]

    def chunk(self, choice: int, delta: Delta, *, finish: str | None = None) -> bytes:
        """One event of the stream."""
        choices = [{"index": choice, "delta": delta, "finish_reason": finish}]
        return event(self._body("chat.completion.chunk", choices))

    def usage_chunk(self, said: Sequence[Said]) -> bytes:
        """The event that `stream_options.include_usage` asks for."""
        return event(self._body("chat.completion.chunk", [], self._usage(said)))

    def whole(self, said: Sequence[Said]) -> bytes:
        """The JSON body of an answer that is not streamed."""
        choices = [
            {"index": index, "message": each.message(), "finish_reason": each.finish}
            for index, each in enumerate(said)
        ]
        return msgspec.json.encode(self._body("chat.completion", choices, self._usage(said)))

    def _usage(self, said: Sequence[Said]) -> dict[str, int]:
        completion_tokens = sum(len(each.deltas()) for each in said)
        return {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": completion_tokens,
            "total_tokens": self.prompt_tokens + completion_tokens,
        }

    def _body(
        self, kind: str, choices: Sequence[object], usage: Mapping[str, int] | None = None
    ) -> dict[str, object]:
        body: dict[str, object] = {
            "id": f"chatcmpl-{self.serial:08d}",
            "object": kind,
            "created": CREATED,
            "model": self.model,
            "system_fingerprint": FINGERPRINT,
            "choices": choices,
        }
        return body if usage is None else {**body, "usage": usage}


def event(body: object) -> bytes:
    """One SSE event with `body` as JSON."""
    return b"data: " + msgspec.json.encode(body) + b"\n\n"


def error_body(status: int, code: str, message: str, *, param: str | None = None) -> bytes:
    """An error in OpenAI's envelope; its type follows from the status."""
    kind = _ERROR_TYPES.get(status, "invalid_request_error")
    error = {"message": message, "type": kind, "param": param, "code": code}
    return msgspec.json.encode({"error": error})


def words_of(text: str) -> list[str]:
    """The words of `text`, each with the white space before it."""
    return _WORD.findall(text)


def _call_deltas(call: Call) -> list[Delta]:
    """The call as a provider streams it: its name first, then its arguments in pieces."""
    function = {"name": call.name, "arguments": ""}
    head = {"index": 0, "id": call.id, "type": "function", "function": function}
    pieces = [{"index": 0, "function": {"arguments": piece}} for piece in _pieces(call.arguments)]
    return [{"tool_calls": [each]} for each in (head, *pieces)]


def _pieces(text: str) -> list[str]:
    """JSON as it is streamed."""
    return [text[start : start + JSON_CHARS] for start in range(0, len(text), JSON_CHARS)]


def _sample_text(schema: object) -> str:
    """JSON that suits a schema."""
    return msgspec.json.encode(_sample(schema, SCHEMA_DEPTH_MAX)).decode()


def _sample(schema: object, depth: int) -> object:
    """A value that suits a simple JSON schema: what is required, and no more."""
    match schema:
        case _ if depth == 0:
            return None
        case {"enum": [first, *_]} | {"const": first}:
            return first
        case {"type": "object", "properties": {**properties}, "required": [*required]}:
            return {
                name: _sample(value, depth - 1)
                for name, value in properties.items()
                if name in required
            }
        case {"type": "array", "items": items}:
            return [_sample(items, depth - 1)]
        case {"type": str(kind)}:
            return _SAMPLES.get(kind)
        case _:
            return {}


class _Part(Struct, frozen=True):
    text: str = ""


class _Message(Struct, frozen=True):
    role: str
    content: str | list[_Part] | None = None
    prefix: bool = False
    partial: bool = False

    def text(self) -> str:
        match self.content:
            case str(text):
                return text
            case None:
                return ""
            case parts:
                return " ".join(part.text for part in parts)


class _StreamOptions(Struct, frozen=True):
    include_usage: bool | None = None


class _Tool(Struct, frozen=True):
    function: Tool | None = None


class _ChatBody(Struct, frozen=True):
    model: str
    messages: Annotated[list[_Message], Meta(min_length=1)]
    stream: bool | None = None
    n: Annotated[int, Meta(ge=1, le=CHOICES_MAX)] | None = None
    stream_options: _StreamOptions | None = None
    max_tokens: Annotated[int, Meta(ge=1)] | None = None
    max_completion_tokens: Annotated[int, Meta(ge=1)] | None = None
    tools: list[_Tool] | None = None
    tool_choice: object = None
    response_format: object = None
    continue_final_message: bool = False

    def prompt(self) -> str:
        asked = (each for each in reversed(self.messages) if each.role == "user")
        last = next(asked, None)
        return "" if last is None else last.text()

    def prefix(self) -> str:
        last = self.messages[-1]
        wanted = self.continue_final_message or last.prefix or last.partial
        return last.text() if wanted and last.role == "assistant" else ""

    def tool(self) -> Tool:
        declared = [each.function for each in self.tools or () if each.function is not None]
        match self.tool_choice:
            case {"type": "function", "function": {"name": name}}:
                declared.sort(key=lambda each: each.name != name)
            case _:
                pass
        return declared[0] if declared else DEFAULT_TOOL

    def forced(self) -> bool:
        return self.tool_choice == "required" or isinstance(self.tool_choice, dict)

    def schema(self) -> object:
        match self.response_format:
            case {"type": "json_object"}:
                return {"type": "object"}
            case {"type": "json_schema", "json_schema": {"schema": schema}}:
                return schema
            case _:
                return None


def read_chat(body: bytes, *, serial: int) -> Chat:
    """Read a request body. Raises InvalidChat.

    An assistant message at the end is continued where the request says so: with
    `continue_final_message` (vLLM), `prefix` or `partial` in the message.
    """
    try:
        asked = msgspec.json.decode(body, type=_ChatBody)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidChat(str(error)) from error
    options = asked.stream_options
    return Chat(
        model=asked.model,
        serial=serial,
        prompt=asked.prompt(),
        prefix=asked.prefix(),
        prompt_tokens=sum(len(words_of(each.text())) for each in asked.messages),
        tokens_max=asked.max_completion_tokens or asked.max_tokens,
        stream=bool(asked.stream),
        include_usage=options is not None and bool(options.include_usage),
        n=asked.n or 1,
        tool=asked.tool(),
        forced=asked.forced(),
        schema=asked.schema(),
    )
