"""Content of a Responses item as content of a chat message: a string where it is one text, else a list of parts.

input_text, output_text   text
refusal                   refusal
input_image               image_url, with its detail; one that is named by a file's id has no place in chat
input_file                file, by its data or its id; one that is named by an address has no place in chat
input_audio               input_audio
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from gate.json_parts import Parts, Span
from gate.over_chat_pieces import Listed, Piece, refused
from gate.steps import Steps

__all__ = ["Content", "read_content"]

_TEXTS: Final = frozenset({"input_text", "output_text", "text"})


class Content(NamedTuple):
    """`texts`: each of its texts, without quotes, where it is nothing but text; None: it is not. `parts`: the same, and everything else, as an array of parts."""

    texts: tuple[Span, ...] | None
    parts: list[Piece]

    @property
    def pieces(self) -> list[Piece]:
        """The value of `content`."""
        if self.texts is not None and len(self.texts) <= 1:
            return [b'"', *self.texts, b'"']
        return self.parts


def read_content(source: Parts, span: Span, param: str) -> Steps[Content]:
    """The content that stands at `span`, a string or a list of parts. Raises `RequestRefused`."""
    if source.is_text(span):
        return Content(((span[0] + 1, span[1] - 1),), [])
    texts: list[Span] | None = []
    parts = Listed()
    for number, each in enumerate((yield from source.elements(span, param))):
        place = f"{param}[{number}]"
        members = yield from source.members(each, place)
        kind = source.word(members.get("type"), f"{place}.type")
        if kind in _TEXTS:
            text = source.string(members.get("text"), f"{place}.text")
            parts.add(b'{"type":"text","text":', text, b"}")
            if texts is not None:
                texts.append((text[0] + 1, text[1] - 1))
        elif kind in _PARTS:
            texts = None
            parts.add(*_PARTS[kind](source, members, place))
        else:
            raise refused(f"{place}.type")
        if source.due():
            yield
    return Content(None if texts is None else tuple(texts), parts.closed())


def _refusal(source: Parts, members: Mapping[str, Span], place: str) -> list[Piece]:
    said = source.string(members.get("refusal"), f"{place}.refusal")
    return [b'{"type":"refusal","refusal":', said, b"}"]


def _image(source: Parts, members: Mapping[str, Span], place: str) -> list[Piece]:
    if source.given(members.get("file_id")):
        raise refused(f"{place}.file_id")
    url = source.string(members.get("image_url"), f"{place}.image_url")
    pieces: list[Piece] = [b'{"type":"image_url","image_url":{"url":', url]
    if source.given(members.get("detail")):
        pieces += [b',"detail":', source.string(members.get("detail"), f"{place}.detail")]
    return [*pieces, b"}}"]


def _file(source: Parts, members: Mapping[str, Span], place: str) -> list[Piece]:
    if source.given(members.get("file_url")):
        raise refused(f"{place}.file_url")
    told: list[Piece] = []
    for name in ("file_data", "file_id", "filename"):
        if source.given(members.get(name)):
            said = source.string(members.get(name), f"{place}.{name}")
            told += [b',"%b":' % name.encode() if told else b'"%b":' % name.encode(), said]
    return [b'{"type":"file","file":{', *told, b"}}"]


def _audio(source: Parts, members: Mapping[str, Span], place: str) -> list[Piece]:
    sound = members.get("input_audio")
    if sound is None or not source.given(sound):
        raise refused(f"{place}.input_audio")
    return [b'{"type":"input_audio","input_audio":', sound, b"}"]


_PARTS: Final[Mapping[str, Callable[[Parts, Mapping[str, Span], str], list[Piece]]]] = {
    "refusal": _refusal,
    "input_image": _image,
    "input_file": _file,
    "input_audio": _audio,
}
