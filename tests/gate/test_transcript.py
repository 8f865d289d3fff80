"""The answer so far: where it may be taken up again, and what keeping it costs."""

from __future__ import annotations

import sys
import unicodedata
from collections.abc import Sequence
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gate.events import (
    AudioDelta,
    Event,
    Frame,
    Mend,
    ReasoningDelta,
    RefusalDelta,
    Resume,
    RoleDelta,
    TextDelta,
    ToolDelta,
)
from gate.mending import ChatMender
from gate.plan import Cursor
from gate.reader import ChatStreamReader
from gate.transcript import (
    CONTEXT_CHARS,
    PLACE_BYTES,
    Transcript,
    is_clean,
    text_bytes,
    text_of,
)

ROLE: Final = RoleDelta(0, "assistant")
THOUGHT: Final = ReasoningDelta(0, "hm")
CALL: Final = ToolDelta(0, 0, "t", "f", "{}")
AUDIO: Final = AudioDelta(0)
REFUSAL: Final = RefusalDelta(0, "No.")
ACUTE: Final = "\u0301"
JOINER: Final = "\u200d"
FLAG: Final = "\U0001f1e9\U0001f1ea"


def said(*pieces: str | Event) -> list[Frame]:
    """A frame for each: of text, or of this event."""
    return [
        Frame(b"{}", (TextDelta(0, each) if isinstance(each, str) else each,), 10)
        for each in pieces
    ]


def place(
    held: Sequence[str | Event],
    *,
    before: Sequence[str | Event] = (),
    limit: int | None = None,
    stops: Sequence[str] = (),
    released: int | None = None,
) -> Resume | None:
    """The resume point, with `before` released and `held` behind it, all of which has passed unless `limit` says less."""
    transcript = Transcript(stops)
    transcript.add(said(*before))
    return transcript.resume(
        said(*held),
        len(held) if limit is None else limit,
        released=len(before) if released is None else released,
    )


def text_at(
    held: Sequence[str | Event],
    *,
    before: Sequence[str | Event] = (),
    limit: int | None = None,
    stops: Sequence[str] = (),
) -> str | None:
    """The text before the resume point; None where there is none."""
    resume = place(held, before=before, limit=limit, stops=stops)
    return None if resume is None else resume.text


# --- what it is ----------------------------------------------------------------------------------


def test_the_text_of_a_frame_is_its_answer_text_alone() -> None:
    """Whatever stands beside it."""
    whole = Frame(b"{}", (ROLE, TextDelta(0, "a"), THOUGHT, TextDelta(0, "b"), REFUSAL, CALL), 10)
    assert text_of(whole) == "ab"
    assert text_of(Frame(b"{}", (ROLE,), 10)) == ""


def test_a_transcript_is_the_text_that_was_released() -> None:
    """Characters are code points, and frames are those that had text."""
    transcript = Transcript()
    transcript.add(said(ROLE, "a\U0001f6a2", "b"))
    transcript.add([])
    transcript.add(said("", "c"))
    assert (transcript.text, transcript.chars, transcript.frames) == ("a\U0001f6a2bc", 4, 3)
    assert repr(transcript) == "Transcript(4 characters in 3 frames)"


def test_what_it_costs_is_what_its_strings_cost() -> None:
    """It grows with each frame of text, and only then."""
    transcript, pieces = Transcript(), ["a" * 100, "\u00e4", "\U0001f6a2"]
    costs = [transcript.ledger_bytes]
    for each in said(pieces[0], ROLE, *pieces[1:]):
        transcript.add([each])
        costs.append(transcript.ledger_bytes)
    sizes = [text_bytes(piece) + PLACE_BYTES for piece in pieces]
    assert costs == [0, sizes[0], sizes[0], sum(sizes[:2]), sum(sizes)]


@pytest.mark.parametrize("character", ["a", "\u00e4", "\u6f6e", "\U0001f6a2"])
@pytest.mark.parametrize("count", [1, 7, 5_000])
def test_the_cost_of_a_string_is_no_less_than_what_python_says(character: str, count: int) -> None:
    """Nor far more; and the same in every release of Python."""
    text = character * count
    assert sys.getsizeof(text) <= text_bytes(text) <= 4 * sys.getsizeof(text)
    assert text_bytes(text) == (49 if character == "a" else 76 + 3 * count) + count


# --- the resume point ----------------------------------------------------------------------------


