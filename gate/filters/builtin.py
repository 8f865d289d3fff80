"""The built-in kinds that are there today: kind -> filter for one attempt, or None where the request gives it nothing to judge."""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping, Sequence
from typing import Final, cast

import msgspec

from gate.config import FilterConfig, FilterKind, StructuredOutput
from gate.filters.contract import Filter, FilterContext
from gate.filters.empty import EmptyFilter
from gate.filters.encoding import EncodingFilter
from gate.filters.patterns import PatternsFilter
from gate.filters.refusal import RefusalFilter
from gate.filters.repetition import RepetitionFilter
from gate.filters.structured_output import structured_output
from gate.filters.tool_calls import tool_calls
from gate.ingress import ChatRequest
from gate.loose_json import member_value
from gate.splice import Body
from gate.tool_rules import read_tool_rules

__all__ = ["BUILT", "filter_context", "make_filters"]

NO_TABLES: Final[Mapping[str, FilterConfig]] = types.MappingProxyType({})
FORMAT_BYTES_MAX: Final = 524_288  # a schema of 256 KiB, however it is written

BUILT: Final[Mapping[str, Callable[[FilterContext], Filter | None]]] = {
    "empty": lambda context: EmptyFilter(context.choices),
    "encoding": EncodingFilter,
    "patterns": PatternsFilter,
    "refusal": RefusalFilter,
    "repetition": RepetitionFilter,
    "structured_output": structured_output,
    "tool_calls": tool_calls,
}


def filter_context(
    body: Body, request: ChatRequest, *, structured_output: StructuredOutput
) -> FilterContext:
    """What the filters know of a request, under its route's level. A format too large to be judged by still means that the answer has to be JSON."""
    found = [member for member in request.members if member.key == "response_format"]
    asked = member_value(body, found[-1], bytes_max=FORMAT_BYTES_MAX) if found else None
    if asked is msgspec.UNSET:
        asked = {"type": "json_schema"}
    tools = read_tool_rules(body, request)
    return FilterContext(request.choices, asked, structured_output, tools)


def make_filters(
    names: Sequence[str], context: FilterContext, tables: Mapping[str, FilterConfig] = NO_TABLES
) -> list[Filter]:
    """Fresh filters for one attempt, for those names of a route's list whose kind is built; a name without a table is a kind itself."""
    made: list[Filter] = []
    for name in names:
        table = tables.get(name)
        kind = name if table is None else table.kind
        if kind in BUILT:
            options = table or FilterConfig(kind=cast("FilterKind", kind))
            each = BUILT[kind](msgspec.structs.replace(context, table=options))
            if each is not None:
                each.name = name
                each.gating = each.gating and options.gating
                made.append(each)
    return made
