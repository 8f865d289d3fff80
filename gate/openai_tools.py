"""Tool calls as chat chunks spell them: the typed members of the decoder's fast tier, and what its tolerant tier makes of odd ones."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from gate.events import ToolDelta
from gate.loose_json import encoded, items, string

__all__ = [
    "LONE_HALF",
    "Custom",
    "Function",
    "Tool",
    "loose_function",
    "loose_tool",
    "odd_calls",
    "tool_deltas",
    "untyped",
]

LONE_HALF: Final = re.compile("[\ud800-\udfff]")
LEGACY: Final = -1  # the index of a `function_call`
INDEX_DIGITS_MAX: Final = 9


class Function(msgspec.Struct):
    name: str | None = None
    arguments: str | None = None


class Custom(msgspec.Struct):
    name: str | None = None
    input: str | None = None


class Tool(msgspec.Struct):
    index: int | None = None
    id: str | None = None
    type: str | None = None
    function: Function | None = None
    custom: Custom | None = None


def tool_deltas(
    choice: int, tools: Sequence[Tool] | None, function_call: Function | None
) -> Iterator[ToolDelta]:
    """The events of one delta, one for each entry in order; the legacy member comes last."""
    for tool in tools or ():
        name, arguments, custom = None, None, False
        if tool.function is not None:
            name, arguments = tool.function.name, tool.function.arguments
        elif tool.custom is not None:
            name, arguments, custom = tool.custom.name, tool.custom.input, True
        # One below zero is none, and one of them has a meaning of its own.
        index = tool.index if tool.index is not None and tool.index >= 0 else None
        yield ToolDelta(choice, index, tool.id, name, arguments, custom)
    if function_call is not None:
        yield ToolDelta(choice, LEGACY, None, function_call.name, function_call.arguments)


def untyped(tools: Sequence[Tool] | None) -> bool:
    """Whether a call begins without its type; some clients refuse that."""
    for tool in tools or ():
        named = tool.custom if tool.function is None else tool.function
        if named is not None and named.name and not tool.type:
            return True
    return False


def odd_calls(delta: Mapping[str, Any]) -> bool:
    """Whether a delta holds pieces of calls that a client can't take as they are."""
    pieces = [*items(delta.get("tool_calls")), {"function": delta.get("function_call")}]
    return any(map(_odd, pieces))


def _odd(tool: Mapping[str, Any]) -> bool:
    """Arguments that are no string, arguments or free text with half a character, or an index that is no number."""
    function, custom = tool.get("function"), tool.get("custom")
    arguments = function.get("arguments") if isinstance(function, Mapping) else None
    if isinstance(arguments, str):
        arguments = LONE_HALF.search(arguments)
    free = string(custom.get("input")) if isinstance(custom, Mapping) else None
    torn = free is not None and LONE_HALF.search(free) is not None
    index = tool.get("index")
    return torn or arguments is not None or (index is not None and type(index) is not int)


def loose_tool(tool: Mapping[str, Any]) -> Tool:
    """One entry, whatever its members are."""
    custom = tool.get("custom")
    loose = Tool(
        _index(tool.get("index")),
        string(tool.get("id")),
        string(tool.get("type")),
        loose_function(tool.get("function")),
    )
    if loose.function is None and isinstance(custom, Mapping):
        loose.custom = Custom(string(custom.get("name")), string(custom.get("input")))
    return loose


def loose_function(function: object) -> Function | None:
    """Name and arguments; arguments that are no string are encoded as one."""
    if not isinstance(function, Mapping):
        return None
    arguments = function.get("arguments")
    if arguments is not None and not isinstance(arguments, str):
        arguments = encoded(arguments).decode()
    return Function(string(function.get("name")), arguments)


def _index(index: object) -> int | None:
    """A number, or the digits of one; anything else says nothing."""
    if isinstance(index, str) and index.isdecimal() and len(index) <= INDEX_DIGITS_MAX:
        return int(index)
    return index if type(index) is int else None
