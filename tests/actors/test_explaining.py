"""Whole exchanges that are explained: what is told, where it stands, and that nothing else changes."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pytest
import trio
import trio.testing

from actors.context import Gateway
from gate.config import FilterConfig, HoldConfig, PathKind, RecoveryConfig
from gate.errors import UpstreamFault
from gate.explain import EXPLAINED_HEADERS, LINES_MAX
from gate.observe import Outcome
from tests import responding
from tests.doubles import (
    COMMENT,
    DONE,
    JSON,
    ROLE,
    STOP,
    Answer,
    Read,
    RecordingCaller,
    ScriptedProvider,
    SlowCaller,
    body,
    cut,
    event,
    gateway,
    healthy,
    left_behind,
    refuses,
    request,
    says,
    supervise,
    text,
    thought,
    whole,
)

COMMENTS: Final = re.compile(rb": tidegate [ -~]*\n\n")
LATE_CUT: Final = Read(fault=UpstreamFault.CUT)
DENIED: Final = {"no-keys": FilterConfig(kind="patterns", patterns=("KEY[0-9]{4}",), action="next_provider")}  # fmt: skip
MARK: Final = b"\xef\xbb\xbf"
SOUND: Final = Answer([Read(b"ID3"), Read(b"more")], headers=((b"content-type", b"audio/mpeg"),))
ONCE: Final = RecoveryConfig(attempts_max=1)


def told(caller: RecordingCaller) -> list[str]:
    """Word and fields of each line, less the times."""
    found = [line.decode().removeprefix(": tidegate ").strip() for line in COMMENTS.findall(caller.received)]  # fmt: skip
    return [re.sub(r" (seconds|for)=[0-9.]+", "", line) for line in found]


def summed(caller: RecordingCaller) -> dict[str, str]:
    """The header fields."""
    fields = {name: value for name, value in caller.headers.items() if name in EXPLAINED_HEADERS}
    return {name.decode(): re.sub(r" for=[0-9.]+", "", value.decode()) for name, value in fields.items()}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Case:
    """One exchange. `comments`: whether its framing has room for some."""

    scripts: Sequence[Sequence[Answer]]
    body: bytes = field(default_factory=request)
    comments: bool = True
    paths: tuple[PathKind, ...] = ()
    policy: dict[str, Any] = field(default_factory=dict)
    door: dict[str, Any] = field(default_factory=dict)
    caller: Callable[[bytes], RecordingCaller] = RecordingCaller

    async def run(self, **door: Any) -> tuple[Outcome, RecordingCaller]:
        gate = gateway(
            *(ScriptedProvider(*script) for script in self.scripts),
            paths=self.paths,
            prefill="assistant",
            **{"hold": HoldConfig(), **self.policy},
        )
        caller = self.caller(self.body)
        outcome = await supervise(gate, caller, **{**self.door, **door})
        assert left_behind(gate) == []
        return outcome, caller


TUNNEL: Final[tuple[PathKind, ...]] = ("tunnel", "tunnel")
WHOLE: Final = request(stream=False)
CRLF: Final = (ROLE + text("He") + text("llo") + STOP + DONE).replace(b"\n", b"\r\n")
FLAT: Final = {"endpoint": "/v1/responses"}
FLAT_BODY: Final = json.dumps({"model": "small", "input": "Hi", "stream": True}).encode()
FLAT_WHOLE: Final = json.dumps({"model": "small", "input": "Hi"}).encode()
LEGACY: Final = {"endpoint": "/v1/completions"}
LEGACY_BODY: Final = b'{"model":"small","prompt":"Hi","stream":true}'
LEGACY_SAYS: Final = says(
    event({"choices": [{"index": 0, "text": "Hi", "finish_reason": None}]}),
    event({"choices": [{"index": 0, "text": "", "finish_reason": "stop"}]}),
    DONE,
)

CASES: Final = {
    "live": Case([[healthy("He", "llo", every=0.1)]]),
    "live, recovered": Case([[says(ROLE, thought("hm"), every=0.1, then=[LATE_CUT])], [healthy("He", "llo")]]),
    "live, a slow caller": Case(
        [[healthy(*"abcdefgh", "x" * 30_000, every=0.1)]], caller=lambda data: SlowCaller(data, seconds=0.7)
    ),
    "live, cut": Case([[cut("He", "llo")]], policy={"recovery": ONCE}),
    "window, continued": Case(
        [[cut("One", " two", " three")], [healthy(" four", every=0.1)]],
        policy={"hold": HoldConfig(mode="window", tail_chars=6)},
    ),
    "buffered": Case([[cut("He")], [healthy("He", "llo", every=0.1)]], policy={"hold": HoldConfig(mode="buffered")}),
    "pinged": Case(
        [[healthy("He", "llo", every=21)]], policy={"hold": HoldConfig(mode="buffered", pings_commit=True)}
    ),
    "a filter": Case(
        [[healthy("a KEY1", "234", every=0.1)], [healthy("fine")]],
        policy={"filters": ("empty", "no-keys"), "tables": DENIED},
    ),
    "json": Case([[refuses(503)], [Answer([Read(whole("hi").replace(b" ", b""))], headers=JSON)]], WHOLE, comments=False, policy={"recovery": RecoveryConfig(same_target_retries=0)}),
    "refused": Case([[refuses(400)]], comments=False),
    "refused, json": Case([[refuses(400)]], WHOLE, comments=False),
    "exhausted": Case([[refuses(503), refuses(503)]], comments=False, policy={"recovery": RecoveryConfig(attempts_max=2)}),
    "tunnel": Case([[says(b"\n", COMMENT, ROLE, text("a"), b"\r\n", COMMENT, text("b"), STOP, DONE, every=0.1)]], paths=TUNNEL),
    "tunnel, CRLF by the byte": Case([[says(*(CRLF[at : at + 1] for at in range(len(CRLF))))]], paths=TUNNEL),
    "tunnel, a mark": Case([[says(MARK + ROLE, text("a"), STOP, DONE)]], paths=TUNNEL),
    "tunnel, cut": Case([[cut("a", "b")]], paths=TUNNEL),
    "tunnel, unmarked": Case([[cut("a", "b")]], paths=TUNNEL, policy={"tunnel_marks": False}),
    "tunnel, pinged": Case([[says(ROLE, text("a"), text("b"), STOP, DONE, every=21)]], paths=TUNNEL),
    "tunnel, json": Case([[body(whole("hi"))]], WHOLE, comments=False, paths=TUNNEL),
    "tunnel, json streamed": Case([[body(whole("hi"))]], paths=TUNNEL),
    "mixed": Case([[cut()], [healthy("hi")]], paths=("tunnel", "normalized")),
    "sound": Case([[SOUND]], comments=False, door={"endpoint": "/v1/audio/speech"}),
    "sound, cut": Case([[Answer([*SOUND.reads, LATE_CUT], headers=SOUND.headers)]], comments=False, door={"endpoint": "/v1/audio/speech"}),
    "completions": Case([[LEGACY_SAYS]], LEGACY_BODY, door=LEGACY),
    "responses": Case([[says(responding.answer("He", "llo"))]], FLAT_BODY, door=FLAT),
    "responses, tunnel": Case([[says(responding.answer("He", "llo"))]], FLAT_BODY, door=FLAT, paths=TUNNEL),
    "responses, cut": Case(
        [[says(responding.created(), responding.added(responding.message()), responding.text("He"), then=[LATE_CUT])]],
        FLAT_BODY, door=FLAT, policy={"recovery": ONCE},
    ),
    "responses, json": Case([[body(json.dumps(responding.response("completed", responding.message("hi"))).encode())]], FLAT_WHOLE, comments=False, door=FLAT),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
async def test_nothing_but_comments_and_header_fields_is_added(
    case: Case, autojump_clock: trio.testing.MockClock
) -> None:
    """In every framing the rest is what it would have been without: status, header fields, each byte of the body, and the outcome."""
    plain, without = await case.run()
    asked, explained = await case.run(explain=True)
    assert (plain.kind, plain.code, plain.framing) == (asked.kind, asked.code, asked.framing)
    assert COMMENTS.sub(b"", explained.received) == without.received
    assert (explained.status, explained.aborted) == (without.status, without.aborted)
    others = {name: explained.headers[name] for name in explained.headers.keys() - EXPLAINED_HEADERS}  # fmt: skip
    assert others == without.headers
    assert bool(told(explained)) is case.comments
    assert {"x-tidegate-route", "x-tidegate-plans"} <= summed(explained).keys()
    assert not told(without)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
async def test_each_comment_stands_between_two_events(
    case: Case, autojump_clock: trio.testing.MockClock
) -> None:
    """By itself, behind a blank line: what came before it was whole."""
    _, caller = await case.run(explain=True)
    written = b""
    for _, data in caller.writes:
        if data.startswith(b": tidegate "):
            assert not written or re.search(rb"(\r\n|\r|\n)(\r\n|\r|\n)$", written)
            assert COMMENTS.sub(b"", data) == b""
        else:
            assert b": tidegate " not in data
        written += data


async def test_a_recovered_stream_says_why(autojump_clock: trio.testing.MockClock) -> None:
    """What was held and dropped, how the attempt ended, the plan, and the attempt that is seen: before the first byte of the answer."""
    _, caller = await CASES["live, recovered"].run(explain=True)
    assert told(caller) == [
        "exchange route=default hold=live opening_chars=1 opening_ms=0 tail_chars=0 tail_ms=0",
        "attempt_started attempt=1 provider=p0",
        "attempt_admitted attempt=1 status=200",
        "held why=opening frames=2 bytes=323 then=dropped",
        "attempt_ended attempt=1 code=stream_cut provider=p0 directive=exact",
        "plan attempt=1 code=exact reason=stream_cut count=1",
        "attempt_started attempt=2 provider=p1",
        "attempt_admitted attempt=2 status=200",
        "held why=opening frames=1 bytes=165 then=released",
        "attempt_ended attempt=2 code=complete provider=p1 directive=exact reason=stream_cut",
    ]
    before, _, _ = caller.received.partition(b"data: ")
    assert before.count(b": tidegate ") == 9
    assert summed(caller) == {
        "x-tidegate-route": "route=default hold=live opening_chars=1 opening_ms=0 tail_chars=0 tail_ms=0",
        "x-tidegate-plans": "attempt=1 directive=exact provider=p0 code=stream_cut, attempt=2 directive=exact provider=p1",
        "x-tidegate-held": "why=opening frames=2 bytes=323 then=dropped, why=opening frames=1 bytes=165 then=released",
    }


async def test_a_denied_answer_names_the_filter_and_never_the_text(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """It was held by that filter, and what it holds is nobody's to read."""
    _, caller = await CASES["a filter"].run(explain=True)
    lines = told(caller)
    assert "violation attempt=1 code=pattern_match filter=no-keys" in lines
    assert "held why=opening+filter:no-keys frames=3 bytes=466 then=dropped" in lines
    assert "attempt=1 directive=exact provider=p0 filter=no-keys code=pattern_match" in summed(caller)["x-tidegate-plans"]  # fmt: skip
    assert b"KEY" not in caller.received
    assert caller.text == "fine"