def test_the_resume_point_is_the_last_boundary_that_has_passed() -> None:
    """It names its position, the characters and the text before it, what is held of that, and what it cost."""
    assert place(["c", "d"], before=[ROLE, "a", "b"]) == Resume(
        Cursor(5, 4), "abcd", held=True, produced=4
    )
    assert place(["c", "d"], before=[ROLE, "a", "b"], limit=1) == Resume(
        Cursor(4, 3), "abc", held=True, produced=3
    )
    assert place(["c", "d"], before=[ROLE, "a", "b"], limit=0) == Resume(
        Cursor(3, 2), "ab", held=False, produced=2
    )
    assert place([], before=["ab"], released=9) == Resume(
        Cursor(9, 2), "ab", held=False, produced=1
    )


def test_before_anything_is_released_it_lies_in_held_text() -> None:
    """And nowhere, where there is no text."""
    assert place([ROLE, "a", "b"]) == Resume(Cursor(3, 2), "ab", held=True, produced=2)
    assert place([ROLE, "a"], limit=1) is None
    assert place([ROLE]) is None
    assert place([]) is None


def test_frames_without_text_are_kept_but_are_not_held_text() -> None:
    """Somebody has seen all of it then."""
    assert place([ROLE, ROLE], before=["a"]) == Resume(Cursor(3, 1), "a", held=False, produced=1)
    assert place([ROLE, "b"], before=["a"]) == Resume(Cursor(3, 2), "ab", held=True, produced=2)


def test_it_shows_no_text() -> None:
    """An answer never gets into a log."""
    assert repr(place(["secret"])) == "Resume(Cursor(position=1, chars=6), 1 tokens)"


@pytest.mark.parametrize(
    ("held", "text"),
    [
        (["a", "b "], "a"),
        (["a", " ", "\n", "\t"], "a"),
        (["a", "\u00a0"], "a"),
        (["a", "\u3000"], "a"),
        (["a", " b"], "a b"),
        (["a", "", ROLE, "b"], "ab"),
        ([" "], None),
        (["a "], None),
    ],
)
def test_it_moves_back_out_of_white_space(held: list[str | Event], text: str | None) -> None:
    """A template may take it away, and a tokenizer would cut the next word otherwise."""
    assert text_at(held) == text
    if text is not None:
        resume = place(held, before=["x"])
        assert resume is not None
        assert (resume.text, resume.cursor.chars) == ("x" + text, len(text) + 1)


@pytest.mark.parametrize(
    "mark",
    [
        ACUTE,  # combining, above
        "\u0e31",  # a Thai vowel sign, which has no combining class
        "\u093e",  # a Devanagari vowel sign that takes room of its own
        "\u20dd",  # an enclosing circle
        "\u20e3",  # the key of a keycap
        "\ufe0e",
        "\ufe0f",  # variation selectors
        "\U000e0101",
        JOINER,
        "\U0001f3fb",
        "\U0001f3ff",  # skin tones
    ],
)
def test_it_is_not_before_what_belongs_to_the_character_before_it(mark: str) -> None:
    """Held or not passed yet; what it belongs to is one frame further back."""
    assert text_at(["a", "b", mark]) == ("a" if mark == JOINER else "ab" + mark)
    assert text_at(["a", "b", mark + "c"], limit=2) == "a"
    assert text_at(["a", "b", ROLE, "", mark], limit=2) == "a"
    assert text_at(["a", "b", "c" + mark], limit=2) == "ab"
    assert text_at([mark], before=["ab"], limit=0) is None


@pytest.mark.parametrize("character", ["b", "\u00e9", "\u0915", "\U0001f44d", "\u200b", "\U0001f3fa", "\U0001f400"])  # fmt: skip
def test_a_character_of_its_own_takes_nothing_from_the_one_before_it(character: str) -> None:
    """A letter with its accent in one, a picture."""
    assert text_at(["a", character], limit=1) == "a"


def test_it_is_not_inside_a_joined_picture() -> None:
    """A family is one character to whoever sees it."""
    woman, girl = "\U0001f469", "\U0001f467"
    assert text_at(["a", woman, JOINER, girl]) == "a" + woman + JOINER + girl
    assert text_at(["a", woman, JOINER, girl], limit=3) == "a"
    assert text_at(["a", woman, JOINER, girl], limit=2) == "a"
    assert text_at(["a", woman + JOINER]) == "a"


