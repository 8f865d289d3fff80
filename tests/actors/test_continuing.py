"""An answer that goes on at another attempt: what the caller sees is one answer, what providers are asked is the caller's own request and one message more."""

from __future__ import annotations

import json
from typing import Any

import pytest
import trio

from actors.context import Gateway
from gate.config import ClocksConfig, ContinuationMode, HoldConfig, LimitsConfig, RecoveryConfig
from gate.errors import UpstreamFault
from gate.observe import Outcome, OutcomeKind, What
from tests.assembly import Answer as Seen
from tests.assembly import read_stream
from tests.doubles import (
    DONE,
    EMPTY,
    ROLE,
    STOP,
    Answer,
    Read,
    RecordingCaller,
    Records,
    ScriptedProvider,
    delta,
    event,
    fails,
    gateway,
    healthy,
    left_behind,
    refuses,
    request,
    says,
    stalls,
    supervise,
    text,
    thought,
)

WINDOW = HoldConfig(mode="window", tail_chars=8)
WORDS = ("The", " quick", " brown", " fox", " jumps", " over", " it.")
ALL = "".join(WORDS)
LOST = (ROLE, *map(text, WORDS[:5]))


class Run:
    """One exchange over providers with these scripts."""

    def __init__(
        self,
        *scripts: list[Answer],
        body: bytes = b"",
        hold: HoldConfig = WINDOW,
        mode: ContinuationMode = "held",
        limits: LimitsConfig | None = None,
        **recovery: Any,
    ) -> None:
        self.records = Records()
        self.providers = [ScriptedProvider(*script) for script in scripts]
        self.caller = RecordingCaller(body or request())
        self.gate: Gateway = gateway(
            *self.providers,
            hold=hold,
            clocks=ClocksConfig(gap_seconds=5),
            recovery=RecoveryConfig(continuation=mode, **recovery),
            limits=limits,
            prefill="vllm",
            records=self.records,
        )

    async def play(self) -> Outcome:
        """To its end, with everything given back."""
        outcome = await supervise(self.gate, self.caller)
        assert left_behind(self.gate) == []
        return outcome

    async def whole(self, attempts: int = 2) -> Seen:
        """What a caller makes of a success."""
        outcome = await self.play()
        assert (outcome.kind, outcome.code) == (OutcomeKind.SUCCESS, "")
        assert outcome.attempts == attempts
        seen = read_stream(self.caller.received)
        assert seen.clean
        assert len(seen.identities) == 1
        assert seen.choices[0].roles == ["assistant"]
        assert len(seen.choices[0].finishes) == 1
        return seen

    async def broken(self, code: str) -> Seen:
        """What a caller makes of an answer that could not be made whole."""
        outcome = await self.play()
        assert outcome.code == code
        seen = read_stream(self.caller.received)
        assert not seen.done
        return seen

    def asked(self, provider: int = 1, attempt: int = 0) -> Any:
        """A request that a provider got."""
        return json.loads(self.providers[provider].asked[attempt].body)

    def noted(self, what: What) -> list[str]:
        """The codes of these observations."""
        return [each.code for each in self.records.observations if each.what is what]


def lost(*pieces: bytes) -> Answer:
    """An answer that breaks off behind these pieces."""
    return says(*pieces, then=[Read(fault=UpstreamFault.CUT)])


def goes_on(*words: str, name: str = "up-2", usage: object = None) -> Answer:
    """A second provider, with an identity and a role of its own."""
    role = delta({"role": "assistant", "content": ""}, name=name)
    stop = delta({}, finish="stop", name=name, usage=usage)
    return says(role, *(text(word, name=name) for word in words), stop, DONE)


