"""JSON Schema: the one module that knows the validator.

A schema comes from a caller, and a value from a model: neither is to be trusted with our network, memory or time. Nothing outside the schema is ever fetched; patterns match in
linear time; formats are not judged; what judging would cost is bounded beforehand (`gate.schema_work`). A schema that does not keep to that is not usable, and then nothing
is judged by it: a caller is not refused what the provider accepts.
"""

from __future__ import annotations

import itertools
import urllib.parse
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import jsonschema_rs
import msgspec

from gate.errors import SchemaUnusable
from gate.schema_work import WORD_BITS, TooMuchWork, Weighed, Weigher

__all__ = ["CompiledSchema", "SchemaError", "compile_schema"]

SCHEMA_BYTES_MAX: Final = 262_144  # about what OpenAI's own bounds allow, several times over
SCHEMA_DEPTH_MAX: Final = 100  # the validator itself reads no more than 255 levels
REFS_MAX: Final = 512  # with some thousands the validator no longer comes to an end
PATTERNS_MAX: Final = 64  # at up to 1 ms each
PATTERN_BYTES_MAX: Final = 65_536  # compiled; with as much again for its automaton
ERRORS_MAX: Final = 8
ERROR_CHARS_MAX: Final = 300
# Above it no errors are listed: the validator makes one for every branch of every union, at 10 us and 500 bytes each.
DETAILED_WORK_MAX: Final = 10_000
# The same for bytes: each of those errors copies the part of the value that it is about, at most the whole.
DETAILED_BYTES_MAX: Final = 67_108_864
# Stands in the validator's sentences for the value, which may be as large as the answer.
VALUE: Final = "this value"
TOO_LARGE: Final = "the answer does not fit the schema, and is too large to say where"

# References whose target depends on more than the document, and names that move what `#` means.
_MOVING_REFS: Final = ("$dynamicRef", "$recursiveRef")
_BASES: Final = ("$id", "$schema")
_BASES_OF_DRAFT_4: Final = ("$id", "$schema", "id")


class SchemaError(msgspec.Struct, frozen=True):
    """One place where a value does not fit. `pointer` (RFC 6901) leads into the value; `message` is the validator's. Both are cut where they are long, and raw.

    `rule` leads into the schema, to what was not kept, and `expected` is the type that it asks for: nothing of the value.
    """

    pointer: str
    keyword: str
    message: str
    rule: str = ""
    expected: str = ""

    def __repr__(self) -> str:
        return f"SchemaError({self.keyword!r}, {len(self.message)} characters)"


class CompiledSchema:
    """A schema that values can be judged by; `patterns`: how many it has."""

    def __init__(
        self, schema: dict[str, Any] | bool, refs: Mapping[str, object], patterns: int
    ) -> None:
        self.patterns = patterns
        self._weigher = Weigher(schema, refs)
        options = jsonschema_rs.RegexOptions(
            size_limit=PATTERN_BYTES_MAX, dfa_size_limit=PATTERN_BYTES_MAX
        )
        self._validator = jsonschema_rs.validator_for(
            schema, mask=VALUE, validate_formats=False, pattern_options=options, offline=True
        )

    def check(self, value: object) -> tuple[SchemaError, ...]:
        """The first errors of a value that `gate.strict_json` parsed; none: it fits. Raises `SchemaUnusable` where to judge it would take too much."""
        return self.errors(value, self.weigh(value))

    def weigh(self, value: object) -> Weighed:
        """What it takes to judge `value`; raises `SchemaUnusable` where that is too much."""
        try:
            return self._weigher.weigh(value)
        except TooMuchWork as error:
            raise SchemaUnusable from error

    def errors(self, value: object, weighed: Weighed) -> tuple[SchemaError, ...]:
        """The first errors of a value that was weighed."""
        work = weighed.work
        if self._validator.is_valid(value):
            return ()
        if work > DETAILED_WORK_MAX or work * _size(value) > DETAILED_BYTES_MAX:
            return (SchemaError("", "schema", TOO_LARGE),)
        found = self._validator.iter_errors(value)
        return tuple(map(_error, itertools.islice(found, ERRORS_MAX)))


