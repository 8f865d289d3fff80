"""Ring 3: the service on sockets, between callers and providers that do what only a kernel can show."""

from __future__ import annotations

import logging
import socket
from typing import Any

import pytest
import trio

from actors.context import OpenExchanges
from ops.chaos.cases import parse_case
from ops.chaos.sockets import Served, served
from ops.chaos.sockets_callers import Caller
from ops.chaos.sockets_scenarios import SOCKETED
from ops.chaos.sockets_search import Seen, explore, play, run_case
from transport.asgi import Unfinished

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("name", "seed"), [("pipelined", 0), ("never-reads", 0), ("refused", 1), ("healthy-http2", 1)]
)
def test_a_batch_of_callers_leaves_nothing_behind(name: str, seed: int) -> None:
    """Struck at random moments, beside some that nothing strikes; or by the end of the service."""
    tally = explore(name, seed)
    assert [(str(each.case), each.findings) for each in tally.failures] == []
    assert 0 < tally.points < tally.runs


@pytest.mark.parametrize("who", ["caller", "reset", "half", "provider"])
def test_one_case_is_played_at_its_moment(who: str) -> None:
    """100 ms after the caller has begun, in the middle of its answer."""
    seen, findings = run_case(parse_case(f"healthy --ring 3 --cancel {who}:1000"))
    assert findings == []
    [(_, caller)] = seen.callers
    assert (caller.left_at is None) == (who == "provider")
    if caller.left_at is not None:
        assert caller.left_at - caller.began_at > 0.09
        assert any(line.startswith("left 0.1") for line in caller.told()) or seen.late > 0.05


def test_the_provider_that_resets_is_the_exchange_s_own() -> None:
    """Another caller of the same batch gets its answer."""
    cases = [parse_case(line) for line in ("cut --ring 3 --cancel provider:1", "healthy --ring 3")]
    seen = play("healthy", cases)
    assert seen.common == []
    assert [findings for _, findings in seen.findings] == [[], []]
    assert seen.callers[1][1].done


def test_a_stream_that_is_reset_takes_no_other_along() -> None:
    """Under HTTP/2, in the middle of three answers; over TLS as well."""
    for name in ("healthy-http2", "healthy-http2-tls"):
        seen, findings = run_case(parse_case(f"{name} --ring 3 --cancel reset:1000"))
        assert findings == []
        [(_, caller)] = seen.callers
        assert [each.whole for each in caller.responses] == [False, True, True]


def test_a_service_that_is_told_to_stop_ends_what_it_has_begun() -> None:
    """And refuses what comes later, if it answers at all."""
    seen, findings = run_case(parse_case("healthy --ring 3 --cancel stop:500"))
    assert findings == []
    [first, *late] = [caller for _, caller in seen.callers]
    assert first.done
    assert not any(caller.done and caller.response.status == 200 for caller in late)


# --- what the checks see --------------------------------------------------------------------------


def test_what_comes_late_or_not_at_all_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted faults: something stays reserved, a task goes on, a descriptor is left open, and nobody answers well any more."""
    kept: list[Any] = []

    def look(gate: Served) -> list[str]:
        if not kept:
            kept.append(gate.gateway.budget.reserve(10))
            kept.append(socket.socket())
        return original(gate)

    original = Served.left_behind
    monkeypatch.setattr(Served, "left_behind", look)
    monkeypatch.setattr("ops.chaos.sockets_search.QUIET_SECONDS", 0.2)
    monkeypatch.setattr("ops.chaos.sockets_search.FINE", "something else")
    _, findings = run_case(parse_case("json --ring 3"))
    kept[1].close()
    numbers = {each.split()[0] for each in findings}
    assert numbers == {"I1", "I15"}
    assert any("one more request" in each for each in findings)


def test_a_caller_that_waits_for_ever_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """And the batch that it was in is told by the first case that shows it alone."""
    monkeypatch.setattr("ops.chaos.sockets_search.RUN_SECONDS", 0.05)
    tally = explore("provider-stalls", 0)
    common = [each for each in tally.failures if "I0 a caller is still waiting" in each.findings]
    assert len(common) == 1


def test_a_drain_that_does_not_wait_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted fault: exchanges are ended at once, though there is time for them."""

    async def wait_empty(self: OpenExchanges) -> None:
        await trio.lowlevel.checkpoint()

    monkeypatch.setattr(OpenExchanges, "wait_empty", wait_empty)
    _, findings = run_case(parse_case("healthy --ring 3 --cancel stop:500"))
    assert "I8 ended with 'shutdown' where nothing struck, not with ''" in findings


def test_a_service_that_does_not_end_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Here it has no time at all."""
    monkeypatch.setattr("transport.serve.GRACEFUL_SECONDS", 0.0)
    monkeypatch.setattr("transport.serve.FAREWELL_SECONDS", 0.0)
    _, findings = run_case(parse_case("json --ring 3"))
    assert findings == ["I0 the service did not come to its end"]


async def test_a_service_is_served_as_its_scenario_says() -> None:
    """With its own ports, and tasks that are counted from when it is at rest."""
    async with served(SOCKETED["json"]) as gate:
        caller = Caller(SOCKETED["json"], "ex-0")
        await caller.ask(gate.port)
        assert caller.response.read().text == "Hello"
        await gate.gateway.open.wait_empty()
        end = gate.end_of("ex-0")
        assert end is not None
        assert end[1].outcome == "success"
        assert gate.end_of("nobody") is None
    assert gate.life.over.is_set()
    assert not gate.life.hung


async def test_what_the_server_says_that_an_application_has_died_of_is_kept() -> None:
    """But for an answer that was given up."""
    async with served(SOCKETED["json"]) as gate:
        log = logging.getLogger("hypercorn.error")
        for error in (ValueError("a bug"), Unfinished("stream_cut")):
            log.error("died", exc_info=error)
        assert [repr(each) for each in gate.crashes] == ["ValueError('a bug')"]


def test_a_batch_knows_its_findings_apart() -> None:
    """What is of one case, and what is of all."""
    assert (Seen().findings, Seen().common) == ([], [])
