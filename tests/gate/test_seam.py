"""The seam: what is said twice is removed once, what began anew is never shown, and nothing depends on how the text was cut into frames."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from typing import Final

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from gate.events import (
    Event,
    Frame,
    Mend,
    Place,
    ReasoningDelta,
    RefusalDelta,
    RoleDelta,
    TextDelta,
    ToolDelta,
)
from gate.evidence import FRAME_OVERHEAD_BYTES
from gate.seam import (
    OVERLAP_CHARS_MAX,
    OVERLAP_CHARS_MIN,
    RESTART_CHARS_MIN,
    Seam,
    SeamKind,
)

KEPT: Final = "The quick brown fox jumps over the lazy"
LARGE: Final = 1 << 16
CALL: Final = ToolDelta(0, 0, "t", "f", "{}")
REFUSAL: Final = RefusalDelta(0, "No.")
THOUGHT: Final = ReasoningDelta(0, "hm")

ECHO, OVERLAP, JOINED, RESTARTED = (
    SeamKind.ECHO,
    SeamKind.OVERLAP,
    SeamKind.JOINED,
    SeamKind.RESTARTED,
)


def frame(*events: Event, text: str = "") -> Frame:
    """One chunk with this text and these events beside it."""
    delta = {"content": text, "x": [1]} if text else {"x": [1]}
    value = {"id": "c2", "choices": [{"index": 0, "delta": delta, "finish_reason": None}], "y": 2}
    said = (TextDelta(0, text), *events) if text else events
    data = json.dumps(value, separators=(",", ":")).encode()
    return Frame(data, said, len(data) + 8)


def said(*texts: str) -> list[Frame]:
    """One chunk for each of them."""
    return [frame(text=text) for text in texts]


def contents(frames: Sequence[Frame]) -> str:
    """The text of frames by their events, which is the same by their bytes."""
    by_event = "".join(
        event.text for each in frames for event in each.events if isinstance(event, TextDelta)
    )
    deltas = [json.loads(each.data)["choices"][0]["delta"] for each in frames]
    assert by_event == "".join(delta.get("content", "") for delta in deltas)
    return by_event


def seamed(
    prefix: str, frames: Sequence[Frame], *, seam_chars: int = 64
) -> tuple[SeamKind | None, list[Frame]]:
    """The kind and everything that was let go, one frame at a time to the end."""
    seam = Seam(prefix, seam_chars=seam_chars)
    out: list[Frame] = []
    for number, each in enumerate(frames):
        if seam.kind is not None:
            return seam.kind, [*out, *frames[number:]]
        out += seam.feed([each])
    out += seam.finish()
    return seam.kind, out


def judged(prefix: str, *texts: str, seam_chars: int = 64) -> tuple[SeamKind | None, str]:
    """The kind and the text behind the prefix, at the end of all of it."""
    seam = Seam(prefix, seam_chars=seam_chars)
    frames = seam.feed(said(*texts))
    frames += seam.finish()
    return seam.kind, contents(frames)


def test_the_kinds_are_stable_tokens() -> None:
    """They are noted."""
    assert [kind.value for kind in SeamKind] == [
        "seam_echo",
        "seam_overlap",
        "seam_joined",
        "seam_restarted",
    ]
    assert (RESTART_CHARS_MIN, OVERLAP_CHARS_MIN, OVERLAP_CHARS_MAX) == (16, 8, 4096)


# --- an echo -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "texts",
    [
        (KEPT, " dog"),
        (KEPT + " dog",),
        (KEPT[:5], KEPT[5:30], KEPT[30:] + " do", "g"),
        tuple(KEPT + " dog"),
    ],
)
def test_a_prefix_that_comes_again_is_removed_once(texts: tuple[str, ...]) -> None:
    """However it is cut, and whatever stands behind it."""
    assert judged(KEPT, *texts) == (ECHO, " dog")
    assert judged(KEPT, KEPT + texts[0], *texts[1:])[1] == KEPT + " dog"


@pytest.mark.parametrize("prefix", ["a", "Hello, ", KEPT, KEPT * 100])
def test_an_echo_may_be_of_any_length(prefix: str) -> None:
    """One character, or more than is ever held for anything else."""
    assert judged(prefix, prefix, "b", seam_chars=0) == (ECHO, "b")
    assert judged(prefix, prefix) == (ECHO, "")


def test_an_echo_is_let_go_as_soon_as_it_is_whole() -> None:
    """And held until then, however many characters are held otherwise."""
    seam = Seam(KEPT, seam_chars=0)
    assert seam.feed(said(KEPT[:20], KEPT[20:-1])) == []
    assert seam.kind is None
    assert contents(seam.feed(said(KEPT[-1] + " d", "og"))) == " dog"
    assert seam.kind is ECHO


# --- begun anew ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("same", "kind"), [(RESTART_CHARS_MIN, RESTARTED), (RESTART_CHARS_MIN - 1, JOINED)]
)
def test_an_answer_that_parts_from_the_prefix_after_16_characters_began_anew(
    same: int, kind: SeamKind
) -> None:
    """One character less may be chance."""
    text = KEPT[:same] + "#" + "later"
    assert judged(KEPT, text) == (kind, "" if kind is RESTARTED else text)
    assert judged(KEPT, *text) == (kind, "" if kind is RESTARTED else text)
    assert judged(KEPT, KEPT[:same]) == (kind, "" if kind is RESTARTED else KEPT[:same])


def test_nothing_of_an_attempt_that_began_anew_is_let_go() -> None:
    """Neither what came with the frame that showed it, nor what was held before, nor what the end brings."""
    seam = Seam(KEPT, seam_chars=64)
    assert seam.feed(said(KEPT[:10], KEPT[10:20])) == []
    assert seam.feed(said("# dog", " barks", "!")) == []
    assert (seam.kind, seam.held, seam.held_bytes) == (RESTARTED, [], 0)
    assert seam.finish() == []
    assert seam.kind is RESTARTED


def test_an_attempt_that_thinks_again_began_anew() -> None:
    """Before its text, beside it, or behind what would have been an echo."""
    for frames in (
        [frame(THOUGHT), *said(KEPT)],
        [*said(" dog"), frame(THOUGHT)],
        [frame(THOUGHT, text=KEPT)],
        [frame(THOUGHT, text=" dog" * 99)],
    ):
        seam = Seam(KEPT, seam_chars=64)
        assert seam.feed(frames) == []
        assert seam.finish() == []
        assert seam.kind is RESTARTED


@pytest.mark.parametrize("length", [1, 8, RESTART_CHARS_MIN - 1])
def test_a_short_prefix_is_an_echo_or_nothing(length: int) -> None:
    """Whoever parts from it has not said 16 characters of it."""
    prefix = KEPT[:length]
    assert judged(prefix, prefix + "#") == (ECHO, "#")
    assert judged(prefix, prefix[:-1] + "#") == (JOINED, prefix[:-1] + "#")
    assert judged(prefix, prefix[:-1])[0] is JOINED


def test_a_prefix_of_16_characters_can_not_be_begun_anew() -> None:
    """With its last one it is an echo; before it too little is said."""
    prefix = KEPT[:RESTART_CHARS_MIN]
    assert judged(prefix, prefix + "#") == (ECHO, "#")
    assert judged(prefix, prefix[:-1] + "#")[0] is JOINED


# --- an overlap ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("length", "kind"), [(OVERLAP_CHARS_MIN, OVERLAP), (OVERLAP_CHARS_MIN - 1, JOINED), (25, OVERLAP)]
)  # fmt: skip
def test_an_overlap_of_8_characters_is_removed(length: int, kind: SeamKind) -> None:
    """Shorter ones happen by chance."""
    text = KEPT[-length:] + " dog"
    joined = " dog" if kind is OVERLAP else text
    assert judged(KEPT, text) == (kind, joined)
    assert judged(KEPT, *text) == (kind, joined)


def test_of_several_overlaps_the_longest_is_removed() -> None:
    """Nine characters and eighteen would fit as well."""
    prefix = "once: " + "ab, ab, a" * 3
    assert judged(prefix, "ab, ab, a" * 3 + "!") == (OVERLAP, "!")
    assert judged(prefix, "ab, ab, a" * 2 + "!") == (OVERLAP, "!")


@pytest.mark.parametrize(
    ("length", "kind"), [(OVERLAP_CHARS_MAX, OVERLAP), (OVERLAP_CHARS_MAX + 1, JOINED)]
)
def test_a_longer_overlap_is_not_looked_for(length: int, kind: SeamKind) -> None:
    """The text does not repeat itself, so no shorter one fits."""
    end = "".join(f"{number:04}" for number in range(2_000))[:length]
    text = end + "!"
    assert judged("#" + end, text, seam_chars=LARGE) == (kind, "!" if kind is OVERLAP else text)


def test_a_text_that_is_nothing_but_overlap_leaves_nothing() -> None:
    """The provider had nothing to add."""
    assert judged(KEPT, " the lazy") == (OVERLAP, "")


def test_an_overlap_never_reaches_beyond_the_text() -> None:
    """The end of the prefix has to stand at its beginning."""
    assert judged(KEPT, "a dog, over the lazy") == (JOINED, "a dog, over the lazy")


# --- how long it waits ---------------------------------------------------------------------------


@pytest.mark.parametrize(("seam_chars", "held"), [(0, 0), (1, 0), (4, 0), (5, 4), (64, 4)])
def test_the_first_characters_wait_for_the_judgement(seam_chars: int, held: int) -> None:
    """So many, unless they are the prefix's own."""
    seam = Seam(KEPT, seam_chars=seam_chars)
    assert len(contents(seam.feed(said(" dog")))) == 4 - held
    assert (seam.kind is None) == bool(held)
    assert len(contents(seam.finish())) == held
    assert seam.kind is JOINED


