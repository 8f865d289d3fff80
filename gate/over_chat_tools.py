"""Tools, the choice among them and the format of a Responses request, as a chat request says them: there they lie one level deeper.

Only what the caller carries out has a place in chat: functions and custom tools.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from gate.json_parts import Parts, Span
from gate.loose_json import paired
from gate.over_chat_pieces import Listed, Piece, refused
from gate.steps import Steps

__all__ = ["read_choice", "read_format", "read_tools"]

_KINDS: Final = frozenset({"function", "custom"})
_MODES: Final = frozenset({"auto", "none", "required"})


def _nested(kind: bytes, pieces: list[Piece]) -> list[Piece]:
    return [b'{"type":"%b","%b":' % (kind, kind), *pieces, b"}"]


def _rest(members: Mapping[str, Span]) -> list[Piece]:
    """An object with all members but its type."""
    pieces: list[Piece] = [b"{"]
    for name, span in members.items():
        if name != "type":
            pieces += [b"," if len(pieces) > 1 else b"", _key(name), span]
    return [*pieces, b"}"]


def _key(name: str) -> bytes:
    return msgspec.json.encode(paired(name)) + b":"


def read_tools(source: Parts, span: Span) -> Steps[list[Piece]]:
    """The value of `tools`. Raises `RequestRefused`."""
    tools = Listed()
    for number, each in enumerate((yield from source.elements(span, "tools"))):
        place = f"tools[{number}]"
        members = dict((yield from source.members(each, place)))
        kind = source.word(members.get("type"), f"{place}.type")
        if kind not in _KINDS:
            raise refused(f"{place}.type")
        if kind == "custom" and source.given(members.get("format")):
            form = yield from _tool_format(source, members.pop("format"), f"{place}.format")
            rest = _rest(members)
            comma = b"," if len(rest) > 2 else b""
            tools.add(*_nested(b"custom", [*rest[:-1], comma, b'"format":', *form, b"}"]))
        else:
            tools.add(*_nested(kind.encode(), _rest(members)))
        if source.due():
            yield
    return tools.closed()


def _tool_format(source: Parts, span: Span, place: str) -> Steps[list[Piece]]:
    members = yield from source.members(span, place)
    kind = source.word(members.get("type"), f"{place}.type")
    return _nested(b"grammar", _rest(members)) if kind == "grammar" else [span]


def read_choice(source: Parts, span: Span) -> Steps[list[Piece]]:
    """The value of `tool_choice`; nothing where it says what holds anyway where there are no tools. Raises `RequestRefused`."""
    if source.is_text(span):
        if source.word(span, "tool_choice") not in _MODES:
            raise refused("tool_choice")
        return [span]
    members = yield from source.members(span, "tool_choice")
    kind = source.word(members.get("type"), "tool_choice.type")
    if kind in _KINDS:
        return _named(source, members, kind, "tool_choice")
    if kind != "allowed_tools":
        raise refused("tool_choice.type")
    given = members.get("tools")
    allowed = Listed()
    for number, each in enumerate(
        (yield from source.elements(given, "tool_choice.tools")) if given is not None else ()
    ):
        place = f"tool_choice.tools[{number}]"
        tool = yield from source.members(each, place)
        of = source.word(tool.get("type"), f"{place}.type")
        if of not in _KINDS:
            raise refused(f"{place}.type")
        allowed.add(*_named(source, tool, of, place))
    mode = source.string(members.get("mode"), "tool_choice.mode")
    return _nested(b"allowed_tools", [b'{"mode":', mode, b',"tools":', *allowed.closed(), b"}"])


def _named(source: Parts, members: Mapping[str, Span], kind: str, place: str) -> list[Piece]:
    name = source.string(members.get("name"), f"{place}.name")
    return _nested(kind.encode(), [b'{"name":', name, b"}"])


def read_format(source: Parts, span: Span) -> Steps[list[Piece]]:
    """The value of `response_format`; nothing where any text will do. Raises `RequestRefused`."""
    members = yield from source.members(span, "text.format")
    kind = source.word(members.get("type"), "text.format.type")
    if kind == "json_schema":
        return _nested(b"json_schema", _rest(members))
    if kind not in {"json_object", "text"}:
        raise refused("text.format.type")
    return [span] if kind == "json_object" else []
