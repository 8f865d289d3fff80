"""What a request says about tool calls: the tools it declares, which of them may or must be called, and how long the answer may get.

Read from the request's own bytes in bounded steps: names are decoded, schemas stay slices of the body until a call needs one. Where `tools` or `functions` are larger than
512 KiB, or hold something that has no name here (a provider's own tools), names are not judged; a choice that is not understood asks for nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from gate.dialects import CEILINGS
from gate.ingress import CallerRequest
from gate.loose_json import items, member_value, string
from gate.splice import Body, JsonRefused, Member, scan_elements, scan_members

__all__ = ["DeclaredTool", "ToolRules", "read_tool_rules"]

TOOLS_BYTES_MAX: Final = 524_288  # of `tools`, and of `functions`: hundreds of tools
TOOLS_MAX: Final = 1_024
TOOL_MEMBERS_MAX: Final = 32  # of one tool, and of its function
CHOICE_BYTES_MAX: Final = 65_536  # of `tool_choice`
NAME_BYTES_MAX: Final = 1_024
_FLAT: Final = ("function", "custom")  # types of tools that the caller carries out
_MEMBERS: Final = frozenset(
    {"tools", "functions", "tool_choice", "function_call", "parallel_tool_calls"}
)


class DeclaredTool(msgspec.Struct, frozen=True):
    """One tool. `place`: its place in the request's array; `schema`: the bytes of its parameters' JSON Schema, or nothing; `custom`: it takes free text."""

    name: str
    place: int
    schema: bytes = b""
    custom: bool = False

    def __repr__(self) -> str:
        return f"DeclaredTool({self.place}, {len(self.schema)} bytes of schema)"


class ToolRules(msgspec.Struct, frozen=True):
    """`tools` by name; `closed`: no other name may be called; `allowed`: if any, only these may; `ceiling`: completion tokens that the caller allows, over all its choices."""

    tools: Mapping[str, DeclaredTool] = {}
    closed: bool = False
    forbidden: bool = False  # tool_choice "none"
    required: bool = False
    allowed: frozenset[str] | None = None
    parallel: bool = True
    ceiling: int | None = None

    def __repr__(self) -> str:
        return f"ToolRules({len(self.tools)} tools)"


def read_tool_rules(body: Body, request: CallerRequest) -> ToolRules | None:
    """What `request`, read from `body`, says; None where it says nothing."""
    ceilings = CEILINGS[request.endpoint]
    known = _MEMBERS.union(ceilings)
    found = {member.key: member for member in request.members if member.key in known}
    if not found:
        return None
    named: dict[str, DeclaredTool] = {}
    unnamed = 0
    for tool in (*_declared(body, found.get("tools")), *_functions(body, found.get("functions"))):
        if tool is None:
            unnamed += 1
        else:
            named.setdefault(tool.name, tool)
    choice = _value(body, found, "tool_choice")
    if choice is None:
        choice = _value(body, found, "function_call")
    return ToolRules(
        tools=named,
        closed=bool(named) and not unnamed,
        forbidden=choice == "none",
        required=_is_required(choice),
        allowed=_allowed(choice),
        parallel=_value(body, found, "parallel_tool_calls") is not False,
        ceiling=_ceiling(body, found, ceilings, request.choices),
    )


def _value(body: Body, found: Mapping[str, Member], name: str) -> Any:
    """A small member's value; None where it says nothing, or more than is read."""
    if name not in found:
        return None
    value = member_value(body, found[name], bytes_max=CHOICE_BYTES_MAX)
    return None if value is msgspec.UNSET else value


def _declared(body: Body, member: Member | None) -> Iterator[DeclaredTool | None]:
    """The entries of `tools`; None for one without a name here, or for all of them where there is too much."""
    for place, members in enumerate(_elements(body, member)):
        function, custom = members.get("function"), members.get("custom")
        inner = function or custom
        if inner is not None:
            told = _object(body, inner.value_start)
            yield _tool(body, told, place, custom=function is None)
        else:
            yield _flat_tool(body, members, place)


