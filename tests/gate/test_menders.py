"""Which steps an attempt's frames go through."""

from __future__ import annotations

from gate.endpoints import RESPONSES
from gate.events import Complete, Frame, Slot, TextDelta
from gate.filters.contract import FilterContext
from gate.menders import Menders, settled
from gate.mending import ChatMender
from gate.mending_format import FormatMender
from gate.mending_tunnel import TunnelMender
from gate.openai import frame_of
from gate.unmended import ASIDE

FORMAT = FormatMender(FilterContext(1, {"type": "json_object"}, "repair"), "reasoning")


def menders(*, opaque: bool = False, tags: bool = False, form: bool = True) -> Menders:
    """For one choice."""
    return Menders(1, "reasoning", None, tags, FORMAT if form else None, opaque)


def text(said: str) -> Frame:
    """A frame of text."""
    value = {"choices": [{"index": 0, "delta": {"content": said}}]}
    made = frame_of(value, b'{"choices":[{"index":0,"delta":{"content":"%b"}}]}' % said.encode(), 9)
    return Frame(made.data, made.events, made.size, made.mend, raw=b"RAW")


def test_the_path_decides() -> None:
    """Chat's steps, or the tunnel's over them; what nobody reads goes through the tunnel's alone."""
    for tunnel, kind in ((False, ChatMender), (True, TunnelMender)):
        assert type(menders().make(last=None, before="", tunnel=tunnel)) is kind
        made = menders(opaque=True).make(last=None, before="", tunnel=tunnel)
        assert type(made) is TunnelMender
        (left,) = made.mend([text("x")])
        assert left.data == b"RAW"


def test_responses_have_steps_of_their_own_in_a_tunnel() -> None:
    """With what finds the texts that they take out."""
    made = Menders(1, "", None, False, None, False, RESPONSES).make(last=None, before="", tunnel=True)  # fmt: skip
    ended = Frame(b'{"text":"b"}', (Slot("response.output_text.done"),), 9, raw=b"END")
    said = Frame(b'{"delta":"a"}', (Slot("response.output_text.delta"), TextDelta(0, "a")), 9, raw=b"RAW")  # fmt: skip
    first, second = made.mend([said, ended])
    assert (first.data, second.data) == (b"RAW", b"END")
    assert first.events[1:] == (TextDelta(0, "a"),)
    assert second.events[1:] == (TextDelta(ASIDE + 1, "b"),)


def test_an_attempt_that_goes_on_has_said_its_role_and_its_tags() -> None:
    """Where its beginning spoke of a tag, none is looked for any more."""
    made = menders(tags=True).make(last=ChatMender(), before="a <think>", tunnel=False)
    (left,) = made.mend([text("b</think>")])
    assert left.events == (TextDelta(0, "b</think>"),)
    assert b"role" not in left.data
    fresh = menders(tags=True).make(last=None, before="", tunnel=False)
    (left,) = fresh.mend([text("b</think>")])
    assert left.events == (TextDelta(0, "b"),)
    assert b"role" in left.data


def test_the_last_step_sees_the_mended_text_on_either_path() -> None:
    """In a tunnel it is the copy's."""
    for tunnel in (False, True):
        made = menders().make(last=None, before="", tunnel=tunnel)
        frames = made.mend([text("```"), text("1"), text("```")])
        rest, facts = made.finish(Complete())
        result = settled(made, FORMAT, frames + rest, facts)
        assert result.changed is False
        assert result.frames == frames
