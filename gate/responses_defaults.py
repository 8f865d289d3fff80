"""What a response object has to have, whatever its provider leaves out: strict clients refuse one without its nullable members.

A provider's own member always stays, unless it is null where it may not be. One that is missing is the caller's own, where its request has it, since a response repeats what was asked for; else what OpenAI's reference gives as
its default, or null. `store` is false where nobody says that anything is kept.
"""

from __future__ import annotations

import types
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from gate.ingress import CallerRequest
from gate.loose_json import encoded, items, member_value, tolerant_object
from gate.splice import Body

__all__ = ["filled", "repeated"]

REPEATED_BYTES_MAX: Final = 65_536  # of a request's members that are repeated, in all
_DEFAULTS: Final[Mapping[str, bytes]] = types.MappingProxyType(
    {
        "background": b"false",
        "completed_at": b"null",
        "error": b"null",
        "frequency_penalty": b"0.0",
        "incomplete_details": b"null",
        "instructions": b"null",
        "max_output_tokens": b"null",
        "max_tool_calls": b"null",
        "metadata": b"{}",
        "parallel_tool_calls": b"true",
        "presence_penalty": b"0.0",
        "previous_response_id": b"null",
        "prompt_cache_key": b"null",
        "reasoning": b"null",
        "safety_identifier": b"null",
        "service_tier": b'"default"',
        "store": b"false",
        "temperature": b"1.0",
        "text": b'{"format":{"type":"text"}}',
        "tool_choice": b'"auto"',
        "tools": b"[]",
        "top_logprobs": b"0",
        "top_p": b"1.0",
        "truncation": b'"disabled"',
        "usage": b"null",
    }
)
# What only a provider can say.
_NOT_REPEATED: Final = frozenset({"completed_at", "error", "incomplete_details", "usage"})
_OF_A_FUNCTION: Final[Mapping[str, Any]] = types.MappingProxyType(
    {"description": None, "parameters": None, "strict": None}
)
_OF_USAGE: Final[Mapping[str, bytes]] = types.MappingProxyType(
    {
        "input_tokens_details": b'"input_tokens_details":{"cached_tokens":0}',
        "output_tokens_details": b'"output_tokens_details":{"reasoning_tokens":0}',
    }
)
_OF_REASONING: Final[Mapping[str, Any]] = types.MappingProxyType({"effort": None, "summary": None})
_OF_A_SCHEMA: Final[Mapping[str, Any]] = types.MappingProxyType(
    {"description": None, "strict": False}
)


def repeated(body: Body, request: CallerRequest) -> bytes:
    """The members of a request that its response repeats, as one JSON object; those that are too large are left out."""
    told: dict[str, Any] = {}
    size = 0
    for member in request.members:
        if member.key in _DEFAULTS and member.key not in _NOT_REPEATED:
            value = member_value(body, member, bytes_max=REPEATED_BYTES_MAX - size)
            if value is not None and value is not msgspec.UNSET:
                size += member.value_end - member.value_start
                told[member.key] = value
    if "tools" in told:
        told["tools"] = [_whole_tool(tool) for tool in items(told["tools"])]
    if isinstance(told.get("reasoning"), dict):
        told["reasoning"] = {**_OF_REASONING, **told["reasoning"]}
    if isinstance(told.get("text"), dict):
        told["text"] = _whole_text(told["text"])
    return encoded(told)


def _whole_text(text: Mapping[str, Any]) -> Mapping[str, Any]:
    """With the format, and with what its provider would say of a schema."""
    form = text.get("format") or {"type": "text"}
    if isinstance(form, dict) and form.get("type") == "json_schema":
        form = {**_OF_A_SCHEMA, **form}
    return {**text, "format": form}


def _whole_tool(tool: Mapping[str, Any]) -> Mapping[str, Any]:
    return {**_OF_A_FUNCTION, **tool} if tool.get("type") == "function" else tool


def filled(values: Mapping[str, bytes], asked: Mapping[str, bytes]) -> dict[str, bytes]:
    """A response object, member by member, with what it has to have; `asked`: what its request says."""
    missing = {
        name: asked.get(name, default)
        for name, default in _DEFAULTS.items()
        if values.get(name, b"null") == b"null" and (name not in values or default != b"null")
    }
    told = {**values, **missing}
    return {**told, "usage": _whole_usage(told["usage"])}


def _whole_usage(usage: bytes) -> bytes:
    """With the details that it has to have, behind what its provider says."""
    known = tolerant_object(usage) or {}
    missing = [raw for name, raw in _OF_USAGE.items() if known and known.get(name) is None]
    if not missing:
        return usage
    if any(name in known for name in _OF_USAGE):  # as null, perhaps
        usage = encoded({name: value for name, value in known.items() if value is not None})
    return b",".join([usage[:-1], *missing]) + b"}"