def test_it_is_not_inside_a_flag() -> None:
    """A flag is two letters; four are two flags."""
    de, eu = FLAG
    assert text_at(["a", de, eu]) == "a" + FLAG
    assert text_at(["a", de, eu], limit=2) == "a"
    assert text_at(["a", FLAG + de]) == "a"
    assert text_at(["a", FLAG, de, eu, de]) == "a" + FLAG + FLAG
    assert text_at([eu], before=["a" + de]) == "a" + FLAG
    assert text_at([], before=["a" + de]) is None
    assert text_at(["\U0001f1e5"]) == "\U0001f1e5"
    assert text_at(["\U0001f200"]) == "\U0001f200"
    assert text_at(["\U0001f1e6"]) is None
    assert text_at(["\U0001f1ff"]) is None


def test_it_is_not_where_a_stop_string_may_have_begun() -> None:
    """The provider would not see its beginning as such any more; the whole string would have ended the answer."""
    stops = ("\n\nUser:", "##")
    assert text_at(["a", "b#"], stops=stops) == "a"
    assert text_at(["a", "b\n\nUse"], stops=stops) == "a"
    assert text_at(["a", "b\n\nUs", "x"], stops=stops, limit=2) == "a"
    assert text_at(["a", "b\n\nUser:"], stops=stops) == "ab\n\nUser:"
    assert text_at(["a", "b\n\nUs."], stops=stops) == "ab\n\nUs."
    assert text_at(["Us"], before=["a\n\n"], stops=stops) is None
    assert text_at(["a", "Us"], stops=stops) == "aUs"
    assert text_at(["a", "x"], stops=("x",)) == "ax"
    assert text_at(["x", "a"], stops=("a" * 30,)) == "x"


def test_a_long_stop_string_is_found_over_many_frames() -> None:
    """As much of the end is looked at as it has characters."""
    stop = "".join(f"{number:03}" for number in range(300))
    beginning = stop[:-1]
    assert text_at(list("a" + beginning), stops=(stop,)) == "a"
    assert text_at(list(beginning[450:]), before=["a", *beginning[:450]], stops=(stop,)) is None


def test_half_a_character_is_not_a_place() -> None:
    """What mending took from the end of a delta comes with the next one."""
    stream = [b'"a"', b'"b\\ud83d"', b'"\\ude80c"', b'"d\\ud83d"', b'"\\ude80"', b'"e"']
    payload = b'data: {"choices":[{"index":0,"delta":{"content":%b}}]}\n\n'
    reader = ChatStreamReader(choices=1, event_bytes_max=1 << 16)
    frames = ChatMender().mend(reader.feed(b"".join(payload % each for each in stream)).frames)
    texts = ["a", "b", "\U0001f680c", "d", "\U0001f680", "e"]
    assert [text_of(frame) for frame in frames] == texts
    places = []
    for released in range(7):
        transcript = Transcript()
        transcript.add(frames[:released])
        resume = transcript.resume([], 0, released=released)
        places.append(resume and resume.cursor.chars)
        held = Transcript().resume(frames, released, released=0)
        assert held is None or held.text == "".join(texts)[: held.cursor.chars]
        assert (held is not None and held.cursor.position == released) == (resume is not None)
    assert places == [None, 1, None, 4, None, 6, 7]


# --- what rules it out ---------------------------------------------------------------------------


@pytest.mark.parametrize("event", [CALL, AUDIO, REFUSAL])
def test_something_else_than_text_can_not_be_taken_up_again(event: Event) -> None:
    """Released, held, or not even passed; and whatever comes behind it."""
    assert place(["b"], before=["a", event, "x"]) is None
    assert place(["b", event], before=["a"]) is None
    assert place(["b", event, "c"], before=["a"], limit=1) is None


def test_inside_reasoning_there_is_no_place() -> None:
    """Once text follows, it is finished."""
    assert place(["a", THOUGHT]) is None
    assert place(["b"], before=["a", THOUGHT]) is not None
    assert place([], before=["a", THOUGHT]) is None
    assert place(["a", THOUGHT, "b", THOUGHT], before=["x"]) is None
    assert text_at([THOUGHT, THOUGHT, ROLE, "a"]) == "a"


def test_reasoning_that_only_the_frames_behind_end_is_finished() -> None:
    """They have not passed; but they say that it was."""
    assert text_at([THOUGHT, "b"], before=["a"], limit=1) == "a"


