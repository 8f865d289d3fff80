"""Script files are read whole or refused with the place of the fault; framing is HTTP/1.1."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ops.provider_script import (
    FILE_BYTES_MAX,
    Attempt,
    Ending,
    Framer,
    Head,
    Pace,
    Repeat,
    Script,
    ScriptError,
    Sleep,
    Write,
    load_script,
    parse_script,
)

if TYPE_CHECKING:
    from pathlib import Path

EVERY_STEP = b"""
[pace]
chunk_ms = 5

[[attempts]]
status = 503
headers = { retry-after = "2" }
steps = [
  { data = "a" }, { b64 = "/w==" }, { sleep_ms = 7 },
  { repeat = { data = "b", times = 3, every_ms = 9 } }, "cut",
]

[[attempts]]
status = 0
raw = true
steps = ["stall"]
"""


def test_a_toml_script_becomes_typed_steps() -> None:
    """Every kind of step has one spelling in the file and one type in memory."""
    first = Attempt(
        steps=(Write(b"a"), Write(b"\xff"), Sleep(7), Repeat(b"b", 3, 9), Ending.CUT),
        status=503,
        headers=(("retry-after", "2"),),
    )
    second = Attempt(steps=(Ending.STALL,), status=0, raw=True)
    assert parse_script(EVERY_STEP) == Script(attempts=(first, second), pace=Pace(chunk_ms=5))


def test_json_says_the_same_as_toml(tmp_path: Path) -> None:
    """The name of the file decides how it is read."""
    file = tmp_path / "script.json"
    file.write_text('{"attempts": [{"steps": [{"data": "a"}, "reset"]}]}')
    expected = Attempt(steps=(Write(b"a"), Ending.RESET))
    assert load_script(file) == Script(attempts=(expected,))


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("attempt = []", "unknown field `attempt`"),
        ("[[attempts]]\nstatus = 'x'", "`$.attempts[0].status`"),
        ("[[attempts]]\nstatus = 42", "`$.attempts[0]`"),
        ("[[attempts]]\nsteps = ['drop']", "`$.attempts[0].steps[0]`"),
        ("[[attempts]]\nsteps = [{}]", "`$.attempts[0].steps[0]`"),
        ("[[attempts]]\nsteps = [{ data = '', sleep_ms = 1 }]", "`$.attempts[0].steps[0]`"),
        ("[[attempts]]\nsteps = [{ b64 = '?' }]", "`$.attempts[0].steps[0]`"),
        ("[[attempts]]\nsteps = [{ sleep_ms = -1 }]", "`$.attempts[0].steps[0].sleep_ms`"),
        ("[[attempts]]\nsteps = ['cut', { data = 'x' }]", "`$.attempts[0]`"),
        ('[[attempts]]\nheaders = { a = "x\\r\\ny: z" }', "`$.attempts[0].headers[...]`"),
        ("[pace]\nchunk_ms = 'fast'", "`$.pace.chunk_ms`"),
        ("attempts = }", "line 1"),
    ],
)
def test_a_fault_in_a_script_names_its_place(tmp_path: Path, text: str, place: str) -> None:
    """The message starts with the file and says where in it the fault is."""
    file = tmp_path / "script.toml"
    file.write_text(text)
    with pytest.raises(ScriptError) as caught:
        load_script(file)
    assert str(caught.value).startswith(f"{file}: ")
    assert place in str(caught.value)


def test_bytes_that_are_not_utf8_are_refused() -> None:
    """A binary file is a bad script, not a crash."""
    with pytest.raises(ScriptError, match="utf-8"):
        parse_script(b"\xff")


def test_a_missing_or_huge_file_is_refused(tmp_path: Path) -> None:
    """Reading is bounded, and an error of the system is told like any other."""
    with pytest.raises(ScriptError, match="No such file"):
        load_script(tmp_path / "absent.toml")
    huge = tmp_path / "huge.toml"
    huge.write_bytes(b"#" * (FILE_BYTES_MAX + 1))
    with pytest.raises(ScriptError, match="larger than"):
        load_script(huge)


def test_status_zero_plays_no_head() -> None:
    """What such an attempt writes is all that the peer sees."""
    assert list(Attempt(steps=(Write(b"x"),), status=0).play_list()) == [Write(b"x")]


@pytest.mark.parametrize(
    ("attempt", "kind"),
    [
        (Attempt(), "text/event-stream"),
        (Attempt(status=500), "application/json"),
        (Attempt(headers=(("Content-Type", "text/html"),)), "text/html"),
        (Attempt(status=204), None),
    ],
)
def test_the_content_type_has_a_sensible_default(attempt: Attempt, kind: str | None) -> None:
    """A script states it only where it is not the usual one."""
    head = next(attempt.play_list())
    assert isinstance(head, Head)
    assert head.value("content-type") == kind


def test_a_body_without_length_is_chunked() -> None:
    """An empty piece writes nothing: an empty chunk would end the body."""
    framer = Framer()
    assert b"\r\ntransfer-encoding: chunked\r\n" in framer.head(Head(200))
    assert framer.body(b"0123456789abcdef") == b"10\r\n0123456789abcdef\r\n"
    assert framer.body(b"") == b""
    assert framer.end() == b"0\r\n\r\n"
    assert framer.reusable


def test_a_body_with_length_is_reusable_only_when_whole() -> None:
    """A peer that waits for the rest must see the connection end."""
    framer = Framer()
    assert b"chunked" not in framer.head(Head(200, (("content-length", "3"),)))
    assert framer.body(b"ab") == b"ab"
    assert not framer.reusable
    assert framer.body(b"c") + framer.end() == b"c"
    assert framer.reusable


def test_a_raw_body_is_left_alone() -> None:
    """Neither chunks nor headers are added, and the connection ends after it."""
    framer = Framer()
    assert framer.head(Head(200, (("a", "b"),), raw=True)) == b"HTTP/1.1 200 OK\r\na: b\r\n\r\n"
    assert framer.body(b"x") + framer.end() == b"x"
    assert not framer.reusable


def test_an_old_peer_gets_no_chunks() -> None:
    """HTTP/1.0 knows only the end of the connection."""
    framer = Framer(may_chunk=False)
    head = framer.head(Head(200))
    assert b"chunked" not in head
    assert b"connection: close" in head
    assert not framer.reusable


def test_a_script_can_end_the_connection_with_a_header() -> None:
    """Its own `connection` header is not doubled."""
    framer = Framer()
    assert framer.head(Head(200, (("connection", "close"),))).count(b"connection") == 1
    assert not framer.reusable


def test_a_status_without_body_has_no_framing() -> None:
    """204 is complete with its head."""
    framer = Framer()
    assert framer.head(Head(204)) == b"HTTP/1.1 204 No Content\r\n\r\n"
    assert framer.end() == b""
    assert framer.reusable