def _flat_tool(body: Body, members: Mapping[str, Member], place: int) -> DeclaredTool | None:
    """A tool as the Responses API spells it; None where it is one of the provider's own."""
    kind = members.get("type")
    said = None if kind is None else member_value(body, kind, bytes_max=NAME_BYTES_MAX)
    return _tool(body, members, place, custom=said == "custom") if said in _FLAT else None


def _functions(body: Body, member: Member | None) -> Iterator[DeclaredTool | None]:
    """The same for the entries of `functions`."""
    for place, members in enumerate(_elements(body, member)):
        yield _tool(body, members, place, custom=False)


def _elements(body: Body, member: Member | None) -> Iterator[dict[str, Member]]:
    """The members of each entry of an array; of one that is too large or too long, an entry without any."""
    if member is None or body[member.value_start : member.value_start + 1] != b"[":
        return
    if member.value_end - member.value_start > TOOLS_BYTES_MAX:
        yield {}
        return
    try:
        spans = scan_elements(
            body, start=member.value_start, depth_max=len(body), elements_max=TOOLS_MAX
        )
    except JsonRefused:
        spans = ((member.value_start, member.value_end),)
    for start, _ in spans:
        yield _object(body, start)


def _object(body: Body, start: int) -> dict[str, Member]:
    """The members of an object; nothing where it is none, or has too many."""
    if body[start : start + 1] != b"{":
        return {}
    try:
        members = scan_members(body, start=start, depth_max=len(body), members_max=TOOL_MEMBERS_MAX)
    except JsonRefused:
        return {}
    return {member.key: member for member in members}


def _tool(
    body: Body, members: Mapping[str, Member], place: int, *, custom: bool
) -> DeclaredTool | None:
    name = members.get("name")
    said = None if name is None else member_value(body, name, bytes_max=NAME_BYTES_MAX)
    if not isinstance(said, str) or not said:
        return None
    parameters = members.get("parameters")
    schema = b"" if parameters is None else body[parameters.value_start : parameters.value_end]
    return DeclaredTool(said, place, b"" if schema == b"null" else bytes(schema), custom)


def _is_required(choice: object) -> bool:
    match choice:
        case "required" | "any":
            return True
        case {"type": "allowed_tools", "allowed_tools": {"mode": "required"}}:
            return True
        case {"type": "allowed_tools", "mode": "required"}:
            return True
        case {"type": "allowed_tools"}:
            return False
        case _:
            return _named(choice) is not None


def _allowed(choice: object) -> frozenset[str] | None:
    """The names that a choice leaves; None: all of them."""
    match choice:
        case {"type": "allowed_tools", "allowed_tools": {"tools": list(tools)}} | {
            "type": "allowed_tools",
            "tools": list(tools),
        }:
            names = [_named(tool) for tool in items(tools)]
            told = frozenset(name for name in names if name)
            return told if len(told) == len(tools) else None
        case _:
            name = _named(choice)
            return None if name is None else frozenset({name})


def _named(choice: object) -> str | None:
    """The one tool that a choice names: `{"function": {"name": ...}}`, the same with `custom`, or `{"name": ...}` (legacy, and Responses), unless that is a tool of the provider's."""
    match choice:
        case {"type": str(kind)} if kind not in _FLAT:
            return None
        case {"function": {"name": name}} | {"custom": {"name": name}} | {"name": name}:
            return string(name) or None
        case _:
            return None


def _ceiling(
    body: Body, found: Mapping[str, Member], names: Sequence[str], choices: int
) -> int | None:
    """The smallest ceiling that the caller gives; each of its choices may reach it."""
    said = [_value(body, found, name) for name in names]
    told = [value for value in said if type(value) is int and value > 0]
    return min(told) * choices if told else None
