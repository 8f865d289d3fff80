"""Answers know what they are asked to go on with."""

from __future__ import annotations

from ops.chaos.wire import ROLE, calls, spoken, stream, text
from ops.provider_script import Sleep, Write


def test_words_that_the_request_brings_are_not_said_again() -> None:
    """A prefix that is another text's is none."""
    reply = spoken("One", " two", end=[])
    assert reply("") == stream(ROLE, text("One"), text(" two"))
    assert reply("One t") == stream(ROLE, text("wo"))
    assert reply("Two") == reply("")


def test_silences_come_before_words() -> None:
    """In milliseconds."""
    steps = spoken("a", every_ms=5, end=[], lead=b"")("").steps
    assert steps == (Sleep(5), Write(text("a")))


def test_arguments_are_cut_and_none_is_lost() -> None:
    """The head first."""
    pieces = calls("f", "abcde", pieces=2)
    assert len(pieces) == 3
    assert b"abc" in pieces[1]
    assert b"de" in pieces[2]
