"""What rules a continuation out: every member that may, the last message found from behind as a full parser finds it, and bounds on all that is read."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gate.continuable import (
    HEAD_BYTES_MAX,
    MEMBER_BYTES_MAX,
    STOP_CHARS_MAX,
    STRUCTURE_MAX,
    WINDOW_BYTES,
    Continuable,
    last_element,
    read_continuable,
)
from gate.ingress import read_chat_request, read_request
from gate.ingress_responses import RESPONSES_RULES

CHAT: Final = "/v1/chat/completions"
USER: Final = b'{"role":"user","content":"Hi"}'


def read(body: bytes) -> Continuable | None:
    """What a body says that ingress has let in."""
    return read_continuable(body, read_chat_request(body, depth_max=64), CHAT)


def of(members: bytes = b"", messages: bytes = USER) -> Continuable | None:
    """What a request says that has these members too, `,"k":v`."""
    return read(b'{"model":"m","messages":[%b]%b}' % (messages, members))


PLAIN: Final = Continuable({}, ())


def test_an_ordinary_request_may_be_continued() -> None:
    """Under no ceiling, and up to no string."""
    assert of() == PLAIN


@pytest.mark.parametrize(
    "member",
    [
        b'"n":2',
        b'"logprobs":true',
        b'"logprobs":1',
        b'"top_logprobs":3',
        b'"prompt_logprobs":1',
        b'"audio":{"voice":"x"}',
        b'"modalities":["text","audio"]',
        b'"modalities":["audio"]',
        b'"modalities":"text"',
        b'"modalities":[]',
        b'"response_format":{"type":"json_object"}',
        b'"response_format":{"type":"json_schema","json_schema":{}}',
        b'"response_format":{"type":"novel"}',
        b'"response_format":{"type":["text"]}',
        b'"tool_choice":"required"',
        b'"tool_choice":{"type":"function","function":{"name":"f"}}',
        b'"tool_choice":{}',
        b'"tool_choice":true',
        b'"function_call":{"name":"f"}',
        b'"function_call":"f"',
        b'"json_schema":{"type":"object"}',
        b'"grammar":"root ::= x"',
        b'"guided_choice":["a"]',
        b'"guided_decoding_backend":"x"',
        b'"guided_grammar":"x"',
        b'"guided_json":{"type":"object"}',
        b'"guided_regex":"a+"',
        b'"structured_outputs":{"regex":"a+"}',
        b'"max_tokens":"20"',
        b'"max_tokens":20.0',
        b'"max_tokens":true',
        b'"max_completion_tokens":[20]',
        b'"max_tokens":%b' % (b"1" * 5_000),
        b'"grammar":%b1%b' % (b"[" * 300, b"]" * 300),
    ],
)
def test_a_member_rules_it_out(member: bytes) -> None:
    """More than one text, something beside text, a grammar that would begin anew, a tool that must be called, or a ceiling that is no number."""
    body = b'{"model":"m","messages":[%b],%b}' % (USER, member)
    assert read_continuable(body, read_chat_request(body, depth_max=512), CHAT) is None


@pytest.mark.parametrize(
    "member",
    [
        b'"n":1',
        b'"n":null',
        b'"logprobs":false',
        b'"logprobs":null',
        b'"top_logprobs":0',
        b'"audio":null',
        b'"modalities":["text"]',
        b'"modalities":null',
        b'"response_format":{"type":"text"}',
        b'"response_format":{}',
        b'"response_format":null',
        b'"tools":[{"type":"function","function":{"name":"f"}}]',
        b'"tool_choice":"auto"',
        b'"tool_choice":"none"',
        b'"tool_choice":null',
        b'"function_call":"auto"',
        b'"json_schema":{}',
        b'"grammar":""',
        b'"guided_choice":[]',
        b'"max_tokens":null',
        b'"stop":null',
        b'"stop":""',
        b'"stop":[]',
        b'"stop":["",7,null]',
        b'"stop":7',
        b'"x":{"logprobs":true}',
    ],
)
def test_a_member_that_says_nothing_rules_nothing_out(member: bytes) -> None:
    """Nor one that means something else, or stands deeper."""
    assert of(b"," + member) == PLAIN


@pytest.mark.parametrize(
    ("member", "ceilings"),
    [
        (b'"max_tokens":20', {"max_tokens": 20}),
        (b'"max_completion_tokens":20', {"max_completion_tokens": 20}),
        (b'"max_tokens":null,"max_completion_tokens":7', {"max_completion_tokens": 7}),
        (b'"max_tokens":20,"max_completion_tokens":0', {"max_tokens": 20, "max_completion_tokens": 0}),
        (b'"max_output_tokens":9', {}),
    ],
)  # fmt: skip
def test_ceilings_are_the_callers_numbers(member: bytes, ceilings: dict[str, int]) -> None:
    """By the members that this endpoint has; of two the last one counts, as for most parsers."""
    assert of(b"," + member) == Continuable(ceilings, ())


@pytest.mark.parametrize(
    ("member", "may"),
    [(b"", True), (b',"store":false', True), (b',"store":true', False), (b',"previous_response_id":"r"', False), (b',"conversation":"c"', False)],
)  # fmt: skip
def test_what_a_provider_keeps_is_not_continued(member: bytes, *, may: bool) -> None:
    """What failed would be the parent of what comes next, and half of the answer would be kept under an id of its own."""
    body = b'{"model":"m","input":"Hi"%b}' % member
    request = read_request(body, RESPONSES_RULES, depth_max=64)
    assert (read_continuable(body, request, "/v1/responses") is not None) is may


def test_a_grammar_that_stands_twice_counts_by_its_last_value() -> None:
    """As for most parsers; what is read at ingress can't stand there twice."""
    assert of(b',"grammar":"x","grammar":null') == PLAIN
    assert of(b',"grammar":null,"grammar":"x"') is None


