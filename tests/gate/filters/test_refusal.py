"""`refusal`: told at the end, never condemned; an answer that only mentions what it can't do is none."""

from __future__ import annotations

import pytest

from gate.events import AudioDelta, Facts, Frame, ReasoningDelta, RefusalDelta, TextDelta
from gate.filters.contract import FilterContext, Passed
from gate.filters.refusal import RefusalFilter, begins_as_refusal


def notice(*events: TextDelta | RefusalDelta | ReasoningDelta | AudioDelta) -> str | None:
    """What is said of an answer of these events, one in each frame."""
    judge = RefusalFilter(FilterContext(2))
    assert not judge.gating
    for at, event in enumerate(events):
        assert judge.observe([Frame(b"{}", (event,), 2)], at) == Passed(at + 1)
        assert judge.notice is None or isinstance(event, RefusalDelta)
    assert judge.finish(len(events), Facts()) == Passed(len(events))
    return judge.notice


@pytest.mark.parametrize(
    "text",
    [
        "I can't help with that.",
        "I\u2019m sorry, but I can\u2019t assist with that request.",
        "I'm very sorry, but I cannot provide instructions for this.",
        "Sorry, I won't write that.",
        "  **I am unable to comply with this request.**",
        "As an AI language model, I cannot engage in this.",
        "Unfortunately, I'm not able to help you with picking a lock.",
        "I must decline. What you ask for is dangerous.",
        "I will not help you harm anybody.",
        "Sorry, that's something I can't do.",
        "I'm not comfortable writing this.",
        "This request violates the rules that I follow.",
        "Es tut mir leid, aber dabei kann ich dir leider nicht helfen.",
        "Je suis désolé, mais je ne peux pas vous aider.",
        "Lo siento, pero no puedo ayudarte con eso.",
        "Mi dispiace, ma non posso aiutarti.",
        "Desculpe, mas não posso ajudar com isso.",
        "很抱歉、我无法帮助你。",
        "申し訳ありませんが、お手伝いできません。",
    ],
)
def test_an_answer_that_begins_as_refusals_do_is_noticed(text: str) -> None:
    """However it is cut."""
    assert begins_as_refusal(text)
    assert notice(TextDelta(0, text)) == "refusal"
    assert notice(TextDelta(1, "Of course!"), *(TextDelta(0, char) for char in text)) == "refusal"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Sure! Here is how it works.",
        "I can help with that.",
        "I can't help but admire this poem.",
        "Sorry for the delay. The answer is 42.",
        "Unfortunately, the library was removed in version 3.",
        "The function can't provide a value here, so it raises.",
        "No, seven is a prime number.",
        "Here is the letter: I'm sorry, but I can't assist with that request.",
        "I will not repeat the whole file, only what changed:\n\n```python\nprint(1)\n```",
        "x" * 200 + " I can't help with that.",
    ],
)
def test_any_other_answer_is_not(text: str) -> None:
    """Least of all one that quotes a refusal."""
    assert notice(TextDelta(0, text)) is None


def test_a_providers_own_refusal_is_one() -> None:
    """Whatever it says; reasoning about one is none."""
    assert notice(RefusalDelta(0, "No.")) == "refusal"
    assert notice(RefusalDelta(0, ""), TextDelta(0, "Yes.")) is None
    assert notice(ReasoningDelta(0, "I can't help with that."), TextDelta(0, "Yes.")) is None


def test_what_is_said_aloud_is_read_by_itself() -> None:
    """It begins where the audio does, whatever was written before."""
    assert notice(TextDelta(0, "Yes."), AudioDelta(0, "I can't "), AudioDelta(0, "help with that.")) == "refusal"  # fmt: skip
    assert notice(AudioDelta(0), AudioDelta(0, "Yes.")) is None
    assert notice(AudioDelta(0, "x" * 200), AudioDelta(0, "I can't help with that.")) is None


def test_an_answer_that_is_gone_on_with_has_begun_already() -> None:
    """The attempt's own first words are not those of the answer."""
    judge = RefusalFilter(FilterContext(1))
    judge.prime("The quote of the day is: ")
    judge.observe([Frame(b"{}", (TextDelta(0, "I can't help with that."),), 2)], 4)
    judge.finish(5, Facts())
    assert judge.notice is None
