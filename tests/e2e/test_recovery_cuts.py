"""Recorded streams, cut between two events, with a healthy second attempt behind: the whole answer once, or a beginning of it and an explicit error.

Never a duplicate, never a loss, never a clean end of half an answer: whatever the hold policy, and however the connection ended. `--corpus=full` cuts every
stream at every boundary; the sample is a fixed choice of them.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Final

import pytest
import trio
import trio.testing

from gate.config import HoldConfig
from gate.errors import UpstreamFault
from gate.observe import OutcomeKind
from tests.assembly import Answer, read_stream
from tests.doubles import (
    Read,
    RecordingCaller,
    ScriptedProvider,
    gateway,
    left_behind,
    request,
    says,
    supervise,
)
from tests.e2e.test_corpus import CORPUS, Recorded, check, finished, recordings
from tests.pipeline import run

SAMPLE: Final = 50  # boundaries per policy and end

HOLDS: Final = {
    "live": HoldConfig(),
    "window": HoldConfig(mode="window", tail_chars=200),
    "buffered": HoldConfig(mode="buffered"),
}
ENDS: Final = {"FIN": [], "RST": [Read(fault=UpstreamFault.CUT)]}

Cut = tuple[Recorded, int]


def boundaries(*, full: bool) -> Sequence[Cut]:
    """(stream, events that come before the cut), of streams that have an answer at all and are not finished by then."""
    whole = [each for each in recordings(full=True) if each.complete]
    cuts = [(each, count) for each in whole for count in range(1, len(each.events))]
    if not full:
        cuts = random.Random(20).sample(cuts, 4 * SAMPLE)  # noqa: S311 - cuts, not secrets
    open_ones = [cut for cut in cuts if not finished(cut[0].events[: cut[1]], cut[0].choices)]
    return open_ones if full else open_ones[:SAMPLE]


@pytest.mark.skipif(not CORPUS.is_dir(), reason="the recorded streams are not here")
@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("hold", HOLDS)
def test_a_cut_is_made_good_or_told(hold: str, end: str, pytestconfig: pytest.Config) -> None:
    """One exchange per boundary."""
    cuts = boundaries(full=pytestconfig.getoption("--corpus") == "full")
    assert len(cuts) >= SAMPLE
    made_good = 0
    for recorded, count in cuts:
        clock = trio.testing.MockClock(autojump_threshold=0)
        made_good += trio.run(_cut_once, recorded, count, hold, end, clock=clock)
    assert made_good == len(cuts) if hold == "buffered" else 0 < made_good < len(cuts)


async def _cut_once(recorded: Recorded, count: int, hold: str, end: str) -> bool:
    """Whether the cut was made good; what the caller got is right in either case."""
    first = ScriptedProvider(says(*recorded.events[:count], then=ENDS[end]))
    second = ScriptedProvider(says(*recorded.events))
    gate = gateway(first, second, hold=HOLDS[hold])
    caller = RecordingCaller(request(n=recorded.choices, stream_options={"include_usage": True}))
    outcome = await supervise(gate, caller)
    where = f"{recorded.name} after {count} events"
    assert left_behind(gate) == [], where
    if outcome.kind is OutcomeKind.SUCCESS:
        assert outcome.attempts == 2, where
        check(recorded, read_stream(caller.received))
        return True
    assert hold != "buffered", where
    assert caller.status == 200, where
    assert second.asked == [], where
    answer = read_stream(caller.received)
    assert not answer.clean, where
    assert caller.code in {"stream_cut", "missing_terminal"}, where
    assert_beginning(answer, read_stream(run([recorded.data], choices=recorded.choices).body))
    return False


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
