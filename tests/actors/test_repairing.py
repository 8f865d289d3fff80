"""An answer that does not fit its schema is asked for again, with what was wrong; the caller sees the one that fits, or an error."""

from __future__ import annotations

import json
from typing import Any

import pytest
import trio

from gate.config import LimitsConfig, RecoveryConfig, StructuredOutput
from gate.observe import Outcome, What
from tests.doubles import (
    Answer,
    RecordingCaller,
    Records,
    ScriptedProvider,
    gateway,
    healthy,
    left_behind,
    refuses,
    request,
    supervise,
)

SCHEMA = {"type": "object", "properties": {"age": {"type": "integer"}}, "required": ["age"]}
FORMAT = {"type": "json_schema", "json_schema": {"name": "person", "schema": SCHEMA}}
GOOD = ('{"age"', ": 7}")
BAD = ('{"age"', ': "seven"}')


class Run:
    """One exchange over providers with these scripts."""

    def __init__(
        self,
        *scripts: list[Answer],
        level: StructuredOutput = "repair",
        body: bytes = b"",
        limits: LimitsConfig | None = None,
        **recovery: Any,
    ) -> None:
        self.records = Records()
        self.providers = [ScriptedProvider(*script) for script in scripts]
        self.caller = RecordingCaller(body or request(response_format=FORMAT))
        self.gate = gateway(
            *self.providers,
            recovery=RecoveryConfig(**recovery),
            filters=("empty", "structured_output"),
            structured_output=level,
            limits=limits,
            records=self.records,
        )

    async def play(self) -> Outcome:
        """To its end, with everything given back."""
        outcome = await supervise(self.gate, self.caller)
        assert left_behind(self.gate) == []
        return outcome

    def asked(self) -> list[list[Any]]:
        """The messages of each attempt, provider by provider."""
        return [json.loads(each.body)["messages"] for one in self.providers for each in one.asked]

    def noted(self, what: What) -> list[str]:
        """The codes of these observations."""
        return [each.code for each in self.records.observations if each.what is what]


async def test_an_answer_that_does_not_fit_is_asked_for_again_with_what_was_wrong(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """At the same provider, by one user message behind the caller's own; nothing of the first answer is seen."""
    run = Run([healthy(*BAD), healthy(*GOOD)], [])
    outcome = await run.play()
    assert (outcome.code, outcome.attempts, run.caller.text) == ("", 2, "".join(GOOD))
    first, second = run.asked()
    assert second[:-1] == first
    assert second[-1]["role"] == "user"
    said = second[-1]["content"]
    assert all(part in said for part in ("/age", "type", "".join(BAD)))
    assert run.noted(What.PLAN) == ["schema"]
    assert run.noted(What.VIOLATION) == ["schema_mismatch"]


async def test_a_whole_answer_is_judged_like_a_stream(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """A caller that does not stream gets the one that fits."""
    run = Run(
        [healthy("No JSON"), healthy(*GOOD)],
        body=request(stream=False, response_format={"type": "json_object"}),
    )
    assert (await run.play()).code == ""
    assert json.loads(run.caller.received)["choices"][0]["message"]["content"] == "".join(GOOD)


async def test_after_the_repair_the_next_provider_is_asked_as_the_caller_asked(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """A repair is made so often as the route says, and the body is built from the original each time."""
    run = Run([healthy(*BAD), healthy("{}")], [healthy(*GOOD)])
    outcome = await run.play()
    assert (outcome.code, outcome.attempts) == ("", 3)
    first, _, third = run.asked()
    assert third == first
    assert run.noted(What.PLAN) == ["schema", "exact"]


async def test_without_repairs_the_next_provider_is_asked_at_once(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """And after that the caller is told, with the code of what was wrong."""
    run = Run([healthy(*BAD)], [healthy("nonsense")], schema_repairs_max=0, attempts_max=2)
    outcome = await run.play()
    assert (outcome.status, outcome.code) == (502, "json_invalid")
    error = json.loads(run.caller.received)["error"]
    assert error["type"] == "output_policy_error"
    assert run.caller.headers[b"x-should-retry"] == b"false"
    assert "nonsense" not in run.caller.received.decode()


async def test_a_provider_that_refuses_the_repair_is_asked_for_no_other(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Its 4xx is the plan's failure and not the caller's; what would have come without the plan comes next."""
    run = Run([healthy(*BAD), refuses(400)], [healthy(*GOOD)], schema_repairs_max=5)
    assert (await run.play()).code == ""
    assert run.noted(What.PLAN) == ["schema", "exact"]
    run = Run([healthy(*BAD), refuses(422)], attempts_max=2)
    assert (await run.play()).code == "schema_mismatch"


@pytest.mark.parametrize("level", ["off", "check", "reject"])
async def test_the_level_says_what_becomes_of_an_answer_that_does_not_fit(
    level: StructuredOutput, autojump_clock: trio.testing.MockClock
) -> None:
    """`off`: nobody looks; `check`: it is told to operators; `reject`: the caller gets an error, and no other attempt is made."""
    run = Run([healthy(*BAD)], [healthy(*GOOD)], level=level)
    outcome = await run.play()
    assert outcome.attempts == 1
    assert outcome.code == ("schema_mismatch" if level == "reject" else "")
    assert run.noted(What.REMARK) == (["schema_mismatch"] if level == "check" else [])


async def test_a_schema_that_nobody_can_judge_by_is_told_to_operators(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """The answer has to be JSON all the same."""
    remote = {"name": "x", "schema": {"$ref": "https://example.com/schema"}}
    body = request(response_format={"type": "json_schema", "json_schema": remote})
    run = Run([healthy(*BAD)], body=body)
    assert (await run.play()).code == ""
    assert run.noted(What.REMARK) == ["schema_unusable"]


async def test_without_room_for_a_repair_the_next_provider_is_asked(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """The repair's body does not fit beside the caller's; the caller's own does."""
    limits = LimitsConfig(exchange_bytes_max=100_000, held_bytes_max=20_000, event_bytes_max=20_000, body_bytes_max=20_000)  # fmt: skip
    body = request(response_format=FORMAT, metadata={"x": "y" * 18_000})
    run = Run([healthy(*BAD)], [healthy(*GOOD)], body=body, limits=limits)
    assert (await run.play()).code == ""
    assert run.noted(What.PLAN) == ["schema", "rebuild_overflow", "exact"]
