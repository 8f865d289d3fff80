"""What filters find in an answer becomes another attempt, or an error; what they only see is told to operators."""

from __future__ import annotations

import json
from typing import Any

import pytest
import trio

from gate.config import FilterAction, FilterConfig, HoldConfig, RecoveryConfig
from gate.observe import Outcome, What
from tests.assembly import read_stream
from tests.doubles import (
    DONE,
    ROLE,
    STOP,
    Answer,
    RecordingCaller,
    Records,
    ScriptedProvider,
    gateway,
    healthy,
    left_behind,
    request,
    says,
    supervise,
    text,
)

BUFFERED = HoldConfig(mode="buffered")
LOOP = ("The island is small.", *[" It has one tree."] * 60)
KEY = ("The key is ", "AKIA", "ABCDEFGH", "IJ234567", ".")


class Run:
    """One exchange over providers with these scripts."""

    def __init__(
        self,
        *scripts: list[Answer],
        filters: tuple[str, ...],
        tables: dict[str, FilterConfig] | None = None,
        hold: HoldConfig = BUFFERED,
        stream: bool = True,
        **recovery: Any,
    ) -> None:
        self.records = Records()
        self.providers = [ScriptedProvider(*script) for script in scripts]
        self.caller = RecordingCaller(request(stream=stream))
        self.gate = gateway(
            *self.providers,
            hold=hold,
            recovery=RecoveryConfig(**recovery),
            filters=filters,
            tables=tables,
            prefill="vllm",
            records=self.records,
        )

    async def play(self) -> Outcome:
        """To its end, with everything given back."""
        outcome = await supervise(self.gate, self.caller)
        assert left_behind(self.gate) == []
        return outcome

    def noted(self, what: What) -> list[tuple[str, str]]:
        """The filters and codes of these observations."""
        return [(each.filter, each.code) for each in self.records.observations if each.what is what]


async def test_a_loop_that_nobody_has_seen_is_begun_anew_elsewhere(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """The connection is closed in the middle of it."""
    run = Run([healthy(*LOOP)], [healthy("It has", " one tree.")], filters=("repetition",))
    outcome = await run.play()
    assert (outcome.code, outcome.attempts, run.caller.text) == ("", 2, "It has one tree.")
    assert run.noted(What.VIOLATION) == [("repetition", "repetition_loop")]


async def test_a_loop_behind_what_was_seen_is_gone_on_from_before_it(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Where the tail is longer than it takes to see one: the caller reads one answer, and the provider is told no repeat of the loop."""
    hold = HoldConfig(mode="window", tail_chars=400)
    words = [f"Once upon a time there were {number} islands in the sea. " for number in range(20)]
    run = Run(
        [says(ROLE, *map(text, (*words, *LOOP)))],
        [healthy(" It had", " one tree.")],
        filters=("repetition",),
        hold=hold,
    )
    outcome = await run.play()
    assert (outcome.code, outcome.attempts) == ("", 2)
    said = json.loads(run.providers[1].asked[0].body)["messages"][-1]
    assert said["role"] == "assistant"
    assert said["content"].count("It has one tree.") == 1
    seen = read_stream(run.caller.received)
    assert seen.clean
    assert run.caller.text == said["content"] + " It had one tree."


async def test_a_loop_that_was_seen_from_its_beginning_ends_in_an_error(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Of it no more than its first repeats."""
    run = Run([healthy(*LOOP)], [healthy("never")], filters=("repetition",), hold=HoldConfig())
    assert (await run.play()).code == "repetition_loop"
    assert run.caller.text.count("It has one tree.") <= 4


@pytest.mark.parametrize("action", ["error", "next_provider", "exact", None])
async def test_what_a_pattern_denies_is_never_seen(
    action: FilterAction | None, autojump_clock: trio.testing.MockClock
) -> None:
    """Its table says what comes next."""
    tables = {"no-keys": FilterConfig(kind="patterns", pattern_set="secrets", action=action)}
    run = Run([healthy(*KEY)] * 2, [healthy("No key.")], filters=("no-keys",), tables=tables)
    outcome = await run.play()
    assert "AKIA" not in run.caller.received.decode()
    assert run.noted(What.VIOLATION)[0] == ("no-keys", "pattern_match")
    if action in {"error", None}:
        assert (outcome.status, outcome.code, outcome.attempts) == (502, "pattern_match", 1)
    else:
        assert (outcome.code, run.caller.text) == ("", "No key.")
        assert outcome.attempts == (3 if action == "exact" else 2)


@pytest.mark.parametrize("stream", [True, False])
async def test_a_pattern_behind_what_was_seen_ends_the_answer(
    autojump_clock: trio.testing.MockClock, *, stream: bool
) -> None:
    """Everything before it has gone, and not one character of it; a whole answer is asked for anew."""
    tables = {
        "no-keys": FilterConfig(kind="patterns", pattern_set="secrets", action="next_provider")
    }
    run = Run([healthy(*KEY)], [healthy("No.")], filters=("no-keys",), tables=tables, hold=HoldConfig(), stream=stream)  # fmt: skip
    outcome = await run.play()
    if stream:
        assert (outcome.code, run.caller.text) == ("pattern_match", "The key is ")
    else:
        assert outcome.code == ""
        answer = json.loads(run.caller.received)["choices"][0]["message"]["content"]
        assert answer == "No."


async def test_damaged_text_is_asked_for_elsewhere(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """As every malformed answer is."""
    run = Run([healthy("Na", "\ufffd" * 20)], [healthy("Naïve")], filters=("encoding",))
    outcome = await run.play()
    assert (outcome.code, run.caller.text) == ("", "Naïve")
    assert run.noted(What.VIOLATION) == [("encoding", "text_damaged")]


async def test_what_only_observes_lets_everything_pass_and_is_told_once(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """With the name of its table."""
    tables = {
        "loops": FilterConfig(kind="repetition", gating=False),
        "keys": FilterConfig(kind="patterns", pattern_set="secrets", gating=False),
    }
    words = ("I can't help with that. ", *LOOP, *KEY)
    run = Run(
        [says(ROLE, *map(text, words), STOP, DONE)],
        filters=("loops", "keys", "refusal"),
        tables=tables,
        hold=HoldConfig(),
    )
    outcome = await run.play()
    assert (outcome.code, outcome.attempts, run.caller.text) == ("", 1, "".join(words))
    assert run.noted(What.VIOLATION) == []
    assert sorted(run.noted(What.REMARK)) == [
        ("keys", "pattern_match"),
        ("loops", "repetition_loop"),
        ("refusal", "refusal"),
    ]
