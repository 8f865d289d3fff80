"""Recorded streams, cut between two events, with a healthy second attempt behind: the whole answer once, or a beginning of it and an explicit error.

Never a duplicate, never a loss, never a clean end of half an answer: whatever the hold policy, and however the connection ended; also where the second attempt goes on with
the first one's answer. `--corpus=full` cuts every stream at every boundary; the sample is a fixed choice of them.
"""

from __future__ import annotations

import functools
import json
import random
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

import pytest
import trio
import trio.testing

from actors.ports import UpstreamRequest
from gate.config import ContinuationMode, HoldConfig, RecoveryConfig
from gate.errors import UpstreamFault
from gate.observe import OutcomeKind
from tests.assembly import Answer, read_stream
from tests.doubles import (
    Read,
    RecordingCaller,
    ScriptedProvider,
    ScriptedResponse,
    gateway,
    left_behind,
    request,
    says,
    supervise,
)
from tests.e2e.test_corpus import CORPUS, Recorded, check, finished, payloads, recordings, split
from tests.pipeline import run

SAMPLE: Final = 30  # boundaries per policy and end: three hundred in all


@dataclass(frozen=True, slots=True)
class Policy:
    """A route. `continues`: the second provider can be told to go on."""

    hold: HoldConfig
    mode: ContinuationMode = "off"

    @property
    def continues(self) -> bool:
        return self.mode != "off"


POLICIES: Final = {
    "live": Policy(HoldConfig()),
    "window": Policy(HoldConfig(mode="window", tail_chars=200)),
    "buffered": Policy(HoldConfig(mode="buffered")),
    "live, going on": Policy(HoldConfig(), "committed"),
    "window, going on": Policy(HoldConfig(mode="window", tail_chars=60), "held"),
}
ENDS: Final = {"FIN": [], "RST": [Read(fault=UpstreamFault.CUT)]}

Cut = tuple[Recorded, int]


@functools.cache
def boundaries(*, full: bool) -> Sequence[Cut]:
    """(stream, events that come before the cut), of streams that have an answer at all and are not finished by then."""
    whole = [each for each in recordings(full=True) if each.complete]
    cuts = [(each, count) for each in whole for count in range(1, len(each.events))]
    if not full:
        cuts = random.Random(20).sample(cuts, 4 * SAMPLE)  # noqa: S311 - cuts, not secrets
    open_ones = [cut for cut in cuts if not finished(cut[0].events[: cut[1]], cut[0].choices)]
    return open_ones if full else open_ones[:SAMPLE]


NEAR: Final = (
    8  # events on each side of the cut that come one by one; what is farther comes in one read
)


class GoesOn(ScriptedProvider):
    """Says what was recorded, or, where it is asked to go on, what was recorded behind the text that it is given."""

    def __init__(self, recorded: Recorded) -> None:
        super().__init__()
        self.repeat = ""
        """What it goes on with by chance just as the text ends that it is given; the seam's rule takes that for said twice, and removes it."""
        self._events = recorded.events
        self._texts = texts(recorded.data)

    @asynccontextmanager
    async def attempt(
        self, request: UpstreamRequest, *, on_connected: Callable[[], None]
    ) -> AsyncIterator[ScriptedResponse]:
        last = json.loads(b"".join(map(bytes, request.body)))["messages"][-1]
        events = self._events
        if last["role"] == "assistant":
            given = last["content"]
            events = events[self._texts.index(given) :]
            self.repeat = repeated(given, self._texts[-1].removeprefix(given))
        self._script = [says(*filter(None, [*events[:NEAR], b"".join(events[NEAR:])]))]
        async with super().attempt(request, on_connected=on_connected) as response:
            yield response


@functools.cache
def texts(data: bytes) -> Sequence[str]:
    """The text of the first choice before each event."""
    found = [""]
    for event in split(data):
        values = [value for value in payloads([event]) if isinstance(value, dict)]
        found.append(found[-1] + "".join(map(said, values)))
    return found


def said(value: Any) -> str:
    """The text that one chunk adds to the first choice, whatever it is called in the recording."""
    parts = [part for part in value.get("choices") or () if not part.get("index")]
    content = [(part.get("delta") or {}).get("content") for part in parts]
    return "".join(
        each if isinstance(each, str) else "".join(part.get("text", "") for part in each or ())
        for each in content
    )


