"""The far ends play a scenario's script, exchange by exchange."""

from __future__ import annotations

import json

from ops.chaos.hosts import AFTER, FINE, SUBJECT, PlayedService, PlayedTarget, hosts_of
from ops.chaos.scenario import Service
from ops.chaos.scenarios import SCENARIOS
from ops.chaos.wire import refuses, request, spoken
from ops.provider_connection import RecordedRequest
from ops.provider_script import Head, Sleep, Write


def asked(exchange: str, body: bytes = b"") -> RecordedRequest:
    """A request as it arrives."""
    return RecordedRequest("POST", "/", (("x-request-id", exchange),), body or request(), 1)


def test_each_exchange_has_the_script_to_itself() -> None:
    """The last answer again and again; and a prefix that is given is not said again."""
    target = PlayedTarget([refuses(503), spoken("One", " two")])
    statuses = [next(iter(target.steps_for(asked(name)))) for name in ("a", "a", "b", "a")]
    assert [each.status for each in statuses if isinstance(each, Head)] == [503, 200, 503, 200]
    messages = [{"role": "assistant", "content": "One"}]
    rest = list(target.steps_for(asked("a", request(messages=messages))))
    said = b"".join(each.data for each in rest if isinstance(each, Write))
    assert b" two" in said
    assert b"One" not in said


def test_a_target_may_refuse_the_exchange_that_is_struck_but_no_other() -> None:
    """Which one is connecting it can't know: whoever comes after is answered well."""
    target = PlayedTarget([None, spoken("Hi")])
    assert target.refuses()
    assert not target.refuses()
    assert list(target.steps_for(asked(SUBJECT)))
    target.over = True
    assert not target.refuses()
    steps = list(target.steps_for(asked(AFTER)))
    assert any(FINE.encode() in each.data for each in steps if isinstance(each, Write))


def question(attempt: int, text: str, context: int = 0) -> bytes:
    """As `transport.webhook` asks."""
    texts = [{"choice": 0, "channel": "content", "text": text, "context": context}]
    return json.dumps(
        {"exchange": SUBJECT, "attempt": attempt, "last": False, "texts": texts}
    ).encode()


def test_a_service_remembers_what_it_has_passed() -> None:
    """What it was asked before, and what it is asked twice, counts once."""
    service = PlayedService(Service(0.25, denied="bad"))
    for body in (question(1, "One"), question(1, "e two", 1), question(1, "e two", 1)):
        first, *_, last = service.steps_for(asked("", body))
        assert first == Sleep(250)
        assert isinstance(last, Write)
        assert json.loads(last.data)["pass"]
    *_, last = service.steps_for(asked("", question(1, "bad")))
    assert isinstance(last, Write)
    assert not json.loads(last.data)["pass"]
    assert service.passed == {1: "One two"}
    assert not service.refuses()


def test_a_scenario_has_its_hosts() -> None:
    """Targets in order, services by name."""
    targets, services = hosts_of(SCENARIOS["judged"])
    assert (len(targets), set(services)) == (2, {"hook", "watch"})