def test_frames_without_text_wait_with_it() -> None:
    """A role says nothing about a seam."""
    role = frame(RoleDelta(0, "assistant"))
    seam = Seam(KEPT, seam_chars=0)
    assert seam.feed([role]) == []
    assert seam.kind is None
    assert seam.feed(said(" dog")) == [role, *said(" dog")]


def test_a_continuation_may_have_nothing_to_add() -> None:
    """The end joins what little there is, with all that stands beside it."""
    role = frame(RoleDelta(0, "assistant"))
    seam = Seam(KEPT, seam_chars=64)
    assert seam.feed([role]) == []
    assert seam.finish() == [role]
    assert seam.kind is JOINED
    assert Seam(KEPT, seam_chars=64).finish() == []


def test_what_is_held_is_counted_and_given_back() -> None:
    """Raw bytes for the cap, and what keeping a frame costs for the ledger."""
    seam = Seam(KEPT, seam_chars=64)
    frames = said("The", " quick")
    seam.feed(frames)
    size = sum(each.size for each in frames)
    assert (seam.held_bytes, seam.ledger_bytes) == (size, size + 2 * FRAME_OVERHEAD_BYTES)
    assert seam.held == frames
    seam.finish()
    assert (seam.held_bytes, seam.ledger_bytes, seam.held) == (0, 0, [])


