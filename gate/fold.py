"""Chat chunks -> one `chat.completion`: what a caller that did not ask for a stream gets from a provider that streamed.

Texts are joined, tool calls merged by index, lists and log probabilities appended; a member that nobody here knows is kept, the last value wins.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from gate.events import Facts, FinishFact
from gate.loose_json import integer, items, tolerant_object

__all__ = ["ChatFold"]

_JOINED: Final = frozenset(
    {
        "content",
        "reasoning_content",
        "reasoning",
        "refusal",
        "arguments",
        "input",
        "transcript",
        "data",
    }
)
_OWN: Final = frozenset({"id", "object", "created", "model", "choices", "usage"})
_CHOICE_OWN: Final = frozenset({"index", "delta", "finish_reason", "logprobs"})


class _Choice:
    """One choice under construction."""

    def __init__(self) -> None:
        self.message: dict[str, Any] = {"role": "assistant", "content": None}
        self.logprobs: dict[str, Any] | None = None
        self.members: dict[str, Any] = {}
        self._calls: dict[object, dict[str, Any]] = {}
        self._newest: object = None

    def add(self, choice: Mapping[str, Any]) -> None:
        delta = choice.get("delta")
        if isinstance(delta, Mapping):
            for name, value in delta.items():
                self._take(name, value)
        logprobs = choice.get("logprobs")
        if isinstance(logprobs, Mapping):
            self.logprobs = _appended({} if self.logprobs is None else self.logprobs, logprobs)
        self.members |= {name: value for name, value in choice.items() if name not in _CHOICE_OWN}

    def _take(self, name: str, value: Any) -> None:
        if name == "tool_calls":
            for call in items(value):
                self._call(call)
        elif name == "function_call" and isinstance(value, dict):
            self.message[name] = _joined_function(self.message.get(name), value)
        elif value is not None or name not in self.message:
            self.message[name] = _merged(name, self.message.get(name), value)

    def _call(self, call: Mapping[str, Any]) -> None:
        """By index; without one, a new id with a name opens the next call and anything else belongs to the newest."""
        key: object = call.get("index")
        if key is None:
            named = isinstance(call.get("function"), dict) and call["function"].get("name")
            opens = (named and call.get("id")) or not self._calls
            key = ("unnumbered", len(self._calls)) if opens else self._newest
        else:
            key = integer(key)
        self._newest = key
        known = self._calls.setdefault(key, {})
        for name, value in call.items():
            if name != "index" and value not in (None, ""):
                known[name] = (
                    _joined_function(known.get(name), value) if isinstance(value, dict) else value
                )

    def result(self, index: int, fact: FinishFact | None) -> dict[str, Any]:
        message = _settled(self.message)
        if self._calls:
            message["tool_calls"] = _settled(list(self._calls.values()))
            message["content"] = message["content"] or None
        message.setdefault("refusal", None)
        own = {"index": index, "message": message, "logprobs": self.logprobs, "finish_reason": None}
        if fact is None:
            return own | self.members
        return own | self.members | _object(fact.choice_members) | {"finish_reason": fact.reason}


class ChatFold:
    """Chunks in, one object out."""

    def __init__(self) -> None:
        self._choices: dict[int, _Choice] = {}
        self._members: dict[str, Any] = {}

    def add(self, data: bytes) -> None:
        """Takes in the payload of one chunk."""
        value = tolerant_object(data) or {}
        self._members |= {name: item for name, item in value.items() if name not in _OWN}
        for choice in items(value.get("choices")):
            self._choices.setdefault(integer(choice.get("index")), _Choice()).add(choice)

    def result(self, identity: Mapping[str, Any], facts: Facts) -> dict[str, Any]:
        """The `chat.completion` of everything that was taken in."""
        finishes = {fact.choice: fact for fact in facts.finishes}
        for choice in finishes:
            self._choices.setdefault(choice, _Choice())
        choices = [
            made.result(index, finishes.get(index)) for index, made in sorted(self._choices.items())
        ]
        body: dict[str, Any] = {
            "id": identity["id"],
            "object": "chat.completion",
            "created": identity["created"],
        }
        body |= {"model": identity["model"], "choices": choices}
        if facts.usage:
            body["usage"] = tolerant_object(facts.usage)
        for fact in facts.finishes:
            body |= _object(fact.event_members)
        return body | self._members | _object(facts.usage_members)


def _object(members: bytes) -> dict[str, Any]:
    """`,"k":v` as a dictionary."""
    return tolerant_object(b"{" + members[1:] + b"}") or {} if members else {}


class _Pieces(list[str]):
    """A text that is still coming; joined once, at the end."""


def _merged(name: str, known: Any, value: Any) -> Any:
    """`known` with `value` behind it. Works in place where it can: what was parsed belongs to the fold, and a long answer has many pieces."""
    if isinstance(value, str) and isinstance(known, str | _Pieces) and name in _JOINED:
        pieces = known if isinstance(known, _Pieces) else _Pieces([known])
        pieces.append(value)
        return pieces
    if isinstance(value, list) and isinstance(known, list) and not isinstance(known, _Pieces):
        known.extend(value)
        return known
    if isinstance(value, dict) and isinstance(known, dict):
        for key, item in value.items():
            known[key] = _merged(key, known.get(key), item)
        return known
    return known if value is None else value


def _settled(value: Any) -> Any:
    """The same value with every text in one piece."""
    if isinstance(value, _Pieces):
        return "".join(value)
    if isinstance(value, dict):
        return {name: _settled(item) for name, item in value.items()}
    return [_settled(item) for item in value] if isinstance(value, list) else value


def _joined_function(known: object, value: dict[str, Any]) -> dict[str, Any]:
    """A call's function: arguments are joined, a name piece that repeats the name is no piece."""
    joined = dict(known) if isinstance(known, dict) else {}
    for name, item in value.items():
        if item is None:
            joined.setdefault(name, item)
        elif name == "name" and joined.get("name"):
            if isinstance(item, str) and isinstance(joined["name"], str) and item != joined["name"]:
                joined["name"] += item
        else:
            joined[name] = _merged(name, joined.get(name), item)
    return joined


def _appended(known: dict[str, Any], logprobs: Mapping[str, Any]) -> dict[str, Any]:
    """Log probabilities go on, list by list."""
    for name, value in logprobs.items():
        if isinstance(value, list) and isinstance(known.get(name), list):
            known[name].extend(value)
        elif value is not None or name not in known:
            known[name] = value
    return known
