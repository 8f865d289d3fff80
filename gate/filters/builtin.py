"""The built-in kinds, each with what makes its filter for one attempt."""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from gate.config import FilterConfig, OutputPolicy, StructuredOutput
from gate.dialects import CEILINGS
from gate.filters.awaited import Awaited
from gate.filters.contract import Filter, FilterContext, FilterFactory
from gate.filters.empty import EmptyFilter
from gate.filters.encoding import EncodingFilter
from gate.filters.output_policy import output_policy
from gate.filters.patterns import PatternsFilter
from gate.filters.policed import Policed
from gate.filters.refusal import RefusalFilter
from gate.filters.repetition import RepetitionFilter
from gate.filters.structured_output import structured_output
from gate.filters.tool_calls import tool_calls
from gate.ingress import CallerRequest
from gate.ingress_responses import RESPONSES_PATH
from gate.loose_json import member_value
from gate.schema_cache import RequestSchemas, SchemaCache
from gate.splice import Body, Member
from gate.tool_rules import read_tool_rules

__all__ = ["BUILT", "filter_context", "make_filters"]

NO_TABLES: Final[Mapping[str, FilterConfig]] = types.MappingProxyType({})
NO_PLUGINS: Final[Mapping[str, FilterFactory]] = types.MappingProxyType({})
FORMAT_BYTES_MAX: Final = 524_288  # a schema of 256 KiB, however it is written
MEMBER_BYTES_MAX: Final = 4_096  # of any other member; more is nothing that we know
_TOOLS: Final = frozenset({"tools", "functions"})

HORIZON_CHARS: Final = 64  # of a service that is asked piece by piece, where its table gives none


def _asked(table: FilterConfig) -> FilterConfig:
    return msgspec.structs.replace(table, horizon_chars=table.horizon_chars or HORIZON_CHARS)


BUILT: Final[Mapping[str, FilterFactory]] = {
    "empty": lambda context: EmptyFilter(context.choices),
    "encoding": EncodingFilter,
    "patterns": PatternsFilter,
    "refusal": RefusalFilter,
    "repetition": RepetitionFilter,
    "structured_output": structured_output,
    "output_policy": output_policy,
    "tool_calls": tool_calls,
    "webhook": lambda context: Awaited(_asked(context.table)),
}
# Kinds that a key of the route switches on, whatever its list says.
SWITCHED: Final = ("output_policy",)


def filter_context(
    body: Body,
    request: CallerRequest,
    *,
    structured_output: StructuredOutput,
    output_policy: OutputPolicy = "off",
    schemas: SchemaCache | None = None,
) -> FilterContext:
    """What the filters know of a request, under its route's level; `schemas`: the process's. A format too large to be judged by still means that the answer has to be JSON."""
    members = {member.key: member for member in request.members}
    ceilings = CEILINGS[request.endpoint]
    values = {
        name: member_value(body, members[name], bytes_max=MEMBER_BYTES_MAX)
        for name in ("tool_choice", *ceilings)
        if name in members
    }
    told = [values.get(name) for name in ceilings]
    return FilterContext(
        request.choices,
        _format(body, members, request.endpoint),
        structured_output,
        output_policy,
        may_call=not members.keys().isdisjoint(_TOOLS),
        tool_choice=values.get("tool_choice"),
        ceiling=min((each for each in told if type(each) is int and each > 0), default=0),
        tools=read_tool_rules(body, request),
        schemas=RequestSchemas(schemas),
        endpoint=request.endpoint,
    )


def _format(body: Body, members: Mapping[str, Member], endpoint: str) -> object:
    """The format that a request asks for, as chat spells it: `response_format`, or `format` within `text`."""
    flat = endpoint == RESPONSES_PATH
    member = members.get("text" if flat else "response_format")
    asked = None if member is None else member_value(body, member, bytes_max=FORMAT_BYTES_MAX)
    if asked is msgspec.UNSET:
        return {"type": "json_schema"}
    if not flat:
        return asked
    asked = asked.get("format") if isinstance(asked, dict) else None
    return {**asked, "json_schema": asked} if isinstance(asked, dict) else None


def make_filters(
    names: Sequence[str],
    context: FilterContext,
    tables: Mapping[str, FilterConfig] = NO_TABLES,
    *,
    plugins: Mapping[str, FilterFactory] = NO_PLUGINS,
    clock: Callable[[], float] = lambda: 0.0,
) -> list[Filter]:
    """Fresh filters for one attempt, for the names of a route's list, and those that the route switches on beside it.

    A name without a table is a kind itself; one that has a table is under its policies. `plugins`: the kinds that other packages have brought; `clock`: monotonic seconds, for their deadlines.
    """
    made: list[Filter] = []
    for name in dict.fromkeys((*names, *SWITCHED)):
        table = tables.get(name)
        kind = name if table is None else table.kind
        build = plugins.get(kind) or BUILT[kind]
        options = table or FilterConfig(kind=kind)
        each = build(msgspec.structs.replace(context, table=options))
        if each is not None:
            each.name = name
            each.gating = each.gating and options.gating
            policed = table is not None and not isinstance(each, Awaited)
            made.append(Policed(each, options, clock) if policed else each)
    return made
