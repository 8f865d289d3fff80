"""A body in the making: bytes of ours, and what of the caller's body stands between them. What is large of the latter is named by its place, and copied once, when the whole is written."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, TypeAlias

from gate.errors import RequestRefused
from gate.json_parts import Span
from gate.splice import Body, Member
from gate.steps import Steps

__all__ = ["Listed", "Output", "Piece", "refused"]

Piece: TypeAlias = bytes | Span
"""Bytes of ours, or a span of the caller's body."""

COPIED_BYTES_MAX: Final = 4_096  # what is longer stays where it is
WRITTEN_MAX: Final = 1_024  # pieces in one go
JOINED_BYTES: Final = 65_536  # of small pieces, which become one


def refused(param: str) -> RequestRefused:
    """What a provider that only has chat completions can't be asked for."""
    return RequestRefused(400, "unsupported_over_chat", param=param)


class Listed:
    """A JSON array in the making."""

    def __init__(self) -> None:
        self._pieces: list[Piece] = [b"["]

    def add(self, *item: Piece) -> None:
        """One more element."""
        if len(self._pieces) > 1:
            self._pieces.append(b",")
        self._pieces += item

    def closed(self) -> list[Piece]:
        """All of it; nothing is added any more."""
        self._pieces.append(b"]")
        return self._pieces

    def __bool__(self) -> bool:
        return len(self._pieces) > 1


class Output:
    """One JSON object, member by member. `size`: its bytes so far, of which `kept` are here and the others in `body`."""

    def __init__(self, body: Body) -> None:
        self.members: list[Member] = []
        self.size = 0
        self.kept = 0
        self._body = body
        self._small = bytearray()
        self._pieces: list[Piece] = []

    def put(self, *pieces: Piece) -> None:
        """What follows."""
        for piece in pieces:
            if isinstance(piece, bytes):
                self._small += piece
                self._grown(len(piece))
                continue
            length = piece[1] - piece[0]
            if length > COPIED_BYTES_MAX:
                self._join()
                self._pieces.append(piece)
                self.size += length
            else:
                self._small += self._body[piece[0] : piece[1]]
                self._grown(length)

    def write(self, pieces: Sequence[Piece]) -> Steps[None]:
        """The same, of which there may be many."""
        for at in range(0, len(pieces), WRITTEN_MAX):
            self.put(*pieces[at : at + WRITTEN_MAX])
            if at:
                yield

    def begin(self, name: str) -> None:
        """A member of the object begins; its name is a plain word."""
        self.put(b"," if self.members else b"{")
        key_start = self.size
        self.put(b'"%b":' % name.encode())
        self.members.append(Member(name, key_start, self.size, self.size))

    def end(self) -> None:
        """It ends."""
        last = self.members[-1]
        self.members[-1] = Member(last.key, last.key_start, last.value_start, self.size)

    def copy(self, member: Member) -> None:
        """A member of the caller's as it stands there."""
        self.put(b"," if self.members else b"{")
        key_start = self.size
        self.put((member.key_start, member.value_start))
        self.members.append(Member(member.key, key_start, self.size, self.size))
        self.put((member.value_start, member.value_end))
        self.end()

    def member(self, name: str, *pieces: Piece) -> None:
        """A whole member."""
        self.begin(name)
        self.put(*pieces)
        self.end()

    def large(self, name: str, pieces: Sequence[Piece]) -> Steps[None]:
        """One of many pieces."""
        self.begin(name)
        yield from self.write(pieces)
        self.end()

    def close(self) -> None:
        """The object is whole."""
        self.put(b"}")
        self._join()

    def taken(self) -> Iterator[Piece]:
        """The pieces in order, each given up as it is taken."""
        self._pieces.reverse()
        while self._pieces:
            piece = self._pieces.pop()
            yield piece

    def _grown(self, length: int) -> None:
        self.size += length
        self.kept += length
        if len(self._small) > JOINED_BYTES:
            self._join()

    def _join(self) -> None:
        if self._small:
            self._pieces.append(bytes(self._small))
            self._small.clear()

    def __repr__(self) -> str:
        return f"Output({self.size} bytes, {self.kept} of them here)"
