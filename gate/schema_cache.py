"""Compiled schemas over requests, and what one request may cost to judge.

Clients send the same tools with every request, and to compile a schema takes up to 65 ms. So a process keeps what it has compiled, by a digest of the schema's bytes: the least recently used
goes where there are too many, or too much is kept. What was not usable is kept as such. One bound more is each request's own: a caller may declare a thousand schemas, and an answer may
call each of them, in one read.

Neither is shared between threads: whoever judges is on the loop's.
"""

from __future__ import annotations

import hashlib
from typing import Final

import msgspec

from gate.errors import SchemaUnusable
from gate.loose_json import tolerant_object
from gate.schema import CompiledSchema, SchemaError, compile_schema
from gate.schema_work import PAIR_UNITS, PAIRS_MAX

__all__ = ["RequestSchemas", "SchemaCache"]

SCHEMAS_MAX: Final = 512
KEPT_BYTES_MAX: Final = 67_108_864  # by the estimate below
# Measured: what a schema takes compiled, with its parsed form, is up to 48 times its text, and a pattern up to twice its own bound.
TEXT_FACTOR: Final = 64
PATTERN_BYTES: Final = 131_072
ENTRY_BYTES: Final = 1_024
WORK_MAX: Final = 8_000_000  # units of 0.1 us, for all attempts of one request together
TOO_MUCH: Final = PAIR_UNITS * PAIRS_MAX  # what it may cost to know that a value takes too much
PATTERNS_MAX: Final = 256  # compiled for one request, at up to 1 ms each


class SchemaCache:
    """The schemas that one process keeps compiled. `kept_bytes`: an estimate, from above, of the memory that they take."""

    def __init__(
        self, *, schemas_max: int = SCHEMAS_MAX, kept_bytes_max: int = KEPT_BYTES_MAX
    ) -> None:
        self.kept_bytes = 0
        self._schemas_max = schemas_max
        self._kept_bytes_max = kept_bytes_max
        self._kept: dict[bytes, CompiledSchema | None] = {}  # the one that was used last is last
        self._sizes: dict[bytes, int] = {}

    def of(self, text: bytes) -> CompiledSchema:
        """The schema that this JSON is. Raises `SchemaUnusable`, each time."""
        key = hashlib.blake2b(text, digest_size=32).digest()
        if key in self._kept:
            schema = self._kept[key] = self._kept.pop(key)
        else:
            schema = _compiled(text)
            self._keep(key, schema, _size(text, schema))
        if schema is None:
            raise SchemaUnusable
        return schema

    def _keep(self, key: bytes, schema: CompiledSchema | None, size: int) -> None:
        self._kept[key], self._sizes[key] = schema, size
        self.kept_bytes += size
        while len(self._kept) > self._schemas_max or self.kept_bytes > self._kept_bytes_max:
            oldest = next(iter(self._kept))
            del self._kept[oldest]
            self.kept_bytes -= self._sizes.pop(oldest)

    def __len__(self) -> int:
        return len(self._kept)

    def __repr__(self) -> str:
        return f"SchemaCache({len(self._kept)} schemas, {self.kept_bytes} bytes)"


class RequestSchemas:
    """The schemas of one request, for all its attempts; what it takes to judge by them has a bound. `cache`: where they are kept, its own where there is none."""

    def __init__(self, cache: SchemaCache | None = None) -> None:
        self._cache = SchemaCache() if cache is None else cache
        self._work_left = WORK_MAX
        self._patterns_left = PATTERNS_MAX
        self._seen: set[int] = set()

    def check(self, text: bytes, value: object) -> tuple[SchemaError, ...]:
        """The first errors of `value` by the schema that this JSON is; none: it fits. Raises `SchemaUnusable`, also where this request has cost too much already."""
        if self._work_left <= 0 or self._patterns_left <= 0:
            raise SchemaUnusable
        schema = self._cache.of(text)
        # Kept or not, a schema counts: the same request is judged alike whatever came before it.
        if hash(text) not in self._seen:
            self._seen.add(hash(text))
            self._patterns_left -= schema.patterns
        try:
            weighed = schema.weigh(value)
        except SchemaUnusable:
            self._work_left -= TOO_MUCH
            raise
        self._work_left -= weighed.cost
        return schema.errors(value, weighed)

    def check_by(self, schema: object, value: object) -> tuple[SchemaError, ...]:
        """The same by a schema that has been parsed."""
        try:
            text = msgspec.json.encode(schema)
        # What no JSON parser returns, and half surrogates.
        except (RecursionError, TypeError, ValueError) as error:
            raise SchemaUnusable from error
        return self.check(text, value)

    def __repr__(self) -> str:
        return f"RequestSchemas({self._work_left} units left)"


def _compiled(text: bytes) -> CompiledSchema | None:
    value = tolerant_object(b'{"schema":%b}' % text) or {}
    try:
        return compile_schema(value.get("schema"))
    except SchemaUnusable:
        return None


def _size(text: bytes, schema: CompiledSchema | None) -> int:
    """What keeping it takes."""
    if schema is None:
        return ENTRY_BYTES
    return ENTRY_BYTES + TEXT_FACTOR * len(text) + PATTERN_BYTES * schema.patterns
