"""How much work it is to judge a value by a schema, bounded before the validator begins.

A validator enters a subschema once for every way that leads to it, and such ways can multiply: twenty definitions of two references each are a million visits, and a union
that contains itself is a power of the answer's depth. Here every pair of a subschema and a part of the value is weighed once, and its weight counted as often as it is
entered, so that the sum is known in the time of the pairs alone. What the validator stops early at is counted all the same: the sum is an upper bound.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

__all__ = ["TooMuchWork", "Weighed", "Weigher"]

WORK_MAX: Final = (
    2_000_000  # units; one is a visit or a comparison, at most 0.1 us of the validator
)
PAIRS_MAX: Final = 50_000  # weighed, about 3 us each; an answer of some 100,000 tokens
PAIR_UNITS: Final = 30  # that weighing one costs
DEPTH_MAX: Final = 200  # pairs in pairs: the validator's stack has to bear it, and ours
# Units per character: an automaton whose states don't fit its cache takes 7 us for each.
PATTERN_WEIGHT: Final = 50
# Units per character of a string that is itself read as JSON, or as base64, which drafts 6 and 7 ask for.
CONTENT_WEIGHT: Final = 2
# What is larger is compared digit by digit, in 1 us for 30 of them and 1 ms for 4,000.
WORD_BITS: Final = 64

_IN_PLACE_MANY: Final = ("allOf", "anyOf", "oneOf", "dependentSchemas", "dependencies")
_IN_PLACE_ONE: Final = ("not", "if", "then", "else")
_EACH_MEMBER: Final = ("additionalProperties", "unevaluatedProperties")
_EACH_ITEM: Final = ("items", "additionalItems", "unevaluatedItems", "contains")
_BY_PLACE: Final = ("prefixItems", "items")
_CONTENT: Final = ("contentMediaType", "contentEncoding")


class TooMuchWork(ValueError):
    """The value is not to be judged by this schema."""


class Weighed(NamedTuple):
    """The work of judging a value, and what it cost to know, in units."""

    work: int
    weighing: int

    @property
    def cost(self) -> int:
        return self.work + self.weighing


class _Subschema:
    """What every visit of one subschema has in common. `weight`: its lists of names and of values are gone through."""

    __slots__ = ("in_place", "names", "text", "weight")

    def __init__(self, schema: dict[str, Any], refs: Mapping[str, object]) -> None:
        self.weight = 1 + sum(
            len(each) for each in schema.values() if isinstance(each, dict | list)
        )
        self.text = PATTERN_WEIGHT if "pattern" in schema else 0
        self.text += CONTENT_WEIGHT * sum(name in schema for name in _CONTENT)
        self.names = PATTERN_WEIGHT * len(_each(schema.get("patternProperties")))
        in_place = [inner for name in _IN_PLACE_MANY for inner in _each(schema.get(name))]
        in_place += [schema[name] for name in _IN_PLACE_ONE if name in schema]
        if isinstance(ref := schema.get("$ref"), str):
            in_place.append(refs[ref])
        # What is evaluated is looked for in a second round.
        twice = "unevaluatedProperties" in schema or "unevaluatedItems" in schema
        self.in_place = in_place * 2 if twice else in_place


class Weigher:
    """Weighs values against one schema. `refs`: what each `$ref` in it refers to."""

    def __init__(self, schema: object, refs: Mapping[str, object]) -> None:
        self._schema = schema
        self._refs = refs
        # The schema outlives its weigher, and the value its weighing, so ids name their parts.
        self._subschemas: dict[int, _Subschema] = {}
        self._known: dict[tuple[int, int], int | None] = {}

    def weigh(self, value: object) -> Weighed:
        """An upper bound of the work. Raises `TooMuchWork`."""
        try:
            work = self._weight(self._schema, value, 0)
            return Weighed(work, PAIR_UNITS * len(self._known))
        finally:
            # Whoever keeps the schema does not keep what was known of a value.
            self._known = {}

    def _weight(self, schema: object, value: object, depth: int) -> int:
        if not isinstance(schema, dict):
            return 1
        key = id(schema), id(value)
        known = self._known.get(key, 0)
        if known:
            return known
        # None: a pair that is entered again while it is being weighed, so the schema never gets deeper into the value.
        if known is None or depth > DEPTH_MAX or len(self._known) >= PAIRS_MAX:
            raise TooMuchWork
        self._known[key] = None
        weight = self._known[key] = _bounded(self._sum(schema, value, depth + 1))
        return weight

    def _sum(self, schema: dict[str, Any], value: object, depth: int) -> int:
        """The weight of a pair, with that of all that it leads to."""
        shared = self._subschemas.get(id(schema))
        if shared is None:
            shared = self._subschemas[id(schema)] = _Subschema(schema, self._refs)
        weight = shared.weight
        pairs: Iterator[tuple[object, object]] = iter(())
        if isinstance(value, str):
            weight += shared.text * len(value)
        elif isinstance(value, int) and value.bit_length() > WORD_BITS:
            weight *= value.bit_length()
        elif isinstance(value, dict):
            weight += len(value)
            weight += shared.names * sum(map(len, value)) if shared.names else 0
            pairs = _members(schema, value)
        elif isinstance(value, list):
            weight += len(value)
            pairs = _items(schema, value)
        for inner in shared.in_place:
            weight = _bounded(weight + self._weight(inner, value, depth))
        for inner, part in pairs:
            weight = _bounded(weight + self._weight(inner, part, depth))
        return weight


def _bounded(weight: int) -> int:
    if weight > WORK_MAX:
        raise TooMuchWork
    return weight


def _members(schema: dict[str, Any], value: dict[str, Any]) -> Iterator[tuple[object, object]]:
    properties = schema.get("properties")
    if isinstance(properties, dict):
        yield from ((properties[name], value[name]) for name in value if name in properties)
    everywhere = [*_each(schema.get("patternProperties")), *map(schema.get, _EACH_MEMBER)]
    for inner in everywhere:
        if isinstance(inner, dict):
            yield from ((inner, part) for part in value.values())
    if isinstance(inner := schema.get("propertyNames"), dict):
        yield from ((inner, name) for name in value)


def _items(schema: dict[str, Any], value: list[Any]) -> Iterator[tuple[object, object]]:
    for name in _BY_PLACE:
        if isinstance(inner := schema.get(name), list):
            yield from zip(inner, value, strict=False)
    for name in _EACH_ITEM:
        if isinstance(inner := schema.get(name), dict):
            yield from ((inner, part) for part in value)


def _each(container: object) -> list[object]:
    """The subschemas of a list, or of an object by name."""
    if isinstance(container, dict):
        return list(container.values())
    return container if isinstance(container, list) else []
