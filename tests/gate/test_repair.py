"""Repair notes and the one message made of them: what it says, how large it gets, and what nobody sees."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gate.errors import EndpointUnsupported
from gate.plan import SchemaRepair
from gate.repair import (
    EXCERPT_BYTES_MAX,
    FORMAT,
    MESSAGE_CHARS_MAX,
    RepairNote,
    excerpt_of,
    reason_of,
    repair_item,
    repair_key,
)
from gate.schema import ERROR_CHARS_MAX, ERRORS_MAX, SchemaError

CHAT = "/v1/chat/completions"
RESPONSES = "/v1/responses"
AGE = SchemaError("/age", "type", 'this value is not of type "integer"')
WHOLE = SchemaError("", "required", '"name" is a required property')
NOTE = RepairNote(FORMAT, None, (AGE, WHOLE), '{"age": "old"}')
CALL = RepairNote("tool.2", "get_weather", (WHOLE,), "{}")


@pytest.mark.parametrize(
    ("tool", "errors", "reason"),
    [
        (None, (), ""),
        ("get_weather", (), "tool get_weather"),
        (None, (WHOLE,), ""),
        (None, (SchemaError("/0", "enum", "m", "/items/enum"),), "/items/enum"),
        (
            "f",
            (SchemaError("/a", "type", "m", "/properties/a/type", "integer or null"), WHOLE),
            "tool f, /properties/a/type, expected integer or null",
        ),
        ("f", (SchemaError("/a", "type", "m", "/properties/a\nb/type"),), "tool f, /properties/a?b/type"),
    ],
)  # fmt: skip
def test_a_caller_is_told_of_its_own_schema_only(
    tool: str | None, errors: tuple[SchemaError, ...], reason: str
) -> None:
    """The tool, the rule and the type, of the first error; neither the value's place nor the validator's sentence."""
    assert reason_of(tool, errors) == reason


def told(*notes: RepairNote) -> str:
    """The text of the message, for chat."""
    item = json.loads(repair_item(notes, endpoint=CHAT))
    text = item["content"]
    assert isinstance(text, str)
    return text


def test_the_message_is_one_user_message_of_the_endpoint() -> None:
    """Text, and nothing that a server would read as an answer or a call of its own."""
    text = told(NOTE)
    assert json.loads(repair_item([NOTE], endpoint=CHAT)) == {"role": "user", "content": text}
    assert json.loads(repair_item([NOTE], endpoint=RESPONSES)) == {
        "type": "message",
        "role": "user",
        "content": [{"type": "input_text", "text": text}],
    }
    with pytest.raises(EndpointUnsupported):
        repair_item([NOTE], endpoint="/v1/completions")


def test_the_message_says_what_is_wrong_where_and_what_is_wanted() -> None:
    """Whole, because a reader judges its wording."""
    assert told(NOTE) == (
        "Your previous answer can't be used. What is wrong with it:\n"
        '- at "/age" (type): this value is not of type "integer"\n'
        '- as a whole (required): "name" is a required property\n'
        "\n"
        "This is what you gave, or its beginning:\n"
        "```\n"
        '{"age": "old"}\n'
        "```\n"
        "\n"
        "Give the whole answer again, corrected: one JSON value that fits the requested format,"
        " without any text or code fence around it."
    )


def test_a_call_is_named_and_quoted_as_text() -> None:
    """By the name that the request declares, where it does."""
    text = told(CALL)
    assert text.startswith('Your previous call of the tool "get_weather" can\'t be used.')
    assert "What is wrong with its arguments:" in text
    assert text.endswith("call the tool with arguments that are one JSON object and fit its parameters.")  # fmt: skip
    unknown = RepairNote("tool.0", None, (WHOLE,), "{}")
    assert told(unknown).startswith("Your previous call can't be used.")


def test_several_notes_make_one_message_with_one_wish() -> None:
    """Each is quoted."""
    text = told(CALL, CALL)
    assert text.count("get_weather") == 2
    assert text.count("Give the whole answer again") == 1
    assert "one JSON value that fits the requested format" in told(CALL, NOTE)


def test_nothing_in_an_excerpt_closes_its_fence() -> None:
    """The fence is longer than any in it."""
    note = RepairNote(FORMAT, None, (), "Here:\n````json\n{}\n````\n``")
    lines = told(note).split("\n")
    fences = [index for index, line in enumerate(lines) if line == "`````"]
    assert "\n".join(lines[fences[0] + 1 : fences[1]]) == note.excerpt
    assert len(fences) == 2


def test_an_error_is_one_line_whatever_it_says() -> None:
    """A name from the answer may have line ends in it."""
    error = SchemaError("/a\nb", "x", "one\n- two\r\nthree")
    text = told(RepairNote(FORMAT, None, (error,), ""))
    assert '- at "/a\\nb" (x): one - two three\n' in text


def test_the_key_is_that_of_the_first_note() -> None:
    """And of the violation."""
    assert repair_key([CALL, NOTE], "tool_arguments") == SchemaRepair("tool.2", "tool_arguments")


def test_a_note_shows_lengths_only() -> None:
    """It quotes the answer, and may stand in a traceback's locals."""
    note = RepairNote(FORMAT, None, (SchemaError("/secret", "type", "secret"),), "secret")
    for shown in (repr(note), str(note), repr([note]), f"{note!r}"):
        assert "secret" not in shown
        assert "1 errors, 6 characters" in shown


