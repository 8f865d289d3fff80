"""The proof of the guardrail: a text that a pattern matches, cut at every place, in every channel and framing, through our own framings or a tunnel, streamed or whole, held or live: from its first
character on nothing reaches a caller.

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
    events,
    halves,
    seen,
    splits,
    values_of,
)

HOLDS: Final = {
    "live": HoldConfig(),
    "window": HoldConfig(mode="window", tail_chars=8),
    "buffered": HoldConfig(mode="buffered"),
}
SHARE: Final = 17  # one of so many is tried where not all are
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


def check(data: bytes, before: str) -> None:
    """All that was seen is a beginning of what stands before the match."""
    for text in seen(values_of(data)):
        assert before.startswith(text), text


def fits(match: Match, channel: Any) -> bool:
    """A match that depends on the ends of its channel needs one without other words at them."""
    return channel.free or not match.anchored


@pytest.fixture
def full(request: pytest.FixtureRequest) -> bool:
    """Whether every cut is tried everywhere."""
    return bool(request.config.getoption("--corpus") == "full")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Every match in every channel and framing that it fits in; without `--corpus=full` a share of those that are not a chat stream's text."""
    if not {"match", "channel", "framing", "full"} <= set(metafunc.fixturenames):
        return
    every = metafunc.config.getoption("--corpus") == "full"
    rows = [
        pytest.param(match, channel, framing, id=f"{name}-{channel.name}-{framing.name}")
        for at, (name, match) in enumerate(zip(NAMES, MATCHES, strict=True))
        for kind, framing in enumerate(FRAMINGS)
        for to, channel in enumerate(framing.wire.channels)
        if fits(match, channel)
        if every or (at + to + kind) % SHARE == 0 or is_main(channel, framing)
    ]
    metafunc.parametrize(("match", "channel", "framing"), rows)


def is_main(channel: Any, framing: Framing) -> bool:
    """What is tried everywhere."""
    return channel.name == "text" and framing.name == "chat_sse"


def test_nothing_of_a_match_is_seen_wherever_it_is_cut(
    match: Match, channel: Any, framing: Framing, *, full: bool
) -> None:
    """Under every hold, plain and escaped; and as one body."""
    text = match.text.join(channel.around)
    before = text[: first_of(match, text)]
    every = full or is_main(channel, framing)
    cuts = splits(text, full=every) if channel.pieces else [[text]]
    for pieces in cuts if framing.reads(whole=False) else []:
        for mode, hold in HOLDS.items():
            if mode == "live" or full or len(pieces) != 2:
                check_cut(match, channel, framing, pieces, before=before, hold=hold)
    for pieces in halves(text) if framing.reads(whole=False) else []:
        check_cut(match, channel, framing, pieces, before=before, hold=HOLDS["live"], escaped=True)
    if not framing.reads(whole=True):
        return
    whole = [framing.wire.body(channel, [text])]
    passed = framing.play(whole, whole=True, filters=("guard",), tables=table(match))
    if passed.failure is None:
        assert not framing.certain(channel, whole=True)
        check(passed.body, before)
    else:
        assert (passed.failure.verdict, passed.body) == ("pattern_match", b"")


def check_cut(
    match: Match,
    channel: Any,
    framing: Framing,
    pieces: Sequence[str],
    *,
    before: str,
    hold: HoldConfig,
    escaped: bool = False,
) -> None:
    """One cut, event by event."""
    said = framing.wire.events(channel, pieces, escaped=escaped)
    passed = framing.play(said, filters=("guard",), tables=table(match), hold=hold)
    if passed.failure is None:
        assert not framing.certain(channel, whole=False)
    else:
        assert passed.failure.verdict == "pattern_match"
    check(passed.body, before)


CHATS: Final = [each for each in FRAMINGS if each.wire is FRAMINGS[0].wire]


@pytest.mark.parametrize("framing", CHATS, ids=[each.name for each in CHATS])
@pytest.mark.parametrize("first", ["reasoning", "reasoning_content"])
def test_two_names_of_a_thought_do_not_hide_each_other(framing: Framing, first: str) -> None:
    """One says a match piece by piece, and the other speaks between its pieces."""
    match = MATCHES[0]
    second = "reasoning" if first == "reasoning_content" else "reasoning_content"
    half = len(match.text) // 2
    deltas: list[dict[str, Any]] = [{first: match.text[:half]}, {second: "Hm."}, {first: match.text[half:], second: "So."}]  # fmt: skip
    for said in (deltas, [{second: "Well."}, *deltas]):
        channel = Channel("both", lambda number, _: said[int(number)])  # noqa: B023
        pieces = [str(number) for number in range(len(said))]
        passed = framing.play(events(channel, pieces, escaped=False), filters=("guard",), tables=table(match))  # fmt: skip
        told = passed.body.decode()
        texts = ["".join(re.findall(rf'"{name}": ?"([^"]*)"', told)) for name in (first, second)]
        assert not any(match.said in text for text in texts)


@pytest.mark.parametrize("field", ["reasoning", "reasoning_content"])
@pytest.mark.parametrize("framing", CHATS, ids=[each.name for each in CHATS])
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
    options: dict[str, Any] = {"reasoning_field": field}
    if framing.relays(whole=False):
        options = {}
    passed = framing.play(said, filters=("guard",), tables=table(match), **options)
    assert match.said.encode() not in passed.body


@pytest.mark.parametrize("mode", HOLDS)
@pytest.mark.parametrize("framing", FRAMINGS, ids=[each.name for each in FRAMINGS])
@pytest.mark.parametrize("whole", [False, True], ids=["stream", "body"])
async def test_an_exchange_shows_nothing_of_a_match(
    mode: HoldMode, framing: Framing, autojump_clock: trio.abc.Clock, *, whole: bool
) -> None:
    """Through all actors, whether the provider streams or not: an error, or another provider's answer."""
    wire = framing.wire
    for at, match in enumerate(MATCHES):
        for channel in {wire.channels[0], wire.channels[at % len(wire.channels)]}:
            if not fits(match, channel):
                continue
            text = match.text.join(channel.around)
            before = text[: first_of(match, text)]
            middle = len(before) + 3
            said = wire.events(channel, [text[:middle], text[middle:]], escaped=False)
            answer = json_answer(wire.body(channel, [text])) if whole else says(*said)
            gate = gateway(
                ScriptedProvider(answer),
                paths=["tunnel" if framing.tunnel else "normalized"],
                recovery=RecoveryConfig(attempts_max=1),
                filters=("guard",),
                tables=table(match),
                hold=HOLDS[mode],
            )
            asked = {"model": "small", "stream": framing.stream, **wire.asked}
            caller = RecordingCaller(json.dumps(asked).encode())
            outcome = await supervise(gate, caller, endpoint=wire.path)
            if framing.reads(whole=whole):
                assert outcome.code == "pattern_match" or not framing.certain(channel, whole=whole)
            else:
                assert outcome.code == "provider_answer"
            check(caller.received, before)


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
        check(caller.received, before)


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