def repeated(before: str, after: str) -> str:
    """The longest end of one text, of eight characters or more, that the other begins with."""
    ends = (before[at:] for at in range(max(len(before) - len(after), 0), len(before) - 7))
    return next((end for end in ends if after.startswith(end)), "")


@pytest.mark.skipif(not CORPUS.is_dir(), reason="the recorded streams are not here")
@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("policy", POLICIES)
def test_a_cut_is_made_good_or_told(policy: str, end: str, pytestconfig: pytest.Config) -> None:
    """One exchange per boundary."""
    cuts = boundaries(full=pytestconfig.getoption("--corpus") == "full")
    assert len(cuts) >= SAMPLE
    made_good = 0
    for recorded, count in cuts:
        clock = trio.testing.MockClock(autojump_threshold=0)
        made_good += trio.run(_cut_once, recorded, count, POLICIES[policy], end, clock=clock)
    assert made_good == len(cuts) if policy == "buffered" else 0 < made_good < len(cuts)


async def _cut_once(recorded: Recorded, count: int, policy: Policy, end: str) -> bool:
    """Whether the cut was made good; what the caller got is right in either case."""
    far = max(count - NEAR, 0)
    events = [b"".join(recorded.events[:far]), *recorded.events[far:count]]
    first = ScriptedProvider(says(*filter(None, events), then=ENDS[end]))
    second = GoesOn(recorded)
    gate = gateway(
        first,
        second,
        hold=policy.hold,
        recovery=RecoveryConfig(continuation=policy.mode, retry_budget_share=1.0),
        prefill="assistant",
    )
    caller = RecordingCaller(request(n=recorded.choices, stream_options={"include_usage": True}))
    outcome = await supervise(gate, caller)
    where = f"{recorded.name} after {count} events"
    assert left_behind(gate) == [], where
    if outcome.kind is OutcomeKind.SUCCESS:
        assert outcome.attempts == 2, where
        answer = _comparable(recorded, read_stream(caller.received), second)
        if second.repeat:
            put_back(second.repeat, answer, texts(recorded.data)[-1])
        check(recorded, answer)
        return True
    assert policy.hold.mode != "buffered", where
    assert caller.status == 200, where
    assert second.asked == [], where
    answer = read_stream(caller.received)
    assert not answer.clean, where
    assert caller.code in {"stream_cut", "missing_terminal"}, where
    assert_beginning(answer, read_stream(run([recorded.data], choices=recorded.choices).body))
    return False


def _comparable(recorded: Recorded, answer: Answer, second: ScriptedProvider) -> Answer:
    """An answer that two attempts gave has a usage of its own, with nothing but the three sums in it."""
    told = json.loads(second.asked[0].body)["messages"][-1]["role"] == "assistant"
    if told and answer.usage:
        assert answer.usage.keys() == {"prompt_tokens", "completion_tokens", "total_tokens"}
        answer.usage = recorded.oracle["usage_last"]
    return answer


def put_back(repeat: str, answer: Answer, whole: str) -> None:
    """Exactly this much is missing, once: what the seam's rule costs a text that says the same thing twice just where it was cut."""
    choice = answer.choices[0]
    size = len(repeat)
    shortened = (
        whole[:at] + whole[at + size :] for at in range(len(whole)) if whole.startswith(repeat, at)
    )
    assert choice.text in shortened
    choice.text = whole


def assert_beginning(part: Answer, whole: Answer) -> None:
    """Every text of every choice is a beginning of the whole one, and something of it was seen."""
    seen = 0
    for index, choice in part.choices.items():
        other = whole.choices[index]
        assert other.text.startswith(choice.text)
        assert other.reasoning.startswith(choice.reasoning)
        assert other.refusal.startswith(choice.refusal)
        assert list(choice.calls) == list(other.calls)[: len(choice.calls)]
        assert choice.finishes == []
        seen += len(choice.text) + len(choice.reasoning) + len(choice.refusal) + len(choice.calls)
    assert seen > 0