@pytest.mark.parametrize(
    ("stop", "told"),
    [
        (b'"\\n\\n"', ("\n\n",)),
        (b'["a","","b",3]', ("a", "b")),
        (json.dumps("x" * STOP_CHARS_MAX).encode(), ("x" * STOP_CHARS_MAX,)),
    ],
)
def test_stop_strings_are_known(stop: bytes, told: tuple[str, ...]) -> None:
    """One, or several, up to so many characters in all."""
    assert of(b',"stop":' + stop) == Continuable({}, told)


@pytest.mark.parametrize(
    "stop",
    [
        "x" * (STOP_CHARS_MAX + 1),
        ["x" * STOP_CHARS_MAX, "y"],
        "x" * MEMBER_BYTES_MAX,
        ["x" * 9] * (MEMBER_BYTES_MAX // 9),
    ],
)
def test_stop_strings_that_are_too_long_rule_it_out(stop: object) -> None:
    """Each frame's end would be compared with them; and what can't be read might be one."""
    assert of(b',"stop":' + json.dumps(stop).encode()) is None


@pytest.mark.parametrize(("size", "fits"), [(0, True), (1, False)])
def test_a_member_is_read_up_to_its_bound(size: int, *, fits: bool) -> None:
    """White space counts: nothing larger is decoded, to the byte."""
    value = b"[" + b" " * (MEMBER_BYTES_MAX - 2 + size) + b"]"
    assert of(b',"guided_choice":' + value) == (PLAIN if fits else None)


# --- the last message ----------------------------------------------------------------------------


@pytest.mark.parametrize("role", [b'"user"', b'"tool"', b'"system"', b'"critic"', b'"\\u0075ser"'])
def test_an_answer_to_somebody_else_may_be_continued(role: bytes) -> None:
    """Whoever it is."""
    assert of(messages=b'{"role":"assistant","content":"a"},{"content":"b","role":%b}' % role)


@pytest.mark.parametrize(
    "last",
    [
        b'{"role":"assistant","content":"b"}',
        b'{"content":"b", "role" : "assist\\u0061nt"} ',
        b'{"role":"user","role":"assistant"}',
        b'{"content":"b"}',
        b'{"role":null}',
        b'{"role":7}',
        b"{}",
        b'"user"',
        b"7",
        b"null",
        b'["role","user"]',
    ],
)
def test_a_last_message_of_an_assistant_or_of_nobody_rules_it_out(last: bytes) -> None:
    """The provider would be asked to go on with the caller's own beginning."""
    assert of(messages=USER + b"," + last) is None


def test_a_last_message_of_too_much_structure_rules_it_out() -> None:
    """Nobody can tell whose it is."""
    parts = b",".join([b"{}"] * STRUCTURE_MAX)
    assert of(messages=b'{"role":"user","content":[%b]}' % parts) is None


def picture(before: bytes, size: int) -> bytes:
    """A message that is `size` bytes large: `before`, then the rest of it."""
    start, end = before + b'"content":"', b'"}'
    return start + b"A" * (size - len(start) - len(end)) + end


def test_a_large_last_message_is_known_by_its_beginning() -> None:
    """Its role comes first, or is not looked for; a smaller one is read whole."""
    last, small = b'{"role":"user",', picture(b"{", MEMBER_BYTES_MAX - 1)
    assert of(messages=picture(last, MEMBER_BYTES_MAX)) == PLAIN
    assert of(messages=picture(b' { "role" :\n"user",', 1 << 20)) == PLAIN
    assert of(messages=picture(b'{"role":"assistant",', 1 << 20)) is None
    assert of(messages=picture(b'{"x":1,"role":"user",', 1 << 20)) is None
    assert of(messages=small[:-1] + b',"role":"user"}') is None
    short = picture(b"{", 60_000)
    assert of(messages=short[:-1] + b',"role":"user"}') == PLAIN


def test_the_role_of_a_large_message_stands_within_its_head() -> None:
    """To the byte."""
    for spare, found in ((0, PLAIN), (1, None)):
        before = b"{" + b" " * (HEAD_BYTES_MAX - len(b'{"role":"user"') + spare)
        assert of(messages=picture(before + b'"role":"user",', 1 << 20)) == found


def test_a_message_is_large_from_its_first_byte_to_the_bracket() -> None:
    """One more, and a role that is not the first is not found."""
    for spare, found in ((0, PLAIN), (1, None)):
        body = picture(b"{", MEMBER_BYTES_MAX - len(b',"role":"user"') - 1 + spare)
        assert of(messages=body[:-1] + b',"role":"user"}') == found


# --- the last element of an array ----------------------------------------------------------------


def found(array: bytes) -> int | None:
    """Where its last element begins, in front of more."""
    return last_element(array + b',"x":"]}', len(array))


@pytest.mark.parametrize(
    ("array", "place"),
    [
        (b"[]", None),
        (b"[ \n\t\r]", None),
        (b"[1]", 1),
        (b"[ 1 ]", 2),
        (b"[1,2]", 3),
        (b"[1 , 22 ]", 5),
        (b'["a,[b"]', 1),
        (b'["a","\\"],["]', 5),
        (b'["a","\\\\"]', 5),
        (b'["a\\\\","b"]', 7),
        (b'["a\\\\\\",","b"]', 10),
        (b"[[],[1,[2]]]", 4),
        (b'[{"a":[1,2]},{"b":{"c":[{}]}}]', 13),
        (b'[{"a":"]}"},{"b":"[{"}]', 12),
        (b'["\\\\\\\\"]', 1),
        (b'["a","' + b"\\" * (2 * WINDOW_BYTES + 1) + b'",["]', 5),
    ],
)
def test_the_last_element_is_found_from_behind(array: bytes, place: int | None) -> None:
    """Past brackets, commas and quotes in strings, and any number of backslashes."""
    assert found(array) == place


blanks = st.text(" \t\n\r", max_size=3)
words = st.text('\\"[]{},:/ \naä\U0001f6a2\u2028', max_size=8)
scalars = st.none() | st.booleans() | st.integers(-99, 99) | st.floats(-9, 9) | words
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=8,
)
writings: st.SearchStrategy[Callable[[Any], str]] = st.sampled_from(
    (
        json.dumps,
        lambda value: json.dumps(value, ensure_ascii=False, separators=(",", ":")),
        lambda value: json.dumps(value, indent=2).replace("/", "\\/"),
    )
)


