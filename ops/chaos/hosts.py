"""The far ends of the rings in which the whole program runs: targets that play a scenario's script, and filters that are asked over HTTP.

Both say what is answered to a request, without I/O: `ops.provider_connection` carries it, in memory and on sockets alike.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Protocol

from ops.chaos.ports import prefix_of
from ops.chaos.scenario import Scenario, Service
from ops.chaos.wire import Answer, json_body, request
from ops.provider_connection import RecordedRequest
from ops.provider_script import Attempt, Head, Sleep, Step, Write

__all__ = ["AFTER", "FINE", "SUBJECT", "Host", "PlayedService", "PlayedTarget", "hosts_of"]

SUBJECT: Final = "ex-1"
AFTER: Final = "after"  # the exchange that comes when the other one is over
FINE: Final = "fine"  # what it is answered
FINE_REQUEST: Final = request(stream=False)
_FINE: Final = json_body(FINE)


class Host(Protocol):
    """A server that the gate opens connections to."""

    over: bool
    """The exchange that is struck is over: everybody else is answered well and at once."""

    def refuses(self) -> bool:
        """Whether the next connection is refused."""
        ...

    def steps_for(self, asked: RecordedRequest) -> Iterator[Step]:
        """The answer to a request."""
        ...


class PlayedTarget:
    """Gives each exchange the answers of its script one after the other, the last one again and again."""

    def __init__(self, script: Sequence[Answer]) -> None:
        self.over = False
        self.asked: list[str] = []
        self.refused = 0
        self._script = script

    def refuses(self) -> bool:
        if self.over or self._next(SUBJECT, self.refused) is not None:
            return False
        self.refused += 1
        return True

    def steps_for(self, asked: RecordedRequest) -> Iterator[Step]:
        exchange = asked.header("x-request-id") or ""
        answer = _FINE if exchange == AFTER else self._next(exchange, self._refusals(exchange))
        self.asked.append(exchange)
        assert answer is not None, "asked where nobody listens"
        script = answer if isinstance(answer, Attempt) else answer(prefix_of(asked.body))
        return script.play_list()

    def _refusals(self, exchange: str) -> int:
        return self.refused if exchange == SUBJECT else 0

    def _next(self, exchange: str, refused: int) -> Answer:
        before = self.asked.count(exchange) + refused
        return self._script[min(before, len(self._script) - 1)]


class PlayedService:
    """A filter that takes its time for each question and denies text. `passed`: per attempt, the answer text that it let through; `decides`: nothing else is released."""

    def __init__(self, service: Service) -> None:
        self.over = False
        self.passed: dict[int, str] = {}
        self.decides = service.table.gating and service.table.failure == "closed"
        self._service = service
        self._last: dict[int, bytes] = {}  # a question that was sent again counts once

    def refuses(self) -> bool:
        return False

    def steps_for(self, asked: RecordedRequest) -> Iterator[Step]:
        question = json.loads(asked.body)
        texts = [each for each in question["texts"] if each["channel"] == "content"]
        denied = self._service.denied
        passes = not (denied and any(denied in each["text"] for each in texts))
        attempt = question["attempt"]
        again = self._last.get(attempt) == asked.body
        if passes and question["exchange"] == SUBJECT and not again:
            self._last[attempt] = asked.body
            new = "".join(each["text"][each["context"] :] for each in texts)
            self.passed[attempt] = self.passed.get(attempt, "") + new
        yield Sleep(0 if self.over else round(self._service.seconds * 1000))
        body = json.dumps({"pass": passes, "code": "denied"}).encode()
        yield Head(200, (("content-type", "application/json"),))
        yield Write(body)


def hosts_of(scenario: Scenario) -> tuple[list[PlayedTarget], Mapping[str, PlayedService]]:
    """The targets in order, and the services by name."""
    services = {name: PlayedService(each) for name, each in scenario.services.items()}
    return [PlayedTarget(script) for script in scenario.targets], services
