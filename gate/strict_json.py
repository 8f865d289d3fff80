"""An answer's text as the one JSON value that a strict client reads from it, or the reason why it is none.

White space around the value is fine, and a member may come twice (the last one counts). NaN, a number beyond what a client can hold, text behind the value and deep
nesting are not JSON here, whatever a tolerant parser makes of them. Reasons name places, and quote nothing.
"""

from __future__ import annotations

import json
from typing import Any, Final, NoReturn

import msgspec

from gate.loose_json import encoded

__all__ = ["NotJson", "parse_json"]

TEXT_CHARS_MAX: Final = 4_194_304  # about a million tokens, in one step of the loop
DEPTH_MAX: Final = 128  # containers in containers: recursive readers behind us bear it


class NotJson(ValueError):
    """The text is not one JSON value. The exception's text says why, for a repair message."""


def parse_json(text: str) -> Any:
    """The value; raises `NotJson`. Half surrogates in it, which JSON can write and UTF-8 can't, are U+FFFD."""
    if len(text) > TEXT_CHARS_MAX:
        raise NotJson("it is too long")
    try:
        value = _decoded(text)
    except RecursionError as error:
        raise NotJson("it is nested too deeply") from error
    if text.count("[") + text.count("{") > DEPTH_MAX and _too_deep(value):
        raise NotJson("it is nested too deeply")
    return value


def _decoded(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.MsgspecError, UnicodeEncodeError):
        return _with_halves(text)


def _with_halves(text: str) -> Any:
    """What msgspec refuses is JSON all the same where only half surrogates are to blame."""
    try:
        return msgspec.json.decode(encoded(json.loads(text, parse_constant=_refuse)))
    except json.JSONDecodeError as error:
        raise NotJson(str(error)) from error
    except (ValueError, msgspec.MsgspecError) as error:
        raise NotJson("a value is not one that JSON has, or a number is too large") from error


def _refuse(name: str) -> NoReturn:
    raise ValueError(name)


def _too_deep(value: Any) -> bool:
    """Level by level, so that depth costs no stack."""
    level, depth = [value], 0
    while level:
        depth += 1
        inner = (each.values() if isinstance(each, dict) else each for each in level)
        level = [item for each in inner for item in each if isinstance(item, dict | list)]
    return depth > DEPTH_MAX