async def test_a_cut_answer_goes_on_at_the_next_provider(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """The caller sees one answer, under the first attempt's identity, with one role and one finish."""
    run = Run([lost(*LOST)], [goes_on(*WORDS[5:])])
    seen = await run.whole()
    assert seen.choices[0].text == ALL
    assert {name for name, _, _ in seen.identities} == {"up-1"}
    assert seen.choices[0].finishes == ["stop"]
    assert run.noted(What.PLAN) == ["continuation"]
    assert run.noted(What.SEAM) == ["seam_joined"]


async def test_the_request_is_the_callers_own_with_one_message_more(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Every byte of it stays but for the ceilings and the model; what is asked beside it is the dialect's."""
    own = b'{ "model":"small","x":1.0e0, "messages":[{"role":"user","content":"H\\u0069"} ],"stream":true,"max_tokens":20}'
    run = Run([lost(*LOST)], [goes_on(*WORDS[5:])], body=own)
    await run.whole()
    sent = run.providers[1].asked[0].body
    last = b',{"role":"assistant","content":"The quick brown fox jumps"}'
    changed = own.replace(b'"small"', b'"model-1"').replace(b"}\x20]", b"} " + last + b"]")
    changed = changed.replace(b'"max_tokens":20', b'"max_tokens":15')
    flags = b',"continue_final_message":true,"add_generation_prompt":false}'
    assert sent == changed.removesuffix(b"}") + flags


async def test_what_nobody_has_seen_is_given_up_where_it_is_not_clean(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """White space at the end is not a place to go on from."""
    run = Run([lost(*LOST, text(" "), text(" \n"))], [goes_on(*WORDS[5:])])
    assert (await run.whole()).choices[0].text == ALL
    assert run.asked()["messages"][-1]["content"] == "The quick brown fox jumps"


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        ((ALL[:10], ALL[10:]), "seam_echo"),
        ((ALL,), "seam_echo"),
        ((" fox jumps", " over", " it."), "seam_overlap"),
        ((" fox", " jumps over it."), "seam_overlap"),
        (WORDS[5:], "seam_joined"),
    ],
)
async def test_text_that_is_said_twice_is_seen_once(
    words: tuple[str, ...], kind: str, autojump_clock: trio.testing.MockClock
) -> None:
    """A provider may repeat all of the answer so far, or the end of it."""
    run = Run([lost(*LOST)], [goes_on(*words)])
    assert (await run.whole()).choices[0].text == ALL
    assert run.noted(What.SEAM) == [kind]


async def test_an_attempt_that_begins_anew_is_never_joined(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Nor is its provider asked to go on again; the next one is."""
    anew = goes_on("The quick brown", " dog barks.")
    run = Run([lost(*LOST)], [anew], [goes_on(*WORDS[5:], name="up-3")])
    assert (await run.whole(attempts=3)).choices[0].text == ALL
    assert run.noted(What.SEAM) == ["seam_restarted", "seam_joined"]


async def test_where_nobody_can_go_on_the_caller_is_told(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """What it has seen stays a beginning of the answer; nothing of the seam was shown."""
    anew = goes_on("The quick brown", " dog barks.")
    run = Run([lost(*LOST)], [anew], attempts_max=2)
    seen = await run.broken("continuation_restarted")
    assert seen.choices[0].text == "The quick brown"
    assert run.noted(What.GIVE_UP) == ["attempts"]


async def test_a_provider_that_refuses_to_go_on_is_not_asked_again(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """A 4xx to a body that is ours is never the caller's status."""
    run = Run([lost(*LOST), goes_on(*WORDS[5:])], [refuses(400)])
    assert (await run.whole(attempts=3)).choices[0].text == ALL
    assert len(run.providers[1].asked) == 1


async def test_where_all_refuse_to_go_on_the_failure_before_them_is_told(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """The caller's request was fine."""
    run = Run([lost(*LOST), refuses(400)], [refuses(422)], attempts_max=5)
    await run.broken("stream_cut")
    assert run.noted(What.GIVE_UP) == ["targets"]
    assert [len(each.asked) for each in run.providers] == [2, 1]


async def test_continuations_follow_each_other(autojump_clock: trio.testing.MockClock) -> None:
    """Each from all that is kept, and from the caller's original bytes."""
    second = lost(*map(text, (" over", " the", " lazy", " dog")))
    run = Run([lost(*LOST)], [second], [goes_on(" and", " rests.")], seam_chars=8)
    assert (await run.whole(attempts=3)).choices[
        0
    ].text == "The quick brown fox jumps over the lazy dog and rests."
    messages = run.asked(2)["messages"]
    assert [each["role"] for each in messages] == ["user", "assistant"]
    assert messages[1]["content"] == "The quick brown fox jumps over the lazy dog"


@pytest.mark.parametrize(
    "second",
    [
        fails(UpstreamFault.CONNECT),
        refuses(503),
        lost(),
        lost(text(" ov")),
        lost(text("The quick br")),
        stalls(text(" over")),
    ],
)
async def test_a_continuation_that_breaks_before_its_seam_leaves_nothing(
    second: Answer, autojump_clock: trio.testing.MockClock
) -> None:
    """What is kept stays, and the next one goes on from the same place."""
    run = Run([lost(*LOST)], [second], [goes_on(*WORDS[5:])])
    assert (await run.whole(attempts=3)).choices[0].text == ALL
    assert run.asked(2)["messages"][-1]["content"] == "The quick brown fox jumps"


async def test_an_answer_may_end_where_it_was_cut(autojump_clock: trio.testing.MockClock) -> None:
    """The next attempt has nothing to add, and says so."""
    run = Run([lost(*LOST)], [goes_on()])
    assert (await run.whole()).choices[0].text == "".join(WORDS[:5])


@pytest.mark.parametrize(
    ("mode", "hold", "kept"),
    [
        ("off", WINDOW, False),
        ("held", HoldConfig(), False),
        ("held", WINDOW, True),
        ("committed", HoldConfig(), True),
        ("committed", WINDOW, True),
    ],
)
async def test_the_route_says_whether_an_answer_may_go_on(
    mode: ContinuationMode, hold: HoldConfig, kept: bool, autojump_clock: trio.testing.MockClock
) -> None:
    """`held`: only where the seam lies in text that nobody has seen."""
    run = Run([lost(*LOST)], [goes_on(*WORDS[5:])], mode=mode, hold=hold)
    if kept:
        assert (await run.whole()).choices[0].text == ALL
    else:
        await run.broken("stream_cut")
        assert run.providers[1].asked == []


async def test_a_live_stream_keeps_a_frame_back_that_nobody_could_go_on_behind(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """One frame and no more, until the next one comes."""
    pieces = [Read(text(word), 1.0) for word in ("Hi", " ", "you", " ", " ", "!")]
    run = Run([Answer([*pieces, Read(STOP + DONE, 1.0)])], mode="committed", hold=HoldConfig())
    await run.whole(attempts=1)
    times = {read_stream(data).choices[0].text: at for at, data in run.caller.writes[:-1]}
    assert times == {"Hi": 1.0, " you": 3.0, " ": 5.0, " !": 6.0}


async def test_usage_is_the_prompt_once_and_all_that_was_produced(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """A cut attempt has told nothing: one token for each frame that was kept of it, and a prompt without the answer."""
    usage = {"prompt_tokens": 15, "completion_tokens": 2, "total_tokens": 17, "x": {"y": 1}}
    body = request(stream_options={"include_usage": True})
    run = Run([lost(*LOST)], [goes_on(*WORDS[5:], usage=usage)], body=body)
    seen = await run.whole()
    assert seen.usage == {"prompt_tokens": 10, "completion_tokens": 7, "total_tokens": 17}


@pytest.mark.parametrize(
    "members",
    [
        {"n": 2},
        {"logprobs": True},
        {"response_format": {"type": "json_object"}},
        {"tool_choice": "required"},
        {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]},
    ],
)
async def test_a_request_may_rule_it_out(
    members: dict[str, object], autojump_clock: trio.testing.MockClock
) -> None:
    """The answer ends where it broke."""
    run = Run([lost(*LOST)], [goes_on(*WORDS[5:])], body=request(**members))
    await run.broken("stream_cut")
    assert run.providers[1].asked == []


@pytest.mark.parametrize(
    "more",
    [
        thought("hm"),
        delta({"tool_calls": [{"index": 0, "id": "t", "function": {"name": "f"}}]}),
        delta({"refusal": "No."}),
    ],
)
async def test_an_answer_may_rule_it_out(
    more: bytes, autojump_clock: trio.testing.MockClock
) -> None:
    """Nobody can go on inside reasoning, a tool call or a refusal."""
    run = Run([lost(*LOST, more)], [goes_on(*WORDS[5:])])
    await run.broken("stream_cut")
    assert run.noted(What.GIVE_UP) == ["no_resume_point"]


async def test_a_ceiling_that_is_used_up_leaves_no_continuation(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Five tokens were allowed, and five are kept."""
    run = Run([lost(*LOST)], [goes_on(*WORDS[5:])], body=request(max_completion_tokens=5))
    await run.broken("stream_cut")
    assert run.noted(What.GIVE_UP) == ["continuation_ceiling"]


async def test_a_malformed_event_and_an_error_in_the_stream_are_made_good_too(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Whatever ends an attempt early, but for an answer."""
    for end in (b"data: {oops\n\n", event({"error": {"code": "server_error"}})):
        run = Run([says(*LOST, end)], [goes_on(*WORDS[5:])])
        assert (await run.whole()).choices[0].text == ALL
    run = Run([says(*LOST, event({"error": {"code": 400}}))], [goes_on(*WORDS[5:])])
    await run.broken("request_refused")


async def test_an_attempt_that_thinks_again_has_not_gone_on(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Its text might be called thought, and be lost."""
    run = Run([lost(*LOST)], [says(thought("so"), text(" over"), STOP, DONE)], attempts_max=2)
    await run.broken("continuation_restarted")


async def test_without_room_for_the_text_there_is_no_continuation(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """The stream itself goes on: what only a continuation needs goes first."""
    many = [text(f" word{number}") for number in range(400)]
    limits = LimitsConfig(
        exchange_bytes_max=90_000,
        held_bytes_max=20_000,
        body_bytes_max=20_000,
        event_bytes_max=20_000,
    )
    run = Run([says(ROLE, *many, STOP, DONE)], limits=limits)
    seen = await run.whole(attempts=1)
    assert len(seen.choices[0].text) == sum(len(f" word{number}") for number in range(400))
    run = Run([lost(ROLE, *many)], [goes_on("!")], limits=limits)
    await run.broken("stream_cut")
    assert run.noted(What.GIVE_UP) == ["no_resume_point"]


async def test_without_room_for_the_request_there_is_no_continuation(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """The body that would be sent is as large as the caller's own, and is asked for before it is made."""
    limits = LimitsConfig(exchange_bytes_max=100_000, held_bytes_max=20_000, event_bytes_max=20_000, body_bytes_max=20_000)  # fmt: skip
    body = request(metadata={"x": "y" * 18_000})
    run = Run([lost(*LOST)], [goes_on(*WORDS[5:])], body=body, limits=limits)
    await run.broken("stream_cut")
    assert run.noted(What.PLAN) == ["continuation", "rebuild_overflow"]
    assert run.noted(What.GIVE_UP) == ["plan_memory"]


async def test_nothing_else_changes_for_an_answer_that_is_whole(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Byte for byte what a route without continuations gives."""
    received = []
    for mode in ("off", "held", "committed"):
        run = Run([healthy(*WORDS)], mode=mode)
        await run.whole(attempts=1)
        received.append(run.caller.received)
    assert len(set(received)) == 1
    run = Run([says(ROLE, EMPTY, text("Hi"), STOP, DONE)], mode="committed")
    await run.whole(attempts=1)
