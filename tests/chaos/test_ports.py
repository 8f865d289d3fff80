"""The in-memory ports do what a script says, fail when they are told to, and notice what may not be done to them."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import trio

from actors.ports import BodyPart, UpstreamRequest
from gate.errors import UpstreamFailed, UpstreamFault
from ops.chaos.inject import Bug
from ops.chaos.ports import Calls, PlayedCaller, PlayedProvider
from ops.chaos.wire import DONE, ROLE, STOP, Answer, refuses, request, spoken, stream, text
from ops.provider_script import Attempt, Ending, Repeat, Write


def asked(**members: object) -> UpstreamRequest:
    """A request of the exchange that is struck."""
    body = request(**members)
    return UpstreamRequest("/chat/completions", [(b"x-request-id", b"ex-1")], [body], len(body))


async def answer(provider: PlayedProvider, **members: object) -> tuple[int, list[bytes]]:
    """The status, and what each read brought."""
    async with provider.attempt(asked(**members), on_connected=lambda: None) as response:
        reads = []
        while data := await response.read():
            reads.append(data)
        return response.status, reads


def provider(*script: Answer, failing: Sequence[int] = ()) -> PlayedProvider:
    """One with this script."""
    return PlayedProvider(script, Calls(failing), "ex-1")


async def test_the_script_is_played_read_by_read(autojump_clock: trio.testing.MockClock) -> None:
    """Attempt after attempt, the last one again and again."""
    repeated = Attempt((Write(ROLE), Repeat(b": x\n\n", 2, 500)))
    played = provider(refuses(503), stream(text("a"), 1_000, text("b")), repeated)
    assert (await answer(played))[0] == 503
    began = trio.current_time()
    assert await answer(played) == (200, [text("a"), text("b")])
    assert trio.current_time() - began == 1
    assert await answer(played) == (200, [ROLE, b": x\n\n", b": x\n\n"])
    assert await answer(played) == (200, [ROLE, b": x\n\n", b": x\n\n"])
    assert [each.closes for each in played.asked] == [1, 1, 1, 1]


async def test_an_answer_goes_on_with_what_the_request_brings() -> None:
    """Within a word, too."""
    messages = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "One t"}]
    played = provider(spoken("One", " two", " three"))
    assert await answer(played, messages=messages) == (200, [ROLE, text("wo"), text(" three"), STOP, DONE])  # fmt: skip


@pytest.mark.parametrize(
    ("script", "failing", "fault"),
    [
        (None, [], UpstreamFault.CONNECT),
        (stream(Ending.RESET), [], UpstreamFault.CUT),
        (Attempt((Ending.RESET,), status=0), [], UpstreamFault.RESET),
        (Attempt((Write(b"HTTP/9"),), status=0), [], UpstreamFault.PROTOCOL),
        (stream(text("a"), Ending.CUT), [], UpstreamFault.CUT),
        (stream(text("a")), [1], UpstreamFault.CONNECT),
        (stream(text("a")), [2], UpstreamFault.RESET),
        (stream(text("a")), [3], UpstreamFault.CUT),
    ],
)
async def test_a_port_fails_as_it_may(
    script: Answer, failing: Sequence[int], fault: UpstreamFault
) -> None:
    """By its script, or because its call is the one that is to fail."""
    with pytest.raises(UpstreamFailed) as caught:
        await answer(provider(script, failing=failing))
    assert caught.value.fault is fault


async def test_a_caller_writes_down_what_may_not_be_done(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Bytes before the start, behind a torn write, and a farewell to one who is known to be gone."""
    caller = PlayedCaller([b"ab", b"c"], Calls())
    first = await caller.receive()
    assert isinstance(first, BodyPart)
    assert (first.data, first.last) == (b"ab", False)
    await caller.write(b"x")
    await caller.start(200, [])
    caller.seconds = 2
    with trio.move_on_after(1):
        await caller.write(b"abcd")
    assert (bytes(caller.received), caller.torn) == (b"xab", True)
    caller.leave()
    await caller.receive()
    await caller.end(b"y")
    assert caller.misuse == [
        "bytes before the start",
        "a farewell to a caller that is known to be gone",
        "bytes behind a torn write",
    ]


async def test_a_stuck_caller_is_let_go_by_what_stands_for_the_kernel(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """A second behind the write limit, and no cancel comes before that."""
    caller = PlayedCaller([b""], Calls(), stuck=True)
    await caller.start(200, [])
    with trio.move_on_after(1):
        await caller.write(b"abcd")
    assert caller.left_at == trio.current_time()
    assert trio.current_time() == 61


async def test_a_call_of_the_caller_that_is_to_fail_is_a_bug() -> None:
    """It promises not to fail."""
    caller = PlayedCaller([b"a"], Calls([1]))
    with pytest.raises(Bug):
        await caller.receive()
