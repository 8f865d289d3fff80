r"""The escapes of JSON strings (RFC 8259, section 7), resolved in a text that comes in pieces.

Outside its strings JSON has no backslash, so that where a string begins doesn't matter.
"""

from __future__ import annotations

import re
from typing import Final

__all__ = ["Escapes"]

_SHORT: Final = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_LOW_HALF: Final = r"\\u[dD][c-fC-F][0-9a-fA-F]{2}"
_HIGH_HALF: Final = r"\\u[dD][89abAB][0-9a-fA-F]{2}"
_ESCAPE: Final = re.compile(
    rf"""
      (?P<pair>{_HIGH_HALF}{_LOW_HALF})
    | (?P<begun>(?:{_HIGH_HALF}(?:\\(?:u(?:[dD](?:[c-fC-F][0-9a-fA-F]?)?)?)?)?
        | \\(?:u[0-9a-fA-F]{{0,3}})?)\Z)
    | \\u(?P<unit>[0-9a-fA-F]{{4}})
    | \\(?P<short>[^u])
    """,
    re.VERBOSE | re.DOTALL,
)


class Escapes:
    """One text. What is no escape stays as it is; half of a surrogate pair becomes U+FFFD."""

    def __init__(self) -> None:
        self.begun = ""
        """The beginning of an escape at the end of the text so far, which is not in what was returned."""

    def resolve(self, text: str) -> str:
        """The next piece, as far as it can be told what it says."""
        if self.begun:
            text, self.begun = self.begun + text, ""
        return _ESCAPE.sub(self._said, text) if "\\" in text else text

    def _said(self, found: re.Match[str]) -> str:
        match found.lastgroup:
            case "pair":
                high, low = int(found[0][2:6], 16), int(found[0][8:], 16)
                return chr(0x10000 + ((high & 0x3FF) << 10) + (low & 0x3FF))
            case "begun":
                self.begun = found[0]
                return ""
            case "unit":
                unit = int(found["unit"], 16)
                return "\ufffd" if 0xD800 <= unit < 0xE000 else chr(unit)
            case _:
                return _SHORT.get(found["short"], found["short"])
