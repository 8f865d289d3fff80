"""The proof of the guardrail: a text that a pattern matches, cut at every place, in every channel and framing, streamed or whole, held or live: from its first character on nothing reaches a caller.

`--corpus=full` goes through every cut of every channel; the sample cuts text everywhere, and the other channels at places drawn.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Sequence
from typing import Any, Final

import pytest
import re2
import trio

from gate.config import FilterConfig, HoldConfig, HoldMode, RecoveryConfig
from gate.filters.pattern_sets import PATTERN_SETS
from tests.doubles import (
    RecordingCaller,
    ScriptedProvider,
    gateway,
    request,
    says,
    supervise,
)
from tests.doubles import (
    body as json_answer,
)
from tests.e2e.guarded import (
    CHANNELS,
    FRAMINGS,
    MATCHES,
    Channel,
    Framing,
    Match,
    body,
    events,
    halves,
    seen,
    splits,
)
from tests.pipeline import run

HOLDS: Final = {
    "live": HoldConfig(),
    "window": HoldConfig(mode="window", tail_chars=8),
    "buffered": HoldConfig(mode="buffered"),
}
NAMES: Final = [f"{number}-{re.sub('[^a-zA-Z]', '', match.pattern or match.said)[:8]}" for number, match in enumerate(MATCHES)]  # fmt: skip


def table(match: Match, **options: Any) -> dict[str, FilterConfig]:
    """The options of a filter that denies it."""
    name = "" if match.pattern else "secrets"
    patterns = (match.pattern,) if match.pattern else ()
    return {"guard": FilterConfig(kind="patterns", patterns=patterns, pattern_set=name, **options)}


@functools.cache
def first_of(match: Match, text: str) -> int:
    """Where the first match in `text` begins, by RE2 alone."""
    patterns = (match.pattern,) if match.pattern else PATTERN_SETS["secrets"]
    found = [re2.search(pattern, text) for pattern in patterns]
    return min(int(each.start()) for each in found if each is not None)


def check(framing: Framing, data: bytes, before: str) -> None:
    """All that was seen is a beginning of what stands before the match."""
    for text in seen(framing.read(data)):
        assert before.startswith(text), text


def fits(match: Match, channel: Channel) -> bool:
    """A match that depends on the ends of its channel needs one without other words at them."""
    return channel.free or not match.anchored


@pytest.fixture
def full(request: pytest.FixtureRequest) -> bool:
    """Whether every cut is tried everywhere."""
    return bool(request.config.getoption("--corpus") == "full")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Every match in every channel and framing that it fits in; without `--corpus=full` a third of those that are not streamed text."""
    if not {"match", "channel", "framing", "full"} <= set(metafunc.fixturenames):
        return
    every = metafunc.config.getoption("--corpus") == "full"
    rows = [
        pytest.param(match, channel, framing, id=f"{name}-{channel.name}-{framing.name}")
        for at, (name, match) in enumerate(zip(NAMES, MATCHES, strict=True))
        for to, channel in enumerate(CHANNELS)
        for framing in FRAMINGS
        if fits(match, channel)
        if every or (at + to) % 3 == 0 or (channel.name == "text" and framing.stream)
    ]
    metafunc.parametrize(("match", "channel", "framing"), rows)


def test_nothing_of_a_match_is_seen_wherever_it_is_cut(
    match: Match, channel: Channel, framing: Framing, *, full: bool
) -> None:
    """Under every hold, plain and escaped; and as one body."""
    text = match.text.join(channel.around)
    before = text[: first_of(match, text)]
    everywhere = channel.name == "text" and framing.stream
    for pieces in splits(text, full=full or everywhere):
        for mode, hold in HOLDS.items():
            if mode == "live" or full or len(pieces) != 2:
                check_cut(match, channel, framing, pieces, before=before, hold=hold)
    for pieces in halves(text):
        check_cut(match, channel, framing, pieces, before=before, hold=HOLDS["live"], escaped=True)
    passed = run([body(channel, [text])], stream=framing.stream, body=True, filters=("guard",), tables=table(match))  # fmt: skip
    assert passed.failure is not None
    assert passed.body == b""


