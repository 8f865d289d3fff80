"""A Responses request as the chat request that asks for the same, for a provider that only has chat completions.

    as it is     model, sampling, metadata, user and its like, and every member that neither API is known for
    renamed      max_output_tokens -> max_tokens, reasoning.effort -> reasoning_effort, text.verbosity -> verbosity
    rebuilt      instructions and input -> messages, text.format -> response_format, tools, tool_choice; log probabilities that `include` asks for
    of no effect where nothing is kept and no tool is the provider's: store: false, max_tool_calls, truncation: "disabled", a wish for summaries or for encrypted reasoning
    refused      everything else: what a provider would have to keep (previous_response_id, conversation, store, prompt), its own tools, and chat's own members

A stream is asked for its usage, because a response always says it. Everything is read and written in bounded steps; texts and pictures are never decoded.
"""

from __future__ import annotations

import types
from collections.abc import Mapping
from typing import Final

from gate.ingress import CHAT_PATH, READ, CallerRequest
from gate.json_parts import Parts, Span
from gate.over_chat_input import Messages
from gate.over_chat_pieces import Output, refused
from gate.over_chat_tools import read_choice, read_format, read_tools
from gate.refs import is_stable_token
from gate.splice import Body
from gate.steps import Steps

__all__ = ["callers_param", "translate"]

# What can't be asked for, where it says anything.
_REFUSED: Final = (
    "context_management",
    "conversation",
    "previous_response_id",
    "prompt",
)
# Written, or read elsewhere, under another name; so none of a name that chat has may stand beside it.
_READ: Final = frozenset(
    {
        "background",
        "include",
        "input",
        "instructions",
        "max_output_tokens",
        "max_tool_calls",
        "model",
        "parallel_tool_calls",
        "reasoning",
        "store",
        "stream",
        "stream_options",
        "text",
        "tool_choice",
        "tools",
        "top_logprobs",
        "truncation",
        *_REFUSED,
    }
)
_CHATS_OWN: Final = (
    (READ | {"reasoning_effort", "verbosity"})
    - _READ
    - {
        "add_generation_prompt",
        "continue_final_message",
        "stop",
    }
)
_LOGPROBS: Final = "message.output_text.logprobs"
# `include` may ask for these: the second has no effect, since no reasoning is encrypted here.
_INCLUDED: Final = frozenset({_LOGPROBS, "reasoning.encrypted_content"})
_SUMMARIES: Final = frozenset({"effort", "summary", "generate_summary"})
# A provider blames a member of the body that it got: what the caller calls that.
_CALLERS: Final[Mapping[str, str]] = types.MappingProxyType(
    {
        "max_tokens": "max_output_tokens",
        "messages": "input",
        "reasoning_effort": "reasoning.effort",
        "response_format": "text.format",
        "verbosity": "text.verbosity",
    }
)


def callers_param(param: str | None) -> str | None:
    """What the caller calls a member that a provider blames."""
    if param is None:
        return None
    name = next((known for known in _CALLERS if param == known or param.startswith((f"{known}.", f"{known}["))), "")  # fmt: skip
    return _CALLERS.get(name, param)


def translate(body: Body, request: CallerRequest, output: Output) -> Steps[CallerRequest]:
    """Writes the chat request of a Responses request that was read from `body`; what the gate reads of it. Raises `RequestRefused` (400), with the member that chat has no place for as `param`."""
    found = {member.key: (member.value_start, member.value_end) for member in request.members}
    return (yield from _Translation(Parts(body), found, request, output).run())


def _inner(param: str, name: str) -> str:
    """The path of a member that nothing here knows."""
    return f"{param}.{name}" if is_stable_token(name) else param


