"""The loopback provider's side of the Responses API: requests read, events and bodies written.

What is said is what `ops.provider_chat` says; only the wire differs. Every event has its number and its place, as OpenAI writes them. All of it is a function of the request
body and its number.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Final

import msgspec
from msgspec import Meta, Struct

from ops.provider_chat import CREATED, DEFAULT_TOOL, Call, Chat, InvalidChat, Said, Tool, words_of

_REASONS: Final[Mapping[str, str]] = {
    "length": "max_output_tokens",
    "content_filter": "content_filter",
}
_ARGUMENT_CHARS: Final = 8  # one delta of a call's arguments

Values = dict[str, object]


class Response(Chat, frozen=True, kw_only=True):
    """One request of the Responses API, answered as chat would answer it."""

    instructions: str | None = None
    previous: str | None = None

    def opening(self, choices: int) -> list[bytes]:
        """The two events that say that there will be an answer."""
        began: Values = {"response": self._object("in_progress", [], None)}
        return _numbered(0, [("response.created", began), ("response.in_progress", began)])

    def turns(self, said: Sequence[Said]) -> list[list[bytes]]:
        """The deltas, each with what has to begin or to end before it."""
        turns = []
        number = len(self.opening(1))
        for events in self._events(said[0]):
            written = _numbered(number, events)
            number += len(written)
            turns.append([b"".join(written)])
        # What comes behind the last delta is the ending's.
        return turns[:-1]

    def ending(self, said: Sequence[Said], *, mark: bool) -> list[bytes]:
        """The ends of what is open, and the response; without a `mark` the response is not said."""
        *before, last = self._events(said[0])
        number = len(self.opening(1)) + sum(map(len, before))
        reason = _REASONS.get(said[0].finish)
        status = "incomplete" if reason else "completed"
        whole: Values = {"response": self._whole(said[0])}
        return _numbered(number, [*last, (f"response.{status}", whole)] if mark else last)

    def failure(self, body: bytes) -> list[bytes]:
        """A response that failed, with the error of this envelope."""
        error = msgspec.json.decode(body)["error"]
        told = {"code": error["code"], "message": error["message"]}
        failed = {**self._object("failed", [], None), "error": told}
        return _numbered(0, [("response.failed", {"response": failed})])

    def whole(self, said: Sequence[Said]) -> bytes:
        return msgspec.json.encode(self._whole(said[0]))

    def _whole(self, said: Said) -> Values:
        reason = _REASONS.get(said.finish)
        output = [item for _, item in self._items(said)]
        tokens = len(said.deltas())
        usage = {
            "input_tokens": self.prompt_tokens,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": tokens,
            "output_tokens_details": {"reasoning_tokens": len(said.reasoning)},
            "total_tokens": self.prompt_tokens + tokens,
        }
        whole = self._object("incomplete" if reason else "completed", output, usage)
        return {**whole, "incomplete_details": {"reason": reason} if reason else None}

    def _object(self, status: str, output: Sequence[object], usage: object) -> Values:
        return {
            "id": f"resp_{self.serial:08d}",
            "object": "response",
            "created_at": CREATED,
            "status": status,
            "error": None,
            "incomplete_details": None,
            "instructions": self.instructions,
            "max_output_tokens": self.tokens_max,
            "model": self.model,
            "output": output,
            "parallel_tool_calls": True,
            "previous_response_id": self.previous,
            "tool_choice": "auto",
            "tools": [],
            "usage": usage,
        }

    def _items(self, said: Said) -> list[tuple[list[tuple[str, str, str]], Values]]:
        """What is said as output items, each with its deltas: the event, the part's type and the text."""
        name = f"{self.serial:08d}"
        found: list[tuple[list[tuple[str, str, str]], Values]] = []
        if said.reasoning:
            part: Values = {"type": "reasoning_text", "text": "".join(said.reasoning)}
            item: Values = {
                "id": f"rs_{name}",
                "type": "reasoning",
                "summary": [],
                "content": [part],
            }
            kind = "response.reasoning_text.delta"
            found.append(([(kind, "reasoning_text", word) for word in said.reasoning], item))
        if said.call is not None:
            return [*found, _call_item(name, said.call)]
        words, kind, field = (said.refusal, "refusal", "refusal")
        if not said.refusal:
            words, kind, field = (said.words, "output_text", "text")
        said_part: Values = {"type": kind, field: "".join(words)}
        if kind == "output_text":
            said_part = {**said_part, "annotations": [], "logprobs": []}
        content = [said_part] if words else []
        message: Values = {"id": f"msg_{name}", "type": "message", "status": "completed", "role": "assistant", "content": content}  # fmt: skip
        return [*found, ([(f"response.{kind}.delta", kind, word) for word in words], message)]

    def _events(self, said: Said) -> Iterator[list[tuple[str, Values]]]:
        """The events of each delta, with what begins before it; the last list is what comes behind all of them."""
        pending: list[tuple[str, Values]] = []
        for index, (deltas, item) in enumerate(self._items(said)):
            at = {"item_id": item["id"], "output_index": index}
            pending.append(("response.output_item.added", {"output_index": index, "item": _begun(item)}))  # fmt: skip
            for number, (kind, part, text) in enumerate(deltas):
                place = {**at, "content_index": 0} if part else at
                if part and not number:
                    empty = {"type": part, _field(part): ""}
                    pending.append(("response.content_part.added", {**place, "part": empty}))
                yield [*pending, (kind, {**place, "delta": text})]
                pending = []
            pending += _ended(index, item, deltas)
        yield pending