def check_cut(
    match: Match,
    channel: Channel,
    framing: Framing,
    pieces: Sequence[str],
    *,
    before: str,
    hold: HoldConfig,
    escaped: bool = False,
) -> None:
    """One cut, event by event."""
    passed = run(
        events(channel, pieces, escaped=escaped),
        stream=framing.stream,
        filters=("guard",),
        tables=table(match),
        hold=hold,
    )
    assert passed.failure is not None
    assert passed.failure.verdict == "pattern_match"
    check(framing, passed.body, before)


@pytest.mark.parametrize("field", ["reasoning", "reasoning_content"])
@pytest.mark.parametrize("framing", FRAMINGS, ids=[each.name for each in FRAMINGS])
@pytest.mark.parametrize("place", [0, 1])
def test_a_thought_under_two_names_has_no_way_round(
    framing: Framing, field: str, place: int
) -> None:
    """Whichever of them the route writes, and whichever of them says it."""
    match = MATCHES[0]
    names = ["reasoning", "reasoning_content"]
    deltas = {names[place]: match.text, names[1 - place]: "Hm."}
    channel = Channel("both", lambda text, first: deltas | {"content": "Yes."})
    said = events(channel, [""], escaped=False)
    passed = run(said, stream=framing.stream, filters=("guard",), tables=table(match), reasoning_field=field)  # fmt: skip
    assert match.said.encode() not in passed.body


@pytest.mark.parametrize("mode", HOLDS)
@pytest.mark.parametrize("framing", FRAMINGS, ids=[each.name for each in FRAMINGS])
@pytest.mark.parametrize("whole", [False, True], ids=["stream", "body"])
async def test_an_exchange_shows_nothing_of_a_match(
    mode: HoldMode, framing: Framing, autojump_clock: trio.abc.Clock, *, whole: bool
) -> None:
    """Through all actors, whether the provider streams or not: an error, or another provider's answer."""
    for match in MATCHES:
        for channel in CHANNELS[: 1 if match.pattern else None]:
            text = match.text.join(channel.around)
            before = text[: first_of(match, text)]
            middle = len(before) + 3
            said = events(channel, [text[:middle], text[middle:]], escaped=False)
            answer = json_answer(body(channel, [text])) if whole else says(*said)
            gate = gateway(
                ScriptedProvider(answer),
                recovery=RecoveryConfig(attempts_max=1),
                filters=("guard",),
                tables=table(match),
                hold=HOLDS[mode],
            )
            caller = RecordingCaller(request(stream=framing.stream))
            outcome = await supervise(gate, caller)
            assert outcome.code == "pattern_match"
            streamed = caller.headers[b"content-type"].startswith(b"text/event-stream")
            check(FRAMINGS[0 if streamed else 1], caller.received, before)


@pytest.mark.parametrize("match", MATCHES, ids=NAMES)
async def test_a_match_behind_the_seam_of_two_attempts_is_one(
    match: Match, autojump_clock: trio.abc.Clock
) -> None:
    """The second attempt goes on from what had passed, however far within the match the first broke off."""
    before = match.text[: first_of(match, match.text)]
    for at in range(len(before) + 1, len(before) + min(4, len(match.said))):
        _, kept = await broken_off(match, at, "and this is no match.")
        caller, again = await broken_off(match, at, match.text[len(kept) :])
        assert again == kept
        assert before.startswith(kept)
        assert caller.code == "pattern_match"
        check(FRAMINGS[0], caller.received, before)


async def broken_off(match: Match, at: int, rest: str) -> tuple[RecordingCaller, str]:
    """An answer that is lost at this character, with what the next attempt says; and the text that this was told to go on from."""
    first = events(CHANNELS[0], match.text[:at], escaped=False)[:at]
    second = ScriptedProvider(says(*events(CHANNELS[0], rest, escaped=False)))
    gate = gateway(
        ScriptedProvider(says(*first)),
        second,
        filters=("guard",),
        tables=table(match),
        prefill="vllm",
        hold=HoldConfig(mode="window", tail_chars=4),
        recovery=RecoveryConfig(attempts_max=2, continuation="committed"),
    )
    caller = RecordingCaller(request())
    await supervise(gate, caller)
    last = json.loads(second.asked[0].body)["messages"][-1]
    return caller, last["content"] if last["role"] == "assistant" else ""