@given(st.lists(values, max_size=4), writings, blanks, blanks, blanks)
@example(["\\", '"'], json.dumps, "", "", "")
@example([["\\"], ['\\"']], json.dumps, " ", "", "\n")
def test_the_last_element_is_what_a_full_parser_reads_there(
    elements: list[Any],
    write: Callable[[Any], str],
    before: str,
    between: str,
    after: str,
) -> None:
    """Whatever stands before it, in whatever form it was written."""
    inside = f"{between},{before}".join(map(write, elements))
    array = f"[{before}{inside}{after}]".encode()
    place = found(array)
    if not elements:
        assert place is None
        return
    assert place is not None
    text = array[place:].decode()
    value, end = json.JSONDecoder().raw_decode(text)
    assert value == elements[-1]
    assert text[end:].strip() == "]"
    ahead = json.loads(array[:place].decode().rstrip().rstrip(",") + "]")
    assert ahead == elements[:-1]


@given(st.integers(0, 3), st.sampled_from((1, 2, 3)), st.booleans())
def test_runs_longer_than_a_window_are_counted_whole(
    off: int, windows: int, quoted_end: bool
) -> None:
    """Backslashes and white space over one window, to the byte: every other backslash is escaped itself."""
    length = windows * WINDOW_BYTES + off
    string = b'"' + b"\\" * (2 * length) + (b'\\""' if quoted_end else b'"')
    array = b'["a",' + b" " * length + string + b" " * length + b"]"
    assert found(array) == 5 + length
    assert found(b"[" + b" " * length + b"]") is None


