"""A plug-in in an exchange: its violation, its failure, and its text before a continuation."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import trio

from gate.config import FilterFailure, HoldConfig, PluginConfig, RecoveryConfig
from gate.filters.plugin import plugged_in
from gate.observe import Outcome, What
from tests.doubles import (
    ALIAS,
    RecordingCaller,
    Records,
    ScriptedProvider,
    gateway,
    healthy,
    left_behind,
    request,
    supervise,
)
from tests.plugins import WordPlugin, table

LIVE = HoldConfig()


class Run:
    """One exchange over two providers, the second of which answers `No.`; its route has one plug-in, `mine`."""

    def __init__(self, config: PluginConfig, *, stream: bool = True, **recovery: Any) -> None:
        self.records = Records()
        self.providers = [ScriptedProvider(healthy("Well, ", "drat", ".")), ScriptedProvider(healthy("No."))]  # fmt: skip
        self.caller = RecordingCaller(request(stream=stream))
        self.gate = gateway(
            *self.providers,
            hold=LIVE,
            recovery=RecoveryConfig(**recovery),
            filters=("mine",),
            tables={"mine": config},
            records=self.records,
        )
        plugins = {"word": plugged_in(WordPlugin)}
        pool = dataclasses.replace(self.gate.pools[ALIAS], plugins=plugins)
        self.gate.pools = {ALIAS: pool}

    async def play(self) -> Outcome:
        """To its end, with everything given back."""
        outcome = await supervise(self.gate, self.caller)
        assert left_behind(self.gate) == []
        return outcome

    def noted(self, what: What) -> list[tuple[str, str]]:
        """The filters and codes of these observations."""
        return [(each.filter, each.code) for each in self.records.observations if each.what is what]


async def test_a_violation_ends_in_what_the_table_wants(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """An error, or another provider where nothing was released."""
    run = Run(table(), stream=False)
    outcome = await run.play()
    assert (outcome.code, outcome.status, outcome.attempts) == ("word_said", 502, 1)
    run = Run(table(action="next_provider"), stream=False)
    outcome = await run.play()
    assert (outcome.code, outcome.attempts) == ("", 2)
    assert run.noted(What.VIOLATION) == [("mine", "word_said")]


async def test_what_stands_before_a_violation_was_released(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """And nothing behind it is."""
    run = Run(table())
    outcome = await run.play()
    assert (outcome.code, run.caller.text) == ("word_said", "Well, ")


@pytest.mark.parametrize("where", ["init", "observe", "finish"])
@pytest.mark.parametrize("failure", ["closed", "open"])
async def test_a_plugin_that_fails_takes_nothing_with_it(
    where: str, failure: FilterFailure, autojump_clock: trio.testing.MockClock
) -> None:
    """Closed, the exchange ends, since the next answer could not be judged either; open, the answer is whole, and it is told."""
    run = Run(table(word="never", raises=where, failure=failure), stream=False)
    outcome = await run.play()
    assert outcome.attempts == 1
    if failure == "closed":
        assert (outcome.code, outcome.status) == ("filter_unavailable", 503)
        assert run.noted(What.VIOLATION) == [("mine", "filter_unavailable")]
    else:
        assert (outcome.code, outcome.status) == ("", 200)
        assert run.noted(What.VIOLATION) == []
    assert ("mine", "filter_failed") in run.noted(What.REMARK)
    assert [type(error) for _, error in run.records.crashes] == [ValueError]
