"""Recorded chat streams before the filters of the default route: none of the healthy ones is condemned, and the text of none is held."""

from __future__ import annotations

import pytest

from gate.config import FilterConfig, RouteConfig
from gate.events import Facts, Frame
from gate.filters.builtin import make_filters
from gate.filters.contract import Filter, FilterContext, Noticing, Passed
from gate.mending import ChatMender
from gate.reader import ChatStreamReader
from tests.e2e.test_corpus import CORPUS, Recorded, recordings
from tests.pipeline import LIMIT

pytestmark = pytest.mark.skipif(not CORPUS.is_dir(), reason="the recorded streams are not here")

SECRETS = FilterConfig(kind="patterns", pattern_set="secrets")
HELD_SHARE_MAX = 0.02  # of all frames, over all streams


def frames_of(recorded: Recorded) -> list[Frame]:
    """What the filters see of a stream, one frame per event."""
    reader = ChatStreamReader(choices=recorded.choices, event_bytes_max=LIMIT)
    mender = ChatMender(choices=recorded.choices)
    return mender.mend([each for event in recorded.events for each in reader.feed(event).frames])


def filters_of(recorded: Recorded) -> list[Filter]:
    """The default route's, and those that only some routes have."""
    names = [*RouteConfig().filters, "refusal", "no-secrets"]
    return make_filters(names, FilterContext(recorded.choices), {"no-secrets": SECRETS})


@pytest.mark.slow
def test_no_recorded_stream_is_condemned_or_held_for_long() -> None:
    """All of them, in one read and frame by frame; `empty` has its own say at the end."""
    frames = held = 0
    for recorded in recordings(full=True):
        said = frames_of(recorded)
        for judge in filters_of(recorded):
            whole = filters_of(recorded)[
                [each.name for each in filters_of(recorded)].index(judge.name)
            ]
            assert isinstance(whole.observe(said, 0), Passed), (recorded.name, judge.name)
            for at, frame in enumerate(said):
                verdict = judge.observe([frame], at)
                assert isinstance(verdict, Passed), (recorded.name, judge.name)
                held += verdict.position <= at
            frames += len(said)
            if judge.name != "empty":
                assert isinstance(judge.finish(len(said), Facts()), Passed), recorded.name
    assert held < frames * HELD_SHARE_MAX


def test_the_recorded_refusals_are_noticed() -> None:
    """Those that the provider marks, and nothing else."""
    refused = set()
    for recorded in recordings(full=True):
        (judge,) = make_filters(["refusal"], FilterContext(recorded.choices))
        said = frames_of(recorded)
        judge.observe(said, 0)
        judge.finish(len(said), Facts())
        assert isinstance(judge, Noticing)
        if judge.notice:
            refused.add(recorded.name)
    marked = {
        each.name
        for each in recordings(full=True)
        if any(choice.get("refusal") for choice in each.oracle["choices"].values())
    }
    assert marked <= refused
    print(refused - marked, len(marked))
