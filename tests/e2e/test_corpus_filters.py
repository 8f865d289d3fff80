"""Recorded chat streams before the filters of the default route: none of the healthy ones is condemned, and the text of none is held."""

from __future__ import annotations

from collections import Counter

import pytest

from gate.config import FilterConfig, OutputPolicy, RouteConfig, StructuredOutput
from gate.events import Facts, Frame
from gate.filters.builtin import make_filters
from gate.filters.contract import Filter, FilterContext, Passed
from gate.mending import ChatMender
from gate.reader import ChatStreamReader
from tests.e2e.test_corpus import CORPUS, Recorded, recordings
from tests.pipeline import LIMIT, run

pytestmark = pytest.mark.skipif(not CORPUS.is_dir(), reason="the recorded streams are not here")

SECRETS = FilterConfig(kind="patterns", pattern_set="secrets")
HELD_SHARE_MAX = 0.05  # of all frames
NAMES = (*RouteConfig().filters, "refusal", "no-secrets")

# Everything that the filters say of the recorded streams, with the reason why it is right.
THINKS = "the model's thoughts stand in the text between think tags, and the policy is that an answer beside tools has none"
SAYS_NO = "the provider marks the answer as a refusal"
CAN_NOT = "asked for the weather, the model says that it is unable to tell"
HITS = {
    ("strict", "hf-router-chat-DeepSeek-R1-legacytext-cf5f74"): ("output_policy", "output_think_tags", THINKS),
}  # fmt: skip
REMARKS = {
    "azure-chat-unknown-07d54c": CAN_NOT,
    "openai-chat-gpt-4o-mini-2024-07-18-ngt1-44b040": CAN_NOT,
    "openai-chat-gpt-4o-mini-2024-07-18-ngt1-b85aa0": CAN_NOT,
    "openai-chat-gpt-4o-2024-08-06-refusal-173417": SAYS_NO,
    "openai-chat-gpt-4o-2024-08-06-refusal-logprobs-569c87": SAYS_NO,
}
# What ends these is no filter: the provider says that it failed, or the recording stops.
BROKEN = {
    "groq-chat-gpt-oss-120b-errorinstream-reasoning-25e988": "request_refused",
    "groq-chat-gpt-oss-120b-errorinstream-reasoning-952e74": "request_refused",
    "litellm-proxy-chat-gpt-3.5-turbo-ngt1-5cc4cf": "stream_cut",
}


def frames_of(recorded: Recorded) -> list[Frame]:
    """What the filters see of a stream, one frame per event."""
    reader = ChatStreamReader(choices=recorded.choices, event_bytes_max=LIMIT)
    mender = ChatMender(choices=recorded.choices)
    return mender.mend([each for event in recorded.events for each in reader.feed(event).frames])


def filters_of(recorded: Recorded) -> list[Filter]:
    """The default route's, and those that only some routes have."""
    return make_filters(NAMES, FilterContext(recorded.choices), {"no-secrets": SECRETS})


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


@pytest.mark.slow
@pytest.mark.parametrize(
    ("policy", "stream", "level"), [("off", True, "repair"), ("strict", False, "reject")]
)
def test_all_filters_together_say_of_all_recorded_streams_what_is_listed(
    policy: OutputPolicy, level: StructuredOutput, *, stream: bool
) -> None:
    """Whole answers under the request that they answer: its tools, its choice, its format. Nothing that is healthy is condemned, and nothing is remarked that is not so."""
    hits: dict[tuple[str, str], tuple[str, str]] = {}
    remarked: set[str] = set()
    broken: dict[str, str] = {}
    for recorded in recordings(full=True):
        passed = run(
            [recorded.data],
            stream=stream,
            choices=recorded.choices,
            context=recorded.under(structured_output=level, output_policy=policy),
            filters=NAMES,
            tables={"no-secrets": SECRETS},
        )
        if passed.judged_by:
            assert passed.failure is not None
            hits[policy, recorded.name] = passed.judged_by, passed.failure.verdict
        elif passed.failure is not None:
            broken[recorded.name] = passed.failure.code
        if passed.remarks:
            assert [(each.filter, each.code) for each in passed.remarks] == [("refusal", "refusal")]
            remarked.add(recorded.name)
    expected = {key: (by, code) for key, (by, code, _) in HITS.items() if key[0] == policy}
    assert hits == expected
    assert remarked == set(REMARKS)
    assert broken == BROKEN


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
