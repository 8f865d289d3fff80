"""What a request says about going on with its answer: whether that is possible at all, where an answer may stop, and how long it may get.

An answer can be continued only where its text is all there is to it: one choice, no logprobs, no audio, no grammar that would begin anew, no tool that must be called.
Nor is one that a provider keeps: what it would keep is half of an answer under an id that the caller has, or all of it under one that nobody has.
Everything is read from the request's own bytes, in bounded steps; what can't be read is not continued.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from gate.dialects import CEILINGS
from gate.ingress import CallerRequest
from gate.loose_json import member_value
from gate.rebuild import primary_member
from gate.splice import Body, Member, first_word, members_of

__all__ = ["Continuable", "last_element", "read_continuable"]

MEMBER_BYTES_MAX: Final = 65_536  # of a member that is decoded here; more is nothing that we know
STOP_CHARS_MAX: Final = 1_024  # in all, of the strings that each frame's end is compared with
HEAD_BYTES_MAX: Final = 256  # of a message that is larger
STRUCTURE_MAX: Final = 4_096  # brackets, commas and quotes of the last message that are looked at
WINDOW_BYTES: Final = 16  # looked at in one go; all structure in it is found anew for each piece

# Members that bring a grammar, or something beside text, where they say anything.
_RULES_OUT: Final = (
    "audio",
    "grammar",
    "guided_choice",
    "guided_decoding_backend",
    "guided_grammar",
    "guided_json",
    "guided_regex",
    "json_schema",
    "logprobs",
    "prompt_logprobs",
    "structured_outputs",
    "top_logprobs",
)
_SAYS_NOTHING: Final[tuple[object, ...]] = (None, False, 0, "", [], {})
_LOGPROBS: Final = "message.output_text.logprobs"
_FREE_FORMATS: Final = (None, "text")
_FREE_TOOLS: Final = (None, "auto", "none")
_STRUCTURE: Final = re.compile(rb'["\[\]{},]')
_ROLE_FIRST: Final = re.compile(rb'\{[ \t\n\r]*"role"[ \t\n\r]*:[ \t\n\r]*"([a-z]+)"')


class Continuable(msgspec.Struct, frozen=True):
    """A request whose answer may be continued. `ceilings`: what the caller allows in tokens, by member; `stops`: strings that end the answer."""

    ceilings: Mapping[str, int]
    stops: tuple[str, ...]

    def __repr__(self) -> str:
        return f"Continuable({sorted(self.ceilings)}, {len(self.stops)} stops)"


def read_continuable(body: Body, request: CallerRequest, endpoint: str) -> Continuable | None:
    """What `request`, read from `body`, says; None where its answer can't be continued."""
    members = {member.key: member for member in request.members}
    if request.choices != 1 or request.stored or _asks_for_more(body, members):
        return None
    primary = members.get(primary_member(endpoint))
    if primary is None or _last_role(body, primary) in {None, "assistant"}:
        return None
    ceilings = {
        name: _decoded(body, members[name]) for name in CEILINGS[endpoint] if name in members
    }
    said = {name: value for name, value in ceilings.items() if value is not None}
    if not all(type(value) is int for value in said.values()):
        return None
    stop = _value(body, members, "stop")
    stops = stop if isinstance(stop, list) else [stop]
    if msgspec.UNSET in stops:
        return None
    told = tuple(each for each in stops if isinstance(each, str) and each)
    return Continuable(said, told) if sum(map(len, told)) <= STOP_CHARS_MAX else None


def _asks_for_more(body: Body, members: Mapping[str, Member]) -> bool:
    if any(_value(body, members, name) not in _SAYS_NOTHING for name in _RULES_OUT):
        return True
    modalities = _value(body, members, "modalities")
    text, include = _value(body, members, "text"), _value(body, members, "include")
    formats = [_value(body, members, "response_format"), _inner(text, "format")]
    return (
        any(_inner(wanted, "type") not in _FREE_FORMATS for wanted in formats)
        or include is msgspec.UNSET
        or (isinstance(include, list) and _LOGPROBS in include)
        or _value(body, members, "tool_choice") not in _FREE_TOOLS
        or _value(body, members, "function_call") not in _FREE_TOOLS
        or modalities not in (None, ["text"])
    )


def _inner(value: Any, name: str) -> Any:
    """A member of an object; anything else stays as it is."""
    return value.get(name) if isinstance(value, dict) else value


def _value(body: Body, members: Mapping[str, Member], name: str) -> Any:
    """A member's value, None where it is not there."""
    return _decoded(body, members[name]) if name in members else None


def _decoded(body: Body, member: Member) -> Any:
    """One value; something that is nothing we know where it is too large, or can't be read."""
    return member_value(body, member, bytes_max=MEMBER_BYTES_MAX)


def _last_role(body: Body, messages: Member) -> str | None:
    """Who spoke last; None where that can't be told. One text is the user's, and what a tool gave back is the tool's."""
    if body[messages.value_start : messages.value_start + 1] == b'"':
        return "user"
    start = last_element(body, messages.value_end)
    if start is None:
        return None
    if messages.value_end - start > MEMBER_BYTES_MAX:
        # A picture, say: its end is not looked for. Clients write the role first.
        told = _ROLE_FIRST.match(body, start, start + HEAD_BYTES_MAX)
        return told[1].decode() if told else None
    if body[start : start + 1] != b"{":
        return None
    last = bytes(body[start : messages.value_end - 1])
    said = {
        member.key: _decoded(last, member)
        for member in members_of(last)
        if member.key in {"role", "type"}
    }
    if "role" not in said and str(said.get("type")).endswith("_output"):
        return "tool"
    role = said.get("role")
    return role if isinstance(role, str) else None


def last_element(body: Body, end: int) -> int | None:
    """Where the last element of the array that ends before `end` begins; None where it is empty, or has too much structure to tell.

    Read backwards from the closing bracket, which in well-formed JSON is as certain as forwards: a quote outside of a string closes one, and inside
    of a string one with an even number of backslashes before it opens it. So what the last message costs does not depend on the others.
    """
    position = end - 1
    depth = 0
    quoted = False
    for _ in range(STRUCTURE_MAX):
        position = body.rfind(b'"', 0, position) if quoted else _structure(body, position)
        found = body[position : position + 1]
        if quoted:
            quoted = _backslashes(body, position) % 2 == 1
        elif found == b'"':
            quoted = True
        elif found in b"]}":
            depth += 1
        elif depth and found in b"[{":
            depth -= 1
        elif not depth:
            first = first_word(body, position + 1)
            return first if first < end - 1 else None
    return None


def _structure(body: Body, position: int) -> int:
    """The last piece of structure before `position`; there is one."""
    width = WINDOW_BYTES
    while True:
        start = max(0, position - width)
        found = [each.start() for each in _STRUCTURE.finditer(body, start, position)]
        if found:
            return found[-1]
        position, width = start, width * 2  # nothing but white space so far


def _backslashes(body: Body, position: int) -> int:
    """How many stand right before `position`."""
    count = 0
    while True:
        before = body[max(0, position - count - WINDOW_BYTES) : position - count]
        run = len(before) - len(before.rstrip(b"\\"))
        count += run
        if run < WINDOW_BYTES:
            return count
