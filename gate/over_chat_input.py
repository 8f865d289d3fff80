"""The input of a Responses request as the messages of a chat request.

    one text             a user's message
    messages             each as one. `developer` is `system`, which every server knows; instructions and what is said so at the beginning become one message, since some
                         servers take only one, and only there
    calls                function_call and custom_tool_call: calls of the assistant's message before them, or of one of their own, as long as nothing else stands between them
    what calls gave      a tool's message
    reasoning            left out: chat has no place for what was thought in earlier turns, nor for the `phase` of a message

Anything else has no place in chat, and is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from gate.errors import RequestRefused
from gate.json_parts import Parts, Span
from gate.over_chat_content import Content, read_content
from gate.over_chat_pieces import Listed, Output, Piece, refused
from gate.steps import Steps

__all__ = ["Messages"]

_SYSTEM: Final = frozenset({"system", "developer"})
_ROLES: Final = _SYSTEM | {"user", "assistant"}
# Kinds of calls: the member that says with what, and how chat writes one.
_CALLS: Final[Mapping[str, tuple[str, bytes, bytes]]] = {
    "function_call": ("arguments", b'"type":"function","function":{"name":', b',"arguments":'),
    "custom_tool_call": ("input", b'"type":"custom","custom":{"name":', b',"input":'),
}
_OUTPUTS: Final = frozenset({"function_call_output", "custom_tool_call_output"})


class Messages:
    """Writes the messages, as the value of a member of `output`."""

    def __init__(self, source: Parts, output: Output) -> None:
        self._source = source
        self._output = output
        self._count = 0
        self._leading: list[Span] | None = []  # texts of the system's at the beginning
        self._said: list[Piece] | None = None  # content of an assistant's message that is open
        self._calls = Listed()  # of that message, or of one without content
        self._steps: Mapping[str, Callable[[Mapping[str, Span], str], Steps[None]]] = {
            "message": self._message,
            "reasoning": self._reasoning,
            **dict.fromkeys(_CALLS, self._call),
            **dict.fromkeys(_OUTPUTS, self._call_output),
        }

    def write(self, instructions: Span | None, given: Span | None) -> Steps[None]:
        """All of them. Raises `RequestRefused` (400)."""
        source = self._source
        self._output.put(b"[")
        if instructions is not None and source.given(instructions):
            start, end = source.string(instructions, "instructions")
            yield from self._system(Content(((start + 1, end - 1),), []))
        assert given is not None, "what could stand for it was refused"
        if source.is_text(given):
            yield from self._put(b'{"role":"user","content":', given, b"}")
        else:
            yield from self._items(given)
        yield from self._flush()
        self._output.put(b"]")

    def _items(self, given: Span) -> Steps[None]:
        source = self._source
        for number, each in enumerate((yield from source.elements(given, "input"))):
            place = f"input[{number}]"
            members = yield from source.members(each, place)
            kind = "message"
            if source.given(members.get("type")):
                kind = source.word(members.get("type"), f"{place}.type")
            if kind not in self._steps:
                raise refused(f"{place}.type")
            yield from self._steps[kind](members, place)
            if source.due():
                yield

    def _message(self, members: Mapping[str, Span], place: str) -> Steps[None]:
        source = self._source
        role = source.word(members.get("role"), f"{place}.role")
        if role not in _ROLES:
            raise RequestRefused(400, "invalid_value", param=f"{place}.role")
        given = members.get("content")
        if given is None or not source.given(given):
            raise RequestRefused(400, "missing_required_parameter", param=f"{place}.content")
        content = yield from read_content(source, given, f"{place}.content")
        if role in _SYSTEM:
            yield from self._system(content)
        elif role == "assistant":
            yield from self._flush()
            self._said = content.pieces
        else:
            yield from self._put(b'{"role":"user","content":', *content.pieces, b"}")

    def _system(self, content: Content) -> Steps[None]:
        if self._leading is not None and content.texts is not None:
            self._leading += content.texts
        else:
            yield from self._put(b'{"role":"system","content":', *content.pieces, b"}")

    def _reasoning(self, members: Mapping[str, Span], place: str) -> Steps[None]:
        yield from ()

    def _call(self, members: Mapping[str, Span], place: str) -> Steps[None]:
        source = self._source
        kind = source.word(members.get("type"), f"{place}.type")
        field, name_follows, field_follows = _CALLS[kind]
        if source.given(members.get("namespace")):  # its name alone may be another tool's
            raise refused(f"{place}.namespace")
        told = [
            source.string(members.get(each), f"{place}.{each}")
            for each in ("call_id", "name", field)
        ]
        self._calls.add(
            b'{"id":', told[0], b",", name_follows, told[1], field_follows, told[2], b"}}"
        )
        yield from ()

    def _call_output(self, members: Mapping[str, Span], place: str) -> Steps[None]:
        source = self._source
        call_id = source.string(members.get("call_id"), f"{place}.call_id")
        given = members.get("output")
        if given is None or not source.given(given):
            raise RequestRefused(400, "missing_required_parameter", param=f"{place}.output")
        content = yield from read_content(source, given, f"{place}.output")
        yield from self._put(
            b'{"role":"tool","tool_call_id":', call_id, b',"content":', *content.pieces, b"}"
        )

    def _put(self, *pieces: Piece) -> Steps[None]:
        """One more message."""
        yield from self._flush()
        yield from self._write(pieces)

    def _flush(self) -> Steps[None]:
        """What stood open is over."""
        if self._leading:
            texts: list[Piece] = []
            for text in self._leading:
                texts += [b"\\n\\n", text] if texts else [text]
            yield from self._write([b'{"role":"system","content":"', *texts, b'"}'])
        self._leading = None
        if self._said is None and not self._calls:
            return
        said, calls, self._said, self._calls = self._said, self._calls, None, Listed()
        pieces: list[Piece] = [b'{"role":"assistant","content":', *(said or [b"null"])]
        if calls:
            pieces += [b',"tool_calls":', *calls.closed()]
        yield from self._write([*pieces, b"}"])

    def _write(self, pieces: Sequence[Piece]) -> Steps[None]:
        if self._count:
            self._output.put(b",")
        self._count += 1
        yield from self._output.write(pieces)