async def test_a_json_caller_is_told_in_header_fields_alone(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """All of it is known when they are written."""
    _, caller = await CASES["json"].run(explain=True)
    assert json.loads(caller.received)["model"] == "small"
    assert summed(caller)["x-tidegate-plans"] == (
        "attempt=1 directive=exact provider=p0 code=provider_error, attempt=2 directive=exact provider=p1 code=complete"
    )
    assert summed(caller)["x-tidegate-held"].startswith("why=json frames=1 ")


async def test_an_error_response_is_explained(autojump_clock: trio.testing.MockClock) -> None:
    """Its status and envelope are what they are."""
    outcome, caller = await CASES["exhausted"].run(explain=True)
    assert (caller.status, outcome.code) == (502, "provider_error")
    assert summed(caller)["x-tidegate-plans"].count("code=provider_error") == 2


async def test_a_silent_stream_says_what_it_waits_for(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """With the comments that keep it open; the answer is held meanwhile."""
    _, caller = await CASES["pinged"].run(explain=True)
    assert [line for line in told(caller) if line.startswith("held")] == [
        "held why=buffered frames=1 bytes=165 then=held",
        "held why=buffered frames=2 bytes=313 then=held",
        "held why=buffered frames=2 bytes=313 then=held",
        "held why=buffered frames=3 bytes=462 then=held",
        "held why=buffered frames=3 bytes=462 then=released",
    ]


async def test_a_continued_answer_names_the_seam(autojump_clock: trio.testing.MockClock) -> None:
    """The tail that it was held for, the plan, and how the two parts met."""
    _, caller = await CASES["window, continued"].run(explain=True)
    lines = told(caller)
    plan = "plan attempt=1 code=continuation reason=stream_cut count=1"
    seam = "seam attempt=2 code=seam_joined"
    assert lines.index(plan) < lines.index(seam)
    assert "held why=seam frames=1 bytes=152 then=released" in lines
    assert caller.text == "One two three four"


@pytest.mark.parametrize(
    ("metadata", "on"),
    [
        ({"trace_stream": "true"}, True),
        ({"trace_stream": "1", "user": "x"}, True),
        ({"trace_stream": True}, True),
        ({"trace_stream": "TRUE"}, True),
        ({"trace_stream": "false"}, False),
        ({"trace_stream": 1}, False),
        ({"trace": "true"}, False),
        ({}, False),
        (["trace_stream"], False),
        (None, False),
        ({"trace_stream": "true", "x": "y" * 20_000}, False),
    ],
)
@pytest.mark.parametrize("endpoint", ["/v1/chat/completions", "/v1/responses"])
async def test_a_switch_in_the_metadata_does_the_same(
    metadata: object, endpoint: str, autojump_clock: trio.testing.MockClock, *, on: bool
) -> None:
    """The older way to ask; the metadata go to the provider as they came."""
    flat = endpoint == "/v1/responses"
    value = json.loads(FLAT_BODY if flat else request())
    data = json.dumps({**value, "metadata": metadata}).encode()
    answer = says(responding.answer("hi")) if flat else healthy("hi")
    provider = ScriptedProvider(answer)
    caller = RecordingCaller(data)
    await supervise(gateway(provider), caller, endpoint=endpoint)
    assert bool(told(caller)) is bool(summed(caller)) is on
    assert json.loads(provider.asked[0].body)["metadata"] == metadata


async def test_a_gateway_may_keep_it_to_itself(autojump_clock: trio.testing.MockClock) -> None:
    """However it is asked."""
    data = json.dumps({**json.loads(request()), "metadata": {"trace_stream": True}}).encode()
    caller = RecordingCaller(data)
    gate = gateway(ScriptedProvider(refuses(503), healthy("Hi")))
    gate.explains = False
    outcome = await supervise(gate, caller, explain=True)
    assert outcome.attempts == 2
    assert b": tidegate" not in caller.received
    assert not summed(caller)


async def test_a_stream_that_is_held_again_and_again_is_not_drowned(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """So many lines, then one that says there would be more."""
    words = ["a KE", "x "] * LINES_MAX
    gate = gateway(
        ScriptedProvider(healthy(*words, every=0.1)), filters=("no-keys",), tables=DENIED
    )
    caller = RecordingCaller()
    await supervise(gate, caller, explain=True)
    lines = told(caller)
    assert len(lines) == LINES_MAX
    assert lines[-1] == "more"
    assert caller.text == "".join(words)


async def test_two_at_once_are_told_of_themselves(autojump_clock: trio.testing.MockClock) -> None:
    """And a third that did not ask, of nothing."""
    gate: Gateway = gateway(
        ScriptedProvider(*(healthy("a", "b", every=0.1) for _ in range(3))), concurrency=3
    )
    callers = [RecordingCaller() for _ in range(3)]
    async with trio.open_nursery() as nursery:
        for number, caller in enumerate(callers):
            nursery.start_soon(_explained, gate, caller, number)
    assert [len([line for line in told(caller) if line.startswith("attempt_started")]) for caller in callers] == [1, 1, 0]  # fmt: skip


async def _explained(gate: Gateway, caller: RecordingCaller, number: int) -> None:
    await supervise(gate, caller, exchange=f"ex-{number}", explain=number < 2)