# --- what stands beside the text -----------------------------------------------------------------


@pytest.mark.parametrize("event", [CALL, REFUSAL])
def test_where_something_else_than_text_goes_on_the_seam_is_judged_at_once(event: Event) -> None:
    """There will be no more text to judge by."""
    for texts, kind, left in (
        ((" dog",), JOINED, " dog"),
        ((" the lazy",), OVERLAP, ""),
        ((KEPT[:8],), JOINED, KEPT[:8]),
        ((KEPT[:20],), RESTARTED, ""),
        ((), JOINED, ""),
    ):
        seam = Seam(KEPT, seam_chars=64)
        frames = seam.feed([*said(*texts), frame(event), frame(text="later")])
        assert seam.kind is kind
        assert contents(frames) == (left + "later" if kind is not RESTARTED else "")
        assert (frame(event) in frames) == (kind is not RESTARTED)


def test_a_frame_that_loses_its_text_keeps_what_stands_beside_it() -> None:
    """One that has nothing else goes; one that loses a part of its text loses no more."""
    name = RoleDelta(0, "assistant")
    plain, named, last = said(KEPT[:20])[0], frame(name, text=KEPT[20:30]), said(KEPT[30:] + " d")[0]  # fmt: skip
    seam = Seam(KEPT, seam_chars=64)
    first, second = seam.feed([plain, named, last])
    assert first.events == (name,)
    assert second.events == (TextDelta(0, " d"),)
    for made, old, text in ((first, named, ""), (second, last, " d")):
        value = json.loads(old.data)
        value["choices"][0]["delta"]["content"] = text
        assert json.loads(made.data) == value
        assert made.size == old.size