class _Translation:
    def __init__(
        self, source: Parts, found: Mapping[str, Span], request: CallerRequest, output: Output
    ) -> None:
        self._source = source
        self._found = found
        self._request = request
        self._output = output

    def run(self) -> Steps[CallerRequest]:
        output = self._output
        logprobs = yield from self._checked()
        output.member("model", self._found["model"])
        output.begin("messages")
        messages = Messages(self._source, output)
        yield from messages.write(self._given("instructions"), self._given("input"))
        output.end()
        for member in self._request.members:
            if member.key not in _READ:
                output.copy(member)
        if self._request.stream:
            output.member("stream", b"true")
            output.member("stream_options", b'{"include_usage":true}')
        self._renamed("max_output_tokens", "max_tokens")
        if logprobs:
            output.member("logprobs", b"true")
            self._renamed("top_logprobs", "top_logprobs")
        yield from self._reasoning()
        yield from self._text()
        yield from self._tools()
        output.close()
        return self._read()

    def _read(self) -> CallerRequest:
        request, members = self._request, tuple(self._output.members)
        model_at = next(member for member in members if member.key == "model")
        return CallerRequest(
            model=request.model,
            stream=request.stream,
            include_usage=request.stream,
            choices=1,
            needs=request.needs - {"responses"},
            model_at=model_at,
            members=members,
            endpoint=CHAT_PATH,
        )

    def _given(self, name: str) -> Span | None:
        """A member that says something."""
        span = self._found.get(name)
        return span if self._source.given(span) else None

    def _checked(self) -> Steps[bool]:
        """Refuses what chat has no place for; whether log probabilities are asked for."""
        for name in self._found:
            if name in _CHATS_OWN or (name in _REFUSED and self._given(name) is not None):
                raise refused(name)
        if self._source.switch(self._given("store"), "store"):
            raise refused("store")
        truncation = self._given("truncation")
        if truncation is not None and self._source.word(truncation, "truncation") != "disabled":
            raise refused("truncation")
        include = self._given("include")
        asked = set[str]()
        if include is not None:
            for number, each in enumerate((yield from self._source.elements(include, "include"))):
                place = f"include[{number}]"
                asked.add(self._source.word(each, place))
                if not asked <= _INCLUDED:
                    raise refused(place)
        return _LOGPROBS in asked

    def _renamed(self, name: str, chats: str) -> None:
        span = self._given(name)
        if span is not None:
            self._output.member(chats, span)

    def _reasoning(self) -> Steps[None]:
        span = self._given("reasoning")
        if span is None:
            return
        members = yield from self._source.members(span, "reasoning")
        for name, value in members.items():
            if name not in _SUMMARIES and self._source.given(value):
                raise refused(_inner("reasoning", name))
        effort = members.get("effort")
        if effort is not None and self._source.given(effort):
            said = self._source.string(effort, "reasoning.effort")
            self._output.member("reasoning_effort", said)

    def _text(self) -> Steps[None]:
        span = self._given("text")
        if span is None:
            return
        members = yield from self._source.members(span, "text")
        for name, value in members.items():
            if not self._source.given(value):
                continue
            if name == "format":
                pieces = yield from read_format(self._source, value)
                if pieces:
                    self._output.member("response_format", *pieces)
            elif name == "verbosity":
                self._output.member("verbosity", self._source.string(value, "text.verbosity"))
            else:
                raise refused(_inner("text", name))

    def _tools(self) -> Steps[None]:
        """Without tools there is nothing to choose, and servers refuse members that do."""
        source, choice = self._source, self._given("tool_choice")
        tools = self._given("tools")
        has_tools = "tools" in self._request.needs
        if has_tools and tools is not None:
            yield from self._output.large("tools", (yield from read_tools(source, tools)))
            self._renamed("parallel_tool_calls", "parallel_tool_calls")
        if choice is None:
            return
        pieces = yield from read_choice(source, choice)
        if has_tools or not source.is_text(choice) or self._forces(choice):
            yield from self._output.large("tool_choice", pieces)

    def _forces(self, choice: Span) -> bool:
        return self._source.word(choice, "tool_choice") == "required"
