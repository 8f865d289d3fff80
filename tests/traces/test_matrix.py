"""The captured suite holds what the matrix says: every row of the fault catalogue under every framing and hold, every directive, every violation of a built-in filter, at both endpoints."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from gate.config_check import decode_config
from gate.filters import (
    encoding,
    output_policy,
    patterns,
    repetition,
    structured_output,
    tool_calls,
)
from gate.filters.builtin import BUILT
from gate.ingress_responses import RESPONSES_PATH
from gate.plan import DirectiveKind
from gate.trace import CallerEvent, Decision, Read, Request, Term, Trace, Upstream
from gate.tunnel import CHAT
from ops.chaos import faults as catalogue
from ops.trace import read_traces
from tests.traces.matrix import CALLERS, FRAMINGS, MATRIX, ROWS, Cell, cells
from tests.traces.scenario import HOLDS
from tests.traces.scenarios import CAPTURED

LINGERS = 10  # the row of bodies that stay open behind their end
# The codes of each kind's violations; a kind that condemns nothing has none.
VIOLATIONS: Mapping[str, frozenset[str]] = {
    "empty": frozenset({"empty_answer"}),
    "encoding": frozenset({encoding.CODE}),
    "patterns": frozenset({patterns.CODE}),
    "refusal": frozenset(),
    "repetition": frozenset({repetition.CODE}),
    "structured_output": frozenset({"json_invalid", "schema_mismatch"}),
    "output_policy": frozenset({output_policy.TAGS, output_policy.FENCED, output_policy.BESIDE}),
    "tool_calls": frozenset(
        {
            tool_calls.UNKNOWN,
            tool_calls.NOT_JSON,
            tool_calls.NO_OBJECT,
            tool_calls.MISFIT,
            tool_calls.NOT_ASKED,
            tool_calls.NOT_THERE,
            tool_calls.ANOTHER,
            tool_calls.TOO_MANY,
            tool_calls.AMBIGUOUS,
            tool_calls.IN_TEXT,
        }
    ),
    "webhook": frozenset({"denied_by_service", "filter_unavailable"}),
}


@functools.cache
def captured() -> Mapping[str, Trace]:
    return {each.header.trace_id: each for each in read_traces(CAPTURED)}


def inputs(trace: Trace) -> Sequence[Any]:
    """What its first attempt brought, and what its caller did, but for the times."""
    found: list[Any] = []
    for each in trace.records:
        if isinstance(each, Upstream | Read) and each.n == 1:
            found.append(each.b if isinstance(each, Read) else (each.ev, each.fault, each.status))
        elif isinstance(each, CallerEvent):
            found.append(each.ev)
    return found


def test_every_row_of_the_catalogue_is_in_the_matrix() -> None:
    """With scenarios or a reason, not both; and those that a script can show have scenarios."""
    assert set(MATRIX) == set(ROWS)
    told = {row.number for row in catalogue.CATALOGUE} | set(catalogue.ELSEWHERE)
    assert told == set(ROWS)
    for number, row in MATRIX.items():
        assert bool(row.chat) != bool(row.why_not), number
        assert not (row.responses and row.why_not_responses), number
    without = {number for number, row in MATRIX.items() if row.why_not}
    assert without <= set(catalogue.ELSEWHERE)
    assert set(catalogue.ELSEWHERE) >= CALLERS


def test_there_is_a_trace_for_every_cell() -> None:
    """By name."""
    missing = [each for each in cells() if each.trace_id not in captured()]
    assert missing == []


def test_a_trace_is_what_its_cell_says() -> None:
    """Its endpoint, its path and its hold stand in its own records, whatever its name is."""
    wrong = [each for each in cells() if placed(captured()[each.trace_id]) != (each.endpoint, each.framing, each.hold)]  # fmt: skip
    assert wrong == []


def placed(trace: Trace) -> tuple[str, str, str]:
    config = decode_config(trace.header.config)
    (request,) = (each for each in trace.records if isinstance(each, Request))
    (path,) = {each.path for each in config.providers}
    return request.endpoint, path, config.routes["default"].hold.mode


def test_a_trace_shows_its_fault() -> None:
    """What the provider or the caller did is not what a healthy exchange under the same framing has; where they differ in time only, the end tells them apart."""
    plain = [each for each in cells() if not shows(each, captured()[each.trace_id])]
    assert plain == []


def shows(cell: Cell, trace: Trace) -> bool:
    """A body that lingers is no input: it is left, as most that are healthy are behind their end, and the answer is whole."""
    healthy = captured()[dataclasses.replace(cell, fault="healthy").trace_id]
    same = inputs(trace) == inputs(healthy)
    if cell.row in CALLERS:
        return as_its_caller(cell, trace, healthy)
    if cell.row == LINGERS:
        left = any(isinstance(each, Upstream) and each.ev == "left" for each in trace.records)
        return left and terminal(trace).kind == "success"
    return not same or (cell.fault == "drip" and terminal(trace).t > terminal(healthy).t)


def terminal(trace: Trace) -> Term:
    (term,) = (each for each in trace.records if isinstance(each, Term))
    return term


def as_its_caller(cell: Cell, trace: Trace, healthy: Trace) -> bool:
    """The caller left while an attempt was open, or took each write so long, or none."""
    term = terminal(trace)
    if cell.fault == "caller-slow":
        return term.kind == "success" and term.t > terminal(healthy).t
    code = "caller_too_slow" if cell.fault == "caller-takes-nothing" else "caller_gone"
    return (term.kind, term.code) == ("abandoned", code)


def test_one_that_is_missing_or_another_is_found() -> None:
    """The check would fail: a trace of another hold under a cell's name is not the cell's."""
    live = captured()["stall.live"]
    assert placed(live) == (CHAT, "normalized", "live")
    assert placed(captured()["stall.responses-tunnel.window"]) == (RESPONSES_PATH, "tunnel", "window")  # fmt: skip
    assert Cell(9, "stall", CHAT, "tunnel", "live").trace_id == "stall.tunnel.live"


@pytest.mark.parametrize("endpoint", [CHAT, RESPONSES_PATH])
def test_every_directive_is_planned_at_either_endpoint(endpoint: str) -> None:
    """By each that there is."""
    plans = {each.code for each in decided(endpoint, "plan")}
    assert plans >= {each.value for each in DirectiveKind}


@pytest.mark.parametrize("endpoint", [CHAT, RESPONSES_PATH])
def test_every_violation_of_a_built_in_filter_is_there_at_either_endpoint(endpoint: str) -> None:
    """Of every kind, with every code that it has; also `filter_unavailable`, which an awaiting filter's policy makes of one that can't be asked."""
    assert set(VIOLATIONS) == set(BUILT)
    assert structured_output.UNUSABLE not in frozenset().union(*VIOLATIONS.values())  # a notice
    codes = {each.code for each in decided(endpoint, "violation")}
    missing = {kind: found - codes for kind, found in VIOLATIONS.items() if found - codes}
    assert missing == {}


def decided(endpoint: str, what: str) -> Sequence[Decision]:
    found = []
    for trace in captured().values():
        (request,) = (each for each in trace.records if isinstance(each, Request))
        if request.endpoint == endpoint:
            found += [each for each in trace.records if isinstance(each, Decision) and each.what == what]  # fmt: skip
    return found


def test_every_framing_and_hold_has_its_share_of_the_traces() -> None:
    """At both endpoints; the same number for each hold."""
    counts = {
        (framing, hold): sum(each.framing == framing and each.hold == hold for each in cells())
        for framing in FRAMINGS
        for hold in HOLDS
    }
    assert len(set(counts.values())) == 1
    assert min(counts.values()) >= 60
