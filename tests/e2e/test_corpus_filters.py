"""Recorded chat streams before the filters of the default route: none of the healthy ones is condemned, and the text of none is held."""

from __future__ import annotations

from collections import Counter

import pytest

from gate.config import FilterConfig, RouteConfig
from gate.events import Facts, Frame
from gate.filters.builtin import make_filters
from gate.filters.contract import Filter, FilterContext, Passed
from gate.mending import ChatMender
from gate.reader import ChatStreamReader
from tests.e2e.test_corpus import CORPUS, Recorded, recordings
from tests.pipeline import LIMIT

pytestmark = pytest.mark.skipif(not CORPUS.is_dir(), reason="the recorded streams are not here")

SECRETS = FilterConfig(kind="patterns", pattern_set="secrets")
HELD_SHARE_MAX = 0.05  # of all frames


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
def test_no_recorded_stream_is_condemned_or_held() -> None:
    """All of them, in one read and frame by frame. Only a pattern may wait for the next token now and then, and a call until it is whole; `empty` has its own say at the end."""
    frames, held = 0, Counter[str]()
    for recorded in recordings(full=True):
        said = frames_of(recorded)
        frames += len(said)
        for judge, again in zip(filters_of(recorded), filters_of(recorded), strict=True):
            assert isinstance(again.observe(said, 0), Passed), (recorded.name, again.name)
            for at, frame in enumerate(said):
                verdict = judge.observe([frame], at)
                assert isinstance(verdict, Passed), (recorded.name, judge.name)
                held[judge.name] += verdict.position <= at
            if judge.name != "empty":
                assert isinstance(judge.finish(len(said), Facts()), Passed), recorded.name
    assert held.keys() >= {"repetition", "encoding", "no-secrets"}
    assert sum(held.values()) == held["no-secrets"] + held["tool_calls"]
    assert held["no-secrets"] < frames * HELD_SHARE_MAX


def test_the_recorded_refusals_are_noticed() -> None:
    """Those that the provider marks, and the three that only say so."""
    noticed, marked = set(), set()
    for recorded in recordings(full=True):
        (judge,) = make_filters(["refusal"], FilterContext(recorded.choices))
        said = frames_of(recorded)
        judge.observe(said, 0)
        judge.finish(len(said), Facts())
        if judge.notice:
            noticed.add(recorded.name)
        if any(choice.get("refusal") for choice in recorded.oracle["choices"].values()):
            marked.add(recorded.name)
    assert marked
    assert marked < noticed
    assert len(noticed - marked) == 3