def test_asking_changes_nothing() -> None:
    """What is held is not released, so what it consists of is asked anew."""
    transcript = Transcript()
    transcript.add(said("a"))
    assert transcript.resume(said("b", CALL), 2, released=1) is None
    assert transcript.resume(said("b"), 1, released=1) is not None
    assert transcript.holds_back(said(" "))
    assert (transcript.text, transcript.frames) == ("a", 1)


# --- what is kept back ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("newest", "kept"),
    [("b", False), (" ", True), ("b\n", True), ("b" + JOINER, True), (FLAG[0], True), (FLAG, False), ("", False), ("#", True), ("#b", False)],
)  # fmt: skip
def test_the_newest_frame_is_kept_back_where_nobody_could_go_on_behind_it(
    newest: str, *, kept: bool
) -> None:
    """It may be clean when the next one is there."""
    transcript = Transcript(("#a",))
    transcript.add(said("a"))
    assert transcript.holds_back(said(newest)) is kept


def test_a_torn_frame_is_kept_back() -> None:
    """Half of a character is missing."""
    torn = Frame(b"{}", (TextDelta(0, "b"),), 10, Mend.TEXT.value)
    assert Transcript().holds_back([torn])


def test_what_stands_before_the_newest_frame_counts() -> None:
    """Released or held: a flag of two frames is whole, and a stop string has begun."""
    for between in (0, 1, 2):
        for pieces, stops, kept in (
            (("a", FLAG[0], FLAG[1]), (), False),
            (("x", "S", "T"), ("STOP",), True),
            (("x", "S", "x"), ("STOP",), False),
        ):
            transcript = Transcript(stops)
            transcript.add(said(*pieces[:between]))
            assert transcript.holds_back(said(*pieces[between:])) is kept


def test_a_long_end_is_looked_at_over_many_frames() -> None:
    """As far as a stop string may reach."""
    stop = "".join(f"{number:03}" for number in range(100))
    transcript = Transcript((stop,))
    transcript.add(said(*["x" * CONTEXT_CHARS] * 3, *stop[:-2]))
    assert transcript.holds_back(said(stop[-2]))
    assert not transcript.holds_back(said(stop[-2:]))


@pytest.mark.parametrize("event", [CALL, AUDIO, REFUSAL, THOUGHT])
def test_nothing_is_kept_back_where_nobody_can_go_on_anyway(event: Event) -> None:
    """In front of the newest frame, among what is held, or beside its text."""
    transcript = Transcript()
    assert not transcript.holds_back([Frame(b"{}", (TextDelta(0, " "), event), 10)])
    assert transcript.holds_back(said(event, " ")) is (event is THOUGHT)
    transcript.add(said("a", event))
    assert transcript.holds_back(said(" ")) is (event is THOUGHT)
    assert not transcript.holds_back(said(ROLE))


# --- for every text ------------------------------------------------------------------------------

odd = st.text("ab \n#" + ACUTE + JOINER + FLAG + "\u0e31\U0001f469\U0001f3fb", max_size=3)
frames_of_text = st.lists(odd, max_size=8)
some_stops = st.lists(st.text("ab#", min_size=1, max_size=3), max_size=2)


@given(frames_of_text, frames_of_text, some_stops, st.integers(0, 8))
def test_a_resume_point_is_the_last_clean_boundary(
    before: list[str], held: list[str], stops: list[str], passed: int
) -> None:
    """Between what was released and what has passed; no boundary behind it is clean."""
    limit = min(passed, len(held))
    resume = place(held, before=before, limit=limit, stops=stops)
    texts = [*before, *held]
    clean = [
        position
        for position in range(len(before), len(before) + limit + 1)
        if is_clean("".join(texts[:position]), "".join(texts[position:]), stops)
    ]
    if not clean:
        assert resume is None
        return
    seen = texts[: clean[-1]]
    assert resume == Resume(
        Cursor(clean[-1], len("".join(seen))),
        "".join(seen),
        held=any(seen[len(before) :]),
        produced=sum(map(bool, seen)),
    )


@given(st.text(max_size=6), st.text(max_size=3))
def test_a_clean_place_keeps_characters_whole(text: str, following: str) -> None:
    """By Unicode's own table: no mark begins what follows, no white space ends what is there."""
    if is_clean(text, following, ()):
        assert text
        assert not text[-1].isspace()
        assert not following or unicodedata.category(following[0])[0] != "M"
