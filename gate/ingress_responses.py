"""What a request of the Responses API says that a chat request does not: its input, its tools and format, and what it has its provider keep.

`input` is one text or a list of items; it may be left out where the provider has something to go on from. A response in the background can't be watched as one stream, so it is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from gate.errors import RequestRefused
from gate.ingress import Details, RequestRules, boolean, brings_tools, inside, value_of
from gate.splice import Body, Member
from gate.steps import Steps, holds, word_in

__all__ = ["RESPONSES_PATH", "RESPONSES_RULES"]

RESPONSES_PATH: Final = "/v1/responses"

_NAMES: Final = frozenset(
    {
        "add_generation_prompt",
        "background",
        "continue_final_message",
        "conversation",
        "include",
        "input",
        "max_output_tokens",
        "model",
        "parallel_tool_calls",
        "previous_response_id",
        "prompt",
        "store",
        "stream",
        "stream_options",
        "text",
        "tool_choice",
        "tools",
        "top_logprobs",
    }
)
# What a provider may know already, so that a request need not bring any input.
_KNOWN: Final = ("previous_response_id", "conversation", "prompt")


def _read(body: Body, found: Mapping[str, Member]) -> Steps[Details]:
    known = [name for name in _KNOWN if not _is_null(body, found.get(name))]
    yield from _check_input(body, found.get("input"), needed=not known)
    if boolean(value_of(body, found.get("background")), "background"):
        raise RequestRefused(400, "unsupported_parameter", param="background")
    previous = value_of(body, found.get("previous_response_id"))
    if previous is not None and not isinstance(previous, str):
        raise RequestRefused(400, "invalid_type", param="previous_response_id")
    kept = boolean(value_of(body, found.get("store")), "store")
    inside(body, found.get("stream_options"), b"{")
    needs = {"responses"}
    if (yield from brings_tools(body, found.get("tools"))):
        needs.add("tools")
    text = inside(body, found.get("text"), b"{")
    if text is not None and (yield from holds(body, b'"json_schema"', *text)):
        needs.add("json_schema")
    return Details(False, 1, frozenset(needs), stored=kept or bool(known))


def _check_input(body: Body, member: Member | None, *, needed: bool) -> Steps[None]:
    if _is_null(body, member):
        if needed:
            raise RequestRefused(400, "missing_required_parameter", param="input")
        return
    assert member is not None, "it is there"
    if body[member.value_start : member.value_start + 1] == b'"':
        return
    items = inside(body, member, b"[")
    assert items is not None, "it is not null"
    if needed and (yield from word_in(body, *items)) == items[1]:
        raise RequestRefused(400, "invalid_value", param="input")


def _is_null(body: Body, member: Member | None) -> bool:
    return member is None or body[member.value_start : member.value_start + 1] == b"n"


RESPONSES_RULES: Final = RequestRules(RESPONSES_PATH, _NAMES, _read)
