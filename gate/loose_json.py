"""JSON as providers really send it: read with the standard library where msgspec refuses, and written so that it is UTF-8.

Half surrogates, NaN, Infinity and bytes that are not UTF-8 are read; none of them is ever written.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from gate.splice import Body, JsonRefused, Member, scan_members

__all__ = [
    "encoded",
    "integer",
    "is_plain",
    "is_utf8",
    "is_whole",
    "items",
    "joined_halves",
    "member_value",
    "paired",
    "string",
    "tolerant_object",
]


DEPTH_MAX: Final = 256  # containers in containers: a stack has to bear them several times over
_any: Final = msgspec.json.Decoder(msgspec.Raw)  # looks at all of it, and builds nothing
SHALLOW_BYTES: Final = 2 * DEPTH_MAX  # less bytes nest no deeper, and are not looked at


def tolerant_object(data: bytes) -> dict[str, Any] | None:
    """The JSON object in `data`, whatever its strings hold; None if it is not one. Bytes that are not UTF-8 become U+FFFD, numbers that are none null."""
    if len(data) > SHALLOW_BYTES and too_deep(data):
        return None
    try:
        value = json.loads(
            data.decode(errors="replace"), parse_float=_finite, parse_constant=lambda _: None
        )
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def is_whole(data: bytes) -> bool:
    """Whether `data` is one JSON value that shows its own end: a bare number could go on."""
    if data.lstrip()[:1] not in (b"{", b"[", b'"'):
        return False
    try:
        _any.decode(data)
    except RecursionError:
        return False
    except msgspec.MsgspecError:
        return _is_read(data)
    return True


def _is_read(data: bytes) -> bool:
    """Whether the standard library reads it, with NaN and half surrogates."""
    try:
        json.loads(data.decode(errors="replace"))
    except (ValueError, RecursionError):
        return False
    return True


def _finite(digits: str) -> float | None:
    """A number with a fraction or an exponent; None where it is larger than a float can be, for it would be written as Infinity."""
    number = float(digits)
    return number if math.isfinite(number) else None


def member_value(body: Body, member: Member, *, bytes_max: int) -> Any:
    """One member's value; `msgspec.UNSET` where it is larger than that, or can't be read."""
    if member.value_end - member.value_start > bytes_max:
        return msgspec.UNSET
    raw = bytes(body[member.value_start : member.value_end])
    value = tolerant_object(b'{"value":%b}' % raw)
    return msgspec.UNSET if value is None else value["value"]


def items(value: object) -> list[Mapping[str, Any]]:
    """The objects of a list; nothing where there is no list."""
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []


def string(value: object) -> str | None:
    """A string; None for anything else."""
    return value if isinstance(value, str) else None


def integer(value: object) -> int:
    """An index or a time as the provider gave it; 0 where it is no whole number."""
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def is_plain(data: bytes) -> bool:
    """Whether JSON that the tolerant tier took is UTF-8, and surely free of NaN and Infinity."""
    return b"NaN" not in data and b"Infinity" not in data and is_utf8(data)


def is_utf8(data: bytes) -> bool:
    """Whether the bytes are UTF-8."""
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def paired(text: str) -> str:
    """`text` with halves of a surrogate pair that stand side by side made one character, and every other half U+FFFD."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def joined_halves(text: str) -> tuple[str, str]:
    """`text` less a half at its end, and that half."""
    half = text[-1:] if "\ud800" <= text[-1:] <= "\udbff" else ""
    return paired(text[: len(text) - len(half)]), half


def encoded(value: object) -> bytes:
    """JSON bytes of a parsed value; half surrogates become U+FFFD, since UTF-8 has no form for them."""
    return paired(json.dumps(value, ensure_ascii=False, separators=(",", ":"))).encode()


def too_deep(data: bytes) -> bool:
    """Whether JSON is nested deeper than anything here reads."""
    if data.count(b"{") + data.count(b"[") <= DEPTH_MAX:
        return False
    try:
        scan_members(data, depth_max=DEPTH_MAX, members_max=len(data))
    except JsonRefused:
        return True
    return False