def compile_schema(schema: object) -> CompiledSchema:
    """Raises `SchemaUnusable`; without a `$schema` that says otherwise it is of draft 2020-12."""
    if not isinstance(schema, dict | bool):
        raise SchemaUnusable
    try:
        if len(msgspec.json.encode(schema)) > SCHEMA_BYTES_MAX:
            raise SchemaUnusable
        return CompiledSchema(schema, *_surveyed(schema))
    # The last one: the encoder's, for what no JSON parser returns and for half surrogates.
    except (RecursionError, TypeError, ValueError) as error:
        raise SchemaUnusable from error


def _surveyed(schema: object) -> tuple[dict[str, object], int]:
    """The targets of all references and the number of patterns, after a look at everything that the validator would have to follow. Raises `SchemaUnusable`."""
    refs: dict[str, object] = {}
    ref_count = pattern_count = 0
    for name, value in _members(schema):
        if name == "$ref" and isinstance(value, str):
            ref_count += 1
            refs[value] = _target(schema, value)
        elif name == "pattern":
            pattern_count += 1
        elif name == "patternProperties" and isinstance(value, dict):
            pattern_count += len(value)
        elif name in _MOVING_REFS and isinstance(value, str):
            raise SchemaUnusable
    if ref_count > REFS_MAX or pattern_count > PATTERNS_MAX:
        raise SchemaUnusable
    return refs, pattern_count


def _members(schema: object) -> Iterator[tuple[str, object]]:
    """Every member of every object, level by level. Raises `SchemaUnusable` where it is too deep, an inner object has a base of its own, or a number is too large."""
    draft = schema.get("$schema") if isinstance(schema, dict) else None
    bases = _BASES_OF_DRAFT_4 if "draft-04" in str(draft) else _BASES
    level, depth = [schema], 0
    while level:
        if depth > SCHEMA_DEPTH_MAX:
            raise SchemaUnusable
        inner: list[object] = []
        for each in level:
            if isinstance(each, dict):
                if depth and any(isinstance(each.get(name), str) for name in bases):
                    raise SchemaUnusable
                yield from each.items()
                inner += each.values()
            elif isinstance(each, list):
                inner += each
            elif isinstance(each, int) and each.bit_length() > WORD_BITS:
                raise SchemaUnusable
        level, depth = inner, depth + 1


def _target(schema: object, ref: str) -> object:
    """What `#` or `#/...` refers to; any other reference leaves the document, or might. Raises `SchemaUnusable`."""
    if ref != "#" and not ref.startswith("#/"):
        raise SchemaUnusable
    target: Any = schema
    for token in urllib.parse.unquote(ref).split("/")[1:]:
        name = token.replace("~1", "/").replace("~0", "~")
        if isinstance(target, dict) and name in target:
            target = target[name]
        elif isinstance(target, list) and name.isdecimal() and int(name) < len(target):
            target = target[int(name)]
        else:
            raise SchemaUnusable
    return target


def _size(value: object) -> int:
    return len(msgspec.json.encode(value))


def _error(error: jsonschema_rs.ValidationError) -> SchemaError:
    kind = error.kind
    expected = (
        " or ".join(kind.types) if isinstance(kind, jsonschema_rs.ValidationErrorKind.Type) else ""
    )
    return SchemaError(
        _cut(_pointer(error.instance_path)),
        kind.name,
        _cut(error.message),
        _cut(_pointer(error.schema_path)),
        expected,
    )


def _pointer(path: Sequence[object]) -> str:
    tokens = (str(token).replace("~", "~0").replace("/", "~1") for token in path)
    return "".join(f"/{token}" for token in tokens)


def _cut(text: str) -> str:
    return text if len(text) <= ERROR_CHARS_MAX else f"{text[: ERROR_CHARS_MAX - 1]}…"