@given(text=st.text(st.characters() | st.sampled_from("\ud800\udfff"), max_size=200), times=st.integers(1, 60))  # fmt: skip
def test_an_excerpt_is_the_beginning_in_whole_code_points(text: str, times: int) -> None:
    """Half surrogates have no form in UTF-8; two that meet are a character."""
    excerpt = excerpt_of(text * times)
    assert len(excerpt.encode()) <= EXCERPT_BYTES_MAX
    whole = (text * times).encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    assert whole.startswith(excerpt.removesuffix("\ufffd"))
    if len(whole.encode()) <= EXCERPT_BYTES_MAX:
        assert excerpt == whole


def test_an_excerpt_is_cut_where_it_must_be() -> None:
    """Not earlier than one code point before the bound."""
    assert len(excerpt_of("a" * 9999)) == EXCERPT_BYTES_MAX
    assert len(excerpt_of("a" + "€" * 9999).encode()) == EXCERPT_BYTES_MAX
    assert len(excerpt_of("€" * 9999).encode()) == EXCERPT_BYTES_MAX - 1


def worst(character: str) -> RepairNote:
    """A note at all of its bounds."""
    long = character * ERROR_CHARS_MAX
    excerpt = (character * EXCERPT_BYTES_MAX).encode()[:EXCERPT_BYTES_MAX].decode(errors="ignore")
    return RepairNote(FORMAT, None, (SchemaError(long, "k", long),) * ERRORS_MAX, excerpt)


@pytest.mark.parametrize("character", ["a", "`", "€", "\x01", '"'])
@pytest.mark.parametrize("count", [1, 2, 50])
def test_the_message_is_bounded_however_many_notes_there_are(character: str, count: int) -> None:
    """The first is always quoted; those that are not are counted."""
    text = told(*[worst(character)] * count)
    quoted = text.count("can't be used")
    assert 1 <= quoted <= count
    assert len(text) <= MESSAGE_CHARS_MAX + 500
    assert (f"There are {count - quoted} more problems of this kind." in text) == (quoted < count)


@given(
    pointer=st.text(st.characters() | st.just("\ud800"), max_size=9),
    message=st.text(st.characters() | st.just("\udc00"), max_size=9),
    excerpt=st.text(st.characters() | st.just("\ud800"), max_size=9),
    tool=st.none() | st.text(st.characters() | st.just("\ud800"), max_size=9),
)
def test_any_text_can_be_sent(pointer: str, message: str, excerpt: str, tool: str | None) -> None:
    """UTF-8 and valid JSON, half surrogates or not."""
    note = RepairNote("tool.0", tool, (SchemaError(pointer, "type", message),), excerpt)
    for endpoint in (CHAT, RESPONSES):
        item: Any = json.loads(repair_item([note], endpoint=endpoint).decode())
        assert item["role"] == "user"