def _field(part: str) -> str:
    return "refusal" if part == "refusal" else "text"


def _begun(item: Values) -> Values:
    """The item before anything was said of it."""
    nothing: Values = {"content": [], "arguments": "", "status": "in_progress"}
    return {name: nothing.get(name, value) for name, value in item.items()}


def _ended(
    index: int, item: Values, deltas: Sequence[tuple[str, str, str]]
) -> Iterator[tuple[str, Values]]:
    at: Values = {"item_id": item["id"], "output_index": index}
    if deltas:
        kind, part, _ = deltas[0]
        text = "".join(text for _, _, text in deltas)
        done = kind.removesuffix(".delta") + ".done"
        if part:
            place = {**at, "content_index": 0}
            yield done, {**place, _field(part): text}
            whole = {"type": part, _field(part): text}
            yield "response.content_part.done", {**place, "part": whole}
        else:
            yield done, {**at, "arguments": text}
    yield "response.output_item.done", {"output_index": index, "item": item}


def _call_item(name: str, call: Call) -> tuple[list[tuple[str, str, str]], Values]:
    item: Values = {"id": f"fc_{name}", "type": "function_call", "status": "completed", "call_id": call.id, "name": call.name, "arguments": call.arguments}  # fmt: skip
    kind = "response.function_call_arguments.delta"
    starts = range(0, len(call.arguments), _ARGUMENT_CHARS)
    return [(kind, "", call.arguments[at : at + _ARGUMENT_CHARS]) for at in starts], item


def _numbered(first: int, events: Sequence[tuple[str, Values]]) -> list[bytes]:
    """Events as bytes, numbered from `first` on."""
    return [
        b"event: %b\ndata: %b\n\n"
        % (kind.encode(), msgspec.json.encode({"type": kind, "sequence_number": number, **values}))
        for number, (kind, values) in enumerate(events, start=first)
    ]


class _Part(Struct, frozen=True):
    text: str = ""


class _Item(Struct, frozen=True):
    type: str = "message"
    role: str | None = None
    content: str | list[_Part] | None = None
    status: str | None = None
    output: str | list[_Part] | None = None

    def text(self) -> str:
        said = self.content if self.content is not None else self.output
        match said:
            case str(text):
                return text
            case None:
                return ""
            case parts:
                return " ".join(part.text for part in parts)


class _Tool(Struct, frozen=True):
    name: str | None = None
    parameters: object = None


class _ResponsesBody(Struct, frozen=True):
    model: str
    input: str | list[_Item] = ""
    stream: bool | None = None
    instructions: str | None = None
    previous_response_id: str | None = None
    max_output_tokens: Annotated[int, Meta(ge=1)] | None = None
    tools: list[_Tool] | None = None
    tool_choice: object = None
    text: object = None

    def tool(self) -> Tool:
        declared = [Tool(each.name, each.parameters) for each in self.tools or () if each.name]
        match self.tool_choice:
            case {"type": "function", "name": name}:
                declared.sort(key=lambda each: each.name != name)
            case _:
                pass
        return declared[0] if declared else DEFAULT_TOOL

    def forced(self) -> bool:
        return self.tool_choice == "required" or isinstance(self.tool_choice, dict)

    def schema(self) -> object:
        match self.text:
            case {"format": {"type": "json_object"}}:
                return {"type": "object"}
            case {"format": {"type": "json_schema", "schema": schema}}:
                return schema
            case _:
                return None

    def items(self) -> Sequence[_Item]:
        if isinstance(self.input, str):
            return [_Item(role="user", content=self.input)]
        return self.input


def read_responses(body: bytes, *, serial: int) -> Response:
    """Read a request body. Raises InvalidChat.

    A last item that is an assistant's message and says that it is not complete is gone on with (vLLM).
    """
    try:
        asked = msgspec.json.decode(body, type=_ResponsesBody)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidChat(str(error)) from error
    items = asked.items()
    last = items[-1] if items else _Item()
    unfinished = last.role == "assistant" and last.status in {"incomplete", "in_progress"}
    users = [each.text() for each in items if each.role == "user"]
    return Response(
        model=asked.model,
        serial=serial,
        prompt=users[-1] if users else "",
        prefix=last.text() if unfinished else "",
        prompt_tokens=sum(len(words_of(each.text())) for each in items),
        tokens_max=asked.max_output_tokens,
        stream=bool(asked.stream),
        tool=asked.tool(),
        forced=asked.forced(),
        schema=asked.schema(),
        instructions=asked.instructions,
        previous=asked.previous_response_id,
    )