def test_a_choice_that_says_nothing_is_left_alone() -> None:
    """One without a delta, one with an empty one."""
    data = (
        b'{"choices":[{"index":1},{"index":2,"delta":{}},{"index":0,"delta":{"content":"%b d"}}]}'
    )
    whole = Frame(data % KEPT.encode(), (TextDelta(0, KEPT + " d"),), 9)
    (left,) = Seam(KEPT, seam_chars=64).feed([whole])
    assert left.data == data % b""


def test_a_choice_that_stands_in_a_frame_twice_says_what_is_left_once() -> None:
    """Its text was that of both."""
    data = (
        b'{"choices":[{"index":0,"delta":{"content":"%b"}},{"index":0,"delta":{"content":"%b"}}]}'
    )
    frame = Frame(data % (KEPT.encode(), b" dog"), (TextDelta(0, KEPT), TextDelta(0, " dog")), 9)
    (left,) = Seam(KEPT, seam_chars=64).feed([frame])
    assert left.data == data % (b" dog", b"")
    assert left.events == (TextDelta(0, " dog"),)


def test_what_is_not_removed_keeps_its_bytes() -> None:
    """Frames before the text, and behind the overlap, are the very same."""
    role, rest = frame(RoleDelta(0, "assistant")), said("!")[0]
    seam = Seam(KEPT, seam_chars=12)
    frames = seam.feed([role, *said(KEPT[-10:], " d"), rest])
    assert frames[0] is role
    assert frames[-1] is rest
    assert seam.kind is OVERLAP


def test_a_torn_character_stays_marked_where_its_text_is_cut() -> None:
    """Nobody goes on behind it, whatever was removed before it."""
    torn = Frame(b'{"choices":[{"delta":{"content":"%b d"}}]}' % KEPT.encode(), (TextDelta(0, KEPT + " d"),), 9, Mend.TEXT.value)  # fmt: skip
    (left,) = Seam(KEPT, seam_chars=64).feed([torn])
    assert left.events == (TextDelta(0, " d"),)
    assert left.mend & Mend.TEXT


def test_its_repr_tells_no_text() -> None:
    """Only how far it is."""
    seam = Seam(KEPT, seam_chars=64)
    seam.feed(said("The"))
    assert repr(seam) == "Seam(None, 3 characters held)"


# --- for every text ------------------------------------------------------------------------------

prefixes = st.text("ab", min_size=1, max_size=40)


def pieces(text: str, cuts: Sequence[int]) -> list[str]:
    """`text` cut at these places; a piece may be empty."""
    places = [0, *sorted(cut % (len(text) + 1) for cut in cuts), len(text)]
    return [text[start:end] for start, end in itertools.pairwise(places)]