def test_structure_is_looked_at_up_to_a_bound() -> None:
    """What has more of it is not continued, however it is made; white space and plain text cost none."""
    # The comma before the last element is a piece too.
    for pieces, place in ((STRUCTURE_MAX - 1, 2), (STRUCTURE_MAX, None)):
        commas = b"[" + b"," * (pieces - 2) + b"]"
        escapes = b'"' + b'\\"' * (pieces - 2) + b'"'
        assert found(b"[," + commas + b"]") == place
        assert found(b"[," + escapes + b"]") == place
    assert found(b'["' + b"a" * 1_000_000 + b'"' + b" " * 1_000_000 + b"]") == 1


@pytest.mark.parametrize(
    "last",
    [b"[" * 100_000 + b"]" * 100_000, b"[" + b"1," * 100_000 + b"1]", b'"' + b'\\"' * 100_000 + b'"', b'"' + b'\\\\\\"' * 100_000 + b'"'],
)  # fmt: skip
def test_a_hostile_message_is_given_up(last: bytes) -> None:
    """After so many pieces, not after all of it."""
    assert found(b"[1," + last + b"]") is None


def test_what_stands_before_the_last_element_costs_nothing() -> None:
    """However much structure it has."""
    before = b"[" + b'{"a":["\\\\"]},' * 50_000
    assert found(before + b'"b"]') == len(before)


def test_what_is_known_shows_no_text() -> None:
    """Stop strings are the caller's."""
    assert (
        repr(Continuable({"max_tokens": 3}, ("secret",))) == "Continuable(['max_tokens'], 1 stops)"
    )
