"""Recording, the filters' side: what filters that await were asked and said. The rules are those of `actors.recording`."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from actors.ports import AwaitingFilter, AwaitingFilters, FilterUnavailable
from actors.tape import Tape
from gate.filters.awaited import Awaited, Question
from gate.filters.contract import Passed, Verdict
from gate.trace import Answered

__all__ = ["RecordedFilters"]


class RecordedFilters:
    """Where one filter that awaits comes from; what it says is an input."""

    def __init__(self, name: str, inner: AwaitingFilters, tape: Tape) -> None:
        self._name = name
        self._inner = inner
        self._tape = tape

    def begin(self, exchange: str, attempt: int, awaited: Awaited) -> AwaitingFilter:
        return _Filter(
            self._name, attempt, self._inner.begin(exchange, attempt, awaited), self._tape
        )


class _Filter:
    def __init__(self, name: str, attempt: int, inner: AwaitingFilter, tape: Tape) -> None:
        self._name = name
        self._attempt = attempt
        self._inner = inner
        self._tape = tape

    async def judge(self, question: Question) -> Verdict:
        began = self._tape.now()
        try:
            verdict = await self._inner.judge(question)
        except FilterUnavailable as error:
            self._tell(question, began, fault=error.public_code)
            raise
        except Exception:
            self._tell(question, began, fault="error")
            raise
        except BaseException:
            self._tell(question, began)
            raise
        if isinstance(verdict, Passed):
            self._tell(question, began, passed=verdict.position)
        else:
            self._tell(question, began, violated=msgspec.to_builtins(verdict))
        return verdict

    def _tell(
        self,
        question: Question,
        began: int,
        *,
        passed: int | None = None,
        violated: Mapping[str, object] | None = None,
        fault: str | None = None,
    ) -> None:
        now, last = self._tape.now(), question.facts is not None
        said = Answered(
            self._attempt,
            now,
            self._name,
            question.start,
            question.end,
            last,
            now - began,
            passed,
            violated,
            fault,
        )
        self._tape.add(said)
