"""Content: one text is a string, everything else a list of parts."""

from __future__ import annotations

from typing import Any

import pytest

from tests.translating import messages_of, refused_for

TEXT = {"type": "input_text", "text": 'a "b" \u00e9'}
PICTURE = {"type": "input_image", "image_url": "data:image/png;base64,AAAA", "detail": "low"}


def content_of(*parts: Any, role: str = "user") -> Any:
    """What becomes of these parts."""
    return messages_of({"role": role, "content": list(parts)})[0]["content"]


def test_one_text_is_a_string() -> None:
    """Whichever part says it; no part at all is an empty one."""
    for kind in ("input_text", "output_text", "text"):
        assert content_of({**TEXT, "type": kind}) == TEXT["text"]
    assert content_of() == ""


@pytest.mark.parametrize(
    ("part", "told"),
    [
        (TEXT, {"type": "text", "text": TEXT["text"]}),
        (
            PICTURE,
            {"type": "image_url", "image_url": {"url": PICTURE["image_url"], "detail": "low"}},
        ),
        (
            {"type": "input_image", "image_url": "http://a/b", "detail": None, "file_id": None},
            {"type": "image_url", "image_url": {"url": "http://a/b"}},
        ),
        (
            {"type": "input_file", "file_data": "data:x", "filename": "a.pdf", "file_url": None},
            {"type": "file", "file": {"file_data": "data:x", "filename": "a.pdf"}},
        ),
        ({"type": "input_file", "file_id": "f"}, {"type": "file", "file": {"file_id": "f"}}),
        (
            {"type": "input_audio", "input_audio": {"data": "AA", "format": "wav"}},
            {"type": "input_audio", "input_audio": {"data": "AA", "format": "wav"}},
        ),
        ({"type": "refusal", "refusal": "No."}, {"type": "refusal", "refusal": "No."}),
    ],
)
def test_a_part_is_said_as_chat_says_it(part: Any, told: Any) -> None:
    """Beside another one."""
    assert content_of(TEXT, part) == [{"type": "text", "text": TEXT["text"]}, told]


def test_what_is_large_is_not_looked_into() -> None:
    """It is the same afterwards, and so is what stands around it."""
    url = "data:image/png;base64," + "A" * 200_000
    told = content_of(TEXT, {**PICTURE, "image_url": url}, *[TEXT] * 500)
    assert told[1]["image_url"]["url"] == url
    assert len(told) == 502
    said = content_of({"type": "input_text", "text": 'x\\"' * 50_000})
    assert said == 'x\\"' * 50_000


@pytest.mark.parametrize(
    ("part", "refusal"),
    [
        ({**PICTURE, "file_id": "f"}, ("unsupported_over_chat", "file_id")),
        ({"type": "input_image"}, ("missing_required_parameter", "image_url")),
        ({**PICTURE, "detail": 5}, ("invalid_type", "detail")),
        ({"type": "input_file", "file_url": "http://a"}, ("unsupported_over_chat", "file_url")),
        ({"type": "input_file", "file_data": 5}, ("invalid_type", "file_data")),
        ({"type": "input_audio"}, ("unsupported_over_chat", "input_audio")),
        ({"type": "input_audio", "input_audio": None}, ("unsupported_over_chat", "input_audio")),
        ({"type": "input_video"}, ("unsupported_over_chat", "type")),
        ({"type": "input_text"}, ("missing_required_parameter", "text")),
        ({"type": "refusal", "refusal": 5}, ("invalid_type", "refusal")),
    ],
)
def test_a_part_that_chat_has_no_place_for_is_refused(part: Any, refusal: tuple[str, str]) -> None:
    """By its path."""
    code, member = refusal
    told = refused_for(input=[{"role": "user", "content": [TEXT, part]}])
    assert told == (code, f"input[0].content[1].{member}")