@st.composite
def meetings(draw: st.DrawFn) -> tuple[str, str]:
    """A prefix, and a text that has something of it."""
    prefix = draw(prefixes)
    start = draw(st.sampled_from((0, 0, len(prefix))) | st.integers(0, len(prefix)))
    end = draw(st.just(len(prefix)) | st.integers(start, len(prefix)))
    return prefix, prefix[start:end] + draw(st.text("abc", max_size=30))


@given(
    meetings(),
    st.lists(st.integers(0, 99), max_size=8),
    st.sampled_from((40, 64, LARGE)),
    st.booleans(),
)
@example(("a" * 40, "a" * 39 + "b"), [15, 16, 17], 40, True)
@example(("a" * 20, "a" * 8 + "b"), [7, 8], 40, True)
def test_the_same_text_meets_its_prefix_in_the_same_way_however_it_is_cut(
    meeting: tuple[str, str], cuts: list[int], seam_chars: int, at_once: bool
) -> None:
    """The kind and the text that is left; frames in one batch, or one by one. No overlap is longer than what waits."""
    prefix, text = meeting
    kind, whole = seamed(prefix, said(text), seam_chars=seam_chars)
    cut = said(*pieces(text, cuts))
    if at_once:
        seam = Seam(prefix, seam_chars=seam_chars)
        frames = [*seam.feed(cut), *seam.finish()]
        assert seam.kind is kind
    else:
        found, frames = seamed(prefix, cut, seam_chars=seam_chars)
        assert found is kind
        if kind is RESTARTED:
            frames = []
    assert contents(frames) == ("" if kind is RESTARTED else contents(whole))


@given(meetings(), st.integers(0, 80))
def test_what_is_removed_stands_at_the_end_of_the_prefix_already(
    meeting: tuple[str, str], seam_chars: int
) -> None:
    """Nothing is lost: what was removed and what is left are the text that came, and only the longest is removed."""
    prefix, text = meeting
    kind, left = judged(prefix, text, seam_chars=seam_chars)
    if kind is RESTARTED:
        assert left == ""
        assert text[:RESTART_CHARS_MIN] == prefix[:RESTART_CHARS_MIN]
        assert not text.startswith(prefix)
        return
    gone = text[: len(text) - len(left)]
    assert gone + left == text
    assert prefix.endswith(gone)
    assert (kind is ECHO) == text.startswith(prefix)
    assert (kind is OVERLAP) == (kind is not ECHO and len(gone) >= OVERLAP_CHARS_MIN)
    assert (kind is JOINED) == (gone == "")


@given(
    st.text("abc ", min_size=1, max_size=60),
    st.text("xyz ", max_size=60).map(lambda text: "x" + text),
    st.lists(st.integers(0, 99), max_size=6),
    st.sampled_from((0, 8, 64)),
)
def test_a_text_that_goes_on_is_joined_as_it_is(
    prefix: str, more: str, cuts: list[int], seam_chars: int
) -> None:
    """It begins with nothing that the prefix holds, so the two are the answer that was never cut."""
    assume(not prefix.isspace())
    kind, frames = seamed(prefix, said(*pieces(more, cuts)), seam_chars=seam_chars)
    assert kind is JOINED
    assert prefix + contents(frames) == prefix + more


def test_a_responses_event_is_cut_in_its_own_delta() -> None:
    """Its other members and its place stay; one that has nothing left of its text stays for its place."""
    events = [
        Frame(
            json.dumps({"type": "response.output_text.delta", "delta": text, "x": 1}).encode(),
            (Place("response.output_text.delta", 3, 0), TextDelta(0, text)),
            9,
        )
        for text in ("quick ", "brown fox", " jumps")
    ]
    kind, out = seamed("The quick brown fox", events)
    assert kind is OVERLAP
    told = [json.loads(each.data) for each in out]
    assert [value["delta"] for value in told] == ["", "", " jumps"]
    assert all(value["x"] == 1 for value in told)
    assert all(isinstance(each.events[-1], Place) or each is events[2] for each in out)
